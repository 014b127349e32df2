//! Whether a file is on a file system that SQLite can share between processes.
//!
//! WAL keeps its index in shared memory and relies on working locks. Over a network, or with two
//! machines on one file, neither holds, and the database is corrupted without a warning.

use std::path::Path;

use postrider_store::StoreError;

/// Names of the file systems that are refused, by the magic number of `statfs(2)`.
#[cfg(target_os = "linux")]
const NETWORK: &[(i128, &str)] = &[
    (0x6969, "nfs"),
    (0x517B, "smb"),
    (0xFE53_4D42, "smb2"),
    (0xFF53_4D42, "cifs"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "kafs"),
    (0x7375_7245, "coda"),
    (0x564C, "ncp"),
    (0x00C3_6400, "ceph"),
    (0x0BD0_0BD0, "lustre"),
    (0x0116_1970, "gfs2"),
    (0x7461_636F, "ocfs2"),
];

/// Names of the file systems that may or may not be remote.
#[cfg(target_os = "linux")]
const DOUBTFUL: &[(i128, &str)] = &[(0x6573_5546, "fuse"), (0x0102_1997, "9p")];

/// Refuses a network file system unless `allowed`, and warns of one that may be one. Checks the
/// folder, since the file may not be there yet.
#[cfg(target_os = "linux")]
pub(crate) fn check(path: &Path, allowed: bool) -> Result<(), StoreError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    // A folder that cannot be looked at is for opening to complain of.
    let Ok(found) = rustix::fs::statfs(folder) else {
        return Ok(());
    };
    // Magic numbers are 32 bits; the field's type and sign differ between platforms.
    let magic = i128::from(found.f_type) & 0xFFFF_FFFF;
    judge(path, magic, allowed)
}

/// Other systems have no such number: their users are told in the documentation.
#[cfg(not(target_os = "linux"))]
pub(crate) fn check(_path: &Path, _allowed: bool) -> Result<(), StoreError> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn judge(path: &Path, magic: i128, allowed: bool) -> Result<(), StoreError> {
    let named = |table: &[(i128, &'static str)]| {
        table
            .iter()
            .find(|(number, _)| *number == magic)
            .map(|(_, name)| *name)
    };
    if let Some(name) = named(NETWORK).filter(|_| !allowed) {
        return Err(StoreError::Refused {
            message: format!(
                "{} is on a network file system ({name}), where SQLite corrupts databases that \
                 several processes use; move it to a local disk, or allow network file systems \
                 explicitly if exactly one machine ever opens it",
                path.display()
            ),
            source: None,
        });
    }
    if let Some(name) = named(DOUBTFUL).or(named(NETWORK)) {
        tracing::warn!(
            filesystem = name,
            path = %path.display(),
            "the database may be on a network file system; SQLite needs a local disk"
        );
    }
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn sql_3_a_network_file_system_is_refused_unless_allowed() {
        let path = Path::new("/mnt/share/events.db");
        for (magic, name) in NETWORK {
            let refused = judge(path, *magic, false).unwrap_err().to_string();
            assert!(
                refused.contains(name) && refused.contains("/mnt/share/events.db"),
                "{refused}"
            );
            judge(path, *magic, true).unwrap();
        }
        for (magic, _) in DOUBTFUL {
            judge(path, *magic, false).unwrap();
        }
        judge(path, 0xEF53, false).unwrap();
    }
}
