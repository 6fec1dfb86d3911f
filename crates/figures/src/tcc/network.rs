//! Where the machines of the thesis's evaluations stand (its table 5.2), and what they cost here.

/// Regions in the order in which experiments take them.
pub(crate) const REGIONS: [&str; 5] = ["virginia", "oregon", "ireland", "mumbai", "sydney"];
/// Half the round trip between two regions, in microseconds: the mean of both directions of table 5.2.
const DELAYS: [[u64; 5]; 5] = [
    [0, 43_500, 39_200, 95_100, 108_000],
    [43_500, 0, 70_960, 122_800, 76_450],
    [39_200, 70_960, 0, 67_550, 142_750],
    [95_100, 122_800, 67_550, 0, 144_050],
    [108_000, 76_450, 142_750, 144_050, 0],
];
/// Between two machines of a region.
const INSIDE: u64 = 150;
/// Between a coordinator and the partition on its machine.
const HERE: u64 = 5;
/// Wall clocks are off by this at most, in microseconds, to either side.
pub const SKEW: u64 = 1_000;

/// How long a message takes between two machines, in microseconds, by their regions.
pub(crate) fn delay(from: u16, to: u16, same_machine: bool) -> u64 {
    match (same_machine, from == to) {
        (true, _) => HERE,
        (false, true) => INSIDE,
        (false, false) => DELAYS[usize::from(from)][usize::from(to)],
    }
}

/// What a machine is busy with, in nanoseconds. It does one thing at a time.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// For every message from or to another machine, received or sent.
    pub message: u64,
    /// For every message between the coordinator and the partition of one machine.
    pub local_message: u64,
    /// For every byte of these.
    pub byte: u64,
    /// For every record that it writes to its log.
    pub record: u64,
    /// For every request of a client, of which a transaction has four: received, performed and answered.
    pub request: u64,
}

/// Chosen so that a transaction takes about the processor time that it takes of the real servers (docs/evidence/figures.md).
pub const COSTS: Costs =
    Costs { message: 15_000, local_message: 3_000, byte: 10, record: 5_000, request: 15_000 };
