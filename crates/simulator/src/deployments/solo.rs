//! One process, one partition, one replica: the embedded default, with a log that may fail and heal. It claims
//! nothing, so its histories are searched.

use crate::deployment::{Deployment, Host, Layout, Setting};
use crate::faults::Feature;
use checker::Level;
use protocol::Claim;
use strict::solo::{Options, Solo};
use types::{NodeId, ProcessId, RegionId, Rng};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoloDeployment;

impl Deployment for SoloDeployment {
    type Protocol = Solo;

    fn layout(&self, _: &mut Rng) -> Layout {
        Layout { regions: 1, partitions: 1, replicas: 1, beside: true, ..Layout::default() }
    }

    fn hosts(&self, _: Layout) -> Vec<Host> {
        vec![Host { process: ProcessId(0), region: RegionId(0), partitions: Vec::new(), gateway: true }]
    }

    fn start(&self, _: NodeId, setting: Setting, _: &mut Rng) -> Solo {
        Solo::new(Options { durability: setting.durability, seed: setting.hash_seed })
    }

    fn claims(&self, _: &mut Solo) -> Vec<Claim> {
        Vec::new()
    }

    fn undecided(&self, _: &Solo) -> usize {
        0
    }

    fn level(&self) -> Level {
        Level::StrictSerializable
    }

    /// A search does not know when a key expired; a lost disk is not survived.
    fn lacks(&self) -> &[Feature] {
        use Feature::{BlindExpiry, EverySecond, Expiry, Interactive, LostDisks};
        &[Interactive, Expiry, BlindExpiry, LostDisks, EverySecond]
    }
}
