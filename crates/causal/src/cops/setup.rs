//! How a node is set up.

use super::Mutants;
use protocol::Durability;
use replication::Window;
use std::time::Duration;

/// How a node is set up. Times are intervals unless they say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// COPS-GT: keys of several partitions are read together, for which versions keep all that they depend on (COPS, section
    /// 4.6). A keyspace is either so or not.
    pub transactions: bool,
    /// Writes name no dependencies. Instead everything is written before them that their region had written of all others. That is
    /// right where there is one partition only: the baseline LOG of the laboratory is so.
    pub serialized: bool,
    /// How durable a record is before what follows it leaves.
    pub durability: Durability,
    /// Between two ticks of a partition.
    pub tick_every: Duration,
    /// After how long without an answer a message is sent again.
    pub retry_after: Duration,
    /// After how long a coordinator gives a request up.
    pub give_up_after: Duration,
    /// For how long partitions retain versions for the second round of a get transaction: the paper's `trans_time`. A
    /// transaction that takes longer begins again (Corrections 46).
    pub lease: Duration,
    /// How far beyond the time that it tells a partition promises, in its log, not to stamp after a restart.
    pub promise: Duration,
    /// How far ahead of a partition's clock a dependency may be (Corrections 50 and 85).
    pub clock_bound: Duration,
    /// How much of its writes a partition keeps in memory for regions that lack them, in bytes. Beyond it refuses writes.
    pub queue_bytes: usize,
    /// How much may be on its way to a region that has not said that it has written it.
    pub window: Window,
    /// About how much memory the list of writes that concurrent ones cost others occupies, in bytes, before the earliest of them
    /// are dropped; 0 for no list (Corrections 75).
    pub conflict_bytes: usize,
    /// COPS-CD (section 5.3): concurrent values of a key remain siblings until a write that observed them replaces the
    /// key.
    pub keeps_siblings: bool,
    /// True if a partition that lost records serves with what the equivalents that answer know, and without any with what is left
    /// (Corrections 84). Otherwise it waits for all of them.
    pub accept_loss: bool,
    /// About how much of its state a partition gives to another one at a time, in bytes.
    pub piece_bytes: usize,
    /// For how long who gives keeps what a silent taker may still ask for, and who takes waits for the next piece.
    pub transfer_patience: Duration,
    /// True if a partition has copies in several processes of its region.
    pub copied: bool,
    /// True if coordinators shall claim what their requests saw and did, for checkers.
    pub claims: bool,
    /// Deliberate mistakes.
    pub mutants: Mutants,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            transactions: false,
            serialized: false,
            durability: Durability::Written,
            tick_every: Duration::from_millis(5),
            retry_after: Duration::from_millis(100),
            give_up_after: Duration::from_secs(5),
            lease: Duration::from_secs(5),
            promise: Duration::from_millis(250),
            clock_bound: Duration::from_secs(60),
            queue_bytes: 32 << 20,
            window: Window { items: 4096, bytes: 4 << 20 },
            conflict_bytes: 4 << 20,
            keeps_siblings: false,
            accept_loss: false,
            piece_bytes: 64 << 10,
            transfer_patience: Duration::from_secs(10),
            copied: false,
            claims: false,
            mutants: Mutants::default(),
        }
    }
}
