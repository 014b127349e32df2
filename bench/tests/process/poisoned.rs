//! One event that one of two streams refuses: its key waits there and nowhere else, everything
//! else passes, and after a replay the key goes on in order.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream::stream;
use postrider_contract::destination::Ordering;
use postrider_core::{Position, delivery::State};
use postrider_store::{
    Store as _,
    control::Audit,
    inspect::{DeliveryFilter, DeliveryRow, ReplaySelection},
};
use postrider_store_postgres::PostgresStore;
use postrider_testkit::{Nats, Program, env, eventually};
use uuid::Uuid;

use crate::{
    setup,
    support::{self, Made, Stored, WITHIN, append, connect, count, relay},
};

const KEYS: usize = 20;
const POISONED: &str = "key-7";
/// Takes the others, with headers, and not the poison.
const MESSAGE_BYTES_MAX: i32 = 2_048;
const POISON_BYTES: usize = 4_096;
/// Turns of each key: those up to when the key is held, and with those that come while it is.
const BEFORE: u64 = 10;
const TURNS: u64 = 15;
/// The turn of the poison.
const HEAD: u64 = 3;

fn turn(turn: u64) -> Vec<Made> {
    (0..KEYS)
        .map(|key| {
            let mut made = Made::new(format!("key-{key}"), turn);
            if made.key == POISONED && turn == HEAD {
                made.filler = POISON_BYTES;
            }
            made
        })
        .collect()
}

async fn open_deliveries(store: &PostgresStore) -> Result<Vec<DeliveryRow>> {
    let page = store
        .deliveries(&DeliveryFilter::default(), None, 1_000)
        .await?;
    Ok(page.rows)
}

/// What each key must have on a stream: all its turns but the held ones, once and in order.
fn ensure_stored(stored: &[Stored], turns: u64, poisoned_turns: u64) -> Result<()> {
    let stored = support::turns(stored);
    ensure!(stored.len() == KEYS, "{} keys", stored.len());
    for (key, found) in stored {
        let expected = if key == POISONED {
            poisoned_turns
        } else {
            turns
        };
        ensure!(
            found.iter().copied().eq(0..expected),
            "{key} has {found:?} and should have {expected}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_key_is_held_at_its_destination_and_nothing_else_is() -> Result<()> {
    let url = env::postgres().create_database().await?;
    let nats = Nats::start(&env::nats_server_current()).await?;
    // Strict: nothing of the key is on its way behind the poison when the server refuses it.
    let destinations = ["NARROW", "WIDE"].map(|name| setup::destination(name, Ordering::Strict));
    let store = setup::database(&url, destinations.to_vec()).await?;
    let context = setup::stream(&nats.url(), "WIDE").await?;
    setup::stream(&nats.url(), "NARROW").await?;
    let registry = store.registry().await?;
    let narrow = registry
        .destinations
        .iter()
        .find(|registered| registered.destination.name == "narrow")
        .context("narrow is registered")?
        .id;
    let client = connect(&url).await?;
    let mut held: Vec<Uuid> = Vec::new();
    let mut append_turns = async |turns: std::ops::Range<u64>| -> Result<()> {
        for number in turns {
            let made = turn(number);
            append(&client, &made).await?;
            let poisoned = made.iter().filter(|made| made.key == POISONED);
            held.extend(
                poisoned
                    .filter(|made| made.turn >= HEAD)
                    .map(|made| made.id),
            );
        }
        Ok(())
    };
    let delivered = async |turns: u64| -> Result<()> {
        let all = i64::try_from(turns)? * i64::try_from(KEYS)? * 2;
        let held = i64::try_from(turns - HEAD)?;
        eventually(WITHIN, "all but the held ones", || async {
            count(&client, "select count(*) from postrider.receipts")
                .await
                .is_ok_and(|receipts| receipts == all - held)
        })
        .await
    };

    append_turns(0..HEAD).await?;
    let program = Program::new("relay")?;
    program.spawn(relay(&url, &nats.url(), Duration::from_secs(3)))?;
    delivered(HEAD).await?;
    // Lowered under the running relay, which has looked at the stream: the server must refuse.
    context
        .update_stream(stream::Config {
            max_message_size: MESSAGE_BYTES_MAX,
            ..setup::stream_config("NARROW")
        })
        .await?;
    append_turns(HEAD..BEFORE).await?;
    delivered(BEFORE).await?;
    append_turns(BEFORE..TURNS).await?;
    delivered(TURNS).await?;

    let open = open_deliveries(&store).await?;
    let ids: Vec<Uuid> = open.iter().map(|row| row.event_id.0).collect();
    ensure!(ids == held, "{ids:?} are open, and not {held:?}");
    ensure!(open.iter().all(|row| row.destination == narrow));
    let (head, tail) = open.split_first().context("a head")?;
    ensure!(head.state == State::Quarantined);
    for row in tail {
        let uncharged = row.state == State::Pending && row.attempts_charged == 0;
        ensure!(uncharged, "{row:?}");
    }
    let holder = store.held_by(narrow, tail[0].position).await?;
    let holder = holder.context("the key is held")?;
    ensure!(holder.head_event.0 == held[0]);
    ensure!(holder.tail.value == tail.len() as u64);
    let all = ReplaySelection::default();
    let quarantined = store.quarantined(&all, None, 10).await?.rows;
    ensure!(quarantined.len() == 1 && quarantined[0].reason.code == "message_too_large");
    ensure!(quarantined[0].position > Position::START && !quarantined[0].overtaken);
    let on_narrow = support::messages(&context, "NARROW").await?;
    ensure_stored(&on_narrow, TURNS, HEAD)?;
    let on_wide = support::messages(&context, "WIDE").await?;
    ensure_stored(&on_wide, TURNS, TURNS)?;

    // The operator raises the limit and replays.
    context
        .update_stream(setup::stream_config("NARROW"))
        .await?;
    let audit = Audit {
        actor: "operator".to_owned(),
        reason: "the limit was raised".to_owned(),
    };
    // A relay that has looked at the stream while its limit was low refuses by itself until it
    // looks again, and the replayed one comes back.
    eventually(WITHIN, "the key to go on", || async {
        store.replay(&all, 10, &audit).await.is_ok()
            && open_deliveries(&store)
                .await
                .is_ok_and(|open| open.is_empty())
    })
    .await?;
    let on_narrow = support::messages(&context, "NARROW").await?;
    ensure_stored(&on_narrow, TURNS, TURNS)?;
    ensure!(support::messages(&context, "WIDE").await?.len() == on_wide.len());
    Ok(())
}
