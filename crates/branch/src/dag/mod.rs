//! The State DAG of a keyspace at one site (TARDiS 4 and 6.1): states, their edges, labels, write sets and heads.
//!
//! Fed by `insert` (a state with its parents, made here or elsewhere) and drained by collection (`only_child`,
//! `remove`). It knows nothing of values.

mod collapse;
mod draw;
mod image;
mod labels;
mod recall;
mod visibility_split;
mod walk;

pub(crate) use labels::{Bounds, Branches, STEPS};
pub use labels::{Label, PortableView, View};
pub(crate) use visibility_split::{SeenBy, VisibilitySplit, VisibilitySplitter};

use crate::effort::Meter;
use crate::{Mutants, StateId, WriteSet};
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Where a state is in the DAG: good until the state is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u32);

impl Node {
    /// Its place among those of all states, as a number.
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}

/// A parent that is not here: not yet, or not any more. Whoever gets it waits for the state or fetches it; nothing is
/// appended to another state instead (Corrections 54).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parent state {0} is not here: it has not come yet, or it was collected; fetch it from a peer")]
pub struct MissingParent(pub StateId);

#[derive(Debug)]
struct State {
    id: StateId,
    label: Label,
    /// What the versions of its class are labelled with; seen exactly where the state is.
    versions: Label,
    parents: SmallVec<[Node; 1]>,
    children: SmallVec<[Node; 2]>,
    writes: WriteSet,
    /// How many transactions read it and how many sessions want to find it: it stays meanwhile.
    holds: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Dag {
    states: Vec<Option<Box<State>>>,
    /// The empty slots, the first ones first; others among them are taken again, or are not there any more.
    free: BinaryHeap<Reverse<u32>>,
    by_id: BTreeMap<StateId, Node>,
    heads: BTreeSet<(StateId, Node)>,
    branches: Branches,
    root: Node,
    /// A state that is on its way out, and its only child: it stays for those who go through it, and nothing begins at it.
    closing: Option<(Node, Node)>,
    mutants: Mutants,
}

impl Dag {
    /// Only the root.
    pub fn new(mutants: Mutants) -> Self {
        let mut dag = Dag {
            states: Vec::new(),
            free: BinaryHeap::new(),
            by_id: BTreeMap::new(),
            heads: BTreeSet::new(),
            branches: Branches::new(),
            root: Node(0),
            closing: None,
            mutants,
        };
        dag.root = dag.add(StateId::ROOT, SmallVec::new(), WriteSet::default());
        dag
    }

    /// Appends a state below its parents, as one more child of each; returns where it is. A state that is here
    /// already stays as it is. A state without parents is below the root.
    pub fn insert(
        &mut self,
        id: StateId,
        parents: &[StateId],
        writes: WriteSet,
    ) -> Result<Node, MissingParent> {
        if let Some(node) = self.node(id) {
            return Ok(node);
        }
        let parents = self.parents_of(parents)?;
        Ok(self.add(id, parents, writes))
    }

    /// Where the greatest of these states are: the root, if there are none.
    fn parents_of(&self, parents: &[StateId]) -> Result<SmallVec<[Node; 1]>, MissingParent> {
        let mut nodes: SmallVec<[Node; 1]> = SmallVec::new();
        for parent in parents {
            nodes.push(self.open(*parent).ok_or(MissingParent(*parent))?);
        }
        if nodes.is_empty() {
            nodes.push(self.root);
        }
        Ok(self.greatest(&nodes))
    }

    fn add(&mut self, id: StateId, parents: SmallVec<[Node; 1]>, writes: WriteSet) -> Node {
        let labels = self.labels_of(&parents);
        let label = self.branches.label(&labels, self.mutants);
        self.place(id, label, parents, writes)
    }

    /// A label for a merge of these states, which nobody sees until the merge is inserted.
    pub(crate) fn reserve(&mut self, parents: &[Node]) -> Label {
        let label = self.branches.label_on_new_branch(&self.labels_of(parents), self.mutants);
        self.branches.retain(label);
        label
    }

    /// Appends a merge that a label was reserved for.
    pub(crate) fn insert_reserved(
        &mut self,
        (id, label): (StateId, Label),
        parents: SmallVec<[Node; 1]>,
        writes: WriteSet,
    ) -> Node {
        let node = self.place(id, label, parents, writes);
        self.branches.release(label);
        node
    }

    fn labels_of(&self, of: &[Node]) -> SmallVec<[Label; 2]> {
        of.iter().map(|node| self.state(*node).label).collect()
    }

    fn place(&mut self, id: StateId, label: Label, parents: SmallVec<[Node; 1]>, writes: WriteSet) -> Node {
        debug_assert!(parents.iter().all(|parent| self.id(*parent) < id), "ids rise along every path");
        self.branches.retain(label);
        self.branches.retain(label);
        let children = SmallVec::new();
        let state =
            State { id, label, versions: label, parents: parents.clone(), children, writes, holds: 0 };
        let is_empty = |place: &u32| matches!(self.states.get(*place as usize), Some(None));
        let free = std::iter::from_fn(|| self.free.pop()).map(|Reverse(place)| place).find(is_empty);
        let node = Node(free.unwrap_or(self.states.len() as u32));
        if free.is_none() {
            self.states.push(None);
        }
        self.states[node.0 as usize] = Some(Box::new(state));
        for parent in parents {
            let parent_id = self.id(parent);
            self.heads.remove(&(parent_id, parent));
            self.state_mut(parent).children.push(node);
        }
        self.by_id.insert(id, node);
        self.heads.insert((id, node));
        node
    }

    fn state(&self, node: Node) -> &State {
        let state = self.states.get(node.0 as usize).and_then(Option::as_deref);
        state.expect("a node is good until its state is collected")
    }

    fn state_mut(&mut self, node: Node) -> &mut State {
        let state = self.states.get_mut(node.0 as usize).and_then(Option::as_deref_mut);
        state.expect("a node is good until its state is collected")
    }

    /// Where a state is, if it is here.
    pub fn node(&self, id: StateId) -> Option<Node> {
        self.by_id.get(&id).copied()
    }

    /// True if the state is here, at this place.
    pub(crate) fn is_at(&self, id: StateId, node: Node) -> bool {
        self.states.get(node.0 as usize).and_then(Option::as_ref).is_some_and(|state| state.id == id)
    }

    /// Where a state is, if it is here to stay: something may be appended to it.
    pub fn open(&self, id: StateId) -> Option<Node> {
        self.node(id).filter(|node| self.is_open(*node))
    }

    /// True if some state is being collected.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// True unless the state is being collected.
    pub fn is_open(&self, node: Node) -> bool {
        self.closing.is_none_or(|(closing, _)| closing != node)
    }

    /// The name of a state.
    pub fn id(&self, node: Node) -> StateId {
        self.state(node).id
    }

    /// The state above all others.
    pub fn root(&self) -> Node {
        self.root
    }

    /// The only state there is takes this id: the root of a checkpoint, whose ancestors had joined its class.
    pub(crate) fn found(&mut self, id: StateId) {
        debug_assert!(self.by_id.len() == 1, "only the root may be renamed");
        let (root, before) = (self.root, self.id(self.root));
        self.by_id.remove(&before);
        self.heads.remove(&(before, root));
        self.state_mut(root).id = id;
        self.by_id.insert(id, root);
        self.heads.insert((id, root));
    }

    /// How many states there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Never: there is always a root.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All states in ascending order of ids: parents before children.
    pub fn states(&self) -> impl DoubleEndedIterator<Item = Node> {
        self.by_id.values().copied()
    }

    /// The states without children, the most recent first.
    pub fn heads(&self) -> impl Iterator<Item = Node> {
        self.heads.iter().rev().map(|(_, node)| *node)
    }

    /// The parents of a state; none of the root.
    pub fn parents(&self, node: Node) -> &[Node] {
        &self.state(node).parents
    }

    /// The children of a state, in the order in which they came.
    pub fn children(&self, node: Node) -> &[Node] {
        &self.state(node).children
    }

    /// What the state, with those that joined its class, wrote. Of the root, whose writes everybody sees, nothing.
    pub fn writes(&self, node: Node) -> &WriteSet {
        &self.state(node).writes
    }

    /// The label of a new version of this state.
    pub fn versions(&self, node: Node) -> Label {
        self.state(node).versions
    }

    /// True when x is y or an ancestor of y (TARDiS, figure 7, corrected).
    pub fn sees(&self, x: Node, y: Node) -> bool {
        self.branches.sees(self.state(x).label, self.state(y).label)
    }

    /// True when x is y or an ancestor of one of `of`.
    pub fn seen_by_any(&self, x: Node, of: &[Node]) -> bool {
        of.iter().any(|y| self.sees(x, *y))
    }

    /// The same view as one that these bounds were gathered by.
    pub(crate) fn view_within(&self, bounds: Bounds) -> View<'_> {
        View::within(&self.branches, bounds)
    }

    /// What these states see together.
    pub fn view(&self, of: &[Node]) -> View<'_> {
        View::new(&self.branches, of.iter().map(|node| self.state(*node).label).collect())
    }

    /// A reusable view of one of these states.
    pub(crate) fn seen_together(&self, of: &[Node]) -> Bounds {
        let labels: Vec<Label> = of.iter().map(|node| self.state(*node).label).collect();
        self.branches.together(&labels)
    }

    /// True if the state is among them.
    pub(crate) fn is_among(&self, node: Node, seen: &Bounds) -> bool {
        self.meter().lookups(1);
        seen.show(self.state(node).label)
    }

    /// Keeps a state from being collected, until as many [`Dag::release`].
    pub fn hold(&mut self, node: Node) {
        self.state_mut(node).holds += 1;
    }

    /// See [`Dag::hold`].
    pub fn release(&mut self, node: Node) {
        self.state_mut(node).holds -= 1;
    }

    /// The state that all others are ancestors of, if there is one.
    pub fn only_head(&self) -> Option<Node> {
        self.heads.first().filter(|_| self.heads.len() == 1).map(|(_, head)| *head)
    }

    /// True if somebody holds a state.
    pub fn is_held(&self, node: Node) -> bool {
        self.state(node).holds > 0
    }

    /// The states that transactions hold, in no order.
    pub fn held(&self) -> Vec<Node> {
        let states = self.states.iter().enumerate();
        let held = states.filter(|(_, state)| state.as_ref().is_some_and(|state| state.holds > 0));
        held.map(|(place, _)| Node(place as u32)).collect()
    }

    /// How many branches something is retained on.
    pub fn branches(&self) -> usize {
        self.branches.len()
    }

    /// Counts work that is done on states.
    pub(crate) fn meter(&self) -> &Meter {
        &self.branches.meter
    }

    /// The bytes that states, labels and write sets occupy, about.
    pub fn memory(&self) -> usize {
        let writes: usize = self.states.iter().flatten().map(|state| state.writes.memory()).sum();
        self.states.len() * size_of::<Option<Box<State>>>()
            + self.by_id.len() * (size_of::<State>() + 40)
            + self.heads.len() * 40
            + writes
            + self.branches.memory()
    }

    /// How many states lead from one to another on one branch, if they are on one.
    pub(crate) fn steps_between(&self, above: Node, below: Node) -> Option<u64> {
        let (above, below) = (self.state(above).label, self.state(below).label);
        (above.branch == below.branch).then(|| below.sequence.saturating_sub(above.sequence))
    }

    /// Of these states, those that have none of some others for an ancestor.
    pub(crate) fn that_see_none(&self, of: &[Node], others: &[Node]) -> Vec<Node> {
        let see_none = self.branches.see_none(&self.labels_of(of), &self.labels_of(others));
        of.iter().zip(see_none).filter(|(_, sees_none)| *sees_none).map(|(node, _)| *node).collect()
    }

    /// Of these states, those that are no ancestors of another.
    pub fn greatest(&self, of: &[Node]) -> SmallVec<[Node; 1]> {
        let mut greatest: SmallVec<[Node; 1]> = smallvec![];
        for x in of {
            let below = of.iter().any(|y| x != y && self.sees(*x, *y));
            if !below && !greatest.contains(x) {
                greatest.push(*x);
            }
        }
        greatest
    }
}
