//! A server that speaks just enough of the NATS protocol to be a bad one: it takes publishes and
//! acknowledges what and when the test says, over any connection.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};

/// A publish that arrived.
#[derive(Debug)]
pub struct Publish {
    /// 0, 1, …: the connection that it came over.
    pub connection: usize,
    pub reply: String,
    pub headers: String,
}

pub struct Fake {
    pub port: u16,
    pub publishes: mpsc::UnboundedReceiver<Publish>,
    connections: Arc<Mutex<Vec<Arc<Peer>>>>,
}

#[derive(Debug)]
struct Peer {
    writer: tokio::sync::Mutex<Option<OwnedWriteHalf>>,
    /// Pattern and sid.
    subscriptions: Mutex<Vec<(String, String)>>,
}

impl Fake {
    pub async fn start(stream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let connections: Arc<Mutex<Vec<Arc<Peer>>>> = Arc::default();
        let (sender, publishes) = mpsc::unbounded_channel();
        let peers = Arc::clone(&connections);
        let stream = stream.to_owned();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = peers.lock().unwrap().len();
                let (reader, writer) = TcpStream::into_split(socket);
                let peer = Arc::new(Peer {
                    writer: tokio::sync::Mutex::new(Some(writer)),
                    subscriptions: Mutex::default(),
                });
                peers.lock().unwrap().push(Arc::clone(&peer));
                tokio::spawn(serve(number, reader, peer, sender.clone(), stream.clone()));
            }
        });
        Self {
            port,
            publishes,
            connections,
        }
    }

    /// Waits for so many publishes.
    pub async fn take(&mut self, count: usize) -> Vec<Publish> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            taken.push(self.publishes.recv().await.expect("the server lives"));
        }
        taken
    }

    /// Acknowledges over one connection, whichever the publish came over.
    pub async fn ack(&self, connection: usize, reply: &str, stream: &str, sequence: u64) {
        let peer = Arc::clone(&self.connections.lock().unwrap()[connection]);
        peer.deliver(
            reply,
            &format!("{{\"stream\":\"{stream}\",\"seq\":{sequence}}}"),
        )
        .await;
    }

    pub async fn cut(&self, connection: usize) {
        let peer = Arc::clone(&self.connections.lock().unwrap()[connection]);
        peer.writer.lock().await.take();
    }

    pub fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }
}

impl Peer {
    async fn write(&self, text: &str) {
        if let Some(writer) = self.writer.lock().await.as_mut() {
            // The client may be gone: then nobody reads it.
            drop(writer.write_all(text.as_bytes()).await);
        }
    }

    async fn deliver(&self, subject: &str, body: &str) {
        let sid = self
            .subscriptions
            .lock()
            .unwrap()
            .iter()
            .find_map(|(pattern, sid)| {
                subject
                    .starts_with(pattern.trim_end_matches('*'))
                    .then(|| sid.clone())
            });
        if let Some(sid) = sid {
            self.write(&format!("MSG {subject} {sid} {}\r\n{body}\r\n", body.len()))
                .await;
        }
    }
}

async fn serve(
    number: usize,
    reader: OwnedReadHalf,
    peer: Arc<Peer>,
    publishes: mpsc::UnboundedSender<Publish>,
    stream: String,
) {
    let info = "INFO {\"server_id\":\"FAKE\",\"server_name\":\"test\",\"version\":\"2.9.10\",\
                \"headers\":true,\"max_payload\":1048576,\"jetstream\":true,\"proto\":1}\r\n";
    peer.write(info).await;
    let mut reader = BufReader::new(reader);
    let mut line = String::new();
    loop {
        line.clear();
        if peer.writer.lock().await.is_none() || reader.read_line(&mut line).await.unwrap_or(0) == 0
        {
            peer.writer.lock().await.take();
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["PING"] => peer.write("PONG\r\n").await,
            ["SUB", subject, sid] => {
                let subscription = ((*subject).to_owned(), (*sid).to_owned());
                peer.subscriptions.lock().unwrap().push(subscription);
            }
            [verb @ ("PUB" | "HPUB"), subject, reply, sizes @ ..] => {
                let size = |at: usize| sizes.get(at).and_then(|size| size.parse::<usize>().ok());
                let headers = if *verb == "HPUB" {
                    size(0).unwrap_or(0)
                } else {
                    0
                };
                let total = size(sizes.len() - 1).unwrap_or(0);
                let mut bytes = vec![0; total + 2];
                if reader.read_exact(&mut bytes).await.is_err() {
                    return;
                }
                if subject.starts_with("$JS.API.STREAM.INFO.") {
                    let answer = format!(
                        "{{\"config\":{{\"name\":\"{stream}\",\"duplicate_window\":120000000000}},\
                         \"state\":{{\"first_seq\":1,\"last_seq\":0}}}}"
                    );
                    peer.deliver(reply, &answer).await;
                    continue;
                }
                let publish = Publish {
                    connection: number,
                    reply: (*reply).to_owned(),
                    headers: String::from_utf8_lossy(&bytes[..headers]).into_owned(),
                };
                if publishes.send(publish).is_err() {
                    return;
                }
            }
            _ => {}
        }
    }
}
