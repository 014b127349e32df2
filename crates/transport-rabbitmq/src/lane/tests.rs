//! What each word of the broker does to each message, without a broker.

use std::time::Duration;

use bytes::Bytes;
use postrider_contract::destination::Ordering;
use postrider_contract::{
    Destination,
    destination::{Durability, Key, OnQuarantine, OnUnknown, Partitioner, Schema, Serializer},
};
use postrider_transport::{
    Answer, Batch, Routing,
    holds::{Holding, Holds},
};
use uuid::Uuid;

use super::*;

fn destination(ordering: Ordering) -> Destination {
    Destination {
        schema: Schema::V1,
        name: "test".to_owned(),
        generation: 1,
        kind: crate::KIND.to_owned(),
        cluster: "test".to_owned(),
        target: "k".to_owned(),
        container: None,
        key: Key::PartitionKey,
        partitioner: Partitioner::None,
        serializer: Serializer::CloudeventsBinary,
        durability: Durability::Stored,
        receipt_type: crate::RECEIPT_TYPE.to_owned(),
        ordering,
        lanes: 1,
        on_unknown: OnUnknown::Resend,
        on_quarantine: OnQuarantine::Hold,
        max_attempts: None,
        max_payload_bytes: None,
    }
}

struct Bench {
    lane: Lane,
    late: mpsc::Receiver<Late>,
    holding: Holding,
    holds: Arc<Holds>,
}

impl Bench {
    fn new(ordering: Ordering) -> Self {
        let (sender, late) = mpsc::channel(10);
        let terms = Terms {
            exchange: "x".to_owned(),
            constant: true,
            by_key: ordering != Ordering::None,
            tagged: false,
            extras: Extras::default(),
            frame_max: 4_096,
            in_flight_max: 10,
        };
        let mut lane = Lane::new(terms, sender);
        // Most of these are about what comes after the first message.
        lane.careful = 0;
        Self {
            lane,
            late,
            holding: Holding::of(&destination(ordering)),
            holds: Arc::default(),
        }
    }

    /// Hands over messages of these keys and body sizes.
    fn send(&mut self, messages: &[(&str, usize)]) -> Sending {
        let (answers, answered) = mpsc::unbounded_channel();
        let messages: Arc<[Arc<Message>]> = messages
            .iter()
            .map(|(key, size)| Arc::new(message(key, *size)))
            .collect();
        let batch = Batch {
            messages: Arc::clone(&messages),
            send_timeout: Duration::from_secs(5),
        };
        let holds = Arc::clone(&self.holds);
        let flight = Arc::new(Flight::new(batch, self.holding, holds, answers));
        for index in 0..messages.len() {
            self.lane.enqueue(Queued {
                flight: Arc::clone(&flight),
                index,
                routing_key: "k".into(),
            });
        }
        Sending {
            flight,
            messages,
            answered,
        }
    }

    /// Writes what can be written; how many messages that were.
    fn write(&mut self) -> usize {
        let before = self.lane.waiting;
        assert_eq!(self.lane.take(&mut BytesMut::new()), Next::Write);
        self.lane.waiting - before
    }
}

struct Sending {
    flight: Arc<Flight>,
    messages: Arc<[Arc<Message>]>,
    answered: mpsc::UnboundedReceiver<Answer>,
}

impl Sending {
    /// What was answered since the last look: index, and code or delivery tag.
    fn answers(&mut self) -> Vec<(usize, String)> {
        let mut answers = Vec::new();
        while let Ok(Answer { index, outcome }) = self.answered.try_recv() {
            let text = match outcome {
                Outcome::Acknowledged(Receipt::Amqp { delivery_tag, .. }) => {
                    delivery_tag.to_string()
                }
                Outcome::Acknowledged(other) => panic!("{other:?}"),
                Outcome::Retryable { class, code, .. } => format!("{class:?} {code}"),
                Outcome::Rejected { code, .. } => format!("rejected {code}"),
                Outcome::Unknown { code, .. } => format!("unknown {code}"),
            };
            answers.push((index, text));
        }
        answers.sort();
        answers
    }

    fn id(&self, index: usize) -> EventId {
        self.messages[index].event_id
    }
}

fn message(key: &str, size: usize) -> Message {
    Message {
        event_id: EventId(Uuid::now_v7()),
        partition_key: key.to_owned(),
        headers: std::iter::empty::<(&str, &str)>().collect(),
        body: Bytes::from(vec![0; size]),
        routing: Routing {
            event_type: "e".into(),
            tenant: "t".into(),
            aggregate_type: "a".into(),
            aggregate_id: "1".into(),
        },
        earlier: None,
    }
}

fn closed(code: u16, text: &str) -> Closed {
    Closed {
        code,
        text: text.to_owned(),
    }
}

fn all(count: usize, text: &str) -> Vec<(usize, String)> {
    (0..count).map(|index| (index, text.to_owned())).collect()
}

const PLAIN: [(&str, usize); 4] = [("a", 1), ("b", 1), ("c", 1), ("d", 1)];

#[test]
fn confirms_name_one_message_or_all_up_to_it() {
    let mut bench = Bench::new(Ordering::None);
    let mut sending = bench.send(&PLAIN);
    assert_eq!(bench.write(), 4);
    bench.lane.settle(3, false, Verdict::Ack);
    assert_eq!(sending.answers(), [(2, "3".to_owned())]);
    // Out of order, and then all before: what was settled is not settled again.
    bench.lane.settle(4, true, Verdict::Ack);
    let expected = [(0, "1"), (1, "2"), (3, "4")].map(|(at, tag)| (at, tag.to_owned()));
    assert_eq!(sending.answers(), expected);
    bench.lane.settle(4, true, Verdict::Ack);
    bench.lane.settle(9, false, Verdict::Ack);
    assert_eq!(sending.answers(), []);
    assert_eq!((bench.lane.waiting, bench.lane.first_tag), (0, 5));
}

#[test]
fn tag_zero_means_all() {
    let mut bench = Bench::new(Ordering::None);
    let mut sending = bench.send(&PLAIN);
    bench.write();
    bench.lane.settle(0, true, Verdict::Nack);
    assert_eq!(sending.answers(), all(4, "Outage nacked"));
}

#[test]
fn rmq_1_what_came_back_is_not_acknowledged_by_the_confirm_that_follows() {
    let mut bench = Bench::new(Ordering::None);
    let mut sending = bench.send(&PLAIN);
    bench.write();
    bench.lane.returned(sending.id(1), "312 NO_ROUTE");
    bench.lane.returned(sending.id(2), "312 NO_ROUTE");
    bench.lane.settle(4, true, Verdict::Ack);
    let expected = [
        (0, "1"),
        (1, "Outage unroutable"),
        (2, "Outage unroutable"),
        (3, "4"),
    ];
    assert_eq!(
        sending.answers(),
        expected.map(|(at, text)| (at, text.to_owned()))
    );
}

#[test]
fn a_tag_of_one_channel_settles_nothing_of_the_next() {
    let mut bench = Bench::new(Ordering::None);
    let mut old = bench.send(&PLAIN);
    bench.write();
    bench.lane.closed(&closed(541, "INTERNAL_ERROR"));
    assert_eq!(old.answers(), all(4, "unknown channel_closed"));
    let mut new = bench.send(&PLAIN[..1]);
    assert_eq!(bench.write(), 0, "there is no channel yet");
    bench.lane.reopened();
    assert_eq!(bench.write(), 1);
    bench.lane.settle(1, false, Verdict::Ack);
    assert_eq!(new.answers(), [(0, "1".to_owned())]);
    assert_eq!(old.answers(), []);
}

#[test]
fn a_closure_over_a_size_names_its_cause_and_what_was_not_read() {
    let mut bench = Bench::new(Ordering::None);
    let mut sending = bench.send(&[("a", 1), ("b", 70_000), ("c", 1), ("d", 70_000)]);
    bench.write();
    bench.write();
    let text = "PRECONDITION_FAILED - message size 70000 is larger than configured max size 65536";
    assert_eq!(bench.lane.closed(&closed(406, text)), Some(65_536));
    let expected = [
        (0, "unknown channel_closed"),
        (1, "rejected message_too_large"),
        (2, "Outage channel_closed"),
        (3, "Outage channel_closed"),
    ];
    assert_eq!(
        sending.answers(),
        expected.map(|(at, text)| (at, text.to_owned()))
    );
}

#[test]
fn after_a_closure_without_a_cause_messages_go_alone_until_it_is_found() {
    let mut bench = Bench::new(Ordering::None);
    let mut first = bench.send(&PLAIN);
    bench.write();
    bench.lane.closed(&closed(404, "NOT_FOUND"));
    assert_eq!(first.answers(), all(4, "unknown channel_closed"));
    bench.lane.reopened();
    let mut again = bench.send(&PLAIN);
    for (index, code) in [
        (404, "Outage exchange_missing"),
        (403, "Outage access_refused"),
        (406, "rejected precondition_failed"),
        (541, "unknown channel_closed"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(bench.write(), 1, "one at a time");
        bench.lane.closed(&closed(code.0, ""));
        assert_eq!(again.answers(), [(index, code.1.to_owned())]);
        bench.lane.reopened();
    }
}

#[test]
fn a_block_throws_out_what_was_not_written_and_keeps_the_rest() {
    let mut bench = Bench::new(Ordering::None);
    bench.lane.careful = 1;
    let mut sending = bench.send(&PLAIN);
    assert_eq!(bench.write(), 1);
    bench.lane.block("low on memory");
    let expected: Vec<_> = all(4, "Outage connection_blocked").split_off(1);
    assert_eq!(sending.answers(), expected);
    let mut later = bench.send(&PLAIN);
    assert_eq!(later.answers(), all(4, "Outage connection_blocked"));
    bench.lane.unblock();
    bench.lane.settle(1, false, Verdict::Ack);
    assert_eq!(sending.answers(), [(0, "1".to_owned())]);
    let mut after = bench.send(&PLAIN);
    assert_eq!(bench.write(), 4);
    bench.lane.settle(5, true, Verdict::Ack);
    assert_eq!(after.answers().len(), 4);
}

#[test]
fn what_is_given_up_is_heard_of_late_and_what_was_not_written_never_leaves() {
    let mut bench = Bench::new(Ordering::None);
    let eleven: Vec<(&str, usize)> = (0..11).map(|_| ("a", 1)).collect();
    let mut sending = bench.send(&eleven);
    assert_eq!(bench.write(), 10, "the window");
    bench.lane.give_up(&sending.flight);
    let mut expected = all(10, "unknown confirm_timeout");
    expected.push((10, "Outage window_full".to_owned()));
    assert_eq!(sending.answers(), expected);
    // The same event again, while its first copy is on its way.
    bench.lane.returned(sending.id(1), "312 NO_ROUTE");
    bench.lane.settle(10, true, Verdict::Ack);
    let mut heard = Vec::new();
    while let Ok(late) = bench.late.try_recv() {
        heard.push(late.event_id);
    }
    let expected: Vec<EventId> = (0..10)
        .filter(|at| *at != 1)
        .map(|at| sending.id(at))
        .collect();
    assert_eq!(heard, expected);
    assert_eq!((bench.lane.hoped, bench.lane.sent.len()), (0, 0));
}

#[test]
fn a_broker_that_never_confirms_is_given_up() {
    let mut bench = Bench::new(Ordering::None);
    for _ in 0..WINDOWS_MAX {
        let ten: Vec<(&str, usize)> = (0..10).map(|_| ("a", 1)).collect();
        let sending = bench.send(&ten);
        assert_eq!(bench.write(), 10);
        bench.lane.give_up(&sending.flight);
    }
    let mut last = bench.send(&PLAIN);
    assert_eq!(bench.lane.take(&mut BytesMut::new()), Next::GiveUp);
    bench.lane.end("");
    assert_eq!(last.answers(), all(4, "Outage not_connected"));
}

#[test]
fn the_end_of_the_connection_leaves_unknown_what_was_written_and_nothing_else() {
    let mut bench = Bench::new(Ordering::None);
    bench.lane.careful = 1;
    let mut sending = bench.send(&PLAIN);
    bench.write();
    bench.lane.end("");
    let answers = sending.answers();
    assert_eq!(answers[0], (0, "unknown connection_lost".to_owned()));
    assert_eq!(answers[1..], all(4, "Outage not_connected")[1..]);
    let mut after = bench.send(&PLAIN);
    assert_eq!(after.answers(), all(4, "Outage not_connected"));
}

#[test]
fn one_message_of_a_key_is_on_its_way_and_the_next_leaves_with_its_confirm() {
    let mut bench = Bench::new(Ordering::Key);
    let mut sending = bench.send(&[("a", 1), ("a", 1), ("b", 1), ("a", 1)]);
    assert_eq!(bench.write(), 2);
    bench.lane.settle(1, false, Verdict::Ack);
    assert_eq!(sending.answers(), [(0, "1".to_owned())]);
    assert_eq!(bench.write(), 1);
    // It fails: the one behind it never leaves, and the other key goes on.
    bench.lane.settle(3, false, Verdict::Nack);
    let held = "Held held".to_owned();
    let nacked = "Outage nacked".to_owned();
    assert_eq!(sending.answers(), [(1, nacked), (3, held.clone())]);
    bench.lane.settle(2, false, Verdict::Ack);
    assert_eq!(sending.answers(), [(2, "2".to_owned())]);
    // A batch that was made before the failure was heard of.
    let mut later = bench.send(&[("a", 1), ("b", 1)]);
    assert_eq!(later.answers(), [(0, held)]);
    assert_eq!(bench.write(), 1);
    bench.lane.settle(4, false, Verdict::Ack);
    assert_eq!(later.answers(), [(1, "4".to_owned())]);
    assert!(bench.lane.behind.is_empty(), "{:?}", bench.lane.behind);
}

#[test]
fn a_key_that_is_given_up_holds_what_waits_for_it_in_other_batches_too() {
    let mut bench = Bench::new(Ordering::Key);
    let mut first = bench.send(&[("a", 1)]);
    let mut second = bench.send(&[("a", 1), ("b", 1)]);
    assert_eq!(bench.write(), 2);
    bench.lane.give_up(&first.flight);
    assert_eq!(first.answers(), all(1, "unknown confirm_timeout"));
    assert_eq!(second.answers(), [(0, "Held held".to_owned())]);
    bench.lane.settle(2, true, Verdict::Ack);
    assert_eq!(second.answers(), [(1, "2".to_owned())]);
    assert!(bench.lane.behind.is_empty(), "{:?}", bench.lane.behind);
}
