//! Where acknowledgements come in: one inbox for the whole life of a transport, whatever
//! connections come and go, so that an answer to a message of an earlier connection still finds
//! its way.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use postrider_contract::{EventId, Receipt};
use postrider_transport::Late;
use rand::Rng;
use tokio::sync::mpsc;

/// Messages answered as unknown whose acknowledgement is still hoped for. Older ones are
/// forgotten: a look-up at the destination finds what they would have said. 24 bytes each.
const LATE_MAX: usize = 20_000;

/// Tokens of one connection; more than it can ever use.
const TOKENS_BITS: u32 = 40;

#[derive(Debug)]
pub(crate) struct Inbox {
    /// `_INBOX.{random}.`; a token follows.
    prefix: String,
    connections: AtomicU64,
    late: Mutex<BTreeMap<u64, EventId>>,
    newest: Mutex<Option<(u64, Instant)>>,
    reports: mpsc::Sender<Late>,
}

impl Inbox {
    pub(crate) fn new(prefix: &str, reports: mpsc::Sender<Late>) -> Self {
        let random: u128 = rand::rng().random();
        Self {
            prefix: format!("{prefix}.{random:032x}."),
            connections: AtomicU64::new(0),
            late: Mutex::default(),
            newest: Mutex::default(),
            reports,
        }
    }

    /// The first token of a new connection. A token is never used again.
    pub(crate) fn tokens(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) << TOKENS_BITS
    }

    pub(crate) fn reply_subject(&self, token: u64) -> String {
        format!("{}{token:x}", self.prefix)
    }

    pub(crate) fn subscription(&self) -> String {
        format!("{}*", self.prefix)
    }

    pub(crate) fn token(&self, subject: &str) -> Option<u64> {
        u64::from_str_radix(subject.strip_prefix(&self.prefix)?, 16).ok()
    }

    /// Goes on hoping for the acknowledgement of a message that was answered as unknown.
    pub(crate) fn hope_for(&self, messages: impl IntoIterator<Item = (u64, EventId)>) {
        let mut late = lock(&self.late);
        late.extend(messages);
        while late.len() > LATE_MAX {
            late.pop_first();
        }
    }

    /// An acknowledgement that no message waits for.
    pub(crate) fn acknowledged_late(&self, token: u64, receipt: Receipt) {
        if let Some(event_id) = lock(&self.late).remove(&token) {
            // Nobody listens, or not fast enough: a probe finds it at the destination.
            drop(self.reports.try_send(Late { event_id, receipt }));
        }
    }

    /// Notes the sequence of a message that was stored just now.
    pub(crate) fn note(&self, sequence: u64) {
        // Not the highest: a stream that was made anew starts low again.
        *lock(&self.newest) = Some((sequence, Instant::now()));
    }

    /// The sequence noted last, if that was not long ago. What is sent from now on is stored
    /// behind it.
    pub(crate) fn newest(&self, age_max: Duration) -> Option<u64> {
        let newest = *lock(&self.newest);
        newest
            .filter(|(_, at)| at.elapsed() <= age_max)
            .map(|(sequence, _)| sequence)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn receipt(sequence: u64) -> Receipt {
        Receipt::JetStream {
            stream: "S".into(),
            sequence,
            domain: None,
            duplicate: false,
        }
    }

    #[test]
    fn tokens_of_connections_never_meet_and_read_back() {
        let inbox = Inbox::new("_INBOX", mpsc::channel(1).0);
        let (first, second) = (inbox.tokens(), inbox.tokens());
        assert!(second - first > 1 << 32);
        assert_eq!(
            inbox.token(&inbox.reply_subject(second + 7)),
            Some(second + 7)
        );
        assert_eq!(inbox.token("_INBOX.other.7"), None);
    }

    #[test]
    fn a_late_acknowledgement_is_reported_once_and_for_its_own_event() {
        let (reports, mut late) = mpsc::channel(8);
        let inbox = Inbox::new("_INBOX", reports);
        let event_id = EventId(Uuid::from_u128(1));
        inbox.hope_for([(5, event_id)]);
        inbox.acknowledged_late(6, receipt(1));
        inbox.acknowledged_late(5, receipt(2));
        inbox.acknowledged_late(5, receipt(3));
        assert_eq!(
            late.try_recv().unwrap(),
            Late {
                event_id,
                receipt: receipt(2)
            }
        );
        assert!(late.try_recv().is_err());
    }

    #[test]
    fn hopes_are_bounded_and_the_oldest_go_first() {
        let (reports, mut late) = mpsc::channel(8);
        let inbox = Inbox::new("_INBOX", reports);
        let count = LATE_MAX as u64 + 1;
        inbox.hope_for((0..count).map(|token| (token, EventId(Uuid::from_u128(token.into())))));
        inbox.acknowledged_late(0, receipt(1));
        assert!(late.try_recv().is_err());
        inbox.acknowledged_late(count - 1, receipt(1));
        assert!(late.try_recv().is_ok());
    }
}
