//! The list of lost writes: the same whatever the order of arrival, the horizon and the stability frontier, and however often the
//! store is written down and read back; and what is settled anywhere is settled everywhere.

use crate::fewer;
use crate::merge::{Done, GROUPS, KEY, Stamp, effect, encoded, history, history_of, passing, performed};
use crate::mvcc::{LossOptions, LostWrite, Store};
use datatypes::merge::{LostPart, Trace, lost};
use datatypes::{Context, Effect, Items, Operation, dict, key, list, prepare, register, set};
use std::borrow::Cow;
use std::collections::BTreeSet;
use types::{HashSeed, Reader, ReplyBuf, Rng, Wire};

/// A loss as all replicas must tell it.
type ReportedLoss = (u32, LostPart, Vec<u8>, u32, Vec<u8>);

const OPTIONS: LossOptions<Stamp> =
    LossOptions { name: |stamp| stamp.at.to_be_bytes().to_vec(), bytes: 1 << 20, until_replaced: false };

fn reported(loss: &LostWrite<Stamp>) -> ReportedLoss {
    (loss.stamp.at, loss.part.clone(), loss.value.to_vec(), loss.winner.at, loss.instead.to_vec())
}

/// What a whole history has lost, but for what it settles.
fn wanted(done: &[Done]) -> BTreeSet<ReportedLoss> {
    let effects: Vec<Effect<'_>> = done.iter().map(|(_, bytes)| effect(bytes)).collect();
    let sees = |later: usize, earlier: usize| done[later].0.observed(&done[earlier].0);
    let mut settled = BTreeSet::new();
    for effect in &effects {
        if let Effect::Key(key::Effect::Resolve { losses }) = effect {
            settled.extend(losses.iter().map(<[u8]>::to_vec));
        }
    }
    let (_, traces) = performed(done.iter());
    let traces: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).collect();
    let mut found = BTreeSet::new();
    for place in 0..done.len() {
        for loss in lost(&effects, &traces, &sees, place) {
            if !settled.contains(&name(done[place].0, &loss.part)) {
                let (at, to) = (done[place].0.at, done[loss.to].0.at);
                found.insert((at, loss.part, loss.value, to, loss.instead));
            }
        }
    }
    found
}

fn name(stamp: Stamp, part: &LostPart) -> Vec<u8> {
    let mut name = stamp.at.to_be_bytes().to_vec();
    part.encode(&mut name);
    name
}

struct Replica {
    store: Store<Stamp>,
    waiting: Vec<Vec<Done>>,
    horizon: u32,
    stability_frontier: u32,
}

fn empty() -> Store<Stamp> {
    let mut store = Store::new(HashSeed(11), Stamp::default());
    store.merge_by_dependencies(Stamp::dependencies);
    store.list_losses_by(OPTIONS);
    store.set_horizon(Some(Stamp::default()));
    store
}

impl Replica {
    fn new(done: &[Done]) -> Self {
        let of = |group: usize| {
            done.iter().filter(|(s, _)| usize::from(s.group) == group).rev().cloned().collect()
        };
        Replica { store: empty(), waiting: (0..GROUPS).map(of).collect(), horizon: 0, stability_frontier: 0 }
    }

    fn arrive(&mut self, group: usize) {
        let Some((stamp, bytes)) = self.waiting[group].pop() else { return };
        let hash = self.store.hash(KEY);
        self.store.commit(hash, KEY, stamp, &effect(&bytes));
    }

    /// As far as what is yet to come allows.
    fn forget(&mut self, share: impl Fn(u32, u32) -> u32) {
        let out_of_order = || self.waiting.iter().flatten().map(|(stamp, _)| stamp);
        let horizon = out_of_order().map(|stamp| stamp.at - 1).min().unwrap_or(1000);
        let stability_frontier = out_of_order().map(|stamp| stamp.upto).min().unwrap_or(1000);
        self.horizon = share(self.horizon, horizon.max(self.horizon));
        self.stability_frontier =
            share(self.stability_frontier, stability_frontier.max(self.stability_frontier));
        self.store.set_horizon(Some(Stamp::last_at(self.horizon)));
        self.store.set_stability_frontier(Stamp::last_at(self.stability_frontier));
    }

    /// Written down, key by key and then the list, and read back.
    fn write_down(&mut self) {
        let hash = self.store.hash(KEY);
        let horizon = Stamp::last_at(self.horizon);
        let cell = self.store.with_state(hash, KEY, |stamp| *stamp <= horizon, &[], datatypes::Cell::clone);
        let mut store = empty();
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
        while self.store.fold_some(1) {}
        for (_, loss) in self.store.retained_losses_after(0) {
            store.put_loss(loss.clone());
        }
        self.store = store;
    }

    fn listed(&self) -> BTreeSet<ReportedLoss> {
        self.store.losses_after(0).map(|(_, loss)| reported(loss)).collect()
    }

    fn at_rest(&mut self) -> BTreeSet<ReportedLoss> {
        self.forget(|_, most| most);
        while self.store.fold_some(10) {}
        assert!(self.store.pending_losses().is_empty());
        self.store.assert_consistent();
        self.listed()
    }
}

#[test]
fn replicas_list_the_same_losses() {
    let some = lists_alike(4000, history);
    assert!(some > fewer(1000), "only {some} histories lose something");
}

#[test]
fn replicas_list_the_same_losses_of_keys_that_come_and_go() {
    let some = lists_alike(4000, |random| history_of(random, passing));
    assert!(some > fewer(1000), "only {some} histories lose something");
}

/// What is written to a register or a field, incremented there and removed: words come forth from under numbers.
#[test]
fn replicas_list_the_same_increments_under_words() {
    for operations in [of_register, of_field] {
        let some = lists_alike(3000, |random| history_of(random, operations));
        assert!(some > fewer(1000), "only {some} histories lose something");
    }
}

fn of_register(number: &[u8], random: &mut Rng) -> Vec<u8> {
    let set_to = |value| {
        let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
        register::Operation::Set { value, deadline: register::Deadline::Clear, condition, reply }
    };
    let operation = match random.u32(..8) {
        0..4 => Operation::Register(register::Operation::Increment { by: 3 }),
        4 => Operation::Register(set_to(number)),
        5 => Operation::Register(set_to(b"word")),
        _ => Operation::Key(key::Operation::Delete),
    };
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

fn of_field(number: &[u8], random: &mut Rng) -> Vec<u8> {
    let put = |value| dict::Operation::Put { pairs: Items::two(b"f", value), reply: dict::PutReply::Added };
    let mut whole = Vec::new();
    let operation = match random.u32(..9) {
        0..4 => Operation::Dict(dict::Operation::Increment { field: b"f", by: 3 }),
        4 => Operation::Dict(put(number)),
        5 => Operation::Dict(put(b"word")),
        6 => {
            let mut cell = datatypes::Cell::default();
            let pairs = Items::two(b"f", b"words");
            datatypes::apply::<false>(&mut cell, &Effect::Dict(dict::Effect::put(pairs)));
            cell.encode(&mut whole);
            Operation::Key(key::Operation::Restore(whole.as_slice().into()))
        }
        _ => Operation::Dict(dict::Operation::Delete { fields: Items::one(b"f") }),
    };
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

/// Deadlines that somebody sets beside additions, withdraws, or ends with the value.
fn replicas_list_the_same_additions_that_go(operations: fn(&[u8], &mut Rng) -> Vec<u8>) {
    let goes =
        |done: &[Done]| wanted(done).iter().filter(|(_, part, ..)| *part == LostPart::Deadline).count();
    let (mut most, mut some) = (0, 0u32);
    lists_alike(1500, |random| {
        let done = history_of(random, operations);
        most = goes(&done).max(most);
        some += u32::from(goes(&done) > 0);
        done
    });
    assert!(some > fewer(400) && most > 3, "only {some} histories, and at most {most} of one");
}

#[test]
fn replicas_list_the_same_members_that_go_with_a_deadline() {
    replicas_list_the_same_additions_that_go(of_dated_set);
}

#[test]
fn replicas_list_the_same_edits_that_go_with_a_deadline() {
    replicas_list_the_same_additions_that_go(of_dated_register);
}

#[test]
fn replicas_list_the_same_fields_that_go_with_a_deadline() {
    replicas_list_the_same_additions_that_go(of_dated_hash);
}

fn encoded_one_of(choice: Result<Operation<'_>, u32>, random: &mut Rng) -> Vec<u8> {
    let at_millis = random.u64(7..10) * 1000;
    let operation = choice.unwrap_or_else(|other| {
        Operation::Key(match other {
            0 => key::Operation::Delete,
            1 => key::Operation::Persist,
            _ => key::Operation::ExpireAt { at_millis, condition: Default::default() },
        })
    });
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

fn of_dated_set(number: &[u8], random: &mut Rng) -> Vec<u8> {
    let member: &[u8] = if random.bool() { b"m" } else { number };
    let members = Items::one(member);
    let choice = match random.u32(..11) {
        0..5 => Ok(Operation::Set(set::Operation::Add { members })),
        5 => Ok(Operation::Set(set::Operation::Remove { members: Items::one(b"m") })),
        6 => Err(0),
        7 => Err(1),
        _ => Err(2),
    };
    encoded_one_of(choice, random)
}

fn of_dated_register(number: &[u8], random: &mut Rng) -> Vec<u8> {
    use register::Deadline;
    let deadlines = [Deadline::Clear, Deadline::Keep, Deadline::At { millis: 8500 }];
    let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
    let deadline = deadlines[random.usize(..3)];
    let choice = match random.u32(..12) {
        0..3 => Ok(Operation::Register(register::Operation::Increment { by: 3 })),
        3..5 => Ok(Operation::Register(register::Operation::Append { value: number })),
        5..7 => {
            Ok(Operation::Register(register::Operation::Set { value: number, deadline, condition, reply }))
        }
        7 => Err(0),
        8 => Err(1),
        _ => Err(2),
    };
    encoded_one_of(choice, random)
}

fn of_dated_hash(number: &[u8], random: &mut Rng) -> Vec<u8> {
    let fields: [&[u8]; 2] = [b"f", b"g"];
    let field = fields[random.usize(..2)];
    let choice = match random.u32(..12) {
        0..2 => {
            let pairs = Items::two(field, number);
            Ok(Operation::Dict(dict::Operation::Put { pairs, reply: dict::PutReply::Added }))
        }
        2..5 => Ok(Operation::Dict(dict::Operation::Increment { field, by: 1 })),
        5 => Ok(Operation::Dict(dict::Operation::Delete { fields: Items::one(field) })),
        6 => Ok(Operation::Set(set::Operation::Add { members: Items::one(number) })),
        7 => Err(0),
        8 => Err(1),
        _ => Err(2),
    };
    encoded_one_of(choice, random)
}

/// Replicas to which the effects of these histories arrive in any order, and that forget and are written down now and then, list the
/// same, or [`fewer`]. How many histories lose something.
fn lists_alike(seeds: u32, mut history: impl FnMut(&mut Rng) -> Vec<Done>) -> u32 {
    let mut some = 0;
    for seed in 0..fewer(seeds).into() {
        let (mut random, mut packs) = (Rng::with_seed(seed), Rng::with_seed(seed));
        let done = history(&mut random);
        let wanted = wanted(&done);
        some += u32::from(!wanted.is_empty());
        for _ in 0..2 {
            let mut replica = Replica::new(&done);
            while replica.waiting.iter().any(|waiting| !waiting.is_empty()) {
                match random.u32(..10) {
                    0..6 => replica.arrive(random.usize(..GROUPS)),
                    6..9 => {
                        let share = random.u32(..=4);
                        replica.forget(|least, most| least + (most - least) * share / 4);
                    }
                    _ => replica.write_down(),
                }
                match packs.u32(..6) {
                    0 => replica.store.pass_time(10_000),
                    1..3 => replica.store.pack_some(2, Stamp::last_at(u32::MAX)),
                    _ => {}
                }
            }
            assert_eq!(replica.at_rest(), wanted, "seed {seed}: {:?}", in_words(&done));
        }
    }
    some
}

/// How many losses are known, and how many were dropped.
fn loss_count(store: &Store<Stamp>) -> (usize, u64) {
    let (listed, dropped) = store.listed_losses();
    (listed + store.pending_losses().len(), dropped)
}

fn in_words(done: &[Done]) -> Vec<(Stamp, Effect<'_>)> {
    done.iter().map(|(stamp, bytes)| (*stamp, effect(bytes))).collect()
}

/// Small histories of one register, in every order in which its groups' effects may arrive, with everything forgotten as
/// early as possible, or as late.
#[test]
fn every_interleaving_of_small_histories_lists_the_same() {
    let mut random = Rng::with_seed(7);
    for round in 0..300 {
        let mut done: Vec<Done> = Vec::new();
        let mut upto = [0u32; GROUPS];
        for at in 1..=random.u32(2..7) {
            let group = random.usize(..GROUPS);
            if random.bool() {
                upto[group] = random.u32(upto[group]..at);
            }
            let stamp = Stamp { at, group: group as u16, upto: upto[group] };
            let value = at.to_string();
            let deadline = register::Deadline::Clear;
            let set = Effect::Register(register::Effect::Set { value: value.as_bytes(), deadline });
            done.push((stamp, encoded(if random.u32(..5) == 0 { &Effect::DELETE } else { &set })));
        }
        let wanted = wanted(&done);
        let counts: Vec<usize> =
            (0..GROUPS).map(|g| done.iter().filter(|(s, _)| usize::from(s.group) == g).count()).collect();
        let mut orders = Vec::new();
        interleave(&counts, &mut Vec::new(), &mut orders);
        for order in orders {
            for eager in [true, false] {
                let mut replica = Replica::new(&done);
                for group in &order {
                    replica.arrive(*group);
                    if eager {
                        replica.forget(|_, most| most);
                        while replica.store.fold_some(10) {}
                    }
                }
                let found = replica.at_rest();
                assert_eq!(found, wanted, "round {round}, {order:?}, eager {eager}: {:?}", in_words(&done));
            }
        }
    }
}

fn interleave(left: &[usize], order: &mut Vec<usize>, orders: &mut Vec<Vec<usize>>) {
    if left.iter().all(|count| *count == 0) {
        return orders.push(order.clone());
    }
    for group in 0..left.len() {
        if left[group] > 0 {
            let mut left = left.to_vec();
            left[group] -= 1;
            order.push(group);
            interleave(&left, order, orders);
            order.pop();
        }
    }
}

fn set(at: u32, group: u16, upto: u32, value: &str) -> Done {
    let deadline = register::Deadline::Clear;
    let set = Effect::Register(register::Effect::Set { value: value.as_bytes(), deadline });
    (Stamp { at, group, upto }, encoded(&set))
}

/// Whoever settles a loss knows it; elsewhere that may arrive before the loss does.
#[test]
fn what_is_settled_is_so_everywhere() {
    let (a, b) = (set(1, 0, 0, "a"), set(2, 1, 0, "b"));
    let names = [name(a.0, &LostPart::Value)];
    let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let losses = Items::Slices(&names);
    let resolve =
        (Stamp { at: 3, group: 2, upto: 2 }, encoded(&Effect::Key(key::Effect::Resolve { losses })));
    let done = vec![a, b, resolve];
    assert!(wanted(&done).is_empty() && wanted(&done[..2]).len() == 1);
    let mut orders = Vec::new();
    interleave(&[1, 1, 1], &mut Vec::new(), &mut orders);
    for order in orders {
        for write_down in 0..4 {
            let mut replica = Replica::new(&done);
            for (place, group) in order.iter().enumerate() {
                replica.arrive(*group);
                replica.forget(|_, most| most);
                if place == write_down {
                    replica.write_down();
                }
            }
            assert!(replica.at_rest().is_empty(), "{order:?}");
            assert_eq!(loss_count(&replica.store), (0, 0));
        }
    }
}

/// What settles a loss may be below the horizon, and not be folded yet, as a later write waits for its turn: then the
/// store reports neither the write nor the loss.
#[test]
fn what_is_settled_stays_so_when_it_is_written_down_before_it_is_folded() {
    let losses = name(Stamp { at: 1, group: 0, upto: 0 }, &LostPart::Value);
    let resolve = encoded(&Effect::Key(key::Effect::Resolve { losses: Items::one(&losses) }));
    let settled = (Stamp { at: 3, group: 2, upto: 2 }, resolve);
    let done = [set(1, 0, 0, "a"), set(2, 1, 0, "b"), settled, set(9, 0, 3, "c")];
    let mut replica = Replica::new(&done);
    [0, 1, 2, 0].into_iter().for_each(|group| replica.arrive(group));
    for forgotten in [2, 5] {
        replica.forget(|_, _| forgotten);
        assert!(replica.listed().is_empty());
    }
    replica.write_down();
    assert!(replica.listed().is_empty());
    assert!(replica.at_rest().is_empty());
}

/// The same of any history of which somebody who has it settles some losses, and goes on.
#[test]
fn replicas_settle_the_same_losses() {
    lists_alike(2000, |random| {
        let mut done = history(random);
        let names: Vec<Vec<u8>> = wanted(&done)
            .into_iter()
            .filter(|_| random.bool())
            .map(|(at, part, ..)| name(Stamp { at, group: 0, upto: 0 }, &part))
            .collect();
        let mut at = done.last().map_or(0, |(stamp, _)| stamp.at);
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let resolve = encoded(&Effect::Key(key::Effect::Resolve { losses: Items::Slices(&names) }));
        for (group, effect) in [(2, Some(resolve)), (0, None), (1, None)] {
            at += 1;
            let (stamp, written) = set(at, group, at - 1, "later");
            done.push((stamp, effect.unwrap_or(written)));
        }
        done
    });
}

#[test]
fn a_loss_is_reported_before_it_is_final() {
    let done = vec![set(1, 0, 0, "a"), set(2, 1, 0, "b"), set(3, 0, 0, "c")];
    let mut replica = Replica::new(&done);
    let hash = replica.store.hash(KEY);
    (0..2).for_each(|group| replica.arrive(group));
    let pending: Vec<ReportedLoss> = replica.store.pending_losses().iter().map(reported).collect();
    assert_eq!(pending, [(1, LostPart::Value, b"a".to_vec(), 2, b"b".to_vec())]);
    assert_eq!(replica.store.losses_of(hash, KEY).len(), 1);
    assert!(replica.listed().is_empty());
    // What comes tells that the first had been written over knowingly.
    replica.arrive(0);
    assert_eq!(replica.at_rest(), wanted(&done));
    assert_eq!(loss_count(&replica.store), (1, 0));
    let names: Vec<Vec<u8>> = replica.store.losses_of(hash, KEY).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [name(done[1].0, &LostPart::Value)]);
}

#[test]
fn a_full_list_drops_the_earliest_and_says_so() {
    let mut store = Store::new(HashSeed(11), Stamp::default());
    store.list_losses_by(LossOptions { bytes: 2000, ..OPTIONS });
    for at in 1..=50 {
        let stamp = Stamp { at: 51 - at, group: 0, upto: 0 };
        store.put_loss(LostWrite {
            key: KEY.into(),
            part: LostPart::Value,
            stamp,
            value: b"v".to_vec().into(),
            winner: Stamp { at: 100, group: 1, upto: 0 },
            instead: b"w".to_vec().into(),
        });
    }
    let (listed, dropped) = loss_count(&store);
    assert!(listed > 1 && listed as u64 + dropped == 50, "{listed} and {dropped}");
    let least = store.losses_after(0).map(|(_, loss)| loss.stamp.at).min();
    assert_eq!(least, Some(51 - listed as u32), "those that stay are the latest");
}

/// The effects of one transaction on a key share a stamp: whoever keeps one of them keeps the others.
#[test]
fn a_transaction_survives_as_a_whole() {
    let written = set(2, 1, 0, "b");
    let deleted = (written.0, encoded(&Effect::DELETE));
    let mut replica = Replica::new(&[set(1, 0, 0, "a"), written, deleted]);
    let hash = replica.store.hash(KEY);
    replica.arrive(0);
    (0..2).for_each(|_| replica.arrive(1));
    replica.store.set_horizon(Some(Stamp::last_at(2)));
    replica.horizon = 2;
    replica.write_down();
    assert_eq!(replica.store.context(hash, KEY).count(), 3);
    assert!(replica.at_rest().is_empty(), "what was written was deleted in the same transaction");
}

/// Who settled a loss may be given up with all that their region did: then the loss is listed again, also if the store was
/// written down meanwhile.
#[test]
fn what_was_settled_by_somebody_who_is_given_up_is_listed_again() {
    for restarts in [false, true] {
        let settled = Stamp { at: 3, group: 2, upto: 2 };
        let losses = name(Stamp { at: 1, group: 0, upto: 0 }, &LostPart::Value);
        let resolve = encoded(&Effect::Key(key::Effect::Resolve { losses: Items::one(&losses) }));
        let done = [set(1, 0, 0, "a"), set(2, 1, 0, "b")];
        let mut replica = Replica::new(&done);
        let hash = replica.store.hash(KEY);
        (0..2).for_each(|group| replica.arrive(group));
        replica.store.set_horizon(Some(Stamp::last_at(2)));
        replica.store.set_stability_frontier(Stamp::last_at(2));
        (replica.horizon, replica.stability_frontier) = (2, 2);
        while replica.store.fold_some(10) {}
        assert_eq!(replica.listed(), wanted(&done));
        replica.store.commit(hash, KEY, settled, &effect(&resolve));
        assert!(replica.listed().is_empty() && loss_count(&replica.store) == (0, 0));
        if restarts {
            replica.write_down();
            assert!(replica.listed().is_empty());
        }
        assert!(replica.store.retract(hash, KEY, settled));
        assert_eq!(replica.listed(), wanted(&done));
        assert_eq!(loss_count(&replica.store), (1, 0));
        replica.store.assert_consistent();
    }
}

/// Piece by piece, in the order of the keys' hashes, it is the same; also where a key is no longer contested meanwhile.
#[test]
fn losses_that_are_not_final_are_reported_in_pieces() {
    let mut store = empty();
    let keys: Vec<String> = (0..40).map(|number| format!("key {number}")).collect();
    for (number, key) in (0u32..).zip(&keys) {
        for (stamp, bytes) in [set(3 * number + 1, 0, 0, "a"), set(3 * number + 2, 1, 0, "b")] {
            store.commit(store.hash(key.as_bytes()), key.as_bytes(), stamp, &effect(&bytes));
        }
    }
    for (most, folded) in [(1, false), (7, false), (1000, false), (5, true)] {
        let all = store.pending_losses();
        assert_eq!(all.len(), keys.len());
        let (mut reported, mut pieces, mut next) = (Vec::new(), 0, Some(0));
        while let Some(from) = next {
            let piece;
            (piece, next) = store.pending_losses_from(from, most);
            assert!((folded || !piece.is_empty()) && piece.len() <= most.div_ceil(2));
            reported.extend(piece);
            pieces += 1;
            if folded && pieces == 3 {
                // A reported loss becomes final.
                let stamp = reported[0].stamp.max(reported[0].winner);
                store.set_horizon(Some(stamp));
                store.set_stability_frontier(stamp);
                while store.fold_some(10) {}
            }
        }
        let listed: Vec<_> = store.losses_after(0).map(|(_, loss)| loss.clone()).collect();
        assert_eq!(folded, !listed.is_empty());
        for loss in all {
            assert!(reported.contains(&loss) || listed.contains(&loss), "{loss:?}");
        }
    }
}

fn mostly_elements(number: &[u8], random: &mut Rng) -> Vec<u8> {
    let operation = match random.u32(..10) {
        0..6 => Operation::List(list::Operation::Put { index: -random.i64(0..2), value: number }),
        6 => Operation::List(list::Operation::Pop { end: list::End::Back, count: None }),
        7 => Operation::Key(key::Operation::Delete),
        _ => Operation::List(list::Operation::Push {
            end: list::End::Front,
            values: Items::two(number, b"x"),
            only_if_exists: false,
        }),
    };
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

fn mostly_increments(number: &[u8], random: &mut Rng) -> Vec<u8> {
    let deadline = register::Deadline::Clear;
    let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
    let set_to = |value| register::Operation::Set { value, deadline, condition, reply };
    let operation = match random.u32(..12) {
        0..6 => register::Operation::Increment { by: 1 },
        6 | 7 => set_to(b"word"),
        8 => set_to(number),
        9 => register::Operation::Append { value: b"x" },
        10 => register::Operation::Append { value: b"7" },
        _ => register::Operation::GetDelete,
    };
    let mut bytes = Vec::new();
    Operation::Register(operation).encode(&mut bytes);
    bytes
}

/// What an earlier effect may hide is found wherever the two meet, however much is forgotten meanwhile.
#[test]
fn what_an_earlier_effect_hides_is_listed_in_all_replicas() {
    for operations in [mostly_elements, mostly_increments] {
        let (mut earlier, mut some) = (0, 0);
        for seed in 0..fewer(3000).into() {
            let mut random = Rng::with_seed(seed);
            let done = history_of(&mut random, operations);
            let wanted = wanted(&done);
            some += wanted.len() as u32;
            earlier += wanted.iter().filter(|(at, .., winner, _)| winner < at).count() as u32;
            for eager in [false, true] {
                let mut replica = Replica::new(&done);
                while replica.waiting.iter().any(|waiting| !waiting.is_empty()) {
                    match random.u32(..10) {
                        0..6 => replica.arrive(random.usize(..GROUPS)),
                        6..9 => replica.forget(|least, most| if eager { most } else { least.midpoint(most) }),
                        _ => replica.write_down(),
                    }
                    while eager && replica.store.fold_some(10) {}
                }
                assert_eq!(replica.at_rest(), wanted, "seed {seed}, eager {eager}: {:?}", in_words(&done));
            }
        }
        assert!(some > fewer(1000) && earlier > fewer(300), "{some} losses, {earlier} to earlier effects");
    }
}

/// A key that two groups write without an end, each a few effects behind the other: the store retains little of it.
#[test]
fn a_busy_key_keeps_what_its_groups_have_not_observed() {
    for operations in [mostly_elements, mostly_increments, of_dated_set] {
        let mut random = Rng::with_seed(3);
        let mut store = empty();
        let hash = store.hash(KEY);
        let mut most = 0;
        for at in 20..2000 {
            let stamp = Stamp { at, group: random.u16(..2), upto: at - 10 };
            let bytes = operations(at.to_string().as_bytes(), &mut random);
            let operation = Operation::decode(&mut Reader::new(&bytes)).expect("it was encoded here");
            let (mut reply, cell) = (ReplyBuf::new(), store.cell(hash, KEY, 0).clone());
            let mut context = Context { now_millis: 1, random: &mut random, site: None };
            if let Some(effect) = prepare(&cell, &operation, &mut context, &mut reply) {
                store.commit(hash, KEY, stamp, &effect);
            }
            store.set_horizon(Some(Stamp::last_at(at - 10)));
            store.set_stability_frontier(Stamp::last_at(at - 10));
            while store.fold_some(10) {}
            most = most.max(store.context(hash, KEY).count() + store.effects(hash, KEY).count());
        }
        assert!(most < 60, "{most} effects are kept");
    }
}
