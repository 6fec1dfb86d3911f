//! Streams that only grow, without believing any claim: at rest they hold every entry that was added, and no other; and what
//! was acknowledged is pending for nobody.
//!
//! An entry has the id in its client's reply. Where several were given one id, all but one of them come behind it:
//! each has the first id from its own on that no other entry has, so all between are taken.

use crate::history::{Key, Outcome, Transaction};
use crate::report::{Check, Findings};
use crate::touches::quoted;
use datatypes::Operation;
use datatypes::stream::{self, StreamId};
use std::collections::{BTreeMap, BTreeSet};
use types::Reader;

/// What was done to a key.
#[derive(Default)]
struct Log {
    /// With its id, the strings between quotes as in replies. Where an addition may have been done, or its id is unknown, it
    /// only is among those that may be there.
    added: Vec<(StreamId, Vec<String>)>,
    perhaps: BTreeSet<Vec<String>>,
    acknowledged: BTreeMap<Vec<u8>, BTreeSet<String>>,
    /// Something else was done to it: nothing can be said.
    mixed: bool,
}

pub(crate) fn check(history: &[Transaction], findings: &mut Findings) {
    let mut logs: BTreeMap<&Key, Log> = BTreeMap::new();
    for transaction in history.iter().filter(|t| t.outcome != Outcome::Aborted && !t.given_up) {
        let is_certain = transaction.outcome == Outcome::Committed;
        for step in &transaction.steps {
            let log = logs.entry(&step.key).or_default();
            let reply = step.reply.as_deref().filter(|_| is_certain && !step.blind);
            match Operation::decode(&mut Reader::new(&step.operation.0)) {
                Ok(operation) if operation.is_read() => {}
                _ if reply.is_some_and(|reply| reply.starts_with('-')) => {}
                Ok(Operation::Stream(operation)) => log.take(&operation, reply),
                _ => log.mixed = true,
            }
        }
    }
    for transaction in history.iter().filter(|t| t.at_rest && t.outcome == Outcome::Committed) {
        for step in &transaction.steps {
            let (Some(reply), Some(log)) = (step.reply.as_deref(), logs.get(&step.key)) else { continue };
            let Ok(Operation::Stream(operation)) = Operation::decode(&mut Reader::new(&step.operation.0))
            else {
                continue;
            };
            let complaint = match operation {
                _ if log.mixed => None,
                stream::Operation::Range { from: StreamId::ZERO, to: StreamId::MAX, count: None, .. } => {
                    log.wrong_entries(reply)
                }
                stream::Operation::Pending { group, .. } => log.wrong_pending(group, reply),
                _ => None,
            };
            if let Some(complaint) = complaint {
                let message = format!("{} at rest is {reply}, but {complaint}", step.key);
                findings.add(Check::ExactlyOnce, message, vec![transaction.number]);
            }
        }
    }
}

/// The id that is between quotes.
fn id_of(quoted: &str) -> Option<StreamId> {
    StreamId::parse(quoted.trim_matches('"').as_bytes(), 0).ok()
}

/// An id between quotes.
fn text(id: StreamId) -> String {
    id.with_text(|text| quoted(text))
}

/// The strings in a reply, with their quotes: values of histories hold none.
fn strings(reply: &str) -> Vec<String> {
    reply.split('"').skip(1).step_by(2).map(|string| format!("\"{string}\"")).collect()
}

impl Log {
    fn take(&mut self, operation: &stream::Operation<'_>, reply: Option<&str>) {
        match operation {
            stream::Operation::Add { items, trim: None, .. } if items.len() == 2 => {
                let items: Vec<String> = items.iter().map(quoted).collect();
                // A blind write gets no id.
                match reply.and_then(id_of) {
                    Some(id) => self.added.push((id, items)),
                    None => drop(self.perhaps.insert(items)),
                }
            }
            stream::Operation::Acknowledge { group, ids } => {
                if reply == Some(&format!("(integer) {}", ids.len())) {
                    let known = self.acknowledged.entry(group.to_vec()).or_default();
                    known.extend(ids.iter().map(quoted));
                }
            }
            stream::Operation::CreateGroup { .. } | stream::Operation::ReadGroup { .. } => {}
            stream::Operation::Claim { claiming, .. } if !claiming.force => {}
            stream::Operation::AutoClaim { .. } => {}
            _ => self.mixed = true,
        }
    }

    fn wrong_entries(&self, reply: &str) -> Option<String> {
        let found = strings(reply);
        let (entries, rest) = found.as_chunks::<3>();
        let ids: BTreeSet<StreamId> = entries.iter().filter_map(|[id, ..]| id_of(id)).collect();
        if !rest.is_empty() || ids.len() * 3 != found.len() {
            return Some("some id is there twice".into());
        }
        let mut places: BTreeMap<&[String], BTreeSet<StreamId>> = BTreeMap::new();
        for [id, strings @ ..] in entries {
            places.entry(strings.as_slice()).or_default().extend(id_of(id));
        }
        let mut added: Vec<&(StreamId, Vec<String>)> = self.added.iter().collect();
        added.sort();
        for (id, items) in added {
            let places = places.entry(items.as_slice()).or_default();
            let place = places.range(id..).next().copied();
            let mut from = std::iter::successors(Some(*id), |id| id.next());
            let stops = from.find(|at| Some(*at) == place || !ids.contains(at));
            match place.filter(|_| stops == place) {
                Some(place) => places.remove(&place),
                None => return Some(format!("{} was added with {}", text(*id), items.join(" "))),
            };
        }
        let nobody = |(strings, left): &(&&[String], &BTreeSet<StreamId>)| {
            !left.is_empty() && !self.perhaps.contains(**strings)
        };
        let (_, left) = places.iter().find(nobody)?;
        Some(format!("nobody added {}", text(*left.first()?)))
    }

    fn wrong_pending(&self, group: &[u8], reply: &str) -> Option<String> {
        let acknowledged = self.acknowledged.get(group)?;
        // The least and the greatest.
        let ends = strings(reply).into_iter().take(2);
        let wrong = ends.into_iter().find(|id| acknowledged.contains(id));
        wrong.map(|id| format!("{id} was acknowledged"))
    }
}
