//! What JetStream says about a stream, and how it is asked. Only the fields that matter here are
//! read, so that servers from 2.9 on are understood alike.

use std::time::Duration;

use base64::Engine as _;
use postrider_transport::Error;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::link::Link;

/// The part of `STREAM.INFO` that matters.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Info {
    /// When it was made, in the server's words.
    #[serde(default)]
    pub(crate) created: String,
    pub(crate) config: Config,
    pub(crate) state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) subjects: Vec<String>,
    pub(crate) retention: String,
    pub(crate) discard: String,
    pub(crate) storage: String,
    pub(crate) num_replicas: u64,
    pub(crate) max_msgs: i64,
    pub(crate) max_bytes: i64,
    pub(crate) max_msgs_per_subject: i64,
    pub(crate) max_msg_size: i64,
    /// Nanoseconds; 0: no bound.
    pub(crate) max_age: u64,
    /// Nanoseconds.
    pub(crate) duplicate_window: u64,
    pub(crate) no_ack: bool,
    pub(crate) sealed: bool,
    pub(crate) mirror: Option<serde_json::Value>,
    pub(crate) allow_msg_ttl: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct State {
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    #[serde(default)]
    pub(crate) num_deleted: u64,
}

/// What sending needs to know, kept from the last connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `None`: not known.
    pub(crate) duplicate_window: Option<Duration>,
    /// Headers and body together.
    pub(crate) message_bytes_max: usize,
}

impl Default for Facts {
    fn default() -> Self {
        // The server's own default, until it says something else.
        Self {
            duplicate_window: None,
            message_bytes_max: 1 << 20,
        }
    }
}

impl Facts {
    pub(crate) fn of(info: Option<&Info>, max_payload: usize) -> Self {
        let own = info.and_then(|info| usize::try_from(info.config.max_msg_size).ok());
        let own = own.filter(|max| *max > 0).unwrap_or(usize::MAX);
        Self {
            duplicate_window: info.map(|info| Duration::from_nanos(info.config.duplicate_window)),
            message_bytes_max: own.min(max_payload),
        }
    }
}

/// Why the API gave no answer that could be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("JetStream gave no answer to {call}: {why}")]
    Silent { call: &'static str, why: String },
    #[error("JetStream refused {call}: {description} (error {code})")]
    Refused {
        call: &'static str,
        code: u64,
        description: String,
    },
}

pub(crate) const STREAM_NOT_FOUND: u64 = 10059;
pub(crate) const MESSAGE_NOT_FOUND: u64 = 10037;
const JETSTREAM_OFF: [u64; 3] = [10035, 10039, 10076];

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        let message = error.to_string();
        match error {
            ApiError::Refused {
                code: STREAM_NOT_FOUND,
                ..
            } => Self::Misconfigured {
                code: "stream_missing",
                message,
            },
            ApiError::Refused { code, .. } if JETSTREAM_OFF.contains(&code) => {
                Self::Misconfigured {
                    code: "jetstream_off",
                    message,
                }
            }
            ApiError::Refused { .. } => Self::Unavailable {
                code: "api_refused",
                message,
            },
            ApiError::Silent { .. } => Self::Unavailable {
                code: "api_silent",
                message,
            },
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer<A> {
    Error { error: Fault },
    Good(A),
}

#[derive(Deserialize)]
struct Fault {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// Asks the JetStream API.
pub(crate) async fn ask<Q: Serialize + Sync, A: DeserializeOwned>(
    link: &Link,
    call: &'static str,
    stream: &str,
    question: &Q,
) -> Result<A, ApiError> {
    let silent = |why: String| ApiError::Silent { call, why };
    let question = serde_json::to_vec(question).map_err(|error| silent(error.to_string()))?;
    let answer = link
        .ask(&format!("{call}.{stream}"), &question)
        .await
        .map_err(silent)?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Good(answer)) => Ok(answer),
        Ok(Answer::Error { error }) => Err(ApiError::Refused {
            call,
            code: error.err_code,
            description: error.description,
        }),
        Err(_) => Err(silent("the answer cannot be read".to_owned())),
    }
}

pub(crate) async fn info(link: &Link, stream: &str) -> Result<Info, ApiError> {
    ask(link, "STREAM.INFO", stream, &serde_json::json!({})).await
}

/// A message as the stream stores it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) sequence: u64,
    pub(crate) message_id: Option<String>,
    pub(crate) body: Vec<u8>,
    /// RFC 3339.
    pub(crate) time: String,
}

#[derive(Deserialize)]
struct GetAnswer {
    message: RawMessage,
}

#[derive(Deserialize)]
struct RawMessage {
    seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
    time: String,
}

/// The first message at or after `sequence` on a subject; `None`: there is none.
pub(crate) async fn next(
    link: &Link,
    stream: &str,
    sequence: u64,
    subject: &str,
) -> Result<Option<Stored>, ApiError> {
    let call = "STREAM.MSG.GET";
    let question = serde_json::json!({ "seq": sequence, "next_by_subj": subject });
    let answer: GetAnswer = match ask(link, call, stream, &question).await {
        Ok(answer) => answer,
        Err(ApiError::Refused {
            code: MESSAGE_NOT_FOUND,
            ..
        }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let decode = |text: &str| {
        base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|_| ApiError::Silent {
                call,
                why: "the stored message is not base64".to_owned(),
            })
    };
    let headers = String::from_utf8_lossy(&decode(&answer.message.hdrs)?).into_owned();
    Ok(Some(Stored {
        sequence: answer.message.seq,
        message_id: header(&headers, crate::headers::MESSAGE_ID).map(str::to_owned),
        body: decode(&answer.message.data)?,
        time: answer.message.time,
    }))
}

/// The value of a header in a block of `name: value` lines.
pub(crate) fn header<'a>(block: &'a str, name: &str) -> Option<&'a str> {
    block.lines().find_map(|line| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
