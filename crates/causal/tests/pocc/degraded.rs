//! HA-POCC (the thesis, section 3.7; Corrections 43): blocked -> declared, optimistic -> pessimistic, hidden until stable,
//! healed -> promoted.

use super::client::{Client, GET, blind_step, increment, key_in, on, step};
use super::under_test::{Options, Topology};
use super::world::{KEYSPACE, SEED, World, coordinator, replica};
use crate::wren::operations::{DELETE, MEMBERS, add, remove, write, write_if_absent};
use anabranch_causal::pocc::{Mutant, Mutants, RegionTopology, Scope};
use datatypes::{Operation, register};
use protocol::{ContextRequest, Request, Step};
use std::time::Duration;

const HERE: u16 = 0;
const MIDDLE: u16 = 1;
const FAR: u16 = 2;
const DECLARED_MS: u64 = 1_000;
/// How the log begins to tell that a transaction is aborted.
const ABORTED: u8 = 2;

/// Three regions of two partitions: the far one's new values of `keys` have reached the middle, and not here; what the middle wrote
/// when it had read them, has. It says so in `about`, which partition 0 holds.
struct Scene {
    world: World,
    keys: [String; 2],
    sessions: u64,
}

/// Three regions of two partitions with two coordinators each.
pub fn world(options: Options, seed: u64) -> World {
    let of_region = |region: u16| {
        let name = ["here", "middle", "far"][usize::from(region)];
        RegionTopology::full(name, (0..2).map(|index| replica(region, index)))
    };
    let regions = (0..3).map(of_region).collect();
    World::of(Topology { regions, keyspace: KEYSPACE, seed: SEED }, 2, options, seed)
}

impl Scene {
    fn cut(mutants: Mutants) -> Self {
        let declare_after = Duration::from_millis(DECLARED_MS);
        let options = Options { scope: Scope::Session, declare_after, mutants, ..Options::default() };
        let mut world = world(options, 1);
        world.run_ms(200);
        let mut scene = Scene { world, keys: [0, 1].map(|index| key_in(index, 2, "k")), sessions: 0 };
        let (far, middle) = (scene.session(FAR), scene.session(MIDDLE));
        scene.write_all(far, "old");
        scene.world.run_ms(100);
        scene.world.cut(HERE, FAR);
        scene.write_all(far, "new");
        scene.world.run_ms(100);
        for key in scene.keys.clone() {
            assert_eq!(scene.get(middle, &key), "\"new\"");
        }
        scene.set(middle, "about", "they are new");
        scene.world.run_ms(100);
        scene
    }

    fn session(&mut self, region: u16) -> Client {
        self.sessions += 1;
        Client::new(coordinator(region, (self.sessions % 2) as u16), self.sessions)
    }

    /// A session here that has seen what the middle wrote, and so depends on what is missing.
    fn dependent(&mut self) -> Client {
        let client = self.session(HERE);
        assert_eq!(self.get(client, "about"), "\"they are new\"");
        client
    }

    /// A session here that has got -DEGRADED.
    fn pessimistic(&mut self) -> Client {
        let (client, key) = (self.dependent(), self.keys[1].clone());
        assert!(self.get(client, &key).starts_with("-DEGRADED"));
        client
    }

    fn get(&mut self, client: Client, key: &str) -> String {
        client.one(&mut self.world, key, GET)
    }

    fn set(&mut self, client: Client, key: &str, value: &str) {
        assert_eq!(client.one(&mut self.world, key, write(value)), "OK");
    }

    fn write_all(&mut self, client: Client, value: &str) {
        self.keys.clone().iter().for_each(|key| self.set(client, key, value));
    }

    fn heal(&mut self) {
        self.world.heal();
        self.world.run_ms(2_000);
    }

    fn pessimistic_here(&self) -> u64 {
        let of = |number| self.world.node(coordinator(HERE, number)).as_coordinator().expect("it is one");
        (0..2).map(|number| of(number).pessimistic_sessions().0).sum()
    }
}

#[test]
fn blocked_a_request_declares_the_region_cut_off_and_names_it() {
    let mut scene = Scene::cut(Mutants::default());
    let (first, independent) = (scene.dependent(), scene.session(HERE));
    let second = Client::new(first.at, 99);
    assert_eq!(scene.get(second, "about"), "\"they are new\"");
    let (key, begun) = (scene.keys[1].clone(), scene.world.now);
    let reply = scene.get(first, &key);
    assert!(reply.starts_with("-DEGRADED") && reply.contains("of region far"), "{reply}");
    let waited = (scene.world.now - begun) / 1_000;
    assert!((DECLARED_MS..DECLARED_MS + 200).contains(&waited), "{waited} ms");
    // It is known at its coordinator now.
    let begun = scene.world.now;
    assert!(scene.get(second, &key).starts_with("-DEGRADED"));
    assert!(scene.world.now - begun < 200_000, "the second one waits for {} us", scene.world.now - begun);
    assert_eq!(scene.get(independent, &key), "\"old\"", "who needs nothing that is missing goes on");
}

/// Whatever waits in the same pipeline.
#[test]
fn a_pipeline_waits_once() {
    let mut scene = Scene::cut(Mutants::default());
    let (client, key, begun) = (scene.dependent(), scene.keys[1].clone(), scene.world.now);
    let get = || Request::One { session: client.session, operation: on(&key, GET) };
    let requests: Vec<_> = (0..64).map(|_| scene.world.request(client.at, get())).collect();
    let replies: Vec<_> =
        requests.into_iter().map(|id| checker::render(&scene.world.await_reply(id))).collect();
    assert!(replies[0].starts_with("-DEGRADED") && replies[63] == "\"old\"", "{replies:?}");
    assert!(
        scene.world.now - begun < (DECLARED_MS + 200) * 1_000,
        "it waits for {}",
        scene.world.now - begun
    );
}

/// How many transactions a log says to be aborted.
fn aborted(world: &mut World) -> usize {
    let of_group = |bytes: &[u8]| {
        let (mut bytes, mut found) = (bytes.to_vec(), 0);
        while bytes.len() > 4 {
            let len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
            found += usize::from(bytes[4] == ABORTED);
            bytes.drain(..4 + len);
        }
        found
    };
    world.host(replica(HERE, 1)).log.iter().map(|(.., records)| of_group(records)).sum()
}

#[test]
fn a_write_that_waits_for_another_region_is_not_tried_again_and_again() {
    let mut scene = Scene::cut(Mutants::default());
    let (client, key) = (scene.dependent(), scene.keys[1].clone());
    let reply = client.one(&mut scene.world, &key, increment(1));
    assert!(reply.starts_with("-DEGRADED"), "{reply}");
    assert_eq!(aborted(&mut scene.world), 1);
}

/// Whatever a commit lacks, its client gets an error within five seconds. Only with a bug does a partition lack what
/// it had announced.
#[test]
fn a_commit_that_lacks_something_ends() {
    let mut scene = Scene::cut(Mutant::HeardNotLogged.into());
    scene.heal();
    let (client, key) = (scene.session(HERE), key_in(1, 2, "n"));
    assert_eq!(client.begin(&mut scene.world), "OK");
    assert_eq!(client.operate(&mut scene.world, &key, increment(1)), "(integer) 1");
    scene.world.cut(HERE, FAR);
    scene.world.crash(replica(HERE, 1));
    scene.world.start(replica(HERE, 1));
    let begun = scene.world.now;
    let reply = client.commit(&mut scene.world);
    let waited = (scene.world.now - begun) / 1_000;
    assert!(reply.starts_with("-UNAVAILABLE") || reply.starts_with("-DEGRADED"), "{reply}");
    assert!((DECLARED_MS..6_000).contains(&waited), "{reply} after {waited} ms");
    assert!(!client.begin(&mut scene.world).starts_with('-'));
}

#[test]
fn a_partition_that_is_down_is_not_taken_for_a_region_that_is_cut_off() {
    let mut scene = Scene::cut(Mutants::default());
    let (client, key) = (scene.dependent(), scene.keys[1].clone());
    scene.world.crash(replica(HERE, 1));
    let reply = scene.get(client, &key);
    assert!(reply.starts_with("-UNAVAILABLE partition 1 of the region"), "{reply}");
}

#[test]
fn an_optimistic_session_goes_on_as_a_pessimistic_one() {
    let mut scene = Scene::cut(Mutants::default());
    let (client, other) = (scene.pessimistic(), scene.pessimistic());
    let [one, another] = scene.keys.clone();
    assert_eq!((scene.get(client, &one), scene.get(client, &another)), ("\"old\"".into(), "\"old\"".into()));
    assert_eq!(scene.get(client, "about"), "(nil)", "it depends on what is missing");
    let begun = scene.world.now;
    scene.set(client, "mine", "1");
    assert_eq!(scene.get(client, "mine"), "\"1\"");
    assert_eq!(client.one(&mut scene.world, "mine", increment(2)), "(integer) 3");
    assert_eq!(client.many(&mut scene.world, &[step("mine", GET), step(&another, GET)]), "\"3\"; \"old\"");
    assert_eq!(scene.get(other, "mine"), "\"3\"", "other pessimistic sessions see it at once");
    assert_eq!(client.begin(&mut scene.world), "OK");
    assert_eq!(client.operate(&mut scene.world, "mine", write("4")), "OK");
    assert_eq!(client.commit(&mut scene.world), "OK");
    assert_eq!(scene.get(client, "mine"), "\"4\"");
    assert!(scene.world.now - begun < 200_000, "nobody waits");
}

fn reads_what_a_dependent_session_wrote(mutants: Mutants) -> String {
    let mut scene = Scene::cut(mutants);
    let (optimistic, client) = (scene.dependent(), scene.pessimistic());
    scene.set(optimistic, "local", "v");
    scene.world.run_ms(50);
    let seen = scene.get(client, "local");
    scene.heal();
    assert_eq!(scene.get(client, "local"), "\"v\"");
    seen
}

#[test]
fn an_optimistic_item_is_hidden_until_it_is_stable() {
    assert_eq!(reads_what_a_dependent_session_wrote(Mutants::default()), "(nil)");
    let mutants = Mutants::from(Mutant::LocalAlwaysVisible);
    assert_eq!(reads_what_a_dependent_session_wrote(mutants), "\"v\"", "the mistake is seen");
}

/// No write of either session is lost, whichever did not see the other's: what would be another one with them is refused at once.
#[test]
fn writes_beside_hidden_ones_are_merged_or_refused() {
    let mut scene = Scene::cut(Mutants::default());
    let (optimistic, client, middle) = (scene.dependent(), scene.pessimistic(), scene.session(MIDDLE));
    let hidden = [blind_step("count", increment(5)), blind_step("set", add("hidden"))];
    optimistic.many(&mut scene.world, &hidden);
    assert_eq!(scene.get(middle, "about"), "\"they are new\"");
    middle.many(&mut scene.world, &[blind_step("remote", add("hidden"))]);
    scene.world.run_ms(100);
    for key in ["typed", "replaced"] {
        scene.set(optimistic, key, "hidden");
    }
    let begun = scene.world.now;
    client.many(&mut scene.world, &[blind_step("count", increment(1))]);
    assert_eq!(client.one(&mut scene.world, "set", add("shown")), "(integer) 1");
    scene.set(client, "replaced", "shown");
    assert_eq!(client.one(&mut scene.world, "remote", MEMBERS), "{}");
    let in_the_way = [("set", remove("hidden")), ("remote", remove("hidden")), ("typed", add("x"))];
    for (key, in_the_way) in in_the_way.into_iter().chain([("count", increment(1))]) {
        let refused = client.one(&mut scene.world, key, in_the_way);
        assert!(refused.starts_with(&format!("-UNAVAILABLE key '{key}'")), "{refused}");
    }
    let blind = client.many(&mut scene.world, &[blind_step("typed", add("x"))]);
    assert!(blind.starts_with("-UNAVAILABLE key 'typed'"), "it would be lost: {blind}");
    assert!(scene.world.now - begun < 200_000, "nobody waits");
    scene.heal();
    for region in [HERE, MIDDLE, FAR] {
        let reader = scene.session(region);
        assert_eq!(scene.get(reader, "count"), "\"6\"");
        assert_eq!(reader.one(&mut scene.world, "set", MEMBERS), "{\"hidden\", \"shown\"}");
        assert_eq!(reader.one(&mut scene.world, "remote", MEMBERS), "{\"hidden\"}");
        assert_eq!(scene.get(reader, "typed"), "\"hidden\"");
        assert_eq!(scene.get(reader, "replaced"), "\"shown\"");
    }
}

#[test]
fn a_healed_session_is_promoted_and_has_lost_nothing() {
    let mut scene = Scene::cut(Mutants::default());
    let client = scene.pessimistic();
    scene.set(client, "mine", "v");
    assert_eq!(scene.pessimistic_here(), 1);
    scene.heal();
    for (key, value) in [("mine", "v"), ("about", "they are new")] {
        assert_eq!(scene.get(client, key), format!("\"{value}\""));
    }
    for key in scene.keys.clone() {
        assert_eq!(scene.get(client, &key), "\"new\"");
    }
    assert_eq!(scene.pessimistic_here(), 0);
}

/// A token is a promise about everything that the session has seen: elsewhere it may hold at once.
#[test]
fn a_token_of_a_pessimistic_session_tells_what_it_abandoned_too() {
    let mut scene = Scene::cut(Mutants::default());
    let client = scene.pessimistic();
    scene.set(client, "mine", "v");
    let token = client
        .ask(&mut scene.world, Request::Context { session: client.session, ask: ContextRequest::Token });
    let token = token.trim_matches('"').to_owned();
    let restore = |scene: &mut Scene, client: Client| {
        let ask = ContextRequest::Restore { token: token.as_bytes(), timeout: Duration::from_secs(1) };
        client.ask(&mut scene.world, Request::Context { session: client.session, ask })
    };
    let (there, here) = (scene.session(MIDDLE), scene.session(HERE));
    assert_eq!(restore(&mut scene, there), "OK");
    let key = scene.keys[1].clone();
    assert_eq!((scene.get(there, "mine"), scene.get(there, &key)), ("\"v\"".into(), "\"new\"".into()));
    assert_eq!(restore(&mut scene, here), "OK");
    assert!(scene.get(here, &key).starts_with("-DEGRADED"));
    assert_eq!(restore(&mut scene, client), "OK", "it asks for what was abandoned");
    assert!(scene.get(client, &key).starts_with("-DEGRADED"));
    assert_eq!(scene.get(client, "mine"), "\"v\"");
}

/// It is in the removal's snapshot by its place, but was not shown.
#[test]
fn a_removal_takes_nothing_back_that_its_session_was_not_shown() {
    let mut scene = Scene::cut(Mutants::default());
    let (first, second, here) = (scene.session(MIDDLE), scene.session(MIDDLE), scene.session(HERE));
    first.many(&mut scene.world, &[blind_step("set", add("x"))]);
    scene.world.run_ms(100);
    assert_eq!(scene.get(second, "about"), "\"they are new\"");
    second.many(&mut scene.world, &[blind_step("set", add("x")), blind_step("set", add("y"))]);
    scene.world.run_ms(100);
    let begin = scene.world.now;
    assert_eq!(
        here.one(&mut scene.world, "set", remove("z")),
        "(integer) 0",
        "it takes nothing of that back"
    );
    assert!(scene.world.now - begin < 50_000, "nobody waits");
    let reply = here.one(&mut scene.world, "set", remove("x"));
    assert!(reply.starts_with("-DEGRADED"), "{reply}");
    scene.heal();
    let reader = scene.session(MIDDLE);
    assert_eq!(reader.one(&mut scene.world, "set", MEMBERS), "{\"x\", \"y\"}");
    assert_eq!(here.one(&mut scene.world, "set", remove("x")), "(integer) 1");
}

/// What a session at the middle wrote to `key`, perhaps over `old`, is placed below what a session here depends on, and not shown
/// here, as it depends on what is missing. Returns what the session here got for its operation, and what `read` shows elsewhere
/// afterwards.
fn beside_what_is_hidden(
    key: &str,
    old: Option<&str>,
    hidden: Step<'_>,
    mine: Step<'_>,
    read: Operation<'static>,
) -> (String, String) {
    let mut scene = Scene::cut(Mutants::default());
    let (writer, other, here) = (scene.session(MIDDLE), scene.session(MIDDLE), scene.session(HERE));
    if let Some(old) = old {
        scene.set(other, key, old);
        scene.world.run_ms(100);
    }
    assert_eq!(scene.get(writer, "about"), "\"they are new\"");
    writer.many(&mut scene.world, &[hidden]);
    scene.world.run_ms(50);
    scene.set(other, "later", "v");
    scene.world.run_ms(100);
    assert_eq!(scene.get(here, "later"), "\"v\"");
    let reply = here.many(&mut scene.world, &[mine]);
    scene.heal();
    let reader = scene.session(FAR);
    (reply, reader.one(&mut scene.world, key, read))
}

/// Of a write that only counts as observed by its place nothing is taken back: the session waits for what is missing.
#[test]
fn nothing_is_replaced_or_removed_that_was_not_shown() {
    let swap = Operation::Register(register::Operation::Set {
        value: b"mine",
        deadline: register::Deadline::Clear,
        condition: register::Condition::Always,
        reply: register::SetReply::Old,
    });
    let replacing = [
        (Some("old"), step("k", DELETE)),
        (None, blind_step("k", DELETE)),
        (None, step("k", write_if_absent("mine"))),
        (Some("old"), step("k", swap)),
    ];
    for (old, mine) in replacing {
        let (reply, seen) = beside_what_is_hidden("k", old, step("k", write("hidden")), mine.clone(), GET);
        assert!(reply.starts_with("-DEGRADED"), "{mine:?}: {reply}");
        assert_eq!(seen, "\"hidden\"", "{mine:?}");
    }
    let added = |member| blind_step("s", add(member));
    let removal = blind_step("s", remove("x"));
    let (reply, seen) = beside_what_is_hidden("s", None, added("x"), removal, MEMBERS);
    assert!(reply.starts_with("-DEGRADED"), "{reply}");
    assert_eq!(seen, "{\"x\"}");
    let (reply, _) = beside_what_is_hidden("s", None, added("x"), added("y"), MEMBERS);
    assert!(!reply.starts_with('-'), "nothing is taken back: {reply}");
}

/// A write that one partition has received, and another one lacks what it depends on, is in the way of a pessimistic session for
/// longer than its client waits.
#[test]
fn a_write_that_is_hidden_for_long_is_named_as_the_reason() {
    let mut scene = Scene::cut(Mutants::default());
    let client = scene.pessimistic();
    let (middle, key) = (scene.session(MIDDLE), key_in(1, 2, "set"));
    assert_eq!(scene.get(middle, "about"), "\"they are new\"");
    middle.many(&mut scene.world, &[blind_step(&key, add("x"))]);
    scene.world.heal();
    scene.world.cut_links.insert((replica(FAR, 0), replica(HERE, 0)));
    scene.world.run_ms(500);
    let reply = client.one(&mut scene.world, &key, remove("x"));
    assert!(reply.starts_with("-UNAVAILABLE") && reply.contains(&format!("'{key}'")), "{reply}");
}
