//! Begin and end constraints (TARDiS 5.1, table 1): which states a transaction may read from, and below which it may
//! commit. `All` is intersection, `Either` union.

use crate::StateId;
use crate::dag::{Dag, Node};

/// Which states a transaction may read from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Begin {
    /// Any.
    Any,
    /// Those that descend from what the session last committed and last read (Corrections 56).
    #[default]
    Ancestor,
    /// The one that the session last committed.
    Parent,
    /// This one.
    State(StateId),
    /// Those with fewer than so many children: the branching stays below.
    Branching(usize),
    /// States that satisfy all of these.
    All(Vec<Begin>),
    /// States that satisfy one of these.
    Either(Vec<Begin>),
}

/// Where a session stands, as far as states that are still here say it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionPosition {
    /// The state it last committed, or the one that took its identity.
    pub committed: Option<Node>,
    /// The state it last committed, if it is still here itself.
    pub parent: Option<Node>,
    /// The state it last read, or the one that took its identity.
    pub read: Option<Node>,
}

impl SessionPosition {
    /// True when the state descends from all of it.
    fn is_above(&self, dag: &Dag, node: Node) -> bool {
        [self.committed, self.read].into_iter().flatten().all(|from| dag.sees(from, node))
    }
}

impl Begin {
    /// True when the session may read from this state.
    pub(crate) fn admits(&self, dag: &Dag, session: &SessionPosition, node: Node) -> bool {
        match self {
            Begin::Any => true,
            Begin::Ancestor => session.is_above(dag, node),
            Begin::Parent => session.parent == Some(node),
            Begin::State(id) => dag.id(node) == *id,
            Begin::Branching(limit) => dag.children(node).len() < *limit,
            Begin::All(all) => all.iter().all(|begin| begin.admits(dag, session, node)),
            Begin::Either(some) => some.iter().any(|begin| begin.admits(dag, session, node)),
        }
    }

    /// A common ancestor of all admitted states, if the constraint names one.
    pub(crate) fn origin(&self, session: &SessionPosition) -> Option<Node> {
        match self {
            Begin::Ancestor => session.read.or(session.committed),
            Begin::Parent => session.parent,
            Begin::All(all) => all.iter().find_map(|begin| begin.origin(session)),
            _ => None,
        }
    }

    /// True when it may ask for the very state that the session last committed.
    pub(crate) fn wants_parent(&self) -> bool {
        match self {
            Begin::Parent => true,
            Begin::All(constraints) | Begin::Either(constraints) => {
                constraints.iter().any(Begin::wants_parent)
            }
            _ => false,
        }
    }
}

/// Below which states a transaction may commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum End {
    /// Any.
    Any,
    /// Nothing that the transaction read has been written since.
    #[default]
    Serializability,
    /// Nothing that it wrote has been written since.
    SnapshotIsolation,
    /// Committed states: all are.
    ReadCommitted,
    /// Those without children.
    NoBranching,
    /// Those with fewer than so many children.
    Branching(usize),
    /// Those that descend from what the session last committed and last read, by now: of two of its transactions that are
    /// open at a time the second does not take it back to another branch.
    Ancestor,
    /// The one that the session last committed.
    Parent,
    /// This one.
    State(StateId),
    /// States that satisfy all of these.
    All(Vec<End>),
    /// States that satisfy one of these.
    Either(Vec<End>),
}

/// What a transaction finds at a state: whether what it read and wrote is as it was at its read state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intact {
    pub reads: bool,
    pub writes: bool,
}

impl Intact {
    pub const ALL: Intact = Intact { reads: true, writes: true };

    pub fn and(self, other: Intact) -> Intact {
        Intact { reads: self.reads && other.reads, writes: self.writes && other.writes }
    }
}

impl End {
    /// True when a transaction of this session may commit below the state.
    pub(crate) fn admits(&self, dag: &Dag, session: &SessionPosition, node: Node, intact: Intact) -> bool {
        match self {
            End::Any | End::ReadCommitted => true,
            End::Serializability => intact.reads,
            End::SnapshotIsolation => intact.writes,
            End::NoBranching => dag.children(node).is_empty(),
            End::Branching(limit) => dag.children(node).len() < *limit,
            End::Ancestor => session.is_above(dag, node),
            End::Parent => session.parent == Some(node),
            End::State(id) => dag.id(node) == *id,
            End::All(all) => all.iter().all(|end| end.admits(dag, session, node, intact)),
            End::Either(some) => some.iter().any(|end| end.admits(dag, session, node, intact)),
        }
    }

    /// True when a state may be admitted where no more than this is intact. What is not intact at a state is not
    /// intact below it.
    pub(crate) fn may_admit(&self, intact: Intact) -> bool {
        match self {
            End::Serializability => intact.reads,
            End::SnapshotIsolation => intact.writes,
            End::All(all) => all.iter().all(|end| end.may_admit(intact)),
            End::Either(some) => some.iter().any(|end| end.may_admit(intact)),
            _ => true,
        }
    }
}
