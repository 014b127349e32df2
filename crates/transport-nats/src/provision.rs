//! Creating a stream, or altering one so that the destination fits it. Only ever by command.

use std::time::Duration;

use postrider_contract::destination::Durability;
use postrider_transport::{Error, Provisioning, Usage};
use serde_json::{Value, json};

use crate::{
    Place,
    connection::Settings,
    link::Link,
    stream::{self, ApiError, ask},
    subject,
};

/// The server's own default.
const WINDOW_MIN: Duration = Duration::from_secs(120);
/// The server keeps every id of the window in memory, some 100 bytes each: at 1,000 events a
/// second a day is 8 GB. Resends beyond the window are looked up instead.
const WINDOW_MAX: Duration = Duration::from_secs(3600);

pub(crate) async fn provision(
    link: &Link,
    place: &Place,
    settings: &Settings,
    usage: &Usage,
    how: Provisioning,
) -> Result<Vec<String>, Error> {
    let stream = &place.stream;
    let window = usage.resend_span.clamp(WINDOW_MIN, WINDOW_MAX);
    let known: Result<Value, ApiError> = ask(link, "STREAM.INFO", stream, &json!({})).await;
    match known {
        Ok(info) => update(link, place, window, info, how).await,
        Err(ApiError::Refused {
            code: stream::STREAM_NOT_FOUND,
            ..
        }) => create(link, place, settings, window, how).await,
        Err(error) => Err(error.into()),
    }
}

async fn create(
    link: &Link,
    place: &Place,
    settings: &Settings,
    window: Duration,
    how: Provisioning,
) -> Result<Vec<String>, Error> {
    let stream = &place.stream;
    let shape = settings.provision;
    let replicas = match place.durability {
        Durability::Replicated => shape.replicas.max(3),
        Durability::Stored | Durability::Synced => shape.replicas,
    };
    let age = Duration::from_secs(shape.age_max_s.unwrap_or(0));
    // A window longer than the oldest message is refused by the server.
    let window = if age.is_zero() {
        window
    } else {
        window.min(age)
    };
    let config = json!({
        "name": stream,
        "subjects": [place.filter],
        "retention": "limits",
        "storage": "file",
        // A full stream refuses: what does not fit waits here instead of pushing others out.
        "discard": "new",
        "num_replicas": replicas,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": shape.bytes_max.and_then(|max| i64::try_from(max).ok()).unwrap_or(-1),
        "max_msg_size": -1,
        "max_msgs_per_subject": -1,
        "max_age": nanos(age),
        "duplicate_window": nanos(window),
    });
    if how == Provisioning::Make {
        let _: Value = ask(link, "STREAM.CREATE", stream, &config).await?;
    }
    Ok(vec![format!(
        "create stream {stream:?} for {:?}: file storage, replicas {replicas}, discard new, \
         duplicate window {window:?}",
        place.filter
    )])
}

/// Changes what keeps the destination from working, and nothing that may be somebody's choice.
async fn update(
    link: &Link,
    place: &Place,
    window: Duration,
    mut info: Value,
    how: Provisioning,
) -> Result<Vec<String>, Error> {
    let stream = &place.stream;
    let mut done = Vec::new();
    let unreadable = || Error::Unavailable {
        code: "api_refused",
        message: format!("the server's description of stream {stream:?} cannot be read"),
    };
    // The whole configuration goes back, fields unknown to us included.
    let config = info
        .get_mut("config")
        .and_then(Value::as_object_mut)
        .ok_or_else(unreadable)?;

    let is_mirror = config.get("mirror").is_some_and(|mirror| !mirror.is_null());
    let subjects = config.entry("subjects").or_insert_with(|| json!([]));
    let subjects = subjects.as_array_mut().ok_or_else(unreadable)?;
    let covered = subjects
        .iter()
        .filter_map(Value::as_str)
        .any(|own| subject::covers(own, &place.filter));
    if !covered && !is_mirror {
        subjects.retain(|own| {
            !own.as_str()
                .is_some_and(|own| subject::covers(&place.filter, own))
        });
        subjects.push(json!(place.filter));
        done.push(format!(
            "add the subjects {:?} to stream {stream:?}",
            place.filter
        ));
    }

    let number = |field: &str| config.get(field).and_then(Value::as_u64).unwrap_or(0);
    let (age, own) = (number("max_age"), number("duplicate_window"));
    let wanted = if age == 0 {
        nanos(window)
    } else {
        nanos(window).min(age)
    };
    if own < wanted {
        config.insert("duplicate_window".to_owned(), json!(wanted));
        done.push(format!(
            "raise the duplicate window of stream {stream:?} from {:?} to {:?}",
            Duration::from_nanos(own),
            Duration::from_nanos(wanted)
        ));
    }
    if done.is_empty() || how == Provisioning::Preview {
        return Ok(done);
    }
    let config = Value::Object(config.clone());
    let _: Value = ask(link, "STREAM.UPDATE", stream, &config).await?;
    Ok(done)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
