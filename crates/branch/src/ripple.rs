//! The selection of read states (TARDiS 6.1.1) and commit states (6.1.2).

use crate::changes::Sketch;
use crate::constraint::{Begin, End, Intact, SessionPosition};
use crate::dag::{Dag, Node};
use crate::{Mutant, Mutants, WriteSet};
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The first state that the constraint admits and that is `allowed`, breadth first from the leaves, the most recent of
/// a level first.
pub(crate) fn read_state(
    dag: &Dag,
    begin: &Begin,
    session: &SessionPosition,
    allowed: impl Fn(Node) -> bool,
) -> Option<Node> {
    if let Begin::State(id) = begin {
        return dag.open(*id).filter(|node| allowed(*node));
    }
    let is_meant = |node: &Node| begin.admits(dag, session, *node) && allowed(*node);
    // Nothing descends from a head.
    let origin = begin.origin(session).filter(|origin| dag.children(*origin).is_empty());
    if let Some(head) = origin.filter(is_meant).or_else(|| dag.heads().find(is_meant)) {
        return Some(head);
    }
    let mut waiting: VecDeque<Node> = dag.heads().collect();
    let mut met: BTreeSet<Node> = waiting.iter().copied().collect();
    while let Some(node) = waiting.pop_front() {
        if is_meant(&node) {
            return Some(node);
        }
        waiting.extend(dag.parents(node).iter().filter(|parent| met.insert(**parent)));
    }
    None
}

/// A transaction that looks for the state below which it commits.
pub(crate) struct Ripple<'a> {
    pub dag: &'a Dag,
    pub end: &'a End,
    pub session: &'a SessionPosition,
    pub reads: &'a BTreeSet<CompactKey>,
    pub read_sketch: Sketch,
    /// It looked at the whole keyspace: any write changes that (Corrections 78).
    pub reads_all: bool,
    pub writes: &'a WriteSet,
    /// Whether a state below the read state sees the version of a key that the read state sees; `None` if this site
    /// cannot know.
    pub sees_same: Option<&'a SeesSame<'a>>,
    pub mutants: Mutants,
}

/// Of a key and a state.
pub(crate) type SeesSame<'a> = dyn Fn(&CompactKey, Node) -> bool + 'a;

/// As many states between read state and head are looked at sooner than the versions of one key.
const STATES_OF_A_KEY: u64 = 4;

impl Ripple<'_> {
    /// The last state that the constraint admits, depth first below the read state, the most recent child first.
    pub fn commit_state(&self, from: Node) -> Option<Node> {
        // All that follows leads to the only head, whatever was written on the way.
        let least = Intact { reads: self.reads.is_empty() && !self.reads_all, writes: false };
        if let Some(head) = self.dag.only_head()
            && self.end.may_admit(least)
            && self.end.admits(self.dag, self.session, head, least)
        {
            return Some(head);
        }
        if let Some((head, intact)) = self.only_head_by_keys(from)
            && self.end.may_admit(intact)
            && self.end.admits(self.dag, self.session, head, intact)
        {
            return Some(head);
        }
        let mut known = BTreeMap::from([(from, Intact::ALL)]);
        let mut met = BTreeSet::from([from]);
        let mut path = vec![(from, self.children(from))];
        while let Some((node, waiting)) = path.last_mut() {
            let node = *node;
            let Some(child) = waiting.pop() else {
                path.pop();
                let intact = known.get(&node).copied().unwrap_or(Intact::ALL);
                if self.end.admits(self.dag, self.session, node, intact) && self.dag.is_open(node) {
                    return Some(node);
                }
                continue;
            };
            if met.insert(child) && self.end.may_admit(self.intact(child, from, &mut known)) {
                path.push((child, self.children(child)));
            }
        }
        None
    }

    /// The only head and what is intact there, found by the transaction's keys: where that is far below the read state, every state
    /// between would be looked at otherwise.
    fn only_head_by_keys(&self, from: Node) -> Option<(Node, Intact)> {
        let (head, sees_same) = (self.dag.only_head()?, self.sees_same.filter(|_| !self.reads_all)?);
        let keys = (self.reads.len() + self.writes.len()) as u64;
        let is_near = |steps: u64| steps <= STATES_OF_A_KEY * keys;
        if self.mutants.has(Mutant::RippleOwnWrites)
            || self.dag.steps_between(from, head).is_some_and(is_near)
        {
            return None;
        }
        let reads = self.reads.iter().all(|key| sees_same(key, head));
        let is_enough = self.end.may_admit(Intact { reads, writes: false });
        let writes = !is_enough && self.writes.iter().all(|(key, _)| sees_same(key, head));
        let intact = Intact { reads, writes };
        debug_assert_eq!(
            self.end.may_admit(intact),
            self.dag.meter().uncounted(|| {
                let mut known = BTreeMap::from([(from, Intact::ALL)]);
                self.end.may_admit(self.intact(head, from, &mut known))
            }),
            "versions say what states do"
        );
        Some((head, intact))
    }

    /// The children in ascending order of ids.
    fn children(&self, node: Node) -> Vec<Node> {
        let mut children = self.dag.children(node).to_vec();
        children.sort_by_key(|child| self.dag.id(*child));
        children
    }

    /// What of the transaction everything between the read state and this state has left intact. Upwards through every
    /// parent: below a merge, the other side's writes count too (Corrections 52).
    fn intact(&self, node: Node, from: Node, known: &mut BTreeMap<Node, Intact>) -> Intact {
        let own_writes_only = self.mutants.has(Mutant::RippleOwnWrites);
        let matters = |parent: &Node| {
            !self.dag.sees(*parent, from) && (!own_writes_only || self.dag.sees(from, *parent))
        };
        let mut waiting = vec![(node, self.left_intact_by(node))];
        while let Some((next, own)) = waiting.last().copied() {
            let parents = self.dag.parents(next).iter().copied().filter(matters);
            let above = parents.clone().filter_map(|parent| known.get(&parent));
            let intact = above.fold(own, |intact, above| intact.and(*above));
            // What is not admitted anyway needs no other parent: a merge is below many.
            let unknown = parents.clone().find(|parent| !known.contains_key(parent));
            match unknown.filter(|_| self.end.may_admit(intact)) {
                Some(parent) => waiting.push((parent, self.left_intact_by(parent))),
                None => {
                    known.insert(next, intact);
                    waiting.pop();
                }
            }
        }
        known.get(&node).copied().unwrap_or(Intact::ALL)
    }

    fn left_intact_by(&self, node: Node) -> Intact {
        self.dag.meter().states(1);
        let written = self.dag.writes(node);
        let reads = match self.reads_all {
            true => written.is_empty(),
            false => !written.touches((self.reads.iter(), self.read_sketch)),
        };
        Intact { reads, writes: !written.meets(self.writes) }
    }
}
