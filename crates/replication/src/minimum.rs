//! Monotone minimum aggregation: what stabilization and oldest-snapshot tracking come to (Wren, section 4.4.2, BiST
//! and garbage collection).

use std::collections::BTreeMap;
use types::Timestamp;

/// Values of which any two have bounds: a lattice, such as times, or several of them side by side.
pub trait Lattice: Copy {
    /// The least that is below neither: of several times, the newer one of each.
    fn newest(self, other: Self) -> Self;

    /// The greatest that is above neither: of several times, the older one of each.
    fn oldest(self, other: Self) -> Self;
}

impl Lattice for Timestamp {
    fn newest(self, other: Self) -> Self {
        self.max(other)
    }

    fn oldest(self, other: Self) -> Self {
        self.min(other)
    }
}

impl<A: Lattice, B: Lattice> Lattice for (A, B) {
    fn newest(self, other: Self) -> Self {
        (self.0.newest(other.0), self.1.newest(other.1))
    }

    fn oldest(self, other: Self) -> Self {
        (self.0.oldest(other.0), self.1.oldest(other.1))
    }
}

/// The minimum over what every member last reported. What a member reported never goes back here, so the minimum only
/// rises; it exists once every member has reported. A tree of aggregators composes: the minimum of a subtree is
/// what its root reports upwards.
#[derive(Clone, Debug)]
pub struct MinimumOf<M, T> {
    members: BTreeMap<M, Option<T>>,
}

impl<M: Ord + Copy, T: Lattice> MinimumOf<M, T> {
    /// Over these members, none of which has reported.
    pub fn new(members: impl IntoIterator<Item = M>) -> Self {
        MinimumOf { members: members.into_iter().map(|member| (member, None)).collect() }
    }

    /// Takes a member's report. What is below an earlier one of the same member, and what a stranger says, changes
    /// nothing.
    pub fn report(&mut self, member: M, value: T) {
        if let Some(known) = self.members.get_mut(&member) {
            *known = Some(known.map_or(value, |known| known.newest(value)));
        }
    }

    /// The minimum; `None` while a member has not reported, and if there is none.
    pub fn minimum(&self) -> Option<T> {
        self.members.values().copied().reduce(|one, other| Some(one?.oldest(other?)))?
    }

    /// What a member has reported.
    pub fn reported(&self, member: M) -> Option<T> {
        self.members.get(&member).copied().flatten()
    }

    /// A member counts no more.
    pub fn forget(&mut self, member: M) {
        self.members.remove(&member);
    }

    /// Over whom.
    pub fn members(&self) -> impl Iterator<Item = M> {
        self.members.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_reported_before_every_member_has_reported() {
        let mut minimum = MinimumOf::new([0, 1]);
        let mut report = |member, at| {
            minimum.report(member, Timestamp(at));
            minimum.minimum().map(|at| at.0)
        };
        assert_eq!(report(0, 7), None);
        assert_eq!(report(9, 1), None, "a stranger does not count");
        assert_eq!(report(1, 5), Some(5));
        assert_eq!(report(1, 4), Some(5), "a member does not go back");
        assert_eq!(report(0, 9), Some(5));
        assert_eq!(report(1, 8), Some(8));
        assert_eq!(minimum.reported(0), Some(Timestamp(9)));
        minimum.forget(1);
        assert_eq!(minimum.minimum(), Some(Timestamp(9)));
        assert_eq!(MinimumOf::<u8, Timestamp>::new([]).minimum(), None);
    }

    proptest! {
        #[test]
        fn the_minimum_rises_and_a_tree_gives_what_one_aggregator_gives(
            reports in proptest::collection::vec((0usize..6, 0u64..100, 0u64..100), 0..80),
        ) {
            let mut flat = MinimumOf::new(0..6);
            let mut halves = [MinimumOf::new(0..3), MinimumOf::new(3..6)];
            let mut root = MinimumOf::new(0..2);
            let mut newest = [(None, None); 6];
            let mut last = None;
            for (member, one, other) in reports {
                let value = (Timestamp(one), Timestamp(other));
                let (ones, others) = newest[member];
                newest[member] = (ones.max(Some(value.0)), others.max(Some(value.1)));
                flat.report(member, value);
                prop_assert!(last.is_none_or(|last| flat.minimum() == flat.minimum().map(|now| now.newest(last))));
                last = flat.minimum();
                halves[member / 3].report(member, value);
                if let Some(value) = halves[member / 3].minimum() {
                    root.report(member / 3, value);
                }
                let ones = newest.iter().map(|(one, _)| *one).min().flatten();
                let others = newest.iter().map(|(_, other)| *other).min().flatten();
                prop_assert_eq!(flat.minimum(), ones.zip(others));
                prop_assert_eq!(root.minimum(), flat.minimum());
            }
        }
    }
}
