//! A registered control plane, an application that appends, and workers that settle.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use postrider_contract::{
    DeliverySet, Destination, Envelope, EventId, EventType, Receipt, Timestamp,
    delivery_set::{self, ApplicableEvent, Member, ProjectionTarget},
    destination::{
        self, Durability, Key, OnQuarantine, OnUnknown, Ordering, Partitioner, Serializer,
    },
    new_event::NewEvent,
};
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId};
use postrider_store::{
    ExchangeError, Store,
    clock::ManualClock,
    control::{Applied, Audit, ControlPlane},
    dispatch::{
        Appended, Exchange, Exchanged, Fetch, Fetched, Registration, Settled, SettledAs, Settlement,
    },
    evidence::Evidence,
    inspect::{DeliveryDetail, EventDetail},
    sessions::NewSession,
};
use uuid::Uuid;

use super::StoreHarness;

/// The lease of every worker unless a test says otherwise.
pub const LEASE: Duration = Duration::from_secs(30);
/// The event type that goes to every destination of a [`World`].
pub const PLACED: &str = "order.placed";
/// The event type that goes to the first destination only.
pub const NOTED: &str = "order.noted";
/// The schema version of both.
pub const V1: &str = "1";

/// A destination that orders by key, holds on quarantine and sends again when unknown.
#[must_use]
pub fn destination(name: &str) -> Destination {
    Destination {
        schema: destination::Schema::V1,
        name: name.to_owned(),
        generation: 1,
        kind: "jetstream".to_owned(),
        cluster: "test".to_owned(),
        target: format!("{name}.{{event_type}}"),
        container: Some("EVENTS".to_owned()),
        key: Key::PartitionKey,
        partitioner: Partitioner::None,
        serializer: Serializer::CloudeventsBinary,
        durability: Durability::Stored,
        receipt_type: "jetstream.ack/1".to_owned(),
        ordering: Ordering::Key,
        lanes: 4,
        on_unknown: OnUnknown::Resend,
        on_quarantine: OnQuarantine::Hold,
        max_attempts: None,
        max_payload_bytes: None,
    }
}

/// A plan in which [`PLACED`] goes to all destinations and [`NOTED`] to the first.
#[must_use]
pub fn plan(version: u64, destinations: &[Destination]) -> ControlPlane {
    let member = |event_type: &str, destination: &Destination| Member {
        event_type: event_type.to_owned(),
        schema_version: V1.to_owned(),
        destination: destination.name.clone(),
        destination_digest: destination.digest(),
        consumer: format!("{}-consumer", destination.name),
        expected_receipt_type: destination.receipt_type.clone(),
        expected_receipt_schema_version: "1".to_owned(),
        projection_target: ProjectionTarget::NotApplicable {},
        mandatory: true,
    };
    let mut sorted: Vec<&Destination> = destinations.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let noted = destinations.iter().take(1).map(|d| member(NOTED, d));
    let placed = sorted.into_iter().map(|d| member(PLACED, d));
    let members: Vec<Member> = noted.chain(placed).collect();
    let event_type = |name: &str, json_schema: Option<&str>| EventType {
        event_type: name.to_owned(),
        schema_version: V1.to_owned(),
        content_type: "application/json".to_owned(),
        json_schema: json_schema.map(str::to_owned),
    };
    let applicable = |name: &str| ApplicableEvent {
        event_type: name.to_owned(),
        schema_version: V1.to_owned(),
    };
    ControlPlane {
        event_types: vec![
            event_type(NOTED, None),
            event_type(PLACED, Some(r#"{"type":"object"}"#)),
        ],
        destinations: destinations.to_vec(),
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

/// An event of [`PLACED`] with the given key.
#[must_use]
pub fn event(key: &str) -> NewEvent {
    let mut event = NewEvent::new(PLACED, V1, "order", key, r#"{"total":1}"#);
    event.event_id = Some(EventId(Uuid::now_v7()));
    event.partition_key = Some(key.to_owned());
    event
}

#[must_use]
pub fn audit(reason: &str) -> Audit {
    Audit {
        actor: "ops@example".to_owned(),
        reason: reason.to_owned(),
    }
}

/// The receipt of one message on the test stream.
#[must_use]
pub fn receipt(sequence: u64) -> Receipt {
    Receipt::JetStream {
        stream: "EVENTS".to_owned(),
        sequence,
        domain: None,
        duplicate: false,
    }
}

/// Acknowledged, with the position as the sequence.
#[must_use]
pub fn acknowledged(position: Position) -> Settled {
    let sequence = u64::try_from(position.0).expect("positions are positive");
    Settled {
        position,
        next: SettledAs::Acknowledged(receipt(sequence)),
    }
}

#[must_use]
pub fn retry(position: Position, attempts: u32, delay: Duration) -> Settled {
    Settled {
        position,
        next: SettledAs::Retry {
            attempts,
            delay,
            code: "refused_for_now",
            detail: "try later".to_owned(),
        },
    }
}

#[must_use]
pub fn unknown(position: Position) -> Settled {
    Settled {
        position,
        next: SettledAs::Unknown {
            code: "deadline",
            detail: String::new(),
        },
    }
}

#[must_use]
pub fn quarantined(position: Position) -> Settled {
    Settled {
        position,
        next: SettledAs::Quarantined {
            attempts: 1,
            code: "too_large",
            detail: "2 MB, the stream takes 1 MB".to_owned(),
        },
    }
}

/// A store with registered destinations. Destinations are named by their index.
#[derive(Debug)]
pub struct World<H> {
    pub harness: H,
    pub clock: ManualClock,
    pub store: Arc<dyn Store>,
    pub destinations: Vec<DestinationId>,
}

impl<H: StoreHarness> World<H> {
    /// An empty store at 2026-01-31T09:30:00Z.
    pub async fn empty() -> Self {
        let start: Timestamp = "2026-01-31T09:30:00Z".parse().expect("a time");
        let clock = ManualClock::at(start);
        let harness = H::open(clock.clone()).await;
        let store = harness.store();
        Self {
            harness,
            clock,
            store,
            destinations: Vec::new(),
        }
    }

    pub async fn with(destinations: &[Destination]) -> Self {
        let mut world = Self::empty().await;
        world.apply(&plan(1, destinations)).await;
        world
    }

    /// One destination with the defaults of [`destination()`].
    pub async fn new() -> Self {
        Self::with(&[destination("alpha")]).await
    }

    pub async fn apply(&mut self, plan: &ControlPlane) -> Applied {
        let applied = self
            .store
            .apply(plan, &audit("apply"))
            .await
            .expect("the plan applies");
        let registry = self.store.registry().await.expect("the registry is read");
        self.destinations = registry.destinations.iter().map(|d| d.id).collect();
        applied
    }

    pub async fn append(&self, event: NewEvent) -> Appended {
        self.append_all(vec![event]).await[0]
    }

    pub async fn append_all(&self, events: Vec<NewEvent>) -> Vec<Appended> {
        self.store
            .append(events)
            .await
            .expect("the events are appended")
    }

    /// One event per key; answers the positions.
    pub async fn append_keys(&self, keys: &[&str]) -> Vec<Position> {
        let events = keys.iter().map(|key| event(key)).collect();
        let appended = self.append_all(events).await;
        appended.iter().map(|appended| appended.position).collect()
    }

    /// A live session on the store's own handle, with every lane of every destination.
    pub async fn worker(&self) -> Worker {
        let worker = self.session("worker").await;
        worker.claim_all(&self.destinations).await
    }

    /// A live session without lanes.
    pub async fn session(&self, owner: &str) -> Worker {
        let session = self.new_session(owner);
        self.store
            .open_session(&session)
            .await
            .expect("the session opens");
        Worker {
            store: self.store.clone(),
            session: session.id,
            lanes: BTreeMap::new(),
        }
    }

    #[must_use]
    pub fn new_session(&self, owner: &str) -> NewSession {
        NewSession {
            id: SessionId(Uuid::new_v4()),
            owner: owner.to_owned(),
            lease: LEASE,
            serves: self.destinations.clone(),
            exclusive: false,
            version: "0.1.0".to_owned(),
        }
    }

    pub async fn event(&self, id: EventId) -> EventDetail {
        let found = self.store.event(id).await.expect("the event is read");
        found.expect("the event exists")
    }

    /// The event's delivery to the destination with this index.
    pub async fn delivery(&self, id: EventId, destination: usize) -> DeliveryDetail {
        let wanted = self.destinations[destination];
        let mut deliveries = self.event(id).await.deliveries.into_iter();
        deliveries
            .find(|delivery| delivery.destination == wanted)
            .expect("the delivery exists")
    }

    /// True evidence for a delivery, as a worker would bring it.
    pub async fn evidence(
        &self,
        attempt: AttemptId,
        destination: usize,
        event: EventId,
        receipt: Receipt,
    ) -> Evidence {
        let detail = self.event(event).await;
        let envelope = Envelope::from_stored(&detail.event.envelope).expect("an envelope");
        let registry = self.store.registry().await.expect("the registry is read");
        let destination = self.destinations[destination];
        let registered = registry
            .destinations
            .iter()
            .find(|registered| registered.id == destination)
            .expect("the destination is registered");
        Evidence {
            attempt,
            destination,
            destination_digest: registered.digest,
            position: detail.position,
            event_id: event,
            generation: envelope.generation,
            payload_digest: envelope.payload.digest,
            receipt,
        }
    }
}

/// One session and the lanes that it holds.
#[derive(Clone, Debug)]
pub struct Worker {
    pub store: Arc<dyn Store>,
    pub session: SessionId,
    pub lanes: BTreeMap<DestinationId, Vec<Lane>>,
}

impl Worker {
    /// Claims every free lane of these destinations.
    pub async fn claim_all(mut self, destinations: &[DestinationId]) -> Self {
        let wanted: Vec<_> = destinations.iter().map(|id| (*id, u16::MAX)).collect();
        let claimed = self.store.claim_lanes(self.session, &wanted).await;
        self.lanes.extend(claimed.expect("lanes are claimed"));
        self
    }

    /// An exchange in which nothing happens.
    #[must_use]
    pub fn exchange(&self, destination: DestinationId) -> Exchange {
        Exchange {
            session: self.session,
            destination,
            settle: Vec::new(),
            quarantine: Vec::new(),
            suspend: None,
            register: Vec::new(),
            fetch: None,
        }
    }

    /// A fetch from the front on all held lanes, up to 100 deliveries.
    #[must_use]
    pub fn front(&self, destination: DestinationId) -> Fetch {
        Fetch {
            lanes: self.lanes.get(&destination).cloned().unwrap_or_default(),
            after: Position::START,
            exclude: Vec::new(),
            busy_keys: Vec::new(),
            limit: 100,
            bytes_max: u64::MAX,
        }
    }

    pub async fn run(&self, exchange: &Exchange) -> Exchanged {
        self.store
            .exchange(exchange)
            .await
            .expect("the exchange is done")
    }

    pub async fn fetch_with(&self, destination: DestinationId, fetch: Fetch) -> Exchanged {
        let mut exchange = self.exchange(destination);
        exchange.fetch = Some(fetch);
        self.run(&exchange).await
    }

    pub async fn fetch(&self, destination: DestinationId) -> Vec<Fetched> {
        self.fetch_with(destination, self.front(destination))
            .await
            .fetched
    }

    /// The positions that are due, from the front.
    pub async fn due(&self, destination: DestinationId) -> Vec<Position> {
        positions(&self.fetch(destination).await)
    }

    pub async fn register(&self, destination: DestinationId, members: &[Position]) -> AttemptId {
        let attempt = AttemptId(Uuid::new_v4());
        let mut exchange = self.exchange(destination);
        exchange.register = vec![Registration {
            attempt,
            members: members.to_vec(),
        }];
        self.run(&exchange).await;
        attempt
    }

    pub async fn try_settle(
        &self,
        destination: DestinationId,
        attempt: AttemptId,
        members: Vec<Settled>,
    ) -> Result<Exchanged, ExchangeError> {
        let mut exchange = self.exchange(destination);
        exchange.settle = vec![Settlement { attempt, members }];
        self.store.exchange(&exchange).await
    }

    pub async fn settle(
        &self,
        destination: DestinationId,
        attempt: AttemptId,
        members: Vec<Settled>,
    ) -> Exchanged {
        let settled = self.try_settle(destination, attempt, members).await;
        settled.expect("the attempt is settled")
    }

    /// Registers an attempt with these members and settles it.
    pub async fn attempt(&self, destination: DestinationId, members: Vec<Settled>) -> AttemptId {
        let positions: Vec<_> = members.iter().map(|settled| settled.position).collect();
        let attempt = self.register(destination, &positions).await;
        self.settle(destination, attempt, members).await;
        attempt
    }

    /// Fetches from the front until nothing is due, acknowledging everything; answers the
    /// positions in the order in which they went. At most 100 rounds.
    pub async fn drain(&self, destination: DestinationId) -> Vec<Position> {
        let mut sent = Vec::new();
        for _ in 0..100 {
            let due = self.due(destination).await;
            if due.is_empty() {
                return sent;
            }
            self.attempt(destination, due.iter().copied().map(acknowledged).collect())
                .await;
            sent.extend(due);
        }
        panic!("deliveries that were acknowledged are still due: {sent:?}");
    }
}

#[must_use]
pub fn positions(fetched: &[Fetched]) -> Vec<Position> {
    fetched.iter().map(|fetched| fetched.position).collect()
}
