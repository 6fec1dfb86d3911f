//! A `branch` keyspace at one site (TARDiS 5.1, table 2): transactions, merges, other sites' transactions, collection.
//!
//! Every call is one atomic step. A [`Commit`] that comes out is for the log and for the other sites; what other sites
//! committed comes in by [`Keyspace::apply`], parents first. [`Keyspace::collect`] is called again and again.

mod by_value;
mod checkpoint;
mod draw;
mod early;
mod handler_merge;
mod merge_in_progress;
mod merging;
mod rebase;
mod remote;

pub use by_value::ByValue;
pub use checkpoint::Piece;
pub use handler_merge::HandlerMerge;

use crate::collect::{Census, Collector, Owner};
use crate::constraint::{Begin, End, Intact};
use crate::dag::{Bounds, Dag, MissingParent, Node};
use crate::merge::Policy;
use crate::records::{LAST_PLACE, Records, place_of};
use crate::refusal::Refusal;
use crate::retained::RetainedTransactions;
use crate::ripple::{Ripple, read_state};
use crate::session::Sessions;
use crate::transaction::{Commit, Effects, Transaction};
use crate::{Effort, Ids, Keep, Mutant, Mutants, StateId};
use datatypes::{Cell, Context, Effect, Operation, key, register};
use mvcc::CompactKey;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;
use types::{Incarnation, Instant, ProcessId, ReplySink, SessionId};

/// What a keyspace is made with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// This site.
    pub site: ProcessId,
    /// How many times it has started (Corrections 57).
    pub incarnation: Incarnation,
    /// What a merge does with conflicting keys that it does not write (Corrections 55).
    pub policy: Policy,
    /// What the site retains of the past, to be read by id.
    pub keep: Keep,
    /// In how many partitions at other places records lie; 0 if they lie here.
    pub partitions: usize,
    /// The bug under test.
    pub mutants: Mutants,
}

/// See the module.
#[derive(Debug)]
pub struct Keyspace {
    dag: Dag,
    records: Records,
    ids: Ids,
    sessions: Sessions,
    collector: Collector,
    /// Transactions that other sites may lack, or whose states were collected early.
    retained: RetainedTransactions,
    /// The last merge, while a transaction is open at one of its heads.
    rebase: Option<rebase::Rebase>,
    /// The merge that is being worked out: nothing is collected meanwhile.
    underway: Option<Box<merge_in_progress::MergeInProgress>>,
    /// The checkpoint that is being taken: nothing is collected meanwhile.
    frozen: Option<checkpoint::Frozen>,
    options: Options,
}

impl Keyspace {
    /// An empty one.
    pub fn new(options: Options) -> Self {
        Keyspace {
            dag: Dag::new(options.mutants),
            records: match options.partitions {
                0 => Records::default(),
                count => Records::in_partitions(count, options.mutants),
            },
            ids: Ids::new(options.site, options.incarnation, options.mutants),
            sessions: Sessions::new(options.mutants),
            collector: Collector::new(options.keep, options.mutants),
            retained: RetainedTransactions::default(),
            rebase: None,
            underway: None,
            frozen: None,
            options,
        }
    }

    /// Has another policy, and keeps that much to be read, from now on.
    pub fn alter(&mut self, policy: Policy, keep: Keep) {
        (self.options.policy, self.options.keep) = (policy, keep);
        self.collector.keep(keep);
    }

    /// The State DAG.
    pub fn dag(&self) -> &Dag {
        &self.dag
    }

    /// The ids of the states without children, the most recent first.
    pub fn heads(&self) -> Vec<StateId> {
        self.dag.heads().map(|head| self.dag.id(head)).collect()
    }

    /// Opens a transaction on one branch.
    pub fn begin(&mut self, session: SessionId, begin: &Begin) -> Result<Transaction, Refusal> {
        if begin.wants_parent() {
            self.sessions.want_parent(&mut self.dag, session);
        }
        let position = self.sessions.position(&self.dag, session);
        let found = read_state(&self.dag, begin, &position, |node| self.may_begin(session, node));
        self.opened(session, begin, found)
    }

    /// Opens a transaction that must not write: on any state that is here, also above what this site promised.
    pub fn begin_reading(&mut self, session: SessionId, begin: &Begin) -> Result<Transaction, Refusal> {
        let position = self.sessions.position(&self.dag, session);
        let found = read_state(&self.dag, begin, &position, |node| self.dag.is_open(node));
        self.opened(session, begin, found)
    }

    fn opened(
        &mut self,
        session: SessionId,
        begin: &Begin,
        found: Option<Node>,
    ) -> Result<Transaction, Refusal> {
        match (found, begin) {
            (Some(node), _) => Ok(self.open(session, smallvec![node])),
            (None, Begin::State(id)) => Err(Refusal::UnknownState(*id)),
            (None, _) => Err(Refusal::NoReadState),
        }
    }

    fn open(&mut self, session: SessionId, from: SmallVec<[Node; 1]>) -> Transaction {
        for node in &from {
            self.dag.hold(*node);
        }
        Transaction {
            session,
            from,
            conflicting: BTreeSet::new(),
            handler: None,
            reads: BTreeSet::new(),
            reads_all: false,
            writes: std::collections::BTreeMap::new(),
            ahead: std::collections::BTreeMap::new(),
        }
    }

    /// False above what the session, or this site, promised not to begin above, and at a state on its way out.
    fn may_begin(&self, session: SessionId, node: Node) -> bool {
        let owners = [Owner::Site(self.options.site), Owner::Client(session)];
        self.dag.is_open(node) && !owners.iter().any(|owner| self.is_above(node, *owner))
    }

    /// True if the owner promised not to begin at this state.
    fn is_above(&self, node: Node, owner: Owner) -> bool {
        if self.dag.children(node).is_empty() {
            return false;
        }
        let id = self.dag.id(node);
        self.collector.ceiling(owner).iter().any(|ceiling| {
            *ceiling != id && self.dag.node(*ceiling).is_some_and(|ceiling| self.dag.sees(node, ceiling))
        })
    }

    /// The states that a transaction reads from, in ascending order.
    pub fn read_states(&self, transaction: &Transaction) -> Vec<StateId> {
        transaction.from.iter().map(|node| self.dag.id(*node)).collect()
    }

    /// Evaluates an operation; the result goes to `sink`. In a merge, a key that its branches changed independently can
    /// only be overwritten or deleted until it is resolved.
    pub fn operate(
        &mut self,
        transaction: &mut Transaction,
        key: &CompactKey,
        (operation, blind): (&Operation<'_>, bool),
        context: &mut Context<'_>,
        sink: &mut dyn ReplySink,
    ) -> Result<(), Refusal> {
        let is_open = transaction.conflicting.contains(key) && !transaction.writes.contains_key(key);
        if is_open && !replaces(operation) {
            return Err(Refusal::Unresolved { key: key.clone(), more: transaction.unresolved().count() - 1 });
        }
        let view = self.dag.view(&transaction.from);
        self.records.with(key, &view, |cell| {
            transaction.evaluate(key, cell, operation, blind, context, sink);
        });
        if is_open && !transaction.writes.contains_key(key) {
            transaction.note(key, &Effect::DELETE);
        }
        Ok(())
    }

    /// Visits the keys that a transaction sees from a place on, its own included, until about `count` have been named;
    /// returns the place to go on at, 0 at the end. All of the keyspace counts as read (Corrections 78).
    pub fn visit(
        &mut self,
        transaction: &mut Transaction,
        from: u64,
        count: usize,
        now_millis: u64,
        mut each: impl FnMut(&CompactKey),
    ) -> u64 {
        transaction.reads_all = true;
        let keys: Vec<(u64, CompactKey)> = self.places(transaction, from, count);
        let (view, mut named, mut last) = (self.dag.view(&transaction.from), 0, 0);
        for (place, key) in &keys {
            if named >= count && *place != last {
                return *place;
            }
            last = *place;
            if self.records.with(key, &view, |cell| transaction.has(key, cell, now_millis)) {
                each(key);
                named += 1;
            }
        }
        match keys.len() < count || last == LAST_PLACE {
            true => 0,
            false => last + 1,
        }
    }

    /// The next keys from a place on that have a version or that the transaction wrote: those of one place together.
    fn places(&self, transaction: &Transaction, from: u64, count: usize) -> Vec<(u64, CompactKey)> {
        let own =
            transaction.writes.keys().map(|key| (place_of(key), key)).filter(|(place, _)| *place >= from);
        let mut keys: Vec<(u64, CompactKey)> = Vec::new();
        for (place, key) in self.records.keys_from(from) {
            if keys.len() >= count && keys.last().is_some_and(|(last, _)| *last != place) {
                break;
            }
            keys.push((place, key.clone()));
        }
        let end =
            if keys.len() < count { u64::MAX } else { keys.last().map_or(u64::MAX, |(place, _)| *place) };
        keys.extend(own.filter(|(place, _)| *place <= end).map(|(place, key)| (place, key.clone())));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The value of a key at a state (`getForID`).
    pub fn value_at(&mut self, state: StateId, key: &CompactKey) -> Result<Cell, Refusal> {
        let node = self.dag.open(state).ok_or(Refusal::UnknownState(state))?;
        Ok(self.records.cell(key, &self.dag.view(&[node])))
    }

    fn nodes(&self, states: &[StateId]) -> Result<Vec<Node>, Refusal> {
        states.iter().map(|id| self.dag.open(*id).ok_or(Refusal::UnknownState(*id))).collect()
    }

    /// Commits: below the last state that the end constraint admits, or for a merge below its read states, each of
    /// which it has to admit. Test and append are one step (Corrections 52). A transaction without effects makes no
    /// state. A refused one is over.
    pub fn commit(&mut self, mut transaction: Transaction, end: &End) -> Result<Option<Commit>, Refusal> {
        if transaction.is_merge() && self.options.policy != Policy::Refuse {
            self.resolve_all(&mut transaction, self.options.policy);
        }
        let commit = self.choose(&transaction, end);
        let session = transaction.session;
        self.abort(transaction);
        let Some(commit) = commit? else { return Ok(None) };
        let node = self.append(&commit).map_err(|MissingParent(id)| Refusal::UnknownState(id))?;
        self.sessions.has_committed(&mut self.dag, session, node);
        Ok(Some(commit))
    }

    /// What the transaction commits, if it may.
    fn choose(&mut self, transaction: &Transaction, end: &End) -> Result<Option<Commit>, Refusal> {
        let position = self.sessions.position(&self.dag, transaction.session);
        let writes: Vec<(CompactKey, Effects)> =
            transaction.writes.iter().map(|(key, (effects, _))| (key.clone(), effects.clone())).collect();
        if let [from] = &transaction.from[..] {
            if writes.is_empty() {
                return Ok(None);
            }
            let sees_same = |key: &CompactKey, node: Node| {
                self.records.is_seen_too(key, &self.dag.view(&[node]), &self.dag.view(&[*from]))
            };
            let ripple = Ripple {
                dag: &self.dag,
                end,
                session: &position,
                reads: &transaction.reads,
                read_sketch: transaction.reads.iter().collect(),
                reads_all: transaction.reads_all,
                writes: &transaction.write_set(),
                sees_same: (!self.is_parted()).then_some(&sees_same),
                mutants: self.options.mutants,
            };
            let parent = ripple.commit_state(*from).ok_or(Refusal::NoCommitState)?;
            let parents = vec![self.dag.id(parent)];
            return Ok(Some(Commit { id: self.ids.next(&parents), parents, writes }));
        }
        if !self.options.mutants.has(Mutant::LeaveConflicts) {
            transaction.check_resolved()?;
        }
        if !transaction.from.iter().all(|node| end.admits(&self.dag, &position, *node, Intact::ALL)) {
            return Err(Refusal::NoCommitState);
        }
        let parents = self.read_states(transaction);
        let id = if self.options.mutants.has(Mutant::MergeIdsBySite) {
            self.ids.next(&parents)
        } else {
            let encoded: Vec<(&CompactKey, Vec<u8>)> = writes
                .iter()
                .map(|(key, effects)| {
                    let mut bytes = Vec::new();
                    types::Wire::encode(effects, &mut bytes);
                    (key, bytes)
                })
                .collect();
            StateId::of_merge(
                &parents,
                transaction.handler,
                encoded.iter().map(|(key, effects)| (&***key, &effects[..])),
            )
        };
        Ok(Some(Commit { id, parents, writes }))
    }

    /// Gives a transaction up. What it read it has read.
    pub fn abort(&mut self, transaction: Transaction) {
        let has_read = transaction.reads_all || !transaction.reads.is_empty();
        if let ([from], true) = (&transaction.from[..], has_read) {
            self.sessions.has_read(&self.dag, transaction.session, *from);
        }
        for node in transaction.from {
            self.dag.release(node);
        }
        self.collector.wake();
    }

    /// Takes what another site committed, or the log. Returns false if the state is here already. A parent that was
    /// collected early is made anew. Refuses a commit whose parents are not here otherwise: the site retains it until
    /// they come (TARDiS 6.4).
    pub fn apply(&mut self, commit: &Commit) -> Result<bool, MissingParent> {
        if self.dag.node(commit.id).is_some() {
            return Ok(false);
        }
        debug_assert_ne!(
            self.merging_to(),
            Some(commit.id),
            "a merge is complete before it comes from elsewhere"
        );
        if self.options.mutants.has(Mutant::ForwardParents) {
            let heir = |id: &StateId| {
                let promoted = self.sessions.find(&self.dag, *id).map(|node| self.dag.id(node));
                promoted.or_else(|| self.retained.heir(*id)).unwrap_or(*id)
            };
            let mut parents: Vec<StateId> = commit.parents.iter().map(heir).collect();
            parents.retain(|parent| *parent < commit.id);
            let commit = Commit { parents, ..commit.clone() };
            return self.append(&commit).map(|_| true);
        }
        self.have_parents(&commit.parents)?;
        self.append(commit).map(|_| true)
    }

    /// Makes those of the parents anew that were collected early.
    fn have_parents(&mut self, parents: &[StateId]) -> Result<(), MissingParent> {
        parents.iter().try_for_each(|parent| self.bring_back(*parent).map(|_| ()))
    }

    fn settle(&mut self) {
        self.collector.settle((&mut self.dag, &mut self.records), &mut self.sessions, &mut self.retained);
    }

    fn append(&mut self, commit: &Commit) -> Result<Node, MissingParent> {
        if let Some(node) = self.dag.node(commit.id) {
            return Ok(node);
        }
        let node = self.dag.insert(commit.id, &commit.parents, commit.write_set())?;
        let parents: SmallVec<[Node; 1]> = self.dag.parents(node).into();
        let (view, label) = (self.dag.view(&parents).gathered(), self.dag.versions(node));
        self.records.write_all(&view, label, commit.id, &commit.writes);
        self.collector.wake();
        Ok(node)
    }

    /// A session is over.
    pub fn close(&mut self, session: SessionId) {
        self.sessions.close(&mut self.dag, session);
        self.collector.lift(Owner::Client(session));
    }

    /// An owner promises not to begin at an ancestor of these states (TARDiS 6.3); they replace its earlier ones. An
    /// other site that may build on this one's states is named with the root from the beginning.
    pub fn place_ceiling(&mut self, owner: Owner, states: Vec<StateId>) {
        self.collector.place(owner, states);
    }

    /// The owner is gone for good: a client, or a site that was evicted.
    pub fn lift_ceiling(&mut self, owner: Owner) {
        self.collector.lift(owner);
    }

    /// What this site promises to the others from now on: to begin nothing above these states, which stay until the
    /// next promise. They are its heads, its clients' ceilings, and what is read or held now; but not what is only read or named
    /// although it was promised away: a promise is never taken back.
    pub fn announce_ceiling(&mut self) -> Vec<StateId> {
        let own = Owner::Site(self.options.site);
        self.forget_merge();
        // Heads see no other, and nobody sees them.
        let mut held = self.dag.held();
        held.extend(self.collector.clients().flatten().filter_map(|id| self.dag.node(*id)));
        held.retain(|node| !self.dag.children(*node).is_empty());
        if !held.is_empty() {
            let promised = self.collector.above(&self.dag, own);
            held.retain(|node| !self.dag.is_among(*node, &promised));
        }
        let heads: Vec<Node> = self.dag.heads().collect();
        let mut least =
            [self.dag.that_see_none(&heads, &held), self.dag.that_see_none(&held, &held)].concat();
        // What was promised stays promised, though of the heads below it each sees something that is held.
        let seen = self.dag.seen_together(&least);
        let before = self.collector.ceiling(own).iter().filter_map(|id| self.dag.node(*id));
        least.extend(before.filter(|node| !self.dag.is_among(*node, &seen)));
        let mut ceiling: Vec<StateId> = least.into_iter().map(|node| self.dag.id(node)).collect();
        ceiling.sort_unstable();
        if self.collector.ceiling(own) != ceiling {
            self.collector.place(own, ceiling.clone());
        }
        ceiling
    }

    /// True while nothing that is here may go, and nothing that went may come back.
    fn stands_still(&self) -> bool {
        self.frozen.is_some() || self.underway.is_some()
    }

    /// Collects for up to about `budget` units of work; returns how many it did, 0 when there is nothing to do.
    pub fn collect(&mut self, budget: usize) -> usize {
        if self.stands_still() {
            return 0;
        }
        self.collector.step(
            (&mut self.dag, &mut self.records),
            &mut self.sessions,
            &mut self.retained,
            budget,
        )
    }

    /// Advances the time: what is retained by age may go.
    pub fn tell_time(&mut self, now: Instant) {
        self.collector.tell_time(&self.dag, now);
    }

    /// True if collection has just begun to look for what goes.
    pub fn sets_out_to_collect(&self) -> bool {
        self.collector.is_ruling()
    }

    /// How much was collected ever, in keys and states: looking alone does not count.
    pub fn collected(&self) -> u64 {
        self.collector.done()
    }

    /// The states that were collected since the last call.
    pub fn take_collected(&mut self) -> Vec<StateId> {
        self.collector.take_collected()
    }

    /// How much there is of everything.
    pub fn census(&self) -> Census {
        Census {
            states: self.dag.len(),
            heads: self.dag.heads().count(),
            branches: self.dag.branches(),
            keys: self.records.len(),
            versions: self.records.versions(),
            promotions: self.sessions.promotions(),
            early: self.retained.early_len(),
            ceilings: self.collector.clients().count(),
            memory: self.dag.memory() + self.records.memory(),
        }
    }

    /// How much was done since it was made.
    pub fn effort(&self) -> Effort {
        self.dag.meter().read()
    }

    /// The id of the newest version of a key that these states see.
    pub fn newest(&self, transaction: &Transaction, key: &CompactKey) -> Option<StateId> {
        self.records.newest(key, &self.dag.view(&transaction.from))
    }

    /// Shows what a transaction's read states hold of a key, without its own writes, and without noting that it was
    /// read.
    pub fn peek<R>(
        &mut self,
        transaction: &Transaction,
        key: &CompactKey,
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        self.records.with(key, &self.dag.view(&transaction.from), |cell| read(cell))
    }

    /// True if the states see this one, also if it was collected early.
    pub fn is_seen(&self, state: StateId, by: &[StateId]) -> bool {
        let Some(node) = self.here_or_early(state) else { return false };
        by.iter().filter_map(|id| self.dag.node(*id)).any(|by| self.dag.sees(node, by))
    }

    /// What these states see, for many lookups.
    pub(crate) fn seen_by(&self, states: &[StateId]) -> Bounds {
        let nodes: Vec<Node> = states.iter().filter_map(|id| self.dag.node(*id)).collect();
        self.dag.seen_together(&nodes)
    }

    /// True if this state is among them, also if it was collected early.
    pub(crate) fn is_among(&self, state: StateId, seen: &Bounds) -> bool {
        self.here_or_early(state).is_some_and(|node| self.dag.is_among(node, seen))
    }

    /// The states, in ascending order, that one who has what these see lacks.
    pub fn lacking(&self, known: &[StateId]) -> Vec<StateId> {
        // Of a state that was collected early here, what it sees is known too.
        let (early, parents) = self.retained.lines(known.iter().copied());
        let known: BTreeSet<StateId> = known.iter().copied().chain(early).chain(parents).collect();
        let nodes: Vec<Node> = known.iter().filter_map(|id| self.dag.node(*id)).collect();
        let heads: Vec<Node> = self.dag.heads().collect();
        let mut lacking: BTreeSet<StateId> =
            self.dag.beyond(&heads, &nodes).iter().map(|node| self.dag.id(*node)).collect();
        lacking.remove(&self.dag.id(self.dag.root()));
        let is_borne = |id: &StateId| self.retained.heir(*id).is_some_and(|heir| lacking.contains(&heir));
        let early: Vec<StateId> = self.retained.early().filter(is_borne).collect();
        lacking.extend(early);
        (&lacking - &known).into_iter().collect()
    }

    /// Up to `count` states that these see, the most recent first.
    ///
    /// # Errors
    /// One of them is not here.
    pub fn history(&self, from: &[StateId], count: usize) -> Result<Vec<StateId>, Refusal> {
        let from = self.nodes(from)?;
        let mut states = Vec::new();
        self.dag.ascend(&from, |node| {
            if states.len() < count {
                states.push(self.dag.id(node));
            }
            states.len() < count
        });
        Ok(states)
    }

    /// The keys that a state and the states collected into it wrote.
    ///
    /// # Errors
    /// It is not here.
    pub fn written(&self, state: StateId) -> Result<Vec<CompactKey>, Refusal> {
        let node = self.dag.open(state).ok_or(Refusal::UnknownState(state))?;
        Ok(self.dag.writes(node).iter().map(|(key, _)| key.clone()).collect())
    }

    /// The keys written by what one state sees and another does not.
    ///
    /// # Errors
    /// One of them is not here.
    pub fn written_beyond(&self, of: StateId, but: StateId) -> Result<Vec<CompactKey>, Refusal> {
        let beyond = self.dag.beyond(&self.nodes(&[of])?, &self.nodes(&[but])?);
        let written =
            beyond.iter().flat_map(|node| self.dag.writes(*node).iter().map(|(key, _)| key.clone()));
        let written: BTreeSet<CompactKey> = written.collect();
        Ok(written.into_iter().collect())
    }

    /// What an owner promised.
    pub fn ceiling(&self, owner: Owner) -> &[StateId] {
        self.collector.ceiling(owner)
    }

    /// The transaction counts as having read a key.
    pub fn note_read(&self, transaction: &mut Transaction, key: &CompactKey) {
        transaction.reads.insert(key.clone());
    }

    /// A session stands where another one does: what one has read and committed, the other has too.
    pub fn stand_with(&mut self, session: SessionId, other: SessionId) {
        self.sessions.stand_with(session, other);
    }

    /// What a session committed last, or the state that took its identity.
    pub fn committed(&self, session: SessionId) -> Option<StateId> {
        let node = self.sessions.position(&self.dag, session).committed?;
        Some(self.dag.id(node))
    }

    /// What a session read last, or the state that took its identity.
    pub fn last_read(&self, session: SessionId) -> Option<StateId> {
        let node = self.sessions.position(&self.dag, session).read?;
        Some(self.dag.id(node))
    }

    /// The state, or the one that took its identity.
    pub fn heir_of(&self, state: StateId) -> Option<StateId> {
        self.sessions.find(&self.dag, state).map(|node| self.dag.id(node))
    }

    /// The transaction's session counts as having read from its read state, already while the transaction is open.
    pub fn note_standing(&mut self, transaction: &Transaction) {
        if let [from] = &transaction.from[..] {
            self.sessions.has_read(&self.dag, transaction.session, *from);
        }
    }

    /// A session read from this state in an earlier life of the site.
    pub fn has_read(&mut self, session: SessionId, state: StateId) {
        if let Some(node) = self.here_or_early(state) {
            self.sessions.has_read(&self.dag, session, node);
        }
    }

    /// A session committed this state in an earlier life of the site; if that was collected early, it counts as having read the
    /// state that bears it. False if neither is here.
    pub fn has_committed(&mut self, session: SessionId, state: StateId) -> bool {
        match (self.dag.node(state), self.here_or_early(state)) {
            (Some(node), _) => self.sessions.has_committed(&mut self.dag, session, node),
            (None, Some(heir)) => self.sessions.has_read(&self.dag, session, heir),
            (None, None) => return false,
        }
        true
    }

    /// The state, or the one that bears it if it was collected early.
    fn here_or_early(&self, state: StateId) -> Option<Node> {
        self.dag.node(state).or_else(|| self.dag.node(self.retained.heir(state)?))
    }

    /// How many lookups it takes to read a key at a state.
    pub fn lookups(&self, state: StateId, key: &CompactKey) -> usize {
        self.dag.node(state).map_or(0, |node| self.records.lookups(key, &self.dag.view(&[node])))
    }

    /// The keys that have a version, in ascending order.
    pub fn keys(&self) -> impl Iterator<Item = &CompactKey> {
        self.records.keys()
    }

    /// Panics unless everything fits together.
    pub fn assert_consistent(&self) {
        self.records.assert_consistent();
    }
}

/// True when the operation leaves nothing of what was there.
fn replaces(operation: &Operation<'_>) -> bool {
    use register::{Condition, SetReply};
    match operation {
        Operation::Key(key::Operation::Delete | key::Operation::Restore(_)) => true,
        Operation::Register(register::Operation::Set { condition, reply, deadline, .. }) => {
            *condition == Condition::Always
                && *reply == SetReply::Status
                && *deadline != register::Deadline::Keep
        }
        _ => false,
    }
}
