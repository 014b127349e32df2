//! What an operator may set about a relay.

use std::time::Duration;

use postrider_contract::Destination;
use postrider_core::{backoff::Backoff, deadline::Deadlines};
use postrider_transport::Usage;

/// Settings of one relay process. [`Settings::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A name for people, such as host and process.
    pub owner: String,
    /// The program's version, shown beside its sessions.
    pub version: String,
    pub deadlines: Deadlines,
    /// Between attempts of one delivery.
    pub backoff: Backoff,
    /// Between probes of a destination that is out.
    pub breaker: Backoff,
    /// Deliveries in one attempt.
    pub batch_max: u32,
    /// Payload bytes in one attempt; twice this is fetched ahead.
    pub batch_bytes_max: u64,
    /// Batches of one destination being sent at the same time.
    pub sending_max: usize,
    /// Attempts per destination whose late answers are still listened to.
    pub late_max: usize,
    pub poll_min: Duration,
    /// The longest pause between two looks at an empty queue while no doorbell is heard.
    pub poll_max: Duration,
    /// The same while the doorbell works.
    pub poll_max_with_doorbell: Duration,
    /// Least pause between two scans from the front of a queue that is not empty.
    pub rescan: Duration,
    /// One dispatcher at a time, by a database lease.
    pub exclusive: bool,
    /// Stop after this many fetches of every destination.
    pub iterations_max: Option<u64>,
    /// What session and attempt ids, and jitter, are drawn from; `None`: from the operating
    /// system. Two relays with one seed draw the same session ids, so only a simulator sets it.
    pub seed: Option<u64>,
}

impl Settings {
    /// The defaults, for a worker of this name.
    #[must_use]
    pub fn new(owner: String, deadlines: Deadlines) -> Self {
        Self {
            owner,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            deadlines,
            backoff: Backoff {
                first: Duration::from_millis(500),
                max: Duration::from_secs(300),
            },
            breaker: Backoff {
                first: Duration::from_millis(250),
                max: Duration::from_secs(15),
            },
            batch_max: 2000,
            batch_bytes_max: 8 << 20,
            sending_max: 2,
            late_max: 16,
            poll_min: Duration::from_millis(10),
            poll_max: Duration::from_millis(100),
            poll_max_with_doorbell: Duration::from_secs(1),
            rescan: Duration::from_millis(50),
            exclusive: false,
            iterations_max: None,
            seed: None,
        }
    }

    /// How a relay with these settings uses a destination: what its preflight and `provision` go
    /// by.
    #[must_use]
    pub fn usage(&self, destination: &Destination) -> Usage {
        /// Headers and the structured form around a payload.
        const AROUND_PAYLOAD: u64 = 16 << 10;
        let payload = destination.max_payload_bytes;
        let attempts = destination.max_attempts.unwrap_or(10);
        let limits = self.deadlines.settings();
        // The first resend after an unknown outcome comes at the latest when a lost session is
        // recovered; refusals go on for all attempts.
        let recovery = limits.lease + limits.heartbeat + self.backoff.ceiling(1);
        let refusals = (1..attempts.min(64)).map(|failures| self.backoff.ceiling(failures));
        Usage {
            message_bytes_max: payload.map_or(0, |bytes| bytes + AROUND_PAYLOAD),
            resend_span: recovery.max(refusals.sum()),
        }
    }
}
