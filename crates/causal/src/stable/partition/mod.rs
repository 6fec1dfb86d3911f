//! A replica of a partition: the paper's server without its coordinator half (Wren, Algorithms 6 and 7).
//!
//! `slices` reads, `prepare` and `decide` are the participant of the two-phase commit, `replicate` applies and
//! exchanges effects and heartbeats with the other regions, `stabilize` finds the stable times and the horizon,
//! `recover` is the log and the checkpoint, `state_transfer` takes from the peers what is missing and gives what they miss,
//! `outcome_query` finds out what a decider has forgotten, `evict` goes on without regions that are gone for good, `agreement` is how
//! the survivors agree on what counts of them, `spool` moves what waits long for other regions out of the memory,
//! `copies` is what a partition does that has copies in several processes of its region, `expire` deletes what is
//! overdue, `losses` tells what concurrent writes cost others, `wait` holds back reads of what is not installed,
//! `optimistic` is the freshest state that a partition has, `logged` what it answers while the log refuses records.

mod agreement;
mod copies;
mod decide;
mod draw;
mod evict;
mod expire;
mod logged;
mod losses;
#[cfg(debug_assertions)]
mod mutants;
mod optimistic;
mod outcome_query;
mod prepare;
mod recover;
mod replicate;
mod slices;
mod spool;
mod stabilize;
mod state_transfer;
mod wait;

pub(crate) use expire::{NOBODY, Round, is_nobodys};
pub(crate) use logged::why_unlogged;
pub(crate) use losses::{LossList, Settlement, settle, tell_losses};
pub(crate) use recover::{CHUNK_BYTES, ContextRestore, RetainedEffects, tell_keys};
pub(crate) use replicate::{PACKED, long_before};
pub(crate) use slices::{Evaluation, OverlaidState, count_or_scan};

use super::intent::WriteIntent;
use super::message::{EvaluationResults, KeyEffects, Message};
use super::record::{Effects, Record};
use super::setup::{Options, Topology};
use super::stamp::Stamp;
use super::{Mutant, Node, Timer, Times, intent, stamp};
use crate::stable::commit::{Decisions, Participant};
use datatypes::{Effect, key};
use evict::Evictions;
use expire::Expiry;
use logged::{Logged, Recorded};
use mvcc::{DeferredDrop, LossOptions, Store};
use outcome_query::PendingOutcomeQuery;
use protocol::hosted::Holdings;
use protocol::{Input, Now, Outputs};
use replication::transfer::Giver;
use replication::{Link, Outbox};
use stabilize::{Lease, Leases, Tree};
use state_transfer::{PeerHoldings, StateTransfer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use types::{Address, Error, HybridClock, Instant, NodeId, RegionId, Rng, Timestamp, TransactionId};
use wait::Waiting;

/// Whether it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Its log is being read.
    Recovering,
    /// It serves.
    Serving,
    /// Its log lacks records that it had relied on: it takes them from its peers before it votes, stamps or serves
    /// (Corrections 67).
    CatchingUp,
}

/// A participant's state of a prepared transaction.
#[derive(Debug)]
struct Pending<D> {
    depends_on: D,
    decider: Address,
    intents: Vec<WriteIntent>,
    /// What evaluating it gave, to answer a repeated `Prepare`.
    results: EvaluationResults,
    /// Since when it waits for its decision.
    since: Instant,
    /// Its decider has forgotten it and queries the outcome: no other process's decision counts.
    fenced: bool,
}

/// What became of a transaction here.
#[derive(Debug)]
struct Decided {
    /// Its place, if it committed.
    at: Option<Timestamp>,
    /// True if another participant may ask: this is the decider of several.
    outlives: bool,
    /// What a repeated `Prepare` of its only participant is answered.
    results: EvaluationResults,
}

/// What has arrived from another region.
#[derive(Debug, Default)]
struct Origin {
    /// Everything up to here: the paper's entry of the version vector.
    up_to: Timestamp,
    /// And these transactions above.
    above: BTreeSet<(Timestamp, TransactionId)>,
    /// What is vouched for to the region: as much, but in long steps while that is far behind.
    vouched: Timestamp,
}

/// A transaction of this region on its way to the others.
#[derive(Debug)]
struct Outgoing<D> {
    depends_on: D,
    effects: Vec<KeyEffects>,
}

/// See the module.
pub struct Partition<S: Times> {
    topology: Topology,
    region: RegionId,
    index: u16,
    options: Options,
    status: Status,
    clock: HybridClock,
    store: Store<Stamp<S::Depends>>,
    participant: Participant<Pending<S::Depends>, Outgoing<S::Depends>>,
    /// Which undecided transactions hold a key.
    held: BTreeMap<Box<[u8]>, BTreeSet<TransactionId>>,
    decisions: Decisions<Decided>,
    origins: BTreeMap<RegionId, Origin>,
    links: BTreeMap<RegionId, Link>,
    outbox: Outbox<Outgoing<S::Depends>>,
    /// Everything of this region up to here is applied: the paper's own entry of the version vector.
    installed: Timestamp,
    promised: Timestamp,
    logged: Logged<S::Depends>,
    /// The newest stable times that it knows.
    stable: S,
    /// The oldest snapshot that can still be read.
    horizon: S,
    /// The remote time of the oldest snapshot that a coordinator of the region may still write with.
    oldest: Timestamp,
    /// The log promises that what is prepared from now on has observed the other regions up to here.
    promised_dependencies: Timestamp,
    /// Every effect to come has observed everything up to here.
    stability_frontier: Timestamp,
    /// What each other region said that its effects to come have observed.
    observed_by: BTreeMap<RegionId, Timestamp>,
    leases: Leases<S>,
    /// Its part of the region's stabilization tree.
    tree: Tree<S>,
    /// Its neighbours in the tree.
    neighbours: BTreeMap<Address, Link>,
    /// The horizon stays while a checkpoint is taken.
    checkpointing: bool,
    /// And while another copy takes the state.
    lent: bool,
    /// And while peers take the state.
    giver: Giver<NodeId>,
    /// The state transfer in progress.
    state_transfer: Option<Box<StateTransfer<S::Depends>>>,
    /// How often a state transfer began.
    transfers: u64,
    /// Peers that lost records too: this replica answers them once it knows what its region has heard of it.
    deferred_queries: Vec<NodeId>,
    /// The log tells of gaps, and no checkpoint of what filled them.
    gaps: bool,
    /// Once it had gaps: what it does not know may have been.
    forgetful: bool,
    /// Above every local stable time announced before the state transfer ended: the partition refuses requests from
    /// before it.
    fence: Timestamp,
    outcome_queries: BTreeMap<TransactionId, PendingOutcomeQuery>,
    /// Regions that are gone for good.
    evictions: Evictions,
    expiry: Expiry,
    /// Snapshots up to here have been read since the log confirmed that this copy leads.
    vouched: S,
    /// What has committed since the last call; see [`super::Options::claims`].
    decided: Vec<(Stamp<S::Depends>, Vec<KeyEffects>)>,
    /// Transactions that ended with an evicted region since the last call: no survivor had any effect of them; see
    /// [`super::Options::claims`].
    abandoned: Vec<TransactionId>,
    /// The peers that this life did not ask, because the operator accepted a loss.
    without: Vec<String>,
    waiting: Waiting<S>,
    /// A store that was replaced, to be freed in pieces.
    deferred_drop: Option<DeferredDrop<Stamp<S::Depends>>>,
}

/// What it will do follows from this and from what a checkpoint tells, but for streams and transfers under way: models compare
/// states by it.
impl<S: Times> fmt::Debug for Partition<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resumed = self.links.iter().filter(|(_, link)| link.is_resumed());
        let resumed: Vec<RegionId> = resumed.map(|(region, _)| *region).collect();
        f.debug_struct("Partition")
            .field("region", &self.region)
            .field("index", &self.index)
            .field("status", &self.status)
            .field("clock", &self.clock)
            .field("installed", &self.installed)
            .field("promised", &self.promised)
            .field("origins", &self.origins)
            .field("stable", &self.stable)
            .field("horizon", &self.horizon)
            .field("participant", &self.participant)
            .field("held", &self.held)
            .field("decisions", &self.decisions)
            .field("resumed", &resumed)
            .field("outbox", &self.outbox)
            .field(
                "dependencies",
                &(self.oldest, self.promised_dependencies, self.stability_frontier, &self.observed_by),
            )
            .field("leases", &self.leases)
            .field("tree", &self.tree)
            .field("state_transfer", &self.state_transfer)
            .finish_non_exhaustive()
    }
}

impl<S: Times> Partition<S> {
    /// An empty replica. Its first inputs are those of recovery.
    pub(super) fn new(topology: Topology, region: RegionId, index: u16, options: Options) -> Self {
        let peers = topology.holders(index).map(|(holder, _)| holder);
        let others: Vec<RegionId> = peers.filter(|holder| *holder != region).collect();
        let tree = Tree::of(&topology, region, index, &options);
        let mut store = new_store::<S>(&topology, &options);
        store.set_horizon(Some(Stamp::default()));
        Partition {
            region,
            index,
            options,
            status: Status::Recovering,
            clock: HybridClock::new(options.clock_bound),
            store,
            participant: Participant::default(),
            held: BTreeMap::new(),
            decisions: Decisions::default(),
            origins: others.iter().map(|other| (*other, Origin::default())).collect(),
            links: others.iter().map(|other| (*other, Link::default())).collect(),
            outbox: spool::outbox(others, &options),
            installed: Timestamp::ZERO,
            promised: Timestamp::ZERO,
            logged: Logged::default(),
            stable: S::default(),
            horizon: S::default(),
            oldest: Timestamp::ZERO,
            promised_dependencies: Timestamp::ZERO,
            stability_frontier: Timestamp::ZERO,
            observed_by: BTreeMap::new(),
            leases: Leases::default(),
            neighbours: tree.neighbours().map(|address| (address, Link::default())).collect(),
            tree,
            checkpointing: false,
            lent: false,
            vouched: S::default(),
            giver: Giver::default(),
            state_transfer: None,
            transfers: 0,
            deferred_queries: Vec::new(),
            gaps: false,
            forgetful: false,
            fence: Timestamp::ZERO,
            outcome_queries: BTreeMap::new(),
            evictions: Evictions::new(&options),
            expiry: Expiry::default(),
            decided: Vec::new(),
            abandoned: Vec::new(),
            without: Vec::new(),
            waiting: Waiting::default(),
            deferred_drop: None,
            topology,
        }
    }

    /// Its number.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The stable times that it knows.
    pub fn stable(&self) -> S {
        self.stable
    }

    /// The oldest snapshot that can still be read; what only older ones need is forgotten.
    pub fn horizon(&self) -> S {
        self.horizon
    }

    /// How many transactions wait for their decision here.
    pub fn undecided(&self) -> usize {
        self.participant.undecided().count()
    }

    /// How many of its transactions some other region may lack.
    pub fn unreceived(&self) -> usize {
        self.outbox.len()
    }

    /// About how many bytes of memory it keeps for regions that lack them.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// What it holds, the queues for other regions included.
    pub fn holdings(&self) -> Holdings {
        let (keys, deadlines) = (self.store.living(), self.store.dated());
        let memory = self.store.memory() + self.queued_bytes();
        Holdings { keys, deadlines, memory, ..Holdings::default() }
    }

    /// How many bytes it keeps for them in its spool.
    pub fn spilled_bytes(&self) -> u64 {
        self.outbox.spilled_bytes()
    }

    /// How often in this life it has begun to take from its peers what they have no queue of any more, or what it lost.
    pub fn transfers(&self) -> u64 {
        self.transfers
    }

    /// The other regions' names, each with the time up to which everything of it has arrived.
    pub fn received_of_regions(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        self.origins.iter().map(|(region, origin)| (self.topology.name(*region), origin.up_to))
    }

    /// True once it serves: nothing is missing any more, or what is has been given up.
    pub fn is_serving(&self) -> bool {
        self.status == Status::Serving
    }

    /// Who did not answer when it took what it had lost, and what only they knew was given up (Corrections 84).
    pub fn went_on_without(&self) -> &[String] {
        &self.without
    }

    /// True while nobody but itself may know of a transaction that it has a part in.
    pub fn is_indispensable(&self) -> bool {
        self.status != Status::Serving
            || self.undecided() > 0
            || self.participant.waiting().next().is_some()
            || !self.outbox.is_empty()
    }

    pub(super) fn take_decided(&mut self) -> Vec<(Stamp<S::Depends>, Vec<KeyEffects>)> {
        std::mem::take(&mut self.decided)
    }

    pub(super) fn take_abandoned(&mut self) -> Vec<TransactionId> {
        std::mem::take(&mut self.abandoned)
    }

    /// How many effects on a key the store retains only because an effect yet to come may not have observed them.
    pub fn unobserved(&self, key: &[u8]) -> usize {
        self.store.context(self.store.hash(key), key).count()
    }

    /// What it keeps of a key above its horizon, in order: for measurements.
    pub fn versions(&self, key: &[u8]) -> impl DoubleEndedIterator<Item = (Stamp<S::Depends>, Effect<'_>)> {
        self.store.effects_beyond(self.store.hash(key), key, None)
    }

    /// How many keys it holds, those included whose deadline has passed and that are not deleted yet.
    pub fn held_keys(&self) -> usize {
        self.store.len()
    }

    /// How many decisions it remembers.
    pub fn remembered(&self) -> usize {
        self.decisions.len()
    }

    pub(super) fn step_one(
        &mut self,
        now: Now,
        input: Input<'_, Node<S>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        match input {
            Input::Snapshot(chunk) => {
                let outcome = self.recover_chunk(chunk);
                debug_assert!(outcome.is_ok(), "checkpoints are checksummed");
            }
            Input::Recover(record) => {
                let outcome = self.recover(record);
                debug_assert!(outcome.is_ok(), "log records are checksummed");
            }
            Input::Recovered { complete } => self.on_recovered(now, complete, random, out),
            Input::Request { id, .. } => out.reply(id).error(&Error::err("requests go to a coordinator")),
            _ if self.status == Status::Recovering => {}
            Input::Timer(_) if self.is_evicted() => {}
            Input::Message { from, message } => self.on_message(now, from, message, random, out),
            Input::PeerStarted { peer } => self.on_peer_started(peer, out),
            Input::Timer(Timer::Apply) => self.on_apply(now, out),
            Input::Timer(Timer::Doubt) => self.on_doubt(now, out),
            Input::Timer(Timer::StateTransfer) => self.on_state_transfer(now, random, out),
            Input::Timer(Timer::StartTx | Timer::Retry(_) | Timer::Waiting) => {}
        }
        self.go_on_waiting(now, random, out);
    }

    fn on_message(
        &mut self,
        now: Now,
        from: NodeId,
        message: Message<S>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if self.is_evicted() {
            return self.refuse(from, &message, out);
        }
        if self.is_of_lost(from.address()) {
            return out.send(from.address(), self.lost_regions_message());
        }
        self.confirm(&message, out);
        match message {
            Message::HoldingsQuery => self.on_holdings_query(now, from, out),
            Message::HoldingsReply { horizon, held, highest, observed } => {
                let reported = PeerHoldings { horizon, held, highest, observed };
                self.on_holdings_reply(now, from.address(), reported, random, out);
            }
            Message::Ask { ask, above } => self.on_ask(now, from, ask, above, out),
            Message::Piece { piece, horizon } => {
                self.on_piece(now, from.address(), &piece, horizon, random, out);
            }
            Message::Commit { id, at } => self.on_commit(from.address(), id, at, out),
            Message::Abort { id } if self.is_left_to_survivors(id) => {}
            Message::Abort { id } => self.on_abort(id, out),
            Message::Received { up_to } => self.on_received(from.address(), up_to, out),
            Message::Evict { regions } => self.on_evict(now, regions.into_iter(), random, out),
            message @ (Message::Standing { .. }
            | Message::Agreement { .. }
            | Message::SurvivorOutcomeQuery { .. }
            | Message::SurvivorOutcomeReply { .. }) => {
                self.on_accord_message(now, from, message, random, out)
            }
            // A report that is left out is not repeated until it is answered.
            Message::StableReport { installed, oldest, fastest } => {
                self.on_stable_report(now, from.address(), (installed, oldest), fastest, out);
            }
            message if self.status == Status::CatchingUp => self.refuse(from, &message, out),
            Message::StartTx { stable, oldest, gone, subscribes } => {
                self.on_start_tx(from.address(), stable, Lease::new(now, oldest, gone, subscribes), out);
            }
            Message::SliceReq { .. } => self.on_slice_req(now, from.address(), message, random, out),
            Message::Prepare { .. } => self.on_prepare(now, from.address(), message, random, out),
            Message::Query { id } => self.on_query(from.address(), id, out),
            Message::OutcomeQuery { id } => self.on_outcome_query(from.address(), id, out),
            Message::OutcomeReply { id, at } => self.on_outcome_reply(from.address(), id, at, out),
            Message::TransferRequired => self.on_transfer_required(now, from.address(), out),
            Message::Replicate { origin, id, at, depends_on, effects } => {
                self.on_replicate(origin, id, at, depends_on, effects, out);
            }
            Message::Heartbeat { origin, at, received, observed } => {
                self.on_heartbeat(now, origin, at, received, observed, out);
            }
            Message::StableTime { stable, oldest, fastest } => {
                self.follow(now, fastest);
                self.on_stable_time(now, from.address(), stable, oldest, out);
            }
            Message::StartTxResp { .. }
            | Message::SliceResp { .. }
            | Message::PrepareResp { .. }
            | Message::CommitResp { .. }
            | Message::Lost { .. } => {}
        }
    }

    /// Where it is itself.
    fn address(&self) -> Address {
        self.topology.address(self.region, self.index)
    }

    /// True for another region's replica of the same partition.
    fn is_peer(&self, address: Address) -> bool {
        self.topology
            .locate(address)
            .is_some_and(|(region, index)| region != self.region && index == self.index)
    }

    /// The other partitions of its region.
    fn mates(&self) -> impl Iterator<Item = Address> {
        self.topology.held(self.region).filter(|(index, _)| *index != self.index).map(|(_, address)| address)
    }

    /// Makes a transaction's effects known to readers whose snapshot shows them. What the cells hold already, from a
    /// checkpoint or from a peer, is left out.
    fn store_effects(&mut self, stamp: Stamp<S::Depends>, effects: &[KeyEffects]) {
        self.stage_effects(stamp, effects);
        self.note_recorded(Recorded::Effects(stamp));
        if stamp <= Stamp::last_at(self.horizon.whole()) {
            return;
        }
        for of_key in effects {
            let hash = self.store.hash(&of_key.key);
            if self.store.has_effect(hash, &of_key.key, stamp) {
                continue;
            }
            for effect in of_key.effects.iter().filter_map(|bytes| intent::effect(bytes)) {
                let settles = matches!(effect, Effect::Key(key::Effect::Resolve { .. }));
                if settles && stamp.region != self.region && self.options.mutants.has(Mutant::SettledHereOnly)
                {
                    continue;
                }
                self.store.commit(hash, &of_key.key, stamp, &effect);
            }
        }
    }

    fn stamp(&self, id: TransactionId, at: Timestamp, depends_on: S::Depends) -> Stamp<S::Depends> {
        Stamp { at, transaction: id, region: self.region, depends_on }
    }

    /// Commits a transaction of this region that is in no queue: makes its effects known and queues it for the other
    /// regions.
    fn commit_effects(&mut self, stamp: Stamp<S::Depends>, effects: Vec<KeyEffects>) {
        if S::OPTIMISTIC && self.evictions.gives_up::<S>(&stamp) {
            effects.iter().for_each(|of_key| self.evictions.note_dependant(stamp.at, &of_key.key));
            return;
        }
        self.store_effects(stamp, &effects);
        if self.options.claims && !effects.is_empty() {
            self.decided.push((stamp, effects.clone()));
        }
        if !effects.is_empty() {
            let outgoing = Outgoing { depends_on: stamp.depends_on, effects };
            self.participant.commit(stamp.at, stamp.transaction, outgoing);
        }
    }

    /// The clock follows a faster one of the keyspace, within its bound. A snapshot's remote time stays below its
    /// local time, so the effects of a fast region would otherwise stay invisible here until the local clocks pass
    /// them.
    fn follow(&mut self, now: Now, faster: Timestamp) {
        // A clock too far ahead is left alone: it slows down what its own partition makes visible, nothing else.
        if S::FOLLOWS {
            let _too_far = self.clock.observe(faster, now.wall);
        }
    }

    fn persist(&mut self, record: &Record<'_, S::Depends>, out: &mut Outputs<'_, Node<S>>) {
        out.persist(record, self.options.durability);
        self.logged.last = out.persisted();
    }

    fn hold(&mut self, id: TransactionId, intents: &[WriteIntent]) {
        for intent in intents {
            self.held.entry(intent.key.clone()).or_default().insert(id);
        }
    }

    fn let_go(&mut self, id: TransactionId, intents: &[WriteIntent]) {
        for intent in intents {
            if let Some(holders) = self.held.get_mut(&intent.key) {
                holders.remove(&id);
                if holders.is_empty() {
                    self.held.remove(&intent.key);
                }
            }
        }
    }
}

/// A store in which effects reset only what they observed, if stamps tell what that is.
fn new_store<S: Times>(topology: &Topology, options: &Options) -> Store<Stamp<S::Depends>> {
    let mut store = Store::new(topology.seed, Stamp::default());
    if S::MERGES && !options.mutants.has(Mutant::ResetUnobserved) {
        store.merge_by_dependencies(stamp::dependencies::<S>);
        if options.conflict_bytes > 0 {
            store.list_losses_by(LossOptions {
                name: Stamp::name,
                bytes: options.conflict_bytes,
                until_replaced: false,
            });
        }
    }
    store
}

/// The effects of all write intents, by key.
fn effects_of(intents: &[WriteIntent]) -> Vec<KeyEffects> {
    let by_key = intents
        .iter()
        .map(|intent| KeyEffects { key: intent.key.clone(), effects: intent.effects().cloned().collect() });
    by_key.filter(|of_key| !of_key.effects.is_empty()).collect()
}

fn borrowed<D: Copy>(stamp: Stamp<D>, effects: &[KeyEffects]) -> Effects<'_, D> {
    Effects { stamp, effects: Cow::Borrowed(effects) }
}
