//! Sets of ancestors, walked from below.

use super::{Dag, Node};
use crate::StateId;
use std::collections::{BTreeSet, BinaryHeap};

impl Dag {
    /// The states that one of `of` sees and none of `but`, the most recent first.
    pub fn beyond(&self, of: &[Node], but: &[Node]) -> Vec<Node> {
        // A site that reconnects names all the states that it has.
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
