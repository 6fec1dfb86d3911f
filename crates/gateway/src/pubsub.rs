//! Messages on their way: from their publishers to subscribers of this gateway, and to other gateways.
//!
//! ```text
//!   PUBLISH --> the connection's outbox --(its transaction has committed)--> own subscribers
//!                                                                       \--> Host::tell --> Gateway::hear there
//! ```
//!
//! A message is encoded once, for both versions of the protocol, and appended to the output of each subscriber: between
//! replies, behind the reply to the command that published it. A subscriber that does not read what it is sent is
//! disconnected; see [`OutputLimit`].

use crate::blocking::Woken;
use crate::engine::Engine;
use crate::gateway::{ConnectionId, Gateway};
use crate::host::{Host, Incident};
use crate::news::{Audience, Message, News, SeenContext};
use crate::notifications;
use crate::session::{Activity, Connection, Hold, Mode};
use crate::subscriptions::Topic;
use crate::task::Task;
use crate::tracking::Touched;
use protocol::{ContextRequest, Request};
use resp::{Encoder, ProtocolVersion};
use std::time::Duration;
use types::{Error, Instant, Reply, ReplyBuf, ReplySink};

/// For how long a publisher waits where subscribers of other gateways cannot keep up.
const RELIEF: Duration = Duration::from_millis(1);

/// What may wait to be sent to a subscriber: `client-output-buffer-limit pubsub`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// With more bytes it is disconnected; 0 for any number.
    pub hard: u64,
    /// With more bytes for as long as `soft_for` it is disconnected; 0 for any number.
    pub soft: u64,
    /// See `soft`.
    pub soft_for: Duration,
}

impl Default for OutputLimit {
    fn default() -> Self {
        OutputLimit { hard: 32 << 20, soft: 8 << 20, soft_for: Duration::from_secs(60) }
    }
}

/// Messages that a connection has published, until its transaction has committed.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    messages: Vec<Message>,
    bytes: usize,
}

impl Outbox {
    /// True if there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// # Errors
    /// There would be more than `most` bytes of messages.
    pub(crate) fn push(&mut self, message: Message, most: usize) -> Result<(), Error> {
        let bytes = self.bytes + message.channel.len() + message.payload.len();
        if bytes > most && !self.is_empty() {
            let text = format!(
                "the messages of a transaction exceed the limit of {most} bytes; this one is not published"
            );
            return Err(Error::err(text));
        }
        self.bytes = bytes;
        self.messages.push(message);
        Ok(())
    }

    /// Adds what tells of changes.
    pub(crate) fn extend(&mut self, messages: Vec<Message>) {
        self.messages.extend(messages);
    }

    /// Adds those of another one, which has none then.
    pub(crate) fn take_from(&mut self, other: &mut Outbox) {
        self.messages.append(&mut other.messages);
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        *self = Outbox::default();
    }
}

impl Gateway {
    /// The connection subscribes to a name.
    pub(crate) fn subscribe(
        &mut self,
        connection: &mut Connection,
        topic: Topic,
        name: &[u8],
        host: &mut dyn Host,
    ) {
        if self.subscriptions.add(topic, name, connection.id) {
            let gateway = self.config.worker;
            host.change_interest(&mut |interest| interest.change(gateway, topic, name, true));
            connection.session.subscriptions = self.subscriptions.counts(connection.id);
        }
    }

    /// The connection does not subscribe to a name any more.
    pub(crate) fn unsubscribe(
        &mut self,
        connection: &mut Connection,
        topic: Topic,
        name: &[u8],
        host: &mut dyn Host,
    ) {
        if self.subscriptions.remove(topic, name, connection.id) {
            let gateway = self.config.worker;
            host.change_interest(&mut |interest| interest.change(gateway, topic, name, false));
            connection.session.subscriptions = self.subscriptions.counts(connection.id);
        }
    }

    /// Ends all subscriptions of the connection, without a message to it.
    pub(crate) fn unsubscribe_all(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        if !connection.session.is_subscriber() {
            return;
        }
        for topic in Topic::ALL {
            for name in self.subscriptions.of(topic, connection.id) {
                self.unsubscribe(connection, topic, &name, host);
            }
        }
    }

    /// Delivers a message that was published here, to this gateway's subscribers and to all others.
    fn deliver_published<H: Host>(&mut self, message: Message, own: Option<&mut Connection>, host: &mut H) {
        let mut reached = crate::interest::Reached::default();
        let gateway = self.config.worker;
        host.interest(&mut |interest| reached = interest.reached(gateway, &message));
        if reached.own > 0 {
            self.spread(&message, own, host);
        }
        let whom = if reached.receivers > reached.own { Audience::Others } else { Audience::Elsewhere };
        host.tell(whom, News::Published { message });
    }

    /// Tells of keys that are gone though no command has deleted them: subscribers, who waits for entries of a stream, and
    /// whoever has read them.
    pub(crate) fn tell_of_lapsed<H: Host>(&mut self, mut own: Option<&mut Connection>, host: &mut H) {
        if !host.has_lapsed() {
            return;
        }
        let chosen = host.notifications();
        let mut gone = Vec::new();
        for lapsed in host.take_lapsed() {
            for message in notifications::of_lapsed(chosen, &lapsed) {
                self.deliver_published(message, own.as_deref_mut(), host);
            }
            if host.awaits_streams() {
                self.wake_for(lapsed.keyspace, &lapsed.key, Woken::STREAM, host);
            }
            gone.push(Touched::Key(lapsed.keyspace, lapsed.key));
        }
        if host.is_tracked() {
            self.spread_changes(gone, None, own, host);
        }
    }

    /// Appends the message to the output of every subscriber of this gateway; `own` is the connection that executes, which
    /// is not among the gateway's meanwhile.
    pub(crate) fn spread(
        &mut self,
        message: &Message,
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        let (limit, now) = (host.output_limit(), host.now().instant);
        let topic = Topic::of_message(message.sharded);
        let mut frame = std::mem::take(&mut self.frame);
        let subscriptions = std::mem::take(&mut self.subscriptions);
        let mut late = Vec::new();
        let kind = if message.sharded { "smessage" } else { "message" };
        let named = subscriptions.subscribers(topic, &message.channel);
        if !named.is_empty() {
            write_frame(&mut frame, kind, &[&message.channel, &message.payload]);
            self.push_to_all(named, own.as_deref_mut(), &frame, (limit, now), &mut late);
        }
        for (pattern, matching) in subscriptions.matching(&message.channel).filter(|_| !message.sharded) {
            write_frame(&mut frame, "pmessage", &[pattern, &message.channel, &message.payload]);
            self.push_to_all(matching, own.as_deref_mut(), &frame, (limit, now), &mut late);
        }
        self.subscriptions = subscriptions;
        frame.clear();
        frame.shrink_to(RETAINED_FRAME_BYTES);
        self.frame = frame;
        late.iter().for_each(|address| host.report(Incident::SlowSubscriber(address)));
    }

    fn push_to_all(
        &mut self,
        subscribers: &[ConnectionId],
        mut own: Option<&mut Connection>,
        frame: &[u8],
        (limit, now): (OutputLimit, Instant),
        late: &mut Vec<String>,
    ) {
        let turn = self.turn;
        for id in subscribers {
            let connection = match &mut own {
                Some(own) if own.id == *id => &mut **own,
                _ => match self.connection_mut(*id) {
                    Some(connection) => connection,
                    None => continue,
                },
            };
            if connection.closing {
                continue;
            }
            connection.push(frame);
            let is_first = connection.pushed_in != turn;
            connection.pushed_in = turn;
            let waits = connection.output.len() as u64;
            let is_long = connection.has_long_output(limit, now);
            if is_long {
                late.push(connection.session.peer.address.clone());
                connection.end_unsent();
            }
            if is_first || is_long {
                self.news.push(*id);
            }
            if limit.soft > 0 && waits > limit.soft && !is_long && !self.swollen.contains(id) {
                self.swollen.push(*id);
            }
        }
    }

    /// Disconnects subscribers that have had too much to read for too long.
    pub(crate) fn check_swollen(&mut self, host: &mut dyn Host) {
        let (limit, now) = (host.output_limit(), host.now().instant);
        for id in std::mem::take(&mut self.swollen) {
            let Some(connection) = self.connection_mut(id) else { continue };
            if connection.has_long_output(limit, now) {
                host.report(Incident::SlowSubscriber(&connection.session.peer.address));
                connection.end_unsent();
                self.news.push(id);
            } else if connection.long_since.is_some() {
                self.swollen.push(id);
            }
        }
    }

    /// True if the connection has subscribed to something.
    pub fn is_subscriber(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| connection.session.is_subscriber())
    }
}

/// So much memory is retained for encoded messages.
const RETAINED_FRAME_BYTES: usize = 64 * 1024;

/// Writes a message as RESP2 has it; RESP3 differs in the first byte.
fn write_frame(frame: &mut Vec<u8>, kind: &str, parts: &[&[u8]]) {
    frame.clear();
    let mut encoder = Encoder::new(frame, ProtocolVersion::Resp2);
    encoder.push(1 + parts.len());
    encoder.bulk(kind.as_bytes());
    parts.iter().for_each(|part| encoder.bulk(part));
}

impl Connection {
    /// Appends an encoded message. It tells of no keyspace: what a log refuses changes nothing of it.
    #[inline]
    pub(crate) fn push(&mut self, frame: &[u8]) {
        let start = self.output.len();
        self.output.extend_from_slice(frame);
        if self.session.version == ProtocolVersion::Resp3
            && let Some(marker) = self.output.get_mut(start)
        {
            *marker = b'>';
        }
        self.note_own_reply(start);
    }

    /// True if more waits to be sent to a subscriber than may, or has for too long.
    pub(crate) fn has_long_output(&mut self, limit: OutputLimit, now: Instant) -> bool {
        let waits = self.output.len() as u64;
        if limit.soft == 0 || waits <= limit.soft {
            self.long_since = None;
        } else {
            let since = *self.long_since.get_or_insert(now);
            if now - since > limit.soft_for {
                return true;
            }
        }
        limit.hard > 0 && waits > limit.hard
    }

    /// Ends the connection. What a subscriber, or a client that watches, has not read is not waited for.
    pub(crate) fn end(&mut self) {
        match self.session.is_subscriber() || self.session.monitoring {
            true => self.end_unsent(),
            false => self.closing = true,
        }
    }

    /// Ends the connection, and forgets what was not sent.
    pub(crate) fn end_unsent(&mut self) {
        (self.closing, self.cut) = (true, true);
        self.output = Vec::new();
        self.own_replies = Vec::new();
    }
}

impl<H: Host> Engine<'_, H> {
    /// Sends what the connection has published, unless a transaction has it that is not committed. The client has the
    /// reply of its command.
    pub(crate) fn send_published(&mut self) {
        let connection = &mut *self.connection;
        let is_open = matches!(connection.session.mode, Mode::Interactive { .. });
        if connection.outbox.is_empty() || is_open || !matches!(connection.activity, Activity::Idle) {
            return;
        }
        let outbox = std::mem::take(&mut connection.outbox);
        let keyspace = connection.session.keyspace;
        if self.gateway.without_contexts.contains(&keyspace) || !self.host.may_need_context(keyspace) {
            return self.publish(outbox.messages, None);
        }
        let session = connection.session.id();
        let id = self.send(keyspace, Request::Context { session, ask: ContextRequest::Token });
        self.finish_or_wait(id, Task::Publish(outbox.messages));
    }

    /// The keyspace has replied with the publisher's context, or that it has no contexts.
    pub(crate) fn publish_with(&mut self, messages: Vec<Message>, reply: &ReplyBuf) {
        let keyspace = self.connection.session.keyspace;
        let context = match reply.first() {
            Some(Reply::Bulk(token)) => Some(SeenContext { keyspace, token: token.into() }),
            Some(Reply::Error(error)) if error.message == ContextRequest::refusal().message => {
                self.gateway.without_contexts.insert(keyspace);
                None
            }
            _ => None,
        };
        self.publish(messages, context);
    }

    fn publish(&mut self, messages: Vec<Message>, context: Option<SeenContext>) {
        // What has expired was gone before.
        self.gateway.tell_of_lapsed(Some(&mut *self.connection), self.host);
        for mut message in messages {
            message.context.clone_from(&context);
            self.gateway.deliver_published(message, Some(&mut *self.connection), self.host);
        }
        if self.host.is_congested() && matches!(self.connection.activity, Activity::Idle) {
            let until = self.now.instant + RELIEF;
            self.connection.activity = Activity::Held { until, hold: Hold::Congestion };
        }
    }
}
