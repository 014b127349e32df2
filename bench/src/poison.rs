//! The same backlog drained twice: to a stream that takes everything, and to one that refuses the
//! first event of some keys, so that these keys are held. What is held must not slow the rest.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use async_nats::jetstream::stream;
use postrider_contract::{destination::Ordering, new_event::NewEvent};
use postrider_store::Store as _;
use postrider_store_postgres::PostgresStore;
use postrider_testkit::{env, postgres::query_column};
use tokio::process::Command;

use crate::setup;

/// Between two looks at how far the relay is.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Nothing moved for this long: the relay may be done. Asking the database reads the whole queue,
/// which would cost the relay some of what is measured.
const STILL: Duration = Duration::from_millis(500);
/// Headers around a payload, and more.
const HEADERS_BYTES_MAX: usize = 2_048;
/// What is pending and not behind a quarantined one of its key.
const DELIVERABLE: &str = "select (exists (select from postrider.deliveries d where d.state = 0 \
     and d.key_hash not in (select key_hash from postrider.deliveries where state = 2)))::text";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 100_000)]
    events: usize,
    #[arg(long, default_value_t = 1_024)]
    payload_bytes: usize,
    #[arg(long, default_value_t = 1_000)]
    keys: usize,
    /// Of the keys, this many percent are poisoned.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=99))]
    poisoned_percent: u8,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

impl Args {
    fn is_poisoned(&self, key: usize) -> bool {
        key % 100 < usize::from(self.poisoned_percent)
    }
}

struct Drained {
    delivered: u64,
    took: Duration,
    held: u64,
}

impl Drained {
    fn rate(&self) -> f64 {
        self.delivered as f64 / self.took.as_secs_f64()
    }
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let mut ratios = Vec::new();
    println!("round  clean/s  poisoned/s  ratio  delivered  held");
    for round in 1..=args.rounds {
        // Who goes second finds a warmer machine, and one that tidies up after the first.
        let (clean, poisoned) = if round % 2 == 1 {
            let clean = drain(args, false).await?;
            (clean, drain(args, true).await?)
        } else {
            let poisoned = drain(args, true).await?;
            (drain(args, false).await?, poisoned)
        };
        ensure!(clean.held == 0, "the clean stream held something");
        ensure!(poisoned.held > 0, "nothing was held");
        let ratio = poisoned.rate() / clean.rate();
        ratios.push(ratio);
        println!(
            "{round:>5}  {:>7.0}  {:>10.0}  {ratio:>5.2}  {:>9}  {:>4}",
            clean.rate(),
            poisoned.rate(),
            poisoned.delivered,
            poisoned.held
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}", ratios[ratios.len() / 2]);
    Ok(())
}

/// Until nothing is left that can be delivered.
async fn drain(args: &Args, limited: bool) -> Result<Drained> {
    let url = env::postgres().create_database().await?;
    let nats = env::nats_url();
    let name = format!("POISON{}", uuid::Uuid::now_v7().simple());
    let destination = setup::destination(&name, Ordering::Key);
    let store = setup::database(&url, vec![destination]).await?;
    backlog(args, &store).await?;
    let context = setup::stream(&nats, &name).await?;
    if limited {
        context
            .update_stream(stream::Config {
                max_message_size: i32::try_from(args.payload_bytes + HEADERS_BYTES_MAX)?,
                ..setup::stream_config(&name)
            })
            .await?;
    }
    for statement in ["vacuum analyze", "checkpoint"] {
        postrider_testkit::postgres::execute(&url, statement).await?;
    }

    let started = Instant::now();
    let mut relay = Command::new(std::env::current_exe()?)
        .args(["relay", "--database", &url, "--nats", &nats])
        .env("RUST_LOG", "warn")
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let (mut delivered, mut took) = (0, Duration::ZERO);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        ensure!(relay.try_wait()?.is_none(), "the relay has ended");
        let stored = setup::stored(&context, &name).await?;
        if stored > delivered {
            (delivered, took) = (stored, started.elapsed());
        } else if started.elapsed() - took > STILL
            && query_column(&url, DELIVERABLE).await? == ["false"]
        {
            break;
        }
    }
    relay.kill().await?;
    context.delete_stream(&name).await?;
    let open = query_column(&url, "select count(*)::text from postrider.deliveries").await?;
    let held = open.concat().parse()?;
    ensure!(
        delivered + held == args.events as u64,
        "{delivered} delivered and {held} held"
    );
    Ok(Drained {
        delivered,
        took,
        held,
    })
}

/// Events over all keys in turn; the first of each poisoned key is too large for the limit.
async fn backlog(args: &Args, store: &PostgresStore) -> Result<()> {
    const TOGETHER: usize = 2_000;
    let payload = |bytes| format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes));
    let usual = payload(args.payload_bytes);
    let poison = payload(args.payload_bytes + HEADERS_BYTES_MAX);
    let mut made = 0;
    while made < args.events {
        let events = (made..args.events.min(made + TOGETHER))
            .map(|n| {
                let key = n % args.keys;
                let is_head = n < args.keys && args.is_poisoned(key);
                let payload = if is_head { &poison } else { &usual };
                let key = format!("key-{key}");
                NewEvent::new(setup::EVENT_TYPE, "1", "bench", &key, payload.as_str())
            })
            .collect();
        made += store.append(events).await?.len();
    }
    Ok(())
}
