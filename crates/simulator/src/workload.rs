//! Transactions at random: few keys, small alphabets and all types, so that conflicts are common and every reply
//! tells much.

use crate::faults::{Feature, Swarm};
use crate::gauge;
use crate::keyset::KeysetStep;
mod commands;
mod constraints;
mod streams;

use checker::{Bytes, Constraints, Key, Step, describe};
use datatypes::register::{Condition, Deadline, SetReply};
use datatypes::{Items, Operation, counter, dict, key, list, register, scored_set, set, summary, top, uid};
use serde::{Deserialize, Serialize};
use types::{Reader, Rng};

pub(crate) use constraints::with_states;

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
    /// Registers with deadlines.
    Fleeting,
    /// Dicts whose fields have deadlines.
    Fields,
    /// A counter: additions, bounded subtractions, reads of the sum and of bounds.
    Tally,
    Summary,
    /// Few members, so that lower additions leave the list as it was.
    Top,
    /// Identifiers, each of which is given once.
    Uid,
    /// Of a user-defined type.
    Gauge,
    /// A stream that only grows.
    Log,
    Stream,
}

impl Kind {
    /// True if keys of it, or what they hold, may be gone without anybody having removed them.
    fn vanishes(self) -> bool {
        matches!(self, Kind::Fleeting | Kind::Fields)
    }
}

/// How many kinds are there whatever the features.
const PLAIN_KINDS: usize = 7;
const REGISTERS: (Kind, &str) = (Kind::Register, "register");
const GAUGES: (Kind, &str) = (Kind::Gauge, "gauge");
const FIELDS: (Kind, &str) = (Kind::Fields, "fields");
const STREAMS: [(Kind, &str); 2] = [(Kind::Log, "log"), (Kind::Stream, "stream")];
const KINDS: [(Kind, &str); PLAIN_KINDS + 5] = [
    (Kind::Counter, "counter"),
    (Kind::Register, "register"),
    (Kind::Growing, "growing"),
    (Kind::Set, "set"),
    (Kind::Dict, "dict"),
    (Kind::ScoredSet, "scored"),
    (Kind::List, "list"),
    (Kind::Fleeting, "fleeting"),
    (Kind::Tally, "tally"),
    (Kind::Summary, "summary"),
    (Kind::Top, "top"),
    (Kind::Uid, "uid"),
];

/// How a client sends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// One operation.
    One,
    /// All steps in one request.
    Many,
    /// Every step a transaction of its own; all sent at once.
    Pipeline,
    /// Begin, one request for each so many steps, then Commit, or Abort.
    Interactive { read_only: bool, steps_per_request: usize, give_up: bool },
}

/// What a transaction has to do with watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Watching {
    #[default]
    Nothing,
    /// The client watches its keys, then submits it.
    First,
    /// A change to what the session watches stops it.
    Heeded,
}

/// What a transaction's session does about causal contexts before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Passing {
    #[default]
    Nothing,
    /// It asks for its own, for others.
    Give,
    /// It takes over the newest that another client was given.
    Take,
}

/// A planned transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub shape: Shape,
    #[serde(default)]
    pub watching: Watching,
    #[serde(default)]
    pub passing: Passing,
    /// Commands as a client sends them, of which the last one is answered when all are done. The steps are what they have come
    /// to so far, and none in scripts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Vec<String>>,
    /// What it demands of the states of a branch keyspace. For a state it says which of those in replies to clients,
    /// counted from the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn new(shape: Shape, steps: Vec<Step>) -> Self {
        let (watching, passing) = (Watching::Nothing, Passing::Nothing);
        Plan { shape, watching, passing, commands: Vec::new(), constraints: None, steps }
    }

    /// The same, to be done again.
    pub fn again(mut self) -> Self {
        if !self.commands.is_empty() {
            self.steps.clear();
        }
        self
    }
}

/// Plans transactions over a fixed set of keys.
pub(crate) struct Workload {
    keys: Vec<(Kind, Vec<u8>)>,
    /// Makes written values unique.
    next_value: u64,
    given: streams::Given,
    /// Registers are read and set, and nothing else.
    is_plain: bool,
}

impl Workload {
    pub fn new(swarm: &Swarm) -> Self {
        gauge::register();
        let used = |index: usize| swarm.kinds >> index & 1 == 1;
        let mut kinds: Vec<_> = (0..PLAIN_KINDS).filter(|index| used(*index)).map(|i| KINDS[i]).collect();
        if swarm.has(Feature::Types) {
            // Each is to get its share of the transactions.
            kinds.truncate(2);
            kinds.extend(&KINDS[PLAIN_KINDS + 1..]);
        }
        if swarm.has(Feature::UserTypes) {
            kinds.truncate(2);
            kinds.insert(0, GAUGES);
        }
        if swarm.has(Feature::Streams) {
            kinds.truncate(2);
            kinds.splice(..0, STREAMS);
        }
        if swarm.has(Feature::Bounds) {
            kinds = vec![KINDS[PLAIN_KINDS + 1]];
        }
        if swarm.has(Feature::Registers) {
            kinds = vec![REGISTERS];
        }
        if kinds.is_empty() {
            kinds.push(KINDS[0]);
        }
        let few = swarm.has(Feature::FewKeys);
        kinds.truncate(if few { 2 } else { usize::MAX });
        if swarm.has(Feature::Expiry) && !swarm.has(Feature::Registers) {
            kinds.push(KINDS[PLAIN_KINDS]);
        }
        if swarm.has(Feature::FieldExpiry) && !swarm.has(Feature::Registers) {
            kinds.push(FIELDS);
        }
        let keys_per_kind = match swarm.has(Feature::Registers) {
            // There is only one kind.
            true if !few => 2 * swarm.keys_per_kind,
            _ if few => 1,
            _ if takes_two_keys(swarm) => swarm.keys_per_kind.max(2),
            _ => swarm.keys_per_kind,
        };
        let name = |prefix: &str, index: usize| format!("{prefix}:{index}").into_bytes();
        let keys = (kinds.iter())
            .flat_map(|(kind, prefix)| (0..keys_per_kind).map(move |index| (*kind, name(prefix, index))))
            .collect();
        Workload { keys, next_value: 0, given: Default::default(), is_plain: swarm.has(Feature::Registers) }
    }

    /// A transaction at random, or two of which the second heeds what the first watches. `wall` is the time in
    /// microseconds since 1970.
    pub fn plan(&mut self, wall: u64, swarm: &Swarm, random: &mut Rng) -> Vec<Plan> {
        if swarm.has(Feature::Watches) && random.u32(..6) == 0 {
            return self.watching(wall, swarm, random);
        }
        if takes_two_keys(swarm)
            && random.u32(..6) == 0
            && let Some(plan) = self.commands(wall, swarm, random)
        {
            return vec![plan];
        }
        if swarm.has(Feature::Constraints) && random.u32(..3) == 0 {
            return vec![self.constrained(wall, swarm, random)];
        }
        let shape = match random.f64() < swarm.single {
            true => Shape::One,
            false if swarm.has(Feature::MergedPipelines) && random.bool() => Shape::Pipeline,
            false if swarm.has(Feature::Pipelines) && random.u32(..4) == 0 => Shape::Pipeline,
            false if !swarm.has(Feature::Interactive) || random.bool() => Shape::Many,
            false => Shape::Interactive {
                read_only: random.u32(..4) == 0,
                steps_per_request: random.usize(1..3),
                give_up: random.u32(..10) == 0,
            },
        };
        let count = if shape == Shape::One { 1 } else { random.usize(1..=swarm.longest) };
        let only_reads = matches!(shape, Shape::Interactive { read_only: true, .. }) || random.u32(..6) == 0;
        let mut steps: Vec<Step> = (0..count).map(|_| self.step(only_reads, wall, swarm, random)).collect();
        let whole = matches!(shape, Shape::Many | Shape::Interactive { .. });
        if swarm.has(Feature::Keyset) && !self.is_plain && whole && random.u32(..4) == 0 {
            add_keyset_steps(&mut steps, only_reads, random);
        }
        let mut plan = Plan::new(shape, steps);
        if swarm.has(Feature::Contexts) && shape != Shape::Pipeline && random.u32(..3) == 0 {
            plan.passing = if random.bool() { Passing::Give } else { Passing::Take };
        }
        vec![plan]
    }

    /// Every key, and whether it exists until a client deletes it.
    pub fn known_keys(&self) -> Vec<(Vec<u8>, bool)> {
        self.keys.iter().map(|(kind, key)| (key.clone(), !kind.vanishes())).collect()
    }

    /// Watches a key and looks at it; then looks again and writes, if nothing happened to it.
    fn watching(&mut self, wall: u64, swarm: &Swarm, random: &mut Rng) -> Vec<Plan> {
        let (kind, key) = self.key(swarm, random).clone();
        let look = step(&key, encode(&whole(kind)), false);
        let first = Plan { watching: Watching::First, ..Plan::new(Shape::One, vec![look.clone()]) };
        let writes = (0..random.usize(1..=swarm.longest)).map(|_| self.step(false, wall, swarm, random));
        let steps = std::iter::once(look).chain(writes).collect();
        vec![first, Plan { watching: Watching::Heeded, ..Plan::new(Shape::Many, steps) }]
    }

    /// A transaction that reads everything but what vanishes by itself.
    pub fn read_all(&self) -> Plan {
        let lasting = self.keys.iter().filter(|(kind, _)| !kind.vanishes());
        let mut steps: Vec<Step> =
            lasting.map(|(kind, key)| step(key, encode(&whole(*kind)), false)).collect();
        let logs = self.keys.iter().filter(|(kind, _)| *kind == Kind::Log);
        steps.extend(logs.map(|(_, key)| step(key, encode(&streams::pending(key)), false)));
        Plan::new(Shape::Many, steps)
    }

    /// A transaction that writes something that every client can always write.
    pub fn small_write(&mut self) -> Plan {
        let (kind, key) = &self.keys[0];
        let is_log = matches!(kind, Kind::Log | Kind::Stream);
        self.next_value += u64::from(self.is_plain || is_log);
        if self.is_plain {
            let write = plain_set(format!("v{}", self.next_value).as_bytes(), SetReply::Status);
            return Plan::new(Shape::One, vec![step(key, write, false)]);
        }
        let unlike = format!("calm{}", self.next_value);
        let value = b"calm";
        let operation = match kind {
            Kind::Counter => Operation::Register(register::Operation::Increment { by: 1 }),
            Kind::Register | Kind::Fleeting => Operation::Register(register::Operation::Append { value }),
            Kind::Growing | Kind::Set => Operation::Set(set::Operation::Add { members: Items::one(value) }),
            Kind::Dict | Kind::Fields => Operation::Dict(dict::Operation::Increment { field: b"n", by: 1 }),
            Kind::ScoredSet => Operation::ScoredSet(scored_set::Operation::Add {
                flags: scored_set::AddFlags::default(),
                items: scored_set::ScoredItems::one(1.0, value),
            }),
            Kind::List => Operation::List(list::Operation::Push {
                end: list::End::Back,
                values: Items::one(value),
                only_if_exists: false,
            }),
            Kind::Tally => Operation::Counter(counter::Operation::Add { by: 1 }),
            Kind::Summary => Operation::SummaryBag(summary::Operation::Add { numbers: numbers([1.0]) }),
            Kind::Top => {
                Operation::Top(top::Operation::Add { items: scored_set::ScoredItems::one(1.0, value) })
            }
            Kind::Uid => Operation::UidGenerator(uid::Operation::Next { count: None }),
            Kind::Gauge => of_gauge(gauge::raise()),
            Kind::Log | Kind::Stream => streams::addition(unlike.as_bytes()),
        };
        let steps = vec![step(key, encode(&operation), false)];
        Plan::new(Shape::One, steps)
    }

    fn key(&self, swarm: &Swarm, random: &mut Rng) -> &(Kind, Vec<u8>) {
        let hot = random.f64() < swarm.hot;
        &self.keys[if hot { 0 } else { random.usize(..self.keys.len()) }]
    }

    fn step(&mut self, only_reads: bool, wall: u64, swarm: &Swarm, random: &mut Rng) -> Step {
        self.next_value += 1;
        let value = format!("v{}", self.next_value);
        let (kind, key) = self.key(swarm, random).clone();
        let read = only_reads || random.f64() < swarm.reads;
        let operation = match kind {
            _ if self.is_plain && read => encode(&whole(kind)),
            _ if self.is_plain => {
                let reply = if random.u32(..4) == 0 { SetReply::Old } else { SetReply::Status };
                plain_set(value.as_bytes(), reply)
            }
            Kind::Log | Kind::Stream if read => streams::read(&key, kind, &self.given, random),
            _ if read => read_of(kind, random),
            Kind::Tally if swarm.has(Feature::Bounds) => bounded_write(random),
            _ if swarm.has(Feature::Resolutions) && random.u32(..8) == 0 => {
                encode(&Operation::Key(key::Operation::Resolve { losses: Items::NONE }))
            }
            Kind::Log | Kind::Stream => {
                let written = (value.as_bytes(), self.next_value);
                streams::write((&key, kind), written, wall / 1_000, &mut self.given, random)
            }
            Kind::Fleeting => fleeting_write(value.as_bytes(), wall / 1_000, random),
            Kind::Fields => fields_write(value.as_bytes(), wall / 1_000, random),
            Kind::Register | Kind::Dict | Kind::List if swarm.has(Feature::Encounters) && random.bool() => {
                encounter(kind, value.as_bytes(), random)
            }
            _ => write_of(kind, value.as_bytes(), random),
        };
        // `BLIND XADD` with an id is never refused, otherwise than replays execute it.
        let is_stream = matches!(kind, Kind::Log | Kind::Stream);
        let may_be_blind = !read && !is_stream && (!kind.vanishes() || swarm.has(Feature::BlindExpiry));
        step(&key, operation, random.f64() < swarm.blind && may_be_blind)
    }
}

/// True if some commands take two keys of a kind.
fn takes_two_keys(swarm: &Swarm) -> bool {
    swarm.has(Feature::Scripts) || swarm.has(Feature::Renames)
}

/// Puts commands on the whole keyspace among the steps.
fn add_keyset_steps(steps: &mut Vec<Step>, only_reads: bool, random: &mut Rng) {
    let place = random.usize(..=steps.len());
    let looks = match random.bool() {
        true => vec![KeysetStep::Keys],
        false => vec![KeysetStep::Count, KeysetStep::Keys],
    };
    steps.splice(place..place, looks.into_iter().map(KeysetStep::step));
    if !only_reads && random.u32(..3) == 0 {
        let place = random.usize(..=steps.len());
        // Not between a count and the list that it is compared with.
        let between = place > 0 && KeysetStep::of(&steps[place - 1]) == Some(KeysetStep::Count);
        steps.insert(place - usize::from(between), KeysetStep::Flush.step());
    }
}

pub(crate) fn step(key: &[u8], operation: Vec<u8>, blind: bool) -> Step {
    let text =
        Operation::decode(&mut Reader::new(&operation)).map_or_else(|e| e.to_string(), |o| describe(&o));
    Step { key: Key(key.to_vec()), operation: Bytes(operation), text, blind, reply: None, state: None }
}

pub(crate) fn encode(operation: &Operation<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

/// The read that shows everything.
fn whole(kind: Kind) -> Operation<'static> {
    match kind {
        Kind::Counter | Kind::Register | Kind::Fleeting => Operation::Register(register::Operation::Get),
        Kind::Growing | Kind::Set => Operation::Set(set::Operation::Members),
        Kind::Dict | Kind::Fields => Operation::Dict(dict::Operation::GetAll),
        Kind::ScoredSet => Operation::ScoredSet(scored_set::Operation::Range {
            by: scored_set::RangeBy::Index { start: 0, stop: -1 },
            reverse: false,
            limit: None,
            with_scores: true,
        }),
        Kind::List => Operation::List(list::Operation::Range { start: 0, stop: -1 }),
        Kind::Tally => Operation::Counter(counter::Operation::Get),
        Kind::Summary => Operation::SummaryBag(summary::Operation::ReadAll),
        Kind::Top => Operation::Top(top::Operation::Range { start: 0, stop: -1, with_scores: true }),
        // There is nothing more to see.
        Kind::Uid => Operation::Key(key::Operation::Type),
        Kind::Gauge => of_gauge(gauge::level()),
        Kind::Log | Kind::Stream => streams::entries(),
    }
}

/// An operation of the type, which `Workload::new` has made known.
fn of_gauge(operation: Option<Operation<'static>>) -> Operation<'static> {
    operation.unwrap_or(Operation::Key(key::Operation::Exists))
}

fn numbers<const N: usize>(numbers: [f64; N]) -> summary::Numbers {
    summary::Numbers::new(numbers.into_iter()).unwrap_or_default()
}

/// An element of the small alphabet.
fn element(random: &mut Rng) -> &'static [u8] {
    const ELEMENTS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    ELEMENTS[random.usize(..ELEMENTS.len())]
}

fn read_of(kind: Kind, random: &mut Rng) -> Vec<u8> {
    let member = element(random);
    let partial = match kind {
        Kind::Counter | Kind::Register | Kind::Fleeting => Operation::Register(register::Operation::Length),
        Kind::Growing | Kind::Set if random.bool() => Operation::Set(set::Operation::Length),
        Kind::Growing | Kind::Set => Operation::Set(set::Operation::Contains { member }),
        Kind::Fields if random.bool() => Operation::Dict(dict::Operation::Deadlines {
            fields: Items::one(member),
            format: key::TimeFormat::MillisAt,
        }),
        Kind::Dict | Kind::Fields if random.bool() => Operation::Dict(dict::Operation::Length),
        Kind::Dict | Kind::Fields => Operation::Dict(dict::Operation::Get { field: member }),
        Kind::ScoredSet if random.bool() => Operation::ScoredSet(scored_set::Operation::Length),
        Kind::ScoredSet => Operation::ScoredSet(scored_set::Operation::Score { member }),
        Kind::List if random.bool() => Operation::List(list::Operation::Length),
        Kind::List => Operation::List(list::Operation::Index { index: random.i64(-2..2) }),
        Kind::Tally => {
            Operation::Counter(counter::Operation::AtLeast { bound: random.i64(-10..40), known: None })
        }
        Kind::Summary => {
            let figure = summary::Figure::ALL[random.usize(..summary::Figure::ALL.len())];
            Operation::SummaryBag(summary::Operation::Read { figure })
        }
        Kind::Top if random.bool() => {
            let stop = random.i64(0..2);
            Operation::Top(top::Operation::Range { start: 0, stop, with_scores: true })
        }
        Kind::Top => Operation::Top(top::Operation::Rank { member }),
        Kind::Uid => Operation::Key(key::Operation::Exists),
        Kind::Gauge => of_gauge(gauge::read(random)),
        // Not here: see `streams::read`.
        Kind::Log | Kind::Stream => whole(kind),
    };
    encode(&if random.u32(..3) == 0 { partial } else { whole(kind) })
}

fn write_of(kind: Kind, value: &[u8], random: &mut Rng) -> Vec<u8> {
    let member = element(random);
    encode(&match kind {
        Kind::Counter => Operation::Register(register::Operation::Increment { by: random.i64(-3..10) }),
        Kind::Growing => Operation::Set(set::Operation::Add { members: Items::one(value) }),
        Kind::Tally => Operation::Counter(counter_write(random)),
        _ if random.u32(..12) == 0 => Operation::Key(key::Operation::Delete),
        Kind::Register | Kind::Fleeting => Operation::Register(register_write(value, random)),
        Kind::Set if random.u32(..3) == 0 => {
            Operation::Set(set::Operation::Remove { members: Items::one(member) })
        }
        Kind::Set => Operation::Set(set::Operation::Add { members: Items::two(member, element(random)) }),
        Kind::Dict | Kind::Fields => Operation::Dict(dict_write(member, value, random)),
        Kind::ScoredSet => Operation::ScoredSet(scored_write(member, random)),
        Kind::List => Operation::List(list_write(value, random)),
        Kind::Summary => Operation::SummaryBag(summary::Operation::Add {
            // Sums that floating-point addition would make depend on the order.
            numbers: numbers([f64::from(random.u8(..20)) / 10.0, 1e17]),
        }),
        Kind::Top if random.u32(..10) == 0 => {
            Operation::Top(top::Operation::Reserve { capacity: random.u64(1..4) })
        }
        Kind::Top => {
            let items = scored_set::ScoredItems::one(f64::from(random.u8(..20)), member);
            Operation::Top(top::Operation::Add { items })
        }
        Kind::Uid => {
            let count = Some(random.u64(0..3)).filter(|count| *count != 0);
            Operation::UidGenerator(uid::Operation::Next { count })
        }
        Kind::Gauge => of_gauge(gauge::write(random)),
        // Not here: see `streams::write`.
        Kind::Log | Kind::Stream => streams::addition(value),
    })
}

/// A write that an earlier one may hide which it has not observed, or one that may do so.
fn encounter(kind: Kind, value: &[u8], random: &mut Rng) -> Vec<u8> {
    let by = random.i64(1..10);
    let number = by.to_string();
    let value = if random.u32(..4) == 0 { value } else { number.as_bytes() };
    let increments = random.bool();
    let condition = if random.bool() { Condition::Always } else { Condition::IfAbsent };
    encode(&match kind {
        Kind::List => Operation::List(list::Operation::Put { index: random.i64(-2..2), value }),
        Kind::Dict if increments => {
            Operation::Dict(dict::Operation::Increment { field: element(random), by })
        }
        Kind::Dict => Operation::Dict(dict::Operation::Put {
            pairs: Items::two(element(random), value),
            reply: dict::PutReply::Added,
        }),
        _ if increments => Operation::Register(register::Operation::Increment { by }),
        _ => Operation::Register(register::Operation::Set {
            value,
            deadline: Deadline::Clear,
            condition,
            reply: SetReply::Status,
        }),
    })
}

/// A register is set, whatever it was.
fn plain_set(value: &[u8], reply: SetReply) -> Vec<u8> {
    let (deadline, condition) = (Deadline::Clear, Condition::Always);
    encode(&Operation::Register(register::Operation::Set { value, deadline, condition, reply }))
}

fn counter_write(random: &mut Rng) -> counter::Operation {
    match random.u32(..3) {
        0 => counter::Operation::Take { by: random.i64(1..20), floor: random.i64(-5..10) },
        _ => counter::Operation::Add { by: random.i64(-3..10) },
    }
}

/// More is taken than added, so that the sum stays near the floors.
fn bounded_write(random: &mut Rng) -> Vec<u8> {
    encode(&Operation::Counter(match random.u32(..4) {
        0 => counter::Operation::Add { by: random.i64(1..8) },
        _ => counter::Operation::Take { by: random.i64(1..4), floor: 0 },
    }))
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

/// Deadlines up to three seconds ahead of one of the clocks, or just past.
fn fleeting_write(value: &[u8], now_millis: u64, random: &mut Rng) -> Vec<u8> {
    let at_millis = now_millis + random.u64(..3_000) - 200;
    let set = |deadline, condition| {
        Operation::Register(register::Operation::Set { value, deadline, condition, reply: SetReply::Status })
    };
    let at = Deadline::At { millis: at_millis };
    encode(&match random.u32(..8) {
        0 => set(Deadline::Clear, Condition::Always),
        1 => set(Deadline::Keep, Condition::Always),
        2 => set(at, Condition::IfAbsent),
        3 => Operation::Key(key::Operation::Persist),
        4 => Operation::Register(register::Operation::Append { value }),
        5 => Operation::Key(key::Operation::ExpireAt { at_millis, condition: Default::default() }),
        _ => set(at, Condition::Always),
    })
}

/// Writes of dicts whose fields have deadlines, up to three seconds ahead of one of the clocks, or just past.
fn fields_write(value: &[u8], now_millis: u64, random: &mut Rng) -> Vec<u8> {
    use dict::{Operation as O, PutCondition};
    let field = element(random);
    let at_millis = now_millis + random.u64(..3_000) - 200;
    let fields = Items::two(field, b"d");
    let put = |condition, deadline| O::PutUntil { pairs: Items::two(field, value), condition, deadline };
    let at = Deadline::At { millis: at_millis };
    encode(&Operation::Dict(match random.u32(..12) {
        0 => O::Put { pairs: Items::two(field, value), reply: dict::PutReply::Added },
        1 => put(PutCondition::Always, Deadline::Keep),
        2 => put(PutCondition::IfAbsent, at),
        3 => O::Persist { fields },
        4 => O::Increment { field: b"n", by: random.i64(-3..10) },
        5 => O::ExpireAt { fields: Items::two(field, b"n"), at_millis, condition: Default::default() },
        6 => O::GetAndExpire { fields, at_millis },
        7 => O::GetAndDelete { fields },
        8 => O::Delete { fields },
        _ => put(PutCondition::Always, at),
    }))
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
