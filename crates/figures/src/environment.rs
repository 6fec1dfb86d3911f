//! Where the machines stand, and what they cost.

/// A network: how long a message takes between regions, one way, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// What it is called.
    pub name: &'static str,
    /// The regions' names.
    pub regions: &'static [&'static str],
    /// By sender's and receiver's region: microseconds.
    delays: &'static [&'static [u64]],
    /// Wall clocks are off by this at most, in microseconds, to either side.
    pub skew: u64,
}

/// One rack: round trips of 150 us, clocks by PTP (TAPIR, section 7.2).
pub const LOCAL: Environment = Environment { name: "local", regions: &["rack"], delays: &[&[75]], skew: 6 };

/// Zones of one data center: round trips of 1 ms (TAPIR, section 7.1); the clocks of its table 1.
pub const DATA_CENTER: Environment =
    Environment { name: "data center", regions: &["us"], delays: &[&[500]], skew: 3400 };

/// Three regions: the round trips and clocks of TAPIR's table 1.
pub const WIDE_AREA: Environment = Environment {
    name: "wide area",
    regions: &["us", "europe", "asia"],
    delays: &[&[600, 55_600, 83_300], &[55_600, 400, 131_250], &[83_300, 131_250, 5_400]],
    skew: 3400,
};

impl Environment {
    /// How long a message takes, in microseconds.
    pub fn delay(&self, from: usize, to: usize) -> u64 {
        self.delays[from][to]
    }

    /// True if a message between these regions counts for round trips: between regions where there are several, else
    /// between any two machines.
    pub fn is_far(&self, from: usize, to: usize) -> bool {
        self.regions.len() == 1 || from != to
    }

    /// The longest round trip, in microseconds.
    pub fn longest_round_trip(&self) -> u64 {
        2 * self.delays.iter().flat_map(|row| row.iter()).max().copied().unwrap_or(0)
    }
}

/// What a process is busy with, in microseconds. It does one thing at a time.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// For every message that it receives, and for every one that it sends.
    pub message: u64,
    /// For every record that it writes to its log.
    pub record: u64,
}

/// An assumption: what a message over UDP and an appended record cost about. Ratios between the systems depend on the
/// two costs' ratio only.
pub const COST: Cost = Cost { message: 10, record: 5 };
