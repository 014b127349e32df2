//! Whether a stream is what the destination's definition says, and fits its use. Read-only.

use std::time::Duration;

use postrider_contract::destination::Durability;
use postrider_transport::{Error, Problem, Severity, Usage};

use crate::{
    Place,
    dial::{Checked, identity},
    link::Link,
    stream::{self, ApiError, Config, Info},
    subject,
};

/// Below this a quorum is no more than one server.
const QUORUM_REPLICAS: u64 = 3;
/// A stream that forgets sooner than this cannot show an operator what was delivered.
const AGE_MIN: Duration = Duration::from_secs(3600);

pub(crate) async fn problems(
    link: &Link,
    place: &Place,
    usage: &Usage,
) -> Result<Vec<Problem>, Error> {
    let mut found = Vec::new();
    match identity(link, &place.cluster) {
        Ok(Checked::Matches) => {}
        Ok(Checked::Unnamed) => found.push(warning("cluster_unnamed", format!(
            "the server has no name of its own, so it cannot be told whether it is {:?}; give it \
             server_name, or a cluster its name",
            place.cluster
        ))),
        Err(problem) => found.push(refused("wrong_cluster", problem)),
    }
    let info = match stream::info(link, &place.stream).await {
        Ok(info) => info,
        Err(ApiError::Refused {
            code: stream::STREAM_NOT_FOUND,
            ..
        }) => {
            found.push(refused(
                "stream_missing",
                format!(
                    "there is no stream {:?}; create it, or run `provision`",
                    place.stream
                ),
            ));
            return Ok(found);
        }
        Err(error) => {
            return match Error::from(error) {
                Error::Misconfigured { code, message } => {
                    found.push(refused(code, message));
                    Ok(found)
                }
                error @ Error::Unavailable { .. } => Err(error),
            };
        }
    };
    let config = &info.config;
    writable(place, config, &mut found);
    subjects(place, config, &mut found);
    sizes(link, config, usage, &mut found);
    window(config, usage, &mut found);
    durability(place, config, &mut found);
    retention(config, usage, &mut found);
    readable(link, place, &info, &mut found).await;
    Ok(found)
}

fn writable(place: &Place, config: &Config, found: &mut Vec<Problem>) {
    let stream = &place.stream;
    if config.sealed {
        found.push(refused(
            "stream_sealed",
            format!("stream {stream:?} is sealed: it takes no more messages"),
        ));
    }
    if config.mirror.is_some() {
        found.push(refused(
            "stream_mirror",
            format!("stream {stream:?} is a mirror: publish to its origin instead"),
        ));
    }
    if config.no_ack {
        found.push(refused("stream_no_ack", format!(
            "stream {stream:?} has no_ack set: it never says whether it stored a message; clear it"
        )));
    }
}

fn subjects(place: &Place, config: &Config, found: &mut Vec<Problem>) {
    let filter = &place.filter;
    if config.mirror.is_some()
        || config
            .subjects
            .iter()
            .any(|own| subject::covers(own, filter))
    {
        return;
    }
    let listed = config.subjects.join(", ");
    if config
        .subjects
        .iter()
        .any(|own| subject::overlap(own, filter))
    {
        found.push(warning(
            "subjects_partly_covered",
            format!(
                "the target makes subjects {filter:?}, and the stream takes only some of them \
             ({listed}); others will be refused for want of a stream"
            ),
        ));
    } else {
        found.push(refused("subjects_not_covered", format!(
            "the target makes subjects {filter:?}, and the stream takes none of them ({listed}); \
             add them to the stream, or run `provision`"
        )));
    }
}

fn sizes(link: &Link, config: &Config, usage: &Usage, found: &mut Vec<Problem>) {
    let needed = usage.message_bytes_max;
    let limits = [
        (
            "max_payload of the server",
            u64::try_from(link.info().max_payload).ok(),
        ),
        (
            "max_msg_size of the stream",
            u64::try_from(config.max_msg_size).ok(),
        ),
    ];
    for (name, limit) in limits {
        if let Some(limit) = limit.filter(|limit| (1..needed).contains(limit)) {
            found.push(warning("size_limit", format!(
                "messages may have up to {needed} bytes with headers, and the {name} is {limit}; \
                 larger ones will be quarantined"
            )));
        }
    }
}

fn window(config: &Config, usage: &Usage, found: &mut Vec<Problem>) {
    let window = Duration::from_nanos(config.duplicate_window);
    if window < usage.resend_span {
        found.push(warning("duplicate_window_short", format!(
            "the stream recognises an id for {window:?}, and an event may be sent again up to {:?} \
             after its first send; resends beyond the window cost a look-up each. Raise \
             duplicate_window, or run `provision`",
            usage.resend_span
        )));
    }
}

fn durability(place: &Place, config: &Config, found: &mut Vec<Problem>) {
    let memory = config.storage == "memory";
    match place.durability {
        Durability::Stored => {
            if memory {
                found.push(warning(
                    "storage_memory",
                    "the stream is kept in memory: a restart of \
                     its server loses what was acknowledged; use file storage"
                        .to_owned(),
                ));
            }
        }
        Durability::Synced => {
            if memory {
                found.push(refused(
                    "storage_memory",
                    "the destination asks for durability synced, and the \
                     stream is kept in memory; use file storage"
                        .to_owned(),
                ));
            } else {
                found.push(warning(
                    "sync_not_visible",
                    "the destination asks for durability \
                     synced; a server acknowledges before fsync unless it has `sync_interval: \
                     always` (2.10 and later), which it does not tell; check its configuration"
                        .to_owned(),
                ));
            }
        }
        Durability::Replicated => {
            if config.num_replicas < QUORUM_REPLICAS {
                found.push(refused(
                    "replicas_too_few",
                    format!(
                        "the destination asks for durability replicated, which takes \
                     {QUORUM_REPLICAS} replicas, and the stream has {}; raise num_replicas",
                        config.num_replicas.max(1)
                    ),
                ));
            }
        }
    }
}

fn retention(config: &Config, usage: &Usage, found: &mut Vec<Problem>) {
    let age = Duration::from_nanos(config.max_age);
    let needed = AGE_MIN.max(usage.resend_span);
    if !age.is_zero() && age < needed {
        found.push(warning(
            "max_age_short",
            format!(
                "the stream drops messages after {age:?}, and look-ups need them for {needed:?}"
            ),
        ));
    }
    let bounded = config.max_msgs > 0 || config.max_bytes > 0;
    if bounded && config.discard != "new" {
        found.push(warning("discard_old", format!(
            "the stream is bounded (max_msgs {}, max_bytes {}) and drops its oldest messages when \
             full, consumed or not; discard \"new\" refuses new ones instead, which then wait here",
            config.max_msgs, config.max_bytes
        )));
    }
    if config.max_msgs_per_subject > 0 {
        found.push(warning(
            "max_msgs_per_subject",
            format!(
                "the stream keeps {} messages of a subject: later events push out earlier ones, \
             consumed or not",
                config.max_msgs_per_subject
            ),
        ));
    }
    if config.retention == "interest" {
        found.push(warning(
            "retention_interest",
            "the stream acknowledges and drops a message for \
             which no consumer exists yet; create the consumers first"
                .to_owned(),
        ));
    }
    if config.retention == "workqueue" {
        found.push(warning(
            "retention_workqueue",
            "the stream drops messages once consumed, so a \
             look-up cannot find them again"
                .to_owned(),
        ));
    }
    if config.allow_msg_ttl {
        found.push(warning(
            "message_ttl",
            "the stream lets messages expire one by one; ours have \
             no time to live, yet their absence in a look-up proves nothing"
                .to_owned(),
        ));
    }
}

/// Look-ups need a permission that publishing does not.
async fn readable(link: &Link, place: &Place, info: &Info, found: &mut Vec<Problem>) {
    let last = info.state.last_seq.max(1);
    if let Err(error) = stream::next(link, &place.stream, last, ">").await {
        found.push(warning(
            "lookup_refused",
            format!(
                "stored messages cannot be read, so look-ups will fail: {error}; allow \
             $JS.API.STREAM.MSG.GET.{}",
                place.stream
            ),
        ));
    }
}

fn refused(code: &'static str, message: String) -> Problem {
    Problem {
        code,
        severity: Severity::Refused,
        message,
    }
}

fn warning(code: &'static str, message: String) -> Problem {
    Problem {
        code,
        severity: Severity::Warning,
        message,
    }
}
