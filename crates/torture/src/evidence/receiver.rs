//! The receiver's own log.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;

use super::Arrival;
use crate::receiver;

/// What it accepted, by destination: each has a path of its own.
pub(crate) fn arrivals(folder: &Path) -> Result<BTreeMap<String, Vec<Arrival>>> {
    let mut all = BTreeMap::<String, Vec<Arrival>>::new();
    for line in receiver::log(folder)? {
        if line.accepted() {
            let destination = line.path.trim_start_matches('/').to_owned();
            all.entry(destination).or_default().push(Arrival {
                event: line.event,
                digest: line.digest,
                number: None,
            });
        }
    }
    Ok(all)
}
