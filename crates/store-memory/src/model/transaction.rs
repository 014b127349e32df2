//! A caller's own transaction: events and business rows that appear together, or not at all.

use std::collections::BTreeMap;

use postrider_contract::{EventId, Timestamp, new_event::NewEvent};
use postrider_core::{
    DestinationId, Position,
    mutation::{self, Mutation},
};
use postrider_store::{
    AppendError, StoreError,
    dispatch::{Appended, Horizon},
};

use super::{Event, Model, refused};

/// An open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(u64);

/// What an open transaction has done: nobody else sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    pub(super) events: Vec<Draft>,
    pub(super) rows: BTreeMap<String, String>,
}

/// An event that is not committed yet. Its position is taken, whatever becomes of it.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) position: Position,
    pub(super) event_id: EventId,
    pub(super) event: Event,
    pub(super) deliveries: Vec<(DestinationId, super::Open)>,
}

impl Model {
    pub fn begin(&mut self) -> TransactionId {
        self.transactions_begun += 1;
        let id = TransactionId(self.transactions_begun);
        self.transactions.insert(id, Open::default());
        id
    }

    /// Writes a business row: what the application changes beside its events.
    ///
    /// # Errors
    /// When the transaction is over.
    pub fn put_row(
        &mut self,
        transaction: TransactionId,
        key: &str,
        value: &str,
    ) -> Result<(), StoreError> {
        self.transaction(transaction)?
            .rows
            .insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// Makes everything of the transaction visible, at the positions given at append: an earlier
    /// position may appear after a later one.
    ///
    /// # Errors
    /// When the transaction is over.
    pub fn commit(&mut self, transaction: TransactionId) -> Result<(), StoreError> {
        let open = self.transactions.remove(&transaction).ok_or_else(over)?;
        self.rows.extend(open.rows);
        for draft in open.events {
            self.positions.insert(draft.event_id, draft.position);
            for (destination, delivery) in draft.deliveries {
                self.open.insert((destination, draft.position), delivery);
            }
            self.events.insert(draft.position, draft.event);
        }
        Ok(())
    }

    /// Forgets the transaction. Its positions stay used: holes.
    pub fn roll_back(&mut self, transaction: TransactionId) {
        if mutation::on(Mutation::RolledBackDelivered) {
            // One that was committed is not there any more.
            drop(self.commit(transaction));
        }
        self.transactions.remove(&transaction);
    }

    /// Appends events in a transaction of their own, all or nothing.
    ///
    /// # Errors
    /// As [`Store::append`](postrider_store::Store::append).
    pub fn append(
        &mut self,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<Vec<Appended>, AppendError> {
        let transaction = self.begin();
        match self.append_in(transaction, events, now) {
            Ok(appended) => {
                self.commit(transaction)?;
                Ok(appended)
            }
            Err(error) => {
                self.roll_back(transaction);
                Err(error)
            }
        }
    }

    /// A transaction has its number from its begin, before it draws a position.
    pub(super) fn horizon(&self) -> Horizon {
        let number = self.transactions_begun + 1;
        let oldest = self.transactions.keys().next();
        Horizon {
            number,
            over: oldest.map_or(number, |TransactionId(oldest)| *oldest),
        }
    }

    pub(super) fn transaction(&mut self, id: TransactionId) -> Result<&mut Open, StoreError> {
        self.transactions.get_mut(&id).ok_or_else(over)
    }
}

fn over() -> StoreError {
    refused("the transaction is over".to_owned())
}
