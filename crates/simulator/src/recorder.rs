//! Puts the history together: what clients did and saw, and what instances claim.

use crate::keyset::KnownKeys;
use crate::workload::{Plan, Watching};
use checker::{
    Branch, Bytes, Check, Claim, Commit, Key, Outcome, Snapshot, Step, Thread, Transaction, Vector, Violation,
};
use datatypes::{Cell, Effect, key};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{PartitionId, Reader, RegionId, RegionSet, RequestId, SessionId, Timestamp, TransactionId};

/// The history so far.
#[derive(Default)]
pub(crate) struct Recorder {
    pub history: Vec<Transaction>,
    pub violations: Vec<Violation>,
    /// The transactions that heeded what their session watched.
    heeding: Vec<usize>,
    /// The newest transaction of each session, by its place in the history.
    newest: BTreeMap<u64, usize>,
    /// The transactions of a session's pipelines that are not answered, or not claimed since their client got
    /// UNKNOWNOUTCOME; in order.
    pipelined: BTreeMap<u64, VecDeque<usize>>,
    /// Those of the latter kind.
    in_doubt: BTreeSet<usize>,
    /// The transactions under way by their requests.
    requests: BTreeMap<RequestId, usize>,
    /// All that were sent, by their requests.
    sent: BTreeMap<RequestId, usize>,
    /// What pipelines sent in several requests and ran as one transaction.
    merged: Vec<Vec<usize>>,
    /// Where each claim that took a place went.
    claimed: BTreeMap<[u64; 3], usize>,
    /// The regions that took part in transactions, where there may be several.
    parts: BTreeMap<[u64; 3], RegionSet>,
    /// The transactions whose sessions got the error that they go on with less than they had seen.
    pub degraded: BTreeSet<usize>,
    /// What some instance has ended without effects.
    aborted: BTreeSet<[u64; 3]>,
    keys: KnownKeys,
}

impl Recorder {
    /// A recorder of a run on these keys.
    pub fn new(keys: KnownKeys) -> Self {
        Recorder { keys, ..Recorder::default() }
    }

    /// Tells what was done to the whole keyspace key by key. Nothing is recorded after it.
    pub fn expand_keysets(&mut self) {
        for transaction in &mut self.history {
            self.keys.expand_steps(transaction, &mut self.violations);
        }
    }

    /// A client begins a transaction; returns its place in the history. Its outcome is unknown so far.
    pub fn begin(&mut self, session: SessionId, plan: &Plan, pipelined: bool, now: u64) -> usize {
        let place = self.push(session.0, now, plan.steps.clone());
        self.history[place].constraints = plan.constraints.clone();
        self.newest.insert(session.0, place);
        if pipelined {
            self.pipelined.entry(session.0).or_default().push_back(place);
        }
        if plan.watching == Watching::Heeded {
            self.heeding.push(place);
        }
        place
    }

    /// A transaction's session has taken over a context that ends with this transaction.
    pub fn follows(&mut self, place: usize, giver: Option<usize>) {
        let transaction = &mut self.history[place];
        transaction.follows = giver.map(|giver| giver as u64).or(transaction.follows);
    }

    /// What was committed in a region above the cut of its keys is given up.
    /// Where transactions have parts in several regions: with all its parts; and what was undecided, and ended with it.
    pub fn give_up(
        &mut self,
        region: RegionId,
        cut: impl Fn(&[u8]) -> Timestamp,
        abandoned: &BTreeSet<TransactionId>,
    ) {
        let abandoned: BTreeSet<[u64; 3]> = abandoned.iter().copied().map(name).collect();
        for transaction in &mut self.history {
            let Some(claim) = &transaction.claim else { continue };
            let took_part = |commit: &Commit| match self.parts.get(&claim.transaction) {
                Some(parts) => parts.contains(region),
                None => commit.region == region.0,
            };
            let is_above = |at: u64| claim.effects.iter().any(|(key, _)| at > cut(&key.0).0);
            transaction.given_up =
                claim.commit.is_some_and(|commit| took_part(&commit) && is_above(commit.at))
                    || claim.commit.is_some() && abandoned.contains(&claim.transaction);
        }
    }

    /// What depends on something above a region's cut is given up, too (Corrections 44). What was written when that was settled
    /// says that it depends on all that the region left.
    pub fn give_up_dependants(&mut self, region: RegionId, cut: Timestamp) {
        for transaction in &mut self.history {
            let Some(claim) = transaction.claim.as_ref().filter(|claim| claim.commit.is_some()) else {
                continue;
            };
            let depends_on =
                claim.vector.as_ref().and_then(|of| of.depends_on.get(usize::from(region.0)).copied());
            transaction.given_up |= depends_on.is_some_and(|at| at > cut.0 && at < Timestamp::MAX.0);
        }
    }

    /// Remembers in which regions a transaction has parts.
    fn note_parts(&mut self, claim: &protocol::Claim) {
        if let Some(commit) = claim.commit.filter(|commit| !commit.parts.is_empty()) {
            self.parts.insert(name(claim.transaction), commit.parts);
        }
    }

    /// The last transaction that a transaction's session committed before it, since it began anew if it did.
    pub fn committed_before(&self, place: usize, gives_up_dependants: bool) -> Option<usize> {
        let session = self.history[place].session;
        let began_anew =
            |at: &usize| self.degraded.contains(at) || gives_up_dependants && self.history[*at].loss_reported;
        let before = (0..place).rev().filter(|at| self.history[*at].session == session);
        before.take_while(|at| !began_anew(at)).find(|at| self.history[*at].outcome == Outcome::Committed)
    }

    /// A request of a transaction has reached its gateway, where its session has this thread in common with others.
    pub fn on_request(&mut self, request: RequestId, place: usize, thread: Option<u64>) {
        self.history[place].thread = thread;
        self.requests.insert(request, place);
        self.sent.insert(request, place);
    }

    /// A request of a transaction is lost with its connection: no claim is about it.
    pub fn lost(&mut self, place: usize) {
        self.leave_pipeline(place);
    }

    /// A gateway has answered a request: a pipeline goes on to the next one; but where the outcome is in doubt, only
    /// once the gateway has found it out.
    pub fn answered(&mut self, request: RequestId, in_doubt: bool) {
        let Some(place) = self.requests.remove(&request) else { return };
        match in_doubt {
            true => {
                self.in_doubt.insert(place);
            }
            false => self.leave_pipeline(place),
        }
    }

    fn leave_pipeline(&mut self, place: usize) {
        if let Some(pipeline) = self.pipelined.get_mut(&self.history[place].session) {
            pipeline.retain(|waiting| *waiting != place);
        }
    }

    /// The transaction of a session that claims are about: of a pipeline the first one that is not answered, and not
    /// claimed if several are served in one step.
    fn current(&self, session: u64) -> Option<usize> {
        let is_open = |place: &&usize| self.history[**place].claim.is_none();
        let pipeline = self.pipelined.get(&session);
        let open = pipeline.and_then(|pipeline| pipeline.iter().find(is_open));
        let pipelined = open.or(pipeline.and_then(|pipeline| pipeline.front()));
        pipelined.or(self.newest.get(&session)).copied()
    }

    fn push(&mut self, session: u64, invoked: u64, steps: Vec<Step>) -> usize {
        let place = self.history.len();
        self.history.push(Transaction {
            number: place as u64,
            session,
            invoked,
            responded: None,
            outcome: Outcome::Unknown,
            steps,
            claim: None,
            follows: None,
            thread: None,
            given_up: false,
            loss_reported: false,
            constraints: None,
            at_rest: false,
        });
        place
    }

    /// A transaction goes on with these steps.
    pub fn extend(&mut self, place: usize, steps: Vec<Step>) {
        self.history[place].steps.extend(steps);
    }

    /// The client saw these replies, from the given step on.
    pub fn replies(&mut self, place: usize, first: usize, replies: Vec<String>) {
        for (step, reply) in self.history[place].steps[first..].iter_mut().zip(replies) {
            step.reply = Some(reply);
        }
    }

    /// What was refused because its key has several values shows nothing of one of them, and did nothing.
    pub fn leave_out_siblings(&mut self) {
        let is_siblings =
            |step: &Step| step.reply.as_ref().is_some_and(|reply| reply.starts_with("-SIBLINGS"));
        self.history.iter_mut().for_each(|transaction| transaction.steps.retain(|step| !is_siblings(step)));
    }

    /// With this reply the client got the error that its session's writes were given up.
    pub fn loss_reported(&mut self, place: usize) {
        self.history[place].loss_reported = true;
    }

    /// A request got the error that its session goes on without a region, even if the reply is lost with its connection: what
    /// the client had sent behind it is served without that region, too.
    pub fn note_degraded(&mut self, request: RequestId) {
        self.degraded.extend(self.sent.get(&request));
    }

    /// After the error that a session lost dependencies, the session is a causal thread of its own, without an
    /// inherited context (HA-POCC). Nothing is recorded after it.
    pub fn begin_threads_anew(&mut self, gives_up_dependants: bool) {
        let mut last = self.history.iter().map(|transaction| transaction.session).max().unwrap_or(0);
        let notified: Vec<usize> = match gives_up_dependants {
            true => (0..self.history.len()).filter(|place| self.history[*place].loss_reported).collect(),
            false => Vec::new(),
        };
        let mut anew: Vec<usize> = self.degraded.iter().copied().chain(notified).collect();
        anew.sort_unstable();
        anew.dedup();
        for place in &anew {
            let Transaction { session, responded, .. } = self.history[*place];
            last += 1;
            for later in self.history[place + 1..].iter_mut().filter(|later| later.session == session) {
                later.session = last;
                // It was sent before.
                later.follows = later.follows.filter(|_| responded.is_some_and(|at| later.invoked >= at));
            }
        }
    }

    /// The client learned the outcome, or gives up waiting for it.
    pub fn end(&mut self, place: usize, outcome: Outcome, now: u64) {
        let transaction = &mut self.history[place];
        transaction.outcome = outcome;
        transaction.responded = (outcome != Outcome::Unknown).then_some(now);
    }

    /// An instance claims something. Claims of one transaction may come from several instances, each with its part
    /// of the effects; what they say about its place must agree.
    pub fn claim(&mut self, claim: protocol::Claim) {
        let mut claimed: Vec<usize> =
            claim.requests.iter().filter_map(|request| self.sent.get(request).copied()).collect();
        if claimed.is_empty() {
            claimed.extend(self.current(claim.session.0));
        }
        self.take_claim(claimed.first().copied(), claim);
        for place in &claimed {
            if self.in_doubt.remove(place) {
                self.leave_pipeline(*place);
            }
        }
        if claimed.len() > 1 {
            self.merged.push(claimed);
        }
    }

    /// `place` is the request of its session.
    fn take_claim(&mut self, place: Option<usize>, mut claim: protocol::Claim) {
        self.note_parts(&claim);
        self.keys.expand_claim(&mut claim, None);
        let session = claim.session.0;
        let claim = converted(claim);
        if claim.commit.is_none() {
            if let Some(transaction) = place.map(|place| &mut self.history[place])
                && transaction.claim.is_none()
            {
                transaction.claim = Some(claim);
            }
            return;
        }
        let own = place.filter(|place| self.history[*place].place().is_none());
        match (self.claimed.get(&claim.transaction).copied(), own) {
            // An instance knew it before its coordinator claimed it.
            (Some(known), Some(own)) if self.history[known].steps.is_empty() => {
                self.history[own].claim = self.history[known].claim.take();
            }
            // It is claimed again, by an instance that recovered.
            (Some(known), _) => return self.merge(known, claim),
            (None, _) => {}
        }
        let place = own.unwrap_or_else(|| self.push(session, 0, Vec::new()));
        self.claimed.insert(claim.transaction, place);
        match &self.history[place].claim {
            Some(known) if known.transaction == claim.transaction => self.merge(place, claim),
            _ => self.history[place].claim = Some(claim),
        }
    }

    /// The claim about the transaction at this place.
    pub fn claim_at(&mut self, place: usize, claim: protocol::Claim) {
        self.history[place].claim = Some(converted(claim));
    }

    /// An instance knows that a transaction has committed. An unclaimed commit counts as a transaction of its own; then
    /// some client must be in doubt about it, which the checker verifies. `partition` is the instance's, if it has one
    /// only.
    pub fn outcome(&mut self, mut claim: protocol::Claim, partition: Option<PartitionId>) {
        self.note_parts(&claim);
        self.keys.expand_claim(&mut claim, partition);
        let claim = converted(claim);
        match self.claimed.get(&claim.transaction) {
            Some(place) => self.merge(*place, claim),
            None => {
                let place = self.push(0, 0, Vec::new());
                self.claimed.insert(claim.transaction, place);
                self.history[place].claim = Some(claim);
            }
        }
    }

    /// The transactions that are known to have committed.
    pub fn claimed(&self) -> BTreeSet<[u64; 3]> {
        self.claimed.keys().copied().collect()
    }

    /// What ran as one transaction becomes one in the history, under its first command: invoked when its last command
    /// was, and answered when the first was. The last command may be another session's, and later than the next
    /// command of the first one's session: then not later than that, since checkers derive the order within a session
    /// from it.
    pub fn merge_pipelines(&mut self) {
        for places in std::mem::take(&mut self.merged) {
            let took_effect = self.history[places[0]].place().is_some();
            let (mut steps, mut outcomes, mut answers, mut invoked) = (Vec::new(), Vec::new(), Vec::new(), 0);
            for place in &places {
                let one = &mut self.history[*place];
                if one.outcome == Outcome::Aborted && took_effect {
                    let message =
                        format!("transaction {place} took effect, and its client was told the contrary");
                    let transactions = vec![*place as u64];
                    self.violations.push(Violation { check: Check::Claims, message, transactions });
                    continue;
                }
                invoked = invoked.max(one.invoked);
                answers.extend(one.responded.take());
                outcomes.push(std::mem::replace(&mut one.outcome, Outcome::Aborted));
                steps.append(&mut one.steps);
            }
            let session = self.history[places[0]].session;
            let own = places.iter().filter(|place| self.history[**place].session == session);
            let behind = own.max().map_or(0, |last| last + 1);
            let next = |other: &&Transaction| other.session == session && !other.steps.is_empty();
            let next = self.history[behind..].iter().find(next).map(|next| next.invoked);
            let invoked = next.map_or(invoked, |next| next.min(invoked));
            let whole = &mut self.history[places[0]];
            let first = |wanted| outcomes.contains(&wanted).then_some(wanted);
            let outcome = first(Outcome::Committed).or(first(Outcome::Unknown));
            whole.outcome = outcome.unwrap_or(Outcome::Aborted);
            (whole.steps, whole.invoked, whole.responded) = (steps, invoked, answers.into_iter().min());
        }
    }

    /// An application's handler has decided what the types' rules leave open in merges.
    pub fn merges_were_handled(&mut self) {
        let branches = self.history.iter_mut().filter_map(|t| t.claim.as_mut()?.branch.as_mut());
        branches.filter(|branch| branch.parents.len() > 1).for_each(|branch| branch.handled = true);
    }

    /// Instances have ended this transaction without effects.
    pub fn aborted(&mut self, transaction: TransactionId) {
        self.aborted.insert(name(transaction));
    }

    /// What one shard has committed, no other one may have ended without effects.
    pub fn check_atomicity(&mut self) {
        for transaction in self.aborted.iter().filter(|transaction| self.claimed.contains_key(*transaction)) {
            let place = self.claimed[transaction];
            let message = format!(
                "transaction {transaction:?} committed, but some replica has ended it without effects"
            );
            self.violations.push(Violation {
                check: Check::Claims,
                message,
                transactions: vec![place as u64],
            });
        }
    }

    /// Nothing may have happened to a watched key between the look at it and the transaction that heeded the watch. In
    /// causal keyspaces a look may be old, and another region's writes stop nobody (Corrections 70): not checked
    /// there.
    pub fn check_watches(&mut self) {
        for place in std::mem::take(&mut self.heeding) {
            let heeding = &self.history[place];
            let before = self.history[..place].iter().rev().find(|t| t.session == heeding.session);
            let Some(look) = before.filter(|look| look.outcome == Outcome::Committed) else { continue };
            let (Some(saw), Some(sees)) = (look.steps.first(), heeding.steps.first()) else { continue };
            // A shrunk script may have left out the step that looks again.
            let again = saw.key == sees.key && saw.operation == sees.operation;
            if heeding.outcome == Outcome::Committed && again && saw.reply != sees.reply {
                let message = format!(
                    "transaction {} committed although {} was watched and changed: {} then, {} now",
                    heeding.number,
                    saw.key,
                    saw.reply.as_deref().unwrap_or("nothing"),
                    sees.reply.as_deref().unwrap_or("nothing")
                );
                let transactions = vec![look.number, heeding.number];
                self.violations.push(Violation { check: Check::Order, message, transactions });
            }
        }
    }

    fn merge(&mut self, place: usize, claim: Claim) {
        let Some(known) = &mut self.history[place].claim else { return };
        if known.place() != claim.place() {
            let message = format!(
                "transaction {place} is claimed to have committed at {:?} and at {:?}",
                known.commit, claim.commit
            );
            self.violations.push(Violation {
                check: Check::Claims,
                message,
                transactions: vec![place as u64],
            });
            return;
        }
        let (known_keys, news): (Vec<_>, Vec<_>) = (claim.effects.into_iter())
            .partition(|(key, _)| known.effects.iter().any(|(other, _)| other == key));
        let differs = |key: &Key| {
            let (before, now) = (effects_on(key, &known.effects), effects_on(key, &known_keys));
            before.len() != now.len() || !before.iter().zip(&now).all(|(before, now)| are_equal(before, now))
        };
        if let Some((key, _)) = known_keys.iter().find(|(key, _)| differs(key)) {
            let message = format!("transaction {place} is claimed to have had different effects on {key}");
            let transactions = vec![place as u64];
            self.violations.push(Violation { check: Check::Claims, message, transactions });
        }
        known.effects.extend(news);
        known.snapshot = known.snapshot.or(claim.snapshot);
        known.thread = known.thread.take().or(claim.thread);
        let says_more = |vector: &Vector| !vector.snapshot.is_empty() || vector.keys.is_some();
        if claim.vector.as_ref().is_some_and(says_more) || known.vector.is_none() {
            known.vector = claim.vector;
        }
    }

    /// Something did not happen in time.
    pub fn no_progress(&mut self, message: String) {
        self.violations.push(Violation { check: Check::Progress, message, transactions: Vec::new() });
    }
}

/// The effects on a key, in their order, without deletions of what was just deleted: an expired key's deletion commits
/// with every operation that met it, and a coordinator claims it as often as it requested it.
fn effects_on(key: &Key, effects: &[(Key, Bytes)]) -> Vec<Bytes> {
    let mut deletion = Vec::new();
    Effect::DELETE.encode(&mut deletion);
    let on_key = effects.iter().filter(|(other, _)| other == key);
    let mut on_key: Vec<Bytes> = on_key.map(|(_, effect)| effect.clone()).collect();
    on_key.dedup_by(|second, first| second == first && first.0 == deletion);
    on_key
}

/// True when two effects are the same one. Two sites that made the same merge may hold the members of a collection in
/// different orders.
fn are_equal(one: &Bytes, other: &Bytes) -> bool {
    let restored = |effect: &Bytes| match Effect::decode(&mut Reader::new(&effect.0)) {
        Ok(Effect::Key(key::Effect::Restore(cell))) => Cell::decode(&mut Reader::new(&cell)).ok(),
        _ => None,
    };
    one == other || restored(one).is_some_and(|cell| restored(other) == Some(cell))
}

/// A transaction's name in histories.
fn name(id: TransactionId) -> [u64; 3] {
    [u64::from(id.process.0), u64::from(id.incarnation.0), id.number]
}

/// Up to where a transaction saw what each region did to a key.
fn seen_of_key((key, times): (Box<[u8]>, Vec<Timestamp>)) -> (Key, Vec<u64>) {
    (Key(key.into_vec()), times.into_iter().map(|at| at.0).collect())
}

fn converted(claim: protocol::Claim) -> Claim {
    Claim {
        transaction: name(claim.transaction),
        commit: claim.commit.map(|commit| Commit {
            at: commit.at.0,
            depends_on: commit.depends_on.0,
            region: commit.region.0,
        }),
        snapshot: claim.snapshot.map(|snapshot| Snapshot {
            region: snapshot.region.0,
            local: snapshot.local.0,
            remote: snapshot.remote.0,
        }),
        vector: claim.vector.map(|vector| Vector {
            snapshot: vector.snapshot.iter().map(|at| at.0).collect(),
            depends_on: vector.depends_on.iter().map(|at| at.0).collect(),
            merges: vector.merges,
            keys: vector.keys.map(|keys| keys.into_iter().map(seen_of_key).collect()),
        }),
        thread: claim.thread.map(|thread| Thread {
            seen: thread.seen,
            place: thread.place,
            beyond: thread.beyond.into_iter().map(name).collect(),
        }),
        effects: (claim.effects.into_iter())
            .map(|(key, effect)| (Key(key.into_vec()), Bytes(effect.into_vec())))
            .collect(),
        branch: claim.branch.map(|branch| Branch {
            read: branch.read,
            state: branch.state,
            parents: branch.parents,
            handled: false,
        }),
    }
}

#[cfg(test)]
mod tests;
