//! Faults between events: processes die, stand still and lose power, links fail, clocks jump.

use crate::deployment::Deployment;
use crate::faults::exponential;
use crate::trace::kind;
use crate::world::{Event, World};
use types::ProcessId;

/// How long a process stays dead at most, in microseconds.
const DEAD: u64 = 2_000_000;
/// How long a link stays cut at most.
const CUT: u64 = 3_000_000;
/// How long a process stands still at most.
const PAUSE: u64 = 1_500_000;
/// How far a clock jumps at most.
const JUMP: i64 = 2_000_000;

#[derive(Clone, Copy)]
enum Fault {
    Kill,
    PowerCut,
    Partition,
    Pause,
    DiskError,
    Jump,
}

impl<D: Deployment> World<D> {
    /// Schedules the first fault, if there are to be any.
    pub(crate) fn begin_faults(&mut self) {
        if self.swarm.fault_interval > 0 {
            let delay = exponential(&mut self.random, self.swarm.fault_interval);
            self.after(delay, Event::Fault);
        }
    }

    pub(crate) fn on_fault(&mut self) {
        if !self.faults {
            return;
        }
        let swarm = &self.swarm;
        let kinds = [
            (swarm.kills, Fault::Kill),
            (swarm.power_cuts, Fault::PowerCut),
            (swarm.partitions, Fault::Partition),
            (swarm.pauses, Fault::Pause),
            (swarm.disk_errors, Fault::DiskError),
            (swarm.clock_jumps, Fault::Jump),
        ];
        let kinds: Vec<Fault> = kinds.into_iter().filter(|(on, _)| *on).map(|(_, fault)| fault).collect();
        if let Some(fault) = self.random.choice(kinds) {
            let process = self.random.usize(..self.processes.len());
            match fault {
                Fault::Kill => self.strike(process, false),
                Fault::PowerCut if self.random.bool() => self.strike(process, true),
                Fault::PowerCut => self.processes[process].doomed = true,
                Fault::Partition => self.partition(),
                Fault::Pause => {
                    let until = self.now + self.random.u64(..PAUSE);
                    self.note(&format!("p{process} stands still until {until} us"));
                    self.processes[process].paused_until = until;
                }
                Fault::DiskError => {
                    let bytes = self.random.usize(..600);
                    self.note(&format!("the next write of p{process} fails after {bytes} bytes"));
                    self.processes[process].disk.fail_next_write(bytes);
                }
                Fault::Jump => {
                    let jump = self.random.i64(-JUMP..JUMP);
                    self.note(&format!("the clock of p{process} jumps by {jump} us"));
                    self.processes[process].clock_offset += jump;
                }
            }
        }
        self.begin_faults();
    }

    fn note(&mut self, text: &str) {
        self.trace.note(self.now, kind::FAULT, text.as_bytes(), || text.to_owned());
    }

    /// Cuts the power of a process that was doomed, now that it has written what is not synced.
    pub(crate) fn strike_if_doomed(&mut self, process: usize) {
        if std::mem::take(&mut self.processes[process].doomed) && self.faults {
            self.strike(process, true);
        }
    }

    /// Kills a process, or cuts its power; it starts again after a while.
    fn strike(&mut self, process: usize, power_cut: bool) {
        if self.processes[process].life.is_some() {
            self.note(&format!("p{process} {}", if power_cut { "loses power" } else { "is killed" }));
            self.end(process, power_cut);
            let delay = self.random.u64(10_000..DEAD);
            self.after(delay, Event::Restart { process });
        }
    }

    /// Ends a process's life; its clients find their connections closed.
    pub(crate) fn end(&mut self, process: usize, power_cut: bool) {
        self.processes[process].end(power_cut);
        self.processes[process].paused_until = 0;
        self.disconnect(process);
    }

    /// Cuts one process off from some others, or all links between two halves, in one direction or both.
    fn partition(&mut self) {
        let count = self.processes.len();
        let side: Vec<bool> = match self.random.bool() {
            true => (0..count).map(|_| self.random.bool()).collect(),
            false => {
                let alone = self.random.usize(..count);
                (0..count).map(|index| index == alone).collect()
            }
        };
        let both = self.random.bool();
        let id = |index: usize| ProcessId(index as u16);
        let mut links: Vec<(ProcessId, ProcessId)> = Vec::new();
        for a in (0..count).filter(|index| side[*index]) {
            for b in (0..count).filter(|index| !side[*index]) {
                links.push((id(a), id(b)));
                if both {
                    links.push((id(b), id(a)));
                }
            }
        }
        links.iter().for_each(|(from, to)| self.network.cut(*from, *to));
        let text: Vec<String> = links.iter().map(|(from, to)| format!("p{from}-p{to}")).collect();
        self.note(&format!("cut: {}", text.join(" ")));
        let delay = self.random.u64(100_000..CUT);
        self.after(delay, Event::Join { links });
    }

    /// Ends all faults: links are whole, every process lives and moves, clocks jump no more.
    pub(crate) fn heal(&mut self) {
        self.note("everything is healed");
        self.faults = false;
        self.network.heal();
        for process in 0..self.processes.len() {
            self.processes[process].paused_until = 0;
            self.start(process);
        }
    }
}
