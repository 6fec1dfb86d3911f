//! The harness is tested too: each deliberate mistake is caught within a stated number of seeds.

use crate::wren::client::{Client, GET, key_in, step};
use crate::wren::operations::write;
use crate::wren::random::{CALM, FORGETTING, LOSING, Plan, REMOVING, SPILLING, play};
use crate::wren::world::{EPOCH, World, coordinator, replica};
use anabranch_causal::wren::{Mutant, Mutants, Options};
use std::time::Duration;

fn caught(mutant: Mutant, seeds: u64) {
    caught_in(Plan { mutants: mutant.into(), rounds: 150, jumps: true, near: 12_000, ..CALM }, seeds);
}

fn caught_in(plan: Plan, seeds: u64) {
    let mutants = plan.mutants;
    let found = (0..seeds).find(|seed| !play(*seed, plan).ok);
    assert!(found.is_some(), "{mutants:?} was not caught in {seeds} seeds");
}

#[test]
fn reading_above_the_stable_time_is_caught() {
    caught(Mutant::ReadAboveStable, 5);
}

#[test]
fn a_heartbeat_past_the_gate_is_caught() {
    caught(Mutant::UngatedHeartbeat, 10);
}

#[test]
fn a_receiver_taken_for_the_origin_is_caught() {
    caught(Mutant::ReceiverAsOrigin, 10);
}

#[test]
fn overwritten_stable_times_are_caught() {
    caught(Mutant::NonMonotoneSnapshot, 10);
}

/// Corrections 21: a clock that jumps back stamps below what was published.
#[test]
fn a_forgotten_bound_is_caught() {
    caught(Mutant::BoundNotRemembered, 40);
}

/// Corrections 20.
#[test]
fn an_effect_left_out_at_the_bound_is_caught() {
    caught(Mutant::ApplyBelow, 40);
}

/// Corrections 67: a partition that lost records serves at once, from what is left.
#[test]
fn serving_before_catching_up_is_caught() {
    caught_in(Plan { mutants: Mutant::StampBeforeCatchUp.into(), ..LOSING }, 20);
}

/// Stable times that count what was lost.
#[test]
fn vouching_for_what_is_lost_is_caught() {
    caught_in(Plan { mutants: Mutant::VouchForLost.into(), ..LOSING }, 20);
}

/// Corrections 75: a deletion takes away what it never saw.
#[test]
fn a_reset_of_what_was_not_observed_is_caught() {
    caught_in(Plan { mutants: Mutant::ResetUnobserved.into(), ..REMOVING }, 10);
}

/// Who did what is forgotten while an effect may come that has not observed it.
#[test]
fn a_forgotten_context_is_caught() {
    caught_in(Plan { mutants: Mutant::ForgetContext.into(), near: 500, rounds: 300, ..REMOVING }, 40);
}

#[test]
fn a_dropped_queue_that_counts_as_sent_is_caught() {
    caught_in(Plan { mutants: Mutant::DroppedCountsAsSent.into(), ..FORGETTING }, 20);
}

#[test]
fn a_chunk_that_counts_as_sent_before_it_is_fetched_is_caught() {
    caught_in(Plan { mutants: Mutant::AwaitedCountsAsSent.into(), ..SPILLING }, 20);
}

/// A partition that restarts from it takes what was in the spool for sent.
#[test]
fn a_checkpoint_that_does_not_tell_what_is_spilled_is_caught() {
    caught_in(Plan { mutants: Mutant::SpilledNotTold.into(), ..SPILLING }, 20);
}

/// How far behind another region is, at most, in milliseconds, while something commits in every tick.
fn lag_under_load(mutants: Mutants) -> u64 {
    let mut world = World::new(2, 1, 1, Options { mutants, ..Options::default() }, 2);
    world.run_ms(200);
    let lags = (0..400).map(|round: u64| {
        let writer = Client::new(coordinator(0, 0), round + 1);
        writer.send(&mut world, &[step("k", write(&round.to_string()))]);
        world.run_ms(1);
        let far = world.node(replica(1, 0)).as_partition().expect("it is a partition");
        let heard = far.received_of_regions().map(|(_, at)| at.wall().0).min().expect("of one region");
        (EPOCH + world.now - heard) / 1000
    });
    lags.max().expect("there was load")
}

/// Corrections 32, liveness: partitions send the time after a batch, too, and also while something waits. Whatever is
/// written meanwhile, other regions see all but the last milliseconds.
#[test]
fn time_that_is_sent_only_when_nothing_waits_is_caught() {
    let (sound, mutant) = (Mutants::default(), Mutant::HeartbeatWhenIdle.into());
    let [sound, mutant] = [sound, mutant].map(lag_under_load);
    assert!(sound < 50, "{sound} ms behind");
    assert!(mutant > 300, "{mutant} ms behind: the load goes on for 400 ms");
}

/// A transaction reads a key, another session of its process writes that and a second one, and the first goes on to the
/// second: what it reads of the two.
fn reads_around_a_write(mutants: Mutants) -> [String; 2] {
    let mut world = World::new(1, 2, 1, Options { mutants, ..Options::default() }, 3);
    world.run_ms(200);
    let (x, y) = (key_in(0, 2, "x"), key_in(1, 2, "y"));
    let (reader, writer) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 0), 2));
    writer.many(&mut world, &[step(&x, write("1")), step(&y, write("1"))]);
    reader.begin(&mut world);
    let first = reader.operate(&mut world, &x, GET);
    writer.many(&mut world, &[step(&x, write("2")), step(&y, write("2"))]);
    [first, reader.operate(&mut world, &y, GET)]
}

/// Corrections 72: the shared cache is as it was when the transaction began.
#[test]
fn a_shared_cache_without_versions_is_caught() {
    assert_eq!(reads_around_a_write(Mutants::default()), ["\"1\"", "\"1\""]);
    assert_eq!(reads_around_a_write(Mutant::CacheUnversioned.into()), ["\"1\"", "\"2\""], "fractured");
}

/// What a session reads whose last write ended with UNKNOWNOUTCOME.
fn read_after_an_unknown_outcome(mutants: Mutants) -> String {
    let options = Options { give_up_after: Duration::from_millis(500), mutants, ..Options::default() };
    let mut world = World::new(1, 1, 1, options, 3);
    world.run_ms(200);
    let client = Client::new(coordinator(0, 0), 1);
    client.one(&mut world, "x", write("old"));
    world.run_ms(100);
    world.crash(replica(0, 0));
    let written = client.send(&mut world, &[step("x", write("new"))]);
    let reply = checker::render(&world.await_reply(written));
    assert!(reply.starts_with("-UNKNOWNOUTCOME"), "{reply}");
    let read = client.send(&mut world, &[step("x", GET)]);
    world.run_ms(50);
    world.start(replica(0, 0));
    checker::render(&world.await_reply(read))
}

/// Corrections 34 and 72: only the session of an unknown outcome waits for it, but that one does.
#[test]
fn a_session_that_goes_on_in_doubt_is_caught() {
    assert_eq!(read_after_an_unknown_outcome(Mutants::default()), "\"new\"");
    assert_eq!(
        read_after_an_unknown_outcome(Mutant::UnknownNotAwaited.into()),
        "\"old\"",
        "its own write is missing"
    );
}
