//! Rules that no compiler checks: who may depend on whom, what every file must and must not say,
//! and that each error code has its page.

mod arrows;
mod codes;
mod files;

use anyhow::{Result, bail};

use crate::workspace;

/// Runs every check; the error counts the faults, which were printed one a line.
pub(crate) fn run() -> Result<()> {
    let tracked = files::tracked()?;
    let mut faults = arrows::check(&workspace::packages()?);
    faults.extend(files::check(&tracked));
    faults.extend(codes::check(&tracked));
    for fault in &faults {
        eprintln!("{fault}");
    }
    match faults.len() {
        0 => Ok(()),
        1 => bail!("one fault"),
        count => bail!("{count} faults"),
    }
}
