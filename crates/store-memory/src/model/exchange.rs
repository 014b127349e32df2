//! The exchange: settle, quarantine, suspend, register, fetch; all of it or nothing.

use std::collections::BTreeMap;

use postrider_contract::{Receipt, Timestamp};
use postrider_core::{
    AttemptId, DestinationId, Position,
    mutation::{self, Mutation},
    outcome::bounded_detail,
};
use postrider_store::{
    ExchangeError,
    clock::later,
    control::Suspension,
    dispatch::{Exchange, Exchanged, Registration, SettledAs, Settlement, Unfit},
    inspect::QuarantineReason,
};

use super::{Attempt, Finish, Kept, Model, OpenState, refused};

impl Model {
    /// # Errors
    /// As [`Store::exchange`](postrider_store::Store::exchange).
    pub fn exchange(
        &mut self,
        exchange: &Exchange,
        now: Timestamp,
    ) -> Result<Exchanged, ExchangeError> {
        if !self.is_live(exchange.session, now) && !mutation::on(Mutation::FenceSkipped) {
            return Err(ExchangeError::Ended);
        }
        self.destination(exchange.destination)?;
        for settlement in &exchange.settle {
            self.check_settlement(exchange, settlement)?;
        }
        let mut answer = Exchanged::default();
        for settlement in &exchange.settle {
            answer.duplicates += self.settle(settlement, now);
        }
        for unfit in &exchange.quarantine {
            self.quarantine_unfit(exchange.destination, unfit, now);
        }
        if let Some(suspend) = &exchange.suspend {
            self.destinations
                .entry(exchange.destination)
                .and_modify(|registered| {
                    registered.suspended.get_or_insert_with(|| Suspension {
                        code: suspend.code.to_owned(),
                        detail: bounded_detail(&suspend.detail),
                        since: now,
                    });
                });
        }
        for registration in &exchange.register {
            self.register(exchange, registration, now);
        }
        if let Some(fetch) = &exchange.fetch {
            self.fetch(exchange.destination, fetch, now, &mut answer)?;
        }
        Ok(answer)
    }

    fn check_settlement(
        &self,
        exchange: &Exchange,
        settlement: &Settlement,
    ) -> Result<(), ExchangeError> {
        let registered = self.attempts.get(&settlement.attempt).filter(|attempt| {
            attempt.session == exchange.session && attempt.destination == exchange.destination
        });
        let Some(attempt) = registered else {
            return Err(ExchangeError::Store(refused(format!(
                "attempt {} was not registered by session {} for destination {}",
                settlement.attempt, exchange.session, exchange.destination
            ))));
        };
        let members = settlement.members.iter().map(|settled| settled.position);
        if attempt.finished.is_none() && !members.eq(attempt.members.iter().copied()) {
            return Err(ExchangeError::Store(refused(format!(
                "attempt {} is settled with other members than were registered",
                settlement.attempt
            ))));
        }
        Ok(())
    }

    /// Answers how many receipts were duplicates.
    fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> u64 {
        let attempt = self.attempts[&settlement.attempt].clone();
        if attempt.finished.is_some() && !mutation::on(Mutation::SettledTwice) {
            return 0;
        }
        let mut duplicates = 0;
        let mut exceptions = BTreeMap::new();
        for settled in &settlement.members {
            let key = (attempt.destination, settled.position);
            match &settled.next {
                SettledAs::Acknowledged(receipt) => {
                    duplicates +=
                        u64::from(!self.acknowledge(settlement.attempt, key, receipt, now));
                }
                SettledAs::Retry {
                    attempts,
                    delay,
                    code,
                    detail,
                } => {
                    exceptions.insert(settled.position, exception(code, detail));
                    self.change_pending(key, attempt.registered_at, |open| {
                        open.attempts = *attempts;
                        open.available_at = later(now, *delay);
                    });
                }
                SettledAs::Unknown { code, detail } => {
                    exceptions.insert(settled.position, exception(code, detail));
                    self.change_pending(key, attempt.registered_at, |open| {
                        open.state = OpenState::Unknown;
                    });
                }
                SettledAs::Quarantined {
                    attempts,
                    code,
                    detail,
                } => {
                    exceptions.insert(settled.position, exception(code, detail));
                    let reason = reason(code, detail, now);
                    self.change_pending(key, attempt.registered_at, |open| {
                        open.attempts = *attempts;
                        open.state = OpenState::Quarantined(reason);
                    });
                }
            }
        }
        if mutation::on(Mutation::ExceptionsLost) {
            exceptions.clear();
        }
        self.attempts
            .entry(settlement.attempt)
            .and_modify(|attempt| {
                attempt.finished = Some(Finish {
                    at: now,
                    exceptions,
                });
            });
        duplicates
    }

    /// Whether it won the publish slot.
    fn acknowledge(
        &mut self,
        attempt: AttemptId,
        key: (DestinationId, Position),
        receipt: &Receipt,
        now: Timestamp,
    ) -> bool {
        let kept = Kept {
            attempt,
            accepted_at: now,
            receipt: receipt.clone(),
            late: false,
        };
        if self.open.remove(&key).is_some() || mutation::on(Mutation::SlotTakenTwice) {
            self.receipts.insert(key, kept);
            return true;
        }
        if mutation::on(Mutation::DuplicatesDropped) {
            return false;
        }
        let duplicates = self.duplicates.entry(key).or_default();
        let known = duplicates
            .iter()
            .any(|earlier| earlier.attempt == attempt && earlier.receipt == *receipt);
        if !known {
            duplicates.push(kept);
        }
        false
    }

    fn change_pending(
        &mut self,
        key: (DestinationId, Position),
        registered_at: Timestamp,
        change: impl FnOnce(&mut super::Open),
    ) {
        let Some(open) = self.open.get_mut(&key) else {
            return;
        };
        open.first_attempt_at.get_or_insert(registered_at);
        if open.state == OpenState::Pending {
            open.waited = true;
            change(open);
        }
    }

    fn quarantine_unfit(&mut self, destination: DestinationId, unfit: &Unfit, now: Timestamp) {
        if let Some(open) = self.open.get_mut(&(destination, unfit.position))
            && open.state == OpenState::Pending
        {
            open.state = OpenState::Quarantined(reason(unfit.code, &unfit.detail, now));
            open.waited = true;
        }
    }

    fn register(&mut self, exchange: &Exchange, registration: &Registration, now: Timestamp) {
        self.attempts
            .entry(registration.attempt)
            .or_insert_with(|| Attempt {
                session: exchange.session,
                destination: exchange.destination,
                registered_at: now,
                members: registration.members.clone(),
                finished: None,
            });
    }
}

fn exception(code: &str, detail: &str) -> (String, String) {
    (code.to_owned(), bounded_detail(detail))
}

fn reason(code: &str, detail: &str, since: Timestamp) -> QuarantineReason {
    QuarantineReason {
        code: code.to_owned(),
        detail: bounded_detail(detail),
        since,
    }
}
