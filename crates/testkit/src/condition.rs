//! Waiting for a condition: polls in short steps up to a bound, and names what never came.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Time between two looks. Short against everything that is waited for here, long against the
/// cost of a query.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Polls `condition` until it is true. After `within` the error says which `what` did not come.
pub async fn eventually<F, Fut>(within: Duration, what: &str, mut condition: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    eventually_some(within, what, || {
        let looked = condition();
        async move { looked.await.then_some(()) }
    })
    .await
}

/// Polls `look` until it gives a value. After `within` the error says which `what` did not come.
///
/// A look that hangs counts against `within` too.
pub async fn eventually_some<T, F, Fut>(within: Duration, what: &str, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let end = Instant::now() + within;
    loop {
        match tokio::time::timeout_at(end, look()).await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) if Instant::now() < end => sleep(LOOK_EVERY).await,
            Ok(None) | Err(_) => bail!("waited {within:?} in vain for: {what}"),
        }
    }
}
