//! What the stores themselves say after a run: database, destinations, consumers. It judges
//! nothing.

pub(crate) mod jetstream;
pub(crate) mod postgres;
pub(crate) mod receiver;
pub(crate) mod sqlite;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use uuid::Uuid;

use crate::{digest::Sha256, journal::Known};

/// Everything that the audit compares.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// The writers' own log.
    pub(crate) known: Known,
    pub(crate) database: Database,
    /// By destination, in the order of arrival.
    pub(crate) arrivals: BTreeMap<String, Vec<Arrival>>,
    /// What consumers did, if there were any.
    pub(crate) consumed: Option<Consumed>,
}

/// The outbox, and the writers' own table beside it.
#[derive(Debug, Default)]
pub(crate) struct Database {
    pub(crate) transactions: BTreeSet<Uuid>,
    /// The payload of each.
    pub(crate) events: BTreeMap<Uuid, Sha256>,
    /// Primary ones.
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) open_deliveries: Vec<String>,
    pub(crate) open_attempts: u64,
    /// Resolved ones too.
    pub(crate) quarantined: Vec<String>,
    /// Open ones.
    pub(crate) findings: Vec<String>,
    pub(crate) counts: Counts,
    /// Outcomes of single deliveries that were not acknowledgements, by code.
    pub(crate) codes: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Receipt {
    pub(crate) event: Uuid,
    pub(crate) destination: String,
    /// The stream that it names, if it names one.
    pub(crate) stream: Option<String>,
    /// Where the destination says that it put the event, if it says so.
    pub(crate) number: Option<u64>,
    /// Its attempt is registered, for this destination and with this event.
    pub(crate) of_an_attempt: bool,
}

/// What is counted and not judged.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    pub(crate) sessions: u64,
    pub(crate) sessions_expired: u64,
    pub(crate) attempts: u64,
    /// Attempts that nobody finished but the recovery of their session.
    pub(crate) attempts_recovered: u64,
    /// Receipts that came by the evidence path.
    pub(crate) late_receipts: u64,
    pub(crate) duplicate_receipts: u64,
}

/// A copy of an event at a destination.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) event: Uuid,
    pub(crate) digest: Sha256,
    /// As the destination counts, where it does.
    pub(crate) number: Option<u64>,
}

/// What consumers made of what arrived.
#[derive(Debug, Default)]
pub(crate) struct Consumed {
    /// How often each event had its effect, by destination.
    pub(crate) effects: BTreeMap<(String, Uuid), u64>,
    /// Ids that came with two digests.
    pub(crate) conflicts: u64,
    /// Copies that the inbox kept from having an effect.
    pub(crate) redeliveries: u64,
}
