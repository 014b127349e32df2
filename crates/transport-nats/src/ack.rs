//! What a server's answer to a publish means: the documented table, in code.

use postrider_contract::Receipt;
use postrider_core::{Class, Outcome};
use serde::Deserialize;

use crate::protocol::Delivered;

/// The status that the server itself answers with when nobody listens.
const NO_RESPONDERS: u16 = 503;

/// The body of a PubAck, borrowed from the message.
#[derive(Deserialize)]
struct PubAck<'a> {
    #[serde(borrow, default)]
    stream: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    seq: u64,
    #[serde(borrow, default)]
    domain: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    duplicate: bool,
    #[serde(borrow, default)]
    error: Option<ApiError<'a>>,
}

#[derive(Deserialize)]
struct ApiError<'a> {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    err_code: u32,
    #[serde(borrow, default)]
    description: std::borrow::Cow<'a, str>,
}

/// The outcome that an answer tells of. `expected`: the stream that must have stored it.
pub(crate) fn outcome(answer: &Delivered<'_>, expected: &str) -> Outcome {
    if answer.status == Some(NO_RESPONDERS) {
        return Outcome::outage(
            "no_responders",
            "no stream takes this subject, or JetStream is off or has no leader",
        );
    }
    let Ok(ack) = serde_json::from_slice::<PubAck<'_>>(answer.body) else {
        return Outcome::unknown(
            "ack_unreadable",
            "the answer is not a JetStream acknowledgement",
        );
    };
    if let Some(error) = &ack.error {
        return refusal(error);
    }
    match ack.stream {
        Some(stream) if stream == expected && ack.seq > 0 => {
            Outcome::Acknowledged(Receipt::JetStream {
                stream: stream.into_owned(),
                sequence: ack.seq,
                domain: ack.domain.map(std::borrow::Cow::into_owned),
                duplicate: ack.duplicate,
            })
        }
        // Cannot happen while the expected-stream header is honoured. It is stored somewhere, yet
        // this is not the evidence that was asked for.
        Some(stream) => Outcome::unknown(
            "ack_of_another_stream",
            &format!("stream {stream:?} answered with sequence {}", ack.seq),
        ),
        None => Outcome::unknown("ack_unreadable", "the acknowledgement names no stream"),
    }
}

/// An error answer: the message was not stored.
fn refusal(error: &ApiError<'_>) -> Outcome {
    let detail = format!("{} (error {})", error.description, error.err_code);
    match error.err_code {
        10059 => Outcome::outage("stream_missing", &detail),
        10060 => Outcome::outage("wrong_stream", &detail),
        10035 | 10039 | 10076 => Outcome::outage("jetstream_off", &detail),
        10109 => Outcome::outage("stream_sealed", &detail),
        10118 | 10194 => Outcome::outage("stream_offline", &detail),
        10002 | 10023 | 10028 | 10047 | 10122 => Outcome::outage("no_resources", &detail),
        // The store refused it: a limit of the stream with discard "new", or a full disk.
        10077 if error.description.contains("per subject") => {
            Outcome::retryable(Class::Refusal, "subject_full", &detail, None)
        }
        10077 => Outcome::outage("stream_full", &detail),
        10004 | 10006 | 10008 | 10009 => Outcome::outage("no_leader", &detail),
        10167 => Outcome::outage("server_busy", &detail),
        10054 => Outcome::rejected("message_too_large", &detail),
        10097 => Outcome::rejected("headers_too_large", &detail),
        10063 | 10070 | 10071 | 10111 | 10164 => Outcome::rejected("expectation_failed", &detail),
        10165 | 10166 => Outcome::rejected("ttl_not_allowed", &detail),
        // A copy with this id is being stored right now: what becomes of it, nobody knows yet.
        10158 => Outcome::unknown("duplicate_in_process", &detail),
        _ if error.code == 503 || error.code == 429 => {
            Outcome::outage("server_unavailable", &detail)
        }
        _ => Outcome::retryable(Class::Refusal, "refused", &detail, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &str) -> Outcome {
        outcome(
            &Delivered {
                subject: "r",
                status: None,
                body: body.as_bytes(),
            },
            "S",
        )
    }

    fn error(err_code: u32, code: u16, description: &str) -> (&'static str, &'static str) {
        kind(&answer(&format!(
            "{{\"type\":\"x\",\"error\":{{\"code\":{code},\"err_code\":{err_code},\
             \"description\":\"{description}\"}},\"stream\":\"S\",\"seq\":0}}"
        )))
    }

    fn kind(outcome: &Outcome) -> (&'static str, &'static str) {
        match outcome {
            Outcome::Acknowledged(_) => ("acknowledged", ""),
            Outcome::Retryable {
                class: Class::Outage,
                code,
                ..
            } => ("outage", code),
            Outcome::Retryable {
                class: Class::Refusal,
                code,
                ..
            } => ("refusal", code),
            Outcome::Retryable {
                class: Class::Held,
                code,
                ..
            } => ("held", code),
            Outcome::Rejected { code, .. } => ("rejected", code),
            Outcome::Unknown { code, .. } => ("unknown", code),
        }
    }

    #[test]
    fn an_acknowledgement_names_the_expected_stream_and_a_sequence() {
        let receipt = |domain: Option<&str>, duplicate| {
            Outcome::Acknowledged(Receipt::JetStream {
                stream: "S".to_owned(),
                sequence: 7,
                domain: domain.map(str::to_owned),
                duplicate,
            })
        };
        assert_eq!(answer("{\"stream\":\"S\",\"seq\":7}"), receipt(None, false));
        let hub = "{\"stream\":\"S\",\"domain\":\"hub\",\"seq\":7,\"duplicate\": true,\"new\":1}";
        assert_eq!(answer(hub), receipt(Some("hub"), true));
        for (body, code) in [
            ("{\"stream\":\"T\",\"seq\":7}", "ack_of_another_stream"),
            ("{\"stream\":\"S\",\"seq\":0}", "ack_of_another_stream"),
            ("{\"seq\":7}", "ack_unreadable"),
            ("{}", "ack_unreadable"),
            ("+ACK", "ack_unreadable"),
            ("", "ack_unreadable"),
        ] {
            assert_eq!(kind(&answer(body)), ("unknown", code), "{body}");
        }
    }

    #[test]
    fn each_refusal_has_its_row() {
        let nobody = Delivered {
            subject: "r",
            status: Some(503),
            body: b"",
        };
        assert_eq!(kind(&outcome(&nobody, "S")), ("outage", "no_responders"));
        for (code, row) in [
            (10059, ("outage", "stream_missing")),
            (10060, ("outage", "wrong_stream")),
            (10076, ("outage", "jetstream_off")),
            (10039, ("outage", "jetstream_off")),
            (10109, ("outage", "stream_sealed")),
            (10118, ("outage", "stream_offline")),
            (10047, ("outage", "no_resources")),
            (10023, ("outage", "no_resources")),
            (10008, ("outage", "no_leader")),
            (10167, ("outage", "server_busy")),
            (10054, ("rejected", "message_too_large")),
            (10097, ("rejected", "headers_too_large")),
            (10070, ("rejected", "expectation_failed")),
            (10071, ("rejected", "expectation_failed")),
            (10166, ("rejected", "ttl_not_allowed")),
            (10158, ("unknown", "duplicate_in_process")),
            (99_999, ("refusal", "refused")),
        ] {
            assert_eq!(error(code, 400, "x"), row, "{code}");
        }
        assert_eq!(
            error(10077, 503, "maximum bytes exceeded"),
            ("outage", "stream_full")
        );
        let per_subject = "maximum messages per subject exceeded";
        assert_eq!(error(10077, 503, per_subject), ("refusal", "subject_full"));
        assert_eq!(error(99_999, 503, "x"), ("outage", "server_unavailable"));
        assert_eq!(error(99_999, 429, "x"), ("outage", "server_unavailable"));
    }

    #[test]
    fn details_are_bounded_and_hold_no_line_breaks() {
        let Outcome::Retryable { detail, .. } = Outcome::outage("x", &"a\n".repeat(2_000)) else {
            panic!()
        };
        assert!(detail.len() <= 512 && !detail.contains('\n'));
    }
}
