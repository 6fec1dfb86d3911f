//! Sites that have lost the end of their log, and whose record partitions have not.

use super::{Said, World, options};
use anabranch_branch::site::Site;
use std::collections::BTreeMap;
use std::time::Duration;

impl World {
    fn site(&self, process: u16) -> &Site {
        let replica = self.hosts[&process].replica.as_ref().expect("it lives");
        replica.protocol().as_site().expect("it is a site")
    }

    /// Ends a site's life; the next one begins from a log that was cut.
    fn cut_log(&mut self, process: u16, at: usize, complete: bool) {
        self.kill(process);
        let host = self.hosts.get_mut(&process).expect("it is a process");
        host.log.truncate(at);
        host.synced = at;
        self.start_with(process, complete);
    }
}

/// True if every increment counts once in both regions, though logs are cut, of one site at a time, where the other
/// one has received everything.
fn counts_once(seed: u64, complete: bool) -> bool {
    let mut world = World::new(2, options(), seed);
    let (mut total, mut lengths) = (0, BTreeMap::<u16, usize>::new());
    for _ in 0..100 {
        let site = 10 + 10 * world.random.u16(..2);
        let serves = |world: &World| [10, 20].into_iter().all(|site| !world.site(site).is_joining());
        match world.random.u32(..14) {
            0 => {
                lengths.insert(site, world.hosts[&site].log.len());
            }
            1 if lengths.contains_key(&site) && world.site(site).unreceived() == 0 && serves(&world) => {
                let length = lengths.remove(&site).expect("it was noted");
                world.cut_log(site, length, complete);
            }
            _ if world.site(site).is_joining() => {}
            _ => total += i64::from(world.increment(site, "all").is_some()),
        }
        let pause = Duration::from_micros(world.random.u64(..40_000));
        world.pass(pause);
    }
    world.pass(Duration::from_secs(20));
    [10, 20].into_iter().all(|site| world.number(site, "all") == total)
}

#[test]
fn a_site_whose_log_was_cut_takes_everything_from_another_one() {
    for seed in 0..12 {
        assert!(counts_once(seed, false), "seed {seed}");
    }
}

/// The test is tested too: a site that believes that nothing is missing counts wrongly.
#[test]
fn a_site_that_takes_a_cut_log_for_a_whole_one_is_caught() {
    let outcome = |seed| std::panic::catch_unwind(|| counts_once(seed, true)).unwrap_or(false);
    assert!((0..12).any(|seed| !outcome(seed)), "the mistake was not seen");
}

/// Where every site has lost something, they go on with what they have.
#[test]
fn sites_that_have_all_lost_something_go_on_with_what_is_left() {
    let mut world = World::new(2, options(), 9);
    let keys = ["a", "b", "c", "d"];
    keys.iter().for_each(|key| world.set(10, key, "1"));
    world.pass(Duration::from_secs(2));
    for site in [10, 20] {
        let length = world.hosts[&site].log.len();
        world.cut_log(site, length, false);
        assert!(world.site(site).is_joining());
    }
    world.pass(Duration::from_secs(2));
    for site in [10, 20] {
        keys.iter().for_each(|key| assert_eq!(world.get(site, key), Said::Text("1".into())));
    }
}

/// One that hears of nobody waits, and keeps what it has.
#[test]
fn a_site_whose_log_was_cut_keeps_what_it_has_until_another_one_is_heard() {
    let mut world = World::new(2, options(), 10);
    let keys = ["a", "b", "c", "d"];
    keys.iter().for_each(|key| world.set(10, key, "1"));
    world.pass(Duration::from_secs(2));
    world.kill(20);
    for _ in 0..2 {
        let length = world.hosts[&10].log.len();
        world.cut_log(10, length, false);
        world.pass(Duration::from_secs(2));
        assert!(world.site(10).is_joining());
    }
    world.start_with(20, false);
    world.pass(Duration::from_secs(2));
    for site in [10, 20] {
        keys.iter().for_each(|key| assert_eq!(world.get(site, key), Said::Text("1".into())));
    }
}
