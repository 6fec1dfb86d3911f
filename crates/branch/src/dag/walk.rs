//! Sets of ancestors, walked from below.

use super::{Dag, Node};
use crate::StateId;
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeSet, BinaryHeap};

/// Which of some heads see a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeenBy(SmallVec<[u64; 2]>);

impl SeenBy {
    fn none(heads: usize) -> Self {
        SeenBy(smallvec![0; heads.div_ceil(64)])
    }

    /// One of so many heads.
    pub fn only(head: usize, heads: usize) -> Self {
        let mut seen = SeenBy::none(heads);
        seen.add(head);
        seen
    }

    /// Some of so many heads.
    #[cfg(test)]
    pub fn these(some: &[usize], heads: usize) -> Self {
        let mut seen = SeenBy::none(heads);
        some.iter().for_each(|head| seen.add(*head));
        seen
    }

    fn add(&mut self, head: usize) {
        self.0[head / 64] |= 1 << (head % 64);
    }

    fn and(&mut self, other: &SeenBy) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// True if this head does.
    pub fn has(&self, head: usize) -> bool {
        self.0[head / 64] >> (head % 64) & 1 == 1
    }

    /// The first head that does.
    pub fn first(&self) -> usize {
        let word = self.0.iter().position(|word| *word != 0).unwrap_or_default();
        word * 64 + self.0[word].trailing_zeros() as usize
    }

    /// All that do, in their order.
    pub fn heads(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let rest = |bits: u64| (bits != 0).then_some(bits);
            let rests = std::iter::successors(rest(*bits), move |bits| rest(bits & (bits - 1)));
            rests.map(move |bits| word * 64 + bits.trailing_zeros() as usize)
        })
    }

    /// How many do.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if a head does that is not among the others.
    pub fn exceeds(&self, other: &SeenBy) -> bool {
        self.0.iter().zip(&other.0).any(|(mine, theirs)| mine & !theirs != 0)
    }
}

/// What some heads see apart and what they see together.
#[derive(Debug)]
pub(crate) struct Spread {
    /// The states that some heads see and others do not, the most recent first.
    pub apart: Vec<(Node, SeenBy)>,
    /// The greatest that all see, the most recent first.
    pub together: Vec<Node>,
}

impl Dag {
    /// What these heads see, down to what all of them see. Every state is looked at once, whatever the number of heads:
    /// who sees a state sees its parents.
    pub(crate) fn spread(&self, heads: &[Node]) -> Spread {
        let mut spread = Spread { apart: Vec::new(), together: Vec::new() };
        let all = heads.len();
        let mut seen: Vec<Option<SeenBy>> = vec![None; self.states.len()];
        let is_open = |seen: &[Option<SeenBy>], node: Node| {
            seen[node.0 as usize].as_ref().is_some_and(|by| by.count() < all)
        };
        let mut waiting: BinaryHeap<(StateId, Node)> = BinaryHeap::new();
        for (place, head) in heads.iter().enumerate() {
            let known = seen[head.0 as usize].get_or_insert_with(|| {
                waiting.push((self.id(*head), *head));
                SeenBy::none(all)
            });
            known.add(place);
        }
        // How many of those that wait are not seen by all.
        let mut open = waiting.iter().filter(|(_, head)| is_open(&seen, *head)).count();
        // What all see that has a child which all see: no greatest one.
        let mut above = vec![false; self.states.len()];
        let mut next = waiting.pop();
        while open > 0
            && let Some((_, node)) = next
        {
            let by = seen[node.0 as usize].clone().unwrap_or_else(|| SeenBy::none(all));
            let is_apart = by.count() < all;
            let parents = self.parents(node);
            if !is_apart {
                parents.iter().for_each(|parent| above[parent.0 as usize] = true);
            }
            self.meter().states(1);
            next = match parents {
                // All that see it see it from here: it comes next.
                [parent] if is_apart && self.children(*parent).len() == 1 => {
                    open += 1;
                    seen[parent.0 as usize] = Some(by.clone());
                    Some((self.id(*parent), *parent))
                }
                _ => {
                    self.meter().states(parents.len());
                    for parent in parents {
                        let before = is_open(&seen, *parent);
                        let known = seen[parent.0 as usize].get_or_insert_with(|| {
                            waiting.push((self.id(*parent), *parent));
                            SeenBy::none(all)
                        });
                        known.and(&by);
                        open = open + usize::from(is_open(&seen, *parent)) - usize::from(before);
                    }
                    waiting.pop()
                }
            };
            match is_apart {
                true => {
                    open -= 1;
                    spread.apart.push((node, by));
                }
                false => spread.together.push(node),
            }
        }
        // It was in order along each line.
        spread.apart.sort_by_key(|(node, _)| self.recency(*node));
        spread.together.extend(next.map(|(_, node)| node));
        spread.together.extend(waiting.into_sorted_vec().into_iter().rev().map(|(_, node)| node));
        spread.together.retain(|node| !above[node.0 as usize]);
        spread.together = self.greatest(&spread.together).to_vec();
        spread
    }

    /// The states that one of `of` sees and none of `but`, the most recent first.
    pub fn beyond(&self, of: &[Node], but: &[Node]) -> Vec<Node> {
        // A site that comes back names all the states that it has.
        let (seen, mut found) = (self.seen_together(but), Vec::new());
        self.ascend(of, |node| {
            let beyond = !self.is_among(node, &seen);
            if beyond {
                found.push(node);
            }
            beyond
        });
        found
    }

    /// The greatest of the states that one of `a` sees and one of `b` sees, the most recent first: more than one where
    /// merges cross (Corrections 53).
    pub fn common(&self, a: &[Node], b: &[Node]) -> Vec<Node> {
        let mut found: Vec<Node> = Vec::new();
        self.ascend(a, |node| {
            if !self.seen_by_any(node, b) {
                return true;
            }
            // A descendant of it has a greater id, so it was met before.
            if !self.seen_by_any(node, &found) {
                found.push(node);
            }
            false
        });
        found
    }

    /// The fork points of these states: the greatest that all of them see, the most recent first (TARDiS 5.1,
    /// `findForkPoints`).
    pub fn fork_points(&self, of: &[Node]) -> Vec<Node> {
        let Some((first, others)) = of.split_first() else { return Vec::new() };
        others.iter().fold(vec![*first], |common, next| {
            let all: Vec<Node> = common.iter().flat_map(|state| self.common(&[*state], &[*next])).collect();
            let mut greatest = self.greatest(&all).to_vec();
            greatest.sort_by_key(|node| std::cmp::Reverse(self.id(*node)));
            greatest
        })
    }

    /// Visits states from below, the most recent first, each once; goes on to the parents of those for which `visit`
    /// says so.
    pub fn ascend(&self, from: &[Node], mut visit: impl FnMut(Node) -> bool) {
        let mut waiting: BinaryHeap<(StateId, Node)> = BinaryHeap::new();
        let mut met: BTreeSet<Node> = BTreeSet::new();
        let meet = |node: Node, waiting: &mut BinaryHeap<(StateId, Node)>, met: &mut BTreeSet<Node>| {
            if met.insert(node) {
                waiting.push((self.id(node), node));
            }
        };
        from.iter().for_each(|node| meet(*node, &mut waiting, &mut met));
        while let Some((_, node)) = waiting.pop() {
            self.meter().states(1);
            if visit(node) {
                self.parents(node).iter().for_each(|parent| meet(*parent, &mut waiting, &mut met));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test panics")]
mod tests {
    use super::*;
    use crate::{Mutants, WriteSet};
    use types::{Incarnation, ProcessId};

    #[test]
    fn a_spread_says_of_every_state_which_heads_see_it() {
        for seed in 0..200 {
            let (mut dag, mut random) = (Dag::new(Mutants::default()), fastrand::Rng::with_seed(seed));
            for number in 1..40 {
                let all: Vec<Node> = dag.states().collect();
                let parents: Vec<Node> =
                    (0..=random.usize(..3) / 2).map(|_| all[random.usize(..all.len())]).collect();
                let ids: Vec<StateId> = dag.greatest(&parents).iter().map(|node| dag.id(*node)).collect();
                let id = StateId::made_by(number, ProcessId(1), Incarnation(1));
                dag.insert(id, &ids, WriteSet::default()).unwrap();
            }
            let heads: Vec<Node> = dag.heads().collect();
            let spread = dag.spread(&heads);
            let mut apart = spread.apart.iter();
            for state in dag.states().rev() {
                let by: Vec<bool> = heads.iter().map(|head| dag.sees(state, *head)).collect();
                if by.contains(&true) && by.contains(&false) {
                    let (node, seen) = apart.next().unwrap();
                    assert_eq!(*node, state, "the most recent first, each once");
                    assert_eq!(by, (0..heads.len()).map(|head| seen.has(head)).collect::<Vec<_>>());
                    assert_eq!(Some(seen.first()), by.iter().position(|sees| *sees));
                    assert_eq!(seen.count(), by.iter().filter(|sees| **sees).count());
                }
            }
            assert!(apart.next().is_none());
            let some: Vec<Node> = dag.states().filter(|_| random.bool()).collect();
            let sees_none =
                |node: &&Node| !some.iter().any(|other| other != *node && dag.sees(*other, **node));
            assert_eq!(dag.least(&some), some.iter().filter(sees_none).copied().collect::<Vec<_>>());
            let all_see = dag.states().filter(|state| heads.iter().all(|head| dag.sees(*state, *head)));
            let mut together = dag.greatest(&all_see.collect::<Vec<_>>()).to_vec();
            together.sort_by_key(|node| std::cmp::Reverse(dag.id(*node)));
            assert_eq!(spread.together, together, "seed {seed}");
        }
    }
}
