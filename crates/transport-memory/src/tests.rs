//! Each fate once: what the broker stores, and what the sender learns.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures::executor::block_on;
use postrider_contract::{Digest, EventId, Receipt};
use postrider_core::{Class, Outcome};
use postrider_transport::{Answer, Batch, Message, Probe, Probed, Routing, Transport};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::{Broker, Decision, Fate, Memory, Options};

fn routing() -> Routing {
    Routing {
        event_type: "order.placed".to_owned(),
        tenant: "t".to_owned(),
        aggregate_type: "order".to_owned(),
        aggregate_id: "1".to_owned(),
    }
}

fn id(number: u128) -> EventId {
    EventId(Uuid::from_u128(number))
}

fn batch(numbers: &[u128]) -> Batch {
    let message = |&number: &u128| {
        Arc::new(Message {
            event_id: id(number),
            partition_key: "k".to_owned(),
            headers: [("id", number)].into_iter().collect(),
            body: Bytes::from(number.to_string()),
            routing: routing(),
            earlier: None,
        })
    };
    Batch {
        messages: numbers.iter().map(message).collect(),
        send_timeout: Duration::from_secs(1),
    }
}

fn drain(answers: &mut mpsc::UnboundedReceiver<Answer>) -> Vec<(usize, Outcome)> {
    std::iter::from_fn(|| answers.try_recv().ok())
        .map(|a| (a.index, a.outcome))
        .collect()
}

fn send(broker: &Broker, numbers: &[u128]) -> Vec<(usize, Outcome)> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    block_on(Memory::open(broker).send(batch(numbers), sender));
    drain(&mut receiver)
}

fn stored(broker: &Broker) -> Vec<EventId> {
    broker.with_log(|log| log.iter().map(|stored| stored.event_id).collect())
}

fn acknowledged(sequence: u64) -> Outcome {
    Outcome::Acknowledged(Receipt::Handler {
        handler: "memory".to_owned(),
        sequence,
    })
}

fn probe(broker: &Broker, number: u128) -> Probed {
    let probe = Probe {
        event_id: id(number),
        payload_digest: Digest::of_bytes(number.to_string().as_bytes()),
        anchor: None,
        partition_key: String::new(),
        routing: routing(),
    };
    block_on(Memory::open(broker).probe(&probe)).expect("the broker is up")
}

#[test]
fn a_script_decides_first_and_accepting_is_the_rule() {
    let broker = Broker::new(Options::default());
    let reject = Fate::Reject { suspends: true };
    broker.script(id(2), [Fate::Refuse(Class::Refusal), reject]);
    let first = send(&broker, &[1, 2, 3]);
    assert_eq!(first.len(), 3);
    assert_eq!(first[0], (0, acknowledged(1)));
    assert!(matches!(
        first[1].1,
        Outcome::Retryable {
            class: Class::Refusal,
            ..
        }
    ));
    assert_eq!(first[2], (2, acknowledged(2)));
    assert!(matches!(
        send(&broker, &[2])[0].1,
        Outcome::Rejected { suspends: true, .. }
    ));
    assert_eq!(send(&broker, &[2])[0].1, acknowledged(3));
    assert_eq!(stored(&broker), [id(1), id(3), id(2)]);
    assert_eq!(broker.sends(id(2)), 3);
}

#[test]
fn a_lost_ack_and_a_lost_message_look_alike_and_a_probe_tells_them_apart() {
    let broker = Broker::new(Options::default());
    broker.script(id(1), [Fate::LoseAck]);
    broker.script(id(2), [Fate::LoseMessage]);
    let answers = send(&broker, &[1, 2]);
    assert_eq!(answers[0].1, answers[1].1);
    assert!(matches!(answers[0].1, Outcome::Unknown { .. }));
    assert_eq!(probe(&broker, 1), Probed::Found(broker.receipt(1)));
    assert_eq!(probe(&broker, 2), Probed::ProvenAbsent);
}

#[test]
fn dedup_answers_with_the_first_receipt_until_the_id_is_forgotten() {
    let dedup_window = Some(Duration::from_secs(1));
    let broker = Broker::new(Options {
        dedup_window,
        ..Options::default()
    });
    broker.script(id(1), [Fate::AcceptTwice]);
    assert_eq!(send(&broker, &[1])[0].1, acknowledged(1));
    assert_eq!(send(&broker, &[1])[0].1, acknowledged(1));
    assert_eq!(stored(&broker).len(), 2);
    broker.forget();
    assert_eq!(send(&broker, &[1])[0].1, acknowledged(3));
}

#[test]
fn a_black_hole_holds_until_released_and_then_tells_the_truth() {
    let broker = Broker::new(Options::default());
    broker.script(id(1), [Fate::BlackHole { stored: true }]);
    broker.script(id(2), [Fate::BlackHole { stored: false }]);
    let memory = Memory::open(&broker);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut sending = memory.send(batch(&[1, 2, 3]), sender);
    let mut context = Context::from_waker(Waker::noop());
    assert!(sending.as_mut().poll(&mut context).is_pending());
    assert_eq!(drain(&mut receiver), [(2, acknowledged(2))]);
    assert_eq!(broker.release(id(1)), 1);
    assert!(sending.as_mut().poll(&mut context).is_pending());
    assert_eq!(drain(&mut receiver), [(0, acknowledged(1))]);
    assert_eq!(broker.release_all(), 1);
    assert_eq!(sending.as_mut().poll(&mut context), Poll::Ready(()));
    assert!(matches!(
        drain(&mut receiver)[..],
        [(1, Outcome::Unknown { .. })]
    ));
}

#[test]
fn with_a_delay_every_silence_ends_at_the_send_timeout() {
    let delay: crate::Delay = Arc::new(|_| Box::pin(async {}));
    let broker = Broker::with_delay(Options::default(), delay);
    broker.script(id(1), [Fate::BlackHole { stored: true }]);
    broker.script(
        id(2),
        [Decision {
            travel: Duration::ZERO,
            fate: Fate::Accept,
            answer: Duration::from_secs(2),
        }],
    );
    let answers = send(&broker, &[1, 2]);
    assert!(
        answers
            .iter()
            .all(|(_, outcome)| matches!(outcome, Outcome::Unknown { .. }))
    );
    assert_eq!(stored(&broker), [id(1), id(2)]);
}

#[test]
fn a_late_copy_is_never_proven_absent_while_it_is_under_way() {
    let broker = Broker::new(Options::default());
    broker.script(id(1), [Fate::Late]);
    assert!(matches!(send(&broker, &[1])[0].1, Outcome::Unknown { .. }));
    assert!(matches!(probe(&broker, 1), Probed::CannotTell { .. }));
    assert_eq!(broker.deliver_all_late(), 1);
    assert_eq!(probe(&broker, 1), Probed::Found(broker.receipt(1)));
}

#[test]
fn what_a_living_send_still_holds_is_not_proven_absent() {
    let pending: crate::Delay = Arc::new(|_| Box::pin(std::future::pending()));
    let broker = Broker::with_delay(Options::default(), pending);
    broker.script(
        id(1),
        [Decision {
            travel: Duration::from_secs(1),
            fate: Fate::Accept,
            answer: Duration::ZERO,
        }],
    );
    let memory = Memory::open(&broker);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut sending = memory.send(batch(&[1, 2]), sender);
    assert!(
        sending
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    assert!(matches!(probe(&broker, 2), Probed::CannotTell { .. }));
    drop(sending);
    assert_eq!(probe(&broker, 2), Probed::ProvenAbsent);
    assert!(drain(&mut receiver).is_empty());
}

#[test]
fn a_function_decides_and_a_broker_that_is_down_is_an_outage() {
    let broker = Broker::new(Options::default());
    broker.decide_by(|message, before| {
        if message.event_id == id(1) && before == 0 {
            Fate::Refuse(Class::Outage).into()
        } else {
            Fate::Accept.into()
        }
    });
    assert!(matches!(
        send(&broker, &[1])[0].1,
        Outcome::Retryable {
            class: Class::Outage,
            ..
        }
    ));
    broker.set_down(true);
    assert!(matches!(
        send(&broker, &[1])[0].1,
        Outcome::Retryable {
            class: Class::Outage,
            ..
        }
    ));
    broker.set_down(false);
    assert_eq!(send(&broker, &[1])[0].1, acknowledged(1));
}
