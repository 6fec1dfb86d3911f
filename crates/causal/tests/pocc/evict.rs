//! A region that is gone for good (the thesis, section 3.7.1, the lost update; Corrections 44): what other regions wrote may
//! depend on writes that nobody has any more.

use super::client::{Client, GET, increment, key_in, step};
use super::degraded::world;
use super::under_test::{Message, Options};
use super::world::{World, coordinator, replica};
use crate::wren::operations::write;
use anabranch_causal::pocc::{Mutant, Mutants, Partition, Scope};
use protocol::{ContextRequest, Request};
use std::time::Duration;
use types::{Address, RegionId};

const HERE: u16 = 0;
const MIDDLE: u16 = 1;
const FAR: u16 = 2;

/// The far region's `x` reaches nobody, its `y`, which depends on that, both others. A session in the middle reads `y` and
/// writes `z`; others write what depends on nothing of that.
struct Scene {
    world: World,
    x: String,
    y: String,
    z: String,
    /// The session that depends on `x`.
    bereft: Client,
    /// One that does not.
    other: Client,
    /// What the first one's context was.
    token: String,
}

fn options(keeps_dependants: bool, mutants: Mutants) -> Options {
    let (declare_after, lease) = (Duration::from_millis(500), Duration::from_millis(100));
    Options { scope: Scope::Session, declare_after, lease, keeps_dependants, mutants, ..Options::default() }
}

fn get(world: &mut World, client: Client, key: &str) -> String {
    client.one(world, key, GET).trim_matches('"').to_owned()
}

fn set(world: &mut World, client: Client, key: &str, value: &str) {
    assert_eq!(client.one(world, key, write(value)), "OK");
}

fn partition(world: &World, at: Address) -> &Partition {
    world.node(at).as_partition().expect("it is one")
}

/// Who has seen nothing.
fn reader(region: u16) -> Client {
    Client::new(coordinator(region, 1), 100 + u64::from(region))
}

fn lose(world: &mut World, region: u16) {
    (0..2).for_each(|index| world.destroy(replica(region, index)));
    (0..2).for_each(|number| world.crash(coordinator(region, number)));
    world.run_ms(100);
    world.heal();
}

fn evict(world: &mut World, at: u16, lost: u16) {
    world.tell(replica(at, 0), Message::Evict { regions: vec![RegionId(lost)] });
}

impl Scene {
    fn new(options: Options) -> Self {
        let mut world = world(options, 1);
        world.run_ms(300);
        let [x, y, z] = [(0, "x"), (1, "y"), (0, "z")].map(|(index, name)| key_in(index, 2, name));
        [HERE, MIDDLE].iter().for_each(|to| {
            world.cut_links.insert((replica(FAR, 0), replica(*to, 0)));
        });
        let far = Client::new(coordinator(FAR, 0), 1);
        set(&mut world, far, &x, "x");
        set(&mut world, far, &y, "y");
        world.run_ms(100);
        let (bereft, other) = (Client::new(coordinator(MIDDLE, 0), 2), Client::new(coordinator(HERE, 0), 3));
        assert_eq!(get(&mut world, bereft, &y), "y");
        set(&mut world, bereft, &z, "z");
        let ask = Request::Context { session: bereft.session, ask: ContextRequest::Token };
        let token = bereft.ask(&mut world, ask).trim_matches('"').to_owned();
        set(&mut world, other, "alone", "stays");
        world.run_ms(100);
        lose(&mut world, FAR);
        Scene { world, x, y, z, bereft, other, token }
    }

    fn evict(&mut self) {
        evict(&mut self.world, HERE, FAR);
        self.world.run_ms(4_000);
        for region in [HERE, MIDDLE] {
            for index in 0..2 {
                let partition = partition(&self.world, replica(region, index));
                assert!(partition.evicted().next().is_some() && !partition.is_evicting());
            }
        }
    }

    /// What both regions show of `x`, `y`, `z`, alike.
    #[track_caller]
    fn shown(&mut self) -> [String; 3] {
        let keys = [self.x.clone(), self.y.clone(), self.z.clone()];
        let of = |world: &mut World, region| keys.clone().map(|key| get(world, reader(region), &key));
        let here = of(&mut self.world, HERE);
        assert_eq!(here, of(&mut self.world, MIDDLE));
        assert_eq!(get(&mut self.world, reader(MIDDLE), "alone"), "stays");
        here
    }

    fn dependants(&self) -> Option<String> {
        partition(&self.world, replica(MIDDLE, 0)).dependants()
    }
}

#[test]
fn corrections_44_what_depends_on_a_lost_write_is_given_up_everywhere() {
    let mut scene = Scene::new(options(false, Mutants::default()));
    scene.evict();
    assert_eq!(scene.shown(), ["(nil)", "(nil)", "(nil)"]);
    let text = format!("1 writes given up that depended on lost ones ({})", scene.z);
    assert_eq!(scene.dependants(), Some(text));
}

#[test]
fn section_3_7_1_sessions_that_depend_on_a_lost_write_get_an_error_and_begin_anew() {
    let mut scene = Scene::new(options(false, Mutants::default()));
    scene.evict();
    let (bereft, other, y) = (scene.bereft, scene.other, scene.y.clone());
    let reply = bereft.one(&mut scene.world, &y, GET);
    assert!(reply.starts_with("-UNAVAILABLE region far was evicted, and this session depends on"), "{reply}");
    assert_eq!(get(&mut scene.world, bereft, &y), "(nil)");
    set(&mut scene.world, bereft, &y, "anew");
    assert_eq!(get(&mut scene.world, other, "alone"), "stays", "nobody else is told");
    scene.world.run_ms(100);
    assert_eq!(get(&mut scene.world, other, &y), "anew");
    let timeout = Duration::from_millis(200);
    let ask = ContextRequest::Restore { token: scene.token.as_bytes(), timeout };
    let reply = other.ask(&mut scene.world, Request::Context { session: other.session, ask });
    assert!(reply.starts_with("-UNAVAILABLE region far was evicted"), "{reply}");
    assert_eq!(get(&mut scene.world, other, &y), "anew");
}

#[test]
fn dependants_of_a_lost_write_stay_where_that_is_the_policy() {
    let mut scene = Scene::new(options(true, Mutants::default()));
    scene.evict();
    assert_eq!(scene.shown(), ["(nil)", "(nil)", "z"]);
    let text = format!("1 writes kept that depended on lost ones ({})", scene.z);
    assert_eq!(scene.dependants(), Some(text));
    let (bereft, z) = (scene.bereft, scene.z.clone());
    assert_eq!(get(&mut scene.world, bereft, &z), "z", "its session goes on");
    set(&mut scene.world, bereft, &z, "more");
    scene.world.run_ms(100);
    assert_eq!(scene.shown()[2], "more");
}

/// What Wren does is not enough: there nobody has seen what is given up.
#[test]
fn survivors_that_keep_what_depends_on_lost_writes_are_noticed() {
    let mut scene = Scene::new(options(false, Mutant::DependantsKept.into()));
    scene.evict();
    assert_eq!(scene.shown(), ["(nil)", "(nil)", "z"]);
}

/// Transactions of several partitions, increments and what is forgotten go on as before.
#[test]
fn survivors_go_on() {
    let mut scene = Scene::new(options(false, Mutants::default()));
    scene.evict();
    let keys = [0, 1].map(|index| key_in(index, 2, "n"));
    for round in 0..4 {
        let client = Client::new(coordinator(round % 2, 0), 20 + u64::from(round % 2));
        let steps = keys.each_ref().map(|key| step(key, increment(1)));
        let reply = client.many(&mut scene.world, &steps);
        assert_eq!(reply, format!("(integer) {0}; (integer) {0}", round + 1));
        scene.world.run_ms(300);
    }
    scene.world.run_ms(1_000);
    for (region, index) in [(HERE, 0), (HERE, 1), (MIDDLE, 0), (MIDDLE, 1)] {
        let partition = partition(&scene.world, replica(region, index));
        let key = keys[usize::from(index)].as_bytes();
        assert_eq!((partition.versions(key).count(), partition.unreceived()), (0, 0), "it is in the cells");
    }
}

/// Whoever dies whenever, with its log or without.
#[test]
fn survivors_that_die_meanwhile_agree() {
    for pause in crate::some_of((0..2_400).step_by(200)) {
        let mut scene = Scene::new(Options {
            durability: protocol::Durability::Synced,
            ..options(false, Mutants::default())
        });
        evict(&mut scene.world, MIDDLE, FAR);
        scene.world.run_ms(pause);
        let lost = (pause / 200 % 4) as usize;
        for (number, down) in
            [replica(1, 0), replica(0, 0), replica(0, 1), replica(1, 1)].into_iter().enumerate()
        {
            match number == lost {
                true => scene.world.destroy(down),
                false => scene.world.crash(down),
            }
            scene.world.run_ms(40);
            scene.world.start_from(down, number != lost);
            scene.world.run_ms(pause % 300);
        }
        // A partition that died before its log had the eviction gets it again.
        evict(&mut scene.world, HERE, FAR);
        scene.world.run_ms(6_000);
        assert_eq!(scene.shown(), ["(nil)", "(nil)", "(nil)"], "{pause}");
        let (bereft, z) = (scene.bereft, scene.z.clone());
        assert!(
            bereft.one(&mut scene.world, &z, GET).starts_with("-UNAVAILABLE region far was evicted"),
            "{pause}"
        );
        set(&mut scene.world, bereft, &z, "anew");
        scene.world.run_ms(300);
        assert_eq!(scene.shown()[2], "anew", "{pause}");
    }
}

/// A write that one survivor has, and all partitions up to it, stays with what depends on it.
#[test]
fn survivors_forward_what_they_hold() {
    let mut world = world(options(false, Mutants::default()), 1);
    world.run_ms(300);
    let [x, z] = [(0, "x"), (1, "z")].map(|(index, name)| key_in(index, 2, name));
    world.cut_one_way(FAR, MIDDLE);
    set(&mut world, Client::new(coordinator(FAR, 0), 1), &x, "x");
    world.run_ms(100);
    let own = Client::new(coordinator(HERE, 0), 2);
    assert_eq!(get(&mut world, own, &x), "x");
    set(&mut world, own, &z, "z");
    lose(&mut world, FAR);
    evict(&mut world, HERE, FAR);
    world.run_ms(4_000);
    for region in [HERE, MIDDLE] {
        assert_eq!([&z, &x].map(|key| get(&mut world, reader(region), key)), ["z", "x"]);
    }
    assert_eq!(get(&mut world, own, &x), "x", "its session is told nothing");
}
