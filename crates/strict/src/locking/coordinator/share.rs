//! What one transaction's steps come to right after those of others that hold the locks, without asking anybody.

use crate::coordinator::{Call, CallStep, Done, Expiring, Progress, Steps, whole_key};
use crate::part::{Invoked, encoded, narrowed};
use crate::validation::deadline_set;
use datatypes::combine::{Combined, Outstanding, combine, may_combine};
use datatypes::{Claim, Effect, Mode, Operation};
use types::{Reader, Rng};

/// True if the outstanding answer of another call is likely to give the result of this one.
pub(super) fn may_share(held: &Call, wanted: &Call, random: &mut Rng) -> bool {
    let held_operation = Operation::decode(&mut Reader::new(&held.operation));
    let wanted_operation = Operation::decode(&mut Reader::new(&wanted.operation));
    match (held_operation, wanted_operation) {
        (Ok(first), Ok(second)) => may_combine((&first, held.blind), (&second, wanted.blind), random),
        _ => false,
    }
}

/// Evaluates a request right after the steps of others, and appends it to them. False, and nothing is changed, if some
/// result does not follow from theirs.
pub(super) fn share(
    steps: &mut Steps,
    wanted: &Steps,
    now_millis: u64,
    expiring: &Expiring,
    random: &mut Rng,
) -> bool {
    let length = steps.list().len();
    for CallStep { call, .. } in wanted.list() {
        let Some(done) = tell(steps, steps.list().len(), call, now_millis, expiring, random) else {
            steps.split_off(length);
            return false;
        };
        steps.push_done(call.clone(), done);
    }
    true
}

/// What a call comes to after the step that tells it, of those `before` it: for a read, one of those since the last write on
/// its key; for a write, the last one. Its effect is its own: each member's stay apart, in the order in which they were
/// combined.
pub(super) fn tell(
    steps: &Steps,
    before: usize,
    call: &Call,
    now_millis: u64,
    expiring: &Expiring,
    random: &mut Rng,
) -> Option<Done> {
    let wanted = Operation::decode(&mut Reader::new(&call.operation)).ok()?;
    for CallStep { call: held, progress, .. } in steps.before(before, &call.key) {
        let Progress::Done(done) = progress else { return None };
        let operation = Operation::decode(&mut Reader::new(&held.operation)).ok()?;
        if operation.is_read() != wanted.is_read() {
            if wanted.is_read() {
                return None;
            }
            continue;
        }
        let blind = held.blind && done.invoked.observed.is_none();
        // Without what the held one changes, so that the effect is not that of both.
        let outstanding = Outstanding { operation: &operation, blind, reply: &done.result, effect: None };
        if let Some(combined) = combine(&outstanding, &wanted, call.blind) {
            let unread = || without_reading(steps, call, done, (now_millis, expiring), random);
            let held =
                HeldStep { operation: &operation, done, expired: steps.expiries.contains_key(&call.key) };
            return held.follow(call, &wanted, combined, unread);
        }
        if !wanted.is_read() {
            return None;
        }
    }
    None
}

/// What a call comes to that needs no evaluation on the state that is held.
fn without_reading(
    steps: &Steps,
    call: &Call,
    held: &Done,
    (now_millis, expiring): (u64, &Expiring),
    random: &mut Rng,
) -> Option<Done> {
    let has_deadline = held.expires_at != 0 || steps.may_expire(&call.key, expiring);
    call.without_reading(now_millis, has_deadline, random)
}

/// A step that was evaluated and holds its lock.
struct HeldStep<'h, 'o> {
    operation: &'h Operation<'o>,
    done: &'h Done,
    /// Its key was found expired.
    expired: bool,
}

impl HeldStep<'_, '_> {
    /// True if its locks are enough for another one that needs these.
    fn covers(&self, claim: &Claim<'_>) -> bool {
        let blind = || self.done.invoked.effect().ok().flatten().map(|effect| effect.claim());
        let held = match &self.done.invoked.observed {
            Some(_) if self.expired => Mode::Write.into(),
            Some(_) => self.operation.claim(),
            None => blind().unwrap_or(Mode::Observe.into()),
        };
        held.covers(claim)
    }

    /// The second one's step; `None` if it would need another lock, or sets a deadline, which would have to stay
    /// separate.
    fn follow(
        &self,
        call: &Call,
        wanted: &Operation<'_>,
        combined: Combined<'_>,
        unread: impl FnOnce() -> Option<Done>,
    ) -> Option<Done> {
        let sets_deadline = |effect: &Effect<'_>| deadline_set(effect).is_some();
        if combined.effect.as_ref().is_some_and(sets_deadline) {
            return None;
        }
        if let Some(done) = unread() {
            let own = done.invoked.effect().ok().flatten()?;
            return (done.expires_at == 0 && self.covers(&own.claim())).then_some(done);
        }
        let observed = self.done.invoked.observed.clone()?;
        if !self.covers(&wanted.claim()) {
            return None;
        }
        let operation = match narrowed(wanted, &combined.reply) {
            _ if wanted.observation().is_nothing() => whole_key(),
            Some(less) => less,
            None => call.operation.clone(),
        };
        let effect = combined.effect.as_ref().map(encoded);
        let invoked =
            Invoked { key: call.key.clone(), operation: Some(operation), effect, observed: Some(observed) };
        Some(Done { result: combined.reply, invoked, expires_at: self.done.expires_at })
    }
}
