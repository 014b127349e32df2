//! The private servers do what a fault test relies on: data survives a kill, the port stays, the
//! pooler pools.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider_testkit::postgres::{execute, query_column};
use postrider_testkit::{FaultProxy, Nats, PgBouncer, Postgres, env, nats};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

async fn query(url: &str, statement: &str) -> Result<String> {
    query_column(url, statement)
        .await?
        .pop()
        .with_context(|| format!("no row from {statement}"))
}

#[tokio::test]
async fn postgres_keeps_committed_rows_and_its_port_over_kill_and_stop() -> Result<()> {
    let server = Postgres::start().await?;
    let (first, second) = (
        server.create_database().await?,
        server.create_database().await?,
    );
    ensure!(first != second);
    execute(&first, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)").await?;
    server.kill().await?;
    ensure!(
        execute(&first, "SELECT 1").await.is_err(),
        "a killed server answered"
    );
    server.restart().await?;
    execute(&first, "INSERT INTO t VALUES (2)").await?;
    server.stop().await?;
    server.restart().await?;
    ensure!(query(&first, "SELECT sum(n) FROM t").await? == "3");
    Ok(())
}

#[tokio::test]
async fn postgres_is_durable_and_leans_neither_on_byte_order_nor_on_utc() -> Result<()> {
    let server = Postgres::start_with(&["max_wal_senders = 1"]).await?;
    let url = server.url("postgres");
    for (setting, expected) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("listen_addresses", "127.0.0.1"),
        ("max_connections", "200"),
        ("max_wal_senders", "1"),
    ] {
        ensure!(
            query(&url, &format!("SHOW {setting}")).await? == expected,
            "{setting}"
        );
    }
    ensure!(
        query(&url, "SELECT 'a' < 'B' AND 'B' < 'c'").await? == "t",
        "text sorts by bytes"
    );
    ensure!(query(&url, "SELECT extract(timezone FROM now())").await? != "0");
    Ok(())
}

#[tokio::test]
async fn a_paused_postgres_is_silent_and_goes_on_where_it_was() -> Result<()> {
    let server = Postgres::start().await?;
    let (client, connection) =
        tokio_postgres::connect(&server.url("postgres"), tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    client
        .batch_execute("CREATE TEMP TABLE t AS SELECT 7 AS n")
        .await?;
    server.pause()?;
    {
        let answer = client.query_one("SELECT n FROM t", &[]);
        tokio::pin!(answer);
        let early = timeout(Duration::from_millis(200), &mut answer).await;
        ensure!(early.is_err(), "a paused server answered");
        server.resume()?;
        ensure!(timeout(SOON, answer).await??.get::<_, i32>(0) == 7);
    }
    drop(client);
    connection.await??;
    Ok(())
}

#[tokio::test]
async fn pgbouncer_gives_each_transaction_any_server_connection() -> Result<()> {
    let server = Postgres::start().await?;
    let pooler = PgBouncer::start(&server).await?;
    let url = pooler.create_database().await?;
    // One client in an open transaction holds a server connection; another client that comes
    // twice gets what is left, and its session setting stays behind for whoever comes next.
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    client
        .batch_execute("SET application_name = 'leaked'")
        .await?;
    ensure!(
        query(&url, "SHOW application_name").await? == "leaked",
        "not pooled"
    );
    drop(client);
    connection.await??;
    // Roles made by a test can log in through it.
    execute(&server.url("postgres"), "CREATE ROLE someone LOGIN").await?;
    let as_someone = url.replace("postgres@", "someone@");
    ensure!(query(&as_someone, "SELECT current_user").await? == "someone");
    // It stays on its port over a kill, and a killed server is an error, not a hang.
    pooler.kill().await?;
    ensure!(execute(&url, "SELECT 1").await.is_err());
    pooler.restart().await?;
    execute(&url, "SELECT 1").await
}

/// A client with just enough of the protocol for one request.
struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(port: u16) -> Result<Self> {
        let mut client = Self(BufReader::new(
            TcpStream::connect(("127.0.0.1", port)).await?,
        ));
        let info = client.line().await?;
        ensure!(info.starts_with("INFO "), "{info}");
        client
            .send("CONNECT {\"verbose\":false}\r\nSUB reply 1\r\n")
            .await?;
        Ok(client)
    }

    async fn send(&mut self, text: &str) -> Result<()> {
        Ok(self.0.write_all(text.as_bytes()).await?)
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        timeout(SOON, self.0.read_line(&mut line)).await??;
        ensure!(!line.is_empty(), "the server closed the connection");
        Ok(line)
    }

    async fn request(&mut self, subject: &str, body: &str) -> Result<String> {
        self.send(&format!("PUB {subject} reply {}\r\n{body}\r\n", body.len()))
            .await?;
        loop {
            let line = self.line().await?;
            if line.starts_with("MSG ") {
                return self.line().await;
            }
            ensure!(!line.starts_with("-ERR"), "{line}");
        }
    }
}

async fn keeps_streams_over_kill_and_stop(binary: &Path) -> Result<()> {
    let server = Nats::start(binary).await?;
    let port = server.port();
    let stream = r#"{"name":"S","subjects":["s.>"],"storage":"file"}"#;
    let created = Client::connect(port)
        .await?
        .request("$JS.API.STREAM.CREATE.S", stream)
        .await?;
    ensure!(created.contains("\"created\""), "{created}");
    let ack = Client::connect(port).await?.request("s.a", "one").await?;
    ensure!(ack.contains("\"seq\":1"), "{ack}");

    server.kill().await?;
    ensure!(
        TcpStream::connect(("127.0.0.1", port)).await.is_err(),
        "a killed server answered"
    );
    server.restart().await?;
    let ack = Client::connect(port).await?.request("s.a", "two").await?;
    ensure!(ack.contains("\"seq\":2"), "{ack}");

    server.stop().await?;
    server.restart().await?;
    let ack = Client::connect(port).await?.request("s.a", "three").await?;
    ensure!(ack.contains("\"seq\":3"), "{ack}");
    Ok(())
}

#[tokio::test]
async fn the_oldest_nats_keeps_streams_over_kill_and_stop() -> Result<()> {
    keeps_streams_over_kill_and_stop(&env::nats_server_old()).await
}

#[tokio::test]
async fn a_current_nats_keeps_streams_over_kill_and_stop() -> Result<()> {
    keeps_streams_over_kill_and_stop(&env::nats_server_current()).await
}

#[tokio::test]
async fn nats_enforces_the_payload_limit_it_was_given() -> Result<()> {
    let mut options = nats::Options::new(env::nats_server_old());
    options.max_payload = Some(100);
    let server = Nats::start_with(&options).await?;
    let proxy = FaultProxy::to_port(server.port()).await?;
    let mut client = Client::connect(proxy.port()).await?;
    let refused = client.request("s.a", &"x".repeat(101)).await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("Maximum Payload")));
    Ok(())
}

#[tokio::test]
async fn the_shared_servers_share_a_database() -> Result<()> {
    let direct = env::postgres().create_database().await?;
    execute(&direct, "CREATE TABLE t AS SELECT 5 AS n").await?;
    let pooled = env::pgbouncer().url_of(&direct)?;
    ensure!(query(&pooled, "SELECT n FROM t").await? == "5");
    for url in [env::nats_url(), env::nats_current_url()] {
        let port = url.rsplit_once(':').context("no port")?.1.parse()?;
        let info = Client::connect(port)
            .await?
            .request("$JS.API.INFO", "")
            .await?;
        ensure!(info.contains("account_info_response"), "{info}");
    }
    Ok(())
}
