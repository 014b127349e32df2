//! What the cluster says of its topics, and making one. Everything here blocks.

use std::{collections::BTreeMap, time::Duration};

use postrider_transport::Error;
use rdkafka::{
    admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    client::{Client, ClientContext, DefaultClientContext},
    error::KafkaError,
    types::RDKafkaErrorCode as Code,
};

use crate::connection::Settings;

/// One topic, as the brokers describe it.
#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) partitions: u32,
    /// Of the partition that has the fewest.
    pub(crate) replicas: usize,
    /// Partitions that nobody leads at the moment.
    pub(crate) leaderless: usize,
}

/// All topics, or the one named if it is there.
pub(crate) fn list<C: ClientContext>(
    client: &Client<C>,
    only: Option<&str>,
    timeout: Duration,
) -> Result<Vec<Topic>, KafkaError> {
    let metadata = client.fetch_metadata(only, timeout)?;
    let there = metadata
        .topics()
        .iter()
        .filter(|topic| topic.error().is_none() && !topic.partitions().is_empty());
    Ok(there
        .map(|topic| Topic {
            name: topic.name().to_owned(),
            partitions: u32::try_from(topic.partitions().len()).unwrap_or(u32::MAX),
            replicas: topic
                .partitions()
                .iter()
                .map(|p| p.replicas().len())
                .min()
                .unwrap_or(0),
            leaderless: topic.partitions().iter().filter(|p| p.leader() < 0).count(),
        })
        .collect())
}

fn admin(settings: &Settings) -> Result<AdminClient<DefaultClientContext>, Error> {
    settings
        .client()
        .create()
        .map_err(|error: KafkaError| unavailable(&error))
}

fn options(settings: &Settings) -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(settings.api_timeout))
        .operation_timeout(Some(settings.api_timeout))
}

/// The settings of a topic. The error says why they cannot be read.
pub(crate) fn describe(
    settings: &Settings,
    topic: &str,
) -> Result<BTreeMap<String, String>, String> {
    let admin = admin(settings).map_err(|error| error.to_string())?;
    let asked = [ResourceSpecifier::Topic(topic)];
    let described = tokio::runtime::Handle::current()
        .block_on(admin.describe_configs(asked.iter(), &options(settings)))
        .map_err(|error| error.to_string())?;
    let one = described.into_iter().next().ok_or("no answer")?;
    let entries = one.map_err(|code| code.to_string())?.entries;
    Ok(entries
        .into_iter()
        .filter_map(|entry| Some((entry.name, entry.value?)))
        .collect())
}

/// Makes a topic. One that is there by now is as good.
pub(crate) fn create(
    settings: &Settings,
    topic: &str,
    replicas: u32,
    config: &[(&str, &str)],
) -> Result<(), Error> {
    let admin = admin(settings)?;
    let partitions = i32::try_from(settings.provision.partitions).unwrap_or(i32::MAX);
    let replicas = i32::try_from(replicas).unwrap_or(i32::MAX);
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(replicas));
    for (key, value) in config {
        new = new.set(key, value);
    }
    let made = tokio::runtime::Handle::current()
        .block_on(admin.create_topics([&new], &options(settings)))
        .map_err(|error| unavailable(&error))?;
    match made.into_iter().next() {
        Some(Ok(_)) | Some(Err((_, Code::TopicAlreadyExists))) => Ok(()),
        Some(Err((_, code))) => Err(Error::Misconfigured {
            code: "topic_not_made",
            message: format!("topic {topic:?} cannot be made: {code}"),
        }),
        None => Err(Error::Unavailable {
            code: "api_silent",
            message: format!("nobody said whether topic {topic:?} was made"),
        }),
    }
}

pub(crate) fn unavailable(error: &KafkaError) -> Error {
    Error::Unavailable {
        code: "api_silent",
        message: error.to_string(),
    }
}
