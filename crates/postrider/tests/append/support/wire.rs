//! Counts round trips on the wire between a client and Postgres.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A proxy that passes everything on and counts the messages after which a client waits: Sync,
/// Query and Flush.
pub(crate) struct Meter {
    address: SocketAddr,
    waits: Arc<AtomicU64>,
}

impl Meter {
    /// Starts it before the server of a `postgresql://user@host:port/database` URL.
    pub(crate) async fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let waits = Arc::new(AtomicU64::new(0));
        let (server, counter) = (host(url).to_owned(), Arc::clone(&waits));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server)
                    .await
                    .expect("the server is there");
                tokio::spawn(pass(client, server, Arc::clone(&counter)));
            }
        });
        Self { address, waits }
    }

    /// The URL through the proxy.
    pub(crate) fn url(&self, url: &str) -> String {
        url.replace(host(url), &self.address.to_string())
    }

    /// Round trips so far.
    pub(crate) fn count(&self) -> u64 {
        self.waits.load(Ordering::SeqCst)
    }
}

fn host(url: &str) -> &str {
    let after_user = url.rsplit_once('@').expect("a user is named").1;
    after_user.split_once('/').expect("a database is named").0
}

async fn pass(client: TcpStream, server: TcpStream, waits: Arc<AtomicU64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    // The first message of a connection, and only that, has no type byte.
    let mut typed = false;
    loop {
        let mut head = vec![0; if typed { 5 } else { 4 }];
        if from_client.read_exact(&mut head).await.is_err() {
            return;
        }
        let length = u32::from_be_bytes(head[head.len() - 4..].try_into().expect("four bytes"));
        let mut body = vec![0; length as usize - 4];
        if from_client.read_exact(&mut body).await.is_err() {
            return;
        }
        if typed && matches!(head[0], b'S' | b'Q' | b'H') {
            waits.fetch_add(1, Ordering::SeqCst);
        }
        // An SSL request is answered and then followed by the real start-up message.
        typed = typed || body.get(..4) != Some(&80_877_103_u32.to_be_bytes());
        head.extend(body);
        if to_server.write_all(&head).await.is_err() {
            return;
        }
    }
}
