//! The codes of operator errors, each with a page in docs/errors that is built in.

use crate::fault::Exit;

macro_rules! codes {
    ($($name:ident = $number:literal, $exit:ident;)+) => {
        /// The code of an operator error. Numbers are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(clippy::enum_variant_names, reason = "`CodeUnknown` is about a code")]
        pub(crate) enum Code { $($name),+ }

        impl Code {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),+];

            /// As printed, such as `P0003`.
            pub(crate) fn number(self) -> &'static str {
                match self { $(Self::$name => $number),+ }
            }

            /// How a command ends that this stops.
            pub(crate) fn exit(self) -> Exit {
                match self { $(Self::$name => Exit::$exit),+ }
            }

            /// Its page, Markdown.
            pub(crate) fn page(self) -> &'static str {
                match self {
                    $(Self::$name => include_str!(concat!("../../../docs/errors/", $number, ".md"))),+
                }
            }
        }
    };
}

codes! {
    ConfigMissing = "P0001", CouldNot;
    ConfigNotToml = "P0002", CouldNot;
    UnknownKey = "P0003", CouldNot;
    BadValue = "P0004", CouldNot;
    MissingKey = "P0005", CouldNot;
    ContradictorySettings = "P0006", CouldNot;
    SecretUnreadable = "P0007", CouldNot;
    DanglingReference = "P0008", CouldNot;
    BadJsonSchema = "P0009", CouldNot;
    StoreUnavailable = "P0010", CouldNot;
    SchemaMissing = "P0011", CouldNot;
    SchemaOlder = "P0012", CouldNot;
    SchemaNewer = "P0013", CouldNot;
    SchemaAltered = "P0014", CouldNot;
    StoreRefused = "P0015", CouldNot;
    StoredDataUnreadable = "P0016", CouldNot;
    RegisteredDifferently = "P0017", No;
    NotApplied = "P0018", No;
    DestinationNotReady = "P0019", No;
    DestinationUnreachable = "P0020", CouldNot;
    EventInvalid = "P0021", No;
    EventTypeUnknown = "P0022", No;
    NoDeliverySet = "P0023", No;
    EventIdConflict = "P0024", No;
    PayloadTooLarge = "P0025", No;
    NoSuchEvent = "P0026", No;
    NoSuchDestination = "P0027", No;
    NotConfirmed = "P0028", No;
    FileExists = "P0029", No;
    FileUnusable = "P0030", CouldNot;
    AddressTaken = "P0031", CouldNot;
    RelayFailed = "P0032", CouldNot;
    KindUnknown = "P0033", CouldNot;
    OutputLost = "P0034", CouldNot;
    DemoNotProven = "P0035", No;
    CodeUnknown = "P0036", No;
    MigrationFailed = "P0037", CouldNot;
    BadArgument = "P0038", CouldNot;
}

impl Code {
    /// The code of a number as a person types it: `P0003`, `p3`, `3`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['P', 'p']).unwrap_or(text);
        let number: u16 = digits.parse().ok()?;
        let canonical = format!("P{number:04}");
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.number() == canonical)
    }

    /// The first line of its page, without the number.
    pub(crate) fn title(self) -> &'static str {
        let line = self.page().lines().next().unwrap_or_default();
        line.split_once(": ").map_or(line, |(_, title)| title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_page_has_a_code_and_every_code_a_page() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        let pages: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected: BTreeSet<String> = Code::ALL
            .iter()
            .map(|code| format!("{}.md", code.number()))
            .collect();
        assert_eq!(pages, expected);
    }

    #[test]
    fn every_page_names_its_code_and_says_what_it_means_and_what_to_do() {
        for code in Code::ALL {
            let page = code.page();
            let first = page.lines().next().unwrap();
            let number = code.number();
            assert!(
                first.starts_with(&format!("# {number}: ")),
                "{number}: {first}"
            );
            for section in ["## What it means", "## What to do"] {
                assert!(page.contains(section), "{number} has no {section:?}");
            }
        }
    }

    #[test]
    fn every_code_is_used_by_an_error() {
        let mut sources = String::new();
        read_all(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src").as_ref(),
            &mut sources,
        );
        for code in Code::ALL {
            let used = format!("Code::{code:?}");
            assert!(sources.contains(&used), "{} is made nowhere", code.number());
        }
    }

    fn read_all(folder: &std::path::Path, into: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read_all(&path, into);
            } else if !path.ends_with("code.rs") {
                into.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn a_code_is_found_as_people_type_it() {
        for text in ["P0003", "p0003", "P3", "3"] {
            assert_eq!(Code::parse(text), Some(Code::UnknownKey), "{text}");
        }
        for text in ["", "P", "P9999", "E0003", "P-3"] {
            assert_eq!(Code::parse(text), None, "{text}");
        }
    }
}
