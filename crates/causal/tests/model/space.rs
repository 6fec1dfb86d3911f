//! States of single instances and what leads from one to another. They are stored as paths of events: an instance is
//! built again by repeating what happened to it.

use crate::model::host::{Event, Host, Known};
use crate::model::setup::Setup;
use anabranch_causal::wren::{Message, Outcome};
use hashbrown::HashMap;
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;
use types::{NodeId, Wire};

/// Fixed: the same run visits the same states in the same order.
pub type Hasher = foldhash::quality::FixedState;
type Map<K, V> = HashMap<K, V, Hasher>;

/// A message that somebody has sent.
pub struct Sent {
    /// Who, in which life.
    pub from: NodeId,
    /// Which instance it goes to.
    pub to: usize,
    /// By the stream.
    pub in_order: bool,
    pub message: Message,
}

/// A state of one instance.
pub struct Local {
    /// Where it was first reached from, and how.
    parent: Option<u32>,
    event: Event,
    /// Whose state it is.
    pub instance: usize,
    pub known: Known,
}

/// What an event leads to.
#[derive(Clone)]
pub struct Moved {
    /// The next state.
    pub next: u32,
    /// What was sent, in order.
    pub sent: Rc<[u32]>,
}

/// Everything interned so far.
pub struct Space {
    pub setup: Setup,
    pub messages: Vec<Sent>,
    by_message: Map<(NodeId, usize, bool, Vec<u8>), u32>,
    pub locals: Vec<Local>,
    by_print: Map<u128, u32>,
    steps: Map<(u32, Event), Moved>,
    /// The first read that was not answered at once, or was to show more of other regions than of its own.
    pub refused: Option<String>,
}

impl Space {
    pub fn new(setup: Setup) -> Self {
        Space {
            setup,
            messages: Vec::new(),
            by_message: Map::default(),
            locals: Vec::new(),
            by_print: Map::default(),
            steps: Map::default(),
            refused: None,
        }
    }

    /// The state in which an instance begins.
    pub fn start(&mut self, instance: usize) -> Moved {
        let mut host = Host::start(&self.setup, instance);
        self.moved(&mut host, instance, None, &Event::Start)
    }

    /// Builds the instance of a state again.
    fn rebuild(&self, local: u32) -> Host {
        let (mut path, mut at) = (Vec::new(), Some(local));
        while let Some(known) = at {
            path.push(known);
            at = self.locals[known as usize].parent;
        }
        let mut host = Host::start(&self.setup, self.locals[local as usize].instance);
        for known in path.into_iter().rev() {
            self.perform(&mut host, &self.locals[known as usize].event);
        }
        host
    }

    fn perform(&self, host: &mut Host, event: &Event) -> Vec<crate::model::host::Out> {
        let message = match event {
            Event::Deliver(id) => {
                let sent = &self.messages[*id as usize];
                Some((sent.from, sent.message.clone()))
            }
            _ => None,
        };
        host.perform(&self.setup, event, message)
    }

    /// The state after an event, and what is sent meanwhile.
    pub fn step(&mut self, local: u32, event: &Event) -> Moved {
        if let Some(known) = self.steps.get(&(local, event.clone())) {
            return known.clone();
        }
        let mut host = self.rebuild(local);
        let instance = self.locals[local as usize].instance;
        let moved = self.moved(&mut host, instance, Some(local), event);
        self.steps.insert((local, event.clone()), moved.clone());
        moved
    }

    fn moved(&mut self, host: &mut Host, instance: usize, parent: Option<u32>, event: &Event) -> Moved {
        let outbox = self.perform(host, event);
        let read = match event {
            Event::Deliver(id) => matches!(self.messages[*id as usize].message, Message::SliceReq { .. }),
            _ => false,
        };
        let is_answer =
            |message: &Message| matches!(message, Message::SliceResp { outcome: Outcome::Done { .. }, .. });
        if read && !outbox.iter().any(|out| is_answer(&out.message)) {
            self.refused = Some(format!("a read is not answered at once by {}", host.id()));
        }
        for out in &outbox {
            if let Message::SliceReq { snapshot, .. } = &out.message
                && snapshot.remote >= snapshot.local
            {
                self.refused = Some(format!("{} reads {snapshot:?}", host.id()));
            }
        }
        let from = host.id();
        let mut sent = Vec::new();
        for out in outbox {
            let Some(to) = self.setup.find(out.to) else { continue };
            let mut bytes = Vec::new();
            out.message.encode(&mut bytes);
            let next = self.messages.len() as u32;
            let id = *self.by_message.entry((from, to, out.in_order, bytes)).or_insert(next);
            if id == next {
                self.messages.push(Sent { from, to, in_order: out.in_order, message: out.message });
            }
            sent.push(id);
        }
        let known = host.known.clone();
        let print = fingerprint(&(instance, host.portrait(&self.setup)));
        let next = self.locals.len() as u32;
        let id = *self.by_print.entry(print).or_insert(next);
        if id == next {
            self.locals.push(Local { parent, event: event.clone(), instance, known });
        }
        Moved { next: id, sent: sent.into() }
    }

    /// An event, for people.
    pub fn describe(&self, instance: usize, event: &Event) -> String {
        let what = match event {
            Event::Deliver(id) => {
                let sent = &self.messages[*id as usize];
                format!("receives {:?} from {}", sent.message, sent.from)
            }
            event => format!("{event:?}"),
        };
        format!("{}: {what}", self.setup.address(instance))
    }
}

/// Two of these are equal only if what they were taken of is.
fn fingerprint(of: &impl Hash) -> u128 {
    let [low, high] = [1, 2].map(|seed| Hasher::with_seed(seed).hash_one(of));
    u128::from(high) << 64 | u128::from(low)
}
