//! Another member's state, taken in the place of one that is not the log's.

use super::Copied;
use super::copy::Copy;
use crate::transfer::{Ask, Piece, Taken, Taker};
use protocol::{Input, Replica};
use std::collections::VecDeque;
use std::time::Duration;
use types::{Instant, Rng};

/// The timeout after which an unanswered question is repeated.
const REPEAT: Duration = Duration::from_millis(100);
/// A member that does not go on giving for so long is left for another one.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Rebuild<P: Copied> {
    /// A state must have everything up to here: what comes after waits below.
    needed: u64,
    /// Entries that were committed since, with their index.
    pub(super) waiting: VecDeque<(u64, Vec<u8>)>,
    taking: Option<Taking<P>>,
    /// How many members this one has queried.
    queried: usize,
}

/// A state on its way here.
struct Taking<P: Copied> {
    taker: Taker<usize>,
    /// Which of the giver's states it is, the last entry that the giver had applied when it began, and the instance that is
    /// made of it; once the first piece is here.
    begun: Option<(u64, u64, Replica<P>)>,
    since: Instant,
}

impl<P: Copied> Rebuild<P> {
    pub(super) fn new(needed: u64) -> Self {
        Rebuild { needed, waiting: VecDeque::new(), taking: None, queried: 0 }
    }

    /// Everything up to this entry is needed, since this member does not retain it.
    pub(super) fn need(&mut self, index: u64) {
        self.needed = self.needed.max(index);
    }

    /// Whom to ask for what, if that is due: the leader first, then one after the other.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        others: &[usize],
        leader: Option<usize>,
        random: &mut Rng,
    ) -> Option<(usize, Ask)> {
        if self.taking.as_ref().is_some_and(|taking| now - taking.since >= PATIENCE) {
            self.taking = None;
        }
        if self.taking.is_none() {
            let leader = leader.filter(|leader| self.queried.is_multiple_of(2) && others.contains(leader));
            let member = leader.or_else(|| others.get(self.queried / 2 % others.len().max(1)).copied())?;
            self.queried += 1;
            self.taking = Some(Taking { taker: Taker::new(member, random.u64(..)), begun: None, since: now });
        }
        let taking = self.taking.as_mut()?;
        Some((taking.taker.giver(), taking.taker.ask(now, REPEAT)?))
    }

    /// Takes a piece, of this state of the giver's, which had applied this entry. Returns the instance with the entry that
    /// it stands for, when it is whole.
    pub(super) fn take(
        &mut self,
        now: Instant,
        from: usize,
        piece: &Piece,
        (state, applied): (u64, u64),
        empty: impl FnOnce() -> Replica<P>,
    ) -> Option<(Replica<P>, u64)> {
        let taking = self.taking.as_mut()?;
        let taken = taking.taker.take(from, piece);
        if taken == Taken::Stale {
            return None;
        }
        taking.since = now;
        let is_another = taking.begun.as_ref().is_some_and(|(begun, ..)| *begun != state);
        if is_another || (taking.begun.is_none() && applied < self.needed) {
            self.taking = None;
            return None;
        }
        let (_, _, inner) = taking.begun.get_or_insert_with(|| (state, applied, empty()));
        Copy::recover(inner, Input::Snapshot(&piece.content));
        if taken != Taken::Last {
            return None;
        }
        let (_, applied, inner) = self.taking.take()?.begun?;
        Some((inner, applied))
    }
}
