//! Failures that others met in the field, at the place where an application meets them first.

use std::{collections::BTreeSet, future::poll_fn};

use ::tokio_postgres::{AsyncMessage, NoTls, Notification};
use postrider::{AppendError, EventId, NewEvent, Timestamp, tokio_postgres as on_postgres};
use postrider_core::{DestinationId, Position, SessionId};
use postrider_store::{inspect::EventFilter, sessions::NewSession};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{
    World,
    application::{Application, Outbox, connect},
    envelope, for_each_driver, note, order, stored,
};

for_each_driver![
    jsn_1_a_nul_is_kept_in_a_payload_and_refused_everywhere_else,
    jsn_3_the_bytes_that_come_back_are_the_bytes_that_were_given,
    tim_1_a_time_without_end_or_beyond_the_calendar_cannot_be_given,
    tim_3_an_instant_is_the_same_in_every_zone,
    ctr_1_a_line_break_is_refused_at_enqueue,
    ids_1_order_is_the_position_whatever_the_ids_say,
];

async fn jsn_1_a_nul_is_kept_in_a_payload_and_refused_everywhere_else<A: Application>() {
    let mut world = World::<A>::new().await;
    world.application.begin().await;
    world.application.put("business").await;
    let payload = r#"{"x":"\u0000"}"#;
    let kept = world.append(note(payload)).await.unwrap();
    for event in [
        NewEvent {
            headers: vec![("x-note".into(), "a\0".into())],
            ..note("{}")
        },
        NewEvent {
            partition_key: Some("a\0".into()),
            ..note("{}")
        },
        NewEvent {
            tenant: Some("a\0".into()),
            ..note("{}")
        },
        NewEvent {
            actor: Some("a\0".into()),
            ..note("{}")
        },
        NewEvent::new("note.written", "1", "note", "a\0", "{}"),
        NewEvent::new("note.written\0", "1", "note", "a", "{}"),
    ] {
        let refused = world.append(event).await.unwrap_err();
        assert!(matches!(refused, AppendError::Invalid(_)), "{refused}");
        assert!(refused.to_string().contains("U+0000"), "{refused}");
    }
    // Never "current transaction is aborted".
    world.the_transaction_goes_on("after").await;
    assert_eq!(
        stored(world.store(), kept.event_id).await.event.payload,
        payload.as_bytes()
    );
}

async fn jsn_3_the_bytes_that_come_back_are_the_bytes_that_were_given<A: Application>() {
    let mut world = World::<A>::new().await;
    let payload =
        "{ \"b\":1,\"a\":1.0 ,\"aa\":1e2,\t\"z\":-0,\"big\":9007199254740993,\"e\":1.230e-5 }\n";
    let appended = world.committed(note(payload)).await;
    let event = stored(world.store(), appended.event_id).await.event;
    assert_eq!(event.payload, payload.as_bytes());
    let envelope = envelope(world.store(), appended.event_id).await;
    assert_eq!(
        envelope.payload.digest,
        postrider::Digest::of_bytes(payload.as_bytes())
    );
}

async fn tim_1_a_time_without_end_or_beyond_the_calendar_cannot_be_given<A: Application>() {
    for text in [
        "infinity",
        "-infinity",
        "294276-01-01T00:00:00Z",
        "-4713-01-01T00:00:00Z",
    ] {
        assert!(text.parse::<Timestamp>().is_err(), "{text}");
    }
    assert!(Timestamp::from_unix_micros(i64::MAX).is_none());
    assert!(Timestamp::from_unix_micros(i64::MIN).is_none());
    let mut world = World::<A>::new().await;
    for text in ["0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"] {
        let event = NewEvent {
            occurred_at: Some(text.parse().unwrap()),
            ..order("a")
        };
        let appended = world.committed(event).await;
        let envelope = envelope(world.store(), appended.event_id).await;
        assert_eq!(envelope.occurred_at.to_string(), text);
    }
}

async fn tim_3_an_instant_is_the_same_in_every_zone<A: Application>() {
    for text in [
        "2026-01-01T12:00:00",
        "2026-03-08 02:30:00",
        "2026-06-30T12:00:60Z",
        "2026-01-01",
    ] {
        assert!(text.parse::<Timestamp>().is_err(), "{text}");
    }
    let mut world = World::<A>::new().await;
    for (given, stored) in [
        (
            "2026-01-01T00:00:00.123456789Z",
            "2026-01-01T00:00:00.123456Z",
        ),
        ("2026-03-08T02:30:00-05:00", "2026-03-08T07:30:00.000000Z"),
        ("2026-01-01t12:00:00z", "2026-01-01T12:00:00.000000Z"),
    ] {
        let event = NewEvent {
            occurred_at: Some(given.parse().unwrap()),
            ..order("a")
        };
        let appended = world.committed(event).await;
        let envelope = envelope(world.store(), appended.event_id).await;
        assert_eq!(envelope.occurred_at.to_string(), stored);
    }
}

/// No result depends on the zone of the database's session.
#[tokio::test]
async fn tim_3_the_zone_of_the_session_does_not_matter() {
    let outbox = Outbox::postgres().await;
    let client = connect(&outbox.address).await;
    let registry = on_postgres::load(&client).await.unwrap();
    let at: Timestamp = "2026-01-01T12:00:00+01:00".parse().unwrap();
    for zone in ["UTC", "America/New_York", "Asia/Kathmandu"] {
        let set = format!("set time zone '{zone}'; set datestyle = 'German'");
        client.batch_execute(&set).await.unwrap();
        let event = NewEvent {
            occurred_at: Some(at),
            ..order("a")
        };
        let appended = on_postgres::append(&client, &registry, event)
            .await
            .unwrap();
        let envelope = envelope(&*outbox.store, appended.event_id).await;
        assert_eq!(
            envelope.occurred_at.to_string(),
            "2026-01-01T11:00:00.000000Z"
        );
    }
}

async fn ctr_1_a_line_break_is_refused_at_enqueue<A: Application>() {
    let mut world = World::<A>::new().await;
    let with = |id: &str| NewEvent::new("note.written", "1", "note", id, "{}");
    world.application.begin().await;
    let evil = "a\r\nX-Evil: 1";
    for event in [
        with(evil),
        NewEvent {
            partition_key: Some(evil.into()),
            ..with("a")
        },
        NewEvent {
            correlation_id: Some(evil.into()),
            ..with("a")
        },
        NewEvent {
            headers: vec![("x-note".into(), evil.into())],
            ..with("a")
        },
        NewEvent {
            headers: vec![(evil.into(), "x".into())],
            ..with("a")
        },
        NewEvent {
            content_type: Some("application/json\r\nx: y".into()),
            ..with("a")
        },
    ] {
        let refused = world.append(event).await.unwrap_err();
        assert!(matches!(refused, AppendError::Invalid(_)), "{refused}");
        assert!(!refused.to_string().contains(['\r', '\n']), "{refused}");
    }
    // What only has to be encoded on the way is taken as it is.
    for id in [
        "a b",
        "100%",
        "a%20b",
        "\"quoted\"",
        "é",
        "\u{1f600}",
        "%zz",
    ] {
        let appended = world.append(with(id)).await.unwrap();
        world.application.commit().await;
        assert_eq!(
            envelope(world.store(), appended.event_id)
                .await
                .aggregate
                .id,
            id
        );
        world.application.begin().await;
    }
    world.application.roll_back().await;
}

async fn ids_1_order_is_the_position_whatever_the_ids_say<A: Application>() {
    let mut world = World::<A>::new().await;
    // Within one millisecond, from a clock 30 s behind, from one 5 s ahead, and not ordered at all.
    let ids = [
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "01890a5d-ac96-7000-8000-000000000000",
        "01890a5d-3766-774b-bcce-b302099a8057",
        "01890a5d-c01e-774b-bcce-b302099a8057",
        "01890a5d-ac96-7fff-bfff-ffffffffffff",
        "936da01f-9abd-4d9d-80c7-02af85c822a8",
        "00000000-0000-0000-0000-000000000001",
    ];
    let ids = ids.map(|id| id.parse::<EventId>().unwrap());
    for id in ids {
        let event = NewEvent {
            event_id: Some(id),
            ..order("one-key")
        };
        world.committed(event).await;
    }
    assert_eq!(world.events().await, ids);
    // Two per page, while more arrive: each once, none missed.
    let (mut after, mut listed) = (Position(0), Vec::new());
    for turn in 0..20 {
        let all = EventFilter::default();
        let page = world.store().events(&all, after, 2).await.unwrap();
        let Some(last) = page.rows.last() else {
            break;
        };
        after = last.position;
        listed.extend(page.rows.iter().map(|row| row.event_id));
        if turn < 3 {
            world.committed(order("one-key")).await;
        }
    }
    assert_eq!(listed, world.events().await);
    assert_eq!(listed.len(), ids.len() + 3);
}

/// A sleeping worker makes every append ring the doorbell; what rings is short, whatever the
/// event.
#[tokio::test]
async fn ntf_1_a_large_event_never_fails_for_its_notification() {
    let outbox = Outbox::postgres().await;
    let session = SessionId(uuid::Uuid::now_v7());
    let sleeper = NewSession {
        id: session,
        owner: "sleeper".to_owned(),
        lease: std::time::Duration::from_secs(600),
        serves: vec![DestinationId(1), DestinationId(2)],
        exclusive: false,
        version: "test".to_owned(),
    };
    outbox.store.open_session(&sleeper).await.unwrap();
    outbox.store.set_asleep(session, true).await.unwrap();
    let (_listening, mut notifications) = listen(&outbox.address).await;

    let client = connect(&outbox.address).await;
    let registry = on_postgres::load(&client).await.unwrap();
    let json = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let long = |bytes: usize| Some("k".repeat(bytes));
    let mut hints = BTreeSet::new();
    for event in [
        note(json(7_999)),
        note(json(8_000)),
        note(format!("\"{}\"", "é".repeat(4_000))),
        note(json(1_000_000)),
        NewEvent {
            tenant: long(255),
            partition_key: long(511),
            actor: long(255),
            request_id: long(255),
            correlation_id: long(255),
            causation_id: long(255),
            operation_id: long(255),
            ..NewEvent::new(
                "note.written",
                "1",
                "t".repeat(255),
                "i".repeat(255),
                json(8_000),
            )
        },
    ] {
        let appended = on_postgres::append(&client, &registry, event.clone())
            .await
            .unwrap();
        let kept = stored(&*outbox.store, appended.event_id).await;
        assert_eq!(kept.event.payload, event.payload);
        let notification = notifications.recv().await.unwrap();
        hints.insert(notification.payload().to_owned());
    }
    // The same short hint for all of them.
    assert_eq!(hints.len(), 1, "{hints:?}");
    assert!(hints.iter().all(|hint| hint.len() < 100), "{hints:?}");
}

/// Everything that the doorbell's channel says, for as long as the client stays.
async fn listen(url: &str) -> (::tokio_postgres::Client, UnboundedReceiver<Notification>) {
    let (client, mut connection) = ::tokio_postgres::connect(url, NoTls).await.unwrap();
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && sender.send(notification).is_err()
            {
                return;
            }
        }
    });
    client
        .batch_execute("listen postrider_doorbell")
        .await
        .unwrap();
    (client, receiver)
}
