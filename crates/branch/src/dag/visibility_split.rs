//! The states that only some of several heads see, and the states that all of them see.

use super::{Dag, Node};
use crate::StateId;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

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

/// The states that only some heads see, and the states that all of them see.
#[derive(Debug, Default)]
pub(crate) struct VisibilitySplit {
    /// The states that some heads see and others do not, the most recent first.
    pub divergent: Vec<(Node, SeenBy)>,
    /// The greatest that all see, the most recent first.
    pub common: Vec<Node>,
}

/// Finds a [`VisibilitySplit`], state by state. Nothing may be collected meanwhile, and nothing that was may come back; what is
/// committed meanwhile no head sees.
#[derive(Debug)]
pub(crate) struct VisibilitySplitter {
    heads: usize,
    /// By place of a state: who sees it.
    seen: Vec<Option<SeenBy>>,
    /// By place of a state: all heads see it and a child of it, so it is no greatest one.
    above: Vec<bool>,
    waiting: BinaryHeap<(StateId, Node)>,
    /// How many of those that wait, and of `next`, are not seen by all.
    open: usize,
    next: Option<(StateId, Node)>,
    /// The most recent first; they are met in order along each line only.
    divergent: BTreeMap<Reverse<(StateId, bool)>, (Node, SeenBy)>,
    common: Vec<Node>,
}

impl VisibilitySplitter {
    /// Of these heads.
    pub fn new(dag: &Dag, heads: &[Node]) -> Self {
        let all = heads.len();
        let mut seen: Vec<Option<SeenBy>> = vec![None; dag.states.len()];
        let mut waiting = BinaryHeap::new();
        for (place, head) in heads.iter().enumerate() {
            let known = seen[head.place()].get_or_insert_with(|| {
                waiting.push((dag.id(*head), *head));
                SeenBy::none(all)
            });
            known.add(place);
        }
        let mut spreading = VisibilitySplitter {
            heads: all,
            seen,
            above: vec![false; dag.states.len()],
            waiting,
            open: 0,
            next: None,
            divergent: BTreeMap::new(),
            common: Vec::new(),
        };
        spreading.open = heads.iter().filter(|head| spreading.is_open(**head)).count();
        spreading.next = spreading.waiting.pop();
        spreading
    }

    fn is_open(&self, node: Node) -> bool {
        self.seen[node.place()].as_ref().is_some_and(|by| by.count() < self.heads)
    }

    /// Looks at the next state; false if there is none. Every state is looked at once, whatever the number of heads: who sees a
    /// state sees its parents.
    pub fn step(&mut self, dag: &Dag) -> bool {
        let Some((_, node)) = self.next.filter(|_| self.open > 0) else { return false };
        let by = self.seen[node.place()].clone().unwrap_or_else(|| SeenBy::none(self.heads));
        let is_divergent = by.count() < self.heads;
        let parents = dag.parents(node);
        if !is_divergent {
            parents.iter().for_each(|parent| self.above[parent.place()] = true);
        }
        dag.meter().states(1);
        self.next = match parents {
            // Every head that sees it sees it from here on: it comes next.
            [parent] if is_divergent && dag.children(*parent).len() == 1 => {
                self.open += 1;
                self.seen[parent.place()] = Some(by.clone());
                Some((dag.id(*parent), *parent))
            }
            _ => {
                dag.meter().states(parents.len());
                parents.iter().for_each(|parent| self.meet(dag, *parent, &by));
                self.waiting.pop()
            }
        };
        match is_divergent {
            true => {
                self.open -= 1;
                self.divergent.insert(dag.recency(node), (node, by));
            }
            false => self.common.push(node),
        }
        true
    }

    fn meet(&mut self, dag: &Dag, node: Node, by: &SeenBy) {
        let before = self.is_open(node);
        let known = self.seen[node.place()].get_or_insert_with(|| {
            self.waiting.push((dag.id(node), node));
            SeenBy::none(self.heads)
        });
        known.and(by);
        self.open = self.open + usize::from(self.is_open(node)) - usize::from(before);
    }

    /// What was found.
    pub fn finish(mut self, dag: &Dag) -> VisibilitySplit {
        self.common.extend(self.next.map(|(_, node)| node));
        self.common.extend(self.waiting.into_sorted_vec().into_iter().rev().map(|(_, node)| node));
        self.common.retain(|node| !self.above[node.place()]);
        VisibilitySplit {
            divergent: self.divergent.into_values().collect(),
            common: dag.greatest(&self.common).to_vec(),
        }
    }
}

impl Dag {
    /// What these heads see, down to what all of them see.
    pub(crate) fn visibility_split(&self, heads: &[Node]) -> VisibilitySplit {
        let mut spreading = VisibilitySplitter::new(self, heads);
        while spreading.step(self) {}
        spreading.finish(self)
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
            let visibility_split = dag.visibility_split(&heads);
            let mut divergent = visibility_split.divergent.iter();
            for state in dag.states().rev() {
                let by: Vec<bool> = heads.iter().map(|head| dag.sees(state, *head)).collect();
                if by.contains(&true) && by.contains(&false) {
                    let (node, seen) = divergent.next().unwrap();
                    assert_eq!(*node, state, "the most recent first, each once");
                    assert_eq!(by, (0..heads.len()).map(|head| seen.has(head)).collect::<Vec<_>>());
                    assert_eq!(Some(seen.first()), by.iter().position(|sees| *sees));
                    assert_eq!(seen.count(), by.iter().filter(|sees| **sees).count());
                }
            }
            assert!(divergent.next().is_none());
            let [some, others] =
                [(); 2].map(|()| dag.states().filter(|_| random.bool()).collect::<Vec<Node>>());
            let sees_none =
                |node: &&Node| !others.iter().any(|other| other != *node && dag.sees(*other, **node));
            let expected: Vec<Node> = some.iter().filter(sees_none).copied().collect();
            assert_eq!(dag.that_see_none(&some, &others), expected, "seed {seed}");
            let all_see = dag.states().filter(|state| heads.iter().all(|head| dag.sees(*state, *head)));
            let mut common = dag.greatest(&all_see.collect::<Vec<_>>()).to_vec();
            common.sort_by_key(|node| std::cmp::Reverse(dag.id(*node)));
            assert_eq!(visibility_split.common, common, "seed {seed}");
        }
    }
}
