//! A partition whose log lacks records takes the missing state from its equivalents (Corrections 67), before it serves
//! again.
//!
//! ```text
//!   HoldingsQuery --> every equivalent, every partition of the region      HoldingsReply: what is written, the horizon, what was heard
//!   Ask ------> the equivalent with the highest horizon: everything  Piece ...
//!   Ask ------> each other one: effects above that horizon           Piece ...
//!   HoldingsQuery --> the other partitions of the givers' regions          HoldingsReply: the versions that are visible there
//! ```
//!
//! A horizon is complete: its cells hold every effect at or below of every region. So the cells of the one with the
//! highest horizon, with everything above it that any equivalent has written, are everything that any of them had at
//! the time of the query. What some of them have of this region's own writes, and others lack, is queued for these.
//! What such a write depends on is forgotten: it is sent as one that depends on every version before it that is visible
//! where it was found.
//!
//! What was taken may depend on what other partitions of the region have not written yet: on no more than what is visible of these in
//! the regions that gave it. So the partition takes part in everything, but serves no clients until all others have written as much.
//! These are versions, not times that were heard: of a region of which nothing is missing nothing is waited for. Partitions that lost
//! records together count what each has taken: none of them shows less to anybody.
//!
//! An equivalent that no longer queues what this partition had acknowledged, and lost, says so (`TransferRequired`): its state alone is taken.

use super::replicate::is_overdue;
use super::{Partition, Status, new_store};
use crate::cops::message::Message;
use crate::cops::record::{Record, Written};
use crate::cops::{Dependencies, Entries, Node, Stamp, Timer};
use crate::stable;
use crate::stable::{ContextRestore, KeyEffects, RetainedEffects};
use mvcc::Store;
use protocol::{Now, Outputs};
use replication::transfer::{Ask, Piece, Taken, Taker};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Address, Instant, Malformed, NodeId, Reader, RegionId, Rng, Timestamp, TransactionId};

/// How many places of the index are visited in a step at most.
const VISITS: usize = 1000;
/// How long equivalents are waited for where a loss is accepted.
const ACCEPTED: Duration = Duration::from_secs(2);
/// How many records of a replaced store are freed in a step.
const FREED: usize = 1000;

/// What an equivalent reported that it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerHoldings {
    pub(super) written: Entries,
    pub(super) horizon: Timestamp,
    pub(super) highest: Timestamp,
    pub(super) shown: Entries,
}

/// What a partition waits for before it serves again.
#[derive(Debug, Default)]
pub(super) struct CatchUpWait {
    since: Instant,
    requested_at: Option<Instant>,
    /// By partition of the region the versions that it must have written.
    needed: BTreeMap<u16, Entries>,
}

/// See the module.
#[derive(Default)]
pub(super) struct StateTransfer {
    /// Its name in questions and answers.
    name: u64,
    /// The partitions that it queries.
    of: BTreeSet<Address>,
    /// Since when answers are awaited.
    since: Instant,
    unanswered: BTreeSet<Address>,
    /// Regions whose equivalent is silent and without which it goes on, as a loss is accepted.
    without: BTreeSet<RegionId>,
    requested_at: Option<Instant>,
    reported: BTreeMap<Address, PeerHoldings>,
    /// No time was ever heard of this partition that is above.
    highest: Timestamp,
    taking: Option<Taking>,
    /// By partition what is visible of it in the regions that gave.
    shown: BTreeMap<u16, Entries>,
    /// This region's writes above the horizon that equivalents have.
    found: BTreeMap<(Timestamp, TransactionId), Written>,
}

/// Pieces are on their way.
struct Taking {
    taker: Taker<Address>,
    /// Only effects above; `None` for everything.
    above: Option<Timestamp>,
    /// The equivalents still to ask, the last one first.
    rest: Vec<Address>,
    heard: Instant,
    /// What will be written, and no more.
    written: Entries,
    /// The store that is built, if an equivalent's horizon is above the own; else effects go into the one that is there.
    staged: Option<Store<Stamp>>,
    /// The horizon of all of it.
    horizon: Timestamp,
    /// All pieces are there: how far the own effects above the horizon are added to them.
    merging: Option<u64>,
    /// These are added, and this partition has asked the givers' regions what is visible there.
    complete: bool,
}

/// The giving side.
impl Partition {
    /// Somebody lost records. One that did so as well answers its region at once, and its equivalents, which may take the little that it
    /// has, when it has heard from its region.
    pub(super) fn on_holdings_query(
        &mut self,
        now: Now,
        from: NodeId,
        state_transfer: u64,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some((region, index)) = self.topology.locate(from.address()) else { return };
        self.tell_of_lost(from.address(), out);
        if index == self.index && region != self.region {
            if self.state_transfer.as_ref().is_some_and(|state_transfer| self.awaits_region(state_transfer)) {
                return;
            }
            self.giver.on_request(from, now.instant);
        }
        let highest = match self.equivalents.get(&region) {
            Some(equivalent) => equivalent.arrived_up_to().max(self.written.of(region)),
            None => self.clock.last().max(self.checks.reported(index).of(region)),
        };
        let (written, horizon, shown) = (self.written, self.horizon, self.shown);
        out.send(from.address(), Message::HoldingsReply { state_transfer, written, horizon, highest, shown });
    }

    fn awaits_region(&self, state_transfer: &StateTransfer) -> bool {
        let mut regions =
            state_transfer.unanswered.iter().filter_map(|address| self.topology.locate(*address));
        regions.any(|(region, _)| region == self.region)
    }

    pub(super) fn on_ask(
        &mut self,
        now: Now,
        from: NodeId,
        ask: Ask,
        above: Option<Timestamp>,
        out: &mut Outputs<'_, Node>,
    ) {
        self.giver.on_request(from, now.instant);
        let (mut content, mut cursor) = (Vec::new(), ask.cursor);
        for _ in 0..VISITS {
            cursor = self.checkpoint_keys(cursor, above, &mut content);
            if cursor == 0 || content.len() >= self.options.piece_bytes {
                break;
            }
        }
        if cursor == 0 {
            self.giver.given(from);
        }
        let next = (cursor != 0).then_some(cursor);
        let piece = Piece { transfer: ask.transfer, cursor: ask.cursor, next, content: content.into() };
        out.send(from.address(), Message::Piece { piece, horizon: self.horizon });
    }
}

/// The taking side.
impl Partition {
    /// The log lacks records: queries every process that may have received what they announced.
    pub(super) fn begin_state_transfer(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        self.fence.life = out.node().incarnation;
        self.forget_waited();
        let equivalents = self.survivors().map(|region| self.topology.address(region, self.index));
        let mates = self.topology.held(self.region).filter(|(index, _)| *index != self.index);
        let all = equivalents.chain(mates.map(|(_, address)| address)).collect();
        self.transfer_from(all, now, random, out);
        out.arm(Timer::Tick, now.instant + self.options.tick_every);
    }

    /// An equivalent no longer queues what this partition lacks: this partition takes its state. It still knows the
    /// requests of this life and what it has done.
    pub(super) fn on_transfer_required(
        &mut self,
        now: Now,
        from: Address,
        up_to: Timestamp,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some((region, index)) = self.topology.locate(from) else { return };
        let is_equivalent = index == self.index && region != self.region;
        if is_equivalent && self.status == Status::Serving && self.written.of(region) < up_to {
            self.transfer_from(BTreeSet::from([from]), now, random, out);
        }
    }

    fn transfer_from(
        &mut self,
        of: BTreeSet<Address>,
        now: Now,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        self.status = Status::Transferring;
        self.gaps = true;
        self.persist(&Record::Common(stable::Record::Gaps { filled: false }), out);
        let (name, since, unanswered) = (random.u64(..), now.instant, of.clone());
        self.state_transfer =
            Some(Box::new(StateTransfer { name, of, since, unanswered, ..StateTransfer::default() }));
        self.go_on_taking(now, random, out);
    }

    /// A giver is silent, or has forgotten what it was to give.
    fn begin_again(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let of = self.state_transfer.take().map(|state_transfer| state_transfer.of).unwrap_or_default();
        self.transfer_from(of, now, random, out);
    }

    pub(super) fn on_holdings_reply(
        &mut self,
        now: Now,
        from: Address,
        name: u64,
        reported: &PeerHoldings,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let Some((region, index)) = self.topology.locate(from) else { return };
        if state_transfer.name != name || !state_transfer.unanswered.remove(&from) {
            return;
        }
        match (region == self.region, index == self.index) {
            (false, false) => {
                let shown = state_transfer.shown.entry(index).or_default();
                *shown = shown.combine(&reported.shown, Timestamp::max);
            }
            (is_mate, _) => {
                state_transfer.highest = state_transfer.highest.max(reported.highest);
                if !is_mate {
                    state_transfer.reported.insert(from, *reported);
                }
            }
        }
        self.go_on_taking(now, random, out);
    }

    /// Asks again, or for the next piece, or, once everybody has answered, for the first one.
    pub(super) fn go_on_taking(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let (retry, patience) = (self.options.retry_after, self.options.transfer_patience);
        let Some(state_transfer) = &mut self.state_transfer else { return };
        match &mut state_transfer.taking {
            None if state_transfer.unanswered.is_empty() => self.begin_taking(now, random, out),
            // A checkpoint under way is one of the store that is there.
            Some(Taking { complete: true, .. }) if state_transfer.unanswered.is_empty() => {
                if !self.checkpointing {
                    self.finish_state_transfer(now, out);
                }
            }
            None | Some(Taking { complete: true, .. }) => {
                if self.options.accept_loss && now.instant - state_transfer.since >= ACCEPTED {
                    let silent = std::mem::take(&mut state_transfer.unanswered);
                    let regions = silent.iter().filter_map(|address| self.topology.locate(*address));
                    let equivalents = regions.filter(|(_, index)| *index == self.index);
                    state_transfer.without.extend(equivalents.map(|(region, _)| region));
                } else if is_overdue(state_transfer.requested_at, now.instant, retry) {
                    state_transfer.requested_at = Some(now.instant);
                    let name = state_transfer.name;
                    let ask = |address: &Address| {
                        out.send(*address, Message::HoldingsQuery { state_transfer: name })
                    };
                    state_transfer.unanswered.iter().for_each(ask);
                }
            }
            Some(Taking { merging: Some(_), .. }) => self.merge_some(now),
            Some(taking) if now.instant - taking.heard >= patience => self.begin_again(now, random, out),
            Some(taking) => {
                if let Some(ask) = taking.taker.ask(now.instant, retry) {
                    out.send(taking.taker.giver(), Message::Ask { ask, above: taking.above });
                }
            }
        }
    }

    /// Everybody has said what he has.
    fn begin_taking(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let mut rest: Vec<Address> = state_transfer.reported.keys().copied().collect();
        rest.sort_by_key(|address| state_transfer.reported[address].horizon);
        let Some(giver) = rest.pop() else {
            // Nobody has anything.
            if self.options.accept_loss {
                let highest = state_transfer.highest;
                self.state_transfer = None;
                self.resume(now, highest, BTreeMap::new(), out);
            }
            return;
        };
        let horizon = state_transfer.reported[&giver].horizon;
        let all = state_transfer.reported.values().map(|reported| reported.written);
        let written = all.fold(self.written, |all, reported| all.combine(&reported, Timestamp::max));
        // Cells of a higher horizon hold all that the own ones do.
        let staged = (horizon > self.horizon).then(|| {
            let mut staged = new_store(&self.topology, &self.options);
            staged.set_horizon(Some(Stamp::last_at(horizon)));
            staged
        });
        let above = staged.is_none().then_some(self.horizon);
        let (horizon, heard, merging) = (horizon.max(self.horizon), now.instant, None);
        let (taker, complete) = (Taker::new(giver, random.u64(..)), false);
        state_transfer.taking =
            Some(Taking { taker, above, rest, heard, written, staged, horizon, merging, complete });
        self.go_on_taking(now, random, out);
    }

    /// Adds what was here before to what was taken.
    fn merge_some(&mut self, now: Now) {
        let Some(taking) =
            self.state_transfer.as_mut().and_then(|state_transfer| state_transfer.taking.as_mut())
        else {
            return;
        };
        let (Some(staged), Some(mut cursor)) = (&mut taking.staged, taking.merging) else {
            return self.ask_regions(now);
        };
        for _ in 0..VISITS {
            let mut keys: Vec<Box<[u8]>> = Vec::new();
            cursor = self.store.scan_all(cursor, |key| keys.push(key.into()));
            for key in keys {
                let effects = self.store.effects(self.store.hash(&key), &key);
                let effects = effects.map(|(stamp, effect)| (stamp, stable::encoded(&effect))).collect();
                RetainedEffects { key, effects }.put_into(staged);
            }
            if cursor == 0 {
                return self.ask_regions(now);
            }
        }
        taking.merging = Some(cursor);
    }

    /// All is merged: asks the regions of the givers what of their other partitions is visible there.
    fn ask_regions(&mut self, now: Now) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let regions = state_transfer.reported.keys().filter_map(|giver| self.topology.locate(*giver));
        let others = regions.flat_map(|(region, _)| self.topology.held(region));
        state_transfer.unanswered =
            others.filter(|(index, _)| *index != self.index).map(|(_, address)| address).collect();
        (state_transfer.since, state_transfer.requested_at) = (now.instant, None);
        if let Some(taking) = &mut state_transfer.taking {
            (taking.merging, taking.complete) = (None, true);
        }
    }

    /// Frees some of what was replaced.
    pub(super) fn free_some(&mut self) {
        if self.deferred_drop.as_mut().is_some_and(|deferred_drop| !deferred_drop.free_some(FREED)) {
            self.deferred_drop = None;
        }
    }

    pub(super) fn on_piece(
        &mut self,
        now: Now,
        from: Address,
        piece: &Piece,
        horizon: Timestamp,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let reported = state_transfer.reported.get(&from).map(|reported| reported.horizon);
        let Some(taking) = &mut state_transfer.taking else { return };
        let taken = taking.taker.take(from, piece);
        if taken == Taken::Stale {
            return;
        }
        if reported != Some(horizon) {
            // What it was to give is forgotten.
            return self.begin_again(now, random, out);
        }
        taking.heard = now.instant;
        let outcome = self.install(&piece.content);
        debug_assert!(outcome.is_ok(), "pieces are made of records");
        if taken == Taken::Last {
            let next = self.state_transfer.as_mut().and_then(|state_transfer| state_transfer.taking.as_mut());
            match next.and_then(|taking| taking.rest.pop().map(|giver| (taking, giver))) {
                Some((taking, giver)) => {
                    (taking.taker, taking.above) = (Taker::new(giver, random.u64(..)), Some(taking.horizon));
                }
                None => {
                    let taking = self
                        .state_transfer
                        .as_mut()
                        .and_then(|state_transfer| state_transfer.taking.as_mut());
                    taking.into_iter().for_each(|taking| taking.merging = Some(0));
                }
            }
        }
        self.go_on_taking(now, random, out);
    }

    fn install(&mut self, content: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(content);
        let (mut retained, mut context) = (RetainedEffects::default(), ContextRestore::default());
        while !reader.is_empty() {
            match Record::decode(&mut Reader::new(reader.bytes()?))? {
                Record::RetainedDependencies(region, at, dependencies) => {
                    self.dependencies.entry(region).or_default().learn(at, &dependencies);
                }
                Record::Common(stable::Record::State { key, cell }) => {
                    if let Some((staged, horizon)) = self.staged() {
                        staged.restore(&key, Stamp::last_at(horizon), stable::record::cell(&cell)?);
                    }
                }
                Record::Common(stable::Record::Lost(loss)) => {
                    if let Some((staged, _)) = self.staged() {
                        staged.put_loss(loss.into_owned());
                    }
                }
                Record::Common(stable::Record::LossesDropped { count }) => {
                    if let Some((staged, _)) = self.staged() {
                        staged.put_dropped_losses(count);
                    }
                }
                Record::Common(stable::Record::Context { key, stamp, effect, trace }) => {
                    if let Some((staged, _)) = self.staged() {
                        context.add(staged, &key, stamp, &effect, trace);
                    }
                }
                Record::Common(stable::Record::RetainedEffect { key, stamp, effect }) => {
                    if let Some(full) = retained.add(&key, stamp, &effect) {
                        self.install_effects(full);
                    }
                }
                _ => return Err(Malformed("piece")),
            }
        }
        self.install_effects(retained);
        Ok(())
    }

    /// The store that is built, and its horizon.
    fn staged(&mut self) -> Option<(&mut Store<Stamp>, Timestamp)> {
        let taking = self.state_transfer.as_mut()?.taking.as_mut()?;
        Some((taking.staged.as_mut()?, taking.horizon))
    }

    /// Effects on one key that an equivalent has written; what it has written since the request comes by replication.
    fn install_effects(&mut self, mut retained: RetainedEffects<Entries>) {
        let region = self.region;
        let Some(written) = self
            .state_transfer
            .iter()
            .find_map(|state_transfer| Some(state_transfer.taking.as_ref()?.written))
        else {
            return;
        };
        retained.effects.retain(|(stamp, _)| stamp.at <= written.of(stamp.region));
        retained.effects.iter().for_each(|(stamp, _)| self.note_shown(*stamp));
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let Some(Taking { staged, horizon, .. }) = &mut state_transfer.taking else { return };
        retained.put_into(staged.as_mut().unwrap_or(&mut self.store));
        let horizon = *horizon;
        let mut own: BTreeMap<Stamp, KeyEffects> = BTreeMap::new();
        for (stamp, effect) in retained.effects.iter().filter(|(stamp, _)| stamp.region == region) {
            if stamp.at > horizon {
                let of_key = || KeyEffects { key: retained.key.clone(), effects: Vec::new() };
                own.entry(*stamp).or_insert_with(of_key).effects.push(effect.clone());
            }
        }
        for (stamp, of_key) in own {
            let new = || Written { stamp, ..Written::default() };
            let found = state_transfer.found.entry((stamp.at, stamp.transaction)).or_insert_with(new);
            if found.effects.iter().all(|known| known.key != of_key.key) {
                found.effects.push(of_key);
            }
        }
    }

    /// Everything is there.
    fn finish_state_transfer(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        let Some(StateTransfer { highest, without, taking: Some(taking), shown, found, .. }) =
            self.state_transfer.take().map(|state_transfer| *state_transfer)
        else {
            return;
        };
        if let Some(staged) = taking.staged {
            self.deferred_drop = Some(std::mem::replace(&mut self.store, staged).into_deferred_drop());
            (self.horizon, self.stable) = (taking.horizon, taking.horizon.max(self.stable));
            self.store.set_stability_frontier(Stamp::last_at(self.stable));
        }
        self.written = taking.written;
        // No region lacks what is placed up to there, unless it lost that.
        self.outbox.drop_through(taking.horizon);
        for ((at, id), mut written) in found {
            written.nearest = self.everything_before(at, &shown, &without);
            written.dependencies = self.dependencies_of(self.region, at);
            self.outbox.push(at, id, written.bytes(), written);
        }
        self.resume(now, highest, shown, out);
    }

    /// Takes part again, above every time that anybody has heard of this partition. Clients are served when the other partitions of
    /// the region have as much.
    fn resume(
        &mut self,
        now: Now,
        highest: Timestamp,
        needed: BTreeMap<u16, Entries>,
        out: &mut Outputs<'_, Node>,
    ) {
        self.catch_up_wait = CatchUpWait { since: now.instant, requested_at: None, needed };
        self.clock.recover(highest.max(self.written.of(self.region)));
        self.written.set(self.region, self.clock.last());
        self.fence.at = self.clock.last();
        self.status = Status::CatchingUp;
        self.greet_all(out);
        self.catch_up(now, out);
    }

    /// What a write depends on of which that is not known any more: every version before it that is visible where it was found; but
    /// not of regions without which this one goes on, as nobody may be able to send these.
    fn everything_before(
        &self,
        at: Timestamp,
        shown: &BTreeMap<u16, Entries>,
        without: &BTreeSet<RegionId>,
    ) -> Dependencies {
        let mut everything = Dependencies::default();
        for (partition, shown) in
            shown.iter().map(|(index, shown)| (*index, shown)).chain([(self.index, &self.shown)])
        {
            for (region, last) in (0u16..).map(RegionId).zip(shown.named().iter().copied()) {
                let is_own_stream = (partition, region) == (self.index, self.region);
                if last > Timestamp::ZERO && !is_own_stream && !without.contains(&region) {
                    everything.add(partition, region, last.min(at.previous()));
                }
            }
        }
        everything
    }

    /// Serves once all partitions of the region have written what this one has taken may depend on.
    pub(super) fn catch_up(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        if self.status != Status::CatchingUp {
            return;
        }
        let is_accepted = self.options.accept_loss && now.instant - self.catch_up_wait.since >= ACCEPTED;
        let behind: Vec<(u16, Entries)> = self.lagging().collect();
        if behind.is_empty() || is_accepted {
            self.status = Status::Serving;
        } else if is_overdue(self.catch_up_wait.requested_at, now.instant, self.options.retry_after) {
            self.catch_up_wait.requested_at = Some(now.instant);
            for (index, needed) in behind {
                let versions = (0u16..).map(RegionId).zip(needed.named().iter().copied()).collect();
                out.send(self.topology.address(self.region, index), Message::DepCheck { versions });
            }
        }
    }

    /// The partitions of the region that have not written what they must have, with that.
    fn lagging(&self) -> impl Iterator<Item = (u16, Entries)> + '_ {
        let needed = self.catch_up_wait.needed.iter().map(|(index, needed)| (*index, *needed));
        needed.filter(|(index, needed)| !needed.is_within(&self.checks.reported(*index)))
    }

    /// What is waited for, for whom a client may ask.
    pub(super) fn behind(&self) -> Vec<String> {
        let name = |region: RegionId| format!("region {}", self.topology.name(region));
        let lagging = self.lagging().map(|(index, needed)| {
            let reported = self.checks.reported(index);
            let regions =
                needed.regions(&reported).filter(|region| needed.of(*region) > reported.of(*region));
            let regions: Vec<String> = regions.map(name).collect();
            format!("partition {index} has written what {} wrote", regions.join(" and "))
        });
        lagging.collect()
    }

    /// Who has not answered yet.
    pub(super) fn silent(&self) -> Vec<String> {
        let unanswered = self.state_transfer.iter().flat_map(|state_transfer| &state_transfer.unanswered);
        let names = unanswered.filter_map(|address| self.topology.locate(*address));
        names
            .map(|(region, index)| format!("partition {index} of region {}", self.topology.name(region)))
            .collect()
    }
}
