//! The simulator on a small honest protocol: it finds nothing; and on mutants of it: it finds each.

mod protocol;

use ::protocol::Claim;
use anabranch_simulator::{
    Deployment, Feature, Host, Layout, Mutant, Mutants, Options, Setting, Summary, run_seeds,
};
use checker::Level;
use protocol::{Mistakes, Node};
use types::{NodeId, PartitionId, ProcessId, RegionId, Rng};

const SEEDS: u64 = 25;
/// Within how many seeds a mutant must be caught.
const MUTANT_SEEDS: u64 = 100;

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
            apart: true,
            beside: true,
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

    fn lacks(&self) -> &[Feature] {
        use Feature::{
            BlindExpiry, EverySecond, Eviction, Expiry, Interactive, Keyset, LostDisks, Pipelines,
            Reconfiguration, Watches,
        };
        &[
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

fn simulate(deployment: PrimaryBackup, mutants: Mutants, seeds: u64) -> Summary {
    let options = Options { first_seed: 1, seeds, mutants, ..Options::default() };
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

fn assert_clean(summary: &Summary) {
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(
        summary.committed > 20 * summary.seeds,
        "{} of {} committed",
        summary.committed,
        summary.transactions
    );
}

/// Tries one seed after the other until one shows the mutant.
fn assert_caught(deployment: PrimaryBackup, mutants: Mutants) {
    let shows = |seed: &u64| {
        let options = Options { first_seed: *seed, seeds: 1, mutants, ..Options::default() };
        !run_seeds("primary-backup", &options, || deployment).failures.is_empty()
    };
    assert!((1..=MUTANT_SEEDS).any(|seed| shows(&seed)), "not caught in {MUTANT_SEEDS} seeds");
}

#[test]
fn the_honest_protocol_is_strictly_serializable() {
    assert_clean(&simulate(HONEST, Mutants::default(), SEEDS));
}

#[test]
fn the_honest_backup_converges() {
    assert_clean(&simulate(PrimaryBackup { reads_at_backup: true, ..HONEST }, Mutants::default(), SEEDS));
}

#[test]
fn messages_that_do_not_wait_for_the_log_are_caught() {
    let mutants = Mutants::from(Mutant::Ungated);
    assert_caught(HONEST, mutants);
    assert_caught(PrimaryBackup { reads_at_backup: true, ..HONEST }, mutants);
}

#[test]
fn a_torn_group_that_recovery_accepts_is_caught() {
    assert_caught(HONEST, Mutant::TornGroups.into());
}

#[test]
fn executing_a_repeated_request_again_is_caught() {
    let mistakes = Mistakes { executes_again: true, ..HONEST.mistakes };
    assert_caught(PrimaryBackup { mistakes, ..HONEST }, Mutants::default());
}

#[test]
fn stale_reads_are_caught() {
    let mistakes = Mistakes { stale_reads: true, ..HONEST.mistakes };
    assert_caught(PrimaryBackup { mistakes, ..HONEST }, Mutants::default());
}

#[test]
fn an_effect_that_does_not_reach_the_backup_is_caught() {
    let mistakes = Mistakes { loses_effects: true, ..HONEST.mistakes };
    let deployment = PrimaryBackup { mistakes, reads_at_backup: true };
    assert_caught(deployment, Mutants::default());
}

#[test]
fn a_recovery_that_forgets_the_newest_entry_is_caught() {
    let mistakes = Mistakes { forgets_newest: true, ..HONEST.mistakes };
    assert_caught(PrimaryBackup { mistakes, ..HONEST }, Mutants::default());
}
