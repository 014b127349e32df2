//! SQLite and a webhook receiver: two relays behind links of their own, and three writers.

use std::{path::PathBuf, process::Command, sync::Arc};

use anyhow::{Context as _, Result};
use postrider_testkit::{FaultProxy, Port, Program, SmallDisk, eventually};
use tokio::{
    net::TcpStream,
    sync::watch,
    task::{JoinHandle, block_in_place},
    time::sleep,
};
use uuid::Uuid;

use super::{Given, Struck, WITHIN, World, link, relays::Relays};
use crate::{
    evidence::{self, Evidence, sqlite::count},
    fault::{self, Kind, Track},
    made,
    receiver::{self, Manner},
    relay::Configured,
    schedule::Strike,
    writer::{
        Pace,
        sqlite::{self as writer, Writer},
    },
};

const WRITERS: usize = 3;

/// The database file on its small disk, the receiver, and who uses them.
#[derive(Debug)]
pub(crate) struct SqliteWebhook {
    // Those who use the file go before its disk.
    relays: Relays,
    links: [FaultProxy; 2],
    receiver: Program,
    receiver_port: Port,
    program: PathBuf,
    disk: SmallDisk,
}

impl World for SqliteWebhook {
    const NAME: &'static str = "sqlite-webhook";
    const TRACKS: &'static [Track] = fault::SQLITE_WEBHOOK;

    async fn build(given: &Given) -> Result<Self> {
        let disk = SmallDisk::new()?;
        let receiver = Program::new("receiver")?;
        let receiver_port = Port::take()?;
        let links = [
            FaultProxy::to_port(receiver_port.number()).await?,
            FaultProxy::to_port(receiver_port.number()).await?,
        ];
        let configured = |port: u16| Configured {
            store_url: format!("sqlite:{}", disk.path().join(FILE).display()),
            rest: configuration(port),
        };
        let [first, second] = [links[0].port(), links[1].port()].map(configured);
        let relays = Relays::new(
            &given.postrider,
            &[first, second, configured(receiver_port.number())],
        )?;
        let world = Self {
            relays,
            links,
            receiver,
            receiver_port,
            program: std::env::current_exe().context("finding this program")?,
            disk,
        };
        world.prepare().await?;
        Ok(world)
    }

    fn write(&self, given: &Given, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
        let writers = (0..WRITERS).map(|number| {
            let writer = Writer {
                number,
                seed: given.seed,
                file: self.file(),
                pace: Pace::for_run_of(given.time),
                journal: Arc::clone(&given.journal),
            };
            tokio::spawn(writer.write(stop.clone()))
        });
        writers.collect()
    }

    async fn keep_running(&self) -> Result<()> {
        self.relays.keep_running().await
    }

    async fn strike(&self, strike: &Strike) -> Result<Struck> {
        if let Some(struck) = self.relays.strike(strike).await? {
            return Ok(struck);
        }
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the others strike elsewhere"
        )]
        match strike.kind {
            Kind::DestinationKilled => {
                self.receiver.kill().await?;
                sleep(strike.lasts).await;
                self.start_receiver().await?;
            }
            Kind::DestinationPaused => {
                self.receiver.pause()?;
                sleep(strike.lasts).await;
                self.receiver.resume()?;
            }
            Kind::ReceiverFails => self.behave(Manner::Fails, strike).await?,
            Kind::ReceiverAnswerLost => self.behave(Manner::AnswerLost, strike).await?,
            Kind::ReceiverSlow => self.behave(Manner::Slow, strike).await?,
            Kind::ReceiverBusy => self.behave(Manner::Busy, strike).await?,
            Kind::StoreDiskFull => {
                if !self.disk.can_be_filled() {
                    return Ok(Struck::LeftOut("mounting a small disk is not permitted"));
                }
                block_in_place(|| self.disk.fill())?;
                sleep(strike.lasts).await;
                self.disk.free()?;
            }
            _ => link::strike(&self.links, strike).await?,
        }
        Ok(Struck::Yes)
    }

    async fn heal(&self) -> Result<()> {
        self.disk.free()?;
        receiver::behave(self.receiver.folder(), Manner::Well)?;
        for link in &self.links {
            link.heal().await?;
        }
        Ok(())
    }

    async fn left(&self) -> Result<Option<String>> {
        let connection = evidence::sqlite::open(&self.file())?;
        let open = count(&connection, "select count(*) from postrider_deliveries")?;
        let attempts = count(&connection, "select count(*) from postrider_open_attempts")?;
        let done = open == 0 && attempts == 0;
        Ok((!done).then(|| format!("{open} deliveries and {attempts} attempts are open")))
    }

    async fn stop(&self) -> Result<()> {
        self.relays.stop().await
    }

    async fn evidence(&self) -> Result<Evidence> {
        Ok(Evidence {
            database: evidence::sqlite::database(&self.file())?,
            arrivals: evidence::receiver::arrivals(self.receiver.folder())?,
            ..Evidence::default()
        })
    }

    async fn story(&self, event: Uuid) -> Result<Vec<String>> {
        evidence::sqlite::story(&self.file(), event)
    }

    fn ended_by_themselves(&self) -> u64 {
        self.relays.all().map(|relay| relay.ended_by_itself()).sum()
    }

    fn logs(&self) -> Vec<(String, String)> {
        let text = |program: &Program| program.stderr().unwrap_or_else(|error| error.to_string());
        let mut logs = vec![("receiver".to_owned(), text(&self.receiver))];
        logs.extend(
            self.relays
                .all()
                .map(|relay| (relay.name().to_owned(), text(relay.program()))),
        );
        logs
    }
}

const FILE: &str = "outbox.db";

impl SqliteWebhook {
    fn file(&self) -> PathBuf {
        self.disk.path().join(FILE)
    }

    async fn prepare(&self) -> Result<()> {
        let operator = self.relays.added();
        operator.done(&["migrate"]).await?;
        operator.done(&["apply", "--yes"]).await?;
        evidence::sqlite::open(&self.file())?.execute_batch(writer::TABLES)?;
        receiver::behave(self.receiver.folder(), Manner::Well)?;
        self.start_receiver().await?;
        self.relays.start()
    }

    async fn start_receiver(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command
            .args([
                "receive",
                "--port",
                &self.receiver_port.number().to_string(),
                "--folder",
            ])
            .arg(self.receiver.folder());
        self.receiver.spawn(command)?;
        eventually(WITHIN, "the receiver to listen", || async {
            TcpStream::connect(("127.0.0.1", self.receiver_port.number()))
                .await
                .is_ok()
        })
        .await
    }

    /// It lasts until at least one request was treated so.
    async fn behave(&self, manner: Manner, strike: &Strike) -> Result<()> {
        let folder = self.receiver.folder();
        let treated = || {
            Ok::<_, anyhow::Error>(
                receiver::log(folder)?
                    .iter()
                    .filter(|line| line.manner == manner)
                    .count(),
            )
        };
        let before = treated()?;
        receiver::behave(folder, manner)?;
        sleep(strike.lasts).await;
        let treated_one = eventually(WITHIN, "a request to be treated so", || async {
            treated().is_ok_and(|now| now > before)
        });
        let found = treated_one.await;
        receiver::behave(folder, Manner::Well)?;
        found
    }
}

fn configuration(port: u16) -> String {
    let mut text = format!(
        "[connections.hook]\n\
         kind = \"http\"\n\
         cluster = \"torture\"\n\
         url = \"http://127.0.0.1:{port}/\"\n\
         allow_plain_http = true\n\
         allow_networks = [\"127.0.0.0/8\"]\n"
    );
    for (destination, ordering) in made::ORDERINGS {
        text += &format!(
            "[destinations.{destination}]\n\
             connection = \"hook\"\n\
             target = \"/{destination}\"\n\
             ordering = \"{ordering}\"\n\
             lanes = 8\n"
        );
    }
    text + &made::routes()
}
