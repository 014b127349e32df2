//! Names that people use: `orders` for all generations of a destination, `orders#2` for one; and
//! what a name that does not exist was probably meant to be.

use postrider_core::DestinationId;
use postrider_store::control::{RegisteredDestination, Registry};

use crate::{code::Code, fault::Fault};

/// The destinations that a text names, newest generation last.
///
/// # Errors
/// [`Code::NoSuchDestination`], naming the nearest.
pub(crate) fn resolve<'a>(
    registry: &'a Registry,
    text: &str,
) -> Result<Vec<&'a RegisteredDestination>, Fault> {
    let (name, generation) = match text.split_once('#') {
        Some((name, generation)) => (name, generation.parse::<u64>().ok()),
        None => (text, None),
    };
    let mut found: Vec<&RegisteredDestination> = registry
        .destinations
        .iter()
        .filter(|row| row.destination.name == name)
        .filter(|row| match (text.contains('#'), generation) {
            (true, generation) => Some(row.destination.generation) == generation,
            (false, _) => true,
        })
        .collect();
    found.sort_by_key(|row| row.destination.generation);
    if found.is_empty() {
        return Err(unknown(registry, text));
    }
    Ok(found)
}

fn unknown(registry: &Registry, text: &str) -> Fault {
    let labels: Vec<String> = registry.destinations.iter().map(label_of).collect();
    let names = registry
        .destinations
        .iter()
        .map(|row| row.destination.name.clone());
    let fix = match nearest(text, labels.iter().cloned().chain(names)) {
        Some(known) => format!("did you mean {known:?}?"),
        None if labels.is_empty() => "register destinations with `postrider apply`".to_owned(),
        None => "`postrider destination list` has them all".to_owned(),
    };
    Fault::new(
        Code::NoSuchDestination,
        format!("no destination {text:?} is registered"),
        "",
        fix,
    )
}

/// The most alike of the known names, if one is alike enough not to confuse.
pub(crate) fn nearest(given: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(given, &known), known))
        .filter(|(likeness, _)| *likeness >= 0.75)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

/// `orders#2`, or the number of a destination that is not registered.
pub(crate) fn label(registry: &Registry, id: DestinationId) -> String {
    find(registry, id).map_or_else(|| format!("destination {id}"), label_of)
}

pub(crate) fn label_of(row: &RegisteredDestination) -> String {
    format!("{}#{}", row.destination.name, row.destination.generation)
}

pub(crate) fn find(registry: &Registry, id: DestinationId) -> Option<&RegisteredDestination> {
    registry.destinations.iter().find(|row| row.id == id)
}
