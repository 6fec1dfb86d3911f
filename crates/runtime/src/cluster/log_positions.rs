//! Processes remember each other's log positions. So they detect a process that comes back with an older copy of its
//! data directory, or with an empty one that is said to be new, although its directory is consistent.
//!
//! ```text
//!   Mine { this life, its last synced group } --> every other process, twice a second; asks until it was answered
//!                                            <-- Earlier { the same of the life before, if I heard of one }
//! ```
//!
//! A process that learns of a higher position than its directory holds has lost records that others rely on. It notes
//! that in the directory and exits; its next start recovers the missing records from the others (Corrections 67). The
//! positions are in memory only: a process that returns after all others have restarted is not detected.

use crate::cluster::Cluster;
use crate::cluster::identity::Identity;
use crate::journal::Journal;
use crate::process::fatal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use types::{
    Incarnation, Instant, KeyspaceId, PartitionId, ProcessId, Reader, Slot, Wire, wire_enum, wire_struct,
};

const EVERY: Duration = Duration::from_millis(500);
/// Where processes tell each other: no keyspace has this number.
pub(super) const SLOT: Slot = Slot { keyspace: KeyspaceId(u16::MAX), partition: Some(PartitionId(1)) };

/// How far a life of a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogPosition {
    pub(super) life: Incarnation,
    /// The newest group of its log that was synced.
    pub(super) synced: u64,
}
wire_struct!(LogPosition { life, synced });

#[derive(Debug)]
enum PositionMessage {
    Mine { position: LogPosition, asks: bool },
    LegacyCatalog { queried_in: Incarnation, position: Option<LogPosition> },
}
wire_enum!(PositionMessage {
    0 => Mine { position, asks },
    1 => LegacyCatalog { queried_in, position },
});

/// What was heard of another process.
#[derive(Clone, Copy, Debug)]
struct HeardPositions {
    present: LogPosition,
    /// Of the life before, if that was heard of.
    earlier: Option<LogPosition>,
}

/// What a start found in its data directory, if nothing is known to be missing in it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) directory: PathBuf,
    pub(super) identity: Identity,
    /// How far the life before has come, by the directory.
    pub(super) position: LogPosition,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LogPositions {
    found: Option<Found>,
    /// The processes that have answered.
    answered: BTreeSet<ProcessId>,
    heard: BTreeMap<ProcessId, HeardPositions>,
    next: Instant,
}

impl LogPositions {
    pub(super) fn new(found: Option<Found>) -> Self {
        LogPositions { found, ..LogPositions::default() }
    }

    /// What this process reports to another one about that one's earlier life.
    fn hear(&mut self, from: ProcessId, position: LogPosition) -> Option<LogPosition> {
        let heard = self.heard.entry(from).or_insert(HeardPositions { present: position, earlier: None });
        // A packet may overtake one of a later life.
        if heard.present < position {
            if heard.present.life != position.life {
                heard.earlier = Some(heard.present);
            }
            heard.present = position;
        }
        heard.earlier
    }

    /// What was found, if it is less than what another process has heard.
    fn outdated(&self, reported: Option<LogPosition>) -> Option<&Found> {
        let reported = reported?;
        self.found.as_ref().filter(|found| reported > found.position)
    }
}

impl Cluster {
    /// Tells the others how far this process's log is, now and then.
    pub(super) fn tell_standing(&mut self, journal: &Journal, now: Instant) {
        if now < self.log_positions.next {
            return;
        }
        self.log_positions.next = now + EVERY;
        let position = LogPosition { life: self.life.incarnation, synced: journal.durable().synced };
        for process in self.peers.all() {
            let asks = !self.log_positions.answered.contains(&process);
            self.say_standing(process, &PositionMessage::Mine { position, asks }, Some(now));
        }
    }

    fn say_standing(&self, to: ProcessId, said: &PositionMessage, can_wait: Option<Instant>) {
        self.peers.send(to, self.peers.node(SLOT), SLOT, said, can_wait);
    }

    /// Another process has reported its log position, or the one that it knows of this process.
    pub(super) fn hear_standing(&mut self, from: ProcessId, packet: &[u8]) {
        match PositionMessage::decode(&mut Reader::new(packet)) {
            Ok(PositionMessage::Mine { position, asks }) => {
                let queried_in = position.life;
                let position = self.log_positions.hear(from, position);
                if asks {
                    self.say_standing(from, &PositionMessage::LegacyCatalog { queried_in, position }, None);
                }
            }
            Ok(PositionMessage::LegacyCatalog { queried_in, position })
                if queried_in == self.life.incarnation =>
            {
                self.log_positions.answered.insert(from);
                if let Some(found) = self.log_positions.outdated(position) {
                    found.end(from);
                }
            }
            Ok(PositionMessage::LegacyCatalog { .. }) => {}
            Err(error) => tracing::warn!(%from, %error, "a malformed packet was dropped"),
        }
    }
}

impl Found {
    /// The next start will know that something is missing.
    fn end(&self, from: ProcessId) -> ! {
        let then = match self.identity.clone().with_complete(false).save(&self.directory) {
            Ok(()) => "start it again, and it learns what is missing from the others",
            Err(_) => "empty the directory, or start it with --accept-loss",
        };
        fatal(&format!(
            "the data directory is older than what process {from} has heard of this process: a copy, or a new one; {then}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(life: u32, synced: u64) -> LogPosition {
        LogPosition { life: Incarnation(life), synced }
    }

    #[test]
    fn an_earlier_life_is_reported_and_compared_with_what_was_found() {
        let found =
            |position| Found { directory: PathBuf::new(), identity: Identity::present(1, 1), position };
        let is_outdated = |directory: Option<LogPosition>, reported| {
            LogPositions::new(directory.map(found)).outdated(reported).is_some()
        };
        let mut peer = LogPositions::default();
        assert_eq!(peer.hear(ProcessId(2), position(5, 10)), None);
        assert_eq!(peer.hear(ProcessId(2), position(5, 90)), None);
        let reported = peer.hear(ProcessId(2), position(7, 50));
        assert_eq!(reported, Some(position(5, 90)));
        assert_eq!(peer.hear(ProcessId(2), position(7, 60)), reported, "until the next life");
        assert_eq!(
            peer.hear(ProcessId(2), position(5, 95)),
            reported,
            "what comes late of an earlier life tells nothing"
        );
        assert_eq!(peer.hear(ProcessId(2), position(7, 70)), reported);
        assert!(!is_outdated(Some(position(5, 90)), reported));
        assert!(!is_outdated(Some(position(6, 0)), reported), "of a life that nobody has heard of");
        assert!(is_outdated(Some(position(5, 89)), reported));
        assert!(is_outdated(Some(position(4, 200)), reported));
        assert!(!is_outdated(None, reported), "one that knows that it lacks something");
        assert!(!is_outdated(Some(position(5, 89)), None));
    }
}
