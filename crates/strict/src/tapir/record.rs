//! What a replica writes to the log and to checkpoints: changes of its IR record, and its state.

use super::operation::Transactions;
use crate::ir::{Change, Recovering};
use crate::tapir::order::CommittedRead;
use crate::validation::{ModeStamps, Observed, Stamp};
use protocol::Encode;
use types::{Malformed, Reader, Timestamp, Wire, wire_struct};

/// One record; borrowed where the replica has it.
#[derive(Debug)]
pub enum Record<'a> {
    /// A change of IR's state.
    Ir(Change<'a, Transactions>),
    /// The horizon of a state, at its beginning in checkpoints and in what is fetched.
    Horizon(Stamp),
    /// A key, likewise.
    Key(KeyCell),
    /// What validation keeps of a key; likewise.
    Stamps(KeyStamps),
    /// What validation keeps of the keyset; likewise.
    Keyset(KeysetStamps),
    /// A piece of fetched state; it does not count before all are there.
    Aside {
        /// True for the first piece: whatever was fetched before is void.
        first: bool,
        /// The piece.
        piece: &'a [u8],
    },
    /// The fetched state is complete and takes the place of what was here.
    Arrived {
        /// What the state's owner had trimmed.
        base: Timestamp,
    },
}

/// A key's cell at the horizon, and the effects above it.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyCell {
    /// The key.
    pub key: Box<[u8]>,
    /// The cell in its binary form; empty for an absent key.
    pub cell: Box<[u8]>,
    /// Stamps and binary forms, ascending.
    pub effects: Vec<(Stamp, Box<[u8]>)>,
}
wire_struct!(KeyCell { key, cell, effects });

/// What validation keeps of a key that changed or was observed above the horizon.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyStamps {
    /// The key.
    pub key: Box<[u8]>,
    /// The greatest committed stamps by mode.
    pub modes: ModeStamps,
    /// The greatest of all.
    pub newest: Stamp,
    /// The closed base.
    pub closed: Stamp,
    /// Observers whose effects were not all there.
    pub waiting: Vec<(Stamp, Observed)>,
    /// What committed transactions above the horizon have observed.
    pub reads: Vec<CommittedRead>,
}
wire_struct!(KeyStamps { key, modes, newest, closed, waiting, reads });

/// What validation keeps of the keyset.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysetStamps {
    /// The committed deletions of everything above the horizon, ascending.
    pub flushes: Vec<Stamp>,
    /// The greatest of all.
    pub flushed: Stamp,
    /// Committed looks at which keys there are above the horizon, with what they saw.
    pub looked: Vec<(Stamp, Vec<Observed>)>,
    /// The greatest stamp of anything committed.
    pub newest: Stamp,
}
wire_struct!(KeysetStamps { flushes, flushed, looked, newest });

/// A record, read back.
pub(super) enum Recovered<'a> {
    Ir(Recovering<Transactions>),
    Horizon(Stamp),
    Key(KeyCell),
    Stamps(KeyStamps),
    Keyset(KeysetStamps),
    Aside { first: bool, piece: &'a [u8] },
    Arrived { base: Timestamp },
}

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Ir(Change::Group { id, group }) => {
                out.push(0);
                Wire::encode(id, out);
                Wire::encode(*group, out);
            }
            Record::Ir(Change::View { view, last_normal }) => {
                out.push(1);
                Wire::encode(view, out);
                Wire::encode(last_normal, out);
            }
            Record::Ir(Change::Membership(membership)) => {
                out.push(8);
                Wire::encode(*membership, out);
            }
            Record::Ir(Change::Points(points)) => {
                out.push(2);
                Wire::encode(points, out);
            }
            Record::Key(key) => {
                out.push(3);
                Wire::encode(key, out);
            }
            Record::Stamps(stamps) => {
                out.push(4);
                Wire::encode(stamps, out);
            }
            Record::Aside { first, piece } => {
                out.push(5);
                Wire::encode(first, out);
                types::put_bytes(out, piece);
            }
            Record::Arrived { base } => {
                out.push(6);
                Wire::encode(base, out);
            }
            Record::Keyset(keyset) => {
                out.push(20);
                Wire::encode(keyset, out);
            }
            Record::Horizon(horizon) => {
                out.push(7);
                Wire::encode(horizon, out);
            }
        }
    }
}

/// Reads a record back.
pub(super) fn decode<'a>(input: &mut Reader<'a>) -> Result<Recovered<'a>, Malformed> {
    Ok(match input.byte()? {
        0 => Recovered::Ir(Recovering::Group { id: Wire::decode(input)?, group: Wire::decode(input)? }),
        1 => {
            Recovered::Ir(Recovering::View { view: Wire::decode(input)?, last_normal: Wire::decode(input)? })
        }
        2 => Recovered::Ir(Recovering::Points(Wire::decode(input)?)),
        3 => Recovered::Key(Wire::decode(input)?),
        4 => Recovered::Stamps(Wire::decode(input)?),
        5 => Recovered::Aside { first: Wire::decode(input)?, piece: input.bytes()? },
        6 => Recovered::Arrived { base: Wire::decode(input)? },
        7 => Recovered::Horizon(Wire::decode(input)?),
        20 => Recovered::Keyset(Wire::decode(input)?),
        8 => Recovered::Ir(Recovering::Membership(Wire::decode(input)?)),
        _ => return Err(Malformed("record tag")),
    })
}

/// Appends a record behind its length, as pieces hold it.
pub(super) fn put(piece: &mut Vec<u8>, record: &Record<'_>) {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    types::put_bytes(piece, &bytes);
}
