//! A history in a few bytes, with the state that its effects were performed on. Unpacked, it is the same again: the
//! packed form leaves out what can be performed anew.
//!
//! ```text
//!   key | last stamp | flags | reported | state below | n | n effects that the state below holds | further effects
//! ```

use super::{Coded, DependencyVectorOf, Entry, History, effect_of};
use crate::Keyed;
use crate::store::Stamp;
use datatypes::merge::Trace;
use datatypes::{Cell, Effect, key};
use types::{Malformed, Reader, Wire, put_bytes, put_varint};

/// What a packed history says without being unpacked.
const IS_PLAIN: u8 = 1;
const IS_WHOLE: u8 = 2;

/// A history of a key and the state below it.
#[derive(Debug)]
pub(crate) struct Packed(Box<[u8]>);

impl Keyed for Packed {
    fn key(&self) -> &[u8] {
        Reader::new(&self.0).bytes().unwrap_or_default()
    }
}

/// What is read of a packed history before its effects.
struct Head<'p, S> {
    last: S,
    /// The binary form of `last`: other stamps are stored by how they differ from it.
    like: &'p [u8],
    flags: u8,
    reported: Option<S>,
    below: Cell,
    /// How many effects the state below holds.
    held_below: u64,
    effects: Reader<'p>,
}

impl Packed {
    /// The bytes it occupies beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len()
    }

    /// True if nothing is left of the key, and of what it lost and settled, when everybody has observed the effects.
    pub(crate) fn is_plain<S: Stamp>(&self) -> bool {
        self.head::<S>().is_some_and(|head| head.flags & IS_PLAIN != 0)
    }

    /// See [`History::is_whole`].
    pub(crate) fn is_whole<S: Stamp>(&self) -> bool {
        self.head::<S>().is_some_and(|head| head.flags & IS_WHOLE != 0)
    }

    /// The greatest stamp.
    pub(crate) fn last<S: Stamp>(&self) -> Option<S> {
        self.head().map(|head| head.last)
    }

    /// The effects in the order of their stamps.
    pub(crate) fn effects<S: Stamp>(&self) -> Vec<(S, Effect<'_>)> {
        let (mut effects, Some(head)) = (Vec::new(), self.head::<S>()) else { return Vec::new() };
        let mut input = head.effects.clone();
        while let Some((stamp, bytes, _)) = next_effect::<S>(&mut input, &head, effects.len() as u64) {
            effects.extend(Effect::decode(&mut Reader::new(bytes)).ok().map(|effect| (stamp, effect)));
        }
        effects
    }

    /// The history, and the newest state.
    pub(crate) fn unpack<S: Stamp>(
        &self,
        dependencies: Option<DependencyVectorOf<S>>,
        few: usize,
        reports_losses: bool,
    ) -> (History<S>, Cell) {
        let mut history = History::new(dependencies, few, reports_losses);
        let Some(head) = self.head::<S>() else { return (history, Cell::default()) };
        let (mut input, mut cell) = (head.effects.clone(), head.below.clone());
        let mut count = 0;
        while let Some((stamp, bytes, trace)) = next_effect(&mut input, &head, count) {
            let decoded = Effect::decode(&mut Reader::new(bytes));
            let effect = decoded.unwrap_or(Effect::Key(key::Effect::SetDeadline(0)));
            let coded = Coded::new(&effect, bytes);
            match count < head.held_below {
                true => history.keep(stamp, &coded, trace),
                false => {
                    history.note_done(stamp);
                    history.note_come(stamp, &coded);
                    history.make_room();
                    history.entries.push_back(Entry::new(stamp, &coded));
                }
            }
            count += 1;
        }
        history.apply_from(head.held_below as usize, &mut cell);
        history.reported = head.reported;
        history.find_contest();
        (history, cell)
    }

    fn head<S: Stamp>(&self) -> Option<Head<'_, S>> {
        let head = Head::read(&self.0);
        debug_assert!(
            head.is_ok(),
            "a packed history was written here: {head:?}",
            head = head.as_ref().err()
        );
        head.ok()
    }
}

impl<'p, S: Stamp> Head<'p, S> {
    fn read(bytes: &'p [u8]) -> Result<Self, Malformed> {
        let mut input = Reader::new(bytes);
        input.bytes()?;
        let like = input.bytes()?;
        let last = S::decode(&mut Reader::new(like))?;
        let flags = input.byte()?;
        let reported = match bool::decode(&mut input)? {
            true => Some(read_stamp(&mut input, like)?),
            false => None,
        };
        let (below, held_below) = (Cell::decode(&mut input)?, input.varint()?);
        Ok(Head { last, like, flags, reported, below, held_below, effects: input })
    }
}

/// The next effect, of which `count` were read, with its binary form; of one that the state below holds, what it did to a list.
fn next_effect<'p, S: Stamp>(
    input: &mut Reader<'p>,
    head: &Head<'p, S>,
    count: u64,
) -> Option<(S, &'p [u8], Option<Trace>)> {
    if input.is_empty() {
        return None;
    }
    let mut read = || {
        let (stamp, bytes) = (read_stamp(input, head.like)?, input.bytes()?);
        let trace = if count < head.held_below { Option::decode(input)? } else { None };
        Ok::<_, Malformed>((stamp, bytes, trace))
    };
    read().ok()
}

/// Appends a stamp, most bytes of which are those of another one.
fn put_stamp<S: Stamp>(out: &mut Vec<u8>, stamp: &S, like: &[u8]) {
    let mut bytes = Vec::new();
    stamp.encode(&mut bytes);
    put_varint(out, bytes.len() as u64);
    if bytes.len() != like.len() {
        return out.extend_from_slice(&bytes);
    }
    for (bytes, like) in bytes.chunks(8).zip(like.chunks(8)) {
        let differ = |(at, (own, other)): (usize, (&u8, &u8))| u8::from(own != other) << at;
        out.push(bytes.iter().zip(like).enumerate().map(differ).sum());
        out.extend(bytes.iter().zip(like).filter(|(own, other)| own != other).map(|(own, _)| *own));
    }
}

fn read_stamp<S: Stamp>(input: &mut Reader<'_>, like: &[u8]) -> Result<S, Malformed> {
    let len = input.varint()? as usize;
    if len != like.len() {
        return S::decode(&mut Reader::new(input.take(len)?));
    }
    let mut bytes = like.to_vec();
    for bytes in bytes.chunks_mut(8) {
        let differ = input.byte()?;
        for (at, byte) in bytes.iter_mut().enumerate() {
            if differ >> at & 1 == 1 {
                *byte = input.byte()?;
            }
        }
    }
    S::decode(&mut Reader::new(&bytes))
}

impl<S: Stamp> History<S> {
    /// Takes it apart; nothing of it waits.
    pub(crate) fn pack(mut self, key: &[u8], mut cell: Cell) -> Packed {
        debug_assert!(!self.waits(), "all is done");
        let is_gone = cell.value.is_none();
        let resolves =
            |entry: &Entry<S>| matches!(effect_of(entry), Effect::Key(key::Effect::Resolve { .. }));
        let is_plain = is_gone && !self.contested && !self.entries.iter().any(resolves);
        self.undo_from(0, &mut cell);
        let (mut out, mut like) = (Vec::new(), Vec::new());
        if let Some(last) = self.last() {
            last.encode(&mut like);
        }
        put_bytes(&mut out, key);
        put_bytes(&mut out, &like);
        out.push(if is_plain { IS_PLAIN } else { 0 } | if self.whole { IS_WHOLE } else { 0 });
        self.reported.is_some().encode(&mut out);
        self.reported.iter().for_each(|reported| put_stamp(&mut out, reported, &like));
        cell.encode(&mut out);
        let held_below = self.held;
        put_varint(&mut out, held_below as u64);
        for (place, entry) in self.entries.iter_mut().enumerate() {
            put_stamp(&mut out, &entry.stamp, &like);
            put_bytes(&mut out, &entry.effect);
            if place < held_below {
                entry.trace.take().map(|trace| *trace).encode(&mut out);
            }
        }
        Packed(out.into_boxed_slice())
    }

    /// What each effect did to a list.
    pub(crate) fn into_traces(self) -> impl Iterator<Item = Option<Trace>> {
        self.entries.into_iter().map(|entry| entry.trace.map(|trace| *trace))
    }
}
