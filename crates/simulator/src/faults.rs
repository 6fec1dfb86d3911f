//! Which faults a seed brings (swarm testing: a seed with few kinds of faults reaches states that one with all kinds
//! does not), and how strong they are.

use protocol::Durability;
use types::Rng;

/// What a seed draws. All times are in microseconds of virtual time.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// How many clients run at a time.
    pub clients: usize,
    /// How many keys of each kind there are.
    pub keys_per_kind: usize,
    /// A client's mean pause between two transactions.
    pub think: u64,
    /// The mean delay within a region and between regions.
    pub near: u64,
    /// See `near`.
    pub far: u64,
    /// How much a delay varies: the mean of an exponential part, as a share of the delay.
    pub jitter: f64,
    /// Of all packets between processes, the share that is lost.
    pub loss: f64,
    /// The share that arrives twice.
    pub duplication: f64,
    /// The share that is held back for up to half a second.
    pub reordering: f64,
    /// The mean time between two faults of those below; 0 for none.
    pub fault_interval: u64,
    /// Processes are killed.
    pub kills: bool,
    /// Processes lose power, and with it what was not synced.
    pub power_cuts: bool,
    /// Links fail, in one direction or both.
    pub partitions: bool,
    /// Processes stand still for a while.
    pub pauses: bool,
    /// Writes to a disk fail now and then.
    pub disk_errors: bool,
    /// Wall clocks jump.
    pub clock_jumps: bool,
    /// Wall clocks differ by up to so much.
    pub clock_skew: u64,
    /// The mean time of a sync.
    pub sync: u64,
    /// How long a group stays open for others to join.
    pub group_delay: u64,
    /// The mean time between two checkpoints of a process; 0 for none.
    pub checkpoint_interval: u64,
    /// How durable the keyspace is.
    pub durability: Durability,
}

impl Swarm {
    /// Draws the options of a seed; `durabilities` are those that the deployment supports.
    pub fn draw(random: &mut Rng, durabilities: &[Durability]) -> Self {
        let mut maybe = |share: f64| random.f64() < share;
        let (lossy, doubling, reordering) = (maybe(0.5), maybe(0.4), maybe(0.5));
        let (faulty, skewed) = (maybe(0.9), maybe(0.6));
        let (kills, power_cuts, partitions) = (maybe(0.4), maybe(0.5), maybe(0.5));
        let (pauses, clock_jumps, checkpoints, disk_errors) =
            (maybe(0.3), maybe(0.3), maybe(0.6), maybe(0.3));
        Swarm {
            clients: random.usize(3..9),
            keys_per_kind: random.usize(1..3),
            think: random.u64(5_000..80_000),
            near: random.u64(100..1_000),
            far: random.u64(2_000..60_000),
            jitter: random.f64(),
            loss: if lossy { random.f64() * 0.1 } else { 0.0 },
            duplication: if doubling { random.f64() * 0.1 } else { 0.0 },
            reordering: if reordering { random.f64() * 0.1 } else { 0.0 },
            fault_interval: if faulty { random.u64(200_000..2_000_000) } else { 0 },
            kills,
            power_cuts,
            partitions,
            pauses,
            disk_errors,
            clock_jumps,
            clock_skew: if skewed { 10u64.pow(random.u32(2..7)) } else { 0 },
            sync: 10u64.pow(random.u32(2..6)),
            group_delay: random.u64(0..2_000),
            checkpoint_interval: if checkpoints { random.u64(300_000..4_000_000) } else { 0 },
            durability: durabilities[random.usize(..durabilities.len())],
        }
    }
}

/// A time drawn from an exponential distribution, in whole microseconds, at most twenty times the mean.
pub(crate) fn exponential(random: &mut Rng, mean: u64) -> u64 {
    let share = -(1.0 - random.f64()).ln();
    (mean as f64 * share.min(20.0)) as u64
}
