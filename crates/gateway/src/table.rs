//! The command table: what every command is called, takes, touches and does, in one place.
//!
//! The entries stand with their handlers in `commands/`, a file per family. Looking a command up, `COMMAND` and
//! `docs/reference/commands.md` all read these entries.

use crate::commands;
use crate::control::Control;
use crate::flow::Flow;
use crate::plan::{Call, Plan};
use resp::{Arguments, parse_integer};
use std::ops::Range;
use types::{Error, ReplySink};

/// What is known of a command; Redis's flags of the same names.
pub(crate) mod flag {
    /// It may change data.
    pub(crate) const WRITE: u16 = 1;
    /// It reads data and changes nothing.
    pub(crate) const READONLY: u16 = 1 << 1;
    /// It may need more memory.
    pub(crate) const DENYOOM: u16 = 1 << 2;
    /// It is for operators.
    pub(crate) const ADMIN: u16 = 1 << 3;
    /// It may not be called from scripts.
    pub(crate) const NOSCRIPT: u16 = 1 << 4;
    /// It works while the process recovers.
    pub(crate) const LOADING: u16 = 1 << 5;
    /// It works on a stale replica.
    pub(crate) const STALE: u16 = 1 << 6;
    /// Its cost does not grow with the data.
    pub(crate) const FAST: u16 = 1 << 7;
    /// It works before authentication.
    pub(crate) const NO_AUTH: u16 = 1 << 8;
    /// It is refused between MULTI and EXEC.
    pub(crate) const NO_MULTI: u16 = 1 << 9;
    /// It may name another keyspace, which is looked up before it becomes a plan. Not a flag of Redis.
    pub(crate) const OTHER_KEYSPACE: u16 = 1 << 10;
    /// It is about messages.
    pub(crate) const PUBSUB: u16 = 1 << 11;
    /// It has effects elsewhere, though it writes nothing. `COMMAND` does not tell of it.
    pub(crate) const MAY_REPLICATE: u16 = 1 << 12;
    /// Its client may wait until there is something for it.
    pub(crate) const BLOCKING: u16 = 1 << 13;
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The first one's index; 0 for none.
    pub(crate) first: i32,
    /// The last one's index; negative counts from the end.
    pub(crate) last: i32,
    /// The distance between two.
    pub(crate) step: i32,
}

/// A command or a subcommand.
#[derive(Debug)]
pub(crate) struct Command {
    /// In lower case; a subcommand's is `client|kill`.
    pub(crate) name: &'static str,
    /// How many arguments, the name included; negative: at least so many.
    pub(crate) arity: i32,
    /// See [`flag`].
    pub(crate) flags: u16,
    /// Which arguments are keys.
    pub(crate) keys: Keys,
    /// Which argument says how many keys follow it; 0 for none.
    pub(crate) key_count: usize,
    /// From which argument on the word `STORE` or `STOREDIST` may stand before another key; 0 for none.
    pub(crate) store_from: usize,
    /// From which argument on the word `STREAMS` may stand before keys and as many ids; 0 for none.
    pub(crate) streams_from: usize,
    /// The version of Redis that introduced it, or of Anabranch.
    pub(crate) since: &'static str,
    /// One sentence.
    pub(crate) summary: &'static str,
    /// What it does.
    pub(crate) handler: Handler,
    /// What its first argument may choose.
    pub(crate) subcommands: &'static [Command],
}

/// What makes a plan of a command on data.
pub(crate) type Planner = for<'a> fn(&Call<'a>) -> Result<Plan<'a>, Error>;

/// How a command is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handler {
    /// It becomes operations.
    Data(Planner),
    /// It concerns the session or the process, and is answered at once.
    Local(fn(&mut Control<'_>, &mut dyn ReplySink) -> Result<(), Error>),
    /// It steers the connection.
    Flow(Flow),
    /// It does nothing without a subcommand.
    Container,
}

impl Command {
    /// A command without keys or subcommands.
    pub(crate) const fn new(
        name: &'static str,
        arity: i32,
        flags: u16,
        since: &'static str,
        summary: &'static str,
        handler: Handler,
    ) -> Self {
        let keys = Keys { first: 0, last: 0, step: 0 };
        Command {
            name,
            arity,
            flags,
            keys,
            key_count: 0,
            store_from: 0,
            streams_from: 0,
            since,
            summary,
            handler,
            subcommands: &[],
        }
    }

    /// The same with its keys.
    pub(crate) const fn keys(mut self, first: i32, last: i32, step: i32) -> Self {
        self.keys = Keys { first, last, step };
        self
    }

    /// The same with keys that follow the argument with this index, which says how many they are.
    pub(crate) const fn counted_keys(mut self, index: usize) -> Self {
        self.key_count = index;
        self
    }

    /// The same with a key behind the word `STORE` or `STOREDIST`, from the argument with this index on.
    pub(crate) const fn storing_from(mut self, index: usize) -> Self {
        self.store_from = index;
        self
    }

    /// The same with keys behind the word `STREAMS`, from the argument with this index on, before as many ids.
    pub(crate) const fn streams_from(mut self, index: usize) -> Self {
        self.streams_from = index;
        self
    }

    /// The same with subcommands.
    pub(crate) const fn containing(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self
    }

    /// True when it has the flag.
    #[inline]
    pub(crate) fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The name without the container's.
    pub(crate) fn short_name(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or(self.name)
    }

    /// True when a call with `len` arguments, the name included, is well formed.
    #[inline]
    fn takes(&self, len: usize) -> bool {
        if self.arity >= 0 { len == self.arity as usize } else { len >= self.arity.unsigned_abs() as usize }
    }

    /// The arguments that are keys.
    pub(crate) fn key_indices<'c>(&'c self, arguments: Arguments<'c>) -> impl Iterator<Item = usize> + 'c {
        let (len, keys) = (arguments.len(), self.keys);
        let last = if keys.last < 0 { len as i32 + keys.last } else { keys.last };
        let fixed = if keys.first > 0 { keys.first..last + 1 } else { 0..0 };
        let count = arguments.get(self.key_count).filter(|_| self.key_count > 0).and_then(parse_integer);
        let first = self.key_count + 1;
        // A client may announce more keys than it has sent.
        let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let counted = first..first + count.min(len.saturating_sub(first));
        let fixed = fixed.step_by(keys.step.max(1) as usize).map(|index| index as usize);
        fixed.chain(counted).chain(self.stored_index(arguments)).chain(self.stream_indices(arguments))
    }

    /// The keys behind `STREAMS`: the first half of what follows.
    fn stream_indices(&self, arguments: Arguments<'_>) -> Range<usize> {
        let is_word = |index: usize, text: &str| {
            arguments.get(index).is_some_and(|word| word.eq_ignore_ascii_case(text.as_bytes()))
        };
        if self.streams_from == 0 {
            return 0..0;
        }
        let mut index = 1;
        while index < arguments.len() {
            if is_word(index, "STREAMS") {
                return index + 1..index + 1 + (arguments.len() - index - 1) / 2;
            }
            // A group or a consumer may be called STREAMS.
            index += if is_word(index, "GROUP") { 3 } else { 1 };
        }
        0..0
    }

    /// The key behind the last `STORE` or `STOREDIST`.
    fn stored_index(&self, arguments: Arguments<'_>) -> Option<usize> {
        let stores = |index: &usize| {
            let word = arguments.get(*index).unwrap_or_default();
            word.eq_ignore_ascii_case(b"STORE") || word.eq_ignore_ascii_case(b"STOREDIST")
        };
        let words = self.store_from..arguments.len().saturating_sub(1);
        words.rev().filter(|_| self.store_from > 0).find(stores).map(|index| index + 1)
    }
}

/// A family of commands: Redis's group of that name.
#[derive(Debug)]
pub(crate) struct Family {
    /// The group's name in `COMMAND DOCS`.
    pub(crate) group: &'static str,
    /// Its heading in the documentation.
    pub(crate) title: &'static str,
    /// Its commands.
    pub(crate) commands: &'static [Command],
}

/// All commands, family by family.
pub(crate) static FAMILIES: &[Family] = &[
    Family { group: "generic", title: "Keys", commands: commands::keys::COMMANDS },
    Family { group: "string", title: "Strings", commands: commands::strings::COMMANDS },
    Family { group: "bitmap", title: "Bits", commands: commands::bits::COMMANDS },
    Family { group: "hyperloglog", title: "HyperLogLogs", commands: commands::hyperloglog::COMMANDS },
    Family { group: "hash", title: "Hashes", commands: commands::hashes::COMMANDS },
    Family { group: "hash", title: "Fields that expire", commands: commands::field_expiry::COMMANDS },
    Family { group: "list", title: "Lists", commands: commands::lists::COMMANDS },
    Family { group: "set", title: "Sets", commands: commands::sets::COMMANDS },
    Family { group: "sorted-set", title: "Sorted sets", commands: commands::scored_sets::COMMANDS },
    Family { group: "stream", title: "Streams", commands: commands::streams::COMMANDS },
    Family { group: "geo", title: "Points on the map", commands: commands::geo::COMMANDS },
    Family {
        group: "commuting",
        title: "Counters, summaries, tops, identifiers",
        commands: commands::commuting::COMMANDS,
    },
    Family { group: "types", title: "User-defined types", commands: commands::user_types::COMMANDS },
    Family { group: "transactions", title: "Transactions", commands: commands::transactions::COMMANDS },
    Family { group: "scripting", title: "Scripts", commands: commands::scripting::COMMANDS },
    Family { group: "pubsub", title: "Publish and subscribe", commands: commands::pubsub::COMMANDS },
    Family { group: "sessions", title: "Sessions and contexts", commands: commands::sessions::COMMANDS },
    Family { group: "connection", title: "Connection", commands: commands::connection::COMMANDS },
    Family { group: "server", title: "Server", commands: commands::server::COMMANDS },
    Family { group: "cluster", title: "Cluster", commands: commands::cluster::COMMANDS },
    Family { group: "conflicts", title: "Conflicts", commands: commands::conflicts::COMMANDS },
    Family { group: "keyspaces", title: "Keyspaces", commands: commands::keyspaces::COMMANDS },
    Family { group: "branches", title: "Branches", commands: commands::branching::COMMANDS },
];

/// Slots of the index; more than twice the number of commands.
const INDEX_SIZE: usize = 1024;
/// An empty slot of the index.
const NOWHERE: (u8, u8) = (u8::MAX, u8::MAX);

/// Where each command stands, family and position, by the hash of its name; collisions go to the next free slot.
const INDEX: [(u8, u8); INDEX_SIZE] = build_index();

/// The number of the first subcommand of the command in each slot; see [`locate`].
const FIRST_SUBCOMMAND: [u16; INDEX_SIZE] = number_subcommands().0;
/// How many numbers [`locate`] gives: every one is below.
pub(crate) const NUMBERS: usize = number_subcommands().1;

const fn number_subcommands() -> ([u16; INDEX_SIZE], usize) {
    let (mut first, mut next, mut slot) = ([0; INDEX_SIZE], INDEX_SIZE, 0);
    while slot < INDEX_SIZE {
        first[slot] = next as u16;
        if INDEX[slot].0 != u8::MAX {
            let (family, position) = INDEX[slot];
            next += FAMILIES[family as usize].commands[position as usize].subcommands.len();
        }
        slot += 1;
    }
    (first, next)
}

const fn build_index() -> [(u8, u8); INDEX_SIZE] {
    let mut index = [NOWHERE; INDEX_SIZE];
    let (mut family, mut count) = (0, 0);
    while family < FAMILIES.len() {
        let commands = FAMILIES[family].commands;
        let mut position = 0;
        while position < commands.len() {
            let mut slot = slot_of(commands[position].name.as_bytes());
            while index[slot].0 != u8::MAX {
                slot = (slot + 1) % INDEX_SIZE;
            }
            index[slot] = (family as u8, position as u8);
            (position, count) = (position + 1, count + 1);
        }
        family += 1;
    }
    assert!(count * 2 < INDEX_SIZE, "the index is sparse");
    index
}

/// A name without regard to case, in three words: longer ones than 24 bytes name nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Folded(u64, u64, u64);

/// Makes letters lower case. A byte that is no letter never becomes one, so equal words mean equal names.
const LOWER: u64 = 0x2020_2020_2020_2020;

impl Folded {
    #[inline]
    const fn new(name: &[u8]) -> Option<Self> {
        match name.len() {
            1..=8 => Some(Folded(word(name), name.len() as u64, 0)),
            9..=16 => {
                let (head, tail) = name.split_at(8);
                Some(Folded(word(head), word(tail) ^ ((name.len() as u64) << 56), 0))
            }
            17..=24 => {
                let (head, rest) = name.split_at(8);
                let (middle, tail) = rest.split_at(8);
                Some(Folded(word(head), word(middle), word(tail) ^ ((name.len() as u64) << 56)))
            }
            _ => None,
        }
    }

    #[inline]
    const fn slot(self) -> usize {
        let mixed =
            (self.0 ^ self.1.rotate_left(29) ^ self.2.rotate_left(47)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (64 - INDEX_SIZE.trailing_zeros())) as usize
    }
}

/// Up to eight bytes as a little-endian word, folded.
#[inline]
const fn word(bytes: &[u8]) -> u64 {
    let (mut word, mut position) = (0, 0);
    while position < bytes.len() {
        word |= (bytes[position] as u64) << (position * 8);
        position += 1;
    }
    word | LOWER
}

const fn slot_of(name: &[u8]) -> usize {
    match Folded::new(name) {
        Some(folded) => folded.slot(),
        None => panic!("a command's name has 1 to 24 bytes"),
    }
}

/// The folded names of the index's commands, so that a look-up reads one line.
static NAMES: [Folded; INDEX_SIZE] = {
    let mut names = [Folded(0, 0, 0); INDEX_SIZE];
    let mut slot = 0;
    while slot < INDEX_SIZE {
        if INDEX[slot].0 != u8::MAX {
            let name = FAMILIES[INDEX[slot].0 as usize].commands[INDEX[slot].1 as usize].name;
            if let Some(folded) = Folded::new(name.as_bytes()) {
                names[slot] = folded;
            }
        }
        slot += 1;
    }
    names
};

/// The command of this name, in any case.
#[inline]
pub(crate) fn command(name: &[u8]) -> Option<&'static Command> {
    slot(name).map(in_slot)
}

#[inline]
fn in_slot(slot: usize) -> &'static Command {
    let (family, position) = INDEX[slot];
    &FAMILIES[usize::from(family)].commands[usize::from(position)]
}

/// Where the index has the command of this name.
#[inline]
fn slot(name: &[u8]) -> Option<usize> {
    let folded = Folded::new(name)?;
    let mut slot = folded.slot();
    while NAMES[slot] != folded {
        if INDEX[slot].0 == u8::MAX {
            return None;
        }
        slot = (slot + 1) % INDEX_SIZE;
    }
    Some(slot)
}

/// The command or subcommand that `arguments` call.
///
/// # Errors
/// There is none, or the number of arguments is wrong.
#[inline]
pub(crate) fn find(arguments: Arguments<'_>) -> Result<&'static Command, Error> {
    locate(arguments).map(|(found, _)| found)
}

/// The same, whatever the number of arguments is.
///
/// # Errors
/// There is no such command or subcommand.
pub(crate) fn named(arguments: Arguments<'_>) -> Result<(&'static Command, u16), Error> {
    let slot = slot(arguments.name()).ok_or_else(|| unknown_command(arguments))?;
    let container = in_slot(slot);
    match arguments.get(1).filter(|_| !container.subcommands.is_empty()) {
        None => Ok((container, slot as u16)),
        Some(name) => {
            let position = position_of(container, name)?;
            Ok((&container.subcommands[position], FIRST_SUBCOMMAND[slot] + position as u16))
        }
    }
}

/// The same, with the number by which statistics know it.
///
/// # Errors
/// As those of [`find`].
#[inline]
pub(crate) fn locate(arguments: Arguments<'_>) -> Result<(&'static Command, u16), Error> {
    let Some(mut slot) = slot(arguments.name()) else { return Err(unknown_command(arguments)) };
    let mut found = in_slot(slot);
    if found.name == "type" && arguments.len() > 2 {
        slot = about_types(found, arguments)?;
        found = in_slot(slot);
    }
    let mut number = slot as u16;
    if !found.subcommands.is_empty()
        && let Some(name) = arguments.get(1)
    {
        let position = position_of(found, name)?;
        (found, number) = (&found.subcommands[position], FIRST_SUBCOMMAND[slot] + position as u16);
    }
    if found.takes(arguments.len()) { Ok((found, number)) } else { Err(wrong_arity(found)) }
}

/// The number of the command that `arguments` name, however many they are.
pub(crate) fn number(arguments: Arguments<'_>) -> Option<u16> {
    let slot = slot(arguments.name())?;
    let position = arguments.get(1).and_then(|name| position_of(in_slot(slot), name).ok());
    Some(position.map_or(slot as u16, |position| FIRST_SUBCOMMAND[slot] + position as u16))
}

/// All commands with their numbers; subcommands follow their container.
pub(crate) fn all() -> impl Iterator<Item = (u16, &'static Command)> {
    let slots =
        FAMILIES.iter().flat_map(|family| family.commands).filter_map(|entry| slot(entry.name.as_bytes()));
    slots.flat_map(|slot| {
        let container = in_slot(slot);
        let numbered = (FIRST_SUBCOMMAND[slot]..).zip(container.subcommands);
        std::iter::once((slot as u16, container)).chain(numbered)
    })
}

/// The command or subcommand that has a number; none if no command has.
pub(crate) fn numbered(number: usize) -> Option<&'static Command> {
    let known = |slot: &usize| INDEX[*slot].0 != u8::MAX;
    if number < INDEX_SIZE {
        return Some(number).filter(known).map(in_slot);
    }
    let holds = |slot: &usize| {
        let first = usize::from(FIRST_SUBCOMMAND[*slot]);
        (first..first + in_slot(*slot).subcommands.len()).contains(&number)
    };
    let slot = (0..INDEX_SIZE).filter(known).find(holds)?;
    in_slot(slot).subcommands.get(number - usize::from(FIRST_SUBCOMMAND[slot]))
}

/// `TYPE LOAD name module` and its like: with one argument, `TYPE` asks for the type of a key.
///
/// # Errors
/// It is none of these.
#[cold]
fn about_types(found: &'static Command, arguments: Arguments<'_>) -> Result<usize, Error> {
    let container = slot(b"types")
        .filter(|types| arguments.get(1).is_some_and(|name| subcommand(in_slot(*types), name).is_ok()));
    container.ok_or_else(|| wrong_arity(found))
}

/// The subcommand of this name, in any case.
///
/// # Errors
/// There is none.
pub(crate) fn subcommand(container: &'static Command, name: &[u8]) -> Result<&'static Command, Error> {
    position_of(container, name).map(|position| &container.subcommands[position])
}

fn position_of(container: &'static Command, name: &[u8]) -> Result<usize, Error> {
    let matches = |sub: &Command| sub.short_name().as_bytes().eq_ignore_ascii_case(name);
    container.subcommands.iter().position(matches).ok_or_else(|| {
        Error::err(format!(
            "unknown subcommand '{}'. Try {} HELP.",
            lossy(&name[..name.len().min(128)]),
            container.name.to_ascii_uppercase()
        ))
    })
}

/// Redis's text for a wrong number of arguments.
#[cold]
pub(crate) fn wrong_arity(command: &Command) -> Error {
    Error::err(format!("wrong number of arguments for '{}' command", command.name))
}

#[cold]
fn unknown_command(arguments: Arguments<'_>) -> Error {
    const SHOWN_BYTES: usize = 128;
    let mut shown = Vec::new();
    for argument in arguments.iter().skip(1) {
        if shown.len() >= SHOWN_BYTES {
            break;
        }
        let room = SHOWN_BYTES - shown.len();
        shown.push(b'\'');
        shown.extend_from_slice(&argument[..argument.len().min(room)]);
        shown.extend_from_slice(b"' ");
    }
    let name = arguments.name();
    let name = lossy(&name[..name.len().min(SHOWN_BYTES)]);
    Error::err(format!("unknown command '{name}', with args beginning with: {}", lossy(&shown)))
}

/// Text of bytes that a client sent; what is no UTF-8 is replaced.
pub(crate) fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for family in FAMILIES {
            for entry in family.commands {
                assert!(std::ptr::eq(command(entry.name.as_bytes()).expect("by its name"), entry));
                let upper = entry.name.to_ascii_uppercase();
                assert!(std::ptr::eq(command(upper.as_bytes()).expect("in upper case"), entry));
            }
        }
        for name in ["", "ge", "gett", "\u{0}", "get ", "GE\x54\x00"] {
            assert!(command(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn every_command_and_subcommand_has_a_number_of_its_own() {
        let all = FAMILIES.iter().flat_map(|family| family.commands);
        let all = all.flat_map(|entry| std::iter::once(entry).chain(entry.subcommands));
        let numbers = (0..NUMBERS).filter(|number| numbered(*number).is_some()).count();
        assert_eq!(numbers, all.count());
        for (number, found) in (0..NUMBERS).filter_map(|number| Some((number, numbered(number)?))) {
            let words: Vec<&str> = found.name.split('|').chain(std::iter::repeat_n("a", 8)).collect();
            let len = (found.arity.unsigned_abs() as usize).max(1);
            let mut source = Vec::new();
            let (mut pipeline, mut parser) = (resp::Pipeline::default(), resp::Parser::default());
            resp::encode_command(&mut source, &words[..len]);
            parser.parse(&source, &mut pipeline).expect("it was encoded");
            let arguments = pipeline.commands(&source).next().expect("a command");
            if let Ok((located, its)) = locate(arguments) {
                assert_eq!((located.name, usize::from(its)), (found.name, number));
            }
        }
    }

    #[test]
    fn entries_are_consistent() {
        for entry in FAMILIES.iter().flat_map(|family| family.commands) {
            assert_eq!(entry.name, entry.name.to_ascii_lowercase());
            let both = flag::WRITE | flag::READONLY;
            assert_ne!(entry.flags & both, both, "{} writes or reads", entry.name);
            let is_data = matches!(entry.handler, Handler::Data(_));
            let says_data = entry.flags & both != 0 || matches!(entry.handler, Handler::Flow(_));
            assert!(!is_data || says_data || entry.name == "blind", "{}", entry.name);
            for sub in entry.subcommands {
                assert_eq!(sub.name.split('|').next(), Some(entry.name));
            }
        }
    }
}
