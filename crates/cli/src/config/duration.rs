//! Lengths of time as people write them: `250ms`, `5s`, `1m30s`, `24h`.

use std::time::Duration;

const UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// Why a text is not a length of time.
pub(crate) const FORM: &str =
    "a length of time with its unit, such as \"250ms\", \"5s\" or \"1m30s\" (us, ms, s, m, h, d)";

/// Whole numbers, each with a unit, added up. `None` for anything else, a bare number included:
/// nobody should have to guess whether 5 means seconds.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut micros = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let (_, size) = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters])?;
        rest = &rest[letters..];
        micros = micros.checked_add(number.checked_mul(*size)?)?;
    }
    Some(Duration::from_micros(micros))
}

/// Writes what [`parse`] reads, in the fewest units.
pub(crate) fn write(duration: Duration) -> String {
    let mut micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if micros == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in UNITS.iter().rev() {
        let count = micros / size;
        micros %= size;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        let check = |text: &str, micros: u64, written: &str| {
            let duration = parse(text).unwrap_or_else(|| panic!("{text} is a length of time"));
            assert_eq!(duration, Duration::from_micros(micros), "{text}");
            assert_eq!(write(duration), written);
            assert_eq!(parse(written), Some(duration));
        };
        check("250ms", 250_000, "250ms");
        check("5s", 5_000_000, "5s");
        check("90s", 90_000_000, "1m30s");
        check("1h0m1us", 3_600_000_001, "1h1us");
        check("0s", 0, "0s");
    }

    #[test]
    fn refuses_what_could_be_misread() {
        for text in [
            "",
            "5",
            "5 s",
            "-5s",
            "1.5s",
            "s",
            "5S",
            "5sec",
            "99999999999999999999s",
            "900000000000d",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
