//! What happens when the network is good again: nothing stays undecided, and the replicas agree.

use crate::model::explore::{Outcome, State};
use crate::model::host::Host;
use anabranch_strict::ir::Status;
use anabranch_strict::tapir::{Decided, Message, Node};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{Instant, NodeId, TransactionId};

/// How long a message takes.
const DELAY: Duration = Duration::from_millis(1);
/// By then everything must have ended.
const HEALED: Duration = Duration::from_secs(30);

impl Outcome {
    /// Heals some of the states in which nothing more could happen, evenly chosen, and some others; every message under way is lost.
    pub fn heal(&mut self, states: usize) -> Result<usize, String> {
        let every = (self.last.len() / states.max(1)).max(1);
        let chosen = self.last.iter().step_by(every).chain(&self.some).copied();
        let chosen: Vec<State> = chosen.collect();
        for state in &chosen {
            let hosts = state.tuple().iter().map(|local| self.space.rebuild(*local)).collect();
            self.heal_one(state, hosts)?;
        }
        Ok(chosen.len())
    }

    fn heal_one(&self, state: &State, mut hosts: Vec<Host>) -> Result<(), String> {
        let setup = &self.space.setup;
        let mut now = hosts.iter().map(|host| host.now).max().unwrap_or_default();
        let end = now + HEALED;
        let mut queue: VecDeque<(Instant, NodeId, usize, Message)> = VecDeque::new();
        loop {
            let alive = hosts.iter().enumerate().filter(|(index, _)| !setup.dies(*index));
            let timer = alive.filter_map(|(index, host)| Some((host.deadline()?.max(now), index))).min();
            let packet = queue.front().map(|(at, ..)| *at);
            let index = match (timer, packet) {
                (_, Some(at)) if timer.is_none_or(|(due, _)| at <= due) => {
                    now = at;
                    let Some((_, from, to, message)) = queue.pop_front() else { break };
                    hosts[to].now = now;
                    hosts[to].deliver(from, message);
                    to
                }
                (Some((due, index)), _) if due <= end => {
                    now = due;
                    hosts[index].now = now;
                    hosts[index].fire();
                    index
                }
                _ => break,
            };
            let from = hosts[index].id();
            for (to, message) in std::mem::take(&mut hosts[index].outbox) {
                if let Some(to) = setup.find(to).filter(|to| !setup.dies(*to)) {
                    queue.push_back((now + DELAY, from, to, message));
                }
            }
        }
        self.judge(state, &hosts)
    }

    fn judge(&self, state: &State, hosts: &[Host]) -> Result<(), String> {
        let mut ends: BTreeMap<TransactionId, bool> = BTreeMap::new();
        for (index, host) in hosts.iter().enumerate() {
            let Node::Replica(replica) = host.node() else {
                let requested = self.space.locals[state.tuple()[index] as usize].requested.count_ones();
                if !self.space.setup.dies(index) && host.replies().count() < requested as usize {
                    return Err(format!("{}: a client was never answered", host.id()));
                }
                continue;
            };
            if replica.prepared() != 0 || replica.status() != Status::Normal {
                let prepared = replica.prepared();
                return Err(format!("{}: {prepared} undecided, {:?}", host.id(), replica.status()));
            }
            for (id, decided) in replica.decided() {
                let committed = matches!(decided, Decided::Committed { .. });
                if *ends.entry(id).or_insert(committed) != committed {
                    return Err(format!("replicas disagree on {id}"));
                }
            }
        }
        for (index, reply) in hosts.iter().flat_map(Host::replies) {
            let own = |(id, _): &(&TransactionId, &bool)| {
                self.space.setup.request_of(**id) == Some(usize::from(index))
            };
            let end = ends.iter().find(own).map(|(_, committed)| *committed);
            if reply.starts_with("CONFLICT") && end == Some(true) {
                return Err(format!("request {index} was refused and committed"));
            }
        }
        Ok(())
    }
}
