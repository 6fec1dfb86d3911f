//! What a process keeps of each keyspace of the cluster.

use protocol::hosted::{Environment, Hosted, LogWork, Turn};
use protocol::{Durable, Gate};
use types::Instant;

/// See the module.
pub(super) enum Kept {
    /// Its coordinator, and the replicas that are placed here.
    Hosted(Instances),
    /// All of it, among the process's [`Locals`](crate::keyspace::Locals).
    Solo,
    /// Nothing: the process with this number keeps it by itself.
    Elsewhere(u16),
    /// Nothing: it was dropped.
    Dropped,
}

impl Kept {
    pub(super) fn hosted(&self) -> Option<&dyn Hosted> {
        self.instances().map(|instances| &*instances.hosted)
    }

    pub(super) fn instances(&self) -> Option<&Instances> {
        match self {
            Kept::Hosted(instances) => Some(instances),
            _ => None,
        }
    }

    pub(super) fn instances_mut(&mut self) -> Option<&mut Instances> {
        match self {
            Kept::Hosted(instances) => Some(instances),
            _ => None,
        }
    }

    /// See [`Instances::stir`].
    pub(super) fn stir(&mut self) -> Option<&mut dyn Hosted> {
        self.instances_mut().map(Instances::stir)
    }
}

/// A keyspace's instances, and whether there is anything to do for them: a pump passes by those that rest.
pub(super) struct Instances {
    hosted: Box<dyn Hosted>,
    is_stirred: bool,
    /// When their first timer fires.
    deadline: Option<Instant>,
    /// What they have said waits for the log.
    awaits_log: bool,
}

impl Instances {
    pub(super) fn new(hosted: Box<dyn Hosted>) -> Self {
        Instances { hosted, is_stirred: true, deadline: None, awaits_log: false }
    }

    /// To do something with them that may leave them with something to do: the next pump looks.
    pub(super) fn stir(&mut self) -> &mut dyn Hosted {
        self.is_stirred = true;
        &mut *self.hosted
    }

    /// To do something with them that leaves nothing to do.
    pub(super) fn at_rest(&mut self) -> &mut dyn Hosted {
        &mut *self.hosted
    }

    /// When they must be pumped at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.is_stirred { Some(Instant(0)) } else { self.deadline }
    }

    /// Pumps them if there is anything to do. Returns what the replies wait for.
    pub(super) fn pump(&mut self, environment: &mut dyn Environment, turn: &mut Turn<'_>) -> Gate {
        let is_due = self.deadline().is_some_and(|deadline| deadline <= turn.now.instant);
        if !is_due && !self.awaits_log {
            return Gate::OPEN;
        }
        self.hosted.pump(environment, turn);
        self.is_stirred = false;
        self.deadline = self.hosted.deadline();
        self.awaits_log = self.hosted.log_work(environment.durable()) != LogWork::default();
        self.hosted.reply_gate()
    }

    /// What the log has to do so that what waits may leave.
    pub(super) fn log_work(&self, durable: Durable) -> LogWork {
        if self.awaits_log || self.is_stirred { self.hosted.log_work(durable) } else { LogWork::default() }
    }
}
