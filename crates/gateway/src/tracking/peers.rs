//! What processes tell each other of changes, and how a gateway knows that it misses none.
//!
//! News may be lost. So gateways number the changes that they tell, and while clients of a gateway are tracked it asks all
//! others, every [`BEAT`], to tell, and they say how far they have come:
//!
//! ```text
//!   tracking gateway -- Tracks --> every gateway of other processes
//!                    <-- Tells {number} / Changed {number} --
//! ```
//!
//! A gateway announces changes for [`PROMISE`] after a request; one without a request leaves a number out when it
//! begins again. A gap, or a process that has said nothing for [`SILENCE`], and everything tracked counts as changed:
//! at once, and every [`BLIND_EVERY`] while the process is silent. So no client relies on what it has read for longer
//! than `SILENCE` and the time of a message.
//!
//! In causal keyspaces a change carries what its process has seen, and clients are notified when that is visible here
//! (the module `due`). Where that takes longer than it waits there, the keyspace counts as changed every `BLIND_EVERY`
//! until it is visible. After a gap this gateway asks the other process to announce that all has changed, with what it
//! has seen by then.

use super::Pushed;
use crate::gateway::Gateway;
use crate::host::Host;
use crate::news::{Audience, Changes, News, SeenContext};
use protocol::{ContextRequest, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Instant, KeyspaceId, ProcessId, Reply, RequestId};

/// How often a gateway with tracked clients asks for changes.
const BEAT: Duration = Duration::from_millis(250);
/// For how long a gateway reports after a request.
const PROMISE: Duration = Duration::from_secs(3);
/// A process that has said nothing for so long may tell nothing.
const SILENCE: Duration = Duration::from_millis(1500);
/// How often everything counts as changed where changes are not announced.
const BLIND_EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The number of the last change announced to other processes; 0 before the first.
    number: u64,
    /// Until when this gateway announces changes to others.
    promised_until: Instant,
    /// What each gateway of another process has said.
    heard: BTreeMap<(ProcessId, u16), Heard>,
    /// How many gateways the other processes have.
    gateways: BTreeMap<ProcessId, u16>,
    next_beat: Instant,
    next_blind: Instant,
    /// Changes that wait for what their process has seen, by the number of that reply.
    pending_contexts: BTreeMap<u64, Changes>,
    /// Reported changes that may not be visible here, by sender.
    hidden: BTreeMap<(ProcessId, KeyspaceId), Hidden>,
}

#[derive(Debug)]
struct Heard {
    number: u64,
    at: Instant,
    /// Some news was missed, and all that causal keyspaces show late is yet to be invalidated.
    has_missed: bool,
}

#[derive(Debug)]
struct Hidden {
    context: SeenContext,
    /// The reply that tells whether it is visible.
    probe: Option<u64>,
}

impl Gateway {
    /// Tells other processes of a change, if they ask for it.
    pub(crate) fn tell_elsewhere(&mut self, changes: &Changes, host: &mut dyn Host) {
        if host.now().instant > self.peers.promised_until || !host.may_need_context(changes.keyspace) {
            return;
        }
        if self.without_contexts.contains(&changes.keyspace) {
            return self.tell_numbered(changes.clone(), host);
        }
        let session = self.own_session(host);
        self.next_request += 1;
        let id = RequestId(self.next_request);
        let request = Request::Context { session, ask: ContextRequest::Token };
        host.submit(changes.keyspace, &mut vec![(id, request)], &mut self.mailbox);
        self.peers.pending_contexts.insert(id.0, changes.clone());
        if self.mailbox.has(id.0) {
            self.hear_context(id.0, host);
        }
    }

    fn tell_numbered(&mut self, changes: Changes, host: &mut dyn Host) {
        self.peers.number += 1;
        let (worker, number) = (self.config.worker, self.peers.number);
        host.tell(Audience::Elsewhere, News::Changed { worker, number, changes });
    }

    /// The context for a change has come, or the probe of one. False if it is another reply.
    pub(crate) fn hear_context(&mut self, number: u64, host: &mut dyn Host) -> bool {
        if let Some(mut changes) = self.peers.pending_contexts.remove(&number) {
            let reply = self.mailbox.take(number).unwrap_or_default();
            let keyspace = changes.keyspace;
            match reply.first() {
                Some(Reply::Bulk(token)) => {
                    changes.context = Some(SeenContext { keyspace, token: token.into() });
                }
                Some(Reply::Error(error)) if error.message == ContextRequest::refusal().message => {
                    self.without_contexts.insert(keyspace);
                }
                // It is unknown when others see it: they notice a gap in the numbers, and ask again.
                _ => {
                    self.peers.number += 1;
                    return true;
                }
            }
            self.tell_numbered(changes, host);
            return true;
        }
        let its = |(_, hidden): &(&(ProcessId, KeyspaceId), &Hidden)| hidden.probe == Some(number);
        let Some(place) = self.peers.hidden.iter().find(its).map(|(place, _)| *place) else { return false };
        let is_visible = self.mailbox.take(number).is_some_and(|reply| reply.as_error().is_none());
        if is_visible {
            self.peers.hidden.remove(&place);
        } else if let Some(hidden) = self.peers.hidden.get_mut(&place) {
            hidden.probe = None;
        }
        self.lose_track(host);
        true
    }

    /// Another gateway tells of changes: of this process, or, numbered, of another one.
    pub(crate) fn hear_changed(
        &mut self,
        from: ProcessId,
        (worker, number): (u16, u64),
        changes: &Changes,
        host: &mut dyn Host,
    ) {
        if from == host.process() {
            return self.apply_changes(changes, None, None, host);
        }
        if self.table.is_empty() {
            return;
        }
        self.hear_number(from, worker, (number.wrapping_sub(1), number), host);
        if changes.all
            && let Some(heard) = self.peers.heard.get_mut(&(from, worker))
        {
            heard.has_missed = false;
        }
        match changes.context {
            None => self.apply_changes(changes, None, None, host),
            Some(_) => self.wait_until_visible(from, changes, host),
        }
    }

    /// Another gateway had announced `before` changes when it sent this, and `after` with it.
    fn hear_number(
        &mut self,
        from: ProcessId,
        worker: u16,
        (before, after): (u64, u64),
        host: &mut dyn Host,
    ) {
        let at = host.now().instant;
        let known = self.peers.heard.insert((from, worker), Heard { number: after, at, has_missed: true });
        match known {
            Some(known) if known.number == before => {
                if let Some(heard) = self.peers.heard.get_mut(&(from, worker)) {
                    heard.has_missed = known.has_missed;
                }
            }
            _ => self.lose_track(host),
        }
    }

    /// A process has tracked clients: this gateway announces changes to it from now on, and that all has changed if it
    /// has missed some.
    pub(crate) fn hear_tracks(&mut self, from: ProcessId, missed: &[ProcessId], host: &mut dyn Host) {
        let now = host.now();
        if now.instant > self.peers.promised_until {
            // Changes in between were reported to no gateway. The first number is one that no earlier life of the
            // process had.
            self.peers.number = (self.peers.number + 1).max(now.wall.0);
        }
        self.peers.promised_until = now.instant + PROMISE;
        host.note_tracked_elsewhere(self.peers.promised_until);
        if missed.contains(&host.process()) {
            for keyspace in
                host.keyspaces().into_iter().filter(|id| host.may_need_context(*id)).collect::<Vec<_>>()
            {
                let changes = Changes { keyspace, keys: Vec::new(), all: true, context: None };
                self.tell_elsewhere(&changes, host);
            }
        }
        let (worker, gateways, number) = (self.config.worker, host.gateways(), self.peers.number);
        host.tell(Audience::Process(from), News::Tells { worker, gateways, number });
    }

    /// A gateway of another process says how far it has come.
    pub(crate) fn hear_tells(
        &mut self,
        from: ProcessId,
        (worker, gateways): (u16, u16),
        number: u64,
        host: &mut dyn Host,
    ) {
        if self.table.is_empty() {
            return;
        }
        self.peers.gateways.insert(from, gateways);
        self.hear_number(from, worker, (number, number), host);
    }

    /// What a change's process had seen was not visible here for as long as it waits.
    pub(crate) fn note_hidden(&mut self, from: ProcessId, context: SeenContext) {
        let place = (from, context.keyspace);
        self.peers.hidden.insert(place, Hidden { context, probe: None });
    }

    /// What a process had seen of a keyspace is visible here.
    pub(crate) fn note_visible(&mut self, from: ProcessId, keyspace: KeyspaceId) {
        self.peers.hidden.remove(&(from, keyspace));
    }

    /// Keys may have changed without an announcement.
    fn lose_track(&mut self, host: &mut dyn Host) {
        if self.table.relies_on_news() {
            self.invalidate_all(None, host);
            self.note_tracking(host);
        }
    }

    /// When [`Gateway::beat`] has something to do.
    pub(crate) fn next_beat(&self) -> Option<Instant> {
        (!self.table.is_empty() && self.has_peers).then_some(self.peers.next_beat)
    }

    /// Asks other gateways to report changes, and notes those that do not.
    pub(crate) fn beat(&mut self, host: &mut dyn Host) {
        if self.table.is_empty() {
            // Whoever is tracked next has missed everything.
            self.peers.heard.clear();
            self.peers.hidden.clear();
            return;
        }
        let now = host.now().instant;
        if now < self.peers.next_beat {
            return;
        }
        let others = host.other_processes();
        self.has_peers = !others.is_empty();
        self.peers.next_beat = now + BEAT;
        if others.is_empty() {
            return;
        }
        let missed: BTreeSet<ProcessId> = self
            .peers
            .heard
            .iter()
            .filter(|(_, heard)| heard.has_missed)
            .map(|((from, _), _)| *from)
            .collect();
        host.tell(Audience::Elsewhere, News::Tracks { missed: missed.into_iter().collect() });
        let is_blind =
            !self.peers.hidden.is_empty() || others.iter().any(|other| self.is_silent(*other, now));
        if is_blind && now >= self.peers.next_blind {
            self.peers.next_blind = now + BLIND_EVERY;
            self.lose_track(host);
            self.look_for_hidden(host);
        }
    }

    /// True if a process may change something without telling.
    fn is_silent(&self, process: ProcessId, now: Instant) -> bool {
        let Some(gateways) = self.peers.gateways.get(&process) else { return true };
        (0..*gateways).any(|worker| {
            self.peers.heard.get(&(process, worker)).is_none_or(|heard| now - heard.at > SILENCE)
        })
    }

    /// Asks whether what was hidden is visible by now.
    fn look_for_hidden(&mut self, host: &mut dyn Host) {
        let session = self.own_session(host);
        let mut answered = Vec::new();
        for hidden in self.peers.hidden.values_mut().filter(|hidden| hidden.probe.is_none()) {
            self.next_request += 1;
            let id = RequestId(self.next_request);
            let ask = ContextRequest::Restore { token: &hidden.context.token, timeout: BLIND_EVERY };
            let mut requests = vec![(id, Request::Context { session, ask })];
            host.submit(hidden.context.keyspace, &mut requests, &mut self.mailbox);
            hidden.probe = Some(id.0);
            if self.mailbox.has(id.0) {
                answered.push(id.0);
            }
        }
        for number in answered {
            self.hear_context(number, host);
        }
    }

    /// A keyspace is gone, and with it who would answer.
    pub(crate) fn forget_tracked(&mut self, keyspace: KeyspaceId, host: &mut dyn Host) {
        self.pending_deadlines.retain(|_, (its, _)| *its != keyspace);
        self.left.values_mut().for_each(|touched| touched.retain(|one| one.keyspace() != keyspace));
        self.left.retain(|_, touched| !touched.is_empty());
        self.peers.pending_contexts.retain(|_, changes| changes.keyspace != keyspace);
        self.peers.hidden.retain(|(_, its), _| *its != keyspace);
        let changes = Changes { keyspace, keys: Vec::new(), all: true, context: None };
        self.apply_changes(&changes, None, None, host);
    }

    /// Another gateway of the process redirects the invalidations of its own client to a client of this one.
    pub(crate) fn hear_redirected(
        &mut self,
        client: u64,
        (keys, all): (&[Box<[u8]>], bool),
        host: &mut dyn Host,
    ) {
        let pushed = if all { Pushed::All } else { Pushed::Keys(keys.to_vec()) };
        self.hear_invalidated(client, &pushed, host);
    }
}
