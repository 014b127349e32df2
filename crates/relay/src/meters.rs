//! What the relay counts, as Prometheus metrics. Labels are destinations, outcomes and codes:
//! never ids (I17).

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DestinationLabel {
    pub destination: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OutcomeLabel {
    pub destination: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CodeLabel {
    pub destination: String,
    pub code: &'static str,
}

type Histograms = Family<DestinationLabel, Histogram, fn() -> Histogram>;

/// The relay's metrics. Clones count into the same.
#[derive(Debug)]
pub struct Meters {
    registry: Registry,
    /// Deliveries by what their attempt came to.
    pub(crate) deliveries: Family<OutcomeLabel, Counter>,
    pub(crate) failures: Family<CodeLabel, Counter>,
    attempts: Family<DestinationLabel, Counter>,
    pub(crate) late_receipts: Family<OutcomeLabel, Counter>,
    commit_to_receipt: Histograms,
    settle: Histograms,
    pub(crate) store_errors: Counter,
    pub(crate) sessions_recovered: Counter,
    pub(crate) session_live: Gauge,
    lanes_held: Family<DestinationLabel, Gauge>,
    breaker_open: Family<DestinationLabel, Gauge>,
    sends_open: Family<DestinationLabel, Gauge>,
    pub(crate) last_heartbeat: Gauge<f64, AtomicU64>,
}

/// 1 ms to about 9 minutes.
fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 20))
}

/// The meters of one destination, looked up once: they count on the hot path.
#[derive(Debug)]
pub(crate) struct Of {
    pub(crate) acknowledged: Counter,
    pub(crate) attempts: Counter,
    pub(crate) commit_to_receipt: Histogram,
    pub(crate) settle: Histogram,
    pub(crate) lanes_held: Gauge,
    pub(crate) breaker_open: Gauge,
    pub(crate) sends_open: Gauge,
}

impl Default for Meters {
    fn default() -> Self {
        Self::new()
    }
}

impl Meters {
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("postrider");
        let histograms = || Family::new_with_constructor(latency as fn() -> Histogram);
        let meters = Self {
            deliveries: Family::default(),
            failures: Family::default(),
            attempts: Family::default(),
            late_receipts: Family::default(),
            commit_to_receipt: histograms(),
            settle: histograms(),
            store_errors: Counter::default(),
            sessions_recovered: Counter::default(),
            session_live: Gauge::default(),
            lanes_held: Family::default(),
            breaker_open: Family::default(),
            sends_open: Family::default(),
            last_heartbeat: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "deliveries",
            "Deliveries settled, by outcome",
            meters.deliveries.clone(),
        );
        registry.register(
            "delivery_failures",
            "Deliveries not acknowledged, by code",
            meters.failures.clone(),
        );
        registry.register("attempts", "Attempts registered", meters.attempts.clone());
        registry.register(
            "late_receipts",
            "Receipts that came by the evidence path, by verdict",
            meters.late_receipts.clone(),
        );
        registry.register_with_unit(
            "commit_to_receipt",
            "From the append of an event to its receipt",
            Unit::Seconds,
            meters.commit_to_receipt.clone(),
        );
        registry.register_with_unit(
            "settle",
            "From the request to settle to its commit",
            Unit::Seconds,
            meters.settle.clone(),
        );
        registry.register(
            "store_errors",
            "Store calls that failed",
            meters.store_errors.clone(),
        );
        registry.register(
            "sessions_recovered",
            "Sessions of others ended after their lease",
            meters.sessions_recovered.clone(),
        );
        registry.register(
            "session_live",
            "1 while a session is open",
            meters.session_live.clone(),
        );
        registry.register("lanes_held", "Lanes held", meters.lanes_held.clone());
        registry.register(
            "breaker_open",
            "1 while the destination is not sent to",
            meters.breaker_open.clone(),
        );
        registry.register(
            "sends_open",
            "Attempts whose answers are awaited",
            meters.sends_open.clone(),
        );
        registry.register(
            "last_heartbeat_timestamp",
            "When the last heartbeat succeeded, in Unix seconds",
            meters.last_heartbeat.clone(),
        );
        Self { registry, ..meters }
    }

    pub(crate) fn of(&self, destination: &str) -> Of {
        let label = DestinationLabel {
            destination: destination.to_owned(),
        };
        let acknowledged = OutcomeLabel {
            destination: destination.to_owned(),
            outcome: "acknowledged",
        };
        Of {
            acknowledged: self.deliveries.get_or_create_owned(&acknowledged),
            attempts: self.attempts.get_or_create_owned(&label),
            commit_to_receipt: self.commit_to_receipt.get_or_create_owned(&label),
            settle: self.settle.get_or_create_owned(&label),
            lanes_held: self.lanes_held.get_or_create_owned(&label),
            breaker_open: self.breaker_open.get_or_create_owned(&label),
            sends_open: self.sends_open.get_or_create_owned(&label),
        }
    }

    /// The metrics in the OpenMetrics text format, without the closing `# EOF`, so that a caller
    /// can add its own.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string never fails");
        text.trim_end().trim_end_matches("# EOF").to_owned()
    }
}
