//! How far a durable consumer has come, as the server keeps it.

use postrider_transport::{ConsumerPosition, Error};
use serde::Deserialize;

use crate::{
    link::Link,
    stream::{self, ApiError},
};

/// The part of `CONSUMER.INFO` that matters.
#[derive(Deserialize)]
struct Info {
    config: Config,
    ack_floor: Floor,
    /// Delivered and not acknowledged.
    num_ack_pending: u64,
    /// Not delivered yet.
    num_pending: u64,
}

#[derive(Deserialize)]
struct Config {
    ack_policy: String,
}

#[derive(Deserialize)]
struct Floor {
    stream_seq: u64,
}

pub(crate) const CONSUMER_NOT_FOUND: u64 = 10014;

pub(crate) async fn position(
    link: &Link,
    stream: &str,
    consumer: &str,
) -> Result<ConsumerPosition, Error> {
    let cannot = |code, message| Err(Error::Misconfigured { code, message });
    // It becomes a part of a subject.
    let special = |byte: u8| !byte.is_ascii_graphic() || b".*>/\\".contains(&byte);
    if consumer.is_empty() || consumer.bytes().any(special) {
        return cannot(
            "consumer_name",
            format!("{consumer:?} cannot be the name of a JetStream consumer"),
        );
    }
    let place = format!("{stream}.{consumer}");
    let asked = stream::ask(link, "CONSUMER.INFO", &place, &serde_json::json!({})).await;
    let info: Info = match asked {
        Ok(info) => info,
        Err(ApiError::Refused {
            code: CONSUMER_NOT_FOUND,
            ..
        }) => {
            return cannot(
                "consumer_missing",
                format!(
                    "stream {stream} has no consumer {consumer:?}; only a durable one stays when \
                     nobody reads"
                ),
            );
        }
        Err(error) => return Err(error.into()),
    };
    if info.config.ack_policy == "none" {
        return cannot(
            "consumer_no_ack",
            format!(
                "consumer {consumer:?} of stream {stream} acknowledges nothing, so what it has \
                 worked through is not known; give it the ack policy \"explicit\""
            ),
        );
    }
    let floor = info.ack_floor.stream_seq;
    Ok(ConsumerPosition {
        place: stream.to_owned(),
        confirmed: (floor > 0).then(|| floor.to_string()),
        waiting: Some(info.num_pending + info.num_ack_pending),
        exact: true,
    })
}
