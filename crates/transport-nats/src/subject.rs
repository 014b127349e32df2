//! Subjects: what one may be, and what a stream's list of them covers.

use postrider_transport::target::Alphabet;

/// In a rendered value all of printable ASCII stays, but for what structures subjects (`.`, `*`,
/// `>`, space), `%`, and `/` and `$`, which some programs take for more than a character.
pub(crate) const ALPHABET: Alphabet = Alphabet {
    punctuation: "!#&'()+,:;=?@[]^`{|}~",
    // A server's control line holds 4,096 bytes: subject, reply subject, sizes.
    target_bytes_max: 2_048,
};

/// Whether it can be published to. The text after "the target …" says what is wrong.
pub(crate) fn check(subject: &str) -> Result<(), &'static str> {
    check_levels(subject)?;
    if subject.starts_with('$') || subject.starts_with("_INBOX.") {
        return Err("is reserved by the server; choose another first level");
    }
    Ok(())
}

pub(crate) fn check_levels(subject: &str) -> Result<(), &'static str> {
    if subject.split('.').any(str::is_empty) {
        return Err("has an empty level; remove the dot too many");
    }
    if subject.split('.').any(|token| token == "*" || token == ">") {
        return Err("holds a wildcard; a message goes to one subject");
    }
    if !subject.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("holds a space or a character outside ASCII");
    }
    Ok(())
}

pub(crate) fn is_stream_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b".*>/\\".contains(&byte))
}

/// Whether every subject of `pattern` is one of `filter`.
pub(crate) fn covers(filter: &str, pattern: &str) -> bool {
    let mut pattern = pattern.split('.');
    for token in filter.split('.') {
        match (token, pattern.next()) {
            (">", Some(_)) => return true,
            (_, None) | (_, Some(">")) => return false,
            ("*", Some(_)) => {}
            (token, Some(other)) => {
                if token != other {
                    return false;
                }
            }
        }
    }
    pattern.next().is_none()
}

/// Whether some subject is in both.
pub(crate) fn overlap(left: &str, right: &str) -> bool {
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(a), Some(b)) => {
                if a != b && a != "*" && b != "*" {
                    return false;
                }
            }
        }
    }
}

/// The subjects that a template can make, as a filter: a level with a placeholder is `*`; if the
/// last level is an event type, whose dots make more levels, it is `>`.
pub(crate) fn filter_of(template: &str) -> String {
    let levels: Vec<_> = template.split('.').collect();
    let last = levels.len().saturating_sub(1);
    let filter = levels.iter().enumerate().map(|(at, level)| {
        if at == last && *level == "{event_type}" {
            ">"
        } else if level.contains('{') {
            "*"
        } else {
            level
        }
    });
    filter.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_covers_what_it_names() {
        let cases = [
            ("a.b", "a.b", true),
            ("a.b", "a.c", false),
            ("a.*", "a.b", true),
            ("a.*", "a.*", true),
            ("a.*", "a.b.c", false),
            ("a.>", "a.b.c", true),
            ("a.>", "a.*", true),
            ("a.>", "a.>", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("a.b", "a.*", false),
            ("a.*", "a.>", false),
            ("a.b.c", "a.b", false),
        ];
        for (filter, pattern, expect) in cases {
            assert_eq!(covers(filter, pattern), expect, "{filter} {pattern}");
        }
    }

    #[test]
    fn filters_overlap_where_one_subject_fits_both() {
        let cases = [
            ("a.b", "a.*", true),
            ("a.b", "a.>", true),
            ("a.*.c", "a.b.*", true),
            ("a", "a.>", false),
            ("a.b", "a.c", false),
            ("a.*", "a.b.c", false),
        ];
        for (left, right, expect) in cases {
            assert_eq!(overlap(left, right), expect, "{left} {right}");
            assert_eq!(overlap(right, left), expect, "{right} {left}");
        }
    }

    #[test]
    fn templates_become_filters() {
        let cases = [
            ("orders.{event_type}", "orders.>"),
            ("{tenant}.{event_type}", "*.>"),
            ("{event_type}.x", "*.x"),
            ("a-{tenant}.b", "*.b"),
            ("a.b", "a.b"),
            ("a.{aggregate_id}", "a.*"),
        ];
        for (template, expect) in cases {
            assert_eq!(filter_of(template), expect);
        }
    }

    #[test]
    fn subjects_and_stream_names_are_checked() {
        for good in ["a", "a.b-c.x%20", "a.b:c"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "", "a..b", ".a", "a.", "a.*", "a.>", "$JS.x", "_INBOX.x", "a b", "é",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(is_stream_name("ORDERS_1-x"));
        for bad in ["", "a.b", "a b", "a*", "a>", "a/b", "a\\b"] {
            assert!(!is_stream_name(bad), "{bad}");
        }
    }
}
