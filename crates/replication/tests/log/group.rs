//! A group of members whose messages wait until the test lets them pass.

use anabranch_replication::Mutants;
use anabranch_replication::log::{Application, Change, Log, Message, Port, Recovering};
use protocol::Durability;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::{Incarnation, Instant, Malformed, Reader, Rng, Wire};

/// The entries applied, by index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied(pub BTreeMap<u64, Vec<u8>>);

impl Application for Applied {
    fn apply(&mut self, index: u64, entry: &[u8]) {
        self.0.insert(index, entry.to_vec());
    }

    /// Seven entries a piece.
    fn save(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        let mut rest = self.0.range(cursor..);
        for (index, entry) in rest.by_ref().take(7) {
            index.encode(chunk);
            types::put_bytes(chunk, entry);
        }
        rest.next().map(|(index, _)| *index)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn restore(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut input = Reader::new(chunk);
        while !input.is_empty() {
            let index = u64::decode(&mut input)?;
            self.0.insert(index, input.bytes()?.to_vec());
        }
        Ok(())
    }
}

/// What a member sends and writes.
#[derive(Default)]
struct Wires {
    sent: Vec<(usize, Message)>,
    /// The same, of what waits for no disk.
    sent_now: Vec<(usize, Message)>,
    records: Vec<(Vec<u8>, Option<Durability>)>,
}

impl Port for Wires {
    fn send(&mut self, member: usize, message: Message) {
        self.sent.push((member, message));
    }

    fn send_now(&mut self, member: usize, message: Message) {
        self.sent_now.push((member, message));
    }

    fn persist(&mut self, change: &Change<'_>, class: Option<Durability>) {
        let mut bytes = Vec::new();
        change.encode(&mut bytes);
        self.records.push((bytes, class));
    }
}

pub struct Member {
    pub log: Log,
    pub applied: Applied,
    /// What a quorum confirmed.
    pub confirmed: Vec<u64>,
    /// Every record, and whether it is synced at once.
    records: Vec<(Vec<u8>, bool)>,
    life: u32,
    mutants: Mutants,
}

pub struct Group {
    pub members: Vec<Member>,
    pub cut: BTreeSet<usize>,
    /// Whose disk takes for ever, and what waits for it.
    pub slow: BTreeSet<usize>,
    gated: Vec<(usize, usize, Message)>,
    now: Instant,
    random: Rng,
    queue: VecDeque<(usize, usize, Message)>,
}

impl Group {
    pub fn new(members: usize, mutants: Mutants) -> Self {
        let member = |me| Member {
            log: Log::new(me, members).with_mutants(mutants),
            applied: Applied::default(),
            confirmed: Vec::new(),
            records: Vec::new(),
            life: 1,
            mutants,
        };
        let mut group = Group {
            members: (0..members).map(member).collect(),
            cut: BTreeSet::new(),
            slow: BTreeSet::new(),
            gated: Vec::new(),
            now: Instant(0),
            random: Rng::with_seed(7),
            queue: VecDeque::new(),
        };
        for me in 0..members {
            group.with(me, |member, port, _| member.log.recovered(Incarnation(1), true, port));
        }
        group
    }

    /// Lets a member react, and everything that is due because of it.
    fn with(&mut self, me: usize, react: impl FnOnce(&mut Member, &mut Wires, Instant)) {
        let mut wires = Wires::default();
        let member = &mut self.members[me];
        react(member, &mut wires, self.now);
        let news = member.log.settle(self.now, &mut member.applied, &mut wires);
        member.confirmed.extend(news.confirmed);
        for (bytes, class) in wires.records {
            member.records.push((bytes, class == Some(Durability::Synced)));
        }
        self.queue.extend(wires.sent_now.into_iter().map(|(to, message)| (me, to, message)));
        let gated = wires.sent.into_iter().map(|(to, message)| (me, to, message));
        if self.slow.contains(&me) { self.gated.extend(gated) } else { self.queue.extend(gated) }
    }

    /// The slow disks are done.
    pub fn catch_up(&mut self) {
        self.slow.clear();
        self.queue.extend(std::mem::take(&mut self.gated));
        self.deliver();
    }

    /// Delivers everything that is on its way, and what comes of it.
    pub fn deliver(&mut self) {
        self.deliver_until(|_| false);
    }

    /// The same until this is so; what is on its way then is lost.
    fn deliver_until(&mut self, is_enough: impl Fn(&[Member]) -> bool) {
        while let Some((from, to, message)) = self.queue.pop_front() {
            if is_enough(&self.members) {
                return self.queue.clear();
            }
            if self.cut.contains(&from) || self.cut.contains(&to) {
                continue;
            }
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let message = Message::decode(&mut Reader::new(&bytes)).expect("a message");
            self.with(to, |member, port, now| {
                member.log.on_message(now, from, message, &mut member.applied, port);
            });
        }
    }

    /// Lets so many ticks pass at every member.
    pub fn pass(&mut self, ticks: usize) {
        for _ in 0..ticks {
            self.now = self.now + Duration::from_millis(50);
            for me in 0..self.members.len() {
                // A slow pace skips every other tick.
                let slow = self.members[me].log.pace(Duration::from_millis(50), &mut self.random);
                if self.random.u64(0..=slow.as_millis() as u64) <= 50 {
                    self.with(me, |member, port, now| member.log.tick(now, port));
                }
            }
            self.deliver();
        }
    }

    /// The member that serves in the highest term, if there is one that is not cut off.
    pub fn leader(&self) -> Option<usize> {
        let serving = |me: &usize| Some((self.members[*me].log.serving()?, *me));
        let members = (0..self.members.len()).filter(|me| !self.cut.contains(me));
        members.filter_map(|me| serving(&me)).max().map(|(_, me)| me)
    }

    /// Lets time pass until somebody leads.
    pub fn elect(&mut self) -> usize {
        for _ in 0..400 {
            self.pass(1);
            if let Some(leader) = self.leader() {
                return leader;
            }
        }
        panic!("nobody leads after 400 ticks");
    }

    pub fn propose(&mut self, leader: usize, entry: &[u8]) {
        let entry = entry.to_vec();
        self.with(leader, |member, _, _| assert!(member.log.propose(entry).is_some()));
        self.deliver();
    }

    /// The same, and the leader says to nobody that it is committed before the next tick.
    pub fn propose_silently(&mut self, leader: usize, entry: &[u8]) {
        let (owned, before) = (entry.to_vec(), self.members[leader].applied.0.len());
        self.with(leader, |member, _, _| assert!(member.log.propose(owned).is_some()));
        self.deliver_until(|members| members[leader].applied.0.len() > before);
    }

    /// Proposes entries in one step, and delivers them; returns how many messages leave in that step.
    pub fn propose_together(&mut self, leader: usize, entries: &[Vec<u8>]) -> usize {
        self.deliver();
        self.with(leader, |member, _, _| {
            entries.iter().for_each(|entry| assert!(member.log.propose(entry.clone()).is_some()));
        });
        let sent = self.queue.len();
        self.deliver();
        sent
    }

    /// Asks in one step whether the leader still leads, and delivers that; returns how many messages leave in that step.
    pub fn confirm_together(&mut self, leader: usize, contexts: &[u64]) -> usize {
        self.deliver();
        self.with(leader, |member, _, _| contexts.iter().for_each(|context| member.log.confirm(*context)));
        let sent = self.queue.len();
        self.deliver();
        sent
    }

    /// Starts a member again; without `complete`, what was written since the last synced record is lost.
    pub fn restart(&mut self, me: usize, complete: bool) {
        let count = self.members.len();
        let member = &mut self.members[me];
        if !complete {
            let synced = member.records.iter().rposition(|(_, synced)| *synced).map_or(0, |last| last + 1);
            member.records.truncate(synced);
        }
        member.log = Log::new(me, count).with_mutants(member.mutants);
        member.applied = Applied::default();
        member.life += 1;
        for (record, _) in &member.records {
            let change = Recovering::decode(&mut Reader::new(record)).expect("a record");
            member.log.recover(change, &mut member.applied).expect("a record");
        }
        let life = Incarnation(member.life);
        self.with(me, |member, port, _| member.log.recovered(life, complete, port));
        self.deliver();
    }
}
