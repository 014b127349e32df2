//! `demo`: commits, kills its own relay, delivers and proves. Needs no server and leaves its
//! folder behind.

mod proof;
mod receiver;
mod relay;
mod setup;
mod shop;

use std::{io::Write, path::Path, sync::Arc, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use postrider_store::{Store, inspect::DeliveryFilter};
use tokio::time::Instant;

use crate::{
    args::Demo,
    backend::store,
    code::Code,
    fault::{Exit, Failure, Fault, Outcome},
    output,
};
use proof::Audit;
use receiver::Receiver;
use relay::Relay;
use setup::Place;
use shop::Shop;

/// Orders that are taken at once, and the pause after them: customers, not a load test.
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_millis(15);
/// Everything together may take this long; a demo that hangs proves nothing.
const WITHIN: Duration = Duration::from_secs(300);
/// Between two looks at what is still open.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn run(args: &Demo, out: &mut dyn Write) -> Outcome {
    let place = Place::make(args.dir.as_deref())?;
    let (receiver, address) = Receiver::start(&place.secret).await?;
    let config = place.prepare(address).await?;
    let store = store::open(&config).await?;
    let shop = Shop::open(&place.database())?;
    let screen = Screen::new(args);
    screen.say(&format!(
        "working in {}; the webhook receiver listens on {address}",
        place.folder.display()
    ));

    let played = tokio::time::timeout(WITHIN, play(args, &place, &receiver, &store, shop, &screen));
    let played = match played.await {
        Ok(played) => played,
        Err(_) => Err(not_proven(&place, "it was not done in time")),
    };
    screen.finish();
    let (shop, stopped_well) = played?;

    let (events, mut webhook, mut file) = proof::outbox(&store).await?;
    let received = receiver.received();
    webhook.add_received(&received);
    file.add_file(&place)?;
    let audit = Audit {
        orders: args.orders,
        kills: args.kills,
        committed: shop.committed()?,
        rolled_back: shop.rolled_back,
        events,
        webhook,
        file,
        refused: received.refused,
        stopped_well,
    };
    audit.print(out)?;
    writeln!(out)?;
    writeln!(
        out,
        "look around:     cd {} && {} events list",
        quoted(&place.folder),
        program()
    )?;
    writeln!(
        out,
        "                 (the webhook's receiver is gone now, so `check` says that it takes no connection)"
    )?;
    if audit.faults().is_empty() {
        Ok(Exit::Done)
    } else {
        Err(not_proven(&place, "the sets are not equal"))
    }
}

/// This program as a shell finds it: by its name if that leads here, else by its path.
fn program() -> String {
    let Ok(this) = std::env::current_exe() else {
        return "postrider".to_owned();
    };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .map(|folder| folder.join("postrider"))
        .find(|path| path.is_file());
    let leads_here = found.is_some_and(|path| path.canonicalize().ok() == this.canonicalize().ok());
    if leads_here {
        "postrider".to_owned()
    } else {
        quoted(&this)
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Takes all orders while relays deliver and are killed; answers when nothing is open any more.
async fn play(
    args: &Demo,
    place: &Place,
    receiver: &Receiver,
    store: &Arc<dyn Store>,
    shop: Shop,
    screen: &Screen,
) -> Result<(Shop, bool), Failure> {
    let orders = tokio::spawn(take_orders(shop, args.orders, screen.committed.clone()));
    let mut relay = Relay::start(place)?;
    let expected = shop::committed_of(args.orders);
    for kill in 1..=args.kills {
        // In the middle of sending, at even distances: a request was taken and not answered.
        let at = expected * kill / (args.kills + 1);
        let held = receiver.hold_from(usize::try_from(at).unwrap_or(usize::MAX));
        watch(&mut relay, receiver, screen, held).await?;
        relay.kill().await?;
        receiver.release();
        screen.say(&format!(
            "relay {kill} killed with SIGKILL after {} deliveries to the webhook, with sends in flight",
            receiver.distinct()
        ));
        relay = Relay::start(place)?;
    }
    let shop = match watch(&mut relay, receiver, screen, orders).await? {
        Ok(shop) => shop?,
        Err(error) => return Err(not_proven(place, &error.to_string())),
    };
    screen.say("all orders are taken; waiting for the last deliveries");
    let delivered = async {
        while is_open(store).await? {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok::<(), Failure>(())
    };
    watch(&mut relay, receiver, screen, delivered).await??;
    let stopped_well = relay.stop().await?;
    Ok((shop, stopped_well))
}

/// Waits for something while the relay runs and the screen follows. An error if the relay ends.
async fn watch<T>(
    relay: &mut Relay,
    receiver: &Receiver,
    screen: &Screen,
    something: impl Future<Output = T>,
) -> Result<T, Failure> {
    tokio::pin!(something);
    loop {
        tokio::select! {
            done = &mut something => return Ok(done),
            () = tokio::time::sleep(LOOK_EVERY) => {
                relay.see_that_it_runs()?;
                screen.received.set_position(receiver.distinct() as u64);
            }
        }
    }
}

async fn take_orders(mut shop: Shop, orders: u32, committed: ProgressBar) -> Result<Shop, Failure> {
    let mut left = orders;
    while left > 0 {
        let burst = left.min(BURST);
        left -= burst;
        let started = Instant::now();
        let taken = tokio::task::spawn_blocking(move || {
            let mut count = 0;
            for _ in 0..burst {
                count += u64::from(shop.order()?);
            }
            Ok::<_, Failure>((shop, count))
        });
        let count;
        (shop, count) = match taken.await {
            Ok(taken) => taken?,
            Err(error) => {
                return Err(Fault::new(
                    Code::StoreRefused,
                    format!("the demo's order service ended: {error}"),
                    "",
                    "run the demo again",
                )
                .into());
            }
        };
        committed.inc(count);
        tokio::time::sleep_until(started + PAUSE).await;
    }
    Ok(shop)
}

async fn is_open(store: &Arc<dyn Store>) -> Result<bool, Failure> {
    let page = store
        .deliveries(&DeliveryFilter::default(), None, 1)
        .await
        .map_err(|error| store::fault(&error))?;
    Ok(!page.rows.is_empty())
}

/// Progress on standard error: bars on a terminal, lines anywhere else.
struct Screen {
    bars: MultiProgress,
    committed: ProgressBar,
    received: ProgressBar,
}

impl Screen {
    fn new(args: &Demo) -> Self {
        let bars = MultiProgress::new();
        let total = u64::from(shop::committed_of(args.orders));
        let bar = |name: &'static str| {
            let bar = bars.add(ProgressBar::new(total));
            let style = ProgressStyle::with_template("{prefix:>20} {bar:40} {pos}/{len}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.with_prefix(name)
        };
        Self {
            committed: bar("orders committed"),
            received: bar("webhook received"),
            bars,
        }
    }

    fn say(&self, text: &str) {
        if self.bars.is_hidden() || self.bars.println(text).is_err() {
            output::say(text);
        }
    }

    fn finish(&self) {
        self.committed.finish_and_clear();
        self.received.finish_and_clear();
    }
}

fn not_proven(place: &Place, why: &str) -> Failure {
    Fault::new(
        Code::DemoNotProven,
        format!("the demo's proof failed: {why}"),
        "What was committed must be what was received.",
        format!(
            "please report it with the folder {}",
            place.folder.display()
        ),
    )
    .into()
}
