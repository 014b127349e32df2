//! A registered control plane, and an application that appends through each of the drivers.

pub(crate) mod application;
pub(crate) mod control;
pub(crate) mod wire;

use application::{Application, Outbox};
use postrider::{AppendError, Appended, EventId, NewEvent, Registry};
use postrider_contract::Envelope;
use postrider_core::Position;
use postrider_store::{
    Store,
    inspect::{EventDetail, EventFilter},
};

/// One test per promise and driver: `promise::<Application>()`, a function beside the invocation.
macro_rules! for_each_driver {
    ($($promise:ident,)*) => {
        for_each_driver!(@ tokio_postgres TokioPostgres $($promise)*);
        for_each_driver!(@ sqlx_postgres SqlxPostgres $($promise)*);
        for_each_driver!(@ rusqlite Rusqlite $($promise)*);
        for_each_driver!(@ sqlx_sqlite SqlxSqlite $($promise)*);
    };
    (@ $driver:ident $application:ident $($promise:ident)*) => {
        mod $driver {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise::<crate::support::application::$application>().await;
            })*
        }
    };
}
pub(crate) use for_each_driver;

/// An outbox with everything registered, and an application that loaded it.
pub(crate) struct World<A> {
    pub(crate) outbox: Outbox,
    pub(crate) application: A,
    pub(crate) registry: Registry,
}

impl<A: Application> World<A> {
    pub(crate) async fn new() -> Self {
        let outbox = A::outbox().await;
        let mut application = A::connect(&outbox).await;
        let registry = application.load().await.unwrap();
        Self {
            outbox,
            application,
            registry,
        }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.outbox.store
    }

    pub(crate) async fn append(&mut self, event: NewEvent) -> Result<Appended, AppendError> {
        self.application.append(&self.registry, event).await
    }

    /// In a transaction of its own.
    pub(crate) async fn committed(&mut self, event: NewEvent) -> Appended {
        self.application.begin().await;
        let appended = self.append(event).await.unwrap();
        self.application.commit().await;
        appended
    }

    /// The transaction that is open can still change the business data and append, and commits.
    pub(crate) async fn the_transaction_goes_on(&mut self, row: &str) {
        self.application.put(row).await;
        let appended = self.append(order(row)).await.unwrap();
        self.application.commit().await;
        assert_eq!(
            stored(self.store(), appended.event_id).await.position.0,
            appended.position
        );
    }

    pub(crate) async fn events(&self) -> Vec<EventId> {
        let all = EventFilter::default();
        let page = self.store().events(&all, Position(0), 2_000).await.unwrap();
        page.rows.into_iter().map(|row| row.event_id).collect()
    }
}

/// An event of a type that has a JSON Schema.
pub(crate) fn order(id: &str) -> NewEvent {
    NewEvent::new(
        control::PLACED,
        "1",
        "order",
        id,
        format!(r#"{{"id":"{id}"}}"#),
    )
}

/// An event of a type that takes any JSON.
pub(crate) fn note(payload: impl Into<Vec<u8>>) -> NewEvent {
    NewEvent::new(control::NOTED, "1", "note", "n-1", payload)
}

/// An event of a type that takes any bytes.
pub(crate) fn blob(payload: impl Into<Vec<u8>>) -> NewEvent {
    NewEvent {
        content_type: Some("application/octet-stream".to_owned()),
        ..NewEvent::new(control::BLOB, "1", "file", "f-1", payload)
    }
}

pub(crate) async fn stored(store: &dyn Store, id: EventId) -> EventDetail {
    store
        .event(id)
        .await
        .expect("the store answers")
        .expect("the event is there")
}

pub(crate) async fn envelope(store: &dyn Store, id: EventId) -> Envelope {
    let envelope = stored(store, id).await.event.envelope;
    Envelope::from_json(&envelope).expect("an envelope is stored")
}

pub(crate) fn fresh_id() -> EventId {
    EventId(uuid::Uuid::now_v7())
}
