//! PostgreSQL and JetStream: two relays behind links of their own, three writers, and a consumer
//! of both streams.

use std::{
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use async_nats::jetstream;
use postrider_testkit::{FaultProxy, Nats, Postgres, Program, SmallDisk, eventually, nats};
use tokio::{
    sync::{OnceCell, watch},
    task::{JoinHandle, block_in_place},
    time::sleep,
};
use uuid::Uuid;

use super::{Given, Struck, WITHIN, World, link, relays::Relays};
use crate::{
    consumer::{self, Moment},
    evidence::{self, Evidence, postgres::count},
    fault::{self, Kind, Track},
    journal::Journal,
    made::{self, FIRST, SECOND},
    relay::Configured,
    schedule::Strike,
    writer::{
        Pace,
        postgres::{self as writer, LossyLink, Writer, connect},
    },
};

const WRITERS: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The servers, the links to them, and who uses them.
#[derive(Debug)]
pub(crate) struct PostgresJetStream {
    // Those who use a server go before it.
    relays: Relays,
    consumer: Program,
    consume: Consume,
    store_links: [FaultProxy; 2],
    broker_links: [FaultProxy; 2],
    writer_link: Arc<LossyLink>,
    postgres: Postgres,
    database: String,
    broker: Nats,
    context: OnceCell<jetstream::Context>,
    disk: SmallDisk,
    journal: Arc<Journal>,
}

/// How the consumer's process is started.
#[derive(Debug)]
struct Consume {
    program: PathBuf,
    database: String,
    nats: String,
}

impl World for PostgresJetStream {
    const NAME: &'static str = "postgres-jetstream";
    const TRACKS: &'static [Track] = fault::POSTGRES_JETSTREAM;

    async fn build(given: &Given) -> Result<Self> {
        let disk = SmallDisk::new()?;
        let broker = Nats::start_with(&nats::Options {
            store: Some(disk.path().join("jetstream")),
            config: vec!["server_name: torture".to_owned()],
            ..nats::Options::new(&given.nats_server)
        })
        .await?;
        let postgres = Postgres::start_with(&["track_commit_timestamp = on"]).await?;
        let database = postgres.create_database().await?;
        let link = async |port| FaultProxy::to_port(port).await;
        let store_links = [link(postgres.port()).await?, link(postgres.port()).await?];
        let broker_links = [link(broker.port()).await?, link(broker.port()).await?];
        let writer_link = Arc::new(LossyLink {
            proxy: link(postgres.port()).await?,
            armed: AtomicBool::new(false),
        });
        let through = |number: usize| Configured {
            store_url: at_port(&database, store_links[number].port()),
            rest: configuration(broker_links[number].port()),
        };
        let direct = Configured {
            store_url: database.clone(),
            rest: configuration(broker.port()),
        };
        let relays = Relays::new(&given.postrider, &[through(0), through(1), direct])?;
        let consume = Consume {
            program: std::env::current_exe().context("finding this program")?,
            database: database.clone(),
            nats: broker.url(),
        };
        let world = Self {
            relays,
            consumer: Program::new("consumer")?,
            consume,
            store_links,
            broker_links,
            writer_link,
            postgres,
            database,
            broker,
            context: OnceCell::new(),
            disk,
            journal: Arc::clone(&given.journal),
        };
        world.prepare().await?;
        Ok(world)
    }

    fn write(&self, given: &Given, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
        let writers = (0..WRITERS).map(|number| {
            let lossy = number == 0;
            let url = if lossy {
                at_port(&self.database, self.writer_link.proxy.port())
            } else {
                self.database.clone()
            };
            let writer = Writer {
                number,
                seed: given.seed,
                url,
                direct_url: self.database.clone(),
                link: lossy.then(|| Arc::clone(&self.writer_link)),
                pace: Pace::for_run_of(given.time),
                journal: Arc::clone(&given.journal),
            };
            tokio::spawn(writer.write(stop.clone()))
        });
        writers.collect()
    }

    async fn keep_running(&self) -> Result<()> {
        let consumer = async {
            loop {
                if self.consumer.exited()?.is_some() {
                    self.start_consumer()?;
                }
                sleep(LOOK_EVERY).await;
            }
            #[expect(unreachable_code, reason = "it says what the block is")]
            anyhow::Ok(())
        };
        tokio::try_join!(self.relays.keep_running(), consumer)?;
        Ok(())
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
                self.broker.kill().await?;
                sleep(strike.lasts).await;
                self.broker.restart().await?;
            }
            Kind::DestinationPaused => {
                self.broker.pause()?;
                sleep(strike.lasts).await;
                self.broker.resume()?;
            }
            Kind::DestinationRestarted => {
                self.broker.stop().await?;
                self.broker.restart().await?;
            }
            Kind::DestinationDiskFull => return self.fill_disk(strike).await,
            Kind::StoreKilled => {
                self.postgres.stop_immediately().await?;
                sleep(strike.lasts).await;
                self.postgres.restart().await?;
            }
            Kind::StorePaused => {
                self.postgres.pause()?;
                sleep(strike.lasts).await;
                self.postgres.resume()?;
            }
            Kind::CommitAnswerLost => self.lose_commit_answer().await?,
            Kind::ConsumerKilledBeforeAck => self.kill_consumer(Moment::BeforeAck).await?,
            Kind::ConsumerKilledAfterAck => self.kill_consumer(Moment::AfterAck).await?,
            Kind::DestinationLinkDelayed
            | Kind::DestinationLinkSwallowed
            | Kind::DestinationLinkHeld
            | Kind::DestinationLinkCut
            | Kind::DestinationLinkHalfClosed => link::strike(&self.broker_links, strike).await?,
            _ => link::strike(&self.store_links, strike).await?,
        }
        Ok(Struck::Yes)
    }

    async fn heal(&self) -> Result<()> {
        self.disk.free()?;
        let links = self.store_links.iter().chain(&self.broker_links);
        for link in links.chain([&self.writer_link.proxy]) {
            link.heal().await?;
        }
        Ok(())
    }

    async fn left(&self) -> Result<Option<String>> {
        let client = connect(&self.database).await?;
        let owed = "select count(*) from postrider.deliveries";
        let open = count(&client, owed).await?;
        let attempts = count(&client, "select count(*) from postrider.open_attempts").await?;
        let expected = self.journal.known().owed();
        let effects = count(&client, "select count(*) from torture.effects").await?;
        let done = open == 0 && attempts == 0 && effects >= expected;
        Ok((!done).then(|| {
            format!("{open} deliveries and {attempts} attempts are open; {effects} of {expected} effects")
        }))
    }

    async fn stop(&self) -> Result<()> {
        self.relays.stop().await
    }

    async fn evidence(&self) -> Result<Evidence> {
        let client = connect(&self.database).await?;
        let mut evidence = Evidence {
            database: evidence::postgres::database(&client).await?,
            consumed: Some(evidence::postgres::consumed(&client).await?),
            ..Evidence::default()
        };
        for destination in [FIRST, SECOND] {
            let stream = made::stream_of(destination);
            let arrivals = evidence::jetstream::arrivals(self.context().await?, &stream).await?;
            evidence.arrivals.insert(destination.to_owned(), arrivals);
        }
        Ok(evidence)
    }

    async fn story(&self, event: Uuid) -> Result<Vec<String>> {
        evidence::postgres::story(&connect(&self.database).await?, event).await
    }

    fn ended_by_themselves(&self) -> u64 {
        self.relays.all().map(|relay| relay.ended_by_itself()).sum()
    }

    fn logs(&self) -> Vec<(String, String)> {
        let text = |program: &Program| program.stderr().unwrap_or_else(|error| error.to_string());
        let mut logs = vec![("consumer".to_owned(), text(&self.consumer))];
        logs.extend(
            self.relays
                .all()
                .map(|relay| (relay.name().to_owned(), text(relay.program()))),
        );
        logs.push(("broker".to_owned(), self.broker.log()));
        logs
    }
}

impl PostgresJetStream {
    /// Tables, streams and consumers; then the relays and the consumer run.
    async fn prepare(&self) -> Result<()> {
        let operator = self.relays.added();
        operator.done(&["migrate"]).await?;
        operator.done(&["apply", "--yes"]).await?;
        operator.done(&["provision", "--yes"]).await?;
        let client = connect(&self.database).await?;
        client.batch_execute(writer::TABLES).await?;
        client.batch_execute(consumer::TABLES).await?;
        for destination in [FIRST, SECOND] {
            consumer::create(self.context().await?, &made::stream_of(destination)).await?;
        }
        self.start_consumer()?;
        self.relays.start()
    }

    async fn context(&self) -> Result<&jetstream::Context> {
        let connecting = || async {
            let client = async_nats::connect(self.broker.url()).await?;
            Ok(jetstream::new(client))
        };
        self.context.get_or_try_init(connecting).await
    }

    fn start_consumer(&self) -> Result<()> {
        let Consume {
            program,
            database,
            nats,
        } = &self.consume;
        let mut command = Command::new(program);
        command
            .args([
                "consume",
                "--database",
                database,
                "--nats",
                nats,
                "--folder",
            ])
            .arg(self.consumer.folder());
        for destination in [FIRST, SECOND] {
            command.args(["--stream", &made::stream_of(destination)]);
        }
        self.consumer.spawn(command)
    }

    async fn kill_consumer(&self, at: Moment) -> Result<()> {
        let folder = self.consumer.folder();
        consumer::order_death(folder, at)?;
        eventually(WITHIN, "the consumer to die", || async {
            consumer::died(folder)
        })
        .await
    }

    async fn lose_commit_answer(&self) -> Result<()> {
        let before = self.journal.known().answers_lost;
        self.writer_link.armed.store(true, Ordering::Relaxed);
        eventually(WITHIN, "the answer to a COMMIT to be lost", || async {
            self.journal.known().answers_lost > before
        })
        .await
    }

    /// The broker finds its disk full. It may switch JetStream off for good, so an operator makes
    /// room and starts it again.
    async fn fill_disk(&self, strike: &Strike) -> Result<Struck> {
        if !self.disk.can_be_filled() {
            return Ok(Struck::LeftOut("mounting a small disk is not permitted"));
        }
        block_in_place(|| self.disk.fill())?;
        sleep(strike.lasts).await;
        self.disk.free()?;
        self.broker.kill().await?;
        self.broker.restart().await?;
        Ok(Struck::Yes)
    }
}

/// The same database through another port of this machine.
fn at_port(url: &str, port: u16) -> String {
    let (server, database) = url.rsplit_once('/').expect("a URL with a database");
    let (host, _) = server.rsplit_once(':').expect("a URL with a port");
    format!("{host}:{port}/{database}")
}

fn configuration(broker_port: u16) -> String {
    let mut text = format!(
        "[connections.broker]\n\
         kind = \"jetstream\"\n\
         cluster = \"torture\"\n\
         servers = [\"nats://127.0.0.1:{broker_port}\"]\n\
         api_timeout = \"1s\"\n\
         ping_interval = \"1s\"\n"
    );
    for (destination, ordering) in made::ORDERINGS {
        let stream = made::stream_of(destination);
        text += &format!(
            "[destinations.{destination}]\n\
             connection = \"broker\"\n\
             stream = \"{stream}\"\n\
             target = \"{stream}.{{event_type}}\"\n\
             ordering = \"{ordering}\"\n\
             lanes = 8\n"
        );
    }
    text + &made::routes()
}
