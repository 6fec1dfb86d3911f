//! A key's effects, each with whose it is and what it observed; commands in words.

use datatypes::merge::{Among, Performed, Trace, assertion, perform};
use datatypes::register::{Condition, Deadline, LongDouble, Parsed, SetReply, UnionReply, hyperloglog};
use datatypes::scored_set::{AddFlags, ScoredItems};
use datatypes::{
    Cell, Context, Effect, Items, Operation, Value, counter, dict, key, list, prepare, register, scored_set,
    set, stream,
};
use types::{Reader, ReplyBuf, Rng};

pub const NOW_MILLIS: u64 = 1000;

/// An effect in its place; places are their order.
#[derive(Clone, Debug)]
pub struct Entry {
    pub group: u16,
    /// It observed what its group did before, and of the others what stands before this place.
    pub upto: usize,
    pub effect: Vec<u8>,
}

/// A key's effects in their order.
#[derive(Clone, Debug, Default)]
pub struct History(pub Vec<Entry>);

impl History {
    pub fn observed(&self, later: usize, earlier: usize) -> bool {
        earlier < later && (self.0[later].group == self.0[earlier].group || earlier < self.0[later].upto)
    }

    pub fn effect(&self, place: usize) -> Effect<'_> {
        Effect::decode(&mut Reader::new(&self.0[place].effect)).expect("it was encoded here")
    }

    /// The state that some of the effects make.
    pub fn state(&self, counts: impl Fn(usize) -> bool) -> Cell {
        self.performed(counts).0
    }

    /// What each effect does to a list.
    pub fn traces(&self) -> Vec<Option<Trace>> {
        self.performed(|_| true).1
    }

    fn performed(&self, counts: impl Fn(usize) -> bool) -> (Cell, Vec<Option<Trace>>) {
        let mut cell = Cell::default();
        let (mut places, mut effects, mut traces) = (Vec::new(), Vec::new(), Vec::<Option<Trace>>::new());
        for place in (0..self.0.len()).filter(|place| counts(*place)) {
            places.push(place);
            effects.push(self.effect(place));
            let known: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).chain([None]).collect();
            let sees = |later: usize, earlier: usize| self.observed(places[later], places[earlier]);
            let before = cell.clone();
            let among = Among { effects: &effects, traces: &known, sees: &sees };
            let Performed { mut patch, trace } = perform(&mut cell, &among);
            let after = cell.clone();
            datatypes::exchange(&mut cell, &mut patch);
            assert_eq!(cell, before, "what was performed can be taken back: {effects:?}");
            datatypes::exchange(&mut cell, &mut patch);
            assert_eq!(cell, after, "and done again");
            traces.push(trace);
        }
        (cell, traces)
    }

    pub fn all(&self) -> Cell {
        self.state(|_| true)
    }

    /// Does something in the view of a group that has observed the others up to a place.
    pub fn add(&mut self, group: u16, upto: usize, operation: &Operation<'_>, random: &mut Rng) -> String {
        let place = self.0.len();
        self.0.push(Entry { group, upto, effect: Vec::new() });
        let state = self.state(|other| other != place && self.observed(place, other));
        let mut reply = ReplyBuf::new();
        let mut context = Context { now_millis: NOW_MILLIS, random, site: Some(group) };
        let chosen = prepare(&state, operation, &mut context, &mut reply);
        let refused = reply.as_error().is_some();
        match assertion(operation).filter(|_| !refused).or(chosen) {
            Some(effect) => effect.encode(&mut self.0[place].effect),
            None => drop(self.0.pop()),
        }
        format!("{reply:?}")
    }

    /// The same, from words.
    pub fn tell(&mut self, group: u16, upto: usize, words: &str) {
        let words: Vec<&str> = words.split_whitespace().collect();
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut encoded = Vec::new();
        moved(words[0], &bytes[1..]).encode(&mut encoded);
        let operation = operation(&words, &bytes, &encoded);
        self.add(group, upto, &operation, &mut Rng::with_seed(1));
    }
}

/// A value that comes from another key.
fn moved(word: &str, bytes: &[&[u8]]) -> Cell {
    let items = Items::Slices(bytes);
    let effect = match word {
        "MOVEHASH" => Effect::Dict(dict::Effect::put(items)),
        "MOVEDATED" => {
            Effect::Dict(dict::Effect::Put { until: dict::Until::each([6500].into_iter()), pairs: items })
        }
        "MOVESET" => Effect::Set(set::Effect::Add { members: items }),
        "MOVELIST" => Effect::List(list::Effect::Push { end: list::End::Back, values: items }),
        "MOVESCORES" => {
            let score = std::str::from_utf8(bytes[0]).expect("a number").parse().expect("a number");
            Effect::ScoredSet(scored_set::Effect::Put { items: ScoredItems::one(score, bytes[1]) })
        }
        _ => Effect::Register(register::Effect::Set { value: b"moved", deadline: Deadline::Clear }),
    };
    let mut cell = Cell::default();
    datatypes::apply::<false>(&mut cell, &effect);
    cell
}

fn operation<'a>(words: &[&str], bytes: &'a [&'a [u8]], restored: &'a [u8]) -> Operation<'a> {
    let number = |place: usize| words[place].parse::<i64>().expect("a number");
    let rest = || Items::Slices(&bytes[1..]);
    let end = |front: bool| if front { list::End::Front } else { list::End::Back };
    match words[0] {
        "SET" => Operation::Register(register::Operation::Set {
            value: bytes[1],
            deadline: words.get(2).map_or(Deadline::Clear, |_| Deadline::At { millis: number(2) as u64 }),
            condition: Condition::Always,
            reply: SetReply::Status,
        }),
        "DEL" => Operation::Key(key::Operation::Delete),
        "INCRBY" => Operation::Register(register::Operation::Increment { by: number(1) }),
        "APPEND" => Operation::Register(register::Operation::Append { value: bytes[1] }),
        "SETRANGE" => {
            Operation::Register(register::Operation::SetRange { offset: number(1) as u64, value: bytes[2] })
        }
        "SETBIT" => {
            Operation::Register(register::Operation::SetBit { offset: number(1) as u64, bit: number(2) == 1 })
        }
        "INCRBYFLOAT" => match LongDouble::parse(bytes[1]) {
            Some(Parsed::Finite(by)) => Operation::Register(register::Operation::IncrementFloat { by }),
            other => panic!("no number: {other:?}"),
        },
        "PFADD" => {
            let with = hyperloglog::of_elements(bytes[1..].iter().copied()).into();
            Operation::Register(register::Operation::Unite { with, reply: UnionReply::Changed })
        }
        "EXPIREAT" => Operation::Key(key::Operation::ExpireAt {
            at_millis: number(1) as u64,
            condition: key::ExpireCondition::default(),
        }),
        "PERSIST" => Operation::Key(key::Operation::Persist),
        "MOVEAWAY" => Operation::Key(key::Operation::Take),
        "MOVEHERE" | "MOVEHASH" | "MOVEDATED" | "MOVESET" | "MOVELIST" | "MOVESCORES" => {
            Operation::Key(key::Operation::Restore(restored.into()))
        }
        "HSET" => Operation::Dict(dict::Operation::Put { pairs: rest(), reply: dict::PutReply::Added }),
        "HSETAT" => Operation::Dict(dict::Operation::PutUntil {
            pairs: Items::Slices(&bytes[2..]),
            condition: dict::PutCondition::Always,
            deadline: Deadline::At { millis: number(1) as u64 },
        }),
        "HSETKEEP" => Operation::Dict(dict::Operation::PutUntil {
            pairs: rest(),
            condition: dict::PutCondition::Always,
            deadline: Deadline::Keep,
        }),
        "HEXPIREAT" => Operation::Dict(dict::Operation::ExpireAt {
            fields: Items::Slices(&bytes[2..]),
            at_millis: number(1) as u64,
            condition: key::ExpireCondition::default(),
        }),
        "HPERSIST" => Operation::Dict(dict::Operation::Persist { fields: rest() }),
        "HDEL" => Operation::Dict(dict::Operation::Delete { fields: rest() }),
        "HINCRBY" => Operation::Dict(dict::Operation::Increment { field: bytes[1], by: number(2) }),
        "SADD" => Operation::Set(set::Operation::Add { members: rest() }),
        "SREM" => Operation::Set(set::Operation::Remove { members: rest() }),
        "SPOP" => Operation::Set(set::Operation::Pop { count: None }),
        "ZADD" => Operation::ScoredSet(scored_set::Operation::Add {
            flags: AddFlags::default(),
            items: ScoredItems::one(number(1) as f64, bytes[2]),
        }),
        "ZINCRBY" => Operation::ScoredSet(scored_set::Operation::Increment {
            flags: AddFlags::default(),
            by: number(1) as f64,
            member: bytes[2],
        }),
        "ZREM" => Operation::ScoredSet(scored_set::Operation::Remove { members: rest() }),
        "LPUSH" | "RPUSH" => Operation::List(list::Operation::Push {
            end: end(words[0] == "LPUSH"),
            values: rest(),
            only_if_exists: false,
        }),
        "LPOP" | "RPOP" => {
            Operation::List(list::Operation::Pop { end: end(words[0] == "LPOP"), count: None })
        }
        "LSET" => Operation::List(list::Operation::Put { index: number(1), value: bytes[2] }),
        "LREM" => Operation::List(list::Operation::Remove { count: number(1), value: bytes[2] }),
        "LTRIM" => Operation::List(list::Operation::Trim { start: number(1), stop: number(2) }),
        "LINSERT" => Operation::List(list::Operation::InsertNextTo {
            before: words[1] == "BEFORE",
            pivot: bytes[2],
            value: bytes[3],
        }),
        word if word.starts_with('X') => Operation::Stream(stream_operation(words, bytes)),
        "COUNT" => Operation::Counter(counter::Operation::Add { by: number(1) }),
        other => panic!("unknown command {other}"),
    }
}

fn stream_operation<'a>(words: &[&str], bytes: &'a [&'a [u8]]) -> stream::Operation<'a> {
    use stream::{Claiming, NewId, Operation as O, Start, StreamId, Trim};
    let id = |place: usize| StreamId::parse(bytes[place], 0).expect("an id");
    let rest = |from: usize| Items::Slices(&bytes[from..]);
    let (key, start) = (&b"k"[..], Start::After { id: StreamId::ZERO });
    match words[0] {
        "XADD" => {
            let id = if words[1] == "*" { NewId::Next } else { NewId::Given { id: id(1) } };
            O::Add { id, items: Items::two(b"f", bytes[2]), only_if_exists: false, trim: None }
        }
        "XDEL" => O::Delete { ids: rest(1) },
        "XTRIM" => {
            let length = words[1].parse().expect("a number");
            O::Trim { trim: Trim::Length { length, about: None } }
        }
        "XCREATE" => O::CreateGroup { group: bytes[1], start, read: None, create: true },
        "XDESTROY" => O::DestroyGroup { group: bytes[1] },
        "XSETID" => O::SetGroup { key, group: bytes[1], start, read: None },
        "XDELCONSUMER" => O::DeleteConsumer { key, group: bytes[1], consumer: bytes[2] },
        "XREAD" => O::ReadGroup {
            key,
            group: bytes[1],
            consumer: bytes[2],
            own_after: None,
            count: words.get(3).map_or(0, |count| count.parse().expect("a number")),
            no_ack: false,
        },
        "XACK" => O::Acknowledge { group: bytes[1], ids: rest(2) },
        "XCLAIM" => {
            let (group, consumer) = (bytes[1], bytes[2]);
            O::Claim { key, group, consumer, ids: rest(3), claiming: Claiming::default() }
        }
        other => panic!("unknown command {other}"),
    }
}

/// Entries, then the groups: up to where they have read, and who has what.
fn rendered_stream(stream: &stream::Stream) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let id = |id: stream::StreamId| format!("{}-{}", id.millis, id.sequence);
    let entry = |entry: stream::Entry<'_>| {
        let value = entry.strings().nth(1).map(text).unwrap_or_default();
        format!("{}={value}", id(entry.id))
    };
    let mut parts: Vec<String> = stream.entries.iter().map(entry).collect();
    for (name, group) in stream.groups() {
        let owners = |(of, owners): (&stream::StreamId, &stream::Owners)| {
            let names: Vec<String> = owners.iter().map(|owner| text(&owner.consumer)).collect();
            format!(" {}:{}", id(*of), names.join(","))
        };
        let pending: String = group.pending().iter().map(owners).collect();
        parts.push(format!("{}@{}({})", text(name), id(group.last), pending.trim_start()));
    }
    format!("<{}>", parts.join(" "))
}

/// A state in words.
pub fn rendered(cell: &Cell) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let joined = |mut parts: Vec<String>, sorted: bool| {
        if sorted {
            parts.sort();
        }
        parts.join(" ")
    };
    let value = match &cell.value {
        None => return "nothing".into(),
        Some(Value::Register(register)) => register.with_bytes(|bytes| text(bytes)),
        Some(Value::Dict(dict)) => {
            let until = |field| match dict.deadline(field) {
                0 => String::new(),
                at => format!("until{at}"),
            };
            let pairs =
                dict.iter().map(|(field, value)| format!("{}={}{}", text(field), text(value), until(field)));
            format!("{{{}}}", joined(pairs.collect(), true))
        }
        Some(Value::Set(set)) => format!("{{{}}}", joined(set.iter().map(|m| text(&m)).collect(), true)),
        Some(Value::ScoredSet(set)) => {
            let scores = set.iter().map(|(score, member)| format!("{}:{score}", text(member)));
            format!("{{{}}}", joined(scores.collect(), true))
        }
        Some(Value::List(list)) => format!("[{}]", joined(list.iter().map(text).collect(), false)),
        Some(Value::Counter(counter)) => format!("#{}", counter.sum()),
        Some(Value::Stream(stream)) => rendered_stream(stream),
        Some(other) => format!("{other:?}"),
    };
    match cell.expires_at {
        0 => value,
        at => format!("{value} until {at}"),
    }
}
