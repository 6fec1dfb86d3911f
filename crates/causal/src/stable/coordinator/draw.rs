//! A key drawn at random (RANDOMKEY): each partition draws one that the snapshot shows and returns the number of its
//! keys, and the coordinator chooses among the drawn keys by these weights. What the session has written and the
//! snapshot does not show takes part: a few such keys are named to their partitions, which know whether they are there.

use super::Coordinator;
use super::ask::PlannedStep;
use super::running::{Kind, Running};
use crate::stable::Times;
use std::collections::BTreeSet;
use types::{Reply, ReplySink, Rng};

/// How many keys of the session's own writes are named; if there are more, some that are drawn. A session of many may
/// have written thousands that are not stable.
pub(super) const CANDIDATES: usize = 64;

impl<S: Times> Running<S> {
    /// True if a key is drawn.
    pub(super) fn draws(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, PlannedStep::Random))
    }

    /// Not all of the session's own writes were considered: that there is no key is not sure.
    pub(super) fn doubt_draws(&mut self) {
        for (step, reply) in self.steps.iter().zip(&mut self.replies) {
            if matches!((step, reply.first()), (PlannedStep::Random, Some(Reply::Null))) {
                reply.clear();
                reply.integer(0);
            }
        }
    }
}

impl<S: Times> Coordinator<S> {
    /// Keys that the session has written and that the snapshot may not show as it left them.
    pub(super) fn own_keys<'s>(&'s self, running: &'s Running<S>) -> impl Iterator<Item = &'s [u8]> {
        let open = self.sessions.get(&running.session).and_then(|state| state.open.as_ref());
        let open = open.filter(|_| matches!(running.kind, Kind::Operate));
        let done = open.into_iter().flat_map(|open| open.done.iter().map(|done| &*done.key));
        let thread = self.threads.get(&self.thread_key(running.session));
        let cached = thread.into_iter().flat_map(|thread| thread.keys());
        let distinct: BTreeSet<&[u8]> = done.chain(cached).collect();
        distinct.into_iter()
    }

    /// Those that are named to their partitions, with these.
    pub(super) fn candidates(&self, number: u64, running: &Running<S>) -> Vec<(u16, Box<[u8]>)> {
        let mut keys: Vec<&[u8]> = self.own_keys(running).collect();
        if keys.len() > CANDIDATES {
            Rng::with_seed(number).shuffle(&mut keys);
            keys.truncate(CANDIDATES);
        }
        let place = |key: &[u8]| self.topology.partition_of(self.topology.seed.hash(key));
        keys.into_iter().map(|key| (place(key), key.into())).collect()
    }
}
