//! The coordinator: runs the transactions of many sessions at once, by two-phase commit between the shards' leaders.
//!
//! ```text
//!  request --> evaluate the steps at the leaders (nothing for blind ones)
//!          --> a single command: Run, which is evaluation and commit --> reply
//!          --> one shard:  Prepare, which is the commit there --> reply
//!          --> several:    Prepare at all --> yes from all --> Decide at the first --> reply --> Decide at the others
//!              or Prepare at all but one --> yes --> Run at that one, which evaluates its steps and decides --> reply
//!          \-- refused or wounded: Decide no, wait, run again with the age it has
//! ```
//!
//! Sessions, pipelines and the evaluation of steps are as in [`crate::coordinator`].

mod batch;
mod combine;
mod commit;
mod contended;
mod demand;
mod execute;
mod gather;
mod last;
mod share;
mod single;
mod timestamps;
mod transaction;
mod unlocked;

use super::message::{Message, Timer};
use super::options::{Concurrency, Options};
use super::record::Record;
use super::replica::Replica;
use crate::coordinator::{CommitProtocol, Question, Settings, Wake};
use batch::Batches;
use combine::Combiner;
use contended::Contended;
use demand::Demand;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use timestamps::SERVER_BOUND;
use transaction::{Phase, Transaction, TransactionState, asks_first, chains, has_begun, touched};
use types::{Address, Error, ErrorCode, HybridClock, Instant, NodeId, Timestamp, TransactionId};

/// How often a question follows hints of who leads before it waits to be said again.
const HOPS: u32 = 4;

/// How many signs of life a transaction gives in the time after which its locks are taken.
const SIGNS: u32 = 4;
/// For how long an interactive transaction keeps locks that others wait for while its client asks for nothing.
const IDLE_LIMIT: Duration = Duration::from_secs(1);
/// An error shows so many bytes of a key.
const SHOWN_BYTES: usize = 128;

/// By how much sooner a question is said again while a leader is being elected.
const SOONER: u32 = 5;

/// Why a session cannot watch keys or begin a transaction.
const NO_TRANSACTIONS: &str = "the keyspace has LOCKS none, a baseline without transactions: send commands one by one, or use a \
                               keyspace with LOCKS typed";

/// A decision that not every participant has acknowledged.
#[derive(Debug)]
struct Settlement {
    id: TransactionId,
    at: Option<Timestamp>,
    waiting: BTreeSet<u16>,
    tries: u32,
    /// How often it has followed a hint of who leads since.
    hops: u32,
}

/// Who leads a shard, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
struct KnownLeader {
    member: usize,
    term: u64,
    /// When it was given up for the next replica last: that helps once at a time, since who waits for a lock waits for
    /// the right replica.
    tried: Instant,
    /// The replica that did not answer last: it is not among the next ones.
    silent: Option<usize>,
}

/// See the module's documentation.
pub type Coordinator = crate::coordinator::Coordinator<TwoPhaseCommit>;
type Step<'s, 'o> = crate::coordinator::Step<'s, 'o, TwoPhaseCommit>;

/// What a coordinator of two-phase commit keeps beside sessions and transactions.
#[derive(Debug)]
pub struct TwoPhaseCommit {
    settlements: BTreeMap<u64, Settlement>,
    leads: BTreeMap<u16, KnownLeader>,
    combiner: Combiner,
    batches: Batches,
    contended: Contended,
    demand: Demand,
    /// The time of a timestamp server.
    server: HybridClock,
}

impl CommitProtocol for TwoPhaseCommit {
    type Options = Options;
    type Message = Message;
    type Timer = Timer;
    type Record<'a> = Record<'a>;
    type Replica = Replica;
    type Phase = Phase;
    type Own = TransactionState;

    /// The operations of a pipeline run one by one.
    const TURN: usize = 1;
    /// Two transactions on thousands of common keys meet while each has requested few of them.
    const AT_ONCE: usize = 256;
    /// Nothing stays locked for a watch: the keys are looked at again, and their versions compared.
    const REREADS_WATCHES: bool = true;

    fn new(_: &Options) -> Self {
        TwoPhaseCommit {
            settlements: BTreeMap::new(),
            leads: BTreeMap::new(),
            combiner: Combiner::default(),
            batches: Batches::default(),
            contended: Contended::default(),
            demand: Demand::default(),
            server: HybridClock::new(SERVER_BOUND),
        }
    }

    fn settings(options: &Options) -> Settings {
        let Options { region, request_timeout, resend_every, .. } = *options;
        Settings { region, request_timeout, ask_again: resend_every }
    }

    fn settling(&self) -> usize {
        self.settlements.len()
    }

    fn on_message(
        coordinator: &mut Coordinator,
        from: (u16, usize),
        message: Message,
        step: &mut Step<'_, '_>,
    ) {
        coordinator.on_message(from, message, step);
    }

    fn on_stranger(coordinator: &mut Coordinator, from: NodeId, message: Message, step: &mut Step<'_, '_>) {
        coordinator.on_clock_message(from.address(), message, step);
    }

    fn on_timer(coordinator: &mut Coordinator, timer: Timer, step: &mut Step<'_, '_>) {
        match timer {
            Timer::Transaction { number } => coordinator.on_transaction_timer(number, step),
            Timer::Settlement { number } => coordinator.on_settlement_timer(number, step),
            Timer::KeyspaceQuery { number } => coordinator.on_browse_timer(number, step),
            Timer::Tick | Timer::Suspicion => {}
        }
    }

    /// For a weak read: whoever leads, which has applied every commit that was answered, then the others. While nobody
    /// is known to lead, the closest.
    fn replica_for(coordinator: &Coordinator, shard: u16, tries: u32, _: Instant) -> Option<usize> {
        let replicas = coordinator.topology.replicas(shard);
        let lead = coordinator.protocol.leads.get(&shard);
        let first = lead.map_or_else(|| coordinator.closest(shard), |lead| lead.member);
        (!replicas.is_empty()).then(|| (first + tries as usize) % replicas.len())
    }

    fn begin(coordinator: &mut Coordinator, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        coordinator.count_demand(&transaction);
        let (members, own) = (std::mem::take(&mut transaction.own.members), &transaction.own);
        let (hops, mut locks_first, asks_all) = (own.hops, own.locks_first, own.asks_all);
        if coordinator.is_unlocked() {
            // The coordinator requests every step from its leader, each by a number of its own.
            locks_first = true;
            coordinator.reserve(transaction.steps.list().len() as u64);
        }
        let signed = step.now.instant;
        transaction.own =
            TransactionState { signed, hops, locks_first, asks_all, members, ..TransactionState::default() };
        coordinator.join_or_advance(transaction, step);
    }

    fn run_ready(coordinator: &mut Coordinator, step: &mut Step<'_, '_>) -> bool {
        let released = coordinator.run_released(step);
        coordinator.send_due(step) || released
    }

    fn ended(coordinator: &mut Coordinator, transaction: &Transaction) {
        coordinator.protocol.combiner.release(transaction.id.number);
        coordinator.came_back(transaction);
    }

    /// Only the leader will do.
    fn read(
        coordinator: &mut Coordinator,
        transaction: &Transaction,
        index: usize,
        _: u32,
        step: &mut Step<'_, '_>,
    ) {
        coordinator.execute(transaction, index, step);
    }

    fn refuses_transactions(options: &Options) -> Option<&'static str> {
        (options.concurrency == Concurrency::Unlocked).then_some(NO_TRANSACTIONS)
    }

    fn chains(transaction: &Transaction) -> bool {
        chains(transaction)
    }

    fn asks_first(transaction: &Transaction, index: usize) -> bool {
        let on_key = transaction.steps.list()[index].call.keyset.is_none();
        asks_first(transaction) && on_key && !transaction.own.plan.spares(index)
    }

    fn tell(
        coordinator: &Coordinator,
        transaction: &mut Transaction,
        index: usize,
        step: &mut Step<'_, '_>,
    ) -> bool {
        coordinator.tell_own(transaction, index, step)
    }

    fn commit(coordinator: &mut Coordinator, transaction: Transaction, step: &mut Step<'_, '_>) {
        if coordinator.is_unlocked() {
            return coordinator.reply_results(transaction, step);
        }
        if let Some(transaction) = coordinator.lock_contended(transaction, step) {
            coordinator.prepare(transaction, step);
        }
    }

    fn is_committing(phase: &Phase) -> bool {
        matches!(phase, Phase::Preparing(_) | Phase::Deciding { .. })
    }

    fn wake(coordinator: &Coordinator, transaction: &Transaction, _: Instant) -> Option<Instant> {
        let again = match &transaction.phase {
            _ if transaction.is_idle() => None,
            Phase::Executing | Phase::Preparing(_) | Phase::Deciding { .. } => {
                Some(transaction.moved_at + coordinator.options.resend_every)
            }
            Phase::BackingOff { until }
            | Phase::Visiting { until, .. }
            | Phase::Gathering { until }
            | Phase::Queued { until } => Some(*until),
        };
        let deadline = transaction.request.is_some() || again.is_some();
        let deadline = deadline.then_some(transaction.deadline);
        let back = coordinator.taken_back_at(transaction);
        [coordinator.next_sign(transaction), again, back, deadline].into_iter().flatten().min()
    }

    fn on_wake(coordinator: &mut Coordinator, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let now = step.now.instant;
        coordinator.give_sign(&mut transaction, step);
        match &transaction.phase {
            _ if transaction.is_idle() => {}
            Phase::BackingOff { until } if *until <= now && transaction.committing => {
                return coordinator.vote_again(transaction, step);
            }
            Phase::BackingOff { until } if *until <= now => return coordinator.run(transaction, step),
            Phase::Visiting { until, .. } | Phase::Gathering { until } if *until <= now => {
                return coordinator.go_by_itself(transaction, step);
            }
            Phase::Queued { until } if *until <= now => return coordinator.wait_no_longer(transaction, step),
            Phase::Preparing(_) if coordinator.taken_back_at(&transaction).is_some_and(|at| at <= now) => {
                coordinator.take_last_back(&mut transaction, step);
            }
            Phase::Executing | Phase::Preparing(_) | Phase::Deciding { .. }
                if transaction.moved_at + coordinator.options.resend_every <= now =>
            {
                if matches!(transaction.phase, Phase::Executing) && coordinator.reads_closest(&transaction) {
                    transaction.own.at_leaders = true;
                } else {
                    for shard in coordinator.unanswered(&transaction) {
                        coordinator.try_next(shard, now);
                    }
                }
                coordinator.take_back(&mut transaction, now);
                coordinator.say_again(&mut transaction, step);
                transaction.own.hops = 0;
                transaction.moved_at = now;
            }
            _ => {}
        }
        coordinator.keep(transaction, step);
    }

    fn give_up(coordinator: &mut Coordinator, transaction: Transaction, step: &mut Step<'_, '_>) {
        coordinator.give_up(transaction, step);
    }

    fn release(coordinator: &mut Coordinator, transaction: &Transaction, step: &mut Step<'_, '_>) {
        coordinator.let_go(transaction, step);
    }
}

impl From<Wake> for Timer {
    fn from(wake: Wake) -> Self {
        match wake {
            Wake::Transaction { number } => Timer::Transaction { number },
            Wake::KeyspaceQuery { number } => Timer::KeyspaceQuery { number },
        }
    }
}

impl From<Question> for Message {
    fn from(question: Question) -> Self {
        match question {
            Question::Count { transaction } => Message::Count { transaction },
            Question::Scan { transaction, cursor, count, now_millis } => {
                Message::Scan { transaction, cursor, count, now_millis }
            }
            Question::Draw { transaction, except, now_millis } => {
                Message::Draw { transaction, except, now_millis }
            }
        }
    }
}

impl Coordinator {
    /// This coordinator sends no request for a transaction below this: shards may forget how it ended.
    fn floor(&self, running: TransactionId) -> u64 {
        let first = [self.transactions.keys().next(), self.protocol.settlements.keys().next()];
        first.into_iter().flatten().copied().min().unwrap_or(running.number).min(running.number)
    }

    fn on_message(&mut self, (shard, member): (u16, usize), message: Message, step: &mut Step<'_, '_>) {
        let Some(message) = self.take_unlocked((shard, member), message, step) else { return };
        match message {
            Message::Executed { transaction, step: index, term, evaluation, then }
                if self.is_mine(transaction) =>
            {
                if term != 0 {
                    self.learn_leader(shard, member, term);
                }
                self.on_executed(shard, transaction.number, index, (term, evaluation, then), step);
            }
            Message::Locked { transaction, step: index, term } if self.is_mine(transaction) => {
                self.learn_leader(shard, member, term);
                self.on_locked(shard, transaction.number, index, term, step);
            }
            Message::Looked { transaction, step: index, term, look } if self.is_mine(transaction) => {
                self.learn_leader(shard, member, term);
                self.on_looked(shard, transaction.number, index, (term, look), step);
            }
            Message::Blocked { transaction } if self.is_mine(transaction) => {
                self.on_blocked(shard, transaction.number, step);
            }
            Message::Wanted { transaction, key } if self.is_mine(transaction) => {
                self.on_wanted(transaction.number, &key, step);
            }
            Message::Prepared { transaction, at } if self.is_mine(transaction) => {
                self.on_prepared(shard, transaction.number, at, step);
            }
            Message::Refused { transaction, key, expires, undecided } if self.is_mine(transaction) => {
                if let Some(key) = key.as_ref().filter(|_| expires) {
                    self.expiring.learn(key);
                }
                self.on_refused(shard, transaction.number, (key, undecided), step);
            }
            Message::Done { transaction, at, term, evaluations } if self.is_mine(transaction) => {
                self.learn_leader(shard, member, term);
                self.on_done(shard, transaction.number, (at, evaluations), step);
            }
            Message::Ended { transaction, at } if self.is_mine(transaction) => {
                self.on_ended(shard, transaction.number, at, step);
            }
            Message::Redirect { transaction, leader, term } if self.is_mine(transaction) => {
                self.on_redirect(shard, member, transaction.number, (leader, term), step);
            }
            Message::CountReply { transaction, keys } if self.is_mine(transaction) => {
                self.on_count_reply(transaction.number, shard, keys, step);
            }
            Message::ScanReply { transaction, cursor, keys } if self.is_mine(transaction) => {
                self.on_scan_reply(transaction.number, shard, cursor, &keys, step);
            }
            Message::DrawReply { transaction, keys, key } if self.is_mine(transaction) => {
                self.on_draw_reply(transaction.number, shard, (keys, key), step);
            }
            _ => {}
        }
    }

    /// True if what leaders evaluate for the transaction they lock for it.
    fn locks(&self, transaction: &Transaction) -> bool {
        match self.options.concurrency {
            Concurrency::Locking => true,
            Concurrency::Optimistic => asks_first(transaction),
            Concurrency::Unlocked => false,
        }
    }

    /// The shards that hold something for a transaction as long as its coordinator lives: locks, or a vote.
    fn holding(&self, transaction: &Transaction) -> BTreeSet<u16> {
        match &transaction.phase {
            Phase::Executing if self.locks(transaction) => touched(transaction),
            Phase::Preparing(_) => touched(transaction),
            // The others are to ask the first one, which may be out of the coordinator's reach.
            Phase::Deciding { first, .. } => BTreeSet::from([*first]),
            Phase::Executing
            | Phase::BackingOff { .. }
            | Phase::Visiting { .. }
            | Phase::Gathering { .. }
            | Phase::Queued { .. } => BTreeSet::new(),
        }
    }

    /// True if a shard holds something for it.
    fn is_held(&self, transaction: &Transaction) -> bool {
        match &transaction.phase {
            Phase::Executing => self.locks(transaction) && has_begun(transaction),
            _ => !self.holding(transaction).is_empty(),
        }
    }

    /// When the transaction's next sign of life is due.
    fn next_sign(&self, transaction: &Transaction) -> Option<Instant> {
        self.is_held(transaction)
            .then(|| transaction.own.signed.max(transaction.began) + self.options.lock_timeout / SIGNS)
    }

    /// Says that the transaction's coordinator lives, if that is due.
    fn give_sign(&self, transaction: &mut Transaction, step: &mut Step<'_, '_>) {
        if self.next_sign(transaction).is_none_or(|at| at > step.now.instant) {
            return;
        }
        transaction.own.signed = step.now.instant;
        for shard in self.holding(transaction) {
            self.send_leader(shard, Message::Alive { transaction: transaction.id }, step);
        }
    }

    /// Others wait for a lock of the transaction. A client that thinks for longer than a moment does not keep it.
    fn on_wanted(&mut self, number: u64, key: &[u8], step: &mut Step<'_, '_>) {
        let now = step.now.instant;
        let overdue = |it: &Transaction| it.is_idle() && now >= it.idle_since + IDLE_LIMIT;
        let Some(transaction) = self.take_if(number, overdue) else { return };
        let text = format!(
            "another transaction waited for key '{}' while this one, which had it, was idle for {} s; nothing of it took \
             effect; retry it",
            String::from_utf8_lossy(&key[..key.len().min(SHOWN_BYTES)]),
            IDLE_LIMIT.as_secs(),
        );
        self.let_go(&transaction, step);
        self.fail(transaction, &Error::new(ErrorCode::Conflict, text), step);
    }

    /// Asks whoever leads the shard, as far as is known.
    fn send_leader(&self, shard: u16, message: Message, step: &mut Step<'_, '_>) {
        let lead = self.protocol.leads.get(&shard).copied().unwrap_or_default();
        self.send_to(shard, lead.member, message, step);
    }

    fn send_to(&self, shard: u16, member: usize, message: Message, step: &mut Step<'_, '_>) {
        if let Some(replica) = self.topology.replicas(shard).get(member) {
            step.out.send(*replica, message);
        }
    }

    /// The replica does not lead, or another term has begun: what it knows is believed if it is newer, else the next
    /// replica is tried.
    fn on_redirect(
        &mut self,
        shard: u16,
        member: usize,
        number: u64,
        (leader, term): (Option<usize>, u64),
        step: &mut Step<'_, '_>,
    ) {
        let known = self.protocol.leads.get(&shard).copied().unwrap_or_default();
        if leader.is_none() {
            return self.on_no_leader(shard, member, number, step);
        }
        let Some(leader) = leader.filter(|_| term >= known.term) else { return };
        if leader == member {
            self.learn_leader(shard, member, term);
        } else if known.member == member {
            // What a follower has heard; the leader itself says in which term it serves.
            self.protocol.leads.insert(shard, KnownLeader { member: leader, ..known });
        } else if known.member != leader {
            return;
        }
        if let Some(settlement) = self.protocol.settlements.get_mut(&number)
            && settlement.waiting.contains(&shard)
            && settlement.hops < HOPS
        {
            settlement.hops += 1;
            let (id, at) = (settlement.id, settlement.at);
            self.decide(shard, id, at, step);
        }
        let Some(mut transaction) = self.take(number) else { return };
        if let Phase::Preparing(preparing) = &mut transaction.phase
            && let Some(known_term @ 0) = preparing.terms.get_mut(&shard)
            && leader == member
        {
            *known_term = term;
        }
        // Followers may name one another for a while.
        if transaction.own.hops < HOPS {
            transaction.own.hops += 1;
            self.say_again(&mut transaction, step);
        }
        self.keep(transaction, step);
    }

    /// The replica knows of no leader: one is about to be elected, and the coordinator soon queries another replica.
    fn on_no_leader(&mut self, shard: u16, member: usize, number: u64, step: &mut Step<'_, '_>) {
        let lead = self.protocol.leads.entry(shard).or_default();
        if lead.member == member {
            lead.member = next(*lead, self.topology.replicas(shard).len());
            lead.tried = step.now.instant;
        }
        let Some(mut transaction) = self.take(number) else { return };
        let early = self.options.resend_every - self.options.resend_every / SOONER;
        let moved_at = Instant(step.now.instant.0.saturating_sub(early.as_micros() as u64));
        transaction.moved_at = transaction.moved_at.min(moved_at);
        self.keep(transaction, step);
    }

    /// Who leads a shard, as far as its replicas have said.
    pub(crate) fn leader(&self, shard: u16) -> Option<Address> {
        let lead = self.protocol.leads.get(&shard).filter(|lead| lead.term > 0)?;
        self.topology.replicas(shard).get(lead.member).copied()
    }

    fn learn_leader(&mut self, shard: u16, member: usize, term: u64) {
        let lead = self.protocol.leads.entry(shard).or_default();
        if lead.term <= term {
            (lead.member, lead.term, lead.silent) = (member, term, None);
        }
    }

    /// A shard does not answer: its next replica may know why.
    fn try_next(&mut self, shard: u16, now: Instant) {
        let members = self.topology.replicas(shard).len();
        let lead = self.protocol.leads.entry(shard).or_default();
        if now - lead.tried >= self.options.resend_every {
            lead.silent = Some(lead.member);
            lead.member = next(*lead, members);
            lead.tried = now;
        }
    }

    /// The shards that an answer is missing from.
    fn unanswered(&self, transaction: &Transaction) -> BTreeSet<u16> {
        match &transaction.phase {
            Phase::Executing => transaction.steps.requested().map(|(_, call)| call.shard).collect(),
            Phase::Preparing(preparing) => {
                let pending = preparing.pending_votes().map(|(shard, _)| *shard);
                pending.filter(|shard| !preparing.votes.contains_key(shard)).collect()
            }
            Phase::Deciding { first, .. } => BTreeSet::from([*first]),
            Phase::BackingOff { .. }
            | Phase::Visiting { .. }
            | Phase::Gathering { .. }
            | Phase::Queued { .. } => BTreeSet::new(),
        }
    }

    /// Says again what was not answered.
    fn say_again(&mut self, transaction: &mut Transaction, step: &mut Step<'_, '_>) {
        match &transaction.phase {
            Phase::Executing if transaction.own.stamping => self.send_clock(transaction, step),
            Phase::Executing => {
                let requested: Vec<usize> = transaction.steps.requested().map(|(index, _)| index).collect();
                for index in requested {
                    self.ask(transaction, index, step);
                }
            }
            Phase::Preparing(_) => self.propose(transaction, step),
            Phase::Deciding { at, first, .. } => self.decide(*first, transaction.id, *at, step),
            Phase::BackingOff { .. }
            | Phase::Visiting { .. }
            | Phase::Gathering { .. }
            | Phase::Queued { .. } => {}
        }
    }
}

/// The replica to ask after the present one.
fn next(lead: KnownLeader, members: usize) -> usize {
    let members = members.max(1);
    let next = (lead.member + 1) % members;
    if lead.silent == Some(next) && members > 1 { (next + 1) % members } else { next }
}
