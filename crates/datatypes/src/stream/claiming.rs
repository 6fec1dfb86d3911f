//! Evaluating operations: entries that are handed from consumer to consumer.

use super::execute::{write_entry, write_id};
use super::groups::no_group;
use super::operation::DeliveredAt;
use super::{Claiming, Delivery, Effect, Entry, Group, Ids, Operation, Owner, Stream, StreamId};
use std::collections::BTreeMap;
use types::ReplySink;

/// Of the entries that an automatic claim may claim it looks at so many times as many at most.
const LOOKS: u64 = 10;

/// What was found out about entries on their way.
#[derive(Debug, Default)]
struct Claimed<'s> {
    deliveries: Vec<Delivery>,
    entries: Vec<Entry<'s>>,
    /// They are not in the stream any more.
    gone: Vec<StreamId>,
}

impl Claimed<'_> {
    fn write(&self, just_ids: bool, sink: &mut dyn ReplySink) {
        sink.array(self.entries.len());
        for entry in &self.entries {
            match just_ids {
                true => write_id(entry.id, sink),
                false => write_entry(entry, sink),
            }
        }
    }
}

/// When an entry was delivered last, and how often: of several owners the most.
fn latest(owners: &[Owner]) -> Option<(u64, u64)> {
    let at_millis = owners.iter().map(|owner| owner.at_millis).max()?;
    Some((at_millis, owners.iter().map(|owner| owner.count).max()?))
}

pub(super) fn prepare<'a>(
    state: Option<&Stream>,
    operation: &Operation<'a>,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let (Operation::Claim { key, group, consumer, .. } | Operation::AutoClaim { key, group, consumer, .. }) =
        operation
    else {
        return None;
    };
    let Some((stream, found)) = state.and_then(|stream| Some((stream, stream.group(group)?))) else {
        sink.error(&no_group(key, group));
        return None;
    };
    let mut last = None;
    let claimed = match operation {
        Operation::Claim { ids, claiming, .. } => {
            // They were checked when they were read.
            let ids = ids.iter().filter_map(|id| StreamId::parse(id, 0).ok());
            last = claiming.last.filter(|last| *last > found.last);
            let claimed = claim(stream, found, ids, claiming, now_millis);
            claimed.write(claiming.just_ids, sink);
            claimed
        }
        Operation::AutoClaim { from, min_idle_millis, count, just_ids, .. } => {
            let (next, claimed) =
                claim_from(stream, found, *from, (*min_idle_millis, *count), *just_ids, now_millis);
            sink.array(3);
            write_id(next, sink);
            claimed.write(*just_ids, sink);
            sink.array(claimed.gone.len());
            claimed.gone.iter().for_each(|id| write_id(*id, sink));
            claimed
        }
        _ => Claimed::default(),
    };
    // The consumer is created when it gets something, as in Redis 7.0.
    match (claimed.deliveries.is_empty(), claimed.gone.is_empty(), last) {
        (true, true, None) => return None,
        (true, true, Some(last)) => return Some(Effect::SetGroup { group, last, read: found.read }),
        (true, false, None) => {
            return Some(Effect::Acknowledge { group, ids: claimed.gone.into_iter().collect() });
        }
        _ => {}
    }
    Some(Effect::Deliver {
        group,
        consumer,
        now_millis,
        deliveries: claimed.deliveries,
        gone: claimed.gone.into_iter().collect::<Ids>(),
        last,
        read: found.read,
        shared: false,
    })
}

/// XCLAIM
fn claim<'s>(
    stream: &'s Stream,
    group: &Group,
    ids: impl Iterator<Item = StreamId>,
    claiming: &Claiming,
    now_millis: u64,
) -> Claimed<'s> {
    let now = i64::try_from(now_millis).unwrap_or(i64::MAX);
    let at = match claiming.at {
        None => now,
        Some(DeliveredAt::Ago { millis }) => now.wrapping_sub(millis),
        Some(DeliveredAt::Time { millis }) => millis,
    };
    let at_millis = if (0..=now).contains(&at) { at as u64 } else { now_millis };
    let (mut claimed, mut given) = (Claimed::default(), BTreeMap::<StreamId, Delivery>::new());
    for id in ids {
        let owners = group.owners(id);
        let Some(entry) = stream.entries.get(id) else {
            if !owners.is_empty() {
                claimed.gone.push(id);
            }
            continue;
        };
        let before =
            given.get(&id).map(|delivery| (delivery.at_millis, delivery.count)).or_else(|| latest(owners));
        let count = match before {
            None if !claiming.force => continue,
            None => 1,
            Some((at_millis, _))
                if claiming.min_idle_millis > 0
                    && now_millis.saturating_sub(at_millis) < claiming.min_idle_millis =>
            {
                continue;
            }
            Some((_, count)) => count,
        };
        let count = claiming.count.unwrap_or(count.saturating_add(u64::from(!claiming.just_ids)));
        given.insert(id, Delivery { id, at_millis, count });
        claimed.entries.push(entry);
    }
    claimed.deliveries = given.into_values().collect();
    claimed
}

/// XAUTOCLAIM: what is claimed, and where to go on.
fn claim_from<'s>(
    stream: &'s Stream,
    group: &Group,
    from: StreamId,
    (min_idle_millis, count): (u64, u64),
    just_ids: bool,
    now_millis: u64,
) -> (StreamId, Claimed<'s>) {
    let mut claimed = Claimed::default();
    let (mut looks, mut left) = (count.saturating_mul(LOOKS), count);
    let mut pending = group.pending().range(from..);
    while looks > 0 && left > 0 {
        looks -= 1;
        let Some((id, owners)) = pending.next() else { break };
        let Some(entry) = stream.entries.get(*id) else {
            claimed.gone.push(*id);
            left -= 1;
            continue;
        };
        let (at_millis, count) = latest(owners).unwrap_or_default();
        if min_idle_millis > 0 && now_millis.saturating_sub(at_millis) < min_idle_millis {
            continue;
        }
        let count = count.saturating_add(u64::from(!just_ids));
        claimed.deliveries.push(Delivery { id: *id, at_millis: now_millis, count });
        claimed.entries.push(entry);
        left -= 1;
    }
    (pending.next().map_or(StreamId::ZERO, |(id, _)| *id), claimed)
}
