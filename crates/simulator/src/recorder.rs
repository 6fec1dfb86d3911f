//! Puts the history together: what clients did and saw, and what instances claim.

use crate::workload::Plan;
use checker::{Bytes, Check, Claim, Commit, Key, Outcome, Snapshot, Step, Transaction, Violation, describe};
use datatypes::Operation;
use std::collections::BTreeMap;
use types::{Reader, SessionId};

/// The history so far.
#[derive(Default)]
pub(crate) struct Recorder {
    pub history: Vec<Transaction>,
    pub violations: Vec<Violation>,
    /// The newest transaction of each session, by its place in the history.
    newest: BTreeMap<u64, usize>,
    /// Where each claim that took a place went.
    claimed: BTreeMap<[u64; 3], usize>,
}

impl Recorder {
    /// A client begins a transaction; returns its place in the history. Its outcome is unknown so far.
    pub fn begin(&mut self, session: SessionId, plan: &Plan, now: u64) -> usize {
        let step = |step: &crate::workload::PlannedStep| Step {
            key: Key(step.key.clone()),
            text: Operation::decode(&mut Reader::new(&step.operation))
                .map_or_else(|e| e.to_string(), |o| describe(&o)),
            operation: Bytes(step.operation.clone()),
            blind: step.blind,
            reply: None,
            state: None,
        };
        let place = self.push(session.0, now, plan.steps.iter().map(step).collect());
        self.newest.insert(session.0, place);
        place
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
            at_rest: false,
        });
        place
    }

    /// The client saw these replies, from the given step on.
    pub fn replies(&mut self, place: usize, first: usize, replies: Vec<String>) {
        for (step, reply) in self.history[place].steps[first..].iter_mut().zip(replies) {
            step.reply = Some(reply);
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
        let session = claim.session.0;
        let claim = converted(claim);
        if claim.commit.is_none() {
            let place = self.newest.get(&session).copied();
            if let Some(transaction) = place.map(|place| &mut self.history[place])
                && transaction.claim.is_none()
            {
                transaction.claim = Some(claim);
            }
            return;
        }
        let newest = self.newest.get(&session).copied();
        let own = newest.filter(|place| self.history[*place].place().is_none());
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

    /// An instance knows that a transaction has committed. Where nobody claimed it, it stands for itself; somebody
    /// must be in doubt about it then.
    pub fn outcome(&mut self, claim: protocol::Claim) {
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

    /// Every transaction that nobody claimed, but that took effect, must be one whose client is in doubt: one that
    /// was asked to write all the keys that it changed.
    pub fn check_strays(&mut self) {
        let unknown =
            |t: &&Transaction| t.outcome == Outcome::Unknown && !t.steps.is_empty() && t.claim.is_none();
        let doubts: Vec<&Transaction> = self.history.iter().filter(unknown).collect();
        // A coordinator may give reads up with a definite answer, and a backup coordinator end them later: they
        // change nothing, and nobody sees their results. A write is not to be ended without its effects.
        let given_up =
            |t: &Transaction| t.outcome == Outcome::Aborted && !t.steps.is_empty() && only_reads(t);
        let reads_were_given_up = self.history.iter().any(given_up);
        let strays = self.history.iter().filter(|t| t.steps.is_empty());
        for stray in strays {
            let Some(claim) = &stray.claim else { continue };
            let wrote = |doubt: &Transaction, key: &Key| doubt.steps.iter().any(|step| step.key == *key);
            let in_doubt = doubts.iter().any(|doubt| claim.effects.iter().all(|(key, _)| wrote(doubt, key)));
            let explained = in_doubt || (claim.effects.is_empty() && reads_were_given_up);
            if !explained {
                let keys: Vec<String> = claim.effects.iter().map(|(key, _)| key.to_string()).collect();
                let message = format!(
                    "transaction {:?} committed on [{}], but no client is in doubt about such a transaction",
                    claim.transaction,
                    keys.join(", ")
                );
                let transactions = vec![stray.number];
                self.violations.push(Violation { check: Check::Claims, message, transactions });
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
        let news: Vec<_> = (claim.effects.into_iter())
            .filter(|(key, _)| known.effects.iter().all(|(other, _)| other != key))
            .collect();
        known.effects.extend(news);
        known.snapshot = known.snapshot.or(claim.snapshot);
    }

    /// Something did not happen in time.
    pub fn no_progress(&mut self, message: String) {
        self.violations.push(Violation { check: Check::Progress, message, transactions: Vec::new() });
    }
}

fn converted(claim: protocol::Claim) -> Claim {
    let id = claim.transaction;
    Claim {
        transaction: [u64::from(id.process.0), u64::from(id.incarnation.0), id.number],
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
        effects: (claim.effects.into_iter())
            .map(|(key, effect)| (Key(key.into_vec()), Bytes(effect.into_vec())))
            .collect(),
        branch: None,
    }
}

/// True if nothing that was asked for can have an effect.
fn only_reads(transaction: &Transaction) -> bool {
    let is_read =
        |bytes: &[u8]| Operation::decode(&mut Reader::new(bytes)).is_ok_and(|operation| operation.is_read());
    transaction.steps.iter().all(|step| is_read(&step.operation.0))
}
