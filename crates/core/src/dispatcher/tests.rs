//! Tests of the dispatcher machine.

use postrider_contract::destination::OnUnknown;
use uuid::Uuid;

use super::*;
use crate::exchange::Fetch;

fn config() -> Config {
    let backoff = Backoff {
        first: Duration::from_millis(100),
        max: Duration::from_secs(10),
    };
    Config {
        session: SessionId(Uuid::from_u128(1)),
        destination: DestinationId(1),
        policy: Policy {
            on_unknown: OnUnknown::Resend,
            attempts_max: None,
            backoff,
        },
        breaker: backoff,
        holds_key: true,
        quarantine_holds_key: true,
        one_per_key: true,
        batch_max: 16,
        batch_bytes_max: 1 << 20,
        sending_max: 2,
        late_max: 4,
        send_needs: Duration::from_secs(1),
        poll_min: Duration::from_millis(10),
        poll_max: Duration::from_secs(1),
        rescan: Duration::from_millis(50),
        fetches_max: None,
        seed: 1,
    }
}

const GONE: Outcome = Outcome::Rejected {
    code: "gone",
    detail: String::new(),
    suspends: true,
};

const REFUSED: Outcome = Outcome::Rejected {
    code: "rejected",
    detail: String::new(),
    suspends: false,
};

const SILENT: Outcome = Outcome::Unknown {
    code: "response_timeout",
    detail: String::new(),
};

/// Each of a key of its own.
fn candidates(positions: &[Position]) -> Vec<Candidate<()>> {
    positions
        .iter()
        .map(|position| Candidate {
            position: *position,
            lane: Lane(0),
            key_hash: position.0,
            attempts: 0,
            bytes: 2,
            unfit: None,
            event: (),
        })
        .collect()
}

/// A machine that plays its store: deliveries of as many keys, all due.
struct World {
    machine: Dispatcher<()>,
    now: Instant,
    /// An exchange that waits for its answer.
    exchange: Option<Arc<Exchange>>,
    /// Attempts sent, with how many members each.
    sends: Vec<(AttemptId, usize)>,
    suspended: bool,
}

impl World {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: Config) -> Self {
        let now = Instant(1_000_000);
        let mut world = Self {
            machine: Dispatcher::new(config, now),
            now,
            exchange: None,
            sends: Vec::new(),
            suspended: false,
        };
        world.beat();
        world.handle(Input::Lanes(BTreeSet::from([Lane(0)])));
        world
    }

    fn handle(&mut self, input: Input<()>) {
        self.now = self.now + Duration::from_millis(1);
        self.machine.handle(self.now, input);
        while let Some(command) = self.machine.poll_command() {
            match command {
                Command::Exchange(exchange) => self.exchange = Some(exchange),
                Command::Send {
                    attempt, members, ..
                } => self.sends.push((attempt, members.len())),
                Command::Evidence(_) | Command::Drained(_) | Command::Forget(_) => {}
            }
        }
    }

    /// The grant of a heartbeat, without what it says of suspensions.
    fn beat(&mut self) {
        let until = self.now + Duration::from_secs(30);
        self.handle(Input::LeaseUntil(until));
    }

    /// The store carries out what was asked, and answers.
    fn answer_exchange(&mut self) {
        let exchange = self.exchange.take().expect("an exchange is under way");
        self.suspended |= exchange.suspend.is_some();
        let fetched: Vec<Position> = match &exchange.fetch {
            Some(fetch) if !self.suspended => (1..=5)
                .map(Position)
                .filter(|position| *position > fetch.after && !fetch.exclude.contains(position))
                .collect(),
            Some(_) | None => Vec::new(),
        };
        self.reply(&fetched);
        if !fetched.is_empty() {
            self.handle(Input::Prepared(candidates(&fetched)));
        }
    }

    fn reply(&mut self, fetched: &[Position]) {
        self.handle(Input::Exchanged(Reply {
            fetched: fetched.to_vec(),
            exhausted: true,
            ..Reply::default()
        }));
    }

    /// Carries out exchanges until none is asked for.
    fn settle(&mut self) {
        while self.exchange.is_some() {
            self.answer_exchange();
        }
    }

    /// The last send ends with this answer to each member.
    fn answer(&mut self, outcome: &Outcome) {
        let (attempt, members) = self.sends[self.sends.len() - 1];
        let answers = (0..members).map(|index| (index, outcome.clone())).collect();
        self.handle(Input::Answers(attempt, answers));
        self.handle(Input::SendEnded(attempt));
    }

    fn first_send(&mut self) {
        while self.sends.is_empty() {
            self.answer_exchange();
        }
        self.settle();
    }
}

/// A world in which the first send was answered with a suspension that is being written down.
fn suspending() -> World {
    let mut world = World::new();
    world.first_send();
    world.answer(&GONE);
    let exchange = world.exchange.as_ref().expect("it is written down");
    assert!(exchange.suspend.is_some());
    assert!(exchange.register.is_empty());
    world
}

#[test]
fn a_heartbeat_from_before_a_suspension_does_not_undo_it() {
    // The answer of the heartbeat comes before that of the exchange.
    let mut world = suspending();
    world.beat();
    world.handle(Input::Suspended(false));
    world.settle();
    assert_eq!(world.sends.len(), 1);

    // It comes after, though it was asked before.
    let mut world = suspending();
    world.settle();
    world.beat();
    world.handle(Input::Suspended(false));
    world.settle();
    assert_eq!(world.sends.len(), 1);

    // What the session knew when something else let it look at the gate.
    let mut world = suspending();
    world.settle();
    world.handle(Input::Suspended(false));
    world.settle();
    assert_eq!(world.sends.len(), 1);
}

#[test]
fn a_suspension_whose_answer_is_lost_stays_until_it_is_written() {
    let mut world = suspending();
    world.handle(Input::ExchangeFailed);
    for _ in 0..5 {
        world.beat();
        world.handle(Input::Suspended(false));
    }
    assert_eq!(world.sends.len(), 1);
    world.now = world.now + Duration::from_secs(2);
    world.handle(Input::Tick);
    let repeated = world.exchange.as_ref().expect("asked again");
    assert!(repeated.suspend.is_some());
}

#[test]
fn a_suspended_destination_goes_on_once_it_is_resumed() {
    let mut world = suspending();
    world.settle();
    for _ in 0..2 {
        world.beat();
        world.handle(Input::Suspended(true));
    }
    world.settle();
    assert_eq!(world.sends.len(), 1);
    world.suspended = false;
    world.beat();
    world.handle(Input::Suspended(false));
    world.settle();
    // Alone again: it may still want no more.
    assert_eq!(world.sends.len(), 2);
    assert_eq!(world.sends[1].1, 1);
}

#[test]
fn the_first_send_of_a_session_goes_alone() {
    for outcome in [REFUSED, SILENT] {
        let mut world = World::new();
        world.first_send();
        assert_eq!(world.sends.len(), 1);
        assert_eq!(world.sends[0].1, 1);
        world.answer(&outcome);
        world.settle();
        assert_eq!(world.sends.len(), 2, "{outcome:?}");
        assert!(world.sends[1].1 > 1, "{outcome:?}");
    }
}

#[test]
fn what_was_read_before_its_lane_was_handed_over_is_read_again() {
    let mut world = World::new();
    let lanes = BTreeSet::from([Lane(0)]);
    world.handle(Input::Release(lanes.clone()));
    world.handle(Input::Lanes(BTreeSet::new()));
    // Another session had the lane meanwhile; what it sent may be unknown by now.
    world.handle(Input::Lanes(lanes));
    world.answer_exchange();
    let next = world.exchange.as_ref().expect("it reads again");
    assert!(next.register.is_empty());
    let fetch = next.fetch.as_ref().expect("it reads again");
    assert_eq!(fetch.after, Position::START);
}

/// As another session's webhook: it learns of the suspension, and of its end, from heartbeats.
#[test]
fn a_session_told_of_a_suspension_forgets_what_it_fetched_and_tries_alone_again() {
    let mut world = World::new();
    world.first_send();
    world.answer(&REFUSED);
    world.settle();
    assert!(world.sends[1].1 > 1);
    world.handle(Input::Suspended(true));
    world.answer(&REFUSED);
    world.settle();
    assert!(world.machine.is_idle(), "a closed destination rests");
    let before = world.sends.len();
    world.now = world.now + Duration::from_secs(60);
    world.beat();
    world.handle(Input::Suspended(false));
    world.settle();
    assert_eq!(world.sends[before].1, 1, "it may still want no more");
}

/// A machine that keeps the order of what is sent, so that it reads ahead while it prepares. It has
/// sent once, and looks for more.
fn reading_ahead() -> World {
    let mut world = World::with(Config {
        one_per_key: false,
        batch_max: 2,
        ..config()
    });
    world.fetched(&[1]);
    world.handle(Input::Prepared(of_key(1, &[1])));
    world.fetched(&[]);
    assert_eq!(world.registered(), [1]);
    world.fetched(&[]);
    world.answer(&REFUSED);
    world.sends.clear();
    world.look();
    world
}

fn of_key(key: i64, positions: &[i64]) -> Vec<Candidate<()>> {
    let positions: Vec<Position> = positions.iter().copied().map(Position).collect();
    let mut all = candidates(&positions);
    all.iter_mut()
        .for_each(|candidate| candidate.key_hash = key);
    all
}

impl World {
    /// Lets it ask until it fetches.
    fn look(&mut self) {
        for _ in 0..20 {
            if let Some(exchange) = &self.exchange {
                if exchange.fetch.is_some() {
                    return;
                }
                self.fetched(&[]);
            }
            self.beat();
            self.now = self.now + Duration::from_secs(2);
            self.handle(Input::Tick);
        }
        panic!("it does not look at the queue any more");
    }

    fn fetch(&self) -> Fetch {
        let exchange = self.exchange.as_ref().expect("an exchange is under way");
        exchange.fetch.clone().expect("it fetches")
    }

    fn fetched(&mut self, positions: &[i64]) {
        self.exchange = None;
        self.handle(Input::Exchanged(Reply {
            fetched: positions.iter().copied().map(Position).collect(),
            exhausted: positions.is_empty(),
            ..Reply::default()
        }));
    }

    /// What the exchange under way registers.
    fn registered(&mut self) -> Vec<i64> {
        let exchange = self.exchange.as_ref();
        let registered = exchange.and_then(|exchange| exchange.register.first());
        let members = registered
            .iter()
            .flat_map(|registration| &registration.members);
        members.map(|member| member.0).collect()
    }
}

#[test]
fn it_reads_on_while_it_prepares_and_not_the_same_again() {
    let mut world = reading_ahead();
    world.fetched(&[11, 12]);
    assert_eq!(world.fetch().exclude, [Position(11), Position(12)]);
    world.fetched(&[13, 14]);
    assert!(world.exchange.is_none(), "two fetches wait already");
    world.handle(Input::Prepared(of_key(7, &[11, 12])));
    assert_eq!(world.registered(), [11, 12]);
}

#[test]
fn what_fails_while_a_fetch_is_prepared_holds_its_key_there_too() {
    let mut world = reading_ahead();
    world.fetched(&[11]);
    world.fetched(&[]);
    world.handle(Input::Prepared(of_key(7, &[11])));
    assert_eq!(world.registered(), [11]);
    world.fetched(&[12]);
    let unknown = Outcome::Unknown {
        code: "ack_timeout",
        detail: String::new(),
    };
    world.answer(&unknown);
    world.handle(Input::Prepared(of_key(7, &[12])));
    world.fetched(&[]);
    assert_eq!(world.registered(), [] as [i64; 0], "12 would overtake 11");
}

/// What is in hand is passed over by the next read; here it is not taken after all.
#[test]
fn nothing_overtakes_what_was_passed_over_and_left_out() {
    let mut world = reading_ahead();
    world.fetched(&[12]);
    let lanes = world.machine.lanes.clone();
    world.handle(Input::Lanes(BTreeSet::new()));
    world.handle(Input::Lanes(lanes));
    world.fetched(&[]);
    world.look();
    assert_eq!(world.fetch().exclude, [Position(12)]);
    world.handle(Input::Prepared(of_key(7, &[12])));
    world.fetched(&[13]);
    world.handle(Input::Prepared(of_key(7, &[13])));
    assert_eq!(world.registered(), [] as [i64; 0], "13 would overtake 12");
}

/// The two parts of a key must not push each other out for ever.
#[test]
fn what_was_left_out_is_taken_though_what_follows_it_was_left_out_too() {
    let mut world = reading_ahead();
    world.fetched(&[12]);
    let lanes = world.machine.lanes.clone();
    world.handle(Input::Lanes(BTreeSet::new()));
    world.handle(Input::Lanes(lanes));
    world.fetched(&[]);
    world.look();
    world.handle(Input::Prepared(of_key(7, &[12])));
    world.fetched(&[13]);
    assert_eq!(world.fetch().after, Position::START);
    assert_eq!(world.fetch().exclude, [Position(13)]);
    world.handle(Input::Prepared(of_key(7, &[13])));
    world.fetched(&[12]);
    world.handle(Input::Prepared(of_key(7, &[12])));
    world.fetched(&[]);
    assert_eq!(world.registered(), [12]);
}

#[test]
fn what_cannot_be_prepared_is_read_again_with_all_that_was_read_behind_it() {
    let mut world = reading_ahead();
    world.fetched(&[11]);
    world.fetched(&[12]);
    world.handle(Input::NotPrepared);
    world.handle(Input::Prepared(of_key(7, &[12])));
    assert_eq!(world.registered(), [] as [i64; 0]);
    world.look();
    assert_eq!(world.fetch().after, Position::START);
    world.fetched(&[11, 12]);
    world.handle(Input::Prepared(of_key(7, &[11, 12])));
    world.fetched(&[]);
    assert_eq!(world.registered(), [11, 12]);
}

/// The one delivery that an open breaker lets through is given back, because of what is found
/// wrong behind it meanwhile.
#[test]
fn a_probe_that_is_not_sent_after_all_does_not_keep_the_breaker_waiting() {
    let mut world = reading_ahead();
    let down = Outcome::Retryable {
        class: Class::Outage,
        code: "connect_failed",
        detail: String::new(),
        retry_after: None,
    };
    world.fetched(&[11]);
    world.handle(Input::Prepared(of_key(7, &[11])));
    world.fetched(&[]);
    world.fetched(&[]);
    world.answer(&down);
    world.sends.clear();
    world.look();
    world.fetched(&[11]);
    world.fetched(&[12]);
    world.handle(Input::Prepared(of_key(7, &[11])));
    assert_eq!(world.registered(), [11]);
    let mut unfit = of_key(7, &[12]);
    unfit[0].unfit = Some(("schema_violation", String::new()));
    world.handle(Input::Prepared(unfit));
    world.fetched(&[]);
    assert!(world.sends.is_empty());
    world.look();
    world.fetched(&[11]);
    world.handle(Input::Prepared(of_key(7, &[11])));
    world.fetched(&[]);
    world.fetched(&[]);
    assert_eq!(world.sends.len(), 1);
}

#[test]
fn what_was_read_past_the_buffer_before_a_suspension_is_read_again() {
    let mut world = reading_ahead();
    world.fetched(&[11]);
    world.handle(Input::Prepared(of_key(7, &[11])));
    assert_eq!(world.fetch().exclude, [Position(11)]);
    world.handle(Input::Suspended(true));
    world.handle(Input::Suspended(false));
    world.fetched(&[12]);
    world.handle(Input::Prepared(of_key(7, &[12])));
    world.fetched(&[]);
    assert_eq!(world.registered(), [] as [i64; 0], "12 would overtake 11");
}
