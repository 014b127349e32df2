//! Consumer positions, as a real server keeps them.

mod support;

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use futures::TryStreamExt as _;
use postrider_conformance::transport::{Harness as _, fixture};
use postrider_transport::Error;
use support::{Current, Harness, Oldest, Version};

async fn a_position_is_what_was_confirmed_without_a_gap<V: Version>() {
    let harness = Harness::<V>::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    let ample = Duration::from_secs(20);
    fixture::send(&transport, &fixture::messages(&destination, 5), ample).await;
    let config = pull::Config {
        durable_name: Some("billing".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ..pull::Config::default()
    };
    let stream = harness.admin().await.get_stream(&harness.stream).await;
    let consumer = stream.unwrap().create_consumer(config).await.unwrap();
    let position = async || {
        let mut positions = transport.positions("billing").await.expect("it is known");
        assert_eq!(positions.len(), 1);
        let position = positions.remove(0);
        assert_eq!((&position.place, position.exact), (&harness.stream, true));
        (position.confirmed, position.waiting)
    };
    assert_eq!(position().await, (None, Some(5)));
    let batch = consumer.fetch().max_messages(3).messages().await.unwrap();
    let delivered: Vec<_> = batch.try_collect().await.unwrap();
    assert_eq!(position().await, (None, Some(5)));
    delivered[0].double_ack().await.unwrap();
    delivered[2].double_ack().await.unwrap();
    assert_eq!(position().await, (Some("1".to_owned()), Some(3)));
    delivered[1].double_ack().await.unwrap();
    assert_eq!(position().await, (Some("3".to_owned()), Some(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_is_what_was_confirmed_without_a_gap_on_the_oldest_server() {
    a_position_is_what_was_confirmed_without_a_gap::<Oldest>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_is_what_was_confirmed_without_a_gap_on_a_current_server() {
    a_position_is_what_was_confirmed_without_a_gap::<Current>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_without_a_position_is_told_apart() {
    let harness = Harness::<Oldest>::start().await;
    let transport = harness.open(&harness.destination());
    let config = pull::Config {
        durable_name: Some("careless".to_owned()),
        ack_policy: AckPolicy::None,
        ..pull::Config::default()
    };
    let stream = harness.admin().await.get_stream(&harness.stream).await;
    stream.unwrap().create_consumer(config).await.unwrap();
    for (name, expected) in [
        ("nobody", "consumer_missing"),
        ("careless", "consumer_no_ack"),
        ("a.b", "consumer_name"),
        ("", "consumer_name"),
        ("no body", "consumer_name"),
    ] {
        match transport.positions(name).await {
            Err(Error::Misconfigured { code, .. }) => assert_eq!(code, expected, "{name:?}"),
            other => panic!("{name:?}: {other:?}"),
        }
    }
}
