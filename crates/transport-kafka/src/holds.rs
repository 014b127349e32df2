//! Keys that wait for a message of an earlier batch. Several batches are handed over before the
//! first is answered: when one of its messages is not accepted, the later ones of its key in the
//! others must not go first. It knows nothing of connections.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postrider_contract::EventId;
use postrider_transport::Message;
use tokio::time::Instant;

/// How long a dispatcher may take to hear of an answer: what it hands over within this time was
/// perhaps made without knowing it.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// What is held at this moment, by key.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    held: Mutex<BTreeMap<String, Hold>>,
    /// Asked before every message, and nearly always the whole answer.
    any: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    /// The first of its key that was not accepted. When it comes again, the key goes on.
    event: EventId,
    /// Batches that were handed over before this wait. It is also when the hold is forgotten: by
    /// then each of them was answered.
    until: Instant,
}

impl Holds {
    /// A message was not accepted.
    pub(crate) fn hold(&self, message: &Message, now: Instant, send_timeout: Duration) {
        let mut held = self.held();
        held.retain(|_, hold| hold.until + send_timeout > now);
        let until = now + HEARD_WITHIN;
        held.entry(message.partition_key.clone())
            .and_modify(|hold| hold.until = until)
            .or_insert(Hold {
                event: message.event_id,
                until,
            });
        self.any.store(true, Ordering::Release);
    }

    /// Whether a message of a batch that was handed over at `entered` must wait.
    pub(crate) fn holds(&self, message: &Message, entered: Instant) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut held = self.held();
        let Some(hold) = held.get(&message.partition_key) else {
            return false;
        };
        if hold.event == message.event_id {
            held.remove(&message.partition_key);
            self.any.store(!held.is_empty(), Ordering::Release);
            return false;
        }
        entered < hold.until
    }

    /// Whether a message that is sent once more, in a batch handed over at `entered`, must wait for
    /// one of another batch. What `own` says is of its own batch: the key stays held for others.
    pub(crate) fn holds_for_another(
        &self,
        message: &Message,
        entered: Instant,
        own: impl Fn(EventId) -> bool,
    ) -> bool {
        let held = self.held();
        let hold = held.get(&message.partition_key);
        hold.is_some_and(|hold| !own(hold.event) && entered < hold.until)
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Hold>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_transport::Routing;

    use super::*;

    const SEND: Duration = Duration::from_secs(5);

    fn message(number: u128, key: &str) -> Message {
        Message {
            event_id: EventId(uuid::Uuid::from_u128(number)),
            partition_key: key.to_owned(),
            headers: std::iter::empty::<(&str, &str)>().collect(),
            body: Bytes::new(),
            routing: Routing {
                event_type: "e".into(),
                tenant: "t".into(),
                aggregate_type: "a".into(),
                aggregate_id: "1".into(),
            },
            earlier: None,
        }
    }

    #[test]
    fn a_key_waits_in_batches_that_were_here_until_its_first_comes_again() {
        let holds = Holds::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (first, second, other) = (message(1, "a"), message(2, "a"), message(3, "b"));
        assert!(!holds.holds(&second, start));
        holds.hold(&first, at(1), SEND);
        // Held itself, it does not become what the key waits for.
        holds.hold(&second, at(1), SEND);
        assert!(holds.holds(&second, start));
        assert!(!holds.holds(&other, start));
        assert!(!holds.holds(&first, at(1)));
        assert!(!holds.holds(&second, at(1)));
    }

    #[test]
    fn a_key_whose_first_never_comes_again_goes_on() {
        let holds = Holds::default();
        let start = Instant::now();
        holds.hold(&message(1, "a"), start, SEND);
        let later = start + HEARD_WITHIN;
        assert!(!holds.holds(&message(2, "a"), later));
        holds.hold(&message(9, "b"), later + SEND, SEND);
        assert_eq!(holds.held().len(), 1, "the old one is forgotten");
    }
}
