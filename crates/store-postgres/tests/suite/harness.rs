//! A fresh database on the shared server, with roles to try things as.

use std::{any::Any, fmt, marker::PhantomData, sync::Arc};

use async_trait::async_trait;
use postrider_conformance::store::{
    AuditRow, CallerTransaction, FindingRow, StoreHarness, Tampering,
};
use postrider_contract::{Digest, EventId, new_event::NewEvent};
use postrider_core::Position;
use postrider_store::{AppendError, Clock, Store, clock::ManualClock, dispatch::Appended};
use postrider_store_postgres::{MigrateOptions, Options, PostgresStore, append_error, migrate};
use postrider_testkit::env;
use tokio_postgres::{Client, NoTls, types::Json};

/// How the store reaches its server.
pub(crate) trait Route: fmt::Debug + Send + Sync + 'static {
    /// The same database by this route.
    fn url(direct: &str) -> String;
}

#[derive(Debug)]
pub(crate) struct ByServer;

#[derive(Debug)]
pub(crate) struct ByPooler;

impl Route for ByServer {
    fn url(direct: &str) -> String {
        direct.to_owned()
    }
}

impl Route for ByPooler {
    fn url(direct: &str) -> String {
        env::pgbouncer().url_of(direct).expect("the pooler's URL")
    }
}

pub(crate) type Direct = Postgres<ByServer>;
pub(crate) type Pooled = Postgres<ByPooler>;

/// A store in a database of its own.
#[derive(Debug)]
pub(crate) struct Postgres<R> {
    store: PostgresStore,
    clock: ManualClock,
    direct_url: String,
    route: PhantomData<R>,
}

/// Connects past the pooler.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

/// A fresh database with the current schema: its URL past the pooler.
pub(crate) async fn migrated() -> String {
    let url = env::postgres().create_database().await.expect("a database");
    migrate(&url, &MigrateOptions::default())
        .await
        .expect("migrates");
    let client = connect(&url).await;
    client
        .batch_execute("create table business (key text primary key, value text not null)")
        .await
        .expect("a business table");
    url
}

impl<R: Route> Postgres<R> {
    /// Past the pooler.
    pub(crate) fn direct_url(&self) -> &str {
        &self.direct_url
    }

    fn store_at(direct_url: &str, clock: &ManualClock) -> PostgresStore {
        let mut options = Options::new(R::url(direct_url));
        options.doorbell_url = Some(direct_url.to_owned());
        options.clock = Clock::Manual(clock.clone());
        PostgresStore::new(options).expect("usable options")
    }
}

#[async_trait]
impl<R: Route> StoreHarness for Postgres<R> {
    type Transaction = Caller;

    const CONCURRENT_WRITERS: bool = true;

    async fn open(clock: ManualClock) -> Self {
        let direct_url = migrated().await;
        Self {
            store: Self::store_at(&direct_url, &clock),
            clock,
            direct_url,
            route: PhantomData,
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn another_handle(&self) -> Arc<dyn Store> {
        Arc::new(Self::store_at(&self.direct_url, &self.clock))
    }

    async fn begin(&self) -> Caller {
        let client = connect(&R::url(&self.direct_url)).await;
        client.batch_execute("begin").await.expect("begins");
        Caller {
            client,
            clock: self.clock.clone(),
        }
    }

    async fn business_row(&self, key: &str) -> Option<String> {
        connect(&self.direct_url)
            .await
            .query_opt("select value from business where key = $1", &[&key])
            .await
            .expect("reads")
            .map(|row| row.get(0))
    }

    async fn foreign_transaction(&self) -> Box<dyn Any + Send> {
        let client = connect(&self.direct_url).await;
        // Has written, and holds an old snapshot.
        for statement in [
            "create table foreign_work (n int)",
            "begin isolation level repeatable read",
            "insert into foreign_work values (1)",
        ] {
            client.batch_execute(statement).await.expect("begins");
        }
        Box::new(client)
    }

    async fn tamper(&self, with: Tampering) -> Result<(), String> {
        // The relay may touch the most; the owner, beyond that, meets the guards.
        for role in ["postrider_producer", "postrider_relay", "postgres"] {
            let client = connect(&self.direct_url).await;
            client
                .batch_execute(&format!("set role {role}"))
                .await
                .expect("the role exists");
            if client.batch_execute(forbidden(with)).await.is_ok() {
                return Ok(());
            }
        }
        Err("refused to producer, relay and owner".to_owned())
    }

    async fn audit_log(&self) -> Vec<AuditRow> {
        connect(&self.direct_url)
            .await
            .query(
                "select action, actor, reason, changed from postrider.audit_log order by audit_id",
                &[],
            )
            .await
            .expect("reads")
            .iter()
            .map(|row| AuditRow {
                action: row.get(0),
                actor: row.get(1),
                reason: row.get(2),
                changed: u64::try_from(row.get::<_, i64>(3)).expect("a count"),
            })
            .collect()
    }

    async fn findings(&self) -> Vec<FindingRow> {
        connect(&self.direct_url)
            .await
            .query(
                "select code, detail from postrider.findings order by finding_id",
                &[],
            )
            .await
            .expect("reads")
            .iter()
            .map(|row| FindingRow {
                code: row.get(0),
                detail: row.get(1),
            })
            .collect()
    }
}

fn forbidden(with: Tampering) -> &'static str {
    match with {
        Tampering::ChangePayload => "update postrider.events set payload = 'x'",
        Tampering::ChangeEnvelope => "update postrider.events set envelope = '{}'",
        Tampering::ChangeEnvelopeDigest => {
            "update postrider.events set envelope_digest = sha256('x')"
        }
        Tampering::ChangePosition => "update postrider.events set position = position + 1000000",
        Tampering::DeleteEvents => "delete from postrider.events",
        Tampering::ChangeDestination => "update postrider.destinations set canonical = '{}'",
        Tampering::DeleteDestinations => "delete from postrider.destinations",
        Tampering::ChangeDeliverySet => "update postrider.delivery_sets set canonical = '{}'",
        Tampering::ChangeDeliverySetMembers => {
            "update postrider.delivery_set_members set mandatory = not mandatory"
        }
        Tampering::ChangeEventTypeSchema => "update postrider.event_types set json_schema = '{}'",
        Tampering::ChangeAttemptMembers => {
            "update postrider.attempts set run_starts = '{1}', run_lengths = '{1}'"
        }
        Tampering::ChangeReceipts => "update postrider.receipt_batches set shared = '{}'",
        Tampering::DeleteReceipts => "delete from postrider.receipt_batches",
        Tampering::ChangeAuditLog => "update postrider.audit_log set actor = 'nobody'",
    }
}

/// An application's connection with its open transaction; closing it rolls back.
#[derive(Debug)]
pub(crate) struct Caller {
    client: Client,
    clock: ManualClock,
}

#[async_trait]
impl CallerTransaction for Caller {
    async fn append(&mut self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        // As an application that checks before it asks, and that can go on after a refusal.
        self.client
            .batch_execute("savepoint append")
            .await
            .expect("a savepoint");
        let mut appended = Vec::new();
        for event in &events {
            match self.append_one(event).await {
                Ok(one) => appended.push(one),
                Err(error) => {
                    self.client
                        .batch_execute("rollback to savepoint append")
                        .await
                        .expect("rolls back");
                    return Err(error);
                }
            }
        }
        Ok(appended)
    }

    async fn put_row(&mut self, key: &str, value: &str) {
        self.client
            .execute("insert into business values ($1, $2)", &[&key, &value])
            .await
            .expect("inserts");
    }

    async fn commit(self) {
        self.client.batch_execute("commit").await.expect("commits");
    }

    async fn roll_back(self) {
        self.client
            .batch_execute("rollback")
            .await
            .expect("rolls back");
    }
}

impl Caller {
    /// At the test's time, which the functions for applications cannot be given.
    async fn append_one(&self, event: &NewEvent) -> Result<Appended, AppendError> {
        event
            .seal(
                EventId(uuid::Uuid::max()),
                self.clock.now(),
                &postrider_contract::envelope::DeliverySetRef {
                    version: 1,
                    digest: Digest::of_canonical("{}"),
                },
                None,
            )
            .map_err(|invalid| AppendError::Invalid(invalid.to_string()))?;
        let version = event
            .aggregate
            .version
            .map(|version| i64::try_from(version).expect("checked"));
        let headers = (!event.headers.is_empty()).then(|| Json(serde_json::json!(event.headers)));
        let row = self
            .client
            .query_one(
                "select event_id, position, already from postrider.append_rows(
                    array[row($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                        $16, $17, $18, $19)::postrider.new_event], $20::text::timestamptz)",
                &[
                    &event.event_type,
                    &event.payload,
                    &event.aggregate.kind,
                    &event.aggregate.id,
                    &event.schema_version,
                    &event.event_id.map(|id| id.0),
                    &event.tenant,
                    &version,
                    &event.content_type,
                    &event.partition_key,
                    &event.actor,
                    &event.request_id,
                    &event.correlation_id,
                    &event.causation_id,
                    &event.operation_id,
                    &event.occurred_at.map(|at| at.to_string()),
                    &event.traceparent,
                    &event.tracestate,
                    &headers,
                    &self.clock.now().to_string(),
                ],
            )
            .await
            .map_err(|error| append_error(&error))?;
        Ok(Appended {
            event_id: EventId(row.get(0)),
            position: Position(row.get(1)),
            already: row.get(2),
        })
    }
}
