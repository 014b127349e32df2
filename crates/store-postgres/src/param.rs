//! Parameters with their types: unnamed statements need them, and PgBouncer needs unnamed statements.

use postrider_contract::Timestamp;
use tokio_postgres::types::{FromSql, IsNull, Json, ToSql, Type, accepts, to_sql_checked};
use uuid::Uuid;

use bytes::BytesMut;

/// A value and the type it is sent as.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// A Rust type that is always sent as the same SQL type.
pub(crate) trait Typed {
    const TYPE: Type;
}

macro_rules! typed {
    ($($rust:ty => $sql:ident),* $(,)?) => {$(
        impl Typed for $rust {
            const TYPE: Type = Type::$sql;
        }
    )*};
}

typed! {
    bool => BOOL,
    i16 => INT2,
    i32 => INT4,
    i64 => INT8,
    &str => TEXT,
    String => TEXT,
    Uuid => UUID,
    Moment => TIMESTAMPTZ,
    &[u8] => BYTEA,
    Vec<bool> => BOOL_ARRAY,
    Vec<i16> => INT2_ARRAY,
    Vec<i32> => INT4_ARRAY,
    Vec<i64> => INT8_ARRAY,
    Vec<Option<i32>> => INT4_ARRAY,
    Vec<Option<i64>> => INT8_ARRAY,
    Vec<&'_ str> => TEXT_ARRAY,
    Vec<String> => TEXT_ARRAY,
    Vec<Option<&'_ str>> => TEXT_ARRAY,
    Vec<Option<String>> => TEXT_ARRAY,
    Vec<Uuid> => UUID_ARRAY,
    Vec<Option<Uuid>> => UUID_ARRAY,
    Vec<&'_ [u8]> => BYTEA_ARRAY,
    Vec<Option<Json<serde_json::Value>>> => JSON_ARRAY,
}

impl<T: Typed> Typed for Option<T> {
    const TYPE: Type = T::TYPE;
}

/// Pairs a value with its type.
pub(crate) fn typed<T: Typed + ToSql + Sync>(value: &T) -> Param<'_> {
    (value, T::TYPE)
}

/// `params![a, b]`: a slice of typed parameters.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$($crate::param::typed(&$value)),*]
    };
}
pub(crate) use params;

/// A [`Timestamp`] on its way to or from `timestamptz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) Timestamp);

/// PostgreSQL counts microseconds from 2000-01-01T00:00:00Z.
const POSTGRES_EPOCH_UNIX_MICROS: i64 = 946_684_800_000_000;

impl ToSql for Moment {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        // Within the years 0001 to 9999, so far from overflow.
        let micros = self.0.unix_micros() - POSTGRES_EPOCH_UNIX_MICROS;
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        // Infinity is the largest and the smallest integer: out of range, like every time that
        // the schema's checks refuse.
        micros
            .checked_add(POSTGRES_EPOCH_UNIX_MICROS)
            .and_then(Timestamp::from_unix_micros)
            .map(Self)
            .ok_or_else(|| "a time outside the years 0001 to 9999".into())
    }

    accepts!(TIMESTAMPTZ);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_and_infinity_is_refused() {
        for text in [
            "0001-01-01T00:00:00.000000Z",
            "1999-12-31T23:59:59.999999Z",
            "9999-12-31T23:59:59.999999Z",
        ] {
            let time: Timestamp = text.parse().unwrap();
            let mut bytes = BytesMut::new();
            let written = Moment(time).to_sql(&Type::TIMESTAMPTZ, &mut bytes).unwrap();
            assert!(matches!(written, IsNull::No));
            assert_eq!(
                Moment::from_sql(&Type::TIMESTAMPTZ, &bytes).unwrap().0,
                time
            );
        }
        for infinity in [i64::MAX, i64::MIN] {
            assert!(Moment::from_sql(&Type::TIMESTAMPTZ, &infinity.to_be_bytes()).is_err());
        }
    }
}
