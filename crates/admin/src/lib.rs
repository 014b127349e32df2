//! What a relay tells about itself over HTTP: `/livez`, `/readyz` and `/metrics`. It changes
//! nothing and shows no event, no id and no secret.

mod gauges;
mod ready;

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use postrider_relay::{Meters, Relay};
use postrider_store::Store;
use tokio::{net::TcpListener, sync::Mutex};

pub use ready::{Readiness, Reason};

/// How long an answer of the database is shown again. Bounds what a flood of requests costs it.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long the database may take to answer before it counts as not answering.
const STORE_WITHIN: Duration = Duration::from_secs(3);

/// The server of one relay.
#[derive(Clone, Debug)]
pub struct Admin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    relay: Arc<Relay>,
    store: Arc<dyn Store>,
    meters: Arc<Meters>,
    readiness: Mutex<Option<(Instant, Readiness)>>,
    gauges: Mutex<Option<(Instant, String)>>,
}

impl Admin {
    #[must_use]
    pub fn new(relay: Arc<Relay>, store: Arc<dyn Store>, meters: Arc<Meters>) -> Self {
        Self {
            shared: Arc::new(Shared {
                relay,
                store,
                meters,
                readiness: Mutex::default(),
                gauges: Mutex::default(),
            }),
        }
    }

    /// Serves until it is dropped.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        axum::serve(listener, self.router()).await
    }

    fn router(self) -> Router {
        Router::new()
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
    }

    /// Whether this relay does its work, with every reason why not.
    pub async fn readiness(&self) -> Readiness {
        // The lock is held while the database is asked: one question at a time, however many ask.
        let mut kept = self.shared.readiness.lock().await;
        let status = self.shared.relay.status();
        if let Some((at, readiness)) = &*kept
            && at.elapsed() < FRESH_FOR
            // A stop shows at once: a balancer must not send more work here.
            && readiness.stopping == status.stopping
        {
            return readiness.clone();
        }
        let schema = tokio::time::timeout(STORE_WITHIN, self.shared.store.schema_status()).await;
        let schema = match schema {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {STORE_WITHIN:?}")),
        };
        let readiness = ready::judge(&status, &schema);
        *kept = Some((Instant::now(), readiness.clone()));
        readiness
    }

    /// Everything measured, in the OpenMetrics text format.
    pub async fn metrics(&self) -> String {
        let mut text = self.shared.meters.encode();
        let mut kept = self.shared.gauges.lock().await;
        let fresh = match &*kept {
            Some((at, gauges)) if at.elapsed() < FRESH_FOR => gauges.clone(),
            Some(_) | None => {
                let store = &self.shared.store;
                let read = tokio::time::timeout(STORE_WITHIN, gauges::read(store)).await;
                let gauges = gauges::encode(match read {
                    Ok(Ok(read)) => Some(read),
                    Ok(Err(_)) | Err(_) => None,
                });
                *kept = Some((Instant::now(), gauges.clone()));
                gauges
            }
        };
        text.push_str(&fresh);
        text
    }
}

async fn livez() -> &'static str {
    "alive\n"
}

async fn readyz(State(admin): State<Admin>) -> impl IntoResponse {
    let readiness = admin.readiness().await;
    let code = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, Json(readiness))
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(header::CONTENT_TYPE, content_type)],
        admin.metrics().await,
    )
}
