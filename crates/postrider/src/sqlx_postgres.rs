//! Append in a transaction of `sqlx` on Postgres.
//!
//! ```no_run
//! # async fn place(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{NewEvent, json_payload, sqlx_postgres};
//!
//! // Once, at the start of the program.
//! let registry = sqlx_postgres::load(&mut *pool.acquire().await?).await?;
//!
//! let mut transaction = pool.begin().await?;
//! sqlx::query("insert into orders (id, total) values ($1, $2)")
//!     .bind("42")
//!     .bind(10)
//!     .execute(&mut *transaction)
//!     .await?;
//! let payload = json_payload(&serde_json::json!({"id": "42", "total": 10}))?;
//! let event = NewEvent::new("order.placed", "1", "order", "42", payload);
//! sqlx_postgres::append(&mut transaction, &registry, event).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each append is one round trip. Before the first one on a connection, `sqlx` has the statement
//! prepared, which is one more; with `statement_cache_capacity(0)`, as some poolers need it, each
//! append has it.

use postrider_contract::NewEvent;
use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgDatabaseError};

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
pub async fn load(connection: &mut PgConnection) -> Result<Registry, LoadError> {
    let registry = Registry::empty();
    refresh(connection, &registry).await?;
    Ok(registry)
}

/// Loads the registry again, for everybody who shares it. One round trip.
///
/// An append does so by itself when the database says that the registry is old, or when it does
/// not know the event type.
///
/// # Errors
/// As [`load`]; the registry is then as before.
pub async fn refresh(connection: &mut PgConnection, registry: &Registry) -> Result<(), LoadError> {
    postgres::refresh(&mut Sqlx(connection), registry)
        .await
        .map(drop)
}

/// Appends an event in the transaction that is open on the connection (a `sqlx::Transaction`
/// derefs to it); without one, in a transaction of its own.
///
/// # Errors
/// Nothing was written. After a [`Database`](AppendError::Database) error, or a
/// [`Conflict`](AppendError::Conflict) with another transaction of the same moment, the
/// transaction can only be rolled back, as after any error in Postgres; after every other error
/// it goes on.
pub async fn append(
    connection: &mut PgConnection,
    registry: &Registry,
    event: NewEvent,
) -> Result<Appended, AppendError> {
    postgres::append_one(&mut Sqlx(connection), registry, event).await
}

/// Appends events, in order, all or nothing, in one round trip.
///
/// # Errors
/// As [`append`], with the place in the batch.
pub async fn append_all(
    connection: &mut PgConnection,
    registry: &Registry,
    events: Vec<NewEvent>,
) -> Result<Vec<Appended>, BatchError> {
    postgres::append(&mut Sqlx(connection), registry, events).await
}

struct Sqlx<'a>(&'a mut PgConnection);

impl Connection for Sqlx<'_> {
    async fn append(&mut self, sql: &str, batch: &Batch<'_>) -> Result<Vec<Row>, Failure> {
        // The text is the library's own, with the checked name of a schema in it.
        let mut query = sqlx::query(AssertSqlSafe(sql.to_owned()));
        for parameter in &batch.0 {
            query = match parameter {
                Parameter::Integer(value) => query.bind(value),
                Parameter::Texts(values) => query.bind(values),
                Parameter::Integers(values) => query.bind(values),
                Parameter::Bytes(values) => query.bind(values),
            };
        }
        let rows = query.fetch_all(&mut *self.0).await.map_err(failure)?;
        rows.iter().map(|row| read(row).map_err(failure)).collect()
    }

    async fn registry(&mut self, sql: &str) -> Result<String, Failure> {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(&mut *self.0)
            .await
            .map_err(failure)
    }
}

fn read(row: &sqlx::postgres::PgRow) -> Result<Row, sqlx::Error> {
    Ok(Row {
        event_id: row.try_get(0)?,
        position: row.try_get(1)?,
        already: row.try_get(2)?,
        refusal: row.try_get(3)?,
        facts: row.try_get(4)?,
    })
}

fn failure(error: sqlx::Error) -> Failure {
    let server = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    Failure {
        code: server.map(|error| error.code().to_owned()),
        message: server.map_or_else(|| error.to_string(), |error| error.message().to_owned()),
        facts: server
            .and_then(|error| error.constraint())
            .map(str::to_owned),
        source: error.into(),
    }
}
