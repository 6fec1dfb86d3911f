//! Performing effects, taking them back, and the binary form of the state.

use super::Effect;
use crate::codec::Field;
use crate::collections::ScoredTree;
use smallvec::SmallVec;
use types::{Malformed, Reader, put_bytes, put_varint};

/// Members with the scores they had.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// In the order in which they were changed; [`exchange`] goes backwards.
    entries: SmallVec<[Entry; 1]>,
}

impl Patch {
    /// Gives members their scores back, the last one first.
    pub(crate) fn new(entries: SmallVec<[Entry; 1]>) -> Self {
        Patch { entries }
    }

    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        let spilled = if self.entries.spilled() { self.entries.capacity() * size_of::<Entry>() } else { 0 };
        spilled + self.entries.iter().map(|(member, _)| member.len()).sum::<usize>()
    }
}

/// A member and the score to give it, or none to remove it.
pub(crate) type Entry = (Box<[u8]>, Option<f64>);

/// Performs an effect; see [`crate::apply`].
#[inline]
pub fn apply<const UNDO: bool>(state: &mut ScoredTree, effect: &Effect<'_>) -> Option<Patch> {
    let mut entries = SmallVec::new();
    let mut note = |member: &[u8], before: Option<f64>, after: Option<f64>| {
        if UNDO && before != after {
            entries.push((member.into(), before));
        }
    };
    match effect {
        Effect::Put { items } => {
            for (score, member) in items.iter().filter(|(score, _)| !score.is_nan()) {
                note(member, state.insert(member, *score), Some(*score));
            }
        }
        Effect::Add { member, by } if !by.is_nan() => {
            let score = super::sum(state.score(member), *by);
            note(member, state.insert(member, score), Some(score));
        }
        Effect::Add { .. } => {}
        Effect::Remove { members } => {
            for member in members.iter() {
                note(member, state.remove(member), None);
            }
        }
    }
    (!entries.is_empty()).then_some(Patch { entries })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut ScoredTree, patch: &mut Patch) {
    for (member, score) in patch.entries.iter_mut().rev() {
        *score = match *score {
            Some(score) => state.insert(member, score),
            None => state.remove(member),
        };
    }
    patch.entries.reverse();
}

/// Appends a state's binary form.
pub fn encode_state(state: &ScoredTree, out: &mut Vec<u8>) {
    put_varint(out, state.len() as u64);
    for (score, member) in state.iter() {
        Field::put(&score, out);
        put_bytes(out, member);
    }
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<ScoredTree, Malformed> {
    let mut state = ScoredTree::default();
    for _ in 0..input.count()? {
        let score = <f64 as Field>::take(input)?;
        state.insert(input.bytes()?, score);
    }
    Ok(state)
}
