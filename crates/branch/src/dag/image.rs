//! The State DAG as it is, labels included, for the log of a site whose versions lie elsewhere and go by these labels.

use super::{Branches, Dag, Label, Node, State};
use crate::{Mutants, StateId, WriteSet};
use std::collections::{BTreeMap, BTreeSet};
use types::{Incarnation, Malformed, Reader, Wire, put_varint};

impl Dag {
    /// A life of the site begins: see `Branches::begin_life`.
    pub(crate) fn begin_life(&mut self, incarnation: Incarnation) {
        self.branches.begin_life(incarnation);
    }

    /// The number of the next branch, and the labels that versions have.
    pub(crate) fn labels(&self) -> (u64, Vec<Label>) {
        (self.branches.next(), self.by_id.values().map(|node| self.state(*node).versions).collect())
    }

    /// Appends the binary form. What is held, and a state on its way out, are a life's own.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.branches.encode(out);
        put_varint(out, self.by_id.len() as u64);
        for node in self.by_id.values() {
            let state = self.state(*node);
            let ids = |nodes: &[Node]| nodes.iter().map(|node| self.id(*node)).collect::<Vec<StateId>>();
            state.id.encode(out);
            state.label.encode(out);
            state.versions.encode(out);
            ids(&state.parents).encode(out);
            ids(&state.children).encode(out);
            state.writes.encode(out);
        }
    }

    /// Reads the binary form.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn read(input: &mut Reader<'_>, mutants: Mutants) -> Result<Dag, Malformed> {
        let mut dag = Dag { branches: Branches::decode(input)?, ..Dag::new(mutants) };
        (dag.states, dag.by_id, dag.heads) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let mut edges: Vec<(Vec<StateId>, Vec<StateId>)> = Vec::new();
        for place in 0..input.count()? {
            let (id, label, versions) =
                (StateId::decode(input)?, Label::decode(input)?, Label::decode(input)?);
            edges.push((Vec::decode(input)?, Vec::decode(input)?));
            let writes = WriteSet::decode(input)?;
            dag.branches.retain(label);
            dag.branches.retain(versions);
            let (parents, children) = Default::default();
            let state = State { id, label, versions, parents, children, writes, holds: 0 };
            dag.states.push(Some(Box::new(state)));
            dag.by_id.insert(id, Node(place as u32));
        }
        dag.join(&edges)?;
        Ok(dag)
    }

    /// Gives every state its parents and children, in the order of places.
    fn join(&mut self, edges: &[(Vec<StateId>, Vec<StateId>)]) -> Result<(), Malformed> {
        let known = |id: &StateId| self.by_id.get(id).copied().ok_or(Malformed("edge of a state"));
        let mut found = Vec::new();
        for (parents, children) in edges {
            let parents = parents.iter().map(known).collect::<Result<Vec<Node>, _>>()?;
            found.push((parents, children.iter().map(known).collect::<Result<Vec<Node>, _>>()?));
        }
        let mut root = None;
        for ((place, state), (parents, children)) in self.states.iter_mut().enumerate().zip(found) {
            let (node, Some(state)) = (Node(place as u32), state) else { continue };
            if parents.is_empty() {
                root = Some(node);
            }
            if children.is_empty() {
                self.heads.insert((state.id, node));
            }
            (state.parents, state.children) = (parents.into(), children.into());
        }
        self.root = root.ok_or(Malformed("root of a State DAG"))?;
        Ok(())
    }
}
