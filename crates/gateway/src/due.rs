//! Messages of other processes whose publishers had seen something of a causal keyspace: they are delivered when the
//! sessions of this process see that too, so that a subscriber never looks in vain for what it was told of (Corrections 80).
//!
//! Messages of one process are delivered in its order. Each waits at most [`PATIENCE`] from when it came: a region that is
//! cut off delays what others tell, and does not silence it.

use crate::gateway::Gateway;
use crate::host::Host;
use crate::news::{Message, SeenContext};
use crate::subscriptions::Topic;
use protocol::{ContextAsk, Replies, Request};
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
pub(crate) struct Due {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// The request that asks for the first one's context.
    asked: Option<u64>,
    /// What is known to be seen here.
    seen: Option<SeenContext>,
}

#[derive(Debug)]
struct Waiting {
    message: Message,
    until: Instant,
}

impl Due {
    /// The keyspace and the number of the reply that is waited for.
    pub(crate) fn awaited(&self) -> Option<(KeyspaceId, u64)> {
        let context = self.waiting.front()?.message.context.as_ref()?;
        Some((context.keyspace, self.asked?))
    }

    /// When the first message is delivered at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.until)
    }
}

fn bytes_of(message: &Message) -> usize {
    size_of::<Waiting>() + message.channel.len() + message.payload.len()
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
        let until = host.now().instant + PATIENCE;
        let due = self.due.entry(from).or_default();
        due.bytes += bytes_of(message);
        due.waiting.push_back(Waiting { message: message.clone(), until });
        self.deliver_due(from, host);
    }

    /// Delivers what need not wait any more of a process, and asks for what the next message waits for.
    pub(crate) fn deliver_due(&mut self, from: ProcessId, host: &mut dyn Host) {
        let now = host.now().instant;
        while let Some(mut due) = self.due.remove(&from) {
            let replied = due.asked.and_then(|number| self.mailbox.take(number));
            let Some(first) = due.waiting.front() else {
                self.due.insert(from, due);
                return;
            };
            let is_seen = replied.as_ref().is_some_and(|reply| reply.as_error().is_none());
            let context = first.message.context.as_ref();
            if is_seen {
                due.seen = context.cloned();
            }
            let is_ready = context.is_none() || context == due.seen.as_ref() || replied.is_some();
            if is_ready || first.until <= now || due.bytes > MOST_BYTES {
                due.asked = None;
                if let Some(Waiting { message, .. }) = due.waiting.pop_front() {
                    due.bytes -= bytes_of(&message);
                    self.due.insert(from, due);
                    self.spread(&message, None, host);
                }
                continue;
            }
            if due.asked.is_none()
                && let Some(SeenContext { keyspace, token }) = context
            {
                let (keyspace, timeout) = (*keyspace, first.until - now);
                let session =
                    SessionId(FIRST_SESSION | u64::from(self.config.worker) << 16 | u64::from(from.0));
                self.next_request += 1;
                let id = RequestId(self.next_request);
                let ask = ContextAsk::Restore { token, timeout };
                let mut requests = vec![(id, Request::Context { session, ask })];
                host.submit(keyspace, &mut requests, &mut self.mailbox);
                due.asked = Some(id.0);
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
        let its = |(_, due): &(&ProcessId, &Due)| due.asked == Some(number);
        let Some((from, _)) = self.due.iter().find(its) else { return false };
        self.deliver_due(*from, host);
        true
    }

    /// Delivers what has waited for long enough.
    pub(crate) fn deliver_late(&mut self, host: &mut dyn Host) {
        let now = host.now().instant;
        let is_late = |due: &Due| due.deadline().is_some_and(|until| until <= now);
        let late: Vec<ProcessId> =
            self.due.iter().filter(|(_, due)| is_late(due)).map(|(from, _)| *from).collect();
        late.into_iter().for_each(|from| self.deliver_due(from, host));
    }

    /// Nothing of this keyspace will be answered any more.
    pub(crate) fn give_up_due(&mut self, keyspace: KeyspaceId, error: &Error) {
        let awaited = self.due.values().filter_map(Due::awaited);
        let numbers: Vec<u64> =
            awaited.filter(|(its, _)| *its == keyspace).map(|(_, number)| number).collect();
        for number in numbers.into_iter().filter(|number| !self.mailbox.has(*number)).collect::<Vec<_>>() {
            self.mailbox.reply(RequestId(number)).error(error);
        }
    }
}
