//! Loopback ports that stay ours while nobody listens on them, so that a server can come back on
//! the address its clients know.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;

use anyhow::{Context, Result, bail};

/// Below Linux's range for outgoing connections (32768 to 60999): a port there could be taken by
/// any client socket while the server is down.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;
const TRIES_MAX: u32 = 200;

/// A port that no other test process takes while this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Takes a free port. The lock file makes it ours among test processes, the trial bind shows
    /// that nobody else listens there.
    pub fn take() -> Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("postrider-ports-{uid}"));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("creating {}", folder.display()))?;
        for _ in 0..TRIES_MAX {
            let number = FIRST + (uuid::Uuid::new_v4().as_u128() % u128::from(COUNT)) as u16;
            let path = folder.join(number.to_string());
            let lock = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .with_context(|| format!("opening {}", path.display()))?;
            if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self {
                    number,
                    _lock: lock,
                });
            }
        }
        bail!("found no free loopback port in {TRIES_MAX} tries from {FIRST} on");
    }

    /// The port.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_free_to_bind_and_taken_once() -> Result<()> {
        let ports: Vec<Port> = (0..20).map(|_| Port::take()).collect::<Result<_>>()?;
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
        for number in numbers {
            TcpListener::bind(("127.0.0.1", number))?;
        }
        Ok(())
    }
}
