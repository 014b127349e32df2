//! A caller's own transaction on the memory store.

use postrider_contract::new_event::NewEvent;
use postrider_store::{AppendError, StoreError, dispatch::Appended};

use crate::{MemoryStore, faults::Call, model::TransactionId};

/// An application's transaction: business rows and events, together or not at all. Rolled back
/// when dropped.
#[derive(Debug)]
pub struct Transaction {
    store: MemoryStore,
    id: TransactionId,
}

impl MemoryStore {
    #[must_use]
    pub fn begin(&self) -> Transaction {
        let id = self.model().begin();
        Transaction {
            store: self.clone(),
            id,
        }
    }
}

impl Transaction {
    /// Appends events; they take their positions now and are seen once this commits.
    ///
    /// # Errors
    /// As [`Store::append`](postrider_store::Store::append). The transaction can go on.
    pub fn append(&self, events: &[NewEvent]) -> Result<Vec<Appended>, AppendError> {
        let now = self.store.time();
        self.store.model().append_in(self.id, events, now)
    }

    /// Writes a business row.
    ///
    /// # Errors
    /// Never while the transaction is open.
    pub fn put_row(&self, key: &str, value: &str) -> Result<(), StoreError> {
        self.store.model().put_row(self.id, key, value)
    }

    /// # Errors
    /// `Unavailable` where a fault says so: whether it committed is then unknown to the caller.
    pub fn commit(self) -> Result<(), StoreError> {
        let committed = self
            .store
            .call(Call::Commit, |model, _| model.commit(self.id));
        self.store.ring_if_wanted();
        committed
    }

    pub fn roll_back(self) {}
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.store.model().roll_back(self.id);
    }
}
