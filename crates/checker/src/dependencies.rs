//! Levels checked through dependencies between reads and writes of versions, without believing any claim.
//!
//! What is known makes a graph (Adya's dependencies, with the orders of Biswas and Enea, OOPSLA 2019):
//!
//! | edge | when | levels |
//! |---|---|---|
//! | session | one session ran the first before the second | all |
//! | context | the second's session took over the context of the first's, as it was after the first | all |
//! | reads from | the second saw a version of the first | all |
//! | outdated | a reader had to see the first's version of a key and saw the second's, which so comes later | all |
//! | replaces | the second's version of a key is known to follow the first's | from snapshot on |
//! | before | the first saw a version of a key that the second is known to have replaced | from snapshot on |
//! | real time | the first had ended when the second began | strict serializability |
//!
//! "Had to see" is, for read atomicity, what the reader's session did before and everything of a transaction of which
//! it saw something; from causal consistency on, everything in its past by sessions and reads. A cycle breaks the
//! level. Snapshot isolation permits cycles with two *before* edges in a row (Fekete et al.): there every unit is two
//! nodes, and the second, where such an edge arrives, lets none depart.
//!
//! Without a cycle read atomicity and causal consistency hold, as nothing else can break them. Above, the order of
//! versions may be known in part only: then the absence of a cycle proves nothing, and others decide (`schedule`,
//! `axioms`). Time and memory grow with the history's size times its number of sessions.

use crate::accesses::{Accesses, Source, Unit};
use crate::graph::{Graph, Reason};
use crate::report::Level;
use std::collections::{BTreeMap, BTreeSet};

/// How many rounds derive the order of versions from real time; each round makes the next one more precise.
const ROUNDS: usize = 2;

/// The graph of a history at a level.
pub(crate) struct Dependencies<'a, 'd, 'h> {
    accesses: &'a Accesses<'d, 'h>,
    level: Level,
    pub graph: Graph<'h>,
    readers: BTreeMap<(usize, Source), Vec<usize>>,
    /// Versions of a key whose order was found out, so that each is used once.
    found: BTreeSet<(usize, usize, usize)>,
    /// When each unit took effect, at the earliest and at the latest: after whatever comes before it began, before
    /// whatever comes after it was answered. Within real time only.
    pub spans: Vec<(u64, u64)>,
}

/// A cycle in words, with the transactions on it.
pub(crate) type Cycle = (String, Vec<u64>);

impl<'a, 'd, 'h> Dependencies<'a, 'd, 'h> {
    /// All that is known at a level; or a cycle of sessions and reads alone.
    pub fn new(accesses: &'a Accesses<'d, 'h>, level: Level) -> Result<Self, Cycle> {
        let base = accesses.units.len() + 1;
        let nodes = if level == Level::Snapshot { 2 * base } else { base };
        let mut readers: BTreeMap<(usize, Source), Vec<usize>> = BTreeMap::new();
        for (unit, accessed) in accesses.units.iter().enumerate() {
            accessed
                .reads
                .iter()
                .for_each(|(key, source)| readers.entry((*key, *source)).or_default().push(unit));
        }
        let (graph, found) = (Graph::new(nodes), BTreeSet::new());
        let span =
            |unit: &Unit<'_, '_>| (unit.decoded.transaction.invoked, unit.answered().unwrap_or(u64::MAX));
        let spans = accesses.units.iter().map(span).collect();
        let mut all = Dependencies { accesses, level, graph, readers, found, spans };
        let sessions = Sessions::new(accesses);
        all.add_sessions_and_reads(&sessions);
        let past = all.past(&sessions)?;
        if level == Level::ReadAtomic {
            all.add_outdated_at_once(&sessions);
        } else {
            all.add_outdated_by_past(&sessions, &past);
        }
        if matches!(level, Level::Snapshot | Level::Serializable | Level::StrictSerializable) {
            all.add_replacements();
            all.add_first_writes();
        }
        if level == Level::StrictSerializable {
            let span = |(unit, accessed): (usize, &Unit<'_, '_>)| {
                (unit, accessed.decoded.transaction.invoked, accessed.answered())
            };
            all.graph.add_moments(&accesses.units.iter().enumerate().map(span).collect::<Vec<_>>());
            for _ in 0..ROUNDS {
                all.narrow_spans();
                all.add_versions_in_time();
            }
        }
        if level != Level::Snapshot {
            all.narrow_spans();
        }
        Ok(all)
    }

    /// A shortest cycle, if there is one.
    pub fn cycle(&self) -> Option<Cycle> {
        let stuck = self.graph.topological_order(|node| node).err()?;
        let base = self.accesses.units.len() + 1;
        let main = if self.level == Level::Snapshot { 2 * base } else { base };
        let candidates: Vec<usize> = stuck.into_iter().filter(|node| *node < main).collect();
        Some(self.describe(&self.graph.shortest_cycle(&candidates)))
    }

    /// True when for every key the whole order of versions is known.
    pub fn is_total(&self) -> bool {
        self.accesses.keys.iter().all(|key| {
            let pairs: BTreeSet<(Source, usize)> = key.next.iter().copied().collect();
            let from: BTreeSet<Source> = pairs.iter().map(|(from, _)| *from).collect();
            let to: BTreeSet<usize> = pairs.iter().map(|(_, to)| *to).collect();
            from.len() == pairs.len() && to.len() == pairs.len() && to.len() == key.writers.len()
        })
    }

    fn initial(&self) -> usize {
        self.accesses.units.len()
    }

    fn node(&self, source: Source) -> usize {
        match source {
            Source::Initial => self.initial(),
            Source::Written(unit) => unit,
        }
    }

    /// An edge that may follow any other.
    fn add(&mut self, from: usize, to: usize, reason: Reason<'h>) {
        if from == to {
            return;
        }
        self.graph.add_edge(from, to, reason);
        if self.level == Level::Snapshot {
            let second = self.accesses.units.len() + 1;
            self.graph.add_edge(from + second, to, reason);
        }
    }

    /// An edge from a reader of a version to what replaced it. Where snapshots are concerned it may not follow its
    /// like.
    fn add_before(&mut self, from: usize, to: usize, key: usize) {
        if from == to {
            return;
        }
        let to = if self.level == Level::Snapshot { to + self.accesses.units.len() + 1 } else { to };
        self.graph.add_edge(from, to, Reason::Before(self.accesses.keys[key].name));
    }

    fn add_sessions_and_reads(&mut self, sessions: &Sessions) {
        let accesses = self.accesses;
        for unit in 0..accesses.units.len() {
            self.add(self.initial(), unit, Reason::Initial);
            for (key, source) in &accesses.units[unit].reads {
                self.add(self.node(*source), unit, Reason::ReadsFrom(accesses.keys[*key].name));
            }
        }
        for (unit, before) in sessions.before.iter().enumerate() {
            before.iter().for_each(|before| self.add(*before, unit, Reason::Session));
        }
        for (unit, giver) in sessions.follows.iter().enumerate() {
            giver.iter().for_each(|giver| self.add(*giver, unit, Reason::Context));
        }
    }

    /// For each unit how many units of each session are in its past.
    fn past(&self, sessions: &Sessions) -> Result<Vec<Vec<u32>>, Cycle> {
        let units = self.accesses.units.len();
        let Ok(order) = self.graph.topological_order(|node| node) else {
            let cycle = self.cycle();
            return Err(cycle.unwrap_or_default());
        };
        let mut past = vec![Vec::new(); units];
        for unit in order.into_iter().filter(|node| *node < units) {
            let mut mine = vec![0; sessions.units.len()];
            let sources = self.accesses.units[unit].reads.iter().filter_map(|(_, source)| match source {
                Source::Written(writer) if *writer != unit => Some(*writer),
                _ => None,
            });
            let session_order = sessions.before[unit].into_iter().chain(sessions.follows[unit]);
            for earlier in session_order.chain(sources) {
                let theirs: &Vec<u32> = &past[earlier];
                mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
                let (session, place) = sessions.places[earlier];
                mine[session] = mine[session].max(place as u32 + 1);
            }
            past[unit] = mine;
        }
        Ok(past)
    }

    /// A reader had to see `first`'s version of the key, and saw that of `second`.
    fn add_outdated(&mut self, key: usize, first: usize, second: Source, reader: usize) {
        let second = self.node(second);
        if first == second || first == reader || !self.found.insert((key, first, second)) {
            return;
        }
        self.add(first, second, Reason::Outdated(self.accesses.keys[key].name, reader));
        if !matches!(self.level, Level::ReadAtomic | Level::Causal | Level::TransactionalCausal) {
            for other in self.readers.get(&(key, Source::Written(first))).cloned().unwrap_or_default() {
                self.add_before(other, second, key);
            }
        }
    }

    fn add_outdated_at_once(&mut self, sessions: &Sessions) {
        let accesses = self.accesses;
        for (reader, unit) in accesses.units.iter().enumerate() {
            for (key, seen) in &unit.reads {
                let (session, place) = sessions.places[reader];
                if let Some(first) = sessions.last_writer(*key, session, place as u32) {
                    self.add_outdated(*key, first, *seen, reader);
                }
                for (_, source) in &unit.reads {
                    if let Source::Written(first) = source
                        && accesses.units[*first].writes.contains(key)
                    {
                        self.add_outdated(*key, *first, *seen, reader);
                    }
                }
            }
        }
    }

    fn add_outdated_by_past(&mut self, sessions: &Sessions, past: &[Vec<u32>]) {
        let accesses = self.accesses;
        for (reader, unit) in accesses.units.iter().enumerate() {
            for (key, seen) in &unit.reads {
                for session in sessions.writers[*key].keys() {
                    if let Some(first) = sessions.last_writer(*key, *session, past[reader][*session]) {
                        self.add_outdated(*key, first, *seen, reader);
                    }
                }
            }
        }
    }

    fn add_replacements(&mut self) {
        for (key, versions) in self.accesses.keys.iter().enumerate() {
            for (from, to) in &versions.next {
                self.add(self.node(*from), *to, Reason::Replaces(versions.name));
                for reader in self.readers.get(&(key, *from)).cloned().unwrap_or_default() {
                    self.add_before(reader, *to, key);
                }
            }
        }
    }

    /// Whoever saw nothing at a key comes before all who wrote there, by way of one node for the key.
    fn add_first_writes(&mut self) {
        for (key, versions) in self.accesses.keys.iter().enumerate() {
            let readers = self.readers.get(&(key, Source::Initial)).cloned().unwrap_or_default();
            let writes = |unit: &usize| self.accesses.units[*unit].writes.contains(&key);
            let (writers, readers): (Vec<usize>, Vec<usize>) = readers.into_iter().partition(writes);
            // Two that saw nothing and wrote are a contradiction by themselves.
            for first in writers.into_iter().take(2) {
                versions.writers.iter().for_each(|writer| self.add_before(first, *writer, key));
            }
            if !readers.is_empty() && !versions.writers.is_empty() {
                let absent = self.graph.add_node();
                let reason = Reason::Before(versions.name);
                readers.iter().for_each(|reader| self.graph.add_edge(*reader, absent, reason));
                let second = self.accesses.units.len() + 1;
                for writer in &versions.writers {
                    let to = if self.level == Level::Snapshot { writer + second } else { *writer };
                    self.graph.add_edge(absent, to, reason);
                }
            }
        }
    }

    /// Whatever comes before a unit took effect before its answer, whatever comes after it after its invocation.
    fn narrow_spans(&mut self) {
        let units = self.accesses.units.len();
        let Ok(order) = self.graph.topological_order(|node| node) else { return };
        let mut all = vec![(0, u64::MAX); self.graph.len()];
        all[..units].copy_from_slice(&self.spans);
        for node in order.iter().copied() {
            let begin = all[node].0;
            self.graph.after(node).for_each(|to| all[to].0 = all[to].0.max(begin));
        }
        for node in order.into_iter().rev() {
            let end = self.graph.after(node).map(|to| all[to].1).min().unwrap_or(u64::MAX);
            all[node].1 = all[node].1.min(end);
        }
        self.spans.copy_from_slice(&all[..units]);
    }

    /// What real time says about the order of versions.
    fn add_versions_in_time(&mut self) {
        let accesses = self.accesses;
        let in_time: Vec<[Vec<(u64, usize)>; 2]> = (accesses.keys.iter())
            .map(|versions| {
                let ends = versions.writers.iter().map(|unit| (self.spans[*unit].1, *unit));
                let begins = versions.writers.iter().map(|unit| (self.spans[*unit].0, *unit));
                let mut both = [ends.collect::<Vec<_>>(), begins.collect()];
                both.iter_mut().for_each(|times| times.sort_unstable());
                both
            })
            .collect();
        for (reader, unit) in accesses.units.iter().enumerate() {
            for (key, seen) in &unit.reads {
                let [by_end, by_begin] = &in_time[*key];
                self.add_outdated_in_time(*key, reader, *seen, by_end);
                self.add_replaced_in_time(*key, reader, *seen, by_begin);
            }
        }
    }

    /// Writers that had ended when the reader began come before the one it saw. Those that ended before another of
    /// them began come before that one anyway.
    fn add_outdated_in_time(&mut self, key: usize, reader: usize, seen: Source, by_end: &[(u64, usize)]) {
        let ended = by_end.partition_point(|(end, _)| *end < self.spans[reader].0);
        let mut latest_begin = 0;
        for (end, writer) in by_end[..ended].iter().rev() {
            if *end < latest_begin {
                break;
            }
            latest_begin = latest_begin.max(self.spans[*writer].0);
            self.add_outdated(key, *writer, seen, reader);
        }
    }

    /// Writers that began when the one it saw had ended come after the reader.
    fn add_replaced_in_time(&mut self, key: usize, reader: usize, seen: Source, by_begin: &[(u64, usize)]) {
        let Source::Written(seen) = seen else { return };
        let end = self.spans[seen].1;
        let first = by_begin.partition_point(|(begin, _)| *begin <= end);
        let mut earliest_end = u64::MAX;
        for (begin, writer) in &by_begin[first..] {
            if *begin > earliest_end {
                break;
            }
            earliest_end = earliest_end.min(self.spans[*writer].1);
            self.add_before(reader, *writer, key);
        }
    }

    fn describe(&self, cycle: &[(usize, Reason<'_>)]) -> Cycle {
        let base = self.accesses.units.len() + 1;
        let main = if self.level == Level::Snapshot { 2 * base } else { base };
        let stations: Vec<(usize, Reason<'_>)> = cycle
            .iter()
            .filter(|(node, _)| *node < main)
            .map(|(node, reason)| (node % base, *reason))
            .collect();
        let name = |node: usize| match self.accesses.units.get(node) {
            Some(unit) => unit.number().to_string(),
            None => "the initial state".to_owned(),
        };
        let mut lines = vec!["what was seen cannot be put in order:".to_owned()];
        for (index, (from, reason)) in stations.iter().enumerate() {
            let to = stations[(index + 1) % stations.len()].0;
            let because = match reason {
                Reason::Session => format!("in session {}", self.accesses.units[to].session()),
                Reason::Context => {
                    format!("session {} took over its context", self.accesses.units[to].session())
                }
                Reason::RealTime => format!(
                    "it ended at {} us, the other began at {} us",
                    self.accesses.units[*from].answered().unwrap_or_default(),
                    self.accesses.units[to].decoded.transaction.invoked
                ),
                Reason::Initial => "nothing precedes it".to_owned(),
                Reason::ReadsFrom(key) => format!("its version of {} was read there", key.escape_ascii()),
                Reason::Replaces(key) => format!("its version of {} was replaced there", key.escape_ascii()),
                Reason::Before(key) => {
                    format!("it saw a version of {} that the other replaced", key.escape_ascii())
                }
                Reason::Outdated(key, reader) => format!(
                    "{} had to see its version of {} or a later one, and saw {}",
                    name(*reader),
                    key.escape_ascii(),
                    if to < self.accesses.units.len() { "the other's" } else { "nothing there" }
                ),
                Reason::Key(key) => format!("they do not commute on {}", key.escape_ascii()),
            };
            lines.push(format!("  {} before {}: {because}", name(*from), name(to)));
        }
        let readers = stations.iter().filter_map(|(_, reason)| match reason {
            Reason::Outdated(_, reader) => Some(*reader),
            _ => None,
        });
        let nodes: BTreeSet<usize> = stations.iter().map(|(node, _)| *node).chain(readers).collect();
        let units = nodes.into_iter().filter_map(|node| self.accesses.units.get(node));
        let mut numbers: Vec<u64> = units.map(|unit| unit.number()).collect();
        numbers.dedup();
        (lines.join("\n"), numbers)
    }
}

/// The units of each session in order, and where they write. One of unknown outcome comes after what its session did
/// before, and possibly after all that the session did since: it is a session of its own.
pub(crate) struct Sessions {
    /// By session, then by place.
    pub units: Vec<Vec<usize>>,
    /// For each unit its session and its place there.
    pub places: Vec<(usize, usize)>,
    /// For each unit the one before it.
    pub before: Vec<Option<usize>>,
    /// For each unit the one whose session's context its own session had taken over.
    pub follows: Vec<Option<usize>>,
    /// For each key and session the places of its writers.
    writers: Vec<BTreeMap<usize, Vec<u32>>>,
}

impl Sessions {
    pub fn new(accesses: &Accesses<'_, '_>) -> Self {
        let mut order: Vec<usize> = (0..accesses.units.len()).collect();
        order.sort_by_key(|unit| accesses.units[*unit].moment());
        let mut ids: BTreeMap<u64, usize> = BTreeMap::new();
        let (places, before) = (vec![(0, 0); order.len()], vec![None; order.len()]);
        let writers = vec![BTreeMap::new(); accesses.keys.len()];
        let numbers: BTreeMap<u64, usize> =
            accesses.units.iter().enumerate().map(|(unit, accessed)| (accessed.number(), unit)).collect();
        let giver = |unit: &Unit<'_, '_>| numbers.get(&unit.decoded.transaction.follows?).copied();
        let follows = accesses.units.iter().map(giver).collect();
        let mut sessions = Sessions { units: Vec::new(), places, before, follows, writers };
        for unit in order {
            let accessed = &accesses.units[unit];
            let known = ids.get(&accessed.session()).copied();
            sessions.before[unit] = known.and_then(|session| sessions.units[session].last().copied());
            let session = known.filter(|_| accessed.is_certain()).unwrap_or(sessions.units.len());
            if session == sessions.units.len() {
                sessions.units.push(Vec::new());
                if accessed.is_certain() {
                    ids.insert(accessed.session(), session);
                }
            }
            let place = sessions.units[session].len();
            sessions.places[unit] = (session, place);
            sessions.units[session].push(unit);
            for key in &accessed.writes {
                sessions.writers[*key].entry(session).or_default().push(place as u32);
            }
        }
        sessions
    }

    /// The last unit among the first `count` of a session that wrote a key.
    pub fn last_writer(&self, key: usize, session: usize, count: u32) -> Option<usize> {
        let places = self.writers[key].get(&session)?;
        let before = places.partition_point(|place| *place < count);
        let place = places[before.checked_sub(1)?];
        Some(self.units[session][place as usize])
    }
}
