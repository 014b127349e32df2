//! The two relays of a world, and the faults that strike relays in every world.

use std::{path::Path, time::Duration};

use anyhow::{Result, bail, ensure};
use tokio::time::{Instant, sleep};

use super::Struck;
use crate::{
    clock::{self, SteppedClock},
    fault::Kind,
    relay::{Configured, LEASE, Relay},
    schedule::Strike,
};

/// An added relay works for this long besides.
const WORK: Duration = Duration::from_millis(1_500);
/// Longer than a lease, shorter than what the end of a run waits for.
const CLOCK_STEP_SECONDS: i32 = 20;
/// An added relay may find the database away and end; it is started again for this long.
const JOIN_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Relays {
    pub(crate) two: [Relay; 2],
    /// One that joins for a while, and reaches everything directly.
    added: Relay,
}

impl Relays {
    /// Each with its own configuration; the last is the added one's.
    pub(crate) fn new(postrider: &Path, configured: &[Configured; 3]) -> Result<Self> {
        let [first, second, direct] = configured;
        Ok(Self {
            two: [
                Relay::new(postrider, "first", first)?,
                Relay::new(postrider, "second", second)?,
            ],
            added: Relay::new(postrider, "added", direct)?,
        })
    }

    pub(crate) fn added(&self) -> &Relay {
        &self.added
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Relay> {
        self.two.iter().chain([&self.added])
    }

    pub(crate) fn start(&self) -> Result<()> {
        self.two.iter().try_for_each(Relay::start)
    }

    pub(crate) async fn keep_running(&self) -> Result<()> {
        let [first, second] = &self.two;
        tokio::try_join!(first.keep_running(), second.keep_running())?;
        Ok(())
    }

    pub(crate) async fn stop(&self) -> Result<()> {
        for relay in &self.two {
            relay.stop().await?;
        }
        Ok(())
    }

    /// Nothing if the strike is not for relays.
    pub(crate) async fn strike(&self, strike: &Strike) -> Result<Option<Struck>> {
        let relay = &self.two[strike.relay];
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the others strike elsewhere"
        )]
        match strike.kind {
            Kind::RelayKilled => {
                let _down = relay.hold().await?;
                relay.program().kill().await?;
                sleep(strike.lasts).await;
            }
            Kind::RelayPaused => pause(relay, strike.lasts).await?,
            Kind::RelayPausedPastLease => pause(relay, LEASE + strike.lasts).await?,
            Kind::RelayAdded => self.add(strike).await?,
            Kind::RelayClockStepped => return self.step_clock(strike).await.map(Some),
            _ => return Ok(None),
        }
        Ok(Some(Struck::Yes))
    }

    /// It joins, works, and is told to stop.
    async fn add(&self, strike: &Strike) -> Result<()> {
        let end = Instant::now() + JOIN_WITHIN;
        while Instant::now() < end {
            self.added.start()?;
            sleep(WORK + strike.lasts).await;
            if self.added.program().exited()?.is_none() {
                self.added.program().terminate()?;
                // How it ends depends on whether the database is there at this moment.
                self.added.program().wait(JOIN_WITHIN).await?;
                return Ok(());
            }
        }
        bail!("it ended each time:\n{}", self.added.program().log_tail())
    }

    async fn step_clock(&self, strike: &Strike) -> Result<Struck> {
        let Some(library) = clock::library() else {
            return Ok(Struck::LeftOut("libfaketime is not installed"));
        };
        let program = self.added.program();
        let clock = SteppedClock::new(&library, program.folder())?;
        let end = Instant::now() + JOIN_WITHIN;
        while Instant::now() < end {
            clock.step(0)?;
            self.added.start_with(|command| clock.give_to(command))?;
            sleep(WORK).await;
            if let Some(pid) = program.pid() {
                clock.ensure_stepped(pid)?;
            }
            for seconds in [CLOCK_STEP_SECONDS, -CLOCK_STEP_SECONDS] {
                clock.step(seconds)?;
                sleep(strike.lasts).await;
            }
            if program.exited()?.is_none() {
                program.kill().await?;
                return Ok(Struck::Yes);
            }
        }
        bail!("it ended each time:\n{}", program.log_tail())
    }
}

async fn pause(relay: &Relay, lasts: Duration) -> Result<()> {
    let _held = relay.hold().await?;
    relay.program().pause()?;
    sleep(lasts).await;
    ensure!(relay.program().exited()?.is_none(), "it ended in its sleep");
    relay.program().resume()
}
