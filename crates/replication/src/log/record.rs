//! What a member writes to its journal.

use super::message::{decode_entries, encode_entries};
use raft::eraftpb::Entry;
use types::{Incarnation, Malformed, Reader, Wire, put_bytes};

/// A change, borrowed where the member has it.
#[derive(Clone, Debug)]
pub enum Change<'a> {
    /// Term, vote and commit index. Term and vote are synced always.
    Hard {
        /// The highest term.
        term: u64,
        /// The candidate that it voted for in that term, 0 for none.
        vote: u64,
        /// Up to where entries are known to be committed.
        commit: u64,
    },
    /// Entries, in place of those with the same and later indices.
    Entries {
        /// The entries.
        entries: &'a [Entry],
    },
    /// A checkpoint's state stands for every entry up to here.
    Base {
        /// The index.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// The life in which it last forgot, and whether it has regained since what it lost.
    Life {
        /// The life.
        life: Incarnation,
        /// It may vote again.
        regained: bool,
    },
    /// A piece of a state that is being transferred.
    Piece {
        /// Counted from 0.
        number: u64,
        /// The application's bytes.
        bytes: &'a [u8],
    },
    /// The pieces are the state now.
    Installed {
        /// The index it stands for.
        index: u64,
        /// Its term.
        term: u64,
        /// How many pieces.
        pieces: u64,
    },
}

impl Change<'_> {
    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::Hard { term, vote, commit } => {
                out.push(0);
                (*term, *vote, *commit).encode(out);
            }
            Change::Entries { entries } => {
                out.push(1);
                encode_entries(entries, out);
            }
            Change::Base { index, term } => {
                out.push(2);
                (*index, *term).encode(out);
            }
            Change::Life { life, regained } => {
                out.push(3);
                life.encode(out);
                regained.encode(out);
            }
            Change::Piece { number, bytes } => {
                out.push(4);
                number.encode(out);
                put_bytes(out, bytes);
            }
            Change::Installed { index, term, pieces } => {
                out.push(5);
                (*index, *term, *pieces).encode(out);
            }
        }
    }
}

/// A change read back.
#[derive(Clone, Debug)]
pub enum Recovering {
    /// See [`Change::Hard`].
    Hard {
        /// The highest term.
        term: u64,
        /// The candidate that it voted for in that term, 0 for none.
        vote: u64,
        /// Up to where entries are known to be committed.
        commit: u64,
    },
    /// See [`Change::Entries`].
    Entries {
        /// The entries.
        entries: Vec<Entry>,
    },
    /// See [`Change::Base`].
    Base {
        /// The index.
        index: u64,
        /// Its term.
        term: u64,
    },
    /// See [`Change::Life`].
    Life {
        /// The life.
        life: Incarnation,
        /// It may vote again.
        regained: bool,
    },
    /// See [`Change::Piece`].
    Piece {
        /// Counted from 0.
        number: u64,
        /// The application's bytes.
        bytes: Vec<u8>,
    },
    /// See [`Change::Installed`].
    Installed {
        /// The index it stands for.
        index: u64,
        /// Its term.
        term: u64,
        /// How many pieces.
        pieces: u64,
    },
}

impl Recovering {
    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => {
                let (term, vote, commit) = Wire::decode(input)?;
                Recovering::Hard { term, vote, commit }
            }
            1 => Recovering::Entries { entries: decode_entries(input)? },
            2 => Recovering::Base { index: Wire::decode(input)?, term: Wire::decode(input)? },
            3 => Recovering::Life { life: Wire::decode(input)?, regained: Wire::decode(input)? },
            4 => Recovering::Piece { number: Wire::decode(input)?, bytes: input.bytes()?.to_vec() },
            5 => {
                let (index, term, pieces) = Wire::decode(input)?;
                Recovering::Installed { index, term, pieces }
            }
            _ => return Err(Malformed("log record tag")),
        })
    }
}
