//! Performs the faults of a script: processes die, stand still and lose power or disks, links fail, clocks jump.

use crate::deployment::Deployment;
use crate::faults::Feature;
use crate::process::End;
use crate::script::{Fault, Link, TimedFault};
use crate::trace::kind;
use crate::world::{Event, World};
use protocol::{Packet, Replica};
use std::collections::BTreeSet;
use types::{PartitionId, ProcessId, RegionId, Timestamp};

/// How often processes look whether their instances know of an eviction.
const EVICTED_AGAIN: u64 = 100_000;

impl<D: Deployment> World<D> {
    /// Schedules the faults of a script.
    pub(crate) fn schedule_faults(&mut self, faults: &[TimedFault]) {
        for TimedFault { at, fault } in faults {
            self.after(*at, Event::Fault(fault.clone()));
        }
    }

    pub(crate) fn on_fault(&mut self, fault: Fault) {
        if !self.faults || self.target(&fault).is_some_and(|process| process >= self.processes.len()) {
            return;
        }
        match fault {
            Fault::Kill { process, down } => self.strike(process.into(), End::Killed, down),
            Fault::LoseDisk { process, down } => self.strike(process.into(), End::DiskLost, down),
            Fault::PowerCut { process, down, after_write: false } => {
                self.strike(process.into(), End::PowerCut, down);
            }
            Fault::PowerCut { process, down, after_write: true } => {
                self.processes[usize::from(process)].doomed = Some(down);
            }
            Fault::CoordinatorDeath { process, events, down } => {
                let process = &mut self.processes[usize::from(process)];
                (process.condemned, process.counting) = (Some((events, down)), false);
            }
            Fault::LastReply { process, down } => {
                self.processes[usize::from(process)].last_reply = Some(down);
            }
            Fault::Cut { links, lasts } => {
                self.note(&format!("cut for {lasts} us: {}", listed(&links)));
                links.iter().for_each(|link| self.network.cut(*link));
                self.after(lasts, Event::Join { links });
            }
            Fault::SlowLinks { links, by, lasts } => {
                self.note(&format!("slower by {by} us for {lasts} us: {}", listed(&links)));
                links.iter().for_each(|link| self.network.slow_down(*link, by as i64));
                self.after(lasts, Event::Relieve { links, by });
            }
            Fault::LossyLinks { links, share, lasts } => self.lose_packets(links, share, lasts),
            Fault::Pause { process, lasts } => {
                self.note(&format!("p{process} stands still for {lasts} us"));
                self.processes[usize::from(process)].paused_until = self.now + lasts;
            }
            Fault::Slow { process, step, lasts } => {
                self.note(&format!("p{process} takes {step} us for a step, for {lasts} us"));
                let process = usize::from(process);
                self.processes[process].slow_by += step;
                self.after(lasts, Event::Recover { process, step });
            }
            Fault::WriteError { process, bytes } => {
                self.note(&format!("the next write of p{process} fails after {bytes} bytes"));
                self.processes[usize::from(process)].disk.fail_next_write(bytes);
            }
            Fault::SyncError { process } => {
                self.note(&format!("the next sync of p{process} fails"));
                self.processes[usize::from(process)].disk.fail_next_sync();
            }
            Fault::ReadError { process, reads, down } => {
                self.strike(process.into(), End::Killed, down);
                self.note(&format!("p{process} cannot read its disk at its next start, after {reads} reads"));
                self.processes[usize::from(process)].disk.fail_read(reads);
            }
            Fault::FullDisk { process, room, lasts } => {
                self.note(&format!("p{process} has {room} bytes of disk left, for {lasts} us"));
                let process = usize::from(process);
                let disk = &self.processes[process].disk;
                disk.set_capacity(Some(disk.used() + room));
                self.after(lasts, Event::Empty { process });
            }
            Fault::ClockJump { process, by } => {
                self.note(&format!("the clock of p{process} jumps by {by} us"));
                self.processes[usize::from(process)].jump(by);
            }
            Fault::Reconfigure { process, partition, to } => self.reconfigure(process.into(), partition, &to),
            Fault::LoseRegion { region, interval, after } => {
                self.lose_region(RegionId(region), interval, after)
            }
            Fault::LoseMajority { lost, after } => self.lose_processes(&lost, after),
            Fault::Damage { process, damage, repair, seed, down } => {
                self.damage(process.into(), damage, (repair, seed), down);
            }
            Fault::CopyDisk { process } => self.copy_disk(process.into()),
            Fault::OlderDisk { process, down } => self.age(process.into(), down),
            Fault::BlackOut { down, interval } => self.black_out(down, interval),
        }
    }

    /// Lets links lose so many of a thousand packets more for a while.
    fn lose_packets(&mut self, links: Vec<Link>, share: u32, lasts: u64) {
        self.note(&format!("lose {share} of 1000 packets for {lasts} us: {}", listed(&links)));
        links.iter().for_each(|link| self.network.lose(*link, i64::from(share)));
        self.after(lasts, Event::Repair { links, share });
    }

    fn target(&self, fault: &Fault) -> Option<usize> {
        match fault {
            Fault::Cut { .. }
            | Fault::SlowLinks { .. }
            | Fault::LossyLinks { .. }
            | Fault::LoseRegion { .. }
            | Fault::BlackOut { .. }
            | Fault::LoseMajority { .. } => None,
            Fault::Kill { process, .. }
            | Fault::PowerCut { process, .. }
            | Fault::LoseDisk { process, .. }
            | Fault::CoordinatorDeath { process, .. }
            | Fault::LastReply { process, .. }
            | Fault::Pause { process, .. }
            | Fault::Slow { process, .. }
            | Fault::WriteError { process, .. }
            | Fault::SyncError { process }
            | Fault::ReadError { process, .. }
            | Fault::FullDisk { process, .. }
            | Fault::ClockJump { process, .. }
            | Fault::Damage { process, .. }
            | Fault::CopyDisk { process }
            | Fault::OlderDisk { process, .. }
            | Fault::Reconfigure { process, .. } => Some(usize::from(*process)),
        }
    }

    /// An operator speaks to the coordinator of a gateway, if that lives.
    fn reconfigure(&mut self, process: usize, partition: u16, to: &[u16]) {
        let processes: Vec<ProcessId> = to.iter().map(|process| ProcessId(*process)).collect();
        let Some(message) = self.deployment.move_to(PartitionId(partition), &processes) else { return };
        let Some(life) = &self.processes[process].life else { return };
        let coordinator = |replica: &Replica<D::Protocol>| replica.node().slot.partition.is_none();
        let Some(index) = life.replicas.iter().position(coordinator) else { return };
        let from = life.replicas[index].node();
        self.note(&format!("at p{process} partition {partition} is to move to {to:?}"));
        self.step(process, index, |replica, now, random, sink| {
            // What a process says to itself is well formed.
            let _ = replica.receive(now, from, Packet::Datagram(message), random, sink);
        });
    }

    /// A region is lost, process by process; one other stays at least.
    fn lose_region(&mut self, region: RegionId, interval: u64, after: u64) {
        let lacks = self.deployment.lacks().contains(&Feature::Eviction);
        let is_alone = self.processes.iter().all(|process| process.host.region == region);
        if lacks || is_alone || self.lost_region.is_some() {
            return;
        }
        self.note(&format!("region {region} is lost"));
        self.lost_region = Some(region);
        let is_in = |index: &usize| self.processes[*index].host.region == region;
        let lost: Vec<usize> = (0..self.processes.len()).filter(is_in).collect();
        for (place, process) in lost.iter().enumerate() {
            self.after(place as u64 * interval, Event::Lose { process: *process });
        }
        self.after(lost.len() as u64 * interval + after, Event::Evict { region });
    }

    /// A process is gone for good.
    pub(crate) fn on_lose(&mut self, process: usize) {
        self.note(&format!("p{process} is gone for good"));
        self.processes[process].is_gone = true;
        self.end(process, End::DiskLost);
    }

    /// An operator has said that a region is gone, which the cluster keeps: processes tell their instances, also those that a
    /// power cut made forget it.
    pub(crate) fn on_evict(&mut self, region: RegionId) {
        for index in 0..self.processes.len() {
            let replicas = self.processes[index].life.as_ref().map_or(0, |life| life.replicas.len());
            for place in 0..replicas {
                let Some(life) = &self.processes[index].life else { break };
                let (node, instance) = (life.replicas[place].node(), life.replicas[place].protocol());
                let is_news = node.slot.partition.is_some() && !self.deployment.has_heard(instance, region);
                let Some(message) = self.deployment.evict(region, instance).filter(|_| is_news) else {
                    continue;
                };
                self.step(index, place, |replica, now, random, sink| {
                    // What a process says to itself is well formed.
                    let _ = replica.receive(now, node, Packet::Datagram(message), random, sink);
                });
            }
        }
        self.after(EVICTED_AGAIN, Event::Evict { region });
    }

    /// The cuts of a lost region that replicas know; one and the same when all have agreed. Who learns its state from others at
    /// the moment knows nothing.
    fn cuts(&self, region: RegionId) -> BTreeSet<(Option<PartitionId>, Option<Timestamp>)> {
        let lives = self.processes.iter().filter_map(|process| process.life.as_ref());
        let replicas = lives.flat_map(|life| &life.replicas).filter(|r| r.node().slot.partition.is_some());
        let sound = replicas.filter(|replica| !self.deployment.is_recovering(replica.protocol()));
        let of = |replica: &Replica<D::Protocol>| {
            let partition = replica.node().slot.partition.filter(|_| self.deployment.cuts_per_partition());
            (partition, self.deployment.cut_of(replica.protocol(), region))
        };
        sound.map(of).collect()
    }

    /// True if all replicas know the cuts and mean the same.
    fn agree(&self, cuts: &BTreeSet<(Option<PartitionId>, Option<Timestamp>)>) -> bool {
        cuts.iter().all(|(_, cut)| cut.is_some()) && (cuts.len() == 1 || self.deployment.cuts_per_partition())
    }

    /// True unless something is lost for good and those that are left have not gone on, or agreed on a region's cut.
    pub(crate) fn has_agreed(&self) -> bool {
        self.has_gone_on() && self.lost_region.is_none_or(|region| self.agree(&self.cuts(region)))
    }

    /// What was committed in a lost region above the cut is given up, by all that are left alike.
    pub(crate) fn take_cut(&mut self) {
        let Some(region) = self.lost_region else { return };
        let cuts = self.cuts(region);
        if !self.agree(&cuts) {
            let message = format!("who is left has these cuts of region {region}: {cuts:?}");
            return self.recorder.no_progress(message);
        }
        let (seed, partitions) = (self.setting.hash_seed, self.setting.layout.partitions.max(1));
        let cut = |key: &[u8]| {
            let partition = PartitionId(seed.hash(key).share(partitions));
            let of = cuts.iter().filter(|(of, _)| of.is_none_or(|of| of == partition));
            of.filter_map(|(_, cut)| *cut).max().unwrap_or(Timestamp::MAX)
        };
        self.recorder.give_up(region, cut, &self.abandoned);
        if let (true, Some((_, Some(cut)))) = (self.deployment.gives_up_dependants(), cuts.first()) {
            self.recorder.give_up_dependants(region, *cut);
        }
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.trace.note(self.now, kind::FAULT, text.as_bytes(), || text.to_owned());
    }

    /// Cuts the power of a process that was doomed, now that it has written what is not synced.
    pub(crate) fn strike_if_doomed(&mut self, process: usize) {
        if let Some(down) = self.processes[process].doomed.take()
            && self.faults
        {
            self.strike(process, End::PowerCut, down);
        }
    }

    /// A condemned process has dealt with an event; after the last one it dies.
    pub(crate) fn count_down(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let Some((events, down)) = process.condemned.filter(|_| process.counting) else { return };
        process.condemned = Some((events.saturating_sub(1), down));
        if events == 0 && self.faults {
            self.strike(index, End::Killed, down);
        }
    }

    /// Ends a process's life; it starts again after a while. A loss that is more than its partitions must survive is
    /// left out.
    fn strike(&mut self, process: usize, how: End, down: u64) {
        let loses = how == End::DiskLost
            || how == End::PowerCut && self.setting.durability < protocol::Durability::Synced;
        if self.processes[process].life.is_none() || loses && !self.may_lose(process) {
            return;
        }
        let text = match how {
            End::Killed => "is killed",
            End::PowerCut => "loses power",
            End::DiskLost => "loses its disk",
        };
        self.note(&format!("p{process} {text}, for {down} us"));
        self.end(process, how);
        self.after(down, Event::Restart { process });
    }

    /// True if this process may lose what it acknowledged: fewer than f of the other replicas of each of its
    /// partitions have lost theirs and not learned it again.
    pub(crate) fn may_lose(&mut self, process: usize) -> bool {
        for other in 0..self.processes.len() {
            let Some(life) = &self.processes[other].life else { continue };
            let learns = life.replicas.iter().any(|r| self.deployment.is_recovering(r.protocol()));
            if !learns {
                self.processes[other].lost = false;
            }
        }
        // Where partitions move they may have three replicas, however many they began with.
        let least = if self.setting.layout.spares > 0 { 3 } else { self.setting.layout.replicas };
        let survives = usize::from(least.saturating_sub(1) / 2);
        let alone = self.setting.layout.replicas <= 1;
        self.processes[process].host.partitions.iter().all(|partition| {
            let lost = |other: &usize| {
                let other = &self.processes[*other];
                other.lost
                    && other.host.process != self.processes[process].host.process
                    && other.host.partitions.contains(partition)
            };
            alone || (0..self.processes.len()).filter(lost).count() < survives
        })
    }

    /// Ends a process's life; its clients find their connections closed.
    pub(crate) fn end(&mut self, process: usize, how: End) {
        if self.swarm.has(Feature::AcceptLoss) {
            // The world records what the process has sent before it dies.
            self.observe();
        }
        self.processes[process].end(how, self.setting.durability);
        self.disconnect(process);
    }

    /// Ends all faults: links are whole, every process lives and moves, disks have room, clocks jump no more.
    pub(crate) fn heal(&mut self) {
        self.note("everything is healed");
        self.faults = false;
        self.network.heal();
        if self.deployment.trusts_clocks() {
            // To the time of the one that was ahead of all others: none is to wait for what that one has stamped.
            let ahead = self.processes.iter().map(|process| process.furthest_ahead).max().unwrap_or_default();
            self.processes.iter_mut().for_each(|process| process.set_clock(ahead));
        }
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            process.disk.heal();
            (process.paused_until, process.busy_until, process.slow_by) = (0, 0, 0);
            self.start(index);
        }
    }
}

fn listed(links: &[Link]) -> String {
    let links: Vec<String> = links.iter().map(|(from, to)| format!("p{from}-p{to}")).collect();
    links.join(" ")
}
