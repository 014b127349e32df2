//! The life of one session: open, heartbeat, share lanes, recover others, end.
//!
//! One store call is under way at a time. The worker's own end of the lease starts *before* the
//! call that granted it (I20), so it never outlives what the database granted.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::{DestinationId, Instant, Lane, deadline::Deadlines, lanes};

/// One destination's lanes as the store counted them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub destination: DestinationId,
    pub lanes: u16,
    pub sessions: u32,
    pub held: BTreeSet<Lane>,
    pub free: u16,
    pub suspended: bool,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    Opened,
    /// Could not be opened now; try again.
    OpenFailed,
    Beat(Vec<Count>),
    /// The store did not answer; the lease goes on running.
    BeatFailed,
    /// Whether this session may send to a destination, as its last look said. Until it is told so
    /// it takes no lane of it: what it cannot send, another one may be able to.
    Able(DestinationId, bool),
    Claimed(Vec<(DestinationId, BTreeSet<Lane>)>),
    /// These lanes have nothing in flight any more.
    Drained(DestinationId, BTreeSet<Lane>),
    Released,
    /// The call failed in a way that says nothing about the session.
    CallFailed,
    Recovered,
    NothingRecovered,
    /// The store says that the session is over.
    Ended,
    Tick,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Open,
    Heartbeat,
    Claim(Vec<(DestinationId, u16)>),
    Release(DestinationId, BTreeSet<Lane>),
    /// Look for sessions whose lease is over.
    Recover,
    /// Tell the destination's dispatcher which lanes are held.
    SetLanes(DestinationId, BTreeSet<Lane>),
    Drain(DestinationId, BTreeSet<Lane>),
    Suspended(DestinationId, bool),
    LeaseUntil(Instant),
    /// The session is over: whoever acts for it must stop.
    Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Live,
    Over,
}

/// The machine.
#[derive(Debug)]
pub struct Session {
    deadlines: Deadlines,
    state: State,
    commands: VecDeque<Command>,
    /// A call is under way since then.
    calling: Option<Instant>,
    lease_until: Instant,
    next_heartbeat: Instant,
    next_recovery: Instant,
    retry_at: Instant,
    able: BTreeSet<DestinationId>,
    /// What the last heartbeat that was asked for told the store: whom it counts.
    counted: BTreeSet<DestinationId>,
    held: BTreeMap<DestinationId, BTreeSet<Lane>>,
    draining: BTreeMap<DestinationId, BTreeSet<Lane>>,
    claims: Vec<(DestinationId, u16)>,
    releases: Vec<(DestinationId, BTreeSet<Lane>)>,
    /// It has looked for lanes, and taken those that were free for it.
    has_its_lanes: bool,
}

/// Between two tries to open a session while the store does not answer.
const OPEN_RETRY: Duration = Duration::from_millis(500);

impl Session {
    #[must_use]
    pub fn new(deadlines: Deadlines, now: Instant) -> Self {
        Self {
            deadlines,
            state: State::New,
            commands: VecDeque::new(),
            calling: None,
            lease_until: now,
            next_heartbeat: now,
            next_recovery: now,
            retry_at: now,
            able: BTreeSet::new(),
            counted: BTreeSet::new(),
            held: BTreeMap::new(),
            draining: BTreeMap::new(),
            claims: Vec::new(),
            releases: Vec::new(),
            has_its_lanes: false,
        }
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// It has looked for lanes, and taken those that were free for it.
    #[must_use]
    pub fn has_its_lanes(&self) -> bool {
        self.has_its_lanes
    }

    /// The last heartbeat told the store that this session may send there.
    #[must_use]
    pub fn is_counted(&self, destination: DestinationId) -> bool {
        self.counted.contains(&destination)
    }

    /// Lanes held per destination.
    #[must_use]
    pub fn held(&self) -> &BTreeMap<DestinationId, BTreeSet<Lane>> {
        &self.held
    }

    pub fn handle(&mut self, now: Instant, input: Input) {
        let started = self.calling.unwrap_or(now);
        match input {
            Input::Tick | Input::Drained(..) | Input::Able(..) => {}
            Input::Opened
            | Input::OpenFailed
            | Input::Beat(_)
            | Input::BeatFailed
            | Input::Claimed(_)
            | Input::Released
            | Input::CallFailed
            | Input::Recovered
            | Input::NothingRecovered
            | Input::Ended => self.calling = None,
        }
        match input {
            Input::Opened => {
                self.state = State::Live;
                self.granted(started);
                // Look at once: the first shares, and the lanes of those who died before.
                self.next_heartbeat = now;
            }
            Input::OpenFailed => self.retry_at = now + OPEN_RETRY,
            Input::Beat(counts) => {
                self.granted(started);
                if self.counted != self.able {
                    self.next_heartbeat = now;
                }
                counts.into_iter().for_each(|count| self.share(count));
                self.has_its_lanes |= self.claims.is_empty() && self.counted == self.able;
            }
            Input::BeatFailed | Input::CallFailed => {
                self.next_heartbeat = now + self.deadlines.settings().heartbeat / 4;
                self.next_recovery = now + self.deadlines.settings().heartbeat;
            }
            Input::Able(destination, able) => {
                let changed = if able {
                    self.able.insert(destination)
                } else {
                    self.able.remove(&destination)
                };
                if changed {
                    // Tell the others, and learn what is free.
                    self.has_its_lanes = false;
                    self.next_heartbeat = now;
                }
            }
            Input::Claimed(claimed) => {
                self.has_its_lanes |= self.counted == self.able;
                for (destination, lanes) in claimed {
                    let held = self.held.entry(destination).or_default();
                    held.extend(lanes);
                    self.commands
                        .push_back(Command::SetLanes(destination, held.clone()));
                }
            }
            Input::Drained(destination, lanes) => {
                if let Some(held) = self.held.get_mut(&destination) {
                    held.retain(|lane| !lanes.contains(lane));
                }
                if let Some(draining) = self.draining.get_mut(&destination) {
                    draining.retain(|lane| !lanes.contains(lane));
                }
                self.releases.push((destination, lanes));
            }
            Input::NothingRecovered => {
                self.next_recovery = now + self.deadlines.settings().heartbeat;
            }
            Input::Released | Input::Tick => {}
            Input::Recovered => {
                self.next_recovery = now + self.deadlines.settings().heartbeat;
                // What recovery freed is there to be taken.
                self.next_heartbeat = self.next_heartbeat.min(now + OPEN_RETRY);
            }
            Input::Ended => self.fence(),
        }
        self.advance(now);
    }

    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        match self.state {
            State::Over => None,
            State::New => self.calling.is_none().then_some(self.retry_at),
            State::Live if self.calling.is_some() => Some(self.lease_until),
            State::Live => Some(
                self.next_heartbeat
                    .min(self.next_recovery)
                    .min(self.lease_until),
            ),
        }
    }

    fn granted(&mut self, started: Instant) {
        self.lease_until = started + self.deadlines.settings().lease;
        self.next_heartbeat = started + self.deadlines.settings().heartbeat;
        self.commands
            .push_back(Command::LeaseUntil(self.lease_until));
    }

    fn share(&mut self, count: Count) {
        let destination = count.destination;
        self.commands
            .push_back(Command::Suspended(destination, count.suspended));
        let held = self.held.entry(destination).or_default();
        // The store's word counts: a claim whose answer was lost shows up here.
        let releasing: BTreeSet<Lane> = self
            .releases
            .iter()
            .filter(|(of, _)| *of == destination)
            .flat_map(|(_, lanes)| lanes.iter().copied())
            .collect();
        let truly: BTreeSet<Lane> = count.held.difference(&releasing).copied().collect();
        if *held != truly {
            held.clone_from(&truly);
            self.commands
                .push_back(Command::SetLanes(destination, truly));
        }
        let draining = self.draining.entry(destination).or_default();
        let keeping = u16::try_from(held.len() - draining.len().min(held.len()))
            .expect("lanes are counted in u16");
        let able = self.able.contains(&destination) && self.counted.contains(&destination);
        let next_move = if able {
            lanes::next_move(count.lanes, count.sessions, keeping, count.free)
        } else {
            lanes::Move::Release(keeping)
        };
        match next_move {
            lanes::Move::Stay | lanes::Move::Release(0) => {}
            lanes::Move::Claim(lanes) => self.claims.push((destination, lanes)),
            lanes::Move::Release(lanes) => {
                let kept: Vec<Lane> = held.difference(draining).copied().collect();
                let extra: BTreeSet<Lane> =
                    kept.into_iter().rev().take(usize::from(lanes)).collect();
                draining.extend(&extra);
                self.commands.push_back(Command::Drain(destination, extra));
            }
        }
    }

    fn fence(&mut self) {
        self.state = State::Over;
        self.held.clear();
        self.commands.push_back(Command::Fence);
    }

    fn advance(&mut self, now: Instant) {
        if self.state == State::Live && now >= self.lease_until {
            self.fence();
        }
        if self.calling.is_some() {
            return;
        }
        let command = match self.state {
            State::Over => return,
            State::New if now >= self.retry_at => Command::Open,
            State::New => return,
            State::Live if now >= self.next_heartbeat => {
                self.counted.clone_from(&self.able);
                Command::Heartbeat
            }
            State::Live => {
                if let Some((destination, lanes)) = self.releases.pop() {
                    Command::Release(destination, lanes)
                } else if !self.claims.is_empty() {
                    Command::Claim(std::mem::take(&mut self.claims))
                } else if now >= self.next_recovery {
                    Command::Recover
                } else {
                    return;
                }
            }
        };
        self.calling = Some(now);
        self.commands.push_back(command);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::Settings;

    fn live() -> (Session, Instant) {
        let deadlines = Deadlines::new(Settings::default()).expect("consistent");
        let now = Instant(1_000_000);
        let mut session = Session::new(deadlines, now);
        session.handle(now, Input::Tick);
        assert_eq!(session.poll_command(), Some(Command::Open));
        session.handle(now + Duration::from_secs(1), Input::Opened);
        (session, now)
    }

    #[test]
    fn the_lease_counts_from_before_the_call() {
        let (mut session, asked) = live();
        let lease = Settings::default().lease;
        assert_eq!(
            session.poll_command(),
            Some(Command::LeaseUntil(asked + lease))
        );
    }

    /// What comes of everything that waits, with `free` lanes of 16 and `sessions` that are able.
    fn beat(session: &mut Session, now: Instant, sessions: u32, held: u16) -> Vec<Command> {
        while session.poll_command().is_some() {}
        session.handle(
            now,
            Input::Beat(vec![Count {
                destination: DestinationId(1),
                lanes: 16,
                sessions,
                held: (0..held).map(Lane).collect(),
                free: 16 - held,
                suspended: false,
            }]),
        );
        std::iter::from_fn(|| session.poll_command()).collect()
    }

    #[test]
    fn lanes_are_for_who_is_able_to_send() {
        let (mut session, now) = live();
        let commands = beat(&mut session, now, 0, 0);
        assert!(!commands.contains(&Command::Heartbeat), "{commands:?}");
        assert!(session.has_its_lanes(), "it has looked: none is for it");

        session.handle(now, Input::NothingRecovered);
        session.handle(now, Input::Able(DestinationId(1), true));
        assert!(!session.has_its_lanes());
        assert_eq!(session.poll_command(), Some(Command::Heartbeat));
        let commands = beat(&mut session, now, 1, 0);
        let claim = Command::Claim(vec![(DestinationId(1), 16)]);
        assert!(commands.contains(&claim), "{commands:?}");
        let all: BTreeSet<Lane> = (0..16).map(Lane).collect();
        session.handle(now, Input::Claimed(vec![(DestinationId(1), all.clone())]));
        assert!(session.has_its_lanes());

        session.handle(now, Input::Able(DestinationId(1), false));
        let commands = beat(&mut session, now, 0, 16);
        let drain = Command::Drain(DestinationId(1), all);
        assert!(commands.contains(&drain), "{commands:?}");
    }

    #[test]
    fn a_beat_asked_before_it_was_able_claims_nothing_and_another_follows() {
        let (mut session, now) = live();
        session.handle(now, Input::Able(DestinationId(1), true));
        let commands = beat(&mut session, now, 0, 0);
        let claims = |command: &Command| matches!(command, Command::Claim(_));
        assert!(!commands.iter().any(claims), "{commands:?}");
        assert!(commands.contains(&Command::Heartbeat), "{commands:?}");
    }

    #[test]
    fn heartbeats_that_fail_end_the_session_at_the_lease_and_not_later() {
        let (mut session, asked) = live();
        let lease = Settings::default().lease;
        let mut now = asked + Duration::from_secs(1);
        let mut fenced_at = None;
        for _ in 0..1000 {
            while let Some(command) = session.poll_command() {
                match command {
                    Command::Heartbeat => session.handle(now, Input::BeatFailed),
                    Command::Recover => session.handle(now, Input::CallFailed),
                    Command::Fence => fenced_at = Some(now),
                    Command::Open
                    | Command::Claim(_)
                    | Command::Release(..)
                    | Command::SetLanes(..)
                    | Command::Drain(..)
                    | Command::Suspended(..)
                    | Command::LeaseUntil(_) => {}
                }
            }
            let Some(wakeup) = session.next_wakeup() else {
                break;
            };
            now = wakeup.max(now);
            session.handle(now, Input::Tick);
        }
        assert_eq!(fenced_at, Some(asked + lease));
        assert!(session.is_over());
    }

    #[test]
    fn a_call_that_never_returns_does_not_outlive_the_lease() {
        let (mut session, asked) = live();
        while session.poll_command().is_some() {}
        let end = asked + Settings::default().lease;
        assert_eq!(session.next_wakeup(), Some(end));
        session.handle(end, Input::Tick);
        assert!(session.is_over());
    }
}
