//! A connection's statistics of its commands, and the writer of its replies.

use crate::statistics::{Failure, Statistics};
use crate::table;
use resp::{Arguments, Encoder, ProtocolVersion};
use types::{Error, ErrorCode, MAX_REPLY_BYTES, ReplySink, reply_too_large};

/// The log of slow commands holds so much of a command, as in Redis.
const MOST_ARGUMENTS: usize = 32;
const MOST_BYTES: usize = 128;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The number of the command whose reply is written.
    current: Option<u16>,
    /// It is refused, not carried out.
    rejected: bool,
    /// The commands of the batch that was handed over last, and the number of its first request.
    batch: Vec<u16>,
    first_request: u64,
    /// Replies of keyspaces that are not counted yet.
    pub(crate) replies_on_data: u64,
    /// Errors that were replied and not counted yet.
    failures: Vec<Failure>,
    /// A command that waits: how long it was worked on, and what it is.
    pub(crate) waiting: Option<Waiting>,
    /// Whether the client wants replies (`CLIENT REPLY`).
    pub(crate) replies: Wanted,
}

/// A command that could not be carried out at once.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) nanos: u64,
    pub(crate) words: Vec<Vec<u8>>,
}

/// Which replies a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All.
    #[default]
    All,
    /// None.
    Nothing,
    /// All but that to the next command.
    SkipNext,
    /// All but that to the present command.
    Skip,
}

impl Tally {
    /// Another command comes.
    #[inline]
    pub(crate) fn next_command(&mut self) {
        if self.replies > Wanted::Nothing {
            self.replies = if self.replies == Wanted::SkipNext { Wanted::Skip } else { Wanted::All };
        }
        self.current = None;
    }

    /// True if commands are handed over one by one: the next one may be answered otherwise.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        self.replies > Wanted::Nothing
    }

    /// True if the reply that is written now is not wanted.
    fn is_muted(&self) -> bool {
        matches!(self.replies, Wanted::Nothing | Wanted::Skip)
    }

    /// The command that was found.
    #[inline]
    pub(crate) fn found(&mut self, number: u16) {
        (self.current, self.rejected) = (Some(number), false);
    }

    /// The command is refused: it was not found, or may not be carried out.
    pub(crate) fn reject(&mut self, arguments: Arguments<'_>) {
        self.rejected = true;
        if self.current.is_none() {
            self.current = table::number(arguments);
        }
    }

    /// The number of the present command.
    pub(crate) fn current(&self) -> Option<u16> {
        self.current
    }

    /// The command before it has its reply.
    #[inline]
    pub(crate) fn go_on_with(&mut self, current: Option<u16>) {
        (self.current, self.rejected) = (current, false);
    }

    /// The present command joins the batch.
    #[inline]
    pub(crate) fn join(&mut self) {
        self.batch.push(self.current.unwrap_or(u16::MAX));
    }

    /// The batch is handed over.
    #[inline]
    pub(crate) fn hand_over(&mut self, first_request: u64) {
        (self.first_request, self.rejected) = (first_request, false);
    }

    /// The reply to this request of the batch comes now.
    #[inline]
    pub(crate) fn reply_to(&mut self, request: u64) {
        self.replies_on_data += 1;
        self.current = self.batch.get((request.wrapping_sub(self.first_request)) as usize).copied();
    }

    /// The batch took so long.
    #[inline]
    pub(crate) fn count_batch(&mut self, nanos: u64, statistics: &mut Statistics) {
        let each = nanos / (self.batch.len() as u64).max(1);
        self.batch.iter().for_each(|number| statistics.called(*number, each));
    }

    /// A new batch begins.
    #[inline]
    pub(crate) fn begin_batch(&mut self) {
        self.batch.clear();
    }

    /// Counts what was replied.
    #[inline]
    pub(crate) fn count_replies(&mut self, statistics: &mut Statistics) {
        statistics.replied(std::mem::take(&mut self.replies_on_data));
        if !self.failures.is_empty() {
            self.failures.drain(..).for_each(|failure| statistics.failed(&failure));
        }
    }

    #[cold]
    fn note(&mut self, error: &Error) {
        let word = match error.code {
            ErrorCode::Scripted => error.message.split(' ').next().unwrap_or_default(),
            code => code.as_str(),
        };
        self.failures.push(Failure { number: self.current, rejected: self.rejected, word: word.into() });
    }
}

impl PartialOrd for Wanted {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (*self as u8).partial_cmp(&(*other as u8))
    }
}

/// What the log of slow commands keeps of one.
pub(crate) fn words_of(arguments: Arguments<'_>, more_commands: usize) -> Vec<Vec<u8>> {
    let cut = arguments.len() > MOST_ARGUMENTS;
    let retained = if cut { MOST_ARGUMENTS - 1 } else { arguments.len() };
    let shown = |index: usize, word: &[u8]| match is_secret(arguments, index) {
        true => b"(redacted)".to_vec(),
        false => shortened(word),
    };
    let words = arguments.iter().take(retained).enumerate();
    let mut words: Vec<Vec<u8>> = words.map(|(index, word)| shown(index, word)).collect();
    if cut {
        words.push(format!("... ({} more arguments)", arguments.len() - retained).into_bytes());
    }
    if more_commands > 0 {
        words.push(format!("... ({more_commands} more commands)").into_bytes());
    }
    words
}

/// True if the argument with this index is a user's name or a password, which nobody else is shown.
pub(crate) fn is_secret(arguments: Arguments<'_>, index: usize) -> bool {
    let is = |at: Option<usize>, word: &str| {
        let found = at.and_then(|at| arguments.get(at));
        found.is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    };
    let (before, second_before) = (index.checked_sub(1), index.checked_sub(2));
    if is(Some(0), "config") {
        return is(Some(1), "set") && index > 2 && is(before, "requirepass");
    }
    if is(Some(0), "acl") {
        return is(Some(1), "setuser") && index > 1;
    }
    match is(Some(0), "hello") {
        true => index > 1 && (is(before, "auth") || is(second_before, "auth")),
        false => index > 0 && is(Some(0), "auth"),
    }
}

fn shortened(word: &[u8]) -> Vec<u8> {
    match word.len().checked_sub(MOST_BYTES) {
        None | Some(0) => word.to_vec(),
        Some(more) => {
            let mut prefix = word[..MOST_BYTES].to_vec();
            prefix.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
            prefix
        }
    }
}

/// Encodes a connection's replies, and notes which of them are errors.
pub(crate) struct Writer<'c> {
    encoder: Encoder<&'c mut Vec<u8>>,
    pub(crate) tally: &'c mut Tally,
    /// Where the reply that was begun last begins in the output.
    start: usize,
}

impl<'c> Writer<'c> {
    /// Writes into `output`, or, what the client does not want, into `discarded`.
    #[inline]
    pub(crate) fn new(
        (output, discarded): (&'c mut Vec<u8>, &'c mut Vec<u8>),
        version: ProtocolVersion,
        tally: &'c mut Tally,
    ) -> Self {
        let target = if tally.is_muted() { discarded } else { output };
        Writer::unmuted(target, version, tally)
    }

    /// Writes into `target`, whatever the client wants.
    #[inline]
    pub(crate) fn unmuted(target: &'c mut Vec<u8>, version: ProtocolVersion, tally: &'c mut Tally) -> Self {
        let start = target.len();
        Writer { encoder: Encoder::new(target, version), tally, start }
    }

    /// Ends the reply before, and begins one of at most [`MAX_REPLY_BYTES`].
    #[inline]
    pub(crate) fn begin_reply(&mut self) {
        self.end_reply();
        self.start = self.encoder.output().len();
        self.encoder.limit_reply(MAX_REPLY_BYTES);
    }

    /// Puts an error in place of the last reply if that has become too large.
    #[inline]
    pub(crate) fn end_reply(&mut self) {
        if self.encoder.is_full() {
            self.encoder.output_mut().truncate(self.start);
            self.error(&reply_too_large());
        }
    }
}

impl ReplySink for Writer<'_> {
    #[inline]
    fn simple(&mut self, text: &str) {
        self.encoder.simple(text);
    }
    #[inline]
    fn bulk(&mut self, bytes: &[u8]) {
        self.encoder.bulk(bytes);
    }
    #[inline]
    fn integer(&mut self, value: i64) {
        self.encoder.integer(value);
    }
    fn double(&mut self, value: f64) {
        self.encoder.double(value);
    }
    fn number(&mut self, digits: &str) {
        self.encoder.number(digits);
    }
    fn big_number(&mut self, digits: &[u8]) {
        self.encoder.big_number(digits);
    }
    fn boolean(&mut self, value: bool) {
        self.encoder.boolean(value);
    }
    fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        self.encoder.verbatim(format, text);
    }
    #[inline]
    fn null(&mut self) {
        self.encoder.null();
    }
    fn null_array(&mut self) {
        self.encoder.null_array();
    }
    #[inline]
    fn array(&mut self, len: usize) {
        self.encoder.array(len);
    }
    fn map(&mut self, pairs: usize) {
        self.encoder.map(pairs);
    }
    fn set(&mut self, len: usize) {
        self.encoder.set(len);
    }
    fn pairs(&mut self, pairs: usize) {
        self.encoder.pairs(pairs);
    }
    fn pair(&mut self) {
        self.encoder.pair();
    }
    fn push(&mut self, len: usize) {
        self.encoder.push(len);
    }
    fn entries(&mut self, pairs: usize) {
        self.encoder.entries(pairs);
    }
    fn entry(&mut self) {
        self.encoder.entry();
    }
    fn error(&mut self, error: &Error) {
        self.tally.note(error);
        self.encoder.error(error);
    }
    #[inline]
    fn is_full(&self) -> bool {
        self.encoder.is_full()
    }
}
