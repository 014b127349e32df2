//! The servers that all tests share: PostgreSQL, PgBouncer in front of it, NATS in the oldest
//! supported and in a current version, Redis and RabbitMQ. All private, on free ports, gone at the
//! end.

use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use postrider_testkit::env::name;
use postrider_testkit::postgres::{execute, query_column};
use postrider_testkit::{Nats, PgBouncer, Postgres, RabbitMq, Redis};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::tools::{self, Tools};

const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// Longer than any test runs.
const DATABASE_KEPT: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(crate) struct Services {
    tools: Tools,
    // The pooler goes before its server.
    pooler: PgBouncer,
    postgres: Postgres,
    nats_old: Nats,
    nats_current: Nats,
    redis: Redis,
    rabbitmq: RabbitMq,
}

impl Services {
    pub(crate) async fn start(tools: Tools) -> Result<Self> {
        // The slowest by far, beside the others.
        let rabbitmq = tokio::spawn(RabbitMq::start());
        let postgres = Postgres::start().await?;
        let pooler = PgBouncer::start(&postgres).await?;
        let nats_old = Nats::start(&tools.nats_old).await?;
        let nats_current = Nats::start(&tools.nats_current).await?;
        let redis = Redis::start(&tools.redis).await?;
        Ok(Self {
            tools,
            pooler,
            postgres,
            nats_old,
            nats_current,
            redis,
            rabbitmq: rabbitmq.await.context("starting RabbitMQ")??,
        })
    }

    /// The variables that the test kit reads.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let path = |path: &std::path::Path| path.display().to_string();
        vec![
            (name::POSTGRES, self.postgres.url("postgres")),
            (name::PGBOUNCER, self.pooler.url("postgres")),
            (name::NATS, self.nats_old.url()),
            (name::NATS_CURRENT, self.nats_current.url()),
            (name::RABBITMQ, self.rabbitmq.url()),
            (name::NATS_SERVER_OLD, path(&self.tools.nats_old)),
            (name::NATS_SERVER_CURRENT, path(&self.tools.nats_current)),
            (name::REDIS, self.redis.url()),
            (name::REDIS_SERVER, path(&self.tools.redis)),
            (name::REDIS_CLI, path(&self.tools.redis_cli)),
            (name::NISSHI, path(&self.tools.nisshi)),
            (name::PYTHON, path(&self.tools.python)),
            (name::PYTHONPATH, path(&self.tools.pythonpath)),
            (name::NODE, path(&self.tools.node)),
            (name::NODE_PATH, path(&self.tools.node_path)),
        ]
    }
}

/// Starts everything, prints how to reach it, and stays until it is told to end.
pub(crate) fn run() -> Result<()> {
    let tools = tools::ensure()?;
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(async {
        let services = Services::start(tools).await?;
        for (name, value) in services.variables() {
            println!("export {name}={}", quoted(&value));
        }
        eprintln!("ready; Ctrl-C, SIGTERM or the end of standard input stops them");
        serve(&services).await
    })
}

async fn serve(services: &Services) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut input = end_of_input();
    let mut sweep_due = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = &mut input => return Ok(()),
            _ = sweep_due.tick() => {
                if let Err(error) = sweep(&services.postgres.url("postgres")).await {
                    eprintln!("old test databases stay for now: {error:#}");
                }
            }
        }
    }
}

/// Drops the databases of tests that are long over.
async fn sweep(admin_url: &str) -> Result<()> {
    let idle = "SELECT datname FROM pg_database d WHERE datname LIKE 'test\\_%' AND NOT EXISTS \
                (SELECT FROM pg_stat_activity a WHERE a.datname = d.datname)";
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?;
    for database in query_column(admin_url, idle).await? {
        if made_at(&database).is_some_and(|made| made + DATABASE_KEPT < now) {
            execute(admin_url, &format!("DROP DATABASE IF EXISTS {database}")).await?;
        }
    }
    Ok(())
}

/// On a thread of its own: a blocking read in the runtime would hold up its end.
fn end_of_input() -> oneshot::Receiver<()> {
    let (ended, end) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while std::io::stdin()
            .read(&mut buffer)
            .is_ok_and(|length| length > 0)
        {}
        drop(ended);
    });
    end
}

/// The test kit names databases after a time-ordered UUID.
fn made_at(database: &str) -> Option<Duration> {
    let id = uuid::Uuid::try_parse(database.strip_prefix("test_")?).ok()?;
    let (seconds, nanoseconds) = id.get_timestamp()?.to_unix();
    Some(Duration::new(seconds, nanoseconds))
}

/// As one word of a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_tells_when_it_was_made() {
        let made = |name| made_at(name).map(|time| time.as_secs());
        assert_eq!(
            made("test_0190163d8694739b917f2aba3a9d6a1c"),
            Some(1_718_360_049)
        );
        assert_eq!(made("test_of_somebody"), None);
        assert_eq!(made("postgres"), None);
    }

    #[tokio::test]
    async fn only_idle_databases_of_old_tests_are_swept() -> Result<()> {
        let server = Postgres::start().await?;
        let admin = server.url("postgres");
        server.create_database().await?;
        let names = query_column(&admin, "SELECT datname FROM pg_database").await?;
        let old = "test_0190163d8694739b917f2aba3a9d6a1c";
        for name in [old, "test_of_somebody", "mine"] {
            execute(
                &admin,
                &format!("CREATE DATABASE {name} TEMPLATE template0"),
            )
            .await?;
        }
        sweep(&admin).await?;
        let mut left = query_column(&admin, "SELECT datname FROM pg_database").await?;
        left.retain(|name| !names.contains(name));
        left.sort_unstable();
        assert_eq!(left, ["mine", "test_of_somebody"]);
        Ok(())
    }

    #[test]
    fn a_value_stays_one_word() {
        assert_eq!(quoted("a b'c$d"), r"'a b'\''c$d'");
    }
}
