//! Between the transport and a real server: decides what becomes of each batch.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// What becomes of one EVALSHA.
#[derive(Clone, Debug)]
pub enum Fate {
    /// The server carries it out; then the connection ends without an answer.
    TakenAndCut,
    /// It never comes to the server, and the connection ends.
    Cut,
    /// It never comes to the server, which is said to have answered this.
    Answer(String),
    /// Neither carried out nor answered.
    Ignored,
}

pub struct Judge {
    pub port: u16,
    fates: Arc<Mutex<VecDeque<Fate>>>,
}

impl Judge {
    pub async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let fates: Arc<Mutex<VecDeque<Fate>>> = Arc::default();
        let shared = Arc::clone(&fates);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let fates = Arc::clone(&shared);
                tokio::spawn(async move {
                    // A connection that broke is over, whoever broke it.
                    drop(serve(client, server, &fates).await);
                });
            }
        });
        Self { port, fates }
    }

    /// The next batch that has no fate yet gets this one. Without a fate it goes through.
    pub fn decide(&self, fate: Fate) {
        self.fates.lock().unwrap().push_back(fate);
    }
}

async fn serve(
    client: TcpStream,
    server: u16,
    fates: &Mutex<VecDeque<Fate>>,
) -> std::io::Result<()> {
    let upstream = TcpStream::connect(("127.0.0.1", server)).await?;
    for socket in [&client, &upstream] {
        socket.set_nodelay(true)?;
    }
    let (client_read, mut client_write) = client.into_split();
    let mut client_read = BufReader::new(client_read);
    let (server_read, mut server_write) = upstream.into_split();
    let mut server_read = BufReader::new(server_read);
    loop {
        let command = whole(&mut client_read).await?;
        let is_batch = command.windows(7).take(40).any(|part| part == b"EVALSHA");
        let fate = is_batch
            .then(|| fates.lock().unwrap().pop_front())
            .flatten();
        match fate {
            None => {}
            Some(Fate::Cut) => return Ok(()),
            Some(Fate::TakenAndCut) => {
                server_write.write_all(&command).await?;
                whole(&mut server_read).await?;
                return Ok(());
            }
            Some(Fate::Answer(answer)) => {
                client_write.write_all(answer.as_bytes()).await?;
                continue;
            }
            Some(Fate::Ignored) => continue,
        }
        server_write.write_all(&command).await?;
        let answer = whole(&mut server_read).await?;
        client_write.write_all(&answer).await?;
    }
}

/// One whole command or answer, as it came.
async fn whole(from: &mut (impl AsyncBufReadExt + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut open = 1_u64;
    while open > 0 {
        open -= 1;
        let start = bytes.len();
        if from.read_until(b'\n', &mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&bytes[start..]).into_owned();
        let number: i64 = line[1..].trim().parse().unwrap_or(0);
        match (line.as_bytes()[0], u64::try_from(number)) {
            (b'*', Ok(count)) => open += count,
            (b'$', Ok(length)) => {
                let end = bytes.len();
                let length = usize::try_from(length).expect("it fits") + 2;
                bytes.resize(end + length, 0);
                from.read_exact(&mut bytes[end..]).await?;
            }
            (_, _) => {}
        }
    }
    Ok(bytes)
}
