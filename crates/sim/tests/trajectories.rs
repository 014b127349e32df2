//! Trajectories that found something once, the same seed twice, and a sample of fresh seeds.

use postrider_sim::{Outcome, run};

fn check(seed: u64) -> Outcome {
    let outcome = run(seed, false);
    if let Some(violation) = &outcome.violation {
        panic!(
            "seed {seed}: {violation}\nreplay it: cargo run -p postrider-sim -- run --seed {seed} --trace"
        );
    }
    outcome
}

#[test]
fn the_same_seed_gives_the_same_story_to_the_byte() {
    for seed in 0..60 {
        let (first, second) = (run(seed, true), run(seed, true));
        assert!(!first.story.is_empty());
        assert_eq!(first.story, second.story, "seed {seed}");
        assert_eq!(first.coverage, second.coverage, "seed {seed}");
        let untold = run(seed, false);
        assert_eq!(
            first.coverage, untold.coverage,
            "seed {seed}: telling it changes nothing"
        );
    }
}

#[test]
fn seeds_that_found_something_once() {
    /// A session that had ended span without a pause while its last evidence was under way.
    const SPINNING: u64 = 148;
    /// A read was under way while its lane was handed over and came back; what it brought was
    /// sent although another worker had left it unknown meanwhile.
    const STALE_READ: u64 = 249_687;
    /// What was fetched behind a failure was dropped and then passed over: evidence had closed the
    /// failure before it was written down.
    const PASSED_OVER: u64 = 214_386_510_901_563;
    /// A worker crashed and was paused in one quantum, and the pause undid the crash.
    const CRASH_UNDONE: u64 = 2_110_943;
    /// Two parts of a key, fetched while the other was being prepared, pushed each other out of the
    /// buffer for ever.
    const PUSHED_OUT: u64 = 7_013_672;
    /// The delivery that was to probe a broken destination was given back unsent, and the breaker
    /// waited for its answer for ever.
    const PROBE_UNSENT: u64 = 9_106_098;
    /// A read was under way while a suspension emptied the buffer that it had passed over, and the
    /// destination was resumed before it came back.
    const READ_PAST: u64 = 20_263_691;
    /// A retry was in hand when the database's clock stepped back: its key was passed over as
    /// waiting, and the end of it sent first.
    const WAITS_IN_HAND: u64 = 20_015_455;
    /// The answer of an opening was lost and the session ended: the relay asked for the same one
    /// for ever.
    const OPENED_AND_ENDED: u64 = 50_339;
    /// A worker slept past the time for which an ended session listens, and dropped what had come.
    const SLEPT_PAST: u64 = 808_579;
    /// What a worker sends as it wakes up was taken for the send of its next session.
    const WOKE_UP: u64 = 340_494;
    /// The same, of two attempts of which one holds the other's members.
    const WOKE_UP_WITH_MORE: u64 = 957_550;
    for seed in [
        SLEPT_PAST,
        WOKE_UP,
        WOKE_UP_WITH_MORE,
        OPENED_AND_ENDED,
        WAITS_IN_HAND,
        READ_PAST,
        SPINNING,
        STALE_READ,
        PASSED_OVER,
        CRASH_UNDONE,
        PUSHED_OUT,
        PROBE_UNSENT,
    ] {
        check(seed);
    }
}

#[test]
fn a_thousand_seeds_keep_every_promise() {
    for seed in 0..1_000 {
        check(seed);
    }
}
