//! What the effects of a history cost one another, and how long they must be known for it.

use super::replaying::Seen;
use super::{Entry, History, effect_of};
use crate::losses::LostWrite;
use datatypes::Effect;
use datatypes::key;
use datatypes::merge::Contest;

impl<S: Copy + Ord> History<S> {
    /// Something has come to this place.
    pub(super) fn note_contest(&mut self, place: usize) {
        let Some(sight) = self.sight.filter(|_| self.tells_losses && !self.contested) else { return };
        let stamp = self.entries[place].stamp;
        let seen = sight(&stamp);
        let is_foreign = |entry: &Entry<S>| sight(&entry.stamp).group != seen.group;
        let mut unseen = self.entries.range(..place).rev().take_while(|entry| entry.stamp > seen.upto);
        let hides = self.may_hide_some(seen) && unseen.any(is_foreign);
        let later = self.entries.range(place + 1..);
        let is_hidden = |entry: &Entry<S>| !sight(&entry.stamp).shows(seen.group, &stamp);
        self.contested = hides || later.into_iter().any(is_hidden);
    }

    /// Whether some effect may not have observed an earlier one, found anew.
    pub(super) fn find_contest(&mut self) {
        self.contested = false;
        let Some(sight) = self.sight.filter(|_| self.tells_losses) else { return };
        let mut latest: Vec<(u16, S)> = Vec::new();
        for entry in &self.entries {
            let seen = sight(&entry.stamp);
            self.contested |= latest.iter().any(|(group, stamp)| !seen.shows(*group, stamp));
            match latest.iter_mut().find(|(group, _)| *group == seen.group) {
                Some((_, stamp)) => *stamp = entry.stamp,
                None => latest.push((seen.group, entry.stamp)),
            }
        }
    }

    /// True if some effect here may not have observed an earlier one, so that one of them may be lost.
    pub(crate) fn is_contested(&self) -> bool {
        self.contested
    }

    /// What the effects here have lost, of the first `count` of them; as far as it is known, and whether it was settled
    /// or not. And how many steps it took to tell.
    pub(crate) fn losses(&self, key: &[u8], count: usize) -> (Vec<LostWrite<S>>, u64) {
        let Some(sight) = self.sight.filter(|_| self.contested && count > 0) else { return (Vec::new(), 0) };
        let seen = |entry: &Entry<S>| Seen { stamp: entry.stamp, sight: sight(&entry.stamp) };
        let contest =
            Contest::new(self.entries.iter().map(|entry| (seen(entry), effect_of(entry))).collect());
        let of = |place: usize| {
            contest.lost(place).into_iter().map(move |loss| LostWrite {
                key: key.into(),
                part: loss.part,
                stamp: self.entries[place].stamp,
                value: loss.value.into(),
                winner: self.entries[loss.to].stamp,
                instead: loss.instead.into(),
            })
        };
        ((0..count).flat_map(of).collect(), contest.steps())
    }

    /// The names of the losses that the first `count` effects here settle.
    pub(crate) fn settled(&self, count: usize) -> Vec<Vec<u8>> {
        let mut settled = Vec::new();
        let others = self.entries.range(..count).filter(|entry| self.tells_losses && entry.kind.is_none());
        for effect in others.map(effect_of) {
            if let Effect::Key(key::Effect::Resolve { losses }) = effect {
                settled.extend(losses.iter().map(<[u8]>::to_vec));
            }
        }
        settled
    }

    /// The first place, at most that above the horizon, from which on effects are needed by ones that have not observed
    /// them.
    pub(super) fn needed(&self, horizon: S, watershed: S) -> usize {
        let above = self.above(horizon);
        let Some(sight) = self.sight else { return above };
        let mut needed = self.above(watershed).min(above);
        // What an effect has lost is known when all that come have observed it and those that had not observed it.
        let mut from = if self.contested { needed } else { above };
        loop {
            let before = needed;
            for (group, upto) in self.least_sights(from) {
                let unseen = |place: &usize| sight(&self.entries[*place].stamp).group != group;
                needed = (self.above(upto).min(needed)..needed).find(unseen).unwrap_or(needed);
            }
            // Where types meet, an effect may bring forth what one that is kept put out of sight without observing it.
            if (from, before) == (needed, needed) || !self.mixes_types() {
                return needed;
            }
            from = needed;
        }
    }

    /// Of each group the least that an effect from a place on observed of the others.
    fn least_sights(&self, from: usize) -> Vec<(u16, S)> {
        let mut least: Vec<(u16, S)> = Vec::new();
        for seen in self.sight.iter().flat_map(|sight| self.entries.range(from..).map(|e| sight(&e.stamp))) {
            match least.iter_mut().find(|(group, _)| *group == seen.group) {
                Some((_, upto)) => *upto = seen.upto.min(*upto),
                None => least.push((seen.group, seen.upto)),
            }
        }
        least
    }

    /// True if effects say different types.
    fn mixes_types(&self) -> bool {
        let mut kinds = self.entries.iter().filter_map(|entry| entry.kind);
        kinds.next().is_some_and(|first| kinds.any(|kind| kind != first))
    }
}
