//! JSON Schemas of the canonical objects, for other languages. They say what a schema can say:
//! lengths are in characters there, in bytes in the rules, so a schema never refuses what the
//! rules accept.

use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::Transform};
use serde_json::Value;

use crate::{DeliverySet, Destination, Envelope, Receipt, canonical};

/// Letters, digits and `. _ : / @ -`.
pub(crate) const NAME: &str = "^[A-Za-z0-9._:/@-]+$";
/// No C0, DEL or C1 control characters.
pub(crate) const NO_CONTROLS: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// File name and text of every schema, as checked in under `contracts/schemas/`.
#[must_use]
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        ("envelope.json", text::<Envelope>()),
        ("destination.json", text::<Destination>()),
        ("delivery-set.json", text::<DeliverySet>()),
        ("receipt.json", text::<Receipt>()),
    ]
}

fn text<T: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(NoNulls);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    // Members in canonical order, so that the text does not depend on features of the JSON crate.
    let canonical = canonical::to_string(&schema);
    let value: Value = serde_json::from_str(&canonical).expect("canonical JSON is JSON");
    let mut text = serde_json::to_string_pretty(&value).expect("a value is written to memory");
    text.push('\n');
    text
}

/// Optional members are left out of canonical objects, never null.
#[derive(Clone, Debug)]
struct NoNulls;

impl Transform for NoNulls {
    fn transform(&mut self, schema: &mut Schema) {
        let null = Value::from("null");
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|name| *name != null);
            if let [only] = &types[..] {
                let only = only.clone();
                schema.insert("type".into(), only);
            }
        }
        if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
            choices.retain(|choice| choice.get("type") != Some(&null));
            if let [Value::Object(only)] = &choices[..] {
                let only = only.clone();
                schema.remove("anyOf");
                schema.ensure_object().extend(only);
            }
        }
        schemars::transform::transform_subschemas(self, schema);
    }
}
