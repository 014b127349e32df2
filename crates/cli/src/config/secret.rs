//! References to secrets. The secret itself is read when it is needed and never printed.

use std::{
    fmt,
    path::{Path as FilePath, PathBuf},
};

use crate::{code::Code, fault::Fault, scrub};

/// Where a secret is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    /// In this environment variable.
    Env(String),
    /// In this file, as written in the configuration.
    File(PathBuf),
    /// In the setting's own environment variable (`POSTRIDER_…`), which has this name.
    Here { value: String, variable: String },
}

impl Secret {
    /// The secret. A file's last line break is not part of it.
    ///
    /// # Errors
    /// [`Code::SecretUnreadable`], naming `key` and where it looked.
    pub(crate) fn read(&self, key: &str, base: &FilePath) -> Result<String, Fault> {
        let value = self.read_quietly(key, base)?;
        scrub::remember(&value);
        Ok(value)
    }

    fn read_quietly(&self, key: &str, base: &FilePath) -> Result<String, Fault> {
        let unreadable = |what: String, fix: String| {
            Fault::new(
                Code::SecretUnreadable,
                what,
                "Nothing was started or changed.",
                fix,
            )
        };
        let (value, place) = match self {
            Self::Here { value, variable } => (value.clone(), variable.clone()),
            Self::Env(name) => match std::env::var(name) {
                Ok(value) => (value, format!("the environment variable {name}")),
                Err(std::env::VarError::NotPresent) => {
                    return Err(unreadable(
                        format!("{key}: the environment variable {name} is not set"),
                        format!("set {name} where postrider is started"),
                    ));
                }
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(unreadable(
                        format!("{key}: the environment variable {name} is not UTF-8"),
                        format!("set {name} to text"),
                    ));
                }
            },
            Self::File(path) => {
                let path = base.join(path);
                let text = std::fs::read_to_string(&path).map_err(|error| {
                    unreadable(
                        format!("{key}: {} cannot be read: {error}", path.display()),
                        "check the path and that this user may read it".to_owned(),
                    )
                })?;
                let text = text.strip_suffix('\n').unwrap_or(&text);
                let text = text.strip_suffix('\r').unwrap_or(text);
                (text.to_owned(), path.display().to_string())
            }
        };
        if value.is_empty() {
            return Err(unreadable(
                format!("{key}: {place} is empty"),
                "put the secret there".to_owned(),
            ));
        }
        Ok(value)
    }
}

/// The reference as it may be shown to anybody.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "{{ env = {name:?} }}"),
            Self::File(path) => write!(f, "{{ file = {:?} }}", path.display().to_string()),
            Self::Here { variable, .. } => write!(f, "{{ env = {variable:?} }}"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL that may carry a password or be a credential itself.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Url {
    Text(String),
    Secret(Secret),
}

impl Url {
    /// The URL itself, where it was given and not only referred to.
    pub(crate) fn given(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Secret(Secret::Here { value, .. }) => Some(value),
            Self::Secret(Secret::Env(_) | Secret::File(_)) => None,
        }
    }

    /// # Errors
    /// As [`Secret::read`].
    pub(crate) fn read(&self, key: &str, base: &FilePath) -> Result<String, Fault> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Secret(secret) => secret.read_quietly(key, base),
        }
        // As a whole it is no secret: where the database is may be said.
        .inspect(|url| scrub::remember_parts(url))
    }
}

/// What may be shown: the reference, or scheme and host.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{:?}", shown(text)),
            Self::Secret(secret) => secret.fmt(f),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a URL holds a password, or for a database's URL a query that names one; any other query
/// may be a token.
pub(crate) fn is_in(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_password = match place.rsplit_once('@') {
        Some((user, _)) => user.contains(':'),
        None => false,
    };
    is_password
        || if scheme.starts_with("postgres") {
            query.to_ascii_lowercase().contains("password")
        } else {
            !query.is_empty()
        }
}

/// A URL without anything that could be a credential: user, password, query and fragment never,
/// the path only where it names a database or a local file.
pub(crate) fn shown(text: &str) -> String {
    if let Some(path) = text.strip_prefix("sqlite:") {
        return format!("sqlite:{path}");
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return "(not a URL)".to_owned();
    };
    // An `@` may stand in a password, so everything up to the last one before the path goes.
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    match scheme {
        "postgres" | "postgresql" => {
            let end = path.find(['?', '#']).unwrap_or(path.len());
            // A password with an unescaped `/` moves the `@` behind the first slash.
            if path[..end].contains('@') {
                return format!("{scheme}://…");
            }
            format!("{scheme}://{host}{}", &path[..end])
        }
        _ if path.contains('@') => format!("{scheme}://…"),
        _ if path.is_empty() || path == "/" => format!("{scheme}://{host}"),
        _ => format!("{scheme}://{host}/…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scheme_host_and_database_are_shown() {
        let check = |url: &str, expect: &str| assert_eq!(shown(url), expect);
        check("sqlite:data/x.db", "sqlite:data/x.db");
        check(
            "postgresql://u:p@h:5432/db?sslmode=require&password=p",
            "postgresql://h:5432/db",
        );
        check("postgresql://u:p@ss@h/db", "postgresql://h/db");
        check("postgresql://u:p/ss@h/db", "postgresql://…");
        check(
            "https://user:S1@host/services/S2?token=S3#S4",
            "https://host/…",
        );
        check("https://host", "https://host");
        check("https://host?token=S3", "https://host/…");
        check("user:S1@host", "(not a URL)");
    }

    #[test]
    fn a_secret_is_read_when_needed_and_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s"), "hush\n").unwrap();
        let secret = Secret::File("s".into());
        assert_eq!(secret.read("k", folder.path()).unwrap(), "hush");
        assert_eq!(
            format!("{secret} {secret:?}"),
            "{ file = \"s\" } { file = \"s\" }"
        );

        let here = Secret::Here {
            value: "hush".to_owned(),
            variable: "POSTRIDER_X".to_owned(),
        };
        assert!(!format!("{here} {here:?}").contains("hush"));

        let missing = Secret::Env("POSTRIDER_NO_SUCH_VARIABLE".to_owned());
        let fault = missing
            .read("connections.a.token", folder.path())
            .unwrap_err();
        assert_eq!(fault.code, Code::SecretUnreadable);
        assert!(fault.what.contains("connections.a.token"));
        assert!(fault.what.contains("POSTRIDER_NO_SUCH_VARIABLE"));
    }
}
