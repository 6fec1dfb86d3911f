//! The commit protocol: Prepare, the choice between fast and slow path, the decision.

use super::super::node::IrMessage;
use super::super::operation::{Decision, Part, Prepare, Vote};
use super::transaction::{Conflict, Phase, Preparing, ShardVotes, Transaction, parts};
use super::{Coordinator, Step};
use crate::Mutant;
use crate::coordinator::Purpose;
use crate::ir::{CoordinatorView, Tally, quorum};
use crate::validation::{Observed, Stamp};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use types::{Instant, Timestamp, TransactionId, WallTime};

/// Microseconds in a millisecond.
const MICROS: u64 = 1000;
/// How many timestamps are tried for one evaluation.
const ATTEMPTS: u32 = 8;
/// From the third attempt on the n-th one exceeds the timestamp that replicas proposed by 2^(n-1) times this.
const LEAP: Duration = Duration::from_micros(250);
/// The backoff doubles so often, and halves from then on.
const DOUBLINGS: u32 = 2;

/// A transaction that was refused so often gets a reservation ([`super::super::reservations`]).
const RESERVED: u32 = 2;
/// The same of one that changes something: such ones refuse each other as well, and one of them goes on.
const RESERVED_WRITING: u32 = 6;
/// For so many times what the shortest of its runs took, and the bounds of that.
const RESERVED_RUNS: u32 = 8;
/// A run that waits for nobody takes at most so many times as long as its Prepare.
const PREPARES: u32 = 4;
const LEAST_RESERVED: Duration = Duration::from_millis(20);
const MOST_RESERVED: Duration = Duration::from_secs(2);

/// A replica's reply to Prepare.
pub(super) struct Reply {
    pub attempt: u32,
    pub view: u64,
    pub result: Vote,
    pub finalized: bool,
    pub hint: Option<u32>,
}

impl Coordinator {
    /// Sends Prepare for an evaluated transaction.
    pub(super) fn prepare(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let parts = parts(&transaction);
        if parts.is_empty() {
            return self.reply_results(transaction, step);
        }
        let newest = parts
            .values()
            .flat_map(|(part, _)| part.observations())
            .map(Observed::newest)
            .max()
            .unwrap_or(Stamp::ZERO);
        let lenient = self.options.mutants.has(Mutant::StampBelowReads);
        let floor = if lenient { Timestamp::ZERO } else { newest.at };
        let at = self.timestamp_above(floor, step);
        let at = before_deadlines(&transaction, floor, at).unwrap_or(at);
        if self.has_expired(&transaction, at) {
            return self.refuse(transaction, &Conflict { key: None, watch: false }, step);
        }
        if at.wall().as_millis() < transaction.now_millis {
            // The clock has gone back since, or was corrected: what it took for expired is alive at this stamp.
            return self.refuse(transaction, &Conflict { key: None, watch: false }, step);
        }
        if transaction.watches.iter().any(|watched| passed(watched.expires_at, at)) {
            return self.refuse(transaction, &Conflict { key: None, watch: true }, step);
        }
        let votes = |(shard, (part, watches)): (u16, (Part, usize))| {
            let part = Arc::new(part);
            (shard, ShardVotes { part, watches, tally: self.tally(shard), quorum_at: None, retry: None })
        };
        let shards = parts.into_entries().map(votes).collect();
        let now = step.now.instant;
        transaction.phase = Phase::Preparing(Preparing {
            attempt: 1,
            last: false,
            born: at,
            at,
            shards,
            sent_at: now,
            resend_at: now + self.options.resend_every,
            keep: self.reservation_time(&transaction),
            conflict: None,
        });
        self.propose(&transaction, step);
        self.keep(transaction, step);
    }

    /// A timestamp above everything observed and every timestamp that replicas proposed (Corrections 2).
    fn timestamp_above(&mut self, floor: Timestamp, step: &Step<'_, '_>) -> Timestamp {
        self.protocol.clock.recover(floor);
        self.protocol.tick(step.now.wall)
    }

    pub(super) fn tally(&self, shard: u16) -> Tally<super::super::operation::Transactions> {
        Tally::new(self.topology.replicas(shard).len(), self.options.mutants)
    }

    /// True if a key that was seen alive has expired at the commit timestamp (Corrections 69).
    fn has_expired(&self, transaction: &Transaction, at: Timestamp) -> bool {
        transaction.steps.deadlines().any(|deadline| passed(deadline, at))
    }

    /// Sends Prepare to every replica, and Finalize where it is due. Shards that have succeeded hear it too when it is
    /// repeated: it says that the coordinator lives.
    pub(super) fn propose(&mut self, transaction: &Transaction, step: &mut Step<'_, '_>) {
        let Phase::Preparing(preparing) = &transaction.phase else { return };
        for (shard, votes) in preparing.shards.iter() {
            let message = IrMessage::Propose {
                group: transaction.id,
                born: preparing.born,
                attempt: preparing.attempt,
                view: self.view(*shard),
                operation: Prepare {
                    at: preparing.at,
                    age: transaction.age,
                    keep: preparing.keep,
                    part: votes.part.clone(),
                },
            };
            self.send_ir(*shard, &message, step);
            let finalize = finalize((transaction.id, transaction.age), preparing, votes);
            if let (None, Some(message)) = (votes.tally.succeeded(), finalize) {
                self.send_ir(*shard, &message, step);
            }
        }
    }

    pub(super) fn on_reply(
        &mut self,
        shard: u16,
        member: usize,
        number: u64,
        reply: &Reply,
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take(number) else {
            return self.on_late_vote(shard, member, number, reply.attempt, step);
        };
        if let Phase::Preparing(preparing) = &mut transaction.phase
            && (preparing.attempt == reply.attempt || self.options.mutants.has(Mutant::MixAttempts))
            && let Some(votes) = preparing.shards.get_mut(&shard)
        {
            votes.tally.reply(member, reply.view, reply.result, reply.finalized);
            let took = (step.now.instant - preparing.sent_at).min(self.options.resend_every);
            self.protocol.replicas.voted(shard, member, took);
            if votes.quorum_at.is_none() && votes.tally.may_choose() {
                votes.quorum_at = Some(step.now.instant);
                self.protocol.replicas.quorum_voted(shard, took);
            }
            let watch = preparing.conflict.as_ref().is_some_and(|conflict| conflict.watch);
            if let (false, Some(conflict)) = (watch, conflict_of(votes, reply)) {
                preparing.conflict = Some(conflict);
            }
            let decided = reply.hint.and_then(|index| votes.part.invocations.get(index as usize));
            if let (Vote::Abort, Some(blind)) = (reply.result, decided.filter(|known| known.ignores_expiry()))
            {
                self.expiring.learn(&blind.key);
            }
            if let Vote::BlockedReads { .. } = reply.result
                && let Some(floor) = floor_of(&votes.tally, self.topology.replicas(shard).len())
            {
                self.protocol.follow_floor(floor, &self.options, step.now.wall);
            }
            if reply.result == Vote::Abort {
                self.prefer(shard, member, step.now.instant);
            }
        }
        self.judge(transaction, step);
    }

    pub(super) fn on_confirm(
        &mut self,
        shard: u16,
        member: usize,
        number: u64,
        (attempt, view, result): (u32, u64, Vote),
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take(number) else { return };
        if let Phase::Preparing(preparing) = &mut transaction.phase
            && preparing.attempt == attempt
            && let Some(votes) = preparing.shards.get_mut(&shard)
        {
            votes.tally.confirm(member, view, result);
        }
        self.judge(transaction, step);
    }

    pub(super) fn on_prepare_timer(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let Phase::Preparing(preparing) = &mut transaction.phase else { return self.keep(transaction, step) };
        if preparing.resend_at <= step.now.instant {
            preparing.resend_at = step.now.instant + self.options.resend_every;
            self.propose(&transaction, step);
        }
        self.judge(transaction, step);
    }

    /// When the slow path is due at a shard that has f+1 votes: once a fast quorum has become impossible, or is no
    /// longer expected. Where only clocks that are behind, or floors that others need not have, stand in the way of
    /// accepting, the others are waited for.
    pub(super) fn slow_at(&self, preparing: &Preparing, shard: u16, votes: &ShardVotes) -> Option<Instant> {
        let tally = &votes.tally;
        if tally.succeeded().is_some() || tally.finalizing().is_some() || !tally.may_choose() {
            return None;
        }
        let (sent_at, longest) = (preparing.sent_at, self.options.fast_timeout);
        let quorum_at = votes.quorum_at.unwrap_or(sent_at);
        let members = self.topology.replicas(shard).len();
        if may_be_believed(tally, members) {
            // Of a far one that may be what a transaction needs at every try.
            let missing =
                (0..members).filter(|member| tally.results().all(|(replied, ..)| replied != *member));
            let until = |member| {
                self.protocol.replicas.expected_until(shard, member, sent_at, self.options.resend_every)
            };
            return missing.map(until).chain([sent_at + self.options.resend_every]).max();
        }
        let until =
            |member| self.protocol.replicas.vote_awaited_until((shard, member), sent_at, quorum_at, longest);
        let until = tally.fast_until(until).unwrap_or(quorum_at);
        // Under contention the other replicas may let it wait for a transaction that waits for it at another shard.
        let hot = |key: &[u8]| self.protocol.hot.is_hot(key, quorum_at);
        let disputed = votes.part.invocations.iter().any(|invoked| hot(&invoked.key));
        Some(if disputed { until.min(quorum_at + (quorum_at - sent_at)) } else { until })
    }

    /// Looks at the votes: chooses where the slow path is due, and decides when every shard has succeeded or one
    /// has refused. The application hears of a refusal only after it succeeded in IR.
    fn judge(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let Phase::Preparing(preparing) = &mut transaction.phase else { return self.keep(transaction, step) };
        let slow = |(shard, votes): (&u16, &ShardVotes)| {
            self.slow_at(preparing, *shard, votes).is_some_and(|at| at <= step.now.instant)
        };
        let due: Vec<bool> = preparing.shards.iter().map(slow).collect();
        let last = preparing.last;
        let (mut chosen, mut latest) = (Vec::new(), None);
        for ((shard, votes), due) in preparing.shards.iter_mut().zip(due) {
            let tally = &mut votes.tally;
            if due {
                let members = self.topology.replicas(*shard).len();
                match choose(tally, members) {
                    Vote::Retry { above } if !last => votes.retry = votes.retry.max(Some(above)),
                    result => {
                        if result != Vote::PrepareOk {
                            latest = believed(tally, members).into_iter().chain(latest).min();
                        }
                        tally.finalize(result);
                        chosen.push(*shard);
                    }
                }
            }
            if let (false, Some(Vote::Retry { above })) = (last, tally.succeeded()) {
                votes.retry = votes.retry.max(Some(above));
            }
        }
        if let Some(latest) = latest {
            self.protocol.correct_clock(latest, &self.options, step.now.wall);
        }
        let early = self.options.mutants.has(Mutant::TellRefusalEarly);
        let refused = |votes: &ShardVotes| {
            let chosen = votes.tally.finalizing().filter(|_| early).map(|(_, result)| result);
            let result = votes.tally.succeeded().or(chosen);
            result.is_some_and(|result| result != Vote::PrepareOk) && votes.retry.is_none()
        };
        if preparing.shards.values().any(refused) {
            return self.abort(transaction, step);
        }
        if let Some(above) = preparing.shards.values().filter_map(|votes| votes.retry).max() {
            return self.attempt_again(transaction, above, step);
        }
        if preparing.shards.values().all(|votes| votes.tally.succeeded().is_some()) {
            let at = preparing.at;
            return self.commit(transaction, at, step);
        }
        for shard in chosen {
            if let Some(message) = preparing
                .shards
                .get(&shard)
                .and_then(|v| finalize((transaction.id, transaction.age), preparing, v))
            {
                self.send_ir(shard, &message, step);
            }
        }
        self.keep(transaction, step);
    }

    /// Beyond the timestamp to exceed, by twice as much with every attempt: others go on meanwhile (the paper's 6.5). Far
    /// below what replicas believe.
    fn leap(&self, transaction: &Transaction, above: Timestamp) -> Timestamp {
        let Phase::Preparing(Preparing { attempt, .. }) = &transaction.phase else { return above };
        let leap = (LEAP * 2u32.pow(*attempt)).min(self.options.clock_bound / 4);
        let leap = if *attempt < 2 { Duration::ZERO } else { leap };
        Timestamp::from_wall(WallTime(above.wall().0 + leap.as_micros() as u64)).max(above)
    }

    /// Prepares the same evaluation at a later timestamp; the new attempt supersedes the old one everywhere.
    fn attempt_again(&mut self, mut transaction: Transaction, above: Timestamp, step: &mut Step<'_, '_>) {
        let at = self.timestamp_above(self.leap(&transaction, above), step);
        let too_late = self.has_expired(&transaction, at)
            || transaction.watches.iter().any(|w| passed(w.expires_at, at));
        let Phase::Preparing(preparing) = &mut transaction.phase else { return self.keep(transaction, step) };
        if too_late {
            // No later timestamp will do: the refusal must succeed in IR like any other.
            preparing.last = true;
            preparing.shards.values_mut().for_each(|votes| votes.retry = None);
            return self.judge(transaction, step);
        }
        let now = step.now.instant;
        preparing.attempt += 1;
        preparing.last = preparing.attempt >= ATTEMPTS;
        preparing.at = at;
        preparing.sent_at = now;
        preparing.resend_at = now + self.options.resend_every;
        let fresh: Vec<u16> = preparing.shards.keys().copied().collect();
        for shard in fresh {
            let tally = self.tally(shard);
            if let Some(votes) = preparing.shards.get_mut(&shard) {
                (votes.tally, votes.quorum_at, votes.retry) = (tally, None, None);
            }
        }
        self.propose(&transaction, step);
        self.keep(transaction, step);
    }

    /// Every shard has accepted: replies, and tells the replicas.
    pub(super) fn commit(&mut self, transaction: Transaction, at: Timestamp, step: &mut Step<'_, '_>) {
        self.protocol.committed = self.protocol.committed.max(at);
        let Phase::Preparing(preparing) = &transaction.phase else { return self.keep(transaction, step) };
        self.protocol.windowed_minimum.note(step.now.instant - preparing.sent_at, step.now.instant);
        let forgetful = self.options.mutants.has(Mutant::CommitWithoutEffects);
        let decision = |votes: &ShardVotes| {
            let mut part = votes.part.clone();
            if forgetful && let Some(last) = Arc::make_mut(&mut part).invocations.last_mut() {
                last.effect = None;
            }
            let hold = if forgetful { Default::default() } else { accepted(&votes.tally) };
            (Decision::Commit { at, part }, hold)
        };
        let decisions = preparing.shards.iter().map(|(shard, votes)| (*shard, decision(votes)));
        let attempt = (preparing.attempt, preparing.sent_at);
        self.settle((transaction.id, preparing.born), attempt, decisions, step);
        // Replicas answer with the outcome of a transaction that no client waits for any more.
        if self.options.claims && !transaction.is_unheard() {
            self.claim(&transaction, Some(at));
        }
        self.reply_results(transaction, step);
    }

    /// A refusal has succeeded in IR, or a replica reported that the transaction was aborted.
    pub(super) fn abort(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let phase = std::mem::replace(&mut transaction.phase, Phase::Executing);
        let Phase::Preparing(preparing) = phase else { return self.keep(transaction, step) };
        let nobody = Default::default;
        let decisions = preparing.shards.keys().map(|shard| (*shard, (Decision::Abort, nobody())));
        let attempt = (preparing.attempt, preparing.sent_at);
        self.settle((transaction.id, preparing.born), attempt, decisions, step);
        let is_interactive = matches!(transaction.purpose, Purpose::Interactive { .. });
        if is_interactive && transaction.steps.reopen_unread(&self.expiring) {
            // Its client knows no result of these steps; the other results stay as the client got them.
            self.renumber(&mut transaction);
            return self.advance(transaction, step);
        }
        let conflict = preparing.conflict.unwrap_or(Conflict { key: None, watch: false });
        self.refuse(transaction, &conflict, step);
    }

    /// The transaction had no effect: the coordinator retries it, or replies CONFLICT.
    pub(super) fn refuse(
        &mut self,
        mut transaction: Transaction,
        conflict: &Conflict,
        step: &mut Step<'_, '_>,
    ) {
        if conflict.watch {
            return self.watch_touched(transaction, step);
        }
        let mut on_keys = transaction.steps.list().iter().filter(|step| step.call.keyset.is_none());
        let first = |_| on_keys.next().map(|step| (*step.call.key).into());
        let alone = (!transaction.steps.has_keyset()).then_some(());
        let key = conflict.key.clone().or_else(|| alone.and_then(first));
        if let Some(key) = &key {
            self.note_contention(key, step);
        }
        transaction.conflicted = key;
        let again = transaction.may_run_again();
        if !again || transaction.retries >= self.options.retries || transaction.is_unheard() {
            let error = transaction.conflict();
            return self.fail(transaction, &error, step);
        }
        transaction.retries += 1;
        let ran = step.now.instant - transaction.began;
        transaction.own.ran = Some(transaction.own.ran.map_or(ran, |shortest| shortest.min(ran)));
        self.shorten_turn(&mut transaction);
        let number = transaction.id.number;
        step.out.disarm(super::Timer::Transaction { number });
        let wait = self.backoff(&transaction, step);
        transaction.phase = Phase::BackingOff { until: step.now.instant + wait };
        self.keep(transaction, step);
    }

    /// A random wait out of a window that doubles with every conflict. It begins at what the shortest of its runs took,
    /// since contenders that come back sooner than that meet each other again. A transaction that has lost for long
    /// draws from smaller and smaller windows, so that it wins against those that came later (Corrections 12); the
    /// coordinator's own wait for it at hot keys meanwhile, and it waits at the replicas for those of others. A
    /// transaction with a reservation retries soon.
    fn backoff(&self, transaction: &Transaction, step: &mut Step<'_, '_>) -> Duration {
        let run = self.unhindered(transaction).max(self.options.backoff);
        let lost = transaction.retries;
        let doublings = match lost.saturating_sub(1) {
            _ if !self.reservation_time(transaction).is_zero() => 0,
            before if before <= DOUBLINGS => before,
            before => (2 * DOUBLINGS).saturating_sub(before),
        };
        let left = transaction.deadline - step.now.instant;
        let window = (run * 2u32.pow(doublings)).min(left / 2);
        Duration::from_micros(step.random.u64(0..=window.as_micros() as u64))
    }

    /// For how long replicas reserve the keys of a transaction: a multiple of the time of one run, from its Prepare
    /// until the Prepare of the next run. A transaction that observes nothing needs no reservation: no write makes it
    /// out of date.
    fn reservation_time(&self, transaction: &Transaction) -> Duration {
        let observes = || transaction.steps.invocations().any(|(_, invoked)| invoked.observed.is_some());
        let enough = if transaction.steps.is_read_only() { RESERVED } else { RESERVED_WRITING };
        let observes = !transaction.watches.is_empty() || transaction.steps.has_keyset() || observes();
        if transaction.losses() < enough || !observes {
            return Duration::ZERO;
        }
        let run = self.unhindered(transaction);
        let think_time = transaction.lost.and_then(|lost| lost.shortest_think_time).unwrap_or_default();
        ((run + think_time) * RESERVED_RUNS).clamp(LEAST_RESERVED, MOST_RESERVED)
    }

    /// What of a transaction's runs is not waiting for others, at most.
    fn unhindered(&self, transaction: &Transaction) -> Duration {
        let prepares = self.protocol.windowed_minimum.get().map(|prepare| prepare * PREPARES);
        transaction.own.ran.into_iter().chain(prepares).min().unwrap_or_default()
    }
}

/// The Finalize of a shard's chosen result, while it is being finalized.
fn finalize(
    (group, age): (TransactionId, Stamp),
    preparing: &Preparing,
    votes: &ShardVotes,
) -> Option<IrMessage> {
    let (view, result) = votes.tally.finalizing()?;
    Some(IrMessage::Finalize {
        group,
        born: preparing.born,
        attempt: preparing.attempt,
        view,
        ballot: CoordinatorView::ORIGINAL,
        operation: Some(Prepare { at: preparing.at, age, keep: preparing.keep, part: votes.part.clone() }),
        result,
    })
}

/// TAPIR's decide: which result the slow path finalizes, given f+1 or more votes of one view.
fn choose(tally: &Tally<super::super::operation::Transactions>, members: usize) -> Vote {
    let votes: Vec<Vote> = tally.results().map(|(_, vote, _)| vote).collect();
    let count = |vote: Vote| votes.iter().filter(|other| **other == vote).count();
    if let Some((_, vote, _)) = tally.results().find(|(_, _, finalized)| *finalized) {
        return vote;
    }
    if count(Vote::Abort) > 0 {
        return Vote::Abort;
    }
    if count(Vote::PrepareOk) >= quorum(members) {
        return Vote::PrepareOk;
    }
    if count(Vote::Abstain) >= quorum(members) {
        return Vote::Abstain;
    }
    let retry = votes.iter().filter_map(|vote| match vote {
        Vote::Retry { above } => Some(*above),
        _ => None,
    });
    retry.max().map_or(Vote::Abstain, |above| Vote::Retry { above })
}

/// The replicas that hold the transaction prepared, and so have its part.
fn accepted(tally: &Tally<super::super::operation::Transactions>) -> SmallVec<[usize; 4]> {
    let accepted = tally.results().filter(|(_, vote, _)| *vote == Vote::PrepareOk);
    accepted.map(|(member, _, _)| member).collect()
}

/// The greatest timestamp that f+1 of the replicas believe that have nothing else against the transaction; `None` if
/// there are fewer, or they believe the proposed one.
fn believed(tally: &Tally<super::super::operation::Transactions>, members: usize) -> Option<Timestamp> {
    let latest = tally.results().filter_map(|(_, vote, _)| match vote {
        Vote::Early { latest } => Some(latest),
        Vote::PrepareOk => Some(Timestamp::MAX),
        _ => None,
    });
    let mut latest: Vec<Timestamp> = latest.collect();
    latest.sort_unstable();
    let place = latest.len().checked_sub(quorum(members))?;
    Some(latest[place]).filter(|latest| *latest < Timestamp::MAX)
}

/// The least floor above which f+1 replicas may be, as far as is known: that of fewer than f+1 holds nobody up, and may be
/// far ahead of what the others believe. `None` if so many may accept whatever the birth.
fn floor_of(tally: &Tally<super::super::operation::Transactions>, members: usize) -> Option<Timestamp> {
    let floors = tally.results().filter_map(|(_, vote, _)| match vote {
        Vote::BlockedReads { floor } => Some(floor),
        _ => None,
    });
    let mut floors: Vec<Timestamp> = floors.collect();
    floors.sort_unstable();
    let place = floors.len().checked_sub(quorum(members))?;
    Some(floors[place])
}

/// True if some replicas have not accepted only because their clock is too far behind, or their floor too far ahead, and
/// enough others still may.
fn may_be_believed(tally: &Tally<super::super::operation::Transactions>, members: usize) -> bool {
    let count = |like: fn(&Vote) -> bool| tally.results().filter(|(_, vote, _)| like(vote)).count();
    let accepted = count(|vote| *vote == Vote::PrepareOk);
    let alone = count(|vote| matches!(vote, Vote::Early { .. } | Vote::BlockedReads { .. }));
    let needed = quorum(members);
    alone > 0 && accepted < needed && members + accepted - tally.replied() >= needed
}

/// Which invocation a refusal names.
fn conflict_of(votes: &ShardVotes, reply: &Reply) -> Option<Conflict> {
    let index = reply.hint.filter(|_| matches!(reply.result, Vote::Abort | Vote::Abstain))? as usize;
    let key = votes.part.invocations.get(index).map(|invoked| (*invoked.key).into());
    Some(Conflict { key, watch: reply.result == Vote::Abort && index < votes.watches })
}

/// The last moment at which everything was alive that an interactive transaction without watches has shown its client, if
/// that is over at `at`: what only its client could begin anew commits there. Above everything that it observed, and not
/// before it began; that others came between, validation finds, as it does where clocks are behind.
fn before_deadlines(transaction: &Transaction, floor: Timestamp, at: Timestamp) -> Option<Timestamp> {
    if !matches!(transaction.purpose, Purpose::Interactive { .. }) || !transaction.watches.is_empty() {
        return None;
    }
    let first = transaction.steps.deadlines().min().filter(|first| passed(*first, at))?;
    let last = Timestamp::from_wall(WallTime(first * MICROS)).previous();
    (last > floor && last.wall().as_millis() >= transaction.now_millis).then_some(last)
}

/// True if the deadline (milliseconds since 1970, 0 for none) has passed at this timestamp.
fn passed(expires_at: u64, at: Timestamp) -> bool {
    expires_at != 0 && at.wall().as_millis() >= expires_at
}
