//! The server over the memory store: what it answers, and that no id is in it.

use std::{sync::Arc, time::Duration};

use postrider_admin::Admin;
use postrider_conformance::store::fixture;
use postrider_core::deadline;
use postrider_relay::{Meters, Relay, Settings, Stop, TransportFactory};
use postrider_store::{Clock, Store, control::RegisteredDestination};
use postrider_store_memory::MemoryStore;
use postrider_testkit::eventually_some;
use postrider_transport::Transport;
use postrider_transport_memory::{Broker, Memory, Options};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

#[derive(Debug)]
struct Factory(Broker);

impl TransportFactory for Factory {
    fn kinds(&self) -> &[&'static str] {
        &["jetstream"]
    }

    fn open(
        &self,
        _: &RegisteredDestination,
    ) -> Result<Arc<dyn Transport>, postrider_transport::Error> {
        Ok(Arc::new(Memory::open(&self.0)))
    }
}

/// Status line and body of one request.
async fn get(address: std::net::SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn readiness_and_figures_follow_the_relay() {
    let store = MemoryStore::new(Clock::Database);
    let plan = fixture::plan(1, &[fixture::destination("orders")]);
    store.apply(&plan, &fixture::audit("test")).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let meters = Arc::new(Meters::new());
    let deadlines = deadline::Deadlines::new(deadline::Settings::default()).unwrap();
    let relay = Arc::new(Relay::new(
        Arc::clone(&store),
        Arc::new(Factory(Broker::new(Options::default()))),
        Settings::new("test".to_owned(), deadlines),
        Arc::clone(&meters),
    ));
    let admin = Admin::new(Arc::clone(&relay), Arc::clone(&store), meters);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(admin.clone().serve(listener));

    assert_eq!(get(address, "/livez").await.0, "HTTP/1.1 200 OK");
    let (status, body) = get(address, "/readyz").await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(body.contains("no session is open yet"), "{body}");

    let (trigger, stop) = Stop::new();
    let running = tokio::spawn({
        let relay = Arc::clone(&relay);
        async move { relay.run(stop).await }
    });
    let readiness = eventually_some(Duration::from_secs(30), "readiness", || async {
        Some(admin.readiness().await).filter(|readiness| readiness.ready)
    })
    .await
    .unwrap();
    assert_eq!(readiness.destinations[0].name, "orders");
    assert_eq!(get(address, "/readyz").await.0, "HTTP/1.1 200 OK");

    let (_, text) = get(address, "/metrics").await;
    assert!(
        text.contains("postrider_pending{destination=\"orders\"} 0"),
        "{text}"
    );
    assert!(text.contains("postrider_store_up 1"));
    assert_eq!(text.matches("# EOF").count(), 1, "{text}");
    // A session has an id, and it must not be a label.
    let session = relay.status().session.unwrap().to_string();
    assert!(!text.contains(&session), "{text}");

    trigger.send_replace(true);
    running.await.unwrap().unwrap();
    server.abort();
}
