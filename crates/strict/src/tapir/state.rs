//! The state of a replica in pieces, for checkpoints and for replicas that are behind.
//!
//! A piece is a sequence of records, each behind its length. A piece contains keys as they are at the horizon, with the
//! effects above it. So the replica holds its horizon and its trimming while it sends the pieces of one state: for the
//! duration of a checkpoint, or for as long as another replica asks. Operations executed meanwhile may be in a piece or
//! not: they come again from the log or the record, and are idempotent.
//!
//! The validation state of a key precedes the key. A closed base says that every committed effect up to it is here.
//! Sent after the effects, it would include effects executed in between, and the replica that fetches the pieces would
//! claim to have seen what it never had; sent before them, it includes too few, which is safe.

use super::record::{self, Record, Recovered};
use super::replica::Replica;
use super::shard::Shard;
use crate::Mutant;
use crate::ir::Change;
use types::{Malformed, Reader, wire_enum};

/// A checkpoint's cursor: in its upper bits which part it is in, below them a count of pieces, or of groups.
const PHASE_BITS: u32 = 62;
/// The part that tells what was fetched so far of another replica's state.
const ASIDE: u64 = 2 << PHASE_BITS;
/// The part that tells the record.
const GROUPS: u64 = 1 << PHASE_BITS;

/// Where a piece of the state begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// With the horizon.
    Begin,
    /// At this cursor of the index of what validation keeps of keys.
    Stamps {
        /// 0 to begin.
        cursor: u64,
    },
    /// At this cursor of the index of keys.
    Keys {
        /// 0 to begin.
        cursor: u64,
    },
}
wire_enum!(Place { 0 => Begin, 1 => Stamps { cursor }, 2 => Keys { cursor } });

/// Appends the piece of the state that begins at a place, of about so many bytes; returns the next place.
pub(super) fn tell(state: &mut Shard, place: &Place, bytes: usize, piece: &mut Vec<u8>) -> Option<Place> {
    let (stamps, keys) = (Place::Stamps { cursor: 0 }, Place::Keys { cursor: 0 });
    let late = state.mutants().has(Mutant::StampsAfterKeys);
    match place {
        Place::Begin => {
            record::put(piece, &Record::Horizon(state.horizon()));
            record::put(piece, &Record::Keyset(state.tell_keyset()));
            Some(if late { keys } else { stamps })
        }
        Place::Stamps { cursor } => {
            let mut cursor = *cursor;
            loop {
                cursor = state.tell_stamps(cursor, piece);
                if cursor == 0 {
                    return (!late).then_some(keys);
                }
                if piece.len() >= bytes {
                    return Some(Place::Stamps { cursor });
                }
            }
        }
        Place::Keys { cursor } => {
            let mut cursor = *cursor;
            loop {
                cursor = state.tell_keys(cursor, piece);
                if cursor == 0 {
                    return late.then_some(stamps);
                }
                if piece.len() >= bytes {
                    return Some(Place::Keys { cursor });
                }
            }
        }
    }
}

/// Takes a piece that `tell` made.
pub(super) fn take(state: &mut Shard, piece: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(piece);
    while !reader.is_empty() {
        match record::decode(&mut Reader::new(reader.bytes()?))? {
            Recovered::Horizon(horizon) => state.begin_at(horizon),
            Recovered::Key(key) => state.take_key(&key)?,
            Recovered::Stamps(stamps) => state.take_stamps(stamps),
            Recovered::Keyset(keyset) => state.take_keyset(keyset),
            _ => return Err(Malformed("piece of a state")),
        }
    }
    Ok(())
}

/// A checkpoint under way.
#[derive(Debug)]
pub(super) struct Checkpoint {
    place: Place,
    /// How far the groups go that it tells: later ones come from the log.
    revision: u64,
}

impl Replica {
    /// See [`protocol::Protocol::checkpoint`]: how far synchronization is, what was fetched so far of another's state,
    /// the state, then the record's groups in the order of their changes. What changes meanwhile comes again from the
    /// log, with a higher revision; a fetched state takes its place only when no checkpoint is under way.
    pub(super) fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        let bytes = self.options.piece_bytes;
        if cursor == 0 {
            let (view, last_normal) = (self.ir.view(), self.ir.last_normal());
            record::put(chunk, &Record::Ir(Change::Membership(self.ir.membership())));
            record::put(chunk, &Record::Ir(Change::View { view, last_normal }));
            record::put(chunk, &Record::Ir(Change::Points(self.ir.points())));
            self.checkpoint = Some(Checkpoint { place: Place::Begin, revision: self.ir.revision() });
            // The pieces that were fetched so far are in the part of the log that the checkpoint replaces.
            return Some(if self.aside.is_some() { ASIDE } else { 1 });
        }
        let checkpoint = self.checkpoint.as_mut()?;
        if cursor & ASIDE != 0 {
            let first = checkpoint.place == Place::Begin;
            let mut piece = Vec::new();
            let next = match &mut self.aside {
                Some(aside) => tell(aside, &checkpoint.place, bytes, &mut piece),
                None => None,
            };
            record::put(chunk, &Record::Aside { first, piece: &piece });
            let more = next.is_some();
            checkpoint.place = next.unwrap_or(Place::Begin);
            return Some(if more { cursor + 1 } else { 1 });
        }
        if cursor & GROUPS == 0 {
            match tell(&mut self.state, &checkpoint.place, bytes, chunk) {
                Some(next) => {
                    checkpoint.place = next;
                    return Some(cursor + 1);
                }
                None => return Some(GROUPS),
            }
        }
        for (id, group) in self.ir.since(cursor & !GROUPS) {
            if group.revision > checkpoint.revision {
                break;
            }
            record::put(chunk, &Record::Ir(Change::Group { id, group }));
            if chunk.len() >= bytes {
                return Some(GROUPS | (group.revision + 1));
            }
        }
        self.checkpoint = None;
        None
    }

    pub(super) fn recover_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        while !reader.is_empty() {
            self.recover_record(reader.bytes()?)?;
        }
        Ok(())
    }

    pub(super) fn recover_record(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        match record::decode(&mut Reader::new(bytes))? {
            Recovered::Ir(change) => self.ir.recover(change, &mut self.state),
            Recovered::Horizon(horizon) => self.state.begin_at(horizon),
            Recovered::Key(key) => self.state.take_key(&key)?,
            Recovered::Stamps(stamps) => self.state.take_stamps(stamps),
            Recovered::Keyset(keyset) => self.state.take_keyset(keyset),
            Recovered::Aside { first, piece } => self.take_aside(first, piece)?,
            Recovered::Arrived { base } => self.recover_arrived(base),
        }
        Ok(())
    }
}
