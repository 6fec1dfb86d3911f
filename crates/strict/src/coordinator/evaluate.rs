//! The execution period: a transaction's steps are evaluated, at replicas or here, and in the end it replies.

use super::steps::{Progress, Steps, Watched};
use super::transaction::Running;
use super::{Call, CommitProtocol, Coordinator, Purpose, Step, Transaction};
use crate::validation::Stamp;
use smallvec::SmallVec;
use types::{SessionId, Timestamp};

impl<P: CommitProtocol> Coordinator<P> {
    /// A transaction that no client waits for yet.
    pub(super) fn transaction(
        &mut self,
        session: SessionId,
        purpose: Purpose,
        watches: Vec<Watched>,
        calls: Vec<Call>,
        step: &Step<'_, '_, P>,
    ) -> Transaction<P> {
        let id = self.next_id();
        let mut steps = Steps::default();
        if P::REREADS_WATCHES {
            steps.push(watches.iter().map(|watched| watched.call.clone()));
        }
        let replied = steps.list().len();
        steps.push(calls);
        let mut transaction = Box::new(Running {
            id,
            age: Stamp { at: Timestamp::from_wall(step.now.wall), transaction: id },
            session,
            request: None,
            purpose,
            steps,
            replied,
            watches,
            committing: false,
            now_millis: P::time(self, step.now).as_millis(),
            began: step.now.instant,
            idle_since: step.now.instant,
            moved_at: step.now.instant,
            phase: P::Phase::default(),
            deadline: step.now.instant + self.settings.request_timeout,
            retries: 0,
            lost: None,
            turn: Vec::new(),
            conflicted: None,
            own: P::Own::default(),
        });
        if transaction.is_begun_anew()
            && let Some(lost) = self.sessions.lost(session, step.now.instant)
        {
            (transaction.age, transaction.lost) = (lost.age, Some(lost));
        }
        transaction
    }

    /// Begins to evaluate a transaction, or begins again, as a new one. Watches stay as they are.
    pub(crate) fn run(&mut self, mut transaction: Transaction<P>, step: &mut Step<'_, '_, P>) {
        self.renumber(&mut transaction);
        transaction.now_millis = P::time(self, step.now).as_millis();
        transaction.began = step.now.instant;
        transaction.phase = P::Phase::default();
        transaction.steps.restart();
        P::begin(self, transaction, step);
    }

    /// The transaction goes on under another number, with what it has found out.
    pub(crate) fn renumber(&mut self, transaction: &mut Transaction<P>) {
        let before = transaction.id.number;
        transaction.id = self.next_id();
        if self.sessions.opened(transaction.session) == Some(before) {
            self.sessions.open(transaction.session, transaction.id.number);
        }
    }

    /// Evaluates what can be evaluated; when everything is, goes on to what the transaction is for.
    pub(crate) fn advance(&mut self, mut transaction: Transaction<P>, step: &mut Step<'_, '_, P>) {
        transaction.moved_at = step.now.instant;
        let mut requested: SmallVec<[usize; 16]> = SmallVec::new();
        let room = transaction.steps.room(P::AT_ONCE);
        while requested.len() < room
            && let Some(index) = transaction.steps.next_ready()
        {
            let (now, expiring) = (transaction.now_millis, &self.expiring);
            if !P::tell(self, &mut transaction, index, step)
                && (P::asks_first(&transaction, index)
                    || !transaction.steps.evaluate_here(index, now, expiring, step.random))
            {
                requested.push(index);
            }
        }
        if !requested.is_empty() {
            let chains = P::chains(&transaction);
            let at = step.now.instant;
            for index in &requested {
                transaction.steps.set(*index, Progress::Requested { tries: 1, at });
                if chains {
                    transaction.steps.ask_behind(*index, at, P::AT_ONCE, &self.expiring);
                }
            }
            P::read_first(self, &transaction, &requested, step);
        }
        if transaction.steps.is_evaluated() {
            self.evaluated(transaction, step)
        } else {
            self.keep(transaction, step)
        }
    }

    /// Asks a replica to evaluate a step, perhaps once more.
    pub(crate) fn ask(&mut self, transaction: &mut Transaction<P>, index: usize, step: &mut Step<'_, '_, P>) {
        let tries = match transaction.steps.list()[index].progress {
            Progress::Requested { tries, .. } => tries,
            Progress::Waiting | Progress::Deferred | Progress::Done(_) => 0,
        };
        if !transaction.steps.is_chained(index) {
            P::read(self, transaction, index, tries, step);
        }
        transaction.steps.set(index, Progress::Requested { tries: tries + 1, at: step.now.instant });
    }

    fn evaluated(&mut self, mut transaction: Transaction<P>, step: &mut Step<'_, '_, P>) {
        match transaction.purpose {
            Purpose::Watch => self.watch_evaluated(transaction, step),
            Purpose::Interactive { .. } if !transaction.committing => {
                self.reply_steps(&mut transaction, step);
                self.sessions.answered(transaction.session, step.now.instant);
                self.keep(transaction, step);
            }
            Purpose::Auto | Purpose::Flush { .. } | Purpose::Interactive { .. } => {
                P::commit(self, transaction, step);
            }
        }
    }

    /// Every watched key was read: the session retains what was seen. The reads need not be one snapshot, since the
    /// commit validates each key; no lock stays held.
    fn watch_evaluated(&mut self, mut transaction: Transaction<P>, step: &mut Step<'_, '_, P>) {
        P::release(self, &transaction, step);
        for (known, done) in transaction.steps.done() {
            let (call, observed) = (known.call.clone(), done.invoked.observed.clone());
            let watched = Watched { call, observed, expires_at: done.expires_at };
            self.sessions.watch(transaction.session, watched);
        }
        if let Some(request) = transaction.request.take() {
            step.out.reply(request).simple("OK");
        }
        self.forget(&transaction, step);
    }

    /// Sends the results not sent yet: to the pipeline's request of each step, else to the only request.
    fn reply_steps(&self, transaction: &mut Transaction<P>, step: &mut Step<'_, '_, P>) {
        let Some(request) = transaction.request.take() else { return };
        transaction.idle_since = step.now.instant;
        for (index, known) in transaction.steps.list().iter().enumerate().skip(transaction.replied) {
            if let Progress::Done(done) = &known.progress {
                let request = transaction.turn.get(index).copied().unwrap_or(request);
                if let Some(keyset) = known.call.keyset {
                    transaction.steps.reply_keyset(index, keyset, step.out.reply(request));
                    continue;
                }
                known.call.reply(&done.result, step.out.reply(request));
            }
        }
        transaction.replied = transaction.steps.list().len();
    }

    /// Replies what a transaction that has succeeded has to say, and forgets it.
    pub(crate) fn reply_results(&mut self, mut transaction: Transaction<P>, step: &mut Step<'_, '_, P>) {
        match transaction.purpose {
            Purpose::Interactive { .. } => {
                if let Some(request) = transaction.request.take() {
                    step.out.reply(request).simple("OK");
                }
            }
            _ => self.reply_steps(&mut transaction, step),
        }
        if transaction.is_begun_anew() {
            self.sessions.win(transaction.session);
        }
        if let Purpose::Flush { keyspace_query } = transaction.purpose {
            // The piece is done; what `forget` would take for a failure goes on.
            transaction.purpose = Purpose::Auto;
            self.flush_on(keyspace_query, step);
        }
        self.forget(&transaction, step);
    }

    /// A watched key has changed: nothing happens.
    pub(crate) fn watch_touched(&mut self, mut transaction: Transaction<P>, step: &mut Step<'_, '_, P>) {
        P::release(self, &transaction, step);
        if let Some(request) = transaction.request.take() {
            step.out.reply(request).null_array();
        }
        self.sessions.lose(transaction.session, transaction.age, transaction.retries, step.now.instant);
        self.forget(&transaction, step);
    }

    /// Gives a session's open transaction up. A committing transaction goes on by itself, and no client hears of it.
    pub(super) fn drop_transaction(&mut self, number: u64, step: &mut Step<'_, '_, P>) {
        let Some(mut transaction) = self.take(number) else { return };
        transaction.request = None;
        if P::is_committing(&transaction.phase) {
            return self.keep(transaction, step);
        }
        P::release(self, &transaction, step);
        self.forget(&transaction, step);
    }
}
