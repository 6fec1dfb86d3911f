//! Breadth-first search over the states of the whole system.

use crate::model::host::Event;
use crate::model::properties;
use crate::model::setup::Setup;
use crate::model::space::{Hasher, Space};
use anabranch_causal::wren::Message;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// A state of the whole system: of each instance, and what is on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The state of each instance.
    pub locals: Vec<u32>,
    /// Datagrams to replicas, in order of their numbers. Each arrives once at most, in any order.
    pub flights: Vec<u32>,
    /// What is on its way by a stream, by sender and receiver: replicas only.
    pub streams: Vec<Vec<u32>>,
    /// Coordinators that are dead, a bit each.
    pub dead: u8,
    /// How many restarts there have been.
    pub restarts: u8,
}

impl State {
    /// The same in few bytes.
    fn pack(&self) -> Box<[u32]> {
        let mut packed = vec![u32::from(self.dead) << 8 | u32::from(self.restarts)];
        packed.extend(&self.locals);
        for part in std::iter::once(&self.flights).chain(&self.streams) {
            packed.push(part.len() as u32);
            packed.extend(part);
        }
        packed.into()
    }

    fn unpack(packed: &[u32], instances: usize) -> State {
        let (locals, mut rest) = packed[1..].split_at(instances);
        let mut parts = std::iter::from_fn(|| {
            let (len, behind) = rest.split_first()?;
            let (part, behind) = behind.split_at(*len as usize);
            rest = behind;
            Some(part.to_vec())
        });
        State {
            locals: locals.to_vec(),
            flights: parts.next().unwrap_or_default(),
            streams: parts.collect(),
            dead: (packed[0] >> 8) as u8,
            restarts: packed[0] as u8,
        }
    }
}

/// What may happen in a state.
#[derive(Clone, Debug)]
pub enum Move {
    /// Something happens to an instance.
    Event(usize, Event),
    /// A datagram arrives.
    Datagram(u32),
    /// The first message of a stream arrives.
    Stream(usize),
    /// A coordinator dies.
    Death(usize),
}

/// How a search ended.
pub struct Outcome {
    /// Different states of the whole system.
    pub states: usize,
    /// Different states of single instances.
    pub locals: usize,
    /// Every state within the bounds of the setup was visited.
    pub exhausted: bool,
    /// The first violation, with the steps to it.
    pub violation: Option<String>,
    /// How many requests were answered in some state.
    pub answered: usize,
    /// In how many last states everything came to an end once the network was good.
    pub healed: usize,
}

/// The system in motion.
pub struct System {
    pub space: Space,
    instances: usize,
}

impl System {
    /// The system at rest: everybody has heard everybody, and a stable snapshot is known.
    pub fn begin(setup: Setup) -> (Self, State) {
        let (instances, replicas) = (setup.instances(), setup.replicas());
        let mut system = System { space: Space::new(setup), instances };
        let mut state = State { streams: vec![Vec::new(); replicas * replicas], ..State::default() };
        let started: Vec<_> = (0..instances).map(|instance| system.space.start(instance)).collect();
        state.locals = started.iter().map(|moved| moved.next).collect();
        for (instance, moved) in started.iter().enumerate() {
            system.route(&mut state, instance, &moved.sent);
        }
        for _ in 0..3 {
            system.calm(&mut state);
        }
        for (index, request) in system.space.setup.requests.clone().iter().enumerate() {
            if request.at_once {
                system.happen(&mut state, replicas + request.coordinator, &Event::Request(index as u8));
            }
        }
        (system, state)
    }

    fn is_replica(&self, instance: usize) -> bool {
        instance < self.space.setup.replicas()
    }

    /// Something happens to an instance; what it says to coordinators they hear at once, and so do replicas what coordinators
    /// ask about stable times: nothing else happens to a coordinator, and it knows no time, so that nobody could tell.
    /// Stable times sent to them without a query are lost: coordinators query them whenever they like.
    fn happen(&mut self, state: &mut State, instance: usize, event: &Event) {
        let moved = self.space.step(state.locals[instance], event);
        state.locals[instance] = moved.next;
        let message = |id: &u32| &self.space.messages[*id as usize].message;
        let is_query = matches!(event, Event::Deliver(id) if matches!(message(id), Message::StartTx { .. }));
        let arrives = |id: &u32| is_query || !matches!(message(id), Message::StartTxResp { .. });
        let sent: Vec<u32> = moved.sent.iter().copied().filter(arrives).collect();
        self.route(state, instance, &sent);
    }

    fn route(&mut self, state: &mut State, from: usize, sent: &[u32]) {
        for id in sent {
            let message = &self.space.messages[*id as usize];
            let to = message.to;
            match self.is_replica(to) {
                false if state.dead & (1 << (to - self.space.setup.replicas())) != 0 => {}
                false => self.happen(state, to, &Event::Deliver(*id)),
                true if matches!(message.message, Message::StartTx { .. }) => {
                    self.happen(state, to, &Event::Deliver(*id));
                }
                true if message.in_order => {
                    let stream = &mut state.streams[from * self.space.setup.replicas() + to];
                    // The same time once more tells nothing.
                    if stream.last() != Some(id) {
                        stream.push(*id);
                    }
                }
                true => {
                    // One that is on its way already is lost, as any may be.
                    if let Err(place) = state.flights.binary_search(id) {
                        state.flights.insert(place, *id);
                    }
                }
            }
        }
    }

    /// The state after a move.
    pub fn after(&mut self, state: &State, step: &Move) -> State {
        let mut next = state.clone();
        match step {
            Move::Event(instance, Event::Restart) => self.restart(&mut next, *instance),
            Move::Event(instance, event) => self.happen(&mut next, *instance, event),
            Move::Datagram(id) => {
                let place = next.flights.iter().position(|other| other == id).expect("it is on its way");
                next.flights.remove(place);
                self.happen(&mut next, self.space.messages[*id as usize].to, &Event::Deliver(*id));
            }
            Move::Stream(stream) => {
                let id = next.streams[*stream].remove(0);
                self.happen(&mut next, self.space.messages[id as usize].to, &Event::Deliver(id));
            }
            Move::Death(coordinator) => next.dead |= 1 << coordinator,
        }
        next
    }

    /// What was on its way by streams is gone, and everybody knows of the new life at once.
    fn restart(&mut self, state: &mut State, instance: usize) {
        let replicas = self.space.setup.replicas();
        state.restarts += 1;
        for other in 0..replicas {
            state.streams[instance * replicas + other].clear();
            state.streams[other * replicas + instance].clear();
        }
        self.happen(state, instance, &Event::Restart);
        let life = self.space.locals[state.locals[instance] as usize].known.life;
        for other in (0..replicas).filter(|other| *other != instance) {
            self.happen(state, other, &Event::Peer(instance, life));
        }
    }

    /// What may happen in a state.
    pub fn moves(&self, state: &State) -> Vec<Move> {
        let setup = &self.space.setup;
        let replicas = setup.replicas();
        let mut moves: Vec<Move> = state.flights.iter().map(|id| Move::Datagram(*id)).collect();
        let streams = state.streams.iter().enumerate().filter(|(_, stream)| !stream.is_empty());
        moves.extend(streams.map(|(index, _)| Move::Stream(index)));
        for instance in 0..replicas {
            let full = |to: usize| state.streams[instance * replicas + to].len() >= setup.window;
            let known = &self.space.locals[state.locals[instance] as usize].known;
            if !(0..replicas).any(full) {
                moves.push(Move::Event(instance, Event::Apply));
            }
            if known.wall + 1 < setup.walls[instance].len() {
                moves.push(Move::Event(instance, Event::Clock));
            }
            if setup.doubts && known.undecided > 0 {
                moves.push(Move::Event(instance, Event::Doubt));
            }
            if state.restarts < setup.restarts {
                moves.push(Move::Event(instance, Event::Restart));
            }
        }
        let known = |instance: usize| &self.space.locals[state.locals[instance] as usize].known;
        let is_answered =
            |request: u8| (replicas..self.instances).any(|at| known(at).replies.contains_key(&request));
        for coordinator in 0..setup.coordinators.len() {
            let instance = replicas + coordinator;
            if state.dead & (1 << coordinator) != 0 {
                continue;
            }
            let ready = setup.requests.iter().enumerate().filter(|(index, request)| {
                request.coordinator == coordinator
                    && known(instance).requested & (1 << index) == 0
                    && request.after.is_none_or(is_answered)
            });
            let mut ready =
                ready.map(|(index, _)| Move::Event(instance, Event::Request(index as u8))).peekable();
            // What is stable matters to who begins.
            if ready.peek().is_some() {
                moves.push(Move::Event(instance, Event::StartTx));
            }
            moves.extend(ready);
            if setup.mortal & (1 << coordinator) != 0 {
                moves.push(Move::Death(coordinator));
            }
        }
        moves
    }

    /// The network is good, and everybody does what he does now and then.
    pub fn calm(&mut self, state: &mut State) {
        let replicas = self.space.setup.replicas();
        for instance in 0..replicas {
            let walls = self.space.setup.walls[instance].len();
            let mut events = vec![Event::Apply];
            if self.space.setup.doubts {
                events.push(Event::Doubt);
            }
            if self.space.locals[state.locals[instance] as usize].known.wall + 1 < walls
                && !state.flights.is_empty()
            {
                events.push(Event::Clock);
            }
            for event in events {
                self.happen(state, instance, &event);
                self.deliver_all(state);
            }
        }
        for coordinator in 0..self.space.setup.coordinators.len() {
            if state.dead & (1 << coordinator) == 0 {
                self.happen(state, replicas + coordinator, &Event::StartTx);
            }
        }
    }

    fn deliver_all(&mut self, state: &mut State) {
        loop {
            let stream = state.streams.iter().position(|stream| !stream.is_empty());
            let step = match (state.flights.first(), stream) {
                (Some(id), _) => Move::Datagram(*id),
                (None, Some(stream)) => Move::Stream(stream),
                (None, None) => return,
            };
            *state = self.after(state, &step);
        }
    }
}

/// A search in progress.
struct Search {
    system: System,
    states: Vec<Box<[u32]>>,
    parents: Vec<(u32, u8)>,
    table: HashTable<u32>,
}

impl Search {
    /// Adds a state that the move with this number leads to; false if it is known.
    fn add(&mut self, state: &State, parent: (u32, u8)) -> bool {
        let state = state.pack();
        let hash = Hasher::default().hash_one(&state);
        let Search { states, table, .. } = self;
        if table.find(hash, |known| states[*known as usize] == state).is_some() {
            return false;
        }
        let id = states.len() as u32;
        states.push(state);
        table.insert_unique(hash, id, |known| Hasher::default().hash_one(&states[*known as usize]));
        self.parents.push(parent);
        true
    }

    fn state(&self, at: u32) -> State {
        State::unpack(&self.states[at as usize], self.system.instances)
    }

    /// The steps to a state, for people.
    fn trace(&self, mut at: u32) -> String {
        let mut lines = Vec::new();
        while at != 0 {
            let (parent, step) = self.parents[at as usize];
            let state = self.state(parent);
            let space = &self.system.space;
            lines.push(match &self.system.moves(&state)[usize::from(step)] {
                Move::Event(instance, event) => space.describe(*instance, event),
                Move::Datagram(id) => space.describe(space.messages[*id as usize].to, &Event::Deliver(*id)),
                Move::Stream(stream) => {
                    let id = state.streams[*stream][0];
                    space.describe(space.messages[id as usize].to, &Event::Deliver(id))
                }
                Move::Death(coordinator) => format!("coordinator {coordinator} dies"),
            });
            at = parent;
        }
        lines.reverse();
        lines.iter().enumerate().map(|(n, line)| format!("{:>3}. {line}\n", n + 1)).collect()
    }
}

/// Visits every state within the bounds of the setup, or as many as `limit`, and checks the properties in each. Some
/// of the states without a request left are healed.
pub fn explore(setup: Setup, limit: usize, heal: usize) -> Outcome {
    let (system, first) = System::begin(setup);
    let mut search = Search { system, states: Vec::new(), parents: Vec::new(), table: HashTable::new() };
    search.add(&first, (0, 0));
    let (mut at, mut answered, mut last, mut violation) = (0, 0, Vec::new(), None);
    'search: while at < search.states.len() && search.states.len() < limit {
        let state = search.state(at as u32);
        let mut moved = false;
        for (number, step) in search.system.moves(&state).iter().enumerate() {
            let next = search.system.after(&state, step);
            if !search.add(&next, (at as u32, number as u8)) {
                continue;
            }
            moved = true;
            answered = answered.max(properties::answered(&search.system.space, &next));
            if let Err(broken) = properties::check(&search.system.space, &state, &next) {
                violation = Some(format!("{broken}\n{}", search.trace(search.states.len() as u32 - 1)));
                break 'search;
            }
        }
        if !moved || at.is_power_of_two() {
            last.push(at as u32);
        }
        at += 1;
    }
    let every = (last.len() / heal.max(1)).max(1);
    let mut healed = 0;
    for from in last.iter().step_by(every).filter(|_| violation.is_none()) {
        let mut state = search.state(*from);
        (0..8).for_each(|_| search.system.calm(&mut state));
        healed += 1;
        if let Err(broken) = properties::check_healed(&search.system.space, &state) {
            violation = Some(format!("after healing: {broken}\n{}", search.trace(*from)));
            break;
        }
    }
    Outcome {
        states: search.states.len(),
        locals: search.system.space.locals.len(),
        exhausted: at == search.states.len(),
        violation,
        answered,
        healed,
    }
}
