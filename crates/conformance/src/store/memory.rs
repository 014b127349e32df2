//! The harness of the reference model, which every other store is compared with.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use postrider_contract::new_event::NewEvent;
use postrider_store::{AppendError, Clock, Store, clock::ManualClock, dispatch::Appended};
use postrider_store_memory::{MemoryStore, Transaction};

use super::{AuditRow, CallerTransaction, FindingRow, StoreHarness, Tampering};

#[derive(Debug)]
pub struct Memory(MemoryStore);

#[derive(Debug)]
pub struct Caller(Transaction);

impl Memory {
    /// The store itself, for what the port does not offer.
    #[must_use]
    pub fn memory(&self) -> MemoryStore {
        self.0.clone()
    }
}

#[async_trait]
impl StoreHarness for Memory {
    type Transaction = Caller;

    const CONCURRENT_WRITERS: bool = true;

    async fn open(clock: ManualClock) -> Self {
        Self(MemoryStore::new(Clock::Manual(clock)))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    async fn another_handle(&self) -> Arc<dyn Store> {
        self.store()
    }

    async fn begin(&self) -> Caller {
        Caller(self.0.begin())
    }

    async fn business_row(&self, key: &str) -> Option<String> {
        self.0.inspect(|model| model.row(key).map(str::to_owned))
    }

    async fn foreign_transaction(&self) -> Box<dyn Any + Send> {
        Box::new(self.0.begin())
    }

    async fn tamper(&self, _with: Tampering) -> Result<(), String> {
        Err("the model has no way to do it".to_owned())
    }

    async fn audit_log(&self) -> Vec<AuditRow> {
        self.0.inspect(|model| {
            let entries = model.audit_log().iter();
            entries
                .map(|entry| AuditRow {
                    action: entry.action.to_owned(),
                    actor: entry.actor.clone(),
                    reason: entry.reason.clone(),
                    changed: entry.changed,
                })
                .collect()
        })
    }

    async fn findings(&self) -> Vec<FindingRow> {
        self.0.inspect(|model| {
            let findings = model.findings().iter();
            findings
                .map(|finding| FindingRow {
                    code: finding.code.clone(),
                    detail: finding.detail.clone(),
                })
                .collect()
        })
    }
}

#[async_trait]
impl CallerTransaction for Caller {
    async fn append(&mut self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        self.0.append(&events)
    }

    async fn put_row(&mut self, key: &str, value: &str) {
        self.0.put_row(key, value).expect("the transaction is open");
    }

    async fn commit(self) {
        self.0.commit().expect("no faults are set");
    }

    async fn roll_back(self) {
        self.0.roll_back();
    }
}
