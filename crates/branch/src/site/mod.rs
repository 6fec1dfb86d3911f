//! A site of a `branch` keyspace: the one replica of a region (TARDiS 6). It serves the region's clients, keeps a log,
//! and tells the other sites what it commits; a commit never waits for them.
//!
//! # Flow
//! ```text
//!  Request --> Keyspace: begin, operate, commit --> persist --> reply
//!                                       \--> Transaction, streamed to every other site
//!  Transaction from a site --> parents here? --> apply, persist, and whatever waited for it
//!                                      \--> else it waits as an orphan (6.4)
//! ```
//!
//! # Rooms
//! `requests` transactions and single commands · `words` BRANCH, MERGE and AT · `names` names for states · `join` a site without
//! anything · `clients` what is remembered of a session ·
//! `merging` heads that the site merges by itself · `handler_runner` the merge handler · `gossip` the other sites ·
//! `logged` reads while the log refuses records · `record` log and checkpoints · `message` what nodes say · `setup` who takes part.
//!
//! # State and invariants
//! - What a reply or a message reveals is in the log before it leaves.
//! - The site retains the commit of every state that some site may lack, or can send it by value: no ceiling is below
//!   it.
//! - A site sends its ceiling to another site only when it has streamed everything committed before to that site; the
//!   ceiling is durable then: so no site commits below a state that another one took out for good (Corrections 54).
//!   One that was collected early, without the promise of a site that is not heard, comes back when a later
//!   transaction needs it: the site retains its transaction.
//! - Sessions that never chose a branch share the site's thread: with `Serializability` and `No Branching` it never
//!   forks by itself, and an application that knows nothing of branches meets other sites' updates only.

mod bootstrap;
mod branch_commands;
mod claims;
mod clients;
mod gossip;
mod handler_runner;
mod logged;
mod merging;
mod message;
mod names;
mod orphans;
mod partitions;
mod record;
mod requests;
mod setup;

pub use message::{Message, Thread};
pub use record::Record;
pub(crate) use record::{put, split};
pub use setup::{Collecting, Local, Merging, Options, Pace, Topology};

use crate::instance::Instance;
use crate::keyspace::{self, Keyspace};
use crate::{Commit, StateId};
use claims::Claims;
use clients::Clients;
use gossip::Gossip;
use logged::Recorded;
pub(crate) use names::Named;
use protocol::{Claim, Durability, Input, Now, Outputs};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Error, Incarnation, Instant, ReplyBuf, Rng, SessionId};

/// What a site can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Acknowledge to the senders.
    Acknowledge,
    /// Send again what sites lack, and promise a ceiling.
    Repair,
    /// Collect states that no transaction begins at any more.
    Collect,
    /// Merge the heads, if the keyspace says so.
    Merge,
    /// Give up transactions that have been open for too long.
    Sweep,
    /// Ask the others for what a site without anything needs.
    Join,
    /// Look after the record partitions, and after requests that wait for them.
    Partitions,
    /// Of a record partition: say what is on the disk.
    Safe,
}

/// The thread of the sessions that never chose a branch.
pub(crate) const SHARED: SessionId = SessionId(u64::MAX);
/// The thread of the merges that the site makes by itself.
const MERGER: SessionId = SessionId(u64::MAX - 1);
/// The thread of reads at a state that the client names: nobody stands there afterwards.
const LOOKER: SessionId = SessionId(u64::MAX - 2);

/// How often what can go is looked for at least.
const COLLECT_EVERY: Duration = Duration::from_millis(20);
/// It is looked for as soon as there are half as many states again as were left, and so many more; but not before this many times
/// as long as it took has passed.
const COLLECT_STATES: usize = 16;
const COLLECT_SHARE: u32 = 10;
const COLLECT_PARTED_EVERY: Duration = Duration::from_millis(200);
/// What is much is done in turns, between which this many times as long as the turn took passes, or this long.
const COLLECT_PACE: u32 = 4;
const COLLECT_PAUSE: Duration = Duration::from_millis(1);
/// A site without others raises its own ceiling, which it need not send to any site, before it looks for garbage; and
/// again if that takes long.
const PROMISE_ALONE_EVERY: Duration = Duration::from_millis(20);
/// How much a turn collects: keys and states.
const COLLECTED_PER_TURN: usize = 500;
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// See the module.
#[derive(Debug)]
pub struct Site {
    topology: Topology,
    /// Which of the topology's sites this is.
    index: usize,
    incarnation: Incarnation,
    options: Options,
    keyspace: Keyspace,
    clients: Clients,
    gossip: Gossip,
    checkpoint: record::Progress,
    marks: record::Marks,
    claims: Claims,
    names: names::Names,
    handler_runner: handler_runner::HandlerRunner,
    /// True once the site has something of its own, or what the others have; the log says so.
    has_begun: bool,
    bootstrap: bootstrap::Bootstrap,
    partitions: partitions::Partitions,
    /// The last state that a client made here.
    written: Option<StateId>,
    /// The first one of this life, and when.
    first_written: Option<(StateId, Instant)>,
    /// When a site without others promised last.
    promised: Instant,
    /// What collection has taken since it last paused.
    collecting: Duration,
    /// With so many states it looks again, though not before this.
    collect_at: usize,
    collect_from: Instant,
    /// Where the log says that the shared thread reads.
    noted: Option<StateId>,
    logged: logged::Logged,
    merging: merging::Progress,
}

impl Site {
    /// A site in one life, empty. Feed it recovery, then inputs.
    pub fn new(topology: Topology, index: usize, incarnation: Incarnation, mut options: Options) -> Self {
        if !topology.partitions_of(index).is_empty() {
            // The death of this process must not take back the orders that it has sent to partitions.
            options.durability = options.durability.max(Durability::Written);
        }
        let mut keyspace = empty(&topology, index, incarnation, options);
        let gossip = Gossip::new(&topology, index, options.window);
        gossip.expect_ceilings(&mut keyspace);
        Site {
            index,
            incarnation,
            options,
            keyspace,
            clients: Clients::default(),
            gossip,
            checkpoint: record::Progress::default(),
            marks: record::Marks::default(),
            names: names::Names::default(),
            handler_runner: handler_runner::HandlerRunner::default(),
            has_begun: false,
            bootstrap: bootstrap::Bootstrap::default(),
            partitions: partitions::Partitions::new(topology.partitions_of(index), incarnation),
            written: None,
            first_written: None,
            promised: Instant::default(),
            collecting: Duration::ZERO,
            collect_at: usize::MAX,
            collect_from: Instant::default(),
            noted: None,
            logged: logged::Logged::default(),
            merging: merging::Progress::default(),
            claims: Claims::new(topology.sites[index].process, incarnation, options.claims),
            topology,
        }
    }

    /// Forgets everything.
    fn start_over(&mut self) {
        self.keyspace.start_over();
        self.gossip = Gossip::anew(&self.topology, self.index, &self.gossip);
        self.gossip.expect_ceilings(&mut self.keyspace);
        self.names = names::Names::default();
        self.merging = merging::Progress::default();
        self.noted = None;
        self.has_begun = false;
    }

    /// What it keeps, to look at.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// How many transactions of other sites wait for a state that is not here.
    pub fn orphans(&self) -> usize {
        self.gossip.orphans()
    }

    /// How many states some other site may lack.
    pub fn unreceived(&self) -> usize {
        self.keyspace.retained().lacked()
    }

    /// About how many bytes the commits of these states occupy.
    pub fn queued_bytes(&self) -> usize {
        self.keyspace.retained().lacked_bytes()
    }

    /// Promises and collects until there is nothing more to collect, as if that took no time; for measurements.
    pub fn settle(&mut self) {
        self.keyspace.announce_ceiling();
        while self.keyspace.collect(usize::MAX / 16) > 0 {}
        self.gossip.took_out(self.keyspace.take_collected());
    }

    /// The claims made since the last call.
    pub fn take_claims(&mut self) -> Vec<Claim> {
        self.claims.take()
    }

    /// Takes what may be altered of these options from now on.
    pub fn alter(&mut self, options: &Options) {
        let Options { merging, local, policy, keep, collect, queue, .. } = *options;
        self.options = Options { merging, local, policy, keep, collect, queue, ..self.options };
        self.keyspace.alter(policy, keep);
    }

    /// A state was made here: it goes to the log and to the other sites.
    fn made(&mut self, commit: &Commit, is_shared: bool, now: Now, out: &mut Outputs<'_, Instance>) {
        out.persist(&Record::Commit { commit, is_shared }, self.options.durability);
        self.note_recorded(Recorded::State(commit.id), out);
        if is_shared {
            self.note_recorded(Recorded::SessionPosition(commit.id), out);
        }
        self.gossip.offer(commit, out);
        self.keep(commit.clone(), now.instant);
        self.free_orphans_of(commit.id, now, out);
    }

    fn collect(&mut self, now: Now, out: &mut Outputs<'_, Instance>) {
        if self.is_joining() {
            // What comes piece by piece may be of states that would go: nothing may begin to until all of it is here.
            return out.arm(Timer::Collect, now.instant + COLLECT_EVERY);
        }
        let silent = match self.options.collect {
            Collecting::Pessimistic => BTreeSet::new(),
            // To make a state anew takes its versions, which must not lie elsewhere.
            Collecting::Optimistic if self.keyspace.is_parted() => BTreeSet::new(),
            Collecting::Optimistic => self.gossip.silent(now.instant),
        };
        let effort = self.keyspace.effort();
        self.keyspace.go_without(silent);
        let is_due = self.collecting.is_zero() || self.promised + PROMISE_ALONE_EVERY <= now.instant;
        if self.gossip.is_alone() && is_due {
            self.keyspace.announce_ceiling();
            self.promised = now.instant;
        }
        self.keyspace.tell_time(now.instant);
        let before = self.keyspace.collected();
        let work = self.keyspace.collect(COLLECTED_PER_TURN);
        self.gossip.took_out(self.keyspace.take_collected());
        // Many states may be where nothing can go yet: looking at them again and again is not urgent.
        let done = self.keyspace.collected() - before;
        // The site collects nothing while a merge is in progress, and does right after it.
        let is_behind = work >= COLLECTED_PER_TURN && done > COLLECTED_PER_TURN as u64 / 8
            || self.keyspace.sets_out_to_collect()
            || self.keyspace.is_merging();
        // Orders to partitions wait for the disk, and so does what follows them.
        let is_parted = self.keyspace.is_parted();
        let pause = if is_parted { COLLECT_PARTED_EVERY } else { COLLECT_EVERY };
        let took = (self.keyspace.effort() - effort).time();
        if self.collecting.is_zero() {
            self.collect_from = now.instant;
        }
        self.collecting += took;
        self.collect_at = usize::MAX;
        let wait = if is_behind {
            match (is_parted, self.keyspace.is_merging()) {
                (true, _) => COLLECT_PARTED_EVERY / 20,
                (false, true) => COLLECT_PAUSE,
                (false, false) => (took * COLLECT_PACE).clamp(COLLECT_PAUSE / 8, COLLECT_PAUSE),
            }
        } else {
            let left = self.keyspace.dag().len();
            self.collect_at = if is_parted { usize::MAX } else { left + left / 2 + COLLECT_STATES };
            let share = std::mem::take(&mut self.collecting) * COLLECT_SHARE;
            self.collect_from = self.collect_from + share.min(pause);
            pause
        };
        out.arm(Timer::Collect, now.instant + wait);
    }

    fn begin_life(&mut self, now: Now, out: &mut Outputs<'_, Instance>) {
        self.gossip.greet(&self.keyspace, out);
        out.arm(Timer::Collect, now.instant + COLLECT_EVERY);
        out.arm(Timer::Repair, now.instant + gossip::REPAIR_EVERY);
        out.arm(Timer::Sweep, now.instant + SWEEP_EVERY);
        self.merge(now, out);
    }

    /// Reacts to an input.
    pub(crate) fn on_input(
        &mut self,
        input: Input<'_, Instance>,
        now: Now,
        random: &mut Rng,
        out: &mut Outputs<'_, Instance>,
    ) {
        self.note_moments(out);
        self.react(input, now, random, out);
        if self.keyspace.dag().len() >= self.collect_at {
            self.collect_at = usize::MAX;
            out.arm(Timer::Collect, self.collect_from.max(now.instant));
        }
        self.note_moments(out);
        self.tell_partitions(out);
    }

    fn react(
        &mut self,
        input: Input<'_, Instance>,
        now: Now,
        random: &mut Rng,
        out: &mut Outputs<'_, Instance>,
    ) {
        match input {
            Input::Request { id, request } if self.is_joining() => self.hold(id, &request, now.instant),
            Input::Request { id, request } if !self.is_at_hand(&request) => {
                let request = crate::request_codec::encoded(&request);
                self.serve(bootstrap::Asker::Client(id), &request, (now, random), out);
            }
            Input::Request { id, request } => {
                let (mut reply, persisted) = (ReplyBuf::new(), out.persisted());
                self.on_request(None, &request, (now, random), &mut reply, out);
                if !reply.is_empty() {
                    reply.replay(self.sink_of(id, persisted, out));
                }
            }
            Input::Message { from, message } => self.on_message(from, message, (now, random), out),
            Input::PeerStarted { peer } => self.on_peer(peer, out),
            Input::Timer(timer) => self.on_timer(timer, (now, random), out),
            Input::Snapshot(piece) => self.on_snapshot(piece),
            Input::Recover(record) => self.on_recover(record, now.instant),
            Input::Recovered { complete } => self.begin_or_join(complete, now, out),
        }
    }

    fn on_timer(&mut self, timer: Timer, (now, random): (Now, &mut Rng), out: &mut Outputs<'_, Instance>) {
        match timer {
            // They would have to be logged.
            Timer::Repair | Timer::Collect | Timer::Merge if self.is_refusing() => {
                out.arm(timer, now.instant + gossip::REPAIR_EVERY);
            }
            Timer::Acknowledge => self.gossip.acknowledge(&self.keyspace, now.instant, out),
            Timer::Repair => {
                self.gossip.repair(&mut self.keyspace, now.instant, self.options, out);
                self.retry_orphans(now, out);
                self.send_fetched(out);
                out.arm(Timer::Repair, now.instant + gossip::REPAIR_EVERY);
            }
            Timer::Join => self.on_join_timer(now, out),
            Timer::Partitions => self.on_partitions_timer((now, random), out),
            Timer::Safe => {}
            Timer::Collect => self.collect(now, out),
            Timer::Merge => self.merge(now, out),
            Timer::Sweep => {
                self.give_up_old(now.instant);
                out.arm(Timer::Sweep, now.instant + SWEEP_EVERY);
            }
        }
    }
}

/// The keyspace of a site that has nothing.
fn empty(topology: &Topology, index: usize, incarnation: Incarnation, options: Options) -> Keyspace {
    Keyspace::new(keyspace::Options {
        site: topology.sites[index].process,
        incarnation,
        policy: options.policy,
        keep: options.keep,
        partitions: topology.partitions_of(index).len(),
        mutants: options.mutants,
    })
}

/// What a command of another model's keyspace gets here.
fn not_here(what: &str) -> Error {
    Error::err(format!("{what} is not for keyspaces of the model branch"))
}
