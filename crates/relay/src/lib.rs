//! The relay: delivers what was committed. It only executes what the machines of
//! `postrider_core` ask for, against a store and transports; it decides nothing itself, and it
//! creates and alters nothing but the records of its own work (I19).

mod clock;
mod destination;
mod doorbell;
mod meters;
mod outgoing;
mod preflight;
mod running;
mod runtime;
mod session;
mod settings;
mod status;
mod worker;

pub use meters::Meters;
pub use runtime::runtime;
pub use settings::Settings;
pub use status::{DestinationStatus, KIND_UNKNOWN, Report, Status};
pub use worker::{Error, Relay, Stop};

use std::{fmt::Debug, sync::Arc};

use postrider_store::control::RegisteredDestination;
use postrider_transport::Transport;

/// Opens transports for destinations, by kind.
pub trait TransportFactory: Debug + Send + Sync + 'static {
    /// The kinds that this program can serve. It leaves destinations of other kinds alone.
    fn kinds(&self) -> &[&'static str];

    /// Opens a transport; the destination need not be reachable.
    ///
    /// # Errors
    /// When the settings for it are missing or contradict it.
    fn open(
        &self,
        destination: &RegisteredDestination,
    ) -> Result<Arc<dyn Transport>, postrider_transport::Error>;
}
