//! Creating a stream, its groups and the name of its data. Only ever by command.

use postrider_transport::{Error, Provisioning};

use crate::{
    Place,
    connection::Settings,
    link::{Failed, Link, Named, ask},
    lookup::one,
    positions::groups,
};

/// A group that exists for as long as it takes to make a stream without entries.
const PASSING: &str = "postrider:provision";

pub(crate) async fn provision(
    link: &mut Link,
    place: &Place,
    settings: &Settings,
    how: Provisioning,
) -> Result<Vec<String>, Failed> {
    let mut done = Vec::new();
    let make = how == Provisioning::Make;
    if link.facts.named == Named::Unnamed {
        let (marker, cluster) = (place.marker(), place.cluster.as_str());
        done.push(format!("name the data {cluster:?}, by the key {marker:?}"));
        if make {
            // Never over another name.
            one(link, settings, &["SET", &marker, cluster, "NX"]).await?;
            link.facts.named = Named::Matches;
        }
    }
    if !place.key.is_constant() {
        return Ok(done);
    }
    let stream = place.first_key();
    let kind = one(link, settings, &["TYPE", &stream]).await?;
    let known = match kind.text() {
        Some("stream") => groups(&one(link, settings, &["XINFO", "GROUPS", &stream]).await?),
        Some("none") => {
            done.push(format!("create stream {stream:?}"));
            if make {
                let commands: [&[&str]; 4] = [
                    &["MULTI"],
                    &["XGROUP", "CREATE", &stream, PASSING, "$", "MKSTREAM"],
                    &["XGROUP", "DESTROY", &stream, PASSING],
                    &["EXEC"],
                ];
                let mut replies = ask(link, &commands, settings.api_timeout).await?;
                let made = replies.pop().map_or(Ok(()), |made| made.ok().map(drop));
                made.map_err(|error| Failed::error(&error))?;
            }
            Vec::new()
        }
        other => {
            return Err(Failed::Answered(Error::Misconfigured {
                code: "wrong_type",
                message: format!(
                    "the key {stream:?} holds a {}, not a stream; take another target",
                    other.unwrap_or("something else")
                ),
            }));
        }
    };
    for group in &settings.groups {
        if known.iter().any(|own| own.name == *group) {
            continue;
        }
        done.push(format!(
            "create consumer group {group:?} of stream {stream:?}, from its first entry"
        ));
        if make {
            one(link, settings, &["XGROUP", "CREATE", &stream, group, "0"]).await?;
        }
    }
    Ok(done)
}
