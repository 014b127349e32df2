//! Delivery into a local file, one line of JSON per event. Acknowledged means: on disk, with the
//! batch fsynced. One process at a time appends to a file.

mod journal;
mod line;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use postrider_contract::{
    Destination, Receipt,
    destination::{Durability, Serializer},
};
use postrider_core::Outcome;
use postrider_transport::{
    Anchor, Answer, Batch, Error, LOCKED, Message, Probe, ProbeStrength, Probed, Problem,
    Provisioning, Severity, Template, Traits, Transport, Usage, target::Alphabet,
};
use serde::Deserialize;
use tokio::{
    sync::{Mutex, OwnedMutexGuard, mpsc},
    time::{Instant, timeout_at},
};

use crate::journal::{AppendError, Fault, Journal, Line, Looked, Place};

/// The `kind` of destinations that this transport serves.
pub const KIND: &str = "file";

/// The `type` of its receipts.
pub const RECEIPT_TYPE: &str = "file.append/1";

/// Lines per fsync. More would make the first of a batch wait for the last; fewer cost fsyncs.
const BATCH_MAX: u32 = 1_000;

/// An id is recognised for as long as its line is there.
const DEDUP_WINDOW: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Operational settings of a folder of files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// Must exist, unless `provision` makes it.
    pub folder: PathBuf,
    /// Event ids kept in memory, some 100 bytes each. Older ones are looked for in the file.
    #[serde(default = "index_max")]
    pub index_max: u32,
}

fn index_max() -> u32 {
    1_000_000
}

/// One file destination.
pub struct JsonLines {
    /// The destination's target: a file name.
    name: String,
    folder: PathBuf,
    path: PathBuf,
    index_max: usize,
    serializer: Serializer,
    durability: Durability,
    journal: Arc<Mutex<Option<Journal>>>,
}

impl JsonLines {
    /// Checks the definition and the settings. Opens nothing: that happens with the first use.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] with the field that does not fit.
    pub fn open(destination: &Destination, connection: Connection) -> Result<Self, Error> {
        let name = &destination.name;
        let misfit = |message: String| Error::Misconfigured {
            code: "destination",
            message,
        };
        if destination.kind != KIND {
            return Err(misfit(format!(
                "{name} is of kind {:?}, not {KIND}",
                destination.kind
            )));
        }
        if destination.receipt_type != RECEIPT_TYPE {
            return Err(misfit(format!(
                "{name} asks for receipts of type {:?}; a file gives {RECEIPT_TYPE}",
                destination.receipt_type
            )));
        }
        let target = &destination.target;
        let alphabet = Alphabet {
            punctuation: "",
            target_bytes_max: 255,
        };
        if !Template::parse(target, alphabet)?.is_constant() {
            return Err(misfit(format!(
                "{name}: the target {target:?} must be one file name"
            )));
        }
        if target.is_empty() || target.starts_with('.') || target.contains(['/', '\\', '\0']) {
            return Err(misfit(format!(
                "{name}: the target {target:?} must be a plain file name; its folder belongs to \
                 the connection"
            )));
        }
        if connection.index_max == 0 {
            return Err(Error::Misconfigured {
                code: "connection",
                message: "index_max is 0; give it a positive value, or leave it out".to_owned(),
            });
        }
        Ok(Self {
            name: target.clone(),
            path: connection.folder.join(target),
            folder: connection.folder,
            index_max: usize::try_from(connection.index_max).unwrap_or(usize::MAX),
            serializer: destination.serializer,
            durability: destination.durability,
            journal: Arc::default(),
        })
    }

    /// Runs blocking work on the open file; opens it first where it is not. Bounded by the
    /// deadline; work that outlives it goes on, and the next one waits for it.
    async fn with_journal<T: Send + 'static>(
        &self,
        deadline: Option<Instant>,
        work: impl FnOnce(&mut Journal) -> Result<T, AppendError> + Send + 'static,
    ) -> Result<T, Trouble> {
        let lock = Arc::clone(&self.journal).lock_owned();
        let mut guard = match deadline {
            Some(deadline) => timeout_at(deadline, lock)
                .await
                .map_err(|_| Trouble::Busy)?,
            None => lock.await,
        };
        let (path, index_max) = (self.path.clone(), self.index_max);
        let running = tokio::task::spawn_blocking(move || {
            let journal = opened(&mut guard, &path, index_max).map_err(AppendError::Undone)?;
            let result = work(journal);
            if matches!(result, Err(AppendError::Unknown(_))) {
                // Opened anew, it is repaired and read again.
                *guard = None;
            }
            result
        });
        let finished = match deadline {
            Some(deadline) => timeout_at(deadline, running)
                .await
                .map_err(|_| Trouble::Slow)?,
            None => running.await,
        };
        match finished {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(AppendError::Undone(fault))) => Err(Trouble::Undone(fault)),
            Ok(Err(AppendError::Unknown(fault))) => Err(Trouble::Unknown(fault)),
            Err(_) => Err(Trouble::Slow),
        }
    }

    fn receipt(&self, offset: u64, duplicate: bool) -> Receipt {
        Receipt::File {
            file: self.name.clone(),
            offset,
            duplicate,
        }
    }

    fn outcome(&self, place: Place) -> Outcome {
        match place {
            Place::Appended(offset) => Outcome::Acknowledged(self.receipt(offset, false)),
            Place::Duplicate(offset) => Outcome::Acknowledged(self.receipt(offset, true)),
            Place::Conflict(offset) => Outcome::rejected(
                "digest_conflict",
                &format!("the line at offset {offset} has this id and another content"),
            ),
        }
    }
}

/// What kept the file from being used.
#[derive(Debug)]
enum Trouble {
    /// Earlier work took all the time.
    Busy,
    /// It may still be done.
    Slow,
    /// Nothing was done.
    Undone(Fault),
    Unknown(Fault),
}

impl Trouble {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Busy => Outcome::outage("busy", "earlier batches took all the time"),
            Self::Slow => Outcome::unknown("write_timeout", "the disk did not answer in time"),
            Self::Undone(fault) => Outcome::outage(code(fault), &fault.to_string()),
            Self::Unknown(fault) => Outcome::unknown("write_failed", &fault.to_string()),
        }
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Busy | Trouble::Slow => Self::Unavailable {
                code: "busy",
                message: "the disk did not answer in time".to_owned(),
            },
            Trouble::Undone(fault) | Trouble::Unknown(fault) => {
                let (code, message) = (code(&fault), fault.to_string());
                match fault {
                    Fault::NoFolder(_) | Fault::NotAFile(_) => {
                        Self::Misconfigured { code, message }
                    }
                    Fault::Locked(_) | Fault::NoSpace | Fault::Io(_) => {
                        Self::Unavailable { code, message }
                    }
                }
            }
        }
    }
}

fn code(fault: &Fault) -> &'static str {
    match fault {
        Fault::Locked(_) => LOCKED,
        Fault::NoSpace => "no_space",
        Fault::NoFolder(_) => "folder_missing",
        Fault::NotAFile(_) => "not_a_file",
        Fault::Io(_) => "write_failed",
    }
}

fn opened<'a>(
    guard: &'a mut OwnedMutexGuard<Option<Journal>>,
    path: &std::path::Path,
    index_max: usize,
) -> Result<&'a mut Journal, Fault> {
    if guard.is_none() {
        let journal = Journal::open(path, index_max)?;
        if journal.damaged > 0 {
            tracing::warn!(
                file = %path.display(),
                lines = journal.damaged,
                "lines that are no events of ours were left alone"
            );
        }
        return Ok(guard.insert(journal));
    }
    guard.as_mut().ok_or_else(|| Fault::Locked(path.to_owned()))
}

#[async_trait]
impl Transport for JsonLines {
    fn traits(&self) -> Traits {
        Traits {
            pipelined_in_order: true,
            batch_max: BATCH_MAX,
            dedup_window: Some(DEDUP_WINDOW),
            probe: ProbeStrength::ProvesAbsence,
        }
    }

    /// Opens the file, and so creates it where only its folder exists; writes no line.
    async fn preflight(&self, _: &Usage) -> Result<Vec<Problem>, Error> {
        let refused = |code, message: String| Problem {
            code,
            severity: Severity::Refused,
            message,
        };
        let mut problems = Vec::new();
        if self.durability == Durability::Replicated {
            problems.push(refused(
                "not_replicated",
                "the destination asks for durability replicated, and a file is in one place"
                    .to_owned(),
            ));
        }
        match self
            .with_journal(None, |journal| Ok(journal.damaged))
            .await
            .map_err(Error::from)
        {
            Ok(0) => {}
            Ok(damaged) => problems.push(Problem {
                code: "foreign_lines",
                severity: Severity::Warning,
                message: format!("{damaged} lines of the file are no events of ours; they stay"),
            }),
            Err(Error::Misconfigured { code, message }) => problems.push(refused(code, message)),
            Err(error @ Error::Unavailable { .. }) => return Err(error),
        }
        Ok(problems)
    }

    async fn provision(&self, _: &Usage, how: Provisioning) -> Result<Vec<String>, Error> {
        let folder = self.folder.clone();
        let shown = folder.display().to_string();
        // The file itself is made when it is opened.
        if folder.is_dir() {
            return Ok(Vec::new());
        }
        let done = vec![format!("create folder {shown}")];
        if how == Provisioning::Preview {
            return Ok(done);
        }
        let made = tokio::task::spawn_blocking(move || std::fs::create_dir_all(folder)).await;
        match made {
            Ok(Ok(())) => Ok(done),
            Ok(Err(error)) => Err(Error::Misconfigured {
                code: "folder_missing",
                message: format!("folder {shown} cannot be created: {error}"),
            }),
            Err(_) => Err(Trouble::Slow.into()),
        }
    }

    fn check(&self, message: &Message) -> Result<(), Outcome> {
        line::write(message, self.serializer)
            .map(drop)
            .map_err(|why| Outcome::rejected("no_line", &why))
    }

    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        let deadline = Instant::now() + batch.send_timeout;
        let answer = |index, outcome| {
            // Nobody listens any more: the file says what became of it.
            drop(answers.send(Answer { index, outcome }));
        };
        let (mut indexes, mut lines) = (Vec::new(), Vec::new());
        for (index, message) in batch.messages.iter().enumerate() {
            match line::write(message, self.serializer) {
                Ok(text) => {
                    indexes.push(index);
                    let earlier = message.earlier.as_ref();
                    let look_from = earlier.map(|earlier| offset_of(earlier.anchor.as_ref()));
                    lines.push(Line {
                        event_id: message.event_id,
                        text,
                        look_from,
                    });
                }
                Err(why) => answer(index, Outcome::rejected("no_line", &why)),
            }
        }
        if lines.is_empty() {
            return;
        }
        let appended = self.with_journal(Some(deadline), move |journal| journal.append(&lines));
        match appended.await {
            Ok(places) => {
                for (index, place) in indexes.into_iter().zip(places) {
                    answer(index, self.outcome(place));
                }
            }
            Err(trouble) => {
                for index in indexes {
                    answer(index, trouble.outcome());
                }
            }
        }
    }

    /// The end of the file.
    async fn anchor(&self, _: &[Arc<Message>]) -> Result<Option<Anchor>, Error> {
        let end = self.with_journal(None, |journal| Ok(journal.length()));
        Ok(Some(Anchor::number(end.await?)))
    }

    /// While this process holds the lock nobody else can append, and an append of its own is over
    /// before the look-up begins: what is not there is absent.
    async fn probe(&self, probe: &Probe) -> Result<Probed, Error> {
        let (event_id, from) = (probe.event_id, offset_of(probe.anchor.as_ref()));
        let looked = self
            .with_journal(None, move |journal| {
                journal.look(event_id, from).map_err(AppendError::Undone)
            })
            .await?;
        let cannot_tell = |reason: &str| Probed::CannotTell {
            reason: reason.to_owned(),
        };
        Ok(match looked {
            Looked::Absent => Probed::ProvenAbsent,
            Looked::Unreadable(_) => cannot_tell("its line cannot be read"),
            Looked::Found(offset, known) if known.payload_digest == Some(probe.payload_digest) => {
                Probed::Found(self.receipt(offset, false))
            }
            Looked::Found(..) => cannot_tell("the file holds this id with another payload"),
        })
    }

    /// Lets the file and its lock go, unless something is being written.
    async fn close(&self) {
        if let Ok(mut journal) = self.journal.try_lock() {
            journal.take();
        }
    }
}

/// Without an anchor, the whole file is read.
fn offset_of(anchor: Option<&Anchor>) -> u64 {
    anchor.and_then(Anchor::as_number).unwrap_or(0)
}

impl fmt::Debug for JsonLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonLines")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
