//! What holds for every input, tried with many.

use postrider_contract::{
    Timestamp,
    canonical::{self, Profile, canonicalise},
    cloudevents::{decode_header, encode_header},
};
use proptest::{collection, prelude::*};
use serde_json::{Map, Value};

/// Any JSON value, with text and numbers from the corners as well.
fn json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "[\\x00-\\x7f\u{80}\u{20ac}\u{fb33}\u{1f600}\\\\\"]{0,4}"
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(Value::from),
        any::<f64>().prop_map(
            |double| serde_json::Number::from_f64(double).map_or(Value::Null, Value::Number)
        ),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            collection::vec((text.clone(), inner), 0..6)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// The value with every number replaced; numbers have a property of their own, because
/// `serde_json` may read a double one unit off.
fn without_numbers(value: &Value) -> Value {
    match value {
        Value::Number(_) => Value::from(0),
        Value::Array(items) => items.iter().map(without_numbers).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), without_numbers(value)))
            .collect(),
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => other.clone(),
    }
}

proptest! {
    #[test]
    fn canonicalising_twice_changes_nothing(value in json()) {
        let once = canonicalise(value.to_string().as_bytes(), Profile::Rfc8785).unwrap();
        prop_assert_eq!(&canonicalise(once.as_bytes(), Profile::Rfc8785).unwrap(), &once);
        // Spacing and the order of members do not matter.
        let spaced = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(&canonicalise(spaced.as_bytes(), Profile::Rfc8785).unwrap(), &once);
        canonical::check(once.as_bytes()).unwrap();
    }

    #[test]
    fn the_canonical_form_says_the_same(value in json()) {
        let text = canonicalise(value.to_string().as_bytes(), Profile::Rfc8785).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(without_numbers(&read), without_numbers(&value));
    }

    #[test]
    fn every_double_is_written_so_that_it_reads_back(double in any::<f64>()) {
        prop_assume!(double.is_finite());
        let text = canonicalise(format!("{double:?}").as_bytes(), Profile::Rfc8785).unwrap();
        prop_assert_eq!(text.parse::<f64>().unwrap(), double);
        // A double in its shortest form is a payload value that nothing changes.
        if double.abs() < 9e15 || text.contains('e') {
            prop_assert_eq!(canonicalise(text.as_bytes(), Profile::Value).unwrap(), text);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_never_panic(bytes in collection::vec(any::<u8>(), 0..64)) {
        for profile in [Profile::Object, Profile::Value, Profile::Rfc8785] {
            if let Err(error) = canonicalise(&bytes, profile) {
                prop_assert!(error.offset <= bytes.len());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn almost_json_is_read_or_refused_as_serde_json_does(text in r#"[\[\]{},:"\\u0-9a-fEe+.\- trulnsD8C]{0,24}"#) {
        let ours = canonicalise(text.as_bytes(), Profile::Rfc8785);
        let theirs = serde_json::from_str::<Value>(&text);
        match ours {
            Ok(_) => prop_assert!(theirs.is_ok(), "{text}: {theirs:?}"),
            // Only duplicates are refused here and not there.
            Err(error) => prop_assert!(
                theirs.is_err() || error.problem.word() == "duplicate",
                "{text}: {error}"
            ),
        }
        prop_assert_eq!(canonical::check(text.as_bytes()).is_ok(), serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok());
    }

    #[test]
    fn a_strict_profile_accepts_only_what_a_looser_one_does(value in json()) {
        let text = value.to_string();
        let loose = canonicalise(text.as_bytes(), Profile::Rfc8785).unwrap();
        let exact = canonicalise(text.as_bytes(), Profile::Value);
        let object = canonicalise(text.as_bytes(), Profile::Object);
        if let Ok(object) = object {
            prop_assert_eq!(Some(&object), exact.as_ref().ok());
        }
        if let Ok(exact) = exact {
            prop_assert_eq!(exact, loose);
        }
    }

    #[test]
    fn any_text_goes_through_a_header(text in any::<String>()) {
        let encoded = encode_header("ce-subject", &text).into_owned();
        prop_assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(decode_header("ce-subject", &encoded).unwrap(), text);
    }

    #[test]
    fn any_received_header_is_read_or_refused(text in "[%0-9a-fA-F\"\\\\ é]{0,16}") {
        if let Ok(decoded) = decode_header("ce-subject", &text) {
            let encoded = encode_header("ce-subject", &decoded).into_owned();
            prop_assert_eq!(decode_header("ce-subject", &encoded).unwrap(), decoded);
        }
    }

    #[test]
    fn every_instant_is_written_so_that_it_reads_back(micros in -62_135_596_800_000_000_i64..=253_402_300_799_999_999) {
        let time = Timestamp::from_unix_micros(micros).unwrap();
        prop_assert_eq!(time.to_string().parse::<Timestamp>(), Ok(time));
    }

    #[test]
    fn any_text_is_a_time_or_refused(text in "[0-9TtZz:.+ -]{0,36}") {
        if let Ok(time) = text.parse::<Timestamp>() {
            prop_assert_eq!(time.to_string().parse::<Timestamp>(), Ok(time));
        }
    }
}
