//! What takes a server of one's own: killing it, raising its alarms, its users and its TLS.

mod support;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use postrider_conformance::transport::fixture;
use postrider_contract::Destination;
use postrider_core::{Class, Outcome};
use postrider_testkit::{
    FaultProxy, Port, RabbitMq as Server, eventually,
    proxy::{Direction, Flow},
    rabbitmq::Options,
};
use postrider_transport::{Error, Transport};
use postrider_transport_rabbitmq::{Connection, RabbitMq};
use serde_json::{Value, json};
use support::{Admin, connection, destination, settings, text, usage};
use tokio::time::timeout;

const AMPLE: Duration = Duration::from_secs(20);
const WITHIN: Duration = Duration::from_secs(60);
/// One confirm, of one message or of several.
const CONFIRM_BYTES: u64 = 21;

fn code(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Acknowledged(_) => "ack",
        Outcome::Retryable { code, .. }
        | Outcome::Rejected { code, .. }
        | Outcome::Unknown { code, .. } => code,
    }
}

fn open(destination: &Destination, connection: Connection) -> Arc<dyn Transport> {
    Arc::new(RabbitMq::open(destination, connection).expect("it opens"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_between_accept_and_confirm_leaves_unknown_and_loses_nothing() {
    let server = Server::start().await.expect("it starts");
    let proxy = FaultProxy::to_port(server.port()).await.unwrap();
    let admin = Admin::to(&server.url()).await;
    for (queue, kind) in [("c", "classic")] {
        admin.queue(queue, &[("x-queue-type", text(kind))]).await;
    }
    drop(admin);
    // What was declared is written down a moment later by itself; a kill before that loses the
    // queues, and this is about their messages.
    server
        .control(&["eval", "mnesia:sync_log()."])
        .await
        .unwrap();
    let destinations = ["c"].map(|queue| destination(None, queue));
    let transports = destinations
        .each_ref()
        .map(|destination| open(destination, connection(proxy.port(), &[])));
    let mut sent = Vec::new();
    let mut sending = Vec::new();
    for (transport, destination) in transports.iter().zip(&destinations) {
        let first = fixture::messages(destination, 1);
        fixture::send_until_acknowledged(transport, &first, AMPLE, 3).await;
    }
    proxy.set(Direction::ServerToClient, Flow::Swallow);
    let before = proxy.counts().server_sent;
    for (transport, destination) in transports.iter().zip(&destinations) {
        let messages = fixture::messages(destination, 20);
        sending.push(tokio::spawn({
            let (transport, messages) = (Arc::clone(transport), messages.clone());
            async move { fixture::send(&transport, &messages, AMPLE).await }
        }));
        sent.push(messages);
    }
    // Accepted, and the confirms are lost on their way.
    eventually(WITHIN, "confirms", || async {
        proxy.counts().server_sent >= before + CONFIRM_BYTES
    })
    .await
    .unwrap();
    server.kill().await.unwrap();
    proxy.reset().await;
    for sending in sending {
        let outcomes = timeout(WITHIN, sending).await.expect("it ends").unwrap();
        for outcome in outcomes {
            assert!(
                matches!(
                    outcome,
                    Outcome::Unknown {
                        code: "connection_lost",
                        ..
                    } | Outcome::Acknowledged(_)
                ),
                "{outcome:?}"
            );
        }
    }
    let refused = fixture::send_one(&transports[0], &sent[0][0], AMPLE).await;
    assert!(
        matches!(
            refused,
            Outcome::Retryable {
                class: Class::Outage,
                ..
            }
        ),
        "{refused:?}"
    );
    server.restart().await.unwrap();
    proxy.heal().await.unwrap();
    for (transport, messages) in transports.iter().zip(&sent) {
        fixture::send_until_acknowledged(transport, messages, AMPLE, 200).await;
    }
    let admin = Admin::to(&server.url()).await;
    let got = admin.take_all("c").await;
    let got: BTreeSet<String> = got.into_iter().map(|one| one.event_id).collect();
    assert!(
        sent[0]
            .iter()
            .all(|one| got.contains(&one.event_id.to_string()))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rmq_3_a_blocked_connection_is_an_outage_with_its_reason_and_goes_on_afterwards() {
    let server = Server::start().await.expect("it starts");
    let admin = Admin::to(&server.url()).await;
    admin.queue("q", &[]).await;
    drop(admin);
    let proxy = FaultProxy::to_port(server.port()).await.unwrap();
    let destination = destination(None, "q");
    let transport = open(&destination, connection(proxy.port(), &[]));
    let mut late = transport.late().expect("it hears late confirms");
    let first = fixture::messages(&destination, 1);
    fixture::send_until_acknowledged(&transport, &first, AMPLE, 3).await;
    server
        .control(&["set_vm_memory_high_watermark", "0.00000001"])
        .await
        .unwrap();

    // A batch that does not fit into any buffer on the way: the broker stops reading in it.
    let large: Vec<_> = (0..400)
        .map(|_| fixture::message_of_size(&destination, 60_000))
        .collect();
    let send_timeout = Duration::from_secs(4);
    let outcomes = fixture::send(&transport, &large, send_timeout).await;
    let unknown = outcomes
        .iter()
        .filter(|one| code(one) == "confirm_timeout")
        .count();
    let blocked: Vec<_> = outcomes
        .iter()
        .filter(|one| code(one) == "connection_blocked")
        .collect();
    assert_eq!(unknown + blocked.len(), 400, "{:?}", code(&outcomes[399]));
    assert!(unknown >= 1, "what was written may be accepted yet");
    assert!(!blocked.is_empty(), "what was not written never left");
    let Outcome::Retryable {
        class: Class::Outage,
        detail,
        ..
    } = blocked[0]
    else {
        panic!("{:?}", blocked[0])
    };
    assert!(detail.contains("memory"), "the broker's reason: {detail}");
    // The written ones are the first ones.
    assert!(
        outcomes[..unknown]
            .iter()
            .all(|one| code(one) == "confirm_timeout")
    );

    // While it is blocked: at once, and nothing is written.
    let again = fixture::messages(&destination, 10);
    let outcomes = timeout(AMPLE / 2, fixture::send(&transport, &again, AMPLE)).await;
    let outcomes = outcomes.expect("far before the send timeout");
    assert!(
        outcomes.iter().all(|one| code(one) == "connection_blocked"),
        "{outcomes:?}"
    );
    let error = transport.preflight(&usage()).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Unavailable {
                code: "connection_blocked",
                ..
            }
        ),
        "{error}"
    );

    server
        .control(&["set_vm_memory_high_watermark", "0.9"])
        .await
        .unwrap();
    for message in &large[..unknown] {
        let heard = timeout(WITHIN, late.recv())
            .await
            .expect("it comes")
            .expect("open");
        assert_eq!(heard.event_id, message.event_id, "the broker read on");
    }
    fixture::send_until_acknowledged(&transport, &again, AMPLE, 100).await;
    assert_eq!(proxy.counts().accepted, 1, "over the same connection");
    let admin = Admin::to(&server.url()).await;
    assert_eq!(
        admin.take_all("q").await.len(),
        1 + unknown + 10,
        "and nothing more"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_virtual_hosts_and_tls_are_what_the_settings_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let tls = Port::take().expect("a free port");
    let options = Options {
        config: vec![
            format!("listeners.ssl.1 = 127.0.0.1:{}", tls.number()),
            format!("ssl_options.certfile = {folder}/server.pem"),
            format!("ssl_options.keyfile = {folder}/server.key"),
        ],
    };
    let server = Server::start_with(&options).await.expect("it starts");
    for arguments in [
        &["add_vhost", "orders"] as &[&str],
        &["add_user", "writer", "S3CRET"],
        &[
            "set_permissions",
            "-p",
            "orders",
            "writer",
            "",
            "^allowed$|^amq.default$",
            "",
        ],
    ] {
        server.control(arguments).await.unwrap();
    }
    let own = |change: &dyn Fn(&mut Value)| -> Connection {
        let mut settings = settings(server.port(), &[]);
        settings["vhost"] = json!("orders");
        settings["credentials"] =
            json!({ "user_password": { "user": "writer", "password": "S3CRET" } });
        change(&mut settings);
        serde_json::from_value(settings).expect("valid settings")
    };

    // The virtual host is part of the identity.
    let mut there = destination(Some("amq.topic"), "k");
    let transport = open(&there, own(&|_| {}));
    let outcome = fixture::send_one(&transport, &fixture::messages(&there, 1)[0], AMPLE).await;
    assert_eq!(code(&outcome), "wrong_cluster", "{outcome:?}");
    there.cluster = format!("{}/orders", support::CLUSTER);

    // May connect, may not publish: each one is an outage, also when several come at once.
    let transport = open(&there, own(&|_| {}));
    let sent = fixture::messages(&there, 3);
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    for outcome in &outcomes {
        assert!(
            matches!(
                outcome,
                Outcome::Retryable {
                    class: Class::Outage,
                    code: "access_refused",
                    ..
                }
            ),
            "{outcomes:?}"
        );
    }
    let permit = ["set_permissions", "-p", "orders", "writer", "", "amq", ""];
    server.control(&permit).await.unwrap();
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    assert!(
        outcomes.iter().all(|one| code(one) == "unroutable"),
        "{outcomes:?}"
    );

    // Not permitted in another virtual host.
    let mut elsewhere = there.clone();
    elsewhere.cluster = support::CLUSTER.to_owned();
    let transport = open(&elsewhere, own(&|settings| settings["vhost"] = json!("/")));
    let error = transport.preflight(&usage()).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Misconfigured {
                code: "not_authorized",
                ..
            }
        ),
        "{error}"
    );

    // TLS with a private authority, and with a stranger's certificate.
    let url = json!([format!("amqps://localhost:{}", tls.number())]);
    let trusting = own(&|settings| {
        settings["servers"] = url.clone();
        settings["tls"] = json!({ "ca_file": format!("{folder}/ca.pem") });
    });
    let transport = open(&there, trusting);
    let outcome = fixture::send_one(&transport, &sent[0], AMPLE).await;
    assert_eq!(code(&outcome), "unroutable", "{outcome:?}");
    let stranger = open(&there, own(&|settings| settings["servers"] = url.clone()));
    let error = stranger.preflight(&usage()).await.unwrap_err();
    assert!(
        matches!(error, Error::Misconfigured { code: "tls", .. }),
        "{error}"
    );
}
