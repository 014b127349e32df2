//! Whether a server and its stream are what the destination's definition says, and fit its use.
//! Read-only.

use postrider_contract::destination::Durability;
use postrider_transport::{Problem, Severity, Usage};

use crate::{
    Place, append,
    connection::Settings,
    info::Info,
    link::{Failed, Link, Named, Refused, ask},
    outcome,
    positions::{Group, groups},
    resp::Reply,
};

/// What the server is asked.
struct Seen {
    info: Info,
    appendfsync: Option<String>,
    save: Option<String>,
}

pub(crate) async fn problems(
    link: &mut Link,
    place: &Place,
    settings: &Settings,
    usage: &Usage,
) -> Result<Vec<Problem>, Failed> {
    let mut found = Vec::new();
    if link.facts.named == Named::Unnamed {
        found.push(warning(
            "cluster_unnamed",
            format!(
                "nothing names the server's data, so it cannot be told whether it is {:?}; run \
             `provision`, or set the key {:?} to that name",
                place.cluster,
                place.marker()
            ),
        ));
    }
    rehearse(link, settings, &mut found).await?;
    let commands: [&[&str]; 3] = [
        &["INFO"],
        &["CONFIG", "GET", "appendfsync"],
        &["CONFIG", "GET", "save"],
    ];
    let replies = ask(link, &commands, settings.api_timeout).await?;
    let text = |at: usize, name: &str| {
        let reply: &Reply = replies.get(at)?;
        Some(reply.field(name)?.text()?.to_owned())
    };
    let seen = Seen {
        info: Info::read(replies.first().and_then(Reply::text).unwrap_or_default()),
        appendfsync: text(1, "appendfsync"),
        save: text(2, "save"),
    };
    eviction(&seen.info, &mut found);
    durability(place, settings, &seen, &mut found);
    let (needed, max) = (usage.message_bytes_max, link.facts.text_bytes_max);
    if max < needed {
        found.push(warning(
            "size_limit",
            format!(
                "messages may have up to {needed} bytes with headers, and the server's \
             proto-max-bulk-len is {max}; larger ones will be quarantined"
            ),
        ));
    }
    match settings.dedup_window {
        Some(window) if window < usage.resend_span => {
            found.push(warning(
                "dedup_window_short",
                format!(
                    "ids are remembered for {window:?}, and an event may be sent again up to {:?} \
                 after its first send; resends beyond the window cost a look-up each. Raise \
                 dedup_window",
                    usage.resend_span
                ),
            ));
        }
        Some(_) | None => {}
    }
    if place.key.is_constant() {
        stream(link, place, settings, &mut found).await?;
    } else if settings.length_max.is_some() && settings.groups.is_empty() {
        found.push(unprotected(settings));
    }
    Ok(found)
}

/// The very command that sends a batch, with no message in it: what the server refuses of it by its
/// state or by the user's permissions, it refuses now.
async fn rehearse(
    link: &mut Link,
    settings: &Settings,
    found: &mut Vec<Problem>,
) -> Result<(), Failed> {
    let deadline = tokio::time::Instant::now() + settings.api_timeout;
    for again in [true, false] {
        let command = append::command(&link.facts.script, &[], &[], settings, false);
        let replies = link.call(&command, command.len(), 1, deadline).await?;
        let Some(Reply::Error(error)) = replies.first() else {
            return Ok(());
        };
        if again && outcome::code(error) == Some("script_missing") {
            reload(link, settings).await?;
            continue;
        }
        let refused = Refused::error(error);
        if outcome::needs_a_person(refused.code) {
            found.push(problem(refused.code, Severity::Refused, refused.message));
            return Ok(());
        }
        return Err(Failed::Answered(refused.into()));
    }
    Ok(())
}

/// Gives the server the script again: its cache is emptied by SCRIPT FLUSH.
pub(crate) async fn reload(link: &mut Link, settings: &Settings) -> Result<(), Failed> {
    let load = ["SCRIPT", "LOAD", append::SCRIPT];
    let script = crate::lookup::one(link, settings, &load).await?;
    let script = script.text().unwrap_or_default();
    script.clone_into(&mut link.facts.script);
    Ok(())
}

fn eviction(info: &Info, found: &mut Vec<Problem>) {
    let policy = info.text("maxmemory_policy").unwrap_or("noeviction");
    let max = info.number("maxmemory").unwrap_or(0);
    if policy == "noeviction" {
        return;
    }
    let text = |what: &str| {
        format!(
            "maxmemory-policy is {policy:?} with maxmemory {max}, and should be \"noeviction\": \
             {what}"
        )
    };
    found.push(if policy.starts_with("volatile") {
        warning(
            "eviction",
            text("a full server drops the memory of ids, and a late resend may be stored twice"),
        )
    } else if max == 0 {
        warning(
            "eviction",
            text("once maxmemory is set, a full server drops whole streams"),
        )
    } else {
        refused("eviction", text("a full server drops whole streams"))
    });
}

fn durability(place: &Place, settings: &Settings, seen: &Seen, found: &mut Vec<Problem>) {
    let aof = seen.info.text("aof_enabled") == Some("1");
    let fsync = seen.appendfsync.as_deref();
    match place.durability {
        Durability::Synced if !aof => found.push(refused(
            "not_synced",
            "the destination asks for durability synced, and appendonly is \"no\"; set it to \
             \"yes\", and appendfsync to \"always\""
                .to_owned(),
        )),
        Durability::Synced => match fsync {
            Some("always") => {}
            Some(other) => found.push(refused("not_synced", format!(
                "the destination asks for durability synced, and appendfsync is {other:?}; set it \
                 to \"always\""
            ))),
            None => found.push(warning(
                "sync_not_visible",
                "the destination asks for durability synced, and CONFIG GET appendfsync is not \
                 answered; make sure that it is \"always\""
                    .to_owned(),
            )),
        },
        Durability::Stored | Durability::Replicated if aof => {}
        Durability::Stored | Durability::Replicated => match seen.save.as_deref() {
            Some("") => found.push(warning(
                "persistence_off",
                "appendonly is \"no\" and save is empty: a restart of the server loses every \
                 message that was acknowledged; set appendonly to \"yes\""
                    .to_owned(),
            )),
            save => found.push(warning("snapshots_only", format!(
                "appendonly is \"no\" and save is {:?}: a restart of the server loses what was \
                 acknowledged since its last snapshot; set appendonly to \"yes\"",
                save.unwrap_or("not visible")
            ))),
        },
    }
    if place.durability == Durability::Replicated {
        let online = seen.info.replicas().len();
        let needed = settings.replicas_min;
        if online < needed as usize {
            found.push(refused(
                "replicas_too_few",
                format!(
                    "the destination asks for durability replicated, which waits for {needed} \
                 replicas (replicas_min), and {online} are in step; add replicas, or lower it"
                ),
            ));
        }
    }
}

async fn stream(
    link: &mut Link,
    place: &Place,
    settings: &Settings,
    found: &mut Vec<Problem>,
) -> Result<(), Failed> {
    let key = place.first_key();
    let commands: [&[&str]; 3] = [&["TYPE", &key], &["PTTL", &key], &["XINFO", "GROUPS", &key]];
    let replies = ask(link, &commands, settings.api_timeout).await?;
    let [kind, ttl, known] =
        <[Reply; 3]>::try_from(replies).map_err(|_| Failed::error("answers are missing"))?;
    let kind =
        match kind.ok() {
            Ok(kind) => kind,
            Err(error) if outcome::code(&error) == Some("permission_denied") => {
                found.push(warning("lookup_refused", format!(
                "the stream cannot be looked at: {error}; allow TYPE, PTTL, XINFO and XRANGE"
            )));
                return Ok(());
            }
            Err(error) => return Err(Failed::error(&error)),
        };
    match kind.text() {
        Some("stream") => {}
        Some("none") => {
            found.push(refused(
                "stream_missing",
                format!("there is no stream {key:?}; create it, or run `provision`"),
            ));
            return Ok(());
        }
        other => {
            found.push(refused(
                "wrong_type",
                format!(
                    "the key {key:?} holds a {}, not a stream; take another target",
                    other.unwrap_or("something else")
                ),
            ));
            return Ok(());
        }
    }
    if let Some(ttl) = ttl.number().filter(|ttl| *ttl >= 0) {
        found.push(refused(
            "stream_expires",
            format!("stream {key:?} is deleted whole in {ttl} ms; run PERSIST on it"),
        ));
    }
    trimming(&key, settings, &groups(&known), found);
    Ok(())
}

fn trimming(key: &str, settings: &Settings, known: &[Group], found: &mut Vec<Problem>) {
    for group in &settings.groups {
        if !known.iter().any(|own| own.name == *group) {
            let text = format!(
                "stream {key:?} has no consumer group {group:?}, which groups names; create it, \
                 or run `provision`"
            );
            found.push(if settings.length_max.is_some() {
                refused("group_missing", text)
            } else {
                warning("group_missing", text)
            });
        }
    }
    let Some(length_max) = settings.length_max else {
        return;
    };
    if settings.groups.is_empty() {
        found.push(unprotected(settings));
    }
    for group in known {
        if let Some(waiting) = group.waiting().filter(|waiting| *waiting > length_max) {
            found.push(warning(
                "group_behind",
                format!(
                    "consumer group {:?} of stream {key:?} has {waiting} entries to confirm, and \
                 length_max is {length_max}: the stream grows until it has",
                    group.name
                ),
            ));
        }
    }
}

fn unprotected(settings: &Settings) -> Problem {
    refused(
        "trim_unprotected",
        format!(
            "length_max is {} and groups is empty: nothing says whose unread entries must stay; name \
         the consumer groups, or remove length_max",
            settings.length_max.unwrap_or(0)
        ),
    )
}

fn refused(code: &'static str, message: String) -> Problem {
    problem(code, Severity::Refused, message)
}

fn warning(code: &'static str, message: String) -> Problem {
    problem(code, Severity::Warning, message)
}

fn problem(code: &'static str, severity: Severity, message: String) -> Problem {
    Problem {
        code,
        severity,
        message,
    }
}
