//! Hides what differs from run to run: ids, times, digests, the folder and the receiver's port.
//! Ids and digests are numbered as they appear, so that the same one is seen to be the same.

use std::{cell::RefCell, collections::BTreeMap};

pub(crate) struct Mask {
    /// Ids that the transcript itself gives stay readable.
    given: String,
    fixed: Vec<(String, &'static str)>,
    numbers: RefCell<BTreeMap<&'static str, Vec<String>>>,
}

/// What stands before a byte offset or a schema version.
const NUMBERED: [&str; 3] = ["\"offset\":", "\"offset\": ", "schema is at version "];

impl Mask {
    pub(crate) fn new<const N: usize>(given: &str, fixed: [(String, &'static str); N]) -> Self {
        let commands: Vec<&str> = given
            .lines()
            .filter(|line| line.starts_with("$ ") || line.starts_with("> "))
            .collect();
        Self {
            given: commands.join("\n"),
            fixed: fixed.into(),
            numbers: RefCell::default(),
        }
    }

    pub(crate) fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (what, instead) in &self.fixed {
            text = text.replace(what, instead);
        }
        let mut masked = String::new();
        let mut rest = text.as_str();
        while let Some(first) = rest.chars().next() {
            if let Some((length, instead)) = self.mask(rest, masked.chars().last()) {
                masked.push_str(&instead);
                rest = &rest[length..];
            } else {
                masked.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        masked
    }

    /// What to put in place of the start of the text, and how long that is.
    fn mask(&self, text: &str, before: Option<char>) -> Option<(usize, String)> {
        // A number that others may change without changing what is shown here.
        for prefix in NUMBERED {
            if let Some(rest) = text.strip_prefix(prefix) {
                let digits =
                    rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                if digits > 0 {
                    return Some((prefix.len() + digits, format!("{prefix}<n>")));
                }
            }
        }
        if before.is_some_and(|c| c.is_ascii_alphanumeric()) {
            return None;
        }
        if let Some(id) = fits(text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
            return (!self.given.contains(id)).then(|| (id.len(), self.number("id", id)));
        }
        if let Some(time) = fits(text, "dddd-dd-ddTdd:dd:dd.ddddddZ") {
            return Some((time.len(), "<time>".to_owned()));
        }
        for tag in ["jcs-sha256-v1:", "sha256:"] {
            if let Some(digest) = fits(text, &format!("{tag}{}", "x".repeat(64))) {
                return Some((digest.len(), self.number("digest", digest)));
            }
        }
        None
    }

    fn number(&self, what: &'static str, text: &str) -> String {
        let mut numbers = self.numbers.borrow_mut();
        let known = numbers.entry(what).or_default();
        let at = known.iter().position(|known| known == text);
        let at = at.unwrap_or_else(|| {
            known.push(text.to_owned());
            known.len() - 1
        });
        format!("<{what} {}>", at + 1)
    }
}

/// The start of the text, if it has the form: `x` a lower-case hex digit, `d` a digit, anything
/// else itself.
fn fits<'a>(text: &'a str, form: &str) -> Option<&'a str> {
    let start = text.get(..form.len())?;
    // The tag of a digest holds letters of the form, so whole texts are compared first.
    let fits = start.bytes().zip(form.bytes()).all(|(c, form)| match form {
        b'x' => matches!(c, b'0'..=b'9' | b'a'..=b'f'),
        b'd' => c.is_ascii_digit(),
        other => c == other,
    });
    fits.then_some(start)
}
