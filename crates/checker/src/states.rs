//! What the effects that transactions see on a key come to. Most transactions see what another one has seen a little before, and a
//! few effects more: these are added to that state. A state from nothing takes the square of the effects.

use crate::invocations::Decoded;
use crate::merged::Merged;
use datatypes::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many states of a key are kept.
const KEPT: usize = 64;

/// See the module.
pub(crate) struct States<'d, 'h> {
    /// In order of place.
    writers: Vec<&'d Decoded<'h>>,
    /// By key the positions of those that change it, ascending.
    of_key: BTreeMap<&'h [u8], Vec<usize>>,
    /// By key the states that were made last, the newest first, each with the positions of those whose effects are in it.
    made: BTreeMap<&'h [u8], VecDeque<(Vec<usize>, Merged<'h>)>>,
}

impl<'d, 'h> States<'d, 'h> {
    /// None is made yet. The writers stand in order of place.
    pub fn new(writers: Vec<&'d Decoded<'h>>) -> Self {
        let mut of_key: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        for (position, writer) in writers.iter().enumerate() {
            let keys: BTreeSet<&[u8]> = writer.effects.iter().map(|(key, _)| *key).collect();
            keys.into_iter().for_each(|key| of_key.entry(key).or_default().push(position));
        }
        States { writers, of_key, made: BTreeMap::new() }
    }

    /// What is at a key for who sees some of the writers.
    pub fn cell(&mut self, key: &'h [u8], sees: impl Fn(usize) -> bool) -> Cell {
        let changes = self.of_key.get(key).into_iter().flatten().copied();
        let wanted: Vec<usize> = changes.filter(|position| sees(*position)).collect();
        let made = self.made.entry(key).or_default();
        let parts = made.iter().filter(|(part, _)| wanted.starts_with(part));
        let (mut there, mut merged) = (0, Merged::default());
        if let Some((part, state)) = parts.max_by_key(|(part, _)| part.len()) {
            if part.len() == wanted.len() {
                return state.cell().clone();
            }
            (there, merged) = (part.len(), state.clone());
        }
        for writer in wanted[there..].iter().map(|position| self.writers[*position]) {
            let claim = writer.transaction.claim.as_ref();
            let Some(commit) = claim.and_then(|claim| claim.place_among_concurrent()) else { continue };
            let effects = writer.effects.iter().filter(|(on, _)| *on == key);
            effects.for_each(|(_, effect)| merged.add(commit, effect));
        }
        let cell = merged.cell().clone();
        made.push_front((wanted, merged));
        made.truncate(KEPT);
        cell
    }
}
