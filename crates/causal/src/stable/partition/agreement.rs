//! How the survivors of a lost region agree on what counts of it, and when they go on (Corrections 36 and 44).
//!
//! Each survivor is fenced (`evict`): it logs up to where it holds the lost region's transactions on its partition, and
//! accepts no more. The roots of the regions' stabilization trees exchange what their partitions hold, and all find the same
//! cuts of it.
//!
//! ```text
//!   Evict ----> any replica; it spreads with what follows
//!   Standing -> partition to root, root to root: 1. fenced, and the latest snapshot known  2. what is held  3. clean
//!   Agreement --> root to partitions:              1. the latest that anybody has shown      2. the cuts      3. over
//!   SurvivorOutcomeQuery --> all survivors: "have you an effect of these, which are undecided here and that a lost region took part in?"
//!   SurvivorOutcomeReply --> the place of each that it has; nothing is answered before all that stays of the lost regions is here
//! ```
//!
//! Messages are repeated until the region has gone on; who has gone on answers those who have not. Each names the whole set of
//! lost regions, and what is said of another set does not count: one more loss begins all again. What has been given up stays
//! given up, since cuts only fall until everybody has gone on, and stay from then on.
//!
//! A restarted survivor may know less of what it holds than it has reported, since it does not log arriving times. So
//! its holdings are final only when it has heard the latest snapshot that any survivor has shown, and what every peer
//! has heard of it: it holds that much. What the survivor reported is at its parent in its region's stabilization tree,
//! or further up as part of a minimum, or at the roots of the other regions as part of its region's minimum. All of
//! these can still call it stable, so each repeats what it received (`below`, `heard`), and the greatest counts. Such
//! a report counts only once its sender hears the survivor's present life: then no earlier report is still in flight
//! to that sender. From then on a survivor's stable reports stay at or below what it holds, and so does whatever is
//! shown.
//!
//! **A region that holds every partition** (Wren) calls stable what its own partitions hold. So of what was shown and heard only
//! theirs counts; and once it knows the cuts it goes on when they are clean, whatever the other regions do, also after a restart.
//!
//! **Parts in several regions** (PaRiS): what is above the cut is given up with all its parts elsewhere, since stamps say which
//! regions took part. What was shown in any region counts, and nobody goes on before all regions are clean.
//!
//! **Undecided** there: from the fence on, what is prepared here and a lost region took part in takes no decision from
//! anybody. Who has what of it is then the same for ever, so all find the same end for it: the place that it has where an
//! effect of it is, or none if there is none anywhere. At or below the cut the lost region's own part, if it has
//! effects, is held by the survivors of its partition, so it is found. A decision on which nobody has acted is lost.
//!
//! **Coordinators** there learn the lost regions with the stable time, and route past those regions at once. A
//! coordinator gives up what it cached above a cut when the cut is final. Before it has acknowledged the loss, it gets
//! no stable time that could have passed the cut: what a session wrote does not vanish without a word.

use super::evict::Held;
use super::{Partition, Status};
use crate::stable::message::{Message, Standing};
use crate::stable::record::Record;
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Node, Times};
use protocol::{Now, Outputs};
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use types::{Address, Incarnation, NodeId, RegionId, RegionSet, Rng, Timestamp, TransactionId};

/// How many transactions one outcome query names at most.
const IDS_PER_QUERY: usize = 500;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// What is held has been reported, and is final.
    is_fixed: bool,
    /// All that stays of the lost regions is here, and all above the cuts given up.
    pub(super) is_filled: bool,
    /// This life, by a time that no other one has.
    born: Timestamp,
    /// At the root: how far the other partitions of the region are, in which life.
    partitions: BTreeMap<Address, (Incarnation, Standing)>,
    /// And the other regions.
    regions: BTreeMap<RegionId, (Incarnation, Standing)>,
    /// The places of what is here of transactions that lost regions took part in.
    found: BTreeMap<TransactionId, Timestamp>,
    /// Of what is undecided: who has not said what is there.
    unanswered: BTreeMap<TransactionId, BTreeSet<Address>>,
}

impl Agreement {
    /// Another region is lost: what was heard of the others counts no more.
    pub(super) fn begin_again(&mut self) {
        *self = Agreement { born: self.born, ..Agreement::default() };
    }
}

impl<S: Times> Partition<S> {
    /// A life begins: what is here is looked for anew.
    pub(super) fn begin_accord(&mut self, now: Now) {
        if S::UNIVERSAL {
            (self.evictions.is_clean, self.evictions.search) = (false, None);
            self.evictions.agreement = Agreement { born: self.clock.tick(now.wall), ..Agreement::default() };
        }
    }

    /// True if each partition has a replica elsewhere when these regions are lost, too. A prefix that no survivor has
    /// cannot be cut.
    pub(super) fn survives(&self, news: &BTreeSet<RegionId>) -> bool {
        let stays = |region: RegionId| !news.contains(&region) && !self.evictions.has(region);
        let is_left = |index| self.topology.holders(index).any(|(region, _)| stays(region));
        (0..self.topology.partitions()).all(is_left)
    }

    fn lost(&self) -> Vec<RegionId> {
        self.evictions.set().collect()
    }

    /// True if a lost region took part in what says this of itself.
    pub(super) fn has_lost_part(&self, depends_on: S::Depends) -> bool {
        self.evictions.has_any(S::parts(depends_on, self.region))
    }

    /// True for what is undecided here and a lost region took part in: the survivors find out what becomes of it.
    pub(super) fn is_left_to_survivors(&self, id: TransactionId) -> bool {
        self.participant.prepared(id).is_some_and(|(_, pending)| self.has_lost_part(pending.depends_on))
    }

    /// True while it cannot say what it has of transactions that lost regions took part in.
    pub(super) fn is_filling(&self) -> bool {
        S::UNIVERSAL && !self.evictions.lost.is_empty() && !self.evictions.agreement.is_filled
    }

    /// Where a transaction that a lost region took part in has effects here.
    pub(super) fn found(&self, id: TransactionId) -> Option<Timestamp> {
        self.evictions.agreement.found.get(&id).copied()
    }

    /// There is an effect of this transaction here.
    pub(super) fn find(&mut self, stamp: &Stamp<S::Depends>) {
        if S::UNIVERSAL && self.evictions.has_any(S::parts(stamp.depends_on, stamp.region)) {
            self.evictions.agreement.found.insert(stamp.transaction, stamp.at);
        }
    }

    /// The roots of the other regions that are left.
    fn surviving_roots(&self) -> impl Iterator<Item = (RegionId, Address)> + '_ {
        let regions = self.topology.others(self.region).filter(|region| !self.evictions.has(*region));
        regions.filter_map(|region| Some((region, self.topology.root(region)?)))
    }

    /// All other replicas that are left.
    fn survivors(&self) -> BTreeSet<Address> {
        let regions = (0..self.topology.regions.len() as u16).map(RegionId);
        let left = regions.filter(|region| !self.evictions.has(*region));
        let replicas = left.flat_map(|region| self.topology.held(region)).map(|(_, address)| address);
        replicas.filter(|address| *address != self.address()).collect()
    }

    /// Goes on with what is under way, and says it again.
    pub(super) fn tend_accord(&mut self, out: &mut Outputs<'_, Node<S>>) {
        if self.evictions.is_over || self.status != Status::Serving {
            return;
        }
        self.end_undecided_of_lost(out);
        let standing = self.standing();
        if !self.tree.is_root() {
            return self.tell_standing(standing, true, out);
        }
        let others: Vec<(RegionId, Address)> = self.surviving_roots().collect();
        others.into_iter().for_each(|(_, root)| self.tell_region(root, true, out));
        let mates: Vec<Address> = self.mates().collect();
        mates.into_iter().for_each(|mate| self.tell_accord(mate, out));
        let (shown, cuts, over) = self.accord_for(self.address());
        self.take_accord(shown, cuts, over, out);
    }

    fn standing(&self) -> Standing {
        let agreement = &self.evictions.agreement;
        // The cuts were found of what stood.
        let stands = agreement.is_fixed || self.evictions.cuts().is_some();
        let held = stands.then(|| (self.index, self.evictions.held()));
        let below = self.topology.children(self.region, self.index, self.options.fan_out);
        let below = below.filter_map(|child| {
            let (index, life) = (child.slot.partition?.0, self.neighbours.get(&child)?.life()?);
            Some((index, life, self.tree.installed(child).unwrap_or_default().whole()))
        });
        Standing {
            shown: Some(self.stable.whole()),
            born: agreement.born,
            heard: None,
            below: below.collect(),
            held: held.into_iter().collect(),
            clean: self.evictions.is_clean,
        }
    }

    fn tell_standing(&self, standing: Standing, asks: bool, out: &mut Outputs<'_, Node<S>>) {
        if let Some(root) = self.topology.root(self.region) {
            out.send(root, Message::Standing { lost: self.lost(), standing, asks });
        }
    }

    /// At the root: what all partitions of the region say, if the others have.
    fn of_partitions(&self) -> Option<Vec<Standing>> {
        let others = self.mates().map(|mate| self.evictions.agreement.partitions.get(&mate));
        let others = others.map(|said| said.map(|(_, standing)| standing.clone()));
        iter::once(Some(self.standing())).chain(others).collect()
    }

    /// The root tells another one how far its region is.
    fn tell_region(&self, to: Address, asks: bool, out: &mut Outputs<'_, Node<S>>) {
        let mut standing =
            Standing { born: self.evictions.agreement.born, heard: self.heard_of(to), ..Standing::default() };
        if let Some(partitions) = self.of_partitions() {
            standing.shown = partitions.iter().filter_map(|of| of.shown).max();
            standing.clean = partitions.iter().all(|of| of.clean);
            if partitions.iter().all(|of| !of.held.is_empty()) {
                standing.held = partitions.iter().flat_map(|of| of.held.iter().cloned()).collect();
            }
        }
        out.send(to, Message::Standing { lost: self.lost(), standing, asks });
    }

    /// What the root of another region has reported, once this root hears its present life.
    fn heard_of(&self, root: Address) -> Option<(Timestamp, Timestamp)> {
        let (region, _) = self.topology.locate(root)?;
        let (life, said) = self.evictions.agreement.regions.get(&region)?;
        let is_heard = self.neighbours.get(&root)?.life() == Some(*life);
        is_heard.then(|| (said.born, self.tree.reported_by(root).unwrap_or_default().whole()))
    }

    /// What all other regions that are left have said, if all have; nothing where they do not count.
    fn of_regions(&self, count: bool) -> Option<Vec<&Standing>> {
        let others = self.surviving_roots().filter(|_| count);
        let regions = others.map(|(region, _)| self.evictions.agreement.regions.get(&region));
        regions.map(|said| said.map(|(_, standing)| standing)).collect()
    }

    /// At the root: the most that all above a partition have received of the part of the tree that it is in, once they
    /// hear the lives in which those right below them are.
    fn reported_by_subtrees(&self, partition: Address) -> Option<Timestamp> {
        let (_, mut child) = self.topology.locate(partition)?;
        let mut most = Timestamp::ZERO;
        while let Some(parent) = self.topology.parent(self.region, child, self.options.fan_out) {
            let said = self.evictions.agreement.partitions.get(&parent).map(|(_, said)| said.below.clone());
            let said = if parent == self.address() { self.standing().below } else { said? };
            let (_, heard, reported) = said.into_iter().find(|(index, ..)| *index == child)?;
            let (life, _) =
                self.evictions.agreement.partitions.get(&self.topology.address(self.region, child))?;
            most = reported.max(most);
            if heard != *life {
                return None;
            }
            (_, child) = self.topology.locate(parent)?;
        }
        Some(most)
    }

    /// The time up to which a partition must hold everything: the maximum of what any snapshot has shown, and of what
    /// it has reported to any peer.
    fn shown_for(&self, partition: Address, here: &[Standing], elsewhere: &[&Standing]) -> Option<Timestamp> {
        let reported = self.reported_by_subtrees(partition)?;
        let shown = here.iter().chain(elsewhere.iter().copied()).map(|of| of.shown);
        let born = self.evictions.agreement.born;
        let heard = elsewhere
            .iter()
            .map(|of| of.heard.filter(|(life, _)| *life == born).map(|(_, reported)| reported));
        shown.chain(heard).try_fold(reported, |most, at| Some(most.max(at?)))
    }

    /// At the root, as far as it is known, for a partition: what has been shown or heard of it, the cuts, whether it is over.
    fn accord_for(&self, partition: Address) -> (Option<Timestamp>, Option<Held>, bool) {
        let Some(here) = self.of_partitions() else { return (None, None, false) };
        // A region that holds every partition calls stable what they hold, and goes on by itself once it knows the cuts.
        let known = self.evictions.cuts().filter(|_| !S::UNIVERSAL);
        let witnesses = self.of_regions(S::UNIVERSAL);
        let shown = witnesses.and_then(|elsewhere| self.shown_for(partition, &here, &elsewhere));
        let Some(elsewhere) = self.of_regions(known.is_none()) else { return (shown, None, false) };
        let everybody = || here.iter().chain(elsewhere.iter().copied());
        let all_stand = everybody().all(|of| !of.held.is_empty());
        let held = || everybody().flat_map(|of| &of.held);
        let found = || self.evictions.set().map(|lost| (lost, self.cut(lost, held()))).collect();
        let cuts = known.or_else(|| all_stand.then(found));
        let over = all_stand && everybody().all(|of| of.clean);
        (shown, cuts, over)
    }

    /// Of the partitions that the lost region held, the least of the most that anybody holds.
    fn cut<'h>(&self, lost: RegionId, held: impl Iterator<Item = &'h (u16, Held)>) -> Timestamp {
        let mut most: BTreeMap<u16, Timestamp> =
            self.topology.held(lost).map(|(index, _)| (index, Timestamp::ZERO)).collect();
        for (index, of_lost) in held {
            let at = of_lost.iter().find(|(region, _)| *region == lost).map(|(_, at)| *at);
            if let (Some(most), Some(at)) = (most.get_mut(index), at) {
                *most = at.max(*most);
            }
        }
        most.into_values().min().unwrap_or(Timestamp::MAX)
    }

    fn tell_accord(&self, to: Address, out: &mut Outputs<'_, Node<S>>) {
        let (shown, mut cuts, mut over) = self.accord_for(to);
        if self.evictions.is_over {
            // The cuts stay. Who is above one that restarted since says no more whether it hears that life.
            (cuts, over) = (self.evictions.cuts(), true);
        }
        out.send(to, Message::Agreement { lost: self.lost(), shown, cuts, over });
    }

    pub(super) fn on_accord_message(
        &mut self,
        now: Now,
        sender: NodeId,
        message: Message<S>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let (Message::Standing { lost, .. }
        | Message::Agreement { lost, .. }
        | Message::SurvivorOutcomeQuery { lost, .. }
        | Message::SurvivorOutcomeReply { lost, .. }) = &message
        else {
            return;
        };
        self.on_evict(now, lost.iter().copied(), random, out);
        if !S::EVICTS || self.evictions.of_own {
            return;
        }
        let from = sender.address();
        if !self.evictions.set().eq(lost.iter().copied()) {
            return out.send(from, self.lost_regions_message());
        }
        match message {
            Message::Standing { standing, asks, .. } => self.on_standing(sender, standing, asks, out),
            Message::Agreement { shown, cuts, over, .. } => self.on_agreement(shown, cuts, over, out),
            Message::SurvivorOutcomeQuery { ids, .. } => self.on_survivor_outcome_query(from, &ids, out),
            Message::SurvivorOutcomeReply { outcomes, .. } => {
                self.on_survivor_outcome_reply(from, outcomes, out)
            }
            _ => {}
        }
    }

    /// At the root.
    fn on_standing(
        &mut self,
        sender: NodeId,
        standing: Standing,
        asks: bool,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let (from, life) = (sender.address(), sender.incarnation);
        let Some((region, _)) = self.topology.locate(from).filter(|_| self.tree.is_root()) else { return };
        let (is_here, answers) = (region == self.region, asks && self.evictions.is_over);
        let agreement = &mut self.evictions.agreement;
        let known = match is_here {
            true => agreement.partitions.entry(from).or_default(),
            false => agreement.regions.entry(region).or_default(),
        };
        if life >= known.0 {
            *known = (life, standing);
        }
        match answers {
            true if is_here => self.tell_accord(from, out),
            true => self.tell_region(from, false, out),
            false => {}
        }
    }

    fn on_agreement(
        &mut self,
        shown: Option<Timestamp>,
        cuts: Option<Held>,
        over: bool,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if self.status != Status::Serving {
            return;
        }
        if self.evictions.is_over && !over {
            // The root began again, and asks.
            self.tell_standing(self.standing(), false, out);
        }
        self.take_accord(shown, cuts, over, out);
    }

    fn take_accord(
        &mut self,
        shown: Option<Timestamp>,
        cuts: Option<Held>,
        over: bool,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if let Some(shown) = shown.filter(|_| !self.evictions.agreement.is_fixed) {
            self.fix(shown, out);
        }
        if let Some(cuts) = cuts {
            self.take_cuts(&cuts, over, out);
        }
        if self.evictions.is_over {
            for lost in self.evictions.lost.values_mut() {
                lost.settled = lost.cut;
            }
            let roots: Vec<Address> =
                self.evictions.set().filter_map(|region| self.topology.root(region)).collect();
            roots.into_iter().for_each(|gone| self.tree.forget(gone));
        }
    }

    /// The survivor holds everything that any snapshot has shown, and everything that it ever reported. What it says
    /// from now on stands.
    fn fix(&mut self, shown: Timestamp, out: &mut Outputs<'_, Node<S>>) {
        let mut raised = Vec::new();
        for (region, lost) in &mut self.evictions.lost {
            let shown = shown.min(lost.last.unwrap_or(Timestamp::MAX));
            if lost.held < shown {
                lost.held = shown;
                raised.push(Record::Evicted { region: *region, held: shown, cut: lost.cut });
            }
        }
        raised.iter().for_each(|record| self.persist(record, out));
        self.evictions.agreement.is_fixed = true;
    }

    /// Asks what became of what is undecided and a lost region took part in; once there is none, this replica is clean.
    fn end_undecided_of_lost(&mut self, out: &mut Outputs<'_, Node<S>>) {
        if !self.evictions.agreement.is_filled {
            return;
        }
        let undecided = self.participant.undecided();
        let ids: Vec<TransactionId> = (undecided
            .filter(|(_, _, pending)| self.has_lost_part(pending.depends_on)))
        .map(|(id, ..)| id)
        .collect();
        if ids.is_empty() {
            self.evictions.agreement.unanswered.clear();
            self.evictions.is_clean = true;
            return;
        }
        let mut questions: BTreeMap<Address, Vec<TransactionId>> = BTreeMap::new();
        let survivors = self.survivors();
        for id in ids {
            let unanswered =
                self.evictions.agreement.unanswered.entry(id).or_insert_with(|| survivors.clone());
            unanswered.iter().for_each(|address| questions.entry(*address).or_default().push(id));
            self.end_if_nobody_has_it(id, out);
        }
        for (address, ids) in questions {
            for ids in ids.chunks(IDS_PER_QUERY) {
                out.send(address, Message::SurvivorOutcomeQuery { lost: self.lost(), ids: ids.to_vec() });
            }
        }
    }

    fn on_survivor_outcome_query(
        &self,
        from: Address,
        ids: &[TransactionId],
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if self.evictions.agreement.is_filled {
            let outcomes = ids.iter().map(|id| (*id, self.found(*id))).collect();
            out.send(from, Message::SurvivorOutcomeReply { lost: self.lost(), outcomes });
        }
    }

    fn on_survivor_outcome_reply(
        &mut self,
        from: Address,
        outcomes: Vec<(TransactionId, Option<Timestamp>)>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        for (id, at) in outcomes {
            if !self.is_left_to_survivors(id) || !self.evictions.agreement.is_filled {
                continue;
            }
            match at.filter(|_| !self.options.mutants.has(Mutant::UndecidedGivenUp)) {
                Some(at) => {
                    self.evictions.agreement.unanswered.remove(&id);
                    self.evictions.agreement.found.insert(id, at);
                    self.commit_prepared(id, at, out);
                }
                None => {
                    if let Some(unanswered) = self.evictions.agreement.unanswered.get_mut(&id) {
                        unanswered.remove(&from);
                        self.end_if_nobody_has_it(id, out);
                    }
                }
            }
        }
    }

    /// Everybody has said that nothing of it is there.
    fn end_if_nobody_has_it(&mut self, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        if self.evictions.agreement.unanswered.get(&id).is_some_and(BTreeSet::is_empty) {
            self.evictions.agreement.unanswered.remove(&id);
            self.persist(&Record::Aborted { id }, out);
            self.abort(id);
            if self.options.claims {
                self.abandoned.push(id);
            }
        }
    }

    /// Tells a coordinator of lost regions that it does not know; false if it must say that it does before it may be given
    /// the stable time.
    pub(super) fn knows_of_lost(
        &self,
        from: Address,
        gone: RegionSet,
        out: &mut Outputs<'_, Node<S>>,
    ) -> bool {
        let unknown = || self.evictions.lost.iter().filter(|(region, _)| !gone.contains(**region));
        if !(S::UNIVERSAL || S::OPTIMISTIC) || unknown().next().is_none() {
            return true;
        }
        let settled = self.evictions.lost.iter().map(|(region, lost)| (*region, lost.settled));
        out.send(from, Message::Lost { gone: settled.collect() });
        let stable = self.stable.whole();
        unknown().all(|(_, lost)| lost.settled.is_none() && lost.last.is_none_or(|cut| stable <= cut))
    }
}
