//! What a leader makes of f+1 records: IR-TAPIR's Merge(R, d, u).

use super::{Application, Entry, Group, Groups, HeldAttempt, Operations};
use crate::{Mutant, Mutants};
use std::collections::BTreeSet;
use types::TransactionId;

/// The operations of the merged records, sorted by how much is known of their results.
struct Sorted<O: Operations> {
    /// Groups whose result is settled (R, and d with another result than PREPARE-OK).
    settled: Groups<O>,
    /// Tentative PREPARE-OK, found often enough that it may have succeeded on the fast path.
    d: Groups<O>,
    /// The other tentative ones: they cannot have succeeded.
    u: Groups<O>,
}

/// Merges `records`, those of the highest last normal view among the f+1 that a leader took; `majority` is
/// ceil(f/2)+1, and less after a loss (`after_loss`). `app` holds no locks at the call and those of the merged record afterwards.
///
/// What is `over` is neither held nor validated again: groups with an outcome that the leader has executed, even if
/// every record of the highest last normal view still has them undecided (nothing would ever end such a lock, as an
/// outcome is executed once), and groups that were born at or below the base, which can no longer commit. `ended` are the
/// outcomes that the leader remembers.
pub fn merge<O: Operations>(
    records: &[&Groups<O>],
    over: &dyn Fn(TransactionId, &Group<O>) -> bool,
    ended: &[(TransactionId, &O::Inconsistent)],
    majority: usize,
    mutants: Mutants,
    app: &mut impl Application<O>,
) -> Groups<O> {
    let mut sorted = Sorted { settled: Groups::new(), d: Groups::new(), u: Groups::new() };
    let left = |(id, group): &(&TransactionId, &Group<O>)| !over(**id, group);
    let ids = records.iter().flat_map(|record| record.iter().filter(left).map(|(id, _)| *id));
    let ids: BTreeSet<TransactionId> = ids.collect();
    for id in ids {
        let copies: Vec<&Group<O>> = records.iter().filter_map(|record| record.get(&id)).collect();
        sort(id, &copies, majority, mutants, &mut sorted);
    }
    let Sorted { settled: mut merged, d, u } = sorted;
    for (id, group) in &merged {
        if let Some(held) = &group.held {
            app.hold(*id, &held.operation);
        }
    }
    // One fixed order for all of d, then u (Corrections 8).
    let again = d.into_iter().map(|group| (group, true)).chain(u.into_iter().map(|group| (group, false)));
    for ((id, mut group), may_have_succeeded) in again {
        if let Some(Entry { attempt, operation: Some(operation), result, finalized, .. }) = &mut group.entry {
            *result = match may_have_succeeded {
                true => app.execute_again(id, operation, ended),
                false => app.execute_consensus(id, operation).0,
            };
            *finalized = true;
            if O::holds(*result) {
                app.hold(id, operation);
                group.held = Some(HeldAttempt { attempt: *attempt, operation: operation.clone() });
            }
        }
        merged.insert(id, group);
    }
    merged
}

/// Sorts one group that has not ended, given its copies in the records that count.
fn sort<O: Operations>(
    id: TransactionId,
    copies: &[&Group<O>],
    majority: usize,
    mutants: Mutants,
    sorted: &mut Sorted<O>,
) {
    let promised = copies.iter().map(|group| group.promised).max().unwrap_or_default();
    let born = copies.iter().map(|group| group.born).max().unwrap_or_default();
    let mut group = Group { born, promised, ..Group::default() };
    let entries: Vec<&Entry<O>> = copies.iter().filter_map(|group| group.entry.as_ref()).collect();
    let Some(highest) = entries.iter().map(|entry| entry.attempt).max() else {
        sorted.settled.insert(id, group);
        return;
    };
    if let Some(entry) = finalized(&entries, highest, mutants) {
        sorted.settled.insert(id, settle(group, entry.clone()));
        return;
    }
    let of_highest: Vec<&&Entry<O>> = entries.iter().filter(|entry| entry.attempt == highest).collect();
    let count = |result| of_highest.iter().filter(|entry| entry.result == result).count();
    let operation = of_highest.iter().find_map(|entry| entry.operation.clone());
    // After a loss so few records count that a vote and a refusal may both be found often enough: the vote stays, as what
    // was acknowledged counts for more than what was refused.
    let mut found = of_highest.iter().map(|entry| entry.result).filter(|result| count(*result) >= majority);
    let common = found.clone().find(|result| O::holds(*result)).or_else(|| found.next());
    let early = !mutants.has(Mutant::NoVoteLosesToAttempts);
    let no_vote = |entry: &&Entry<O>| entry.result == O::NO_VOTE && (early || entry.attempt == highest);
    let any_no_vote = entries.iter().copied().any(|entry| no_vote(&entry));
    let tentative = |result, ballot| Entry {
        attempt: highest,
        operation: operation.clone(),
        result,
        ballot,
        finalized: true,
    };
    match common {
        Some(result) if O::holds(result) || mutants.has(Mutant::RevalidateRefusals) => {
            group.entry = Some(tentative(result, Default::default()));
            sorted.d.insert(id, group);
        }
        _ if any_no_vote => {
            let entry = tentative(O::NO_VOTE, promised);
            sorted.settled.insert(id, settle(group, entry));
        }
        Some(result) => {
            let entry = tentative(result, Default::default());
            sorted.settled.insert(id, settle(group, entry));
        }
        None => {
            group.entry = of_highest.first().map(|entry| tentative(entry.result, Default::default()));
            sorted.u.insert(id, group);
        }
    }
}

/// The finalized entry that counts: of a backup coordinator the one with the highest ballot, whatever attempts the
/// original coordinator has made beside it; of the original coordinator only one of the highest attempt.
fn finalized<'e, O: Operations>(
    entries: &[&'e Entry<O>],
    highest: u32,
    mutants: Mutants,
) -> Option<&'e Entry<O>> {
    let best = entries.iter().filter(|entry| entry.finalized).max_by_key(|entry| entry.ballot())?;
    let backup = best.ballot.round > 0 && !mutants.has(Mutant::NoVoteLosesToAttempts);
    (backup || best.attempt == highest).then_some(best)
}

fn settle<O: Operations>(mut group: Group<O>, entry: Entry<O>) -> Group<O> {
    if O::holds(entry.result) {
        let held = entry.operation.clone().map(|operation| HeldAttempt { attempt: entry.attempt, operation });
        group.held = held;
    }
    group.entry = Some(Entry { finalized: true, ..entry });
    group
}
