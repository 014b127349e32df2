//! What a failed delivery report came to: the library's error and its word on whether the message
//! may be in the log.

use postrider_core::{Class, Outcome};
use rdkafka::{error::KafkaError, message::BorrowedMessage, types::RDKafkaErrorCode as Code};

/// What the library knows of a message's place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It was never sent, or refused before it was appended.
    Not,
    /// It was sent, and what became of it is not known.
    Possibly,
    /// It is in the log.
    Surely,
}

#[expect(unsafe_code, reason = "the safe wrapper does not have this call")]
pub(crate) fn persistence(message: &BorrowedMessage<'_>) -> Persistence {
    use rdkafka::bindings::{rd_kafka_message_status, rd_kafka_msg_status_t as Status};
    // SAFETY: the pointer is the one that the library gave for this report, it stays valid while
    // `message` is borrowed, and the call only reads a field of it.
    match unsafe { rd_kafka_message_status(message.ptr()) } {
        Status::RD_KAFKA_MSG_STATUS_NOT_PERSISTED => Persistence::Not,
        Status::RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED => Persistence::Possibly,
        Status::RD_KAFKA_MSG_STATUS_PERSISTED => Persistence::Surely,
    }
}

/// Whether a set was refused for its size.
pub(crate) fn is_too_large(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize
    )
}

/// Whether a whole set was refused and one message of it may be the reason.
pub(crate) fn is_of_the_set(code: Code) -> bool {
    is_too_large(code)
        || matches!(
            code,
            Code::InvalidRecord
                | Code::InvalidDifferentRecord
                | Code::InvalidTimestamp
                | Code::UnsupportedForMessageFormat
        )
}

/// The outcome of a message that is not in the log for sure.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the protocol has some hundred errors, and new ones come with each version"
)]
pub(crate) fn of(code: Code, persistence: Persistence) -> Outcome {
    let detail = code.to_string();
    if persistence == Persistence::Not
        && let Some(outcome) = refused(code, &detail)
    {
        return outcome;
    }
    match code {
        Code::MessageTimedOut
        | Code::OperationTimedOut
        | Code::RequestTimedOut
        | Code::TimedOutQueue
        | Code::PurgeQueue
        | Code::PurgeInflight => Outcome::unknown("ack_timeout", &detail),
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::NetworkException => {
            Outcome::unknown("connection_lost", &detail)
        }
        Code::OutOfOrderSequenceNumber
        | Code::DuplicateSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::InvalidProducerIdMapping
        | Code::Fatal
        | Code::Inconsistent
        | Code::GaplessGuarantee
        | Code::Fenced
        | Code::ProducerFenced => Outcome::unknown("producer_ended_unknown", &detail),
        Code::NotEnoughReplicasAfterAppend => Outcome::unknown("under_replicated", &detail),
        // The protocol does not say that a message with another error was not appended.
        _ => Outcome::unknown("broker_error", &detail),
    }
}

/// Errors by which the protocol says that nothing was appended, or by which the library says that
/// nothing was sent. `None`: this error says no such thing.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the protocol has some hundred errors, and new ones come with each version"
)]
fn refused(code: Code, detail: &str) -> Option<Outcome> {
    Some(match code {
        Code::MessageTimedOut | Code::TimedOutQueue | Code::PurgeQueue => {
            Outcome::outage("not_sent", detail)
        }
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::Resolve => {
            Outcome::outage("not_connected", detail)
        }
        Code::Authentication
        | Code::SSL
        | Code::SaslAuthenticationFailed
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => Outcome::outage("not_authorized", detail),
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
            Outcome::outage("topic_missing", detail)
        }
        Code::UnknownPartition => Outcome::outage("partition_missing", detail),
        Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::BrokerNotAvailable
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch => Outcome::outage("no_leader", detail),
        Code::NotEnoughReplicas | Code::ISRInsufficient => {
            Outcome::outage("not_enough_replicas", detail)
        }
        Code::KafkaStorageError | Code::LogDirNotFound => Outcome::outage("storage_error", detail),
        Code::ThrottlingQuotaExceeded => Outcome::outage("throttled", detail),
        Code::QueueFull => Outcome::outage("window_full", detail),
        Code::Fatal
        | Code::GaplessGuarantee
        | Code::Inconsistent
        | Code::State
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::OutOfOrderSequenceNumber => Outcome::outage("producer_ended", detail),
        Code::InvalidRecord
        | Code::InvalidDifferentRecord
        | Code::InvalidTimestamp
        | Code::UnsupportedForMessageFormat => Outcome::rejected("record_refused", detail),
        Code::InvalidTopic => Outcome::rejected("topic_name", detail),
        Code::PolicyViolation => {
            Outcome::retryable(Class::Refusal, "policy_violation", detail, None)
        }
        _ => return None,
    })
}

/// The error code in an error of the library.
pub(crate) fn code_of(error: &KafkaError) -> Code {
    error.rdkafka_error_code().unwrap_or(Code::Fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(code: Code, persistence: Persistence) -> (&'static str, &'static str) {
        match of(code, persistence) {
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
    fn each_error_has_its_row() {
        for (code, row) in [
            (Code::MessageTimedOut, ("outage", "not_sent")),
            (Code::PurgeQueue, ("outage", "not_sent")),
            (Code::TopicAuthorizationFailed, ("outage", "not_authorized")),
            (Code::UnknownTopicOrPartition, ("outage", "topic_missing")),
            (Code::UnknownPartition, ("outage", "partition_missing")),
            (Code::NotLeaderForPartition, ("outage", "no_leader")),
            (Code::NotEnoughReplicas, ("outage", "not_enough_replicas")),
            (Code::KafkaStorageError, ("outage", "storage_error")),
            (Code::ThrottlingQuotaExceeded, ("outage", "throttled")),
            (Code::Fatal, ("outage", "producer_ended")),
            (Code::InvalidRecord, ("rejected", "record_refused")),
            (Code::InvalidTopic, ("rejected", "topic_name")),
            (Code::PolicyViolation, ("refusal", "policy_violation")),
            // Nothing says that these were not appended.
            (Code::Unknown, ("unknown", "broker_error")),
            (Code::RequestTimedOut, ("unknown", "ack_timeout")),
        ] {
            assert_eq!(word(code, Persistence::Not), row, "{code:?}");
        }
    }

    /// What was sent once is unknown whatever was said last.
    #[test]
    fn what_may_be_there_is_never_called_refused() {
        for (code, row) in [
            (Code::MessageTimedOut, "ack_timeout"),
            (Code::PurgeQueue, "ack_timeout"),
            (Code::PurgeInflight, "ack_timeout"),
            (Code::BrokerTransportFailure, "connection_lost"),
            (Code::OutOfOrderSequenceNumber, "producer_ended_unknown"),
            (Code::NotEnoughReplicasAfterAppend, "under_replicated"),
            (Code::InvalidRecord, "broker_error"),
        ] {
            assert_eq!(
                word(code, Persistence::Possibly),
                ("unknown", row),
                "{code:?}"
            );
        }
    }
}
