//! How far a consumer group has come.

use postrider_transport::{ConsumerPosition, Error};

use crate::{
    connection::Settings,
    link::{Failed, Link, ask},
    lookup::one,
    resp::Reply,
};

/// One group, as the stream knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Entries that were given to a consumer and not confirmed.
    pub(crate) pending: u64,
    pub(crate) last_delivered: String,
    /// Entries that were given to no consumer yet; `None`: the server does not know.
    pub(crate) lag: Option<u64>,
}

impl Group {
    /// From one item of an answer to XINFO GROUPS.
    fn of(item: &Reply) -> Option<Self> {
        let number = |name: &str| u64::try_from(item.field(name)?.number()?).ok();
        Some(Self {
            name: item.field("name")?.text()?.to_owned(),
            pending: number("pending")?,
            last_delivered: item.field("last-delivered-id")?.text()?.to_owned(),
            lag: number("lag"),
        })
    }

    /// Entries that it has not confirmed.
    pub(crate) fn waiting(&self) -> Option<u64> {
        self.lag.map(|lag| lag + self.pending)
    }
}

pub(crate) fn groups(reply: &Reply) -> Vec<Group> {
    let items = reply.list().unwrap_or_default();
    items.iter().filter_map(Group::of).collect()
}

pub(crate) async fn of(
    link: &mut Link,
    settings: &Settings,
    stream: &str,
    consumer: &str,
) -> Result<ConsumerPosition, Failed> {
    // Both of one moment.
    let commands: [&[&str]; 4] = [
        &["MULTI"],
        &["XINFO", "GROUPS", stream],
        &["XPENDING", stream, consumer, "-", "+", "1"],
        &["EXEC"],
    ];
    let replies = ask(link, &commands, settings.api_timeout).await?;
    let [_, _, _, both] = <[Reply; 4]>::try_from(replies).map_err(|_| unreadable())?;
    let both = both.ok().map_err(|error| Failed::error(&error))?;
    let [known, pending] = both.list().unwrap_or_default() else {
        return Err(unreadable());
    };
    let known = known.clone().ok().map_err(|error| {
        if error.contains("no such key") {
            let message = format!("there is no stream {stream:?}");
            return Failed::Answered(Error::Misconfigured {
                code: "stream_missing",
                message,
            });
        }
        Failed::error(&error)
    })?;
    let group = groups(&known)
        .into_iter()
        .find(|group| group.name == consumer)
        .ok_or_else(|| {
            Failed::Answered(Error::Misconfigured {
                code: "group_missing",
                message: format!(
                    "stream {stream:?} has no consumer group {consumer:?}; create it, or name it \
                     in groups and run `provision`"
                ),
            })
        })?;
    let first = pending
        .list()
        .and_then(|entries| entries.first()?.list()?.first()?.text());
    let confirmed = match first {
        None if group.pending == 0 => Some(group.last_delivered.clone()),
        None => None,
        Some(first) => {
            // The last one before the first that is not confirmed.
            let before = format!("({first}");
            let command = ["XREVRANGE", stream, &before, "-", "COUNT", "1"];
            let entry = one(link, settings, &command).await?;
            entry
                .list()
                .and_then(|entries| entries.first()?.list()?.first()?.text())
                .map(str::to_owned)
        }
    };
    Ok(ConsumerPosition {
        place: stream.to_owned(),
        confirmed: confirmed.filter(|id| id != "0-0"),
        waiting: group.waiting(),
        exact: true,
    })
}

fn unreadable() -> Failed {
    Failed::error("the answer cannot be read")
}
