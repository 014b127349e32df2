//! Relays as processes beside a real Postgres and a real JetStream: killed, cut off, paused and fed
//! poison. Afterwards the database and the stream must agree about every event.

#[path = "../../src/setup.rs"]
mod setup;

mod killed;
mod outage;
mod paused;
mod poisoned;
mod support;
