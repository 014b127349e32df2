//! Every cause that an event may wait for, and the words for it.

use bytes::Bytes;
use postrider_contract::{
    Destination, EventId,
    destination::{
        Durability, Key, OnQuarantine, OnUnknown, Ordering, Partitioner, Schema, Serializer,
    },
};
use postrider_core::{AttemptId, Lane, Position, SessionId};
use postrider_store::{
    control::Suspension,
    dispatch::StoredEvent,
    inspect::{AttemptRow, BreakerRow, QuarantineReason, ReceiptRow},
};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_micros(second * 1_000_000).unwrap()
}

const NOW: i64 = 1_000;

fn registered(kind: &str) -> RegisteredDestination {
    let destination = Destination {
        schema: Schema::V1,
        name: "orders".to_owned(),
        generation: 2,
        kind: kind.to_owned(),
        cluster: "c".to_owned(),
        target: "t".to_owned(),
        container: None,
        key: Key::PartitionKey,
        partitioner: Partitioner::None,
        serializer: Serializer::Raw,
        durability: Durability::Stored,
        receipt_type: "jetstream.ack/1".to_owned(),
        ordering: Ordering::Key,
        lanes: 4,
        on_unknown: OnUnknown::Hold,
        on_quarantine: OnQuarantine::Hold,
        max_attempts: None,
        max_payload_bytes: None,
    };
    RegisteredDestination {
        id: DestinationId(7),
        digest: destination.digest(),
        destination,
        current: true,
        suspended: None,
    }
}

fn delivery(state: State) -> DeliveryDetail {
    DeliveryDetail {
        destination: DestinationId(7),
        lane: Lane(3),
        state,
        attempts_charged: 0,
        available_at: Some(at(900)),
        attempts: Vec::new(),
        receipt: None,
        duplicates: Vec::new(),
        quarantine: None,
    }
}

fn attempt(finished_at: Option<Timestamp>, outcome: Option<&str>, lease: i64) -> AttemptRow {
    AttemptRow {
        attempt: AttemptId(Uuid::from_u128(1)),
        session: SessionId(Uuid::from_u128(2)),
        owner: "worker".to_owned(),
        registered_at: at(990),
        finished_at,
        outcome: outcome.map(str::to_owned),
        detail: Some("the detail".to_owned()),
        lease_until: at(lease),
    }
}

/// What surrounds a delivery; everything is well.
struct World {
    registry: Registry,
    backlog: Vec<Backlog>,
    lanes: Vec<LaneRow>,
    held: Vec<(DestinationId, HeldKey)>,
}

fn well() -> World {
    World {
        registry: Registry {
            destinations: vec![registered("jetstream")],
            ..Registry::default()
        },
        backlog: Vec::new(),
        lanes: vec![LaneRow {
            destination: DestinationId(7),
            lane: Lane(3),
            session: Some(SessionId(Uuid::from_u128(2))),
            owner: Some("worker".to_owned()),
            since: Some(at(1)),
        }],
        held: Vec::new(),
    }
}

/// The words of a delivery's chain.
fn said(delivery: DeliveryDetail, world: &World) -> String {
    let event = EventDetail {
        position: Position(1),
        event: StoredEvent {
            event_id: EventId(Uuid::from_u128(9)),
            envelope: "{}".to_owned(),
            envelope_digest: Digest::of_canonical("{}"),
            payload: Bytes::new(),
            traceparent: None,
            tracestate: None,
            headers: Vec::new(),
            appended_at: at(900),
        },
        key_hash: 1,
        deliveries: vec![delivery],
    };
    let facts = Facts {
        now: at(NOW),
        registry: &world.registry,
        backlog: &world.backlog,
        lanes: &world.lanes,
        held: &world.held,
    };
    let answer = answer(&event, &facts);
    let chain = &answer.deliveries[0];
    // Every open delivery has a cause and a next step, so that nothing stalls silently.
    assert!(!chain.because.is_empty());
    assert_eq!(chain.next.is_none(), chain.state == "acknowledged");
    let mut out = Vec::new();
    answer.describe(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
    lines.join("\n")
}

fn check(delivery: DeliveryDetail, world: &World, expect: &[&str]) {
    assert_eq!(said(delivery, world), expect.join("\n"));
}

#[test]
fn acknowledged_with_its_receipt() {
    let receipt = ReceiptRow {
        attempt: AttemptId(Uuid::from_u128(1)),
        accepted_at: at(995),
        receipt: Receipt::Handler {
            handler: "h".to_owned(),
            sequence: 4,
        },
        late: true,
    };
    check(
        DeliveryDetail {
            receipt: Some(receipt.clone()),
            duplicates: vec![receipt],
            ..delivery(State::Acknowledged)
        },
        &well(),
        &[
            "orders#2: acknowledged",
            "receipt {\"type\":\"handler.result/1\",\"handler\":\"h\",\"sequence\":4} of attempt 00000000-0000-0000-0000-000000000001, 1970-01-01T00:16:35.000000Z, after its session had ended, and 1 duplicate receipts",
        ],
    );
}

#[test]
fn quarantined_with_its_code() {
    check(
        DeliveryDetail {
            quarantine: Some(QuarantineReason {
                code: "rejected".to_owned(),
                detail: String::new(),
                since: at(950),
            }),
            ..delivery(State::Quarantined)
        },
        &well(),
        &[
            "orders#2: quarantined",
            "in quarantine since 1970-01-01T00:15:50.000000Z: rejected",
            "next: a person replays it, once the cause is settled: `postrider dead-letter replay`",
        ],
    );
}

#[test]
fn unknown_names_its_attempt() {
    check(
        DeliveryDetail {
            attempts: vec![attempt(Some(at(991)), Some("connection_lost"), 1_100)],
            ..delivery(State::Unknown)
        },
        &well(),
        &[
            "orders#2: unknown",
            "outcome of attempt 00000000-0000-0000-0000-000000000001 unknown since 1970-01-01T00:16:31.000000Z: connection_lost (the detail)",
            "next: it is held until evidence arrives or a person decides (on_unknown = hold)",
        ],
    );
}

#[test]
fn in_an_attempt_until_the_lease_ends() {
    check(
        DeliveryDetail {
            attempts: vec![attempt(None, None, 1_010)],
            ..delivery(State::Pending)
        },
        &well(),
        &[
            "orders#2: pending",
            "being sent since 1970-01-01T00:16:30.000000Z in attempt 00000000-0000-0000-0000-000000000001 of session 00000000-0000-0000-0000-000000000002 (worker), whose lease lasts until 1970-01-01T00:16:50.000000Z",
            "next: its outcome is written down, at the latest when the session ends, at 1970-01-01T00:16:50.000000Z",
        ],
    );
    check(
        DeliveryDetail {
            attempts: vec![attempt(None, None, 999)],
            ..delivery(State::Pending)
        },
        &well(),
        &[
            "orders#2: pending",
            "was being sent in attempt 00000000-0000-0000-0000-000000000001 of session 00000000-0000-0000-0000-000000000002 (worker), whose lease ended 1970-01-01T00:16:39.000000Z",
            "next: the next worker that looks ends that session and takes the delivery over",
        ],
    );
}

#[test]
fn due_and_nothing_in_the_way() {
    check(
        delivery(State::Pending),
        &well(),
        &[
            "orders#2: pending",
            "due since 1970-01-01T00:15:00.000000Z in lane 3, which worker holds",
            "next: the worker sends it with its next batch",
        ],
    );
}

#[test]
fn every_obstacle_is_in_the_chain_the_nearest_first() {
    let mut world = well();
    world.registry.destinations[0].suspended = Some(Suspension {
        code: "gone".to_owned(),
        detail: "410".to_owned(),
        since: at(800),
    });
    world.held.push((
        DestinationId(7),
        HeldKey {
            head: Position(1),
            head_event: EventId(Uuid::from_u128(8)),
            head_state: State::Pending,
            head_available_at: at(1_050),
            tail: Count {
                value: 100_000,
                capped: true,
            },
        },
    ));
    world.backlog.push(Backlog {
        destination: DestinationId(7),
        pending: Count::default(),
        unknown: Count::default(),
        quarantined: Count::default(),
        oldest_pending: None,
        breaker: Some(BreakerRow {
            session: SessionId(Uuid::from_u128(2)),
            since: at(970),
            code: "not_connected".to_owned(),
            detail: String::new(),
            next_probe_at: at(1_005),
            refused: false,
        }),
        lanes: 4,
        lanes_held: 0,
    });
    world.lanes.clear();
    let waits = DeliveryDetail {
        available_at: Some(at(1_060)),
        attempts_charged: 2,
        attempts: vec![attempt(Some(at(991)), Some("not_found"), 1_100)],
        ..delivery(State::Pending)
    };
    let obstacles = [
        "the destination is suspended since 1970-01-01T00:13:20.000000Z: gone (410)",
        "waits behind event 00000000-0000-0000-0000-000000000008 of its key, which is pending (waiting behind it: at least 100000)",
        "tried again at 1970-01-01T00:17:40.000000Z after not_found (the detail); attempts charged: 2",
        "the destination's breaker is open since 1970-01-01T00:16:10.000000Z: not_connected; next probe 1970-01-01T00:16:45.000000Z",
        "no worker holds lane 3",
    ];
    // One obstacle after the other goes away, and the next step follows.
    let next = [
        "next: a person lets the destination run again: `postrider destination resume`",
        "next: the event before it is tried again, then this one, at 1970-01-01T00:17:30.000000Z",
        "next: the next attempt, at 1970-01-01T00:17:40.000000Z",
        "next: one delivery is tried to see whether the destination is back, at 1970-01-01T00:16:45.000000Z",
        "next: a worker takes the lane: see that `postrider run` is running",
    ];
    for gone in 0..obstacles.len() {
        let mut expect = vec!["orders#2: pending"];
        expect.extend(&obstacles[gone..]);
        expect.push(next[gone]);
        let mut delivery = waits.clone();
        if gone >= 1 {
            world.registry.destinations[0].suspended = None;
        }
        if gone >= 2 {
            world.held.clear();
        }
        if gone >= 3 {
            delivery.available_at = Some(at(900));
        }
        if gone >= 4 {
            world.backlog.clear();
        }
        check(delivery, &world, &expect);
    }
}

#[test]
fn dep_1_a_kind_that_this_program_does_not_know_waits_for_one_that_does() {
    let mut world = well();
    world.registry.destinations[0] = registered("pulsar");
    world.lanes.clear();
    check(
        delivery(State::Pending),
        &world,
        &[
            "orders#2: pending",
            "this program does not know destinations of kind \"pulsar\"",
            "no worker holds lane 3",
            "next: a worker that knows the kind takes the lane",
        ],
    );
}

#[test]
fn a_refusal_counts_only_where_no_worker_can_send() {
    let mut world = well();
    world.backlog.push(Backlog {
        destination: DestinationId(7),
        pending: Count::default(),
        unknown: Count::default(),
        quarantined: Count::default(),
        oldest_pending: None,
        breaker: Some(BreakerRow {
            session: SessionId(Uuid::from_u128(3)),
            since: at(970),
            code: "locked".to_owned(),
            detail: "another process has the file".to_owned(),
            next_probe_at: at(1_001),
            refused: true,
        }),
        lanes: 4,
        lanes_held: 4,
    });
    check(
        delivery(State::Pending),
        &world,
        &[
            "orders#2: pending",
            "due since 1970-01-01T00:15:00.000000Z in lane 3, which worker holds",
            "next: the worker sends it with its next batch",
        ],
    );
    world.lanes.clear();
    check(
        delivery(State::Pending),
        &world,
        &[
            "orders#2: pending",
            "a worker looked at the destination and must not send, since 1970-01-01T00:16:10.000000Z: locked (another process has the file)",
            "no worker holds lane 3",
            "next: a worker looks at the destination again; until what it found is settled nothing is sent, at 1970-01-01T00:16:41.000000Z",
        ],
    );
}
