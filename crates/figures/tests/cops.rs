//! What a run of COPS, COPS-GT and LOG shows whatever the costs are. Few clients, so that nothing but the protocols stands in an
//! operation's way.

use anabranch_figures::cops::{Measured, Setup, System, run};
use anabranch_figures::tcc::{COSTS, Costs};
use bench::cops::Plan;

const PLAN: Plan = Plan { groups: 0, keys: 64, variance: 1.0, puts: 1, gets: 1 };

fn setup(servers: u16) -> Setup {
    Setup { servers, clients: 4, plan: PLAN, value_bytes: 1, costs: COSTS, measured: 100, seed: 1 }
}

fn measure(system: System, setup: Setup) -> Measured {
    let measured = run(&(system, setup));
    assert!(measured.answered > 1_000.0 && measured.failed == 0, "{measured:?}");
    measured
}

/// COPS, section 6.4: LOG has no dependencies to name or to check, and COPS on one server none to check elsewhere.
#[test]
fn a_log_names_no_dependencies_and_one_server_checks_none() {
    let log = measure(System::Log, setup(2));
    assert_eq!((log.nearest, log.all, log.checks), (0.0, 0.0, 0.0));
    let one = measure(System::Cops, setup(1));
    assert!(one.nearest > 0.0 && one.checks == 0.0, "{one:?}");
    assert!(measure(System::Cops, setup(4)).checks > 0.0);
}

/// COPS, section 4.4, and decision 0059: how many checks a put needs does not depend on how many keys there are.
#[test]
fn dependency_checks_do_not_grow_with_the_keys() {
    let checks = |keys| measure(System::Cops, Setup { plan: Plan { keys, ..PLAN }, ..setup(4) }).checks;
    let (few, many) = (checks(8), checks(4096));
    assert!(few > 0.0 && many < 1.2 * few, "{few} {many}");
}

/// COPS, section 6.3: COPS names its nearest dependencies, which are few; COPS-GT all, which are at most as many as there are
/// partitions and regions here.
#[test]
fn dependencies_are_few() {
    let cops = measure(System::Cops, setup(4));
    assert!(cops.nearest <= 4.0 && cops.all == 0.0, "{cops:?}");
    let with = measure(System::CopsGt, setup(4));
    assert!(with.nearest < with.all && with.all <= 8.0, "{with:?}");
}

/// COPS, section 6.4: a single log is all that a region can write.
#[test]
fn servers_add_up_in_cops_and_not_in_a_log() {
    let answered = |system, servers| {
        let setup = Setup { clients: 32, ..setup(servers) };
        measure(system, setup).throughput
    };
    assert!(answered(System::Log, 3) < 1.1 * answered(System::Log, 1));
    assert!(answered(System::Cops, 3) > 1.8 * answered(System::Cops, 1));
}

#[test]
fn a_seed_is_a_run_and_costs_are_counted() {
    let once = measure(System::CopsGt, setup(2));
    assert_eq!(once, measure(System::CopsGt, setup(2)));
    let slower = Setup { costs: Costs { message: 5 * COSTS.message, ..COSTS }, ..setup(2) };
    assert!(measure(System::CopsGt, slower).get_us[0] > once.get_us[0]);
}
