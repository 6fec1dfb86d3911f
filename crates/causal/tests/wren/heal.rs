//! A cut that is over (docs/internals/merging.md).

use crate::wren::client::{Client, GET, blind_step, increment, step};
use crate::wren::operations::write;
use crate::wren::world::{EPOCH, World, coordinator, replica};
use anabranch_causal::wren::Options;
use std::collections::BTreeSet;

/// More than a window of it is on its way at a time.
const VALUE: usize = 40_000;

/// While what arrives is far behind, snapshots pass it in steps of half of what is missing: each of them costs every key that
/// is read a run of what lies above. And everything counts in the end.
#[test]
fn snapshots_pass_a_long_backlog_in_long_steps() {
    let options = Options { queue_bytes: 1 << 30, ..Options::default() };
    let mut world = World::new(2, 1, 1, options, 5);
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    world.run_ms(500);
    world.cut(0, 1);
    for round in 0..600 {
        let value = format!("{round}-{}", "v".repeat(VALUE));
        here.many(&mut world, &[step("big", write(&value)), blind_step("count", increment(1))]);
        there.many(&mut world, &[blind_step("count", increment(1))]);
        world.run_ms(20);
    }
    world.heal();
    let shown = |world: &World| {
        let partition = world.node(replica(1, 0)).as_partition().expect("it is a partition");
        partition.stable().remote.wall().0
    };
    let (mut before, mut long_steps, mut arrivals) = (shown(&world), 0, BTreeSet::new());
    for _ in 0..2000 {
        world.run_ms(2);
        let partition = world.node(replica(1, 0)).as_partition().expect("it is a partition");
        let (now, after) = (EPOCH + world.now, shown(&world));
        let arrived = partition.received_of_regions().map(|(_, at)| at.wall().0);
        arrivals.extend(arrived.filter(|at| now - at > 1_000_000));
        let (left_before, left) = (now - before, now - after);
        if after != before && left_before > 1_000_000 {
            assert!(
                left < 1_100_000 || left < left_before / 2 + 100_000,
                "{left} of {left_before} us are left"
            );
            long_steps += 1;
        }
        before = after;
    }
    assert!((2..8).contains(&long_steps), "{long_steps} steps");
    assert!(arrivals.len() > 2 * long_steps, "{long_steps} steps of {} arrivals", arrivals.len());
    for client in [here, there] {
        assert_eq!(client.one(&mut world, "count", GET), "\"1200\"");
    }
}
