//! The world: virtual time, processes, network, clients, and the events between them.
//!
//! Everything that happens is an event at a virtual time in microseconds; events at one time happen in the order in
//! which they were scheduled. All randomness comes from the seed, so a seed is a run.

use crate::client::{Client, Context};
use crate::deployment::{Deployment, Mutant, Mutants, Setting};
use crate::faults::{Feature, Swarm, exponential};
use crate::finale::PATIENCE;
use crate::front::Front;
use crate::keyset::KnownKeys;
use crate::losses::{Loss, Seen};
use crate::network::Network;
use crate::process::{Process, Served, Sink};
use crate::recorder::Recorder;
use crate::script::{Fault, Link, Script, TimedPlan, stream};
use crate::trace::{Trace, kind};
use crate::workload::Workload;
use protocol::{Claim, CommitStamp, Durability, Gate, Now, Packet, Protocol, Replica};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::rc::Rc;
use types::{Address, ErrorCode, HashSeed, Incarnation, NodeId, Reader, ReplyBuf, RequestId, Rng, SessionId};
use types::{RegionId, RegionSet, Timestamp, TransactionId, Wire};

/// How long a keyspace that is synced now and then waits between syncs, in microseconds.
pub(crate) const LAZY_SYNC: u64 = 1_000_000;

/// How long a process waits that could not start, in microseconds.
pub(crate) const START_AGAIN: u64 = 100_000;

/// How often the world collects the commits of instances.
const OBSERVED_EVERY: u64 = 500_000;
/// By how much more often where it matters what each of them had.
const OFTEN: u64 = 5;

/// Something that happens at a time.
pub(crate) enum Event {
    /// A packet arrives.
    Deliver { from: NodeId, to: Address, bytes: Rc<[u8]> },
    /// A deadline has come.
    Wake { process: usize, incarnation: Incarnation },
    /// The open group is handed to the kernel.
    WriteOut { process: usize, incarnation: Incarnation },
    /// A sync ends.
    Synced { process: usize, incarnation: Incarnation },
    /// A suspended log is tried again.
    RetryLog { process: usize, incarnation: Incarnation },
    /// A lazy sync begins.
    BeginSync { process: usize, incarnation: Incarnation },
    /// A checkpoint begins, or goes on.
    Checkpoint { process: usize, incarnation: Incarnation, begin: bool },
    /// A replica gets a chunk of its spool; `lost` if it is not there, whether it is or not.
    Spooled { process: usize, incarnation: Incarnation, replica: usize, chunk: u64, lost: bool },
    /// A dead process starts.
    Restart { process: usize },
    /// The world collects the commits of instances.
    Observe,
    /// A fault of the script.
    Fault(Fault),
    /// A process of a lost region is lost.
    Lose { process: usize },
    /// An operator looks after what is left of a partition.
    Accept,
    /// A region is given up.
    Evict { region: RegionId },
    /// Cut links are joined again.
    Join { links: Vec<Link> },
    /// Slow links are as before again.
    Relieve { links: Vec<Link>, by: u64 },
    /// Links lose no more than before.
    Repair { links: Vec<Link>, share: u32 },
    /// A disk has room again.
    Empty { process: usize },
    /// A slow process is as fast as before.
    Recover { process: usize, step: u64 },
    /// A client's request reaches its gateway.
    Ask { process: usize, client: usize, request: RequestId },
    /// A client's session is closed.
    Close { process: usize, session: SessionId },
    /// A client begins its next transaction.
    Client(usize),
    /// A client has its reply.
    Reply { client: usize, request: RequestId, reply: ReplyBuf },
    /// A client waits no longer.
    Timeout { client: usize, request: RequestId },
}

/// See the module.
pub(crate) struct World<D: Deployment> {
    pub deployment: D,
    pub seed: u64,
    pub setting: Setting,
    pub swarm: Swarm,
    pub mutants: Mutants,
    pub now: u64,
    scheduled: u64,
    queue: BTreeMap<(u64, u64), Event>,
    pub processes: Vec<Process<D::Protocol>>,
    pub network: Network,
    pub trace: Trace,
    pub workload: Workload,
    pub recorder: Recorder,
    pub clients: Vec<Client>,
    /// What carries out the commands of clients that take several requests.
    pub front: Front,
    /// What clients began while there was traffic.
    pub began: Vec<TimedPlan>,
    /// The contexts that clients were given, the newest last.
    pub contexts: Vec<Context>,
    /// The states of a branch keyspace in replies to clients, the newest last.
    pub states: Vec<String>,
    /// The region that is lost for good.
    pub lost_region: Option<RegionId>,
    /// Transactions that ended with it.
    pub abandoned: BTreeSet<TransactionId>,
    /// More replicas of partitions than they survive are lost for good.
    pub loss: Option<Loss>,
    /// What replicas had before that.
    pub seen: Seen,
    /// The logs' records of committed transactions, claimed or not.
    pub decided: Vec<Claim>,
    /// Which client waits for which request.
    pub waiting: BTreeMap<RequestId, usize>,
    pub next_request: u64,
    /// Requests whose reply is lost with the connection.
    pub unheard: BTreeSet<RequestId>,
    pub next_session: u64,
    /// How many requests were served by the step that took them; see `Deployment::served`.
    served: u64,
    /// False once everything is healed.
    pub faults: bool,
    /// False once clients begin nothing new.
    pub traffic: bool,
    /// Within what time everything must end after that, in microseconds.
    pub patience: u64,
}

impl<D: Deployment> World<D> {
    pub fn new(deployment: D, script: &Script, mutants: Mutants, readable: bool) -> Self {
        let Script { seed, layout, ref swarm, .. } = *script;
        let hash_seed = HashSeed(stream(seed, "hash", 0).u64(..));
        let merged = swarm.has(Feature::MergedPipelines);
        let (shared, small_queues) = (swarm.has(Feature::SharedThreads), swarm.has(Feature::SmallQueues));
        let durability = swarm.durability();
        let setting = Setting { layout, durability, hash_seed, merged, shared, small_queues };
        let processes = (deployment.hosts(layout).into_iter())
            .map(|host| Process::new(host, seed, swarm.clock_skew, swarm.clock_tick))
            .collect();
        let mut trace = Trace::new(readable);
        trace.note(0, kind::START, &seed.to_le_bytes(), || format!("seed {seed}: {layout:?} {swarm:?}"));
        let workload = Workload::new(swarm);
        let keys = KnownKeys::new(&workload, hash_seed, layout.partitions);
        World {
            workload,
            deployment,
            seed,
            setting,
            swarm: swarm.clone(),
            mutants,
            now: 0,
            scheduled: 0,
            queue: BTreeMap::new(),
            processes,
            network: Network::new(seed),
            trace,
            recorder: Recorder::new(keys),
            clients: Vec::new(),
            front: Front::new(hash_seed),
            began: Vec::new(),
            contexts: Vec::new(),
            states: Vec::new(),
            lost_region: None,
            abandoned: BTreeSet::new(),
            loss: None,
            seen: Seen::default(),
            decided: Vec::new(),
            waiting: BTreeMap::new(),
            next_request: 1,
            unheard: BTreeSet::new(),
            next_session: 1,
            served: 0,
            faults: true,
            traffic: true,
            patience: PATIENCE,
        }
    }

    /// Schedules an event after so many microseconds.
    pub fn after(&mut self, delay: u64, event: Event) {
        self.scheduled += 1;
        self.queue.insert((self.now + delay, self.scheduled), event);
    }

    /// Lets events happen until the given virtual time.
    pub fn run_until(&mut self, end: u64) {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.handle(event);
        }
        self.now = end;
    }

    fn handle(&mut self, event: Event) {
        let process = process_of(&event);
        if let Some(until) = process.and_then(|process| self.busy_until(process)) {
            return self.after(until - self.now, event);
        }
        match event {
            Event::Deliver { from, to, bytes } => self.on_deliver(from, to, &bytes),
            Event::Wake { process, incarnation } => self.on_wake(process, incarnation),
            Event::WriteOut { process, incarnation } => self.on_write_out(process, incarnation),
            Event::Synced { process, incarnation } => self.on_synced(process, incarnation),
            Event::RetryLog { process, incarnation } => self.on_retry_log(process, incarnation),
            Event::BeginSync { process, incarnation } => {
                if self.lives(process, incarnation) {
                    self.begin_sync(process);
                }
            }
            Event::Checkpoint { process, incarnation, begin } => {
                self.on_checkpoint(process, incarnation, begin)
            }
            Event::Spooled { process, incarnation, replica, chunk, lost } => {
                if self.lives(process, incarnation) {
                    self.on_spooled(process, replica, chunk, lost);
                }
            }
            Event::Ask { process, client, request } => self.on_ask(process, client, request),
            Event::Close { process, session } => self.on_close(process, session),
            Event::Restart { process } => self.start(process),
            Event::Observe => {
                self.observe();
                let often = if self.swarm.has(Feature::AcceptLoss) { OFTEN } else { 1 };
                self.after(OBSERVED_EVERY / often, Event::Observe);
            }
            Event::Fault(fault) => self.on_fault(fault),
            Event::Lose { process } => self.on_lose(process),
            Event::Evict { region } => self.on_evict(region),
            Event::Accept => self.on_accept(),
            Event::Join { links } => links.into_iter().for_each(|link| self.network.join(link)),
            Event::Relieve { links, by } => {
                links.into_iter().for_each(|link| self.network.slow_down(link, -(by as i64)));
            }
            Event::Repair { links, share } => {
                links.into_iter().for_each(|link| self.network.lose(link, -i64::from(share)));
            }
            Event::Empty { process } => self.processes[process].disk.set_capacity(None),
            Event::Recover { process, step } => {
                let slow_by = &mut self.processes[process].slow_by;
                *slow_by = slow_by.saturating_sub(step);
            }
            Event::Client(client) => self.on_client(client),
            Event::Reply { client, request, reply } => self.on_reply(client, request, &reply),
            Event::Timeout { client, request } => self.on_timeout(client, request),
        }
        if let Some(process) = process {
            self.processes[process].busy_until = self.now + self.processes[process].slow_by;
            self.count_down(process);
        }
    }

    /// Until when a process stands still or is busy, if it does.
    fn busy_until(&self, process: usize) -> Option<u64> {
        let Process { paused_until, busy_until, .. } = self.processes.get(process)?;
        Some(*paused_until.max(busy_until)).filter(|until| *until > self.now)
    }

    /// Asks every instance what has committed.
    pub fn observe(&mut self) {
        let lives = self.processes.iter().filter_map(|process| process.life.as_ref());
        for replica in lives.flat_map(|life| &life.replicas) {
            for claim in self.deployment.outcomes(replica.protocol()) {
                self.recorder.outcome(claim, replica.node().slot.partition);
            }
            let aborted = self.deployment.aborted(replica.protocol());
            aborted.into_iter().for_each(|transaction| self.recorder.aborted(transaction));
        }
        if self.swarm.has(Feature::AcceptLoss) {
            self.see_replicas();
        }
    }

    pub fn lives(&self, process: usize, incarnation: Incarnation) -> bool {
        self.processes[process].life.as_ref().is_some_and(|life| life.incarnation == incarnation)
    }

    /// Starts a dead process.
    pub fn start(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if process.life.is_some() || process.is_gone {
            return;
        }
        let started = process.start(self.now, &self.deployment, self.setting, self.mutants);
        let sink = match started {
            Ok((sink, recovered)) => {
                self.judge_start(index, &recovered);
                sink
            }
            Err(error) => return self.on_start_failed(index, error),
        };
        let process = &self.processes[index];
        let incarnation = process.life.as_ref().map_or(Incarnation(0), |life| life.incarnation);
        self.trace.note(self.now, kind::START, &incarnation.0.to_le_bytes(), || {
            format!("p{index} starts, incarnation {incarnation}")
        });
        let replicas = process.life.as_ref().map_or(0, |life| life.replicas.len());
        self.keep_what_is_recovered(index);
        // Nothing leaves before what all instances persisted is in the log.
        for replica in 0..replicas {
            self.record(index, replica);
        }
        self.release(index);
        debug_assert!(sink.0.is_empty(), "nobody asked anything yet");
        if self.swarm.checkpoint_interval > 0 {
            let delay = exponential(&mut self.processes[index].noise, self.swarm.checkpoint_interval);
            self.after(delay, Event::Checkpoint { process: index, incarnation, begin: true });
        }
        if self.setting.durability != Durability::Synced {
            self.after(LAZY_SYNC, Event::BeginSync { process: index, incarnation });
        }
    }

    /// Lets a replica work, and sees to everything that follows from it.
    pub fn step(
        &mut self,
        process: usize,
        replica: usize,
        work: impl FnOnce(&mut Replica<D::Protocol>, Now, &mut Rng, &mut Sink),
    ) {
        let now = self.processes[process].now(self.now);
        let Process { life: Some(life), random, .. } = &mut self.processes[process] else { return };
        let Some(instance) = life.replicas.get_mut(replica) else { return };
        let mut sink = Sink::default();
        work(instance, now, random, &mut sink);
        self.settle(process, replica, sink);
    }

    /// After a step: claims, records, replies and packets go where they belong.
    fn settle(&mut self, process: usize, replica: usize, sink: Sink) {
        let served = self.served(process, replica, &sink);
        self.record(process, replica);
        if let Some(life) = &self.processes[process].life {
            let group = life.newest_group();
            let served = served.into_iter().map(|(place, claim)| Served { group, place: Some(place), claim });
            self.processes[process].unlogged.extend(served);
        }
        for (request, reply) in &sink.0 {
            let in_doubt = reply.as_error().is_some_and(|error| error.code == ErrorCode::UnknownOutcome);
            self.recorder.answered(*request, in_doubt);
        }
        let gate =
            self.processes[process].life.as_ref().map(|life| self.gate_of_replies(&life.replicas[replica]));
        if let (Some(life), Some(gate)) = (&mut self.processes[process].life, gate) {
            life.replies.extend(sink.0.into_iter().map(|(request, reply)| (gate, request, reply)));
        }
        self.release(process);
    }

    fn gate_of_replies(&self, replica: &Replica<D::Protocol>) -> Gate {
        if self.mutants.has(Mutant::UngatedReplies) { Gate::OPEN } else { replica.reply_gate() }
    }

    /// What a step did for the transactions whose only request it served, each with its place in the history.
    fn served(&mut self, process: usize, replica: usize, sink: &Sink) -> Vec<(usize, Claim)> {
        let Some(life) = &self.processes[process].life else { return Vec::new() };
        let node = life.replicas[replica].node();
        let Some(effects) = self.deployment.served(life.replicas[replica].records()) else {
            return Vec::new();
        };
        let whole = |(request, reply): (&RequestId, &ReplyBuf)| {
            let client = &self.clients[*self.waiting.get(request)?];
            let open = client.open.iter().find(|open| open.request == *request)?;
            open.is_done_by(reply).then_some((client.session, open.place))
        };
        let served: Vec<(SessionId, usize)> = sink.0.iter().filter_map(whole).collect();
        let claim = |(session, place)| {
            self.served += 1;
            let transaction =
                TransactionId { process: node.process, incarnation: node.incarnation, number: self.served };
            let region = self.processes[process].host.region;
            let (at, parts) = (Timestamp(self.served), RegionSet::default());
            let at = CommitStamp { at, depends_on: Timestamp::ZERO, region, parts };
            let effects = effects.clone();
            (
                place,
                Claim {
                    session,
                    transaction,
                    commit: Some(at),
                    snapshot: None,
                    effects,
                    vector: None,
                    thread: None,
                    requests: Vec::new(),
                    branch: None,
                },
            )
        };
        served.into_iter().map(claim).collect()
    }

    /// Records the claims that hold now that the log is synced so far.
    fn confirm(&mut self, index: usize) {
        let Some(synced) = self.processes[index].life.as_ref().map(|life| life.log.synced().0) else {
            return;
        };
        for Served { place, claim, .. } in self.processes[index].claims_logged(synced) {
            match place {
                Some(place) => self.recorder.claim_at(place, claim),
                None => self.decided.push(claim),
            }
        }
    }

    /// What was not known synced when the last life ended has taken effect if its group was recovered, and only now: while
    /// the log was suspended it was taken back, and others may have seen that.
    fn keep_what_is_recovered(&mut self, index: usize) {
        let placed = |served: &&mut Served| served.place.is_some();
        for Served { claim, .. } in self.processes[index].unlogged.iter_mut().filter(placed) {
            self.served += 1;
            claim.commit = claim.commit.map(|commit| CommitStamp { at: Timestamp(self.served), ..commit });
        }
        self.confirm(index);
        self.processes[index].unlogged.clear();
    }

    /// Takes an instance's claims and its records.
    fn record(&mut self, process: usize, replica: usize) {
        let Some(life) = &mut self.processes[process].life else { return };
        for claim in self.deployment.claims(life.replicas[replica].protocol_mut()) {
            self.recorder.claim(claim);
        }
        self.abandoned.extend(self.deployment.abandoned(life.replicas[replica].protocol_mut()));
        let decided = self.deployment.decided(life.replicas[replica].protocol_mut());
        let incarnation = life.incarnation;
        let appended = life.append(replica);
        let group = life.newest_group();
        let outcome = |claim| Served { group, place: None, claim };
        self.processes[process].unlogged.extend(decided.into_iter().map(outcome));
        let Some(life) = &mut self.processes[process].life else { return };
        match appended {
            Err(failed) => self.log_failed(process, failed),
            Ok(appended) if appended && !life.write_scheduled => {
                life.write_scheduled = true;
                let delay = self.processes[process].noise.u64(0..=self.swarm.group_delay);
                self.after(delay, Event::WriteOut { process, incarnation });
            }
            Ok(_) => {}
        }
    }

    /// Lets leave what the log's progress allows, and sets the alarm for the next deadline.
    pub fn release(&mut self, index: usize) {
        self.confirm(index);
        let now = self.processes[index].now(self.now);
        let Some(life) = &mut self.processes[index].life else { return };
        let durable = life.durable();
        let mut packets = Vec::new();
        for replica in &mut life.replicas {
            replica.release(now.instant, durable);
            let from = replica.node();
            packets.extend(replica.packets().map(|(to, packet)| (from, to, packet)));
        }
        let (open, held) =
            std::mem::take(&mut life.replies).into_iter().partition(|(gate, ..)| gate.is_open(durable));
        life.replies = held;
        let open: Vec<(_, RequestId, ReplyBuf)> = open;
        if packets.iter().any(|(from, to, _)| from.process != to.process)
            && open.iter().any(|(_, request, _)| self.waiting.contains_key(request))
            && let Some(down) = self.processes[index].last_reply.take()
        {
            packets.clear();
            (self.processes[index].condemned, self.processes[index].counting) = (Some((0, down)), true);
        }
        for (from, to, packet) in packets {
            self.send(from, to, &packet);
        }
        self.spool(index);
        for (_, request, reply) in open {
            if let Some(client) = self.waiting.get(&request).copied() {
                self.after(1, Event::Reply { client, request, reply });
            }
        }
        self.set_alarm(index);
    }

    fn set_alarm(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let Some(deadline) = process.life.as_ref().and_then(|life| life.deadline()) else { return };
        let at = process.virtual_time(deadline).max(self.now + 1);
        let Some(life) = &mut process.life else { return };
        if life.wake_at.is_none_or(|wake_at| wake_at > at) {
            life.wake_at = Some(at);
            let incarnation = life.incarnation;
            self.after(at - self.now, Event::Wake { process: index, incarnation });
        }
    }

    fn send(&mut self, from: NodeId, to: Address, packet: &Packet<D::Protocol>) {
        let Some(receiver) = self.processes.get(usize::from(to.process.0)) else { return };
        let sender = &self.processes[usize::from(from.process.0)].host;
        let ends = ((sender.process, sender.region), (receiver.host.process, receiver.host.region));
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        let bytes: Rc<[u8]> = bytes.into();
        for delay in self.network.fate(ends.0, ends.1, &self.swarm) {
            self.after(delay, Event::Deliver { from, to, bytes: Rc::clone(&bytes) });
        }
    }

    fn on_deliver(&mut self, from: NodeId, to: Address, bytes: &[u8]) {
        let index = usize::from(to.process.0);
        let Some(life) = &self.processes[index].life else { return };
        let Some(replica) = life.replicas.iter().position(|replica| replica.node().address() == to) else {
            return;
        };
        let packet = match Packet::<D::Protocol>::decode(&mut Reader::new(bytes)) {
            Ok(packet) => packet,
            Err(error) => return self.recorder.no_progress(format!("{from} sent {to} a {error}")),
        };
        self.trace.note(self.now, kind::DELIVER, bytes, || format!("{from} -> {to}: {}", described(&packet)));
        self.learn(&packet);
        let mut outcome = Ok(());
        self.step(index, replica, |replica, now, random, sink| {
            outcome = replica.receive(now, from, packet, random, sink);
        });
        if let Err(error) = outcome {
            self.recorder.no_progress(format!("{from} streamed {to} a {error}"));
        }
    }

    /// Takes what a streamed message says of committed transactions.
    fn learn(&mut self, packet: &Packet<D::Protocol>) {
        let Packet::Frame(protocol::Frame::Data { message, .. }) = packet else { return };
        let Ok(message) = <D::Protocol as Protocol>::Message::decode(&mut Reader::new(message)) else {
            return;
        };
        for claim in self.deployment.claims_of_message(&message) {
            self.recorder.outcome(claim, None);
        }
    }

    fn on_wake(&mut self, index: usize, incarnation: Incarnation) {
        if !self.lives(index, incarnation) {
            return;
        }
        let instant = self.processes[index].now(self.now).instant;
        let Some(life) = &mut self.processes[index].life else { return };
        if life.wake_at.is_some_and(|at| at > self.now) {
            return;
        }
        life.wake_at = None;
        let due = |replica: &Replica<D::Protocol>| replica.deadline().is_some_and(|at| at <= instant);
        let due: Vec<usize> = (0..life.replicas.len()).filter(|index| due(&life.replicas[*index])).collect();
        for replica in due {
            self.trace.note(self.now, kind::TIMER, &[index as u8, replica as u8], || {
                format!("p{index} timers of instance {replica}")
            });
            self.step(index, replica, |replica, now, random, sink| replica.fire(now, random, sink));
        }
        self.set_alarm(index);
    }
}

/// The process that an event happens in, which takes time and may be standing still.
fn process_of(event: &Event) -> Option<usize> {
    match event {
        Event::Deliver { to, .. } => Some(usize::from(to.process.0)),
        Event::Wake { process, .. }
        | Event::WriteOut { process, .. }
        | Event::Synced { process, .. }
        | Event::RetryLog { process, .. }
        | Event::BeginSync { process, .. }
        | Event::Checkpoint { process, .. }
        | Event::Spooled { process, .. }
        | Event::Ask { process, .. }
        | Event::Close { process, .. } => Some(*process),
        _ => None,
    }
}

/// A packet for readers.
fn described<P: Protocol<Message: Debug>>(packet: &Packet<P>) -> String {
    match packet {
        Packet::Datagram(message) => format!("{message:?}"),
        Packet::Frame(protocol::Frame::Data { number, message, .. }) => {
            match P::Message::decode(&mut Reader::new(message)) {
                Ok(message) => format!("#{number} {message:?}"),
                Err(error) => format!("#{number} {error}"),
            }
        }
        Packet::Frame(frame) => format!("{frame:?}"),
    }
}
