//! What was committed against what arrived: sets that must be equal.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    sync::Arc,
};

use postrider_contract::Receipt;
use postrider_core::{Position, delivery::State};
use postrider_store::{Store, control::Registry, inspect::EventFilter};
use uuid::Uuid;

use super::{
    receiver::Received,
    setup::{AUDIT, FILE, Place, WEBHOOK, unusable},
};
use crate::{backend::store, fault::Failure};

/// Events read at a time.
const PAGE: u32 = 1_000;

/// What one destination came to.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Sends registered: one per delivery and attempt.
    sends: u64,
    /// Messages that arrived.
    arrived: u64,
    /// Events that arrived, each counted once.
    distinct: BTreeSet<Uuid>,
    /// Events with a primary receipt.
    receipts: BTreeSet<Uuid>,
    /// Receipts kept beside a primary one.
    duplicates: u64,
    /// Repeated sends that the destination itself recognised.
    recognised: u64,
}

/// Everything that was counted.
#[derive(Debug)]
pub(super) struct Audit {
    pub(super) orders: u32,
    pub(super) kills: u32,
    pub(super) committed: BTreeSet<Uuid>,
    pub(super) rolled_back: BTreeSet<Uuid>,
    pub(super) events: BTreeSet<Uuid>,
    pub(super) webhook: Side,
    pub(super) file: Side,
    /// Requests without a right signature.
    pub(super) refused: u64,
    pub(super) stopped_well: bool,
}

/// Reads the outbox: all events, what was sent of each, and its receipts.
pub(super) async fn outbox(
    store: &Arc<dyn Store>,
) -> Result<(BTreeSet<Uuid>, Side, Side), Failure> {
    let failed = |error| Failure::from(store::fault(&error));
    let registry = store.registry().await.map_err(failed)?;
    let (mut events, mut webhook, mut file) = (BTreeSet::new(), Side::default(), Side::default());
    let mut after = Position::START;
    loop {
        let page = store
            .events(&EventFilter::default(), after, PAGE)
            .await
            .map_err(failed)?;
        for row in &page.rows {
            after = row.position;
            events.insert(row.event_id.0);
            let Some(event) = store.event(row.event_id).await.map_err(failed)? else {
                continue;
            };
            for delivery in event.deliveries {
                let side = match name(&registry, delivery.destination) {
                    Some(WEBHOOK) => &mut webhook,
                    Some(AUDIT) => &mut file,
                    Some(_) | None => continue,
                };
                side.sends += delivery.attempts.len() as u64;
                side.duplicates += delivery.duplicates.len() as u64;
                if let (State::Acknowledged, Some(kept)) = (delivery.state, delivery.receipt) {
                    side.receipts.insert(row.event_id.0);
                    if let Receipt::File {
                        duplicate: true, ..
                    } = kept.receipt
                    {
                        side.recognised += 1;
                    }
                }
            }
        }
        if !page.more {
            return Ok((events, webhook, file));
        }
    }
}

fn name(registry: &Registry, id: postrider_core::DestinationId) -> Option<&str> {
    registry
        .destinations
        .iter()
        .find(|row| row.id == id)
        .map(|row| row.destination.name.as_str())
}

impl Side {
    /// Adds what the webhook receiver counted.
    pub(super) fn add_received(&mut self, received: &Received) {
        self.arrived = received.times.values().copied().map(u64::from).sum();
        self.distinct = received.times.keys().copied().collect();
    }

    /// Adds the lines of the delivered file.
    pub(super) fn add_file(&mut self, place: &Place) -> Result<(), Failure> {
        #[derive(serde::Deserialize)]
        struct Line {
            id: Uuid,
        }
        let path = place.folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|error| unusable(&path, &error))?;
        for line in text.lines() {
            self.arrived += 1;
            let line: Line = serde_json::from_str(line)
                .map_err(|error| unusable(&path, &io::Error::other(error)))?;
            self.distinct.insert(line.id);
        }
        Ok(())
    }
}

/// One figure of a destination.
type Figure = fn(&Side) -> u64;

impl Audit {
    /// What is not as promised. Empty: proven.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut differs = |what: &str, set: &BTreeSet<Uuid>| {
            let missing: Vec<&Uuid> = self.committed.difference(set).collect();
            let extra: Vec<&Uuid> = set.difference(&self.committed).collect();
            if let Some(first) = missing.first() {
                faults.push(format!(
                    "{} committed orders are not among {what}, such as {first}",
                    missing.len()
                ));
            }
            if let Some(first) = extra.first() {
                faults.push(format!(
                    "{} of {what} were never committed, such as {first}",
                    extra.len()
                ));
            }
        };
        differs("the events of the outbox", &self.events);
        differs("what the webhook received", &self.webhook.distinct);
        differs("the webhook's receipts", &self.webhook.receipts);
        differs("the lines of the file", &self.file.distinct);
        differs("the file's receipts", &self.file.receipts);
        if self.refused > 0 {
            faults.push(format!(
                "{} webhook requests had no right signature",
                self.refused
            ));
        }
        if !self.stopped_well {
            faults.push("the last relay did not end with 0 on SIGTERM".to_owned());
        }
        faults
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let orders = self.orders;
        let (committed, rolled_back) = (self.committed.len(), self.rolled_back.len());
        writeln!(
            out,
            "orders           {orders} taken: {committed} committed with their events, {rolled_back} rolled back"
        )?;
        writeln!(
            out,
            "relays           {} killed with SIGKILL, the last one stopped with SIGTERM",
            self.kills
        )?;
        writeln!(out)?;
        writeln!(out, "                    webhook      file")?;
        let rows: [(&str, Figure); 6] = [
            ("sent", |side| side.sends),
            ("received", |side| side.arrived),
            ("deduplicated", |side| {
                side.arrived - side.distinct.len() as u64 + side.recognised
            }),
            ("distinct events", |side| side.distinct.len() as u64),
            ("receipts", |side| side.receipts.len() as u64),
            ("more receipts", |side| side.duplicates),
        ];
        for (what, count) in rows {
            let (webhook, file) = (count(&self.webhook), count(&self.file));
            writeln!(out, "{what:<17}{webhook:>10}{file:>10}")?;
        }
        writeln!(out)?;
        let faults = self.faults();
        if faults.is_empty() {
            return writeln!(
                out,
                "proven: committed = in the outbox = received by the webhook = lines in the file = receipts,\n        {committed} events each; of the {rolled_back} rolled back, none"
            );
        }
        for fault in faults {
            writeln!(out, "NOT PROVEN: {fault}")?;
        }
        Ok(())
    }
}

/// How often each event arrived, for the demo's own test.
#[cfg(test)]
pub(super) fn side(distinct: &[Uuid]) -> Side {
    let set: BTreeSet<Uuid> = distinct.iter().copied().collect();
    let times = set.iter().map(|id| (*id, 1)).collect();
    let mut side = Side {
        receipts: set,
        ..Side::default()
    };
    side.add_received(&Received { times, refused: 0 });
    side
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(committed: &[Uuid], webhook: &[Uuid]) -> Audit {
        Audit {
            orders: 3,
            kills: 1,
            committed: committed.iter().copied().collect(),
            rolled_back: BTreeSet::new(),
            events: committed.iter().copied().collect(),
            webhook: side(webhook),
            file: side(committed),
            refused: 0,
            stopped_well: true,
        }
    }

    #[test]
    fn a_proof_that_cannot_fail_would_prove_nothing() {
        let [a, b, c] = [1, 2, 3].map(Uuid::from_u128);
        assert!(audit(&[a, b], &[a, b]).faults().is_empty());
        let lost = audit(&[a, b], &[a]).faults().join("; ");
        assert!(lost.contains("1 committed orders are not among what the webhook received"));
        let made_up = audit(&[a, b], &[a, b, c]).faults().join("; ");
        assert!(made_up.contains("1 of what the webhook received were never committed"));
    }
}
