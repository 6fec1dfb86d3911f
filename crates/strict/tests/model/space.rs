//! The states of single instances, each interned once, and the steps between them.
//!
//! An instance's state includes every message it has ever sent, so that a state of the whole system is a tuple of
//! states of instances: what may be delivered is what anybody in the tuple has sent. Hence messages are lost,
//! repeated and reordered without bound, at no cost.

use crate::model::host::{Event, Host, is_acknowledgement, normalize, portrait};
use crate::model::setup::{MEMBERS, Setup};
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::Message;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;
use types::{Incarnation, Instant, NodeId, Reader, Timestamp, TransactionId, Wire};

/// Fixed: the same run visits the same states in the same order.
pub type Hasher = foldhash::quality::FixedState;
type Map<K, V> = HashMap<K, V, Hasher>;

/// A message that somebody has sent.
pub struct Sent {
    /// Who sent it, in which life.
    pub from: NodeId,
    /// Which instance it goes to.
    pub to: usize,
    /// Properties speak of it, but it does not arrive.
    undelivered: bool,
    pub message: Message,
}

/// A state of one instance.
pub struct Local {
    pub instance: usize,
    /// Where it was first reached from, and how.
    pub parent: Option<u32>,
    pub event: Event,
    /// How often it has restarted: with the log, and without.
    pub restarts: (u8, u8),
    pub timers: u8,
    pub suspicions: u8,
    pub requested: u32,
    /// Every message sent so far in all lives, ascending.
    pub sent: Vec<u32>,
    /// What was received with some effect, where that counts.
    received: Vec<u32>,
    /// What was sent, by receiver, without what does not arrive.
    to: Vec<Vec<u32>>,
    /// The replies to clients, by request.
    pub replies: Vec<(u8, String)>,
    deadline: Option<Instant>,
}

/// Everything interned so far.
pub struct Space {
    pub setup: Setup,
    pub messages: Vec<Sent>,
    by_message: Map<(NodeId, usize, Vec<u8>), u32>,
    pub locals: Vec<Local>,
    by_print: Map<u128, u32>,
    steps: Map<(u32, Event), u32>,
    /// By state and a hash of what may be delivered to it.
    moves: Map<(u32, u64, u8), Rc<[u32]>>,
    /// Calls to enter a view, which may come from any replica at any time: by receiver.
    calls: Vec<Vec<u32>>,
}

/// What may happen to an instance beside deliveries.
#[derive(Clone, Copy, Default)]
pub struct Allowed {
    /// A bit for each request.
    pub requests: u32,
    pub restart: (bool, bool),
}

impl Space {
    pub fn new(setup: Setup) -> Self {
        let mut space = Space {
            calls: vec![Vec::new(); setup.instances()],
            setup,
            messages: Vec::new(),
            by_message: Map::default(),
            locals: Vec::new(),
            by_print: Map::default(),
            steps: Map::default(),
            moves: Map::default(),
        };
        for instance in 0..space.setup.replicas() {
            for view in 1..=space.setup.views {
                let message = Message::Ir { message: Ir::StartViewChange { view } };
                let (from, to) = (space.peer(instance), space.setup.address(instance));
                let call = space.number(from, to, message);
                space.calls[instance].extend(call);
            }
        }
        space
    }

    /// Another replica of the same shard, in its first life.
    fn peer(&self, instance: usize) -> NodeId {
        let shard = instance / MEMBERS * MEMBERS;
        self.setup.address(shard + (instance + 1) % MEMBERS).at(Incarnation(1))
    }

    /// The state in which an instance begins.
    pub fn start(&mut self, instance: usize) -> u32 {
        let mut host = Host::start(&self.setup, instance);
        self.intern(&mut host, instance, None, Event::Start)
    }

    /// What others have sent to an instance, given a state of each.
    pub fn available(&self, tuple: &[u32], instance: usize, into: &mut Vec<u32>) {
        into.clear();
        into.extend(&self.calls[instance]);
        tuple.iter().for_each(|local| into.extend(&self.locals[*local as usize].to[instance]));
        into.sort_unstable();
        into.dedup();
    }

    /// Builds the instance of a state again, by repeating what happened to it.
    pub fn rebuild(&mut self, local: u32) -> Host {
        let mut path = Vec::new();
        let mut at = Some(local);
        while let Some(known) = at {
            path.push(known);
            at = self.locals[known as usize].parent;
        }
        let instance = self.locals[local as usize].instance;
        let mut host = Host::start(&self.setup, instance);
        for known in path.into_iter().rev().skip(1) {
            let event = self.locals[known as usize].event.clone();
            self.perform(&mut host, instance, &event);
        }
        host.outbox.clear();
        host
    }

    /// The timestamp of a transaction's first attempt, from its Prepare.
    fn born(&self, transaction: TransactionId) -> Timestamp {
        let replies = self.messages.iter().find_map(|sent| match &sent.message {
            Message::Ir { message: Ir::Propose { group, born, .. } } if *group == transaction => Some(*born),
            _ => None,
        });
        replies.unwrap_or_default()
    }

    fn perform(&self, host: &mut Host, instance: usize, event: &Event) {
        match event {
            Event::Start => {}
            Event::Deliver(message) => {
                let sent = &self.messages[*message as usize];
                host.deliver(sent.from, sent.message.clone());
            }
            Event::Request(index) => {
                host.ask(&self.setup, &self.setup.requests[usize::from(*index)], *index);
            }
            Event::Timer => host.fire(),
            Event::Suspect(transaction, participants) => {
                let (transaction, participants) = (*transaction, participants.clone());
                let born = self.born(transaction);
                host.deliver(self.peer(instance), Message::Suspect { transaction, born, participants });
            }
            Event::Restart { complete } => host.restart(&self.setup, instance, *complete),
        }
    }

    /// The state after an event.
    pub fn step(&mut self, local: u32, event: &Event) -> u32 {
        if let Some(next) = self.steps.get(&(local, event.clone())) {
            return *next;
        }
        let instance = self.locals[local as usize].instance;
        let mut host = self.rebuild(local);
        self.perform(&mut host, instance, event);
        let next = self.intern(&mut host, instance, Some(local), event.clone());
        self.steps.insert((local, event.clone()), next);
        next
    }

    fn intern(&mut self, host: &mut Host, instance: usize, parent: Option<u32>, event: Event) -> u32 {
        let from = host.id();
        let mut sent = parent.map_or(Vec::new(), |parent| self.locals[parent as usize].sent.clone());
        for (to, message) in std::mem::take(&mut host.outbox) {
            sent.extend(self.number(from, to, message));
        }
        sent.sort_unstable();
        sent.dedup();
        let before = parent.map(|parent| &self.locals[parent as usize]);
        let (mut restarts, mut timers, mut suspicions, mut requested) =
            before.map_or(((0, 0), 0, 0, 0), |l| (l.restarts, l.timers, l.suspicions, l.requested));
        match &event {
            Event::Restart { complete: true } => restarts.0 += 1,
            Event::Restart { complete: false } => restarts.1 += 1,
            Event::Timer => timers += 1,
            Event::Suspect(..) => suspicions += 1,
            Event::Request(index) => requested |= 1 << index,
            Event::Start | Event::Deliver(_) => {}
        }
        let mut received = before.map_or(Vec::new(), |local| local.received.clone());
        let replies: Vec<(u8, String)> = host.replies().collect();
        let deadline = host.deadline().filter(|_| instance >= self.setup.replicas());
        let counts = (instance, restarts, timers, suspicions, requested, host.now.0, deadline.map(|at| at.0));
        let text = portrait(host.node());
        if let (Event::Deliver(message), Some(parent), true) = (&event, parent, self.setup.once) {
            // Without an effect it may as well come later.
            let same = fingerprint(&(&counts, &text, &sent, &replies, &received));
            if self.by_print.get(&same) == Some(&parent) {
                return parent;
            }
            received.push(*message);
            received.sort_unstable();
        }
        let print = fingerprint(&(&counts, &text, &sent, &replies, &received));
        let next = self.locals.len() as u32;
        let known = *self.by_print.entry(print).or_insert(next);
        if known == next {
            let mut to = vec![Vec::new(); self.setup.instances()];
            for id in &sent {
                let message = &self.messages[*id as usize];
                if !message.undelivered {
                    to[message.to].push(*id);
                }
            }
            self.locals.push(Local {
                instance,
                parent,
                event,
                restarts,
                timers,
                suspicions,
                requested,
                sent,
                received,
                to,
                replies,
                deadline,
            });
        }
        known
    }

    /// The number of a message; none if nobody gets it.
    pub fn number(&mut self, from: NodeId, to: types::Address, mut message: Message) -> Option<u32> {
        let to = self.setup.find(to)?;
        let acknowledgement = is_acknowledgement(&message, to >= self.setup.replicas());
        let answer = matches!(&message, Message::Ir { message: Ir::Reply { finalized: false, .. } });
        if acknowledgement && !self.setup.acknowledgements || self.setup.dies(to) && !answer {
            return None;
        }
        let sender = self.setup.find(from.address())?;
        let lost = self.setup.routes.is_some_and(|arrives| !arrives(sender, to, &message))
            || !self.setup.is_heard(sender, to, &message)
            || self.setup.down.contains(&to);
        let undelivered = acknowledgement || lost || self.setup.dies(to);
        normalize(&mut message);
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        // What travels is what was encoded.
        let message = Message::decode(&mut Reader::new(&bytes)).expect("messages survive their binary form");
        let next = self.messages.len() as u32;
        let id = *self.by_message.entry((from, to, bytes)).or_insert(next);
        if id == next {
            self.messages.push(Sent { from, to, undelivered, message });
        }
        Some(id)
    }

    /// The states that an instance can come to by receiving any of the available messages, and by what else is
    /// allowed, until others can notice. What nobody can notice may as well happen right before what they can.
    pub fn moves(&mut self, local: u32, available: &[u32], allowed: Allowed) -> Rc<[u32]> {
        let hash = Hasher::default().hash_one((available, allowed.requests));
        let restart = u8::from(allowed.restart.0) | u8::from(allowed.restart.1) << 1;
        if let Some(known) = self.moves.get(&(local, hash, restart)) {
            return known.clone();
        }
        let (mut seen, mut todo, mut found) = (vec![local], vec![local], Vec::new());
        while let Some(at) = todo.pop() {
            for event in self.events(at, available, allowed) {
                let next = self.step(at, &event);
                if next == at || seen.contains(&next) || found.contains(&next) {
                    continue;
                }
                if self.is_visible(at, next) {
                    found.push(next);
                } else {
                    seen.push(next);
                    todo.push(next);
                }
            }
        }
        let found: Rc<[u32]> = found.into();
        self.moves.insert((local, hash, restart), found.clone());
        found
    }

    fn events(&self, at: u32, available: &[u32], allowed: Allowed) -> Vec<Event> {
        let local = &self.locals[at as usize];
        let fresh = available.iter().filter(|message| local.received.binary_search(message).is_err());
        let mut events: Vec<Event> = fresh.map(|message| Event::Deliver(*message)).collect();
        let requests = self.setup.requests.len() as u8;
        let may_ask = |index: &u8| allowed.requests & !local.requested & (1 << index) != 0;
        events.extend((0..requests).filter(may_ask).map(Event::Request));
        let waits = local.replies.len() < local.requested.count_ones() as usize;
        if waits && local.timers < self.setup.timers && local.deadline.is_some() {
            events.push(Event::Timer);
        }
        let backup = local.instance < MEMBERS && self.setup.backups.contains(&local.instance);
        if backup && local.suspicions < self.setup.recoveries {
            events.extend(self.proposed(available).into_iter().map(|(id, of)| Event::Suspect(id, of)));
        }
        if allowed.restart.0 {
            events.push(Event::Restart { complete: true });
        }
        if allowed.restart.1 {
            events.push(Event::Restart { complete: false });
        }
        events
    }

    /// The transactions among these messages, with their participants.
    fn proposed(&self, available: &[u32]) -> BTreeMap<TransactionId, Vec<u16>> {
        let messages = available.iter().map(|id| &self.messages[*id as usize].message);
        let proposed = messages.filter_map(|message| match message {
            Message::Ir { message: Ir::Propose { group, operation, .. } } => {
                Some((*group, operation.part.participants.clone()))
            }
            _ => None,
        });
        proposed.collect()
    }

    fn is_visible(&self, before: u32, after: u32) -> bool {
        let (before, after) = (&self.locals[before as usize], &self.locals[after as usize]);
        before.sent != after.sent || before.replies != after.replies || before.restarts != after.restarts
    }

    /// A state with what led to it, for people.
    pub fn describe(&self, before: u32, after: u32) -> String {
        let (old, new) = (&self.locals[before as usize], &self.locals[after as usize]);
        let event = match &new.event {
            Event::Deliver(id) => {
                let sent = &self.messages[*id as usize];
                format!("receives {:?} from {}", sent.message, sent.from)
            }
            event => format!("{event:?}"),
        };
        let fresh = new.sent.iter().filter(|id| !old.sent.contains(id));
        let said: Vec<String> =
            fresh.map(|id| format!("{:?}", self.messages[*id as usize].message)).collect();
        let mut distinct = said.clone();
        distinct.dedup();
        let replies =
            if old.replies == new.replies { String::new() } else { format!("; told {:?}", new.replies) };
        format!("{}: {event}; says {}{replies}", self.setup.address(new.instance), distinct.join(" | "))
    }
}

/// Two of these are equal only if what they were taken of is.
pub fn fingerprint(of: &impl Hash) -> u128 {
    let [low, high] = [1, 2].map(|seed| foldhash::quality::FixedState::with_seed(seed).hash_one(of));
    u128::from(high) << 64 | u128::from(low)
}
