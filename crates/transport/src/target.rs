//! Target templates, such as `orders.{event_type}`: a destination's frozen target with an event's
//! fields put in.
//!
//! One rule for every transport: ASCII letters, digits, `-` and `_` of a value stay, and so does
//! the punctuation of the transport's [`Alphabet`]; every other byte of its UTF-8 becomes `%` and
//! two upper-case hex digits. A dot stays in `{event_type}` only, where it makes levels, and only
//! if it stands between two other characters. Two different values never give the same text.

use postrider_core::Outcome;

use crate::{Error, Routing};

/// What may stand in a rendered value beside letters, digits, `-` and `_`. Never `%`, `.` or
/// anything that structures the transport's targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alphabet {
    pub punctuation: &'static str,
    /// Longest rendered target, in bytes.
    pub target_bytes_max: usize,
}

/// The fields a template may name.
const FIELDS: [(&str, Field); 4] = [
    ("event_type", Field::EventType),
    ("tenant", Field::Tenant),
    ("aggregate_type", Field::AggregateType),
    ("aggregate_id", Field::AggregateId),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    EventType,
    Tenant,
    AggregateType,
    AggregateId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

/// A parsed target template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    alphabet: Alphabet,
}

impl Template {
    /// Parses a template. The text around the placeholders is kept as it is: checking it is the
    /// transport's task.
    ///
    /// # Errors
    /// `target_template`: a placeholder that does not exist, or a brace that stands alone.
    pub fn parse(text: &str, alphabet: Alphabet) -> Result<Self, Error> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(at);
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let Some((name, tail)) = after
                .strip_prefix('{')
                .and_then(|name| name.split_once('}'))
            else {
                return Err(invalid(format!(
                    "the target {text:?} has a brace that belongs to no placeholder; write \
                     placeholders as {{event_type}}"
                )));
            };
            let Some((_, field)) = FIELDS.iter().find(|(known, _)| *known == name) else {
                let known: Vec<_> = FIELDS
                    .iter()
                    .map(|(known, _)| format!("{{{known}}}"))
                    .collect();
                return Err(invalid(format!(
                    "the target {text:?} names {{{name}}}, which does not exist; use one of {}",
                    known.join(", ")
                )));
            };
            parts.push(Part::Field(*field));
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { parts, alphabet })
    }

    /// Whether every event goes to the same target.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// The template with every placeholder as `wildcard`, to see what it can reach.
    #[must_use]
    pub fn pattern(&self, wildcard: &str) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(_) => wildcard.to_owned(),
        };
        self.parts.iter().map(text).collect()
    }

    /// The target of one event.
    ///
    /// # Errors
    /// [`Outcome::Rejected`]: a field is empty, or the target is too long.
    pub fn render(&self, routing: &Routing) -> Result<String, Outcome> {
        let mut target = String::with_capacity(64);
        for part in &self.parts {
            match part {
                Part::Text(text) => target.push_str(text),
                Part::Field(field) => {
                    let value = match field {
                        Field::EventType => &routing.event_type,
                        Field::Tenant => &routing.tenant,
                        Field::AggregateType => &routing.aggregate_type,
                        Field::AggregateId => &routing.aggregate_id,
                    };
                    if value.is_empty() {
                        return Err(Outcome::rejected(
                            "target_field_empty",
                            "a field of the target is empty",
                        ));
                    }
                    self.push(&mut target, value, *field == Field::EventType);
                }
            }
        }
        let max = self.alphabet.target_bytes_max;
        if target.len() > max {
            let length = target.len();
            let detail = format!("the target is {length} bytes long; at most {max} are possible");
            return Err(Outcome::rejected("target_too_long", &detail));
        }
        Ok(target)
    }

    fn push(&self, target: &mut String, value: &str, levels: bool) {
        let bytes = value.as_bytes();
        for (at, &byte) in bytes.iter().enumerate() {
            let between = || {
                let is_other = |at: Option<usize>| {
                    at.and_then(|at| bytes.get(at))
                        .is_some_and(|&byte| byte != b'.')
                };
                is_other(at.checked_sub(1)) && is_other(Some(at + 1))
            };
            let stays = match byte {
                b'-' | b'_' => true,
                b'.' => levels && between(),
                byte => {
                    byte.is_ascii_alphanumeric()
                        || self.alphabet.punctuation.as_bytes().contains(&byte)
                }
            };
            if stays {
                target.push(char::from(byte));
            } else {
                push_percent(target, byte);
            }
        }
    }
}

fn push_percent(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

fn invalid(message: String) -> Error {
    Error::Misconfigured {
        code: "target_template",
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALPHABET: Alphabet = Alphabet {
        punctuation: "@:",
        target_bytes_max: 60,
    };

    fn render(template: &str, event_type: &str, aggregate_id: &str) -> Result<String, Outcome> {
        Template::parse(template, ALPHABET)
            .unwrap()
            .render(&Routing {
                event_type: event_type.to_owned(),
                tenant: "t 1".to_owned(),
                aggregate_type: "order".to_owned(),
                aggregate_id: aggregate_id.to_owned(),
            })
    }

    #[test]
    fn values_keep_letters_and_encode_the_rest() {
        let check = |value: &str, expect: &str| {
            assert_eq!(render("{aggregate_id}", "e", value).unwrap(), expect)
        };
        check("a-b_C9", "a-b_C9");
        check("a b", "a%20b");
        check("a.b", "a%2Eb");
        check("a*>/b", "a%2A%3E%2Fb");
        check("100%", "100%25");
        check("a@b:c", "a@b:c");
        check("é", "%C3%A9");
        check("{x}", "%7Bx%7D");
    }

    #[test]
    fn dots_make_levels_in_event_types_only_and_never_empty_ones() {
        let check = |value: &str, expect: &str| {
            assert_eq!(
                render("o.{event_type}.{tenant}", value, "1").unwrap(),
                expect
            );
        };
        check("order.placed", "o.order.placed.t%201");
        check("run.created@2.0", "o.run.created@2.0.t%201");
        check("a..b", "o.a%2E%2Eb.t%201");
        check(".a.", "o.%2Ea%2E.t%201");
    }

    #[test]
    fn unknown_placeholders_and_lone_braces_are_refused() {
        for text in ["{nope}", "a{", "a}b", "{event_type", "{{event_type}}", "{}"] {
            let error = Template::parse(text, ALPHABET).unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::Misconfigured {
                        code: "target_template",
                        ..
                    }
                ),
                "{text}"
            );
        }
        let error = Template::parse("x.{event}", ALPHABET)
            .unwrap_err()
            .to_string();
        assert!(error.contains("{event_type}, {tenant}"), "{error}");
    }

    #[test]
    fn empty_fields_and_long_targets_are_rejected_without_suspending() {
        let code = |result: Result<String, Outcome>| match result {
            Err(Outcome::Rejected {
                code,
                suspends: false,
                ..
            }) => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            code(render("{aggregate_id}", "e", "")),
            "target_field_empty"
        );
        assert_eq!(
            code(render("{aggregate_id}", "e", &"é".repeat(20))),
            "target_too_long"
        );
    }

    #[test]
    fn a_pattern_shows_what_a_template_reaches() {
        let template = Template::parse("o.{event_type}.x", ALPHABET).unwrap();
        assert_eq!(template.pattern("*"), "o.*.x");
        assert!(!template.is_constant());
        assert!(Template::parse("o.x", ALPHABET).unwrap().is_constant());
    }
}
