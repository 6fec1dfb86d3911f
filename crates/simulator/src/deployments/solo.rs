//! One process, one partition, one replica: the embedded default, with a log that may fail and heal. A request is over
//! in the step that serves it: the steps' order is the order claimed, their records are the effects.

use crate::deployment::{Deployment, Host, Layout, Setting};
use crate::faults::Feature;
use checker::Level;
use protocol::{Claim, KeyEffect};
use strict::solo::{Options, Record, Solo};
use types::{NodeId, ProcessId, RegionId, Rng};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoloDeployment;

impl Deployment for SoloDeployment {
    type Protocol = Solo;

    fn layout(&self, _: &mut Rng) -> Layout {
        Layout { regions: 1, partitions: 1, replicas: 1, colocated: true, ..Layout::default() }
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

    fn served(&self, records: &[u8]) -> Option<Vec<KeyEffect>> {
        Some(Record::effects(records).map(|(key, effect)| (key.into(), effect.into())).collect())
    }

    fn undecided(&self, _: &Solo) -> usize {
        0
    }

    fn level(&self) -> Level {
        Level::StrictSerializable
    }

    /// Deadlines compare with a clock that the claims do not tell; a lost disk is not survived.
    fn lacks(&self) -> Vec<Feature> {
        use Feature::{
            BlindExpiry, Contexts, EverySecond, Eviction, Expiry, FieldExpiry, Interactive, Keyset,
            LostDisks, Reconfiguration,
        };
        vec![
            Interactive,
            Expiry,
            FieldExpiry,
            BlindExpiry,
            LostDisks,
            EverySecond,
            Keyset,
            Reconfiguration,
            Contexts,
            Eviction,
        ]
    }
}
