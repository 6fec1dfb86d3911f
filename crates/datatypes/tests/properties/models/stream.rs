//! A naive stream. Of what XINFO and XAUTOCLAIM reply, only the kind is judged here: Redis itself judges them, in the
//! comparison of processes.

use super::{Bytes, expect};
use datatypes::Items;
use datatypes::stream::{Claiming, DeliveredAt, NewId, Operation, Start, Stream, StreamId, Trim};
use std::collections::BTreeMap;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink};

/// The time at which the properties evaluate.
const NOW_MILLIS: u64 = crate::properties::NOW_MILLIS;

type Id = (u64, u64);

#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    last: Id,
    consumers: BTreeMap<Bytes, u64>,
    /// Who has it, since when, how often delivered.
    pending: BTreeMap<Id, (Bytes, u64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Naive {
    exists: bool,
    entries: BTreeMap<Id, Vec<Bytes>>,
    last: Id,
    added: u64,
    max_deleted: Id,
    groups: BTreeMap<Bytes, Group>,
}

fn pair(id: StreamId) -> Id {
    (id.millis, id.sequence)
}

fn text(id: Id) -> Bytes {
    format!("{}-{}", id.0, id.1).into_bytes()
}

fn parsed(text: &[u8]) -> Option<Id> {
    let text = std::str::from_utf8(text).ok()?;
    let (millis, sequence) = text.split_once('-')?;
    Some((millis.parse().ok()?, sequence.parse().ok()?))
}

impl Naive {
    pub(super) fn of(stream: &Stream) -> Naive {
        let bytes = |bytes: &[u8]| bytes.to_vec();
        let group = |group: &datatypes::stream::Group| Group {
            last: pair(group.last),
            consumers: group
                .consumers()
                .map(|(name, it)| (bytes(name), it.seen_millis.unwrap_or(0)))
                .collect(),
            pending: group
                .pending()
                .iter()
                .map(|(id, owners)| {
                    assert_eq!(owners.len(), 1, "nothing was delivered at the same time");
                    (pair(*id), (bytes(&owners[0].consumer), owners[0].at_millis, owners[0].count))
                })
                .collect(),
        };
        Naive {
            exists: !stream.is_empty(),
            entries: stream
                .entries
                .iter()
                .map(|entry| (pair(entry.id), entry.strings().map(bytes).collect()))
                .collect(),
            last: pair(stream.last),
            added: stream.added,
            max_deleted: pair(stream.max_deleted),
            groups: stream.groups().map(|(name, it)| (bytes(name), group(it))).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.exists
    }

    fn write(&self, reply: &mut ReplyBuf, ids: &[Id]) {
        reply.array(ids.len());
        for id in ids {
            reply.array(2);
            reply.bulk(&text(*id));
            reply.array(self.entries[id].len());
            self.entries[id].iter().for_each(|string| reply.bulk(string));
        }
    }

    /// Trims; of what is trimmed about, the reply or the cell tells how much that was.
    fn trim(&mut self, trim: Trim, removed: impl Fn() -> usize) -> usize {
        let exact = match trim {
            Trim::Length { length, about: None } => self.entries.len().saturating_sub(length as usize),
            Trim::Id { id, about: None } => self.entries.range(..pair(id)).count(),
            _ => removed(),
        };
        for _ in 0..exact {
            self.entries.pop_first();
        }
        exact
    }

    fn choose(&self, id: NewId) -> Option<Id> {
        let (millis, last) = (self.last.0, self.last);
        let next = (millis, last.1.wrapping_add(1));
        let chosen = match id {
            NewId::Given { id } => pair(id),
            NewId::Next if NOW_MILLIS > millis => (NOW_MILLIS, 0),
            NewId::Next if last.1 == u64::MAX => (millis + 1, 0),
            NewId::Within { millis: of } if of != millis => (of, 0),
            NewId::Within { .. } if last.1 == u64::MAX => return None,
            _ => next,
        };
        (chosen > self.last).then_some(chosen)
    }
}

fn number(number: usize) -> ReplyBuf {
    expect(|reply| reply.integer(number as i64))
}

fn refuse(error: Error) -> ReplyBuf {
    expect(|reply| reply.error(&error))
}

fn ok() -> ReplyBuf {
    expect(|reply| reply.simple("OK"))
}

fn ids_of(texts: &Items<'_>) -> Option<Vec<Id>> {
    let mut ids: Vec<Id> = texts.iter().map(parsed).collect::<Option<_>>()?;
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

pub(super) fn perform(state: &mut Naive, operation: &Operation<'_>, actual: &ReplyBuf) -> ReplyBuf {
    let invalid = || refuse(Error::err("Invalid stream ID specified as stream command argument"));
    match operation {
        Operation::Add { only_if_exists: true, .. } if !state.exists => expect(ReplyBuf::null),
        Operation::Add { id, items, trim, .. } => {
            if state.last == (u64::MAX, u64::MAX) {
                let refusal = "The stream has exhausted the last possible ID, unable to add more items";
                return refuse(Error::err(refusal));
            }
            let Some(id) = state.choose(*id) else {
                let refusal = "The ID specified in XADD is equal or smaller than the target stream top item";
                return refuse(Error::err(refusal));
            };
            state.exists = true;
            state.entries.insert(id, items.iter().map(<[u8]>::to_vec).collect());
            (state.last, state.added) = (id, state.added + 1);
            if let Some(trim) = trim {
                // Chunks here are never full: all of it goes, or nothing.
                let len = state.entries.len();
                state.trim(*trim, || about(*trim, len, id));
            }
            expect(|reply| reply.bulk(&text(id)))
        }
        Operation::Length => number(state.entries.len()),
        Operation::Range { .. } if !state.exists => expect(|reply| reply.array(0)),
        Operation::Range { count: Some(0), .. } => expect(ReplyBuf::null_array),
        Operation::Range { from, to, count, reverse } => {
            let within = |id: &&Id| (pair(*from)..=pair(*to)).contains(*id);
            let mut found: Vec<Id> = state.entries.keys().filter(within).copied().collect();
            if *reverse {
                found.reverse();
            }
            found.truncate(count.map_or(usize::MAX, |count| count as usize));
            expect(|reply| state.write(reply, &found))
        }
        Operation::Read { start, count } => {
            let after = if let Start::After { id } = start { pair(*id) } else { state.last };
            let mut found: Vec<Id> = state.entries.keys().filter(|id| **id > after).copied().collect();
            found.truncate(if *count == 0 { usize::MAX } else { *count as usize });
            match found.is_empty() {
                true => expect(ReplyBuf::null_array),
                false => expect(|reply| state.write(reply, &found)),
            }
        }
        Operation::Delete { .. } if !state.exists => number(0),
        Operation::Delete { ids } => {
            let Some(ids) = ids_of(ids) else { return invalid() };
            let gone: Vec<Id> = ids.into_iter().filter(|id| state.entries.remove(id).is_some()).collect();
            state.max_deleted = gone.iter().copied().fold(state.max_deleted, Id::max);
            number(gone.len())
        }
        Operation::Trim { trim } => {
            let (len, last) = (state.entries.len(), state.entries.keys().last().copied());
            let removed = state.trim(*trim, || last.map_or(0, |last| about(*trim, len, last)));
            number(removed)
        }
        Operation::SetLast { last, added, max_deleted } => set_last(state, pair(*last), *added, *max_deleted),
        operation => in_groups(state, operation, actual),
    }
}

/// How many entries of one chunk are trimmed about.
fn about(trim: Trim, len: usize, last: Id) -> usize {
    let (all, limit) = match trim {
        Trim::Length { length, about } => (length == 0, about),
        Trim::Id { id, about } => (last < pair(id), about),
    };
    let fits = limit.is_none_or(|limit| limit == 0 || len as u64 <= limit);
    if all && fits { len } else { 0 }
}

fn set_last(state: &mut Naive, last: Id, added: Option<u64>, max_deleted: Option<StreamId>) -> ReplyBuf {
    let refusal = match () {
        () if !state.exists => "no such key",
        () if last < state.max_deleted => {
            "The ID specified in XSETID is smaller than current max_deleted_entry_id"
        }
        () if state.entries.keys().last().is_some_and(|top| last < *top) => {
            "The ID specified in XSETID is smaller than the target stream top item"
        }
        () if !state.entries.is_empty() && added.is_some_and(|added| added < state.entries.len() as u64) => {
            "The entries_added specified in XSETID is smaller than the target stream length"
        }
        () => {
            state.last = last;
            state.added = added.unwrap_or(state.added);
            state.max_deleted = max_deleted.map_or(state.max_deleted, pair);
            return ok();
        }
    };
    refuse(Error::err(refusal))
}

fn no_group(group: &[u8], end: &str) -> ReplyBuf {
    let group = String::from_utf8_lossy(group);
    let message = format!("No such key 'k' or consumer group '{group}'{end}");
    refuse(Error::new(ErrorCode::NoGroup, message))
}

fn in_groups(state: &mut Naive, operation: &Operation<'_>, actual: &ReplyBuf) -> ReplyBuf {
    let reading = " in XREADGROUP with GROUP option";
    match operation {
        Operation::FindGroup { group, .. } if !state.groups.contains_key(*group) => no_group(group, reading),
        Operation::FindGroup { .. } => ok(),
        Operation::ReadGroup { group, .. } if !state.groups.contains_key(*group) => no_group(group, reading),
        Operation::ReadGroup { .. } => read_group(state, operation),
        Operation::Acknowledge { group, ids } => {
            let Some(group) = state.groups.get_mut(*group) else { return number(0) };
            match ids_of(ids) {
                None => refuse(Error::err("Invalid stream ID specified as stream command argument")),
                Some(ids) => number(ids.iter().filter(|id| group.pending.remove(id).is_some()).count()),
            }
        }
        Operation::Pending { group, .. }
        | Operation::PendingEntries { group, .. }
        | Operation::Claim { group, .. }
        | Operation::AutoClaim { group, .. }
            if !state.groups.contains_key(*group) =>
        {
            no_group(group, "")
        }
        Operation::Pending { group, .. } => summary(&state.groups[*group]),
        Operation::PendingEntries { .. } => pending_entries(state, operation),
        Operation::Claim { group, consumer, ids, claiming, .. } => {
            claim(state, (group, consumer), ids, claiming)
        }
        Operation::AutoClaim { .. } => auto_claim(state, operation),
        Operation::Describe
        | Operation::DescribeAll { .. }
        | Operation::DescribeGroups
        | Operation::DescribeConsumers { .. } => {
            let of_nothing = actual.as_error().is_some();
            let group = match operation {
                Operation::DescribeConsumers { group, .. } => state.groups.contains_key(*group),
                _ => true,
            };
            assert_eq!(of_nothing, !state.exists || !group, "{operation:?}");
            actual.clone()
        }
        operation => manage(state, operation),
    }
}

fn manage(state: &mut Naive, operation: &Operation<'_>) -> ReplyBuf {
    let (group, start) = match operation {
        Operation::CreateGroup { group, start, .. } | Operation::SetGroup { group, start, .. } => {
            (*group, *start)
        }
        Operation::DestroyGroup { group }
        | Operation::CreateConsumer { group, .. }
        | Operation::DeleteConsumer { group, .. } => (*group, Start::Last),
        other => unreachable!("{other:?} is not among them"),
    };
    let creates = matches!(operation, Operation::CreateGroup { create: true, .. });
    if !state.exists && !creates {
        return refuse(Error::err(
            "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
             option to create an empty stream automatically.",
        ));
    }
    let place = if let Start::After { id } = start { pair(id) } else { state.last };
    let missing = || {
        let name = String::from_utf8_lossy(group);
        refuse(Error::new(ErrorCode::NoGroup, format!("No such consumer group '{name}' for key name 'k'")))
    };
    let found = state.groups.get_mut(group);
    match (operation, found) {
        (Operation::CreateGroup { .. }, Some(_)) => {
            refuse(Error::new(ErrorCode::BusyGroup, "Consumer Group name already exists"))
        }
        (Operation::CreateGroup { .. }, None) => {
            state.exists = true;
            state.groups.insert(group.to_vec(), Group { last: place, ..Group::default() });
            ok()
        }
        (Operation::DestroyGroup { .. }, found) => {
            let there = usize::from(found.is_some());
            state.groups.remove(group);
            number(there)
        }
        (_, None) => missing(),
        (Operation::SetGroup { .. }, Some(found)) => {
            found.last = place;
            ok()
        }
        (Operation::CreateConsumer { consumer, .. }, Some(found)) => {
            let there = found.consumers.contains_key(*consumer);
            found.consumers.entry(consumer.to_vec()).or_insert(NOW_MILLIS);
            number(usize::from(!there))
        }
        (Operation::DeleteConsumer { consumer, .. }, Some(found)) => {
            let before = found.pending.len();
            found.pending.retain(|_, (owner, ..)| owner != consumer);
            found.consumers.remove(*consumer);
            number(before - found.pending.len())
        }
        (other, _) => unreachable!("{other:?} is not among them"),
    }
}

fn read_group(state: &mut Naive, operation: &Operation<'_>) -> ReplyBuf {
    let Operation::ReadGroup { group, consumer, own_after, count, no_ack, .. } = operation else {
        unreachable!("it is one")
    };
    let most = if *count == 0 { usize::MAX } else { *count as usize };
    let mut found = state.groups[*group].clone();
    let reply = match own_after {
        Some(after) => {
            // As in Redis, there is nothing behind the greatest id to begin with.
            let last = *after == StreamId::MAX;
            let is_own = |(id, (owner, ..)): &(&Id, &(Bytes, u64, u64))| {
                owner == consumer && (**id > pair(*after) || last && **id == pair(*after))
            };
            let own: Vec<Id> = found.pending.iter().filter(is_own).map(|(id, _)| *id).take(most).collect();
            for id in own.iter().filter(|id| state.entries.contains_key(id)) {
                let pending = found.pending.get_mut(id).expect("it is pending");
                (pending.1, pending.2) = (NOW_MILLIS, pending.2 + 1);
            }
            expect(|reply| {
                reply.array(own.len());
                for id in &own {
                    reply.array(2);
                    reply.bulk(&text(*id));
                    match state.entries.get(id) {
                        None => reply.null_array(),
                        Some(strings) => {
                            reply.array(strings.len());
                            strings.iter().for_each(|string| reply.bulk(string));
                        }
                    }
                }
            })
        }
        None => {
            let new: Vec<Id> =
                state.entries.keys().filter(|id| **id > found.last).copied().take(most).collect();
            let Some(last) = new.last() else { return expect(ReplyBuf::null_array) };
            found.last = *last;
            for id in new.iter().filter(|_| !no_ack) {
                found.pending.insert(*id, (consumer.to_vec(), NOW_MILLIS, 1));
            }
            expect(|reply| state.write(reply, &new))
        }
    };
    found.consumers.insert(consumer.to_vec(), NOW_MILLIS);
    state.groups.insert(group.to_vec(), found);
    reply
}

fn summary(group: &Group) -> ReplyBuf {
    expect(|reply| {
        reply.array(4);
        reply.integer(group.pending.len() as i64);
        if group.pending.is_empty() {
            reply.null();
            reply.null();
            return reply.null_array();
        }
        let ids: Vec<Id> = group.pending.keys().copied().collect();
        reply.bulk(&text(ids[0]));
        reply.bulk(&text(ids[ids.len() - 1]));
        let count = |name: &Bytes| group.pending.values().filter(|(owner, ..)| owner == name).count();
        let have: Vec<(&Bytes, usize)> = group.consumers.keys().map(|name| (name, count(name))).collect();
        let have: Vec<_> = have.into_iter().filter(|(_, count)| *count > 0).collect();
        reply.array(have.len());
        for (name, count) in have {
            reply.array(2);
            reply.bulk(name);
            reply.bulk(count.to_string().as_bytes());
        }
    })
}

fn pending_entries(state: &Naive, operation: &Operation<'_>) -> ReplyBuf {
    let Operation::PendingEntries { group, from, to, count, consumer, min_idle_millis, .. } = operation
    else {
        unreachable!("it is one")
    };
    let wanted = |(id, (owner, at, _)): &(&Id, &(Bytes, u64, u64))| {
        (pair(*from)..=pair(*to)).contains(*id)
            && consumer.is_none_or(|consumer| owner == consumer)
            && NOW_MILLIS - at >= *min_idle_millis
    };
    let found: Vec<_> = state.groups[*group].pending.iter().filter(wanted).take(*count as usize).collect();
    expect(|reply| {
        reply.array(found.len());
        for (id, (owner, at, times)) in found {
            reply.array(4);
            reply.bulk(&text(*id));
            reply.bulk(owner);
            reply.integer((NOW_MILLIS - at) as i64);
            reply.integer(*times as i64);
        }
    })
}

fn claim(
    state: &mut Naive,
    (group, consumer): (&[u8], &[u8]),
    ids: &Items<'_>,
    claiming: &Claiming,
) -> ReplyBuf {
    let now = NOW_MILLIS as i64;
    let at = match claiming.at {
        None => now,
        Some(DeliveredAt::Ago { millis }) => now - millis,
        Some(DeliveredAt::Time { millis }) => millis,
    };
    let at = if at < 0 || at > now { now } else { at } as u64;
    let mut found = state.groups[group].clone();
    if let Some(last) = claiming.last {
        found.last = found.last.max(pair(last));
    }
    let is_moved = found.last != state.groups[group].last;
    let (mut claimed, mut is_pruned) = (Vec::new(), false);
    for id in ids.iter().filter_map(parsed) {
        if !state.entries.contains_key(&id) {
            is_pruned |= found.pending.remove(&id).is_some();
            continue;
        }
        let times = match found.pending.get(&id) {
            None if !claiming.force => continue,
            None => 1,
            Some((_, at, _))
                if claiming.min_idle_millis > 0 && NOW_MILLIS - at < claiming.min_idle_millis =>
            {
                continue;
            }
            Some((_, _, times)) => *times,
        };
        let times = claiming.count.unwrap_or(if claiming.just_ids { times } else { times + 1 });
        found.pending.insert(id, (consumer.to_vec(), at, times));
        claimed.push(id);
    }
    if (is_moved && is_pruned) || !claimed.is_empty() {
        found.consumers.insert(consumer.to_vec(), NOW_MILLIS);
    }
    state.groups.insert(group.to_vec(), found);
    write_claimed(state, &claimed, claiming.just_ids)
}

fn write_claimed(state: &Naive, claimed: &[Id], just_ids: bool) -> ReplyBuf {
    expect(|reply| match just_ids {
        false => state.write(reply, claimed),
        true => {
            reply.array(claimed.len());
            claimed.iter().for_each(|id| reply.bulk(&text(*id)));
        }
    })
}

fn auto_claim(state: &mut Naive, operation: &Operation<'_>) -> ReplyBuf {
    let Operation::AutoClaim { group, consumer, from, min_idle_millis, count, just_ids, .. } = operation
    else {
        unreachable!("it is one")
    };
    let mut found = state.groups[*group].clone();
    let (mut left, mut claimed, mut gone, mut next) = (*count, Vec::new(), Vec::new(), (0, 0));
    let all: Vec<Id> = found.pending.keys().filter(|id| **id >= pair(*from)).copied().collect();
    for id in all {
        if left == 0 {
            next = id;
            break;
        }
        let (_, at, times) = found.pending[&id].clone();
        if !state.entries.contains_key(&id) {
            gone.push(id);
            found.pending.remove(&id);
            left -= 1;
        } else if *min_idle_millis == 0 || NOW_MILLIS - at >= *min_idle_millis {
            found.pending.insert(id, (consumer.to_vec(), NOW_MILLIS, times + u64::from(!just_ids)));
            claimed.push(id);
            left -= 1;
        }
    }
    if !claimed.is_empty() {
        found.consumers.insert(consumer.to_vec(), NOW_MILLIS);
    }
    state.groups.insert(group.to_vec(), found);
    let entries = write_claimed(state, &claimed, *just_ids);
    expect(|reply| {
        reply.array(3);
        reply.bulk(&text(next));
        entries.elements().for_each(|element: Reply<'_>| element.write(reply));
        reply.array(gone.len());
        gone.iter().for_each(|id| reply.bulk(&text(*id)));
    })
}
