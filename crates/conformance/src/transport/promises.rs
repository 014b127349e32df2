//! The promises, one function each. Each starts its own destination and names what it expects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use postrider_contract::{Receipt, destination::Serializer};
use postrider_core::{Class, Outcome};
use postrider_transport::{Batch, Message, ProbeStrength, Probed, Severity, Transport, Usage};
use tokio::sync::mpsc;

use super::{
    Capability, Fault, Harness,
    fixture::{
        message_of, message_of_size, messages, new_event, probe_of, send, send_one,
        send_until_acknowledged,
    },
};

/// For sends that succeed.
const AMPLE: Duration = Duration::from_secs(20);
/// For sends that run into silence.
const SHORT: Duration = Duration::from_millis(700);
/// Sends until a destination that is back must have taken everything.
const TRIES: u32 = 40;

fn can<H: Harness>(capability: Capability) -> bool {
    !H::CANNOT.contains(&capability)
}

async fn start<H: Harness>() -> (H, Arc<dyn Transport>) {
    let harness = H::start().await;
    let transport = harness.open(&harness.destination());
    (harness, transport)
}

fn usage() -> Usage {
    Usage {
        message_bytes_max: 0,
        resend_span: Duration::from_secs(60),
    }
}

fn receipt(outcome: &Outcome) -> &Receipt {
    match outcome {
        Outcome::Acknowledged(receipt) => receipt,
        Outcome::Retryable { .. } | Outcome::Rejected { .. } | Outcome::Unknown { .. } => {
            panic!("not acknowledged: {outcome:?}")
        }
    }
}

fn is_acknowledged(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Acknowledged(_))
}

fn is_outage(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Retryable {
            class: Class::Outage,
            ..
        }
    )
}

fn is_unknown(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown { .. })
}

fn id(message: &Message) -> String {
    message.event_id.to_string()
}

/// How often each event arrived.
async fn copies<H: Harness>(harness: &H) -> BTreeMap<String, usize> {
    let mut copies = BTreeMap::new();
    for received in harness.received().await {
        *copies.entry(received.event_id).or_default() += 1;
    }
    copies
}

/// Everything that was acknowledged is there.
async fn acknowledged_are_there<H: Harness>(harness: &H, sent: &[Message], outcomes: &[Outcome]) {
    let copies = copies(harness).await;
    for (message, outcome) in sent.iter().zip(outcomes) {
        if is_acknowledged(outcome) {
            assert!(
                copies.contains_key(&id(message)),
                "acknowledged and not there: {outcome:?}"
            );
        }
    }
}

pub async fn acknowledges_with_evidence<H: Harness>() {
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    let sent = messages(&destination, 3);
    let outcomes = send(&transport, &sent, AMPLE).await;
    let mut evidence = BTreeSet::new();
    for outcome in &outcomes {
        assert_eq!(receipt(outcome).kind(), destination.receipt_type);
        evidence.insert(receipt(outcome).pack());
    }
    let copies = copies(&harness).await;
    assert_eq!(
        copies,
        sent.iter().map(|message| (id(message), 1)).collect()
    );
    if evidence.iter().all(|packed| packed.number.is_some()) {
        assert_eq!(
            evidence.len(),
            sent.len(),
            "each message has a position of its own"
        );
    }
}

/// Field case JSN-3: the receiver gets the original bytes, in every serializer that sends them.
pub async fn keeps_the_body_byte_for_byte<H: Harness>() {
    let payload =
        "{\"b\":1,\"a\":1.0,  \"aa\":1e2,\"z\":-0,\"big\":9007199254740993,\"e\":1.230e-5}";
    for serializer in [
        Serializer::CloudeventsBinary,
        Serializer::CloudeventsStructured,
        Serializer::Raw,
    ] {
        let harness = H::start().await;
        let mut destination = harness.destination();
        destination.serializer = serializer;
        let transport = harness.open(&destination);
        let sent = message_of(&destination, &new_event("1", payload));
        receipt(&send_one(&transport, &sent, AMPLE).await);
        let received = harness.received().await.remove(0);
        assert_eq!(received.event_id, id(&sent));
        assert_eq!(received.body, sent.body, "{serializer:?}");
        let whole = String::from_utf8(received.body).expect("the body is text");
        assert!(whole.contains(payload), "{serializer:?}: {whole}");
    }
}

pub async fn a_refusal_is_not_an_acknowledgement<H: Harness>() {
    if !can::<H>(Capability::Refusal) {
        return;
    }
    let (harness, transport) = start::<H>().await;
    harness.inflict(Fault::Refuse).await;
    let sent = messages(&harness.destination(), 3);
    for outcome in send(&transport, &sent, AMPLE).await {
        assert!(matches!(outcome, Outcome::Retryable { .. }), "{outcome:?}");
    }
    assert_eq!(harness.received().await, []);
    harness.heal().await;
    send_until_acknowledged(&transport, &sent, AMPLE, TRIES).await;
}

pub async fn a_missing_target_burns_no_attempts<H: Harness>() {
    if !can::<H>(Capability::MissingTarget) {
        return;
    }
    let harness = H::start().await;
    let destination = harness.missing();
    let transport = harness.open(&destination);
    let outcome = send_one(&transport, &messages(&destination, 1)[0], SHORT).await;
    assert!(is_outage(&outcome), "{outcome:?}");
    let refused = match transport.preflight(&usage()).await {
        Ok(problems) => problems
            .iter()
            .any(|problem| problem.severity == Severity::Refused),
        Err(_) => true,
    };
    assert!(refused, "the preflight must see it too");
}

/// Field case KAF-3: both neighbours are delivered, the large one is rejected with its size.
pub async fn an_oversized_message_leaves_its_neighbours_alone<H: Harness>() {
    if !can::<H>(Capability::SizeLimit) {
        return;
    }
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    // Limits are learned from the destination: once something was sent, they are known.
    receipt(&send_one(&transport, &messages(&destination, 1)[0], AMPLE).await);
    let small = messages(&destination, 2);
    let large = message_of_size(&destination, H::MESSAGE_BYTES_MAX);
    let sent = [small[0].clone(), large.clone(), small[1].clone()];
    assert!(transport.check(&small[0]).is_ok());
    let Err(Outcome::Rejected {
        detail,
        suspends: false,
        ..
    }) = transport.check(&large)
    else {
        panic!("the check must reject it");
    };
    assert!(
        detail.contains(&H::MESSAGE_BYTES_MAX.to_string()),
        "the limit is named: {detail}"
    );
    let outcomes = send(&transport, &sent, AMPLE).await;
    receipt(&outcomes[0]);
    assert!(
        matches!(
            outcomes[1],
            Outcome::Rejected {
                suspends: false,
                ..
            }
        ),
        "{outcomes:?}"
    );
    receipt(&outcomes[2]);
    let copies = copies(&harness).await;
    assert!(!copies.contains_key(&id(&large)));
    assert_eq!(copies.len(), 3);
}

pub async fn a_destination_that_is_down_is_an_outage<H: Harness>() {
    if !can::<H>(Capability::Network) {
        return;
    }
    let (harness, transport) = start::<H>().await;
    harness.inflict(Fault::Down).await;
    let sent = messages(&harness.destination(), 5);
    for outcome in send(&transport, &sent, AMPLE).await {
        assert!(is_outage(&outcome), "{outcome:?}");
    }
    assert!(transport.preflight(&usage()).await.is_err());
    harness.heal().await;
    send_until_acknowledged(&transport, &sent, AMPLE, TRIES).await;
    assert_eq!(
        copies(&harness).await,
        sent.iter().map(|message| (id(message), 1)).collect()
    );
}

pub async fn a_lost_answer_is_unknown_and_converges<H: Harness>() {
    if !can::<H>(Capability::Network) {
        return;
    }
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    // Connected and known to work, so that only the answers are lost.
    receipt(&send_one(&transport, &messages(&destination, 1)[0], AMPLE).await);
    harness.inflict(Fault::Deaf).await;
    let sent = messages(&destination, 5);
    let outcomes = send(&transport, &sent, SHORT).await;
    assert!(outcomes.iter().all(is_unknown), "{outcomes:?}");
    harness.heal().await;
    send_until_acknowledged(&transport, &sent, AMPLE, TRIES).await;
    let copies = copies(&harness).await;
    for message in &sent {
        let count = copies.get(&id(message)).copied().unwrap_or(0);
        if can::<H>(Capability::Dedup) {
            assert_eq!(count, 1, "the second copy is recognised");
        } else {
            assert!(count >= 1);
        }
    }
}

pub async fn a_black_hole_answers_every_message_by_its_deadline<H: Harness>() {
    if !can::<H>(Capability::Network) {
        return;
    }
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    let count = usize::try_from(transport.traits().batch_max)
        .expect("fits")
        .min(200);
    let sent = messages(&destination, count);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let batch = Batch {
        messages: sent.iter().cloned().map(Arc::new).collect(),
        send_timeout: SHORT * 2,
    };
    let sending = tokio::spawn({
        let transport = Arc::clone(&transport);
        async move { transport.send(batch, sender).await }
    });
    let first = receiver.recv().await.expect("something is answered");
    harness.inflict(Fault::Silent).await;
    let mut answers = BTreeMap::from([(first.index, first.outcome)]);
    while let Some(answer) = receiver.recv().await {
        assert!(
            answers.insert(answer.index, answer.outcome).is_none(),
            "answered twice"
        );
    }
    sending.await.expect("send does not panic");
    assert_eq!(answers.len(), sent.len());
    // In the silence nothing is acknowledged, and nothing is called refused that may have arrived.
    let again = messages(&destination, 3);
    for outcome in send(&transport, &again, SHORT).await {
        assert!(is_unknown(&outcome) || is_outage(&outcome), "{outcome:?}");
    }
    harness.heal().await;
    let outcomes: Vec<Outcome> = answers.into_values().collect();
    acknowledged_are_there(&harness, &sent, &outcomes).await;
    send_until_acknowledged(&transport, &sent, AMPLE, TRIES).await;
    send_until_acknowledged(&transport, &again, AMPLE, TRIES).await;
    let copies = copies(&harness).await;
    assert!(
        sent.iter()
            .chain(&again)
            .all(|message| copies.contains_key(&id(message)))
    );
}

/// Field case NAT-1: answers that never come do not fill the window for good.
pub async fn a_full_window_of_lost_answers_clogs_nothing<H: Harness>() {
    if !can::<H>(Capability::Network) {
        return;
    }
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    let count = usize::try_from(transport.traits().batch_max)
        .expect("fits")
        .min(300);
    receipt(&send_one(&transport, &messages(&destination, 1)[0], AMPLE).await);
    harness.inflict(Fault::Deaf).await;
    for _ in 0..3 {
        let outcomes = send(&transport, &messages(&destination, count), SHORT).await;
        assert!(
            outcomes.iter().all(|o| is_unknown(o) || is_outage(o)),
            "{outcomes:?}"
        );
    }
    harness.heal().await;
    send_until_acknowledged(&transport, &messages(&destination, count), AMPLE, TRIES).await;
}

pub async fn comes_back_by_itself_on_the_same_address<H: Harness>() {
    if !can::<H>(Capability::Network) {
        return;
    }
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    receipt(&send_one(&transport, &messages(&destination, 1)[0], AMPLE).await);
    for _ in 0..2 {
        harness.inflict(Fault::Down).await;
        let outcome = send_one(&transport, &messages(&destination, 1)[0], AMPLE).await;
        assert!(is_outage(&outcome) || is_unknown(&outcome), "{outcome:?}");
        harness.heal().await;
        send_until_acknowledged(&transport, &messages(&destination, 3), AMPLE, TRIES).await;
    }
}

pub async fn keeps_the_order_of_a_batch<H: Harness>() {
    let (harness, transport) = start::<H>().await;
    assert_eq!(
        transport.traits().pipelined_in_order,
        can::<H>(Capability::Order)
    );
    if !can::<H>(Capability::Order) {
        return;
    }
    let sent = messages(&harness.destination(), 500);
    let batches: Vec<_> = sent.chunks(100).collect();
    let sends = batches.iter().map(|batch| send(&transport, batch, AMPLE));
    // Polled in order, so handed over in order, and all on their way at once.
    for outcomes in futures::future::join_all(sends).await {
        assert!(outcomes.iter().all(is_acknowledged), "{outcomes:?}");
    }
    let received: Vec<_> = harness
        .received()
        .await
        .into_iter()
        .map(|r| r.event_id)
        .collect();
    assert_eq!(received, sent.iter().map(id).collect::<Vec<_>>());
}

pub async fn recognises_an_event_that_is_sent_again<H: Harness>() {
    let (harness, transport) = start::<H>().await;
    let sent = messages(&harness.destination(), 2);
    let first = send(&transport, &sent, AMPLE).await;
    assert_eq!(
        transport.traits().dedup_window.is_some(),
        can::<H>(Capability::Dedup)
    );
    let second = send(&transport, &sent, AMPLE).await;
    if !can::<H>(Capability::Dedup) {
        assert!(second.iter().all(is_acknowledged), "{second:?}");
        return;
    }
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(
            receipt(first).pack().number,
            receipt(second).pack().number,
            "the second answer names the first copy"
        );
    }
    assert_eq!(
        copies(&harness).await,
        sent.iter().map(|message| (id(message), 1)).collect()
    );
}

pub async fn a_probe_tells_the_truth<H: Harness>() {
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    let strength = match (
        can::<H>(Capability::Find),
        can::<H>(Capability::ProveAbsence),
    ) {
        (false, _) => ProbeStrength::None,
        (true, false) => ProbeStrength::Finds,
        (true, true) => ProbeStrength::ProvesAbsence,
    };
    assert_eq!(transport.traits().probe, strength);
    let payload = "{\"n\":1}";
    receipt(&send_one(&transport, &messages(&destination, 1)[0], AMPLE).await);
    let sent = message_of(&destination, &new_event("1", payload));
    let about = [Arc::new(sent.clone())];
    let anchor = transport.anchor(&about).await;
    let anchor = anchor.expect("the destination is up");
    let never = message_of(&destination, &new_event("1", payload));
    let outcome = send_one(&transport, &sent, AMPLE).await;
    for anchor in [anchor.clone(), None] {
        let found = transport
            .probe(&probe_of(&sent, payload.as_bytes(), anchor.clone()))
            .await;
        let absent = transport
            .probe(&probe_of(&never, payload.as_bytes(), anchor))
            .await;
        match strength {
            ProbeStrength::None => {
                assert!(matches!(found, Ok(Probed::CannotTell { .. })), "{found:?}");
                assert!(
                    matches!(absent, Ok(Probed::CannotTell { .. })),
                    "{absent:?}"
                );
            }
            ProbeStrength::Finds => {
                assert_found(&found.expect("a probe answers"), &outcome);
                assert!(
                    matches!(absent, Ok(Probed::CannotTell { .. })),
                    "{absent:?}"
                );
            }
            ProbeStrength::ProvesAbsence => {
                assert_found(&found.expect("a probe answers"), &outcome);
                assert!(matches!(absent, Ok(Probed::ProvenAbsent)), "{absent:?}");
            }
        }
    }
    if strength != ProbeStrength::None {
        let other = transport
            .probe(&probe_of(&sent, b"another payload", anchor))
            .await;
        assert!(
            matches!(other, Ok(Probed::CannotTell { .. })),
            "another payload: {other:?}"
        );
    }
}

fn assert_found(probed: &Probed, outcome: &Outcome) {
    let Probed::Found(found) = probed else {
        panic!("not found: {probed:?}")
    };
    assert_eq!(found.kind(), receipt(outcome).kind());
    assert_eq!(found.pack().number, receipt(outcome).pack().number);
}

/// Field case CTR-1: every string comes back the same.
pub async fn headers_come_through_unchanged<H: Harness>() {
    if !can::<H>(Capability::Headers) {
        return;
    }
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    let texts = [
        "a b",
        "100%",
        "a%20b",
        "\"quoted\"",
        "\u{e9}",
        "\u{1F600}",
        "%41",
        "%zz",
        " x ",
    ];
    for text in texts {
        let mut event = new_event(text, "{}");
        event.headers = vec![
            ("x-empty".to_owned(), String::new()),
            ("x-note".to_owned(), text.to_owned()),
        ];
        event.traceparent =
            Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
        event.tracestate = Some("a=1, b=2".to_owned());
        event.content_type = Some("application/json; charset=utf-8".to_owned());
        let sent = message_of(&destination, &event);
        receipt(&send_one(&transport, &sent, AMPLE).await);
        let received = harness.received().await.pop().expect("it arrived");
        assert_eq!(received.event_id, id(&sent));
        let got: BTreeMap<_, _> = received.headers.into_iter().collect();
        for (name, value) in sent.headers.iter() {
            assert_eq!(
                got.get(name).map(String::as_str),
                Some(value),
                "{name} for {text:?}"
            );
        }
        assert_eq!(got.get("ce-subject").map(String::as_str), Some(text));
    }
}

pub async fn a_dropped_send_leaves_the_transport_usable<H: Harness>() {
    let (harness, transport) = start::<H>().await;
    let destination = harness.destination();
    if can::<H>(Capability::Network) {
        receipt(&send_one(&transport, &messages(&destination, 1)[0], AMPLE).await);
        harness.inflict(Fault::Deaf).await;
    }
    let count = usize::try_from(transport.traits().batch_max)
        .expect("fits")
        .min(300);
    for _ in 0..3 {
        let (sender, receiver) = mpsc::unbounded_channel();
        let batch = Batch {
            messages: messages(&destination, count)
                .into_iter()
                .map(Arc::new)
                .collect(),
            send_timeout: AMPLE,
        };
        let sending = transport.send(batch, sender);
        // Given up at some point on the way: what matters is that it leaves nothing behind.
        drop(tokio::time::timeout(Duration::from_millis(50), sending).await);
        drop(receiver);
    }
    harness.heal().await;
    send_until_acknowledged(&transport, &messages(&destination, count), AMPLE, TRIES).await;
}

pub async fn a_ready_destination_has_no_refusing_problem<H: Harness>() {
    let (_harness, transport) = start::<H>().await;
    let problems = transport
        .preflight(&usage())
        .await
        .expect("it can be asked");
    assert!(
        problems
            .iter()
            .all(|problem| problem.severity != Severity::Refused),
        "{problems:?}"
    );
}

pub async fn what_it_cannot_do_is_documented<H: Harness>() {
    for capability in H::CANNOT {
        let line = format!("**Cannot:** `{}`", capability.word());
        assert!(
            H::DOCS.contains(&line),
            "the docs page must have a line with {line}"
        );
    }
    assert!(
        H::DOCS.contains("| what happened | outcome | code |"),
        "the docs page must have the table of outcomes"
    );
}
