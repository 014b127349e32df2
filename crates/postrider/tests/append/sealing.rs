//! What is stored is what the contract's own code seals, byte for byte, through every driver: for
//! each golden envelope, and for events made up at random.

use std::path::Path;

use postrider::{NewEvent, Timestamp};
use postrider_contract::{Destination, Envelope, key, media};
use postrider_store::inspect::EventDetail;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::Value;

use crate::support::{World, application::Application, control, for_each_driver, fresh_id, stored};

for_each_driver![
    the_golden_envelopes_come_out_as_they_should,
    random_events_are_sealed_alike,
];

fn vectors(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contracts/vectors")
        .join(file);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The types that the events are given, one per media type.
fn type_of(essences: &[String], essence: &str) -> String {
    let index = essences.iter().position(|known| known == essence).unwrap();
    format!("type.{index:03}")
}

async fn world<A: Application>(essences: &[String]) -> World<A> {
    let mut world = World::<A>::new().await;
    let types = essences
        .iter()
        .map(|essence| control::event_type(&type_of(essences, essence), essence, None))
        .collect();
    let plan = control::plan_of(2, types, vec![destination()]);
    control::apply(world.store(), &plan).await;
    world.application.refresh(&world.registry).await.unwrap();
    world
}

fn destination() -> Destination {
    control::destination("wide", None)
}

/// Compares a stored event with the envelope it should have, apart from the delivery set.
fn check(stored: &EventDetail, expected: Envelope) {
    let envelope = Envelope::from_json(&stored.event.envelope).unwrap();
    let expected = Envelope {
        delivery_set: envelope.delivery_set,
        ..expected
    };
    assert_eq!(stored.event.envelope, expected.canonical());
    assert_eq!(stored.event.envelope_digest, expected.digest());
    let hash = key::hash(&expected.partition_key);
    assert_eq!(stored.key_hash, hash);
    assert_eq!(
        stored.deliveries[0].lane.0,
        key::lane(hash, destination().lanes)
    );
}

async fn the_golden_envelopes_come_out_as_they_should<A: Application>() {
    // The others are refused, which is the contract's own test.
    let mut vectors = vectors("envelopes.json");
    vectors.retain(|vector| vector["canonical"].is_string());
    let golden =
        |vector: &Value| Envelope::from_json(vector["canonical"].as_str().unwrap()).unwrap();
    let mut essences: Vec<String> = vectors
        .iter()
        .map(|vector| media::essence(&golden(vector).payload.content_type).to_owned())
        .collect();
    essences.sort();
    essences.dedup();
    let mut world = world::<A>(&essences).await;

    let mut events = Vec::new();
    let mut expected = Vec::new();
    for vector in &vectors {
        let input = &vector["input"];
        let text = |name: &str| input[name].as_str().map(str::to_owned);
        let golden = Envelope {
            event_id: fresh_id(),
            event_type: type_of(
                &essences,
                media::essence(&golden(vector).payload.content_type),
            ),
            schema_version: "1".to_owned(),
            ..golden(vector)
        };
        let mut event = NewEvent::new(
            &*golden.event_type,
            "1",
            text("aggregate_type").unwrap(),
            text("aggregate_id").unwrap(),
            base64(input["payload_base64"].as_str().unwrap()),
        );
        event.event_id = Some(golden.event_id);
        event.aggregate.version = golden.aggregate.version;
        event.tenant = text("tenant");
        event.content_type = text("content_type");
        event.partition_key = text("partition_key");
        event.actor = text("actor");
        event.request_id = text("request_id");
        event.correlation_id = text("correlation_id");
        event.causation_id = text("causation_id");
        event.operation_id = text("operation_id");
        event.occurred_at = text("occurred_at").map(|time| time.parse().unwrap());
        events.push(event);
        let mut golden = golden;
        golden.payload.schema_digest = None;
        expected.push(golden);
    }
    world.application.begin().await;
    let appended = world
        .application
        .append_all(&world.registry, events)
        .await
        .unwrap();
    world.application.commit().await;
    for ((appended, expected), vector) in appended.iter().zip(expected).zip(&vectors) {
        let stored = stored(world.store(), appended.event_id).await;
        assert_eq!(
            stored.key_hash.to_string(),
            vector["keyHash"].as_str().unwrap()
        );
        check(&stored, expected);
    }
    assert!(appended.len() >= 40);
}

async fn random_events_are_sealed_alike<A: Application>() {
    const SEED: u64 = 0x5ea1;
    const EVENTS: usize = 200;
    let essences = [
        "application/json".to_owned(),
        "application/octet-stream".to_owned(),
    ];
    let mut world = world::<A>(&essences).await;
    let mut rng = StdRng::seed_from_u64(SEED);
    let events: Vec<_> = (0..EVENTS)
        .map(|_| random_event(&mut rng, &essences))
        .collect();

    world.application.begin().await;
    let appended = world
        .application
        .append_all(&world.registry, events.clone())
        .await
        .unwrap();
    world.application.commit().await;
    for (appended, event) in appended.iter().zip(&events) {
        let stored = stored(world.store(), appended.event_id).await;
        let found = Envelope::from_json(&stored.event.envelope).unwrap();
        let sealed = event
            .seal(
                appended.event_id,
                found.occurred_at,
                &found.delivery_set,
                None,
            )
            .unwrap();
        check(&stored, sealed.envelope);
        assert_eq!(stored.event.headers, sealed.headers, "seed {SEED}");
    }
}

/// An event that breaks no rule.
fn random_event(rng: &mut StdRng, essences: &[String]) -> NewEvent {
    let json = rng.random_bool(0.5);
    let essence = &essences[usize::from(!json)];
    let payload = if json {
        serde_json::to_vec(&random_text(rng, 40)).unwrap()
    } else {
        (0..rng.random_range(0..60)).map(|_| rng.random()).collect()
    };
    let (kind, id) = (random_text(rng, 60), random_text(rng, 60));
    let mut event = NewEvent::new(type_of(essences, essence), "1", kind, id, payload);
    event.content_type = Some(essence.clone());
    event.aggregate.version = rng.random_bool(0.5).then(|| rng.random_range(0..1 << 53));
    event.occurred_at = rng.random_bool(0.5).then(|| {
        let micros = rng.random_range(-62_135_596_800_000_000..=253_402_300_799_999_999);
        Timestamp::from_unix_micros(micros).unwrap()
    });
    for field in [
        &mut event.tenant,
        &mut event.partition_key,
        &mut event.actor,
        &mut event.request_id,
        &mut event.correlation_id,
        &mut event.causation_id,
        &mut event.operation_id,
    ] {
        *field = rng.random_bool(0.5).then(|| random_text(rng, 60));
    }
    let names = ["x-b", "x-a", "a.b", "~"];
    let count = rng.random_range(0..=names.len());
    event.headers = names[..count]
        .iter()
        .map(|name| ((*name).to_owned(), random_text(rng, 20)))
        .collect();
    event
}

/// 1 to `max` characters, of the kinds that encoders get wrong.
fn random_text(rng: &mut StdRng, max: usize) -> String {
    let odd = [
        '"',
        '\\',
        '/',
        '<',
        '>',
        '&',
        '\'',
        ' ',
        '%',
        '\u{a0}',
        'é',
        '\u{301}',
        '\u{2028}',
        '\u{2029}',
        '\u{d7ff}',
        '\u{e000}',
        '\u{fb33}',
        '\u{feff}',
        '\u{ffff}',
        '\u{1f600}',
        '\u{10ffff}',
    ];
    (0..rng.random_range(1..=max))
        .map(|_| match rng.random_bool(0.5) {
            true => *odd.choose(rng).unwrap(),
            false => char::from(rng.random_range(b' '..=b'~')),
        })
        .collect()
}

fn base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("not base64"),
    };
    let digits: Vec<u8> = text.bytes().filter(|c| *c != b'=').map(value).collect();
    digits
        .chunks(4)
        .flat_map(|chunk| {
            let bits = chunk
                .iter()
                .fold(0_u32, |bits, digit| bits << 6 | u32::from(*digit));
            let bits = bits << (6 * (4 - chunk.len()));
            bits.to_be_bytes()[1..chunk.len()].to_vec()
        })
        .collect()
}
