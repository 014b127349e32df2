//! The one way of writing: no white space, members sorted by UTF-16 code units, short escapes.

use std::{cmp::Ordering, fmt::Write as _};

use super::{number, parse::Tree};

/// RFC 8785 sorts by UTF-16 code units: U+1F600 (D83D DE00) comes before U+FB33.
pub(super) fn utf16_order(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

/// Writes a parsed value, whose members are sorted and whose numbers are canonical already.
pub(super) fn tree(out: &mut String, value: &Tree) {
    match value {
        Tree::Literal(text) => out.push_str(text),
        Tree::Number(text) => out.push_str(text),
        Tree::String(text) => string(out, text),
        Tree::Array(items) => sequence(out, '[', items, ']', tree),
        Tree::Object(members) => sequence(out, '{', members, '}', |out, (name, value)| {
            string(out, name);
            out.push(':');
            tree(out, value);
        }),
    }
}

/// Writes a value of one of this crate's types. Integers past 2^53 - 1, which only a receipt's
/// position can be, keep all their digits.
pub(super) fn json(out: &mut String, value: &serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(value) => match value.as_f64() {
            Some(double) if value.is_f64() => out.push_str(&number::ecmascript(double)),
            _ => write!(out, "{value}").expect("writing to a String succeeds"),
        },
        Value::String(text) => string(out, text),
        Value::Array(items) => sequence(out, '[', items, ']', json),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| utf16_order(a, b));
            sequence(out, '{', &members, '}', |out, (name, value)| {
                string(out, name);
                out.push(':');
                json(out, value);
            });
        }
    }
}

fn sequence<T>(
    out: &mut String,
    open: char,
    items: &[T],
    close: char,
    mut write: impl FnMut(&mut String, &T),
) {
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(close);
}

/// Escapes what JSON demands and nothing else: DEL, `/`, `<`, U+2028 stay as they are.
fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a String succeeds");
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}
