//! Sites that have lost the end of their log: nothing is counted twice, and nothing that another site has is missing.

use super::{World, address};
use anabranch_branch::Keep;
use anabranch_branch::site::{Collecting, Merging, Options, Site};
use std::time::Duration;
use types::{Incarnation, Rng};

impl World {
    fn site(&self, site: usize) -> &Site {
        self.sites[site].protocol().as_site().expect("it is a site")
    }

    /// Ends a site's life; the next one begins from a log that was cut.
    fn cut_log(&mut self, site: usize, at: usize, complete: bool) {
        self.logs[site].truncate(at);
        self.begin_life(site, &[], complete);
    }
}

fn world(sites: usize, seed: u64) -> World {
    let merging = Merging::Auto { every: Duration::from_millis(10) };
    let collect = if seed.is_multiple_of(2) { Collecting::Optimistic } else { Collecting::Pessimistic };
    World::new(sites, Options { keep: Keep::states(0), merging, collect, ..Options::default() }, seed)
}

/// True if every increment counts once everywhere, though logs are cut, of one site at a time, where the others have
/// received everything.
fn counts_once(seed: u64, complete: bool) -> bool {
    let (random, sites) = (&mut Rng::with_seed(seed), 2 + seed as usize % 2);
    let mut world = world(sites, seed);
    let (mut total, mut lengths) = (0, vec![0; sites]);
    for _ in 0..150 {
        let site = random.usize(..sites);
        match random.u32(..20) {
            0 => lengths[site] = world.logs[site].len(),
            1 if lengths[site] > 0 && world.is_received(site) && (0..sites).all(|s| !world.is_joining(s)) => {
                world.cut_log(site, lengths[site], complete);
                lengths[site] = 0;
            }
            _ if world.is_joining(site) => {}
            _ => {
                world.increment(site, &["all"]);
                total += 1;
            }
        }
        world.pass(Duration::from_micros(random.u64(..40_000)));
    }
    world.pass(Duration::from_secs(20));
    (0..sites).all(|site| world.heads(site) == world.heads(0) && world.number(site, "all") == total)
}

#[test]
fn a_site_whose_log_was_cut_takes_everything_from_another_one() {
    for seed in crate::some_of(0..60) {
        assert!(counts_once(seed, false), "seed {seed}");
    }
}

/// The test is tested too: a site that believes that nothing is missing counts wrongly.
#[test]
fn a_site_that_takes_a_cut_log_for_a_whole_one_is_caught() {
    let outcome = |seed| std::panic::catch_unwind(|| counts_once(seed, true)).unwrap_or(false);
    assert!((0..60).any(|seed| !outcome(seed)), "the mistake was not seen");
}

/// Where every site has lost something, they go on with what they have.
#[test]
fn sites_that_have_all_lost_something_go_on_with_what_is_left() {
    let mut world = world(3, 1);
    (0..3).for_each(|site| world.increment(site, &["all"]));
    world.pass(Duration::from_secs(1));
    let lengths: Vec<usize> = world.logs.iter().map(Vec::len).collect();
    for (site, length) in lengths.into_iter().enumerate() {
        world.cut_log(site, length, false);
        assert!(world.is_joining(site));
    }
    world.pass(Duration::from_secs(2));
    (0..3).for_each(|site| assert!(!world.site(site).is_joining() && world.number(site, "all") == 3));
}

/// One that hears of nobody waits: it might count twice what others have taken out.
#[test]
fn a_site_whose_log_was_cut_serves_nothing_while_it_is_alone() {
    let mut world = world(2, 2);
    world.increment(1, &["all"]);
    world.pass(Duration::from_secs(1));
    world.cut = [(0, 1)].into();
    let length = world.logs[0].len();
    world.cut_log(0, length, false);
    world.pass(Duration::from_secs(5));
    assert!(world.is_joining(0));
    // What it has it keeps meanwhile, also for a further life.
    assert_eq!(world.sites[0].node(), address(0).at(Incarnation(2)));
    world.cut.clear();
    world.pass(Duration::from_secs(5));
    assert!(!world.is_joining(0));
    assert_eq!((world.number(0, "all"), world.number(1, "all")), (1, 1));
}
