//! The four session guarantees (Terry et al., PDIS 1994), each by itself and without believing any claim.
//!
//! | guarantee | a read of a key must show at least |
//! |---|---|
//! | read your writes | what its session wrote there before |
//! | monotonic reads | what its session read there before |
//! | monotonic writes | what a session wrote there before a write that the reader's session saw |
//! | writes follow reads | what a session read there before a write that the reader's session saw |
//!
//! "At least" asks for an order of each key's versions that agrees with all such reads, with what is known of it, and,
//! for the last two, with the order in which one session wrote, or read and wrote. A cycle of versions says that
//! there is none. Reads of one transaction count as simultaneous.

use crate::accesses::{Accesses, Source};
use crate::dependencies::{Cycle, Sessions};
use crate::graph::{Graph, Reason};
use crate::report::Level;
use std::collections::{BTreeMap, BTreeSet};

struct Guarantee<'a, 'd, 'h> {
    accesses: &'a Accesses<'d, 'h>,
    level: Level,
    sessions: Sessions,
    graph: Graph<'h>,
    nodes: BTreeMap<(usize, Source), usize>,
    edges: BTreeSet<(usize, usize)>,
    /// What each session read on each key: at which place, whose version.
    reads: BTreeMap<(usize, usize), Vec<(usize, Source)>>,
}

/// A contradiction to a session guarantee, if there is one.
pub(crate) fn violation(accesses: &Accesses<'_, '_>, level: Level) -> Option<Cycle> {
    let sessions = Sessions::new(accesses);
    let (nodes, edges, reads) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    let mut guarantee = Guarantee { accesses, level, sessions, graph: Graph::new(0), nodes, edges, reads };
    guarantee.add_known();
    guarantee.add_demanded();
    guarantee.cycle()
}

impl<'h> Guarantee<'_, '_, 'h> {
    fn node(&mut self, key: usize, source: Source) -> usize {
        let graph = &mut self.graph;
        *self.nodes.entry((key, source)).or_insert_with(|| graph.add_node())
    }

    fn add(&mut self, key: usize, earlier: Source, later: Source, reason: Reason<'h>) {
        let (from, to) = (self.node(key, earlier), self.node(key, later));
        if from != to && self.edges.insert((from, to)) {
            self.graph.add_edge(from, to, reason);
        }
    }

    fn add_known(&mut self) {
        for (key, versions) in self.accesses.keys.iter().enumerate() {
            for (earlier, later) in &versions.next {
                self.add(key, *earlier, Source::Written(*later), Reason::Replaces(versions.name));
            }
            for writer in &versions.writers {
                self.add(key, Source::Initial, Source::Written(*writer), Reason::Initial);
            }
        }
        for units in self.sessions.units.clone() {
            for (place, unit) in units.iter().enumerate() {
                let accesses = self.accesses;
                let (session, _) = self.sessions.places[*unit];
                for (key, source) in &accesses.units[*unit].reads {
                    self.reads.entry((session, *key)).or_default().push((place, *source));
                }
                for key in &accesses.units[*unit].writes {
                    self.order_write(session, place, *key, *unit);
                }
            }
        }
    }

    /// What the last two guarantees say about where a session's write stands among the versions of its key.
    fn order_write(&mut self, session: usize, place: usize, key: usize, unit: usize) {
        let reason = Reason::Replaces(self.accesses.keys[key].name);
        if self.level == Level::MonotonicWrites
            && let Some(earlier) = self.sessions.last_writer(key, session, place as u32)
        {
            self.add(key, Source::Written(earlier), Source::Written(unit), reason);
        }
        if self.level == Level::WritesFollowReads {
            for (_, source) in self.reads.get(&(session, key)).cloned().unwrap_or_default() {
                if source != Source::Written(unit) {
                    self.add(key, source, Source::Written(unit), reason);
                }
            }
        }
    }

    fn add_demanded(&mut self) {
        for (session, units) in self.sessions.units.clone().into_iter().enumerate() {
            // For each session the last of its units of which this one has seen something.
            let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
            let mut last_read: BTreeMap<usize, Source> = BTreeMap::new();
            for (place, unit) in units.into_iter().enumerate() {
                let reads = &self.accesses.units[unit].reads;
                for (_, source) in reads {
                    if let Source::Written(writer) = source {
                        let (session, place) = self.sessions.places[*writer];
                        let last = seen.entry(session).or_default();
                        *last = (*last).max(place);
                    }
                }
                for (key, source) in reads {
                    for demanded in self.demanded(session, place, *key, &seen, &last_read) {
                        let reason = Reason::Outdated(self.accesses.keys[*key].name, unit);
                        self.add(*key, demanded, *source, reason);
                    }
                }
                last_read.extend(reads.iter().copied());
            }
        }
    }

    /// The versions of a key that a read there must not be older than.
    fn demanded(
        &self,
        session: usize,
        place: usize,
        key: usize,
        seen: &BTreeMap<usize, usize>,
        last_read: &BTreeMap<usize, Source>,
    ) -> Vec<Source> {
        match self.level {
            Level::ReadYourWrites => {
                let own = self.sessions.last_writer(key, session, place as u32);
                own.map(Source::Written).into_iter().collect()
            }
            Level::MonotonicReads => last_read.get(&key).copied().into_iter().collect(),
            Level::MonotonicWrites => {
                let last = |(session, place): (&usize, &usize)| {
                    self.sessions.last_writer(key, *session, *place as u32)
                };
                seen.iter().filter_map(last).map(Source::Written).collect()
            }
            _ => {
                let before = |(session, place): (&usize, &usize)| {
                    let reads = self.reads.get(&(*session, key)).map_or(&[][..], Vec::as_slice);
                    let end = reads.partition_point(|(at, _)| at <= place);
                    reads[..end].iter().map(|(_, source)| *source).collect::<Vec<_>>()
                };
                seen.iter().flat_map(before).collect()
            }
        }
    }

    fn cycle(&self) -> Option<Cycle> {
        let stuck = self.graph.topological_order(|node| node).err()?;
        let cycle = self.graph.shortest_cycle(&stuck);
        let names: BTreeMap<usize, Source> =
            self.nodes.iter().map(|((_, source), node)| (*node, *source)).collect();
        let name = |node: &usize| match names[node] {
            Source::Initial => "nothing".to_owned(),
            Source::Written(unit) => self.accesses.units[unit].number().to_string(),
        };
        let mut numbers = BTreeSet::new();
        let mut lines = Vec::new();
        for (index, (from, reason)) in cycle.iter().enumerate() {
            let to = cycle[(index + 1) % cycle.len()].0;
            if let Source::Written(unit) = names[from] {
                numbers.insert(self.accesses.units[unit].number());
            }
            let because = match reason {
                Reason::Outdated(_, reader) => {
                    let number = self.accesses.units[*reader].number();
                    numbers.insert(number);
                    format!("{number} had to see the former or later and saw the latter")
                }
                Reason::Initial => "that was there first".to_owned(),
                _ => "the order of their writes is known".to_owned(),
            };
            lines.push(format!("  the version of {} before that of {}: {because}", name(from), name(&to)));
        }
        let key = cycle.first().and_then(|(node, _)| self.nodes.iter().find(|(_, id)| *id == node));
        let key = key.map(|((key, _), _)| self.accesses.keys[*key].name.escape_ascii().to_string());
        lines.insert(0, format!("the versions of {} have no order:", key.unwrap_or_default()));
        Some((lines.join("\n"), numbers.into_iter().collect()))
    }
}
