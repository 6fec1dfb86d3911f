//! The state of one key, and what every type shares: the type check, creation, disappearance, expiry.

use crate::collections::{ChunkedList, PackedMap, PackedSet, ScoredTree};
use crate::counter::Counter;
use crate::register::Register;
use crate::stream::Stream;
use crate::summary::SummaryBag;
use crate::top::Top;
use crate::uid::UidGenerator;
use crate::user::{State, Type};
use crate::{
    Context, Effect, Items, Operation, counter, dict, key, list, register, scored_set, set, stream, summary,
    top, uid, user,
};
use std::borrow::Cow;
use types::{Error, Malformed, Reader, ReplySink, Wire};

/// Which type a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Redis's string.
    Register,
    /// Redis's hash.
    Dict,
    /// Redis's set.
    Set,
    /// Redis's sorted set.
    ScoredSet,
    /// Redis's list.
    List,
    /// A sum that is added to unseen.
    Counter,
    /// Numbers of which only a summary is stored.
    SummaryBag,
    /// The highest members by score.
    Top,
    /// A source of unique identifiers.
    UidGenerator,
    /// Redis's stream.
    Stream,
    /// A type that a user defined.
    User(Type),
}

impl Kind {
    /// The name that `TYPE` replies.
    pub fn redis_name(self) -> &'static str {
        match self {
            Kind::Register => "string",
            Kind::Dict => "hash",
            Kind::Set => "set",
            Kind::ScoredSet => "zset",
            Kind::List => "list",
            Kind::Counter => "counter",
            Kind::SummaryBag => "summary",
            Kind::Top => "top",
            Kind::UidGenerator => "uid",
            Kind::Stream => "stream",
            Kind::User(of) => of.name(),
        }
    }
}

/// A value of some type. Collections are never empty: an empty one is an absent key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Bytes or an integer.
    Register(Register),
    /// Fields and values.
    Dict(Box<PackedMap>),
    /// Members.
    Set(Box<PackedSet>),
    /// Members with scores.
    ScoredSet(Box<ScoredTree>),
    /// Elements in order.
    List(Box<ChunkedList>),
    /// A sum.
    Counter(Box<Counter>),
    /// Figures.
    SummaryBag(Box<SummaryBag>),
    /// Members with scores.
    Top(Box<Top>),
    /// Nothing.
    UidGenerator(UidGenerator),
    /// Entries, and groups that read them.
    Stream(Box<Stream>),
    /// What a module made.
    User(Box<State>),
}

impl Value {
    /// Its type.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Register(_) => Kind::Register,
            Value::Dict(_) => Kind::Dict,
            Value::Set(_) => Kind::Set,
            Value::ScoredSet(_) => Kind::ScoredSet,
            Value::List(_) => Kind::List,
            Value::Counter(_) => Kind::Counter,
            Value::SummaryBag(_) => Kind::SummaryBag,
            Value::Top(_) => Kind::Top,
            Value::UidGenerator(_) => Kind::UidGenerator,
            Value::Stream(_) => Kind::Stream,
            Value::User(state) => Kind::User(state.of()),
        }
    }

    fn empty(kind: Kind) -> Value {
        match kind {
            Kind::Register => Value::Register(Register::default()),
            Kind::Dict => Value::Dict(Box::default()),
            Kind::Set => Value::Set(Box::default()),
            Kind::ScoredSet => Value::ScoredSet(Box::default()),
            Kind::List => Value::List(Box::default()),
            Kind::Counter => Value::Counter(Box::default()),
            Kind::SummaryBag => Value::SummaryBag(Box::default()),
            Kind::Top => Value::Top(Box::default()),
            Kind::UidGenerator => Value::UidGenerator(UidGenerator::default()),
            Kind::Stream => Value::Stream(Box::default()),
            Kind::User(of) => Value::User(Box::new(State::empty(of))),
        }
    }

    fn is_empty_collection(&self) -> bool {
        match self {
            Value::Register(_) => false,
            Value::Dict(dict) => dict.is_empty(),
            Value::Set(set) => set.is_empty(),
            Value::ScoredSet(set) => set.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Counter(counter) => counter.is_empty(),
            Value::SummaryBag(bag) => bag.is_empty(),
            Value::Top(top) => top.is_empty(),
            Value::UidGenerator(generator) => generator.is_empty(),
            Value::Stream(stream) => stream.is_empty(),
            Value::User(state) => state.is_empty(),
        }
    }

    /// The bytes it occupies beyond its own size, allocator rounding estimated.
    pub fn memory(&self) -> usize {
        match self {
            Value::Register(register) => register.memory(),
            Value::Dict(dict) => dict.memory(),
            Value::Set(set) => set.memory(),
            Value::ScoredSet(set) => set.memory(),
            Value::List(list) => list.memory(),
            Value::Counter(_) => size_of::<Counter>(),
            Value::SummaryBag(bag) => bag.memory(),
            Value::Top(top) => top.memory(),
            Value::UidGenerator(_) => 0,
            Value::Stream(stream) => stream.memory(),
            Value::User(state) => state.memory(),
        }
    }

    /// About how many bytes a clone and a first write to it copy: large collections share their pages with clones.
    pub fn copied(&self) -> usize {
        /// A page of each kind.
        const PAGES: usize = 64 << 10;
        /// How many bytes a page has for each that it takes in the list of pages.
        const LISTED: usize = 512;
        let memory = self.memory();
        match self {
            Value::Dict(_) | Value::Set(_) | Value::ScoredSet(_) | Value::List(_) => {
                memory.min(PAGES + memory / LISTED)
            }
            Value::Stream(stream) => stream.copied(),
            _ => memory,
        }
    }
}

/// What one key holds: a value or nothing, and when it expires.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// The value; `None` for an absent key.
    pub value: Option<Value>,
    /// Milliseconds since 1970; 0 for never. An absent key has 0. Fields have deadlines of their own.
    pub expires_at: u64,
}

impl Cell {
    /// An absent key.
    pub const ABSENT: Cell = Cell { value: None, expires_at: 0 };

    /// Its type, if it holds a value.
    pub fn kind(&self) -> Option<Kind> {
        self.value.as_ref().map(Value::kind)
    }

    /// True when its deadline has passed, or those of all its fields have. An expired cell reads as absent, and whoever
    /// observes that commits the deletion (Corrections 69).
    #[inline]
    pub fn is_expired(&self, now_millis: u64) -> bool {
        let is_over = self.expires_at != 0 && self.expires_at <= now_millis;
        is_over || matches!(&self.value, Some(Value::Dict(dict)) if dict.is_overdue(now_millis))
    }

    /// When nothing of it is left, if nobody changes it, in milliseconds since 1970; 0 for never.
    pub fn end(&self) -> u64 {
        let of_fields = match &self.value {
            Some(Value::Dict(dict)) => dict.last_deadline(),
            _ => 0,
        };
        if of_fields == 0 || (self.expires_at != 0 && self.expires_at < of_fields) {
            return self.expires_at;
        }
        of_fields
    }

    /// The deletion of what has expired of it: of the key, or of some fields. It must be committed before anything that
    /// observes or follows that (Corrections 69).
    #[inline]
    pub fn expiry(&self, now_millis: u64) -> Option<Effect<'static>> {
        if self.is_expired(now_millis) {
            return Some(Effect::DELETE);
        }
        let Some(Value::Dict(dict)) = &self.value else { return None };
        let (first, _) = dict.deadlines()?.first()?;
        let overdue = (first as u64 <= now_millis).then(|| Items::collect(dict.overdue(now_millis)));
        overdue.map(|fields| Effect::Dict(dict::Effect::Remove { fields }))
    }

    /// The cell as it reads at a time: without what has expired.
    #[inline]
    pub fn living(&self, now_millis: u64) -> Cow<'_, Cell> {
        match self.expiry(now_millis) {
            None => Cow::Borrowed(self),
            Some(Effect::Key(_)) => Cow::Borrowed(&Cell::ABSENT),
            Some(expiry) => {
                let mut cell = self.clone();
                apply::<false>(&mut cell, &expiry);
                Cow::Owned(cell)
            }
        }
    }

    /// The first deadline of the key or of a field that is later than a time, both in milliseconds since 1970; 0 for none.
    #[inline]
    pub fn next_deadline(&self, after_millis: u64) -> u64 {
        let of_fields = match &self.value {
            Some(Value::Dict(dict)) => dict.next_deadline(after_millis),
            _ => 0,
        };
        match self.expires_at {
            at if at > after_millis && (of_fields == 0 || at < of_fields) => at,
            _ => of_fields,
        }
    }

    /// Forgets value and deadline.
    pub fn clear(&mut self) -> Cell {
        std::mem::take(self)
    }
}

macro_rules! containers {
    ($($tag:literal $variant:ident $module:ident,)*) => {
        impl Cell {
            /// Appends the binary form: deadline, tag of the type, state. What checkpoints and moves carry.
            pub fn encode(&self, out: &mut Vec<u8>) {
                self.expires_at.encode(out);
                match &self.value {
                    None => out.push(0),
                    $(Some(Value::$variant(state)) => {
                        out.push($tag);
                        $module::encode_state(state, out);
                    })*
                }
            }

            /// Reads the binary form.
            pub fn decode(input: &mut Reader<'_>) -> Result<Cell, Malformed> {
                let expires_at = u64::decode(input)?;
                let value = match input.byte()? {
                    0 => return Ok(Cell::ABSENT),
                    $($tag => Value::$variant($module::decode_state(input)?.into()),)*
                    _ => return Err(Malformed("value tag")),
                };
                if value.is_empty_collection() {
                    return Err(Malformed("empty collection"));
                }
                Ok(Cell { value: Some(value), expires_at })
            }
        }
    };
}
containers! {
    1 Register register,
    2 Dict dict,
    3 Set set,
    4 ScoredSet scored_set,
    5 List list,
    6 Counter counter,
    7 SummaryBag summary,
    8 Top top,
    9 UidGenerator uid,
    10 User user,
    11 Stream stream,
}

/// What an effect changed, as data that [`exchange`] swaps with the state: undo and redo are the same call.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// Nothing was changed.
    Nothing,
    /// The whole cell as it was.
    Cell(Cell),
    /// The deadline as it was.
    Expiry(u64),
    /// What was added to an integer register that existed.
    Added {
        /// The summand, wrapping.
        by: i64,
    },
    /// What a string, which is no integer, had from here on.
    Tail {
        /// The length before it.
        at: usize,
        /// The bytes.
        tail: Vec<u8>,
    },
    /// What a string, which is no integer, had in place of some bytes.
    Splice {
        /// Where they begin.
        at: usize,
        /// How many they are.
        len: usize,
        /// What was there.
        bytes: Vec<u8>,
    },
    /// Elements of a collection as they were, and the deadline it has while it exists.
    Elements {
        /// The deadline to restore when the collection comes into being again.
        expires_at: u64,
        /// The elements.
        elements: Elements,
    },
    /// What several effects changed, in their order.
    Many(Vec<Patch>),
}

impl Patch {
    /// The bytes it occupies beyond its own size: what a deletion keeps for its undo is not gone.
    pub fn memory(&self) -> usize {
        match self {
            Patch::Nothing | Patch::Expiry(_) | Patch::Added { .. } => 0,
            Patch::Many(patches) => {
                patches.capacity() * size_of::<Patch>() + patches.iter().map(Patch::memory).sum::<usize>()
            }
            Patch::Tail { tail: bytes, .. } | Patch::Splice { bytes, .. } => bytes.capacity(),
            Patch::Cell(cell) => cell.value.as_ref().map_or(0, Value::memory),
            Patch::Elements { elements, .. } => match elements {
                Elements::Dict(patch) => patch.memory(),
                Elements::Set(patch) => patch.memory(),
                Elements::ScoredSet(patch) => patch.memory(),
                Elements::List(patch) => patch.memory(),
                Elements::SummaryBag(patch) => patch.memory(),
                Elements::Top(patch) => patch.memory(),
                Elements::Stream(patch) => patch.memory(),
                Elements::Counter(_) | Elements::UidGenerator(_) => 0,
                Elements::User(patch) => patch.memory(),
            },
        }
    }
}

/// The elements of one type that a patch swaps.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Fields with their values.
    Dict(dict::Patch),
    /// Members, present or not.
    Set(set::Patch),
    /// Members with their scores.
    ScoredSet(scored_set::Patch),
    /// Elements at positions.
    List(list::Patch),
    /// A summand.
    Counter(counter::Patch),
    /// Numbers.
    SummaryBag(summary::Patch),
    /// Members with their scores.
    Top(top::Patch),
    /// Whether it exists.
    UidGenerator(uid::Patch),
    /// Entries, and parts of a group.
    Stream(stream::Patch),
    /// The state as it was.
    User(user::Patch),
}

impl Elements {
    fn kind(&self) -> Kind {
        match self {
            Elements::Dict(_) => Kind::Dict,
            Elements::Set(_) => Kind::Set,
            Elements::ScoredSet(_) => Kind::ScoredSet,
            Elements::List(_) => Kind::List,
            Elements::Counter(_) => Kind::Counter,
            Elements::SummaryBag(_) => Kind::SummaryBag,
            Elements::Top(_) => Kind::Top,
            Elements::UidGenerator(_) => Kind::UidGenerator,
            Elements::Stream(_) => Kind::Stream,
            Elements::User(patch) => Kind::User(patch.of()),
        }
    }
}

/// Evaluates `operation` on `cell`, which must not be expired: writes the result into `sink` and returns the
/// effect to commit, if the operation changes anything.
pub fn prepare<'a>(
    cell: &Cell,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    debug_assert!(cell.expiry(context.now_millis).is_none(), "the caller commits the expiry first");
    macro_rules! typed {
        ($module:ident, $operation:expr, $variant:ident) => {
            match &cell.value {
                None => $module::prepare(None, $operation, context, sink).map(Effect::$variant),
                Some(Value::$variant(state)) => {
                    $module::prepare(Some(state), $operation, context, sink).map(Effect::$variant)
                }
                Some(_) => {
                    sink.error(&Error::wrong_type());
                    None
                }
            }
        };
    }
    match operation {
        Operation::Key(operation) => key::prepare(cell, operation, context, sink).map(Effect::Key),
        Operation::Register(operation) => {
            register::prepare(cell, operation, context, sink).map(Effect::Register)
        }
        Operation::Dict(operation) => typed!(dict, operation, Dict),
        Operation::Set(operation) => typed!(set, operation, Set),
        Operation::ScoredSet(operation) => typed!(scored_set, operation, ScoredSet),
        Operation::List(operation) => typed!(list, operation, List),
        Operation::Counter(operation) => typed!(counter, operation, Counter),
        Operation::SummaryBag(operation) => typed!(summary, operation, SummaryBag),
        Operation::Top(operation) => typed!(top, operation, Top),
        Operation::UidGenerator(operation) => typed!(uid, operation, UidGenerator),
        Operation::Stream(operation) => typed!(stream, operation, Stream),
        Operation::User(operation) => user::prepare(cell, operation, sink).map(Effect::User),
    }
}

/// Performs `effect`. Total: an effect on a value of another type changes nothing. With `UNDO` the returned
/// patch takes it back; without, the patch is [`Patch::Nothing`] and nothing is copied for it.
pub fn apply<const UNDO: bool>(cell: &mut Cell, effect: &Effect<'_>) -> Patch {
    macro_rules! typed {
        ($module:ident, $effect:expr, $variant:ident $(($of:expr))?) => {{
            let expires_at = cell.expires_at;
            let value = cell.value.get_or_insert_with(|| Value::empty(Kind::$variant $(($of))?));
            let Value::$variant(state) = value else { return Patch::Nothing };
            let patch = $module::apply::<UNDO>(state, $effect);
            if state.is_empty() {
                *cell = Cell::ABSENT;
            }
            match patch {
                Some(patch) => Patch::Elements { expires_at, elements: Elements::$variant(patch) },
                None => Patch::Nothing,
            }
        }};
    }
    match effect {
        Effect::Key(effect) => key::apply::<UNDO>(cell, effect),
        Effect::Register(effect) => register::apply::<UNDO>(cell, effect),
        Effect::Dict(effect) => typed!(dict, effect, Dict),
        Effect::Set(effect) => typed!(set, effect, Set),
        Effect::ScoredSet(effect) => typed!(scored_set, effect, ScoredSet),
        Effect::List(effect) => typed!(list, effect, List),
        Effect::Counter(effect) => typed!(counter, effect, Counter),
        Effect::SummaryBag(effect) => typed!(summary, effect, SummaryBag),
        Effect::Top(effect) => typed!(top, effect, Top),
        Effect::UidGenerator(effect) => typed!(uid, effect, UidGenerator),
        Effect::Stream(effect) => typed!(stream, effect, Stream),
        Effect::User(effect) => typed!(user, effect, User(effect.of())),
    }
}

/// Swaps `patch` with the state it describes. Called on the state that the effect left, it undoes; called again
/// on the state before, it redoes; and so on.
pub fn exchange(cell: &mut Cell, patch: &mut Patch) {
    match patch {
        Patch::Nothing => {}
        Patch::Cell(other) => std::mem::swap(cell, other),
        Patch::Expiry(other) => std::mem::swap(&mut cell.expires_at, other),
        Patch::Added { by } => {
            *by = by.wrapping_neg();
            register::add(cell, *by);
        }
        Patch::Tail { at, tail } => register::exchange_tail(cell, *at, tail),
        Patch::Splice { at, len, bytes } => register::exchange_splice(cell, *at, len, bytes),
        Patch::Elements { expires_at, elements } => exchange_elements(cell, expires_at, elements),
        Patch::Many(patches) => {
            patches.reverse();
            patches.iter_mut().for_each(|patch| exchange(cell, patch));
        }
    }
}

fn exchange_elements(cell: &mut Cell, expires_at: &mut u64, elements: &mut Elements) {
    if cell.value.is_none() {
        *cell = Cell { value: Some(Value::empty(elements.kind())), expires_at: *expires_at };
    }
    match (cell.value.as_mut(), elements) {
        (Some(Value::Dict(state)), Elements::Dict(patch)) => dict::exchange(state, patch),
        (Some(Value::Set(state)), Elements::Set(patch)) => set::exchange(state, patch),
        (Some(Value::ScoredSet(state)), Elements::ScoredSet(patch)) => scored_set::exchange(state, patch),
        (Some(Value::List(state)), Elements::List(patch)) => list::exchange(state, patch),
        (Some(Value::Counter(state)), Elements::Counter(patch)) => counter::exchange(state, patch),
        (Some(Value::SummaryBag(state)), Elements::SummaryBag(patch)) => summary::exchange(state, patch),
        (Some(Value::Top(state)), Elements::Top(patch)) => top::exchange(state, patch),
        (Some(Value::UidGenerator(state)), Elements::UidGenerator(patch)) => uid::exchange(state, patch),
        (Some(Value::Stream(state)), Elements::Stream(patch)) => stream::exchange(state, patch),
        (Some(Value::User(state)), Elements::User(patch)) => user::exchange(state, patch),
        _ => debug_assert!(false, "a patch is exchanged with the state it came from"),
    }
    *expires_at = cell.expires_at;
    if cell.value.as_ref().is_some_and(Value::is_empty_collection) {
        *cell = Cell::ABSENT;
    }
}
