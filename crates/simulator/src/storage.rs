//! What happens to logs: groups are written and synced, checkpoints taken, failures met.

use crate::deployment::Deployment;
use crate::faults::exponential;
use crate::process::{Life, LogFailed, Undo};
use crate::trace::kind;
use crate::world::{Event, LAZY_SYNC, World};
use protocol::Durability;
use types::Incarnation;

impl<D: Deployment> World<D> {
    pub fn on_write_out(&mut self, index: usize, incarnation: Incarnation) {
        if !self.lives(index, incarnation) {
            return;
        }
        let Some(life) = &mut self.processes[index].life else { return };
        let undo = if self.mutants.undo_left_out { Undo::LeaveOut } else { Undo::TakeBack };
        match life.write_out(undo) {
            Err(failed) => return self.log_failed(index, failed),
            Ok(true) => {}
            Ok(false) => {
                self.trace.note(self.now, kind::FAULT, &[], || format!("p{index} suspends its log"));
                let delay = self.random.u64(1_000..300_000);
                self.after(delay, Event::RetryLog { process: index, incarnation });
                return self.release(index);
            }
        }
        let written = life.log.written().0;
        self.trace.note(self.now, kind::WRITE, &written.to_le_bytes(), || {
            format!("p{index} wrote group {written}")
        });
        if self.setting.durability == Durability::Synced {
            self.begin_sync(index);
        }
        self.release(index);
        self.strike_if_doomed(index);
    }

    pub fn on_retry_log(&mut self, index: usize, incarnation: Incarnation) {
        if !self.lives(index, incarnation) {
            return;
        }
        let healed = self.processes[index].life.as_mut().is_none_or(Life::retry);
        self.trace
            .note(self.now, kind::FAULT, &[u8::from(healed)], || format!("p{index} tries its log: {healed}"));
        if !healed {
            self.after(LAZY_SYNC, Event::RetryLog { process: index, incarnation });
        }
        self.release(index);
    }

    pub fn begin_sync(&mut self, index: usize) {
        let Some(life) = &mut self.processes[index].life else { return };
        let incarnation = life.incarnation;
        match life.begin_sync() {
            Err(failed) => self.log_failed(index, failed),
            Ok(true) => {
                let delay = exponential(&mut self.random, self.swarm.sync);
                self.after(delay, Event::Synced { process: index, incarnation });
            }
            Ok(false) if self.setting.durability != Durability::Synced => {
                self.after(LAZY_SYNC, Event::BeginSync { process: index, incarnation });
            }
            Ok(false) => {}
        }
    }

    pub fn on_synced(&mut self, index: usize, incarnation: Incarnation) {
        if !self.lives(index, incarnation) {
            return;
        }
        let Some(life) = &mut self.processes[index].life else { return };
        if let Err(failed) = life.finish_sync() {
            return self.log_failed(index, failed);
        }
        let synced = life.log.synced().0;
        self.trace
            .note(self.now, kind::SYNC, &synced.to_le_bytes(), || format!("p{index} synced group {synced}"));
        match self.setting.durability {
            Durability::Synced => self.begin_sync(index),
            _ => self.after(LAZY_SYNC, Event::BeginSync { process: index, incarnation }),
        }
        self.release(index);
    }

    pub fn on_checkpoint(&mut self, index: usize, incarnation: Incarnation, begin: bool) {
        if !self.lives(index, incarnation) {
            return;
        }
        let Some(life) = &mut self.processes[index].life else { return };
        let progress = match begin {
            true => life.begin_checkpoint().map(|()| true),
            false => life.continue_checkpoint(),
        };
        match progress {
            Err(failed) => return self.log_failed(index, failed),
            Ok(true) => {
                let delay = self.random.u64(0..2_000);
                self.after(delay, Event::Checkpoint { process: index, incarnation, begin: false });
            }
            Ok(false) => {
                self.trace
                    .note(self.now, kind::CHECKPOINT, &[], || format!("p{index} finished a checkpoint"));
                let delay = exponential(&mut self.random, self.swarm.checkpoint_interval);
                self.after(delay, Event::Checkpoint { process: index, incarnation, begin: true });
            }
        }
        // A checkpoint begins with the open group written out.
        self.begin_sync(index);
        self.release(index);
    }

    /// A process whose log failed ends, and starts again.
    pub fn log_failed(&mut self, index: usize, failed: LogFailed) {
        self.trace.note(self.now, kind::FAULT, &[index as u8], || format!("p{index} ends: {}", failed.0));
        self.end(index, true);
        self.after(100_000, Event::Restart { process: index });
    }
}
