//! Lost updates: what concurrent effects of a history cost one another, and how long they must be retained for it.

use super::replaying::Seen;
use super::{DependencyVector, DependencyVectorOf, Entry, History, effect_of};
use crate::losses::LostWrite;
use crate::store::Stamp;
use datatypes::Effect;
use datatypes::key;
use datatypes::merge::{Contest, is_reset};

impl<S: Stamp> History<S> {
    /// Something with this stamp has come.
    pub(super) fn note_contest(&mut self, stamp: S) {
        let Some(dependencies) = self.dependencies.filter(|_| self.reports_losses && !self.contested) else {
            return;
        };
        let seen = dependencies(&stamp);
        let is_foreign = |entry: &&Entry<S>| dependencies(&entry.stamp).group != seen.group;
        if !self.out_of_order.has_others(seen.group) && !self.may_hide_some(seen) {
            // It has observed all others, and stands above them.
            return;
        }
        let is_contested = |entry: &Entry<S>| match entry.stamp < stamp {
            true => !seen.shows(dependencies(&entry.stamp).group, &entry.stamp),
            false => !dependencies(&entry.stamp).shows(seen.group, &stamp),
        };
        self.contested = self.all_above(seen.upto.min(stamp)).filter(is_foreign).any(is_contested);
    }

    /// Whether some effect may not have observed an earlier one, found anew.
    pub(super) fn find_contest(&mut self) {
        let Some(dependencies) = self.dependencies.filter(|_| self.reports_losses) else { return };
        let (mut contested, mut latest): (bool, Vec<(u16, S)>) = (false, Vec::new());
        for entry in self.all() {
            let seen = dependencies(&entry.stamp);
            contested |= latest.iter().any(|(group, stamp)| !seen.shows(*group, stamp));
            match latest.iter_mut().find(|(group, _)| *group == seen.group) {
                Some((_, stamp)) => *stamp = entry.stamp,
                None => latest.push((seen.group, entry.stamp)),
            }
        }
        self.contested = contested;
    }

    /// True if some effect here may not have observed an earlier one, so that one of them may be lost.
    pub(crate) fn is_contested(&self) -> bool {
        self.contested
    }

    /// What the visible effects have lost, of the first `count` of them, without those already reported, as far as
    /// they are known, settled or not. And how many steps that took.
    pub(crate) fn losses(
        &self,
        key: &[u8],
        count: usize,
        visible: &dyn Fn(&S) -> bool,
    ) -> (Vec<LostWrite<S>>, u64) {
        let Some(dependencies) = self.dependencies.filter(|_| self.contested && count > 0) else {
            return (Vec::new(), 0);
        };
        let seen = |entry: &Entry<S>| Seen { stamp: entry.stamp, dependencies: dependencies(&entry.stamp) };
        let all: Vec<&Entry<S>> = self.all().filter(|entry| visible(&entry.stamp)).collect();
        let count = count.min(all.len());
        let unreported = all.partition_point(|entry| Some(entry.stamp) <= self.reported);
        let traces: Vec<_> = all.iter().map(|entry| entry.trace.as_deref()).collect();
        let contest =
            Contest::new(all.iter().map(|entry| (seen(entry), effect_of(entry))).collect(), &traces);
        let of = |place: usize| {
            let (contest, all) = (&contest, &all);
            contest.lost(place).into_iter().map(move |loss| LostWrite {
                key: key.into(),
                part: loss.part,
                stamp: all[place].stamp,
                value: loss.value.into(),
                winner: all[loss.to].stamp,
                instead: loss.instead.into(),
            })
        };
        ((unreported..count).flat_map(of).collect(), contest.steps())
    }

    /// The stamps of those visible ones of the first `count` effects that replace or remove the key.
    pub(crate) fn resets(&self, count: usize, visible: &dyn Fn(&S) -> bool) -> Vec<S> {
        let resets = |entry: &&Entry<S>| entry.whole || is_reset(&effect_of(entry));
        let all = self.all().take(count).filter(|entry| visible(&entry.stamp));
        all.filter(resets).map(|entry| entry.stamp).collect()
    }

    /// The names of the losses that the first `count` effects here settle.
    pub(crate) fn settled(&self, count: usize) -> Vec<Vec<u8>> {
        let mut settled = Vec::new();
        let others = self.all().take(count).filter(|entry| self.reports_losses && entry.kind.is_none());
        for effect in others.map(effect_of) {
            if let Effect::Key(key::Effect::Resolve { losses }) = effect {
                settled.extend(losses.iter().map(<[u8]>::to_vec));
            }
        }
        settled
    }

    /// The first place, at most `needed`, from which on effects are needed to tell what later ones have lost: of these some
    /// may be hidden by an earlier one that they did not observe, or by one that such an earlier one did not observe and brought
    /// forth; and some may go with a deadline that they did not observe, unless they observed another one, which who said that
    /// deadline did not.
    pub(super) fn needed_by_hidden(&self, needed: usize) -> usize {
        let Some(dependencies) = self.dependencies.filter(|_| self.contested) else { return needed };
        let hidden = self.needed_by_some(needed, dependencies, |entry| entry.hidden, |entry| entry.hides);
        hidden.min(self.needed_by_some(needed, dependencies, |entry| entry.goes, |entry| entry.dates))
    }

    /// The first place, at most `needed`, of an effect that hides others and that was not observed by a later one that may be
    /// hidden, nor by one that hides that.
    fn needed_by_some(
        &self,
        needed: usize,
        dependencies: DependencyVectorOf<S>,
        is_hidden: fn(&Entry<S>) -> bool,
        hides: fn(&Entry<S>) -> bool,
    ) -> usize {
        let mut least: Vec<(u16, S)> = Vec::new();
        for entry in self.all().skip(needed).filter(|entry| is_hidden(entry)) {
            note_least(&mut least, dependencies(&entry.stamp));
        }
        if least.is_empty() {
            return needed;
        }
        let mut wider = least.clone();
        let hiders =
            self.all().filter(|entry| hides(entry) && is_unseen_by_some(&least, dependencies, entry));
        hiders.for_each(|entry| note_least(&mut wider, dependencies(&entry.stamp)));
        let mut earlier = self.entries.range(..needed);
        earlier
            .position(|entry| hides(entry) && is_unseen_by_some(&wider, dependencies, entry))
            .unwrap_or(needed)
    }

    /// The first place, at most that above the horizon, from which on effects are needed by ones that have not observed
    /// them.
    pub(super) fn needed(&self, horizon: S, stability_frontier: S) -> usize {
        let above = self.above(horizon);
        if self.dependencies.is_none() {
            return above;
        }
        let needed = self.above(stability_frontier).min(above);
        // What an effect has lost is known when all that come have observed it and those that had not observed it.
        let from = if self.contested { needed } else { above };
        self.needed_by(needed, from, self.out_of_order_dependencies())
    }

    /// The first place, at most `needed`, from which on effects are needed by those from another place on, or by others that
    /// observed so much.
    pub(super) fn needed_by(
        &self,
        needed: usize,
        from: usize,
        others: impl Iterator<Item = DependencyVector<S>>,
    ) -> usize {
        let Some(dependencies) = self.dependencies else { return needed };
        let (mut needed, mut from, mut looked) = (needed, from, self.entries.len());
        let mut least: Vec<(u16, S)> = Vec::new();
        others.for_each(|seen| note_least(&mut least, seen));
        loop {
            let before = needed;
            self.entries
                .range(from..looked)
                .for_each(|entry| note_least(&mut least, dependencies(&entry.stamp)));
            looked = from;
            for (group, upto) in &least {
                if self.may_hide_some(DependencyVector { group: *group, upto: *upto }) {
                    let unseen = |place: &usize| dependencies(&self.entries[*place].stamp).group != *group;
                    needed = (self.above(*upto).min(needed)..needed).find(unseen).unwrap_or(needed);
                }
            }
            // Where types meet, an effect may bring forth what a retained one put out of sight without observing it.
            if (from, before) == (needed, needed) || !self.mixes_types {
                return needed;
            }
            from = needed.min(from);
        }
    }

    fn out_of_order_dependencies(&self) -> impl Iterator<Item = DependencyVector<S>> {
        let sights = self.dependencies.into_iter();
        sights.flat_map(|dependencies| self.out_of_order.iter().map(move |entry| dependencies(&entry.stamp)))
    }

    /// Finds anew whether effects say different types.
    pub(super) fn find_kinds(&mut self) {
        if !self.mixes_types {
            return;
        }
        let mut kinds = self.all().filter_map(|entry| entry.kind);
        let first = kinds.next();
        let mixes_types = kinds.any(|kind| Some(kind) != first);
        (self.kind, self.mixes_types) = (first, mixes_types);
    }
}

/// True if some of those that observed so much did not observe an effect.
fn is_unseen_by_some<S: Stamp>(
    seen: &[(u16, S)],
    dependencies: DependencyVectorOf<S>,
    entry: &Entry<S>,
) -> bool {
    let group = dependencies(&entry.stamp).group;
    seen.iter().any(|(by, upto)| !DependencyVector { group: *by, upto: *upto }.shows(group, &entry.stamp))
}

/// Of each group the least that an effect observed of the others.
fn note_least<S: Stamp>(least: &mut Vec<(u16, S)>, seen: DependencyVector<S>) {
    match least.iter_mut().find(|(group, _)| *group == seen.group) {
        Some((_, upto)) => *upto = seen.upto.observed_by_both(*upto),
        None => least.push((seen.group, seen.upto)),
    }
}
