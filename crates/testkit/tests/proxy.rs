//! The fault proxy between a plain client and an echo server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider_testkit::proxy::{Direction, Flow};
use postrider_testkit::{FaultProxy, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(20);
/// Long enough for a byte to come through on loopback if nothing stopped it.
const SILENCE: Duration = Duration::from_millis(200);

/// Answers each byte with itself, and the end of the requests with a full stop.
async fn echo_server() -> Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = client.split();
                tokio::io::copy(&mut read, &mut write).await?;
                write.write_all(b".").await
            });
        }
    });
    Ok(address)
}

async fn connect(proxy: &FaultProxy) -> Result<TcpStream> {
    TcpStream::connect(proxy.address())
        .await
        .context("connecting to the proxy")
}

async fn say(client: &mut TcpStream, text: &str) -> Result<()> {
    client
        .write_all(text.as_bytes())
        .await
        .context("writing to the proxy")
}

async fn hear(client: &mut TcpStream, text: &str) -> Result<()> {
    let mut heard = vec![0; text.len()];
    timeout(SOON, client.read_exact(&mut heard))
        .await
        .context("no answer")??;
    ensure!(
        heard == text.as_bytes(),
        "heard {heard:?} instead of {text}"
    );
    Ok(())
}

async fn hear_nothing(client: &mut TcpStream) -> Result<()> {
    let mut byte = [0];
    let heard = timeout(SILENCE, client.read(&mut byte)).await;
    ensure!(heard.is_err(), "heard something: {heard:?}");
    Ok(())
}

/// The connection must be reset, not ended politely.
async fn is_reset(client: &mut TcpStream) -> Result<()> {
    let read = timeout(SOON, client.read(&mut [0]))
        .await
        .context("still open")?;
    ensure!(read.is_err(), "ended politely: {read:?}");
    Ok(())
}

#[tokio::test]
async fn bytes_pass_and_are_counted() -> Result<()> {
    let proxy = FaultProxy::start(echo_server().await?).await?;
    let mut client = connect(&proxy).await?;
    say(&mut client, "hello").await?;
    hear(&mut client, "hello").await?;
    client.shutdown().await?;
    hear(&mut client, ".").await?;
    ensure!(
        client.read(&mut [0]).await? == 0,
        "the server's end did not come through"
    );
    eventually(SOON, "the counters to follow", || async {
        let counts = proxy.counts();
        (counts.accepted, counts.client_sent, counts.server_received) == (1, 5, 5)
            && (counts.server_sent, counts.client_received) == (6, 6)
    })
    .await
}

#[tokio::test]
async fn a_delay_comes_on_top_of_each_direction() -> Result<()> {
    let proxy = FaultProxy::start(echo_server().await?).await?;
    let delay = Duration::from_millis(150);
    proxy.set_both(Flow::Delay(delay));
    let mut client = connect(&proxy).await?;
    let start = Instant::now();
    say(&mut client, "slow").await?;
    hear(&mut client, "slow").await?;
    ensure!(
        start.elapsed() >= delay * 2,
        "came back after {:?}",
        start.elapsed()
    );
    Ok(())
}

#[tokio::test]
async fn held_answers_come_late_and_whole() -> Result<()> {
    let proxy = FaultProxy::start(echo_server().await?).await?;
    let mut client = connect(&proxy).await?;
    say(&mut client, "a").await?;
    hear(&mut client, "a").await?;

    proxy.set(Direction::ServerToClient, Flow::Hold);
    say(&mut client, "bc").await?;
    eventually(SOON, "the request to reach the server", || async {
        proxy.counts().server_received == 3
    })
    .await?;
    hear_nothing(&mut client).await?;

    proxy.heal().await?;
    hear(&mut client, "bc").await
}

#[tokio::test]
async fn swallowed_answers_are_lost_and_the_connection_does_not_outlive_them() -> Result<()> {
    let proxy = FaultProxy::start(echo_server().await?).await?;
    let mut client = connect(&proxy).await?;
    proxy.set(Direction::ServerToClient, Flow::Swallow);
    say(&mut client, "lost").await?;
    eventually(SOON, "the answer to be swallowed", || async {
        proxy.counts().server_sent == 4
    })
    .await?;
    hear_nothing(&mut client).await?;

    proxy.heal().await?;
    is_reset(&mut client).await?;
    let mut next = connect(&proxy).await?;
    say(&mut next, "kept").await?;
    hear(&mut next, "kept").await
}

#[tokio::test]
async fn a_black_hole_accepts_and_says_nothing_even_without_a_server() -> Result<()> {
    // Port 1 of loopback: nobody listens there.
    let proxy = FaultProxy::to_port(1).await?;
    proxy.set_both(Flow::Swallow);
    let mut client = connect(&proxy).await?;
    say(&mut client, "anyone?").await?;
    hear_nothing(&mut client).await
}

#[tokio::test]
async fn a_cut_resets_and_refuses_until_healed_on_the_same_port() -> Result<()> {
    let proxy = FaultProxy::start(echo_server().await?).await?;
    let mut client = connect(&proxy).await?;
    say(&mut client, "a").await?;
    hear(&mut client, "a").await?;
    let port = proxy.port();

    proxy.cut().await;
    is_reset(&mut client).await?;
    ensure!(
        connect(&proxy).await.is_err(),
        "a cut proxy accepted a connection"
    );

    proxy.heal().await?;
    ensure!(proxy.port() == port);
    let mut client = connect(&proxy).await?;
    say(&mut client, "b").await?;
    hear(&mut client, "b").await
}

#[tokio::test]
async fn half_closed_requests_leave_the_answers_open() -> Result<()> {
    let proxy = FaultProxy::start(echo_server().await?).await?;
    let mut client = connect(&proxy).await?;
    say(&mut client, "a").await?;
    hear(&mut client, "a").await?;
    proxy.half_close(Direction::ClientToServer);
    // The server sees the end of the requests though the client did not end them.
    hear(&mut client, ".").await?;
    // Only connections of that time are half-closed.
    let mut next = connect(&proxy).await?;
    say(&mut next, "b").await?;
    hear(&mut next, "b").await?;
    hear_nothing(&mut next).await
}
