//! What happens to logs: groups are written and synced, checkpoints taken, failures met.

use crate::deployment::Deployment;
use crate::faults::{Feature, exponential};
use crate::process::{End, Life, LogFailed};
use crate::trace::kind;
use crate::world::{Event, LAZY_SYNC, World};
use protocol::{Durability, SpoolRequest};
use types::Incarnation;

/// The share of chunks that a spool loses, in percent, half of them before they are stored.
const CHUNKS_LOST: u32 = 4;
/// How long a spool takes to tell a chunk, in microseconds, at most.
const CHUNK_DELAY: u64 = 3_000;
/// Between two pieces of a checkpoint, in microseconds, at most; and of one that lasts long.
const PAUSE: u64 = 2_000;
const LONG_PAUSE: u64 = 50_000;

impl<D: Deployment> World<D> {
    /// Stores what replicas have spilled, and delivers the chunks that they fetch.
    pub fn spool(&mut self, index: usize) {
        let now = self.now;
        let process = &mut self.processes[index];
        let Some(life) = &mut process.life else { return };
        let (noise, mut answers) = (&mut process.spool_noise, Vec::new());
        for (replica, spool) in life.spools.iter_mut().enumerate() {
            for request in life.replicas[replica].spool_requests() {
                if let SpoolRequest::Forget { through } = request {
                    spool.retain(|chunk, _| *chunk > through);
                    continue;
                }
                let lost = self.faults && noise.u32(..100) < CHUNKS_LOST / 2;
                let chunk = match request {
                    SpoolRequest::Spill { chunk, bytes } if !lost => {
                        self.trace.note(now, kind::SPOOL, &bytes, || {
                            format!(
                                "p{index} instance {replica} spills chunk {chunk} of {} bytes",
                                bytes.len()
                            )
                        });
                        spool.insert(chunk, bytes);
                        continue;
                    }
                    SpoolRequest::Spill { chunk, .. } | SpoolRequest::Fetch { chunk } => chunk,
                    SpoolRequest::Forget { .. } => continue,
                };
                answers.push((noise.u64(1..CHUNK_DELAY), replica, chunk, lost));
            }
        }
        let incarnation = life.incarnation;
        for (delay, replica, chunk, lost) in answers {
            self.after(delay, Event::Spooled { process: index, incarnation, replica, chunk, lost });
        }
    }

    pub fn on_spooled(&mut self, index: usize, replica: usize, chunk: u64, lost: bool) {
        let spool = self.processes[index].life.as_ref().and_then(|life| life.spools.get(replica));
        let bytes = spool.and_then(|spool| spool.get(&chunk)).filter(|_| !lost).cloned();
        self.trace.note(self.now, kind::SPOOL, &chunk.to_le_bytes(), || {
            let what = if bytes.is_some() { "is told" } else { "has lost" };
            format!("p{index} instance {replica} {what} chunk {chunk}")
        });
        self.step(index, replica, |instance, now, _, sink| {
            instance.spooled(now, chunk, bytes.as_deref(), sink);
        });
    }

    pub fn on_write_out(&mut self, index: usize, incarnation: Incarnation) {
        if !self.lives(index, incarnation) {
            return;
        }
        let Some(life) = &mut self.processes[index].life else { return };
        if life.log.is_suspended() {
            // Nothing is open.
            return;
        }
        match life.write_out(self.mutants) {
            Err(failed) => return self.log_failed(index, failed),
            Ok(true) => {}
            Ok(false) => {
                self.trace.note(self.now, kind::FAULT, &[], || format!("p{index} suspends its log"));
                let delay = self.processes[index].noise.u64(1_000..300_000);
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
        let healed = match self.processes[index].life.as_mut().map_or(Ok(true), Life::retry) {
            Ok(healed) => healed,
            Err(failed) => return self.log_failed(index, failed),
        };
        if let Some(written) = self.processes[index].life.as_ref().map(|life| life.log.written().0)
            && healed
        {
            // What was refused is gone now, whatever happens.
            self.processes[index].unlogged.retain(|served| served.group <= written);
        }
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
                let process = &mut self.processes[index];
                // A slow process has a slow disk: a thousand times what a step takes.
                let delay = exponential(&mut process.noise, self.swarm.sync + 10 * process.slow_by);
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
        if begin {
            self.on_write_out(index, incarnation);
        }
        let Some(life) = &mut self.processes[index].life else { return };
        let progress = match begin {
            true => life.begin_checkpoint().map(|()| true),
            false => life.continue_checkpoint(),
        };
        let pieces = match progress {
            Ok(more) => more,
            Err(failed) => {
                life.drop_checkpoint();
                self.trace.note(self.now, kind::CHECKPOINT, &[1], || format!("p{index}: {}", failed.0));
                false
            }
        };
        let noise = &mut self.processes[index].noise;
        let pause = if self.swarm.has(Feature::LongCheckpoints) { LONG_PAUSE } else { PAUSE };
        let delay = match pieces {
            true => noise.u64(0..pause),
            false => exponential(noise, self.swarm.checkpoint_interval),
        };
        if !pieces {
            self.trace.note(self.now, kind::CHECKPOINT, &[], || format!("p{index} ended a checkpoint"));
        }
        self.after(delay, Event::Checkpoint { process: index, incarnation, begin: !pieces });
        self.begin_sync(index);
        self.release(index);
    }

    /// A process whose log failed ends, and starts again.
    pub fn log_failed(&mut self, index: usize, failed: LogFailed) {
        self.trace.note(self.now, kind::FAULT, &[index as u8], || format!("p{index} ends: {}", failed.0));
        let loses = self.setting.durability < Durability::Synced;
        // What a failed sync left in the kernel is as good as lost, or is not.
        self.end(index, if loses { End::Killed } else { End::PowerCut });
        self.after(100_000, Event::Restart { process: index });
    }
}
