//! What transactions saw and did, for checkers.

use crate::keyspace::Keyspace;
use crate::{Commit, StateId};
use datatypes::{Cell, Effect, key};
use mvcc::CompactKey;
use protocol::{BranchClaim, Claim, CommitStamp, KeyEffect};
use types::{Incarnation, ProcessId, RegionId, RegionSet, SessionId, Timestamp, TransactionId};

/// The numbers of states' transactions begin here; those of transactions that made no state are below.
const STATES: u64 = 1 << 62;

/// See the module.
#[derive(Debug)]
pub(super) struct Claims {
    site: ProcessId,
    incarnation: Incarnation,
    are_wanted: bool,
    /// How many transactions made no state.
    stateless: u64,
    made: Vec<Claim>,
    /// Whose request is being served.
    pub asking: SessionId,
}

impl Claims {
    pub fn new(site: ProcessId, incarnation: Incarnation, are_wanted: bool) -> Self {
        Claims { site, incarnation, are_wanted, stateless: 0, made: Vec::new(), asking: SessionId(0) }
    }

    pub fn take(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.made)
    }

    /// The transaction that is served read these states and made this one, if any.
    pub fn ended(&mut self, read: &[StateId], commit: Option<&Commit>, keyspace: &mut Keyspace) {
        if self.are_wanted {
            let claim = self.claim(self.asking, read, commit, keyspace);
            self.made.push(claim);
        }
    }

    /// The site merged by itself.
    pub fn merged(&mut self, commit: &Commit, keyspace: &mut Keyspace) {
        if self.are_wanted {
            // A session of its own: it comes after nothing.
            let session = SessionId(u64::MAX - commit.id.transaction(STATES).number);
            let claim = self.claim(session, &commit.parents, Some(commit), keyspace);
            self.made.push(claim);
        }
    }

    fn claim(
        &mut self,
        session: SessionId,
        read: &[StateId],
        commit: Option<&Commit>,
        keyspace: &mut Keyspace,
    ) -> Claim {
        let names = |states: &[StateId]| states.iter().map(|state| name(*state)).collect();
        let transaction = match commit {
            Some(commit) => commit.id.transaction(STATES),
            None => {
                self.stateless += 1;
                TransactionId { process: self.site, incarnation: self.incarnation, number: self.stateless }
            }
        };
        let at = |commit: &Commit| CommitStamp {
            at: Timestamp(commit.id.number),
            depends_on: Timestamp::ZERO,
            region: RegionId(0),
            parts: RegionSet::default(),
        };
        Claim {
            session,
            transaction,
            commit: commit.map(at),
            snapshot: None,
            effects: commit.map(|commit| effects(commit, keyspace)).unwrap_or_default(),
            vector: None,
            thread: None,
            requests: Vec::new(),
            branch: Some(BranchClaim {
                read: names(read),
                state: commit.map(|commit| name(commit.id)),
                parents: commit.map(|commit| names(&commit.parents)).unwrap_or_default(),
            }),
        }
    }
}

/// What a state changed. A merge's effects stand on top of one of its branches, and there are none where that one had the
/// value already: of a merge it is said what every key that it wrote became.
fn effects(commit: &Commit, keyspace: &mut Keyspace) -> Vec<KeyEffect> {
    if commit.parents.len() < 2 {
        let performed = commit.writes.iter().flat_map(|(key, effects)| {
            effects.iter().map(move |effect| -> KeyEffect { (Box::from(&**key), effect.clone()) })
        });
        return performed.collect();
    }
    let mut became = |key: &CompactKey| {
        let (mut cell, mut effect) = (Vec::new(), Vec::new());
        keyspace.value_at(commit.id, key).unwrap_or(Cell::ABSENT).encode(&mut cell);
        Effect::Key(key::Effect::Restore(cell.into())).encode(&mut effect);
        (Box::from(&**key), effect.into())
    };
    commit.writes.iter().map(|(key, _)| became(key)).collect()
}

/// The name of a state in histories.
fn name(state: StateId) -> String {
    if state == StateId::ROOT { "root".to_owned() } else { state.to_string() }
}
