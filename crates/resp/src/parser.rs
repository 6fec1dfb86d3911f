//! Bytes to commands: the server's half of the protocol, a whole pipeline at a time.

use std::mem;

use crate::error::ProtocolError;
use crate::inline;
use crate::integer::parse_integer;
use crate::pipeline::{Pipeline, Span};

/// Arguments that a client which has not authenticated may send in one command (Redis 7.0).
const UNAUTHENTICATED_ARGUMENTS: usize = 10;
/// Bytes of one argument that a client which has not authenticated may send (Redis 7.0).
const UNAUTHENTICATED_BULK_BYTES: usize = 16 * 1024;

/// What a client may send. The default is Redis 7.0's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest argument; Redis's `proto-max-bulk-len`.
    pub max_bulk_bytes: usize,
    /// The most arguments of one command, its name included.
    pub max_arguments: usize,
    /// The longest line: an inline command, or a count or length with its marker.
    pub max_line_bytes: usize,
    /// The largest command, all included; Redis's `client-query-buffer-limit`. At most 2 GiB.
    pub max_command_bytes: usize,
    /// The most commands that one call hands out, which bounds how long a batch keeps a thread. At least 1.
    pub max_batch_commands: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_bulk_bytes: 512 << 20,
            max_arguments: i32::MAX as usize,
            max_line_bytes: 64 << 10,
            max_command_bytes: 1 << 30,
            max_batch_commands: 1024,
        }
    }
}

/// Parses the requests of one connection.
///
/// The connection keeps a buffer of received bytes and hands [`Parser::parse`] its unread part: all bytes not
/// consumed so far, from the same place on. A command that is still incomplete stays unread; the parser remembers
/// how far it got, so that its bytes are looked at once, in however many pieces they arrive.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    authenticated: bool,
    /// Where the incomplete command at the front of the unread bytes stands; offsets count from its first byte.
    progress: Progress,
    /// The complete arguments of that command.
    spans: Vec<Span>,
}

/// How far the parser got in one command.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Arguments to come; 0 while the command's first line is incomplete.
    remaining: usize,
    /// Where the next line or, when `bulk` is known, the next argument starts.
    position: usize,
    /// The length of the next argument, when its header has been read.
    bulk: Option<usize>,
    /// Up to here no line end was found.
    scanned: usize,
}

/// What to do after looking at the front of the unread bytes.
enum Step {
    /// Everything before this offset is done with.
    Consumed(usize),
    /// The rest of the command has not arrived.
    Incomplete,
}

impl Default for Parser {
    fn default() -> Self {
        Parser::new(Limits::default(), true)
    }
}

impl Parser {
    /// A parser at the start of a connection. Until a client has `authenticated`, where that is required, it may
    /// send short commands only.
    ///
    /// # Panics
    /// When `limits` allow commands of more than 2 GiB or batches of no command.
    pub fn new(limits: Limits, authenticated: bool) -> Self {
        assert!(limits.max_command_bytes <= 2 << 30, "offsets have 32 bits");
        assert!(limits.max_line_bytes <= limits.max_command_bytes, "a line is part of a command");
        assert!(limits.max_batch_commands > 0, "a batch makes progress");
        Parser { limits, authenticated, progress: Progress::default(), spans: Vec::new() }
    }

    /// Tells whether the client has authenticated by now.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// Forgets the incomplete command, for a connection that goes back to an earlier byte than the last call
    /// consumed (see [`Pipeline::end_of`]).
    pub fn reset(&mut self) {
        self.progress = Progress::default();
        self.spans = Vec::new();
    }

    /// How many unread bytes there must be before an argument whose length is known, and has not arrived, is
    /// complete: a buffer of this size receives it without growing step by step. The client's announcement bounds
    /// it, and [`Limits::max_command_bytes`]; whether to believe it at once is the caller's choice.
    pub fn needed(&self) -> Option<usize> {
        self.progress.bulk.map(|len| self.progress.position + len + 2)
    }

    /// Replaces the commands in `pipeline` by those that `input`, the unread bytes, starts with, and returns how
    /// many bytes they take. The caller executes the commands, drops those bytes, and calls again until nothing
    /// is consumed: a batch ends at [`Limits::max_batch_commands`], and before a command that an `AUTH` in the
    /// same batch may make acceptable. Only the first 4 GiB of `input` are looked at.
    ///
    /// # Errors
    /// The client broke the protocol. The commands in `pipeline` came before that and are to be executed; then
    /// the error is the last reply, and the parser of no more use until [`Parser::reset`].
    pub fn parse(&mut self, input: &[u8], pipeline: &mut Pipeline) -> Result<usize, ProtocolError> {
        pipeline.clear();
        let input = &input[..input.len().min(u32::MAX as usize)];
        let bounds = Bounds::new(&self.limits, self.authenticated);
        let mut progress = mem::take(&mut self.progress);
        let mut consumed = 0;
        if progress.remaining > 0 {
            if !bounds.read_arguments(input, 0, &mut progress, &mut self.spans)? {
                self.progress = progress;
                return Ok(0);
            }
            mem::swap(&mut self.spans, &mut pipeline.spans);
            pipeline.push_command(0, progress.position, false);
            consumed = progress.position;
            progress = Progress::default();
        }
        while consumed < input.len() && pipeline.len() < self.limits.max_batch_commands {
            let scanned = mem::take(&mut progress).scanned;
            let first_span = pipeline.spans.len();
            let step = if input[consumed] == b'*' {
                bounds.multibulk(input, consumed, scanned, &mut progress, pipeline)
            } else {
                bounds.inline(input, consumed, scanned, &mut progress, pipeline)
            };
            match step {
                Ok(Step::Consumed(end)) => {
                    consumed = end;
                    progress = Progress::default();
                }
                Ok(Step::Incomplete) => {
                    self.suspend(progress, consumed, first_span, pipeline);
                    break;
                }
                Err(error) => {
                    pipeline.spans.truncate(first_span);
                    if error.is_unauthenticated() && !pipeline.is_empty() {
                        break;
                    }
                    return Err(error);
                }
            }
        }
        Ok(consumed)
    }

    /// Remembers the incomplete command that starts at `start` and whose spans in `pipeline` start at
    /// `first_span`.
    fn suspend(&mut self, progress: Progress, start: usize, first_span: usize, pipeline: &mut Pipeline) {
        self.spans.clear();
        self.spans.extend(
            pipeline.spans.drain(first_span..).map(|span| Span { start: span.start - start as u32, ..span }),
        );
        self.progress = Progress {
            remaining: progress.remaining,
            position: progress.position - start,
            bulk: progress.bulk,
            scanned: progress.scanned - start,
        };
    }
}

/// The limits that hold for one call.
struct Bounds {
    limits: Limits,
    authenticated: bool,
    /// Longer arguments need a closer look: they are refused, for one reason or another.
    bulk_bytes: usize,
}

/// A line, or how far its end was looked for.
enum Line {
    /// The offset of its end.
    End(usize),
    /// It has no end before this offset.
    Scanned(usize),
}

impl Bounds {
    fn new(limits: &Limits, authenticated: bool) -> Self {
        let bulk_bytes = if authenticated { usize::MAX } else { UNAUTHENTICATED_BULK_BYTES };
        Bounds { limits: *limits, authenticated, bulk_bytes: bulk_bytes.min(limits.max_bulk_bytes) }
    }

    /// Reads the command at `start`, which begins with `*`. `scanned` bytes of its first line were looked at in
    /// vain before.
    #[inline]
    fn multibulk(
        &self,
        input: &[u8],
        start: usize,
        scanned: usize,
        progress: &mut Progress,
        pipeline: &mut Pipeline,
    ) -> Result<Step, ProtocolError> {
        *progress = Progress { remaining: 0, position: start, bulk: None, scanned: start + scanned };
        let (count, position) = match short_number(input, start, b'*') {
            Some(short) => short,
            None => match self.long_number(input, progress, ProtocolError::TooBigMultibulkCount)? {
                None => return Ok(Step::Incomplete),
                Some((count, position)) => match count {
                    Some(..=0) => return Ok(Step::Consumed(position)),
                    Some(count) => (count as usize, position),
                    None => return Err(ProtocolError::InvalidMultibulkLength),
                },
            },
        };
        if count == 0 {
            return Ok(Step::Consumed(position));
        }
        if count > self.limits.max_arguments {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if count > UNAUTHENTICATED_ARGUMENTS && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        *progress = Progress { remaining: count, position, bulk: None, scanned: position };
        let first_span = pipeline.spans.len();
        if !self.read_arguments(input, start, progress, &mut pipeline.spans)? {
            return Ok(Step::Incomplete);
        }
        pipeline.push_command(first_span, progress.position, false);
        Ok(Step::Consumed(progress.position))
    }

    /// Reads arguments of the command that starts at `start`; true when it is complete.
    #[inline]
    fn read_arguments(
        &self,
        input: &[u8],
        start: usize,
        progress: &mut Progress,
        spans: &mut Vec<Span>,
    ) -> Result<bool, ProtocolError> {
        let ceiling = start + self.limits.max_command_bytes;
        let mut header = progress.bulk.take().map(|len| (len, progress.position));
        let (mut remaining, mut at) = (progress.remaining, progress.position);
        while remaining > 0 {
            // A length that was accepted before stays so, even if the client has lost its authentication.
            let short = || short_number(input, at, b'$').filter(|(len, _)| *len <= self.bulk_bytes);
            let (len, position) = match header.take().or_else(short) {
                Some(header) => header,
                None => {
                    *progress =
                        Progress { remaining, position: at, bulk: None, scanned: progress.scanned.max(at) };
                    match self.bulk_header(input, progress)? {
                        Some(header) => header,
                        None => return Ok(false),
                    }
                }
            };
            // The two bytes after an argument are not looked at, as in Redis.
            let end = position + len + 2;
            if end > ceiling {
                return Err(ProtocolError::TooBigCommand);
            }
            if end > input.len() {
                *progress = Progress { remaining, position, bulk: Some(len), scanned: position };
                return Ok(false);
            }
            spans.push(Span { start: position as u32, len: len as u32 });
            remaining -= 1;
            at = end;
        }
        *progress = Progress { remaining, position: at, bulk: None, scanned: at };
        Ok(true)
    }

    /// Reads the line at the current position in full generality: the length of the argument and where it
    /// starts, or nothing when the line is incomplete.
    #[cold]
    fn bulk_header(
        &self,
        input: &[u8],
        progress: &mut Progress,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        let at = progress.position;
        let Some((len, position)) = self.long_number(input, progress, ProtocolError::TooBigBulkCount)? else {
            return Ok(None);
        };
        if input[at] != b'$' {
            return Err(ProtocolError::ExpectedDollar { got: input[at] });
        }
        let len =
            len.and_then(|len| usize::try_from(len).ok()).filter(|len| *len <= self.limits.max_bulk_bytes);
        match len {
            None => Err(ProtocolError::InvalidBulkLength),
            Some(len) if len > self.bulk_bytes => Err(ProtocolError::UnauthenticatedBulkLength),
            Some(len) => Ok(Some((len, position))),
        }
    }

    /// Reads the line at the current position, a marker and a number, when it and the byte after its `\r` are
    /// there: the number, if it is one, and where the next line starts.
    #[cold]
    fn long_number(
        &self,
        input: &[u8],
        progress: &mut Progress,
        too_long: ProtocolError,
    ) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
        let at = progress.position;
        match self.find_line_end(input, at, progress.scanned, b'\r', too_long)? {
            Line::End(end) if end + 1 < input.len() => {
                // The byte after `\r` is not looked at, as in Redis. An empty line has no marker to skip.
                let digits = input[at..end].get(1..).unwrap_or(&[]);
                Ok(Some((parse_integer(digits), end + 2)))
            }
            Line::End(scanned) | Line::Scanned(scanned) => {
                progress.scanned = scanned;
                Ok(None)
            }
        }
    }

    /// Reads the inline command at `start`. `scanned` bytes of it were looked at in vain before.
    fn inline(
        &self,
        input: &[u8],
        start: usize,
        scanned: usize,
        progress: &mut Progress,
        pipeline: &mut Pipeline,
    ) -> Result<Step, ProtocolError> {
        match self.find_line_end(input, start, start + scanned, b'\n', ProtocolError::TooBigInline)? {
            Line::Scanned(scanned) => {
                *progress = Progress { remaining: 0, position: start, bulk: None, scanned };
                Ok(Step::Incomplete)
            }
            Line::End(end) => {
                let line = &input[start..end];
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                let first_span = pipeline.spans.len();
                inline::split(line, &mut pipeline.text, &mut pipeline.spans)?;
                if pipeline.spans.len() > first_span {
                    pipeline.push_command(first_span, end + 1, true);
                }
                Ok(Step::Consumed(end + 1))
            }
        }
    }

    /// Looks for the `terminator` of the line at `start`, from `scanned` on. As in Redis, which looks with
    /// `strchr`, a line never ends after a NUL byte: the client waits in vain or exceeds the limit.
    fn find_line_end(
        &self,
        input: &[u8],
        start: usize,
        scanned: usize,
        terminator: u8,
        too_long: ProtocolError,
    ) -> Result<Line, ProtocolError> {
        let limit = start + self.limits.max_line_bytes;
        let window = &input[scanned..input.len().min(limit + 1)];
        let stop = window.iter().position(|byte| *byte == terminator || *byte == 0);
        let end = scanned + stop.unwrap_or(window.len());
        if stop.is_some() && input[end] == terminator {
            Ok(Line::End(end))
        } else if input.len() > limit {
            Err(too_long)
        } else {
            Ok(Line::Scanned(end))
        }
    }
}

/// Reads `marker`, one to three digits in canonical form and the end of the line, where that much and a little
/// more is there: the number and where the next line starts. Nothing says that the long way must be taken.
#[inline(always)]
fn short_number(input: &[u8], at: usize, marker: u8) -> Option<(usize, usize)> {
    let window: &[u8; 6] = input.get(at..)?.first_chunk()?;
    let digit = |index: usize| u32::from(window[index]).wrapping_sub(u32::from(b'0'));
    let first = digit(1);
    if window[0] != marker || first > 9 {
        return None;
    }
    if window[2] == b'\r' {
        return Some((first as usize, at + 4));
    }
    let second = digit(2);
    if first == 0 || second > 9 {
        return None;
    }
    let two = first * 10 + second;
    if window[3] == b'\r' {
        return Some((two as usize, at + 5));
    }
    let third = digit(3);
    (third <= 9 && window[4] == b'\r').then(|| ((two * 10 + third) as usize, at + 6))
}
