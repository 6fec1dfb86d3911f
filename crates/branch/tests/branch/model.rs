//! The naive model: explicit sets of ancestors, and values by replay along the path. And a world that keeps it beside
//! a keyspace.

use anabranch_branch::{Begin, Commit, Effects, End, Keyspace, Mutants, Options, Policy, StateId};
use anabranch_branch::{Refusal, Transaction};
use datatypes::register::{Condition, Deadline, SetReply};
use datatypes::{Cell, Context, Effect, Operation, Value, apply, register};
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet};
use types::{Incarnation, ProcessId, Reader, ReplyBuf, Rng, SessionId};

pub const SESSION: SessionId = SessionId(1);

pub fn key(name: &str) -> CompactKey {
    CompactKey::new(name.as_bytes())
}

pub fn encoded(effect: &Effect<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes.into()
}

pub fn set(value: &str) -> Box<[u8]> {
    let effect = register::Effect::Set { value: value.as_bytes(), deadline: Deadline::Clear };
    encoded(&Effect::Register(effect))
}

pub fn add(by: i64) -> Box<[u8]> {
    encoded(&Effect::Register(register::Effect::Add { by }))
}

pub const fn write(value: &[u8]) -> Operation<'_> {
    Operation::Register(register::Operation::Set {
        value,
        deadline: Deadline::Clear,
        condition: Condition::Always,
        reply: SetReply::Status,
    })
}

pub const READ: Operation<'static> = Operation::Register(register::Operation::Get);

pub fn increment(by: i64) -> Operation<'static> {
    Operation::Register(register::Operation::Increment { by })
}

/// A register's value, `nil` for an absent key.
pub fn text(cell: &Cell) -> String {
    match &cell.value {
        None => "nil".to_owned(),
        Some(Value::Register(register)) => register.with_bytes(|bytes| String::from_utf8_lossy(bytes).into()),
        Some(other) => format!("{other:?}"),
    }
}

#[derive(Clone, Debug, Default)]
pub struct State {
    pub parents: Vec<StateId>,
    /// Itself included.
    pub ancestors: BTreeSet<StateId>,
    pub writes: BTreeMap<CompactKey, Effects>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Model {
    pub states: BTreeMap<StateId, State>,
    values: BTreeMap<(CompactKey, StateId), Cell>,
}

impl Model {
    pub fn new() -> Self {
        let root = State { ancestors: BTreeSet::from([StateId::ROOT]), ..State::default() };
        Model { states: BTreeMap::from([(StateId::ROOT, root)]), values: BTreeMap::new() }
    }

    pub fn add(&mut self, commit: &Commit) {
        if self.states.contains_key(&commit.id) {
            return;
        }
        let mut ancestors: BTreeSet<StateId> =
            commit.parents.iter().flat_map(|parent| self.states[parent].ancestors.clone()).collect();
        let below = ancestors.clone();
        ancestors.insert(commit.id);
        let writes: BTreeMap<CompactKey, Effects> = commit.writes.iter().cloned().collect();
        for (key, effects) in &writes {
            let mut cell = self.value_among(&below, key);
            for bytes in effects {
                apply::<false>(&mut cell, &Effect::decode(&mut Reader::new(bytes)).unwrap());
            }
            self.values.insert((key.clone(), commit.id), cell);
        }
        self.states.insert(commit.id, State { parents: commit.parents.clone(), ancestors, writes });
    }

    /// The version of a key that a set of states with all their ancestors shows: the one above all others.
    fn value_among(&self, states: &BTreeSet<StateId>, key: &CompactKey) -> Cell {
        let mut versions = states.iter().rev().filter(|id| self.wrote(**id, key));
        let newest = versions.next();
        newest.map_or(Cell::ABSENT, |newest| self.values[&(key.clone(), *newest)].clone())
    }

    fn wrote(&self, id: StateId, key: &CompactKey) -> bool {
        self.states.get(&id).is_some_and(|state| state.writes.contains_key(key))
    }

    /// True when one of the versions that a state shows is above all others: what every read relies on.
    pub fn is_settled(&self, id: StateId, key: &CompactKey) -> bool {
        let mut versions = self.states[&id].ancestors.iter().rev().filter(|id| self.wrote(**id, key));
        let Some(newest) = versions.next() else { return true };
        versions.all(|version| self.sees(*version, *newest))
    }

    pub fn value(&self, id: StateId, key: &CompactKey) -> Cell {
        self.value_among(&self.states[&id].ancestors, key)
    }

    pub fn sees(&self, x: StateId, y: StateId) -> bool {
        self.states[&y].ancestors.contains(&x)
    }

    /// The greatest states of a set.
    pub fn greatest(&self, of: &BTreeSet<StateId>) -> BTreeSet<StateId> {
        let below = |x: &StateId| of.iter().any(|y| x != y && self.sees(*x, *y));
        of.iter().copied().filter(|x| !below(x)).collect()
    }

    pub fn union(&self, of: &[StateId]) -> BTreeSet<StateId> {
        of.iter().flat_map(|id| self.states[id].ancestors.clone()).collect()
    }

    pub fn fork_points(&self, of: &[StateId]) -> BTreeSet<StateId> {
        let all = of.iter().map(|id| self.states[id].ancestors.clone());
        self.greatest(&all.reduce(|a, b| &a & &b).unwrap_or_default())
    }

    /// What is written between `from` and `to`: by states that `to` sees and `from` does not.
    pub fn written_between(&self, from: StateId, to: StateId) -> BTreeSet<CompactKey> {
        let between = &self.states[&to].ancestors - &self.states[&from].ancestors;
        between.iter().flat_map(|id| self.states[id].writes.keys().cloned()).collect()
    }

    pub fn conflicting(&self, heads: &[StateId]) -> BTreeSet<CompactKey> {
        let mut found = BTreeSet::new();
        for a in heads {
            for b in heads {
                found.extend(&self.written_between(*a, *b) & &self.written_between(*b, *a));
            }
        }
        found
    }
}

/// A keyspace with its model.
pub struct World {
    pub keyspace: Keyspace,
    pub model: Model,
    pub commits: Vec<Commit>,
}

impl World {
    pub fn new(mutants: Mutants) -> Self {
        World::with(Options { mutants, ..options(1) })
    }

    pub fn with(options: Options) -> Self {
        World { keyspace: Keyspace::new(options), model: Model::new(), commits: Vec::new() }
    }

    /// Takes a commit made by hand.
    pub fn apply(&mut self, commit: Commit) {
        assert_eq!(self.keyspace.apply(&commit), Ok(true), "{commit:?}");
        self.note(commit);
    }

    pub fn note(&mut self, commit: Commit) {
        self.model.add(&commit);
        self.commits.push(commit);
    }

    /// A state below these, which writes this.
    pub fn state(&mut self, number: u64, parents: &[StateId], writes: &[(&str, Box<[u8]>)]) -> StateId {
        let id = StateId::made_by(number, ProcessId(9), Incarnation(1));
        let mut writes: Vec<(CompactKey, Effects)> =
            writes.iter().map(|(name, effect)| (key(name), vec![effect.clone()])).collect();
        writes.sort_by(|a, b| a.0.cmp(&b.0));
        self.apply(Commit { id, parents: parents.to_vec(), writes });
        id
    }

    /// Runs a transaction of one session: begin, operations, commit.
    pub fn transact(
        &mut self,
        session: SessionId,
        begin: &Begin,
        operations: &[(&str, Operation<'_>)],
        end: &End,
    ) -> Result<Option<StateId>, Refusal> {
        let mut transaction = self.keyspace.begin(session, begin)?;
        for (name, operation) in operations {
            operate(&mut self.keyspace, &mut transaction, name, operation).unwrap();
        }
        self.commit(transaction, end)
    }

    pub fn commit(&mut self, transaction: Transaction, end: &End) -> Result<Option<StateId>, Refusal> {
        let commit = self.keyspace.commit(transaction, end)?;
        Ok(commit.map(|commit| {
            let id = commit.id;
            self.note(commit);
            id
        }))
    }

    /// Merges all heads automatically.
    pub fn merge(&mut self) -> Result<StateId, Refusal> {
        let commit = self.keyspace.merge(SESSION, Policy::Newest)?;
        let id = commit.id;
        self.note(commit);
        Ok(id)
    }

    pub fn text(&mut self, state: StateId, name: &str) -> String {
        text(&self.keyspace.value_at(state, &key(name)).unwrap())
    }

    /// The ids of the states that are here to stay: not of one that is being collected.
    pub fn retained(&self) -> Vec<StateId> {
        let dag = self.keyspace.dag();
        dag.states().map(|node| dag.id(node)).filter(|id| dag.open(*id).is_some()).collect()
    }

    /// The first difference between the keyspace and the model at the states that are here.
    pub fn difference(&mut self, keys: &[CompactKey]) -> Option<String> {
        let retained = self.retained();
        for x in &retained {
            for y in &retained {
                let dag = self.keyspace.dag();
                let (nx, ny) = (dag.node(*x).unwrap(), dag.node(*y).unwrap());
                if dag.sees(nx, ny) != self.model.sees(*x, *y) {
                    return Some(format!("{y} sees {x}: {}", dag.sees(nx, ny)));
                }
            }
            for key in keys {
                let (found, wanted) = (self.keyspace.value_at(*x, key).unwrap(), self.model.value(*x, key));
                if found != wanted {
                    return Some(format!("{key:?} at {x} is {}, not {}", text(&found), text(&wanted)));
                }
                if !self.model.is_settled(*x, key) {
                    return Some(format!("{key:?} has two newest versions at {x}"));
                }
            }
        }
        let heads = self.keyspace.heads();
        let found: BTreeSet<CompactKey> = self.keyspace.conflicting(&heads).unwrap().into_iter().collect();
        if found != self.model.conflicting(&heads) {
            return Some(format!("the heads conflict in {found:?}"));
        }
        let forks: BTreeSet<StateId> = self.keyspace.fork_points(&heads).unwrap().into_iter().collect();
        (forks != self.model.fork_points(&heads)).then(|| format!("the heads fork at {forks:?}"))
    }
}

pub fn options(site: u16) -> Options {
    Options { site: ProcessId(site), incarnation: Incarnation(1), ..Options::default() }
}

pub fn operate(
    keyspace: &mut Keyspace,
    transaction: &mut Transaction,
    name: &str,
    operation: &Operation<'_>,
) -> Result<ReplyBuf, Refusal> {
    let (mut reply, mut random) = (ReplyBuf::new(), Rng::with_seed(1));
    let mut context = Context { now_millis: 1000, random: &mut random, site: None };
    keyspace.operate(transaction, &key(name), (operation, false), &mut context, &mut reply)?;
    Ok(reply)
}
