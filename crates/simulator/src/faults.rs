//! What a seed brings (swarm testing: a seed with few kinds of trouble reaches states that one with all kinds does
//! not): which faults and which kinds of transactions, and how strong or how frequent they are.

use protocol::Durability;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use types::Rng;

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $share:literal;)*) => {
        /// Something that a seed may bring: first faults, then what lasts for a whole run. A deployment says which of
        /// them it cannot take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Feature {
            $($(#[$doc])* $name,)*
        }

        /// Every feature, with the share of seeds that bring it.
        const FEATURES: &[(Feature, f64)] = &[$((Feature::$name, $share),)*];
    };
}
features! {
    /// Processes are killed.
    Kills = 0.4;
    /// Processes lose power, and with it what was not synced.
    PowerCuts = 0.5;
    /// Processes lose their disk and come back with an empty one.
    LostDisks = 0.3;
    /// A coordinator dies at some step of a transaction; where a process has no replica, nothing else dies with it.
    CoordinatorDeaths = 0.4;
    /// Links fail, in one direction or both.
    Partitions = 0.5;
    /// Links fail and come back, again and again.
    Flaps = 0.25;
    /// Links slow down for a while, in one direction or both.
    SlowLinks = 0.3;
    /// Processes stand still for a while.
    Pauses = 0.3;
    /// Processes take long for every step, and their disks for every sync.
    SlowProcesses = 0.3;
    /// Writes to a disk fail now and then.
    WriteErrors = 0.3;
    /// Syncs fail: the log closes for good and the process ends.
    SyncErrors = 0.3;
    /// Disks are full for a while.
    FullDisks = 0.3;
    /// Wall clocks jump.
    ClockJumps = 0.3;
    /// Wall clocks tick coarsely.
    CoarseClocks = 0.3;
    /// What is acknowledged is written but synced only now and then (`everysec`).
    EverySecond = 0.3;
    /// Transactions that are begun, continued and committed by several requests.
    Interactive = 0.8;
    /// Several requests of a session under way at a time.
    Pipelines = 0.4;
    /// Keys are watched before a transaction.
    Watches = 0.4;
    /// Keys with deadlines.
    Expiry = 0.4;
    /// Writes without asking for the result, of keys with deadlines.
    BlindExpiry = 0.3;
    /// Commands on the whole keyspace inside transactions.
    Keyset = 0.3;
    /// Partitions move to other processes, one or all of their replicas.
    Reconfiguration = 0.3;
    /// Clients hand their causal contexts to one another.
    Contexts = 0.5;
    /// A region is lost for good, and an operator lets the others go on without it.
    Eviction = 0.2;
    /// What was lost to concurrent writes is settled now and then, where that is listed.
    Resolutions = 0.3;
    /// A process dies when it has answered a client; its messages to other processes at the same time are lost.
    LastReplies = 0.3;
    /// Counters, summaries, tops and identifiers: types that Redis does not have.
    Types = 0.1;
    /// The commands of pipelines, which are more frequent, run as one transaction where they may.
    MergedPipelines = 0.1;
    /// Writes that an earlier one may hide which they have not observed: elements of lists are replaced, registers and fields
    /// that others write words to are incremented.
    Encounters = 0.1;
    /// Of what goes wrong at certain times only what the command names, or else one kind, and often.
    Focus = 0.1;
    /// One or two keys are all there is.
    FewKeys = 0.1;
    /// Nothing but counters, most of whose changes are bounded subtractions.
    Bounds = 0.05;
    /// A process is cut off for a moment while others restart, so that views begin which it sleeps through, and one more when
    /// it is back.
    SleepingReplicas = 0.1;
    /// Processes with replicas restart one after the other, faster than the views that begin with that are announced.
    CrashLoops = 0.1;
    /// Links lose most of their packets for a while, in one direction or both.
    LossyLinks = 0.1;
    /// A process dies, and the disk fails to read when it starts again.
    ReadErrors = 0.1;
    /// More than f replicas of a partition are lost for good, and an operator lets those that are left go on; partitions do not
    /// move otherwise.
    AcceptLoss = 0.05;
    /// Of what is queued for other regions next to nothing stays in memory and little is on its way at a time: the rest is
    /// spilled, and some of that is lost, where the protocol spills.
    SmallQueues = 0.3;
    /// The sessions of a gateway share a causal thread, as they do by default; otherwise each is one of its own.
    SharedThreads = 0.5;
    /// Nothing but registers that are read and set, so that histories are decided without claims.
    Registers = 0.05;
    /// A region is lost for good, and before that some hear it no more: those that it replicates to, or those that it commits
    /// with. So transactions are under way between it and the others when it is lost.
    FadingRegions = 0.1;
    /// A checkpoint lasts for a second or so, instead of some milliseconds.
    LongCheckpoints = 0.3;
    /// Connections of clients break: a request or a reply is lost. Who is left in doubt may do the same again.
    LostConnections = 0.1;
    /// Wall clocks jump by hours.
    ClockLeaps = 0.05;
    /// Processes are down and links cut for minutes, and so long does traffic last; clients take their time.
    LongOutages = 0.01;
    /// A process dies and a bit on its disk flips: of its log, a checkpoint, the manifest or the marks.
    FlippedBits = 0.05;
    /// A process dies and the end of its log becomes zeros.
    ZeroedTails = 0.05;
    /// A process dies and a segment of its log is lost, or two are exchanged.
    LostSegments = 0.05;
    /// A process comes back with an older disk, of which its operator says that it is one.
    OlderDisks = 0.05;
    /// All processes lose power at once.
    BlackOuts = 0.05;
    /// One wall clock at a time leaps by hours and is set right again.
    OneClockLeaps = 0.05;
    /// Dicts whose fields have deadlines.
    FieldExpiry = 0.1;
    /// Values of a user-defined type.
    UserTypes = 0.2;
    /// Scripts in Lua, whose later commands depend on what earlier ones read.
    Scripts = 0.3;
    /// Values move from key to key.
    Renames = 0.3;
    /// Transactions that choose the states which they read from and commit below.
    Constraints = 0.4;
    /// Streams, which groups of consumers read.
    Streams = 0.1;
}

impl Feature {
    /// True for what goes wrong at certain times, as drawn in `schedule`.
    pub(crate) fn is_fault(self) -> bool {
        use Feature::{
            ClockJumps, ClockLeaps, CrashLoops, Eviction, LastReplies, LongOutages, LossyLinks,
            OneClockLeaps, ReadErrors, Reconfiguration, SleepingReplicas,
        };
        let later = [
            Reconfiguration,
            Eviction,
            LastReplies,
            SleepingReplicas,
            CrashLoops,
            LossyLinks,
            ReadErrors,
            ClockLeaps,
            LongOutages,
            OneClockLeaps,
        ];
        self <= ClockJumps || later.contains(&self) || self.is_of_disks()
    }

    /// True for what happens to the disks of dead processes. It has a stream of its own, so that the other faults of a
    /// seed are as they are without it.
    pub(crate) fn is_of_disks(self) -> bool {
        use Feature::{BlackOuts, FlippedBits, LostSegments, OlderDisks, ZeroedTails};
        [FlippedBits, ZeroedTails, LostSegments, OlderDisks, BlackOuts].contains(&self)
    }

    /// True for what this seed brings only where the command names it.
    pub(crate) fn is_rare_in(self, seed: u64) -> bool {
        seed < RARE_FROM && RARE.contains(&self) || seed < NEW_FROM && NEW.contains(&self)
    }

    /// Every feature.
    pub fn all() -> impl Iterator<Item = Feature> {
        FEATURES.iter().map(|(feature, _)| *feature)
    }
}

impl std::str::FromStr for Feature {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        serde_json::from_value(serde_json::Value::String(name.to_owned())).map_err(|_| {
            let names: Vec<String> = Feature::all().map(|feature| feature.to_string()).collect();
            format!("no feature `{name}`; there are {}", names.join(", "))
        })
    }
}

impl std::fmt::Display for Feature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// The first seed that brings the features of `RARE` by itself. Those below are the seeds that tests and documents name.
const RARE_FROM: u64 = 10_000_000;

/// What seeds below `RARE_FROM` bring only where the command names it.
const RARE: [Feature; 22] = [
    Feature::Types,
    Feature::MergedPipelines,
    Feature::Encounters,
    Feature::Focus,
    Feature::FewKeys,
    Feature::Bounds,
    Feature::SleepingReplicas,
    Feature::CrashLoops,
    Feature::LossyLinks,
    Feature::ReadErrors,
    Feature::AcceptLoss,
    Feature::Registers,
    Feature::FadingRegions,
    Feature::LostConnections,
    Feature::ClockLeaps,
    Feature::LongOutages,
    Feature::FlippedBits,
    Feature::ZeroedTails,
    Feature::LostSegments,
    Feature::OlderDisks,
    Feature::BlackOuts,
    Feature::OneClockLeaps,
];

/// The first seed that brings the features of `NEW` by itself: those that tests name are smaller.
const NEW_FROM: u64 = 100_000;

/// What seeds below `NEW_FROM` bring only where the command names it.
const NEW: [Feature; 5] =
    [Feature::UserTypes, Feature::Scripts, Feature::Renames, Feature::Constraints, Feature::Streams];

/// This feature and those behind it are drawn after everything else, so that a new one leaves the seeds without it as
/// they were.
const LATER: Feature = Feature::Keyset;

/// The mean time between two faults of a seed with few kinds of them, at most.
const OFTEN: u64 = 400_000;

/// By how much less often things happen where outages are long.
const LEISURE: u64 = 30;

/// What a seed draws. All times are in microseconds of virtual time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swarm {
    /// Which kinds of trouble there are.
    pub features: BTreeSet<Feature>,
    /// How many clients run at a time.
    pub clients: usize,
    /// How many keys of each kind there are.
    pub keys_per_kind: usize,
    /// Which kinds of keys are used, by their place in the workload's table; bit by bit.
    pub kinds: u16,
    /// The share of operations that go to one hot key.
    pub hot: f64,
    /// The most steps that a transaction has.
    pub longest: usize,
    /// The share of operations that only read.
    pub reads: f64,
    /// Of the operations that write, the share whose client wants no result.
    pub blind: f64,
    /// The share of transactions that are one operation.
    pub single: f64,
    /// A client's mean pause between two transactions.
    pub think: u64,
    /// The mean delay within a region and between regions.
    pub near: u64,
    /// See `near`.
    pub far: u64,
    /// By which factor links between regions differ at most, each direction for itself.
    pub asymmetry: f64,
    /// How much a delay varies: the mean of an exponential part, as a share of the delay.
    pub jitter: f64,
    /// Of all packets between processes, the share that is lost.
    pub loss: f64,
    /// The share that arrives twice.
    pub duplication: f64,
    /// The share that is held back for up to half a second.
    pub reordering: f64,
    /// The mean time between two faults; 0 for none.
    pub fault_interval: u64,
    /// Wall clocks differ by up to so much.
    pub clock_skew: u64,
    /// What a wall clock advances by at a time; 1 unless clocks are coarse.
    pub clock_tick: u64,
    /// The mean time of a sync.
    pub sync: u64,
    /// How long a group stays open for others to join.
    pub group_delay: u64,
    /// The mean time between two checkpoints of a process; 0 for none.
    pub checkpoint_interval: u64,
}

impl Swarm {
    /// Draws the options of a seed, with none of the features that are `off`.
    pub fn draw(random: &mut Rng, off: &BTreeSet<Feature>) -> Self {
        let mut maybe = |share: f64| random.f64() < share;
        let drawn: Vec<Feature> =
            FEATURES.iter().filter(|(f, share)| *f < LATER && maybe(*share)).map(|(f, _)| *f).collect();
        let features: BTreeSet<Feature> =
            drawn.into_iter().filter(|feature| !off.contains(feature)).collect();
        let (lossy, doubling, reordering) = (maybe(0.5), maybe(0.4), maybe(0.5));
        let (faulty, skewed, checkpoints) = (maybe(0.9), maybe(0.6), maybe(0.6));
        let (hot, asymmetric, all_kinds) = (maybe(0.3), maybe(0.4), maybe(0.6));
        let mut swarm = Swarm {
            clients: random.usize(3..9),
            keys_per_kind: random.usize(1..4),
            kinds: if all_kinds { u16::MAX } else { random.u16(1..) },
            hot: if hot { random.f64() * 0.8 } else { 0.0 },
            longest: random.usize(2..8),
            reads: 0.1 + random.f64() * 0.6,
            blind: random.f64() * 0.6,
            single: random.f64() * 0.8,
            think: random.u64(5_000..80_000),
            near: random.u64(100..1_000),
            far: random.u64(2_000..60_000),
            asymmetry: if asymmetric { 1.0 + random.f64() * 9.0 } else { 1.0 },
            jitter: random.f64(),
            loss: if lossy { random.f64() * 0.1 } else { 0.0 },
            duplication: if doubling { random.f64() * 0.1 } else { 0.0 },
            reordering: if reordering { random.f64() * 0.1 } else { 0.0 },
            fault_interval: if faulty { random.u64(200_000..2_000_000) } else { 0 },
            clock_skew: if skewed { 10u64.pow(random.u32(2..7)) } else { 0 },
            clock_tick: match features.contains(&Feature::CoarseClocks) {
                true => [1_000, 4_000, 15_625][random.usize(..3)],
                false => 1,
            },
            sync: 10u64.pow(random.u32(2..6)),
            group_delay: random.u64(0..2_000),
            checkpoint_interval: if checkpoints { random.u64(300_000..4_000_000) } else { 0 },
            features,
        };
        let later = FEATURES.iter().filter(|(feature, share)| *feature >= LATER && random.f64() < *share);
        swarm.features.extend(later.map(|(feature, _)| *feature).filter(|feature| !off.contains(feature)));
        swarm
    }

    /// Leaves out the faults that are not among these, or if none is, all but one kind.
    pub(crate) fn focus(&mut self, with: &[Feature], random: &mut Rng) {
        let faults: Vec<Feature> =
            self.features.iter().copied().filter(|feature| feature.is_fault()).collect();
        let mut wanted: Vec<Feature> = with.iter().copied().filter(|feature| feature.is_fault()).collect();
        if wanted.is_empty() {
            wanted.extend(random.choice(&faults));
        }
        self.features.retain(|feature| !feature.is_fault() || wanted.contains(feature));
        self.fault_interval = match self.fault_interval {
            0 => OFTEN,
            interval => interval.min(OFTEN),
        };
    }

    /// Lets everything take its time.
    pub(crate) fn slow_down(&mut self) {
        (self.think, self.fault_interval) = (self.think * LEISURE, self.fault_interval * LEISURE);
        self.checkpoint_interval *= LEISURE;
    }

    /// True if the seed brings it.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// How durable the keyspace is.
    pub fn durability(&self) -> Durability {
        if self.has(Feature::EverySecond) { Durability::Written } else { Durability::Synced }
    }
}

/// A time drawn from an exponential distribution, in whole microseconds, at most twenty times the mean.
pub(crate) fn exponential(random: &mut Rng, mean: u64) -> u64 {
    let share = -(1.0 - random.f64()).ln();
    (mean as f64 * share.min(20.0)) as u64
}
