//! Sessions: where a client stands, so that it never goes back (Corrections 56), and the promotion table by which it
//! stands where states were that have gone (TARDiS 6.3).

use crate::constraint::SessionPosition;
use crate::dag::{Dag, Node};
use crate::{Mutant, Mutants, StateId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use types::SessionId;

/// A state, and where it was seen last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StatePosition {
    id: StateId,
    at: Node,
}

#[derive(Debug, Default)]
struct Session {
    committed: Option<StatePosition>,
    /// False when `committed` is a state that took the identity of the one it was.
    is_exact: bool,
    read: Option<StatePosition>,
    /// The state it last committed, held because it begins at that very state.
    parent: Option<Node>,
    wants_parent: bool,
}

/// The sessions of a keyspace at a site.
#[derive(Debug)]
pub(crate) struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    /// Which state took the identity of a state that has gone. For look-up only (Corrections 54).
    promoted: BTreeMap<StateId, StateId>,
    /// The promotions that the sweep in progress removes when it is over, and those that came since it began.
    old: VecDeque<StateId>,
    new: VecDeque<StateId>,
    /// Where the sweep over the sessions goes on.
    swept: Option<SessionId>,
    /// No session stands at a state with a lesser id, the root excepted: where it goes, nobody has to be moved. What came since the
    /// sweep in progress began, and what it saw, says which that is when it is over.
    least: StateId,
    least_swept: StateId,
    mutants: Mutants,
}

impl Sessions {
    pub fn new(mutants: Mutants) -> Self {
        Sessions {
            sessions: BTreeMap::new(),
            promoted: BTreeMap::new(),
            old: VecDeque::new(),
            new: VecDeque::new(),
            swept: None,
            least: StateId::MAX,
            least_swept: StateId::MAX,
            mutants,
        }
    }

    /// Where a state is, or the one that took its identity.
    pub fn find(&self, dag: &Dag, id: StateId) -> Option<Node> {
        let mut id = id;
        loop {
            match (dag.node(id), self.promoted.get(&id)) {
                (Some(node), _) => return Some(node),
                (None, Some(next)) => id = *next,
                (None, None) => return None,
            }
        }
    }

    /// Where a session stands that stood there. What is not here and has no heir has joined the root.
    fn place_of(&self, dag: &Dag, stand: StatePosition) -> Node {
        match dag.is_at(stand.id, stand.at) {
            true => stand.at,
            false => self.find(dag, stand.id).unwrap_or(dag.root()),
        }
    }

    /// A session will stand there.
    fn stand(&mut self, dag: &Dag, at: Node) -> StatePosition {
        let id = dag.id(at);
        if at != dag.root() {
            (self.least, self.least_swept) = (self.least.min(id), self.least_swept.min(id));
        }
        StatePosition { id, at }
    }

    /// Where a session stands.
    pub fn position(&self, dag: &Dag, session: SessionId) -> SessionPosition {
        let Some(session) = self.sessions.get(&session) else { return SessionPosition::default() };
        let find = |stand: Option<StatePosition>| stand.map(|stand| self.place_of(dag, stand));
        let committed = find(session.committed);
        let is_there = |node: &Node| {
            session.is_exact
                && session.committed.is_some_and(|it| dag.is_at(it.id, *node))
                && dag.is_open(*node)
        };
        SessionPosition { committed, parent: committed.filter(is_there), read: find(session.read) }
    }

    /// The session begins at the state it last committed: from now on that state is held for it.
    pub fn want_parent(&mut self, dag: &mut Dag, session: SessionId) {
        let session = self.sessions.entry(session).or_default();
        session.wants_parent = true;
        if session.parent.is_none()
            && session.is_exact
            && let Some(node) = session.committed.and_then(|stand| dag.open(stand.id))
        {
            dag.hold(node);
            session.parent = Some(node);
        }
    }

    /// The session read from this state. A state that does not descend from what it committed is another branch, where
    /// it went on purpose: it comes back to its own. So it does from a state that it had gone past.
    pub fn has_read(&mut self, dag: &Dag, session: SessionId, node: Node) {
        let SessionPosition { committed, read, .. } = self.position(dag, session);
        let is_back = read.is_some_and(|read| dag.sees(node, read));
        let is_own = committed.is_none_or(|own| dag.sees(own, node));
        if is_own && !is_back && !self.mutants.has(Mutant::ForgetReads) {
            let stand = self.stand(dag, node);
            self.sessions.entry(session).or_default().read = Some(stand);
        }
    }

    /// The session committed this state.
    pub fn has_committed(&mut self, dag: &mut Dag, session: SessionId, node: Node) {
        let stand = self.stand(dag, node);
        let session = self.sessions.entry(session).or_default();
        (session.committed, session.read) = (Some(stand), Some(stand));
        session.is_exact = true;
        if session.wants_parent {
            dag.hold(node);
            if let Some(before) = session.parent.replace(node) {
                dag.release(before);
            }
        }
    }

    /// A session stands where another one does.
    pub fn stand_with(&mut self, session: SessionId, other: SessionId) {
        let Some(Session { committed, is_exact, read, .. }) = self.sessions.get(&other) else { return };
        let (committed, is_exact, read) = (*committed, *is_exact, *read);
        let stands = [committed, read].into_iter().flatten();
        self.least_swept = stands.map(|stand| stand.id).fold(self.least_swept, StateId::min);
        let session = self.sessions.entry(session).or_default();
        (session.committed, session.is_exact, session.read) = (committed, is_exact, read);
    }

    /// The session is over.
    pub fn close(&mut self, dag: &mut Dag, session: SessionId) {
        if let Some(held) = self.sessions.remove(&session).and_then(|session| session.parent) {
            dag.release(held);
        }
    }

    /// A state has gone and this one took its identity. Sessions that stand there are moved by later sweeps. Whoever stood at the
    /// root is found there.
    pub fn promote(&mut self, gone: StateId, heir: StateId, was_root: bool) {
        // The bug looks for heirs of what no session stands at.
        let may_be_followed = gone >= self.least && !was_root || self.mutants.has(Mutant::ForwardParents);
        if !self.sessions.is_empty() && may_be_followed {
            self.promoted.insert(gone, heir);
            self.new.push_back(gone);
        }
    }

    /// Moves up to `budget` sessions to where they stand now, and forgets promotions that no session needs any more;
    /// returns how much work that was.
    pub fn sweep(&mut self, dag: &Dag, budget: usize) -> usize {
        if self.promoted.is_empty() {
            return 0;
        }
        let mut work = 0;
        if self.swept.is_none() {
            while work < budget
                && let Some(gone) = self.old.pop_front()
            {
                self.promoted.remove(&gone);
                work += 1;
            }
            if work == budget {
                return work;
            }
            // Promotions that this sweep applies everywhere go when it is over.
            self.old = std::mem::take(&mut self.new);
            self.least_swept = StateId::MAX;
        }
        let from = self.swept.map_or(Bound::Unbounded, Bound::Excluded);
        let some: Vec<SessionId> =
            self.sessions.range((from, Bound::Unbounded)).take(budget - work).map(|(id, _)| *id).collect();
        for id in &some {
            let Some(Session { committed, read, parent, .. }) = self.sessions.get(id) else { continue };
            let moved = |stand: &Option<StatePosition>| {
                let at = self.place_of(dag, (*stand)?);
                Some(StatePosition { id: dag.id(at), at })
            };
            let (now_read, now_committed) = (moved(read), moved(committed));
            let is_held = parent.is_some();
            if let Some(session) = self.sessions.get_mut(id) {
                session.read = now_read;
                if !is_held {
                    session.is_exact &= session.committed.map(|it| it.id) == now_committed.map(|it| it.id);
                    session.committed = now_committed;
                }
                let stands = [session.committed, session.read].into_iter().flatten();
                let stands = stands.filter(|stand| stand.at != dag.root());
                self.least_swept = stands.map(|stand| stand.id).fold(self.least_swept, StateId::min);
            }
        }
        let is_over = some.len() < budget - work;
        self.swept = if is_over { None } else { some.last().copied() };
        if is_over {
            self.least = self.least_swept;
        }
        (work + some.len()).max(1)
    }

    /// How many promotions are remembered.
    pub fn promotions(&self) -> usize {
        self.promoted.len()
    }
}
