//! Connections: a bounded pool, every wait bounded, and transactions sent without waiting.
//!
//! Nothing here leaves state in a session: PgBouncer may give each transaction another one.

use std::{future::Future, pin::Pin, time::Duration};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use futures::future::join_all;
use postrider_store::StoreError;
use tokio::time::error::Elapsed;
use tokio_postgres::{Client, Config, Row, Transaction};

use crate::{
    Options, error,
    param::Param,
    tls::{self, Tls},
};

/// Time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that sent data may stay unacknowledged by the server's machine.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// Most statements of one pipeline. [`join_all`] polls up to 30 futures in the order given, which
/// is the order in which their statements are sent; more are polled in any order.
const PIPELINE_MAX: usize = 30;

/// The address of a server, as parsed, with every wait bounded.
pub(crate) fn config(url: &str) -> Result<(Config, Tls), StoreError> {
    let (mut config, verify) = tls::parse(url)?;
    config
        .connect_timeout(*config.get_connect_timeout().unwrap_or(&CONNECT_TIMEOUT))
        .tcp_user_timeout(TCP_USER_TIMEOUT)
        .keepalives(true)
        .keepalives_idle(KEEPALIVE_IDLE)
        .keepalives_interval(KEEPALIVE_INTERVAL)
        .keepalives_retries(KEEPALIVE_RETRIES);
    if config.get_application_name().is_none() {
        config.application_name("postrider");
    }
    Ok((config, Tls::new(verify)?))
}

/// A pool of connections, and the time that one call may take.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    pool: Pool,
    timeout: Duration,
}

/// A unit of work on one connection.
pub(crate) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Connections {
    pub(crate) fn new(options: &Options) -> Result<Self, StoreError> {
        let (config, tls) = config(&options.url)?;
        // A connection with a statement half done is never put back, see `call`: there is nothing
        // to check when one is taken out.
        let manager = Manager::from_config(
            config,
            tls,
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let pool = Pool::builder(manager)
            .max_size(options.pool_max)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(options.call_timeout),
                create: Some(CONNECT_TIMEOUT),
                recycle: Some(CONNECT_TIMEOUT),
            })
            .build()
            .map_err(|error| error::refused(format!("the connection pool: {error}")))?;
        Ok(Self {
            pool,
            timeout: options.call_timeout,
        })
    }

    /// Runs `work` on a connection, for the call's time at most. A connection whose work did not
    /// end in time is closed: what it was doing is unknown.
    pub(crate) async fn call<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: for<'a> FnOnce(&'a mut Client) -> Work<'a, Result<T, E>>,
        E: From<StoreError>,
    {
        let mut client = self.take().await?;
        let done = self.in_time(work(&mut client)).await;
        self.unless_late(client, done)
    }

    /// A connection for a piece of work that borrows what it works on; [`Self::call`] in three
    /// steps. Nothing may be left half done on it: end with [`Self::unless_late`].
    pub(crate) async fn take(&self) -> Result<Object, StoreError> {
        self.pool.get().await.map_err(|error| pool_error(&error))
    }

    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Elapsed> {
        tokio::time::timeout(self.timeout, work).await
    }

    /// Asks one question in a transaction that only reads.
    pub(crate) async fn ask(
        &self,
        bounds: &str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let client = self.take().await?;
        let mut pipeline = Pipeline::new(bounds);
        let place = pipeline.add(sql, params);
        let done = self.in_time(pipeline.run(&client)).await;
        let done = done.map(|done| done.map_err(|error| error::store(&error)));
        let mut rows = self.unless_late(client, done)?;
        Ok(rows.swap_remove(place))
    }

    /// Puts the connection back, or closes it when its work did not end in time.
    pub(crate) fn unless_late<T, E: From<StoreError>>(
        &self,
        client: Object,
        done: Result<Result<T, E>, Elapsed>,
    ) -> Result<T, E> {
        done.unwrap_or_else(|_| {
            drop(Object::take(client));
            Err(E::from(error::unavailable(format!(
                "no answer within {} ms",
                self.timeout.as_millis()
            ))))
        })
    }
}

fn pool_error(error: &PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => error::store(error),
        PoolError::Timeout(kind) => error::unavailable(format!(
            "no connection in time ({kind:?}); the server is slow, or pool_max is too small"
        )),
        PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            error::unavailable(error.to_string())
        }
    }
}

/// Statements of one transaction, sent together: BEGIN and COMMIT go out with them, and the answers
/// come back after one round trip. Each is sent even if one before it fails; the server then
/// refuses the rest and rolls back.
pub(crate) struct Pipeline<'a> {
    bounds: &'a str,
    statements: Vec<(&'a str, Vec<Param<'a>>)>,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(bounds: &'a str) -> Self {
        Self {
            bounds,
            statements: Vec::new(),
        }
    }

    /// Adds a statement; answers its place among the results.
    pub(crate) fn add(&mut self, sql: &'a str, params: &[Param<'a>]) -> usize {
        self.statements.push((sql, params.to_vec()));
        self.statements.len() - 1
    }

    /// The rows of each statement, if all of them and the commit succeeded; else the first error.
    ///
    /// Dropping this midway leaves the connection in order: everything is sent by the first poll.
    pub(crate) async fn run(self, client: &Client) -> Result<Vec<Vec<Row>>, tokio_postgres::Error> {
        assert!(
            self.statements.len() + 2 <= PIPELINE_MAX,
            "a pipeline keeps its order"
        );
        type Answer<'f> = Work<'f, Result<Vec<Row>, tokio_postgres::Error>>;
        fn plain<'f>(client: &'f Client, sql: &'f str) -> Answer<'f> {
            Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
        }
        let begin = format!("begin;\n{}", self.bounds);
        let mut answers: Vec<Answer<'_>> = vec![plain(client, &begin)];
        for (sql, params) in &self.statements {
            answers.push(Box::pin(
                async move { client.query_typed(sql, params).await },
            ));
        }
        answers.push(plain(client, "commit"));
        let answers = join_all(answers).await;
        let mut rows = Vec::with_capacity(answers.len());
        let mut aftermath = None;
        for answer in answers {
            match answer {
                Ok(answer) => rows.push(answer),
                Err(error) if error::is_aftermath(&error) => {
                    aftermath.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = aftermath {
            return Err(error);
        }
        rows.pop();
        rows.remove(0);
        Ok(rows)
    }
}

/// Begins a transaction of several steps. Dropping it rolls it back.
pub(crate) async fn begin<'a>(
    client: &'a mut Client,
    bounds: &str,
) -> Result<Transaction<'a>, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(bounds).await?;
    Ok(transaction)
}
