//! Transactions at random: few keys, small alphabets and all types, so that conflicts are common and every reply
//! tells much.

use datatypes::register::{Condition, Deadline, SetReply};
use datatypes::{Items, Operation, dict, key, list, register, scored_set, set};
use types::{HashSeed, KeyHash, Rng};

/// What is done with a key. Each key has one kind only, which its name begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Increments and reads only: its value at rest is a sum.
    Counter,
    Register,
    /// Additions and reads only: its members at rest are those added.
    Growing,
    Set,
    Dict,
    ScoredSet,
    List,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Counter, "counter"),
    (Kind::Register, "register"),
    (Kind::Growing, "growing"),
    (Kind::Set, "set"),
    (Kind::Dict, "dict"),
    (Kind::ScoredSet, "scored"),
    (Kind::List, "list"),
];

/// A step of a planned transaction.
#[derive(Clone, Debug)]
pub(crate) struct PlannedStep {
    pub key: Vec<u8>,
    pub hash: KeyHash,
    /// The operation's binary form.
    pub operation: Vec<u8>,
    pub blind: bool,
}

/// How a transaction is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    Many,
    /// Begin, one request for each so many steps, then Commit, or Abort.
    Interactive {
        read_only: bool,
        steps_per_request: usize,
        give_up: bool,
    },
}

/// A planned transaction.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub shape: Shape,
    pub steps: Vec<PlannedStep>,
}

/// Plans transactions over a fixed set of keys.
pub(crate) struct Workload {
    keys: Vec<(Kind, Vec<u8>, KeyHash)>,
    /// Plans interactive transactions too.
    interactive: bool,
    /// Makes written values unique.
    next_value: u64,
}

impl Workload {
    pub fn new(keys_per_kind: usize, seed: HashSeed, interactive: bool) -> Self {
        let name = |prefix: &str, index: usize| format!("{prefix}:{index}").into_bytes();
        let keys = (KINDS.iter().flat_map(|kind| (0..keys_per_kind).map(move |index| (kind, index))))
            .map(|((kind, prefix), index)| {
                let key = name(prefix, index);
                let hash = seed.hash(&key);
                (*kind, key, hash)
            })
            .collect();
        Workload { keys, interactive, next_value: 0 }
    }

    /// A transaction at random.
    pub fn plan(&mut self, random: &mut Rng) -> Plan {
        let shape = match random.u32(..10) {
            0..4 => Shape::One,
            4..7 => Shape::Many,
            _ if !self.interactive => Shape::Many,
            _ => Shape::Interactive {
                read_only: random.u32(..4) == 0,
                steps_per_request: random.usize(1..3),
                give_up: random.u32(..10) == 0,
            },
        };
        let count = if shape == Shape::One { 1 } else { random.usize(1..5) };
        let only_reads = matches!(shape, Shape::Interactive { read_only: true, .. }) || random.u32(..6) == 0;
        Plan { shape, steps: (0..count).map(|_| self.step(only_reads, random)).collect() }
    }

    /// A transaction that reads everything.
    pub fn read_all(&self) -> Plan {
        let step = |(kind, key, hash): &(Kind, Vec<u8>, KeyHash)| PlannedStep {
            key: key.clone(),
            hash: *hash,
            operation: encode(&whole(*kind)),
            blind: false,
        };
        Plan { shape: Shape::Many, steps: self.keys.iter().map(step).collect() }
    }

    fn step(&mut self, only_reads: bool, random: &mut Rng) -> PlannedStep {
        self.next_value += 1;
        let value = format!("v{}", self.next_value);
        let (kind, key, hash) = &self.keys[random.usize(..self.keys.len())];
        let read = only_reads || random.u32(..3) == 0;
        let operation = if read { read_of(*kind, random) } else { write_of(*kind, value.as_bytes(), random) };
        PlannedStep { key: key.clone(), hash: *hash, operation, blind: !read && random.u32(..3) == 0 }
    }
}

fn encode(operation: &Operation<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

/// The read that shows everything.
fn whole(kind: Kind) -> Operation<'static> {
    match kind {
        Kind::Counter | Kind::Register => Operation::Register(register::Operation::Get),
        Kind::Growing | Kind::Set => Operation::Set(set::Operation::Members),
        Kind::Dict => Operation::Dict(dict::Operation::GetAll),
        Kind::ScoredSet => Operation::ScoredSet(scored_set::Operation::Range {
            by: scored_set::RangeBy::Index { start: 0, stop: -1 },
            reverse: false,
            limit: None,
            with_scores: true,
        }),
        Kind::List => Operation::List(list::Operation::Range { start: 0, stop: -1 }),
    }
}

/// An element of the small alphabet.
fn element(random: &mut Rng) -> &'static [u8] {
    const ELEMENTS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    ELEMENTS[random.usize(..ELEMENTS.len())]
}

fn read_of(kind: Kind, random: &mut Rng) -> Vec<u8> {
    let member = element(random);
    let partial = match kind {
        Kind::Counter | Kind::Register => Operation::Register(register::Operation::Length),
        Kind::Growing | Kind::Set if random.bool() => Operation::Set(set::Operation::Length),
        Kind::Growing | Kind::Set => Operation::Set(set::Operation::Contains { member }),
        Kind::Dict if random.bool() => Operation::Dict(dict::Operation::Length),
        Kind::Dict => Operation::Dict(dict::Operation::Get { field: member }),
        Kind::ScoredSet if random.bool() => Operation::ScoredSet(scored_set::Operation::Length),
        Kind::ScoredSet => Operation::ScoredSet(scored_set::Operation::Score { member }),
        Kind::List if random.bool() => Operation::List(list::Operation::Length),
        Kind::List => Operation::List(list::Operation::Index { index: random.i64(-2..2) }),
    };
    encode(&if random.u32(..3) == 0 { partial } else { whole(kind) })
}

fn write_of(kind: Kind, value: &[u8], random: &mut Rng) -> Vec<u8> {
    let member = element(random);
    encode(&match kind {
        Kind::Counter => Operation::Register(register::Operation::Increment { by: random.i64(-3..10) }),
        Kind::Growing => Operation::Set(set::Operation::Add { members: Items::one(value) }),
        _ if random.u32(..12) == 0 => Operation::Key(key::Operation::Delete),
        Kind::Register => Operation::Register(register_write(value, random)),
        Kind::Set if random.u32(..3) == 0 => {
            Operation::Set(set::Operation::Remove { members: Items::one(member) })
        }
        Kind::Set => Operation::Set(set::Operation::Add { members: Items::two(member, element(random)) }),
        Kind::Dict => Operation::Dict(dict_write(member, value, random)),
        Kind::ScoredSet => Operation::ScoredSet(scored_write(member, random)),
        Kind::List => Operation::List(list_write(value, random)),
    })
}

fn register_write<'a>(value: &'a [u8], random: &mut Rng) -> register::Operation<'a> {
    let plain = |condition| register::Operation::Set {
        value,
        deadline: Deadline::Clear,
        condition,
        reply: SetReply::Status,
    };
    match random.u32(..6) {
        0 => register::Operation::Append { value },
        1 => register::Operation::GetDelete,
        2 => plain(Condition::IfAbsent),
        3 => register::Operation::Set {
            value,
            deadline: Deadline::Clear,
            condition: Condition::Always,
            reply: SetReply::Old,
        },
        _ => plain(Condition::Always),
    }
}

fn dict_write<'a>(field: &'a [u8], value: &'a [u8], random: &mut Rng) -> dict::Operation<'a> {
    match random.u32(..6) {
        0 => dict::Operation::Delete { fields: Items::one(field) },
        1 => dict::Operation::PutIfAbsent { field, value },
        2 => dict::Operation::Increment { field: b"n", by: random.i64(-3..10) },
        _ => dict::Operation::Put { pairs: Items::two(field, value), reply: dict::PutReply::Added },
    }
}

fn scored_write<'a>(member: &'a [u8], random: &mut Rng) -> scored_set::Operation<'a> {
    let flags = scored_set::AddFlags::default();
    let score = f64::from(random.u8(..20));
    match random.u32(..6) {
        0 => scored_set::Operation::Remove { members: Items::one(member) },
        1 | 2 => scored_set::Operation::Increment { flags, by: score, member },
        _ => scored_set::Operation::Add { flags, items: scored_set::ScoredItems::one(score, member) },
    }
}

fn list_write<'a>(value: &'a [u8], random: &mut Rng) -> list::Operation<'a> {
    let end = if random.bool() { list::End::Front } else { list::End::Back };
    match random.u32(..5) {
        0 | 1 => list::Operation::Pop { end, count: None },
        _ => list::Operation::Push { end, values: Items::one(value), only_if_exists: false },
    }
}
