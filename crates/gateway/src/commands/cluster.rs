//! CLUSTER, for clients that spread over processes by a map from hash slots to processes.
//!
//! Any process executes any command, whatever its keys: the map only tells such clients whom to ask, and no process ever
//! redirects them. A process by itself refuses, as a Redis that is not in a Redis Cluster does, so that clients that look
//! for the kind of server find one without the rules of clusters.

use crate::control::Control;
use crate::describe;
use crate::dialogue::Dialogue;
use crate::host::{ClusterMap, ClusterMember};
use crate::plan::{Call, Plan};
use crate::table::flag::{FAST, LOADING, STALE};
use crate::table::{Command, Handler, Handler::Data, Handler::Local};
use resp::parse_integer;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::RangeInclusive;
use types::{Error, ReplySink};

/// How many slots keys are hashed to.
const SLOTS: u16 = 16_384;
/// The flags of the commands that a client sends before others.
const MODE: u16 = LOADING | STALE | FAST;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("cluster", -2, 0, "3.0.0", "Commands for clients that spread over the processes of a cluster", Handler::Container).containing(CLUSTER),
    Command::new("readonly", 1, MODE, "3.0.0", "Accepted in a cluster: any process executes any command", Local(accept)),
    Command::new("readwrite", 1, MODE, "3.0.0", "Accepted in a cluster: any process executes any command", Local(accept)),
    Command::new("asking", 1, FAST, "3.0.0", "Accepted in a cluster: no process redirects to another one", Local(accept)),
];

#[rustfmt::skip]
static CLUSTER: &[Command] = &[
    Command::new("cluster|slots", 2, STALE, "3.0.0", "Tells which process of the region to ask for keys of which slots", Local(slots)),
    Command::new("cluster|shards", 2, STALE, "7.0.0", "Tells the same, with what is known of each process", Local(shards)),
    Command::new("cluster|nodes", 2, STALE, "3.0.0", "Describes the processes of the region, a line each", Local(nodes)),
    Command::new("cluster|myid", 2, STALE, "3.0.0", "Tells by which name the others list this process", Local(my_id)),
    Command::new("cluster|info", 2, STALE, "3.0.0", "Tells that all slots are served", Local(info)),
    Command::new("cluster|links", 2, STALE, "7.0.0", "Lists the connections to other processes of the region", Local(links)),
    Command::new("cluster|keyslot", 3, STALE, "3.0.0", "Tells the slot of a key", Local(key_slot)),
    Command::new("cluster|countkeysinslot", 3, STALE, "3.0.0", "Counts the keys of the keyspace in a slot", Data(count_in_slot)),
    Command::new("cluster|getkeysinslot", 4, STALE, "3.0.0", "Lists keys of the keyspace in a slot", Data(list_in_slot)),
    Command::new("cluster|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

/// The map, of processes of this one's region.
fn map(control: &mut Control<'_>) -> Result<ClusterMap, Error> {
    control.host.cluster_map().ok_or_else(|| Error::err("This instance has cluster support disabled"))
}

/// The slots that the reply assigns to each process: those that are up share them evenly.
fn shares(map: &ClusterMap) -> Vec<(&ClusterMember, RangeInclusive<u16>)> {
    let serving: Vec<&ClusterMember> = map.members.iter().filter(|member| member.is_up).collect();
    let count = serving.len() as u32;
    let start = |index: u32| (index * u32::from(SLOTS) / count) as u16;
    (0..).zip(serving).map(|(index, member)| (member, start(index)..=start(index + 1) - 1)).collect()
}

/// By which name clients know a process: the same for all, and for ever.
fn name(map: &ClusterMap, member: &ClusterMember) -> String {
    format!("{:016x}{:024x}", map.seed, member.process)
}

fn slots(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let map = map(control)?;
    let shares = shares(&map);
    sink.array(shares.len());
    for (member, slots) in shares {
        sink.array(3);
        sink.integer(i64::from(*slots.start()));
        sink.integer(i64::from(*slots.end()));
        sink.array(4);
        sink.bulk(member.host.as_bytes());
        sink.integer(i64::from(member.port));
        sink.bulk(name(&map, member).as_bytes());
        sink.map(0);
    }
    Ok(())
}

fn shards(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let map = map(control)?;
    let shares = shares(&map);
    sink.array(map.members.len());
    for member in &map.members {
        sink.map(2);
        sink.bulk(b"slots");
        match shares.iter().find(|(owner, _)| owner.process == member.process) {
            Some((_, slots)) => {
                sink.array(2);
                sink.integer(i64::from(*slots.start()));
                sink.integer(i64::from(*slots.end()));
            }
            None => sink.array(0),
        }
        sink.bulk(b"nodes");
        sink.array(1);
        write_member(&map, member, sink);
    }
    Ok(())
}

fn write_member(map: &ClusterMap, member: &ClusterMember, sink: &mut dyn ReplySink) {
    let health = if member.is_up { "online" } else { "failed" };
    sink.map(7);
    sink.bulk(b"id");
    sink.bulk(name(map, member).as_bytes());
    sink.bulk(b"port");
    sink.integer(i64::from(member.port));
    for (field, value) in [("ip", &*member.host), ("endpoint", &member.host), ("role", "master")] {
        sink.bulk(field.as_bytes());
        sink.bulk(value.as_bytes());
    }
    sink.bulk(b"replication-offset");
    sink.integer(0);
    sink.bulk(b"health");
    sink.bulk(health.as_bytes());
}

fn nodes(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let map = map(control)?;
    let (shares, mut text) = (shares(&map), String::new());
    for member in &map.members {
        let myself = if member.is_self { "myself," } else { "" };
        let (flag, link) = if member.is_up { ("", "connected") } else { (",fail", "disconnected") };
        let slots = shares.iter().find(|(owner, _)| owner.process == member.process);
        let slots = slots.map_or(String::new(), |(_, slots)| format!(" {}-{}", slots.start(), slots.end()));
        let written = writeln!(
            text,
            "{} {}:{}@{} {myself}master{flag} - 0 0 {} {link}{slots}",
            name(&map, member),
            member.host,
            member.port,
            member.peer_port,
            member.process
        );
        debug_assert!(written.is_ok(), "a string takes any text");
    }
    sink.text(&text);
    Ok(())
}

fn my_id(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let map = map(control)?;
    let own = map.members.iter().find(|member| member.is_self);
    sink.bulk(own.map_or(String::new(), |own| name(&map, own)).as_bytes());
    Ok(())
}

fn info(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let map = map(control)?;
    let up = map.members.iter().filter(|member| member.is_up).count();
    sink.text(&format!(
        "cluster_state:ok\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{SLOTS}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{}\r\ncluster_size:{up}\r\n",
        map.members.len()
    ));
    Ok(())
}

fn links(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let map = map(control)?;
    let linked: Vec<&ClusterMember> =
        map.members.iter().filter(|member| member.is_up && !member.is_self).collect();
    sink.array(linked.len());
    for member in linked {
        sink.map(2);
        sink.bulk(b"direction");
        sink.bulk(b"to");
        sink.bulk(b"node");
        sink.bulk(name(&map, member).as_bytes());
    }
    Ok(())
}

fn accept(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    map(control)?;
    sink.simple("OK");
    Ok(())
}

fn key_slot(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.integer(i64::from(slot_of(control.call.bytes(2))));
    Ok(())
}

fn count_in_slot<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    in_slot(call, None)
}

fn list_in_slot<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let most = parse_integer(call.bytes(3)).and_then(|most| usize::try_from(most).ok());
    in_slot(call, Some(most.ok_or_else(|| Error::err("Invalid number of keys"))?))
}

fn in_slot<'a>(call: &Call<'a>, listed: Option<usize>) -> Result<Plan<'a>, Error> {
    let slot = parse_integer(call.bytes(2)).and_then(|slot| u16::try_from(slot).ok());
    let slot = slot.filter(|slot| *slot < SLOTS).ok_or_else(|| Error::err("Invalid or out of range slot"))?;
    let piece = call.scan_piece;
    Ok(Plan::Dialogue(Dialogue::InSlot { slot, listed, cursor: 0, piece, found: BTreeSet::new() }))
}

/// The slot of a key: of what stands between its first braces, if anything does.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|len| *len > 0).map(|len| &rest[..len])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, by which clients of Redis Cluster hash keys.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc: u16, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ POLYNOMIAL,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let slots =
            [b"foo".as_slice(), b"{user1000}.following", b"foo{}{bar}", b"foo{{bar}}zap", b"", b"a}{b"];
        assert_eq!(slots.map(slot_of), [12_182, 3_443, 8_363, 4_015, 0, 11_640]);
        assert_eq!(slot_of(b"{user1000}.followers"), 3_443);
    }

    #[test]
    fn those_that_are_up_share_all_slots() {
        let member = |process: u16| ClusterMember {
            process,
            host: "h".into(),
            port: 1,
            peer_port: 2,
            is_self: process == 1,
            is_up: process != 2,
        };
        for count in 1..20 {
            let map = ClusterMap { seed: 7, members: (1..=count).map(member).collect() };
            let shares = shares(&map);
            assert!(shares.iter().all(|(owner, slots)| owner.process != 2 && !slots.is_empty()));
            let all: Vec<u16> = shares.into_iter().flat_map(|(_, slots)| slots).collect();
            assert_eq!(all, (0..SLOTS).collect::<Vec<_>>());
        }
    }
}
