//! `append`: events from the command line or from JSON lines, in transactions of their own.
//! Applications append in *their* transaction, with the crate or the SQL functions.

mod line;

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    sync::Arc,
};

use postrider::Registry;
use postrider_contract::{EventId, NewEvent, Timestamp};
use postrider_store::{AppendError, Store, dispatch::Appended};
use serde::Serialize;

use super::{failed, open};
use crate::{
    args::Append,
    backend::store,
    code::Code,
    config::Config,
    fault::{Exit, Failure, Fault, Outcome},
    names, output,
};

/// Lines in one transaction: large enough to be fast, small enough to hold no lock for long.
const LINES_PER_TRANSACTION: usize = 500;
/// Bytes of one payload file or one line, so that a file without end cannot fill the memory. More
/// is refused, never cut.
const INPUT_BYTES_MAX: usize = 64 << 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    event_id: EventId,
    position: i64,
    /// It was there before, with the same content.
    already: bool,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    appended: u64,
    already: u64,
}

pub(super) async fn run(args: Append, config: &Config, out: &mut dyn Write) -> Outcome {
    // Whatever can be wrong with the arguments is found before the database is asked.
    let single = match &args.json_lines {
        None => Some(single(&args)?),
        Some(_) => None,
    };
    let store = open(config).await?;
    let registry = registry(&store).await?;
    match (single, &args.json_lines) {
        (Some(event), _) => {
            check(&registry, &event, None)?;
            let appended = store
                .append(vec![event])
                .await
                .map_err(|error| refusal(&error, ""))?;
            report(&args, &appended, out)?;
        }
        (None, Some(path)) => bulk(&args, path, &store, &registry, out).await?,
        (None, None) => {}
    }
    Ok(Exit::Done)
}

fn report(args: &Append, appended: &[Appended], out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<Row> = appended
        .iter()
        .map(|one| Row {
            event_id: one.event_id,
            position: one.position.0,
            already: one.already,
        })
        .collect();
    if args.format.json {
        let report = Report {
            schema: "postrider.cli.append/1",
            rows,
        };
        return output::json(out, &report);
    }
    for row in rows {
        let already = if row.already {
            " (was there already)"
        } else {
            ""
        };
        writeln!(out, "{}{already}", row.event_id)?;
    }
    Ok(())
}

/// The registered schemas, so that a payload is checked before anything is written.
async fn registry(store: &Arc<dyn Store>) -> Result<Registry, Failure> {
    let registered = store.registry().await.map_err(failed)?;
    let Some(set) = &registered.delivery_set else {
        return Err(refusal(&AppendError::NoActiveDeliverySet, ""));
    };
    let current: Vec<_> = registered
        .event_types
        .iter()
        .filter(|row| row.current)
        .map(|row| row.event_type.clone())
        .filter(|one| set.applies_to(&one.event_type, &one.schema_version))
        .collect();
    Registry::from_event_types(&current).map_err(|error| {
        Fault::new(
            Code::StoredDataUnreadable,
            format!("a registered JSON Schema cannot be compiled: {error}"),
            "Nothing was appended.",
            "register a schema that this program can use with `postrider apply`",
        )
        .into()
    })
}

fn check(registry: &Registry, event: &NewEvent, line: Option<u64>) -> Result<(), Failure> {
    let place = line.map_or_else(String::new, |line| format!("line {line}: "));
    registry.check(event).map_err(|error| {
        let code = match &error {
            postrider::AppendError::UnknownEventType { .. } => Code::EventTypeUnknown,
            postrider::AppendError::TooLarge { .. } => Code::PayloadTooLarge,
            _ => Code::EventInvalid,
        };
        let mut fault = refused(code, &place, &error.to_string());
        if let postrider::AppendError::UnknownEventType {
            event_type,
            schema_version,
        } = &error
        {
            fault.what = format!(
                "{place}event type {event_type:?} version {schema_version:?} is not registered"
            );
            let known = registry.event_types().into_iter();
            let known = known.map(|(name, version)| format!("{name} version {version}"));
            let given = format!("{event_type} version {schema_version}");
            if let Some(nearest) = names::nearest(&given, known) {
                fault.what.push_str(&format!("; did you mean {nearest}?"));
            }
        }
        fault.into()
    })
}

fn refusal(error: &AppendError, place: &str) -> Failure {
    let code = match error {
        AppendError::UnknownEventType { .. } => Code::EventTypeUnknown,
        AppendError::NoActiveDeliverySet => Code::NoDeliverySet,
        AppendError::Conflict { .. } => Code::EventIdConflict,
        AppendError::TooLarge { .. } => Code::PayloadTooLarge,
        AppendError::Invalid(_) => Code::EventInvalid,
        AppendError::Store(error) => return store::fault(error).into(),
    };
    refused(code, place, &error.to_string()).into()
}

fn refused(code: Code, place: &str, what: &str) -> Fault {
    let fix = match code {
        Code::EventTypeUnknown => {
            "correct it, or add the event type and a route to the file and run `postrider apply`"
        }
        Code::NoDeliverySet => "run `postrider apply --yes`",
        Code::EventIdConflict => "give the event an id of its own, or none",
        Code::PayloadTooLarge => "put the content elsewhere, and its address into the event",
        _ => "correct the field",
    };
    Fault::new(code, format!("{place}{what}"), "Nothing was appended.", fix)
}

/// The event that the flags describe.
fn single(args: &Append) -> Result<NewEvent, Failure> {
    let given = |value: &Option<String>| value.clone().unwrap_or_default();
    let payload = match args.payload.as_deref() {
        Some(text) => match text.strip_prefix('@') {
            Some(path) => read(Path::new(path))?,
            None => text.as_bytes().to_vec(),
        },
        None => Vec::new(),
    };
    let mut event = NewEvent::new(
        given(&args.event_type),
        given(&args.schema_version),
        given(&args.aggregate_type),
        given(&args.aggregate_id),
        payload,
    );
    event.event_id = args
        .event_id
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| refused(Code::EventInvalid, "", &format!("eventId: {error}")))?;
    event.aggregate.version = args
        .aggregate_version
        .as_deref()
        .map(aggregate_version)
        .transpose()
        .map_err(|what| refused(Code::EventInvalid, "", &what))?;
    event.occurred_at = args
        .occurred_at
        .as_deref()
        .map(occurred_at)
        .transpose()
        .map_err(|what| refused(Code::EventInvalid, "", &what))?;
    event.content_type.clone_from(&args.content_type);
    event.tenant.clone_from(&args.tenant);
    event.partition_key.clone_from(&args.partition_key);
    event.correlation_id.clone_from(&args.correlation_id);
    event.causation_id.clone_from(&args.causation_id);
    event.traceparent.clone_from(&args.traceparent);
    for header in &args.header {
        let Some((name, value)) = header.split_once('=') else {
            return Err(Fault::new(
                Code::BadArgument,
                format!("--header {header:?} has no ="),
                "",
                "write --header NAME=VALUE",
            )
            .into());
        };
        event.headers.push((name.to_owned(), value.to_owned()));
    }
    Ok(event)
}

fn aggregate_version(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "aggregateVersion: {text:?} is not a whole number between 0 and {}",
            postrider_contract::INTEGER_MAX
        )
    })
}

fn occurred_at(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|error| format!("occurredAt: {error}"))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    open_input(path)?
        .take(INPUT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unusable(path, &error))?;
    within_bounds("payload: ", bytes.len())?;
    Ok(bytes)
}

fn within_bounds(place: &str, bytes: usize) -> Result<(), Failure> {
    if bytes <= INPUT_BYTES_MAX {
        return Ok(());
    }
    let what = format!("it is longer than {INPUT_BYTES_MAX} bytes, the most that is read");
    Err(refused(Code::PayloadTooLarge, place, &what).into())
}

fn open_input(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).map_err(|error| unusable(path, &error))?;
    Ok(Box::new(BufReader::new(file)))
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Fault::new(
        Code::FileUnusable,
        format!("{}: {error}", path.display()),
        "",
        "check the path and that this user may read it",
    )
    .into()
}

/// Appends lines in transactions of [`LINES_PER_TRANSACTION`]. What was appended before a line
/// that is refused stays; with event ids in the lines, the whole file can be given again.
async fn bulk(
    args: &Append,
    path: &Path,
    store: &Arc<dyn Store>,
    registry: &Registry,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut input = open_input(path)?;
    let mut summary = Summary {
        schema: "postrider.cli.append-lines/1",
        appended: 0,
        already: 0,
    };
    let mut batch = Vec::new();
    let mut first = 1;
    let mut number = 0_u64;
    loop {
        let mut text = String::new();
        let length = (&mut input)
            .take(INPUT_BYTES_MAX as u64 + 1)
            .read_line(&mut text)
            .map_err(|error| unusable(path, &error))?;
        within_bounds(&at(number + 1), text.len()).map_err(|failure| kept(&summary, failure))?;
        let ended = length == 0;
        if !ended {
            number += 1;
            if !text.trim().is_empty() {
                let event = line::parse(text.trim_end()).map_err(|what| {
                    before(&summary, refused(Code::EventInvalid, &at(number), &what))
                })?;
                check(registry, &event, Some(number)).map_err(|failure| kept(&summary, failure))?;
                batch.push(event);
            }
        }
        if batch.len() >= LINES_PER_TRANSACTION || (ended && !batch.is_empty()) {
            let place = format!("lines {first} to {number}: ");
            let appended = store
                .append(std::mem::take(&mut batch))
                .await
                .map_err(|error| kept(&summary, refusal(&error, &place)))?;
            for one in appended {
                if one.already {
                    summary.already += 1;
                } else {
                    summary.appended += 1;
                }
            }
            first = number + 1;
        }
        if ended {
            break;
        }
    }
    if args.format.json {
        output::json(out, &summary)?;
    } else {
        let Summary {
            appended, already, ..
        } = summary;
        writeln!(out, "appended {appended}, {already} were there already")?;
    }
    Ok(())
}

fn at(line: u64) -> String {
    format!("line {line}: ")
}

/// Says what an interrupted file left behind.
fn before(summary: &Summary, mut fault: Fault) -> Failure {
    let done = summary.appended + summary.already;
    if done > 0 {
        fault.means = format!(
            "{done} events of earlier lines are appended; nothing of this transaction is. With an event_id in each line the file can be given again."
        );
    }
    fault.into()
}

fn kept(summary: &Summary, failure: Failure) -> Failure {
    match failure.faults.into_iter().next() {
        Some(fault) => before(summary, fault),
        None => Failure {
            exit: failure.exit,
            faults: Vec::new(),
        },
    }
}
