//! The other sites (TARDiS 6.4): they are told every state that is made here, and what they lack otherwise; what they
//! tell is applied once its parents are here. Ceilings travel behind everything that was committed before.

use super::join::Asker;
use super::message::Present;
use super::{Message, Record, Site, Timer, Topology};
use crate::instance::Instance;
use crate::keyspace::{ByValue, Keyspace};
use crate::{Commit, MissingParent, Owner, StateId};
use protocol::{Durability, Now, Outputs};
use replication::Link;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Address, Error, ErrorCode, Instant, NodeId, Rng};

/// How often a site looks for what others lack.
pub(super) const REPAIR_EVERY: Duration = Duration::from_millis(200);
/// How long what has come waits to be acknowledged, so that one message speaks for many.
const ACKNOWLEDGE_AFTER: Duration = Duration::from_millis(10);
/// After how long a state of a third site is passed on to one that still lacks it.
const PASS_ON_AFTER: Duration = Duration::from_secs(1);
/// How often a site says what it has, if there is no news.
const SAY_EVERY: Duration = Duration::from_millis(500);
/// After how long without a word another site is taken to be cut off.
const SILENT_AFTER: Duration = Duration::from_millis(1500);
/// How many transactions may be on their way to a site that has not acknowledged them.
const WINDOW: u64 = 1024;
/// How many transactions wait for their parents at most: what is more is dropped, and told again.
const MAX_ORPHANS: usize = 10_000;

/// Another site.
#[derive(Debug, Default)]
struct Peer {
    link: Link,
    /// What it last said that it has.
    present: Present,
    /// What it was last told that this site has.
    told: Present,
    /// The time of this site's present that it knows, as far as it said.
    knows: u64,
    /// The time of its own present that it was told is known here.
    echoed: u64,
    /// When it was last told.
    said: Instant,
    /// When it was last heard.
    heard: Option<Instant>,
    /// How many transactions are on their way to it.
    flying: u64,
    /// What it lacks and is not on its way.
    skipped: BTreeSet<StateId>,
    /// How many transactions of it have come that were not acknowledged.
    received: u64,
    /// The ceiling it was last told.
    ceiling: Vec<StateId>,
}

/// A transaction that some site may lack.
#[derive(Debug)]
struct Kept {
    commit: Commit,
    bytes: usize,
    since: Instant,
}

/// A state that waits for its parents.
#[derive(Clone, Debug)]
enum Orphan {
    Commit(Commit),
    Value(ByValue),
}

impl Orphan {
    fn id(&self) -> StateId {
        match self {
            Orphan::Commit(commit) => commit.id,
            Orphan::Value(state) => state.id,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Gossip {
    peers: BTreeMap<Address, Peer>,
    kept: BTreeMap<StateId, Kept>,
    kept_bytes: usize,
    /// Rises whenever states were taken out.
    time: u64,
    /// States that were taken out, each at its time: another site that does not know yet that they have come may still
    /// send them, and they must not come again.
    gone: BTreeMap<StateId, u64>,
    /// Who sent those of the heads that were not made here.
    foreign: BTreeMap<StateId, Address>,
    /// By one of the parents that are not here.
    orphans: BTreeMap<StateId, Vec<Orphan>>,
    orphan_count: usize,
}

impl Gossip {
    pub fn new(topology: &Topology, index: usize) -> Self {
        let others = topology.sites.iter().enumerate().filter(|(other, _)| *other != index);
        Gossip {
            peers: others.map(|(_, address)| (*address, Peer::default())).collect(),
            kept: BTreeMap::new(),
            kept_bytes: 0,
            time: 0,
            gone: BTreeMap::new(),
            foreign: BTreeMap::new(),
            orphans: BTreeMap::new(),
            orphan_count: 0,
        }
    }

    /// Of a site that forgets what it has: only the links stay.
    pub fn anew(topology: &Topology, index: usize, before: &Gossip) -> Self {
        let mut gossip = Gossip::new(topology, index);
        for (address, peer) in &mut gossip.peers {
            if let Some(before) = before.peers.get(address) {
                (peer.link, peer.present) = (before.link, before.present.clone());
            }
        }
        gossip
    }

    /// Nobody has promised anything: nothing goes until all have.
    pub fn expect_ceilings(&self, keyspace: &mut Keyspace) {
        for site in self.peers.keys() {
            keyspace.place_ceiling(Owner::Site(site.process), vec![StateId::ROOT]);
        }
    }

    pub fn orphans(&self) -> usize {
        self.orphan_count
    }

    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Why no more may be written, if sites that do not answer lack as much as may be kept for them.
    pub fn is_full(&self, limit: usize, now: Instant) -> Option<Error> {
        if self.kept_bytes < limit {
            return None;
        }
        let is_silent = |peer: &Peer| peer.heard.is_none_or(|heard| heard + SILENT_AFTER <= now);
        let silent = self.peers.iter().filter(|(_, peer)| is_silent(peer));
        let silent: Vec<String> = silent.map(|(site, _)| site.process.to_string()).collect();
        let who = match silent.is_empty() {
            true => "they are told now, retry later".to_owned(),
            false => format!("the site of process {} does not answer", silent.join(", ")),
        };
        let text = format!(
            "other sites lack {} bytes of transactions, and QUEUE allows {limit}: {who}; reads go on, KEYSPACE ALTER raises \
             QUEUE",
            self.kept_bytes
        );
        Some(Error::new(ErrorCode::Unavailable, text))
    }

    /// The first kept transaction after a state.
    pub fn kept_after(&self, after: StateId) -> Option<(StateId, &Commit)> {
        let from = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.kept.range(from).next().map(|(id, kept)| (*id, &kept.commit))
    }

    /// Keeps a transaction for sites that may lack it.
    pub fn keep(&mut self, commit: Commit, since: Instant) {
        if self.peers.is_empty() || self.kept.contains_key(&commit.id) {
            return;
        }
        let written = commit
            .writes
            .iter()
            .map(|(key, effects)| key.len() + effects.iter().map(|effect| effect.len() + 16).sum::<usize>());
        let bytes = 64 + written.sum::<usize>();
        self.kept_bytes += bytes;
        self.kept.insert(commit.id, Kept { commit, bytes, since });
    }

    /// A state was made here: every site is told, or will be.
    pub fn offer(&mut self, commit: &Commit, now: Instant, out: &mut Outputs<'_, Instance>) {
        for (address, peer) in &mut self.peers {
            if peer.link.is_resumed() && peer.flying < WINDOW {
                peer.flying += 1;
                out.stream(*address, Message::Transaction { commit: commit.clone() });
            } else {
                peer.skipped.insert(commit.id);
            }
        }
        self.keep(commit.clone(), now);
    }

    /// Says to all sites what is here.
    pub fn greet(&self, keyspace: &Keyspace, out: &mut Outputs<'_, Instance>) {
        for address in self.peers.keys() {
            out.stream(*address, self.greeting(keyspace));
        }
    }

    fn greeting(&self, keyspace: &Keyspace) -> Message {
        let dag = keyspace.dag();
        let states = dag.states().map(|node| dag.id(node)).collect();
        Message::Greeting { present: self.present(keyspace), states }
    }

    fn present(&self, keyspace: &Keyspace) -> Present {
        Present { heads: keyspace.heads(), time: self.time }
    }

    /// These states were taken out: everybody has them.
    pub fn took_out(&mut self, states: Vec<StateId>) {
        for state in &states {
            if let Some(kept) = self.kept.remove(state) {
                self.kept_bytes -= kept.bytes;
            }
        }
        if !states.is_empty() && !self.peers.is_empty() {
            self.time += 1;
            self.gone.extend(states.into_iter().map(|state| (state, self.time)));
        }
    }

    /// A site began a new life, which has to be greeted and told what it lacks.
    pub fn started(
        &mut self,
        from: NodeId,
        keyspace: &Keyspace,
        greets: bool,
        out: &mut Outputs<'_, Instance>,
    ) -> bool {
        let greeting = self.greeting(keyspace);
        let Some(peer) = self.peers.get_mut(&from.address()) else { return false };
        if peer.link.started(from.incarnation) && greets {
            out.stream(from.address(), greeting);
        }
        *peer = Peer { link: peer.link, ..Peer::default() };
        true
    }

    /// Acknowledges what has come, and says what is here if that is news.
    pub fn acknowledge(&mut self, keyspace: &Keyspace, now: Instant, out: &mut Outputs<'_, Instance>) {
        let present = self.present(keyspace);
        for (address, peer) in &mut self.peers {
            let is_news =
                peer.told != present || peer.echoed != peer.present.time || peer.said + SAY_EVERY <= now;
            if peer.link.is_resumed() && (peer.received > 0 || is_news) {
                let (count, known) = (std::mem::take(&mut peer.received), peer.present.time);
                out.stream(*address, Message::Received { present: present.clone(), count, known });
                (peer.told, peer.echoed, peer.said) = (present.clone(), known, now);
            }
        }
    }

    /// Forgets what every site has, finds what one lacks, and promises what may be promised.
    pub fn repair(
        &mut self,
        keyspace: &mut Keyspace,
        now: Instant,
        durability: Durability,
        out: &mut Outputs<'_, Instance>,
    ) {
        self.acknowledge(keyspace, now, out);
        self.trim(keyspace);
        let is_head =
            |state| keyspace.dag().node(state).is_some_and(|node| keyspace.dag().children(node).is_empty());
        self.foreign.retain(|state, _| is_head(*state));
        for (address, peer) in &mut self.peers {
            if !peer.link.is_resumed() {
                continue;
            }
            let old = self.kept.iter().filter(|(_, kept)| kept.since + PASS_ON_AFTER <= now);
            // Of states that only it has it cannot be said what they see.
            if peer.flying == 0 && peer.present.heads.iter().all(|head| keyspace.dag().node(*head).is_some())
            {
                let lacking = old.map(|(id, _)| *id).filter(|id| !keyspace.is_seen(*id, &peer.present.heads));
                peer.skipped.extend(lacking);
            }
            Self::send_skipped(*address, peer, &self.kept, keyspace, out);
        }
        self.promise(keyspace, durability, out);
    }

    /// Sends what a site lacks, as far as the window allows.
    fn send_skipped(
        to: Address,
        peer: &mut Peer,
        kept: &BTreeMap<StateId, Kept>,
        keyspace: &mut Keyspace,
        out: &mut Outputs<'_, Instance>,
    ) {
        while peer.flying < WINDOW
            && let Some(id) = peer.skipped.pop_first()
        {
            let message = match kept.get(&id) {
                Some(kept) => Message::Transaction { commit: kept.commit.clone() },
                None if !keyspace.fetch_written(id) => {
                    peer.skipped.insert(id);
                    break;
                }
                None => match keyspace.by_value(id) {
                    Some(state) => Message::Value { state },
                    None => continue,
                },
            };
            peer.flying += 1;
            out.stream(to, message);
        }
    }

    /// What every site has need not be kept.
    fn trim(&mut self, keyspace: &Keyspace) {
        while let Some(first) = self.kept.first_entry() {
            let id = *first.key();
            if !self.peers.values().all(|peer| keyspace.is_seen(id, &peer.present.heads)) {
                break;
            }
            self.kept_bytes -= first.remove().bytes;
        }
        let known = self.peers.values().map(|peer| peer.knows).min().unwrap_or(u64::MAX);
        self.gone.retain(|_, time| *time > known);
    }

    /// Promises the other sites to begin nothing above what is read now. Sites to which not everything committed before
    /// is on its way are promised nothing.
    fn promise(&mut self, keyspace: &mut Keyspace, durability: Durability, out: &mut Outputs<'_, Instance>) {
        if self.peers.is_empty() {
            keyspace.announce_ceiling();
            return;
        }
        let is_told = |peer: &Peer| peer.link.is_resumed() && peer.skipped.is_empty();
        if !self.peers.values().any(is_told) {
            return;
        }
        let states = keyspace.announce_ceiling();
        let news = |peer: &Peer| is_told(peer) && peer.ceiling != states;
        if !self.peers.values().any(news) {
            return;
        }
        // A power cut must not take back what the promise rests on. No reply tells of it.
        let class = if durability == Durability::Volatile { durability } else { Durability::Synced };
        out.persist_for_messages(&Record::Ceiling { states: &states }, class);
        for (address, peer) in self.peers.iter_mut().filter(|(_, peer)| news(peer)) {
            peer.ceiling.clone_from(&states);
            out.stream(*address, Message::Ceiling { states: states.clone() });
        }
    }

    /// The heads that this site is to merge. The first site of those that hear one another merges all of them. Another
    /// one merges its own with what the first one sent, so that its clients see that, but only if they have written
    /// what the first one has not seen (`own` is the last of it): two sites that merge without end what the other one has
    /// just made would never come to one head, and merges that cross are what later ones have to reach back over.
    pub fn to_merge(&self, site: &Site, heads: &[StateId], now: Instant) -> Vec<StateId> {
        let is_near = |site: &&Address| {
            self.peers.get(site).and_then(|peer| peer.heard).is_some_and(|heard| heard + SILENT_AFTER > now)
        };
        let Some(first) = site.topology.sites[..site.index].iter().find(is_near) else {
            return heads.to_vec();
        };
        let sent: Vec<StateId> =
            heads.iter().filter(|head| self.foreign.get(head) == Some(first)).copied().collect();
        let is_ahead = site
            .written
            .is_some_and(|own| site.keyspace.dag().node(own).is_some() && !site.keyspace.is_seen(own, &sent));
        if !is_ahead || sent.is_empty() {
            return Vec::new();
        }
        heads.iter().filter(|head| self.foreign.get(head).is_none_or(|from| from == first)).copied().collect()
    }

    fn take_orphans_of(&mut self, state: StateId) -> Vec<Orphan> {
        let freed = self.orphans.remove(&state).unwrap_or_default();
        self.orphan_count -= freed.len();
        freed
    }

    fn adopt(&mut self, missing: StateId, orphan: Orphan) {
        if self.orphan_count < MAX_ORPHANS {
            self.orphan_count += 1;
            self.orphans.entry(missing).or_default().push(orphan);
        }
    }
}

impl Site {
    /// A peer began a life.
    pub(super) fn on_peer(&mut self, peer: NodeId, out: &mut Outputs<'_, Instance>) {
        if self.partitions.are_at(peer.address()) {
            return self.partitions.began_anew(peer.address());
        }
        self.peer_began_anew(peer.address());
        if !self.gossip.started(peer, &self.keyspace, !self.is_joining(), out) {
            self.close_all_of(peer.process);
        }
    }

    pub(super) fn on_message(
        &mut self,
        from: NodeId,
        message: Message,
        (now, random): (Now, &mut Rng),
        out: &mut Outputs<'_, Instance>,
    ) {
        let address = from.address();
        if let Some(peer) = self.gossip.peers.get_mut(&address) {
            peer.link.heard();
            peer.heard = Some(now.instant);
        }
        if self.partitions.are_at(address) {
            return self.on_partition(address, message, (now, random), out);
        }
        match message {
            Message::Greeting { present, states } => {
                if let Some(peer) = self.gossip.peers.get_mut(&address) {
                    peer.present = present;
                }
                match self.is_joining() {
                    true => self.hold_greeting(address, states),
                    false => self.tell_what_is_lacking(address, &states, out),
                }
            }
            Message::Received { present, count, known } => {
                if let Some(peer) = self.gossip.peers.get_mut(&address) {
                    (peer.present, peer.knows) = (present, known);
                    peer.flying = peer.flying.saturating_sub(count);
                    Gossip::send_skipped(address, peer, &self.gossip.kept, &mut self.keyspace, out);
                }
            }
            Message::Transaction { .. } | Message::Value { .. } if self.is_joining() => {}
            Message::Transaction { commit } => self.on_state(address, Orphan::Commit(commit), now, out),
            Message::Value { state } => self.on_state(address, Orphan::Value(state), now, out),
            Message::Ceiling { states } => {
                self.keyspace.place_ceiling(Owner::Site(from.process), states);
            }
            Message::Ask { number, request } if self.is_joining() => {
                self.hold_asked(from, number, request, now.instant);
            }
            Message::Join => {
                let has_begun = !self.is_joining();
                out.stream(address, Message::Joined { has_begun });
            }
            Message::Joined { has_begun } => self.on_joined(address, has_begun, (now, random), out),
            Message::Fetch { attempt } => self.on_fetch(address, attempt, out),
            Message::Pieces { attempt, pieces, is_last } => {
                self.on_pieces(attempt, (pieces, is_last), (now, random), out);
            }
            Message::Ask { number, request } => {
                self.serve(Asker::Process(from, number), &request, (now, random), out);
            }
            Message::Answer { .. }
            | Message::Attend
            | Message::Standing { .. }
            | Message::Order { .. }
            | Message::Safe { .. }
            | Message::Load { .. }
            | Message::Loaded { .. }
            | Message::Page { .. }
            | Message::Paged { .. } => {}
        }
    }

    /// A site has said which states it has: it is told what it lacks.
    pub(super) fn tell_what_is_lacking(
        &mut self,
        to: Address,
        states: &[StateId],
        out: &mut Outputs<'_, Instance>,
    ) {
        let lacking = self.keyspace.lacking(states);
        let Some(peer) = self.gossip.peers.get_mut(&to) else { return };
        peer.link.resume();
        (peer.skipped, peer.flying) = (lacking.into_iter().collect(), 0);
        Gossip::send_skipped(to, peer, &self.gossip.kept, &mut self.keyspace, out);
    }

    /// A state came: it is applied, and so are those that waited for it; or it waits.
    fn on_state(&mut self, from: Address, state: Orphan, now: Now, out: &mut Outputs<'_, Instance>) {
        if let Some(peer) = self.gossip.peers.get_mut(&from) {
            if peer.received == 0 {
                out.arm(Timer::Acknowledge, now.instant + ACKNOWLEDGE_AFTER);
            }
            peer.received += 1;
        }
        self.gossip.foreign.insert(state.id(), from);
        self.apply_all(vec![state], now, out);
    }

    /// What waited for a state, which is here now, is applied; a merge may have been made here before it came.
    pub(super) fn free_orphans_of(&mut self, state: StateId, now: Now, out: &mut Outputs<'_, Instance>) {
        let freed = self.gossip.take_orphans_of(state);
        if !freed.is_empty() {
            self.apply_all(freed, now, out);
        }
    }

    fn apply_all(&mut self, mut waiting: Vec<Orphan>, now: Now, out: &mut Outputs<'_, Instance>) {
        while let Some(state) = waiting.pop() {
            if self.gossip.gone.contains_key(&state.id()) {
                continue;
            }
            let applied = match &state {
                Orphan::Commit(commit) => self.keyspace.apply(commit).map(|new| (new, commit.id)),
                Orphan::Value(state) => self.keyspace.apply_value(state).map(|new| (new, state.id)),
            };
            match (applied, state) {
                (Err(MissingParent(missing)), state) => self.gossip.adopt(missing, state),
                (Ok((false, _)), _) => {}
                (Ok((true, id)), state) => {
                    match state {
                        Orphan::Commit(commit) => {
                            let record = Record::Commit { commit: &commit, is_shared: false };
                            out.persist(&record, self.options.durability);
                            self.gossip.keep(commit, now.instant);
                        }
                        Orphan::Value(state) => {
                            out.persist(&Record::Value { state: &state }, self.options.durability);
                        }
                    }
                    waiting.extend(self.gossip.take_orphans_of(id));
                }
            }
        }
    }
}
