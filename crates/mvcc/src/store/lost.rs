//! The part of the store that lists what concurrent writes cost others.

use super::snapshots::KeyHistory;
use super::{Stamp, Store};
use crate::CompactKey;
use crate::history::{DependencyVectorOf, Folded, History};
use crate::losses::{LossOptions, Losses, LostWrite};
use datatypes::{Effect, key};
use std::collections::BTreeSet;
use types::KeyHash;

/// Which bits of a key's hash do not determine its place in the list of losses.
const PLACE_SHIFT: u32 = 18;

impl<S: Stamp> Store<S> {
    /// From now on the writes that concurrent ones cost others are listed (Corrections 75). Only for a store that merges
    /// ([`Store::merge_by_dependencies`]). A loss is listed for good once every effect that is yet to come has observed all that
    /// matters to it; then it is the same in every replica.
    pub fn list_losses_by(&mut self, options: LossOptions<S>) {
        self.losses = Some(Losses::new(options));
    }

    /// How many losses are listed for good, and how many were dropped.
    pub fn listed_losses(&self) -> (usize, u64) {
        let listed = |losses: &Losses<S>| match losses.last_until_replaced() {
            true => self.losses_after(0).count(),
            false => losses.len(),
        };
        self.losses.as_ref().map_or((0, 0), |losses| (listed(losses), losses.dropped()))
    }

    /// The listed losses after a number, each with its own, in ascending order; 0 is before the first.
    pub fn losses_after(&self, number: u64) -> impl Iterator<Item = (u64, &LostWrite<S>)> {
        let listed = self.losses.iter().flat_map(move |losses| losses.after(number));
        listed.filter(|(_, loss)| !self.is_replaced(loss, &|_| true))
    }

    /// The same with those that an effect settles which may still be taken back: what a checkpoint holds.
    pub fn retained_losses_after(&self, number: u64) -> impl Iterator<Item = (u64, &LostWrite<S>)> {
        let key_history = self.losses.iter().flat_map(move |losses| losses.all_after(number));
        // What replaced one, or settled it, and is in the state, may no longer be reported.
        let replaced = |loss: &LostWrite<S>| self.is_replaced(loss, &|stamp| Some(*stamp) <= self.horizon);
        let settled = |loss: &LostWrite<S>| {
            self.losses.as_ref().is_some_and(|losses| losses.is_settled(loss, self.horizon))
        };
        key_history.filter(move |(_, loss)| !replaced(loss) && !settled(loss))
    }

    /// True if losses last until the key is replaced, and a visible retained effect has replaced what this one lost.
    fn is_replaced(&self, loss: &LostWrite<S>, visible: &dyn Fn(&S) -> bool) -> bool {
        let lasts = self.losses.as_ref().is_some_and(Losses::last_until_replaced);
        let resets = |history: &History<S>| history.resets(usize::MAX, visible);
        let resets = lasts.then(|| self.with_history(self.hash(&loss.key), &loss.key, resets)).flatten();
        resets.is_some_and(|resets| replaces(&resets, self.dependencies)(&loss.stamp))
    }

    /// The writes of a key that are lost, as far as the visible effects tell, in the order of their stamps; where losses last
    /// until the key is replaced, these are the siblings of what is shown.
    pub fn siblings(&self, hash: KeyHash, key: &[u8], visible: &dyn Fn(&S) -> bool) -> Vec<LostWrite<S>> {
        let Some(losses) = &self.losses else { return Vec::new() };
        let listed = losses.of_key(key).filter(|loss| !self.is_replaced(loss, visible));
        let mut siblings: Vec<LostWrite<S>> = listed.cloned().collect();
        siblings.extend(self.pending_losses_of(hash, key, visible));
        siblings.sort_by_key(|loss| loss.stamp);
        siblings
    }

    /// The losses that are known and that an effect to come may still settle. Looks at every key that was written by
    /// several who had not seen one another lately.
    pub fn pending_losses(&self) -> Vec<LostWrite<S>> {
        let keys = self.contested.iter();
        keys.flat_map(|(hash, key)| self.pending_losses_of(*hash, key, &|_| true)).collect()
    }

    /// Those of some keys, from a place on, which is a number of 46 bits; 0 is the first. Of as many keys as have about so
    /// many effects together, and one at least. And the place of the next key; `None` after the last one. A key that
    /// has any during all calls is in the list.
    pub fn pending_losses_from(&self, from: u64, effects: usize) -> (Vec<LostWrite<S>>, Option<u64>) {
        let (mut found, mut looked, mut last) = (Vec::new(), 0, None);
        for (hash, key) in self.contested.range((KeyHash(from << PLACE_SHIFT), CompactKey::new(b""))..) {
            let place = hash.0 >> PLACE_SHIFT;
            if looked >= effects && last != Some(place) {
                return (found, Some(place));
            }
            last = Some(place);
            looked += self.with_history(*hash, key, History::len).unwrap_or(1);
            found.extend(self.pending_losses_of(*hash, key, &|_| true));
        }
        (found, None)
    }

    fn pending_losses_of(
        &self,
        hash: KeyHash,
        key: &[u8],
        visible: &dyn Fn(&S) -> bool,
    ) -> Vec<LostWrite<S>> {
        let pending = |history: &History<S>| match &self.losses {
            Some(losses) if history.is_contested() => self.pending_losses_in(losses, history, key, visible),
            _ => Vec::new(),
        };
        self.with_history(hash, key, pending).unwrap_or_default()
    }

    fn pending_losses_in(
        &self,
        losses: &Losses<S>,
        history: &History<S>,
        key: &[u8],
        visible: &dyn Fn(&S) -> bool,
    ) -> Vec<LostWrite<S>> {
        let settled = history.settled(history.len());
        let (mut found, _) = history.losses(key, history.len(), visible);
        // Several effects of one transaction may have lost the same part.
        let mut names = BTreeSet::new();
        found.retain(|loss| {
            let name = losses.name(loss);
            !losses.contains(loss) && !settled.contains(&name) && names.insert(name)
        });
        if losses.last_until_replaced() && !found.is_empty() {
            let resets = history.resets(history.len(), visible);
            let is_replaced = replaces(&resets, self.dependencies);
            found.retain(|loss| !is_replaced(&loss.stamp));
        }
        found
    }

    /// Every loss of a key that is known, with its name.
    pub fn losses_of(&self, hash: KeyHash, key: &[u8]) -> Vec<(Vec<u8>, LostWrite<S>)> {
        let Some(losses) = &self.losses else { return Vec::new() };
        let known = self.siblings(hash, key, &|_| true).into_iter();
        known.map(|loss| (losses.name(&loss), loss)).collect()
    }

    /// The name of a loss among those of its key.
    pub fn loss_name(&self, loss: &LostWrite<S>) -> Vec<u8> {
        self.losses.as_ref().map_or_else(Vec::new, |losses| losses.name(loss))
    }

    /// Lists what a checkpoint or a peer tells: a loss that nothing to come can change.
    pub fn put_loss(&mut self, loss: LostWrite<S>) {
        if let Some(losses) = &mut self.losses {
            losses.add(loss);
        }
    }

    /// A checkpoint or a peer tells that so many losses were dropped from the list.
    pub fn put_dropped_losses(&mut self, dropped: u64) {
        if let Some(losses) = &mut self.losses {
            losses.count_dropped(dropped);
        }
    }

    /// Takes off the list what an effect settles, as long as it is not taken back.
    pub(super) fn take_off(&mut self, key: &[u8], stamp: S, effect: &Effect<'_>) {
        if let (Some(losses), Effect::Key(key::Effect::Resolve { losses: names })) =
            (&mut self.losses, effect)
        {
            names.iter().for_each(|name| losses.hide(key, name, stamp));
        }
    }
}

/// Whether one of these, which replaced or removed a key, observed an effect on it.
fn replaces<S: Stamp>(resets: &[S], dependencies: Option<DependencyVectorOf<S>>) -> impl Fn(&S) -> bool {
    move |earlier| {
        let observed = |reset: &S, dependencies: DependencyVectorOf<S>| {
            dependencies(reset).shows(dependencies(earlier).group, earlier)
        };
        dependencies.is_some_and(|dependencies| {
            resets.iter().any(|reset| reset > earlier && observed(reset, dependencies))
        })
    }
}

/// Whether it matters to what is listed of a key which of its effects replaced it.
pub(super) fn wants_resets<S: Stamp>(losses: Option<&Losses<S>>, key_history: &KeyHistory<S>) -> bool {
    losses.is_some_and(|losses| {
        losses.last_until_replaced()
            && (key_history.history.is_contested() || losses.has_of_key(&key_history.key))
    })
}

/// Lists what effects on a key that are forgotten have lost, and takes off what they settled or replaced.
pub(super) fn list_folded<S: Stamp>(
    losses: &mut Losses<S>,
    key: &[u8],
    folded: Folded<S>,
    dependencies: Option<DependencyVectorOf<S>>,
) {
    losses.list(key, folded.losses, &folded.settled);
    if !folded.resets.is_empty() {
        losses.end(key, replaces(&folded.resets, dependencies));
    }
}
