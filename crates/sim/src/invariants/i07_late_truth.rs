//! I7: an acknowledgement that a worker was given, and that it lived to hand in, is in the
//! database: as the primary receipt or as a duplicate. However late, and however dead its session.

use postrider_store_memory::model::Model;

use super::{Invariant, Verdict, ensure};
use crate::{
    oracle::Ended,
    truth::{Ack, LifeId, Truth},
};

pub(crate) struct LateTruth;

impl Invariant for LateTruth {
    fn name(&self) -> &'static str {
        "I7 late truth"
    }

    fn ended(&mut self, ended: &Ended<'_>, truth: &Truth) -> Verdict {
        match missing(ended.model, ended.alive, truth) {
            Some(ack) => ensure(false, || {
                format!(
                    "worker {} was given {:?} for {:?}, which is kept nowhere",
                    ack.life.worker, ack.receipt, ack.key
                )
            }),
            None => Ok(()),
        }
    }
}

/// An acknowledgement that was given to a life that is still there, and is kept nowhere.
pub(crate) fn missing<'a>(model: &Model, alive: &[LifeId], truth: &'a Truth) -> Option<&'a Ack> {
    truth
        .acks
        .iter()
        .filter(|ack| alive.contains(&ack.life))
        .find(|ack| {
            let primary = model.receipt_facts();
            !primary.chain(model.duplicate_facts()).any(|fact| {
                (fact.destination, fact.position) == ack.key && *fact.receipt == ack.receipt
            })
        })
}
