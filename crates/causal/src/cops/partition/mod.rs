//! A replica of a partition: a node of COPS's key-value store (sections 4.2, 4.4 and 4.5), the primary of its keys in its region.
//!
//! `write` is `put_after` of a client of the region, `replicate` of another region, `check` is `dep_check`, `read`
//! `get_by_version`; `collect` forgets what nobody needs, `recover` is the log and the checkpoint, `state_transfer` takes
//! what a log lacks from other regions, `expire` deletes what is overdue, `conflicts` tells what concurrent writes cost others,
//! `copies` is what a partition does that has copies in several processes of its region, `evict` goes on without lost
//! regions.

mod check;
mod collect;
mod conflicts;
mod copies;
mod evict;
mod expire;
mod read;
mod recover;
mod replicate;
mod state_transfer;
mod write;

use super::dependencies::RetainedDependencies;
use super::message::{GetOutcome, Message, PutOutcome};
use super::record::{Fence, Record, Written};
use super::{Cut, Entries, Handler, Mutant, Node, Options, Stamp, Timer};
use crate::stable::stamp::dependencies;
use crate::stable::{Decisions, KeyEffects, Topology, effect};
use check::Checks;
use collect::Lag;
use evict::Evictions;
use expire::Expiry;
use mvcc::{DeferredDrop, LossOptions, Store};
use protocol::hosted::Holdings;
use protocol::{Input, Now, Outputs, Unlogged};
use replicate::Equivalent;
use replication::Outbox;
use replication::transfer::Giver;
use state_transfer::{CatchUpWait, PeerHoldings, StateTransfer};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Error, ErrorCode, HybridClock, NodeId, RegionId, Rng, Timestamp};

/// Whether it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Its log is being read.
    Recovering,
    /// It serves.
    Serving,
    /// Its log lacks records that others rely on: it takes them from its equivalents (Corrections 67).
    Transferring,
    /// It has all that they have, and takes part in everything; it serves clients when the region has written what that may depend on.
    CatchingUp,
}

/// See the module.
pub struct Partition {
    topology: Topology,
    region: RegionId,
    index: u16,
    options: Options,
    status: Status,
    clock: HybridClock,
    /// The log promises that nothing is stamped up to here after a restart.
    promised: Timestamp,
    /// The number of the last record, and the versions that the log does not have.
    recorded: u64,
    unlogged: Unlogged<Stamp>,
    store: Store<Stamp>,
    /// What puts that have not ended were answered.
    answered: Decisions<PutOutcome>,
    /// Every version of each region up to here is written here, and none will be placed below any more.
    written: Entries,
    /// Of each region the last version that is visible and that some region may lack: no time that was only heard.
    shown: Entries,
    equivalents: BTreeMap<RegionId, Equivalent>,
    /// What other regions may lack of this one's versions.
    outbox: Outbox<Written>,
    checks: Checks,
    /// In COPS-GT: what the versions of each region depend on.
    dependencies: BTreeMap<RegionId, RetainedDependencies>,
    /// Every version up to here is written in every region, in COPS-GT since the lease: nobody need depend on it any more.
    stable: Timestamp,
    /// Effects at or below are in the cells.
    horizon: Timestamp,
    lag: Lag,
    /// The horizon stays while a checkpoint is taken.
    checkpointing: bool,
    /// And while another copy takes the state.
    lent: bool,
    /// And while equivalents take the state.
    giver: Giver<NodeId>,
    /// What is being taken from them.
    state_transfer: Option<Box<StateTransfer>>,
    /// A store that was replaced, to be freed in pieces.
    deferred_drop: Option<DeferredDrop<Stamp>>,
    /// The log tells of gaps, and no checkpoint of what filled them.
    gaps: bool,
    /// The versions that it waits for before it serves again.
    catch_up_wait: CatchUpWait,
    /// The fence: a request first sent before it may have been done and forgotten.
    fence: Fence,
    expiry: Expiry,
    /// This region's versions written since the last call; see [`Options::claims`].
    versions: Vec<(Stamp, Vec<KeyEffects>)>,
    /// The handler that merges concurrent values of a key; without it, clients see the siblings.
    pub(super) handler: Option<Arc<dyn Handler>>,
    evictions: Evictions,
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partition")
            .field("region", &self.region)
            .field("index", &self.index)
            .field("status", &self.status)
            .field("written", &self.written)
            .field("stable", &self.stable)
            .finish_non_exhaustive()
    }
}

impl Partition {
    /// An empty replica. Its first inputs are those of recovery.
    pub(super) fn new(topology: Topology, region: RegionId, index: u16, options: Options) -> Self {
        let others: Vec<RegionId> = topology.others(region).collect();
        let mut store = new_store(&topology, &options);
        store.set_horizon(Some(Stamp::default()));
        let mut written = Entries::default();
        (0..topology.regions.len() as u16).for_each(|named| written.set(RegionId(named), Timestamp::ZERO));
        Partition {
            region,
            index,
            options,
            status: Status::Recovering,
            clock: HybridClock::new(options.clock_bound),
            promised: Timestamp::ZERO,
            recorded: 0,
            unlogged: Unlogged::default(),
            store,
            answered: Decisions::default(),
            written,
            shown: Entries::default(),
            equivalents: others.iter().map(|other| (*other, Equivalent::default())).collect(),
            // A dropped write could never reach a lagging region: so the partition refuses writes before that.
            outbox: Outbox::new(others, usize::MAX, 0),
            checks: Checks::default(),
            dependencies: BTreeMap::new(),
            stable: Timestamp::ZERO,
            horizon: Timestamp::ZERO,
            lag: Lag::default(),
            checkpointing: false,
            lent: false,
            giver: Giver::default(),
            state_transfer: None,
            deferred_drop: None,
            gaps: false,
            catch_up_wait: CatchUpWait::default(),
            fence: Fence::default(),
            expiry: Expiry::default(),
            versions: Vec::new(),
            handler: None,
            evictions: Evictions::default(),
            topology,
        }
    }

    /// Its number.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Every version of each region up to here is written here.
    pub fn written(&self) -> Entries {
        self.written
    }

    /// Every version up to here is written in every region, in COPS-GT since the lease.
    pub fn stable(&self) -> Timestamp {
        self.stable
    }

    /// How many versions have arrived and wait for what they depend on.
    pub fn waiting(&self) -> usize {
        self.equivalents.values().map(Equivalent::waiting).sum()
    }

    /// How many of its versions some other region may lack.
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

    /// The other regions' names, each with the time up to which everything of it is written.
    pub fn written_of_regions(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        self.equivalents.keys().map(|region| (self.topology.name(*region), self.written.of(*region)))
    }

    /// How many answers to puts it remembers.
    pub fn remembered(&self) -> usize {
        self.answered.len()
    }

    /// True once it serves.
    pub fn is_serving(&self) -> bool {
        self.status == Status::Serving
    }

    /// How many effects above the horizon the store retains of a key.
    pub fn retained(&self, key: &[u8]) -> usize {
        self.store.effects(self.store.hash(key), key).count()
    }

    pub(super) fn take_versions(&mut self) -> Vec<(Stamp, Vec<KeyEffects>)> {
        std::mem::take(&mut self.versions)
    }

    pub(super) fn step_one(
        &mut self,
        now: Now,
        input: Input<'_, Node>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
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
            Input::Timer(Timer::Tick) => self.on_tick(now, random, out),
            Input::Timer(Timer::Retry(_)) => {}
        }
    }

    fn on_message(
        &mut self,
        now: Now,
        from: NodeId,
        message: Message,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let (node, from) = (from, from.address());
        let is_request = matches!(message, Message::Get { .. } | Message::PutAfter { .. });
        if self.is_evicted() && !is_request {
            return;
        }
        if self.is_of_lost(from) {
            return self.tell_of_lost(from, out);
        }
        match message {
            Message::HoldingsReply { state_transfer, written, horizon, highest, shown } => {
                let reported = PeerHoldings { written, horizon, highest, shown };
                self.on_holdings_reply(now, from, state_transfer, &reported, random, out);
            }
            Message::Piece { piece, horizon } => self.on_piece(now, from, &piece, horizon, random, out),
            Message::Received { up_to } => self.on_received(from, up_to, out),
            Message::Evict { regions } => self.on_evict(now, regions.into_iter(), random, out),
            Message::Held { lost, asks } => self.on_held(now, node, (lost, asks), random, out),
            Message::Get { id, round, .. } if !self.serves() => {
                let error = self.not_serving();
                out.send(from, Message::GetResp { id, round, outcome: GetOutcome::Refused { error } });
            }
            Message::PutAfter { .. } => self.on_put_after(now, from, message, random, out),
            Message::HoldingsQuery { state_transfer } => {
                self.on_holdings_query(now, node, state_transfer, out)
            }
            Message::Ask { ask, above } => self.on_ask(now, node, ask, above, out),
            Message::Replicate { origin, id, at, observed, nearest, dependencies, effects } => {
                let stamp = Stamp { at, transaction: id, region: origin, depends_on: observed };
                self.on_replicate(now, Written { stamp, nearest, dependencies, effects }, out);
            }
            Message::Heartbeat { origin, at, received, written } => {
                self.on_heartbeat(now, origin, at, received, written, out);
            }
            _ if self.status == Status::Transferring => {}
            Message::TransferRequired { up_to } => self.on_transfer_required(now, from, up_to, random, out),
            Message::Get { .. } => self.on_get(from, message, random, out),
            Message::DepCheck { versions } => self.on_dep_check(now, from, versions, out),
            Message::DepChecked { written, ends } => self.on_dep_checked(now, from, written, &ends, out),
            Message::Forward { region, above } => self.on_forward(from, region, above, out),
            Message::Forwarded { region, above, writes, up_to } => {
                self.on_forwarded(now, from, (region, above, up_to), writes, out);
            }
            Message::GetResp { .. } | Message::PutResp { .. } => {}
        }
    }

    /// Makes a version visible. What the cells hold already, from a checkpoint, is left out.
    fn show(&mut self, written: &Written) {
        let stamp = written.stamp;
        if !self.options.copied {
            // Copies share a log of their own, which does not fill up.
            self.unlogged.note(self.recorded, stamp);
        }
        self.written.set(stamp.region, stamp.at.max(self.written.of(stamp.region)));
        if self.options.claims && stamp.region == self.region {
            self.versions.push((stamp, written.effects.clone()));
        }
        self.note_shown(stamp);
        if stamp <= Stamp::last_at(self.horizon) {
            return;
        }
        for of_key in &written.effects {
            let hash = self.store.hash(&of_key.key);
            if self.store.has_effect(hash, &of_key.key, stamp) {
                continue;
            }
            for effect in of_key.effects.iter().filter_map(|bytes| effect(bytes)) {
                self.store.commit(hash, &of_key.key, stamp, &effect);
            }
        }
    }

    fn note_shown(&mut self, stamp: Stamp) {
        self.shown.set(stamp.region, stamp.at.max(self.shown.of(stamp.region)));
    }

    fn persist(&mut self, record: &Record<'_>, out: &mut Outputs<'_, Node>) {
        out.persist(record, self.options.durability);
        self.recorded = out.persisted();
    }

    /// The equivalents that have said where they are to be sent on from.
    fn resumed(&self) -> Vec<RegionId> {
        let resumed = self.equivalents.iter().filter(|(_, equivalent)| equivalent.link.is_resumed());
        resumed.map(|(region, _)| *region).collect()
    }

    /// True if clients are answered.
    fn serves(&self) -> bool {
        self.status == Status::Serving && !self.is_evicted()
    }

    /// What to say instead of serving.
    fn not_serving(&self) -> Error {
        Error::new(ErrorCode::Unavailable, self.why_not())
    }

    /// Why it does not serve, and what can be done about it.
    pub fn why_not(&self) -> String {
        if self.is_evicted() {
            return self.topology.why_evicted(self.region);
        }
        let what = format!(
            "partition {} of region {} lost records that others rely on (unclean stop without a synced log, or a lost data directory)",
            self.index,
            self.topology.name(self.region)
        );
        if self.equivalents.is_empty() {
            return format!(
                "{what}, and no other region has them; nothing was done; restore the data directory, or start its process once with \
                 --accept-loss to go on with what is left"
            );
        }
        let (silent, behind) = (self.silent().join(", "), self.behind().join(", "));
        let waits = match (self.status == Status::CatchingUp, silent.is_empty()) {
            (true, _) if !behind.is_empty() => {
                format!("has taken them from its peers, and waits until {behind}")
            }
            (false, false) => format!("waits for {silent}"),
            _ => {
                return format!("{what} and is taking them from its peers; nothing was done; try again soon");
            }
        };
        format!(
            "{what} and {waits}; nothing was done; try again when they answer, or start its process once with --accept-loss if \
             they are gone for good"
        )
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.options.mutants.has(mutant)
    }
}

/// A store in which effects reset only what they observed, and which lists what concurrent ones cost one another.
fn new_store(topology: &Topology, options: &Options) -> Store<Stamp> {
    let mut store = Store::new(topology.seed, Stamp::default());
    store.merge_by_dependencies(dependencies::<Cut>);
    if options.conflict_bytes > 0 {
        // Siblings are values of clients: none is dropped.
        let bytes = if options.keeps_siblings { usize::MAX } else { options.conflict_bytes };
        let until_replaced = options.keeps_siblings && !options.mutants.has(Mutant::OnePrevious);
        store.list_losses_by(LossOptions { name: Stamp::name, bytes, until_replaced });
    }
    store
}
