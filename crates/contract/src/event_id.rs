//! The identity of an event.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

/// The identity of an event: a UUIDv7 by default. An append accepts any UUID but the nil one.
///
/// Nothing takes the order of ids for the order of commits: ids made within one millisecond, on
/// two machines, or around a clock step do not sort in creation order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EventId(pub Uuid);

/// Text that is not an event id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is not an event id; expected a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057, with \
     its hyphens"
)]
pub struct ParseError(String);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for EventId {
    type Err = ParseError;

    /// Reads the hyphenated form, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError(crate::invalid::quote(text));
        if text.len() != 36 {
            return Err(error());
        }
        Uuid::try_parse(text).map(Self).map_err(|_| error())
    }
}

/// Only the canonical form, hyphenated and lower-case: another spelling would give the same
/// object another digest.
impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let id: Self = text.parse().map_err(serde::de::Error::custom)?;
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(serde::de::Error::custom(format_args!(
                "event id {text} is not in canonical form; write {id}"
            )))
        }
    }
}

impl schemars::JsonSchema for EventId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EventId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "format": "uuid",
            "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_uuid_is_read_in_either_case_but_canonical_objects_hold_one_spelling() {
        let canonical = "01890a5d-ac96-774b-bcce-b302099a8057";
        let id: EventId = canonical.to_uppercase().parse().unwrap();
        assert_eq!(id.to_string(), canonical);
        assert_eq!(
            serde_json::to_string(&id).unwrap(),
            format!("\"{canonical}\"")
        );
        assert_eq!(
            serde_json::from_str::<EventId>(&format!("\"{canonical}\"")).unwrap(),
            id
        );
        for text in [
            &canonical.to_uppercase(),
            &canonical.replace('-', ""),
            &format!("{{{canonical}}}"),
        ] {
            assert!(
                serde_json::from_str::<EventId>(&format!("\"{text}\"")).is_err(),
                "{text}"
            );
        }
        for text in [
            "",
            "x",
            &canonical.replace('-', ""),
            &format!("urn:uuid:{canonical}"),
            &canonical.replace('0', "g"),
        ] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }
}
