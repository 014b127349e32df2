//! What an operator reads when something is wrong: what happened, what it means, what to do, and
//! a code that `postrider explain` knows. Never a secret.

use std::{fmt, io};

use crate::code::Code;

/// How the program ends. Documented in docs/cli.md; scripts rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// Done, or the answer is yes.
    Done = 0,
    /// The answer is no: a check found problems, the input was refused, nothing has that id,
    /// `--yes` is missing.
    No = 1,
    /// It could not be done or found out: configuration, database, destination.
    CouldNot = 2,
    /// Done where that was possible, and some destination must not be sent to.
    NotReady = 3,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    /// What happened, naming the thing.
    pub(crate) what: String,
    /// What that means for the operator's data or command. Empty where `what` says it all.
    pub(crate) means: String,
    /// What to do.
    pub(crate) fix: String,
}

impl Fault {
    pub(crate) fn new(
        code: Code,
        what: impl Into<String>,
        means: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            code,
            what: what.into(),
            means: means.into(),
            fix: fix.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.code.number(), self.what)?;
        if !self.means.is_empty() {
            write!(f, "\n  {}", self.means)?;
        }
        write!(f, "\n  fix: {}", self.fix)
    }
}

/// Why a command ended without doing all it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty when the reader of our output went away: that is not a failure.
    pub(crate) faults: Vec<Fault>,
}

impl Failure {
    /// Ends as the worst of the faults says.
    pub(crate) fn of(faults: Vec<Fault>) -> Self {
        let exit = faults
            .iter()
            .map(|fault| fault.code.exit())
            .max()
            .unwrap_or(Exit::Done);
        Self { exit, faults }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::of(vec![fault])
    }
}

/// Only output is written with `?` on an [`io::Error`]; files and sockets make their own faults.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // `postrider events list | head`: the reader has what it wanted.
            return Self {
                exit: Exit::Done,
                faults: Vec::new(),
            };
        }
        Fault::new(
            Code::OutputLost,
            format!("the output could not be written: {error}"),
            "What the command changed, it changed; only its report is lost.",
            "make room or permission where standard output goes, and ask again",
        )
        .into()
    }
}

/// What every command returns.
pub(crate) type Outcome = Result<Exit, Failure>;
