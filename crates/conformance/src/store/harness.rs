//! What a store must offer, beyond the port, so that its promises can be tested.

use std::{any::Any, fmt::Debug, sync::Arc};

use async_trait::async_trait;
use postrider_contract::new_event::NewEvent;
use postrider_store::{AppendError, Store, clock::ManualClock, dispatch::Appended};

/// One store under test. Failures of the harness itself panic.
#[async_trait]
pub trait StoreHarness: Debug + Sized + Send + Sync + 'static {
    type Transaction: CallerTransaction;

    /// Two callers may have transactions with events open at once. Where they cannot, the second
    /// waits for the first, and positions become visible in order.
    const CONCURRENT_WRITERS: bool;

    /// A fresh database with the current schema and nothing registered. Every statement goes by
    /// `clock`.
    async fn open(clock: ManualClock) -> Self;

    fn store(&self) -> Arc<dyn Store>;

    /// Another program's handle on the same database, by the same clock: no connection shared.
    async fn another_handle(&self) -> Arc<dyn Store>;

    /// Begins a transaction of an application.
    async fn begin(&self) -> Self::Transaction;

    /// A committed business row.
    async fn business_row(&self, key: &str) -> Option<String>;

    /// Begins a transaction that has nothing to do with the outbox and stays open until the
    /// answer is dropped: the longest-lived kind that the database allows beside a busy writer.
    async fn foreign_transaction(&self) -> Box<dyn Any + Send>;

    /// Tries to change what must not change, past the port, with the rights of a relay or a
    /// producer. `Err`: it was refused, with what the database said.
    async fn tamper(&self, with: Tampering) -> Result<(), String>;

    /// Oldest first.
    async fn audit_log(&self) -> Vec<AuditRow>;

    /// Oldest first.
    async fn findings(&self) -> Vec<FindingRow>;
}

/// An application's transaction. Rolled back when dropped.
#[async_trait]
pub trait CallerTransaction: Debug + Send + Sized {
    async fn append(&mut self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError>;

    /// Inserts a business row.
    async fn put_row(&mut self, key: &str, value: &str);

    async fn commit(self);

    async fn roll_back(self);
}

/// A forbidden change to every row of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tampering {
    ChangePayload,
    ChangeEnvelope,
    ChangeEnvelopeDigest,
    ChangePosition,
    DeleteEvents,
    ChangeDestination,
    DeleteDestinations,
    ChangeDeliverySet,
    ChangeDeliverySetMembers,
    ChangeEventTypeSchema,
    ChangeAttemptMembers,
    ChangeReceipts,
    DeleteReceipts,
    ChangeAuditLog,
}

impl Tampering {
    pub const ALL: [Self; 14] = [
        Self::ChangePayload,
        Self::ChangeEnvelope,
        Self::ChangeEnvelopeDigest,
        Self::ChangePosition,
        Self::DeleteEvents,
        Self::ChangeDestination,
        Self::DeleteDestinations,
        Self::ChangeDeliverySet,
        Self::ChangeDeliverySetMembers,
        Self::ChangeEventTypeSchema,
        Self::ChangeAttemptMembers,
        Self::ChangeReceipts,
        Self::DeleteReceipts,
        Self::ChangeAuditLog,
    ];
}

/// One change by a person, as audited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// `apply`, `resume_destination` or `replay`.
    pub action: String,
    pub actor: String,
    pub reason: String,
    /// How many things changed.
    pub changed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingRow {
    pub code: String,
    pub detail: String,
}
