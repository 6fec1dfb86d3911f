//! What the coordinators of replicated strict keyspaces have in common, however their transactions commit: sessions
//! and their pipelines, transactions that are evaluated step by step, questions about the whole keyspace.
//!
//! ```text
//!  request --> sessions: turns of a pipeline, watches, the open transaction
//!          --> steps:    evaluated at replicas, or here if they observe nothing    CommitProtocol::read
//!          --> evaluated: votes and a decision                                     CommitProtocol::commit
//!          --> reply_results, or run again, or fail
//! ```
//!
//! [`CommitProtocol`] says what a protocol must bring. Nothing here knows of votes, leaders or views.

mod call;
mod draw;
mod evaluate;
mod expiring;
mod keyset;
mod keyspace_query;
mod requests;
mod sessions;
mod steps;
mod transaction;

pub use call::{Call, observe_whole, result_unread, unread_effect, whole_key};
pub use draw::draw_from;
pub use expiring::Expiring;
pub use keyset::{KeysetRead, KeysetReadRequest, look_at};
pub use keyspace_query::Question;
pub use steps::{Answer, CallStep, Done, Progress, Steps};
pub use transaction::{Purpose, Transaction};

use crate::Topology;
use crate::node::{self, Node};
use keyspace_query::KeyspaceQuery;
use protocol::{Claim, CommitStamp, Encode, Input, Now, Outputs};
use sessions::Sessions;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
use types::{
    Error, ErrorCode, Incarnation, Instant, NodeId, ProcessId, RegionId, RegionSet, RequestId, Rng,
    Timestamp, TransactionId, WallTime, Wire,
};

/// For how long an interactive transaction may be open, as in keyspaces of one process.
const LEASE: Duration = Duration::from_secs(60);

/// What makes a coordinator one of this commit protocol. It is what such a coordinator keeps beside sessions and
/// transactions; all functions but the first get the whole coordinator.
pub trait CommitProtocol: Debug + Sized {
    /// How coordinators and replicas are set up.
    type Options;
    /// The messages between coordinators and replicas.
    type Message: Wire + From<Question>;
    /// The timers of coordinators and replicas.
    type Timer: Copy + Ord + Debug + From<Wake>;
    /// What replicas write to the journal.
    type Record<'a>: Encode;
    /// A copy of a shard.
    type Replica: node::Replica<Self>;
    /// Where a transaction is; at first its steps are evaluated, or it waits for its session.
    type Phase: Debug + Default;
    /// What else the protocol keeps of a transaction.
    type Own: Debug + Default;

    /// How many operations of a pipeline run as one transaction.
    const TURN: usize;
    /// How many questions of a transaction are open together, and for how many steps of one key one of them is; once these are
    /// evaluated, as many as are.
    const AT_ONCE: usize;
    /// Watched keys are read again, as the first steps of the transaction; else its votes judge what was seen.
    const REREADS_WATCHES: bool;

    /// What a coordinator starts with.
    fn new(options: &Self::Options) -> Self;
    /// What the common part needs to know of the options.
    fn settings(options: &Self::Options) -> Settings;
    /// How many decided transactions have not been acknowledged by everybody.
    fn settling(&self) -> usize;

    /// A replica, named by shard and member, says something.
    fn on_message(
        coordinator: &mut Coordinator<Self>,
        from: (u16, usize),
        message: Self::Message,
        step: &mut Step<'_, '_, Self>,
    );
    /// Another process hosts it, perhaps as a replica of a group that has changed.
    fn on_stranger(_: &mut Coordinator<Self>, _: NodeId, _: Self::Message, _: &mut Step<'_, '_, Self>) {}
    /// A timer has run out.
    fn on_timer(coordinator: &mut Coordinator<Self>, timer: Self::Timer, step: &mut Step<'_, '_, Self>);
    /// At the end of a step: runs transactions that were held back; false if there are none.
    fn run_ready(_: &mut Coordinator<Self>, _: &mut Step<'_, '_, Self>) -> bool {
        false
    }

    /// The time for deadlines: not below what its timestamps have reached, where it has a clock for them.
    fn time(_: &Coordinator<Self>, now: Now) -> WallTime {
        now.wall
    }

    /// Which replica of a shard the coordinator queries at the given try, where any replica will do.
    fn replica_for(coordinator: &Coordinator<Self>, shard: u16, tries: u32, now: Instant) -> Option<usize>;
    /// A transaction begins to run: usually by [`Coordinator::advance`].
    fn begin(coordinator: &mut Coordinator<Self>, run: Transaction<Self>, step: &mut Step<'_, '_, Self>);
    /// Requests the evaluation of a step and of the steps chained to it, after `tries` earlier requests.
    fn read(
        coordinator: &mut Coordinator<Self>,
        run: &Transaction<Self>,
        index: usize,
        tries: u32,
        step: &mut Step<'_, '_, Self>,
    );
    /// Requests the evaluation of steps that are not in flight yet.
    fn read_first(
        coordinator: &mut Coordinator<Self>,
        run: &Transaction<Self>,
        indices: &[usize],
        step: &mut Step<'_, '_, Self>,
    ) {
        indices.iter().for_each(|index| Self::read(coordinator, run, *index, 0, step));
    }
    /// Why there are no transactions of several requests, if there are none.
    fn refuses_transactions(_: &Self::Options) -> Option<&'static str> {
        None
    }
    /// True if the coordinator sends steps on one key that must be evaluated in sequence together: a request for one
    /// includes those of [`Steps::chain`].
    fn chains(_: &Transaction<Self>) -> bool;
    /// True if the coordinator sends this step to replicas even if the step needs no evaluation.
    fn asks_first(_: &Transaction<Self>, _: usize) -> bool {
        false
    }
    /// Evaluates a step by what others of the transaction have found out; false if it cannot.
    fn tell(_: &Coordinator<Self>, _: &mut Transaction<Self>, _: usize, _: &mut Step<'_, '_, Self>) -> bool {
        false
    }
    /// Everything is evaluated: asks for votes, decides, and in the end calls [`Coordinator::reply_results`],
    /// [`Coordinator::run`] or [`Coordinator::fail`].
    fn commit(coordinator: &mut Coordinator<Self>, run: Transaction<Self>, step: &mut Step<'_, '_, Self>);

    /// True once the coordinator has asked for votes: the transaction goes on, whether or not a client waits for it.
    fn is_committing(phase: &Self::Phase) -> bool;
    /// When a transaction wants to be looked at next.
    fn wake(coordinator: &Coordinator<Self>, run: &Transaction<Self>, now: Instant) -> Option<Instant>;
    /// It is looked at, before its deadline.
    fn on_wake(coordinator: &mut Coordinator<Self>, run: Transaction<Self>, step: &mut Step<'_, '_, Self>);
    /// Its deadline has come: ends it with the error that says what is known.
    fn give_up(coordinator: &mut Coordinator<Self>, run: Transaction<Self>, step: &mut Step<'_, '_, Self>);
    /// Lets go of what a transaction holds at replicas; it will not commit.
    fn release(_: &mut Coordinator<Self>, _: &Transaction<Self>, _: &mut Step<'_, '_, Self>) {}
    /// See [`protocol::Protocol::can_wait`].
    fn can_wait(_: &Self::Message) -> bool {
        false
    }
    /// It is over here.
    fn ended(_: &mut Coordinator<Self>, _: &Transaction<Self>) {}
}

/// What the common part needs to know of a protocol's options.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Named in claims.
    pub region: RegionId,
    /// A request that is not done after this is answered by an error.
    pub request_timeout: Duration,
    /// A question about the whole keyspace that is not answered after this goes to another replica.
    pub ask_again: Duration,
}

/// What the common part is to be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A transaction waits.
    Transaction {
        /// Its number.
        number: u64,
    },
    /// A piece of the keyspace has not been answered.
    KeyspaceQuery {
        /// The question's number.
        number: u64,
    },
}

/// See the module's documentation.
pub struct Coordinator<P: CommitProtocol> {
    pub(crate) topology: Topology,
    pub(crate) options: P::Options,
    settings: Settings,
    pub(crate) process: ProcessId,
    incarnation: Incarnation,
    /// Numbers of transactions and questions; never reset in this life.
    counter: u64,
    /// In boxes, as they are taken out and put back with every message.
    pub(crate) transactions: BTreeMap<u64, Box<Transaction<P>>>,
    browses: BTreeMap<u64, KeyspaceQuery>,
    sessions: Sessions,
    /// Keys whose blind writes are evaluated.
    pub(crate) expiring: Expiring,
    claims: Vec<Claim>,
    /// What the protocol keeps.
    pub(crate) protocol: P,
}

/// What a handler gets in addition to the coordinator.
pub struct Step<'s, 'o, P: CommitProtocol> {
    pub(crate) now: Now,
    pub(crate) random: &'s mut Rng,
    pub(crate) out: &'s mut Outputs<'o, Node<P>>,
}

/// The reply to a transaction that looked at which keys there are, or deleted all, and met one that changed that.
pub fn keyset_conflict() -> Error {
    let message = "keys were created, deleted or read by other transactions; nothing happened, retry";
    Error::new(ErrorCode::Conflict, message)
}

/// The reply to a transaction that met a conflicting one.
pub fn conflict(key: Option<&[u8]>) -> Error {
    let message = match key {
        Some(key) => format!(
            "key '{}' was changed or is being changed by another transaction; nothing happened, retry",
            String::from_utf8_lossy(key)
        ),
        None => {
            "another transaction stood in the way until the time was up; nothing happened, retry".to_owned()
        }
    };
    Error::new(ErrorCode::Conflict, message)
}

impl<P: CommitProtocol> Coordinator<P> {
    pub(crate) fn new(
        topology: Topology,
        process: ProcessId,
        incarnation: Incarnation,
        options: P::Options,
    ) -> Self {
        Coordinator {
            topology,
            settings: P::settings(&options),
            protocol: P::new(&options),
            options,
            process,
            incarnation,
            counter: 0,
            transactions: BTreeMap::new(),
            browses: BTreeMap::new(),
            sessions: Sessions::default(),
            expiring: Expiring::default(),
            claims: Vec::new(),
        }
    }

    pub(crate) fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    /// How many transactions are in progress, decided ones that not everybody has acknowledged included.
    pub fn in_progress(&self) -> usize {
        self.transactions.len() + self.protocol.settling() + self.browses.len()
    }

    fn next_id(&mut self) -> TransactionId {
        self.counter += 1;
        TransactionId { process: self.process, incarnation: self.incarnation, number: self.counter }
    }

    /// Leaves so many numbers to the latest transaction, beside its own.
    pub(crate) fn reserve(&mut self, numbers: u64) {
        self.counter += numbers;
    }

    /// An answer to an earlier life of this coordinator counts for nothing.
    pub(crate) fn is_mine(&self, id: TransactionId) -> bool {
        (id.process, id.incarnation) == (self.process, self.incarnation)
    }

    pub(crate) fn on_input(
        &mut self,
        now: Now,
        input: Input<'_, Node<P>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<P>>,
    ) {
        let step = &mut Step { now, random, out };
        match input {
            Input::Request { id, request } => self.on_request(id, &request, step),
            Input::Message { from, message } => match self.topology.find(from.address()) {
                Some(replica) => P::on_message(self, replica, message, step),
                None => P::on_stranger(self, from, message, step),
            },
            Input::Timer(timer) => P::on_timer(self, timer, step),
            // Gateways have no journal (Corrections 73).
            Input::Snapshot(_) | Input::Recover(_) | Input::Recovered { .. } | Input::PeerStarted { .. } => {}
        }
    }

    /// What waits until all inputs of a step are in: the turns of pipelines, and what was held back.
    pub(crate) fn after_inputs(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<P>>) {
        let step = &mut Step { now, random, out };
        self.take_turns(step);
        while P::run_ready(self, step) {
            self.take_turns(step);
        }
    }

    pub(crate) fn on_transaction_timer(&mut self, number: u64, step: &mut Step<'_, '_, P>) {
        let Some(transaction) = self.take(number) else { return };
        let now = step.now.instant;
        if !transaction.is_idle() && now >= transaction.deadline {
            P::give_up(self, transaction, step)
        } else if transaction.is_idle() && now >= transaction.began + LEASE {
            P::release(self, &transaction, step);
            let text = "the transaction was open for more than 60 seconds and was given up; begin it again";
            self.fail(transaction, &Error::new(ErrorCode::SnapshotTooOld, text), step);
        } else {
            P::on_wake(self, transaction, step)
        }
    }

    /// Takes a transaction out, to be put back by [`Coordinator::keep`] if it goes on.
    pub(crate) fn take(&mut self, number: u64) -> Option<Transaction<P>> {
        self.transactions.remove(&number).map(|transaction| *transaction)
    }

    /// The same if this holds of it.
    pub(crate) fn take_if(
        &mut self,
        number: u64,
        wanted: impl FnOnce(&Transaction<P>) -> bool,
    ) -> Option<Transaction<P>> {
        let is_wanted = self.transactions.get(&number).is_some_and(|transaction| wanted(transaction));
        if is_wanted { self.take(number) } else { None }
    }

    /// Puts a transaction back and arms its timer.
    pub(crate) fn keep(&mut self, transaction: Transaction<P>, step: &mut Step<'_, '_, P>) {
        let number = transaction.id.number;
        let timer = Wake::Transaction { number }.into();
        let lease = transaction.is_idle().then(|| transaction.began + LEASE);
        match P::wake(self, &transaction, step.now.instant).into_iter().chain(lease).min() {
            Some(at) => step.out.arm(timer, at),
            None => step.out.disarm(timer),
        }
        self.transactions.insert(number, Box::new(transaction));
    }

    /// Replies an error and ends the transaction here. A session that has it open hears the same until it ends it too.
    pub(crate) fn fail(
        &mut self,
        mut transaction: Transaction<P>,
        error: &Error,
        step: &mut Step<'_, '_, P>,
    ) {
        Self::reply_error(&mut transaction, error, step);
        if error.code == ErrorCode::Conflict && transaction.is_begun_anew() {
            self.sessions.lose(transaction.session, transaction.age, transaction.retries, step.now.instant);
        }
        if transaction.is_idle() {
            self.sessions.fail(transaction.session, error.clone());
        }
        self.forget(&transaction, step);
    }

    /// Replies an error to whoever waits for the transaction.
    fn reply_error(transaction: &mut Transaction<P>, error: &Error, step: &mut Step<'_, '_, P>) {
        if let Some(request) = transaction.request.take() {
            step.out.reply(request).error(error);
            transaction.turn.iter().skip(1).for_each(|request| step.out.reply(*request).error(error));
        }
    }

    /// Replies an error to whoever waits, and goes on until this moment: others wait for its end, wherever it is held.
    pub(crate) fn end_unheard(
        &mut self,
        mut transaction: Transaction<P>,
        error: &Error,
        until: Instant,
        step: &mut Step<'_, '_, P>,
    ) {
        Self::reply_error(&mut transaction, error, step);
        self.forget(&transaction, step);
        (transaction.turn, transaction.purpose) = (Vec::new(), Purpose::Auto);
        transaction.deadline = until;
        self.keep(transaction, step);
    }

    /// Nothing refers to the transaction any more.
    pub(crate) fn forget(&mut self, transaction: &Transaction<P>, step: &mut Step<'_, '_, P>) {
        let number = transaction.id.number;
        step.out.disarm(Wake::Transaction { number }.into());
        if let Purpose::Flush { keyspace_query } = transaction.purpose {
            self.fail_browse(keyspace_query, step);
        }
        P::ended(self, transaction);
        if !transaction.turn.is_empty() {
            self.sessions.end_turn(transaction.session);
        }
        self.sessions.end(transaction.session, number, step.now.instant);
    }

    /// Keeps for checkers what the transaction did at this timestamp; without one, that it did nothing.
    pub(crate) fn claim(&mut self, transaction: &Transaction<P>, at: Option<Timestamp>) {
        self.claim_of(transaction, at, transaction.turn.clone());
    }

    /// The same of one that serves these requests.
    pub(crate) fn claim_of(
        &mut self,
        transaction: &Transaction<P>,
        at: Option<Timestamp>,
        requests: Vec<RequestId>,
    ) {
        let region = self.settings.region;
        self.claims.push(Claim {
            session: transaction.session,
            transaction: transaction.id,
            commit: at.map(|at| CommitStamp {
                at,
                depends_on: Timestamp::ZERO,
                region,
                parts: RegionSet::default(),
            }),
            snapshot: None,
            effects: at.map(|_| transaction.steps.effects()).unwrap_or_default(),
            vector: None,
            thread: None,
            requests,
            branch: None,
        });
    }
}

impl<P: CommitProtocol> Debug for Coordinator<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Everything that changes: model checking takes two coordinators that print alike for the same.
        f.debug_struct("Coordinator")
            .field("process", &self.process)
            .field("incarnation", &self.incarnation)
            .field("counter", &self.counter)
            .field("transactions", &self.transactions)
            .field("browses", &self.browses)
            .field("sessions", &self.sessions)
            .field("expiring", &self.expiring)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}
