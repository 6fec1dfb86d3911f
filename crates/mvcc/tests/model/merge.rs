//! Effects that observed only a part of those before them: whatever the order in which they arrive, whatever horizon
//! and stability frontier are when they do, and however often the store is written down and read back, the state is what the same
//! effects make one after the other.

use crate::fewer;
use crate::mvcc::{Bounds, DependencyVector, Store};
use datatypes::merge::{Among, Trace, assertion, perform};
use datatypes::{
    Cell, Context, Effect, Items, Operation, dict, key, list, prepare, register, scored_set, set, stream,
};
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use types::{HashSeed, Reader, ReplyBuf, Rng, wire_struct};

/// Ordered by time; no two share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    pub at: u32,
    pub group: u16,
    pub upto: u32,
}

wire_struct!(Stamp { at, group, upto });
impl crate::mvcc::Stamp for Stamp {}

impl Stamp {
    pub fn last_at(at: u32) -> Self {
        Stamp { at, group: u16::MAX, upto: u32::MAX }
    }

    pub fn dependencies(&self) -> DependencyVector<Stamp> {
        DependencyVector { group: self.group, upto: Stamp::last_at(self.upto) }
    }

    pub fn observed(&self, earlier: &Stamp) -> bool {
        self.group == earlier.group || earlier.at <= self.upto
    }
}

pub type Done = (Stamp, Vec<u8>);

pub const GROUPS: usize = 3;
pub const KEY: &[u8] = b"k";

pub fn effect(bytes: &[u8]) -> Effect<'_> {
    Effect::decode(&mut Reader::new(bytes)).expect("it was encoded here")
}

pub fn encoded(effect: &Effect<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes
}

/// What effects make, performed one after the other.
pub fn made_by<'d>(done: impl Iterator<Item = &'d Done>) -> Cell {
    performed(done).0
}

/// And what each of them did to a list.
pub fn performed<'d>(done: impl Iterator<Item = &'d Done>) -> (Cell, Vec<Option<Trace>>) {
    let (mut cell, mut stamps, mut effects) = (Cell::default(), Vec::new(), Vec::new());
    let mut traces: Vec<Option<Trace>> = Vec::new();
    for (stamp, bytes) in done {
        stamps.push(*stamp);
        effects.push(effect(bytes));
        let known: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).chain([None]).collect();
        let sees = |later: usize, earlier: usize| stamps[later].observed(&stamps[earlier]);
        let performed = perform(&mut cell, &Among { effects: &effects, traces: &known, sees: &sees });
        traces.push(performed.trace);
    }
    (cell, traces)
}

/// Mostly writes of the whole value.
fn writes(number: &[u8], random: &mut Rng) -> Vec<u8> {
    let others = random.u32(..20);
    if others == 0 {
        return operations(number, random);
    }
    let deadline = match others {
        1 => register::Deadline::At { millis: 8000 },
        _ => register::Deadline::Clear,
    };
    let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
    let mut bytes = Vec::new();
    Operation::Register(register::Operation::Set { value: number, deadline, condition, reply })
        .encode(&mut bytes);
    bytes
}

fn operations(number: &[u8], random: &mut Rng) -> Vec<u8> {
    let one = Items::one(number);
    let end = if random.bool() { list::End::Front } else { list::End::Back };
    let push = Operation::List(list::Operation::Push { end, values: one, only_if_exists: false });
    let set_to = |value| {
        let deadline = register::Deadline::Clear;
        Operation::Register(register::Operation::Set {
            value,
            deadline,
            condition: register::Condition::Always,
            reply: register::SetReply::Status,
        })
    };
    let mut hash = Vec::new();
    let operation = match random.u32(..32) {
        0..5 => push,
        5 | 6 => Operation::List(list::Operation::Pop { end, count: None }),
        7 => Operation::List(list::Operation::Put { index: 0, value: number }),
        8 => Operation::List(list::Operation::Trim { start: 0, stop: 1 }),
        9 => Operation::Key(key::Operation::Delete),
        10 => set_to(number),
        11..14 => Operation::Register(register::Operation::Increment { by: 3 }),
        14..16 => Operation::Set(set::Operation::Add { members: Items::one(b"m") }),
        16 => Operation::Set(set::Operation::Remove { members: Items::one(b"m") }),
        17 => Operation::Dict(dict::Operation::Put {
            pairs: Items::two(b"f", number),
            reply: dict::PutReply::Added,
        }),
        18 => Operation::Dict(dict::Operation::Increment { field: b"f", by: 1 }),
        19 => Operation::Dict(dict::Operation::Delete { fields: Items::one(b"f") }),
        20 => Operation::ScoredSet(scored_set::Operation::Remove { members: Items::one(b"m") }),
        21 => Operation::ScoredSet(scored_set::Operation::Increment {
            flags: scored_set::AddFlags::default(),
            by: 1.5,
            member: b"m",
        }),
        22 => Operation::Key(key::Operation::ExpireAt { at_millis: 9000, condition: Default::default() }),
        23 => Operation::List(list::Operation::Put { index: 0, value: number }),
        24 => Operation::List(list::Operation::Put { index: -1, value: number }),
        25 => Operation::Register(register::Operation::Append { value: b"x" }),
        26 => set_to(b"word"),
        27 => {
            let pairs = Items::two(b"f", number);
            let mut cell = Cell::default();
            datatypes::apply::<false>(&mut cell, &Effect::Dict(dict::Effect::put(pairs)));
            cell.encode(&mut hash);
            Operation::Key(key::Operation::Restore(hash.as_slice().into()))
        }
        29 => Operation::Dict(dict::Operation::ExpireAt {
            fields: Items::one(b"f"),
            at_millis: 8000,
            condition: Default::default(),
        }),
        30 => Operation::Dict(dict::Operation::PutUntil {
            pairs: Items::two(b"f", number),
            condition: dict::PutCondition::Always,
            deadline: register::Deadline::At { millis: 7000 },
        }),
        _ => push,
    };
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

/// Keys that are deleted as often as not.
pub fn passing(number: &[u8], random: &mut Rng) -> Vec<u8> {
    if random.u32(..3) > 0 {
        return operations(number, random);
    }
    let mut bytes = Vec::new();
    let at_millis = 9000;
    let expiry = key::Operation::ExpireAt { at_millis, condition: Default::default() };
    Operation::Key(if random.bool() { key::Operation::Delete } else { expiry }).encode(&mut bytes);
    bytes
}

/// Entries, most of them under ids of their own, and a group that reads them.
fn streams(number: &[u8], random: &mut Rng) -> Vec<u8> {
    use stream::{Claiming, NewId, Operation as O, Start, StreamId};
    let at = |millis, sequence| StreamId { millis, sequence };
    let (key, group) = (KEY, &b"g"[..]);
    let consumers: [&[u8]; 2] = [b"a", b"b"];
    let consumer = consumers[random.usize(..2)];
    let few: Vec<String> =
        (0..4).map(|_| format!("1-{}", random.u64(..3) + 65_536 * random.u64(..3))).collect();
    let ids = Items::collect(few.iter().map(|id| id.as_bytes()));
    let operation = match random.u32(..26) {
        0..8 => {
            O::Add { id: NewId::Next, items: Items::two(b"f", number), only_if_exists: false, trim: None }
        }
        8 => {
            let id = NewId::Given { id: at(9, random.u64(..3)) };
            O::Add { id, items: Items::two(b"f", number), only_if_exists: false, trim: None }
        }
        9..12 => O::Delete { ids },
        12..15 => {
            let start = Start::After { id: StreamId::ZERO };
            O::CreateGroup { group, start, read: None, create: true }
        }
        15..19 => {
            let count = random.u64(..3);
            O::ReadGroup { key, group, consumer, own_after: None, count, no_ack: false }
        }
        19..21 => O::Acknowledge { group, ids },
        21 | 22 => O::Claim { key, group, consumer, ids, claiming: Claiming::default() },
        23 => O::DestroyGroup { group },
        24 => O::DeleteConsumer { key, group, consumer },
        _ => {
            let mut bytes = Vec::new();
            Operation::Key(key::Operation::Delete).encode(&mut bytes);
            return if random.bool() { operations(number, random) } else { bytes };
        }
    };
    let mut bytes = Vec::new();
    Operation::Stream(operation).encode(&mut bytes);
    bytes
}

/// Effects of all groups in the order of time, each chosen on what its group had observed.
pub fn history(random: &mut Rng) -> Vec<Done> {
    history_of(random, operations)
}

pub fn history_of(random: &mut Rng, operations: fn(&[u8], &mut Rng) -> Vec<u8>) -> Vec<Done> {
    let mut done: Vec<Done> = Vec::new();
    let mut upto = [0u32; GROUPS];
    for at in 1..=random.u32(10..30) {
        let group = random.usize(..GROUPS);
        if random.u32(..3) == 0 {
            upto[group] = random.u32(upto[group]..at);
        }
        let stamp = Stamp { at, group: group as u16, upto: upto[group] };
        let state = made_by(done.iter().filter(|(earlier, _)| stamp.observed(earlier)));
        let number = at.to_string();
        let bytes = operations(number.as_bytes(), random);
        let operation = Operation::decode(&mut Reader::new(&bytes)).expect("it was encoded here");
        let mut reply = ReplyBuf::new();
        let mut context = Context { now_millis: 1, random, site: Some(group as u16) };
        let chosen = prepare(&state, &operation, &mut context, &mut reply);
        if let Some(effect) = assertion(&operation).filter(|_| reply.as_error().is_none()).or(chosen) {
            done.push((stamp, encoded(&effect)));
        }
    }
    done
}

/// A replica: effects of each group arrive in their order.
struct Replica {
    store: Store<Stamp>,
    waiting: Vec<Vec<Done>>,
    arrived: Vec<Done>,
    horizon: u32,
    stability_frontier: u32,
    /// The horizon stays at or below.
    limit: u32,
    /// Below more than so many an effect waits.
    few: usize,
    /// When keys that are gone are packed.
    packs: Rng,
}

impl Replica {
    fn new(done: &[Done], few: usize) -> Self {
        let of = |group: usize| {
            done.iter().filter(|(s, _)| usize::from(s.group) == group).rev().cloned().collect()
        };
        Replica {
            store: empty(few),
            waiting: (0..GROUPS).map(of).collect(),
            arrived: Vec::new(),
            horizon: 0,
            stability_frontier: 0,
            limit: u32::MAX,
            few,
            packs: Rng::with_seed((done.len() + 100 * few) as u64),
        }
    }

    /// Maybe packs the key, if nothing is left of it.
    fn pack(&mut self) {
        let hash = self.store.hash(KEY);
        match self.packs.u32(..8) {
            0 => self.store.pass_time(self.packs.u64(6000..10_000)),
            1 => self.store.unpack(hash, KEY),
            2..5 => self.store.pack_some(self.packs.usize(..3), Stamp::last_at(u32::MAX)),
            _ => {}
        }
        PACKED.fetch_add(self.store.packed(), Ordering::Relaxed);
        self.store.assert_consistent();
    }

    /// The state that all effects make; in one way or the other.
    fn newest(&mut self, random: &mut Rng) -> Cell {
        let hash = self.store.hash(KEY);
        let choice = random.u32(..4);
        let rounds = (0..1_000_000).find(|_| choice != 0 || !self.store.refresh_some(1));
        assert!(rounds.is_some(), "{:?}", self.reported());
        match choice {
            1 => return self.store.with_state(hash, KEY, |_| true, &[], Cell::clone),
            _ if self.store.waits(hash, KEY) => {
                return made_by(self.arrived.iter());
            }
            _ => {}
        }
        self.store.unpack(hash, KEY);
        self.store.cell(hash, KEY, 0).clone()
    }

    /// Nothing is yet to come at or below the first, and all that is has observed the second.
    fn bounds(&self) -> (u32, u32) {
        let out_of_order = || self.waiting.iter().flatten().map(|(stamp, _)| stamp);
        let horizon = out_of_order().map(|stamp| stamp.at - 1).min().unwrap_or(1000).min(self.limit);
        let stability_frontier = out_of_order().map(|stamp| stamp.upto).min().unwrap_or(1000);
        (horizon, stability_frontier)
    }

    fn step(&mut self, random: &mut Rng) {
        let hash = self.store.hash(KEY);
        match random.u32(..10) {
            0..6 => {
                let group = random.usize(..GROUPS);
                let Some((stamp, bytes)) = self.waiting[group].pop() else { return };
                self.store.commit(hash, KEY, stamp, &effect(&bytes));
                self.arrived.push((stamp, bytes));
                self.arrived.sort_by_key(|(stamp, _)| *stamp);
            }
            6 | 7 => {
                let (horizon, stability_frontier) = self.bounds();
                self.horizon = random.u32(self.horizon..=horizon.max(self.horizon));
                self.store.set_horizon(Some(Stamp::last_at(self.horizon)));
                self.stability_frontier =
                    random.u32(self.stability_frontier..=stability_frontier.max(self.stability_frontier));
                self.store.set_stability_frontier(Stamp::last_at(self.stability_frontier));
            }
            8 => self.write_down(),
            _ => self.read(random),
        }
        self.store.assert_consistent();
        self.pack();
    }

    /// Written down and read back, it is the same store.
    fn write_down(&mut self) {
        let hash = self.store.hash(KEY);
        let horizon = Stamp::last_at(self.horizon);
        let cell = self.store.with_state(hash, KEY, |stamp| *stamp <= horizon, &[], Cell::clone);
        let mut store = empty(self.few);
        store.set_horizon(Some(horizon));
        if cell.value.is_some() {
            store.restore(KEY, horizon, cell);
        }
        for (stamp, effect, trace) in self.store.context(hash, KEY) {
            store.keep(hash, KEY, stamp, &effect, trace.map(Cow::into_owned));
        }
        for (stamp, effect) in self.store.effects(hash, KEY) {
            store.commit(hash, KEY, stamp, &effect);
        }
        // What was forgotten stays so, and nothing comes that needs it, although the new store does not know yet.
        self.store = store;
    }

    /// A snapshot shows some groups up to one place and others up to another, then what its reader did.
    fn read(&mut self, random: &mut Rng) {
        let hash = self.store.hash(KEY);
        let shown: Vec<u32> = (0..GROUPS).map(|_| random.u32(self.horizon..1 + self.horizon + 30)).collect();
        let visible = |stamp: &Stamp| stamp.at <= shown[usize::from(stamp.group)];
        let own = Stamp {
            at: 900,
            group: 0,
            upto: random.u32(self.stability_frontier..self.stability_frontier + 30),
        };
        let deadline = register::Deadline::Clear;
        let later = encoded(&match own.upto % 2 {
            0 => Effect::Set(set::Effect::Remove { members: Items::one(b"m") }),
            _ => Effect::Register(register::Effect::Set { value: b"w", deadline }),
        });
        let with_own = random.bool();
        let later: Vec<Done> = with_own.then_some((own, later)).into_iter().collect();
        let wanted =
            made_by(self.arrived.iter().filter(|(s, _)| s.at <= self.horizon || visible(s)).chain(&later));
        let later: Vec<(Stamp, Effect<'_>)> =
            later.iter().map(|(stamp, bytes)| (*stamp, effect(bytes))).collect();
        let found = self.store.with_later(hash, KEY, visible, None, &later, &[], Cell::clone);
        assert_eq!(
            found,
            wanted,
            "shown up to {shown:?} and the horizon {}: {:?}",
            self.horizon,
            self.reported()
        );
        self.read_as_group(random);
        let found = self.store.with_later(hash, KEY, visible, None, &later, &[], Cell::clone);
        assert_eq!(
            found,
            wanted,
            "shown up to {shown:?} and the horizon {}: {:?}",
            self.horizon,
            self.reported()
        );
        self.store.assert_consistent();
    }

    /// A reader of one group, who says in a few words what he sees.
    fn read_as_group(&mut self, random: &mut Rng) {
        let hash = self.store.hash(KEY);
        let others = random.u32(self.horizon..1 + self.horizon + 30);
        let (group, own) = (random.u16(..GROUPS as u16), random.u32(others..others + 20));
        let sees = |stamp: &Stamp| match stamp.group == group {
            true => stamp.at <= own && stamp.upto <= others,
            false => stamp.at <= others,
        };
        let bounds = Bounds { group, own: Stamp::last_at(own), others: Stamp::last_at(others) };
        let wanted = made_by(self.arrived.iter().filter(|(s, _)| s.at <= self.horizon || sees(s)));
        if random.bool() {
            self.store.show_to(group, Stamp::last_at(others.min(self.horizon + 5)));
        }
        let found = self.store.with_later(hash, KEY, sees, Some(bounds), &[], &[], Cell::clone);
        assert_eq!(found, wanted, "{group} up to {own}, others to {others}: {:?}", self.reported());
        let beyond: Vec<Stamp> = self.store.stamps_beyond(hash, KEY, Some(bounds)).collect();
        let hidden = self.store.effects(hash, KEY).map(|(stamp, _)| stamp);
        let mut hidden = hidden.filter(|stamp| stamp.group == group && !sees(stamp));
        assert!(hidden.all(|stamp| beyond.contains(&stamp)));
    }

    fn reported(&self) -> Vec<(Stamp, Effect<'_>)> {
        self.arrived.iter().map(|(stamp, bytes)| (*stamp, effect(bytes))).collect()
    }
}

fn empty(few: usize) -> Store<Stamp> {
    let mut store = Store::new(HashSeed(11), Stamp::default());
    store.wait_beyond(few);
    store.merge_by_dependencies(Stamp::dependencies);
    store.set_horizon(Some(Stamp::default()));
    store
}

#[test]
fn replicas_agree_whatever_the_order_of_arrival() {
    // Those beyond the first found that types that meet were forgotten too early, or merged otherwise than by who saw what.
    replicas_agree((0..fewer(1500).into()).chain([14_665, 53_852, 117_411]), operations);
}

#[test]
fn replicas_agree_on_writes_of_the_whole_value() {
    replicas_agree(0..fewer(2500).into(), writes);
}

/// How often a replica had packed the key.
static PACKED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn replicas_agree_on_keys_that_come_and_go() {
    replicas_agree(0..fewer(2500).into(), passing);
    let packed = PACKED.load(Ordering::Relaxed);
    assert!(packed > fewer(2000) as usize, "{packed}");
}

#[test]
fn replicas_agree_on_streams() {
    replicas_agree(0..fewer(300).into(), streams);
}

fn replicas_agree(seeds: impl Iterator<Item = u64>, operations: fn(&[u8], &mut Rng) -> Vec<u8>) {
    for seed in seeds {
        let mut random = Rng::with_seed(seed);
        let done = history_of(&mut random, operations);
        let wanted = made_by(done.iter());
        for few in [0, 3, 32] {
            let mut replica = Replica::new(&done, few);
            while replica.waiting.iter().any(|waiting| !waiting.is_empty()) {
                replica.step(&mut random);
                let newest = replica.newest(&mut random);
                assert_eq!(newest, made_by(replica.arrived.iter()), "seed {seed}: {:?}", replica.reported());
            }
            replica.store.show_to(0, Stamp::last_at(u32::MAX));
            let rounds = (0..1_000_000).find(|_| !replica.store.refresh_some(1));
            assert!(rounds.is_some(), "seed {seed}: {:?}", replica.reported());
            let found = replica.newest(&mut random);
            assert_eq!(found, wanted, "seed {seed}: {:?}", replica.reported());
        }
    }
}

/// A group is lost, and of it all above a cut, which nobody else observed: what is left is what the others' effects
/// and the group's up to the cut make, whatever had been forgotten or written down when it was given up.
#[test]
fn what_is_given_up_has_never_been() {
    let mut given_up = 0;
    for seed in 0..fewer(1500).into() {
        let mut random = Rng::with_seed(seed);
        let lost = random.u16(..GROUPS as u16);
        let cut = random.u32(..20);
        let is_above = |stamp: &Stamp| stamp.group == lost && stamp.at > cut;
        let mut done = history(&mut random);
        // Nobody else saw anything above the cut, which is below what any snapshot elsewhere showed of the group.
        done.retain(|(stamp, _)| stamp.group == lost || stamp.upto <= cut);
        let mut replica = Replica::new(&done, random.usize(..6));
        replica.limit = cut;
        (0..random.u32(1..80)).for_each(|_| replica.step(&mut random));
        let hash = replica.store.hash(KEY);
        for (stamp, _) in replica.arrived.iter().filter(|(stamp, _)| is_above(stamp)) {
            assert!(
                replica.store.retract(hash, KEY, *stamp),
                "seed {seed}: nothing above the horizon is folded"
            );
            replica.store.assert_consistent();
            given_up += 1;
        }
        replica.arrived.retain(|(stamp, _)| !is_above(stamp));
        replica.waiting.iter_mut().for_each(|waiting| waiting.retain(|(stamp, _)| !is_above(stamp)));
        replica.limit = u32::MAX;
        loop {
            let newest = replica.newest(&mut random);
            assert_eq!(newest, made_by(replica.arrived.iter()), "seed {seed}: {:?}", replica.reported());
            if replica.waiting.iter().all(Vec::is_empty) {
                break;
            }
            replica.step(&mut random);
        }
    }
    assert!(given_up > fewer(1000), "{given_up}");
}

/// A key that waits beyond what is shown is looked at once, not again and again, also where an earlier history of it had
/// been in the queue when it was forgotten.
#[test]
fn what_waits_beyond_what_is_shown_is_looked_at_once() {
    let mut store = empty(0);
    let hash = store.hash(KEY);
    let removal = encoded(&Effect::Set(set::Effect::Remove { members: Items::one(b"m") }));
    for round in [0, 10] {
        for (at, group) in [(round + 5, 0), (round + 3, 1)] {
            let stamp = Stamp { at, group, upto: round };
            store.commit(hash, KEY, stamp, &effect(&removal));
        }
        assert!(store.waits(hash, KEY), "it arrived below one that it had not observed");
        if round == 0 {
            store.with_state(hash, KEY, |_| true, &[], |_| ());
            store.set_horizon(Some(Stamp::last_at(9)));
            store.set_stability_frontier(Stamp::last_at(9));
            while store.fold_some(1) {}
            assert_eq!(store.effects(hash, KEY).count() + store.context(hash, KEY).count(), 0);
        }
    }
    store.show_to(0, Stamp::last_at(9));
    assert!((0..5).any(|_| !store.refresh_some(1)), "nothing is left that may be shown");
    assert!(store.waits(hash, KEY));
    store.show_to(0, Stamp::last_at(13));
    assert!((0..5).any(|_| !store.refresh_some(1)), "it was shown");
    assert!(!store.waits(hash, KEY));
    store.assert_consistent();
}

/// When everything has arrived and everybody has observed it, the store retains nothing but the value.
#[test]
fn what_everybody_observed_is_forgotten() {
    let mut random = Rng::with_seed(3);
    let done = history(&mut random);
    let mut replica = Replica::new(&done, 32);
    let hash = replica.store.hash(KEY);
    for (stamp, bytes) in &done {
        replica.store.commit(hash, KEY, *stamp, &effect(bytes));
    }
    replica.store.set_horizon(Some(Stamp::last_at(1000)));
    assert!(replica.store.context(hash, KEY).next().is_some(), "somebody may not have observed them");
    replica.store.set_stability_frontier(Stamp::last_at(1000));
    while replica.store.fold_some(10) {}
    assert_eq!(replica.store.context(hash, KEY).count(), 0);
    assert_eq!(replica.store.effects(hash, KEY).count(), 0);
    replica.store.assert_consistent();
}
