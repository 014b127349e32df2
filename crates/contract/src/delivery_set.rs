//! A delivery set: which destinations each exact (event type, schema version) must reach.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Digest, INTEGER_MAX, Invalid, Receipt,
    canonical::{self, ReadError},
    digest::Algorithm,
    envelope::DeliverySetRef,
    invalid, schema, text,
};

/// Most applicable events and most members of one set: a set is read whole.
pub const ITEMS_MAX: usize = 10_000;

/// The name that every such object carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schema {
    #[serde(rename = "postrider.delivery-set/1")]
    V1,
}

/// `postrider.delivery-set/1`: immutable and content-addressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliverySet {
    pub schema: Schema,
    /// 1, 2, …: which set it is, for people. The digest is its identity.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    pub version: u64,
    #[schemars(range(min = 0, max = 10_000))]
    pub applicable_event_count: u64,
    /// Sorted by (eventType, schemaVersion), no duplicates.
    #[schemars(length(max = 10_000), extend("uniqueItems" = true))]
    pub applicable_events: Vec<ApplicableEvent>,
    #[schemars(range(min = 0, max = 10_000))]
    pub member_count: u64,
    /// Sorted by (eventType, schemaVersion, destination name, consumer), no duplicates.
    #[schemars(length(max = 10_000), extend("uniqueItems" = true))]
    pub members: Vec<Member>,
}

/// An exact (event type, schema version): no wildcard, no alias, no "latest".
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicableEvent {
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub event_type: String,
    #[schemars(length(min = 1, max = 64), regex(pattern = schema::NAME))]
    pub schema_version: String,
}

/// A destination that an event must reach, and what proves that it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub event_type: String,
    #[schemars(length(min = 1, max = 64), regex(pattern = schema::NAME))]
    pub schema_version: String,
    /// The destination's name; its exact version is `destinationDigest`.
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub destination: String,
    pub destination_digest: Digest,
    /// Who is served through the destination.
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub consumer: String,
    /// The receipt that closes a delivery: a transport's type, or the consumer's own.
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub expected_receipt_type: String,
    #[schemars(length(min = 1, max = 64), regex(pattern = schema::NAME))]
    pub expected_receipt_schema_version: String,
    /// The projection that the receipt must name.
    pub projection_target: ProjectionTarget,
    /// A mandatory member must be acknowledged before its event may be purged.
    pub mandatory: bool,
}

/// Whether the consumer must have applied the event to a projection, and to which version of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "state", deny_unknown_fields)]
pub enum ProjectionTarget {
    /// The receipt proves no projection.
    NotApplicable {},
    /// The receipt counts only if it names exactly this projection and version.
    #[serde(rename_all = "camelCase")]
    Required {
        #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
        projection_name: String,
        #[schemars(length(min = 1, max = 64), regex(pattern = schema::NAME))]
        projection_version: String,
    },
}

impl DeliverySet {
    /// A set of these events and members, put in order and counted. Nothing is checked.
    #[must_use]
    pub fn new(
        version: u64,
        mut applicable_events: Vec<ApplicableEvent>,
        mut members: Vec<Member>,
    ) -> Self {
        let count = |length: usize| u64::try_from(length).expect("a length fits 64 bits");
        applicable_events.sort();
        members.sort_by(|a, b| a.place().cmp(&b.place()));
        Self {
            schema: Schema::V1,
            version,
            applicable_event_count: count(applicable_events.len()),
            applicable_events,
            member_count: count(members.len()),
            members,
        }
    }

    /// The canonical bytes: what is stored and digested.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::to_string(self)
    }

    /// The digest of [`DeliverySet::canonical`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_canonical(&self.canonical())
    }

    /// What events freeze of this set.
    #[must_use]
    pub fn reference(&self) -> DeliverySetRef {
        DeliverySetRef {
            version: self.version,
            digest: self.digest(),
        }
    }

    /// Reads a delivery set from any JSON text that says the same, and checks every rule.
    ///
    /// # Errors
    /// When the text is not strict JSON, has unknown or missing members, or a rule is broken.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        canonical::read("postrider.delivery-set/1", text, Self::validate)
    }

    /// Reads a delivery set that was stored, and so checked, before. Only its shape is looked at.
    ///
    /// # Errors
    /// When the text is not a delivery set.
    pub fn from_stored(text: &str) -> Result<Self, ReadError> {
        canonical::read_stored("postrider.delivery-set/1", text)
    }

    /// Whether events of this exact pair may be appended under this set.
    #[must_use]
    pub fn applies_to(&self, event_type: &str, schema_version: &str) -> bool {
        let pair = |event: &ApplicableEvent| {
            (event.event_type.as_str(), event.schema_version.as_str())
                .cmp(&(event_type, schema_version))
        };
        self.applicable_events.binary_search_by(pair).is_ok()
    }

    /// The members that an event of this exact pair must reach: neighbours, by the set's order.
    #[must_use]
    pub fn members_of(&self, event_type: &str, schema_version: &str) -> &[Member] {
        let pair = (event_type, schema_version);
        let start = self.members.partition_point(|member| member.pair() < pair);
        let end = self.members.partition_point(|member| member.pair() <= pair);
        &self.members[start..end]
    }

    /// Checks every rule: bounds, counts, order, no duplicates, every member's event applies,
    /// one consumer per (event, destination), one digest per destination, and the receipt that a
    /// member expects fits its projection target.
    ///
    /// # Errors
    /// Names the first place where a rule is broken.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::range("version", self.version, 1, INTEGER_MAX)?;
        counted(
            "applicableEvent",
            self.applicable_event_count,
            self.applicable_events.len(),
        )?;
        counted("member", self.member_count, self.members.len())?;
        for (index, event) in self.applicable_events.iter().enumerate() {
            event
                .validate()
                .map_err(|e| e.within(&format!("applicableEvents[{index}]")))?;
        }
        ordered("applicableEvents", &self.applicable_events, |event| event)?;
        for (index, member) in self.members.iter().enumerate() {
            member
                .validate()
                .map_err(|e| e.within(&format!("members[{index}]")))?;
        }
        ordered("members", &self.members, Member::place)?;
        for (index, member) in self.members.iter().enumerate() {
            if !self.applies_to(&member.event_type, &member.schema_version) {
                return Err(Invalid::inconsistent(
                    format!("members[{index}].eventType"),
                    format!(
                        "names {} version {}, which is not in applicableEvents; add it there",
                        member.event_type, member.schema_version
                    ),
                ));
            }
        }
        self.one_consumer()?;
        self.one_digest()?;
        self.receipts_fit()
    }

    /// In order, members with the same event and destination are neighbours.
    fn one_consumer(&self) -> Result<(), Invalid> {
        for (index, pair) in self.members.windows(2).enumerate() {
            if pair[0].pair() == pair[1].pair() && pair[0].destination == pair[1].destination {
                return Err(Invalid::inconsistent(
                    format!("members[{}].consumer", index + 1),
                    format!(
                        "is the second consumer ({}, after {}) of {} version {} at destination \
                         {}; one destination serves one consumer per event, so add a destination",
                        pair[1].consumer,
                        pair[0].consumer,
                        pair[1].event_type,
                        pair[1].schema_version,
                        pair[1].destination
                    ),
                ));
            }
        }
        Ok(())
    }

    fn one_digest(&self) -> Result<(), Invalid> {
        let mut digests = BTreeMap::new();
        for (index, member) in self.members.iter().enumerate() {
            let first = digests
                .entry(&member.destination)
                .or_insert(member.destination_digest);
            if *first != member.destination_digest {
                return Err(Invalid::inconsistent(
                    format!("members[{index}].destinationDigest"),
                    format!(
                        "is another version of destination {} than earlier members name; a set \
                         holds one version of a destination",
                        member.destination
                    ),
                ));
            }
        }
        Ok(())
    }

    /// One receipt contract proves one thing everywhere: either that a projection was applied,
    /// or something else. A broker's acceptance never proves a projection.
    fn receipts_fit(&self) -> Result<(), Invalid> {
        let mut proves_projection = BTreeMap::new();
        for (index, member) in self.members.iter().enumerate() {
            let field = || format!("members[{index}].projectionTarget");
            let required = match member.projection_target {
                ProjectionTarget::Required { .. } => true,
                ProjectionTarget::NotApplicable {} => false,
            };
            if required && Receipt::is_transport_kind(&member.expected_receipt_type) {
                return Err(Invalid::inconsistent(
                    field(),
                    format!(
                        "requires a projection, which a {} receipt cannot prove; expect the \
                         consumer's own receipt type",
                        member.expected_receipt_type
                    ),
                ));
            }
            let contract = (
                &member.expected_receipt_type,
                &member.expected_receipt_schema_version,
            );
            let first = *proves_projection.entry(contract).or_insert(required);
            if first != required {
                return Err(Invalid::inconsistent(
                    field(),
                    format!(
                        "does not fit: other members that expect {} version {} {} a projection; \
                         use another receipt type",
                        member.expected_receipt_type,
                        member.expected_receipt_schema_version,
                        if first { "require" } else { "do not require" }
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl ApplicableEvent {
    fn validate(&self) -> Result<(), Invalid> {
        text::event_type(&self.event_type)?;
        text::schema_version(&self.schema_version)
    }
}

impl Member {
    /// The event it is for.
    fn pair(&self) -> (&str, &str) {
        (&self.event_type, &self.schema_version)
    }

    /// What members are ordered and told apart by.
    fn place(&self) -> (&str, &str, &str, &str) {
        (
            &self.event_type,
            &self.schema_version,
            &self.destination,
            &self.consumer,
        )
    }

    fn validate(&self) -> Result<(), Invalid> {
        text::event_type(&self.event_type)?;
        text::schema_version(&self.schema_version)?;
        text::destination(&self.destination)?;
        self.destination_digest
            .expect("destinationDigest", Algorithm::JcsSha256V1)?;
        text::consumer(&self.consumer)?;
        text::name(
            "expectedReceiptType",
            &self.expected_receipt_type,
            text::NAME_MAX,
        )?;
        text::name(
            "expectedReceiptSchemaVersion",
            &self.expected_receipt_schema_version,
            text::VERSION_MAX,
        )?;
        match &self.projection_target {
            ProjectionTarget::NotApplicable {} => Ok(()),
            ProjectionTarget::Required {
                projection_name,
                projection_version,
            } => text::projection_name(projection_name)
                .and_then(|()| {
                    text::name("projectionVersion", projection_version, text::VERSION_MAX)
                })
                .map_err(|invalid| invalid.within("projectionTarget")),
        }
    }
}

fn counted(what: &str, said: u64, length: usize) -> Result<(), Invalid> {
    if length > ITEMS_MAX {
        return Err(Invalid::inconsistent(
            format!("{what}s"),
            format!("holds {length} items, at most {ITEMS_MAX} are allowed"),
        ));
    }
    if u64::try_from(length).is_ok_and(|length| length == said) {
        return Ok(());
    }
    Err(Invalid::inconsistent(
        format!("{what}Count"),
        format!("is {said}, but there are {length}; correct the count or restore what is missing"),
    ))
}

/// Refuses items that are not in ascending order of their key, or not all different.
fn ordered<'a, T, K: Ord + fmt::Debug>(
    field: &str,
    items: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> Result<(), Invalid> {
    for (index, pair) in items.windows(2).enumerate() {
        let (before, after) = (key(&pair[0]), key(&pair[1]));
        let rule = match before.cmp(&after) {
            std::cmp::Ordering::Less => continue,
            std::cmp::Ordering::Equal => "is the same as the one before; remove it",
            std::cmp::Ordering::Greater => "must come before the one before; sort by UTF-8 bytes",
        };
        return Err(Invalid::inconsistent(
            format!("{field}[{}]", index + 1),
            rule,
        ));
    }
    Ok(())
}
