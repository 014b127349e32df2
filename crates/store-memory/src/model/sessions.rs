//! Sessions, lanes, and what becomes of a session that ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_contract::{Timestamp, destination::OnUnknown};
use postrider_core::{
    AttemptId, DestinationId, Lane, Position, SessionId,
    mutation::{self, Mutation},
    outcome::bounded_detail,
};
use postrider_store::{
    OpenError, SessionError,
    clock::later,
    inspect::BreakerRow,
    sessions::{BreakerReport, NewSession, Recovered, Share},
};

use super::{Finish, Model, OpenState, Session};

/// The exception of a member whose session was lost.
const LEASE_EXPIRED: &str = "lease_expired_unknown";

/// Why a session ended whose lease was over.
const LEASE_OVER: &str = "lease_expired";

impl Model {
    /// # Errors
    /// As [`Store::open_session`](postrider_store::Store::open_session).
    pub fn open_session(&mut self, new: &NewSession, now: Timestamp) -> Result<(), OpenError> {
        if let Some(session) = self.sessions.get(&new.id) {
            return match session.ended {
                None => Ok(()),
                Some(_) => Err(OpenError::Ended),
            };
        }
        for destination in &new.serves {
            self.destination(*destination)?;
        }
        if new.exclusive {
            self.make_way_for_exclusive(now)?;
        }
        self.sessions.insert(
            new.id,
            Session {
                owner: new.owner.clone(),
                version: new.version.clone(),
                exclusive: new.exclusive,
                serves: new.serves.iter().copied().collect(),
                opened_at: now,
                expires_at: later(now, new.lease),
                asleep: false,
                ended: None,
            },
        );
        Ok(())
    }

    fn make_way_for_exclusive(&mut self, now: Timestamp) -> Result<(), OpenError> {
        let open: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.exclusive && session.ended.is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in &open {
            let session = &self.sessions[id];
            if session.is_live(now) {
                return Err(OpenError::ExclusiveHeld {
                    owner: session.owner.clone(),
                });
            }
        }
        for id in open {
            self.end(id, LEASE_OVER, now);
        }
        Ok(())
    }

    /// # Errors
    /// As [`Store::heartbeat`](postrider_store::Store::heartbeat).
    pub fn heartbeat(
        &mut self,
        id: SessionId,
        lease: Duration,
        reports: &[BreakerReport],
        now: Timestamp,
    ) -> Result<Vec<Share>, SessionError> {
        if mutation::on(Mutation::HeartbeatRevives)
            && let Some(session) = self.sessions.get_mut(&id)
            && session.ended.is_none()
        {
            session.expires_at = later(now, lease);
        }
        self.live(id, now)?;
        for report in reports {
            self.destination(report.destination)?;
        }
        for report in reports {
            self.report_breaker(id, report, now);
        }
        self.live(id, now)?.expires_at = later(now, lease);
        let serves = self.live(id, now)?.serves.clone();
        Ok(serves
            .into_iter()
            .map(|destination| self.share(id, destination, now))
            .collect())
    }

    fn report_breaker(&mut self, id: SessionId, report: &BreakerReport, now: Timestamp) {
        let key = (report.destination, id);
        let Some(open) = &report.open else {
            self.breakers.remove(&key);
            return;
        };
        let since = self.breakers.get(&key).map_or(now, |row| row.since);
        self.breakers.insert(
            key,
            BreakerRow {
                session: id,
                since,
                code: open.code.clone(),
                detail: bounded_detail(&open.detail),
                next_probe_at: later(now, open.next_probe_in),
                refused: open.refused,
            },
        );
    }

    fn share(&self, id: SessionId, destination: DestinationId, now: Timestamp) -> Share {
        let lanes = self.lanes_of(destination);
        let refuses = |id: &SessionId| {
            let breaker = self.breakers.get(&(destination, *id));
            breaker.is_some_and(|row| row.refused)
        };
        let sessions = self.sessions.iter().filter(|(id, session)| {
            session.is_live(now) && session.serves.contains(&destination) && !refuses(id)
        });
        Share {
            destination,
            lanes: count_u16(lanes.len()),
            sessions: u32::try_from(sessions.count()).unwrap_or(u32::MAX),
            held: lanes
                .iter()
                .filter(|(_, holder)| **holder == Some(id))
                .map(|(lane, _)| *lane)
                .collect(),
            free: count_u16(lanes.values().filter(|holder| holder.is_none()).count()),
            suspended: self.destinations[&destination].suspended.is_some(),
        }
    }

    /// # Errors
    /// As [`Store::claim_lanes`](postrider_store::Store::claim_lanes).
    pub fn claim_lanes(
        &mut self,
        id: SessionId,
        wanted: &[(DestinationId, u16)],
        now: Timestamp,
    ) -> Result<Vec<(DestinationId, Vec<Lane>)>, SessionError> {
        self.live(id, now)?;
        let mut claimed = Vec::with_capacity(wanted.len());
        for (destination, count) in wanted {
            let serves = self.live(id, now)?.serves.contains(destination);
            let free: Vec<Lane> = self
                .lanes_of(*destination)
                .into_iter()
                .filter(|(_, holder)| {
                    serves && (holder.is_none() || mutation::on(Mutation::LaneGivenTwice))
                })
                .map(|(lane, _)| lane)
                .take(usize::from(*count))
                .collect();
            for lane in &free {
                self.lanes.insert((*destination, *lane), Some((id, now)));
            }
            claimed.push((*destination, free));
        }
        Ok(claimed)
    }

    /// # Errors
    /// As [`Store::release_lanes`](postrider_store::Store::release_lanes).
    pub fn release_lanes(
        &mut self,
        id: SessionId,
        destination: DestinationId,
        lanes: &[Lane],
        now: Timestamp,
    ) -> Result<(), SessionError> {
        self.live(id, now)?;
        for lane in lanes {
            if let Some(holder) = self.lanes.get_mut(&(destination, *lane))
                && holder.is_some_and(|(session, _)| session == id)
            {
                *holder = None;
            }
        }
        Ok(())
    }

    pub fn end_session(&mut self, id: SessionId, reason: &str, now: Timestamp) {
        self.end(id, reason, now);
    }

    pub fn recover_expired(&mut self, sessions_max: u32, now: Timestamp) -> Vec<Recovered> {
        let mut expired: Vec<(Timestamp, SessionId)> = self
            .sessions
            .iter()
            .filter(|(_, session)| {
                session.ended.is_none()
                    && (!session.is_live(now) || mutation::on(Mutation::RecoveryOfTheLiving))
            })
            .map(|(id, session)| (session.expires_at, *id))
            .collect();
        expired.sort();
        expired.truncate(usize::try_from(sessions_max).unwrap_or(usize::MAX));
        expired
            .into_iter()
            .filter_map(|(_, id)| self.end(id, LEASE_OVER, now))
            .collect()
    }

    pub fn set_asleep(&mut self, id: SessionId, asleep: bool) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.asleep = asleep;
        }
    }

    /// Ends a session and settles what it left. `None`: it had ended, or never was.
    fn end(&mut self, id: SessionId, reason: &str, now: Timestamp) -> Option<Recovered> {
        let session = self.sessions.get_mut(&id).filter(|s| s.ended.is_none())?;
        session.ended = Some((now, reason.to_owned()));
        let owner = session.owner.clone();
        self.breakers.retain(|(_, session), _| *session != id);
        let mut lanes = 0;
        for holder in self.lanes.values_mut() {
            if holder.is_some_and(|(session, _)| session == id) {
                *holder = None;
                lanes += 1;
            }
        }
        let unfinished: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.session == id && attempt.finished.is_none())
            .map(|(attempt, _)| *attempt)
            .collect();
        let mut deliveries = BTreeSet::new();
        for attempt in &unfinished {
            if mutation::on(Mutation::RecoveryDropsAttempts) {
                self.attempts.remove(attempt);
                continue;
            }
            deliveries.extend(self.abandon(*attempt, now));
        }
        Some(Recovered {
            session: id,
            owner,
            attempts: unfinished.len() as u64,
            deliveries: deliveries.len() as u64,
            lanes,
        })
    }

    /// Finishes an attempt whose session was lost; answers its deliveries that are open.
    fn abandon(&mut self, id: AttemptId, now: Timestamp) -> Vec<(DestinationId, Position)> {
        let attempt = self.attempts[&id].clone();
        let on_unknown = if mutation::on(Mutation::RecoveryResends) {
            OnUnknown::Resend
        } else {
            self.destinations[&attempt.destination]
                .destination
                .on_unknown
        };
        let mut exceptions = BTreeMap::new();
        let mut open = Vec::new();
        for position in attempt.members {
            let key = (attempt.destination, position);
            if !self.has_receipt_of(id, key) {
                exceptions.insert(position, (LEASE_EXPIRED.to_owned(), String::new()));
            }
            let Some(delivery) = self.open.get_mut(&key) else {
                continue;
            };
            open.push(key);
            delivery
                .first_attempt_at
                .get_or_insert(attempt.registered_at);
            if delivery.state == OpenState::Pending {
                delivery.waited = true;
                match on_unknown {
                    OnUnknown::Resend => delivery.available_at = now,
                    OnUnknown::Probe | OnUnknown::Hold => delivery.state = OpenState::Unknown,
                }
            }
        }
        self.attempts.entry(id).and_modify(|attempt| {
            attempt.finished = Some(Finish {
                at: now,
                exceptions,
            });
        });
        open
    }

    fn has_receipt_of(&self, attempt: AttemptId, key: (DestinationId, Position)) -> bool {
        let primary = self.receipts.get(&key).into_iter();
        let duplicates = self.duplicates.get(&key).into_iter().flatten();
        primary
            .chain(duplicates)
            .any(|kept| kept.attempt == attempt)
    }

    fn lanes_of(&self, destination: DestinationId) -> BTreeMap<Lane, Option<SessionId>> {
        self.lanes
            .range((destination, Lane(0))..=(destination, Lane(u16::MAX)))
            .map(|((_, lane), holder)| (*lane, holder.map(|(session, _)| session)))
            .collect()
    }

    fn live(&mut self, id: SessionId, now: Timestamp) -> Result<&mut Session, SessionError> {
        self.sessions
            .get_mut(&id)
            .filter(|session| session.is_live(now))
            .ok_or(SessionError::Ended)
    }

    pub(super) fn is_live(&self, id: SessionId, now: Timestamp) -> bool {
        self.sessions
            .get(&id)
            .is_some_and(|session| session.is_live(now))
    }
}

fn count_u16(count: usize) -> u16 {
    u16::try_from(count).expect("a destination has at most 1024 lanes")
}
