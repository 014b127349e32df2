//! A world: databases, destinations, relays and writers, and how each fault strikes there.

mod link;
pub(crate) mod postgres_jetstream;
pub(crate) mod relays;
pub(crate) mod sqlite_webhook;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use tokio::{sync::watch, task::JoinHandle};
use uuid::Uuid;

use crate::{evidence::Evidence, fault::Track, journal::Journal, schedule::Strike};

/// For what needs several parts whole at the same moment, while all are under faults.
const WITHIN: Duration = Duration::from_secs(90);

/// What a run is given.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    /// The names of the only faults; empty: all.
    pub(crate) only: Vec<String>,
    /// The program under test.
    pub(crate) postrider: PathBuf,
    pub(crate) nats_server: PathBuf,
    pub(crate) journal: Arc<Journal>,
}

/// What became of a strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Struck {
    Yes,
    /// This machine does not permit it; why.
    LeftOut(&'static str),
}

/// Databases, destinations, relays and writers under faults.
pub(crate) trait World: Sized {
    const NAME: &'static str;
    const TRACKS: &'static [Track];

    /// Everything is up, and the relays run.
    async fn build(given: &Given) -> Result<Self>;

    /// Writers that append until they are told to stop.
    fn write(&self, given: &Given, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>>;

    /// Starts again whatever ends by itself; never returns but for an error of the harness.
    async fn keep_running(&self) -> Result<()>;

    /// Strikes, lasts and ends. An error says why it did not strike.
    async fn strike(&self, strike: &Strike) -> Result<Struck>;

    /// Ends whatever a fault may have left.
    async fn heal(&self) -> Result<()>;

    /// What is still to be delivered or consumed; nothing once all is.
    async fn left(&self) -> Result<Option<String>>;

    /// Stops the relays as an operator does.
    async fn stop(&self) -> Result<()>;

    /// What the stores say, without the writers' log.
    async fn evidence(&self) -> Result<Evidence>;

    /// What the database tells about an event, for whoever looks for a cause.
    async fn story(&self, event: Uuid) -> Result<Vec<String>>;

    /// How often relays ended though nobody ended them, such as at a start without a database.
    fn ended_by_themselves(&self) -> u64;

    /// What each process under test said, by name.
    fn logs(&self) -> Vec<(String, String)>;
}
