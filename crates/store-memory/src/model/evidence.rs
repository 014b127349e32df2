//! The evidence path: a true acknowledgement is kept, whoever brings it and whenever (I5, I6, I7).

use std::ops::Bound;

use postrider_contract::{Timestamp, destination::Ordering};
use postrider_core::{
    DestinationId, Position,
    mutation::{self, Mutation},
    outcome::bounded_detail,
};
use postrider_store::{
    evidence::{DIGEST_CONFLICT, Evidence, Mismatch, Registered, Verdict, compare},
    inspect::QuarantineReason,
};

use super::{END, Finding, Kept, Model, OpenState};

impl Model {
    pub fn accept_receipts(&mut self, evidence: &[Evidence], now: Timestamp) -> Vec<Verdict> {
        evidence
            .iter()
            .map(|piece| self.accept(piece, now))
            .collect()
    }

    fn accept(&mut self, evidence: &Evidence, now: Timestamp) -> Verdict {
        let key = (evidence.destination, evidence.position);
        if let Err(mismatch) = compare(evidence, self.registered(evidence).as_ref())
            && !(mutation::on(Mutation::DigestNotCompared) && mismatch.quarantines)
        {
            return self.refute(key, mismatch, now);
        }
        let kept = Kept {
            attempt: evidence.attempt,
            accepted_at: now,
            receipt: evidence.receipt.clone(),
            late: true,
        };
        let same = |other: &Kept| other.attempt == kept.attempt && other.receipt == kept.receipt;
        if let Some(open) = self.open.remove(&key) {
            if open.waited || open.state != OpenState::Pending {
                self.keep_order_behind(key, open.key_hash);
            }
            self.receipts.insert(key, kept);
            return Verdict::Primary;
        }
        if self.receipts.get(&key).is_some_and(same) {
            return Verdict::Primary;
        }
        if mutation::on(Mutation::DuplicatesDropped) {
            return Verdict::Duplicate;
        }
        let duplicates = self.duplicates.entry(key).or_default();
        if !duplicates.iter().any(same) {
            duplicates.push(kept);
        }
        Verdict::Duplicate
    }

    fn registered(&self, evidence: &Evidence) -> Option<Registered> {
        let attempt = self.attempts.get(&evidence.attempt)?;
        if attempt.destination != evidence.destination
            || attempt.members.binary_search(&evidence.position).is_err()
        {
            return None;
        }
        let event = self.events.get(&evidence.position)?;
        Some(Registered {
            event_id: event.stored.event_id,
            generation: event.generation,
            payload_digest: event.payload_digest,
            destination_digest: self.destinations.get(&evidence.destination)?.digest,
        })
    }

    fn refute(
        &mut self,
        key: (DestinationId, Position),
        mismatch: Mismatch,
        now: Timestamp,
    ) -> Verdict {
        let (destination, position) = key;
        let known = self.findings.iter_mut().find(|finding| {
            finding.code == mismatch.code
                && (finding.destination, finding.position) == key
                && finding.detail == mismatch.finding
        });
        match known {
            Some(finding) => finding.last_seen = now,
            None => self.findings.push(Finding {
                code: mismatch.code.to_owned(),
                destination,
                position,
                detail: mismatch.finding.clone(),
                first_seen: now,
                last_seen: now,
            }),
        }
        if mismatch.quarantines && !mutation::on(Mutation::ConflictNotQuarantined) {
            self.quarantine_conflict(key, &mismatch.finding, now);
        }
        Verdict::Mismatch {
            finding: mismatch.finding,
        }
    }

    /// A delivery that is quarantined already keeps its first reason.
    fn quarantine_conflict(
        &mut self,
        key: (DestinationId, Position),
        finding: &str,
        now: Timestamp,
    ) {
        let Some(open) = self.open.get_mut(&key) else {
            return;
        };
        if matches!(open.state, OpenState::Quarantined(_)) {
            return;
        }
        open.state = OpenState::Quarantined(QuarantineReason {
            code: DIGEST_CONFLICT.to_owned(),
            detail: bounded_detail(finding),
            since: now,
        });
        open.waited = true;
        let key_hash = open.key_hash;
        self.keep_order_behind(key, key_hash);
    }

    /// Marks the next open delivery of the key, so that no scan that started above the tail
    /// overtakes it once it is released.
    fn keep_order_behind(&mut self, (destination, position): (DestinationId, Position), key: i64) {
        if self.destinations[&destination].destination.ordering == Ordering::None {
            return;
        }
        let behind = (
            Bound::Excluded((destination, position)),
            Bound::Included((destination, END)),
        );
        if let Some((_, next)) = self
            .open
            .range_mut(behind)
            .find(|(_, open)| open.key_hash == key)
        {
            next.waited = true;
        }
    }
}
