//! What a type says beyond its specification: which lock modes may be held together, and what operations combine to.

use super::Unfit;
use super::scene::{Refutation, Subject, Taken};
use super::show;
use crate::abi::{Reply, Spec};
use crate::codec::Codec;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const COMPATIBLE: &str = "its lock modes may be held together, and it does not say that these commute";
const COMBINED: &str = "it says what one comes to right after another one, and it comes to something else";

/// For each two lock modes that may be held together, which may be one: their operations, if one of them may have an
/// effect.
pub(super) fn compatible_pairs(spec: &Spec) -> Vec<Vec<u8>> {
    let in_modes = |a: u8, b: u8| {
        let operations = (0u8..).zip(&spec.operations);
        let of_them = operations.filter(|(_, it)| it.mode.is_some_and(|mode| mode == a || mode == b));
        of_them.map(|(number, _)| number).collect::<Vec<u8>>()
    };
    let count = spec.modes.len() as u8;
    let pairs = (0..count).flat_map(|a| (a..count).map(move |b| (a, b)));
    let together = pairs.filter(|(a, b)| spec.are_compatible(*a, *b)).map(|(a, b)| in_modes(a, b));
    let writes = |operations: &Vec<u8>| operations.iter().any(|it| !spec.operations[usize::from(*it)].reads);
    together.filter(writes).collect()
}

impl Subject<'_> {
    /// True if the modes of these steps may be held together.
    pub(super) fn are_compatible(&self, a: &Taken<'_>, b: &Taken<'_>) -> bool {
        let mode = |taken: &Taken<'_>| self.module.mode(taken.step.operation.operation);
        matches!((mode(a), mode(b)), (Some(a), Some(b)) if self.module.spec().are_compatible(a, b))
    }

    /// Two steps whose modes may be held together: the specification has to say that they commute. It may use the
    /// replies, since each was evaluated under its lock.
    pub(super) fn held_together(
        &self,
        (a, one): (usize, &Taken<'_>),
        (b, other): (usize, &Taken<'_>),
    ) -> Result<Option<Refutation>, Unfit> {
        let refuted = |how: String| Ok(Some(Refutation { claim: COMPATIBLE, how }));
        if !self.effects_commute(one, other)? {
            return refuted(format!(
                "commute of the effects of {} and {} is false",
                show::name(a),
                show::name(b)
            ));
        }
        for ((seer, of_seer), (changer, of_changer)) in [((a, one), (b, other)), ((b, other), (a, one))] {
            if !self.unchanged(of_seer, of_changer, true)? {
                let (seer, changer) = (show::name(seer), show::name(changer));
                return refuted(format!("unchanged of {seer} and the effect of {changer} is false"));
            }
        }
        Ok(None)
    }

    /// Whatever the second step is said to come to right after the first one, it comes to.
    pub(super) fn combined(
        &mut self,
        state: &[u8],
        taken: &[Taken<'_>],
    ) -> Result<Option<Refutation>, Unfit> {
        let [held, next, ..] = taken else { return Ok(None) };
        let (Some(seen), Some(_)) = (&held.seen, &next.seen) else { return Ok(None) };
        let [first, second] = [held, next].map(|taken| &taken.step.operation);
        let alike = self.module.is_read(first.operation) == self.module.is_read(second.operation);
        if !alike || matches!(seen.reply, Reply::Error(_)) {
            return Ok(None);
        }
        let mut reply = Vec::new();
        seen.reply.encode(&mut reply);
        let (of_held, of_next) = ((first.operation, &*held.arguments), (second.operation, &*next.arguments));
        let predicted = self.module.combine(of_held, &reply, of_next);
        let predicted = predicted.map_err(self.fault("what follows from the reply of", Some(first)))?;
        let Some(predicted) = predicted else { return Ok(None) };
        self.tried.note_combined();
        let state = self.apply(state, held.effect.as_ref(), first)?;
        let now = self.execute(&state, second)?;
        let refuted = |how: String| Ok(Some(Refutation { claim: COMBINED, how }));
        if now.reply != predicted.reply {
            return refuted(show::wrong_reply(1, &predicted.reply, &now.reply));
        }
        let [expected, after] = [&now, &predicted].map(|it| self.apply(&state, it.effect.as_ref(), second));
        if expected? != after? {
            return refuted(format!("the effect that {} is told does something else", show::name(1)));
        }
        Ok(None)
    }
}
