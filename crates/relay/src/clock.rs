//! The process's monotonic clock, as the machines see it.

use postrider_core::Instant;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(tokio::time::Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    pub(crate) fn now(self) -> Instant {
        Instant(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    pub(crate) async fn sleep_until(self, at: Option<Instant>) {
        match at {
            Some(at) => {
                let at = self.0 + std::time::Duration::from_micros(at.0);
                tokio::time::sleep_until(at).await;
            }
            None => std::future::pending().await,
        }
    }
}
