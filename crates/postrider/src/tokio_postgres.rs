//! Append in a transaction of `tokio-postgres`.
//!
//! ```no_run
//! # async fn place(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{NewEvent, json_payload, tokio_postgres as outbox};
//!
//! // Once, at the start of the program.
//! let registry = outbox::load(client).await?;
//!
//! let transaction = client.transaction().await?;
//! transaction
//!     .execute("insert into orders (id, total) values ($1, $2)", &[&"42", &10])
//!     .await?;
//! let payload = json_payload(&serde_json::json!({"id": "42", "total": 10}))?;
//! let event = NewEvent::new("order.placed", "1", "order", "42", payload);
//! outbox::append(&transaction, &registry, event).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each append is one round trip and leaves no prepared statement behind, so it works through a
//! pooler in transaction mode.

use ::tokio_postgres::{
    Error, GenericClient,
    types::{ToSql, Type},
};
use postrider_contract::NewEvent;

use crate::{
    Appended,
    error::{AppendError, BatchError, LoadError},
    postgres::{self, Batch, Connection, Failure, Parameter, Row},
    registry::Registry,
};

/// Loads the registry from the schema `postrider`. One round trip.
///
/// # Errors
/// When the database does not give it, or a registered JSON Schema cannot be used.
pub async fn load<C: GenericClient + Sync>(client: &C) -> Result<Registry, LoadError> {
    let registry = Registry::empty();
    refresh(client, &registry).await?;
    Ok(registry)
}

/// Loads the registry again, for everybody who shares it. One round trip.
///
/// An append does so by itself when the database says that the registry is old, or when it does
/// not know the event type.
///
/// # Errors
/// As [`load`]; the registry is then as before.
pub async fn refresh<C: GenericClient + Sync>(
    client: &C,
    registry: &Registry,
) -> Result<(), LoadError> {
    postgres::refresh(&mut TokioPostgres(client), registry)
        .await
        .map(drop)
}

/// Appends an event in the given transaction; with a client that has none open, in a transaction
/// of its own.
///
/// # Errors
/// Nothing was written. After a [`Database`](AppendError::Database) error, or a
/// [`Conflict`](AppendError::Conflict) with another transaction of the same moment, the
/// transaction can only be rolled back, as after any error in Postgres; after every other error
/// it goes on.
pub async fn append<C: GenericClient + Sync>(
    client: &C,
    registry: &Registry,
    event: NewEvent,
) -> Result<Appended, AppendError> {
    postgres::append_one(&mut TokioPostgres(client), registry, event).await
}

/// Appends events, in order, all or nothing, in one round trip.
///
/// # Errors
/// As [`append`], with the place in the batch.
pub async fn append_all<C: GenericClient + Sync>(
    client: &C,
    registry: &Registry,
    events: Vec<NewEvent>,
) -> Result<Vec<Appended>, BatchError> {
    postgres::append(&mut TokioPostgres(client), registry, events).await
}

struct TokioPostgres<'a, C>(&'a C);

impl<C: GenericClient + Sync> Connection for TokioPostgres<'_, C> {
    async fn append(&mut self, sql: &str, batch: &Batch<'_>) -> Result<Vec<Row>, Failure> {
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> = batch.0.iter().map(typed).collect();
        // Typed and unnamed: parse, bind and execute travel together.
        let rows = self
            .0
            .query_typed(sql, &parameters)
            .await
            .map_err(failure)?;
        rows.iter().map(|row| read(row).map_err(failure)).collect()
    }

    async fn registry(&mut self, sql: &str) -> Result<String, Failure> {
        let row = self.0.query_typed_one(sql, &[]).await.map_err(failure)?;
        row.try_get(0).map_err(failure)
    }
}

fn typed<'a>(parameter: &'a Parameter<'_>) -> (&'a (dyn ToSql + Sync), Type) {
    match parameter {
        Parameter::Integer(value) => (value, Type::INT8),
        Parameter::Texts(values) => (values, Type::TEXT_ARRAY),
        Parameter::Integers(values) => (values, Type::INT8_ARRAY),
        Parameter::Bytes(values) => (values, Type::BYTEA_ARRAY),
    }
}

fn read(row: &::tokio_postgres::Row) -> Result<Row, Error> {
    Ok(Row {
        event_id: row.try_get(0)?,
        position: row.try_get(1)?,
        already: row.try_get(2)?,
        refusal: row.try_get(3)?,
        facts: row.try_get(4)?,
    })
}

fn failure(error: Error) -> Failure {
    let server = error.as_db_error();
    Failure {
        code: server.map(|error| error.code().code().to_owned()),
        message: server.map_or_else(|| error.to_string(), |error| error.message().to_owned()),
        facts: server
            .and_then(|error| error.constraint())
            .map(str::to_owned),
        source: error.into(),
    }
}
