//! Executes transactions one after another on plain states and compares what clients saw.

use crate::identifiers::is_drawn_alike;
use crate::invocations::{Decoded, DecodedStep};
use crate::plain;
use crate::render::{readable, render};
use crate::report::{Check, Findings};
use crate::whole::is_same_value;
use datatypes::{Cell, Context, Effect, apply, prepare};
use std::collections::{BTreeMap, BTreeSet};
use types::{ReplyBuf, Rng, Timestamp};

/// The cells of some keys; what is not there is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cells<'h>(BTreeMap<&'h [u8], Cell>);

impl<'h> Cells<'h> {
    /// Performs an effect.
    pub fn apply(&mut self, key: &'h [u8], effect: &Effect<'_>) {
        apply::<false>(self.0.entry(key).or_default(), effect);
    }

    pub fn cell(&self, key: &[u8]) -> &Cell {
        self.0.get(key).unwrap_or(&Cell::ABSENT)
    }

    /// Replaces what is at a key.
    pub fn put(&mut self, key: &'h [u8], cell: Cell) {
        self.0.insert(key, cell);
    }

    /// The binary form of each key and its cell, for telling states apart; none of what is absent.
    pub fn each_encoded(&self, mut take: impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        for (key, cell) in self.0.iter().filter(|(_, cell)| cell.value.is_some()) {
            bytes.clear();
            types::put_bytes(&mut bytes, key);
            cell.encode(&mut bytes);
            take(&bytes);
        }
    }

    /// A copy of the cells of the keys that the transaction touches.
    pub fn touched(&self, transaction: &Decoded<'h>) -> Cells<'h> {
        self.only(transaction.keys())
    }

    /// A copy of the cells of these keys.
    pub fn only(&self, keys: BTreeSet<&'h [u8]>) -> Cells<'h> {
        Cells(keys.into_iter().map(|key| (key, self.cell(key).clone())).collect())
    }

    /// Puts such a copy back.
    pub fn update(&mut self, cells: Cells<'h>) {
        self.0.extend(cells.0);
    }

    /// Drops what has expired at this time.
    pub fn expire(&mut self, now_millis: u64) {
        for cell in self.0.values_mut() {
            if let Some(expiry) = cell.expiry(now_millis) {
                apply::<false>(cell, &expiry);
            }
        }
    }
}

/// When a transaction took place for the deadlines of keys, in milliseconds since 1970 (Corrections 69): at its commit
/// timestamp. One that took no place observed no expiry, or it would have committed the deletion: time stands still for it.
pub(crate) fn time_of(transaction: &Decoded<'_>) -> u64 {
    let commit = transaction.transaction.claim.as_ref().and_then(|claim| claim.commit);
    commit.map_or(0, |commit| Timestamp(commit.at).wall().as_millis())
}

/// The first reply that differs from what the client saw.
pub(crate) struct Difference {
    pub step: usize,
    pub expected: String,
}

/// Executes the steps on `cells` (or performs the effects, where nobody knows the steps), all of them or those on one key; stops at the first reply that differs from what the
/// client saw.
pub(crate) fn execute<'h>(
    transaction: &Decoded<'h>,
    only: Option<&[u8]>,
    cells: &mut Cells<'h>,
) -> Result<(), Difference> {
    if transaction.steps.is_empty() {
        transaction.effects.iter().for_each(|(key, effect)| cells.apply(key, effect));
    }
    execute_at(time_of(transaction), transaction, only, cells)
}

/// The same for the steps alone, at a time for deadlines.
pub(crate) fn execute_at<'h>(
    now_millis: u64,
    transaction: &Decoded<'h>,
    only: Option<&[u8]>,
    cells: &mut Cells<'h>,
) -> Result<(), Difference> {
    for (index, step) in transaction.steps.iter().enumerate() {
        if only.is_none_or(|only| only == step.key) {
            execute_step(step, now_millis, cells).map_err(|expected| Difference { step: index, expected })?;
        }
    }
    Ok(())
}

/// True if a transaction that took no place may stand here: its replies come out, and it changes nothing.
pub(crate) fn changes_nothing<'h>(transaction: &Decoded<'h>, cells: &Cells<'h>) -> bool {
    let before = cells.touched(transaction);
    let mut after = before.clone();
    execute(transaction, None, &mut after).is_ok() && after == before
}

/// Executes one step on `cells` at a time for deadlines, or says what it replies there if that is not what the client
/// saw.
pub(crate) fn execute_step<'h>(
    step: &DecodedStep<'h>,
    now_millis: u64,
    cells: &mut Cells<'h>,
) -> Result<(), String> {
    let (mut random, mut reply) = (Rng::with_seed(0), ReplyBuf::new());
    let mut context = Context { now_millis, random: &mut random, site: None };
    let found = cells.cell(step.key);
    let expiry = found.expiry(now_millis);
    let effect = prepare(&found.living(now_millis), &step.operation, &mut context, &mut reply);
    if let Some(seen) = step.observed {
        let expected = render(&reply);
        if expected != seen
            && !is_drawn_alike(&step.operation, &expected, seen)
            && !is_same_value(&step.operation, &expected, seen)
        {
            return Err(expected);
        }
    }
    if let Some(expiry) = expiry {
        cells.apply(step.key, &expiry);
    }
    if let Some(effect) = effect {
        cells.apply(step.key, &effect);
    }
    Ok(())
}

/// Executes a transaction on `base`, all of it or what it does to one key, compares its replies and its effects, and
/// returns the cells it leaves, which are those that its claimed effects make; or what differs.
///
/// The claimed effects must leave the state that executing the operations there leaves. That holds for blind
/// operations too: an effect left out because a stale replica found nothing to do is a lost write. What no client
/// requested (a claim without a client's transaction) is performed as claimed.
pub(crate) fn replay<'h>(
    transaction: &Decoded<'h>,
    only: Option<&[u8]>,
    base: &Cells<'h>,
    whence: &str,
) -> (Cells<'h>, Result<(), (Check, String)>) {
    let mut executed = base.touched(transaction);
    let mut claimed = executed.clone();
    for (key, effect) in transaction.effects.iter().filter(|(key, _)| only.is_none_or(|only| only == *key)) {
        claimed.apply(key, effect);
    }
    let number = transaction.number();
    let outcome = execute(transaction, only, &mut executed);
    let now_millis = time_of(transaction);
    let disagreement = plain::disagreement(transaction, only, now_millis, (base, &executed));
    let (mut wanted, mut found) = (executed, claimed.clone());
    wanted.expire(now_millis);
    found.expire(now_millis);
    let result = match outcome {
        Err(Difference { step, expected }) => {
            let (seen, text) = (&transaction.steps[step], &transaction.transaction.steps[step].text);
            let message = format!(
                "transaction {number}, step {step} ({text} on {}): the client saw {}, {whence} gives {expected}",
                seen.key.escape_ascii(),
                seen.observed.unwrap_or("nothing"),
            );
            Err((Check::Replies, message))
        }
        Ok(()) if !transaction.steps.is_empty() && wanted != found => {
            let effects: Vec<String> = (transaction.effects.iter())
                .map(|(key, effect)| format!("{}: {}", key.escape_ascii(), readable(&format!("{effect:?}"))))
                .collect();
            let message = format!(
                "transaction {number} claims effects that do not do what its operations do on {whence}: [{}]",
                effects.join(", ")
            );
            Err((Check::Effects, message))
        }
        Ok(()) => match disagreement {
            Some(what) => {
                let what = readable(&what);
                Err((Check::Model, format!("transaction {number}, by the second model on {whence}: {what}")))
            }
            None => Ok(()),
        },
    };
    (claimed, result)
}

/// [`replay`] of a whole transaction; `state` becomes what it leaves, and what differs is reported.
pub(crate) fn replay_onto<'h>(
    transaction: &Decoded<'h>,
    state: &mut Cells<'h>,
    whence: &str,
    findings: &mut Findings,
) {
    let (left, result) = replay(transaction, None, state, whence);
    state.update(left);
    if let Err((check, message)) = result {
        findings.add(check, message, vec![transaction.number()]);
    }
}
