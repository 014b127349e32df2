//! Whether a topic is what the destination's definition says, and fits its use. Read-only.

use std::{collections::BTreeMap, time::Duration};

use postrider_contract::destination::{Durability, Key};
use postrider_transport::{Error, Problem, Severity, Usage};

use crate::{
    connection::Settings,
    link::Link,
    place::Place,
    topics::{self, Topic},
};

/// Below this a quorum is no more than one broker.
pub(crate) const QUORUM_REPLICAS: usize = 3;
/// A topic that forgets sooner than this cannot show an operator what was delivered.
const AGE_MIN: Duration = Duration::from_secs(3600);
/// Topics of one template whose settings are looked at.
const TOPICS_MAX: usize = 50;

pub(crate) fn problems(
    link: &Link,
    place: &Place,
    settings: &Settings,
    usage: &Usage,
) -> Result<Vec<Problem>, Error> {
    let only = place.constant.as_deref();
    let topics = topics::list(link.client(), only, settings.api_timeout)
        .map_err(|error| topics::unavailable(&error))?;
    let topics: Vec<Topic> = topics
        .into_iter()
        .filter(|topic| place.makes(&topic.name))
        .collect();
    let mut found = Vec::new();
    if topics.is_empty() {
        let pattern = place.pattern();
        found.push(match only {
            Some(topic) => refused(
                "topic_missing",
                format!("there is no topic {topic:?}; create it, or run `provision`"),
            ),
            None => warning(
                "topics_missing",
                format!("there is no topic like {pattern:?}; events wait until theirs is created"),
            ),
        });
        return Ok(found);
    }
    for topic in topics.iter().take(TOPICS_MAX) {
        shape(place, topic, &mut found);
        match topics::describe(settings, &topic.name) {
            Ok(config) => configured(place, settings, usage, topic, &config, &mut found),
            Err(why) => found.push(warning(
                "config_unreadable",
                format!(
                    "the settings of topic {:?} cannot be read ({why}), so retention, its own size \
                 limit and min.insync.replicas are not checked; allow DescribeConfigs on it",
                    topic.name
                ),
            )),
        }
    }
    if place.durability == Durability::Synced {
        found.push(warning(
            "sync_not_visible",
            "the destination asks for durability synced; a \
            broker acknowledges before fsync unless flush.messages is 1, which costs most of its \
            throughput; ask for replicated instead"
                .to_owned(),
        ));
    }
    Ok(found)
}

fn shape(place: &Place, topic: &Topic, found: &mut Vec<Problem>) {
    let Topic {
        name,
        partitions,
        replicas,
        leaderless,
    } = topic;
    if let Some(own) = place.explicit.filter(|own| own >= partitions) {
        found.push(refused("partition_missing", format!(
            "the target names partition {own}, and topic {name:?} has {partitions}, counted from \
             0; name another one, or add partitions"
        )));
    }
    if *leaderless > 0 {
        found.push(warning("no_leader", format!(
            "{leaderless} of {partitions} partitions of topic {name:?} have no leader now: what \
             goes there waits; look at the brokers"
        )));
    }
    if place.durability == Durability::Replicated && *replicas < QUORUM_REPLICAS {
        found.push(refused(
            "replicas_too_few",
            format!(
                "the destination asks for durability replicated, which takes {QUORUM_REPLICAS} \
             replicas, and topic {name:?} has {replicas}; raise its replication factor"
            ),
        ));
    }
}

fn configured(
    place: &Place,
    settings: &Settings,
    usage: &Usage,
    topic: &Topic,
    config: &BTreeMap<String, String>,
    found: &mut Vec<Problem>,
) {
    let name = &topic.name;
    let number = |key: &str| config.get(key).and_then(|text| text.parse::<i64>().ok());
    let own = i64::from(settings.message_bytes_max);
    let limit = number("max.message.bytes").map_or(own, |limit| limit.min(own));
    let needed = i64::try_from(usage.message_bytes_max).unwrap_or(i64::MAX);
    if limit < needed {
        found.push(warning("size_limit", format!(
            "messages may have up to {needed} bytes with headers, and {name:?} takes {limit} (the \
             smaller one of its max.message.bytes and our message_bytes_max); larger ones will be \
             quarantined"
        )));
    }
    if place.durability == Durability::Replicated
        && let Some(insync) = number("min.insync.replicas").filter(|insync| *insync < 2)
    {
        found.push(refused("min_insync_too_few", format!(
            "the destination asks for durability replicated, and topic {name:?} acknowledges with \
             {insync} replica in sync; set min.insync.replicas to 2"
        )));
    }
    if config
        .get("unclean.leader.election.enable")
        .is_some_and(|on| on == "true")
    {
        found.push(warning("unclean_leader_election", format!(
            "topic {name:?} may elect a leader that lacks acknowledged messages, which loses them; \
             set unclean.leader.election.enable to false"
        )));
    }
    let policy = config
        .get("cleanup.policy")
        .map(String::as_str)
        .unwrap_or_default();
    if policy.contains("compact") {
        if place.key == Key::None {
            found.push(refused(
                "compacted_without_key",
                format!(
                    "topic {name:?} is compacted and refuses messages without a key, and the \
                 destination sends none; set key to partition-key"
                ),
            ));
        } else {
            found.push(warning(
                "compacted",
                format!(
                    "topic {name:?} is compacted: later events of a key push out earlier ones, \
                 consumed or not, and a look-up cannot find those"
                ),
            ));
        }
    }
    let needed = AGE_MIN.max(usage.resend_span);
    if !policy.is_empty()
        && policy != "compact"
        && let Some(kept) = number("retention.ms").and_then(|ms| u64::try_from(ms).ok())
        && Duration::from_millis(kept) < needed
    {
        found.push(warning("retention_short", format!(
            "topic {name:?} drops messages after {kept} ms, and look-ups need them for {needed:?}; \
             raise retention.ms"
        )));
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
