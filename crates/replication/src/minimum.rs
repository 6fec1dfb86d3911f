//! Monotone minimum aggregation: what stabilization and oldest-snapshot tracking come to (Wren, section 4.4.2, BiST
//! and garbage collection).

use std::collections::BTreeMap;

/// The minimum over what every member last reported. Members report values that only rise, so the minimum only
/// rises; it exists once every member has reported. A tree of aggregators composes: the minimum of a subtree is
/// what its root reports upwards.
#[derive(Clone, Debug)]
pub struct MinimumOf<M, T> {
    members: BTreeMap<M, Option<T>>,
    minimum: Option<T>,
}

impl<M: Ord, T: Ord + Copy> MinimumOf<M, T> {
    /// Over these members, none of which has reported.
    pub fn new(members: impl IntoIterator<Item = M>) -> Self {
        MinimumOf { members: members.into_iter().map(|member| (member, None)).collect(), minimum: None }
    }

    /// Takes a member's report and returns the minimum if it rose. A report below an earlier one of the same member
    /// and a report of a stranger change nothing.
    pub fn report(&mut self, member: M, value: T) -> Option<T> {
        let known = self.members.get_mut(&member)?;
        *known = Some(known.map_or(value, |old| old.max(value)));
        let minimum = self.members.values().copied().min().flatten();
        if minimum > self.minimum {
            self.minimum = minimum;
            return minimum;
        }
        None
    }

    /// The minimum; `None` while a member has not reported.
    pub fn minimum(&self) -> Option<T> {
        self.minimum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_told_before_every_member_has_reported() {
        let mut minimum = MinimumOf::new([0, 1]);
        assert_eq!(minimum.report(0, 7), None);
        assert_eq!(minimum.report(9, 1), None, "a stranger does not count");
        assert_eq!(minimum.report(1, 5), Some(5));
        assert_eq!(minimum.report(1, 4), None, "a member does not go back");
        assert_eq!(minimum.report(0, 9), None);
        assert_eq!(minimum.report(1, 8), Some(8));
    }

    proptest! {
        #[test]
        fn the_minimum_rises_and_a_tree_gives_what_one_aggregator_gives(
            reports in proptest::collection::vec((0usize..6, 0u64..100), 0..80),
        ) {
            let mut flat = MinimumOf::new(0..6);
            let mut halves = [MinimumOf::new(0..3), MinimumOf::new(3..6)];
            let mut root = MinimumOf::new(0..2);
            let mut newest = [None; 6];
            let mut last = None;
            for (member, value) in reports {
                newest[member] = newest[member].max(Some(value));
                let told = flat.report(member, value);
                prop_assert!(told.is_none() || told > last);
                last = told.or(last);
                if let Some(value) = halves[member / 3].report(member, value) {
                    root.report(member / 3, value);
                }
                prop_assert_eq!(flat.minimum(), newest.iter().copied().min().flatten());
                prop_assert_eq!(root.minimum(), flat.minimum());
            }
        }
    }
}
