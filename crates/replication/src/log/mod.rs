//! The replicated log: a Raft group whose entries every member applies in the same order.
//!
//! The consensus is the field's library, `raft` (decision 0009). This block drives it by the contract: time is a
//! tick that its owner arms, what must survive goes through [`Port::persist`], and messages leave behind the gate.
//!
//! ```text
//!  owner: propose(bytes) --> Log --> Raft --> Append --> f other members
//!         apply(index, bytes) <----- committed in the leader's term <---/
//!         confirm(context) --> a quorum says that the leader still leads --> confirmed
//! ```
//!
//! # Guarantee
//! Every member applies the same entries in the same order. An entry that was applied anywhere survives the failure
//! of f of 2f+1 members. A leader that is [`Log::serving`] has applied everything that any leader before it applied.
//!
//! # What this block adds to the library
//! - Randomness: the library draws its election timeouts from the operating system. Here it has one to choose from,
//!   and the pace of the ticks is drawn from the step's own generator.
//! - Reads: a leader's state is current if a quorum confirms the leader after the state was read (read index). There
//!   is no lease: leases trust clocks.
//! - Heartbeats and the answers to them wait for no disk: were they behind entries that are being synced, a slow disk
//!   would look like a lost leader. They ask for and announce the leader, which votes decide, and a member syncs its
//!   vote before it sends it. A leader counts its own entries before they are synced, so such a heartbeat says nothing
//!   of what is committed; one that does follows behind the gate if the follower may not know.
//! - Amnesia (Corrections 67): term and vote are synced whatever the keyspace's durability. A member that lost
//!   entries it may have acknowledged says so in a new *life*. Others forget what they knew of its log, and drop what
//!   an earlier life said. It neither votes nor stands for election until it holds, committed, everything that the
//!   leader of the highest term among f+1 others held when they answered it.
//! - State transfer: a member that lags behind the leader's oldest entry fetches the leader's state in pieces. Pieces
//!   are taken beside traffic, so the entries after the state's index may be in them already: the application must
//!   apply those again without harm.
//!
//! Left out so far: change of the group's members.

mod eligibility;
mod message;
mod record;
mod storage;
mod transfer;

pub use message::{Message, Raft};
pub use record::{Change, Recovering};

use crate::{Mutant, Mutants};
use eligibility::VoteEligibility;
use protocol::Durability;
use raft::eraftpb::{Entry, Message as RaftMessage, MessageType};
use raft::{Config, RawNode, StateRole};
use std::time::Duration;
use storage::Memory;
use transfer::Transfer;
use types::{Incarnation, Instant, Malformed, Reader, Rng};

/// How many entries stay in memory behind the applied one, for members that lag.
const RETAINED: u64 = 4096;
/// How many entries are dropped at a time.
const DROPPED_AT_ONCE: u64 = 1024;
/// A follower that hears nothing for so many ticks stands for election; a leader that does not hear from a quorum for as
/// long steps down.
const ELECTION_TICKS: usize = 10;
/// A follower ticks at this pace, in percent of the tick, or up to twice as slowly: so a lost leader is missed soon, while
/// leaders keep the whole tick, so that answers may take long.
const FASTEST: u64 = 60;
/// A leader says that it lives every so many ticks.
const HEARTBEAT_TICKS: usize = 2;
/// The slowest pace is this many times slower than the one after a leader was lost.
const WIDEST: u64 = 8;
/// The most bytes of entries in one message, one entry at least.
const APPEND_BYTES: u64 = 256 << 10;

/// What the log works with: the owner's messages, journal and state.
pub trait Port {
    /// Sends to a member, once everything persisted before is durable.
    fn send(&mut self, member: usize, message: Message);
    /// Sends to a member at once: what vouches for nothing that was persisted.
    fn send_now(&mut self, member: usize, message: Message);
    /// Writes a change; `None` stands for the keyspace's durability.
    fn persist(&mut self, change: &Change<'_>, class: Option<Durability>);
}

/// The state that the entries build.
pub trait Application {
    /// Applies a committed entry. Entries come in order, but those after a restored state's index may be part of it
    /// already.
    fn apply(&mut self, index: u64, entry: &[u8]);
    /// Appends the next piece of the state, some tens of kilobytes; returns where to go on, or `None` at the end.
    /// The first piece, at 0, holds everything that `apply` decides by.
    fn save(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64>;
    /// Forgets everything, to be restored.
    fn clear(&mut self);
    /// Takes a piece that `save` made.
    fn restore(&mut self, chunk: &[u8]) -> Result<(), Malformed>;
}

/// What a call brought about, in addition to applied entries.
#[derive(Debug, Default)]
pub struct News {
    /// Reads that a quorum has confirmed, by the context of their request: the state read before is current.
    pub confirmed: Vec<u64>,
}

/// Before and after recovery.
enum State {
    Recovering(Memory),
    Running(Box<RawNode<Memory>>),
}

/// A member of a group.
pub struct Log {
    me: usize,
    members: usize,
    incarnation: Incarnation,
    state: State,
    eligibility: VoteEligibility,
    transfer: Transfer,
    /// Ticks until the pace is drawn anew, and the pace in percent of the tick.
    pace: (usize, u64),
    /// How often the pace was drawn since a leader was known: the more often, the wider the range, so that somebody
    /// wins even where a vote takes longer than the shortest timeout.
    leaderless: u64,
    /// The term in which this member leads and has applied an entry of its own.
    serving: Option<u64>,
    /// Entries that were proposed since the log was settled last.
    proposed: Vec<Entry>,
    /// What is to be confirmed, since the log was settled last.
    unconfirmed: Vec<u64>,
    /// True if time has passed since the log was settled last: then heartbeats also tell what is committed.
    ticked: bool,
    /// False while this member may not lead.
    electable: bool,
    /// See [`Log::give_all`].
    gives_all: bool,
    mutants: Mutants,
}

impl Log {
    /// Member `me` of a group of so many. Feed it its records, then call [`Log::recovered`].
    pub fn new(me: usize, members: usize) -> Self {
        Log {
            me,
            members,
            incarnation: Incarnation(0),
            state: State::Recovering(Memory::new(members)),
            eligibility: VoteEligibility::new(members),
            transfer: Transfer::default(),
            pace: (0, 100),
            leaderless: 0,
            serving: None,
            proposed: Vec::new(),
            unconfirmed: Vec::new(),
            ticked: false,
            electable: true,
            gives_all: false,
            mutants: Mutants::NONE,
        }
    }

    /// The same with a known bug.
    pub fn with_mutants(self, mutants: Mutants) -> Self {
        Log { mutants, ..self }
    }

    /// Takes a record of the journal; `app` gets the pieces of a state that was transferred.
    pub fn recover<A: Application>(&mut self, change: Recovering, app: &mut A) -> Result<(), Malformed> {
        let State::Recovering(memory) = &mut self.state else { return Ok(()) };
        match change {
            Recovering::Hard { term, vote, commit } => memory.set_hard(term, vote, commit),
            Recovering::Entries { entries } => memory.append(entries),
            Recovering::Base { index, term } => memory.set_base(index, term),
            Recovering::Life { life, regained } => self.eligibility.recover(self.me, life, regained),
            Recovering::Piece { number, bytes } => self.transfer.recover_piece(number, bytes),
            Recovering::Installed { index, term, pieces } => {
                if let Some(state) = self.transfer.recover_all(pieces) {
                    app.clear();
                    state.iter().try_for_each(|piece| app.restore(piece))?;
                    memory.set_base(index, term);
                }
            }
        }
        Ok(())
    }

    /// Recovery is over. Without `complete`, what this member has said in earlier lives may be lost.
    pub fn recovered(&mut self, incarnation: Incarnation, complete: bool, port: &mut impl Port) {
        self.incarnation = incarnation;
        let State::Recovering(memory) = &mut self.state else { return };
        let mut memory = std::mem::replace(memory, Memory::new(self.members));
        memory.settle();
        if !complete && self.members > 1 && !self.mutants.has(Mutant::TrustMemory) {
            self.eligibility.forget(self.me, incarnation);
            let change = Change::Life { life: incarnation, regained: false };
            port.persist(&change, Some(Durability::Synced));
        }
        let config = Config {
            id: id(self.me),
            applied: memory.base().0,
            election_tick: ELECTION_TICKS,
            min_election_tick: ELECTION_TICKS,
            max_election_tick: ELECTION_TICKS + 1,
            heartbeat_tick: HEARTBEAT_TICKS,
            max_size_per_msg: APPEND_BYTES,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        match RawNode::new(&config, memory, &logger) {
            Ok(raw) => self.state = State::Running(Box::new(raw)),
            Err(error) => debug_assert!(false, "the configuration is ours: {error}"),
        }
    }

    fn raw(&self) -> Option<&RawNode<Memory>> {
        match &self.state {
            State::Running(raw) => Some(raw),
            State::Recovering(_) => None,
        }
    }

    fn raw_mut(&mut self) -> Option<&mut RawNode<Memory>> {
        match &mut self.state {
            State::Running(raw) => Some(raw),
            State::Recovering(_) => None,
        }
    }

    /// The term in which this member leads, once it has applied everything that came before; then it may decide.
    pub fn serving(&self) -> Option<u64> {
        self.serving
    }

    /// The member that leads, as far as this one knows.
    pub fn leader(&self) -> Option<usize> {
        let leader = self.raw()?.raft.leader_id;
        (leader != raft::INVALID_ID).then(|| member(leader))
    }

    /// True once recovery is over.
    pub fn is_running(&self) -> bool {
        self.raw().is_some()
    }

    /// A member that may not lead votes, and never stands for election.
    pub fn set_electable(&mut self, electable: bool) {
        self.electable = electable;
    }

    /// It leads and should not: the others choose another one.
    pub fn resign(&mut self) {
        if let Some(raw) = self.raw_mut().filter(|raw| raw.raft.state == StateRole::Leader) {
            let term = raw.raft.term;
            raw.raft.become_follower(term, raft::INVALID_ID);
        }
        self.serving = None;
    }

    /// True while it leads, also before it serves.
    pub fn is_leading(&self) -> bool {
        self.raw().is_some_and(|raw| raw.raft.state == StateRole::Leader)
    }

    /// The newest proposed entry that this member has, committed or not.
    pub fn newest(&self) -> Option<&[u8]> {
        self.raw()?.store().newest()
    }

    /// What the application gives while this is true is built by all entries of the leader's log, committed or not: in a group
    /// of three, that and the member that takes it are a majority, so taking it commits them. Without this a leader
    /// whose followers all lack its state could commit nothing, and give nothing.
    pub fn give_all(&mut self, all: bool) {
        self.gives_all = all && self.members == 3;
    }

    /// The highest term it has seen.
    pub fn term(&self) -> u64 {
        self.raw().map_or(0, |raw| raw.raft.term)
    }

    /// The last entry applied.
    pub fn applied(&self) -> u64 {
        self.raw().map_or(0, |raw| raw.raft.raft_log.applied)
    }

    /// True while it has forgotten what it acknowledged, and does not vote.
    pub fn is_forgetful(&self) -> bool {
        !self.eligibility.regained()
    }

    /// When the next tick is due.
    pub fn pace(&mut self, tick: Duration, random: &mut Rng) -> Duration {
        if self.serving.is_some() {
            return tick;
        }
        if self.pace.0 == 0 {
            self.leaderless = if self.leader().is_some() { 0 } else { (self.leaderless + 1).min(WIDEST) };
            self.pace = (ELECTION_TICKS, random.u64(FASTEST..=2 * FASTEST + 100 * self.leaderless));
        }
        self.pace.0 -= 1;
        tick.mul_f64(self.pace.1 as f64 / 100.0)
    }

    /// A tick of time.
    pub fn tick(&mut self, now: Instant, port: &mut impl Port) {
        self.ticked = true;
        if self.eligibility.regained() {
            let electable = self.electable;
            match self.raw_mut() {
                Some(raw) if electable || raw.raft.state == StateRole::Leader => {
                    raw.tick();
                }
                // So that it misses a leader and votes for another.
                Some(raw) => raw.raft.election_elapsed += 1,
                None => {}
            }
        } else {
            self.eligibility.ask(self.me, port);
        }
        self.tick_transfer(now, port);
    }

    /// Proposes an entry, if this member leads, and says at which index it will be. Those of one step become one message to each
    /// member. Whether it is committed shows when it is applied.
    #[must_use]
    pub fn propose(&mut self, entry: Vec<u8>) -> Option<u64> {
        let last = self.leading()?.raft.raft_log.last_index();
        self.proposed.push(Entry { data: entry.into(), ..Entry::default() });
        Some(last + self.proposed.len() as u64)
    }

    /// Appends what was proposed in this step, as much at once as one message takes. A leader that is deposed loses it.
    fn append_proposed(&mut self) {
        let mut proposed = std::mem::take(&mut self.proposed).into_iter().peekable();
        let Some(raw) = self.leading() else { return };
        while let Some(first) = proposed.next() {
            let mut bytes = size_of_entry(&first);
            let mut entries = vec![first];
            while let Some(next) = proposed.next_if(|next| bytes + size_of_entry(next) <= APPEND_BYTES) {
                bytes += size_of_entry(&next);
                entries.push(next);
            }
            let mut message = RaftMessage { from: raw.raft.id, ..RaftMessage::default() };
            message.set_msg_type(MessageType::MsgPropose);
            message.set_entries(entries.into());
            let outcome = raw.raft.step(message);
            debug_assert!(outcome.is_ok(), "a leader takes proposals");
        }
    }

    /// The library, while this member leads: a follower would pass questions on.
    fn leading(&mut self) -> Option<&mut RawNode<Memory>> {
        let serving = self.serving?;
        self.raw_mut().filter(|raw| raw.raft.state == StateRole::Leader && raw.raft.term == serving)
    }

    /// Asks a quorum whether this member still leads: [`News::confirmed`] brings `context` back if it does. The reads
    /// of one step are one read index request.
    pub fn confirm(&mut self, context: u64) {
        self.unconfirmed.push(context);
    }

    /// Asks what is to be confirmed in this step.
    fn ask_quorum(&mut self) {
        let contexts = std::mem::take(&mut self.unconfirmed);
        if let Some(raw) = self.leading().filter(|_| !contexts.is_empty()) {
            raw.read_index(contexts.iter().flat_map(|context| context.to_le_bytes()).collect());
        }
    }

    /// A message from a member.
    pub fn on_message<A: Application>(
        &mut self,
        now: Instant,
        from: usize,
        message: Message,
        app: &mut A,
        port: &mut impl Port,
    ) {
        match message {
            Message::Raft { own, yours, message } => self.on_raft(now, from, (own, yours), message, port),
            Message::Forgot { life } => {
                self.learn_life(from, life);
                if self.eligibility.regained() {
                    let last = self.serving.and(self.raw()).map(|raw| raw.raft.raft_log.last_index());
                    port.send(from, Message::VoteEligibility { life, term: self.term(), last });
                }
            }
            Message::VoteEligibility { life, term, last } => {
                self.eligibility.answer(self.me, from, life, term, last);
            }
            Message::Ask { ask } => self.on_ask(now, from, ask, app, port),
            Message::Piece { piece, base } => self.on_piece(now, from, (piece, base), app, port),
        }
    }

    fn on_raft(
        &mut self,
        now: Instant,
        from: usize,
        (own, yours): (Incarnation, Incarnation),
        message: Raft,
        port: &mut impl Port,
    ) {
        self.learn_life(from, own);
        // What an earlier life said, or what was said to one.
        if own < self.eligibility.life(from) || yours < self.eligibility.life(self.me) {
            return;
        }
        let wants_vote = message.wants_vote();
        if message.0.from != id(from) || (wants_vote && !self.eligibility.regained()) {
            return;
        }
        if message.is_snapshot() {
            return self.begin_transfer(now, from, message, port);
        }
        if let Some(raw) = self.raw_mut() {
            // A refusal is the library's answer to what is out of date.
            let _ = raw.step(message.0);
        }
    }

    /// A member began a life in which it has forgotten its log: what this one knew of it counts no longer.
    fn learn_life(&mut self, from: usize, life: Incarnation) {
        if !self.eligibility.learn(from, life) {
            return;
        }
        let Some(raw) = self.raw_mut() else { return };
        let next = raw.raft.raft_log.last_index() + 1;
        if let Some(progress) = raw.raft.mut_prs().get_mut(id(from)) {
            progress.matched = 0;
            progress.become_probe();
            progress.next_idx = next;
        }
    }

    /// Does everything that has become due: writes, sends, applies. Called at the end of every step.
    pub fn settle<A: Application>(&mut self, now: Instant, app: &mut A, port: &mut impl Port) -> News {
        let mut news = News::default();
        self.append_proposed();
        self.ask_quorum();
        let ticked = std::mem::take(&mut self.ticked);
        let State::Running(raw) = &mut self.state else { return news };
        while raw.has_ready() {
            let mut ready = raw.ready();
            if !ready.snapshot().is_empty() {
                let metadata = ready.snapshot().get_metadata();
                raw.mut_store().set_base(metadata.index, metadata.term);
            }
            if !ready.entries().is_empty() {
                port.persist(&Change::Entries { entries: ready.entries() }, None);
                raw.mut_store().append(ready.take_entries());
            }
            if let Some(hard) = ready.hs() {
                let before = raw.store().hard();
                let vital = (hard.term, hard.vote) != (before.term, before.vote);
                let change = Change::Hard { term: hard.term, vote: hard.vote, commit: hard.commit };
                // A vote must not be forgotten, whatever the keyspace's durability (Corrections 67).
                port.persist(&change, vital.then_some(Durability::Synced));
                let (term, vote, commit) = (hard.term, hard.vote, hard.commit);
                raw.mut_store().set_hard(term, vote, commit);
            }
            for message in ready.take_messages().into_iter().chain(ready.take_persisted_messages()) {
                let known = raw.raft.prs().get(message.to).map_or(0, |progress| progress.committed_index);
                let tells = ticked && message.commit > known;
                self.eligibility.send(self.me, message, tells, port);
            }
            for read in ready.take_read_states() {
                let contexts = read.request_ctx.as_chunks().0.iter();
                news.confirmed.extend(contexts.map(|context| u64::from_le_bytes(*context)));
            }
            apply(ready.take_committed_entries(), app);
            let mut light = raw.advance(ready);
            if let Some(commit) = light.commit_index() {
                raw.mut_store().set_commit(commit);
            }
            for message in light.take_messages() {
                self.eligibility.send(self.me, message, false, port);
            }
            apply(light.take_committed_entries(), app);
            raw.advance_apply();
        }
        let applied = raw.raft.raft_log.applied;
        let committed = raw.raft.raft_log.committed;
        let current = raw.raft.raft_log.term(applied).unwrap_or(0) == raw.raft.term;
        self.serving = (raw.raft.state == StateRole::Leader && current).then_some(raw.raft.term);
        if !self.transfer.is_giving(now) {
            raw.mut_store().drop_below(applied.saturating_sub(RETAINED), DROPPED_AT_ONCE);
        }
        if self.eligibility.regain(committed) {
            let life = self.eligibility.life(self.me);
            port.persist(&Change::Life { life, regained: true }, Some(Durability::Synced));
        }
        news
    }

    /// Appends the log's part of a checkpoint, which comes before the application's: all that recovery needs but
    /// the applied state itself.
    pub fn save(&self, chunk: &mut Vec<u8>) {
        let Some(raw) = self.raw() else { return };
        let (memory, applied) = (raw.store(), raw.raft.raft_log.applied);
        let hard = memory.hard();
        let life = self.eligibility.life(self.me);
        let entries = memory.after(applied);
        let changes = [
            Change::Base { index: applied, term: memory.term_at(applied).unwrap_or(0) },
            Change::Hard { term: hard.term, vote: hard.vote, commit: hard.commit },
            Change::Entries { entries: &entries },
            Change::Life { life, regained: self.eligibility.regained() },
        ];
        for change in changes {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            types::put_bytes(chunk, &bytes);
        }
    }

    /// Takes what `save` made.
    pub fn restore<A: Application>(&mut self, chunk: &[u8], app: &mut A) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        while !reader.is_empty() {
            let change = Recovering::decode(&mut Reader::new(reader.bytes()?))?;
            self.recover(change, app)?;
        }
        Ok(())
    }
}

fn apply<A: Application>(entries: Vec<raft::eraftpb::Entry>, app: &mut A) {
    // A new leader's own entry is empty.
    for entry in entries.iter().filter(|entry| !entry.data.is_empty()) {
        app.apply(entry.index, &entry.data);
    }
}

/// The bytes of an entry in a message, or a few more.
fn size_of_entry(entry: &Entry) -> u64 {
    entry.data.len() as u64 + 32
}

/// The library's number of a member; 0 is nobody.
fn id(member: usize) -> u64 {
    member as u64 + 1
}

fn member(id: u64) -> usize {
    id as usize - 1
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("me", &self.me)
            .field("term", &self.term())
            .field("applied", &self.applied())
            .field("serving", &self.serving)
            .finish_non_exhaustive()
    }
}
