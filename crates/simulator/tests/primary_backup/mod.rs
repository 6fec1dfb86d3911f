//! The simulator on a small honest protocol: it finds nothing; and on mutants of it: it finds each.

mod protocol;

use crate::mistakes::{self, Bug};
use crate::support::{assert_clean, soaks};
use ::protocol::Claim;
use anabranch_simulator::{Deployment, Feature, Host, Layout, Mutant, Options, Setting, Summary, run_seeds};
use checker::Level;
use protocol::{Mistakes, Node};
use std::ops::RangeInclusive;
use types::{NodeId, PartitionId, ProcessId, RegionId, Rng};

/// The seeds within which a bug must be caught.
const WINDOW: RangeInclusive<u64> = 1..=100;

#[derive(Clone, Copy, Debug)]
struct PrimaryBackup {
    mistakes: Mistakes,
    /// Gateways read at the backup; then only convergence is promised.
    reads_at_backup: bool,
}

impl Deployment for PrimaryBackup {
    type Protocol = Node;

    fn layout(&self, _: &mut Rng) -> Layout {
        Layout {
            regions: 3,
            partitions: 1,
            replicas: 1,
            one_partition_each: true,
            colocated: true,
            gateways: 1,
            spares: 0,
            ..Layout::default()
        }
    }

    fn hosts(&self, _: Layout) -> Vec<Host> {
        let host = |process: u16, partitions: &[PartitionId]| Host {
            process: ProcessId(process),
            region: RegionId(process),
            partitions: partitions.to_vec(),
            gateway: true,
        };
        vec![host(0, &[PartitionId(0)]), host(1, &[PartitionId(0)]), host(2, &[])]
    }

    fn start(&self, node: NodeId, _: Setting, _: &mut Rng) -> Node {
        match node.slot.partition {
            Some(_) => Node::replica(node, self.mistakes),
            None => Node::coordinator(node, self.reads_at_backup && node.process == protocol::BACKUP),
        }
    }

    fn claims(&self, instance: &mut Node) -> Vec<Claim> {
        match instance {
            Node::Replica(replica) => std::mem::take(&mut replica.claims),
            Node::Coordinator(_) => Vec::new(),
        }
    }

    fn undecided(&self, instance: &Node) -> usize {
        protocol::unanswered(instance).len()
    }

    fn lacks(&self) -> Vec<Feature> {
        use Feature::{
            BlindExpiry, EverySecond, Eviction, Expiry, Interactive, Keyset, LostDisks, Pipelines,
            Reconfiguration, Watches,
        };
        vec![
            BlindExpiry,
            EverySecond,
            Eviction,
            Expiry,
            Interactive,
            Keyset,
            LostDisks,
            Pipelines,
            Reconfiguration,
            Watches,
        ]
    }

    fn level(&self) -> Level {
        if self.reads_at_backup { Level::Convergence } else { Level::StrictSerializable }
    }
}

fn simulate(deployment: PrimaryBackup) -> Summary {
    let seeds = if soaks() { 25 } else { 5 };
    let options = Options { first_seed: 1, seeds, ..Options::default() };
    run_seeds("primary-backup", &options, || deployment)
}

const HONEST: PrimaryBackup = PrimaryBackup {
    mistakes: Mistakes {
        executes_again: false,
        stale_reads: false,
        loses_effects: false,
        forgets_newest: false,
    },
    reads_at_backup: false,
};

/// A bug of the world around the protocol.
#[track_caller]
fn assert_world_caught(name: &str, mutant: Mutant, reads_at_backup: bool) {
    let bug = Bug::new("primary-backup", name, &[], WINDOW).of_world(mutant.into());
    mistakes::assert_caught(&bug, (), |()| PrimaryBackup { reads_at_backup, ..HONEST });
}

/// A bug of the protocol.
#[track_caller]
fn assert_caught(name: &str, dropped: Mistakes, reads_at_backup: bool) {
    let bug = Bug::new("primary-backup", name, &[], WINDOW);
    mistakes::assert_caught(&bug, dropped, |mistakes| PrimaryBackup { mistakes, reads_at_backup });
}

#[test]
fn the_honest_protocol_is_strictly_serializable() {
    assert_clean(&simulate(HONEST));
}

#[test]
fn the_honest_backup_converges() {
    assert_clean(&simulate(PrimaryBackup { reads_at_backup: true, ..HONEST }));
}

#[test]
fn messages_that_do_not_wait_for_the_log_are_caught() {
    assert_world_caught("Ungated", Mutant::Ungated, false);
    assert_world_caught("UngatedReadsAtBackup", Mutant::Ungated, true);
}

#[test]
fn a_torn_group_that_recovery_accepts_is_caught() {
    assert_world_caught("TornGroups", Mutant::TornGroups, false);
}

#[test]
fn executing_a_repeated_request_again_is_caught() {
    assert_caught("ExecutesAgain", Mistakes { executes_again: true, ..Mistakes::default() }, false);
}

#[test]
fn stale_reads_are_caught() {
    assert_caught("StaleReads", Mistakes { stale_reads: true, ..Mistakes::default() }, false);
}

#[test]
fn an_effect_that_does_not_reach_the_backup_is_caught() {
    assert_caught("LosesEffects", Mistakes { loses_effects: true, ..Mistakes::default() }, true);
}

#[test]
fn a_recovery_that_forgets_the_newest_entry_is_caught() {
    assert_caught("ForgetsNewest", Mistakes { forgets_newest: true, ..Mistakes::default() }, false);
}
