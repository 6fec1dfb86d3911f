//! What transactions demanded of states holds, as far as claims and replies show (TARDiS 5.1, table 1).
//!
//! A session stands where it last committed and last read on its own branch (Corrections 56). What it committed last is known
//! once it has chosen states itself: before, it shares a thread with others. How many children a state had is known
//! at least by those that the same site had made: of a begin, those whose clients had their answer; of an end, those with
//! lesser numbers of the same life. Merges may have taken several of these together since, and then that is not judged.

use super::{Dag, branch};
use crate::constraint::Constraint;
use crate::history::{Outcome, Transaction};
use crate::invocations::Decoded;
use crate::report::{Check, Findings};
use std::collections::{BTreeMap, BTreeSet};

/// Where a session stands.
#[derive(Default)]
struct SessionPosition<'h> {
    committed: Option<&'h str>,
    read: Option<&'h str>,
    /// It has chosen states itself.
    is_own: bool,
    /// What it committed last came then or later.
    knows_parent: bool,
    /// Its last transaction.
    last: u64,
}

impl SessionPosition<'_> {
    fn parent(&self) -> Option<&str> {
        self.committed.filter(|_| self.knows_parent)
    }
}

impl<'d, 'h> Dag<'d, 'h> {
    /// Each session's transactions, in its order, against where it stood before.
    pub(super) fn check_sessions(
        &self,
        history: &[Transaction],
        decoded: &'d [Decoded<'h>],
        findings: &mut Findings,
    ) {
        let known: BTreeMap<u64, &'d Decoded<'h>> = decoded.iter().map(|it| (it.number(), it)).collect();
        let mut order: Vec<&Transaction> = history.iter().collect();
        order.sort_by_key(|transaction| (transaction.invoked, transaction.number));
        let mut positions: BTreeMap<u64, SessionPosition<'h>> = BTreeMap::new();
        for transaction in order {
            let position = positions.entry(transaction.session).or_default();
            match known.get(&transaction.number).copied() {
                Some(transaction) => {
                    self.check_begin(transaction, position, findings);
                    self.check_end(transaction, position, findings);
                    self.advance(transaction, position);
                }
                // It may have read on its own branch before it was given up, and where, nobody knows here.
                None if !is_led(transaction) => position.read = None,
                None => {}
            }
        }
    }

    /// The session goes on.
    fn advance(&self, transaction: &'d Decoded<'h>, position: &mut SessionPosition<'h>) {
        let Some(branch) = branch(transaction) else { return };
        position.last = transaction.number();
        position.is_own |= transaction.transaction.constraints.is_some();
        if let Some(state) = &branch.state {
            let state = Some(state.as_str());
            (position.committed, position.read) = (state, state);
            position.knows_parent = position.is_own;
            return;
        }
        // The thread that the session shared may have committed what this does not see: then the session comes back from it.
        let may_come_back = !is_led(transaction.transaction) && !position.knows_parent;
        for read in &branch.read {
            let is_own = position.committed.is_none_or(|committed| self.descends(read, committed));
            let is_back = position.read.is_some_and(|known| self.descends(known, read));
            if !is_own || is_back {
                continue;
            }
            match may_come_back {
                false => position.read = Some(read),
                // It stands here, or where it stood before: it is certain to go on below that only where this does too.
                true => position.read = position.read.filter(|known| self.descends(read, known)),
            }
        }
    }

    fn check_begin(
        &self,
        transaction: &'d Decoded<'h>,
        position: &SessionPosition<'h>,
        findings: &mut Findings,
    ) {
        let Some(branch) = branch(transaction) else { return };
        let demanded = transaction.transaction.constraints.as_ref().and_then(|all| all.begin.as_ref());
        let (number, session) = (transaction.number(), transaction.transaction.session);
        let reads = || branch.read.iter().map(String::as_str);
        let lost = |seen: &&str| !reads().any(|read| self.descends(read, seen));
        let stands = || [position.committed, position.read].into_iter().flatten();
        let Some(demanded) = demanded else {
            if let Some(lost) = stands().find(lost) {
                let message = format!(
                    "session {session}: transaction {number} reads state [{}], which does not include {lost}, where \
                     {} was",
                    branch.read.join(", "),
                    position.last
                );
                findings.add(Check::Session, message, vec![position.last, number]);
            }
            return;
        };
        let [read] = &branch.read[..] else { return };
        let holds = demanded.holds(&mut |part| match part {
            Constraint::Any => Some(true),
            Constraint::Ancestor => Some(!stands().any(|seen| lost(&seen))),
            Constraint::Parent => position.parent().map(|parent| parent == read),
            Constraint::State(id) => Some(id == read),
            Constraint::Branching(limit) => {
                let known = self.children(read).filter(|child| self.was_answered_before(child, transaction));
                self.has_fewer(known.collect(), *limit, None)
            }
            // They say nothing of a beginning.
            _ => None,
        });
        if holds == Some(false) {
            let message = format!(
                "transaction {number} of session {session} demanded to begin at {demanded} and reads {read}"
            );
            findings.add(Check::Session, message, vec![position.last, number]);
        }
    }

    fn check_end(
        &self,
        transaction: &'d Decoded<'h>,
        position: &SessionPosition<'h>,
        findings: &mut Findings,
    ) {
        let demanded = transaction.transaction.constraints.as_ref().and_then(|all| all.end.as_ref());
        let Some((branch, demanded)) = branch(transaction).zip(demanded) else { return };
        let (Some(state), [parent], [read]) = (&branch.state, &branch.parents[..], &branch.read[..]) else {
            return;
        };
        let stands = || [position.committed, position.read].into_iter().flatten();
        let holds = demanded.holds(&mut |part| match part {
            Constraint::Any | Constraint::ReadCommitted => Some(true),
            Constraint::Ancestor => Some(stands().all(|seen| self.descends(parent, seen))),
            Constraint::Parent => position.parent().map(|known| known == parent),
            Constraint::State(id) => Some(id == parent),
            Constraint::NoBranching => self.has_fewer(self.elder_siblings(state, parent), 1, Some(state)),
            Constraint::Branching(limit) => {
                self.has_fewer(self.elder_siblings(state, parent), *limit, Some(state))
            }
            Constraint::SnapshotIsolation => Some(!self.writes_between(transaction, read, parent)),
            // Its replies are replayed on its parent.
            Constraint::Serializability => None,
            Constraint::All(_) | Constraint::Either(_) => None,
        });
        if holds == Some(false) {
            let number = transaction.number();
            let message = format!(
                "transaction {number} read state {read}, demanded to commit below {demanded}, and committed {state} \
                 below {parent}"
            );
            findings.add(Check::Order, message, vec![number]);
        }
    }

    fn children(&self, of: &str) -> impl Iterator<Item = &'h str> {
        self.states.iter().filter(move |(_, state)| state.parents.contains(&of)).map(|(id, _)| *id)
    }

    /// True if a transaction's site made the state, and its client had its answer before the transaction began.
    fn was_answered_before(&self, state: &str, transaction: &Decoded<'_>) -> bool {
        let site = |of: &Decoded<'_>| of.transaction.claim.as_ref().map(|claim| claim.transaction[0]);
        self.states[state].maker.is_some_and(|maker| {
            let answered =
                maker.transaction.responded.filter(|_| maker.transaction.outcome == Outcome::Committed);
            site(maker) == site(transaction)
                && answered.is_some_and(|answered| answered < transaction.transaction.invoked)
        })
    }

    /// The other children of a state's parent that the same life of a site made before it.
    fn elder_siblings(&self, state: &str, parent: &str) -> Vec<&'h str> {
        let Some((number, life)) = numbered(state) else { return Vec::new() };
        let is_elder = |child: &&'h str| numbered(child).is_some_and(|(n, l)| l == life && n < number);
        self.children(parent).filter(is_elder).collect()
    }

    /// Whether there were fewer than so many, when these were all that is known. Merges that do not come after `state` may have
    /// taken several of them together before it.
    fn has_fewer(&self, known: Vec<&'h str>, limit: usize, state: Option<&str>) -> Option<bool> {
        if known.len() < limit {
            return None;
        }
        let is_above = |merge: &'h str| known.iter().filter(|child| self.descends(merge, child)).count() > 1;
        let merges = self.states.iter().filter(|(_, state)| state.parents.len() > 1).map(|(id, _)| *id);
        let mut before = merges.filter(|merge| !state.is_some_and(|state| self.descends(merge, state)));
        let were_merged = limit > 1 && before.any(is_above);
        (!were_merged).then_some(false)
    }

    /// True if something that a transaction wrote was written between two states.
    fn writes_between(&self, transaction: &Decoded<'h>, read: &'h str, parent: &'h str) -> bool {
        let written: BTreeSet<&[u8]> = transaction.effects.iter().map(|(key, _)| *key).collect();
        let (before, past) = (self.past(read), self.past(parent));
        let makers = past.difference(&before).filter_map(|id| self.states[*id].maker);
        makers.flat_map(|maker| &maker.effects).any(|(key, _)| written.contains(*key))
    }
}

/// True if a transaction begins below all that its session did before.
fn is_led(transaction: &Transaction) -> bool {
    let demanded = transaction.constraints.as_ref().and_then(|all| all.begin.as_ref());
    demanded.is_none_or(|begin| begin.demands(&Constraint::Ancestor))
}

/// True if a transaction's replies have to hold below where it commits, and not only where it read.
pub(super) fn is_serializable(transaction: &Decoded<'_>) -> bool {
    let demanded = transaction.transaction.constraints.as_ref().and_then(|all| all.end.as_ref());
    demanded.is_none_or(|end| end.demands(&Constraint::Serializability))
}

/// The number of a state that a site made, and in which life.
fn numbered(state: &str) -> Option<(u64, &str)> {
    let (number, life) = state.split_once('@')?;
    Some((number.parse().ok()?, life)).filter(|(_, life)| !life.starts_with('m'))
}
