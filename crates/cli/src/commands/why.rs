//! `why`: what becomes of an event.

use std::io::Write;

use postrider_core::delivery::State;

use super::{event_id, failed, open};
use crate::{
    args::Why,
    code::Code,
    config::Config,
    fault::{Exit, Fault, Outcome},
    output,
    why::{self, Answer, Facts},
};

pub(super) async fn run(args: &Why, config: &Config, out: &mut dyn Write) -> Outcome {
    let id = event_id(&args.event_id)?;
    let store = open(config).await?;
    let Some(event) = store.event(id).await.map_err(failed)? else {
        print(args, &why::not_committed(id.to_string()), out)?;
        return Err(no_such_event(&id.to_string()).into());
    };
    let registry = store.registry().await.map_err(failed)?;
    let backlog = store.backlog().await.map_err(failed)?;
    let lanes = store.lanes().await.map_err(failed)?;
    let mut held = Vec::new();
    let pending = event
        .deliveries
        .iter()
        .filter(|delivery| delivery.state == State::Pending);
    for delivery in pending {
        let head = store
            .held_by(delivery.destination, event.position)
            .await
            .map_err(failed)?;
        held.extend(head.map(|head| (delivery.destination, head)));
    }
    let facts = Facts {
        now: store.now().await.map_err(failed)?,
        registry: &registry,
        backlog: &backlog,
        lanes: &lanes,
        held: &held,
    };
    print(args, &why::answer(&event, &facts), out)?;
    Ok(Exit::Done)
}

fn print(args: &Why, answer: &Answer, out: &mut dyn Write) -> std::io::Result<()> {
    if args.format.json {
        output::json(out, answer)
    } else {
        answer.describe(out)
    }
}

pub(super) fn no_such_event(id: &str) -> Fault {
    Fault::new(
        Code::NoSuchEvent,
        format!("no committed event has the id {id}"),
        "Its transaction was rolled back, has not committed yet, or was made in another database.",
        "check the id, and with `postrider config show` which database this is",
    )
}
