//! Instants in UTC with microseconds, as stored and as written in envelopes.
//!
//! One reading for every database, so that none of them gets to apply its own: see
//! [`Timestamp::from_str`].

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z, within the years 0001 to 9999.
///
/// Written `2026-01-31T09:30:00.000001Z`, always with six fractional digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    unix_micros: i64,
}

/// Text that is not a time this crate takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text} is not a time that can be stored: {reason}")]
pub struct ParseError {
    /// What was given, quoted and cut.
    pub text: String,
    pub reason: Reason,
}

/// Why a text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("expected RFC 3339 with a zone, such as 2026-01-31T09:30:00.5Z")]
    Syntax,
    #[error("it has no zone, so it could be any of 24 instants; add Z or an offset such as +02:00")]
    NoZone,
    #[error("there is no such day or time of day")]
    NoSuchTime,
    #[error(
        "it is a leap second, which databases read differently; give the second before or after"
    )]
    LeapSecond,
    #[error("its fraction has more than nine digits")]
    Fraction,
    #[error("in UTC it lies outside the years 0001 to 9999")]
    OutOfRange,
}

impl Reason {
    /// A stable word for the reason, as the golden vectors have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::NoZone => "no_zone",
            Self::NoSuchTime => "no_such_time",
            Self::LeapSecond => "leap_second",
            Self::Fraction => "fraction",
            Self::OutOfRange => "out_of_range",
        }
    }
}

impl Timestamp {
    /// `None` outside the years 0001 to 9999.
    #[must_use]
    pub fn from_unix_micros(unix_micros: i64) -> Option<Self> {
        const FIRST: i64 = -62_135_596_800_000_000;
        const LAST: i64 = 253_402_300_799_999_999;
        (FIRST..=LAST)
            .contains(&unix_micros)
            .then_some(Self { unix_micros })
    }

    #[must_use]
    pub fn unix_micros(self) -> i64 {
        self.unix_micros
    }
}

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.unix_micros.div_euclid(MICROS_PER_SECOND);
        let micros = self.unix_micros.rem_euclid(MICROS_PER_SECOND);
        let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
        let second = seconds.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"
        )
    }
}

impl FromStr for Timestamp {
    type Err = ParseError;

    /// Reads RFC 3339: a date, `T`, a time and a zone (`Z` or an offset), letters in either case.
    ///
    /// The fraction may have one to nine digits; those past the sixth are cut off, never rounded,
    /// so that no time moves forwards. A second of 60 is refused everywhere, a true leap second
    /// included: databases read it as another second, and not all as the same.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text).map_err(|reason| ParseError {
            text: crate::invalid::quote(text),
            reason,
        })
    }
}

fn parse(text: &str) -> Result<Timestamp, Reason> {
    let bytes = text.as_bytes();
    // The date and the time of day have fixed places.
    for (at, expected) in [
        (4, b"--"),
        (7, b"--"),
        (10, b"Tt"),
        (13, b"::"),
        (16, b"::"),
    ] {
        if !bytes.get(at).is_some_and(|byte| expected.contains(byte)) {
            return Err(Reason::Syntax);
        }
    }
    let number = |from: usize, to: usize| -> Result<i64, Reason> {
        let digits = bytes.get(from..to).ok_or(Reason::Syntax)?;
        digits.iter().try_fold(0, |sum, digit| match digit {
            b'0'..=b'9' => Ok(sum * 10 + i64::from(digit - b'0')),
            _ => Err(Reason::Syntax),
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);

    let mut at = 19;
    let mut micros = 0;
    if bytes.get(at) == Some(&b'.') {
        let count = bytes[at + 1..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        match count {
            0 => return Err(Reason::Syntax),
            1..=9 => {}
            _ => return Err(Reason::Fraction),
        }
        let kept = count.min(6);
        let scale = 10_i64.pow(6 - u32::try_from(kept).expect("at most six"));
        micros = number(at + 1, at + 1 + kept)? * scale;
        at += 1 + count;
    }

    let offset_minutes = match &bytes[at..] {
        [] => return Err(Reason::NoZone),
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 23 || minutes > 59 {
                return Err(Reason::NoSuchTime);
            }
            let total = hours * 60 + minutes;
            if *sign == b'-' { -total } else { total }
        }
        _ => return Err(Reason::Syntax),
    };

    if second == 60 {
        return Err(Reason::LeapSecond);
    }
    if !(1..=12).contains(&month)
        || !(1..=days_in_month(year, month)).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return Err(Reason::NoSuchTime);
    }
    let seconds = days_from_civil(year, month, day) * SECONDS_PER_DAY
        + hour * 3600
        + (minute - offset_minutes) * 60
        + second;
    Timestamp::from_unix_micros(seconds * MICROS_PER_SECOND + micros).ok_or(Reason::OutOfRange)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;

/// Days since 1970-01-01 in the proleptic Gregorian calendar. Years are counted from March, so
/// that the leap day is the last of its year and the months before it have fixed lengths.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - EPOCH
}

/// The reverse of [`days_from_civil`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = (shifted + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Only the canonical form: another spelling of the same instant would give the object that
/// holds it another digest.
impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let timestamp: Self = text.parse().map_err(serde::de::Error::custom)?;
        if timestamp.to_string() == text {
            Ok(timestamp)
        } else {
            Err(serde::de::Error::custom(format_args!(
                "the time {text} is not in canonical form; write {timestamp}"
            )))
        }
    }
}

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_the_calendar_goes_there_and_back() {
        let first = days_from_civil(1, 1, 1);
        let last = days_from_civil(9999, 12, 31);
        assert_eq!(days_from_civil(1970, 1, 1), 0);
        let (mut year, mut month, mut day) = (1, 1, 1);
        for days in first..=last {
            assert_eq!(civil(days), (year, month, day));
            assert_eq!(days_from_civil(year, month, day), days);
            day += 1;
            if day > days_in_month(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert_eq!((year, month, day), (10_000, 1, 1));
    }

    #[test]
    fn objects_hold_one_spelling() {
        let canonical = "\"2026-01-31T09:30:00.500000Z\"";
        let read: Timestamp = serde_json::from_str(canonical).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), canonical);
        for other in [
            "2026-01-31T09:30:00.5Z",
            "2026-01-31t09:30:00.500000z",
            "2026-01-31T10:30:00.500000+01:00",
        ] {
            let error = serde_json::from_str::<Timestamp>(&format!("\"{other}\"")).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("write 2026-01-31T09:30:00.500000Z"),
                "{error}"
            );
        }
    }
}
