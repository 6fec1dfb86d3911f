//! Several requests for one command or one EXEC: a loop of pieces, steps inside an open transaction, or a whole
//! transaction that is tried again while it meets conflicts.
//!
//! ```text
//!   Loose:        Many ... Many                          (KEYS, SCAN: weak outside transactions, Corrections 78)
//!   Interactive:  Operate ... Operate                    (inside TXN)
//!   Transaction:  Begin, Operate ... Operate, Commit     (RENAME, EVAL, or EXEC with one of these inside)
//!                   ^                            |
//!                   +---- Abort <--- CONFLICT ---+
//! ```
//!
//! A transaction of its own is first tried on lent keys ([`crate::loan`]).

use crate::blocking::Blocked;
use crate::combine::Combine;
use crate::dialogue::Dialogue;
use crate::pubsub::Outbox;
use crate::scripting::Running;
use protocol::Now;
use resp::{Arguments, Encoder, Limits, Parser, Pipeline, ProtocolVersion};
use std::collections::BTreeMap;
use types::{Error, ErrorCode, ReplyBuf, ReplySink};

/// Commands stored beyond the read that brought them, in RESP.
#[derive(Debug)]
pub(crate) struct Commands {
    source: Vec<u8>,
    pipeline: Pipeline,
    /// Commands that the user may not execute any more, by their indices, and what is replied.
    pub(crate) refusals: BTreeMap<usize, Error>,
}

impl Commands {
    /// Commands that [`append_command`] encoded.
    pub(crate) fn new(source: Vec<u8>) -> Self {
        let limits = Limits {
            max_bulk_bytes: usize::MAX,
            max_command_bytes: 2 << 30,
            max_batch_commands: usize::MAX,
            ..Limits::default()
        };
        let mut pipeline = Pipeline::default();
        let parsed = Parser::new(limits, true).parse(&source, &mut pipeline);
        debug_assert_eq!(parsed.ok(), Some(source.len()), "we encoded it ourselves");
        Commands { source, pipeline, refusals: BTreeMap::new() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.pipeline.len()
    }

    /// The command with this index.
    pub(crate) fn get(&self, index: usize) -> Option<Arguments<'_>> {
        self.pipeline.get(index, &self.source)
    }
}

/// An error, as the reply to a command.
pub(crate) fn error_reply(error: &Error) -> ReplyBuf {
    let mut reply = ReplyBuf::new();
    reply.error(error);
    reply
}

/// Appends a command in RESP.
pub(crate) fn append_command(arguments: Arguments<'_>, source: &mut Vec<u8>) {
    let mut encoder = Encoder::new(source, ProtocolVersion::Resp2);
    encoder.array(arguments.len());
    arguments.iter().for_each(|argument| encoder.bulk(argument));
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) commands: Commands,
    pub(crate) wrapper: Wrapper,
    pub(crate) phase: Phase,
    /// Which command is being carried out.
    pub(crate) position: usize,
    /// How it is being carried out.
    pub(crate) current: Current,
    /// How many steps the last request had.
    pub(crate) sent: usize,
    /// The replies of the commands before it.
    pub(crate) results: ReplyBuf,
    /// How often the transaction was begun.
    pub(crate) attempts: u32,
    /// The script that the current command runs: what it asks for is carried out before the next command.
    pub(crate) running: Option<Running>,
    /// It may not write.
    pub(crate) read_only: bool,
    /// It has called more than reads since it was begun.
    pub(crate) wrote: bool,
    /// What it publishes once it has committed.
    pub(crate) outbox: Outbox,
    /// Why a script of it failed, which its client gets if validation finds its reads current.
    pub(crate) failure: Option<Error>,
    /// The present of all commands, however often they are tried (Corrections 79).
    pub(crate) now: Now,
    /// Where the random numbers of its scripts begin, however often they are tried.
    pub(crate) seed: u64,
    /// It is an attempt of a command that waits if it finds nothing.
    pub(crate) blocked: Option<Box<Blocked>>,
    /// How many changes its gateway had heard of when it was run first.
    pub(crate) changes: u64,
    /// It may work on lent keys: nothing of it has been requested yet.
    pub(crate) borrows: bool,
}

/// What surrounds the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrapper {
    /// Nothing: each request stands alone.
    Loose,
    /// The session's open transaction.
    Interactive,
    /// A transaction of its own for one command.
    Transaction,
    /// EXEC: a transaction whose reply is an array of all commands' replies.
    Exec {
        /// A touched watch stops it.
        watched: bool,
    },
}

/// Which request comes next.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Begin.
    Begin,
    /// The steps of the current command.
    Operate,
    /// Commit.
    Commit,
    /// Abort, then either everything again (`None`) or this error as the reply.
    Abort(Option<Error>),
}

/// How the current command is being carried out.
#[derive(Debug)]
pub(crate) enum Current {
    /// It has not begun.
    Nothing,
    /// By steps whose replies are combined.
    Steps(Combine),
    /// Step by step.
    Dialogue(Dialogue),
}

impl Sequence {
    /// A sequence at its beginning.
    pub(crate) fn new(commands: Commands, wrapper: Wrapper, now: Now, seed: u64) -> Self {
        let mut sequence = Sequence {
            commands,
            wrapper,
            phase: Phase::Operate,
            position: 0,
            current: Current::Nothing,
            sent: 0,
            results: ReplyBuf::new(),
            attempts: 0,
            running: None,
            read_only: false,
            wrote: false,
            outbox: Outbox::default(),
            failure: None,
            now,
            seed,
            blocked: None,
            changes: u64::MAX,
            borrows: wrapper == Wrapper::Transaction,
        };
        sequence.restart();
        sequence
    }

    /// Goes back to the beginning.
    pub(crate) fn restart(&mut self) {
        self.phase = if self.is_transaction() { Phase::Begin } else { Phase::Operate };
        self.position = 0;
        self.current = Current::Nothing;
        self.results.clear();
        self.outbox.clear();
        self.attempts += 1;
        (self.running, self.wrote, self.failure) = (None, false, None);
    }

    /// Goes back to the beginning without having met a conflict.
    pub(crate) fn begin_anew(&mut self) {
        self.attempts -= 1;
        self.restart();
    }

    /// Takes in the replies to the current command's steps; returns its reply once it is done.
    pub(crate) fn take_in(&mut self, reply: &ReplyBuf) -> Option<ReplyBuf> {
        let mut result = ReplyBuf::new();
        let done = match &mut self.current {
            Current::Nothing => false,
            Current::Steps(combine) => {
                combine.write(self.sent, &mut reply.elements(), &mut result);
                true
            }
            Current::Dialogue(dialogue) => dialogue.on_reply(reply, &mut result),
        };
        done.then_some(result)
    }

    /// The command that is being carried out.
    pub(crate) fn command(&self) -> Option<Arguments<'_>> {
        match &self.running {
            Some(running) => running.called(),
            None => self.commands.get(self.position),
        }
    }

    /// The current command is done: its reply goes to the script that called it, or to the client.
    pub(crate) fn answer(&mut self, reply: ReplyBuf) {
        self.current = Current::Nothing;
        match &mut self.running {
            Some(running) => running.answer(reply),
            None => {
                reply.replay(&mut self.results);
                self.position += 1;
            }
        }
    }

    /// A script of it has failed: nothing of the transaction takes effect. The gateway validates what it read before
    /// it sends the error, unless it has written (Corrections 79), or was killed: then it is not tried again. Inside
    /// of an open transaction the client decides what becomes of it.
    pub(crate) fn fail(&mut self, error: Error, is_killed: bool) {
        self.running = None;
        let failure = match self.wrapper {
            Wrapper::Loose | Wrapper::Interactive => return self.answer(error_reply(&error)),
            Wrapper::Transaction => error,
            Wrapper::Exec { .. } => {
                Error::new(ErrorCode::ExecAbort, format!("Transaction discarded because of: {error}"))
            }
        };
        match self.wrote || is_killed {
            true => self.phase = Phase::Abort(Some(failure)),
            false => (self.phase, self.failure) = (Phase::Commit, Some(failure)),
        }
    }

    /// The transaction was aborted because of `error`. The reply depends on whether a watched key had changed: an
    /// empty transaction under the same watches shows that.
    pub(crate) fn check_watches(&mut self, error: Error) {
        self.phase = Phase::Begin;
        self.position = self.commands.len();
        self.outbox.clear();
        self.current = Current::Nothing;
        (self.running, self.wrote, self.failure) = (None, false, Some(error));
    }

    /// True when it begins and commits a transaction of its own.
    pub(crate) fn is_transaction(&self) -> bool {
        matches!(self.wrapper, Wrapper::Transaction | Wrapper::Exec { .. })
    }

    /// True when a touched watch stops it.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self.wrapper, Wrapper::Exec { watched: true })
    }

    /// Writes the reply: that of the only command, or an array.
    pub(crate) fn write_results(&self, sink: &mut dyn ReplySink) {
        if matches!(self.wrapper, Wrapper::Exec { .. }) && !self.results.is_full() {
            sink.array(self.commands.len());
        }
        self.results.replay(sink);
    }
}
