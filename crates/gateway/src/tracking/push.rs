//! What tracked clients are sent.

use crate::gateway::{ConnectionId, Gateway};
use crate::host::{Host, Incident};
use crate::news::{Audience, News};
use crate::session::{Activity, Connection};
use resp::{Encoder, ProtocolVersion};
use types::ReplySink;

/// The channel whose subscriber a redirected client is, in RESP2.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// How many messages wait for a client whose command is under way; with more, one message invalidates everything.
const MOST_WAITING: usize = 10_000;

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// These keys.
    Keys(Vec<Box<[u8]>>),
    /// Anything.
    All,
}

impl Pushed {
    fn write(&self, encoder: &mut dyn ReplySink) {
        match self {
            Pushed::All => encoder.null(),
            Pushed::Keys(keys) => {
                encoder.array(keys.len());
                keys.iter().for_each(|key| encoder.bulk(key));
            }
        }
    }

    /// The message as a client of this version gets it, if it may get it: in RESP2, subscribers only.
    fn frame(&self, version: ProtocolVersion, is_subscriber: bool) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        let mut encoder = Encoder::new(&mut frame, version);
        match version {
            ProtocolVersion::Resp3 => {
                encoder.push(2);
                encoder.bulk(b"invalidate");
            }
            ProtocolVersion::Resp2 if is_subscriber => {
                encoder.push(3);
                encoder.bulk(b"message");
                encoder.bulk(CHANNEL);
            }
            ProtocolVersion::Resp2 => return None,
        }
        self.write(&mut encoder);
        Some(frame)
    }
}

impl Connection {
    /// Queues an invalidation for it: of everything, if there are too many.
    pub(super) fn note_invalid(&mut self, pushed: Pushed) {
        if self.invalid.len() >= MOST_WAITING {
            self.invalid.clear();
            self.invalid.push(Pushed::All);
        }
        self.invalid.push(pushed);
    }
}

impl Gateway {
    /// Tells a connection what has changed: behind the reply if a command of it is under way. `own` is the connection that
    /// executes, which gets them when it has.
    pub(crate) fn invalidate(
        &mut self,
        id: ConnectionId,
        pushed: Pushed,
        own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        if let Some(own) = own
            && own.id == id
        {
            own.note_invalid(pushed);
            return;
        }
        let Some(mut connection) = self.take(id) else { return };
        connection.note_invalid(pushed);
        self.send_invalid(&mut connection, host);
        self.restore(connection);
    }

    /// Sends the invalidations of a connection, unless the reply to a read may come behind it.
    pub(crate) fn send_invalid(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        let waits = match connection.activity {
            Activity::Idle | Activity::Held { .. } | Activity::Blocked(_) => false,
            Activity::Batch { .. } | Activity::Task { .. } | Activity::Interrupted(_) => true,
        };
        if waits || connection.invalid.is_empty() {
            return;
        }
        for pushed in std::mem::take(&mut connection.invalid) {
            let Some(tracking) = &connection.session.tracking else { return };
            match tracking.redirect {
                // In RESP2 invalidations need a redirection.
                0 if connection.session.version == ProtocolVersion::Resp2 => {}
                0 => self.push_invalid(connection, &pushed, host),
                target => self.redirect(connection, target, pushed, host),
            }
        }
    }

    /// Appends it to the output of the connection that gets it.
    fn push_invalid(&mut self, connection: &mut Connection, pushed: &Pushed, host: &mut dyn Host) {
        let session = &connection.session;
        if let Some(frame) = pushed.frame(session.version, session.is_subscriber()) {
            self.push_to(connection, &frame, host);
        }
    }

    /// Appends a push message. A client that does not read is disconnected, as a subscriber is.
    fn push_to(&mut self, connection: &mut Connection, frame: &[u8], host: &mut dyn Host) {
        if connection.closing {
            return;
        }
        connection.push(frame);
        let (limit, now) = (host.output_limit(), host.now().instant);
        if connection.has_long_output(limit, now) {
            host.report(Incident::SlowSubscriber(&connection.session.peer.address));
            connection.end_unsent();
        } else if connection.long_since.is_some() && !self.swollen.contains(&connection.id) {
            self.swollen.push(connection.id);
        }
        self.tell_of(connection.id);
    }

    /// Another client gets it, wherever in the process it is.
    fn redirect(&mut self, connection: &mut Connection, target: u64, pushed: Pushed, host: &mut dyn Host) {
        if target == connection.session.peer.client {
            return self.push_invalid(connection, &pushed, host);
        }
        if self.hand_over(target, &pushed, host) {
            return;
        }
        let mut is_elsewhere = false;
        host.other_clients(&mut |client| is_elsewhere |= client.peer.client == target);
        if is_elsewhere {
            let (keys, all) = match pushed {
                Pushed::Keys(keys) => (keys, false),
                Pushed::All => (Vec::new(), true),
            };
            return host.tell(Audience::Here, News::Invalidated { client: target, keys, all });
        }
        if let Some(tracking) = &mut connection.session.tracking {
            tracking.is_broken = true;
        }
        if connection.session.version == ProtocolVersion::Resp3 {
            let mut frame = Vec::new();
            let mut encoder = Encoder::new(&mut frame, ProtocolVersion::Resp3);
            encoder.push(2);
            encoder.bulk(b"tracking-redir-broken");
            encoder.integer(target as i64);
            self.push_to(connection, &frame, host);
        }
    }

    /// Gives it to a client of this gateway. False if it is none.
    fn hand_over(&mut self, client: u64, pushed: &Pushed, host: &mut dyn Host) -> bool {
        let Some(id) = self.numbers.get(&client).copied() else { return false };
        // Who executes is not in its place; what it is sent comes behind what it does.
        let Some(mut target) = self.take(id) else {
            self.handed_over.push((id, pushed.clone()));
            return true;
        };
        self.push_invalid(&mut target, pushed, host);
        self.restore(target);
        true
    }

    /// Another gateway's client redirects its invalidations to a client that may be of this gateway.
    pub(crate) fn hear_invalidated(&mut self, client: u64, pushed: &Pushed, host: &mut dyn Host) {
        self.hand_over(client, pushed, host);
    }

    /// Gives a connection what came while it executed.
    pub(crate) fn take_handed_over(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        let (its, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.handed_over).into_iter().partition(|(id, _)| *id == connection.id);
        self.handed_over = others;
        its.iter().for_each(|(_, pushed)| self.push_invalid(connection, pushed, host));
    }

    fn restore(&mut self, connection: Box<Connection>) {
        let slot = connection.id.slot();
        self.slots[slot].connection = Some(connection);
    }
}
