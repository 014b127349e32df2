//! The world of one trajectory, drawn from its seed: destinations, workers, what is appended and
//! when. Faults are not part of it: they are a list of their own.

use std::time::Duration;

use postrider_contract::{
    DeliverySet, Destination, EventId, EventType,
    delivery_set::{self, ApplicableEvent, Member, ProjectionTarget},
    destination::{
        self, Durability, Key, OnQuarantine, OnUnknown, Ordering, Partitioner, Serializer,
    },
    new_event::NewEvent,
};
use postrider_core::{backoff::Backoff, deadline};
use postrider_store::control::ControlPlane;
use postrider_transport_memory::Options;
use uuid::Uuid;

use crate::{random::Draw, truth::LifeId};

/// Virtual milliseconds during which the application appends and faults happen.
pub(crate) const CHAOS_MS: u64 = 4_000;

/// The event type that goes to every destination of a set.
const PLACED: &str = "order.placed";
/// The event type that goes to the first destination of a set only.
const NOTED: &str = "order.noted";

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Every destination that is ever registered, in order of registration.
    pub(crate) places: Vec<Place>,
    /// How many of them are registered at the start.
    pub(crate) first: usize,
    pub(crate) change: Option<Change>,
    /// When each worker starts.
    pub(crate) starts: Vec<u64>,
    pub(crate) exclusive: bool,
    pub(crate) appends: Vec<Append>,
    /// Chance in percent that a call or a message takes time.
    pub(crate) slow: u64,
    /// Least milliseconds between two reads from the front of a queue that is not empty.
    pub(crate) rescan: u64,
    /// A rolling upgrade: all workers but the first start as an older version, which cannot serve
    /// the last destination, and are of the newer one from their next start on.
    pub(crate) upgrade: bool,
}

/// A destination and the broker behind it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) destination: Destination,
    pub(crate) broker: Options,
}

/// The delivery set changes while events are pending: from then on everything goes to the last
/// destination too, and to the first no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) at: u64,
}

/// One transaction of the application.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) at: u64,
    pub(crate) events: Vec<Planned>,
    pub(crate) end: End,
}

#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) id: EventId,
    pub(crate) key: u64,
    pub(crate) noted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    /// The application did not hear the answer and appends the same again.
    CommitTwice,
    /// Stays open until then: others commit later positions before it.
    CommitAt(u64),
    RollBackAt(u64),
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut draw = Draw::of(seed, &[1]);
        let first = 1 + draw.index(2);
        let changes = draw.percent(12);
        let places = (0..first + usize::from(changes))
            .map(|index| place(&mut draw, index))
            .collect();
        let workers = 2 + usize::from(draw.percent(25));
        let keys = draw.between(1, 5);
        let count = draw.between(3, 9);
        let mut event = 0;
        let appends = (0..count)
            .map(|_| append(seed, &mut draw, keys, &mut event))
            .collect();
        Self {
            seed,
            places,
            first,
            change: changes.then(|| Change {
                at: draw.between(500, CHAOS_MS),
            }),
            starts: (0..workers)
                .map(|worker| {
                    if worker < 2 {
                        draw.below(50)
                    } else {
                        draw.between(500, CHAOS_MS)
                    }
                })
                .collect(),
            exclusive: draw.percent(8),
            appends,
            slow: draw.pick(&[0, 10, 30, 60]),
            rescan: draw.pick(&[100, 100, 600]),
            upgrade: Draw::of(seed, &[4]).percent(15),
        }
    }

    /// Whether this life of a worker is of the older version.
    pub(crate) fn is_older(&self, id: LifeId) -> bool {
        self.upgrade && !self.exclusive && id.worker > 0 && id.life == 0
    }

    pub(crate) fn control(&self, changed: bool) -> ControlPlane {
        let range = if changed {
            1.min(self.places.len() - 1)..self.places.len()
        } else {
            0..self.first
        };
        let version = if changed { 2 } else { 1 };
        let all = if changed {
            self.places.len()
        } else {
            self.first
        };
        control(version, &self.places[..all], &self.places[range])
    }

    /// Which places an event appended now must reach.
    pub(crate) fn prescribed(&self, noted: bool, changed: bool) -> std::ops::Range<usize> {
        let all = if changed {
            1.min(self.places.len() - 1)..self.places.len()
        } else {
            0..self.first
        };
        if noted { all.start..all.start + 1 } else { all }
    }

    pub(crate) fn deadlines() -> deadline::Deadlines {
        let ms = Duration::from_millis;
        deadline::Deadlines::new(deadline::Settings {
            connect: ms(50),
            send: ms(200),
            hard: ms(350),
            settle_margin: ms(150),
            lease: ms(1_800),
            heartbeat: ms(600),
            shutdown_grace: ms(800),
        })
        .expect("the simulator's limits agree")
    }

    /// Between attempts of one delivery.
    pub(crate) fn backoff() -> Backoff {
        Backoff {
            first: Duration::from_millis(40),
            max: Duration::from_millis(400),
        }
    }
}

impl Planned {
    pub(crate) fn event(&self) -> NewEvent {
        let kind = if self.noted { NOTED } else { PLACED };
        let key = format!("k{}", self.key);
        let payload = format!(r#"{{"order":"{}"}}"#, self.id);
        let mut event = NewEvent::new(kind, "1", "order", key.clone(), payload);
        event.event_id = Some(self.id);
        event.tenant = Some(format!("t{}", self.key % 2));
        event.partition_key = Some(key);
        event
    }
}

fn append(seed: u64, draw: &mut Draw, keys: u64, event: &mut u64) -> Append {
    let at = draw.skewed(0, CHAOS_MS * 9 / 10);
    let count = if draw.percent(25) {
        draw.between(2, 4)
    } else {
        1
    };
    let events = (0..count)
        .map(|_| {
            *event += 1;
            Planned {
                id: event_id(seed, *event),
                key: draw.below(keys),
                noted: draw.percent(20),
            }
        })
        .collect();
    let end = match draw.below(100) {
        0..60 => End::Commit,
        60..66 => End::CommitTwice,
        66..88 => End::CommitAt(at + draw.skewed(1, 1_500)),
        _ => End::RollBackAt(at + draw.skewed(1, 1_500)),
    };
    Append { at, events, end }
}

/// One more event behind an earlier one of its key, which a person has just replayed.
pub(crate) fn behind(seed: u64, earlier: &Planned, number: u64) -> Append {
    /// Past the numbers of those that were planned.
    const FIRST: u64 = 1_000;
    Append {
        at: 0,
        events: vec![Planned {
            id: event_id(seed, FIRST + number),
            ..earlier.clone()
        }],
        end: End::Commit,
    }
}

fn event_id(seed: u64, number: u64) -> EventId {
    let mut draw = Draw::of(seed, &[2, number]);
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&draw.next().to_be_bytes());
    EventId(
        uuid::Builder::from_unix_timestamp_millis(1_769_851_800_000 + number, &bytes).into_uuid(),
    )
}

fn place(draw: &mut Draw, index: usize) -> Place {
    let name = ["a", "b", "c"][index].to_owned();
    let ordering = draw.pick(&[
        Ordering::None,
        Ordering::Key,
        Ordering::Key,
        Ordering::Strict,
    ]);
    let destination = Destination {
        schema: destination::Schema::V1,
        name: name.clone(),
        generation: 1,
        kind: "handler".to_owned(),
        cluster: "sim".to_owned(),
        target: name.clone(),
        container: None,
        key: Key::PartitionKey,
        partitioner: Partitioner::None,
        serializer: Serializer::CloudeventsBinary,
        durability: Durability::Stored,
        receipt_type: "handler.result/1".to_owned(),
        ordering,
        lanes: draw.pick(&[1, 2, 3]),
        on_unknown: draw.pick(&[
            OnUnknown::Resend,
            OnUnknown::Resend,
            OnUnknown::Hold,
            OnUnknown::Probe,
        ]),
        on_quarantine: draw.pick(&[OnQuarantine::Hold, OnQuarantine::Pass]),
        max_attempts: draw.pick(&[None, Some(1), Some(2), Some(3)]),
        max_payload_bytes: None,
    };
    let broker = Options {
        name,
        pipelined_in_order: draw.percent(60),
        batch_max: draw.pick(&[1, 3, 1000]),
        dedup_window: draw.percent(40).then(|| Duration::from_secs(120)),
        ..Options::default()
    };
    Place {
        destination,
        broker,
    }
}

fn control(version: u64, registered: &[Place], members: &[Place]) -> ControlPlane {
    let member = |event_type: &str, place: &Place| {
        let destination = &place.destination;
        Member {
            event_type: event_type.to_owned(),
            schema_version: "1".to_owned(),
            destination: destination.name.clone(),
            destination_digest: destination.digest(),
            consumer: format!("{}-consumer", destination.name),
            expected_receipt_type: destination.receipt_type.clone(),
            expected_receipt_schema_version: "1".to_owned(),
            projection_target: ProjectionTarget::NotApplicable {},
            mandatory: true,
        }
    };
    let noted = members.iter().take(1).map(|place| member(NOTED, place));
    let placed = members.iter().map(|place| member(PLACED, place));
    let members: Vec<Member> = noted.chain(placed).collect();
    let applicable = |name: &str| ApplicableEvent {
        event_type: name.to_owned(),
        schema_version: "1".to_owned(),
    };
    let event_type = |name: &str| EventType {
        event_type: name.to_owned(),
        schema_version: "1".to_owned(),
        content_type: "application/json".to_owned(),
        json_schema: None,
    };
    ControlPlane {
        event_types: vec![event_type(NOTED), event_type(PLACED)],
        destinations: registered
            .iter()
            .map(|place| place.destination.clone())
            .collect(),
        delivery_set: DeliverySet {
            schema: delivery_set::Schema::V1,
            version,
            applicable_event_count: 2,
            applicable_events: vec![applicable(NOTED), applicable(PLACED)],
            member_count: members.len() as u64,
            members,
        },
    }
}

/// The session ids and jitter of one life of one worker come from this.
pub(crate) fn life_seed(seed: u64, worker: usize, life: u32) -> u64 {
    Draw::of(seed, &[3, worker as u64, u64::from(life)]).next()
}

/// An attempt id that no worker made.
pub(crate) fn foreign_id(seed: u64, number: u64) -> Uuid {
    Uuid::from_u64_pair(seed, number)
}
