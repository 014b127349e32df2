//! What a destination's frozen definition says, as far as it matters here.

use std::sync::Arc;

use postrider_contract::{
    Destination,
    destination::{Durability, Key, Partitioner, Serializer},
};
use postrider_core::Outcome;
use postrider_transport::{Error, Message, Routing, Template, holds::Holding, target::Alphabet};

use crate::{KIND, RECEIPT_TYPE, partitioner};

/// A topic's name holds letters, digits, `.`, `_` and `-`; there is nothing to encode the rest by.
const ALPHABET: Alphabet = Alphabet {
    punctuation: "",
    target_bytes_max: 249,
};

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) cluster: String,
    pub(crate) key: Key,
    pub(crate) serializer: Serializer,
    pub(crate) durability: Durability,
    pub(crate) holding: Holding,
    /// The one topic, if there is only one.
    pub(crate) constant: Option<Arc<str>>,
    /// The one partition, if the target names it.
    pub(crate) explicit: Option<u32>,
    template: Template,
    partitioner: Partitioner,
}

impl Place {
    pub(crate) fn of(destination: &Destination) -> Result<Self, Error> {
        let name = &destination.name;
        let misfit = |message: String| Error::Misconfigured {
            code: "destination",
            message: format!("{name}: {message}"),
        };
        if destination.kind != KIND {
            return Err(misfit(format!(
                "is of kind {:?}, not {KIND}",
                destination.kind
            )));
        }
        if destination.receipt_type != RECEIPT_TYPE {
            return Err(misfit(format!(
                "asks for receipts of type {:?}; a topic gives {RECEIPT_TYPE}",
                destination.receipt_type
            )));
        }
        let target = &destination.target;
        let (topic, explicit) = match (destination.partitioner, target.rsplit_once('/')) {
            (Partitioner::Explicit, Some((topic, partition))) => match partition.parse::<u32>() {
                Ok(partition) if i32::try_from(partition).is_ok() => (topic, Some(partition)),
                Ok(_) | Err(_) => {
                    return Err(misfit(format!(
                        "the target {target:?} must end with the number of a partition"
                    )));
                }
            },
            (Partitioner::Explicit, None) => {
                return Err(misfit(format!(
                    "the partitioner is explicit, and the target {target:?} names no partition; \
                     write TOPIC/NUMBER"
                )));
            }
            (Partitioner::None | Partitioner::Murmur2 | Partitioner::Crc32, _) => {
                (target.as_str(), None)
            }
        };
        let template = Template::parse(topic, ALPHABET)?;
        let pattern = template.pattern("x");
        if !is_topic(&pattern) {
            return Err(misfit(format!(
                "the target {target:?} cannot be a topic; use letters, digits, dots, _ and - only"
            )));
        }
        let holding = Holding::of(destination);
        let by_key =
            destination.key == Key::PartitionKey && destination.partitioner != Partitioner::None;
        if holding.by_key && explicit.is_none() && !by_key {
            return Err(misfit(
                "orders by key, and its messages go to partitions without regard to the key; set \
                 key to partition-key and a partitioner, or ordering to none"
                    .to_owned(),
            ));
        }
        Ok(Self {
            cluster: destination.cluster.clone(),
            key: destination.key,
            serializer: destination.serializer,
            durability: destination.durability,
            holding,
            constant: template.is_constant().then(|| pattern.into()),
            explicit,
            template,
            partitioner: destination.partitioner,
        })
    }

    pub(crate) fn topic(&self, routing: &Routing) -> Result<Arc<str>, Outcome> {
        if let Some(constant) = &self.constant {
            return Ok(Arc::clone(constant));
        }
        let topic = self.template.render(routing)?;
        if !is_topic(&topic) {
            return Err(Outcome::rejected(
                "topic_name",
                &format!("the target makes {topic:?}, which cannot be a topic"),
            ));
        }
        Ok(topic.into())
    }

    /// The partition of a key among `count`. `None`: any.
    pub(crate) fn partition(&self, partition_key: &str, count: u32) -> Option<u32> {
        if self.explicit.is_some() {
            return self.explicit;
        }
        if self.key == Key::None {
            return None;
        }
        let chosen = partitioner::partition(self.partitioner, partition_key.as_bytes(), count);
        // Where order counts, messages of the empty key stay together.
        chosen.or(self.holding.by_key.then_some(0))
    }

    pub(crate) fn partition_of(&self, message: &Message, count: u32) -> Option<u32> {
        self.partition(&message.partition_key, count)
    }

    /// Whether the target can make this topic.
    pub(crate) fn makes(&self, topic: &str) -> bool {
        fits(&self.template.pattern("*"), topic)
    }

    /// The target as a pattern, for people.
    pub(crate) fn pattern(&self) -> String {
        self.template.pattern("*")
    }
}

fn is_topic(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether a name fits a pattern in which `*` is any text but none.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            (1..=name.len()).any(|at| name.get(at..).is_some_and(|name| fits(rest, name)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_patterns_fit() {
        for good in ["orders", "a.b-c_D9"] {
            assert!(is_topic(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "a%20", "é"] {
            assert!(!is_topic(bad), "{bad}");
        }
        for (pattern, name, expect) in [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("orders.*", "orders.placed", true),
            ("orders.*", "orders.", false),
            ("*.*", "a.b.c", true),
            ("a.*.z", "a.b.y", false),
        ] {
            assert_eq!(fits(pattern, name), expect, "{pattern} {name}");
        }
    }
}
