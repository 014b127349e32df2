//! What is registered: insert or compare, all or nothing.

use postrider_contract::{Destination, EventType, Timestamp};
use postrider_core::{DestinationId, Lane};
use postrider_store::{
    StoreError,
    control::{Applied, Audit, ControlPlane, RegisteredDestination, RegisteredEventType, Registry},
};

use super::{AuditEntry, Model, RegisteredAs, TypeRegistration, refused};

impl Model {
    #[must_use]
    pub fn registry(&self) -> Registry {
        let destinations = self
            .destinations
            .iter()
            .map(|(id, registered)| RegisteredDestination {
                id: *id,
                destination: registered.destination.clone(),
                digest: registered.digest,
                current: self.is_current(&registered.destination),
                suspended: registered.suspended.clone(),
            })
            .collect();
        let mut event_types: Vec<_> = self
            .event_types
            .iter()
            .map(|registration| RegisteredEventType {
                event_type: registration.event_type.clone(),
                current: registration.current,
            })
            .collect();
        // Stable: registrations of one (type, version) keep their order.
        event_types.sort_by(|a, b| name(&a.event_type).cmp(&name(&b.event_type)));
        Registry {
            destinations,
            event_types,
            delivery_set: self
                .active_set
                .and_then(|version| self.delivery_sets.get(&version))
                .map(|(set, _)| set.clone()),
        }
    }

    /// # Errors
    /// As [`Store::apply`](postrider_store::Store::apply).
    pub fn apply(
        &mut self,
        plan: &ControlPlane,
        audit: &Audit,
        now: Timestamp,
    ) -> Result<Applied, StoreError> {
        let mut next = self.clone();
        let applied = next.apply_all(plan)?;
        let changed = u64::from(applied.destinations_added)
            + u64::from(applied.event_types_added)
            + u64::from(applied.delivery_set_activated);
        if changed > 0 {
            next.audit("apply", audit, changed, now);
        }
        *self = next;
        Ok(applied)
    }

    fn apply_all(&mut self, plan: &ControlPlane) -> Result<Applied, StoreError> {
        let mut applied = Applied::default();
        for destination in &plan.destinations {
            applied.destinations_added += u32::from(self.add_destination(destination)?);
        }
        for event_type in &plan.event_types {
            applied.event_types_added += u32::from(self.add_event_type(event_type));
        }
        let set = &plan.delivery_set;
        if let Some(member) = set.members.iter().find(|member| {
            !self
                .destinations
                .values()
                .any(|registered| registered.digest == member.destination_digest)
        }) {
            return Err(refused(format!(
                "delivery set {} names destination {:?} with digest {}, which is not registered",
                set.version, member.destination, member.destination_digest
            )));
        }
        match self.delivery_sets.get(&set.version) {
            Some((existing, _)) if existing != set => {
                return Err(StoreError::AlreadyDifferent {
                    what: format!("delivery set version {}", set.version),
                    existing: existing.digest().to_string(),
                    offered: set.digest().to_string(),
                });
            }
            Some(_) => {}
            None => {
                let registered = (set.clone(), set.digest());
                self.delivery_sets.insert(set.version, registered);
            }
        }
        applied.delivery_set_activated = self.active_set != Some(set.version);
        self.active_set = Some(set.version);
        Ok(applied)
    }

    fn add_destination(&mut self, destination: &Destination) -> Result<bool, StoreError> {
        let digest = destination.digest();
        let existing = self.destinations.values().find(|registered| {
            registered.destination.name == destination.name
                && registered.destination.generation == destination.generation
        });
        if let Some(existing) = existing {
            if existing.digest == digest {
                return Ok(false);
            }
            return Err(StoreError::AlreadyDifferent {
                what: format!(
                    "destination {:?} generation {}",
                    destination.name, destination.generation
                ),
                existing: existing.digest.to_string(),
                offered: digest.to_string(),
            });
        }
        let last = self.destinations.keys().next_back();
        let id = DestinationId(last.map_or(0, |id| id.0) + 1);
        for lane in 0..destination.lanes {
            self.lanes.insert((id, Lane(lane)), None);
        }
        self.destinations.insert(
            id,
            RegisteredAs {
                destination: destination.clone(),
                digest,
                suspended: None,
            },
        );
        Ok(true)
    }

    /// Whether it was added or became current again.
    fn add_event_type(&mut self, event_type: &EventType) -> bool {
        let same_name =
            |registration: &TypeRegistration| name(&registration.event_type) == name(event_type);
        let is_current = self
            .event_types
            .iter()
            .any(|registration| registration.current && registration.event_type == *event_type);
        if is_current {
            return false;
        }
        for registration in self.event_types.iter_mut().filter(|r| same_name(r)) {
            registration.current = false;
        }
        let earlier = self
            .event_types
            .iter_mut()
            .find(|registration| registration.event_type == *event_type);
        match earlier {
            Some(registration) => registration.current = true,
            None => self.event_types.push(TypeRegistration {
                event_type: event_type.clone(),
                current: true,
            }),
        }
        true
    }

    /// `false`: it was not suspended.
    pub fn resume_destination(
        &mut self,
        destination: DestinationId,
        audit: &Audit,
        now: Timestamp,
    ) -> bool {
        let resumed = self
            .destinations
            .get_mut(&destination)
            .is_some_and(|registered| registered.suspended.take().is_some());
        if resumed {
            self.audit("resume_destination", audit, 1, now);
        }
        resumed
    }

    pub(super) fn audit(
        &mut self,
        action: &'static str,
        audit: &Audit,
        changed: u64,
        now: Timestamp,
    ) {
        self.audit.push(AuditEntry {
            at: now,
            action,
            actor: audit.actor.clone(),
            reason: audit.reason.clone(),
            changed,
        });
    }

    fn is_current(&self, destination: &Destination) -> bool {
        !self.destinations.values().any(|other| {
            other.destination.name == destination.name
                && other.destination.generation > destination.generation
        })
    }
}

fn name(event_type: &EventType) -> (&str, &str) {
    (&event_type.event_type, &event_type.schema_version)
}
