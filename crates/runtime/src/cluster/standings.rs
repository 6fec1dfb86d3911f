//! Processes remember of each other how far their logs were: so one that comes back with an older copy of its data
//! directory, or an empty one that is said to be new, is found out, although its directory is consistent.
//!
//! ```text
//!   Mine { this life, its last synced group } --> every other process, twice a second; asks until it was answered
//!                                            <-- Earlier { the same of the life before, if I heard of one }
//! ```
//!
//! A process that is told of more than its directory holds has forgotten what others rely on. It notes that in the directory
//! and ends; its next start learns what is missing from the others (Corrections 67). What is remembered is in memory:
//! nobody finds out a process that returns after all others have restarted.

use crate::cluster::Cluster;
use crate::cluster::identity::Identity;
use crate::journal::Journal;
use crate::process::fatal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use types::{
    Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, Slot, Wire, wire_enum,
    wire_struct,
};

const EVERY: Duration = Duration::from_millis(500);
/// Where processes tell each other: no keyspace has this number.
pub(super) const SLOT: Slot = Slot { keyspace: KeyspaceId(u16::MAX), partition: Some(PartitionId(1)) };

/// How far a life of a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    pub(super) life: Incarnation,
    /// The newest group of its log that was synced.
    pub(super) synced: u64,
}
wire_struct!(Standing { life, synced });

#[derive(Debug)]
enum Said {
    Mine { standing: Standing, asks: bool },
    Earlier { asked_in: Incarnation, standing: Option<Standing> },
}
wire_enum!(Said {
    0 => Mine { standing, asks },
    1 => Earlier { asked_in, standing },
});

/// What was heard of another process.
#[derive(Clone, Copy, Debug)]
struct Heard {
    present: Standing,
    /// Of the life before, if that was heard of.
    earlier: Option<Standing>,
}

/// What a start found in its data directory, if nothing is known to be missing in it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) directory: PathBuf,
    pub(super) identity: Identity,
    /// How far the life before has come, by the directory.
    pub(super) standing: Standing,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Standings {
    found: Option<Found>,
    /// Those that have told what they know.
    answered: BTreeSet<ProcessId>,
    heard: BTreeMap<ProcessId, Heard>,
    next: Instant,
}

impl Standings {
    pub(super) fn new(found: Option<Found>) -> Self {
        Standings { found, ..Standings::default() }
    }

    /// What is to be told to a process about its life before this one.
    fn hear(&mut self, from: ProcessId, standing: Standing) -> Option<Standing> {
        let heard = self.heard.entry(from).or_insert(Heard { present: standing, earlier: None });
        // A packet may overtake one of a later life.
        if heard.present < standing {
            if heard.present.life != standing.life {
                heard.earlier = Some(heard.present);
            }
            heard.present = standing;
        }
        heard.earlier
    }

    /// What was found, if it is less than what another process has heard.
    fn outdated(&self, told: Option<Standing>) -> Option<&Found> {
        let told = told?;
        self.found.as_ref().filter(|found| told > found.standing)
    }
}

impl Cluster {
    /// Tells the others how far this process's log is, now and then.
    pub(super) fn tell_standing(&mut self, journal: &Journal, now: Instant) {
        if now < self.standings.next {
            return;
        }
        self.standings.next = now + EVERY;
        let standing = Standing { life: self.life.incarnation, synced: journal.durable().synced };
        let others = self.file.processes.iter().map(|process| ProcessId(process.id));
        let others: Vec<ProcessId> = others.filter(|process| *process != self.life.process).collect();
        for process in others {
            let asks = !self.standings.answered.contains(&process);
            self.say_standing(process, &Said::Mine { standing, asks }, Some(now));
        }
    }

    fn say_standing(&mut self, to: ProcessId, said: &Said, can_wait: Option<Instant>) {
        let from = NodeId { process: self.life.process, incarnation: self.life.incarnation, slot: SLOT };
        self.peers.send(to, from, SLOT, said, can_wait);
    }

    /// Another process has told how far it is, or what it knows of this one.
    pub(super) fn hear_standing(&mut self, from: ProcessId, packet: &[u8]) {
        match Said::decode(&mut Reader::new(packet)) {
            Ok(Said::Mine { standing, asks }) => {
                let asked_in = standing.life;
                let standing = self.standings.hear(from, standing);
                if asks {
                    self.say_standing(from, &Said::Earlier { asked_in, standing }, None);
                }
            }
            Ok(Said::Earlier { asked_in, standing }) if asked_in == self.life.incarnation => {
                self.standings.answered.insert(from);
                if let Some(found) = self.standings.outdated(standing) {
                    found.end(from);
                }
            }
            Ok(Said::Earlier { .. }) => {}
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

    fn standing(life: u32, synced: u64) -> Standing {
        Standing { life: Incarnation(life), synced }
    }

    #[test]
    fn an_earlier_life_is_told_and_compared_with_what_was_found() {
        let found =
            |standing| Found { directory: PathBuf::new(), identity: Identity::present(1, 1), standing };
        let is_outdated =
            |directory: Option<Standing>, told| Standings::new(directory.map(found)).outdated(told).is_some();
        let mut peer = Standings::default();
        assert_eq!(peer.hear(ProcessId(2), standing(5, 10)), None);
        assert_eq!(peer.hear(ProcessId(2), standing(5, 90)), None);
        let told = peer.hear(ProcessId(2), standing(7, 50));
        assert_eq!(told, Some(standing(5, 90)));
        assert_eq!(peer.hear(ProcessId(2), standing(7, 60)), told, "until the next life");
        assert_eq!(
            peer.hear(ProcessId(2), standing(5, 95)),
            told,
            "what comes late of an earlier life tells nothing"
        );
        assert_eq!(peer.hear(ProcessId(2), standing(7, 70)), told);
        assert!(!is_outdated(Some(standing(5, 90)), told));
        assert!(!is_outdated(Some(standing(6, 0)), told), "of a life that nobody has heard of");
        assert!(is_outdated(Some(standing(5, 89)), told));
        assert!(is_outdated(Some(standing(4, 200)), told));
        assert!(!is_outdated(None, told), "one that knows that it lacks something");
        assert!(!is_outdated(Some(standing(5, 89)), None));
    }
}
