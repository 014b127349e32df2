//! Free headers and trace context: what travels beside the envelope, outside its digest.

use crate::{
    invalid::{Invalid, Problem},
    text,
};

/// Free headers of an event, sorted by name, no name twice.
pub type Headers = Vec<(String, String)>;

/// Most headers of one event.
pub const COUNT_MAX: usize = 32;
/// Longest header name, in bytes.
pub const NAME_MAX: usize = 100;
/// Most bytes of all names and values together. Brokers and proxies commonly stop at 8 KiB.
pub const BYTES_MAX: usize = 8 * 1024;

/// Prefixes that transports, CloudEvents and signatures use themselves.
pub const RESERVED_PREFIXES: [&str; 9] = [
    "ce-",
    "ce_",
    "cloudevents",
    "nats-",
    "postrider-",
    "webhook-",
    "proxy-",
    "sec-",
    "x-forwarded-",
];

/// Names with a meaning to HTTP, to a broker or to postrider: a free header that carried one
/// could change where a message goes, who it seems to come from or how its body is read.
pub const RESERVED_NAMES: [&str; 31] = [
    "accept",
    "accept-encoding",
    "alt-svc",
    "authorization",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "keep-alive",
    "location",
    "server",
    "set-cookie",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "www-authenticate",
];

/// Checks sorted free headers: names are lower-case RFC 9110 tokens and not reserved, values
/// hold no control characters (they may be empty), and all of it stays within the bounds.
pub fn validate(headers: &[(String, String)]) -> Result<(), Invalid> {
    if headers.len() > COUNT_MAX {
        return Err(Invalid::inconsistent(
            "headers",
            format!(
                "there are {}, at most {COUNT_MAX} are allowed; remove some",
                headers.len()
            ),
        ));
    }
    let length = headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if length > BYTES_MAX {
        return Err(Invalid::new(
            "headers",
            Problem::TooLong {
                length,
                max: BYTES_MAX,
            },
        ));
    }
    for (name, value) in headers {
        let field = || format!("headers[{}]", crate::invalid::quote(name));
        header_name(name).map_err(|problem| Invalid::new(field(), problem))?;
        header_value(value).map_err(|problem| Invalid::new(field(), problem))?;
    }
    for pair in headers.windows(2) {
        if pair[0].0 >= pair[1].0 {
            let rule = if pair[0].0 == pair[1].0 {
                "is given twice; give it once"
            } else {
                "is out of order; sort headers by name"
            };
            return Err(Invalid::inconsistent(
                format!("headers[{:?}]", pair[1].0),
                rule,
            ));
        }
    }
    Ok(())
}

/// The rule for one header's name.
pub fn header_name(name: &str) -> Result<(), Problem> {
    text::free("", name, NAME_MAX).map_err(|invalid| invalid.problem)?;
    if !name
        .bytes()
        .all(|byte| text::is_token_byte(byte) && !byte.is_ascii_uppercase())
    {
        return Err(Problem::Malformed {
            found: crate::invalid::quote(name),
            expected: "a header name of lower-case letters, digits and !#$%&'*+-.^_`|~",
        });
    }
    let reserved = RESERVED_NAMES.contains(&name)
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
    if reserved {
        return Err(Problem::Inconsistent(
            "is a reserved header name; choose another, such as one that starts with x-".into(),
        ));
    }
    Ok(())
}

/// The rule for one header's value.
pub fn header_value(value: &str) -> Result<(), Problem> {
    text::bounded("", value, BYTES_MAX).map_err(|invalid| invalid.problem)
}

/// Longest `traceparent`, in bytes.
pub const TRACEPARENT_MAX: usize = 255;
/// Longest `tracestate`, in bytes (W3C Trace Context).
pub const TRACESTATE_MAX: usize = 512;

/// Checks the syntax of W3C Trace Context: `traceparent` of version 00, or of a later one that
/// starts the same way; `tracestate` only beside a `traceparent`.
pub fn trace_context(traceparent: Option<&str>, tracestate: Option<&str>) -> Result<(), Invalid> {
    if let Some(value) = traceparent
        && !is_traceparent(value)
    {
        return Err(Invalid::malformed(
            "traceparent",
            value,
            "W3C trace context such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ));
    }
    if let Some(value) = tracestate {
        if traceparent.is_none() {
            return Err(Invalid::inconsistent(
                "tracestate",
                "is given without traceparent; give both or neither",
            ));
        }
        if !is_tracestate(value) {
            return Err(Invalid::malformed(
                "tracestate",
                value,
                "W3C trace state: up to 32 key=value pairs, separated by commas, 512 bytes in all",
            ));
        }
    }
    Ok(())
}

fn is_traceparent(value: &str) -> bool {
    let hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let mut parts = value.splitn(5, '-');
    let (Some(version), Some(trace), Some(parent), Some(flags)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let rest = parts.next();
    hex(version, 2)
        && version != "ff"
        && hex(trace, 32)
        && !zero(trace)
        && hex(parent, 16)
        && !zero(parent)
        && hex(flags, 2)
        && value.len() <= TRACEPARENT_MAX
        && rest.is_none_or(|rest| version != "00" && rest.bytes().all(|b| b.is_ascii_graphic()))
}

fn is_tracestate(value: &str) -> bool {
    let member = |member: &str| {
        let member = member.trim_matches([' ', '\t']);
        member.is_empty()
            || member.split_once('=').is_some_and(|(key, value)| {
                is_tracestate_key(key)
                    && (1..=256).contains(&value.len())
                    && value
                        .bytes()
                        .all(|b| matches!(b, b' '..=b'~') && b != b',' && b != b'=')
            })
    };
    // A tab would be a control character inside a header value; the standard's optional tab
    // around a comma is therefore not accepted.
    value.len() <= TRACESTATE_MAX
        && !value.is_empty()
        && !value.contains('\t')
        && value.split(',').count() <= 32
        && value.split(',').all(member)
}

fn is_tracestate_key(key: &str) -> bool {
    let part = |text: &str, max: usize| {
        (1..=max).contains(&text.len())
            && text.bytes().all(|b| {
                b.is_ascii_lowercase()
                    || b.is_ascii_digit()
                    || matches!(b, b'_' | b'-' | b'*' | b'/')
            })
    };
    match key.split_once('@') {
        Some((tenant, system)) => part(tenant, 241) && part(system, 14),
        None => part(key, 256),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: &str) -> Result<(), Invalid> {
        validate(&[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn header_names_are_lower_case_tokens_that_nobody_else_uses() {
        for name in ["x-note", "baggage", "x_y.z", "1"] {
            one(name, "").unwrap();
        }
        for name in RESERVED_NAMES {
            assert!(
                one(name, "v").unwrap_err().to_string().contains("reserved"),
                "{name}"
            );
        }
        for prefix in RESERVED_PREFIXES {
            assert!(one(&format!("{prefix}x"), "v").is_err(), "{prefix}");
        }
        for name in [
            "",
            "X-Note",
            "a b",
            "a:b",
            "é",
            "a\r\nb",
            &"x".repeat(NAME_MAX + 1),
        ] {
            assert!(one(name, "v").is_err(), "{name:?}");
        }
    }

    #[test]
    fn header_values_hold_any_text_but_control_characters() {
        for value in ["", " a b ", "100%", "é\u{1F600}", "\"q\""] {
            one("x-note", value).unwrap();
        }
        let text = one("x-note", "a\r\nX-Evil: 1").unwrap_err().to_string();
        assert!(
            text.starts_with("headers[\"x-note\"]: holds the control character U+000D"),
            "{text}"
        );
    }

    #[test]
    fn headers_are_bounded_sorted_and_single() {
        let many = |count: usize, length: usize| -> Headers {
            (0..count)
                .map(|n| (format!("x-{n:03}"), "v".repeat(length)))
                .collect()
        };
        validate(&many(COUNT_MAX, 10)).unwrap();
        assert!(validate(&many(COUNT_MAX + 1, 10)).is_err());
        validate(&many(8, 1019)).unwrap();
        assert!(validate(&many(8, 1020)).is_err());
        let pair =
            |a: &str, b: &str| validate(&[(a.into(), String::new()), (b.into(), String::new())]);
        pair("a", "b").unwrap();
        assert!(pair("a", "a").unwrap_err().to_string().contains("twice"));
        assert!(
            pair("b", "a")
                .unwrap_err()
                .to_string()
                .contains("out of order")
        );
    }

    #[test]
    fn trace_context_has_the_syntax_of_the_standard() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        trace_context(None, None).unwrap();
        for state in [
            None,
            Some("a=1"),
            Some("a=1,b@c=x y"),
            Some("rojo=00f067aa0ba902b7, congo=t61"),
        ] {
            trace_context(Some(good), state).unwrap();
        }
        trace_context(
            Some("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"),
            None,
        )
        .unwrap();
        for bad in [
            "",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert!(trace_context(Some(bad), None).is_err(), "{bad}");
        }
        for bad in [
            "",
            "a",
            "A=1",
            "a=",
            "a=1=2",
            "a=\t",
            &"a=1,".repeat(33),
            &format!("a={}", "x".repeat(300)),
        ] {
            assert!(trace_context(Some(good), Some(bad)).is_err(), "{bad}");
        }
        assert!(trace_context(None, Some("a=1")).is_err());
    }
}
