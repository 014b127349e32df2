//! The doorbell: a listener of the store, as rings.

use postrider_store::sessions::Listener;
use tokio::sync::mpsc;
use tracing::warn;

/// Turns a listener into rings. It ends when the listener fails; polling goes on.
pub(crate) fn ring(listener: Option<Box<dyn Listener>>) -> Option<mpsc::Receiver<()>> {
    let mut listener = listener?;
    // One waiting ring says all.
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = sender.closed() => return,
                rung = listener.rung() => if let Err(error) = rung {
                    warn!(%error, "the doorbell is not heard any more; polling");
                    return;
                },
            }
            if let Err(mpsc::error::TrySendError::Closed(())) = sender.try_send(()) {
                return;
            }
        }
    });
    Some(receiver)
}

pub(crate) async fn next_ring(rings: &mut Option<mpsc::Receiver<()>>) -> Option<()> {
    match rings {
        Some(receiver) => {
            let rung = receiver.recv().await;
            if rung.is_none() {
                *rings = None;
            }
            rung
        }
        None => std::future::pending().await,
    }
}
