//! The other sites (TARDiS 6.4): this site sends them every state that it creates, and what else they lack; it applies
//! their states once the parents are here. Ceilings travel behind everything that was committed before.

mod turns;

use self::turns::{Backlog, Turn};
use super::bootstrap::Asker;
use super::logged::Recorded;
use super::message::SiteState;
use super::orphans::{Orphan, Orphans};
use super::{Collecting, Message, Options, Record, Site, Timer, Topology};
use crate::dag::Bounds;
use crate::instance::Instance;
use crate::keyspace::Keyspace;
use crate::{Commit, MissingParent, Mutant, Owner, StateId};
use protocol::{Durability, Now, Outputs};
use replication::Link;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::{Address, Error, ErrorCode, Instant, NodeId, ProcessId, Rng};

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
/// How many transactions may be on their way to a site that has not acknowledged them, if nothing else is said, and how many bytes.
pub(super) const WINDOW: usize = 16 * 1024;
const WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// How many promises of a site may wait for its earlier transactions: beyond that the last one is replaced.
const MAX_PROMISES: usize = 64;

/// Another site.
#[derive(Debug, Default)]
struct Peer {
    link: Link,
    /// The states that it last reported to have.
    present: SiteState,
    /// What this site last reported to it as present.
    reported: SiteState,
    /// The time of this site's present that it knows, as far as it said.
    knows: u64,
    /// The time of its own report whose arrival it knows of.
    echoed: u64,
    /// When this site last reported to it.
    said: Instant,
    /// When it was last heard.
    heard: Option<Instant>,
    flying: InFlight,
    /// What it lacks and is not on its way.
    skipped: BTreeSet<StateId>,
    /// How many transactions of it have come that were not acknowledged.
    received: u64,
    /// The ceiling that this site last sent to it.
    ceiling: Vec<StateId>,
    /// The ceilings that it sent after states that still wait, with the number of the last of these.
    promises: VecDeque<(u64, Vec<StateId>)>,
    /// What a head of it is to see before such heads are merged here.
    turn: Option<Turn>,
    /// It said that it has more to tell than can be on its way.
    tells_more: bool,
    /// This site has reported the same of itself to it.
    reported_more: bool,
    backlog: Backlog,
}

/// The sizes of the transactions that are on their way to a site, in their order.
#[derive(Debug, Default)]
struct InFlight {
    sizes: VecDeque<usize>,
    bytes: usize,
}

impl InFlight {
    fn has_room(&self, window: usize) -> bool {
        self.sizes.len() < window && self.bytes < WINDOW_BYTES
    }

    fn add(&mut self, size: usize) {
        self.sizes.push_back(size);
        self.bytes += size;
    }

    fn acknowledged(&mut self, count: u64) {
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.sizes.len());
        self.bytes -= self.sizes.drain(..count).sum::<usize>();
    }
}

impl Peer {
    fn is_silent(&self, now: Instant) -> bool {
        self.heard.is_none_or(|heard| heard + SILENT_AFTER <= now)
    }

    /// True if it lacks more than can be on its way.
    fn lacks_more(&self) -> bool {
        !self.skipped.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Gossip {
    /// How many transactions may be on their way to a site.
    window: usize,
    peers: BTreeMap<Address, Peer>,
    /// Rises whenever states were taken out.
    time: u64,
    /// States that were taken out, each at its time: another site that does not know yet that they have come may still
    /// send them, and they must not come again.
    gone: BTreeMap<StateId, u64>,
    /// Who sent those of the heads that were not made here.
    foreign: BTreeMap<StateId, Address>,
    orphans: Orphans,
}

impl Gossip {
    pub fn new(topology: &Topology, index: usize, window: usize) -> Self {
        let others = topology.sites.iter().enumerate().filter(|(other, _)| *other != index);
        Gossip {
            window,
            peers: others.map(|(_, address)| (*address, Peer::default())).collect(),
            time: 0,
            gone: BTreeMap::new(),
            foreign: BTreeMap::new(),
            orphans: Orphans::default(),
        }
    }

    /// Of a site that forgets what it has: only the links stay.
    pub fn anew(topology: &Topology, index: usize, before: &Gossip) -> Self {
        let mut gossip = Gossip::new(topology, index, before.window);
        for (address, peer) in &mut gossip.peers {
            if let Some(before) = before.peers.get(address) {
                (peer.link, peer.present) = (before.link, before.present.clone());
            }
        }
        gossip
    }

    /// No site has promised anything: nothing is collected until all have.
    pub fn expect_ceilings(&self, keyspace: &mut Keyspace) {
        for site in self.peers.keys() {
            keyspace.place_ceiling(Owner::Site(site.process), vec![StateId::ROOT]);
        }
    }

    /// True if there are no other sites.
    pub fn is_alone(&self) -> bool {
        self.peers.is_empty()
    }

    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// The silent sites.
    pub fn silent(&self, now: Instant) -> BTreeSet<ProcessId> {
        let silent = self.peers.iter().filter(|(_, peer)| peer.is_silent(now));
        silent.map(|(site, _)| site.process).collect()
    }

    /// Why no more may be written, if sites that do not answer lack as much as this site may retain for them.
    pub fn is_full(&self, bytes: usize, limit: usize, now: Instant) -> Option<Error> {
        if bytes < limit {
            return None;
        }
        let silent: Vec<String> = self.silent(now).iter().map(ToString::to_string).collect();
        let who = match silent.is_empty() {
            true => "they are receiving them now, retry later".to_owned(),
            false => format!("the site of process {} does not answer", silent.join(", ")),
        };
        let text = format!(
            "other sites lack {bytes} bytes of transactions, and QUEUE allows {limit}: {who}; reads go on, KEYSPACE ALTER \
             raises QUEUE"
        );
        Some(Error::new(ErrorCode::Unavailable, text))
    }

    /// A state was made here: this site sends it to every site, now or later.
    pub fn offer(&mut self, commit: &Commit, out: &mut Outputs<'_, Instance>) {
        for (address, peer) in &mut self.peers {
            // Queued transactions go first: this one may build on them.
            if peer.link.is_resumed() && peer.flying.has_room(self.window) && peer.skipped.is_empty() {
                peer.flying.add(commit.size());
                out.stream(*address, Message::Transaction { commit: commit.clone() });
            } else {
                peer.skipped.insert(commit.id);
            }
        }
    }

    /// Says to all sites what is here.
    pub fn greet(&self, keyspace: &Keyspace, out: &mut Outputs<'_, Instance>) {
        for address in self.peers.keys() {
            out.stream(*address, self.greeting(keyspace));
        }
    }

    fn greeting(&self, keyspace: &Keyspace) -> Message {
        let dag = keyspace.dag();
        let states = dag.states().map(|node| dag.id(node)).chain(keyspace.retained().early()).collect();
        Message::Greeting { present: self.present(keyspace), states }
    }

    fn present(&self, keyspace: &Keyspace) -> SiteState {
        SiteState { heads: keyspace.heads(), time: self.time }
    }

    /// These states were taken out: everybody has them, or this site retains them.
    pub fn took_out(&mut self, states: Vec<StateId>) {
        if !states.is_empty() && !self.peers.is_empty() {
            self.time += 1;
            self.gone.extend(states.into_iter().map(|state| (state, self.time)));
        }
    }

    /// A site began a new life: this site greets it and sends what it lacks.
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
            let more = peer.lacks_more();
            let is_news = (&peer.reported, peer.reported_more) != (&present, more)
                || peer.echoed != peer.present.time
                || peer.said + SAY_EVERY <= now;
            if peer.link.is_resumed() && (peer.received > 0 || is_news) {
                let (count, known) = (std::mem::take(&mut peer.received), peer.present.time);
                out.stream(*address, Message::Received { present: present.clone(), count, known, more });
                (peer.reported, peer.echoed, peer.said) = (present.clone(), known, now);
                peer.reported_more = more;
            }
        }
    }

    /// Forgets what every site has, finds what one lacks, and promises what may be promised.
    pub fn repair(
        &mut self,
        keyspace: &mut Keyspace,
        now: Instant,
        options: Options,
        out: &mut Outputs<'_, Instance>,
    ) {
        self.acknowledge(keyspace, now, out);
        keyspace.forget_early();
        self.trim(keyspace);
        let is_head =
            |state| keyspace.dag().node(state).is_some_and(|node| keyspace.dag().children(node).is_empty());
        self.foreign.retain(|state, _| is_head(*state));
        for (address, peer) in &mut self.peers {
            if !peer.link.is_resumed() {
                continue;
            }
            // It is unknown what states see that only the other site has.
            if peer.flying.sizes.is_empty()
                && peer.present.heads.iter().all(|head| keyspace.dag().node(*head).is_some())
            {
                let seen = keyspace.seen_by(&peer.present.heads);
                let old = keyspace.retained().older_than(PASS_ON_AFTER, now);
                peer.skipped.extend(old.filter(|id| !keyspace.is_among(*id, &seen)));
            }
            Self::send_skipped((*address, peer), self.window, keyspace, out);
        }
        self.promise(keyspace, options, out);
    }

    /// Sends what a site lacks, as far as the window allows.
    fn send_skipped(
        (to, peer): (Address, &mut Peer),
        window: usize,
        keyspace: &mut Keyspace,
        out: &mut Outputs<'_, Instance>,
    ) {
        if peer.skipped.is_empty() {
            return;
        }
        let seen = keyspace.seen_by(&peer.present.heads);
        while peer.flying.has_room(window)
            && let Some(id) = peer.skipped.pop_first()
        {
            if keyspace.is_among(id, &seen) {
                // A third site has sent it meanwhile.
                continue;
            }
            let retained = keyspace.retained().get(id).cloned();
            let (size, message) = match retained {
                Some(commit) => (commit.size(), Message::Transaction { commit }),
                None if !keyspace.fetch_written(id) => {
                    peer.skipped.insert(id);
                    break;
                }
                None => match keyspace.by_value(id) {
                    Some(state) => (state.size(), Message::Value { state }),
                    None => continue,
                },
            };
            peer.flying.add(size);
            out.stream(to, message);
        }
    }

    /// The site need not retain what every site has, except what it needs to recreate states collected early.
    fn trim(&mut self, keyspace: &mut Keyspace) {
        let seen = self.peers.values().map(|peer| keyspace.seen_by(&peer.present.heads));
        let seen: Vec<Bounds> = seen.collect();
        let mut next = keyspace.retained().first();
        while let Some(id) = next.filter(|id| seen.iter().all(|seen| keyspace.is_among(*id, seen))) {
            next = keyspace.retained().after(id).map(|(id, _)| id);
            keyspace.retained_mut().received(id);
        }
        let known = self.peers.values().map(|peer| peer.knows).min().unwrap_or(u64::MAX);
        self.gone.retain(|_, time| *time > known);
    }

    /// Promises the other sites to begin nothing above what is read now. Sites to which not everything committed before
    /// is on its way are promised nothing.
    fn promise(&mut self, keyspace: &mut Keyspace, options: Options, out: &mut Outputs<'_, Instance>) {
        if self.is_alone() {
            // Whoever collects promises.
            return;
        }
        let is_in_sync = |peer: &Peer| peer.link.is_resumed() && peer.skipped.is_empty();
        if !self.peers.values().any(is_in_sync) {
            // No site relies on a promise that was never sent; early collection, which waits for no site, does.
            if options.collect == Collecting::Optimistic {
                keyspace.announce_ceiling();
            }
            return;
        }
        let states = keyspace.announce_ceiling();
        let news = |peer: &Peer| is_in_sync(peer) && peer.ceiling != states;
        if !self.peers.values().any(news) {
            return;
        }
        // A power cut must not take back what the promise rests on. No reply tells of it.
        let volatile = options.durability == Durability::Volatile;
        let class = if volatile { Durability::Volatile } else { Durability::Synced };
        out.persist_for_messages(&Record::Ceiling { states: &states }, class);
        for (address, peer) in self.peers.iter_mut().filter(|(_, peer)| news(peer)) {
            peer.ceiling.clone_from(&states);
            out.stream(*address, Message::Ceiling { states: states.clone() });
        }
    }

    /// A site promised to begin nothing above these states.
    fn promised(&mut self, from: Address, states: Vec<StateId>) {
        let behind = self.orphans.last_number();
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if peer.promises.back().is_some_and(|(last, _)| *last == behind)
            || peer.promises.len() >= MAX_PROMISES
        {
            peer.promises.pop_back();
        }
        peer.promises.push_back((behind, states));
    }

    /// The promises that take effect now: all earlier transactions of their sites are here.
    fn due_promises(&mut self) -> Vec<(ProcessId, Vec<StateId>)> {
        let first = self.orphans.first_number();
        let mut due = Vec::new();
        for (site, peer) in &mut self.peers {
            let count =
                peer.promises.partition_point(|(behind, _)| first.is_none_or(|first| *behind < first));
            if let Some((_, states)) = peer.promises.drain(..count).next_back() {
                due.push((site.process, states));
            }
        }
        due
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
            Message::Received { present, count, known, more } => {
                if let Some(peer) = self.gossip.peers.get_mut(&address) {
                    (peer.present, peer.knows, peer.tells_more) = (present, known, more);
                    peer.flying.acknowledged(count);
                    Gossip::send_skipped((address, peer), self.options.window, &mut self.keyspace, out);
                }
            }
            Message::Transaction { .. } | Message::Value { .. } if self.is_joining() => {}
            Message::Transaction { commit } => self.on_state(address, Orphan::Commit(commit), now, out),
            Message::Value { state } => self.on_state(address, Orphan::Value(state), now, out),
            Message::Ceiling { states } => {
                if self.options.mutants.has(Mutant::PromisesOvertake) {
                    return self.keyspace.place_ceiling(Owner::Site(address.process), states);
                }
                self.gossip.promised(address, states);
                self.place_promises();
            }
            Message::Ask { number, thread, request } if self.is_joining() => {
                self.hold_forwarded(Asker::Process(from, number), thread, request, now.instant);
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
            Message::Ask { number, thread, request } => {
                self.go_on(Asker::Process(from, number), thread, &request);
                self.serve(Asker::Process(from, number), &request, (now, random), out);
            }
            Message::Answer { .. }
            | Message::Attend
            | Message::SessionPosition { .. }
            | Message::Order { .. }
            | Message::Safe { .. }
            | Message::Load { .. }
            | Message::Loaded { .. }
            | Message::Page { .. }
            | Message::Paged { .. } => {}
        }
    }

    /// A site has reported its states: this site sends what it lacks.
    pub(super) fn tell_what_is_lacking(
        &mut self,
        to: Address,
        states: &[StateId],
        out: &mut Outputs<'_, Instance>,
    ) {
        let lacking = self.keyspace.lacking(states);
        let Some(peer) = self.gossip.peers.get_mut(&to) else { return };
        peer.link.resume();
        (peer.skipped, peer.flying) = (lacking.into_iter().collect(), InFlight::default());
        Gossip::send_skipped((to, peer), self.options.window, &mut self.keyspace, out);
    }

    /// A state came: it is applied, and so are those that waited for it; or it waits.
    fn on_state(&mut self, from: Address, state: Orphan, now: Now, out: &mut Outputs<'_, Instance>) {
        if let Some(peer) = self.gossip.peers.get_mut(&from) {
            if peer.received == 0 {
                out.arm(Timer::Acknowledge, now.instant + ACKNOWLEDGE_AFTER);
            }
            peer.received += 1;
        }
        for parent in state.parents() {
            self.gossip.foreign.remove(parent);
        }
        self.gossip.foreign.insert(state.id(), from);
        self.apply_all(vec![state], now, out);
    }

    /// What waited for a state, which is here now, is applied; a merge may have been made here before it came.
    pub(super) fn free_orphans_of(&mut self, state: StateId, now: Now, out: &mut Outputs<'_, Instance>) {
        let freed = self.gossip.orphans.take(state);
        if !freed.is_empty() {
            self.apply_all(freed, now, out);
        }
    }

    /// What waits for a state that was collected early is applied: that could not come back yet, or did for another child.
    pub(super) fn retry_orphans(&mut self, now: Now, out: &mut Outputs<'_, Instance>) {
        for missing in self.gossip.orphans.missing() {
            if self.keyspace.may_come_back(missing) || self.keyspace.dag().node(missing).is_some() {
                self.free_orphans_of(missing, now, out);
            }
        }
    }

    /// Keeps a transaction for sites that may lack it.
    pub(super) fn keep(&mut self, commit: Commit, since: Instant) {
        if !self.gossip.peers.is_empty() {
            self.keyspace.retained_mut().insert(commit, since);
        }
    }

    fn apply_all(&mut self, mut waiting: Vec<Orphan>, now: Now, out: &mut Outputs<'_, Instance>) {
        while let Some(state) = waiting.pop() {
            if self.gossip.gone.contains_key(&state.id()) || self.keyspace.retained().is_early(state.id()) {
                self.gossip.orphans.arrived(state.id());
                continue;
            }
            self.be_first_to_merge(state.id(), now, out);
            let applied = match &state {
                Orphan::Commit(commit) => self.keyspace.apply(commit).map(|new| (new, commit.id)),
                Orphan::Value(state) => self.keyspace.apply_value(state).map(|new| (new, state.id)),
            };
            match (applied, state) {
                (Err(MissingParent(missing)), state) => self.gossip.orphans.adopt(missing, state),
                (Ok((false, id)), _) => self.gossip.orphans.arrived(id),
                (Ok((true, id)), state) => {
                    self.gossip.orphans.arrived(id);
                    match state {
                        Orphan::Commit(commit) => {
                            let record = Record::Commit { commit: &commit, is_shared: false };
                            out.persist(&record, self.options.durability);
                            self.note_recorded(Recorded::State(id), out);
                            self.keep(commit, now.instant);
                        }
                        Orphan::Value(state) => {
                            out.persist(&Record::Value { state: &state }, self.options.durability);
                            self.note_recorded(Recorded::State(id), out);
                        }
                    }
                    waiting.extend(self.gossip.orphans.take(id));
                }
            }
        }
        self.place_promises();
    }

    /// Relies on what other sites promised behind states that are all here now: what these build on must not go before.
    fn place_promises(&mut self) {
        for (site, states) in self.gossip.due_promises() {
            self.keyspace.place_ceiling(Owner::Site(site), states);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_flies_as_both_windows_allow() {
        let mut flying = InFlight::default();
        while flying.has_room(WINDOW) {
            flying.add(100);
        }
        assert_eq!(flying.sizes.len(), WINDOW);
        flying.acknowledged(WINDOW as u64 - 1);
        assert_eq!(flying.bytes, 100);
        flying.add(WINDOW_BYTES);
        assert!(!flying.has_room(WINDOW), "one that is larger than the window goes by itself");
        flying.acknowledged(1);
        flying.acknowledged(7);
        assert_eq!((flying.sizes.len(), flying.bytes), (0, 0));
    }
}
