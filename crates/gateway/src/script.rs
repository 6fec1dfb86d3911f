//! Several requests for one command or one EXEC: a loop of pieces, steps inside an open transaction, or a whole
//! transaction that is tried again while it meets conflicts.
//!
//! ```text
//!   Loose:        Many ... Many                          (KEYS, SCAN: weak outside transactions, Corrections 78)
//!   Interactive:  Operate ... Operate                    (inside TXN)
//!   Transaction:  Begin, Operate ... Operate, Commit     (RENAME, or EXEC with one of these inside)
//!                   ^                            |
//!                   +---- Abort <--- CONFLICT ---+
//! ```

use crate::combine::Combine;
use crate::dialogue::Dialogue;
use resp::{Arguments, Encoder, Limits, Parser, Pipeline, ProtocolVersion};
use types::{Error, ReplyBuf, ReplySink};

/// Commands kept beyond the read that brought them, in RESP.
#[derive(Debug)]
pub(crate) struct Commands {
    source: Vec<u8>,
    pipeline: Pipeline,
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
        Commands { source, pipeline }
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

/// Appends a command in RESP.
pub(crate) fn append_command(arguments: Arguments<'_>, source: &mut Vec<u8>) {
    let mut encoder = Encoder::new(source, ProtocolVersion::Resp2);
    encoder.array(arguments.len());
    arguments.iter().for_each(|argument| encoder.bulk(argument));
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Script {
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

impl Script {
    /// A script at its beginning.
    pub(crate) fn new(commands: Commands, wrapper: Wrapper) -> Self {
        let mut script = Script {
            commands,
            wrapper,
            phase: Phase::Operate,
            position: 0,
            current: Current::Nothing,
            sent: 0,
            results: ReplyBuf::new(),
            attempts: 0,
        };
        script.restart();
        script
    }

    /// Goes back to the beginning.
    pub(crate) fn restart(&mut self) {
        self.phase = if self.is_transaction() { Phase::Begin } else { Phase::Operate };
        self.position = 0;
        self.current = Current::Nothing;
        self.results.clear();
        self.attempts += 1;
    }

    /// Takes in the replies to the current command's steps.
    pub(crate) fn take_in(&mut self, reply: &ReplyBuf) {
        let done = match &mut self.current {
            Current::Nothing => return,
            Current::Steps(combine) => {
                combine.write(self.sent, &mut reply.elements(), &mut self.results);
                true
            }
            Current::Dialogue(dialogue) => dialogue.on_reply(reply, &mut self.results),
        };
        if done {
            self.current = Current::Nothing;
            self.position += 1;
        }
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
        if matches!(self.wrapper, Wrapper::Exec { .. }) {
            sink.array(self.commands.len());
        }
        self.results.replay(sink);
    }
}
