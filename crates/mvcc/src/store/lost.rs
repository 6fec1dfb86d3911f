//! The part of the store that lists what concurrent writes cost others.

use super::{Stamp, Store};
use crate::CompactKey;
use crate::losses::{LossOptions, Losses, LostWrite};
use datatypes::{Effect, key};
use types::KeyHash;

/// Which bits of a key's hash tell nothing of its place among those whose losses are told.
const PLACE_SHIFT: u32 = 18;

impl<S: Stamp> Store<S> {
    /// From now on the writes that concurrent ones cost others are listed (Corrections 75). Only for a store that merges
    /// ([`Store::merge_by`]). A loss is listed for good once every effect that is yet to come has observed all that
    /// matters to it; then it is the same in every replica.
    pub fn list_losses_by(&mut self, options: LossOptions<S>) {
        self.losses = Some(Losses::new(options));
    }

    /// How many losses are listed for good, and how many were dropped.
    pub fn listed_losses(&self) -> (usize, u64) {
        self.losses.as_ref().map_or((0, 0), |losses| (losses.len(), losses.dropped()))
    }

    /// The listed losses after a number, each with its own, in ascending order; 0 is before the first.
    pub fn losses_after(&self, number: u64) -> impl Iterator<Item = (u64, &LostWrite<S>)> {
        self.losses.iter().flat_map(move |losses| losses.after(number))
    }

    /// The same with those that an effect settles which may still be taken back: what a checkpoint holds.
    pub fn kept_losses_after(&self, number: u64) -> impl Iterator<Item = (u64, &LostWrite<S>)> {
        self.losses.iter().flat_map(move |losses| losses.all_after(number))
    }

    /// The losses that are known and that an effect to come may still settle. Looks at every key that was written by
    /// several who had not seen one another lately.
    pub fn pending_losses(&self) -> Vec<LostWrite<S>> {
        self.contested.iter().flat_map(|(hash, key)| self.pending_losses_of(*hash, key)).collect()
    }

    /// Those of some keys, from a place on, which is a number of 46 bits; 0 is the first. Of as many keys as have about so
    /// many effects together, and one at least. And the place of the next key; `None` when all have been told. A key that has
    /// any during all calls is told.
    pub fn pending_losses_from(&self, from: u64, effects: usize) -> (Vec<LostWrite<S>>, Option<u64>) {
        let (mut found, mut looked, mut last) = (Vec::new(), 0, None);
        for (hash, key) in self.contested.range((KeyHash(from << PLACE_SHIFT), CompactKey::new(b""))..) {
            let place = hash.0 >> PLACE_SHIFT;
            if looked >= effects && last != Some(place) {
                return (found, Some(place));
            }
            last = Some(place);
            looked += self.find_history(*hash, key).map_or(1, |kept| kept.history.len());
            found.extend(self.pending_losses_of(*hash, key));
        }
        (found, None)
    }

    fn pending_losses_of(&self, hash: KeyHash, key: &[u8]) -> Vec<LostWrite<S>> {
        let Some((losses, kept)) = self.losses.as_ref().zip(self.find_history(hash, key)) else {
            return Vec::new();
        };
        let settled = kept.history.settled(kept.history.len());
        let (mut found, _) = kept.history.losses(key, kept.history.len());
        found.retain(|loss| !losses.contains(loss) && !settled.contains(&losses.name(loss)));
        found
    }

    /// Every loss of a key that is known, with its name.
    pub fn losses_of(&self, hash: KeyHash, key: &[u8]) -> Vec<(Vec<u8>, LostWrite<S>)> {
        let Some(losses) = &self.losses else { return Vec::new() };
        let listed = losses.of_key(key).cloned();
        listed.chain(self.pending_losses_of(hash, key)).map(|loss| (losses.name(&loss), loss)).collect()
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
