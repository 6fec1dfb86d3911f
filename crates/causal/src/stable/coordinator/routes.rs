//! Where a coordinator finds the partitions: the replica that a region holds itself, else the nearest of the others,
//! and the next one while that is silent (PaRiS, section 5.3.3, and Algorithm 9, lines 11 and 22).
//!
//! Near is who answers soon. The coordinator asks each process with replicas of a partition that has several for the
//! stable times now and then, as a heartbeat. A process silent for longer than `suspect_after` counts as down until it
//! answers again. What is chosen for a partition stays chosen until it is silent, the own region's replica is back, or
//! another one is much nearer: what observes and writes is exclusive among those that go to one replica.
//!
//! A group of copies in a region (`replication::copies`) is one replica here, with one address, whichever of its processes leads.
//! Groups whose addresses name the same process may have different leaders, so the coordinator queries and suspects
//! each by itself.

use super::Coordinator;
use crate::stable::setup::Topology;
use crate::stable::{Node, Times};
use protocol::{Now, Outputs};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Address, Instant, ProcessId, RegionId, Slot};

/// How many queries a process gets until it counts as down.
const PROBES: u32 = 8;
/// How many times nearer another replica must be than the chosen one to take its place.
const MUCH_NEARER: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Routes {
    region: RegionId,
    /// By partition: the regions that hold it with their replicas; the own region's first, then in order of number.
    replicas: Vec<Vec<(RegionId, Address)>>,
    /// By partition: which of them it goes to.
    chosen: Vec<usize>,
    /// Processes to choose between; none where every partition has one replica only.
    processes: BTreeMap<Suspect, Process>,
    /// Replicas are groups of copies.
    copied: bool,
    next_probe: Instant,
    /// Replicas that are gone for good.
    lost: BTreeSet<Address>,
}

/// What answers or is silent as one: a process, or, with the slot, a group of copies.
type Suspect = (ProcessId, Option<Slot>);

/// A process with replicas, or a group of copies.
#[derive(Debug)]
struct Process {
    /// One of its replicas, for requests.
    replica: Address,
    /// Since when its requests are unanswered.
    queried_at: Option<Instant>,
    /// True if only one query is open: the answer measures the round trip.
    once: bool,
    /// How long the way there and back takes; `MAX` until that is known.
    trip: Duration,
    is_silent: bool,
}

impl Routes {
    /// All ways from a region, that to its own replica only if there is no choice to be made: `elsewhere` is false. A replica may
    /// be a group of copies.
    pub(super) fn new(topology: &Topology, region: RegionId, elsewhere: bool, copied: bool) -> Self {
        let of_partition = |partition: u16| {
            let mut replicas: Vec<(RegionId, Address)> =
                topology.holders(partition).filter(|(holder, _)| elsewhere || *holder == region).collect();
            replicas.sort_by_key(|(holder, _)| (*holder != region, *holder));
            replicas
        };
        let replicas: Vec<Vec<(RegionId, Address)>> = (0..topology.partitions()).map(of_partition).collect();
        let several = replicas.iter().filter(|replicas| replicas.len() > 1).flatten();
        let process = |replica: Address| Process {
            replica,
            queried_at: None,
            once: false,
            trip: Duration::MAX,
            is_silent: false,
        };
        let mut processes = BTreeMap::new();
        for (_, replica) in several {
            processes.entry(suspect(*replica, copied)).or_insert_with(|| process(*replica));
        }
        let chosen = vec![0; replicas.len()];
        let lost = BTreeSet::new();
        Routes { region, replicas, chosen, processes, copied, next_probe: Instant::default(), lost }
    }

    fn process(&self, replica: Address) -> Option<&Process> {
        self.processes.get(&suspect(replica, self.copied))
    }

    /// True while requests go to other replicas in place of this one.
    pub(super) fn is_silent(&self, replica: Address) -> bool {
        self.lost.contains(&replica) || self.process(replica).is_some_and(|process| process.is_silent)
    }

    /// A region is gone for good: nothing goes there any more.
    pub(super) fn lose(&mut self, region: RegionId) {
        for (replicas, chosen) in self.replicas.iter_mut().zip(&mut self.chosen) {
            let before = replicas.get(*chosen).copied();
            let gone = replicas.extract_if(.., |(holder, _)| *holder == region);
            self.lost.extend(gone.map(|(_, replica)| replica));
            *chosen = replicas.iter().position(|replica| Some(*replica) == before).unwrap_or(0);
        }
        self.processes.retain(|_, process| !self.lost.contains(&process.replica));
    }

    /// True if a partition has several replicas.
    pub(super) fn has_choice(&self, partition: u16) -> bool {
        self.replicas.get(usize::from(partition)).is_some_and(|replicas| replicas.len() > 1)
    }

    fn trip(&self, replica: Address) -> Duration {
        self.process(replica).map_or(Duration::MAX, |process| process.trip)
    }

    /// The replica that a partition's work goes to; `None` while all of them are silent.
    pub(super) fn target(&mut self, partition: u16) -> Option<Address> {
        let index = usize::from(partition);
        let replicas = self.replicas.get(index)?;
        let (_, chosen) = *replicas.get(self.chosen[index])?;
        let key = |place: &usize| {
            let (region, replica) = replicas[*place];
            let trip = match replica == chosen {
                true => self.trip(replica) / MUCH_NEARER,
                false => self.trip(replica),
            };
            (self.is_silent(replica), region != self.region, trip, *place)
        };
        let best = (0..replicas.len()).min_by_key(key)?;
        let (_, replica) = replicas[best];
        if self.is_silent(replica) {
            return None;
        }
        self.chosen[index] = best;
        Some(replica)
    }

    /// The replica of a partition to query after `silent` has not answered: the replicas take turns.
    pub(super) fn next(&self, partition: u16, silent: Address) -> Address {
        let replicas = self.replicas.get(usize::from(partition)).map_or(&[][..], |replicas| replicas);
        let place = replicas.iter().position(|(_, replica)| *replica == silent).map_or(0, |place| place + 1);
        let in_turn = replicas.iter().cycle().skip(place).take(replicas.len()).map(|(_, replica)| *replica);
        let mut heard = in_turn.clone().filter(|replica| !self.is_silent(*replica));
        heard.next().or(in_turn.clone().next()).unwrap_or(silent)
    }

    /// A process has answered.
    pub(super) fn heard(&mut self, from: Address, now: Instant) {
        let Some(process) = self.processes.get_mut(&suspect(from, self.copied)) else { return };
        process.is_silent = false;
        if let Some(queried_at) = process.queried_at.take().filter(|_| process.once) {
            let trip = now - queried_at;
            process.trip = if process.trip == Duration::MAX { trip } else { (process.trip * 3 + trip) / 4 };
        }
    }

    /// Whom to ask now, so as to know who answers.
    fn probes(&mut self, now: Instant, patience: Duration) -> Vec<Address> {
        if now < self.next_probe {
            return Vec::new();
        }
        self.next_probe = now + patience / PROBES;
        for process in self.processes.values_mut() {
            process.once = process.queried_at.is_none();
            let queried_at = *process.queried_at.get_or_insert(now);
            process.is_silent |= now - queried_at >= patience;
        }
        self.processes.values().map(|process| process.replica).collect()
    }
}

fn suspect(replica: Address, copied: bool) -> Suspect {
    (replica.process, copied.then_some(replica.slot))
}

impl<S: Times> Coordinator<S> {
    /// Asks processes, and so leases the oldest snapshot there too.
    pub(super) fn probe(&mut self, now: Now, oldest: S, out: &mut Outputs<'_, Node<S>>) {
        for replica in self.routes.probes(now.instant, self.options.suspect_after) {
            self.ask(now, replica, oldest, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stable::setup::RegionTopology;
    use types::{HashSeed, KeyspaceId, PartitionId};

    const PATIENCE: Duration = Duration::from_millis(500);

    fn replica(region: u16, partition: u16) -> Address {
        let slot = Slot::replica(KeyspaceId(4), PartitionId(partition));
        Address { process: ProcessId(region), slot }
    }

    /// Partition 0 in regions 0 and 1, partition 1 in regions 1 and 2, as region 0 sees them.
    fn routes() -> Routes {
        let region = |region: u16, held: &[u16]| RegionTopology {
            name: region.to_string(),
            partitions: held.iter().map(|partition| (*partition, replica(region, *partition))).collect(),
        };
        let regions = vec![region(0, &[0]), region(1, &[0, 1]), region(2, &[1])];
        let topology = Topology { regions, keyspace: KeyspaceId(4), seed: HashSeed(0) };
        Routes::new(&topology, RegionId(0), true, false)
    }

    /// Two groups of region 1 have their first copies in one process: when one of them has no leader, the other is not suspected.
    #[test]
    fn groups_of_copies_are_suspected_one_by_one() {
        let region = |region: u16| RegionTopology {
            name: region.to_string(),
            partitions: [0, 1].map(|partition| (partition, replica(region, partition))).into(),
        };
        let topology = Topology {
            regions: vec![
                RegionTopology { name: "0".into(), partitions: BTreeMap::new() },
                region(1),
                region(2),
            ],
            keyspace: KeyspaceId(4),
            seed: HashSeed(0),
        };
        let mut routes = Routes::new(&topology, RegionId(0), true, true);
        for at in 1..20 {
            assert_eq!(routes.probes(Instant(at * 100_000), PATIENCE).len(), 4);
            routes.heard(replica(1, 1), Instant(at * 100_000 + 10_000));
            for partition in [0, 1] {
                routes.heard(replica(2, partition), Instant(at * 100_000 + 30_000));
            }
        }
        assert!(routes.is_silent(replica(1, 0)) && !routes.is_silent(replica(1, 1)));
        assert_eq!((routes.target(0), routes.target(1)), (Some(replica(2, 0)), Some(replica(1, 1))));
    }

    /// Asks everybody at a time in milliseconds; these answer so many milliseconds later.
    fn round(routes: &mut Routes, at: u64, answers: &[(u16, u64)]) {
        routes.probes(Instant(at * 1000), PATIENCE);
        for (region, later) in answers {
            routes.heard(replica(*region, 1), Instant((at + later) * 1000));
        }
    }

    #[test]
    fn the_own_replica_comes_first_and_then_the_nearest() {
        let mut routes = routes();
        round(&mut routes, 100, &[(0, 90), (1, 80), (2, 30)]);
        assert_eq!(routes.target(0), Some(replica(0, 0)));
        assert_eq!(routes.target(1), Some(replica(2, 1)));
        (2..40).for_each(|at| round(&mut routes, at * 100, &[(0, 1), (1, 20), (2, 30)]));
        assert_eq!(routes.target(1), Some(replica(2, 1)), "a little nearer is not worth the change");
        (40..80).for_each(|at| round(&mut routes, at * 100, &[(0, 1), (1, 10), (2, 30)]));
        assert_eq!(routes.target(1), Some(replica(1, 1)));
    }

    #[test]
    fn a_lost_region_is_passed_over_for_good() {
        let mut routes = routes();
        (1..20).for_each(|at| round(&mut routes, at * 100, &[(0, 1), (1, 10), (2, 30)]));
        assert_eq!(routes.target(1), Some(replica(1, 1)));
        routes.lose(RegionId(1));
        assert_eq!((routes.target(0), routes.target(1)), (Some(replica(0, 0)), Some(replica(2, 1))));
        assert_eq!(routes.next(1, replica(1, 1)), replica(2, 1), "who was asked there asks the others");
        assert!(routes.is_silent(replica(1, 1)));
        round(&mut routes, 2000, &[(1, 10)]);
        assert!(routes.is_silent(replica(1, 1)), "whatever it says");
        routes.lose(RegionId(2));
        assert_eq!(routes.target(1), None, "nobody is left");
    }

    #[test]
    fn who_is_silent_is_passed_over_until_it_answers() {
        let mut routes = routes();
        (1..20).for_each(|at| round(&mut routes, at * 100, &[(1, 10), (2, 30)]));
        assert_eq!(routes.target(0), Some(replica(1, 0)), "the own replica is down");
        (20..40).for_each(|at| round(&mut routes, at * 100, &[(0, 1)]));
        assert_eq!((routes.target(0), routes.target(1)), (Some(replica(0, 0)), None));
        (40..41).for_each(|at| round(&mut routes, at * 100, &[(0, 1), (2, 30)]));
        assert_eq!(routes.target(1), Some(replica(2, 1)));
        assert_eq!(routes.next(1, replica(2, 1)), replica(2, 1), "there is nobody else");
        assert_eq!(routes.next(0, replica(0, 0)), replica(0, 0));
    }
}
