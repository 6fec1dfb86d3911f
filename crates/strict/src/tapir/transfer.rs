//! A replica whose record alone cannot bring it up to date fetches another's state: it was away, or lost its disk, while
//! the others went on and forgot outcomes that it never had.
//!
//! ```text
//!  behind                         source
//!    |-- FetchState(place) -------->|  stands still with what it trimmed, serves on
//! xt) --| until the last piece, or no request has come for a while
//! ```
//! The pieces make a second state beside the present one, and are logged; with the last one the second takes the
//! place of the first, and what the record knows beyond is executed again. Votes, promises and locks stay. A crash
//! before that leaves the first. A source that restarts or goes on without this replica makes it begin anew; a
//! checkpoint does not, since it tells the second state too, but the exchange waits for its end.

use super::message::{Message, Timer};
use super::node::Node;
use super::record::Record;
use super::replica::{Replica, Wires};
use super::shard::Shard;
use super::state::{self, Place};
use crate::ir::{Recovering, Status};
use protocol::{Now, Outputs};
use std::time::Duration;
use types::{Address, Instant, Malformed, NodeId, Timestamp};

/// For how long a source stands still for a replica that does not ask.
const LEASE: Duration = Duration::from_secs(5);
/// A question without an answer is repeated after this.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// After so many questions without an answer the source is given up.
const PATIENCE: u32 = 20;

/// What is being fetched.
#[derive(Debug)]
pub(super) struct Fetching {
    /// Which replica has it.
    source: Address,
    /// The life of it that began to answer.
    node: Option<NodeId>,
    base: Timestamp,
    place: Place,
    tries: u32,
    requested_at: Instant,
}

/// A replica that fetches from this one.
#[derive(Debug)]
pub(super) struct Lease {
    until: Instant,
}

impl Replica {
    /// True while this replica's horizon must stay where it is.
    pub(super) fn stands_still(&self, now: Instant) -> bool {
        self.checkpoint.is_some() || self.lease.as_ref().is_some_and(|lease| lease.until > now)
    }

    /// Begins to fetch when IR has found this replica behind; says again what was not answered.
    pub(super) fn continue_fetching(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        let Some(source) = self.ir.behind() else {
            self.fetching = None;
            return;
        };
        if self.fetching.as_ref().is_none_or(|fetching| fetching.source != source) {
            self.begin_fetching(source, now.instant);
            return self.ask_state(now.instant, out);
        }
        let Some(fetching) = &self.fetching else { return };
        if now.instant - fetching.requested_at < ASK_AGAIN {
            return;
        }
        if fetching.tries > PATIENCE {
            self.fetching = None;
            return self.ir.not_behind();
        }
        self.ask_state(now.instant, out);
    }

    fn begin_fetching(&mut self, source: Address, requested_at: Instant) {
        let (base, place) = (Timestamp::ZERO, Place::Begin);
        self.aside = None;
        self.fetching = Some(Fetching { source, node: None, base, place, tries: 0, requested_at });
    }

    /// Begins anew with the same source.
    fn fetch_anew(&mut self) {
        if let Some(Fetching { source, requested_at, .. }) = self.fetching {
            self.begin_fetching(source, requested_at);
        }
    }

    fn ask_state(&mut self, now: Instant, out: &mut Outputs<'_, Node>) {
        let Some(fetching) = &mut self.fetching else { return };
        (fetching.tries, fetching.requested_at) = (fetching.tries + 1, now);
        out.send(fetching.source, Message::FetchState { place: fetching.place.clone() });
        out.arm(Timer::Sync, now + ASK_AGAIN);
    }

    /// Tells a piece of the state, and stands still for a while.
    pub(super) fn on_fetch_state(
        &mut self,
        now: Now,
        from: NodeId,
        place: Place,
        out: &mut Outputs<'_, Node>,
    ) {
        if !matches!(self.ir.status(), Status::Normal | Status::Sealed) {
            return;
        }
        self.lease = Some(Lease { until: now.instant + LEASE });
        let mut piece = Vec::new();
        let next = state::tell(&mut self.state, &place, self.options.piece_bytes, &mut piece);
        let base = self.ir.points().trimmed;
        out.send(from.address(), Message::State { base, place, next, piece: piece.into() });
    }

    /// Takes a piece; with the last one the state is complete.
    pub(super) fn on_state(
        &mut self,
        now: Now,
        from: NodeId,
        base: Timestamp,
        (place, next): (Place, Option<Place>),
        piece: &[u8],
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(fetching) = &mut self.fetching else { return };
        if from.address() != fetching.source || fetching.place != place {
            return;
        }
        if base <= self.ir.points().base {
            // What was lacking has come in another way meanwhile; the state would be the older one.
            self.fetching = None;
            return self.ir.not_behind();
        }
        let first = place == Place::Begin;
        if first {
            (fetching.node, fetching.base) = (Some(from), base);
        } else if fetching.node != Some(from) || fetching.base != base {
            self.fetch_anew();
            return self.ask_state(now.instant, out);
        }
        fetching.tries = 0;
        if next.is_none() && self.checkpoint.is_some() {
            // The checkpoint began with the first state: this replica requests the piece again when the checkpoint has
            // ended.
            return;
        }
        self.persist(&Record::Aside { first, piece }, out);
        let outcome = self.take_aside(first, piece);
        debug_assert!(outcome.is_ok(), "peers send well-formed pieces");
        match (next, &mut self.fetching) {
            (Some(next), Some(fetching)) if outcome.is_ok() => {
                fetching.place = next;
                self.ask_state(now.instant, out);
            }
            (None, Some(_)) if outcome.is_ok() => self.arrived(now, base, out),
            _ => self.fetch_anew(),
        }
    }

    /// Takes a piece into the second state.
    pub(super) fn take_aside(&mut self, first: bool, piece: &[u8]) -> Result<(), Malformed> {
        if first {
            self.aside = Some(self.fresh_state());
        }
        match &mut self.aside {
            Some(aside) => state::take(aside, piece),
            None => Ok(()),
        }
    }

    /// The second state is complete.
    fn arrived(&mut self, now: Now, base: Timestamp, out: &mut Outputs<'_, Node>) {
        let Some(aside) = self.aside.take() else { return };
        self.fetching = None;
        self.persist(&Record::Arrived { base }, out);
        self.retire(aside);
        let mut port = Wires { out, options: &self.options, now: now.instant };
        self.ir.state_arrived(base, &mut self.state, &mut port);
    }

    pub(super) fn recover_arrived(&mut self, base: Timestamp) {
        if let Some(aside) = self.aside.take() {
            self.retire(aside);
            self.ir.recover(Recovering::State { base }, &mut self.state);
        }
    }

    /// Puts a state in the place of the present one, which is freed bit by bit.
    fn retire(&mut self, mut aside: Shard) {
        aside.promise_as(&self.state);
        let old = std::mem::replace(&mut self.state, aside);
        self.retired = Some(old.into_deferred_drop());
    }
}
