//! Draws the faults of a seed: what happens when, and to whom.

use crate::damage::{Damage, Repair};
use crate::deployment::Host;
use crate::faults::{Feature, Swarm, exponential};
use crate::script::{Fault, Link, TimedFault};
use types::{PartitionId, Rng};

/// How long a process stays dead at most, in microseconds.
const DEAD: u64 = 2_000_000;
/// How long a link stays cut or slow at most.
const CUT: u64 = 3_000_000;
/// How long a process stands still at most.
const PAUSE: u64 = 1_500_000;
/// How far a clock jumps at most.
const JUMP: i64 = 2_000_000;
/// How far at most where clocks leap.
const LEAP: i64 = 4 * 3_600_000_000;
/// How long a long outage lasts at most.
const LONG: u64 = 120_000_000;
/// How long after one process of a lost region the next one is lost at most.
const LOSS_INTERVAL: u64 = 200_000;
/// How long it takes at most until an operator gives a lost region up.
const EVICTED: u64 = 2_000_000;
/// How long before its loss a region begins to fade at most.
const FADING: u64 = 500_000;
/// How long before that what it has to do with others begins to take long.
const TIRING: u64 = 500_000;
/// How much longer a message takes then at most.
const TIRED: u64 = 300_000;
/// How long it takes at most until an operator accepts that too many replicas are lost.
const ACCEPTED: u64 = 1_000_000;
/// How many of a transaction's events are the first ones.
const EARLY: u32 = 12;
/// After how many reads of a start a disk fails at most.
const READS: u32 = 12;
/// How long a process is cut off at most that sleeps through a view.
const ASLEEP: u64 = 700_000;
/// How long a restart takes at most that begins a view.
const RESTART: u64 = 80_000;
/// How long a step of a slow process takes at most.
const SLOW_STEP: u64 = 4_000;

/// The faults of a seed, in order of time.
pub(crate) fn draw(random: &mut Rng, swarm: &Swarm, hosts: &[Host], traffic: u64) -> Vec<TimedFault> {
    let mut faults = Vec::new();
    if swarm.fault_interval == 0 {
        return faults;
    }
    let is_drawn = |feature: &Feature| feature.is_fault() && !feature.is_of_disks();
    let kinds: Vec<Feature> = swarm.features.iter().copied().filter(is_drawn).collect();
    let longest = longest(swarm, hosts);
    let mut at = exponential(random, swarm.fault_interval);
    while at < traffic {
        if let Some(feature) = random.choice(&kinds) {
            one(*feature, (at, longest), random, hosts, &mut faults);
        }
        at += 1 + exponential(random, swarm.fault_interval);
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// What happens to disks, in order of time: a few times in a run.
pub(crate) fn of_disks(random: &mut Rng, swarm: &Swarm, hosts: &[Host], traffic: u64) -> Vec<TimedFault> {
    let mut faults = Vec::new();
    for feature in swarm.features.iter().copied().filter(|feature| feature.is_of_disks()) {
        for _ in 0..random.u32(1..4) {
            let (at, process) = (random.u64(traffic / 16..traffic), random.u16(..hosts.len() as u16));
            let down = random.u64(1_000..DEAD / 2);
            if feature == Feature::OlderDisks {
                let at = random.u64(..at);
                faults.push(TimedFault { at, fault: Fault::CopyDisk { process } });
            }
            faults.push(TimedFault { at, fault: of_disk(feature, process, down, random) });
        }
    }
    faults
}

fn of_disk(feature: Feature, process: u16, down: u64, random: &mut Rng) -> Fault {
    let damage = match feature {
        Feature::BlackOuts => return Fault::BlackOut { down, interval: random.u64(..RESTART) },
        Feature::OlderDisks => return Fault::OlderDisk { process, down },
        Feature::FlippedBits => Damage::Bit,
        Feature::ZeroedTails => Damage::Tail,
        _ if random.bool() => Damage::Segment,
        _ => Damage::Exchange,
    };
    let repair = [Repair::Restore, Repair::Empty, Repair::Accept][random.usize(..3)];
    Fault::Damage { process, damage, repair, seed: random.u64(..), down }
}

/// How many events the longest transaction takes at its coordinator: a request and an answer for every step, two requests
/// more, and of every replica a vote, a confirmation, and that it has executed.
fn longest(swarm: &Swarm, hosts: &[Host]) -> u32 {
    let replicas: usize = hosts.iter().map(|host| host.partitions.len()).sum();
    (2 * swarm.longest + 2 + 3 * replicas) as u32
}

/// After how many events a coordinator dies: most often one of the first, else any up to the last.
fn step_of_death(at: u64, longest: u32, random: &mut Rng) -> u32 {
    match random.u32(..16) {
        // Of a stream of its own, so that all else in a seed is as it was when there were no later ones.
        EARLY.. if longest > EARLY => Rng::with_seed(at).u32(EARLY..longest),
        step => step,
    }
}

/// The fault, or faults, that a feature brings at a time, where transactions take so many events at most.
fn one(
    feature: Feature,
    (at, longest): (u64, u32),
    random: &mut Rng,
    hosts: &[Host],
    faults: &mut Vec<TimedFault>,
) {
    let process = random.u16(..hosts.len() as u16);
    let down = random.u64(10_000..DEAD);
    let lasts = random.u64(100_000..CUT);
    let fault = match feature {
        Feature::Kills => Fault::Kill { process, down },
        Feature::PowerCuts => Fault::PowerCut { process, down, after_write: random.bool() },
        Feature::LostDisks => Fault::LoseDisk { process, down },
        Feature::CoordinatorDeaths => {
            let process = coordinator(random, hosts).unwrap_or(process);
            Fault::CoordinatorDeath { process, events: step_of_death(at, longest, random), down }
        }
        Feature::LastReplies => {
            let process = coordinator(random, hosts).unwrap_or(process);
            Fault::LastReply { process, down }
        }
        Feature::Partitions => Fault::Cut { links: links(random, hosts.len() as u16), lasts },
        Feature::Flaps => {
            let links = links(random, hosts.len() as u16);
            let period = random.u64(20_000..300_000);
            let flap = |round: u64| Fault::Cut { links: links.clone(), lasts: period / 2 + round };
            let flaps = (0..random.u64(2..12)).map(|round| (at + round * period, flap(round)));
            faults.extend(flaps.map(|(at, fault)| TimedFault { at, fault }));
            return;
        }
        Feature::LossyLinks => {
            let links = links(random, hosts.len() as u16);
            Fault::LossyLinks { links, share: random.u32(300..950), lasts }
        }
        Feature::ReadErrors => Fault::ReadError { process, reads: random.u32(..READS), down },
        Feature::CrashLoops => return crash_loop(at, random, hosts, faults),
        Feature::SleepingReplicas => return sleeping_replica(at, random, hosts, faults),
        Feature::SlowLinks => {
            let links = links(random, hosts.len() as u16);
            Fault::SlowLinks { links, by: random.u64(1_000..400_000), lasts }
        }
        Feature::Pauses => Fault::Pause { process, lasts: random.u64(..PAUSE) },
        Feature::SlowProcesses => Fault::Slow { process, step: random.u64(100..SLOW_STEP), lasts },
        Feature::WriteErrors => Fault::WriteError { process, bytes: random.usize(..600) },
        Feature::SyncErrors => Fault::SyncError { process },
        Feature::FullDisks => Fault::FullDisk { process, room: random.u64(..40_000), lasts },
        Feature::ClockJumps => Fault::ClockJump { process, by: random.i64(-JUMP..JUMP) },
        Feature::ClockLeaps => Fault::ClockJump { process, by: random.i64(-LEAP..LEAP) },
        Feature::OneClockLeaps => return one_clock_leaps((at, lasts), random, process, faults),
        Feature::LongOutages if random.bool() => Fault::Kill { process, down: random.u64(LONG / 2..LONG) },
        Feature::LongOutages => {
            Fault::Cut { links: links(random, hosts.len() as u16), lasts: random.u64(LONG / 2..LONG) }
        }
        Feature::Eviction => {
            let regions: Vec<u16> = hosts.iter().map(|host| host.region.0).collect();
            let region = random.choice(&regions).copied().unwrap_or_default();
            let lost = |fault: &TimedFault| matches!(fault.fault, Fault::LoseRegion { .. });
            if faults.iter().any(lost) {
                return;
            }
            Fault::LoseRegion { region, interval: random.u64(..LOSS_INTERVAL), after: random.u64(..EVICTED) }
        }
        Feature::Reconfiguration => match reconfiguration(random, hosts) {
            Some(fault) => fault,
            None => return,
        },
        _ => return,
    };
    faults.push(TimedFault { at, fault });
}

/// A clock leaps and is set right again, unless another one is wrong meanwhile.
fn one_clock_leaps((at, lasts): (u64, u64), random: &mut Rng, process: u16, faults: &mut Vec<TimedFault>) {
    let by = random.i64(-LEAP..LEAP);
    let is_later = |fault: &TimedFault| {
        fault.at >= at && matches!(fault.fault, Fault::ClockJump { by, .. } if by.abs() > JUMP)
    };
    if faults.iter().any(is_later) {
        return;
    }
    faults.push(TimedFault { at, fault: Fault::ClockJump { process, by } });
    faults.push(TimedFault { at: at + lasts, fault: Fault::ClockJump { process, by: -by } });
}

/// A process with replicas, and perhaps a gateway with it, is cut off for a moment. Another process restarts meanwhile, so
/// that a view begins without the first one, and another about when it is back.
fn sleeping_replica(at: u64, random: &mut Rng, hosts: &[Host], faults: &mut Vec<TimedFault>) {
    let storing: Vec<u16> =
        hosts.iter().filter(|host| !host.partitions.is_empty()).map(|host| host.process.0).collect();
    let Some(asleep) = random.choice(&storing).copied() else { return };
    let mut isolated = vec![asleep];
    if random.bool() {
        isolated.extend(coordinator(random, hosts));
    }
    let lasts = random.u64(20_000..ASLEEP);
    let others = || hosts.iter().map(|host| host.process.0).filter(|process| !isolated.contains(process));
    let links =
        isolated.iter().flat_map(|end| others().flat_map(|other| [(*end, other), (other, *end)])).collect();
    faults.push(TimedFault { at, fault: Fault::Cut { links, lasts } });
    for from in [at, (at + lasts).saturating_sub(RESTART)] {
        let Some(process) = random.choice(&storing).copied() else { return };
        let fault = Fault::Kill { process, down: random.u64(1_000..RESTART) };
        faults.push(TimedFault { at: from + random.u64(..2 * RESTART), fault });
    }
}

/// Some processes with replicas restart again and again for a while.
fn crash_loop(at: u64, random: &mut Rng, hosts: &[Host], faults: &mut Vec<TimedFault>) {
    let storing: Vec<u16> =
        hosts.iter().filter(|host| !host.partitions.is_empty()).map(|host| host.process.0).collect();
    let interval = random.u64(10_000..2 * RESTART);
    for round in 0..random.u64(4..20) {
        let Some(process) = random.choice(&storing).copied() else { return };
        let fault = Fault::Kill { process, down: random.u64(1_000..2 * interval) };
        faults.push(TimedFault { at: at + round * interval, fault });
    }
}

/// A partition that has somewhere to go moves to three or five processes of those that may have it.
fn reconfiguration(random: &mut Rng, hosts: &[Host]) -> Option<Fault> {
    let partitions: Vec<PartitionId> = hosts.iter().flat_map(|host| host.partitions.clone()).collect();
    let partition = *random.choice(&partitions)?;
    let mut to: Vec<u16> =
        hosts.iter().filter(|host| host.partitions.contains(&partition)).map(|host| host.process.0).collect();
    random.shuffle(&mut to);
    let most = if random.u32(..3) == 0 { 5 } else { 3 };
    to.truncate(if to.len() >= most { most } else { 3 });
    let gateways: Vec<u16> = hosts.iter().filter(|host| host.gateway).map(|host| host.process.0).collect();
    let process = *random.choice(&gateways)?;
    (to.len() % 2 == 1).then_some(Fault::Reconfigure { process, partition: partition.0, to })
}

/// More of the replicas of a partition than it survives are lost for good, but not all; then an operator accepts that.
pub(crate) fn loss(random: &mut Rng, hosts: &[Host], traffic: u64) -> Option<TimedFault> {
    let partitions: Vec<PartitionId> = hosts.iter().flat_map(|host| host.partitions.clone()).collect();
    let partition = *random.choice(&partitions)?;
    let members = hosts.iter().filter(|host| host.partitions.contains(&partition));
    let mut lost: Vec<u16> = members.map(|host| host.process.0).collect();
    let (most, all) = (lost.len().saturating_sub(1) / 2, lost.len());
    if all < 2 {
        return None;
    }
    random.shuffle(&mut lost);
    lost.truncate(random.usize(most + 1..all));
    let fault = Fault::LoseMajority { lost, after: random.u64(10_000..ACCEPTED) };
    Some(TimedFault { at: random.u64(traffic / 8..traffic * 3 / 4), fault })
}

/// A region is lost for good, and before that some hear nothing of it any more: either what its replicas tell the others of
/// their partitions, or what it tells everybody who has none of these. Before that, messages between it and the latter take
/// long.
pub(crate) fn fading(random: &mut Rng, hosts: &[Host], traffic: u64) -> Vec<TimedFault> {
    let Some(region) = random.choice(hosts).map(|host| host.region) else { return Vec::new() };
    let (at, before) = (random.u64(traffic / 8..traffic * 3 / 4), random.u64(..FADING));
    let of_peers = random.bool();
    let is_peer =
        |one: &Host, other: &Host| one.partitions.iter().any(|held| other.partitions.contains(held));
    let (lost, left): (Vec<&Host>, Vec<&Host>) = hosts.iter().partition(|host| host.region == region);
    let ends = || lost.iter().flat_map(|from| left.iter().map(move |to| (*from, *to)));
    let link = |(from, to): (&Host, &Host)| (from.process.0, to.process.0);
    let cut = ends().filter(|(from, to)| is_peer(from, to) == of_peers).map(link);
    let links: Vec<Link> = cut.filter(|_| random.u32(..8) > 0).collect();
    let cut = Fault::Cut { links, lasts: before + CUT };
    let slow = ends().filter(|(from, to)| !is_peer(from, to)).map(link);
    let links: Vec<Link> = slow.flat_map(|(from, to)| [(from, to), (to, from)]).collect();
    let slow = Fault::SlowLinks { links, by: random.u64(..TIRED), lasts: TIRING + before + CUT };
    let lost = Fault::LoseRegion {
        region: region.0,
        interval: random.u64(..LOSS_INTERVAL),
        after: random.u64(..EVICTED),
    };
    let faults = [(at - before - TIRING, slow), (at - before, cut), (at, lost)];
    faults.map(|(at, fault)| TimedFault { at, fault }).into()
}

/// A gateway, and rather one that shares its process with no replica.
fn coordinator(random: &mut Rng, hosts: &[Host]) -> Option<u16> {
    let gateways: Vec<&Host> = hosts.iter().filter(|host| host.gateway).collect();
    let alone: Vec<&Host> = gateways.iter().copied().filter(|host| host.partitions.is_empty()).collect();
    let choice = if alone.is_empty() || random.u32(..4) == 0 { gateways } else { alone };
    random.choice(choice).map(|host| host.process.0)
}

/// One process to or from some others, or all links between two halves, in one direction or both.
fn links(random: &mut Rng, count: u16) -> Vec<Link> {
    let side: Vec<bool> = match random.bool() {
        true => (0..count).map(|_| random.bool()).collect(),
        false => {
            let alone = random.u16(..count);
            (0..count).map(|index| index == alone).collect()
        }
    };
    let (both, inward, share) = (random.bool(), random.bool(), if random.bool() { 1.0 } else { 0.5 });
    let mut links = Vec::new();
    for a in (0..count).filter(|index| side[usize::from(*index)]) {
        for b in (0..count).filter(|index| !side[usize::from(*index)]) {
            if random.f64() >= share {
                continue;
            }
            if both || inward {
                links.push((b, a));
            }
            if both || !inward {
                links.push((a, b));
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::{Deployment, Layout};
    use crate::deployments::TapirDeployment;
    use std::collections::BTreeSet;

    #[test]
    fn coordinators_die_at_every_step_of_the_longest_transactions() {
        let layout = Layout { regions: 1, partitions: 3, replicas: 5, gateways: 1, ..Layout::default() };
        let hosts = TapirDeployment::default().hosts(layout);
        let mut random = Rng::with_seed(5);
        let mut swarm = Swarm::draw(&mut random, &BTreeSet::new());
        (swarm.longest, swarm.fault_interval) = (7, 1_000);
        swarm.features = BTreeSet::from([Feature::CoordinatorDeaths]);
        let faults = draw(&mut random, &swarm, &hosts, 8_000_000);
        let step = |fault: TimedFault| match fault.fault {
            Fault::CoordinatorDeath { events, .. } => Some(events),
            _ => None,
        };
        let steps: BTreeSet<u32> = faults.into_iter().filter_map(step).collect();
        assert_eq!(steps, (0..2 * 7 + 2 + 3 * 15).collect());
    }

    #[test]
    fn one_clock_at_a_time_is_wrong() {
        let layout = Layout { regions: 1, partitions: 1, replicas: 3, gateways: 1, ..Layout::default() };
        let hosts = TapirDeployment::default().hosts(layout);
        let mut random = Rng::with_seed(5);
        let mut swarm = Swarm::draw(&mut random, &BTreeSet::new());
        swarm.fault_interval = 100_000;
        swarm.features = BTreeSet::from([Feature::OneClockLeaps]);
        let faults = draw(&mut random, &swarm, &hosts, 60_000_000);
        assert!(faults.len() > 20, "{faults:?}");
        for pair in faults.chunks(2) {
            let [Fault::ClockJump { process, by }, Fault::ClockJump { process: same, by: back }] =
                [&pair[0].fault, &pair[1].fault]
            else {
                panic!("{pair:?}")
            };
            assert_eq!((process, *by), (same, -back));
        }
    }
}
