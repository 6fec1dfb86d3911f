//! What happens to a store, at random.

use crate::Stamp;
use crate::strategies::{KINDS, cell, effect, effect_of, operation, operation_of};
use datatypes::{Cell, Effect, Operation};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Most of them fit into a record; the last two do not.
pub const KEYS: [&[u8]; 7] =
    [b"register", b"dict", b"set", b"scores", b"list", &[b'k'; 30], b"a key of more than 22 bytes"];

/// A snapshot: everything up to a time from here and everything up to another one from other regions. Not a prefix
/// of the stamps, unless the two are equal.
#[derive(Clone, Debug)]
pub struct View {
    pub local: u32,
    pub remote: u32,
}

impl View {
    pub fn shows(&self, stamp: Stamp) -> bool {
        stamp.0 <= if stamp.1 { self.remote } else { self.local }
    }
}

/// What is committed.
#[derive(Clone, Debug)]
pub enum Change {
    /// The effect, if any, that this operation has on the newest state.
    Operation(Operation<'static>),
    /// An effect whatever the state is.
    Effect(Effect<'static>),
}

#[derive(Clone, Debug)]
pub enum Action {
    /// Several effects on one key with one stamp, at this time relative to the latest one.
    Commit {
        key: usize,
        ago: u32,
        remote: bool,
        changes: Vec<Change>,
    },
    Read {
        key: usize,
        view: View,
        own: Vec<Effect<'static>>,
    },
    /// Takes back a stamp that the key has, or one that it has not.
    Retract {
        key: usize,
        which: Option<Index>,
    },
    /// So far behind the latest time.
    Horizon {
        ago: u32,
    },
    NoHorizon,
    Fold {
        limit: usize,
    },
    Restore {
        key: usize,
        ago: u32,
        cell: Cell,
    },
    /// Everything is removed, and perhaps put back.
    Clear {
        put_back: bool,
    },
    /// Changes the newest state in place, which only a store without snapshots admits.
    Update {
        key: usize,
        effect: Effect<'static>,
    },
}

fn change_of(key: usize) -> BoxedStrategy<Change> {
    match KINDS.get(key) {
        Some(kind) => prop_oneof![
            8 => operation_of(*kind).prop_map(Change::Operation),
            2 => effect_of(*kind).prop_map(Change::Effect),
            1 => operation().prop_map(Change::Operation),
            1 => effect().prop_map(Change::Effect),
        ]
        .boxed(),
        None => operation().prop_map(Change::Operation).boxed(),
    }
}

fn commit(key: usize) -> BoxedStrategy<Action> {
    let ago = prop_oneof![5 => Just(0u32), 4 => 0..8u32, 1 => 0..60u32];
    (ago, any::<bool>(), vec(change_of(key), 1..3))
        .prop_map(move |(ago, remote, changes)| Action::Commit { key, ago, remote, changes })
        .boxed()
}

fn action() -> impl Strategy<Value = Action> {
    let key = || 0..KEYS.len();
    let time = || 0..70u32;
    let view = (time(), time(), any::<bool>())
        .prop_map(|(local, other, prefix)| View { local, remote: if prefix { local } else { other } });
    let read =
        (key(), view, vec(effect(), 0..3)).prop_map(|(key, view, own)| Action::Read { key, view, own });
    let retract = (key(), proptest::option::weighted(0.8, any::<Index>()))
        .prop_map(|(key, which)| Action::Retract { key, which });
    let restore = (key(), 0..3u32, cell()).prop_map(|(key, ago, cell)| Action::Restore { key, ago, cell });
    prop_oneof![
        24 => key().prop_flat_map(commit),
        10 => read,
        4 => retract,
        6 => (0..12u32).prop_map(|ago| Action::Horizon { ago }),
        1 => Just(Action::NoHorizon),
        1 => select(&[1, 3, 100][..]).prop_map(|limit| Action::Fold { limit }),
        1 => restore,
        1 => any::<bool>().prop_map(|put_back| Action::Clear { put_back }),
        3 => (key(), effect()).prop_map(|(key, effect)| Action::Update { key, effect }),
    ]
}

pub fn actions(most: usize) -> impl Strategy<Value = Vec<Action>> {
    vec(action(), 1..most)
}
