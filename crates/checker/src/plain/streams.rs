//! Streams: entries by id, and groups with what their consumers have. When and how often it was delivered is left out, and so
//! are consumers that have nothing.

use super::{Answer, Held, Key, Text, array, integer, ok};
use crate::touches::quoted;
use datatypes::stream::{self, NewId, Operation, Start, StreamId, Trim};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    entries: BTreeMap<StreamId, Vec<Text>>,
    last: StreamId,
    groups: BTreeMap<Text, Group>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    last: StreamId,
    /// Who has what is not acknowledged.
    pending: BTreeMap<StreamId, BTreeSet<Text>>,
}

/// Everything that one command may add is less than all.
fn at_most(count: u64) -> usize {
    if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) }
}

fn id_text(id: StreamId) -> String {
    format!("\"{}-{}\"", id.millis, id.sequence)
}

fn in_words<'e>(entries: impl Iterator<Item = (&'e StreamId, &'e Vec<Text>)>) -> Vec<String> {
    let shown = |(id, strings): (&StreamId, &Vec<Text>)| {
        let strings: Vec<String> = strings.iter().map(quoted).collect();
        format!("[{}, [{}]]", id_text(*id), strings.join(", "))
    };
    entries.map(shown).collect()
}

fn some(entries: Vec<String>) -> Answer {
    if entries.is_empty() { Answer::Text("(nil array)".into()) } else { array(entries.into_iter()) }
}

fn ids(words: &datatypes::Items<'_>) -> Vec<StreamId> {
    let parsed: BTreeSet<StreamId> = words.iter().filter_map(|word| StreamId::parse(word, 0).ok()).collect();
    parsed.into_iter().collect()
}

impl Stream {
    pub(super) fn read(stream: &stream::Stream) -> Stream {
        let strings = |entry: stream::Entry<'_>| entry.strings().map(<[u8]>::to_vec).collect();
        let group = |group: &stream::Group| {
            let consumers =
                |owners: &stream::Owners| owners.iter().map(|owner| owner.consumer.to_vec()).collect();
            let pending = group.pending().iter().map(|(id, owners)| (*id, consumers(owners)));
            Group { last: group.last, pending: pending.collect() }
        };
        Stream {
            entries: stream.entries.iter().map(|entry| (entry.id, strings(entry))).collect(),
            last: stream.last,
            groups: stream.groups().map(|(name, found)| (name.to_vec(), group(found))).collect(),
        }
    }

    fn trim(&mut self, trim: &Trim) -> usize {
        let before = self.entries.len();
        match trim {
            Trim::Length { length, .. } => {
                while self.entries.len() as u64 > *length {
                    self.entries.pop_first();
                }
            }
            Trim::Id { id, .. } => self.entries.retain(|at, _| at >= id),
        }
        before - self.entries.len()
    }

    fn place(&self, start: &Start) -> StreamId {
        match start {
            Start::After { id } => *id,
            Start::Last => self.last,
        }
    }

    fn behind(&self, id: StreamId) -> impl Iterator<Item = (&StreamId, &Vec<Text>)> {
        self.entries.iter().filter(move |(at, _)| **at > id)
    }

    fn of_group(&mut self, group: &[u8], operation: &Operation<'_>) -> Answer {
        let entries = self.entries.clone();
        let place = match operation {
            Operation::SetGroup { start, .. } => self.place(start),
            _ => StreamId::ZERO,
        };
        let Some(found) = self.groups.get_mut(group) else {
            return match operation {
                Operation::Acknowledge { .. } => integer(0),
                _ => Answer::Refusal,
            };
        };
        match operation {
            Operation::SetGroup { .. } => {
                found.last = place;
                ok()
            }
            Operation::DeleteConsumer { consumer, .. } => {
                let before: usize = found.pending.values().filter(|has| has.contains(*consumer)).count();
                for has in found.pending.values_mut() {
                    has.remove(*consumer);
                }
                found.pending.retain(|_, has| !has.is_empty());
                integer(before)
            }
            Operation::ReadGroup { consumer, own_after: None, count, no_ack, .. } => {
                let unread = entries.iter().filter(|(id, _)| **id > found.last);
                let delivered: Vec<_> = unread.take(at_most(*count)).collect();
                let taker = BTreeSet::from([consumer.to_vec()]);
                for (id, _) in &delivered {
                    found.last = **id;
                    if !no_ack {
                        found.pending.insert(**id, taker.clone());
                    }
                }
                some(in_words(delivered.into_iter()))
            }
            Operation::Acknowledge { ids: words, .. } => {
                let acknowledged = ids(words).into_iter().filter(|id| found.pending.remove(id).is_some());
                integer(acknowledged.count())
            }
            Operation::Claim { consumer, ids: words, claiming, .. }
                if claiming.min_idle_millis == 0 && !claiming.force && claiming.last.is_none() =>
            {
                let mut claimed = Vec::new();
                for id in
                    ids(words).into_iter().filter(|id| found.pending.contains_key(id)).collect::<Vec<_>>()
                {
                    match entries.get_key_value(&id) {
                        Some(entry) => {
                            found.pending.insert(id, BTreeSet::from([consumer.to_vec()]));
                            claimed.push(entry);
                        }
                        None => drop(found.pending.remove(&id)),
                    }
                }
                if claiming.just_ids {
                    return array(claimed.into_iter().map(|(id, _)| id_text(*id)));
                }
                array(in_words(claimed.into_iter()).into_iter())
            }
            Operation::Pending { .. } => found.summary(),
            _ => Answer::NotJudged,
        }
    }
}

impl Group {
    fn summary(&self) -> Answer {
        let ends = self.pending.keys().next().zip(self.pending.keys().next_back());
        let Some((first, last)) = ends else {
            return Answer::Text("[(integer) 0, (nil), (nil), (nil array)]".into());
        };
        let mut counts: BTreeMap<&Text, usize> = BTreeMap::new();
        self.pending.values().flatten().for_each(|consumer| *counts.entry(consumer).or_default() += 1);
        let counts: Vec<String> =
            counts.into_iter().map(|(name, count)| format!("[{}, \"{count}\"]", quoted(name))).collect();
        let (number, first, last) = (self.pending.len(), id_text(*first), id_text(*last));
        Answer::Text(format!("[(integer) {number}, {first}, {last}, [{}]]", counts.join(", ")))
    }
}

impl Key {
    pub(super) fn stream(&mut self, operation: &Operation<'_>) -> Answer {
        let mut stream = match &self.held {
            Some(Held::Stream(stream)) => stream.clone(),
            None => Stream::default(),
            Some(_) => return Answer::Refusal,
        };
        let exists = self.held.is_some();
        let answer = match operation {
            Operation::Add { only_if_exists: true, .. } if !exists => Answer::Text("(nil)".into()),
            // Whoever chooses an id looks at a clock.
            Operation::Add { id: NewId::Next | NewId::Within { .. }, .. } => Answer::NotJudged,
            Operation::Add { id: NewId::Given { id }, .. } if *id <= stream.last => Answer::Refusal,
            Operation::Add { id: NewId::Given { id }, items, trim, .. } => {
                stream.last = *id;
                stream.entries.insert(*id, items.iter().map(<[u8]>::to_vec).collect());
                if let Some(trim) = trim {
                    stream.trim(trim);
                }
                self.held = Some(Held::Stream(stream));
                return Answer::Text(id_text(*id));
            }
            Operation::CreateGroup { create: false, .. } if !exists => Answer::Refusal,
            Operation::CreateGroup { group, .. } if stream.groups.contains_key(*group) => Answer::Refusal,
            Operation::CreateGroup { group, start, .. } => {
                let last = stream.place(start);
                stream.groups.insert(group.to_vec(), Group { last, ..Group::default() });
                self.held = Some(Held::Stream(stream));
                return ok();
            }
            Operation::DestroyGroup { .. } if !exists => Answer::Refusal,
            Operation::DestroyGroup { group } => integer(usize::from(stream.groups.remove(*group).is_some())),
            Operation::Length => integer(stream.entries.len()),
            Operation::Range { count: Some(0), .. } if exists => Answer::Text("(nil array)".into()),
            Operation::Range { from, to, count, reverse } => {
                let all = stream.entries.iter().filter(|(id, _)| from <= *id && *id <= to);
                let mut all: Vec<_> = all.collect();
                if *reverse {
                    all.reverse();
                }
                all.truncate(at_most(count.unwrap_or(0)));
                array(in_words(all.into_iter()).into_iter())
            }
            Operation::Read { start, count } => {
                let from = stream.place(start);
                some(in_words(stream.behind(from).take(at_most(*count))))
            }
            Operation::Delete { ids: words } => {
                let removed = ids(words).into_iter().filter(|id| stream.entries.remove(id).is_some());
                integer(removed.count())
            }
            Operation::Trim { trim } => integer(stream.trim(trim)),
            Operation::SetGroup { group, .. }
            | Operation::DeleteConsumer { group, .. }
            | Operation::ReadGroup { group, .. }
            | Operation::Acknowledge { group, .. }
            | Operation::Claim { group, .. }
            | Operation::AutoClaim { group, .. }
            | Operation::Pending { group, .. } => stream.of_group(group, operation),
            _ => Answer::NotJudged,
        };
        if exists {
            self.held = Some(Held::Stream(stream));
        }
        answer
    }
}
