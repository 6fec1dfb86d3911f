//! A region of Wren's is lost while its partitions have copies, and those who lead the copies die or are deposed meanwhile.

use crate::mistakes::{self, Bug};
use anabranch_simulator::{Layout, Script, WrenCopiesDeployment, simulate};
use causal::stable::{self, Mutant, Mutants};
use replication::copies;
use serde_json::json;
use std::collections::BTreeSet;

/// Region 2 is lost while only region 0 hears of its last transactions. Then a process dies in each of the other regions, or
/// stands still so that whoever leads there is deposed, so many steps after the operator has spoken.
fn eviction(step: u64) -> Script {
    let mut script = Script::draw("wren-copies", &WrenCopiesDeployment::default(), 3, &[]);
    script.layout = Layout { regions: 3, partitions: 2, replicas: 3, colocated: true, ..Layout::default() };
    let swarm = &mut script.swarm;
    (swarm.loss, swarm.duplication, swarm.reordering, swarm.jitter) = (0.0, 0.0, 0.0, 0.1);
    (swarm.clients, swarm.features) = (9, BTreeSet::new());
    let at = |at: u64, fault: serde_json::Value| json!({ "at": at, "fault": fault }).to_string();
    let struck = |process: u64| match step % 2 {
        0 => json!({ "kill": { "process": process, "down": 900_000 } }),
        _ => json!({ "pause": { "process": process, "lasts": 1_200_000 } }),
    };
    let links = (6..9).flat_map(|lost| (3..6).flat_map(move |other| [[lost, other], [other, lost]]));
    let links: Vec<[u16; 2]> = links.collect();
    let (place, when) = (step / 2 % 3, 1_820_000 + step * STEP);
    let faults = [
        at(1_000_000, json!({ "cut": { "links": links, "lasts": 5_000_000 } })),
        at(1_500_000, json!({ "lose-region": { "region": 2, "apart": 1_000, "after": 300_000 } })),
        at(when, struck(place)),
        at(when + STEP / 2, struck(3 + place)),
    ];
    script.set_faults(&faults).expect("faults");
    script.traffic = 5_000_000;
    script
}

/// Between two moments at which leaders are struck, in microseconds.
const STEP: u64 = 90_000;
/// With these an eviction is over before the last one.
const STEPS: u64 = 18;

/// Scripts of seconds with nine processes.
mod soak {
    use super::*;

    #[test]
    fn leaders_may_die_or_be_deposed_at_every_stage_of_an_eviction() {
        // Deaths and depositions in turn.
        for step in 0..STEPS {
            let run = simulate(WrenCopiesDeployment::default(), &eviction(step), Default::default(), false);
            assert!(run.report.ok, "after {step} steps: {:#?}", run.report.violations);
            assert!(run.history.len() > 100, "{} transactions", run.history.len());
        }
    }

    /// Who leads when its group has agreed on the cut is not who leads later.
    #[test]
    fn a_follower_that_keeps_what_its_leader_gave_up_is_caught() {
        let mutant = Mutant::KeptByFollowers;
        let bug = Bug::of_scripts("wren-copies", mutant, (8..STEPS).map(eviction).collect());
        mistakes::assert_caught(&bug, Mutants::from(mutant), |mutants| {
            let options = stable::Options { mutants, ..stable::Options::default() };
            WrenCopiesDeployment::new(options, copies::Options::default())
        });
    }
}
