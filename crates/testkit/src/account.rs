//! The account that servers run under. PostgreSQL and PgBouncer refuse to run as root, so under
//! root they run as the `postgres` account that their packages create.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

const ACCOUNT: &str = "postgres";

/// Who a server runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// As whoever runs the tests.
    Own,
    /// As another account, which only root can do.
    Other { uid: u32, gid: u32 },
}

impl Account {
    /// The account for servers that refuse root.
    pub(crate) fn unprivileged() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
        lookup(&passwd, ACCOUNT).with_context(|| {
            format!(
                "no account `{ACCOUNT}`: PostgreSQL and PgBouncer refuse to run as root; install \
                 the postgresql package, which creates it, or run the tests as another user"
            )
        })
    }

    pub(crate) fn own(self, path: &Path) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Other { uid, gid } => chown(path, Some(uid), Some(gid))
                .with_context(|| format!("giving {} to uid {uid}", path.display())),
        }
    }

    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        match self {
            Self::Own => {}
            Self::Other { uid, gid } => {
                command.uid(uid).gid(gid);
            }
        }
        command
    }
}

fn lookup(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account::Other { uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_an_account_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n\
                      postgres2:x:7:8::/:/bin/sh\n\
                      postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(
            lookup(passwd, "postgres"),
            Some(Account::Other { uid: 101, gid: 104 })
        );
        assert_eq!(lookup(passwd, "nobody"), None);
    }
}
