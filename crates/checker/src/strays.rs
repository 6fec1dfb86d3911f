//! What took effect and no coordinator claimed for a client: it must be what a client in doubt requested, whole and
//! unaltered.
//!
//! The replicas that know the outcome of such a stray report it: it has a place and effects, and no steps. A client is
//! in doubt whose transaction has an unknown outcome and no place. A commit that took effect on some of its shards
//! only, or with other effects, shows as one that no client requested. In a serial order that is exact: at the place
//! of the stray, executing what the client requested leaves what the stray's effects leave. Elsewhere the state that
//! it was evaluated on is not known, so that keys and plain writes are compared.
//!
//! Each client in doubt explains one stray: a matching is looked for. Where none explains one alone, several may
//! together, since coordinators combine what several clients ask for, and pipelines may run as one transaction.

use crate::history::{Outcome, Transaction};
use crate::invocations::Decoded;
use crate::replay::{Cells, execute_at, time_of};
use crate::report::{Check, Findings};
use datatypes::register::{self, Condition, Deadline, SetReply};
use datatypes::{Effect, Operation};
use std::collections::{BTreeMap, BTreeSet};

/// How many executions are tried to explain a stray by several clients in doubt.
const TRIED: usize = 2_000;

/// The transactions of clients in doubt. One that is malformed explains nothing.
pub(crate) fn doubts(history: &[Transaction]) -> Vec<Decoded<'_>> {
    let in_doubt =
        |t: &&Transaction| t.outcome == Outcome::Unknown && !t.steps.is_empty() && t.place().is_none();
    history.iter().filter(in_doubt).filter_map(Decoded::new).collect()
}

/// True for what took effect without anybody's claim. Sites merge branches by themselves, without a client's request.
fn is_stray(transaction: &Decoded<'_>) -> bool {
    let merges = |t: &Transaction| {
        let branch = t.claim.as_ref().and_then(|claim| claim.branch.as_ref());
        branch.is_some_and(|branch| branch.parents.len() > 1)
    };
    transaction.steps.is_empty() && !transaction.transaction.given_up && !merges(transaction.transaction)
}

/// Which clients in doubt explain a stray.
struct Stray {
    number: u64,
    keys: String,
    by_one: Vec<usize>,
    by_several: bool,
}

/// Strays, and the clients that may have requested them.
pub(crate) struct Strays<'d, 'h> {
    doubts: &'d [Decoded<'h>],
    /// The transactions that changed nothing and were refused: a backup coordinator may end such a read later.
    refused: BTreeSet<[u64; 3]>,
    strays: Vec<Stray>,
}

impl<'d, 'h> Strays<'d, 'h> {
    pub fn new(history: &[Transaction], doubts: &'d [Decoded<'h>]) -> Self {
        let refused = history.iter().filter(|t| t.outcome == Outcome::Aborted);
        let without_place =
            |t: &'_ Transaction| Some(t.claim.as_ref().filter(|claim| claim.commit.is_none())?.transaction);
        Strays { doubts, refused: refused.filter_map(without_place).collect(), strays: Vec::new() }
    }

    /// Looks at transactions in order of their places, each on the state that those before it leave. A serial order may have a
    /// stray elsewhere, since the effects of a stray do not tell which keys its client read.
    pub fn note_in_order(&mut self, placed: &[Decoded<'h>]) {
        let mut placed: Vec<&Decoded<'h>> = placed.iter().collect();
        placed.sort_by_key(|transaction| transaction.transaction.place());
        // Behind the last one no state matters.
        let end = placed.iter().rposition(|transaction| is_stray(transaction)).map_or(0, |last| last + 1);
        let mut state = Cells::default();
        for transaction in &placed[..end] {
            self.note_at(transaction, &state);
            transaction.effects.iter().for_each(|(key, effect)| state.apply(key, effect));
        }
    }

    fn note_at(&mut self, transaction: &Decoded<'h>, state: &Cells<'h>) {
        self.note(transaction, |doubts| {
            let explains = |index: &usize| explains(&doubts[*index], transaction, state);
            let by_one: Vec<usize> = (0..doubts.len()).filter(explains).collect();
            let by_several = by_one.is_empty() && explain_together(doubts, transaction, state);
            (by_one, by_several)
        });
    }

    /// Looks at a transaction whose state is not known.
    pub fn note_keys(&mut self, transaction: &Decoded<'h>) {
        self.note(transaction, |doubts| {
            let may = |index: &usize| may_explain(&doubts[*index], transaction);
            let by_one: Vec<usize> = (0..doubts.len()).filter(may).collect();
            let by_several = by_one.is_empty() && is_of_a_pipeline(doubts, transaction);
            (by_one, by_several)
        });
    }

    fn note(&mut self, stray: &Decoded<'h>, explained: impl FnOnce(&[Decoded<'h>]) -> (Vec<usize>, bool)) {
        let of = stray.transaction.claim.as_ref().map(|claim| claim.transaction);
        let is_refused_read = stray.effects.is_empty() && of.is_some_and(|of| self.refused.contains(&of));
        if !is_stray(stray) || is_refused_read {
            return;
        }
        let (by_one, by_several) = explained(self.doubts);
        let keys: BTreeSet<String> =
            stray.effects.iter().map(|(key, _)| key.escape_ascii().to_string()).collect();
        let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
        self.strays.push(Stray { number: stray.number(), keys, by_one, by_several });
    }

    /// For each client in doubt the stray that is taken to be its transaction, and the strays that are left.
    fn matched(&self) -> (Vec<Option<usize>>, Vec<usize>) {
        let mut taken = vec![None; self.doubts.len()];
        let alone = (0..self.strays.len()).filter(|stray| !self.strays[*stray].by_several);
        let left =
            alone.filter(|stray| !self.augment(*stray, &mut vec![false; self.doubts.len()], &mut taken));
        let left = left.collect();
        (taken, left)
    }

    /// Finds a client in doubt for a stray, moving others if need be.
    fn augment(&self, stray: usize, seen: &mut [bool], taken: &mut [Option<usize>]) -> bool {
        for doubt in &self.strays[stray].by_one {
            if std::mem::replace(&mut seen[*doubt], true) {
                continue;
            }
            if taken[*doubt].is_none_or(|other| self.augment(other, seen, taken)) {
                taken[*doubt] = Some(stray);
                return true;
            }
        }
        false
    }

    /// By the number of a client's transaction that of the stray which is taken to be it.
    pub fn pairs(&self) -> BTreeMap<u64, u64> {
        let (taken, _) = self.matched();
        let pair = |(doubt, stray): (usize, Option<usize>)| {
            Some((self.doubts[doubt].number(), self.strays[stray?].number))
        };
        taken.into_iter().enumerate().filter_map(pair).collect()
    }

    pub fn report(&self, findings: &mut Findings) {
        for stray in self.matched().1.into_iter().map(|stray| &self.strays[stray]) {
            let message = format!(
                "transaction {} took effect on [{}], but no client in doubt asked for that, all of it and nothing else",
                stray.number, stray.keys
            );
            findings.add(Check::Claims, message, vec![stray.number]);
        }
    }
}

/// Strays of a history whose claims are of no serial order.
pub(crate) fn check(history: &[Transaction], findings: &mut Findings) {
    let doubts = doubts(history);
    let mut strays = Strays::new(history, &doubts);
    let claimed = history.iter().filter(|t| t.steps.is_empty() && t.place().is_some());
    claimed.filter_map(Decoded::new).for_each(|stray| strays.note_keys(&stray));
    strays.report(findings);
}

/// True if executing what a client in doubt requested leaves what the stray leaves.
fn explains<'h>(doubt: &Decoded<'h>, stray: &Decoded<'h>, state: &Cells<'h>) -> bool {
    let keys = doubt.keys();
    if stray.effects.iter().any(|(key, _)| !keys.contains(key)) {
        return false;
    }
    let now_millis = time_of(stray);
    let mut requested = state.only(keys);
    let mut found = requested.clone();
    stray.effects.iter().for_each(|(key, effect)| found.apply(key, effect));
    let executed = execute_at(now_millis, doubt, None, &mut requested).is_ok();
    requested.expire(now_millis);
    found.expire(now_millis);
    executed && requested == found
}

/// True if some of those in doubt, one after the other, leave what the stray leaves.
fn explain_together<'h>(doubts: &[Decoded<'h>], stray: &Decoded<'h>, state: &Cells<'h>) -> bool {
    let keys: BTreeSet<&'h [u8]> = stray.effects.iter().map(|(key, _)| *key).collect();
    let concerned = |doubt: &&Decoded<'h>| doubt.keys().iter().any(|key| keys.contains(key));
    let candidates: Vec<&Decoded<'h>> = doubts.iter().filter(concerned).collect();
    let all = candidates.iter().flat_map(|doubt| doubt.keys()).chain(keys.iter().copied()).collect();
    let before = state.only(all);
    let mut wanted = before.clone();
    stray.effects.iter().for_each(|(key, effect)| wanted.apply(key, effect));
    let mut together = Together { candidates, now_millis: time_of(stray), wanted, left: TRIED };
    together.wanted.expire(together.now_millis);
    let mut used = vec![false; together.candidates.len()];
    together.reach(&before, &mut used)
}

/// A search for clients in doubt whose transactions were one.
struct Together<'c, 'h> {
    candidates: Vec<&'c Decoded<'h>>,
    now_millis: u64,
    wanted: Cells<'h>,
    /// How many executions may still be tried.
    left: usize,
}

impl<'h> Together<'_, 'h> {
    fn reach(&mut self, state: &Cells<'h>, used: &mut [bool]) -> bool {
        for next in 0..self.candidates.len() {
            if used[next] || self.left == 0 {
                continue;
            }
            self.left -= 1;
            let mut after = state.clone();
            let executed = execute_at(self.now_millis, self.candidates[next], None, &mut after).is_ok();
            after.expire(self.now_millis);
            if !executed || after == *state {
                continue;
            }
            used[next] = true;
            if after == self.wanted || self.reach(&after, used) {
                return true;
            }
            used[next] = false;
        }
        false
    }
}

/// The value that a transaction is sure to write to a key, by a step that is the only one on it.
fn written<'h>(doubt: &Decoded<'h>, key: &[u8]) -> Option<&'h [u8]> {
    let mut steps = doubt.steps.iter().filter(|step| step.key == key);
    match (&steps.next()?.operation, steps.next()) {
        (
            Operation::Register(register::Operation::Set {
                value,
                deadline: Deadline::Clear | Deadline::Keep,
                condition: Condition::Always,
                reply: SetReply::Status,
            }),
            None,
        ) => Some(*value),
        _ => None,
    }
}

/// True unless the stray lacks a write that the client requested.
fn has_all_writes(doubt: &Decoded<'_>, stray: &Decoded<'_>) -> bool {
    doubt.keys().iter().all(|key| {
        let Some(value) = written(doubt, key) else { return true };
        let sets = |effect: &Effect<'_>| {
            matches!(effect, Effect::Register(register::Effect::Set { value: other, .. }) if *other == value)
        };
        stray.effects.iter().any(|(other, effect)| other == key && sets(effect))
    })
}

/// The same, and it changes no key that the client did not name.
fn may_explain(doubt: &Decoded<'_>, stray: &Decoded<'_>) -> bool {
    let keys = doubt.keys();
    stray.effects.iter().all(|(key, _)| keys.contains(key)) && has_all_writes(doubt, stray)
}

/// True if the stray may be some of the commands of one pipeline.
fn is_of_a_pipeline(doubts: &[Decoded<'_>], stray: &Decoded<'_>) -> bool {
    let mut pipelines: BTreeMap<(u64, u64), BTreeSet<&[u8]>> = BTreeMap::new();
    for doubt in doubts.iter().filter(|doubt| has_all_writes(doubt, stray)) {
        let sent = (doubt.transaction.session, doubt.transaction.invoked);
        pipelines.entry(sent).or_default().extend(doubt.keys());
    }
    pipelines.values().any(|keys| stray.effects.iter().all(|(key, _)| keys.contains(key)))
}
