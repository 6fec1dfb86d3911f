//! Reads while the log refuses records. What the log lacks may be lost with this life, so nobody is shown it: a read of a key
//! that such a record changed is refused, with an error that names the log. All other reads are answered: the effects that
//! they show are logged. The partition records nothing for them, so what it vouches for is bounded by what the log has.

use super::Partition;
use crate::stable::message::{KeyspaceWork, Message, Part};
use crate::stable::stamp::Stamp;
use crate::stable::{Node, Times};
use mvcc::Store;
use protocol::{Outputs, Unlogged};
use types::{Address, Error, Timestamp};

/// What a record tells of that matters to readers.
#[derive(Debug)]
pub(super) enum Recorded<D> {
    /// Effects with this stamp.
    Effects(Stamp<D>),
    /// A promise up to here.
    Promise(Timestamp),
}

/// What the log has of what the partition has recorded.
#[derive(Debug)]
pub(super) struct Logged<D> {
    /// The number of the last record.
    pub(super) last: u64,
    unlogged: Unlogged<Recorded<D>>,
    /// With what the log has, the clock of a next life begins above this.
    bound: Timestamp,
}

impl<D> Default for Logged<D> {
    fn default() -> Self {
        Logged { last: 0, unlogged: Unlogged::default(), bound: Timestamp::ZERO }
    }
}

impl<S: Times> Partition<S> {
    /// The last record tells of this. Copies share a log of their own, which does not fill up.
    pub(super) fn note_recorded(&mut self, recorded: Recorded<S::Depends>) {
        if !self.options.copied {
            self.logged.unlogged.note(self.logged.last, recorded);
        }
    }

    pub(in crate::stable) fn on_logged(&mut self, records: u64) {
        let (bound, region) = (&mut self.logged.bound, self.region);
        self.logged.unlogged.logged(records, |recorded| match recorded {
            Recorded::Effects(stamp) if stamp.region == region => *bound = stamp.at.max(*bound),
            Recorded::Effects(_) => {}
            // The clock may stamp at the end of a promise.
            Recorded::Promise(until) => *bound = until.previous().max(*bound),
        });
    }

    pub(in crate::stable) fn set_refusing(&mut self, is_refusing: bool) {
        self.logged.unlogged.set_refusing(is_refusing);
    }

    /// True while the log refuses records.
    pub(super) fn is_refusing(&self) -> bool {
        self.logged.unlogged.is_refusing()
    }

    /// How far a partition whose log refuses records may publish.
    pub(super) fn logged_bound(&self) -> Timestamp {
        self.logged.bound
    }

    /// Answers a read; while the log refuses records, by what the log has.
    pub(super) fn answer(&self, to: Address, message: Message<S>, out: &mut Outputs<'_, Node<S>>) {
        match self.is_refusing() {
            true => out.send_logged(to, message),
            false => out.send(to, message),
        }
    }

    /// See [`why_unlogged`].
    pub(super) fn unlogged(
        &self,
        snapshot: S,
        parts: &[Part<S>],
        keyspace_work: &[KeyspaceWork],
    ) -> Option<Error> {
        let lacking = self.logged.unlogged.refused().filter_map(|recorded| match recorded {
            Recorded::Effects(stamp) => Some(stamp),
            Recorded::Promise(_) => None,
        });
        let is_shown = |stamp: &Stamp<S::Depends>| snapshot.shows(stamp, self.region);
        why_unlogged(&self.store, self.horizon.whole(), (parts, keyspace_work), lacking, is_shown)
    }
}

/// Why a read is refused that would show an effect of these, which the log lacks: with this life it might be lost.
pub(crate) fn why_unlogged<'s, S: Times>(
    store: &Store<Stamp<S::Depends>>,
    horizon: Timestamp,
    (parts, keyspace_work): (&[Part<S>], &[KeyspaceWork]),
    lacking: impl Iterator<Item = &'s Stamp<S::Depends>>,
    is_shown: impl Fn(&Stamp<S::Depends>) -> bool,
) -> Option<Error>
where
    S::Depends: 's,
{
    for stamp in lacking {
        // What is below the horizon is in the values themselves; which keys it changed is not known any more.
        if !keyspace_work.is_empty() || *stamp <= Stamp::last_at(horizon) {
            return Some(protocol::unlogged(None));
        }
        let changed = |part: &&Part<S>| store.has_effect(store.hash(&part.key), &part.key, *stamp);
        if is_shown(stamp)
            && let Some(part) = parts.iter().find(changed)
        {
            return Some(protocol::unlogged(Some(&part.key)));
        }
    }
    None
}
