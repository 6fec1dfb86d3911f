//! Which of a key's versions a view shows (TARDiS, figure 7).

use crate::StateId;
use crate::dag::{Label, STEPS, View};

/// A version, wherever its value is.
pub(super) trait Labelled {
    /// Who sees it.
    fn label(&self) -> Label;
    /// How new it is.
    fn id(&self) -> StateId;
}

/// Versions of a key in the order of labels.
pub(super) trait List {
    /// A version.
    type Item: Labelled;
    /// The one at this place.
    fn at(&self, place: usize) -> &Self::Item;
    /// How many come first of which something is true that is of no later one.
    fn partition_point(&self, is_before: impl Fn(&Self::Item) -> bool) -> usize;
    /// Those before a place, the last one first.
    fn before(&self, place: usize) -> impl Iterator<Item = &Self::Item>;
}

impl<V: Labelled> List for [V] {
    type Item = V;

    fn at(&self, place: usize) -> &V {
        &self[place]
    }

    fn partition_point(&self, is_before: impl Fn(&V) -> bool) -> usize {
        self.partition_point(is_before)
    }

    fn before(&self, place: usize) -> impl Iterator<Item = &V> {
        self[..place].iter().rev()
    }
}

/// The place of the newest version that a view shows, among those of a key in the order of labels, and how many
/// lookups that took. The lookup visits the bounds of the view or the branches of the key, whichever are fewer; where
/// both are many, it goes through both side by side. What began after all that the view shows costs nothing.
pub(super) fn find<L: List + ?Sized>(versions: &L, view: &View<'_>) -> (Option<usize>, usize) {
    match own(versions, view) {
        Some(own) => (Some(own), 1),
        None => find_elsewhere(versions, view),
    }
}

/// The same where the view's own branch has none.
pub(super) fn find_elsewhere<L: List + ?Sized>(versions: &L, view: &View<'_>) -> (Option<usize>, usize) {
    let mut newest: Option<usize> = None;
    let mut consider = |found: usize| newest = newer(versions, newest, found);
    let last = view.last_branch();
    let known = versions.partition_point(|version| version.label().branch <= last);
    let width = view.width();
    let mut lookups = 0;
    if let Some(bounds) = view.in_order().filter(|_| known.min(width) * STEPS > known.max(width)) {
        lookups = (known + width) / STEPS + 1;
        join(versions, known, bounds, consider);
    } else if known <= width {
        let mut end = known;
        while let Some(last) = end.checked_sub(1) {
            lookups += 1;
            let branch = versions.at(last).label().branch;
            let found = view.bound(branch).and_then(|bound| last_up_to(versions, branch, bound));
            found.into_iter().for_each(&mut consider);
            end = versions.partition_point(|version| version.label().branch < branch);
        }
    } else {
        for (branch, bound) in view.bounds() {
            lookups += 1;
            last_up_to(versions, branch, bound).into_iter().for_each(&mut consider);
        }
    }
    (newest, lookups)
}

/// The newest version on the branch that a view is from: what was written there is above all that it began below.
pub(super) fn own<L: List + ?Sized>(versions: &L, view: &View<'_>) -> Option<usize> {
    let at = view.only()?;
    last_up_to(versions, at.branch, at.sequence)
}

/// The newer one of two.
pub(super) fn newer<L: List + ?Sized>(versions: &L, best: Option<usize>, found: usize) -> Option<usize> {
    best.filter(|best| versions.at(*best).id() > versions.at(found).id()).or(Some(found))
}

/// The same as [`find`]; the lookups are counted as work.
pub(super) fn look<L: List + ?Sized>(versions: &L, view: &View<'_>) -> Option<usize> {
    let (found, lookups) = find(versions, view);
    view.meter().lookups(lookups);
    found
}

/// The last place on each of these branches up to its bound, of as many as are known.
fn join<L: List + ?Sized>(
    versions: &L,
    known: usize,
    bounds: &[(u64, u64)],
    mut consider: impl FnMut(usize),
) {
    let mut waiting = bounds.iter().rev().peekable();
    for (place, version) in (0..known).rev().zip(versions.before(known)) {
        let label = version.label();
        while waiting.next_if(|(branch, _)| *branch > label.branch).is_some() {}
        let Some((branch, bound)) = waiting.peek() else { return };
        if *branch == label.branch && label.sequence <= *bound {
            consider(place);
            waiting.next();
        }
    }
}

/// The last version of a branch up to a sequence number.
pub(super) fn last_up_to<L: List + ?Sized>(versions: &L, branch: u64, sequence: u64) -> Option<usize> {
    let bound = Label { branch, sequence };
    let last = versions.partition_point(|version| version.label() <= bound).checked_sub(1)?;
    (versions.at(last).label().branch == branch).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::{Branches, PortableView};
    use types::{Incarnation, ProcessId};

    impl Labelled for (Label, StateId) {
        fn label(&self) -> Label {
            self.0
        }

        fn id(&self) -> StateId {
            self.1
        }
    }

    #[test]
    fn the_newest_version_that_is_shown_is_found_however_many_there_are() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut versions: Vec<(Label, StateId)> = Vec::new();
            let all = [1, 3, 20, 200][random.usize(..4)];
            for number in 0..random.u64(1..=all) {
                let label = Label { branch: random.u64(..all), sequence: random.u64(..4) };
                if !versions.iter().any(|(known, _)| *known == label) {
                    // Ids rise along a branch.
                    let place = (label.sequence * 10 + random.u64(..10)) * 1000 + number;
                    let id = StateId::made_by(place, ProcessId(1), Incarnation(1));
                    versions.push((label, id));
                }
            }
            versions.sort_unstable();
            let some = random.f64();
            let mut seen = Vec::new();
            for branch in 0..all {
                if random.f64() < some {
                    seen.push((branch, random.u64(..4)));
                }
            }
            let portable = PortableView::of(seen);
            let branches = Branches::new();
            let view = portable.view(&branches);
            let shown = versions.iter().filter(|(label, _)| view.shows(*label));
            let found = find(&versions[..], &view).0.map(|place| versions[place].1);
            assert_eq!(found, shown.map(|(_, id)| *id).max(), "seed {seed}");
        }
    }
}
