//! Making the topic of a destination. A topic that is there is never changed: more partitions
//! would move its keys.

use postrider_contract::destination::Durability;
use postrider_transport::{Error, Provisioning, Usage};

use crate::{connection::Settings, link::Link, place::Place, preflight::QUORUM_REPLICAS, topics};

pub(crate) fn provision(
    link: &Link,
    place: &Place,
    settings: &Settings,
    usage: &Usage,
    how: Provisioning,
) -> Result<Vec<String>, Error> {
    let Some(topic) = place.constant.as_deref() else {
        return Err(Error::Misconfigured {
            code: "topics_not_made",
            message: format!(
                "the target makes topics like {:?}, and which ones cannot be known; create them \
                 yourself",
                place.pattern()
            ),
        });
    };
    let there = topics::list(link.client(), Some(topic), settings.api_timeout)
        .map_err(|error| topics::unavailable(&error))?;
    if there.iter().any(|found| found.name == topic) {
        return Ok(Vec::new());
    }
    let quorum = u32::try_from(QUORUM_REPLICAS).unwrap_or(u32::MAX);
    let replicas = match place.durability {
        Durability::Replicated => settings.provision.replicas.max(quorum),
        Durability::Stored | Durability::Synced => settings.provision.replicas,
    };
    let bytes = usage
        .message_bytes_max
        .max(settings.message_bytes_max.into())
        .to_string();
    let mut config = vec![("max.message.bytes", bytes.as_str())];
    if replicas >= quorum {
        config.push(("min.insync.replicas", "2"));
    }
    let partitions = settings.provision.partitions;
    let with: Vec<String> = config
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let line = format!(
        "create topic {topic} with {partitions} partitions, {replicas} replicas, {}",
        with.join(", ")
    );
    match how {
        Provisioning::Preview => {}
        Provisioning::Make => topics::create(settings, topic, replicas, &config)?,
    }
    Ok(vec![line])
}
