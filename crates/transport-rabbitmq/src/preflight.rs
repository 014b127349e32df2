//! Whether the destination is what its definition says, as far as AMQP lets one see it.

use postrider_contract::destination::Durability;
use postrider_transport::{Error, Problem, Severity, Usage};

use crate::{
    Place,
    ask::{Start, Talk, Unanswered},
    connection::Settings,
    dial::{self, Checked},
    link::Link,
};

pub(crate) async fn problems(
    link: &Link,
    place: &Place,
    settings: &Settings,
    usage: &Usage,
) -> Result<Vec<Problem>, Error> {
    let mut found = Vec::new();
    if dial::identity(link, settings, &place.cluster) == Ok(Checked::Unnamed) {
        found.push(warning(
            "cluster_unnamed",
            format!(
                "the server does not say which cluster it is, so that it is {:?} cannot be \
                 checked; give it `cluster_name`",
                place.cluster
            ),
        ));
    }
    exchange(link, place, &mut found).await?;
    queue(link, place, &mut found).await?;
    let bytes_max = settings.publish_bytes_max as u64;
    if usage.message_bytes_max > bytes_max {
        found.push(warning(
            "size_limit",
            format!(
                "messages of up to {} bytes may come, and publish_bytes_max is {bytes_max}: larger \
                 ones are quarantined; raise it together with the server's max_message_size",
                usage.message_bytes_max
            ),
        ));
    }
    match place.durability {
        Durability::Stored => {}
        durability @ (Durability::Synced | Durability::Replicated) => found.push(warning(
            "durability_not_visible",
            format!(
                "the destination asks for durability {durability:?}, and AMQP does not show what a \
                 queue does; see to it that every queue bound here is a quorum queue or a stream \
                 on at least 3 nodes"
            ),
        )),
    }
    Ok(found)
}

async fn exchange(link: &Link, place: &Place, found: &mut Vec<Problem>) -> Result<(), Error> {
    if place.exchange.is_empty() {
        return Ok(());
    }
    let mut talk = Talk::begin(link).await?;
    match talk.exchange_is_there(&place.exchange).await {
        Ok(()) => talk.done(),
        Err(refusal) if refusal.is_not_found() => found.push(refused(
            "exchange_missing",
            format!(
                "there is no exchange {:?} in this virtual host; run `postrider provision`, or \
                 create it",
                place.exchange
            ),
        )),
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

async fn queue(link: &Link, place: &Place, found: &mut Vec<Problem>) -> Result<(), Error> {
    let Some(queue) = &place.queue else {
        return Ok(());
    };
    let mut talk = Talk::begin(link).await?;
    match talk.messages_ready(queue).await {
        Ok(_) => talk.done(),
        Err(refusal) if refusal.is_not_found() => {
            found.push(refused(
                "queue_missing",
                format!(
                    "there is no queue {queue:?} in this virtual host, and the default exchange \
                     has nowhere else to put messages; run `postrider provision`, or create it"
                ),
            ));
            return Ok(());
        }
        Err(other) => return Err(other.into()),
    }
    if !place.stream {
        return Ok(());
    }
    let mut talk = Talk::begin(link).await?;
    match talk.read_stream(queue, Start::Last, 1).await {
        Ok(()) => {}
        Err(Unanswered::Refused(closed)) if closed.code == 406 => found.push(refused(
            "not_a_stream",
            format!(
                "queue {queue:?} is listed in `streams` and is none, so events can never be looked \
                 for in it ({}); take it off the list, or make it a stream",
                closed.text
            ),
        )),
        Err(Unanswered::Refused(closed)) => found.push(warning(
            "lookup_refused",
            format!(
                "stream {queue:?} cannot be read, so look-ups will fail: {}; grant the user `read` \
                 on it",
                closed.text
            ),
        )),
        Err(silent @ Unanswered::Silent(_)) => return Err(silent.into()),
    }
    Ok(())
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
