//! Eligibility to vote: which lives have forgotten state, and what such a member must regain before it votes
//! (Corrections 67).

use super::message::{Message, Raft};
use super::{Port, id, member};
use raft::eraftpb::{Message as RaftMessage, MessageType};
use std::collections::BTreeMap;
use types::Incarnation;

/// What a member knows of lives.
#[derive(Debug)]
pub(super) struct VoteEligibility {
    /// By member: the life in which it last forgot; 0 for one that never has.
    lives: Vec<Incarnation>,
    regained: bool,
    /// The answers of others to this life: term and, of one that leads, last entry.
    answers: BTreeMap<usize, (u64, Option<u64>)>,
    /// What must be committed here before it counts again.
    point: Option<u64>,
}

impl VoteEligibility {
    pub(super) fn new(members: usize) -> Self {
        let lives = vec![Incarnation(0); members];
        VoteEligibility { lives, regained: true, answers: BTreeMap::new(), point: None }
    }

    pub(super) fn recover(&mut self, me: usize, life: Incarnation, regained: bool) {
        self.lives[me] = life;
        self.regained = regained;
    }

    pub(super) fn forget(&mut self, me: usize, life: Incarnation) {
        self.recover(me, life, false);
    }

    /// The life in which a member last forgot.
    pub(super) fn life(&self, member: usize) -> Incarnation {
        self.lives.get(member).copied().unwrap_or(Incarnation(0))
    }

    /// True if this is news.
    pub(super) fn learn(&mut self, member: usize, life: Incarnation) -> bool {
        match self.lives.get_mut(member) {
            Some(known) if *known < life => {
                *known = life;
                true
            }
            _ => false,
        }
    }

    pub(super) fn regained(&self) -> bool {
        self.regained
    }

    /// Asks every other member what must be held.
    pub(super) fn ask(&self, me: usize, port: &mut impl Port) {
        let life = self.life(me);
        (0..self.lives.len()).filter(|other| *other != me).for_each(|other| {
            port.send(other, Message::Forgot { life });
        });
    }

    /// f+1 others have answered, and the one with the highest term leads in it: whatever this member may have
    /// acknowledged and could be missed was in that leader's log when it answered, or was not committed.
    pub(super) fn answer(&mut self, me: usize, from: usize, life: Incarnation, term: u64, last: Option<u64>) {
        if self.regained || life != self.life(me) || self.point.is_some() {
            return;
        }
        self.answers.insert(from, (term, last));
        if self.answers.len() > self.lives.len() / 2 {
            self.point = self.answers.values().max().and_then(|(_, last)| *last);
        }
    }

    /// True once, when everything requested is committed here.
    pub(super) fn regain(&mut self, committed: u64) -> bool {
        let regains = !self.regained && self.point.is_some_and(|point| committed >= point);
        if regains {
            self.regained = true;
            self.answers.clear();
        }
        regains
    }

    /// Sends a message of the library with the lives it counts for: at once what asks or says who leads. A heartbeat that
    /// `tells` what is committed does so behind the gate, besides.
    pub(super) fn send(&self, me: usize, mut message: RaftMessage, tells: bool, port: &mut impl Port) {
        if message.to == 0 || message.to == id(me) {
            return;
        }
        let to = member(message.to);
        let (own, yours) = (self.life(me), self.life(to));
        let with_lives = |message| Message::Raft { own, yours, message: Raft(message) };
        let is_heartbeat = message.msg_type == MessageType::MsgHeartbeat;
        if !self.regained || !(is_heartbeat || message.msg_type == MessageType::MsgHeartbeatResponse) {
            return port.send(to, with_lives(message));
        }
        if is_heartbeat {
            if tells {
                port.send(to, with_lives(RaftMessage { context: Default::default(), ..message.clone() }));
            }
            message.commit = 0;
        }
        port.send_now(to, with_lives(message));
    }
}
