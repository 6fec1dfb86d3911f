//! How fresh items are when a partition returns them. The thesis (section 3.8.2): an item is stale if there is a newer version in
//! the partition, and it is so many versions behind.

use causal::stable::{Message, Node, Outcome, Partition, Times, Work};
use datatypes::{Effect, register};
use protocol::Packet;
use std::collections::BTreeMap;
use types::{RegionId, Reply, ReplyBuf, TransactionId};

/// Items that partitions returned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Items {
    pub read: u64,
    /// A newer version was there.
    pub stale: u64,
    /// The newest version was there, from another region: Cure* hides no other ones.
    pub unstable: u64,
    /// Newer versions of all that were stale.
    pub behind: u64,
}

/// A question to a partition: its machine, the transaction and the round.
type Question = (usize, TransactionId, u32);

/// Compares what partitions return with what they have.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    /// The steps of questions without an answer, each with its key.
    open: BTreeMap<Question, BTreeMap<u32, Vec<u8>>>,
    pub items: Items,
}

impl Freshness {
    /// A message arrives at a machine.
    pub fn arrives<S: Times>(&mut self, machine: usize, packet: &Packet<Node<S>>) {
        if let Packet::Datagram(Message::SliceReq { id, round, parts, .. }) = packet {
            let works = parts.iter().flat_map(|part| part.work.iter().map(move |work| (part, work)));
            let steps = works.filter_map(|(part, work)| match work {
                Work::Evaluate { step, .. } => Some((*step, part.key.to_vec())),
                _ => None,
            });
            self.open.insert((machine, *id, *round), steps.collect());
        }
    }

    /// A partition sends a message; whether it counts if that is an answer.
    pub fn leaves<S: Times>(
        &mut self,
        machine: usize,
        packet: &Packet<Node<S>>,
        (partition, region): (&Partition<S>, RegionId),
        counts: bool,
    ) {
        let Packet::Datagram(Message::SliceResp { id, round, outcome, .. }) = packet else { return };
        let Some(steps) = self.open.remove(&(machine, *id, *round)).filter(|_| counts) else { return };
        let Outcome::Done { answers, .. } = outcome else { return };
        for answer in answers {
            if let Some(key) = steps.get(&answer.step) {
                self.items.add(partition, region, key, &answer.reply);
            }
        }
    }
}

impl Items {
    fn add<S: Times>(&mut self, partition: &Partition<S>, region: RegionId, key: &[u8], reply: &ReplyBuf) {
        let returned = match reply.first() {
            Some(Reply::Bulk(value)) => Some(value),
            _ => None,
        };
        // What is returned may be older than all that is retained.
        let newest_first = partition.versions(key).rev();
        let newer = newest_first.take_while(|(_, effect)| returned.is_none() || written(effect) != returned);
        let newer: Vec<RegionId> = newer.map(|(stamp, _)| stamp.region).collect();
        self.read += 1;
        self.stale += u64::from(!newer.is_empty());
        self.unstable += u64::from(newer.first().is_some_and(|newest| *newest != region));
        self.behind += newer.len() as u64;
    }
}

/// No two writes have the same value.
fn written<'e>(effect: &Effect<'e>) -> Option<&'e [u8]> {
    match effect {
        Effect::Register(register::Effect::Set { value, .. }) => Some(value),
        _ => None,
    }
}
