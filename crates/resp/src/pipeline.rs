//! The commands of one read, as positions in the connection's buffer.

use std::ops::Index;

/// Spans kept allocated between calls; a vector that one huge command stretched is given back.
const RETAINED_SPANS: usize = 64 * 1024;
/// Bytes of unquoted inline arguments kept allocated between calls.
const RETAINED_TEXT_BYTES: usize = 64 * 1024;

/// Where one argument lies in its buffer. Offsets fit 32 bits because a call looks at less than 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// One command: a range of the pipeline's spans.
#[derive(Clone, Copy, Debug)]
struct Command {
    first: u32,
    end: u32,
    /// Bytes of the input up to the end of this command.
    input_end: u32,
    /// The spans point into `Pipeline::text`, not into the input.
    inline: bool,
}

/// The complete commands that one call of [`crate::Parser::parse`] found. Reused from call to call, it allocates
/// only while it grows.
#[derive(Debug, Default)]
pub struct Pipeline {
    commands: Vec<Command>,
    pub(crate) spans: Vec<Span>,
    /// The arguments of inline commands, without their quotes and escapes.
    pub(crate) text: Vec<u8>,
}

impl Pipeline {
    /// How many commands there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// True when there is no command.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Forgets all commands and keeps a moderate amount of memory.
    pub fn clear(&mut self) {
        self.commands.clear();
        self.spans.clear();
        self.text.clear();
        self.spans.shrink_to(RETAINED_SPANS);
        self.text.shrink_to(RETAINED_TEXT_BYTES);
    }

    /// The commands in order. `input` is the slice that was parsed.
    ///
    /// # Panics
    /// When `input` is another, shorter slice.
    #[inline]
    pub fn commands<'a>(&'a self, input: &'a [u8]) -> impl ExactSizeIterator<Item = Arguments<'a>> {
        self.commands.iter().map(move |command| self.arguments(command, input))
    }

    /// The command with this index, if there is one. `input` is the slice that was parsed.
    ///
    /// # Panics
    /// When `input` is another, shorter slice.
    #[inline]
    pub fn get<'a>(&'a self, index: usize, input: &'a [u8]) -> Option<Arguments<'a>> {
        self.commands.get(index).map(|command| self.arguments(command, input))
    }

    /// How many bytes of the parsed slice the commands up to and including this index take, for a connection
    /// that stops in the middle of a pipeline (see [`crate::Parser::reset`]).
    pub fn end_of(&self, index: usize) -> Option<usize> {
        self.commands.get(index).map(|command| command.input_end as usize)
    }

    #[inline]
    fn arguments<'a>(&'a self, command: &Command, input: &'a [u8]) -> Arguments<'a> {
        let base = if command.inline { &self.text[..] } else { input };
        Arguments { base, spans: &self.spans[command.first as usize..command.end as usize] }
    }

    /// Closes a command whose spans start at `first` and whose bytes end at `input_end`.
    #[inline]
    pub(crate) fn push_command(&mut self, first: usize, input_end: usize, inline: bool) {
        let end = self.spans.len();
        debug_assert!(first < end, "a command has a name");
        self.commands.push(Command {
            first: first as u32,
            end: end as u32,
            input_end: input_end as u32,
            inline,
        });
    }
}

/// One command: its name and what follows, borrowed from the connection's buffer. Cheap to copy.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    base: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Arguments<'a> {
    /// How many arguments there are; for a command of a [`Pipeline`] at least one, its name.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True when [`Arguments::after`] cut off everything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The command's name, as the client spelled it.
    ///
    /// # Panics
    /// When there is no argument, which [`Arguments::after`] alone can bring about.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.slice(self.spans[0])
    }

    /// The argument with this index; 0 is the name.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| self.slice(*span))
    }

    /// All arguments, the name first.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone + use<'a> {
        let base = self.base;
        self.spans.iter().map(move |span| &base[span.start as usize..][..span.len as usize])
    }

    /// What remains without the first `count` arguments: the command behind a prefix. Empty when nothing does.
    #[inline]
    pub fn after(&self, count: usize) -> Arguments<'a> {
        Arguments { base: self.base, spans: self.spans.get(count..).unwrap_or(&[]) }
    }

    #[inline]
    fn slice(&self, span: Span) -> &'a [u8] {
        &self.base[span.start as usize..][..span.len as usize]
    }
}

impl Index<usize> for Arguments<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        self.slice(self.spans[index])
    }
}

impl std::fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|argument| argument.escape_ascii().to_string())).finish()
    }
}
