//! What happens to disks: bits flip, ends of logs are zeroed, segments are lost or exchanged, a process comes back with
//! an older disk, and all processes lose power at once.
//!
//! A process whose disk was damaged while it was dead must refuse to start, or have everything that its log had
//! synced. What is refused an operator repairs, as the fault says: the undamaged disk is restored from a backup, or,
//! where the protocol learns a lost disk from its peers, the disk is emptied, or the process starts once more and
//! accepts the loss, which its log must then list.

use crate::deployment::Deployment;
use crate::faults::Feature;
use crate::process::{End, StartError};
use crate::trace::kind;
use crate::world::{Event, World};
use journal::{GroupNumber, Recovered, SimulatedDisk};
use protocol::Durability;
use serde::{Deserialize, Serialize};
use types::Rng;

/// How long an operator takes to look at a process that refuses to start, in microseconds.
const REPAIRED: u64 = 50_000;

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Damage {
    /// A bit of some file is flipped.
    Bit,
    /// The newest segment's last bytes are zero.
    Tail,
    /// A segment, rather the newest, is gone.
    Segment,
    /// Two segments have each other's content.
    Exchange,
}

impl From<Damage> for journal::Damage {
    fn from(damage: Damage) -> Self {
        match damage {
            Damage::Bit => journal::Damage::Bit,
            Damage::Tail => journal::Damage::Tail,
            Damage::Segment => journal::Damage::Segment,
            Damage::Exchange => journal::Damage::Exchange,
        }
    }
}

/// What an operator does with a process that refuses to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Repair {
    /// The disk is as it was before the damage.
    Restore,
    /// The disk is empty.
    Empty,
    /// The process goes on with what it can read; if that is nothing, with an empty disk.
    Accept,
}

/// A disk that was damaged after its process had died.
pub(crate) struct Damaged {
    /// As it was before.
    intact: SimulatedDisk,
    /// What the log had synced.
    synced: GroupNumber,
    repair: Repair,
    /// The process starts accepting the loss.
    pub accepts: bool,
}

impl<D: Deployment> World<D> {
    /// A process dies and its disk is damaged. One whose log is synced now and then has come to rest before.
    pub(crate) fn damage(&mut self, index: usize, damage: Damage, (repair, seed): (Repair, u64), down: u64) {
        let learns = !self.deployment.lacks().contains(&Feature::LostDisks) && self.may_lose(index);
        let process = &mut self.processes[index];
        let Some(life) = &mut process.life else { return };
        let is_lazy = self.setting.durability < Durability::Synced;
        if is_lazy && (!learns || life.log.is_suspended()) {
            return;
        }
        if is_lazy && let Err(failed) = life.come_to_rest() {
            return self.log_failed(index, failed);
        }
        let synced = life.log.synced();
        let intact = process.disk.copy();
        let Some(what) = process.disk.damage(damage.into(), &mut Rng::with_seed(seed)) else { return };
        let repair = if learns { repair } else { Repair::Restore };
        process.lost |= is_lazy || repair != Repair::Restore;
        process.damaged = Some(Damaged { intact, synced, repair, accepts: false });
        self.note(&format!("p{index} is killed, for {down} us, and of its disk {what}"));
        self.end(index, End::Killed);
        self.after(down, Event::Restart { process: index });
    }

    /// All processes lose power; each has it again so long after the one before.
    pub(crate) fn black_out(&mut self, down: u64, interval: u64) {
        if self.setting.durability < Durability::Synced {
            return;
        }
        self.note("all processes lose power");
        for index in 0..self.processes.len() {
            if self.processes[index].life.is_some() {
                self.end(index, End::PowerCut);
                self.after(down + index as u64 * interval, Event::Restart { process: index });
            }
        }
    }

    /// A copy is made of a process's disk; of a damaged one it is made of the backup.
    pub(crate) fn copy_disk(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let disk = process.damaged.as_ref().map_or(&process.disk, |damaged| &damaged.intact);
        process.older = Some(disk.copy());
    }

    /// A process comes back with the disk that was copied, and its operator says so.
    pub(crate) fn age(&mut self, index: usize, down: u64) {
        if self.processes[index].life.is_none() || !self.may_lose(index) {
            return;
        }
        let Some(older) = self.processes[index].older.take() else { return };
        self.note(&format!("p{index} is killed, for {down} us, and comes back with an older disk"));
        self.end(index, End::DiskLost);
        self.processes[index].disk = older;
        self.processes[index].disk.heal();
        self.after(down, Event::Restart { process: index });
    }

    /// A process does not start: it is tried again, or repaired, or that is wrong.
    pub(crate) fn on_start_failed(&mut self, index: usize, error: StartError) {
        let reason = match error {
            StartError::Disk(reason) => {
                self.trace.note(self.now, kind::START, &[], || format!("p{index} cannot start: {reason}"));
                return self.after(crate::world::START_AGAIN, Event::Restart { process: index });
            }
            StartError::Refused(reason) => reason,
        };
        self.trace.note(self.now, kind::START, &[], || format!("p{index} refuses to start: {reason}"));
        let process = &mut self.processes[index];
        let Some(damaged) = process.damaged.as_mut() else {
            return self.recorder.no_progress(format!("process {index} refuses to start: {reason}"));
        };
        match damaged.repair {
            Repair::Accept if !damaged.accepts => damaged.accepts = true,
            Repair::Restore => {
                process.disk = damaged.intact.copy();
                process.damaged = None;
            }
            Repair::Empty | Repair::Accept => {
                (process.disk, process.lost, process.damaged) = (SimulatedDisk::new(), true, None);
            }
        }
        self.after(REPAIRED, Event::Restart { process: index });
    }

    /// A process has started: what its log had synced is there, or it has said that it is not.
    pub(crate) fn judge_start(&mut self, index: usize, recovered: &Recovered) {
        let Some(damaged) = self.processes[index].damaged.take() else { return };
        if recovered.last < damaged.synced && recovered.lost.is_none() {
            self.recorder.no_progress(format!(
                "process {index} starts with groups up to {} of {} that its log had synced, and says nothing of it",
                recovered.last, damaged.synced
            ));
        }
    }
}
