//! What tracked clients read enters the table, before it is read; so does when it expires.
//!
//! No write announces that a deadline passes. So the gateway reads the deadline of a key that enters the table, in the
//! client's session, before the command that reads the key: a write announces every later deadline.

use super::Pushed;
use crate::engine::Engine;
use crate::gateway::Gateway;
use crate::host::Host;
use crate::plan::Call;
use crate::session::{Connection, Mode};
use crate::table::{Handler, flag};
use datatypes::key::{self, TimeFormat};
use datatypes::{Operation, dict};
use protocol::{KeyedOperation, Now, Request};
use types::{Instant, KeyspaceId, Reply, ReplyBuf, RequestId, SessionId};

/// How long after a deadline the key is invalidated, in milliseconds: a client that reads then must find the key gone,
/// and workers take the time once a turn.
const CLOCK_SKEW_MS: u64 = 5;

/// When in a command keys enter the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before its first request.
    Before,
    /// Within a transaction, which may see what was before it began; and how many changes this gateway had heard of then.
    Within(u64),
}

impl<H: Host> Engine<'_, H> {
    /// A command is about to be submitted: remembers the keys that it reads, if the client is tracked.
    #[inline]
    pub(crate) fn remember(&mut self, call: &Call<'_>, moment: Moment) {
        if self.connection.session.tracking.is_some() {
            self.remember_keys(call, moment);
        }
    }

    fn remember_keys(&mut self, call: &Call<'_>, moment: Moment) {
        let command = call.command;
        if command.is(flag::WRITE) || !matches!(command.handler, Handler::Data(_)) {
            return;
        }
        let (id, keyspace) = (self.connection.id, self.connection.session.keyspace);
        let is_inside = matches!(self.connection.session.mode, Mode::Interactive { .. });
        for index in command.key_indices(call.arguments) {
            let key = call.bytes(index);
            let Some(tracking) = &mut self.connection.session.tracking else { return };
            let is_covered = tracking.broadcast && tracking.covers(key);
            if !is_covered && !tracking.remembers() {
                continue;
            }
            if is_inside {
                tracking.note_inside(key);
                continue;
            }
            if self.gateway.table.remember(keyspace, key, id) {
                self.gateway.ask_deadline((keyspace, key), (self.connection, moment), self.host);
            }
            // It may have changed since the transaction began that reads it.
            if let Moment::Within(changes) = moment
                && changes != self.gateway.changes
            {
                self.connection.note_invalid(Pushed::Keys(vec![key.into()]));
            }
        }
        let most = self.host.most_tracked_keys();
        while let Some(place) = self.gateway.table.surplus(most) {
            self.gateway.key_gone(place, Some(&mut *self.connection), self.host);
        }
        self.gateway.note_tracking(self.host);
    }
}

/// The earliest time of those that a reply tells, in milliseconds since 1970.
fn earliest(reply: &ReplyBuf) -> Option<u64> {
    let times = reply.elements().filter_map(|element| match element {
        Reply::Integer(at) => u64::try_from(at).ok(),
        _ => None,
    });
    times.min()
}

impl Gateway {
    /// Asks when a key expires, or the first field of it.
    pub(super) fn ask_deadline(
        &mut self,
        (keyspace, key): (KeyspaceId, &[u8]),
        (connection, moment): (&Connection, Moment),
        host: &mut dyn Host,
    ) {
        let session = match moment {
            Moment::Before => connection.session.id(),
            // Its own is in the transaction.
            Moment::Within(_) => self.own_session(host),
        };
        let hash = self.config.hash_seed.hash(key);
        let deadline_reads = [
            Operation::Key(key::Operation::Deadline(TimeFormat::MillisAt)),
            Operation::Dict(dict::Operation::FirstDeadline),
        ];
        for operation in deadline_reads {
            let operation = KeyedOperation { key, hash, operation, blind: false };
            self.next_request += 1;
            let id = RequestId(self.next_request);
            host.submit(keyspace, &mut vec![(id, Request::One { session, operation })], &mut self.mailbox);
            match self.mailbox.take(id.0) {
                Some(reply) => self.set_deadline(keyspace, key, &reply, host.now()),
                None => drop(self.pending_deadlines.insert(id.0, (keyspace, key.into()))),
            }
        }
    }

    /// A session of this gateway that no client has.
    pub(crate) fn own_session(&self, host: &dyn Host) -> SessionId {
        crate::pending_deliveries::session(self.config.worker, host.process())
    }

    fn set_deadline(&mut self, keyspace: KeyspaceId, key: &[u8], reply: &ReplyBuf, now: Now) {
        if let Some(at_millis) = earliest(reply) {
            self.table.set_deadline(keyspace, key, at_millis);
            self.plan_expiry(now);
        }
    }

    /// A requested deadline has come. False if it is another reply.
    pub(crate) fn hear_deadline(&mut self, number: u64, host: &mut dyn Host) -> bool {
        let Some((keyspace, key)) = self.pending_deadlines.remove(&number) else { return false };
        if let Some(reply) = self.mailbox.take(number) {
            if reply.as_error().is_some_and(|error| error.code != types::ErrorCode::WrongType) {
                // Nobody knows when it expires.
                self.key_gone((keyspace, key), None, host);
            } else {
                self.set_deadline(keyspace, &key, &reply, host.now());
            }
        }
        true
    }

    /// When to look for keys that have expired.
    fn plan_expiry(&mut self, now: Now) {
        let due = self.table.next_deadline().map(|at| at.saturating_add(CLOCK_SKEW_MS + 1));
        let wait = due.map(|at| at.saturating_sub(now.wall.as_millis()));
        self.expires_at =
            wait.map(|millis| Instant(now.instant.0.saturating_add(millis.saturating_mul(1000))));
    }

    /// Tells of keys that have expired.
    pub(crate) fn tell_expired(&mut self, host: &mut dyn Host) {
        let now = host.now();
        if self.expires_at.is_none_or(|at| at > now.instant) {
            return;
        }
        let until_ms = now.wall.as_millis().saturating_sub(CLOCK_SKEW_MS);
        while let Some(place) = self.table.expired(until_ms) {
            self.key_gone(place, None, host);
        }
        self.plan_expiry(now);
        self.note_tracking(host);
    }
}
