//! Deliveries that were fetched and are not registered yet, in position order.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use crate::{Lane, Position};

use super::Candidate;

#[derive(Debug)]
pub(super) struct Buffer<E> {
    by_position: BTreeMap<Position, Candidate<E>>,
    bytes: u64,
    /// Keys of which something was left out of the last read: what comes later in it must not
    /// go first.
    cut_keys: BTreeSet<i64>,
    /// What waits of each key; kept only where one of a key may be in flight.
    per_key: BTreeMap<i64, Waiting>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    count: usize,
    bytes: u64,
}

impl<E> Default for Buffer<E> {
    fn default() -> Self {
        Self {
            by_position: BTreeMap::new(),
            bytes: 0,
            per_key: BTreeMap::new(),
            cut_keys: BTreeSet::new(),
        }
    }
}

/// Deliveries of one key that wait in the buffer while one of them is in flight. A bound keeps
/// one busy key from filling the buffer; this many in one read make its re-reading cheap.
const WAITING_PER_KEY_MAX: usize = 64;

/// A key may fill this part of the buffer's bytes, so that this many keys always find room.
const WAITING_KEYS_MIN: u64 = 16;

impl<E> Buffer<E> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_position.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        self.by_position.keys().copied()
    }

    /// Keys of which something waits, where one of a key may be in flight. More of them is only
    /// fetched when these are gone.
    pub(super) fn waiting_keys(&self) -> impl Iterator<Item = i64> + '_ {
        self.per_key.keys().copied()
    }

    /// How many could be registered now: all, or one for each key that is not busy.
    pub(super) fn sendable(&self, one_per_key: bool, busy: &BTreeSet<i64>) -> usize {
        if !one_per_key {
            return self.by_position.len();
        }
        self.per_key
            .keys()
            .filter(|key| !busy.contains(key))
            .count()
    }

    /// Another read begins.
    pub(super) fn restart(&mut self) {
        self.cut_keys.clear();
    }

    pub(super) fn add(&mut self, candidate: Candidate<E>) {
        self.bytes += candidate.bytes;
        if let Some(replaced) = self.by_position.insert(candidate.position, candidate) {
            self.bytes -= replaced.bytes;
        }
    }

    /// Takes what was fetched, in position order, where one of a key may be in flight: keeps
    /// only so many of a key; the rest is fetched again later.
    pub(super) fn add_one_per_key(&mut self, candidate: Candidate<E>, batch_bytes_max: u64) {
        if self.cut_keys.contains(&candidate.key_hash) {
            return;
        }
        let waiting = self.per_key.entry(candidate.key_hash).or_default();
        if waiting.count >= WAITING_PER_KEY_MAX
            || (waiting.count > 0 && waiting.bytes >= batch_bytes_max / WAITING_KEYS_MIN)
        {
            self.cut_keys.insert(candidate.key_hash);
            return;
        }
        waiting.count += 1;
        waiting.bytes += candidate.bytes;
        self.add(candidate);
    }

    /// Takes out the next batch: in order, at most `count_max` and `bytes_max`, skipping busy
    /// keys.
    pub(super) fn take(
        &mut self,
        count_max: usize,
        bytes_max: u64,
        one_per_key: bool,
        busy: &BTreeSet<i64>,
    ) -> Vec<Candidate<E>> {
        let mut bytes = 0_u64;
        let mut keys = BTreeSet::new();
        let mut chosen = Vec::new();
        for (position, candidate) in &self.by_position {
            if chosen.len() >= count_max {
                break;
            }
            if one_per_key
                && (busy.contains(&candidate.key_hash) || !keys.insert(candidate.key_hash))
            {
                continue;
            }
            bytes = bytes.saturating_add(candidate.bytes);
            if bytes > bytes_max && !chosen.is_empty() {
                break;
            }
            chosen.push(*position);
        }
        let taken: Vec<_> = chosen
            .iter()
            .filter_map(|position| self.by_position.remove(position))
            .collect();
        self.bytes -= taken.iter().map(|candidate| candidate.bytes).sum::<u64>();
        if one_per_key {
            taken.iter().for_each(|candidate| self.left(candidate));
        }
        taken
    }

    /// Whether anything was dropped.
    pub(super) fn drop_keys(&mut self, keys: &BTreeSet<i64>) -> bool {
        let before = self.by_position.len();
        self.retain(|candidate| !keys.contains(&candidate.key_hash));
        self.by_position.len() < before
    }

    pub(super) fn keep_lanes(&mut self, keep: impl Fn(Lane) -> bool) {
        self.retain(|candidate| keep(candidate.lane));
    }

    pub(super) fn clear(&mut self) {
        self.retain(|_| false);
    }

    fn left(&mut self, candidate: &Candidate<E>) {
        if let Entry::Occupied(mut waiting) = self.per_key.entry(candidate.key_hash) {
            waiting.get_mut().count -= 1;
            waiting.get_mut().bytes -= candidate.bytes;
            if waiting.get().count == 0 {
                waiting.remove();
            }
        }
    }

    fn retain(&mut self, keep: impl Fn(&Candidate<E>) -> bool) {
        let gone: Vec<_> = self
            .by_position
            .extract_if(.., |_, candidate| !keep(candidate))
            .collect();
        for (_, candidate) in &gone {
            self.bytes -= candidate.bytes;
            self.left(candidate);
        }
    }
}
