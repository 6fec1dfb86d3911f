//! Regions that are gone for good (Corrections 36): an operator says so, and the others go on without them.
//!
//! What the survivors hold of a lost region differs: each has a prefix of its transactions, partition by partition.
//! They accept nothing more of it, tell one another how far they are, and agree on the **cut** (see `agreement`): of
//! the most that anybody holds of a partition, the least over all partitions. Up to the cut the survivors retain
//! everything of the lost region, since of each partition some survivor holds it all; a survivor that lacks some takes
//! it from the others (see `state_transfer`). Above, a transaction may have lost a part, so all of it is given up. No
//! snapshot has shown that: what is stable is at or below what each survivor holds of the lost region.
//!
//! Stable times go on without the lost region only when all partitions have given up what is above: else they could pass
//! something that some partition still holds. If one more region is lost meanwhile, the survivors begin again: what any of
//! them has shown is at or below every later cut.
//!
//! Survivors refuse a lost region that comes back, with the reason, and it serves nothing any more.

use super::agreement::Agreement;
use super::recover::RetainedEffects;
use super::state_transfer::PeerHoldings;
use super::{Outgoing, Partition, Status};
use crate::stable::message::Message;
use crate::stable::record::Record;
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Mutants, Node, Options, Times};
use mvcc::CompactKey;
use protocol::{Now, Outputs};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use types::{Address, RegionId, RegionSet, Rng, Timestamp};

/// How many places of the index are visited in a step at most.
const VISITS: usize = 1000;
/// How many writes that depend on given-up ones are counted, and how many of their keys are named.
const REPORTED: usize = 1000;
const NAMED: usize = 3;

/// For each lost region a time; the set of its keys is the eviction that they belong to.
pub(super) type Held = Vec<(RegionId, Timestamp)>;

/// A lost region.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    /// Everything of it up to here is held; `MAX` if it has no replica of the partition.
    pub(super) held: Timestamp,
    /// What is above is given up by all survivors.
    pub(super) cut: Option<Timestamp>,
    /// The last cut that was known, also when another loss begins all again.
    pub(super) last: Option<Timestamp>,
    /// The cut when all regions had gone on.
    pub(super) settled: Option<Timestamp>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    pub(super) lost: BTreeMap<RegionId, Lost>,
    /// Where the search for what is to be given up stands; `None` before it begins, and when it has ended.
    pub(super) search: Option<u64>,
    /// All above the cuts is given up here.
    pub(super) is_clean: bool,
    /// The whole region's partitions are clean: stable times go on without the lost regions.
    pub(super) is_over: bool,
    /// This region itself was evicted.
    pub(super) of_own: bool,
    /// What healthy regions wrote stays, whatever it depends on.
    keeps_dependants: bool,
    /// Such writes, as far as this partition has seen them, by place and key: it has given them up, or retains them
    /// without what they depend on.
    dependants: BTreeSet<(Timestamp, CompactKey)>,
    mutants: Mutants,
    /// How far the survivors agree.
    pub(super) agreement: Agreement,
}

impl Lost {
    /// Of what is held, what stays.
    fn retained(&self) -> Timestamp {
        self.cut.map_or(self.held, |cut| cut.min(self.held))
    }
}

impl Evictions {
    /// None.
    pub(super) fn new(options: &Options) -> Self {
        let (mutants, keeps_dependants) = (options.mutants, options.keeps_dependants);
        Evictions { mutants, keeps_dependants, ..Evictions::default() }
    }

    pub(super) fn set(&self) -> impl Iterator<Item = RegionId> {
        self.lost.keys().copied()
    }

    /// Up to where each is held.
    pub(super) fn held(&self) -> Held {
        self.lost.iter().map(|(region, lost)| (*region, lost.retained())).collect()
    }

    /// The cuts, once they are known.
    pub(super) fn cuts(&self) -> Option<Held> {
        self.lost.iter().map(|(region, lost)| Some((*region, lost.cut?))).collect()
    }

    /// True while less is held than up to the cuts.
    pub(super) fn lacks(&self) -> bool {
        self.lost.values().any(|lost| lost.cut.is_some_and(|cut| lost.held < cut))
    }

    /// What of a region counts as received, while its eviction is under way; and where snapshots show what was received, for
    /// ever: everything that it left.
    pub(super) fn received<S: Times>(&self) -> impl Iterator<Item = (RegionId, Timestamp)> {
        let is_over = self.is_over;
        let received = move |lost: &Lost| if is_over { Timestamp::MAX } else { lost.retained() };
        let lost = self.lost.iter().filter(move |_| S::OPTIMISTIC || !is_over);
        lost.map(move |(region, lost)| (*region, received(lost)))
    }

    /// The lost region of which something is given up that whoever says this of itself depends on, and goes with it
    /// (Corrections 44).
    pub(super) fn bereaves<S: Times>(&self, depends_on: S::Depends) -> Option<RegionId> {
        let keeps = !S::OPTIMISTIC || self.keeps_dependants || self.mutants.has(Mutant::DependantsKept);
        let mut lost = self.lost.iter().filter(|_| !keeps);
        let is_above =
            |region, cut: Option<Timestamp>| cut.is_some_and(|cut| S::depended_on(depends_on, region) > cut);
        lost.find(|(region, lost)| is_above(**region, lost.cut.or(lost.last))).map(|(region, _)| *region)
    }

    /// True for a write that stays although it depends on what was given up.
    fn is_flagged<S: Times>(&self, stamp: &Stamp<S::Depends>) -> bool {
        let is_above = |region, cut| S::depended_on(stamp.depends_on, region) > cut;
        let mut lost = self.lost.iter().filter(|_| S::OPTIMISTIC && self.keeps_dependants);
        lost.any(|(region, lost)| lost.cut.is_some_and(|cut| is_above(*region, cut)))
    }

    /// A write of a healthy region depends on what is given up.
    pub(super) fn note_dependant(&mut self, at: Timestamp, key: &[u8]) {
        if self.dependants.len() < REPORTED {
            self.dependants.insert((at, CompactKey::new(key)));
        }
    }

    /// True if nothing that comes from this region counts any more.
    pub(super) fn has(&self, region: RegionId) -> bool {
        self.lost.contains_key(&region)
    }

    /// True if one of these is lost.
    pub(super) fn has_any(&self, regions: RegionSet) -> bool {
        self.set().any(|region| regions.contains(region))
    }

    /// What a log or a checkpoint says of each: what is held, and the cut.
    pub(super) fn recorded(&self) -> impl Iterator<Item = (RegionId, Timestamp, Option<Timestamp>)> {
        self.lost.iter().map(|(region, lost)| (*region, lost.held, lost.cut))
    }

    /// These effects, without what is above the cuts.
    pub(super) fn without_given_up<'k, S: Times>(
        &self,
        retained: &'k RetainedEffects<S::Depends>,
    ) -> Cow<'k, RetainedEffects<S::Depends>> {
        if self.lost.is_empty() {
            return Cow::Borrowed(retained);
        }
        let effects = retained.effects.iter().filter(|(stamp, _)| !self.gives_up::<S>(stamp));
        Cow::Owned(RetainedEffects { key: retained.key.clone(), effects: effects.cloned().collect() })
    }

    /// True if a lost region took part in it and it is placed above the cut.
    pub(super) fn gives_up<S: Times>(&self, stamp: &Stamp<S::Depends>) -> bool {
        self.is_above::<S>(stamp, |lost| lost.cut) || self.bereaves::<S>(stamp.depends_on).is_some()
    }

    /// The same of what was given up before another loss began all again.
    pub(super) fn gave_up<S: Times>(&self, stamp: &Stamp<S::Depends>) -> bool {
        self.is_above::<S>(stamp, |lost| lost.cut.or(lost.last))
            || self.bereaves::<S>(stamp.depends_on).is_some()
    }

    fn is_above<S: Times>(
        &self,
        stamp: &Stamp<S::Depends>,
        cut: impl Fn(&Lost) -> Option<Timestamp>,
    ) -> bool {
        let mut above = self.lost.iter().filter(|(_, lost)| cut(lost).is_some_and(|cut| stamp.at > cut));
        let parts = || match self.mutants.has(Mutant::PartKept) {
            true => [stamp.region].into_iter().collect(),
            false => S::parts(stamp.depends_on, stamp.region),
        };
        above.any(|(region, _)| parts().contains(*region))
    }

    /// All that was agreed counts no more; what is held stays.
    fn begin_again(&mut self) {
        for lost in self.lost.values_mut() {
            let held = if lost.held == Timestamp::MAX { Timestamp::MAX } else { lost.retained() };
            *lost = Lost { held, cut: None, ..*lost };
        }
        self.forget_heard();
    }

    /// What is above a cut that is known may be here.
    pub(super) fn search_again(&mut self) {
        if self.lost.values().any(|lost| lost.cut.is_some()) {
            (self.search, self.is_clean, self.agreement.is_filled) = (Some(0), false, false);
        }
    }

    /// True while what is above a cut may be here.
    pub(super) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// What others said counts no more, and neither what was found here since.
    fn forget_heard(&mut self) {
        (self.search, self.is_clean, self.is_over) = (None, false, false);
        self.agreement.begin_again();
    }
}

impl<S: Times> Partition<S> {
    /// These regions are gone for good: nothing of them is accepted any more.
    pub(super) fn on_evict(
        &mut self,
        now: Now,
        regions: impl Iterator<Item = RegionId>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let is_new = |region: &RegionId| {
            !self.evictions.has(*region) && usize::from(region.0) < self.topology.regions.len()
        };
        let news: BTreeSet<RegionId> = regions.filter(is_new).collect();
        if !S::EVICTS || self.evictions.of_own || news.is_empty() {
            return;
        }
        if news.contains(&self.region) {
            self.evictions.of_own = true;
            let (region, held) = (self.region, Timestamp::ZERO);
            return self.persist(&Record::Evicted { region, held, cut: None }, out);
        }
        if !self.survives(&news) {
            return;
        }
        for region in news {
            let held = match self.links.contains_key(&region) {
                true => self.received_of(region),
                false => Timestamp::MAX,
            };
            self.persist(&Record::Evicted { region, held, cut: None }, out);
            self.lose_region(region, held);
        }
        if self.state_transfer.is_some() {
            // A lost region may be among those that the partition queried.
            self.begin_again(now, random, out);
        }
    }

    /// What is held of a region is all that there is.
    fn lose_region(&mut self, region: RegionId, held: Timestamp) {
        self.origins.remove(&region);
        self.links.remove(&region);
        self.outbox.forget(region);
        self.evictions.begin_again();
        self.evictions.lost.insert(region, Lost { held, ..Lost::default() });
        self.inquire_without(region);
        if let Some(root) = self.topology.root(region) {
            self.neighbours.remove(&root);
        }
        let topology = &self.topology;
        self.deferred_queries
            .retain(|waiting| topology.locate(waiting.address()).is_some_and(|(of, _)| of != region));
    }

    /// What was heard in a life that is over counts no more; what the records said does.
    pub(super) fn restart_evictions(&mut self) {
        self.evictions.forget_heard();
        self.links.retain(|region, _| !self.evictions.has(*region));
        self.evictions.search_again();
    }

    /// Gives up all that is left above the cuts, at once: readers may have been shown what that hides, so it must be gone
    /// before they are served.
    pub(super) fn give_up_all(&mut self) {
        while self.evictions.search.is_some() {
            self.give_up_some();
        }
    }

    /// Of the log or a checkpoint.
    pub(super) fn recover_eviction(&mut self, region: RegionId, held: Timestamp, cut: Option<Timestamp>) {
        if region == self.region {
            self.evictions.of_own = true;
            return;
        }
        if !self.evictions.has(region) {
            self.lose_region(region, held);
        }
        if let Some(lost) = self.evictions.lost.get_mut(&region) {
            (lost.held, lost.cut, lost.last) = (lost.held.max(held), cut, cut.or(lost.last));
        }
        self.send_none_given_up();
        match self.options.mutants.has(Mutant::KeptByFollowers) {
            true => self.evictions.is_clean = cut.is_some(),
            false => self.evictions.search_again(),
        }
    }

    /// Goes on with what is under way, and says it again.
    pub(super) fn tend_evictions(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        if self.evictions.lost.is_empty() {
            return;
        }
        self.tend_accord(out);
        self.keep_to_cuts(now, out);
    }

    pub(super) fn take_cuts(
        &mut self,
        cuts: &[(RegionId, Timestamp)],
        over: bool,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if self.status != Status::Serving {
            return;
        }
        for (region, cut) in cuts {
            let Some(lost) = self.evictions.lost.get_mut(region).filter(|lost| lost.cut != Some(*cut)) else {
                continue;
            };
            (lost.cut, lost.last) = (Some(*cut), Some(*cut));
            self.evictions.is_clean = false;
            self.evictions.agreement.is_filled = false;
            let (region, held, cut) = (*region, lost.held, lost.cut);
            self.persist(&Record::Evicted { region, held, cut }, out);
        }
        self.send_none_given_up();
        self.evictions.is_over |= over && self.evictions.is_clean;
    }

    /// Given-up writes are sent to no region any more.
    fn send_none_given_up(&mut self) {
        let (region, evictions) = (self.region, &self.evictions);
        if self.options.mutants.has(Mutant::KeptAboveCut) {
            return;
        }
        let stays = |at, transaction, outgoing: &Outgoing<S::Depends>| {
            !evictions.gives_up::<S>(&Stamp { at, transaction, region, depends_on: outgoing.depends_on })
        };
        self.participant.retain_committed(stays);
        self.outbox.retain(stays);
    }

    /// Takes from the others what is lacked below the cuts; then looks for what is above.
    fn keep_to_cuts(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let Evictions { is_clean, search, .. } = self.evictions;
        let is_busy = self.status != Status::Serving
            || self.state_transfer.is_some()
            || self.evictions.agreement.is_filled;
        if is_clean || search.is_some() || is_busy || self.evictions.cuts().is_none() {
            return;
        }
        if self.options.mutants.has(Mutant::CutNotReached) {
            self.evictions
                .lost
                .values_mut()
                .for_each(|lost| lost.held = lost.held.max(lost.cut.unwrap_or(lost.held)));
        }
        if self.evictions.lacks() && !self.links.is_empty() {
            self.take_from_peers(now, out);
        } else {
            self.evictions.search = Some(0);
        }
    }

    /// State has been taken from those who said what they hold.
    pub(super) fn note_transferred<'t>(&mut self, reported: impl Iterator<Item = &'t PeerHoldings> + Clone) {
        let everybody = reported.clone().count() >= self.links.len();
        for (region, lost) in &mut self.evictions.lost {
            let most = reported.clone().map(|reported| reported.of(*region)).max().unwrap_or(Timestamp::ZERO);
            // Nobody alive holds more than all of them together.
            let all = lost.cut.filter(|_| everybody).unwrap_or(Timestamp::ZERO);
            lost.held = lost.held.max(most).max(all);
        }
        if !self.evictions.is_clean {
            self.evictions.search = None;
            self.evictions.agreement.is_filled = false;
        }
    }

    /// Gives up some of what is above the cuts.
    pub(super) fn give_up_some(&mut self) {
        let Some(mut cursor) = self.evictions.search.filter(|_| self.state_transfer.is_none()) else {
            return;
        };
        for _ in 0..VISITS {
            let mut keys: Vec<CompactKey> = Vec::new();
            cursor = self.store.scan_all(cursor, |key| keys.push(CompactKey::new(key)));
            for key in &keys {
                let hash = self.store.hash(key);
                let effects = self.store.effects(hash, key).map(|(stamp, _)| stamp);
                let effects: BTreeSet<Stamp<S::Depends>> = effects.collect();
                let (above, below): (Vec<_>, Vec<_>) =
                    effects.into_iter().partition(|stamp| self.evictions.gives_up::<S>(stamp));
                below.iter().for_each(|stamp| self.find(stamp));
                let retained = below.iter().filter(|stamp| self.evictions.is_flagged::<S>(stamp));
                let given_up =
                    above.iter().filter(|stamp| S::OPTIMISTIC && !self.evictions.has(stamp.region));
                let noted: Vec<Timestamp> = retained.chain(given_up).map(|stamp| stamp.at).collect();
                noted.into_iter().for_each(|at| self.evictions.note_dependant(at, key));
                for stamp in above.into_iter().filter(|_| !self.options.mutants.has(Mutant::KeptAboveCut)) {
                    self.store.retract(hash, key, stamp);
                }
            }
            if cursor == 0 {
                self.evictions.search = None;
                let is_searched = self.evictions.cuts().is_some() && !self.evictions.lacks();
                self.evictions.agreement.is_filled = is_searched;
                return;
            }
        }
        self.evictions.search = Some(cursor);
    }

    /// Lost regions of which other survivors may still give this one something: that may not have observed what all
    /// survivors have.
    pub(super) fn still_coming(&self) -> impl Iterator<Item = RegionId> {
        let nothing = self.evictions.is_clean || self.options.mutants.has(Mutant::ForgottenForLost);
        self.evictions.set().filter(move |_| !nothing)
    }

    /// True for a replica of a region that is gone for good.
    pub(super) fn is_of_lost(&self, address: Address) -> bool {
        let located = self.topology.locate(address);
        located.is_some_and(|(region, _)| self.evictions.has(region))
    }

    /// The message to a lost region.
    pub(super) fn lost_regions_message(&self) -> Message<S> {
        Message::Evict { regions: self.evictions.set().collect() }
    }

    /// Who asks for state may wait for a lost region.
    pub(super) fn tell_of_lost(&self, to: Address, out: &mut Outputs<'_, Node<S>>) {
        if !self.evictions.lost.is_empty() {
            out.send(to, self.lost_regions_message());
        }
    }

    /// The names of the regions that are gone for good, each with the cut once that is known.
    pub fn evicted(&self) -> impl Iterator<Item = (&str, Option<Timestamp>)> {
        let lost = self.evictions.lost.iter();
        lost.map(|(region, lost)| (self.topology.name(*region), lost.cut))
    }

    /// The cut of a region that is gone for good, once it is known.
    pub fn cut_of(&self, region: RegionId) -> Option<Timestamp> {
        self.evictions.lost.get(&region)?.cut
    }

    /// The writes of healthy regions that depend on what was given up, as far as they were met here since it started, in words.
    pub fn dependants(&self) -> Option<String> {
        let dependants = &self.evictions.dependants;
        let keys: Vec<_> =
            dependants.iter().take(NAMED).map(|(_, key)| String::from_utf8_lossy(key)).collect();
        let more = if dependants.len() > NAMED { ", ..." } else { "" };
        let what = if self.options.keeps_dependants { "kept" } else { "given up" };
        let count = dependants.len();
        let text = format!("{count} writes {what} that depended on lost ones ({}{more})", keys.join(", "));
        (count > 0).then_some(text)
    }

    /// True while the region has not gone on without all lost ones.
    pub fn is_evicting(&self) -> bool {
        !self.evictions.lost.is_empty() && !self.evictions.is_over
    }

    /// True if this region itself was evicted, so that it serves nothing any more.
    pub fn is_evicted(&self) -> bool {
        self.evictions.of_own
    }
}
