//! A member of a group: the log, the instance, and the way of what the instance says.

use super::copy::{Copy, DiscardedReplies, Role, SpeculativeTurns};
use super::message::Message;
use super::rebuild::Rebuild;
use super::routes::Routes;
use super::{Copied, Groups, Node, Options, Record, Timer};
use crate::Mutant;
use crate::log::{self, Change, Log, Port, Recovering};
use crate::transfer::{Ask, Giver, Piece};
use protocol::{Durability, Input, Now, Outputs, Packet};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Error, Incarnation, Instant, Malformed, NodeId, Reader, Rng, Wire, put_bytes};

/// A member that takes the state and is silent for so long is not waited for.
const LEASE: Duration = Duration::from_secs(5);

/// A leader that commits nothing for so long takes no more turns until it does.
const STALL: Duration = Duration::from_millis(300);
/// How long it waits until it looks whether it still does not.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Kinds of a checkpoint's pieces.
const LOG: u8 = 0;
const STATE: u8 = 1;
const AHEAD: u8 = 2;
const INVALID: u8 = 3;

/// See the module.
pub struct Member<P: Copied> {
    group: Address,
    me: usize,
    incarnation: Incarnation,
    options: Options,
    groups: Groups,
    log: Log,
    copy: Copy<P>,
    routes: Routes,
    giver: Giver<usize>,
    /// The last turn that was committed when turns waited last, and since when they do.
    stalled: Option<(u64, Instant)>,
    /// By member the transfer that gives all that the leader's log has, and the last turn in it.
    gives_all: BTreeMap<usize, (u64, u64)>,
    /// Reads that wait for confirmed leadership, by the context of the read index request.
    unconfirmed: BTreeMap<u64, (NodeId, P::Message)>,
    /// The last context of a read index request.
    last_read_index: u64,
    /// Messages withheld until the turn that they depend on is committed: the turn, the receiver, the message.
    withheld: Vec<(u64, Address, Message<P>)>,
    /// The count of states when the checkpoint under way began.
    checkpointed: u64,
}

/// The log speaks through the outputs of the step; of a state that is ahead it speaks later.
struct Wires<'w, 'o, P: Copied> {
    out: &'w mut Outputs<'o, Node<P>>,
    members: &'w [Address],
    durability: Durability,
    /// The last turn proposed, if it is not committed.
    speculative: Option<u64>,
    withheld: &'w mut Vec<(u64, Address, Message<P>)>,
}

impl<P: Copied> Port for Wires<'_, '_, P> {
    fn send(&mut self, member: usize, message: log::Message) {
        let Some(to) = self.members.get(member) else { return };
        match (self.speculative, &message) {
            (Some(turn), log::Message::Piece { .. }) => {
                self.withheld.push((turn, *to, Message::Log(message)));
            }
            _ => self.out.send(*to, Message::Log(message)),
        }
    }

    fn send_now(&mut self, member: usize, message: log::Message) {
        if let Some(to) = self.members.get(member) {
            self.out.send_now(*to, Message::Log(message));
        }
    }

    fn persist(&mut self, change: &Change<'_>, class: Option<Durability>) {
        let class = class.unwrap_or(self.durability);
        if class > Durability::Volatile {
            self.out.persist(&Record(change.clone()), class);
        }
    }
}

macro_rules! wires {
    ($member:ident, $out:expr) => {{
        let (committed, proposed) = $member.copy.turns();
        Wires {
            out: $out,
            members: $member.groups.members($member.group),
            durability: $member.options.durability,
            speculative: (committed < proposed).then_some(proposed),
            withheld: &mut $member.withheld,
        }
    }};
}

impl<P: Copied> Member<P> {
    pub(super) fn new(node: NodeId, protocol: P, groups: Groups, options: Options) -> Self {
        let found = groups.find(node.address());
        assert!(found.is_some(), "{node} is in no group");
        let (group, me) = found.unwrap_or((node.address(), 0));
        Member {
            group,
            me,
            incarnation: node.incarnation,
            options,
            log: Log::new(me, groups.members(group).len()).with_mutants(options.mutants),
            copy: Copy::new(group, protocol, options.mutants),
            routes: Routes::new(groups.clone()),
            groups,
            giver: Giver::default(),
            stalled: None,
            gives_all: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            last_read_index: 0,
            withheld: Vec::new(),
            checkpointed: 0,
        }
    }

    /// The instance.
    pub fn protocol(&self) -> &P {
        self.copy.inner.protocol()
    }

    /// The instance.
    pub fn protocol_mut(&mut self) -> &mut P {
        self.copy.inner.protocol_mut()
    }

    /// True while it leads and serves.
    pub fn is_leader(&self) -> bool {
        matches!(self.copy.role, Role::Leads { .. })
    }

    /// True if its state may be more than the log has committed.
    pub fn is_ahead(&self) -> bool {
        let proposes = match self.copy.role {
            Role::Leads { proposed, committed, .. } => committed < proposed,
            Role::Follows => false,
        };
        proposes || self.copy.speculative.is_some() || !self.copy.is_valid
    }

    /// The member that leads, by its number, as far as this one knows.
    pub fn leader(&self) -> Option<usize> {
        self.log.leader()
    }

    /// The address that others know the group by.
    pub fn group(&self) -> Address {
        self.group
    }

    /// Its number in the group, and how many there are.
    pub fn number(&self) -> (usize, usize) {
        (self.me, self.groups.members(self.group).len())
    }

    /// The last entry that it has applied.
    pub fn applied(&self) -> u64 {
        self.log.applied()
    }

    /// True while it has forgotten what it acknowledged, or has no state of its own: it counts as lost to the group.
    pub fn is_lacking(&self) -> bool {
        self.log.is_forgetful() || !self.copy.is_valid
    }

    pub(super) fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Node<P>>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<P>>,
    ) {
        for input in batch.drain(..) {
            match input {
                Input::Snapshot(chunk) => {
                    let outcome = self.recover_chunk(chunk);
                    debug_assert!(outcome.is_ok(), "checkpoints are checksummed");
                }
                Input::Recover(bytes) => {
                    let change = Recovering::decode(&mut Reader::new(bytes));
                    let outcome = change.and_then(|change| self.log.recover(change, &mut self.copy));
                    debug_assert!(outcome.is_ok(), "log records are checksummed");
                }
                Input::Recovered { complete } => self.on_recovered(now, complete, random, out),
                Input::Message { from, message } => self.on_message(now, from, message, random, out),
                Input::Timer(Timer::Tick) => self.on_tick(now, random, out),
                Input::Timer(Timer::Inner) if self.is_stalled(now.instant) => {
                    out.arm(Timer::Inner, now.instant + LOOK_AGAIN);
                }
                Input::Timer(Timer::Inner) if self.is_leader() => {
                    self.copy.inner.fire(now, random, &mut DiscardedReplies::new());
                }
                Input::Timer(Timer::Inner) | Input::PeerStarted { .. } => {}
                Input::Request { id, .. } => {
                    out.reply(id).error(&Error::err("requests go to a coordinator, not to a replica"));
                }
            }
        }
        if self.log.is_running() {
            self.turn(now, random, out);
        }
    }

    fn on_recovered(&mut self, now: Now, complete: bool, random: &mut Rng, out: &mut Outputs<'_, Node<P>>) {
        let mut port = wires!(self, out);
        self.log.recovered(self.incarnation, complete, &mut port);
        if let Some(rebuild) = &mut self.copy.rebuild {
            rebuild.need(self.log.applied());
        }
        self.arm_tick(now, random, out);
    }

    fn arm_tick(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<P>>) {
        let wait = self.log.pace(self.options.tick, random);
        out.arm(Timer::Tick, now.instant + wait);
    }

    fn on_tick(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<P>>) {
        self.log.set_electable(self.copy.is_valid);
        let mut port = wires!(self, out);
        self.log.tick(now.instant, &mut port);
        self.arm_tick(now, random, out);
        self.ask(now.instant, random, out);
        let held = self.giver.is_giving(now.instant, LEASE);
        self.copy.inner.protocol_mut().hold(held);
    }

    /// What has become due: entries are written, sent and applied, the role follows the log's, and what the leader said
    /// leaves as far as it is committed.
    fn turn(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<P>>) {
        loop {
            let mut port = wires!(self, out);
            let news = self.log.settle(now.instant, &mut self.copy, &mut port);
            self.follow_term(now, random);
            self.take_confirmed(now, &news, random);
            let Some(entry) = self.copy.take_turn() else { break };
            if self.log.propose(entry).is_none() {
                // It has been deposed in this very step: no log will ever have what the state has.
                self.copy.depose();
                debug_assert!(false, "a leader that serves can propose");
            }
        }
        let (committed, proposed) = self.copy.turns();
        self.stalled = match self.stalled {
            _ if committed == proposed => None,
            Some((before, since)) if before == committed => Some((before, since)),
            _ => Some((committed, now.instant)),
        };
        for (_, to, message) in self.withheld.extract_if(.., |(turn, ..)| *turn <= committed) {
            out.send(to, message);
        }
        if !self.is_leader() {
            self.withheld.clear();
            self.unconfirmed.clear();
            out.disarm(Timer::Inner);
            return;
        }
        self.copy.release(now);
        let from = self.copy.inner.node();
        for (to, packet) in self.copy.inner.packets() {
            let way = self.routes.way_to(to, now.instant);
            out.send(way, Message::Packet { from, to, passed_on: false, packet });
        }
        match self.copy.inner.deadline() {
            Some(at) if self.is_stalled(now.instant) => {
                out.arm(Timer::Inner, at.max(now.instant + LOOK_AGAIN))
            }
            Some(at) => out.arm(Timer::Inner, at),
            None => out.disarm(Timer::Inner),
        }
    }

    /// A leader lasts for a term.
    fn follow_term(&mut self, now: Now, random: &mut Rng) {
        let leads = match self.copy.role {
            Role::Leads { term, .. } => Some(term),
            Role::Follows => None,
        };
        let serving = self.log.serving();
        if leads == serving {
            return;
        }
        self.copy.depose();
        let Some(term) = serving else { return };
        if self.copy.speculative.is_some() {
            // Everything in the log is applied, and its own turns are not there.
            self.copy.invalidate_after(self.log.applied());
        }
        match self.copy.is_valid {
            true => self.copy.lead(term, now, random),
            false => self.log.resign(),
        }
    }

    fn on_message(
        &mut self,
        now: Now,
        sender: NodeId,
        message: Message<P>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<P>>,
    ) {
        let by = sender.address();
        let member = self.groups.members(self.group).iter().position(|member| *member == by);
        match message {
            Message::Log(message) => {
                let Some(member) = member else { return };
                let mut all = false;
                if let log::Message::Ask { ask } = &message {
                    all = self.gives_all(now.instant, member, *ask);
                    // A member gives no state away that differs from the log's.
                    if !all && !self.copy.may_be_given() {
                        return;
                    }
                    self.lend(member, now.instant);
                }
                self.log.give_all(all);
                let mut port = wires!(self, out);
                port.speculative = port.speculative.filter(|_| !all);
                self.log.on_message(now.instant, member, message, &mut self.copy, &mut port);
                // The term may have changed: the rest of the step follows the present leader.
                let news = self.log.settle(now.instant, &mut self.copy, &mut port);
                self.follow_term(now, random);
                self.take_confirmed(now, &news, random);
            }
            Message::Packet { from, to, passed_on, packet } => {
                self.routes.heard(from.address(), from.incarnation, by);
                if to != self.group {
                    return;
                }
                if self.is_stalled(now.instant) {
                    return;
                }
                match packet {
                    packet if !self.is_leader() => self.pass_on(by, from, passed_on, packet, out),
                    Packet::Datagram(message) if self.must_confirm(&message) => {
                        self.last_read_index += 1;
                        self.log.confirm(self.last_read_index);
                        self.unconfirmed.insert(self.last_read_index, (from, message));
                    }
                    packet => {
                        // A malformed message of a stream is an error of the peer's software, and dropped.
                        let _ =
                            self.copy.inner.receive(now, from, packet, random, &mut DiscardedReplies::new());
                    }
                }
            }
            Message::Elsewhere { group, leader } => self.routes.refused(group, leader, by),
            Message::Ask(ask) => {
                if let Some(member) = member.filter(|_| self.copy.may_be_given()) {
                    self.give(now.instant, member, by, ask, out);
                }
            }
            Message::Piece { state, applied, piece } => {
                if let Some(member) = member {
                    self.on_piece(now.instant, member, &piece, (state, applied));
                    self.ask(now.instant, random, out);
                }
            }
        }
    }

    fn must_confirm(&self, message: &P::Message) -> bool {
        P::asks_leader(message) && !self.options.mutants.has(Mutant::ReadsUnconfirmed)
    }

    /// A quorum has confirmed that this member led at the time of the request.
    fn take_confirmed(&mut self, now: Now, news: &log::News, random: &mut Rng) {
        if !self.is_leader() {
            return;
        }
        let confirmed = news.confirmed.iter().filter_map(|context| self.unconfirmed.remove(context));
        let packets = confirmed.map(|(from, message)| (from, Packet::Datagram(message)));
        let outcome = self.copy.inner.receive_all(now, packets, random, &mut DiscardedReplies::new());
        debug_assert!(outcome.is_ok(), "only frames may be malformed");
    }

    /// True while it leads and nothing of what it does is committed.
    fn is_stalled(&self, now: Instant) -> bool {
        self.is_leader() && self.stalled.is_some_and(|(_, since)| now - since >= STALL)
    }

    /// True if the state that the member asks for is exactly what this leader's log says, which may wait for that
    /// member: it takes no turns until something is committed, or is not even sure of those of an earlier term.
    fn gives_all(&mut self, now: Instant, member: usize, ask: Ask) -> bool {
        let last = match self.copy.speculative {
            _ if self.is_stalled(now) => Some(self.copy.turns().1),
            Some(speculative)
                if self.log.is_leading() && self.log.newest().is_some_and(|e| speculative.is(e)) =>
            {
                Some(speculative.number)
            }
            _ => None,
        };
        match last {
            Some(last) if ask.cursor == 0 => {
                self.gives_all.insert(member, (ask.transfer, last));
                true
            }
            Some(last) => self.gives_all.get(&member) == Some(&(ask.transfer, last)),
            None => false,
        }
    }

    /// The member does not lead: it forwards the message to the leader, and tells the sender who leads.
    fn pass_on(
        &self,
        by: Address,
        from: NodeId,
        passed_on: bool,
        packet: Packet<P>,
        out: &mut Outputs<'_, Node<P>>,
    ) {
        let (group, leader) = (self.group, self.log.leader().filter(|leader| *leader != self.me));
        if !passed_on {
            out.send_now(by, Message::Elsewhere { group, leader });
            if let Some(to) = leader.and_then(|leader| self.groups.members(group).get(leader)) {
                out.send_now(*to, Message::Packet { from, to: group, passed_on: true, packet });
            }
        }
    }

    /// Nothing is forgotten that this member may ask for.
    fn lend(&mut self, member: usize, now: Instant) {
        self.giver.on_request(member, now);
        self.copy.inner.protocol_mut().hold(true);
    }

    fn give(&mut self, now: Instant, member: usize, to: Address, ask: Ask, out: &mut Outputs<'_, Node<P>>) {
        self.lend(member, now);
        let mut content = Vec::new();
        let next = log::Application::save(&mut self.copy, ask.cursor, &mut content);
        if next.is_none() {
            self.giver.given(member);
        }
        let piece = Piece { transfer: ask.transfer, cursor: ask.cursor, next, content: content.into() };
        let state = u64::from(self.incarnation.0) << 32 | self.copy.states;
        let message = Message::Piece { state, applied: self.log.applied(), piece };
        match self.copy.turns() {
            (committed, proposed) if committed < proposed => self.withheld.push((proposed, to, message)),
            _ => out.send(to, message),
        }
    }

    fn ask(&mut self, now: Instant, random: &mut Rng, out: &mut Outputs<'_, Node<P>>) {
        let Some(rebuild) = &mut self.copy.rebuild else { return };
        let members = self.groups.members(self.group);
        let others: Vec<usize> = (0..members.len()).filter(|member| *member != self.me).collect();
        if let Some((member, ask)) = rebuild.ask(now, &others, self.log.leader(), random) {
            out.send(members[member], Message::Ask(ask));
        }
    }

    fn on_piece(&mut self, now: Instant, from: usize, piece: &Piece, of: (u64, u64)) {
        let empty = self.copy.empty();
        let Some(rebuild) = &mut self.copy.rebuild else { return };
        let Some((inner, applied)) = rebuild.take(now, from, piece, of, || empty) else { return };
        let waiting = self.copy.rebuild.take().map(|rebuild| rebuild.waiting).unwrap_or_default();
        self.copy.replace(inner);
        self.copy.catch_up(waiting, applied);
    }

    fn recover_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        while !reader.is_empty() {
            match reader.bytes()?.split_first() {
                Some((&LOG, log)) => self.log.restore(log, &mut self.copy)?,
                Some((&STATE, state)) => log::Application::restore(&mut self.copy, state)?,
                Some((&AHEAD, speculative)) => {
                    let (term, number) = Wire::decode(&mut Reader::new(speculative))?;
                    self.copy.speculative = Some(SpeculativeTurns { term, number });
                }
                Some((&INVALID, _)) => {
                    log::Application::clear(&mut self.copy);
                    self.copy.is_valid = false;
                    self.copy.rebuild = Some(Rebuild::new(0));
                }
                _ => return Err(Malformed("checkpoint piece of a group's member")),
            }
        }
        Ok(())
    }

    /// See [`protocol::Protocol::checkpoint`]: the log's part, then the instance's, then how far that is ahead.
    pub(super) fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        let mut piece = Vec::new();
        if cursor == 0 {
            self.checkpointed = self.copy.states;
            self.log.begin_checkpoint();
            piece.push(LOG);
            self.log.save(&mut piece);
            put_bytes(chunk, &std::mem::take(&mut piece));
        }
        if !self.copy.is_valid || self.copy.states != self.checkpointed {
            // Earlier messages are of another state.
            put_bytes(chunk, &[INVALID]);
            return None;
        }
        piece.push(STATE);
        let next = self.copy.inner.protocol_mut().checkpoint(cursor, &mut piece);
        put_bytes(chunk, &piece);
        let speculative = match self.copy.role {
            Role::Leads { term, proposed, committed } if committed < proposed => {
                Some(SpeculativeTurns { term, number: proposed })
            }
            _ => self.copy.speculative,
        };
        if let Some(SpeculativeTurns { term, number }) = speculative.filter(|_| next.is_none()) {
            let mut piece = vec![AHEAD];
            (term, number).encode(&mut piece);
            put_bytes(chunk, &piece);
        }
        next
    }
}

impl<P: Copied> std::fmt::Debug for Member<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("group", &self.group)
            .field("log", &self.log)
            .field("role", &self.copy.role)
            .field("ahead", &self.copy.speculative)
            .field("is_valid", &self.copy.is_valid)
            .finish_non_exhaustive()
    }
}
