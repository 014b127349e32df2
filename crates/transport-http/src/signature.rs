//! Standard Webhooks signatures: made afresh for each attempt, and the check that a receiver does.
//!
//! Signed is `{id}.{timestamp}.{body}` with HMAC-SHA256; the header `webhook-signature` holds one
//! `v1,{base64}` per secret, separated by spaces, so that a receiver may know the old secret or
//! the new one while they change.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac};
use postrider_transport::Secret;
use sha2::Sha256;

/// The header with the event id, the same for every attempt.
pub const ID: &str = "webhook-id";
/// The header with the time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures.
pub const SIGNATURE: &str = "webhook-signature";

/// The tolerance that the standard's own libraries use.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Signatures that a receiver looks at; more are a flood, not a rotation.
const SIGNATURES_MAX: usize = 16;

const PREFIX: &str = "whsec_";

/// A signing key.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// A secret that is no signing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret is whsec_ and the base64 of 24 to 64 random bytes")]
pub struct BadSecret;

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the header {0} is missing")]
    Missing(&'static str),
    #[error("the header webhook-timestamp is not a number of seconds")]
    BadTimestamp,
    #[error("the timestamp is older than the tolerance: late, or sent again by somebody else")]
    TooOld,
    #[error("the timestamp is in the future beyond the tolerance: compare the clocks")]
    TooNew,
    #[error("no signature fits: the secret is another, or the message was changed on its way")]
    NoMatch,
}

impl Key {
    /// Reads `whsec_{base64}`.
    ///
    /// # Errors
    /// [`BadSecret`], which repeats nothing of it.
    pub fn parse(secret: &Secret) -> Result<Self, BadSecret> {
        let text = secret.reveal().trim();
        let text = text.strip_prefix(PREFIX).ok_or(BadSecret)?;
        let bytes = STANDARD.decode(text).map_err(|_| BadSecret)?;
        if !(24..=64).contains(&bytes.len()) {
            return Err(BadSecret);
        }
        Hmac::new_from_slice(&bytes)
            .map(Self)
            .map_err(|_| BadSecret)
    }

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The value of [`SIGNATURE`]: one signature per key.
#[must_use]
pub fn sign(keys: &[Key], id: &str, unix_seconds: i64, body: &[u8]) -> String {
    let timestamp = unix_seconds.to_string();
    let signature = |key: &Key| {
        let bytes = key.mac(id, &timestamp, body).finalize().into_bytes();
        format!("v1,{}", STANDARD.encode(bytes))
    };
    keys.iter().map(signature).collect::<Vec<_>>().join(" ")
}

/// Checks a received message, for receivers. `header` gives a header's value by its lower-case
/// name; `body` is what was received, byte for byte; any of the keys may fit. Comparing takes the
/// same time wherever a signature differs.
///
/// A message that passes may still be one that was seen before: within the tolerance anybody who
/// saw it can send it again. Remember its id (the inbox does) for at least twice the tolerance.
///
/// # Errors
/// Why it must not be taken.
pub fn verify<'a>(
    keys: &[Key],
    header: impl Fn(&'static str) -> Option<&'a str>,
    body: &[u8],
    now_unix_seconds: i64,
    tolerance: Duration,
) -> Result<(), Refused> {
    let get = |name| header(name).ok_or(Refused::Missing(name));
    let (id, timestamp, signatures) = (get(ID)?, get(TIMESTAMP)?, get(SIGNATURE)?);
    let sent: i64 = timestamp.parse().map_err(|_| Refused::BadTimestamp)?;
    let tolerance = i64::try_from(tolerance.as_secs()).unwrap_or(i64::MAX);
    if sent < now_unix_seconds.saturating_sub(tolerance) {
        return Err(Refused::TooOld);
    }
    if sent > now_unix_seconds.saturating_add(tolerance) {
        return Err(Refused::TooNew);
    }
    for signature in signatures.split(' ').take(SIGNATURES_MAX) {
        let Some(encoded) = signature.strip_prefix("v1,") else {
            continue;
        };
        let Ok(given) = STANDARD.decode(encoded) else {
            continue;
        };
        for key in keys {
            if key.mac(id, timestamp, body).verify_slice(&given).is_ok() {
                return Ok(());
            }
        }
    }
    Err(Refused::NoMatch)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID_VALUE: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SENT: i64 = 1_614_265_330;
    const BODY: &[u8] = b"{\"test\": 2432232314}";

    fn key(secret: &str) -> Key {
        Key::parse(&Secret::new(secret)).unwrap()
    }

    fn old() -> Key {
        key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    }

    fn new() -> Key {
        key("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
    }

    fn check(
        keys: &[Key],
        signature: &str,
        timestamp: &str,
        body: &[u8],
        now: i64,
    ) -> Result<(), Refused> {
        let header = |name| match name {
            ID => Some(ID_VALUE),
            TIMESTAMP => Some(timestamp),
            SIGNATURE => Some(signature),
            _ => None,
        };
        verify(keys, header, body, now, TOLERANCE)
    }

    #[test]
    fn the_standards_own_vector_comes_out() {
        let signature = sign(&[old()], ID_VALUE, SENT, BODY);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(
            check(&[old()], &signature, "1614265330", BODY, SENT),
            Ok(())
        );
    }

    #[test]
    fn during_a_rotation_either_secret_fits() {
        let both = sign(&[new(), old()], ID_VALUE, SENT, BODY);
        assert_eq!(both.split(' ').count(), 2);
        for known in [old(), new()] {
            assert_eq!(check(&[known], &both, "1614265330", BODY, SENT), Ok(()));
        }
        let alone = sign(&[new()], ID_VALUE, SENT, BODY);
        assert_eq!(
            check(&[old()], &alone, "1614265330", BODY, SENT),
            Err(Refused::NoMatch)
        );
    }

    #[test]
    fn whk_5_a_captured_request_passes_for_the_tolerance_and_not_longer() {
        let signature = sign(&[old()], ID_VALUE, SENT, BODY);
        let at = |now| check(&[old()], &signature, "1614265330", BODY, now);
        assert_eq!(at(SENT + 200), Ok(()));
        assert_eq!(at(SENT + 300), Ok(()));
        assert_eq!(at(SENT + 301), Err(Refused::TooOld));
        assert_eq!(at(SENT + 400), Err(Refused::TooOld));
        assert_eq!(at(SENT - 301), Err(Refused::TooNew));
    }

    #[test]
    fn what_was_changed_does_not_fit() {
        let signature = sign(&[old()], ID_VALUE, SENT, BODY);
        let check = |signature: &str, timestamp: &str, body: &[u8]| {
            check(&[old()], signature, timestamp, body, SENT)
        };
        assert_eq!(
            check(&signature, "1614265330", b"{\"test\": 1}"),
            Err(Refused::NoMatch)
        );
        assert_eq!(check(&signature, "1614265331", BODY), Err(Refused::NoMatch));
        assert_eq!(check("v1,AAAA", "1614265330", BODY), Err(Refused::NoMatch));
        assert_eq!(
            check("v1a,AAAA nonsense", "1614265330", BODY),
            Err(Refused::NoMatch)
        );
        assert_eq!(check("", "1614265330", BODY), Err(Refused::NoMatch));
        assert_eq!(check(&signature, "soon", BODY), Err(Refused::BadTimestamp));
        let missing = verify(&[old()], |_| None, BODY, SENT, TOLERANCE);
        assert_eq!(missing, Err(Refused::Missing(ID)));
    }

    #[test]
    fn secrets_are_checked_and_never_shown() {
        for bad in ["", "abc", "whsec_", "whsec_!!", "whsec_c2hvcnQ="] {
            assert_eq!(
                Key::parse(&Secret::new(bad)).err(),
                Some(BadSecret),
                "{bad}"
            );
        }
        assert_eq!(format!("{:?}", old()), "Key(..)");
    }
}
