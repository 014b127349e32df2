//! The file while it is open: locked, repaired, indexed, appended to. Everything here blocks.
//!
//! A line is accepted when the whole batch that it came in was fsynced. An append that fails is
//! undone by truncating the file to where the batch began; only if that fails too, nobody knows.

use std::{
    collections::{HashMap, VecDeque},
    fs::{File, OpenOptions, TryLockError},
    io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use postrider_contract::EventId;

use crate::line::{self, Known};

/// Longest line that is read back; longer ones are skipped as damaged.
const LINE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    /// The end of the last accepted line.
    length: u64,
    index: Index,
    /// Lines that could not be read when the file was opened.
    pub(crate) damaged: u64,
}

/// Offsets of the newest lines by event id, bounded.
#[derive(Debug)]
struct Index {
    offsets: HashMap<EventId, u64>,
    order: VecDeque<EventId>,
    max: usize,
    /// Lines before this offset may be missing.
    complete_from: u64,
}

/// Why the file cannot be used now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("another process has {} open; only one may append to it", .0.display())]
    Locked(PathBuf),
    #[error("the disk is full")]
    NoSpace,
    #[error(
        "the folder {} does not exist; `postrider provision` makes it, or correct the connection's folder",
        .0.display()
    )]
    NoFolder(PathBuf),
    #[error("{} is not a regular file; give the destination another target", .0.display())]
    NotAFile(PathBuf),
    #[error("the file cannot be used: {0}")]
    Io(std::io::Error),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let kind = error.kind();
        if [StorageFull, QuotaExceeded, FileTooLarge].contains(&kind) {
            Self::NoSpace
        } else {
            Self::Io(error)
        }
    }
}

/// What became of an append that failed.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// Undone: the file is as it was.
    Undone(Fault),
    /// It could not be undone: the lines may be there, and on disk, or not.
    Unknown(Fault),
}

/// A line to append.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) event_id: EventId,
    /// With its line break.
    pub(crate) text: Vec<u8>,
    /// It may have been appended before, from this offset on: the index alone is not enough.
    pub(crate) look_from: Option<u64>,
}

/// Where a line is, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Appended(u64),
    /// The same line was there already.
    Duplicate(u64),
    /// The id is there, with another line.
    Conflict(u64),
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    Found(u64, Known),
    Absent,
    Unreadable(u64),
}

impl Journal {
    /// Opens or creates the file: takes the lock, cuts off a last line that a crash left
    /// unfinished, makes sure that what is there is on disk, and reads all of it once.
    pub(crate) fn open(path: &Path, index_max: usize) -> Result<Self, Fault> {
        let is_new = !path.exists();
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| match (error.kind(), path.parent()) {
                (ErrorKind::NotFound, Some(folder)) => Fault::NoFolder(folder.to_owned()),
                (_, _) => error.into(),
            })?;
        if !file.metadata()?.is_file() {
            return Err(Fault::NotAFile(path.to_owned()));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Fault::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        if is_new && let Some(folder) = path.parent() {
            // The name of a new file is only safe when its folder is.
            File::open(folder)?.sync_all()?;
        }
        let mut journal = Self {
            file,
            length: 0,
            index: Index::new(index_max),
            damaged: 0,
        };
        journal.read_all()?;
        // An unfinished line was never acknowledged: its batch was not fsynced.
        if journal.file.metadata()?.len() > journal.length {
            journal.file.set_len(journal.length)?;
        }
        // Lines of a process that was killed may be in the page cache only.
        journal.file.sync_all()?;
        Ok(journal)
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Appends what is not there yet, with one write and one fsync.
    pub(crate) fn append(&mut self, lines: &[Line]) -> Result<Vec<Place>, AppendError> {
        let mut places = Vec::with_capacity(lines.len());
        let mut block = Vec::new();
        // Twice in one batch: the second is a duplicate of the first.
        let mut own: HashMap<EventId, (u64, &[u8])> = HashMap::new();
        for Line {
            event_id,
            text,
            look_from,
        } in lines
        {
            let known = match own.get(event_id) {
                Some((offset, first)) => Some((*offset, *first == text.as_slice())),
                None => self
                    .known(*event_id, text, *look_from)
                    .map_err(AppendError::Undone)?,
            };
            places.push(match known {
                Some((offset, true)) => Place::Duplicate(offset),
                Some((offset, false)) => Place::Conflict(offset),
                None => {
                    let offset = self.length + block.len() as u64;
                    block.extend_from_slice(text);
                    own.insert(*event_id, (offset, text));
                    Place::Appended(offset)
                }
            });
        }
        if block.is_empty() {
            return Ok(places);
        }
        let written = self.write_at_end(&block);
        if let Err(error) = written {
            return Err(match self.undo() {
                Ok(()) => AppendError::Undone(error.into()),
                Err(_) => AppendError::Unknown(error.into()),
            });
        }
        self.length += block.len() as u64;
        for (line, place) in lines.iter().zip(&places) {
            if let Place::Appended(offset) = place {
                self.index.insert(line.event_id, *offset);
            }
        }
        Ok(places)
    }

    /// Looks in the index, then, if that does not reach back far enough, in the file.
    pub(crate) fn look(&mut self, event_id: EventId, from: u64) -> Result<Looked, Fault> {
        if let Some(&offset) = self.index.offsets.get(&event_id) {
            let line = self.line_at(offset)?;
            return Ok(match line::read(&line) {
                Some(known) => Looked::Found(offset, known),
                None => Looked::Unreadable(offset),
            });
        }
        if from >= self.index.complete_from {
            return Ok(Looked::Absent);
        }
        let until = self.index.complete_from;
        let mut found = Looked::Absent;
        each_line(&self.file, from, until, |offset, line| {
            if found == Looked::Absent && line::event_id(line) == Some(event_id) {
                found = match line::read(line) {
                    Some(known) => Looked::Found(offset, known),
                    None => Looked::Unreadable(offset),
                };
            }
        })?;
        Ok(found)
    }

    /// Where the id is already, and whether with the same line.
    fn known(
        &mut self,
        event_id: EventId,
        text: &[u8],
        look_from: Option<u64>,
    ) -> Result<Option<(u64, bool)>, Fault> {
        let offset = match (self.index.offsets.get(&event_id), look_from) {
            (Some(&offset), _) => offset,
            (None, None) => return Ok(None),
            (None, Some(from)) => match self.look(event_id, from)? {
                Looked::Absent => return Ok(None),
                Looked::Found(offset, _) | Looked::Unreadable(offset) => offset,
            },
        };
        Ok(Some((offset, self.line_is(offset, text)?)))
    }

    fn write_at_end(&mut self, block: &[u8]) -> std::io::Result<()> {
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(block)?;
        self.file.sync_data()
    }

    fn undo(&mut self) -> std::io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.sync_all()
    }

    fn read_all(&mut self) -> Result<(), Fault> {
        let length = self.file.metadata()?.len();
        let Self {
            file,
            index,
            damaged,
            ..
        } = self;
        let end = each_line(file, 0, length, |offset, line| match line::event_id(line) {
            // The first line of an id is the one that was acknowledged.
            Some(event_id) if index.offsets.contains_key(&event_id) => {}
            Some(event_id) => index.insert(event_id, offset),
            None => *damaged += 1,
        })?;
        self.length = end;
        Ok(())
    }

    fn line_at(&mut self, offset: u64) -> Result<Vec<u8>, Fault> {
        self.file.seek(SeekFrom::Start(offset))?;
        let mut line = Vec::new();
        let reader = BufReader::new(&self.file);
        reader
            .take(LINE_BYTES_MAX as u64)
            .read_until(b'\n', &mut line)?;
        Ok(line)
    }

    fn line_is(&mut self, offset: u64, expected: &[u8]) -> Result<bool, Fault> {
        self.file.seek(SeekFrom::Start(offset))?;
        let mut found = Vec::with_capacity(expected.len());
        (&self.file)
            .take(expected.len() as u64)
            .read_to_end(&mut found)?;
        Ok(found == expected)
    }
}

/// Calls `each` with every whole line that starts from one offset to before another; the end of
/// the last one.
fn each_line(
    mut file: &File,
    from: u64,
    until: u64,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<u64, Fault> {
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut offset = from;
    let mut line = Vec::new();
    while offset < until {
        line.clear();
        let mut limited = reader.by_ref().take(LINE_BYTES_MAX as u64);
        let bytes = limited.read_until(b'\n', &mut line)? as u64;
        if line.last() == Some(&b'\n') {
            each(offset, &line);
            offset += bytes;
        } else if line.len() >= LINE_BYTES_MAX {
            let Some(rest) = skip_line(&mut reader)? else {
                break;
            };
            each(offset, b"too long");
            offset += bytes + rest;
        } else {
            break;
        }
    }
    Ok(offset)
}

/// Reads on to the end of an overlong line. `None`: it has none.
fn skip_line(reader: &mut impl BufRead) -> std::io::Result<Option<u64>> {
    let mut skipped = 0;
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Ok(None);
        }
        match available.iter().position(|&byte| byte == b'\n') {
            Some(at) => {
                reader.consume(at + 1);
                return Ok(Some(skipped + at as u64 + 1));
            }
            None => {
                let length = available.len();
                reader.consume(length);
                skipped += length as u64;
            }
        }
    }
}

impl Index {
    fn new(max: usize) -> Self {
        Self {
            offsets: HashMap::new(),
            order: VecDeque::new(),
            max,
            complete_from: 0,
        }
    }

    /// Offsets come in ascending order.
    fn insert(&mut self, event_id: EventId, offset: u64) {
        self.offsets.insert(event_id, offset);
        self.order.push_back(event_id);
        while self.order.len() > self.max {
            if let Some(oldest) = self.order.pop_front()
                && let Some(offset) = self.offsets.remove(&oldest)
            {
                self.complete_from = offset + 1;
            }
        }
    }
}
