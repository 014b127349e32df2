//! The checked-in JSON Schemas are what the types generate, and accept what the vectors accept.

use std::{fs, path::PathBuf};

use postrider_contract::schema;
use serde_json::Value;

fn contracts() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "contracts"]
        .iter()
        .collect()
}

#[test]
fn the_checked_in_schemas_are_what_the_types_generate() {
    let folder = contracts().join("schemas");
    let regenerate = std::env::var_os("POSTRIDER_REGENERATE").is_some();
    for (name, text) in schema::all() {
        let path = folder.join(name);
        if regenerate {
            fs::write(&path, &text).unwrap();
        }
        let found = fs::read_to_string(&path);
        assert!(
            found.is_ok_and(|found| found == text),
            "{} is not what the types generate; run this test with POSTRIDER_REGENERATE=1",
            path.display()
        );
    }
}

#[test]
fn the_schemas_accept_every_accepted_vector_and_refuse_wrong_shapes() {
    let schemas: std::collections::BTreeMap<_, _> = schema::all().into_iter().collect();
    for (schema, vectors, refusals_at_least) in [
        ("envelope.json", "envelopes.json", 0),
        ("destination.json", "destinations.json", 10),
        ("delivery-set.json", "delivery-sets.json", 5),
        ("receipt.json", "receipts.json", 5),
    ] {
        let schema: Value = serde_json::from_str(&schemas[schema]).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let text = fs::read_to_string(contracts().join("vectors").join(vectors)).unwrap();
        let all: Vec<Value> = serde_json::from_str(&text).unwrap();
        let mut refusals = 0;
        for vector in all {
            if let Some(canonical) = vector["canonical"].as_str() {
                let object: Value = serde_json::from_str(canonical).unwrap();
                let error = validator.validate(&object).err();
                assert!(error.is_none(), "{}: {}", vector["name"], error.unwrap());
            } else if let Some(object) = vector["input"].as_str()
                && let Ok(object) = serde_json::from_str::<Value>(object)
            {
                refusals += u32::from(!validator.is_valid(&object));
            }
        }
        assert!(refusals >= refusals_at_least, "{vectors}: {refusals}");
    }
}
