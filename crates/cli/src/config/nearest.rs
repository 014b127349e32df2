//! What an unknown key was probably meant to be.

use super::{
    keys::KEYS,
    layers::{Origin, variable},
    path::{Path, Segment},
};
use crate::{code::Code, fault::Fault};

/// Jaro-Winkler likeness below which a suggestion would only confuse: of a key of the same table,
/// and of one somewhere else.
const LIKENESS_MIN: f64 = 0.75;
const LIKENESS_MIN_ELSEWHERE: f64 = 0.93;

/// The fault for a key that does not exist, with the nearest one that does.
pub(crate) fn unknown_key(origin: &Origin, path: &Path) -> Fault {
    let nearest = nearest(path);
    let fix = match (&nearest, origin) {
        (Some(pattern), Origin::Environment { .. }) => {
            format!("did you mean {}?", variable(pattern))
        }
        (Some(pattern), Origin::File { .. } | Origin::Flag) => {
            format!("did you mean {}?", in_place(pattern, path))
        }
        (None, _) => "remove it; `postrider config keys` lists every key".to_owned(),
    };
    Fault::new(
        Code::UnknownKey,
        format!("{origin}: there is no key {path}"),
        "",
        fix,
    )
}

/// The pattern of the most alike key: first among those of the same table, then anywhere.
fn nearest(path: &Path) -> Option<&'static str> {
    let last = match path.0.last()? {
        Segment::Name(name) => name.as_str(),
        Segment::Index(_) => return None,
    };
    let parent = Path(path.0[..path.0.len() - 1].to_vec());
    let depth = path.0.len();
    let siblings = KEYS
        .iter()
        .filter(|key| parent.leads_to(key.pattern))
        .filter_map(|key| {
            let parts: Vec<&str> = key.pattern.split('.').collect();
            let end: usize = parts.iter().take(depth).map(|part| part.len() + 1).sum();
            Some((&key.pattern[..end - 1], *parts.get(depth - 1)?))
        });
    let anywhere = KEYS
        .iter()
        .filter_map(|key| Some((key.pattern, key.pattern.rsplit('.').next()?)));
    best(last, siblings, LIKENESS_MIN).or_else(|| best(last, anywhere, LIKENESS_MIN_ELSEWHERE))
}

fn best<'a>(
    given: &str,
    candidates: impl Iterator<Item = (&'a str, &'a str)>,
    likeness_min: f64,
) -> Option<&'a str> {
    candidates
        .filter(|(_, name)| !matches!(*name, "*" | "#"))
        .map(|(pattern, name)| (pattern, strsim::jaro_winkler(given, name)))
        .filter(|(_, likeness)| *likeness >= likeness_min)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(pattern, _)| pattern)
}

/// The pattern with the names that the given place already has.
fn in_place(pattern: &str, given: &Path) -> String {
    let mut path = Path::default();
    for (at, part) in pattern.split('.').enumerate() {
        path = match (part, given.0.get(at)) {
            ("*" | "#", Some(segment)) => path.with(segment.clone()),
            ("*", None) => path.name("NAME"),
            ("#", None) => path.index(0),
            (part, _) => path.name(part),
        };
    }
    path.to_string()
}
