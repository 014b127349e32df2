//! Destinations, events and messages for transport tests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use postrider_contract::{
    Destination, Digest, EventId, NewEvent, Timestamp,
    destination::{
        Durability, Key, OnQuarantine, OnUnknown, Ordering, Partitioner, Schema, Serializer,
    },
    envelope::DeliverySetRef,
};
use postrider_core::Outcome;
use postrider_transport::{
    Anchor, Answer, Batch, Message, Probe, Transport,
    wire::{Event, Place, message},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use uuid::Uuid;

/// Longer than any send of these tests takes, hung ones included.
const PATIENCE: Duration = Duration::from_secs(60);

/// A destination without order, with binary messages; the rest is the transport's to fill in.
#[must_use]
pub fn destination(kind: &str, receipt_type: &str) -> Destination {
    Destination {
        schema: Schema::V1,
        name: "test".to_owned(),
        generation: 1,
        kind: kind.to_owned(),
        cluster: "test".to_owned(),
        target: "test".to_owned(),
        container: None,
        key: Key::PartitionKey,
        partitioner: Partitioner::None,
        serializer: Serializer::CloudeventsBinary,
        durability: Durability::Stored,
        receipt_type: receipt_type.to_owned(),
        ordering: Ordering::None,
        lanes: 1,
        on_unknown: OnUnknown::Resend,
        on_quarantine: OnQuarantine::Pass,
        max_attempts: None,
        max_payload_bytes: None,
    }
}

/// A fresh random id: tests share servers.
#[must_use]
pub fn event_id() -> EventId {
    EventId(Uuid::now_v7())
}

/// An event of one type, for one aggregate, with a JSON payload.
#[must_use]
pub fn new_event(aggregate_id: &str, payload: &str) -> NewEvent {
    NewEvent::new("order.placed", "1", "order", aggregate_id, payload)
}

/// The message that the relay would send for an event.
///
/// # Panics
/// If the event breaks a rule of the contract.
#[must_use]
pub fn message_of(destination: &Destination, event: &NewEvent) -> Message {
    let delivery_set = DeliverySetRef {
        version: 1,
        digest: Digest::of_canonical("{}"),
    };
    let occurred_at = Timestamp::from_unix_micros(1_700_000_000_000_000).expect("a valid time");
    let sealed = event
        .seal(event_id(), occurred_at, &delivery_set, None)
        .expect("the event is valid");
    let payload = Bytes::from(event.payload.clone());
    let event = Event {
        envelope: &sealed.envelope,
        envelope_digest: &sealed.digest,
        payload: &payload,
        traceparent: event.traceparent.as_deref(),
        tracestate: event.tracestate.as_deref(),
        headers: &sealed.headers,
    };
    message(&Place::new(destination.clone()), &event, None).expect("the event has this format")
}

/// `count` messages of one key, numbered in their payloads.
#[must_use]
pub fn messages(destination: &Destination, count: usize) -> Vec<Message> {
    (0..count)
        .map(|n| message_of(destination, &new_event("1", &format!("{{\"n\":{n}}}"))))
        .collect()
}

/// A message whose payload is `bytes` long.
#[must_use]
pub fn message_of_size(destination: &Destination, bytes: usize) -> Message {
    let payload = format!("\"{}\"", "x".repeat(bytes.saturating_sub(2)));
    message_of(destination, &new_event("1", &payload))
}

/// The question about a message.
#[must_use]
pub fn probe_of(message: &Message, payload: &[u8], anchor: Option<Anchor>) -> Probe {
    Probe {
        event_id: message.event_id,
        payload_digest: Digest::of_bytes(payload),
        anchor,
        partition_key: message.partition_key.clone(),
        routing: message.routing.clone(),
    }
}

/// Sends a batch and collects the outcomes, by index.
///
/// # Panics
/// If a message is not answered exactly once, or the answers take longer than the send timeout
/// allows.
pub async fn send(
    transport: &Arc<dyn Transport>,
    messages: &[Message],
    send_timeout: Duration,
) -> Vec<Outcome> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let batch = Batch {
        messages: messages.iter().cloned().map(Arc::new).collect(),
        send_timeout,
    };
    let started = Instant::now();
    timeout(PATIENCE, transport.send(batch, sender))
        .await
        .unwrap_or_else(|_| {
            panic!("send did not return within {PATIENCE:?}; its send timeout was {send_timeout:?}")
        });
    let took = started.elapsed();
    let mut outcomes: Vec<Option<Outcome>> = vec![None; messages.len()];
    while let Some(Answer { index, outcome }) = receiver.recv().await {
        let slot = outcomes
            .get_mut(index)
            .unwrap_or_else(|| panic!("no message {index}"));
        assert!(
            slot.is_none(),
            "message {index} was answered twice: {slot:?}, {outcome:?}"
        );
        *slot = Some(outcome);
    }
    let outcomes: Vec<Outcome> = outcomes
        .into_iter()
        .enumerate()
        .map(|(index, outcome)| outcome.unwrap_or_else(|| panic!("message {index} has no answer")))
        .collect();
    // Twice and ten seconds: a loaded machine is slow, a send without a deadline is endless.
    let bound = send_timeout * 2 + Duration::from_secs(10);
    assert!(
        took < bound,
        "send took {took:?}; its send timeout was {send_timeout:?}"
    );
    outcomes
}

/// As [`send`], for one message.
pub async fn send_one(
    transport: &Arc<dyn Transport>,
    message: &Message,
    send_timeout: Duration,
) -> Outcome {
    send(transport, std::slice::from_ref(message), send_timeout)
        .await
        .remove(0)
}

/// Sends until everything is acknowledged, as the relay would: again after each failure.
///
/// # Panics
/// If a message is rejected, or is not acknowledged after `tries` sends.
pub async fn send_until_acknowledged(
    transport: &Arc<dyn Transport>,
    messages: &[Message],
    send_timeout: Duration,
    tries: u32,
) {
    let mut open: Vec<Message> = messages.to_vec();
    let mut last = Vec::new();
    for _ in 0..tries {
        let outcomes = send(transport, &open, send_timeout).await;
        let mut wait = Duration::ZERO;
        let mut still = Vec::new();
        for (message, outcome) in open.iter().zip(&outcomes) {
            match outcome {
                Outcome::Acknowledged(_) => {}
                Outcome::Rejected { .. } => panic!("rejected: {outcome:?}"),
                Outcome::Retryable { retry_after, .. } => {
                    wait = wait.max(retry_after.unwrap_or(Duration::from_millis(20)));
                    still.push(message.clone());
                }
                Outcome::Unknown { .. } => still.push(message.clone()),
            }
        }
        if still.is_empty() {
            return;
        }
        (open, last) = (still, outcomes);
        tokio::time::sleep(wait).await;
    }
    panic!(
        "{} messages are not acknowledged after {tries} sends: {last:?}",
        open.len()
    );
}
