//! Numbers as ECMAScript writes them, and whether a double can hold what a text says.

/// The text of a finite double as `JSON.stringify` gives it (ECMA-262 Number::toString).
pub(super) fn ecmascript(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let scientific = shortest(value.abs());
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("the exponent form has an e");
    let exponent: i32 = exponent.parse().expect("the exponent of a double is small");
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let count = i32::try_from(digits.len()).expect("at most 17 digits");
    // The decimal point stands after this many digits.
    let point = exponent + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).expect("not negative"));
    let sign = if value < 0.0 { "-" } else { "" };
    if (count..=21).contains(&point) {
        format!("{sign}{digits}{}", zeros(point - count))
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = digits.split_at(usize::try_from(point).expect("positive"));
        format!("{sign}{whole}.{fraction}")
    } else if (-5..=0).contains(&point) {
        format!("{sign}0.{}{digits}", zeros(-point))
    } else {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let plus = if exponent > 0 { "+" } else { "" };
        format!("{sign}{first}{dot}{rest}e{plus}{exponent}")
    }
}

/// The fewest digits that read back as the same double, the closest ones where several are that
/// few, the even one where two are equally close: what ECMAScript asks for. In exponent form.
fn shortest(value: f64) -> String {
    // Rust finds how many digits it takes, but breaks a tie upwards: 1960362643280207.25, whose
    // neighbours are a quarter away, would end in .3. Rounding to so many digits breaks it to
    // even. At a power of two, below which doubles lie closer, the rounded text may be another
    // double's (5.684341886080801e-14 is not 2^-44); then Rust's is right.
    let shortest = format!("{value:e}");
    let digits = shortest
        .bytes()
        .take_while(|byte| *byte != b'e')
        .filter(u8::is_ascii_digit);
    let rounded = format!("{value:.*e}", digits.count() - 1);
    if rounded.parse() == Ok(value) {
        rounded
    } else {
        shortest
    }
}

/// Whether two JSON number texts say the same decimal number. `-0` and `0` are the same.
pub(super) fn same_decimal(a: &str, b: &str) -> bool {
    match (decimal(a), decimal(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// Sign, significant digits, and the power of ten of the last digit. `None`: the exponent is
/// beyond all doubles.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let kept = all.trim_end_matches('0');
    let digits = kept.trim_start_matches('0').to_owned();
    if digits.is_empty() {
        return Some((false, digits, 0));
    }
    let exponent: i64 = exponent.parse().ok()?;
    let dropped = i64::try_from(all.len() - kept.len()).ok()?;
    let shift = i64::try_from(fraction.len()).ok()?;
    Some((
        negative,
        digits,
        exponent.checked_sub(shift)?.checked_add(dropped)?,
    ))
}
