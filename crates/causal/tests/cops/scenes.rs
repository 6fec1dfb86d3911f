//! Worlds for scripts: regions of three partitions with a key in each, two coordinators a region.

use super::client::{Client, GET, key_in, step};
use super::operations::write;
use super::world::{KEYSPACE, SEED, World, coordinator, replica};
use anabranch_causal::cops::{Mutant, Options, Partition, RegionTopology, Topology};
use checker::render;
use protocol::{ContextRequest, Request};
use std::time::Duration;
use types::{Address, ReplyBuf};

pub const PARTITIONS: u16 = 3;

/// What every script is played with; a mutant makes it another one.
pub fn options(transactions: bool, mutant: Option<Mutant>) -> Options {
    Options { transactions, mutants: mutant.map(Into::into).unwrap_or_default(), ..Options::default() }
}

/// So many regions, 20 ms from one another, at rest.
pub fn world(regions: u16, options: Options) -> World {
    let of_region = |region: u16| {
        RegionTopology::full(region.to_string(), (0..PARTITIONS).map(|index| replica(region, index)))
    };
    let topology =
        Topology { regions: (0..regions).map(of_region).collect(), keyspace: KEYSPACE, seed: SEED };
    let mut world = World::of(topology, 2, options, 1);
    world.run_ms(200);
    world
}

impl World {
    /// Lets nothing pass from one node to another.
    pub fn part(&mut self, from: Address, to: Address) {
        self.cut_links.insert((from, to));
    }
}

/// A key of a partition.
pub fn key(partition: u16) -> String {
    key_in(partition, PARTITIONS, "key")
}

/// A client of a region.
pub fn client(region: u16, session: u64) -> Client {
    Client::new(coordinator(region, (session % 2) as u16), session)
}

pub fn set(world: &mut World, client: Client, key: &str, value: &str) {
    assert_eq!(client.one(world, key, write(value)), "OK");
}

/// What a client reads, without quotes.
pub fn get(world: &mut World, client: Client, key: &str) -> String {
    client.one(world, key, GET).trim_matches('"').to_owned()
}

/// Keys read together.
pub fn get_trans(world: &mut World, client: Client, keys: &[&str]) -> Vec<String> {
    let steps: Vec<_> = keys.iter().map(|key| step(key, GET)).collect();
    let id = client.send(world, &steps);
    values(&world.await_reply(id))
}

/// The values of several replies.
pub fn values(reply: &ReplyBuf) -> Vec<String> {
    render(reply).split("; ").map(|value| value.trim_matches('"').to_owned()).collect()
}

pub fn token(world: &mut World, client: Client) -> String {
    let reply = client.ask(world, Request::Context { session: client.session, ask: ContextRequest::Token });
    reply.trim_matches('"').to_owned()
}

pub fn restore(world: &mut World, client: Client, token: &str, millis: u64) -> String {
    let ask = ContextRequest::Restore { token: token.as_bytes(), timeout: Duration::from_millis(millis) };
    client.ask(world, Request::Context { session: client.session, ask })
}

/// A replica, to look at.
pub fn partition(world: &World, at: Address) -> &Partition {
    world.node(at).as_partition().expect("it is one")
}

/// How many entries a session's next write is checked for.
pub fn nearest(world: &World, client: Client) -> usize {
    let own = world.node(client.at).as_coordinator().expect("it is one");
    own.context(client.session).map_or(0, |context| context.nearest().len())
}
