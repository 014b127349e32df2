//! What the database knows, as gauges. The labels are names of destinations, all generations of
//! one together: never ids (I17).

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
};

use postrider_store::{Store, StoreError, inspect::OldRows};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode as encode_text},
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    destination: String,
}

/// Figures of one destination.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pending: u64,
    unknown: u64,
    quarantined: u64,
    oldest_pending_seconds: f64,
    lanes: u64,
    lanes_free: u64,
    suspended: bool,
}

/// Everything that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Read {
    destinations: BTreeMap<String, Figures>,
    sessions_live: u64,
    old_rows: Option<OldRows>,
    log_bytes: Option<u64>,
}

/// Sessions looked at; more than this many live workers are counted as this many.
const SESSIONS_MAX: u32 = 1_000;

pub(crate) async fn read(store: &Arc<dyn Store>) -> Result<Read, StoreError> {
    let registry = store.registry().await?;
    let backlog = store.backlog().await?;
    let now = store.now().await?;
    let sessions = store.sessions(SESSIONS_MAX).await?;
    let live = sessions
        .iter()
        .filter(|session| session.ended.is_none() && session.expires_at > now)
        .count();
    let mut read = Read {
        sessions_live: u64::try_from(live).unwrap_or(u64::MAX),
        old_rows: store.old_rows().await?,
        log_bytes: store.log_bytes().await?,
        ..Read::default()
    };
    for registered in &registry.destinations {
        let figures = read
            .destinations
            .entry(registered.destination.name.clone())
            .or_default();
        figures.suspended |= registered.suspended.is_some();
        let Some(row) = backlog.iter().find(|row| row.destination == registered.id) else {
            continue;
        };
        figures.pending += row.pending.value;
        figures.unknown += row.unknown.value;
        figures.quarantined += row.quarantined.value;
        let oldest = row.oldest_pending.map_or(0.0, |age| age.as_secs_f64());
        figures.oldest_pending_seconds = figures.oldest_pending_seconds.max(oldest);
        figures.lanes += u64::from(row.lanes);
        figures.lanes_free += u64::from(row.lanes.saturating_sub(row.lanes_held));
    }
    Ok(read)
}

/// The OpenMetrics text; `None`: the database could not be asked, which is a figure too.
pub(crate) fn encode(read: Option<Read>) -> String {
    let mut registry = Registry::with_prefix("postrider");
    let up: Gauge = Gauge::default();
    up.set(i64::from(read.is_some()));
    registry.register("store_up", "1: the database answered the last question", up);
    if let Some(read) = read {
        register(&mut registry, &read);
    }
    let mut text = String::new();
    match encode_text(&mut text, &registry) {
        Ok(()) => text,
        // Writing to a string fails only if a metric's encoding does.
        Err(error) => format!("# {error}\n# EOF\n"),
    }
}

type Whole = Family<Label, Gauge>;
type Fraction = Family<Label, Gauge<f64, AtomicU64>>;

fn register(registry: &mut Registry, read: &Read) {
    let whole = |value: fn(&Figures) -> u64| {
        let family = Whole::default();
        for (destination, figures) in &read.destinations {
            let destination = destination.clone();
            family
                .get_or_create(&Label { destination })
                .set(i64::try_from(value(figures)).unwrap_or(i64::MAX));
        }
        family
    };
    let oldest = Fraction::default();
    for (destination, figures) in &read.destinations {
        let destination = destination.clone();
        oldest
            .get_or_create(&Label { destination })
            .set(figures.oldest_pending_seconds);
    }
    registry.register(
        "pending",
        "Deliveries that wait for an attempt or are in one",
        whole(|figures| figures.pending),
    );
    registry.register_with_unit(
        "oldest_pending_age",
        "Age of the first pending delivery",
        Unit::Seconds,
        oldest,
    );
    registry.register(
        "unknown",
        "Deliveries whose outcome is unknown",
        whole(|figures| figures.unknown),
    );
    registry.register(
        "quarantined",
        "Deliveries that wait for a person",
        whole(|figures| figures.quarantined),
    );
    registry.register(
        "lanes",
        "Lanes of a destination",
        whole(|figures| figures.lanes),
    );
    registry.register(
        "lanes_free",
        "Lanes that no worker holds",
        whole(|figures| figures.lanes_free),
    );
    registry.register(
        "suspended",
        "1: nothing is sent until a person resumes the destination",
        whole(|figures| u64::from(figures.suspended)),
    );
    if let Some(rows) = &read.old_rows {
        let dead: Gauge = Gauge::default();
        dead.set(i64::try_from(rows.dead).unwrap_or(i64::MAX));
        registry.register(
            "dead_rows",
            "Deleted rows of the outbox that the database could not clear away yet",
            dead,
        );
        let age: Gauge<f64, AtomicU64> = Gauge::default();
        let held_for = rows.holder.as_ref().and_then(|holder| holder.held_for);
        age.set(held_for.map_or(0.0, |held_for| held_for.as_secs_f64()));
        registry.register_with_unit(
            "oldest_snapshot_age",
            "How long the oldest snapshot in the database is held, 0: none; postrider check names it",
            Unit::Seconds,
            age,
        );
    }
    let sessions: Gauge = Gauge::default();
    sessions.set(i64::try_from(read.sessions_live).unwrap_or(i64::MAX));
    registry.register("sessions_live", "Workers with a live session", sessions);
    if let Some(bytes) = read.log_bytes {
        let log: Gauge = Gauge::default();
        log.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        registry.register_with_unit(
            "write_ahead_log",
            "Size of the log that an open reader of any program keeps from shrinking",
            Unit::Bytes,
            log,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names_of_destinations_only() {
        let figures = Figures {
            pending: 7,
            oldest_pending_seconds: 1.5,
            ..Figures::default()
        };
        let read = Read {
            destinations: [("orders".to_owned(), figures)].into(),
            sessions_live: 2,
            old_rows: Some(OldRows {
                dead: 9,
                holder: None,
                all_seen: true,
            }),
            log_bytes: Some(4096),
        };
        let text = encode(Some(read));
        assert!(
            text.contains("postrider_pending{destination=\"orders\"} 7"),
            "{text}"
        );
        assert!(text.contains("postrider_oldest_pending_age_seconds{"));
        assert!(text.contains("postrider_sessions_live 2"));
        assert!(text.contains("postrider_dead_rows 9"));
        assert!(text.contains("postrider_oldest_snapshot_age_seconds 0.0"));
        assert!(text.contains("postrider_write_ahead_log_bytes 4096"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_database_that_does_not_answer_is_a_figure() {
        let text = encode(None);
        assert!(text.contains("postrider_store_up 0"));
        assert!(!text.contains("postrider_pending"));
    }
}
