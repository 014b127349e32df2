//! The servers that all tests share, by environment variables. Each test makes its own database,
//! stream or queue there and never stops, floods or reconfigures the server.
//!
//! A missing variable panics: a test that needs a server fails without it and is never skipped.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::postgres::create_database;

/// The names of the variables, for whoever sets them.
pub mod name {
    /// Superuser URL of a PostgreSQL server.
    pub const POSTGRES: &str = "POSTRIDER_TEST_POSTGRES_URL";
    /// The same server through PgBouncer in transaction mode.
    pub const PGBOUNCER: &str = "POSTRIDER_TEST_PGBOUNCER_URL";
    /// URL of the oldest supported NATS server, with JetStream.
    pub const NATS: &str = "POSTRIDER_TEST_NATS_URL";
    /// URL of a current NATS server, with JetStream.
    pub const NATS_CURRENT: &str = "POSTRIDER_TEST_NATS_CURRENT_URL";
    /// Path of the oldest supported nats-server program.
    pub const NATS_SERVER_OLD: &str = "POSTRIDER_TEST_NATS_SERVER_OLD";
    /// Path of a current nats-server program.
    pub const NATS_SERVER_CURRENT: &str = "POSTRIDER_TEST_NATS_SERVER_CURRENT";
    /// URL of a Redis server.
    pub const REDIS: &str = "POSTRIDER_TEST_REDIS_URL";
    /// Path of the redis-server program.
    pub const REDIS_SERVER: &str = "POSTRIDER_TEST_REDIS_SERVER";
    /// Path of the redis-cli program: a client that is not ours.
    pub const REDIS_CLI: &str = "POSTRIDER_TEST_REDIS_CLI";
    /// Path of the nisshi program, a broker that speaks Kafka's protocol.
    pub const NISSHI: &str = "POSTRIDER_TEST_NISSHI";
    /// URL of a RabbitMQ server, without the user.
    pub const RABBITMQ: &str = "POSTRIDER_TEST_RABBITMQ_URL";
    /// Path of the Python interpreter.
    pub const PYTHON: &str = "POSTRIDER_TEST_PYTHON";
    /// PYTHONPATH with psycopg.
    pub const PYTHONPATH: &str = "POSTRIDER_TEST_PYTHONPATH";
    /// Path of the Node.js program.
    pub const NODE: &str = "POSTRIDER_TEST_NODE";
    /// NODE_PATH with the package pg.
    pub const NODE_PATH: &str = "POSTRIDER_TEST_NODE_PATH";
}

/// The shared PostgreSQL server.
#[must_use]
pub fn postgres() -> Server {
    Server {
        admin_url: var(name::POSTGRES),
        url: var(name::POSTGRES),
    }
}

/// The shared PostgreSQL server, through PgBouncer in transaction mode.
#[must_use]
pub fn pgbouncer() -> Server {
    Server {
        admin_url: var(name::POSTGRES),
        url: var(name::PGBOUNCER),
    }
}

/// URL of the shared NATS server of the oldest supported version.
#[must_use]
pub fn nats_url() -> String {
    var(name::NATS)
}

/// URL of the shared NATS server of a current version.
#[must_use]
pub fn nats_current_url() -> String {
    var(name::NATS_CURRENT)
}

/// URL of the shared RabbitMQ server, without the user.
#[must_use]
pub fn rabbitmq_url() -> String {
    var(name::RABBITMQ)
}

/// The oldest supported nats-server program, for [`crate::Nats::start`].
#[must_use]
pub fn nats_server_old() -> PathBuf {
    var(name::NATS_SERVER_OLD).into()
}

/// A current nats-server program, for [`crate::Nats::start`].
#[must_use]
pub fn nats_server_current() -> PathBuf {
    var(name::NATS_SERVER_CURRENT).into()
}

/// URL of the shared Redis server.
#[must_use]
pub fn redis_url() -> String {
    var(name::REDIS)
}

/// The redis-server program, for [`crate::Redis::start`].
#[must_use]
pub fn redis_server() -> PathBuf {
    var(name::REDIS_SERVER).into()
}

/// The redis-cli program.
#[must_use]
pub fn redis_cli() -> PathBuf {
    var(name::REDIS_CLI).into()
}

/// The nisshi program, for [`crate::Kafka::prepare`].
#[must_use]
pub fn nisshi() -> PathBuf {
    var(name::NISSHI).into()
}

/// A command that runs Python with psycopg at hand.
#[must_use]
pub fn python() -> std::process::Command {
    let mut command = std::process::Command::new(var(name::PYTHON));
    command
        .env("PYTHONPATH", var(name::PYTHONPATH))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A command that runs Node.js with the package pg at hand.
#[must_use]
pub fn node() -> std::process::Command {
    let mut command = std::process::Command::new(var(name::NODE));
    command.env("NODE_PATH", var(name::NODE_PATH));
    command
}

/// A PostgreSQL server by URL, reached directly or through a pooler.
#[derive(Debug, Clone)]
pub struct Server {
    /// Databases are created past the pooler.
    admin_url: String,
    url: String,
}

impl Server {
    /// Creates an empty database with a name never used before; returns its superuser URL.
    pub async fn create_database(&self) -> Result<String> {
        self.url_of(&create_database(&self.admin_url).await?)
    }

    /// The superuser URL of a database: a name, or a URL of the same server whose database is
    /// meant (so that one database can be opened both directly and through the pooler).
    pub fn url_of(&self, database: &str) -> Result<String> {
        let name = database.rsplit_once('/').map_or(database, |(_, name)| name);
        let (server, _) = self
            .url
            .rsplit_once('/')
            .filter(|(server, _)| !server.ends_with('/'))
            .with_context(|| format!("{} names no database", self.url))?;
        Ok(format!("{server}/{name}"))
    }
}

fn var(name: &str) -> String {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => value,
        Ok(_) | Err(_) => panic!(
            "{name} is not set: this test needs real servers. Run all tests with `cargo xtask \
             test`, or run `cargo xtask services` and export what it prints."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_or_taken_from_another_url() -> Result<()> {
        let url = "postgresql://postgres@127.0.0.1:6432/postgres".to_owned();
        let server = Server {
            admin_url: url.clone(),
            url,
        };
        let expected = "postgresql://postgres@127.0.0.1:6432/mine";
        assert_eq!(server.url_of("mine")?, expected);
        assert_eq!(
            server.url_of("postgresql://postgres@127.0.0.1:5432/mine")?,
            expected
        );
        let nameless = "postgresql://127.0.0.1".to_owned();
        assert!(
            Server {
                admin_url: nameless.clone(),
                url: nameless
            }
            .url_of("mine")
            .is_err()
        );
        Ok(())
    }

    #[test]
    #[should_panic(expected = "Run all tests with `cargo xtask test`")]
    fn a_missing_variable_says_what_to_run() {
        var("POSTRIDER_TEST_OF_NOTHING");
    }
}
