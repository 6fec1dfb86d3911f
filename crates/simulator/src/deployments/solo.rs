//! One process, one partition, one replica: the embedded default, with a log that may fail and heal. It claims
//! nothing, so its histories are searched.

use crate::deployment::{Deployment, Host, Setting};
use checker::Level;
use protocol::{Claim, Durability};
use strict::solo::{Options, Solo};
use types::{NodeId, ProcessId, RegionId, Rng};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoloDeployment;

impl Deployment for SoloDeployment {
    type Protocol = Solo;

    fn hosts(&self) -> Vec<Host> {
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

    fn interactive(&self) -> bool {
        false
    }

    fn durabilities(&self) -> &[Durability] {
        &[Durability::Synced]
    }
}
