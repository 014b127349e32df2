//! A faulty link: a proxy between one relay and what it talks to.

use anyhow::{Result, bail};
use postrider_testkit::{
    FaultProxy,
    proxy::{Direction, Flow},
};
use tokio::time::sleep;

use crate::{fault::Kind, schedule::Strike};

/// Disturbs those of the links that the strike means, and heals them.
pub(super) async fn strike(links: &[FaultProxy], strike: &Strike) -> Result<()> {
    let struck: Vec<&FaultProxy> = links
        .iter()
        .enumerate()
        .filter(|(place, _)| strike.both || *place == strike.relay)
        .map(|(_, link)| link)
        .collect();
    for link in &struck {
        disturb(link, strike).await?;
    }
    sleep(strike.lasts).await;
    for link in &struck {
        link.heal().await?;
    }
    Ok(())
}

async fn disturb(link: &FaultProxy, strike: &Strike) -> Result<()> {
    use Kind::{
        DestinationLinkCut, DestinationLinkDelayed, DestinationLinkHalfClosed, DestinationLinkHeld,
        DestinationLinkSwallowed, StoreLinkCut, StoreLinkDelayed, StoreLinkHalfClosed,
        StoreLinkHeld, StoreLinkSwallowed,
    };
    // Which direction, by a figure of the schedule that nothing else here depends on.
    let answers = strike.lasts.as_millis().is_multiple_of(2);
    let direction = if answers {
        Direction::ServerToClient
    } else {
        Direction::ClientToServer
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others strike no link")]
    match strike.kind {
        // From nearly nothing to longer than the deadlines.
        DestinationLinkDelayed | StoreLinkDelayed => link.set_both(Flow::Delay(strike.lasts / 4)),
        DestinationLinkSwallowed | StoreLinkSwallowed => link.set(direction, Flow::Swallow),
        DestinationLinkHeld | StoreLinkHeld => link.set(direction, Flow::Hold),
        DestinationLinkCut | StoreLinkCut => link.cut().await,
        DestinationLinkHalfClosed | StoreLinkHalfClosed => link.half_close(direction),
        other => bail!("{other} is no fault of a link"),
    }
    Ok(())
}
