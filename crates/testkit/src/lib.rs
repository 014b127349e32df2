//! Real servers for tests: started, stopped, killed, paused and restarted on a stable loopback
//! port with their data in a temporary folder. It never touches a server that it did not start.
//!
//! - [`Postgres`], [`PgBouncer`], [`Nats`], [`RabbitMq`], [`Redis`], [`Kafka`]: private servers that a
//!   test may break.
//! - [`mod@env`]: the servers that `cargo xtask test` shares between all tests; never break those.
//! - [`FaultProxy`]: a TCP proxy that delays, silences, half-closes and cuts.
//! - [`SmallDisk`]: a disk that can be filled up, where mounting is permitted.
//! - [`Program`]: any other program under test, with the same signals.
//! - [`Port`]: a port that stays ours, for a server that a test writes itself.
//! - [`eventually`]: waits for a condition instead of for a time.
//!
//! Everything is killed and removed on drop, and also when the test process itself is killed: a
//! small shell beside each server reads a pipe that closes with us.

pub mod env;
pub mod nats;
pub mod postgres;
pub mod proxy;
pub mod rabbitmq;
pub mod redis;

mod account;
mod condition;
mod disk;
mod kafka;
mod pgbouncer;
mod port;
mod program;
mod watchdog;

pub use condition::{eventually, eventually_some};
pub use disk::SmallDisk;
pub use kafka::Kafka;
pub use nats::Nats;
pub use pgbouncer::PgBouncer;
pub use port::Port;
pub use postgres::Postgres;
pub use program::Program;
pub use proxy::FaultProxy;
pub use rabbitmq::RabbitMq;
pub use redis::Redis;
