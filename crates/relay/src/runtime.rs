//! The async runtime of a program that relays.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// A thread for every second core, unless `TOKIO_WORKER_THREADS` says otherwise. Handing each
/// answer from one thread to another costs more than a second thread brings to a destination, and
/// the database and the broker are often on the same machine.
///
/// # Errors
/// When the system gives no threads or files for it.
pub fn runtime() -> io::Result<Runtime> {
    let mut runtime = Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        runtime.worker_threads((cores / 2).max(1));
    }
    runtime.enable_all().build()
}
