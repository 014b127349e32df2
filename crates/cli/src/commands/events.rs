//! `events list` and `events show`.

use std::io::Write;

use postrider_contract::{Envelope, EventId, Receipt, Timestamp};
use postrider_core::Position;
use postrider_store::{
    control::Registry,
    inspect::{DeliveryDetail, EventDetail, EventFilter, EventRow, ReceiptRow},
};
use serde::Serialize;
use uuid::Uuid;

use super::{event_id, failed, open, why::no_such_event};
use crate::{
    args::{Events, EventsList, EventsShow},
    code::Code,
    config::Config,
    fault::{Exit, Fault, Outcome},
    names,
    output::{self, List, Table, printable},
};

pub(super) async fn run(command: Events, config: &Config, out: &mut dyn Write) -> Outcome {
    match command {
        Events::List(args) => list(args, config, out).await,
        Events::Show(args) => show(&args, config, out).await,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    position: i64,
    event_id: EventId,
    appended_at: Timestamp,
    /// Deliveries that are not acknowledged yet.
    open_deliveries: u32,
    /// `None` for an envelope that cannot be read, which spoils no other row.
    envelope: Option<Envelope>,
    unreadable: Option<String>,
}

impl Row {
    fn of(row: EventRow) -> Self {
        let (envelope, unreadable) = match Envelope::from_stored(&row.envelope) {
            Ok(envelope) => (Some(envelope), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            position: row.position.0,
            event_id: row.event_id,
            appended_at: row.appended_at,
            open_deliveries: row.open,
            envelope,
            unreadable,
        }
    }
}

async fn list(args: EventsList, config: &Config, out: &mut dyn Write) -> Outcome {
    let after = match &args.page.after {
        None => Position::START,
        Some(cursor) => Position(cursor.parse().map_err(|_| bad_cursor(cursor))?),
    };
    let filter = EventFilter {
        event_type: args.event_type,
        tenant: args.tenant,
        aggregate_type: args.aggregate_type,
        aggregate_id: args.aggregate_id,
        partition_key: args.partition_key,
    };
    let page = open(config)
        .await?
        .events(&filter, after, args.page.limit)
        .await
        .map_err(failed)?;
    let next = match (page.more, page.rows.last()) {
        (true, Some(last)) => Some(last.position.to_string()),
        (_, _) => None,
    };
    let rows: Vec<Row> = page.rows.into_iter().map(Row::of).collect();
    if args.format.json {
        let list = List {
            schema: "postrider.cli.events/1",
            rows,
            next,
        };
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["EVENT", "TYPE", "VERSION", "AGGREGATE", "APPENDED", "OPEN"]);
    for row in rows {
        let (event_type, version, aggregate) = match (row.envelope, row.unreadable) {
            (Some(envelope), _) => (
                envelope.event_type,
                envelope.schema_version,
                format!("{}/{}", envelope.aggregate.kind, envelope.aggregate.id),
            ),
            (None, unreadable) => (
                "(unreadable)".to_owned(),
                "-".to_owned(),
                unreadable.unwrap_or_default(),
            ),
        };
        table.row([
            row.event_id.to_string(),
            event_type,
            version,
            aggregate,
            row.appended_at.to_string(),
            row.open_deliveries.to_string(),
        ]);
    }
    table.print(out, "no events")?;
    say_next(next.as_deref());
    Ok(Exit::Done)
}

/// There is more, and how to get it.
pub(super) fn say_next(next: Option<&str>) {
    if let Some(next) = next {
        output::say(&format!("there are more: --after {next}"));
    }
}

pub(super) fn bad_cursor(cursor: &str) -> Fault {
    Fault::new(
        Code::BadArgument,
        format!("{cursor:?} is not a cursor"),
        "",
        "use the `next` of an earlier list, or leave --after out",
    )
}

/// An event with everything that is known of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    schema: &'static str,
    position: i64,
    event_id: EventId,
    appended_at: Timestamp,
    envelope_digest: String,
    envelope: serde_json::Value,
    traceparent: Option<String>,
    tracestate: Option<String>,
    headers: Vec<(String, String)>,
    /// With `--payload`, if it is UTF-8.
    payload: Option<String>,
    /// With `--payload`, if it is not.
    payload_base64: Option<String>,
    deliveries: Vec<Delivery>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delivery {
    pub(super) destination: String,
    lane: u16,
    pub(super) state: &'static str,
    attempts_charged: u32,
    available_at: Option<Timestamp>,
    attempts: Vec<Attempt>,
    receipt: Option<Kept>,
    duplicate_receipts: Vec<Kept>,
    quarantine: Option<Quarantine>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Attempt {
    attempt: Uuid,
    session: Uuid,
    owner: String,
    registered_at: Timestamp,
    finished_at: Option<Timestamp>,
    outcome: Option<String>,
    detail: Option<String>,
    lease_until: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    attempt: Uuid,
    accepted_at: Timestamp,
    late: bool,
    receipt: Receipt,
}

#[derive(Serialize)]
struct Quarantine {
    code: String,
    detail: String,
    since: Timestamp,
}

impl Shown {
    pub(super) fn of(event: EventDetail, registry: &Registry, payload: bool) -> Self {
        let stored = event.event;
        let envelope = serde_json::from_str(&stored.envelope)
            .unwrap_or_else(|_| serde_json::Value::String(stored.envelope.clone()));
        let text = std::str::from_utf8(&stored.payload).ok();
        let (payload, payload_base64) = match (payload, text) {
            (false, _) => (None, None),
            (true, Some(text)) => (Some(text.to_owned()), None),
            (true, None) => {
                use base64::Engine as _;
                let encoded = base64::engine::general_purpose::STANDARD.encode(&stored.payload);
                (None, Some(encoded))
            }
        };
        Self {
            schema: "postrider.cli.event/1",
            position: event.position.0,
            event_id: stored.event_id,
            appended_at: stored.appended_at,
            envelope_digest: stored.envelope_digest.to_string(),
            envelope,
            traceparent: stored.traceparent,
            tracestate: stored.tracestate,
            headers: stored.headers,
            payload,
            payload_base64,
            deliveries: event
                .deliveries
                .into_iter()
                .map(|delivery| Delivery::of(delivery, registry))
                .collect(),
        }
    }

    /// Keeps the deliveries that a test asks for.
    pub(super) fn keep(&mut self, keep: impl Fn(&Delivery) -> bool) {
        self.deliveries.retain(keep);
    }

    pub(super) fn is_without_deliveries(&self) -> bool {
        self.deliveries.is_empty()
    }

    pub(super) fn describe(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "event {}", self.event_id)?;
        writeln!(
            out,
            "  appended {} at position {}",
            self.appended_at, self.position
        )?;
        writeln!(out, "  {}", self.envelope_digest)?;
        let envelope = serde_json::to_string_pretty(&self.envelope)?;
        for line in envelope.lines() {
            writeln!(out, "  {}", printable(line))?;
        }
        for (name, value) in &self.headers {
            writeln!(out, "  header {}: {}", printable(name), printable(value))?;
        }
        if let Some(payload) = self.payload.as_ref().or(self.payload_base64.as_ref()) {
            writeln!(out, "  payload {}", printable(payload))?;
        }
        for delivery in &self.deliveries {
            delivery.describe(out)?;
        }
        Ok(())
    }
}

impl Delivery {
    fn of(delivery: DeliveryDetail, registry: &Registry) -> Self {
        Self {
            destination: names::label(registry, delivery.destination),
            lane: delivery.lane.0,
            state: delivery.state.word(),
            attempts_charged: delivery.attempts_charged,
            available_at: delivery.available_at,
            attempts: delivery
                .attempts
                .into_iter()
                .map(|attempt| Attempt {
                    attempt: attempt.attempt.0,
                    session: attempt.session.0,
                    owner: attempt.owner,
                    registered_at: attempt.registered_at,
                    finished_at: attempt.finished_at,
                    outcome: attempt.outcome,
                    detail: attempt.detail,
                    lease_until: attempt.lease_until,
                })
                .collect(),
            receipt: delivery.receipt.map(Kept::of),
            duplicate_receipts: delivery.duplicates.into_iter().map(Kept::of).collect(),
            quarantine: delivery.quarantine.map(|reason| Quarantine {
                code: reason.code,
                detail: reason.detail,
                since: reason.since,
            }),
        }
    }

    fn describe(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{}: {}, lane {}",
            self.destination, self.state, self.lane
        )?;
        if let Some(at) = self.available_at {
            writeln!(
                out,
                "  due {at}, attempts charged: {}",
                self.attempts_charged
            )?;
        }
        if let Some(reason) = &self.quarantine {
            let (code, since) = (&reason.code, reason.since);
            let detail = printable(&reason.detail);
            writeln!(out, "  quarantined {since}: {code} {detail}")?;
        }
        for attempt in &self.attempts {
            let outcome = attempt.outcome.as_deref().unwrap_or("open");
            let detail = printable(attempt.detail.as_deref().unwrap_or_default());
            let line = format!(
                "  attempt {} by {} at {}: {outcome} {detail}",
                attempt.attempt, attempt.owner, attempt.registered_at
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        let kept = self.receipt.iter().map(|kept| ("receipt", kept)).chain(
            self.duplicate_receipts
                .iter()
                .map(|kept| ("duplicate", kept)),
        );
        for (what, kept) in kept {
            let receipt = serde_json::to_string(&kept.receipt)?;
            let late = if kept.late { ", late" } else { "" };
            writeln!(
                out,
                "  {what} {} of attempt {} at {}{late}",
                printable(&receipt),
                kept.attempt,
                kept.accepted_at
            )?;
        }
        Ok(())
    }
}

impl Kept {
    fn of(row: ReceiptRow) -> Self {
        Self {
            attempt: row.attempt.0,
            accepted_at: row.accepted_at,
            late: row.late,
            receipt: row.receipt,
        }
    }
}

async fn show(args: &EventsShow, config: &Config, out: &mut dyn Write) -> Outcome {
    let id = event_id(&args.event_id)?;
    let store = open(config).await?;
    let Some(event) = store.event(id).await.map_err(failed)? else {
        return Err(no_such_event(&id.to_string()).into());
    };
    let registry = store.registry().await.map_err(failed)?;
    let shown = Shown::of(event, &registry, args.payload);
    if args.format.json {
        output::json(out, &shown)?;
    } else {
        shown.describe(out)?;
    }
    Ok(Exit::Done)
}
