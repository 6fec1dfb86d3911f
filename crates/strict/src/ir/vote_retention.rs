//! What has to be remembered so that votes can be judged again.
//!
//! A vote that may have succeeded on the fast path is judged again by the leader of a new view, which must come to the
//! same verdict: so it has to know of everything that ended after the vote, and what it has forgotten counts against the
//! vote. With five replicas or more that leader may have missed the proposal. So nobody forgets what a vote of *another*
//! replica may need: each tells the leader of the view, with Synced, up to where it lets go, and all forget up to where
//! f+1 of them do.
//!
//! # Why that is enough
//! Let T have succeeded on the fast path, and F be what f+1 replicas let go. Two quorums meet, so one of these, V, voted
//! for T. If it did so before it let go of F, then what T's vote needs is not below F as long as T's birth is not
//! closed, ended or not ([`VoteRetention::voted`]); and if afterwards, then V had closed F by then, and what T had looked at was
//! not older than F ([`Application::let_go`]). Either way everything that was born at or below F had ended at V when it
//! voted. A later view in which T is still undecided has its result FINALIZED.

use super::log::{bucket, end_of};
use crate::{Mutant, Mutants};
use std::collections::BTreeMap;
use types::Timestamp;

#[cfg(doc)]
use super::Application;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct VoteRetention {
    /// What votes need, by the bucket of births.
    votes: BTreeMap<u64, Timestamp>,
    /// Up to where this replica lets go.
    own: Timestamp,
    /// As leader: up to where other replicas do, as they reported in this view.
    reported: BTreeMap<usize, Timestamp>,
    /// Up to where f+1 do.
    shared: Timestamp,
    /// It knows what it has let go, in this epoch and in whatever life.
    knows: bool,
}

impl VoteRetention {
    /// A vote was given that may be judged again until its group's birth is closed.
    pub fn voted(&mut self, born: Timestamp, needs: Timestamp) {
        let least = self.votes.entry(bucket(born)).or_insert(Timestamp::MAX);
        *least = needs.min(*least);
    }

    /// Everything born up to here has ended, and f+1 replicas know how.
    pub fn closed(&mut self, base: Timestamp) {
        self.votes.retain(|of, _| end_of(*of) > base);
    }

    /// Lets go up to `limit`, if no vote needs more; returns up to where.
    pub fn let_go(&mut self, limit: Timestamp, mutants: Mutants) -> Timestamp {
        let votes = self.votes.values().copied().min().filter(|_| !mutants.has(Mutant::ForgetBelowVotes));
        self.own = votes.unwrap_or(Timestamp::MAX).min(limit);
        self.own
    }

    /// Up to where this replica lets go.
    pub fn own(&self) -> Timestamp {
        self.own
    }

    /// Another replica lets go up to here. That stays true, whatever the replica reports later.
    pub fn reported(&mut self, member: usize, forgettable: Timestamp) {
        let known = self.reported.entry(member).or_default();
        *known = forgettable.max(*known);
    }

    /// Up to where as many let go, with this replica.
    pub fn conclude(&mut self, quorum: usize) {
        let mut reported: Vec<Timestamp> = self.reported.values().copied().collect();
        reported.sort_unstable_by(|a, b| b.cmp(a));
        let others =
            if quorum > 1 { reported.get(quorum - 2).copied().unwrap_or_default() } else { self.own };
        self.learn(self.own.min(others));
    }

    /// A leader has found that up to here f+1 let go.
    pub fn learn(&mut self, forgettable: Timestamp) {
        self.shared = self.shared.max(forgettable);
    }

    /// Up to where f+1 let go, as far as is known.
    pub fn forgettable(&self) -> Timestamp {
        self.shared
    }

    /// A view begins, maybe with other members: they tell anew.
    pub fn begin_view(&mut self) {
        self.reported.clear();
    }

    /// An epoch begins: its members need not be among those that have let go before.
    pub fn begin_epoch(&mut self) {
        *self = VoteRetention {
            shared: self.shared,
            votes: std::mem::take(&mut self.votes),
            ..VoteRetention::default()
        };
    }

    /// A record is taken over. True if this replica has to let go of all that is closed, as it does not know what was let
    /// go in its earlier life or in an earlier epoch.
    pub fn forgets_itself(&mut self) -> bool {
        !std::mem::replace(&mut self.knows, true)
    }
}
