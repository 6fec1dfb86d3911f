//! The log of a site, its checkpoints, and the way back (TARDiS 6.5).

use super::logged::Recorded;
use super::{SHARED, Site};
use crate::collect::CollectedState;
use crate::instance::Instance;
use crate::keyspace::{ByValue, Piece};
use crate::records::{Order, Stored};
use crate::{Commit, Owner, StateId};
use protocol::{Encode, Outputs};
use types::{Incarnation, Instant, Malformed, Reader, Wire, put_bytes};

/// One record of the log.
#[derive(Debug)]
pub enum Record<'a> {
    /// A state came about.
    Commit {
        /// Its transaction.
        commit: &'a Commit,
        /// True if the thread of the sessions that never chose a branch stands there since.
        is_shared: bool,
    },
    /// A state came by value.
    Value {
        /// The state.
        state: &'a ByValue,
    },
    /// This site begins nothing above these states from now on.
    Ceiling {
        /// The states.
        states: &'a [StateId],
    },
    /// Of a checkpoint: a state, or a version of a key.
    Piece {
        /// It.
        piece: &'a Piece,
    },
    /// Of a checkpoint: a transaction whose state some site may lack.
    RetainedTransactions {
        /// It.
        commit: &'a Commit,
        /// The state that bears the one it made, if that was collected early.
        heir: Option<StateId>,
    },
    /// The site has something of its own from now on, or has got what the others have.
    PartialRebase,
    /// What stands before this is nothing: the site begins to fetch what another one has.
    Afresh,
    /// A name was put at a state, or is forgotten.
    Name {
        /// The name.
        name: &'a str,
        /// The state.
        state: Option<StateId>,
    },
    /// Where the shared thread stands: it never goes back, in the site's next life neither (Corrections 56).
    SessionPosition {
        /// The state it last committed.
        committed: Option<StateId>,
        /// The state it last read.
        read: Option<StateId>,
    },
    /// A life began.
    Life {
        /// Its number.
        incarnation: Incarnation,
    },
    /// Of a site whose records lie in partitions: a state was taken out.
    CollectedState {
        /// It.
        gone: &'a CollectedState,
    },
    /// Of the checkpoint of such a site: everything but the records, and what partitions may not have.
    Image {
        /// Names the record of the log that it reaches up to.
        mark: u64,
        /// In binary form.
        bytes: &'a [u8],
    },
    /// Of a checkpoint: what it shows reaches up to a record of the log.
    UpTo {
        /// Names the record.
        mark: u64,
    },
    /// What stands before this is in a checkpoint.
    Mark {
        /// Which one.
        mark: u64,
    },
    /// Of a record partition: it executed an order.
    Order {
        /// The number of the order.
        number: u64,
        /// It.
        order: &'a Order,
    },
    /// Of the checkpoint of a record partition: a key as it is after an order.
    Stored {
        /// The number of the order.
        number: u64,
        /// The key with its versions; without any if it is gone.
        stored: &'a Stored,
    },
    /// Of a record partition: it has done everything up to an order.
    Applied {
        /// The number of the order.
        number: u64,
    },
}

impl Record<'_> {
    pub(crate) const ORDER: u8 = 12;
    pub(crate) const STORED: u8 = 13;
    pub(crate) const APPLIED: u8 = 14;
    const LIFE: u8 = 9;
    const MARK: u8 = 15;
}

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Commit { commit, is_shared } => {
                out.push(0);
                Wire::encode(is_shared, out);
                Wire::encode(*commit, out);
            }
            Record::Value { state } => {
                out.push(1);
                Wire::encode(*state, out);
            }
            Record::Ceiling { states } => {
                out.push(2);
                Wire::encode(&states.to_vec(), out);
            }
            Record::Piece { piece } => {
                out.push(3);
                Wire::encode(*piece, out);
            }
            Record::RetainedTransactions { commit, heir: None } => {
                out.push(4);
                Wire::encode(*commit, out);
            }
            Record::RetainedTransactions { commit, heir: Some(heir) } => {
                out.push(16);
                Wire::encode(*commit, out);
                Wire::encode(heir, out);
            }
            Record::PartialRebase => out.push(7),
            Record::Afresh => out.push(8),
            Record::Name { name, state } => {
                out.push(6);
                put_bytes(out, name.as_bytes());
                Wire::encode(state, out);
            }
            Record::SessionPosition { committed, read } => {
                out.push(5);
                Wire::encode(committed, out);
                Wire::encode(read, out);
            }
            Record::Life { incarnation } => {
                out.push(Self::LIFE);
                Wire::encode(&incarnation.0, out);
            }
            Record::CollectedState { gone } => {
                out.push(10);
                Wire::encode(*gone, out);
            }
            Record::Mark { mark } => {
                out.push(Self::MARK);
                Wire::encode(mark, out);
            }
            Record::UpTo { mark } => {
                out.push(17);
                Wire::encode(mark, out);
            }
            Record::Image { mark, bytes } => {
                out.push(11);
                Wire::encode(mark, out);
                out.extend_from_slice(bytes);
            }
            Record::Order { number, order } => {
                out.push(Self::ORDER);
                Wire::encode(number, out);
                Wire::encode(*order, out);
            }
            Record::Stored { number, stored } => {
                out.push(Self::STORED);
                Wire::encode(number, out);
                Wire::encode(*stored, out);
            }
            Record::Applied { number } => {
                out.push(Self::APPLIED);
                Wire::encode(number, out);
            }
        }
    }
}

/// How far the checkpoint under way is.
#[derive(Debug, Default)]
pub(super) enum Progress {
    /// States and versions.
    #[default]
    Pieces,
    /// Transactions after this state.
    RetainedTransactions(StateId),
}

/// A checkpoint shows a moment, which is later than that at which the log behind it begins. What it shows of that log must not be
/// made again: states that have been collected since would come back as heads, and orders for partitions would get other numbers.
#[derive(Debug, Default)]
pub(super) struct Marks {
    last: u64,
    /// The site writes this to the log before anything else.
    due: Option<u64>,
    /// While it recovers: records up to this mark are in the checkpoint.
    skip_to: Option<u64>,
}

impl Marks {
    fn next(&mut self, life: Incarnation) -> u64 {
        self.last = (self.last + 1).max(u64::from(life.0) << 32);
        self.due = Some(self.last);
        self.last
    }

    /// The record to log now.
    pub fn take_due(&mut self) -> Option<u64> {
        self.due.take()
    }

    fn is_in_checkpoint(&mut self, record: &[u8]) -> bool {
        let Some(mark) = self.skip_to else { return false };
        let mut input = Reader::new(record);
        match input.byte() {
            // A later one, if the next checkpoint began before the log had this one.
            Ok(Record::MARK) if u64::decode(&mut input).is_ok_and(|found| found >= mark) => {
                self.skip_to = None;
                true
            }
            // The life in which the checkpoint was taken ended before the log had it.
            Ok(Record::LIFE) if u32::decode(&mut input).is_ok_and(|life| u64::from(life) > mark >> 32) => {
                self.skip_to = None;
                false
            }
            _ => true,
        }
    }

    /// The log was read.
    pub fn recovered(&mut self) {
        self.skip_to = None;
    }
}

impl Site {
    /// Appends the next piece of a checkpoint; returns where to go on.
    pub(crate) fn put_checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        if cursor == 0 && self.keyspace.is_parted() {
            let mut bytes = Vec::new();
            self.keyspace.put_image(&mut bytes);
            let mark = self.marks.next(self.incarnation);
            put(chunk, &Record::Image { mark, bytes: &bytes });
            self.gossip.took_out(self.keyspace.take_collected());
            self.put_rest(chunk);
        } else if cursor == 0 {
            self.keyspace.begin_checkpoint();
            put(chunk, &Record::UpTo { mark: self.marks.next(self.incarnation) });
            self.gossip.took_out(self.keyspace.take_collected());
            self.checkpoint = Progress::Pieces;
        }
        while chunk.len() < self.options.piece {
            match self.checkpoint {
                Progress::Pieces => {
                    if !self.keyspace.next_piece(|piece| put(chunk, &Record::Piece { piece: &piece })) {
                        self.put_rest(chunk);
                    }
                }
                Progress::RetainedTransactions(after) => match self.keyspace.retained().after(after) {
                    Some((id, commit)) => {
                        put(
                            chunk,
                            &Record::RetainedTransactions { commit, heir: self.keyspace.retained().heir(id) },
                        );
                        self.checkpoint = Progress::RetainedTransactions(id);
                    }
                    None => {
                        // Where records lie in partitions, an image froze nothing: what is frozen is being fetched.
                        if !self.keyspace.is_parted() {
                            self.keyspace.end_checkpoint();
                        }
                        return None;
                    }
                },
            }
        }
        Some(cursor + 1)
    }

    /// What comes behind states and versions, but for the transactions that some site may lack.
    fn put_rest(&mut self, chunk: &mut Vec<u8>) {
        if self.has_begun {
            put(chunk, &Record::PartialRebase);
        }
        let ceiling = self.keyspace.ceiling(Owner::Site(self.topology.sites[self.index].process));
        put(chunk, &Record::Ceiling { states: ceiling });
        let (committed, read) = (self.keyspace.committed(SHARED), self.keyspace.last_read(SHARED));
        put(chunk, &Record::SessionPosition { committed, read });
        for (name, state) in self.named() {
            put(chunk, &Record::Name { name: &name, state: Some(state) });
        }
        self.checkpoint = Progress::RetainedTransactions(StateId::ROOT);
    }

    /// Logs the shared thread's position, if it has read from a state that it did not commit.
    pub(super) fn note_standing(&mut self, out: &mut Outputs<'_, Instance>) {
        let (committed, read) = (self.keyspace.committed(SHARED), self.keyspace.last_read(SHARED));
        if read != committed && read != self.noted {
            self.noted = read;
            out.persist(&Record::SessionPosition { committed, read }, self.options.durability);
            if let Some(position) = read {
                self.note_recorded(Recorded::SessionPosition(position), out);
            }
        }
    }

    /// A piece of a checkpoint came. Its owner has verified a checksum, so one that makes no sense is a mistake of the
    /// program.
    pub(super) fn on_snapshot(&mut self, piece: &[u8]) {
        let outcome = split(piece).try_for_each(|record| self.recover(record?, Instant::default()));
        debug_assert!(outcome.is_ok(), "checkpoints are checksummed: {outcome:?}");
    }

    /// A record of the log came; see `on_snapshot`.
    pub(super) fn on_recover(&mut self, record: &[u8], now: Instant) {
        if self.marks.is_in_checkpoint(record) {
            return;
        }
        let outcome = self.recover(record, now);
        debug_assert!(outcome.is_ok(), "log records are checksummed: {outcome:?}");
    }

    fn recover(&mut self, bytes: &[u8], now: Instant) -> Result<(), Malformed> {
        let mut input = Reader::new(bytes);
        match input.byte()? {
            0 => {
                let (is_shared, commit) = (bool::decode(&mut input)?, Commit::decode(&mut input)?);
                self.keyspace.apply(&commit).map_err(|_| Malformed("a state without its parents"))?;
                if is_shared {
                    self.keyspace.has_committed(SHARED, commit.id);
                    self.logged.recover(commit.id);
                }
                self.keep(commit, now);
            }
            1 => {
                let state = ByValue::decode(&mut input)?;
                self.keyspace.apply_value(&state).map_err(|_| Malformed("a state without its parents"))?;
            }
            2 => {
                let states = Vec::decode(&mut input)?;
                self.keyspace.place_ceiling(Owner::Site(self.topology.sites[self.index].process), states);
            }
            3 => {
                if !self.keyspace.restore(Piece::decode(&mut input)?, now) {
                    return Err(Malformed("order of a checkpoint"));
                }
            }
            4 => self.keep(Commit::decode(&mut input)?, now),
            16 => {
                let (commit, heir) = (Commit::decode(&mut input)?, Some(StateId::decode(&mut input)?));
                if !self.keyspace.restore(Piece::RetainedTransactions { commit, heir }, now) {
                    return Err(Malformed("state that bears another one"));
                }
            }
            5 => {
                let (committed, read) = (Option::decode(&mut input)?, Option::decode(&mut input)?);
                if let Some(committed) = committed {
                    self.keyspace.has_committed(SHARED, committed);
                }
                if let Some(read) = read {
                    self.keyspace.has_read(SHARED, read);
                    self.logged.recover(read);
                }
            }
            6 => {
                let name = str::from_utf8(input.bytes()?).map_err(|_| Malformed("name of a state"))?;
                self.put_name(name, Option::decode(&mut input)?);
            }
            7 => self.has_begun = true,
            8 => self.start_over(),
            Record::LIFE => {
                let life = Incarnation(u32::decode(&mut input)?);
                if self.keyspace.is_parted() {
                    self.keyspace.begin_life(life);
                }
            }
            10 => {
                self.keyspace.repeat(&CollectedState::decode(&mut input)?);
                self.gossip.took_out(self.keyspace.take_collected());
            }
            11 => {
                self.marks.skip_to = Some(u64::decode(&mut input)?);
                self.keyspace.read_image(&mut input)?;
            }
            17 => self.marks.skip_to = Some(u64::decode(&mut input)?),
            Record::MARK => {}
            _ => return Err(Malformed("record of a site")),
        }
        Ok(())
    }
}

/// Appends a record behind its length.
pub(crate) fn put(out: &mut Vec<u8>, record: &Record<'_>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    record.encode(out);
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// The records of a piece of a checkpoint, each behind its length in four bytes.
pub(crate) fn split(mut bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    std::iter::from_fn(move || {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        let Some(record) = rest.get(..len) else {
            bytes = &[];
            return Some(Err(Malformed("record length")));
        };
        bytes = &rest[len..];
        Some(Ok(record))
    })
}
