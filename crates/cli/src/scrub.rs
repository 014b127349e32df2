//! The last line of defence for secrets: every secret that was read is remembered, and taken out
//! of whatever this process says. Messages are made without secrets; this is for the message of a
//! library that nobody foresaw.

use std::{
    borrow::Cow,
    sync::{PoisonError, RwLock},
};

/// Shorter ones would take ordinary words out of messages.
const LENGTH_MIN: usize = 6;

static SECRETS: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Remembers a secret, and the parts of it that are secrets where it is a URL.
pub(crate) fn remember(secret: &str) {
    add(std::iter::once(secret).chain(url_parts(secret)));
}

/// Remembers the parts of a URL that may be secrets. The URL as a whole stands in the file for
/// everybody to read.
pub(crate) fn remember_parts(url: &str) {
    add(url_parts(url));
}

fn add<'a>(parts: impl Iterator<Item = &'a str>) {
    let mut secrets = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    for part in parts {
        if part.len() >= LENGTH_MIN && !secrets.iter().any(|known| known == part) {
            secrets.push(part.to_owned());
        }
    }
    // A part inside a longer secret must not leave the rest of it behind.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
}

/// Password (or user, where that is all there is), query and fragment; and of the path what does
/// not look like a word. Of a database's URL the path is its name, which is none.
fn url_parts(text: &str) -> impl Iterator<Item = &str> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", ""));
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let password = user.split_once(':').map_or(user, |(_, password)| password);
    let (path, query) = tail.split_at(tail.find(['?', '#']).unwrap_or(tail.len()));
    let path = if scheme.starts_with("postgres") {
        ""
    } else {
        path
    };
    std::iter::once(password)
        .chain(path.split('/').filter(|segment| is_token(segment)))
        .chain(query.split(['?', '#', '&', '=']))
}

/// `orders` in a path is a word that must stay readable elsewhere.
fn is_token(segment: &str) -> bool {
    segment.len() >= 16 || segment.bytes().any(|byte| byte.is_ascii_digit())
}

/// The text without any remembered secret.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let secrets = SECRETS.read().unwrap_or_else(PoisonError::into_inner);
    let mut cleaned = Cow::Borrowed(text);
    for secret in secrets.iter() {
        if cleaned.contains(secret.as_str()) {
            cleaned = Cow::Owned(cleaned.replace(secret.as_str(), "…"));
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_secret_is_left() {
        remember("https://someone:S3CRET1@host/services/S3CRET2?token=S3CRET3#S3CRET4");
        remember("postgresql://u:S3CRET6@host/orders_db?password=S3CRET8");
        remember("short");
        let said = clean(
            "someone services S3CRET1 S3CRET2 S3CRET3 S3CRET4 S3CRET6 S3CRET8 orders_db short host",
        );
        assert_eq!(said, "someone services … … … … … … orders_db short host");
    }
}
