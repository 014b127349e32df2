//! The webhook receiver: checks signatures, counts what it gets, and can hold its answers back
//! while the relay is killed.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use postrider_transport::Secret;
use postrider_transport_http::signature::{self, Key};
use tokio::{net::TcpListener, sync::watch};
use uuid::Uuid;

use crate::{
    code::Code,
    fault::{Failure, Fault},
};

/// What a real receiver spends on a request.
const WORK: Duration = Duration::from_millis(3);
/// No answer is held longer, whatever happens to who asked for it.
const HOLD_MAX: Duration = Duration::from_secs(3);
/// How old a signed request may be.
const TOLERANCE: Duration = Duration::from_secs(300);

/// What was received.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    /// By event id, how often.
    pub(super) times: BTreeMap<Uuid, u32>,
    /// Requests whose signature or id was not right.
    pub(super) refused: u64,
}

/// A running receiver. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    keys: Arc<[Key]>,
    received: Arc<Mutex<Received>>,
    /// Distinct events so far.
    distinct: watch::Sender<usize>,
    /// Answers are held from this many distinct events on.
    hold_at: watch::Sender<Option<usize>>,
}

impl Receiver {
    /// Listens on a free loopback port.
    pub(super) async fn start(secret: &str) -> Result<(Self, SocketAddr), Failure> {
        let key = Key::parse(&Secret::new(secret)).map_err(|error| broken(&error.to_string()))?;
        let receiver = Self {
            keys: Arc::from([key]),
            received: Arc::default(),
            distinct: watch::Sender::new(0),
            hold_at: watch::Sender::new(None),
        };
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(|error| broken(&error.to_string()))?;
        let address = listener
            .local_addr()
            .map_err(|error| broken(&error.to_string()))?;
        let router = Router::new()
            .route("/orders", post(receive))
            .with_state(receiver.clone());
        // It ends with the process.
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((receiver, address))
    }

    pub(super) fn received(&self) -> Received {
        self.lock().clone()
    }

    pub(super) fn distinct(&self) -> usize {
        *self.distinct.borrow()
    }

    /// Holds answers back from `count` distinct events on, and waits until one is held: then a
    /// request was taken whose answer the relay does not have.
    pub(super) async fn hold_from(&self, count: usize) {
        self.hold_at.send_replace(Some(count));
        let mut distinct = self.distinct.subscribe();
        // The sender is in `self`, so that the wait cannot fail.
        drop(distinct.wait_for(|distinct| *distinct >= count).await);
    }

    pub(super) fn release(&self) {
        self.hold_at.send_replace(None);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the request is genuine, and of which event.
    fn check(&self, headers: &HeaderMap, body: &[u8]) -> Option<Uuid> {
        let header = |name: &'static str| headers.get(name).and_then(|value| value.to_str().ok());
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()
            .and_then(|since| i64::try_from(since.as_secs()).ok())?;
        signature::verify(&self.keys, header, body, now, TOLERANCE).ok()?;
        header(signature::ID)?.parse().ok()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let Some(id) = receiver.check(&headers, &body) else {
        receiver.lock().refused += 1;
        return StatusCode::UNAUTHORIZED;
    };
    // A consumer's inbox would do this in the transaction of its own work.
    let distinct = {
        let mut received = receiver.lock();
        *received.times.entry(id).or_default() += 1;
        received.times.len()
    };
    receiver.distinct.send_replace(distinct);
    tokio::time::sleep(WORK).await;
    let mut hold = receiver.hold_at.subscribe();
    let released = hold.wait_for(|hold| hold.is_none_or(|at| receiver.distinct() < at));
    drop(tokio::time::timeout(HOLD_MAX, released).await);
    StatusCode::NO_CONTENT
}

fn broken(why: &str) -> Failure {
    Fault::new(
        Code::AddressTaken,
        format!("the demo's webhook receiver cannot start: {why}"),
        "",
        "see that this user may listen on a loopback port",
    )
    .into()
}
