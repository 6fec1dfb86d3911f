//! Commands about conflicts: writes of a causal keyspace that were lost to concurrent ones.

use crate::describe;
use crate::dialogue::Dialogue;
use crate::plan::{Call, Plan};
use crate::table::flag::{LOADING, NO_MULTI, NOSCRIPT, READONLY, STALE};
use crate::table::{Command, Handler, Handler::Data, Handler::Local, lossy};
use datatypes::glob::Pattern;
use datatypes::{Operation, key};
use protocol::{Conflict, Losses, Step};
use std::borrow::Cow;
use std::collections::BTreeMap;
use types::{Error, Reader, Reply, ReplyBuf, ReplySink, put_bytes};

/// How many conflicts are listed if no COUNT is given, and at most.
const LISTED: u32 = 100;
const MAX_LISTED: i64 = 10_000;

const OPERATOR: u16 = NOSCRIPT | NO_MULTI;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("conflicts", -2, 0, "anabranch 0.1.0", "Commands about writes that were lost to concurrent ones", Handler::Container).containing(CONFLICTS),
];

#[rustfmt::skip]
static CONFLICTS: &[Command] = &[
    Command::new("conflicts|list", -2, OPERATOR, "anabranch 0.1.0", "Lists writes of the causal keyspace that were lost to concurrent ones, with both values, regions and times: CONFLICTS LIST [CURSOR cursor] [MATCH pattern] [COUNT count]", Data(list)),
    Command::new("conflicts|count", 2, OPERATOR, "anabranch 0.1.0", "Counts the lost writes that are listed, and those that were dropped because the list was full", Data(count)),
    Command::new("conflicts|resolve", -4, OPERATOR, "anabranch 0.1.0", "Takes lost writes off the list, in every region: CONFLICTS RESOLVE ID id [id ...], or KEY key [key ...] for all that are known of a key; replies how many there were", Data(resolve)),
    Command::new("conflicts|of", 3, READONLY, "anabranch 0.1.0", "Tells every value of a key in a keyspace with CONFLICTS keep or handler, with regions and times: first the one that is shown, then those of concurrent writes", Data(of)).keys(2, 2, 1),
    Command::new("conflicts|help", 2, LOADING | STALE, "anabranch 0.1.0", "Lists the subcommands", Local(describe::help)),
];

fn count<'a>(_: &Call<'a>) -> Result<Plan<'a>, Error> {
    Ok(Plan::Dialogue(Dialogue::CountConflicts { cursor: 0, counted: [0; 2] }))
}

fn list<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let mut listing = Listing { cursor: 0, count: LISTED, pattern: None, found: Vec::new() };
    for index in (2..call.len()).step_by(2) {
        if index + 1 == call.len() {
            return Err(Error::syntax());
        }
        if call.is(index, "CURSOR") {
            listing.cursor = call.count(index + 1)?;
        } else if call.is(index, "COUNT") {
            listing.count = call.integer(index + 1)?.clamp(1, MAX_LISTED) as u32;
        } else if call.is(index, "MATCH") {
            listing.pattern = Some(Pattern::for_many(call.bytes(index + 1))?);
        } else {
            return Err(Error::syntax());
        }
    }
    Ok(Plan::Dialogue(Dialogue::Conflicts(listing)))
}

fn of<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.step(Step::Key(call.on(call.bytes(2), Operation::Key(key::Operation::Siblings))))
}

fn resolve<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let mut keys = NamedLosses::new();
    let named = (3..call.len()).map(|index| call.bytes(index));
    if call.is(2, "ID") {
        for id in named {
            let (key, name) = read_id(id).ok_or_else(|| {
                Error::err(format!("'{}' is no id of a conflict; CONFLICTS LIST tells them", lossy(id)))
            })?;
            let names = keys.entry(key).or_default();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    } else if call.is(2, "KEY") {
        keys.extend(named.map(|key| (key.into(), Vec::new())));
    } else {
        return Err(Error::err("CONFLICTS RESOLVE needs ID id [id ...] or KEY key [key ...]"));
    }
    Ok(Plan::Dialogue(Dialogue::Resolve { keys }))
}

/// Keys, each with the names of losses; none for all.
pub(crate) type NamedLosses = BTreeMap<Box<[u8]>, Vec<Vec<u8>>>;

/// CONFLICTS LIST in progress.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Where the next piece begins.
    pub(crate) cursor: u64,
    /// About how many are wanted.
    pub(crate) count: u32,
    /// Of which keys.
    pub(crate) pattern: Option<Pattern>,
    /// What was found.
    pub(crate) found: Vec<Conflict>,
}

impl Listing {
    /// What to ask next.
    pub(crate) fn step(&self) -> Step<'static> {
        let missing = self.count.saturating_sub(self.found.len() as u32).max(1);
        Step::Losses(Losses::List { cursor: self.cursor, count: missing })
    }

    /// Takes a piece. True if it was the last, and the reply is written.
    pub(crate) fn on_piece(
        &mut self,
        next: u64,
        piece: impl Iterator<Item = Conflict>,
        sink: &mut dyn ReplySink,
    ) -> bool {
        self.found.extend(piece);
        self.cursor = next;
        if next != 0 && self.found.len() < self.count as usize {
            return false;
        }
        sink.array(2);
        sink.bulk(next.to_string().as_bytes());
        sink.array(self.found.len());
        self.found.iter().for_each(|conflict| write(conflict, sink));
        true
    }
}

fn write(conflict: &Conflict, sink: &mut dyn ReplySink) {
    use datatypes::merge::LostPart;
    let (part, element): (_, Option<Cow<'_, [u8]>>) = match &conflict.part {
        LostPart::Value | LostPart::Whole => ("value", None),
        LostPart::Field { field } => ("field", Some(field.into())),
        LostPart::Score { member } => ("score", Some(member.into())),
        LostPart::Contents => ("contents", None),
        LostPart::Deadline => ("deadline", None),
        LostPart::Element { index } => ("element", Some(index.to_string().into_bytes().into())),
    };
    sink.map(6);
    sink.bulk(b"id");
    sink.bulk(&id(conflict));
    sink.bulk(b"key");
    sink.bulk(&conflict.key);
    sink.bulk(b"part");
    sink.bulk(part.as_bytes());
    sink.bulk(b"element");
    match element {
        Some(element) => sink.bulk(&element),
        None => sink.null(),
    }
    for (name, write) in [("lost", &conflict.lost), ("kept", &conflict.winner)] {
        sink.bulk(name.as_bytes());
        sink.map(3);
        sink.bulk(b"value");
        sink.bulk(&write.value);
        sink.bulk(b"region");
        sink.bulk(&write.region);
        sink.bulk(b"time_us");
        sink.integer(i64::try_from(write.at_micros).unwrap_or(i64::MAX));
    }
}

/// Key and name in hexadecimal: the same in every region.
fn id(conflict: &Conflict) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, &conflict.key);
    bytes.extend_from_slice(&conflict.name);
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

fn read_id(id: &[u8]) -> Option<(Box<[u8]>, Vec<u8>)> {
    let digit = |byte: &u8| (*byte as char).to_digit(16);
    if !id.len().is_multiple_of(2) {
        return None;
    }
    let pairs = id.chunks(2).map(|pair| Some((digit(&pair[0])? * 16 + digit(&pair[1])?) as u8));
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    let mut reader = Reader::new(&bytes);
    let key: Box<[u8]> = reader.bytes().ok()?.into();
    let name = reader.rest().to_vec();
    (!name.is_empty()).then_some((key, name))
}

/// Adds what a piece has to what was counted; returns where the next one begins, 0 at the end.
pub(crate) fn count_piece(reply: &ReplyBuf, counted: &mut [i64; 2]) -> u64 {
    let mut numbers = reply.elements().filter_map(|element| match element {
        Reply::Integer(number) => Some(number),
        _ => None,
    });
    let next = numbers.next().unwrap_or(0);
    counted.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    next as u64
}

/// How many conflicts were resolved, key by key.
pub(crate) fn write_resolved(reply: &ReplyBuf, sink: &mut dyn ReplySink) {
    let mut sum = 0;
    for element in reply.elements() {
        match element {
            Reply::Integer(resolved) => sum += resolved,
            Reply::Error(error) => return sink.error(&error),
            _ => {}
        }
    }
    sink.integer(sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::merge::LostPart;

    #[test]
    fn an_id_names_the_key_and_what_was_lost_of_it() {
        let conflict = Conflict {
            key: b"k \xff".to_vec().into(),
            name: b"\x00name".to_vec().into(),
            part: LostPart::Value,
            lost: Default::default(),
            winner: Default::default(),
        };
        let id = id(&conflict);
        assert_eq!(read_id(&id), Some((conflict.key.clone(), conflict.name.to_vec())));
        for end in 0..id.len() - 2 * conflict.name.len() {
            assert_eq!(read_id(&id[..end]), None, "a cut one names nothing");
        }
        assert_eq!(read_id(b"zz"), None);
    }
}
