//! Instants in UTC with microseconds, as stored and as written in envelopes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z, within the years 0001 to 9999.
///
/// Written `2026-01-31T09:30:00.000001Z`, always with six fractional digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    unix_micros: i64,
}

/// Text that is not an RFC 3339 time with a zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an RFC 3339 time with a zone, such as 2026-01-31T09:30:00.5Z")]
pub struct ParseError(pub String);

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

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time =
            time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.unix_micros) * 1000)
                .map_err(|_| fmt::Error)?;
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
            time.year(),
            u8::from(time.month()),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.microsecond()
        )
    }
}

impl FromStr for Timestamp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError(text.chars().take(100).collect());
        let time =
            time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339)
                .map_err(|_| error())?;
        let micros = time.unix_timestamp_nanos().div_euclid(1000);
        i64::try_from(micros)
            .ok()
            .and_then(Self::from_unix_micros)
            .ok_or_else(error)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$"
        })
    }
}
