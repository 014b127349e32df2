//! The doorbell: LISTEN on a connection of its own, believed only after it was heard once.

use std::{future::poll_fn, time::Duration};

use async_trait::async_trait;
use postrider_store::{StoreError, sessions::Listener};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_postgres::{AsyncMessage, Client, Connection};

use crate::{
    PostgresStore,
    client::config,
    error::{self, unavailable},
    param::params,
};

/// Time for our own notification to come round.
const PROBE_WITHIN: Duration = Duration::from_secs(2);

/// Rings that nobody took yet: one is as good as many.
const RINGS_MAX: usize = 1;

impl PostgresStore {
    pub(crate) async fn start_listening(&self) -> Result<Option<Box<dyn Listener>>, StoreError> {
        let options = &self.options;
        let url = options.doorbell_url.as_deref().unwrap_or(&options.url);
        let (config, tls) = config(url)?;
        let (client, connection) = config
            .connect(tls)
            .await
            .map_err(|error| error::store(&error))?;
        let (sender, receiver) = mpsc::channel(RINGS_MAX);
        let probe = uuid::Uuid::new_v4().to_string();
        let (heard, mut probed) = mpsc::channel(1);
        let task = tokio::spawn(forward(connection, sender, probe.clone(), heard));
        let doorbell = Doorbell {
            receiver,
            task,
            _client: client,
        };
        let listen = format!("listen \"{}\"", self.schema.doorbell());
        let listening = tokio::time::timeout(
            options.call_timeout,
            doorbell._client.batch_execute(&listen),
        )
        .await;
        match listening {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error::store(&error)),
            Err(_) => return Err(unavailable("no answer to LISTEN in time")),
        }
        // From another connection: through a pooler our own could hear what nobody else can tell
        // it, because the same server session happens to serve both statements.
        self.ring(&probe).await?;
        match tokio::time::timeout(PROBE_WITHIN, probed.recv()).await {
            Ok(Some(())) => Ok(Some(Box::new(doorbell))),
            Ok(None) | Err(_) => {
                tracing::warn!(
                    "the doorbell does not ring here (a pooler in transaction mode?), so new events \
                     are found by polling; set doorbell_url to an address past the pooler"
                );
                Ok(None)
            }
        }
    }

    async fn ring(&self, payload: &str) -> Result<(), StoreError> {
        let channel = self.schema.doorbell();
        self.connections
            .ask(
                &self.sql.bounds_append,
                "select pg_notify($1::text, $2::text)",
                params![channel, payload],
            )
            .await
            .map(drop)
    }
}

/// Passes notifications on until the connection ends. Our own probe is told apart.
async fn forward<S, T>(
    mut connection: Connection<S, T>,
    rings: mpsc::Sender<()>,
    probe: String,
    heard: mpsc::Sender<()>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        let message = poll_fn(|context| connection.poll_message(context)).await;
        match message {
            Some(Ok(AsyncMessage::Notification(note))) => {
                let to = if note.payload() == probe {
                    &heard
                } else {
                    &rings
                };
                // Full: one that was not taken yet says the same.
                if let Err(mpsc::error::TrySendError::Closed(())) = to.try_send(())
                    && rings.is_closed()
                {
                    return;
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::warn!(error = %error::store(&error), "the doorbell's connection was lost");
                return;
            }
            None => return,
        }
    }
}

#[derive(Debug)]
struct Doorbell {
    receiver: mpsc::Receiver<()>,
    task: JoinHandle<()>,
    /// Keeps the connection open.
    _client: Client,
}

#[async_trait]
impl Listener for Doorbell {
    async fn rung(&mut self) -> Result<(), StoreError> {
        self.receiver
            .recv()
            .await
            .ok_or_else(|| unavailable("the doorbell's connection was lost"))
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.task.abort();
    }
}
