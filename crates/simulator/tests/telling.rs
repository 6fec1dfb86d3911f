//! A run tells of itself in a script, which may be changed and run again.

use anabranch_simulator::{
    Deployment, Feature, Layout, Mutants, Script, TapirDeployment, TardisDeployment, simulate,
};
use checker::Outcome;
use serde_json::json;
use std::collections::BTreeSet;

/// One client, a transaction on several keys, and the process of its coordinator, which holds no replica.
fn quiet() -> (Script, u64) {
    let mut script = Script::draw("tapir", &TapirDeployment::default(), 1, &[]);
    script.layout = Layout { regions: 3, partitions: 2, replicas: 3, gateways: 2, ..Layout::default() };
    let swarm = &mut script.swarm;
    (swarm.loss, swarm.duplication, swarm.reordering, swarm.jitter) = (0.0, 0.0, 0.0, 0.1);
    (swarm.clients, swarm.longest, swarm.single, swarm.kinds) = (1, 6, 0.0, u16::MAX);
    (swarm.features, swarm.reads) = (BTreeSet::from([Feature::Interactive]), 0.2);
    script.traffic = 2_000_000;
    script.set_faults(&[]).expect("none");
    let reread = simulate(TapirDeployment::default(), &script, Mutants::default(), false).script.lines();
    let long = |line: &&String| line.contains(r#""shape":"many""#) && line.matches(r#""key":"#).count() > 3;
    let plan = reread.iter().find(long).expect("a transaction on several keys");
    let line: serde_json::Value = serde_json::from_str(plan).expect("a line of a script");
    let gateway = line["gateway"].as_u64();
    let script = Script::read(format!("{}\n{plan}", reread[0]).as_bytes());
    (script.expect("a script"), gateway.expect("a transaction names its gateway"))
}

#[test]
fn a_coordinator_may_die_at_every_step_of_a_transaction() {
    let (quiet, process) = quiet();
    let mut outcomes = BTreeSet::new();
    for events in 0..40 {
        let mut script = quiet.clone();
        let death = json!({ "process": process, "events": events, "down": 300_000 });
        let fault = json!({ "at": 0, "fault": { "coordinator-death": death } });
        script.set_faults(&[fault.to_string()]).expect("a fault");
        let run = simulate(TapirDeployment::default(), &script, Mutants::default(), false);
        assert!(run.report.ok, "after {events} events: {:#?}", run.report.violations);
        let first = &run.history[0];
        outcomes.insert((first.outcome == Outcome::Committed, first.took_effect()));
    }
    // Its client is in doubt, and it took effect or did not; or it was answered before.
    assert_eq!(outcomes, BTreeSet::from([(false, false), (false, true), (true, true)]));
}

/// What clients did with commands and with states is written down in full, and runs again.
#[test]
fn commands_and_constraints_are_written_down_and_run_again() {
    fn again<D: Deployment>(protocol: &str, build: impl Fn() -> D, with: &[Feature], shown: &str) {
        let mut script = Script::draw(protocol, &build(), 1, with);
        script.traffic = 2_000_000;
        let run = simulate(build(), &script, Mutants::default(), false);
        let text = run.script.lines().join("\n");
        assert!(text.contains(shown), "{protocol} has no {shown}");
        let reread = Script::read(text.as_bytes()).unwrap();
        assert_eq!(reread.transactions(), run.script.transactions());
        let again = simulate(build(), &reread, Mutants::default(), false);
        assert!(again.report.ok, "{:#?}", again.report.violations);
        assert!(again.script.lines().iter().any(|line| line.contains(shown)));
    }
    let commands = [Feature::Scripts, Feature::Renames];
    again("tapir", TapirDeployment::default, &commands, "[\"RENAME\",");
    again("tardis", TardisDeployment::default, &[Feature::Constraints], "\"snapshot-isolation\"");
}
