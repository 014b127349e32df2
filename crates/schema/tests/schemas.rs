//! What a schema may be, and what it says about payloads.

use postrider_contract::{Digest, EventType, canonical};
use postrider_schema::{CompileError, Schemas, Violation};
use serde_json::{Value, json};

fn event_type(version: &str, schema: &Value) -> EventType {
    EventType {
        event_type: "order.placed".into(),
        schema_version: version.into(),
        content_type: "application/json".into(),
        json_schema: Some(canonical::payload_value(&schema.to_string()).unwrap()),
    }
}

fn compiled(schema: &Value) -> (Schemas, Digest) {
    let event_type = event_type("1", schema);
    (
        Schemas::compile([&event_type]).unwrap(),
        event_type.schema_digest().unwrap(),
    )
}

fn refused(schema: &Value) -> CompileError {
    Schemas::compile([&event_type("1", schema)]).unwrap_err()
}

/// `Ok` or the display of the violation.
fn verdict(schema: &Value, payload: &str) -> Result<(), String> {
    let (schemas, digest) = compiled(schema);
    schemas
        .validate(&digest, payload.as_bytes())
        .map_err(|violation| violation.to_string())
}

fn order() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[a-z0-9-]+$"},
            "total": {"type": "integer", "minimum": 0},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        },
        "required": ["id", "total"],
        "additionalProperties": false,
        "$defs": {"line": {"type": "object", "required": ["sku"]}},
    })
}

#[test]
fn a_violation_names_the_place_and_the_rule() {
    assert_eq!(
        verdict(&order(), r#"{"id":"a-1","total":3,"lines":[{"sku":"x"}]}"#),
        Ok(())
    );
    for (payload, message) in [
        (
            r#"{"id":"a-1"}"#,
            r#"the payload breaks "required" at "/total" (schema: "/required")"#,
        ),
        (
            r#"{"id":"a-1","total":-1}"#,
            r#"the payload breaks "minimum" at "/total" (schema: "/properties/total/minimum")"#,
        ),
        (
            r#"{"id":"a-1","total":1,"lines":[{"sku":"x"},{}]}"#,
            r#"the payload breaks "required" at "/lines/1/sku" (schema: "/$defs/line/required")"#,
        ),
        (
            r#"{"id":"a-1","total":1,"no/te":1}"#,
            r#"the payload breaks "additionalProperties" at "/no~1te" (schema: "/additionalProperties")"#,
        ),
        (
            r#"[]"#,
            r#"the payload breaks "type" at "" (schema: "/type")"#,
        ),
    ] {
        assert_eq!(
            verdict(&order(), payload),
            Err(message.to_owned()),
            "{payload}"
        );
    }
}

#[test]
fn a_violation_never_holds_a_value_of_the_payload() {
    let secret = "4111-1111-1111-1111";
    for schema in [
        json!({"properties": {"card": {"type": "integer"}}}),
        json!({"properties": {"card": {"pattern": "^x"}}}),
        json!({"properties": {"card": {"maxLength": 3}}}),
        json!({"properties": {"card": {"const": "x"}}}),
        json!({"properties": {"card": {"enum": ["x", "y"]}}}),
        json!({"properties": {"card": {"not": {"type": "string"}}}}),
        json!({"properties": {"card": false}}),
        json!({"anyOf": [{"properties": {"card": {"const": 1}}}, {"type": "array"}]}),
        json!({"oneOf": [{"type": "object"}, {"minProperties": 1}]}),
        json!({"if": {"required": ["card"]}, "then": {"properties": {"card": {"type": "null"}}}}),
    ] {
        let message = verdict(&schema, &format!(r#"{{"card":"{secret}"}}"#)).unwrap_err();
        assert!(!message.contains("4111"), "{schema}: {message}");
    }
    let broken = verdict(&json!({}), &format!(r#"{{"card":"{secret}"#)).unwrap_err();
    assert!(!broken.contains("4111"), "{broken}");
}

#[test]
fn a_violation_is_short_whatever_the_payload_and_on_one_line() {
    let schema = json!({"additionalProperties": {"type": "null"}});
    let name = "é\\u0000\\n".repeat(10_000);
    let message = verdict(&schema, &format!(r#"{{"{name}":1}}"#)).unwrap_err();
    assert!(message.len() <= 512, "{}", message.len());
    assert!(!message.contains(char::is_control));
}

#[test]
fn a_payload_that_readers_could_understand_differently_is_refused() {
    for (payload, problem) in [
        (r#"{"a":1,"a":2}"#, "an object names a member twice"),
        (
            r#"{"x":[{"a":1,"\u0061":2}]}"#,
            "an object names a member twice",
        ),
        (r#""\ud800""#, "hex escape"),
        ("1e400", "number out of range"),
        ("{} {}", "trailing characters"),
        ("", "EOF"),
        ("NaN", "expected"),
        ("\u{feff}1", "expected value"),
    ] {
        let message = verdict(&json!({}), payload).unwrap_err();
        assert!(
            message.starts_with("the payload is not JSON with one meaning: ")
                && message.contains(problem),
            "{payload}: {message}"
        );
    }
    let (schemas, digest) = compiled(&json!({}));
    let latin1 = schemas.validate(&digest, b"\"\xe9\"").unwrap_err();
    assert_eq!(latin1.code(), "payload_unreadable");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        schemas
            .validate(&digest, deep.as_bytes())
            .unwrap_err()
            .code(),
        "payload_unreadable"
    );
}

#[test]
fn what_json_allows_passes() {
    for payload in [
        r#"{"x":"\u0000"}"#,
        "9007199254740993",
        "1e308",
        "-0",
        "null",
        " [ 1.230e-5 ] ",
        r#""\ud83d\ude00""#,
    ] {
        assert_eq!(verdict(&json!({}), payload), Ok(()), "{payload}");
    }
}

#[test]
fn nothing_outside_the_document_is_ever_looked_for() {
    let file = std::env::current_exe().unwrap();
    for reference in [
        "http://127.0.0.1:9/schema.json",
        "https://example.com/schema.json#/$defs/x",
        "other.json",
        "//example.com/x",
        "urn:example:other",
        &format!("file://{}", file.display()),
    ] {
        for schema in [
            json!({"properties": {"a": {"$ref": reference}}}),
            json!({"$defs": {"unused": {"$ref": reference}}}),
            json!({"$dynamicRef": reference}),
        ] {
            let error = refused(&schema).to_string();
            assert!(
                error.contains("refers to something that is not in it"),
                "{schema}: {error}"
            );
            assert!(error.contains("$defs"), "{error}");
        }
    }
    let error = refused(&json!({"$schema": "https://example.com/own-draft", "type": "object"}));
    assert!(error.to_string().contains("not in it"), "{error}");
    // Inside the document, by pointer, anchor and identifier, and the drafts themselves.
    for schema in [
        json!({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"}),
        json!({"$defs": {"a": {"$anchor": "here", "type": "string"}}, "$ref": "#here"}),
        json!({
            "$id": "https://example.com/root",
            "$defs": {"a": {"$id": "part", "type": "string"}},
            "$ref": "part",
        }),
    ] {
        assert_eq!(verdict(&schema, r#""text""#), Ok(()));
        assert!(verdict(&schema, "1").is_err());
    }
    let draft = json!({"$ref": "https://json-schema.org/draft/2020-12/schema"});
    assert_eq!(verdict(&draft, r#"{"type":"object"}"#), Ok(()));
    assert!(verdict(&draft, r#"{"type":"banana"}"#).is_err());
}

#[test]
fn a_text_that_is_no_schema_is_refused_and_named() {
    for (schema, says) in [
        (
            json!({"type": "banana"}),
            "is not a valid JSON Schema at \"/type\"",
        ),
        (
            json!({"properties": []}),
            "is not a valid JSON Schema at \"/properties\"",
        ),
        (
            json!({"pattern": "("}),
            "is not a valid JSON Schema at \"/pattern\"",
        ),
        (
            json!({"$ref": "#/$defs/missing"}),
            "refers to something that is not in it",
        ),
        (json!(3), "is not a valid JSON Schema"),
    ] {
        let error = refused(&schema).to_string();
        assert!(
            error.starts_with("the JSON Schema of event type \"order.placed\" version \"1\" ")
                && error.contains(says),
            "{error}"
        );
    }
    let mut broken = event_type("1", &json!({}));
    broken.json_schema = Some("{".into());
    assert!(
        Schemas::compile([&broken])
            .unwrap_err()
            .to_string()
            .contains("is not JSON")
    );
}

#[test]
fn an_older_draft_is_recognised_by_its_name() {
    let draft7 = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "string"}},
        // Beside $ref everything is ignored in draft 7.
        "properties": {"x": {"$ref": "#/definitions/a", "maxLength": 1}},
    });
    assert_eq!(verdict(&draft7, r#"{"x":"long"}"#), Ok(()));
    assert!(verdict(&draft7, r#"{"x":1}"#).is_err());
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    let list = json!({
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "value": {"type": "integer"}},
    });
    assert_eq!(verdict(&list, r#"{"value":1,"next":{"value":2}}"#), Ok(()));
    assert!(verdict(&list, r#"{"value":1,"next":{"value":"x"}}"#).is_err());
    for endless in [
        json!({"$ref": "#"}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"allOf": [{"$ref": "#"}]}),
    ] {
        // Refused at load or decided: never an endless loop.
        let event_type = event_type("1", &endless);
        if let Ok(schemas) = Schemas::compile([&event_type]) {
            let digest = event_type.schema_digest().unwrap();
            assert_eq!(schemas.validate(&digest, b"1"), Ok(()));
        }
    }
}

#[test]
fn a_pattern_cannot_take_for_ever() {
    let schema = json!({"pattern": r"^(a|a)*\1b"});
    let (schemas, digest) = compiled(&schema);
    let payload = format!("\"{}!\"", "a".repeat(200));
    let violation = schemas.validate(&digest, payload.as_bytes()).unwrap_err();
    assert_eq!(violation.code(), "schema_undecided");
    assert!(verdict(&json!({"pattern": "^(a+)+$"}), &payload).is_err());
}

#[test]
fn an_event_keeps_the_schema_it_was_committed_with() {
    let old = event_type("1", &json!({"required": ["a"]}));
    let new = event_type("1", &json!({"required": ["a", "b"]}));
    let schemas = Schemas::compile(&[old.clone(), new.clone()]).unwrap();
    let (old, new) = (old.schema_digest().unwrap(), new.schema_digest().unwrap());
    assert_eq!(schemas.validate(&old, br#"{"a":1}"#), Ok(()));
    assert_eq!(
        schemas.validate(&new, br#"{"a":1}"#).unwrap_err().code(),
        "schema_violation"
    );
    let unknown = Digest::of_canonical("{}");
    assert!(!schemas.contains(&unknown));
    assert_eq!(
        schemas.validate(&unknown, b"{}"),
        Err(Violation::UnknownSchema {
            schema_digest: unknown
        })
    );
}
