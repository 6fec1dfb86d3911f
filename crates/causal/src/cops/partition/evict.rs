//! Regions that are lost for good (COPS, section 5.2; Corrections 36, 47 and 48): an operator says so, and the others go on.
//!
//! ```text
//!   Evict ------> any partition; it spreads with Held
//!   Held -------> every equivalent that is left: up to where a lost region's writes are here, and shown here
//!   Forward ----> the equivalent that has most: give me what comes after this          Forwarded ...
//!   DepChecked -> in a region: what is written, and where streams of lost regions end
//! ```
//!
//! **Fence.** A partition accepts nothing more of the lost region. It logs what had arrived and waits. So what it has of that
//! region's stream is a prefix for ever, whatever becomes of the partition's process.
//!
//! **Forwarding** (Corrections 48). Of the stream of each partition the survivors keep the longest prefix that any of
//! them has. Who lacks some takes it from the one that has most: what waited there as it arrived, what is shown there
//! as a write that depends on everything before it, since what it depends on is forgotten. What was taken is logged,
//! and is held from then on: the giver may be lost, too. So a report of holdings counts only if its sender knows of
//! every loss that is known here.
//!
//! **The end of a stream.** What a partition has taken is written when its dependencies are, as ever. What was shown in
//! a region that is left lacks nothing: all that it depends on was shown there, too. A write that only waited may
//! depend on a write that no survivor has. Then it is given up, with all that follows in its stream, and the stream
//! ends before it. That depends on nothing but the prefixes that were agreed, so it is the same in every region; and as
//! a write depends on lower times only, no two partitions wait for one another's ends. Writes of regions that are left
//! depend on what was shown there, so none of them is given up: COPS shows nothing before all that it depends on. It
//! needs no cut over partitions, as its writes are of one partition.
//!
//! **After the end** nothing more of the lost region comes: the partition counts it as written up to its own time. So
//! dependency checks pass, and `stable` goes on once all survivors are there.
//!
//! A lost region that comes back learns of it, and refuses everything.

use super::replicate::{Arrived, Equivalent, is_overdue};
use super::{Mutant, Node, Partition, Status};
use crate::cops::Dependencies;
use crate::cops::message::{Holding, Message};
use crate::cops::record::{self, Record, Written};
use crate::stable;
use crate::stable::KeyEffects;
use protocol::{Now, Outputs};
use replication::Link;
use std::borrow::Cow;
use std::collections::BTreeMap;
use types::{Address, Incarnation, Instant, NodeId, RegionId, Rng, Timestamp};

/// How many places of the index are visited in a step at most.
const VISITS: usize = 1000;
/// How many keys of writes that were given up are named.
const NAMED: usize = 3;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    lost: BTreeMap<RegionId, Lost>,
    /// This region itself was evicted.
    of_own: bool,
    /// Where the streams of lost regions end in other partitions of the region.
    ends: BTreeMap<(u16, RegionId), Timestamp>,
    /// When the partition last exchanged holdings with its equivalents.
    reported_at: Option<Instant>,
}

/// A region that is gone for good, as far as it concerns this partition.
#[derive(Debug, Default)]
struct Lost {
    /// Every write of it up to here was here when it was fenced off, written or waiting, or was taken since.
    held: Timestamp,
    /// What waited then, and what was taken.
    waited: BTreeMap<Timestamp, Written>,
    /// By region: what the equivalents that are left have of it, in which life; of those that know of all losses.
    reported: BTreeMap<RegionId, (Incarnation, Holding)>,
    /// Up to here some replica has shown it.
    shown: Timestamp,
    /// The stream ends here.
    end: Option<Timestamp>,
    forwarding: Option<Forwarding>,
}

/// What others lack of a lost region's writes.
#[derive(Debug)]
struct Forwarding {
    above: Timestamp,
    /// Every write in between is found once the search has ended.
    until: Timestamp,
    /// Where the search stands.
    cursor: Option<u64>,
    found: BTreeMap<Timestamp, Written>,
}

impl Evictions {
    /// True if nothing that comes from this region counts any more.
    pub(super) fn has(&self, region: RegionId) -> bool {
        self.lost.contains_key(&region)
    }

    /// Where the streams of lost regions end here, as far as that is known.
    pub(super) fn ends(&self) -> Vec<(RegionId, Timestamp)> {
        self.lost.iter().filter_map(|(region, lost)| Some((*region, lost.end?))).collect()
    }

    /// The same of another partition of the region.
    pub(super) fn note_ends(&mut self, partition: u16, ends: &[(RegionId, Timestamp)]) {
        self.ends.extend(ends.iter().map(|(region, end)| ((partition, *region), *end)));
    }
}

/// How a partition hears of lost regions.
impl Partition {
    /// These regions are gone for good: nothing of them is accepted any more.
    pub(super) fn on_evict(
        &mut self,
        now: Now,
        regions: impl Iterator<Item = RegionId>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let is_new = |region: &RegionId| {
            usize::from(region.0) < self.topology.regions.len() && !self.evictions.has(*region)
        };
        let news: Vec<RegionId> = regions.filter(is_new).collect();
        if self.evictions.of_own || news.is_empty() {
            return;
        }
        if news.contains(&self.region) {
            self.evictions.of_own = true;
            return self.persist_end(self.region, Timestamp::ZERO, None, out);
        }
        for region in news {
            self.fence(region);
            let equivalent = self.equivalents.entry(region).or_default();
            let held = equivalent.arrived_up_to().max(self.written.of(region));
            let waits = equivalent.arrived.iter().filter_map(Arrived::write);
            let waited: BTreeMap<Timestamp, Written> =
                waits.map(|written| (written.stamp.at, written.clone())).collect();
            self.persist_end(region, held, None, out);
            for written in waited.values() {
                self.persist(&Record::Waited(Cow::Borrowed(written)), out);
            }
            let lost = self.evictions.lost.entry(region).or_default();
            (lost.held, lost.waited) = (held, waited);
        }
        for lost in self.evictions.lost.values_mut() {
            lost.reported.retain(|_, (_, of)| of.end.is_some());
        }
        if self.status == Status::Transferring {
            // A lost region may be among those that the partition queried.
            self.begin_state_transfer(now, random, out);
        }
    }

    fn fence(&mut self, region: RegionId) {
        self.outbox.forget(region);
        self.evictions.lost.entry(region).or_default();
        let equivalent = self.equivalents.entry(region).or_default();
        (equivalent.link, equivalent.checked) = (Link::default(), None);
    }

    fn persist_end(
        &mut self,
        region: RegionId,
        held: Timestamp,
        cut: Option<Timestamp>,
        out: &mut Outputs<'_, Node>,
    ) {
        self.persist(&Record::Common(stable::Record::Evicted { region, held, cut }), out);
    }

    /// Of the log or a checkpoint.
    pub(super) fn recover_eviction(&mut self, region: RegionId, held: Timestamp, end: Option<Timestamp>) {
        if region == self.region {
            self.evictions.of_own = true;
            return;
        }
        self.fence(region);
        let lost = self.evictions.lost.entry(region).or_default();
        (lost.held, lost.end) = (held.max(lost.held), end.or(lost.end));
    }

    /// Of the log or a checkpoint: a write of a lost region that waited when that was fenced off.
    pub(super) fn recover_waited(&mut self, written: Written) {
        let lost = self.evictions.lost.entry(written.stamp.region).or_default();
        lost.waited.insert(written.stamp.at, written);
    }

    pub(super) fn checkpoint_evictions(&self, chunk: &mut Vec<u8>) {
        if self.evictions.of_own {
            let (region, held, cut) = (self.region, Timestamp::ZERO, None);
            record::put(chunk, &Record::Common(stable::Record::Evicted { region, held, cut }));
        }
        for (region, lost) in &self.evictions.lost {
            let (region, held, cut) = (*region, lost.held, lost.end);
            record::put(chunk, &Record::Common(stable::Record::Evicted { region, held, cut }));
            for written in lost.waited.values() {
                record::put(chunk, &Record::Waited(Cow::Borrowed(written)));
            }
        }
    }

    /// The log has been read: what waited waits again.
    pub(super) fn restart_evictions(&mut self) {
        for (region, lost) in &self.evictions.lost {
            let Some(equivalent) = self.equivalents.get_mut(region) else { continue };
            if lost.end.is_some() {
                self.equivalents.remove(region);
                continue;
            }
            let written = self.written.of(*region);
            let waits = lost.waited.values().filter(|waits| waits.stamp.at > written);
            equivalent.arrived = waits.map(|waits| Arrived::Write(Box::new(waits.clone()))).collect();
        }
    }

    /// The log lacks records: what it says of streams that have not ended is not known to be all.
    pub(super) fn forget_waited(&mut self) {
        for (region, lost) in self.evictions.lost.iter_mut().filter(|(_, lost)| lost.end.is_none()) {
            *lost = Lost::default();
            self.equivalents.entry(*region).or_default().arrived.clear();
        }
    }

    /// The message to a lost region, and to a replica that asks what it had.
    pub(super) fn tell_of_lost(&self, to: Address, out: &mut Outputs<'_, Node>) {
        if !self.evictions.lost.is_empty() {
            out.send(to, Message::Evict { regions: self.evictions.lost.keys().copied().collect() });
        }
    }

    /// True for a partition of a region that is gone for good.
    pub(super) fn is_of_lost(&self, address: Address) -> bool {
        self.topology.locate(address).is_some_and(|(region, _)| self.evictions.has(region))
    }

    /// The equivalents that are left.
    pub(super) fn survivors(&self) -> impl Iterator<Item = RegionId> {
        self.equivalents.keys().copied().filter(|region| !self.evictions.has(*region))
    }
}

/// How the survivors agree.
impl Partition {
    /// Goes on with what is under way, and says it again.
    pub(super) fn tend_evictions(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        if self.evictions.lost.is_empty() || !matches!(self.status, Status::CatchingUp | Status::Serving) {
            return;
        }
        self.find_some_to_forward();
        self.count_ended_as_written();
        let is_due = is_overdue(self.evictions.reported_at, now.instant, self.options.retry_after);
        if is_due && !self.everybody_ended() {
            self.evictions.reported_at = Some(now.instant);
            let peers = self.survivors().map(|peer| self.topology.address(peer, self.index));
            peers.for_each(|peer| self.tell_held(peer, true, out));
        }
        let lost: Vec<RegionId> = self.evictions.lost.keys().copied().collect();
        lost.into_iter().for_each(|region| self.go_on_without(region, is_due, out));
    }

    /// Nothing of a stream that has ended is placed any more.
    fn count_ended_as_written(&mut self) {
        let now = self.written.of(self.region);
        for (region, _) in self.evictions.ends() {
            self.written.set(region, now.max(self.written.of(region)));
        }
    }

    fn everybody_ended(&self) -> bool {
        let mut lost = self.evictions.lost.values();
        let has_reported =
            |lost: &Lost, peer| lost.reported.get(&peer).is_some_and(|(_, reported)| reported.end.is_some());
        lost.all(|lost| lost.end.is_some() && self.survivors().all(|peer| has_reported(lost, peer)))
    }

    fn held_of_lost(&self) -> Vec<Holding> {
        let of_region = |(region, lost): (&RegionId, &Lost)| {
            let shown = lost.end.unwrap_or(self.written.of(*region));
            Holding { region: *region, held: lost.held.max(shown), shown, end: lost.end }
        };
        self.evictions.lost.iter().map(of_region).collect()
    }

    fn tell_held(&self, to: Address, asks: bool, out: &mut Outputs<'_, Node>) {
        out.send(to, Message::Held { lost: self.held_of_lost(), asks });
    }

    pub(super) fn on_held(
        &mut self,
        now: Now,
        from: NodeId,
        (reported, asks): (Vec<Holding>, bool),
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        self.on_evict(now, reported.iter().map(|of| of.region), random, out);
        let Some((peer, index)) = self.topology.locate(from.address()) else { return };
        if index != self.index || self.evictions.of_own {
            return;
        }
        let knows_all = self.evictions.lost.keys().copied().eq(reported.iter().map(|of| of.region));
        for of in reported {
            let Some(lost) = self.evictions.lost.get_mut(&of.region) else { continue };
            if !knows_all && of.end.is_none() {
                // One that is lost, too, may still be giving it something.
                continue;
            }
            let known = lost.reported.entry(peer).or_insert((from.incarnation, of));
            if from.incarnation >= known.0 {
                *known = (from.incarnation, of);
            }
        }
        self.forget_forwarded();
        if asks && self.everybody_ended() {
            self.tell_held(from.address(), false, out);
        }
    }

    /// Once all have ended, nobody lacks anything.
    fn forget_forwarded(&mut self) {
        if self.everybody_ended() {
            for lost in self.evictions.lost.values_mut() {
                lost.forwarding = None;
                // The log tells operators what was given up.
                lost.waited.retain(|at, _| lost.end.is_some_and(|end| *at > end));
            }
        }
    }

    /// Takes what it lacks of a lost region, and finds where its stream ends.
    fn go_on_without(&mut self, region: RegionId, is_due: bool, out: &mut Outputs<'_, Node>) {
        let Some(lost) = self.evictions.lost.get(&region).filter(|lost| lost.end.is_none()) else { return };
        let reported: Option<Vec<(RegionId, Holding)>> =
            self.survivors().map(|peer| Some((peer, lost.reported.get(&peer)?.1))).collect();
        let Some(reported) = reported else { return };
        let agreed = reported.iter().filter_map(|(_, of)| of.end).max();
        let shown = reported.iter().map(|(_, of)| of.shown).fold(self.written.of(region), Timestamp::max);
        let here = self.here_of(region);
        let most = reported.iter().max_by_key(|(_, of)| of.held);
        let held = most.map_or(here, |(_, of)| of.held.max(here));
        let needed = agreed.unwrap_or(held);
        if let Some((giver, _)) = most.filter(|_| here < needed && !self.has(Mutant::NobodyForwards)) {
            if is_due {
                let to = self.topology.address(*giver, self.index);
                out.send(to, Message::Forward { region, above: here });
            }
            return;
        }
        if let Some(lost) = self.evictions.lost.get_mut(&region) {
            lost.shown = shown.max(lost.shown);
        }
        if let Some(end) = self.found_end(region, agreed, held) {
            self.end_stream(region, end, out);
        }
    }

    /// Everything of a lost region up to here is here, written or waiting.
    fn here_of(&self, region: RegionId) -> Timestamp {
        let arrived = self.equivalents.get(&region).map_or(Timestamp::ZERO, Equivalent::arrived_up_to);
        let held = self.evictions.lost.get(&region).map_or(Timestamp::ZERO, |lost| lost.held);
        arrived.max(held).max(self.written.of(region))
    }

    /// Where a stream ends of which all is here that anybody has, once that is known.
    fn found_end(&self, region: RegionId, agreed: Option<Timestamp>, all: Timestamp) -> Option<Timestamp> {
        let arrived = self.equivalents.get(&region).into_iter().flat_map(|equivalent| &equivalent.arrived);
        match arrived.filter_map(Arrived::write).next() {
            None => Some(agreed.unwrap_or(all)),
            Some(first) if agreed.is_some_and(|end| first.stamp.at > end) => agreed,
            Some(first) => self.lacks_for_good(first).then(|| first.stamp.at.previous()),
        }
    }

    /// What is above the end is given up.
    fn end_stream(&mut self, region: RegionId, end: Timestamp, out: &mut Outputs<'_, Node>) {
        let Some(lost) = self.evictions.lost.get_mut(&region) else { return };
        lost.end = Some(end);
        let held = lost.held;
        self.equivalents.remove(&region);
        self.persist_end(region, held, Some(end), out);
        self.forget_forwarded();
    }

    /// True for a write of a lost region that depends on a write that no survivor has.
    pub(super) fn lacks_for_good(&self, written: &Written) -> bool {
        let lost = self.evictions.lost.get(&written.stamp.region);
        if lost.is_none_or(|lost| written.stamp.at <= lost.shown) || self.has(Mutant::OrphansKept) {
            return false;
        }
        let end = |partition: u16, region: RegionId| match partition == self.index {
            true => self.evictions.lost.get(&region).and_then(|lost| lost.end),
            false => self.evictions.ends.get(&(partition, region)).copied(),
        };
        let mut nearest = written.nearest.iter();
        nearest.any(|(partition, region, at)| end(partition, region).is_some_and(|end| at > end))
    }
}

/// What others lack.
impl Partition {
    pub(super) fn on_forward(
        &mut self,
        from: Address,
        region: RegionId,
        above: Timestamp,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(lost) = self.evictions.lost.get_mut(&region) else { return };
        let written = lost.end.unwrap_or(self.written.of(region));
        let until = written.max(lost.held);
        let serves = |of: &Forwarding| of.above <= above && (of.cursor.is_some() || above < of.until);
        match lost.forwarding.as_ref().filter(|of| serves(of)) {
            Some(of) if of.cursor.is_none() => self.forward(from, region, above, out),
            Some(_) => {}
            None if above < until => {
                let found = lost.waited.range(above.next()..);
                let found = found.map(|(at, written)| (*at, written.clone())).collect();
                lost.forwarding = Some(Forwarding { above, until, cursor: Some(0), found });
            }
            None => {}
        }
    }

    /// Looks for what is shown here, and others lack.
    fn find_some_to_forward(&mut self) {
        let regions: Vec<RegionId> = self.evictions.lost.keys().copied().collect();
        for region in regions {
            let lost = self.evictions.lost.get_mut(&region);
            let Some(mut of) = lost.and_then(|lost| lost.forwarding.take()) else { continue };
            for _ in 0..VISITS {
                let Some(cursor) = of.cursor else { break };
                let mut keys: Vec<Box<[u8]>> = Vec::new();
                let next = self.store.scan_all(cursor, |key| keys.push(key.into()));
                keys.iter().for_each(|key| self.find_to_forward(region, key, &mut of));
                of.cursor = (next != 0).then_some(next);
            }
            if let Some(lost) = self.evictions.lost.get_mut(&region) {
                lost.forwarding = Some(of);
            }
        }
    }

    fn find_to_forward(&self, region: RegionId, key: &[u8], of: &mut Forwarding) {
        let mut of_key: BTreeMap<super::Stamp, KeyEffects> = BTreeMap::new();
        for (stamp, effect) in self.store.effects(self.store.hash(key), key) {
            if stamp.region == region && stamp.at > of.above && stamp.at <= of.until {
                let new = || KeyEffects { key: key.into(), effects: Vec::new() };
                of_key.entry(stamp).or_insert_with(new).effects.push(stable::encoded(&effect));
            }
        }
        for (stamp, effects) in of_key {
            let (nearest, dependencies) =
                (self.all_before(region, stamp.at), self.dependencies_of(region, stamp.at));
            let new = || Written { stamp, nearest, dependencies, effects: Vec::new() };
            let found = of.found.entry(stamp.at).or_insert_with(new);
            if found.effects.iter().all(|known| known.key != effects.key) {
                found.effects.push(effects);
            }
        }
    }

    /// What a write depends on of which that is forgotten: all that may have been written before it.
    fn all_before(&self, origin: RegionId, at: Timestamp) -> Dependencies {
        let mut all = Dependencies::default();
        for partition in 0..self.topology.partitions() {
            let regions = (0..self.topology.regions.len() as u16).map(RegionId);
            for region in regions.filter(|region| (partition, *region) != (self.index, origin)) {
                all.add(partition, region, at.previous());
            }
        }
        all
    }

    /// Gives some of what was found.
    fn forward(&self, to: Address, region: RegionId, above: Timestamp, out: &mut Outputs<'_, Node>) {
        let lost = self.evictions.lost.get(&region);
        let Some(of) = lost.and_then(|lost| lost.forwarding.as_ref()) else { return };
        let (mut writes, mut bytes): (Vec<Written>, usize) = (Vec::new(), 0);
        let mut found = of.found.range(above.next()..).map(|(_, written)| written).peekable();
        while let Some(written) = found.next_if(|_| bytes < self.options.piece_bytes) {
            bytes += written.bytes();
            writes.push(written.clone());
        }
        let up_to = match found.peek() {
            Some(next) => next.stamp.at.previous(),
            None => of.until,
        };
        out.send(to, Message::Forwarded { region, above, writes, up_to });
    }

    pub(super) fn on_forwarded(
        &mut self,
        now: Now,
        from: Address,
        (region, above, up_to): (RegionId, Timestamp, Timestamp),
        writes: Vec<Written>,
        out: &mut Outputs<'_, Node>,
    ) {
        let ended = self.evictions.lost.get(&region).is_none_or(|lost| lost.end.is_some());
        if ended || self.here_of(region) != above {
            return;
        }
        for written in &writes {
            self.persist(&Record::Waited(Cow::Borrowed(written)), out);
        }
        // Others may rely on its being here, if the one who gave it is lost.
        self.persist_end(region, up_to, None, out);
        let Some(equivalent) = self.equivalents.get_mut(&region) else { return };
        let Some(lost) = self.evictions.lost.get_mut(&region) else { return };
        lost.held = up_to;
        lost.waited.extend(writes.iter().map(|written| (written.stamp.at, written.clone())));
        equivalent.arrived.extend(writes.into_iter().map(|written| Arrived::Write(Box::new(written))));
        equivalent.arrived.push_back(Arrived::Time(up_to, None));
        // The partition reports its holdings once they are written.
        out.send(from, Message::Forward { region, above: up_to });
        self.write_arrived(now, out);
    }
}

/// Reports for people.
impl Partition {
    /// The names of the regions that are gone for good, each with the end of its stream once that is known.
    pub fn evicted(&self) -> impl Iterator<Item = (&str, Option<Timestamp>)> {
        let lost = self.evictions.lost.iter();
        lost.map(|(region, lost)| (self.topology.name(*region), lost.end))
    }

    /// Where the stream of a region ends that is gone for good, once that is known.
    pub fn end_of(&self, region: RegionId) -> Option<Timestamp> {
        self.evictions.lost.get(&region)?.end
    }

    /// True if it knows that all of these regions are gone for good, or that its own is.
    pub fn knows_of_lost(&self, regions: &[RegionId]) -> bool {
        self.evictions.of_own || regions.iter().all(|region| self.evictions.has(*region))
    }

    /// True while it has not gone on without all lost regions.
    pub fn is_evicting(&self) -> bool {
        self.evictions.lost.values().any(|lost| lost.end.is_none())
    }

    /// True if this region itself was evicted, so that it serves nothing any more.
    pub fn is_evicted(&self) -> bool {
        self.evictions.of_own
    }

    /// The writes of lost regions that had arrived and depended on what is lost, in words.
    pub fn given_up(&self) -> Option<String> {
        let given_up = |lost: &Lost| {
            let above = lost.end.unwrap_or(Timestamp::MAX);
            lost.waited.values().filter(|written| written.stamp.at > above).cloned().collect::<Vec<_>>()
        };
        let given_up: Vec<Written> = self.evictions.lost.values().flat_map(given_up).collect();
        let keys =
            given_up.iter().flat_map(|written| &written.effects).map(|of| String::from_utf8_lossy(&of.key));
        let keys: Vec<String> = keys.take(NAMED).map(|key| key.into_owned()).collect();
        let more = if given_up.len() > NAMED { ", ..." } else { "" };
        let text = format!(
            "{} writes given up that depended on lost ones ({}{more})",
            given_up.len(),
            keys.join(", ")
        );
        (!given_up.is_empty()).then_some(text)
    }
}
