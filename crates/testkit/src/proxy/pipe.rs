//! The bytes of one connection: a reader and a writer for each direction, with a bounded queue
//! between them, so that delay does not cost throughput and silence does not cost memory.

use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::{Direction, Flow, Shared};

const CHUNK_BYTES: usize = 16 * 1024;
/// 16 MiB in all: more than a delayed connection on loopback has in flight in these tests.
const CHUNKS_MAX: usize = 1024;

/// Why a direction ended.
enum End {
    /// The sender finished, and the receiver was told.
    Finished,
    /// The connection is broken or has a hole: both directions must go.
    Broken,
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

/// Both sockets of a connection. Unless it ended politely, dropping them resets both sides.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    polite: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.polite {
            for socket in [&self.client, &self.server] {
                // Fails only on a socket that is dead already.
                drop(socket.set_zero_linger());
            }
        }
    }
}

/// Carries both directions until both have finished or one is broken. If this future is dropped,
/// or one direction is broken, both sockets are reset.
pub(super) async fn both_ways(client: TcpStream, server: TcpStream, shared: &Shared) {
    let mut connection = Connection {
        client,
        server,
        polite: false,
    };
    for socket in [&connection.client, &connection.server] {
        // Otherwise the kernel's own delay would add to ours. A socket that refuses is dead.
        if socket.set_nodelay(true).is_err() {
            return;
        }
    }
    let (client_read, client_write) = connection.client.split();
    let (server_read, server_write) = connection.server.split();
    let end = {
        let requests = one_way(client_read, server_write, shared, Direction::ClientToServer);
        let answers = one_way(server_read, client_write, shared, Direction::ServerToClient);
        tokio::pin!(requests, answers);
        tokio::select! {
            end = &mut requests => match end {
                End::Finished => answers.await,
                End::Broken => End::Broken,
            },
            end = &mut answers => match end {
                End::Finished => requests.await,
                End::Broken => End::Broken,
            },
        }
    };
    connection.polite = matches!(end, End::Finished);
}

async fn one_way(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    shared: &Shared,
    direction: Direction,
) -> End {
    let (queue, chunks) = mpsc::channel(CHUNKS_MAX);
    let mut half_closed = shared.half_closed.subscribe();
    let before = half_closed.borrow_and_update().count(direction);
    let cut_here = half_closed.wait_for(|now| now.count(direction) != before);
    let reader = async {
        tokio::select! {
            end = read(from, queue, shared, direction) => end,
            // The reader's queue goes with it: the writer finishes what it holds, then closes.
            _ = cut_here => End::Finished,
        }
    };
    let writer = write(to, chunks, shared, direction);
    tokio::pin!(reader, writer);
    tokio::select! {
        end = &mut reader => match end {
            End::Finished => writer.await,
            End::Broken => End::Broken,
        },
        end = &mut writer => end,
    }
}

async fn read(
    mut from: ReadHalf<'_>,
    queue: mpsc::Sender<Chunk>,
    shared: &Shared,
    direction: Direction,
) -> End {
    let mut flow = shared.flow(direction).subscribe();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut has_hole = false;
    loop {
        let now = *flow.borrow_and_update();
        match now {
            Flow::Hold => {
                if flow.changed().await.is_err() {
                    return End::Broken;
                }
                continue;
            }
            Flow::Pass | Flow::Delay(_) if has_hole => return End::Broken,
            Flow::Pass | Flow::Delay(_) | Flow::Swallow => {}
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = flow.changed() => continue,
        };
        let length = match read {
            Ok(0) => return End::Finished,
            Ok(length) => length,
            Err(_) => return End::Broken,
        };
        shared
            .passed(direction)
            .read
            .fetch_add(length as u64, Ordering::SeqCst);
        let due = match now {
            Flow::Pass => Instant::now(),
            Flow::Delay(delay) => Instant::now() + delay,
            Flow::Hold | Flow::Swallow => {
                has_hole = true;
                continue;
            }
        };
        let chunk = Chunk {
            due,
            bytes: buffer[..length].to_vec(),
        };
        if queue.send(chunk).await.is_err() {
            return End::Broken;
        }
    }
}

async fn write(
    mut to: WriteHalf<'_>,
    mut chunks: mpsc::Receiver<Chunk>,
    shared: &Shared,
    direction: Direction,
) -> End {
    let mut flow = shared.flow(direction).subscribe();
    while let Some(chunk) = chunks.recv().await {
        sleep_until(chunk.due).await;
        if passes(&mut flow).await.is_err() || to.write_all(&chunk.bytes).await.is_err() {
            return End::Broken;
        }
        shared
            .passed(direction)
            .written
            .fetch_add(chunk.bytes.len() as u64, Ordering::SeqCst);
    }
    // End of file is silenced like any byte.
    if passes(&mut flow).await.is_err() || to.shutdown().await.is_err() {
        return End::Broken;
    }
    End::Finished
}

/// Waits out a silence. Bytes that were read before it began have left their sender and come
/// through late; only bytes read during a black hole are lost.
async fn passes(flow: &mut watch::Receiver<Flow>) -> Result<(), watch::error::RecvError> {
    flow.wait_for(|flow| matches!(flow, Flow::Pass | Flow::Delay(_)))
        .await
        .map(|_| ())
}
