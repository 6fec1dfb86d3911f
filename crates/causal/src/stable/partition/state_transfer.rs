//! State that is taken from peers (Corrections 36 and 67): by a partition whose log lacks records, and by one that was
//! cut off for so long that what it lacks is no longer queued for it.
//!
//! ```text
//!   HoldingsQuery --> every peer, every partition of the region       HoldingsReply: horizon, what it holds, what it heard
//!   Ask ------> the peer with the highest horizon: everything   Piece ...
//!   Ask ------> each other peer: effects above that horizon     Piece ...
//!   own log:    effects above that horizon
//! ```
//!
//! A horizon h of a peer is complete: its cells hold every effect at or below h of every region. So the highest one's
//! cells with, above it, everything that anybody holds is everything that anybody holds. The partition queues this
//! region's own transactions that one peer has and another lacks for the latter like new ones, in their old places.
//!
//! A partition that lost records stamps above every time that any peer heard of it, vouches for what it has taken and
//! no more, and sends nothing before. The transferred state counts when it is complete. The log does not contain it: a
//! record says that there were gaps, and until a checkpoint holds what filled them, a restart transfers the state
//! again.

use super::expire::is_nobodys;
use super::recover::{ContextRestore, RetainedEffects};
use super::{Decided, Outgoing, Partition, Status, new_store};
use crate::stable::message::{EvaluationResults, KeyEffects, Message, Outcome, Vote};
use crate::stable::record::{self, Record};
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Node, Timer, Times, intent};
use mvcc::{CompactKey, Store};
use protocol::{Now, Outputs};
use replication::transfer::{Ask, Piece, Taken, Taker};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{
    Address, Error, ErrorCode, Instant, Malformed, NodeId, Reader, RegionId, Rng, Timestamp, TransactionId,
};

/// How many places of an index are visited in a step at most.
const VISITS: usize = 1000;
/// About how many effects are put into the store that was taken in a step: some milliseconds.
const MERGED: usize = 5000;
/// How many records of a replaced store are freed in a step.
const FREED: usize = 1000;
/// Between two steps of the merge.
const PAUSE: Duration = Duration::from_millis(1);

/// What a peer reported that it holds.
#[derive(Clone, Debug)]
pub(super) struct PeerHoldings {
    pub(super) horizon: Timestamp,
    pub(super) held: Vec<(RegionId, Timestamp)>,
    pub(super) highest: Timestamp,
    pub(super) observed: Timestamp,
}

impl PeerHoldings {
    pub(super) fn of(&self, region: RegionId) -> Timestamp {
        self.held.iter().find(|(of, _)| *of == region).map_or(Timestamp::ZERO, |(_, at)| *at)
    }
}

/// What is under way.
enum Stage {
    /// Waiting for the answers to `HoldingsQuery`.
    Asking,
    /// Taking pieces, of effects `above` a place or of everything; then from `rest`.
    Taking { taker: Taker<Address>, above: Option<Timestamp>, rest: Vec<Address>, heard: Instant },
    /// Adding the own effects above the horizon to what was taken.
    Merging { cursor: u64 },
    /// All is there.
    Ready,
}

/// See the module.
pub(super) struct StateTransfer<D> {
    /// Since when answers are awaited.
    since: Instant,
    unanswered: BTreeSet<Address>,
    reported: BTreeMap<Address, PeerHoldings>,
    stage: Stage,
    /// The store being built, if a peer's horizon is above the own; else effects go into the store that is there.
    staged: Option<Store<Stamp<D>>>,
    /// The highest horizon.
    horizon: Timestamp,
    /// This region's transactions that peers hold, above the horizon.
    found: BTreeMap<(Timestamp, TransactionId), Outgoing<D>>,
}

impl<D> StateTransfer<D> {
    fn of(now: Now, unanswered: BTreeSet<Address>) -> Box<Self> {
        Box::new(StateTransfer {
            since: now.instant,
            unanswered,
            reported: BTreeMap::new(),
            stage: Stage::Asking,
            staged: None,
            horizon: Timestamp::ZERO,
            found: BTreeMap::new(),
        })
    }
}

impl<D> std::fmt::Debug for StateTransfer<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateTransfer").field("unanswered", &self.unanswered).finish_non_exhaustive()
    }
}

/// The giving side.
impl<S: Times> Partition<S> {
    /// Answers a peer's query. A replica that lost records itself answers peers only when it has heard from its region.
    pub(super) fn on_holdings_query(&mut self, now: Now, from: NodeId, out: &mut Outputs<'_, Node<S>>) {
        let Some((region, _)) = self.topology.locate(from.address()) else { return };
        if self.is_peer(from.address()) {
            self.giver.on_request(from, now.instant);
            if self.status == Status::CatchingUp && self.region_is_silent() {
                self.deferred_queries.retain(|waiting| waiting.address() != from.address());
                return self.deferred_queries.push(from);
            }
        }
        self.tell_of_lost(from.address(), out);
        let held = self.origins.iter().map(|(origin, received)| (*origin, received.up_to));
        // The own transactions that a log with gaps held are complete up to the horizon at least.
        let own = self.installed.max(self.horizon.whole());
        let mut highest = self.clock.last().max(self.stable.reach()).max(own);
        for received in self.origins.values() {
            let above = received.above.last().map_or(Timestamp::ZERO, |(at, _)| *at);
            highest = highest.max(received.up_to).max(above);
        }
        let held = held.chain(self.evictions.held()).chain([(self.region, own)]).collect();
        let observed = self.observed_by.get(&region).copied().unwrap_or_default();
        let horizon = self.horizon.whole();
        out.stream(from.address(), Message::HoldingsReply { horizon, held, highest, observed });
    }

    fn region_is_silent(&self) -> bool {
        self.state_transfer
            .iter()
            .flat_map(|state_transfer| &state_transfer.unanswered)
            .any(|awaited| !self.is_peer(*awaited))
    }

    pub(super) fn on_ask(
        &mut self,
        now: Now,
        from: NodeId,
        ask: Ask,
        above: Option<Timestamp>,
        out: &mut Outputs<'_, Node<S>>,
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
        out.send(from.address(), Message::Piece { piece, horizon: self.horizon.whole() });
    }

    /// Frees some of what was replaced.
    pub(super) fn free_some(&mut self) {
        if self.deferred_drop.as_mut().is_some_and(|deferred_drop| !deferred_drop.free_some(FREED)) {
            self.deferred_drop = None;
        }
    }
}

/// The taking side.
impl<S: Times> Partition<S> {
    /// The log lacks records: queries every process that may have received what they announced.
    pub(super) fn recall_everything(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<S>>) {
        let peers = self.links.keys().map(|peer| self.topology.address(*peer, self.index));
        // The root of a region also reported to the roots of the others what is stable here.
        let unanswered = peers.chain(self.mates()).chain(self.neighbours.keys().copied()).collect();
        self.query_holdings(now, unanswered, random, out);
    }

    /// What is lacked of a peer is no longer queued there: its state is taken, beside serving.
    pub(super) fn on_transfer_required(&mut self, now: Now, from: Address, out: &mut Outputs<'_, Node<S>>) {
        if self.state_transfer.is_none() && self.is_peer(from) {
            self.begin_state_transfer(now, BTreeSet::from([from]), out);
        }
    }

    /// Asks these what they hold.
    fn begin_state_transfer(
        &mut self,
        now: Now,
        unanswered: BTreeSet<Address>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        unanswered.iter().for_each(|address| out.stream(*address, Message::HoldingsQuery));
        self.state_transfer = Some(StateTransfer::of(now, unanswered));
        self.transfers += 1;
        out.arm(Timer::StateTransfer, now.instant + self.options.retry_after);
    }

    /// While it serves, takes from all peers what they hold and this one lacks.
    pub(super) fn take_from_peers(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let peers = self.links.keys().map(|peer| self.topology.address(*peer, self.index));
        let unanswered: BTreeSet<Address> = peers.collect();
        self.begin_state_transfer(now, unanswered, out);
    }

    fn query_holdings(
        &mut self,
        now: Now,
        unanswered: BTreeSet<Address>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        self.begin_state_transfer(now, unanswered, out);
        self.take_if_answered(now, random, out);
    }

    /// Who began a new life may not have heard the question.
    pub(super) fn query_holdings_again(&mut self, peer: Address, out: &mut Outputs<'_, Node<S>>) {
        if self
            .state_transfer
            .as_ref()
            .is_some_and(|state_transfer| state_transfer.unanswered.contains(&peer))
        {
            out.stream(peer, Message::HoldingsQuery);
        }
    }

    pub(super) fn on_holdings_reply(
        &mut self,
        now: Now,
        from: Address,
        reported: PeerHoldings,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        if !state_transfer.unanswered.remove(&from) {
            return;
        }
        state_transfer.reported.insert(from, reported);
        if !self.region_is_silent() {
            // The peers' times are part of what this partition vouches for.
            let reported =
                self.state_transfer.iter().flat_map(|state_transfer| state_transfer.reported.values());
            let highest = reported.map(|reported| reported.highest).max().unwrap_or(Timestamp::ZERO);
            self.clock.recover(highest);
            std::mem::take(&mut self.deferred_queries)
                .into_iter()
                .for_each(|peer| self.on_holdings_query(now, peer, out));
        }
        self.take_if_answered(now, random, out);
    }

    /// Once everybody has answered, the state is taken.
    fn take_if_answered(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<S>>) {
        let own = self.horizon.whole();
        let can_go_on = self.region_has_peers() || self.options.accept_loss;
        let links: Vec<Address> =
            self.links.keys().map(|peer| self.topology.address(*peer, self.index)).collect();
        let Some(state_transfer) = &mut self.state_transfer else { return };
        if !matches!(state_transfer.stage, Stage::Asking)
            || !state_transfer.unanswered.is_empty()
            || !can_go_on
        {
            return;
        }
        let mut rest: Vec<Address> = state_transfer.reported.keys().copied().collect();
        rest.retain(|address| links.contains(address));
        rest.sort_by_key(|address| state_transfer.reported[address].horizon);
        let highest = rest.last().map_or(own, |address| state_transfer.reported[address].horizon);
        state_transfer.horizon = highest.max(own);
        if highest > own {
            let mut staged = new_store::<S>(&self.topology, &self.options);
            staged.set_horizon(Some(Stamp::last_at(highest)));
            state_transfer.staged = Some(staged);
        }
        if self.options.mutants.has(Mutant::VouchForLost) {
            rest.clear();
        }
        let above = state_transfer.staged.is_none().then_some(state_transfer.horizon);
        self.take_from(rest, above, now, random, out);
    }

    fn region_has_peers(&self) -> bool {
        !self.links.is_empty()
    }

    /// Takes from the last of `rest`; when all have given, adds what was held before.
    fn take_from(
        &mut self,
        mut rest: Vec<Address>,
        above: Option<Timestamp>,
        now: Now,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        state_transfer.stage = match rest.pop() {
            Some(giver) => {
                let taker = Taker::new(giver, random.u64(..));
                Stage::Taking { taker, above, rest, heard: now.instant }
            }
            None if state_transfer.staged.is_some() => Stage::Merging { cursor: 0 },
            None => Stage::Ready,
        };
        self.on_state_transfer(now, random, out);
    }

    /// True while a store is built that will replace the one that is there. What this one folds meanwhile would not be among the
    /// effects that are merged into the new one, and the giver need not have it.
    pub(super) fn is_replacing(&self) -> bool {
        self.state_transfer.as_ref().is_some_and(|state_transfer| state_transfer.staged.is_some())
    }

    /// Goes on with what is under way.
    pub(super) fn on_state_transfer(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<S>>) {
        let (retry, patience) = (self.options.retry_after, 2 * self.options.doubt_after);
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let mut pause = retry / 4;
        match &mut state_transfer.stage {
            Stage::Asking if self.options.accept_loss && now.instant - state_transfer.since >= patience => {
                self.without = self.silent();
                if let Some(state_transfer) = &mut self.state_transfer {
                    state_transfer.unanswered.clear();
                }
                self.take_if_answered(now, random, out);
                return;
            }
            Stage::Asking => {}
            Stage::Taking { heard, .. } if now.instant - *heard >= self.options.transfer_patience => {
                return self.begin_again(now, random, out);
            }
            Stage::Taking { taker, above, .. } => {
                if let Some(ask) = taker.ask(now.instant, retry) {
                    out.send(taker.giver(), Message::Ask { ask, above: *above });
                }
            }
            Stage::Merging { .. } => {
                self.merge_some();
                pause = PAUSE;
            }
            // A checkpoint under way is one of the store that is there.
            Stage::Ready if self.checkpointing || self.lent => {}
            Stage::Ready => return self.finish_state_transfer(now, out),
        }
        out.arm(Timer::StateTransfer, now.instant + pause);
    }

    /// A giver is silent, or has forgotten what it was to give.
    pub(super) fn begin_again(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<S>>) {
        match self.status {
            Status::CatchingUp => self.recall_everything(now, random, out),
            _ => {
                // The partition repeats that to a peer that is behind.
                self.state_transfer = None;
                out.disarm(Timer::StateTransfer);
            }
        }
    }

    pub(super) fn on_piece(
        &mut self,
        now: Now,
        from: Address,
        piece: &Piece,
        horizon: Timestamp,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let Stage::Taking { taker, rest, heard, .. } = &mut state_transfer.stage else { return };
        let taken = taker.take(from, piece);
        if taken == Taken::Stale {
            return;
        }
        if state_transfer.reported.get(&from).is_none_or(|reported| reported.horizon != horizon) {
            return self.begin_again(now, random, out);
        }
        *heard = now.instant;
        let (rest, above) = (std::mem::take(rest), Some(state_transfer.horizon));
        let outcome = self.install(&piece.content);
        debug_assert!(outcome.is_ok(), "pieces are made of records");
        match taken {
            Taken::Last => self.take_from(rest, above, now, random, out),
            _ => {
                if let Some(StateTransfer { stage: Stage::Taking { rest: left, .. }, .. }) =
                    self.state_transfer.as_deref_mut()
                {
                    *left = rest;
                }
                self.on_state_transfer(now, random, out);
            }
        }
    }

    fn install(&mut self, content: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(content);
        let (mut retained, mut context) = (RetainedEffects::default(), ContextRestore::default());
        while !reader.is_empty() {
            match Record::<S::Depends>::decode(&mut Reader::new(reader.bytes()?))? {
                Record::State { key, cell } => {
                    if let Some(state_transfer) = &mut self.state_transfer
                        && let Some(staged) = &mut state_transfer.staged
                    {
                        staged.restore(&key, Stamp::last_at(state_transfer.horizon), record::cell(&cell)?);
                    }
                }
                Record::Context { key, stamp, effect, trace } => {
                    if let Some(state_transfer) = &mut self.state_transfer
                        && let Some(staged) = &mut state_transfer.staged
                    {
                        context.add(staged, &key, stamp, &effect, trace);
                    }
                }
                Record::Lost(loss) => {
                    if let Some(staged) =
                        self.state_transfer.as_mut().and_then(|state_transfer| state_transfer.staged.as_mut())
                    {
                        staged.put_loss(loss.into_owned());
                    }
                }
                Record::LossesDropped { count } => {
                    if let Some(staged) =
                        self.state_transfer.as_mut().and_then(|state_transfer| state_transfer.staged.as_mut())
                    {
                        staged.put_dropped_losses(count);
                    }
                }
                Record::RetainedEffect { key, stamp, effect } => {
                    if let Some(full) = retained.add(&key, stamp, &effect) {
                        self.install_effects(&full);
                    }
                }
                _ => return Err(Malformed("piece")),
            }
        }
        self.install_effects(&retained);
        Ok(())
    }

    /// Effects of one key that a peer holds.
    fn install_effects(&mut self, retained: &RetainedEffects<S::Depends>) {
        let (region, amnesia) = (self.region, self.status == Status::CatchingUp);
        let retained = &self.evictions.without_given_up::<S>(retained);
        let Some(state_transfer) = &mut self.state_transfer else { return };
        retained.put_into(state_transfer.staged.as_mut().unwrap_or(&mut self.store));
        let mut own: BTreeMap<Stamp<S::Depends>, KeyEffects> = BTreeMap::new();
        for (stamp, effect) in &retained.effects {
            if amnesia && stamp.region == region && stamp.at > state_transfer.horizon {
                let of_key = || KeyEffects { key: retained.key.clone(), effects: Vec::new() };
                own.entry(*stamp).or_insert_with(of_key).effects.push(effect.clone());
            }
        }
        for (stamp, of_key) in own {
            let new = || Outgoing { depends_on: stamp.depends_on, effects: Vec::new() };
            let found = state_transfer.found.entry((stamp.at, stamp.transaction)).or_insert_with(new);
            if found.effects.iter().all(|known| known.key != of_key.key) {
                found.effects.push(of_key);
            }
        }
    }

    /// What is committed while the stores are merged goes into both.
    pub(super) fn stage_effects(&mut self, stamp: Stamp<S::Depends>, effects: &[KeyEffects]) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let (Stage::Merging { .. } | Stage::Ready, Some(staged)) =
            (&state_transfer.stage, &mut state_transfer.staged)
        else {
            return;
        };
        for of_key in effects {
            let effects = of_key.effects.iter().map(|effect| (stamp, effect.clone())).collect();
            RetainedEffects { key: of_key.key.clone(), effects }.put_into(staged);
        }
    }

    /// Adds effects that were held before to what was taken.
    fn merge_some(&mut self) {
        let Some(state_transfer) = &mut self.state_transfer else { return };
        let (Stage::Merging { cursor }, Some(staged)) =
            (&mut state_transfer.stage, &mut state_transfer.staged)
        else {
            return;
        };
        let mut merged = 0;
        for _ in 0..VISITS {
            let mut keys: Vec<CompactKey> = Vec::new();
            *cursor = self.store.scan_all(*cursor, |key| keys.push(CompactKey::new(key)));
            for key in &keys {
                let effects = self.store.effects(self.store.hash(key), key);
                let effects: Vec<_> =
                    effects.map(|(stamp, effect)| (stamp, intent::encoded(&effect))).collect();
                merged += effects.len();
                RetainedEffects { key: (**key).into(), effects }.put_into(staged);
            }
            if *cursor == 0 {
                state_transfer.stage = Stage::Ready;
                return;
            }
            if merged >= MERGED {
                return;
            }
        }
    }

    /// Everything is there: it counts from now on.
    fn finish_state_transfer(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let Some(state_transfer) = self.state_transfer.take() else { return };
        let StateTransfer { reported, staged, horizon, found, .. } = *state_transfer;
        if self.status != Status::CatchingUp {
            self.gaps = true;
            self.persist(&Record::Gaps { filled: false }, out);
        }
        if let Some(staged) = staged {
            self.deferred_drop = Some(std::mem::replace(&mut self.store, staged).into_deferred_drop());
            self.horizon = self.horizon.newest(S::at(horizon));
        }
        let peers: Vec<(Address, PeerHoldings)> = (reported.into_iter())
            .filter(|(address, reported)| {
                self.clock.recover(reported.highest);
                self.promised_dependencies = self.promised_dependencies.max(reported.observed);
                self.is_peer(*address)
            })
            .collect();
        self.note_transferred(peers.iter().map(|(_, reported)| reported));
        for (region, origin) in &mut self.origins {
            let held =
                peers.iter().map(|(_, reported)| reported.of(*region)).max().unwrap_or(Timestamp::ZERO);
            origin.up_to = origin.up_to.max(held);
            let up_to = origin.up_to;
            origin.above.retain(|(at, _)| *at > up_to);
        }
        if self.status == Status::CatchingUp {
            self.adopt(&peers, horizon, found);
            self.fence = self.clock.read(now.wall);
            return self.begin_serving(now, out);
        }
        for (address, _) in peers {
            if let Some((region, _)) = self.topology.locate(address) {
                self.greet(region, out);
            }
        }
    }

    /// This region's transactions that peers held: they have committed, and peers that lack them are sent them.
    fn adopt(
        &mut self,
        peers: &[(Address, PeerHoldings)],
        horizon: Timestamp,
        found: BTreeMap<(Timestamp, TransactionId), Outgoing<S::Depends>>,
    ) {
        self.outbox.drop_through(horizon);
        for (address, reported) in peers {
            if let Some((region, _)) = self.topology.locate(*address) {
                self.outbox.received(region, reported.of(self.region));
            }
        }
        for ((at, id), outgoing) in found {
            self.clock.recover(at);
            if let Some(pending) = self.participant.take(id) {
                self.let_go(id, &pending.intents);
            }
            if !is_nobodys(id) {
                let decided = Decided { at: Some(at), outlives: true, results: EvaluationResults::default() };
                self.decisions.decide(id, decided);
            }
            if !self.options.mutants.has(Mutant::NothingForwarded) {
                self.participant.commit(at, id, outgoing);
            }
        }
    }

    /// What to say instead of serving.
    pub(super) fn refuse(&self, from: NodeId, message: &Message<S>, out: &mut Outputs<'_, Node<S>>) {
        let error = Error::new(ErrorCode::Unavailable, self.why_not());
        let answer = match message {
            Message::SliceReq { id, round, .. } => {
                let outcome = Outcome::Refused { error };
                Message::SliceResp { id: *id, round: *round, outcome, received: None }
            }
            Message::Prepare { id, .. } => Message::PrepareResp { id: *id, vote: Vote::Refused { error } },
            // It may have started after the eviction, and know no snapshot.
            Message::StartTx { .. } if self.is_evicted() => Message::Evict { regions: vec![self.region] },
            _ => return,
        };
        out.send(from.address(), answer);
    }

    /// Why it does not serve yet, and what can be done about it.
    pub fn why_not(&self) -> String {
        if self.is_evicted() {
            return self.topology.why_evicted(self.region);
        }
        let cause = match self.options.copied {
            true => {
                "unclean stop without a synced log, a lost data directory, or another leader while they were taken"
            }
            false => "unclean stop without a synced log, or a lost data directory",
        };
        let what = format!(
            "partition {} of region {} lost records that others rely on ({cause})",
            self.index, self.region
        );
        if !self.region_has_peers() {
            return format!(
                "{what}, and no other region has them; nothing was done; restore the data directory, or start its \
                 process once with --accept-loss to go on with what is left"
            );
        }
        let silent = self.silent();
        if silent.is_empty() {
            return format!("{what} and is taking them from its peers; nothing was done; try again soon");
        }
        format!(
            "{what} and waits for {}; nothing was done; try again when they answer, or start its process once with \
             --accept-loss if they are gone for good",
            silent.join(", ")
        )
    }

    /// Who has not answered yet.
    fn silent(&self) -> Vec<String> {
        (self.state_transfer.iter().flat_map(|state_transfer| &state_transfer.unanswered))
            .filter_map(|address| self.topology.locate(*address))
            .map(|(region, index)| format!("partition {index} of region {region}"))
            .collect()
    }
}
