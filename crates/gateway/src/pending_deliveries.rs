//! Messages of other processes whose publishers had seen something of a causal keyspace: this process delivers them
//! when its sessions see that too, so that a subscriber always finds what a message refers to (Corrections 80).
//!
//! Messages of one process are delivered in its order. Each waits at most [`PATIENCE`] after its arrival: a region that
//! is cut off delays messages, and does not suppress them.

use crate::gateway::Gateway;
use crate::host::Host;
use crate::news::{Changes, Message, SeenContext};
use crate::subscriptions::Topic;
use protocol::{ContextRequest, Replies, Request};
use std::collections::VecDeque;
use std::time::Duration;
use types::{Error, Instant, KeyspaceId, ProcessId, RequestId, SessionId};

/// How long a message waits for what its publisher had seen.
const PATIENCE: Duration = Duration::from_secs(1);
/// With more bytes of messages of one process, they do not wait.
const MOST_BYTES: usize = 16 << 20;
/// Numbers of sessions that no client has; those of two gateways, and of two processes, differ.
const FIRST_SESSION: u64 = 1 << 43;

/// The messages of one process that are not delivered yet.
#[derive(Debug, Default)]
pub(crate) struct PendingDeliveries {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// The request that asks for the first one's context.
    context_request: Option<u64>,
    /// What is known to be seen here.
    seen: Option<SeenContext>,
}

#[derive(Debug)]
struct Waiting {
    delivery: Delivery,
    until: Instant,
}

/// A message to deliver.
#[derive(Debug)]
enum Delivery {
    Message(Message),
    Changes(Changes),
}

impl Delivery {
    fn context(&self) -> Option<&SeenContext> {
        match self {
            Delivery::Message(message) => message.context.as_ref(),
            Delivery::Changes(changes) => changes.context.as_ref(),
        }
    }

    fn bytes(&self) -> usize {
        let what = match self {
            Delivery::Message(message) => message.channel.len() + message.payload.len(),
            Delivery::Changes(changes) => changes.keys.iter().map(|key| 16 + key.len()).sum(),
        };
        size_of::<Waiting>() + what
    }
}

/// The session of a gateway's own requests; that of those about another process, if it has this number.
pub(crate) fn session(worker: u16, process: ProcessId) -> SessionId {
    SessionId(FIRST_SESSION | u64::from(worker) << 16 | u64::from(process.0))
}

impl PendingDeliveries {
    /// The keyspace and the number of the reply that is waited for.
    pub(crate) fn awaited(&self) -> Option<(KeyspaceId, u64)> {
        let context = self.waiting.front()?.delivery.context()?;
        Some((context.keyspace, self.context_request?))
    }

    /// When the first message is delivered at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.until)
    }
}

impl Gateway {
    /// Another gateway's client has published a message.
    pub(crate) fn hear_message(&mut self, from: ProcessId, message: &Message, host: &mut dyn Host) {
        if !self.subscriptions.has_any(Topic::of_message(message.sharded), &message.channel) {
            return;
        }
        // Sessions of this process see what others of it have seen.
        let waits = message.context.is_some() && from != host.process();
        if !waits && self.due.get(&from).is_none_or(|due| due.waiting.is_empty()) {
            return self.spread(message, None, host);
        }
        self.wait(from, Delivery::Message(message.clone()), host);
    }

    /// Another process has changed what this one's tracked clients may have read; they are notified when they can see
    /// it.
    pub(crate) fn wait_until_visible(&mut self, from: ProcessId, changes: &Changes, host: &mut dyn Host) {
        self.wait(from, Delivery::Changes(changes.clone()), host);
    }

    fn wait(&mut self, from: ProcessId, delivery: Delivery, host: &mut dyn Host) {
        let until = host.now().instant + PATIENCE;
        let due = self.due.entry(from).or_default();
        due.bytes += delivery.bytes();
        due.waiting.push_back(Waiting { delivery, until });
        self.deliver_due(from, host);
    }

    /// `is_seen` is false if it has waited for long enough.
    fn deliver_pending(&mut self, from: ProcessId, delivery: &Delivery, is_seen: bool, host: &mut dyn Host) {
        match (delivery, delivery.context()) {
            (Delivery::Message(message), _) => self.spread(message, None, host),
            (Delivery::Changes(changes), Some(context)) => {
                match is_seen {
                    true => self.note_visible(from, context.keyspace),
                    false => self.note_hidden(from, context.clone()),
                }
                self.apply_changes(changes, None, None, host);
            }
            (Delivery::Changes(changes), None) => self.apply_changes(changes, None, None, host),
        }
    }

    /// Delivers what need not wait any more of a process, and asks for what the next message waits for.
    pub(crate) fn deliver_due(&mut self, from: ProcessId, host: &mut dyn Host) {
        let now = host.now().instant;
        while let Some(mut due) = self.due.remove(&from) {
            let replied = due.context_request.and_then(|number| self.mailbox.take(number));
            let Some(first) = due.waiting.front() else {
                self.due.insert(from, due);
                return;
            };
            let is_seen = replied.as_ref().is_some_and(|reply| reply.as_error().is_none());
            let context = first.delivery.context();
            if is_seen {
                due.seen = context.cloned();
            }
            let is_seen = context.is_none() || context == due.seen.as_ref();
            let is_ready = is_seen || replied.is_some();
            if is_ready || first.until <= now || due.bytes > MOST_BYTES {
                due.context_request = None;
                if let Some(Waiting { delivery, .. }) = due.waiting.pop_front() {
                    due.bytes -= delivery.bytes();
                    self.due.insert(from, due);
                    self.deliver_pending(from, &delivery, is_seen, host);
                }
                continue;
            }
            if due.context_request.is_none()
                && let Some(SeenContext { keyspace, token }) = context
            {
                let (keyspace, timeout) = (*keyspace, first.until - now);
                let session = session(self.config.worker, from);
                self.next_request += 1;
                let id = RequestId(self.next_request);
                let ask = ContextRequest::Restore { token, timeout };
                let mut requests = vec![(id, Request::Context { session, ask })];
                host.submit(keyspace, &mut requests, &mut self.mailbox);
                due.context_request = Some(id.0);
                let is_answered = self.mailbox.has(id.0);
                self.due.insert(from, due);
                if is_answered {
                    continue;
                }
                return;
            }
            self.due.insert(from, due);
            return;
        }
    }

    /// Delivers what a reply has made ready. False if nobody has waited for it.
    pub(crate) fn deliver_awaited(&mut self, number: u64, host: &mut dyn Host) -> bool {
        let its = |(_, due): &(&ProcessId, &PendingDeliveries)| due.context_request == Some(number);
        let Some((from, _)) = self.due.iter().find(its) else { return false };
        self.deliver_due(*from, host);
        true
    }

    /// Delivers what has waited for long enough.
    pub(crate) fn deliver_late(&mut self, host: &mut dyn Host) {
        let now = host.now().instant;
        let is_late = |due: &PendingDeliveries| due.deadline().is_some_and(|until| until <= now);
        let late: Vec<ProcessId> =
            self.due.iter().filter(|(_, due)| is_late(due)).map(|(from, _)| *from).collect();
        late.into_iter().for_each(|from| self.deliver_due(from, host));
    }

    /// Nothing of this keyspace will be answered any more.
    pub(crate) fn give_up_due(&mut self, keyspace: KeyspaceId, error: &Error) {
        let awaited = self.due.values().filter_map(PendingDeliveries::awaited);
        let numbers: Vec<u64> =
            awaited.filter(|(its, _)| *its == keyspace).map(|(_, number)| number).collect();
        for number in numbers.into_iter().filter(|number| !self.mailbox.has(*number)).collect::<Vec<_>>() {
            self.mailbox.reply(RequestId(number)).error(error);
        }
    }
}
