//! Structured mode: the whole event as one JSON object.

use std::fmt;

use base64::Engine as _;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use super::{Error, Source, attributes, embeds_json};

/// The body of a structured message. JSON payloads stand in it byte for byte.
pub(super) fn write(source: &Source<'_>) -> Result<Vec<u8>, Error> {
    let mut body = Vec::with_capacity(source.payload.len() + 2048);
    let mut writer = serde_json::Serializer::new(&mut body);
    let text = if embeds_json(source)? {
        std::str::from_utf8(source.payload).ok()
    } else {
        None
    };
    let written = (|| {
        let mut object = serde::Serializer::serialize_map(&mut writer, None)?;
        let mut failed = None;
        attributes(source, |name, value| {
            failed = failed.take().or(object.serialize_entry(name, value).err());
        });
        failed.map_or(Ok(()), Err)?;
        match text.map(serde_json::from_str::<&RawValue>).transpose()? {
            Some(data) => object.serialize_entry("data", data)?,
            None => object.serialize_entry("data_base64", &Base64(source.payload))?,
        }
        object.end()
    })();
    written.expect("strings, checked JSON and base64 are written to memory");
    Ok(body)
}

/// The members of a JSON object in their order, a name that appears twice included.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = object.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

struct Base64<'a>(&'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64::display::Base64Display::new(
            self.0,
            &base64::engine::general_purpose::STANDARD,
        ))
    }
}

pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
