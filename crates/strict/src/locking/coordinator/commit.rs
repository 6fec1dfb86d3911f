//! Two-phase commit: votes, the decision at the first participant, and its way to the others.

use super::super::message::{Message, Timer};
use super::super::options::{Concurrency, Coordinates};
use super::single::is_several;
use super::transaction::{
    Phase, Preparing, Tally, Transaction, is_watch_touched, parts, requests, span, touched,
};
use super::{Coordinator, Settlement, Step};
use crate::Mutant;
use crate::coordinator::{Purpose, Steps};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Timestamp, TransactionId};

/// How often the coordinator sends an abort to shards that do not answer: such a shard asks for it, or has nothing to
/// undo.
const TRIES: u32 = 4;
/// The wait between repetitions doubles at most this often.
const DOUBLINGS: u32 = 5;
/// By how much more slowly that wait grows for what is on the whole keyspace.
const WHOLE: u32 = 4;
/// By how much less a group waits before it runs again.
const OF_GROUPS: u64 = 16;

impl Coordinator {
    /// Asks every participant for its vote.
    pub(super) fn prepare(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        if is_watch_touched(&transaction) {
            return self.watch_touched(transaction, step);
        }
        if self.options.clock.is_some() && transaction.own.stamp.is_none() {
            return self.ask_time(transaction, step);
        }
        self.take_in(&mut transaction, step);
        let parts = parts(&transaction);
        if parts.is_empty() {
            return self.reply_all(transaction, step);
        }
        let known = |shard: &u16| {
            let evaluated = transaction.own.terms.get(shard).copied();
            (*shard, evaluated.or_else(|| self.protocol.leads.get(shard).map(|lead| lead.term)).unwrap_or(0))
        };
        let terms = parts.keys().map(known).collect();
        let read_only = transaction.own.last.is_none() && transaction.steps.is_read_only();
        let tally = match self.options.coordinates {
            _ if parts.len() == 1 || read_only => Tally::Here,
            Coordinates::LastAgent if self.options.concurrency == Concurrency::Locking => {
                Tally::Last(self.options.mutants.has(Mutant::DecideBeforeVotes).then_some(Timestamp::ZERO))
            }
            // What validates is to do so soon after it has looked.
            Coordinates::LastAgent | Coordinates::Client => Tally::Here,
            Coordinates::Participant => Tally::First,
        };
        let votes = BTreeMap::new();
        let preparing = Preparing { parts, terms, votes, read_only, tally, single: false };
        transaction.own.prepared_at = step.now.instant;
        transaction.phase = Phase::Preparing(preparing);
        transaction.moved_at = step.now.instant;
        self.propose(&transaction, step);
        self.keep(transaction, step);
    }

    /// Sends Prepare to every shard whose vote is pending now.
    pub(super) fn propose(&mut self, transaction: &Transaction, step: &mut Step<'_, '_>) {
        let Phase::Preparing(preparing) = &transaction.phase else { return };
        let first = preparing.first().filter(|_| preparing.tally == Tally::First);
        let collector =
            first.map(|first| self.protocol.leads.get(&first).copied().unwrap_or_default().member);
        let voted = if let Tally::Last(voted) = preparing.tally { voted } else { None };
        for (shard, part) in preparing.pending_votes() {
            let term = preparing.terms.get(shard).copied().unwrap_or(0);
            if preparing.single {
                self.run_single(transaction, (*shard, term), step);
                continue;
            }
            if transaction.own.last == Some(*shard) {
                self.run_last(transaction, preparing, (*shard, voted), step);
                continue;
            }
            let message = Message::Prepare {
                transaction: transaction.id,
                age: transaction.age,
                floor: self.floor(transaction.id),
                term,
                read_only: preparing.read_only,
                collector,
                voted,
                span: span(transaction),
                part: part.clone(),
            };
            self.send_leader(*shard, message, step);
        }
    }

    /// A shard votes yes.
    pub(super) fn on_prepared(&mut self, shard: u16, number: u64, at: Timestamp, step: &mut Step<'_, '_>) {
        let Some(mut transaction) = self.take(number) else { return };
        let Phase::Preparing(preparing) = &mut transaction.phase else { return self.keep(transaction, step) };
        if preparing.parts.contains_key(&shard) {
            preparing.votes.insert(shard, at);
        }
        let missing = preparing.pending_votes().next().is_some();
        if missing || preparing.tally == Tally::First {
            return self.keep(transaction, step);
        }
        if preparing.read_only {
            return self.reply_all(transaction, step);
        }
        let at = preparing.votes.values().copied().max().unwrap_or(Timestamp::ZERO);
        let Some(first) = preparing.first() else { return self.keep(transaction, step) };
        let (tally, parts) = (preparing.tally, preparing.parts.keys().copied().collect());
        if span(&transaction).is_over(at) {
            // A key that was found alive has expired at the commit timestamp.
            return self.refused(transaction, None, step);
        }
        if let (Phase::Preparing(preparing), Tally::Last(None)) = (&mut transaction.phase, tally) {
            preparing.tally = Tally::Last(Some(at));
            if let (Some(term @ 0), Some(lead)) =
                (preparing.terms.get_mut(&first), self.protocol.leads.get(&first))
            {
                *term = lead.term;
            }
            transaction.own.hops = 0;
            self.propose(&transaction, step);
        } else {
            self.decide(first, transaction.id, Some(at), step);
            transaction.phase = Phase::Deciding { at: Some(at), first, parts };
        }
        transaction.moved_at = step.now.instant;
        self.keep(transaction, step);
    }

    /// A transaction whose decision was left to the first participant's leader has timed out: the coordinator asks that
    /// leader to end it. The coordinator may not announce the end to any other node before that leader has confirmed
    /// it: the leader may have decided.
    pub(super) fn end_collection(&mut self, transaction: &mut Transaction, step: &mut Step<'_, '_>) {
        let Phase::Preparing(preparing) = &transaction.phase else { return };
        let parts: BTreeSet<u16> = preparing.parts.keys().copied().collect();
        let delegated = matches!(preparing.tally, Tally::First | Tally::Last(Some(_)));
        if let Some(first) = preparing.first().filter(|_| delegated) {
            self.decide(first, transaction.id, None, step);
            transaction.phase = Phase::Deciding { at: None, first, parts };
            transaction.moved_at = step.now.instant;
        }
    }

    pub(super) fn decide(
        &self,
        shard: u16,
        transaction: TransactionId,
        at: Option<Timestamp>,
        step: &mut Step<'_, '_>,
    ) {
        let floor = self.floor(transaction);
        self.send_leader(shard, Message::Decide { transaction, floor, at }, step);
    }

    /// A shard refuses, perhaps for what is undecided only, or has taken the transaction's locks away: it cannot commit any
    /// more under this number.
    pub(super) fn on_refused(
        &mut self,
        shard: u16,
        number: u64,
        (key, undecided): (Option<Box<[u8]>>, bool),
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take(number) else { return };
        let concerned = match &transaction.phase {
            Phase::Executing => true,
            Phase::Preparing(preparing) => !preparing.votes.contains_key(&shard) || preparing.read_only,
            // Whoever voted yes keeps its word.
            Phase::Deciding { .. }
            | Phase::BackingOff { .. }
            | Phase::Visiting { .. }
            | Phase::Gathering { .. }
            | Phase::Queued { .. } => false,
        };
        if concerned {
            let several =
                matches!(&transaction.phase, Phase::Preparing(preparing) if preparing.parts.len() > 1);
            // Whatever the leader has against carrying it out, step by step it goes on.
            transaction.own.locks_first |=
                is_several(&transaction) && matches!(&transaction.phase, Phase::Preparing(it) if it.single);
            if several && self.options.concurrency == Concurrency::Locking {
                transaction.own.locks_first = true;
                transaction.own.asks_all |= transaction.own.last == Some(shard);
                if let Some(key) = &key {
                    self.protocol.contended.learn(key, step.now.instant);
                }
            }
            let votes = undecided && transaction.committing && self.is_patient(&transaction);
            if votes && transaction.own.refusals < self.options.retries {
                return self.vote_later(transaction, key, step);
            }
            self.refused(transaction, key, step);
        } else {
            self.keep(transaction, step);
        }
    }

    /// The transaction has ended at a shard.
    pub(super) fn on_ended(
        &mut self,
        shard: u16,
        number: u64,
        at: Option<Timestamp>,
        step: &mut Step<'_, '_>,
    ) {
        self.acknowledged(shard, number, step);
        let Some(transaction) = self.take(number) else { return };
        let decides = match &transaction.phase {
            Phase::Preparing(preparing) => !preparing.read_only && preparing.parts.contains_key(&shard),
            Phase::Deciding { first, .. } => *first == shard,
            Phase::Executing
            | Phase::BackingOff { .. }
            | Phase::Visiting { .. }
            | Phase::Gathering { .. }
            | Phase::Queued { .. } => false,
        };
        let single = matches!(&transaction.phase, Phase::Preparing(preparing) if preparing.single);
        match at {
            _ if !decides => self.keep(transaction, step),
            Some(_) if single => self.lost_results(transaction, shard, step),
            // What its last steps came to only the last shard says, by `Done`.
            Some(_) if transaction.own.last.is_some() => self.keep(transaction, step),
            Some(at) => self.committed(transaction, shard, at, step),
            None => self.refused(transaction, None, step),
        }
    }

    /// A shard acknowledges a decision.
    pub(super) fn acknowledged(&mut self, shard: u16, number: u64, step: &mut Step<'_, '_>) {
        let Some(settlement) = self.protocol.settlements.get_mut(&number) else { return };
        settlement.waiting.remove(&shard);
        if settlement.waiting.is_empty() {
            self.protocol.settlements.remove(&number);
            step.out.disarm(Timer::Settlement { number });
        }
    }

    /// The decision is written, as this shard says: replies, and tells the other participants, or waits until they have
    /// heard of it.
    pub(super) fn committed(
        &mut self,
        transaction: Transaction,
        shard: u16,
        at: Timestamp,
        step: &mut Step<'_, '_>,
    ) {
        let mut others = touched(&transaction);
        others.remove(&shard);
        let announced =
            matches!(&transaction.phase, Phase::Preparing(preparing) if preparing.tally == Tally::First);
        if self.options.claims && transaction.request.is_some() {
            self.claim_of(&transaction, Some(at), requests(&transaction));
        }
        if announced {
            self.await_acknowledgements(transaction.id, at, others, step);
        } else {
            self.settle(transaction.id, Some(at), others, step);
        }
        self.reply_all(transaction, step);
    }

    /// Tells shards how the transaction ended, until they have acknowledged it.
    pub(super) fn settle(
        &mut self,
        id: TransactionId,
        at: Option<Timestamp>,
        waiting: BTreeSet<u16>,
        step: &mut Step<'_, '_>,
    ) {
        if waiting.is_empty() {
            return;
        }
        let settlement = Settlement { id, at, waiting, tries: 0, hops: 0 };
        self.tell(&settlement, step);
        self.protocol.settlements.insert(id.number, settlement);
    }

    /// The same where the first participant's leader announces the decision, and each shard acknowledges it here. The
    /// coordinator announces it to those that do not.
    fn await_acknowledgements(
        &mut self,
        id: TransactionId,
        at: Timestamp,
        waiting: BTreeSet<u16>,
        step: &mut Step<'_, '_>,
    ) {
        if waiting.is_empty() {
            return;
        }
        let timer = Timer::Settlement { number: id.number };
        step.out.arm(timer, step.now.instant + self.options.resend_every);
        let settlement = Settlement { id, at: Some(at), waiting, tries: 0, hops: 0 };
        self.protocol.settlements.insert(id.number, settlement);
    }

    /// Gives up what the transaction holds anywhere.
    pub(super) fn let_go(&mut self, transaction: &Transaction, step: &mut Step<'_, '_>) {
        let voting = matches!(transaction.phase, Phase::Preparing(_) | Phase::Deciding { at: None, .. });
        if voting || self.locks(transaction) {
            self.settle(transaction.id, None, touched(transaction), step);
        }
    }

    fn tell(&self, settlement: &Settlement, step: &mut Step<'_, '_>) {
        for shard in &settlement.waiting {
            self.decide(*shard, settlement.id, settlement.at, step);
        }
        let wait = self.options.resend_every * 2u32.pow(settlement.tries.min(DOUBLINGS));
        step.out.arm(Timer::Settlement { number: settlement.id.number }, step.now.instant + wait);
    }

    pub(super) fn on_settlement_timer(&mut self, number: u64, step: &mut Step<'_, '_>) {
        let Some(mut settlement) = self.protocol.settlements.remove(&number) else { return };
        settlement.tries += 1;
        settlement.hops = 0;
        // A commit must arrive: shards that have it to ask for rely on the first participant's memory.
        if settlement.at.is_some() || settlement.tries < TRIES {
            self.tell(&settlement, step);
            // A replica that does not lead names the leader, in time for the next retry.
            let now = step.now.instant;
            settlement.waiting.iter().for_each(|shard| self.try_next(*shard, now));
            self.protocol.settlements.insert(number, settlement);
        }
    }

    /// The transaction has had no effect. It and its members retry, as one a few times and then each by itself, or
    /// they reply CONFLICT.
    pub(super) fn refused(
        &mut self,
        mut transaction: Transaction,
        key: Option<Box<[u8]>>,
        step: &mut Step<'_, '_>,
    ) {
        self.let_go(&transaction, step);
        self.came_back(&transaction);
        if self.stays_together(&transaction) {
            self.protocol.combiner.release(transaction.id.number);
            return self.run_again(transaction, key, step);
        }
        let members = self.part_with(&mut transaction);
        self.run_again(transaction, key.clone(), step);
        for member in members {
            self.run_again(member, key.clone(), step);
        }
    }

    /// Nothing that it saw has changed, so it keeps that, and asks for votes again when what stood in the way may have
    /// ended. It holds nothing meanwhile: no transaction waits for it.
    fn vote_later(&mut self, mut transaction: Transaction, key: Option<Box<[u8]>>, step: &mut Step<'_, '_>) {
        self.let_go(&transaction, step);
        transaction.conflicted = key;
        transaction.own.refusals += 1;
        let window = self.window(transaction.own.refusals);
        self.back_off(transaction, window, step);
    }

    /// Asks for votes under another number.
    pub(super) fn vote_again(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        step.out.disarm(Timer::Transaction { number: transaction.id.number });
        self.renumber(&mut transaction);
        self.prepare(transaction, step);
    }

    /// What the wait before a try is drawn from, in microseconds: the longer, the more tries were in vain.
    fn window(&self, refusals: u32) -> u64 {
        self.options.backoff.as_micros() as u64 * 2u64.pow(refusals.min(DOUBLINGS))
    }

    fn back_off(&mut self, mut transaction: Transaction, window: u64, step: &mut Step<'_, '_>) {
        let wait = Duration::from_micros(step.random.u64(0..=window));
        transaction.phase = Phase::BackingOff { until: step.now.instant + wait };
        self.keep(transaction, step);
    }

    fn run_again(&mut self, mut transaction: Transaction, key: Option<Box<[u8]>>, step: &mut Step<'_, '_>) {
        let named = |steps: &Steps| if steps.has_keyset() { None } else { steps.key_of(0) };
        let key = key.or_else(|| named(&transaction.steps));
        transaction.conflicted = key;
        let interactive = matches!(transaction.purpose, Purpose::Interactive { .. });
        let shown = interactive && !transaction.may_run_again();
        if shown || transaction.is_unheard() || transaction.retries >= self.options.retries {
            let error = transaction.conflict();
            return self.fail(transaction, &error, step);
        }
        transaction.retries += 1;
        let reserves = self.options.reserve_after.is_some_and(|after| transaction.retries >= after);
        transaction.own.locks_first |= self.options.concurrency == Concurrency::Optimistic && reserves;
        step.out.disarm(Timer::Transaction { number: transaction.id.number });
        // If it has a reservation, others wait for its retry.
        let slower = if transaction.steps.has_keyset() { WHOLE } else { 1 };
        let mut window = self.window(transaction.retries / slower);
        if !transaction.own.members.is_empty() {
            // There are few groups, and many wait for each.
            window /= OF_GROUPS;
        }
        self.back_off(transaction, window, step);
    }
}
