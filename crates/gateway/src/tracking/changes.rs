//! The gateway reports writes to the readers of the keys, once the write has its reply.
//!
//! Whatever the answer is: the gateway announces a write that failed, or whose outcome nobody knows, as well, and a
//! transaction that was given up, as what its own session has read in it was never there. A needless invalidation
//! costs a read.

use super::reads::Moment;
use super::{Pushed, Touched};
use crate::acl::may_choose;
use crate::engine::Engine;
use crate::gateway::{ConnectionId, Gateway};
use crate::host::Host;
use crate::news::{Audience, Changes, News};
use crate::session::{Activity, Connection, Mode};
use protocol::{Request, Step};
use types::KeyspaceId;

impl<H: Host> Engine<'_, H> {
    /// A request is about to be sent: the gateway announces what it may change when it is done, if any client is
    /// tracked.
    #[inline]
    pub(crate) fn touch(&mut self, keyspace: KeyspaceId, number: u64, request: &Request<'_>) {
        match self.host.is_tracked() {
            true => {
                let touched = touched(keyspace, request).into_iter().map(|touched| (number, touched));
                self.connection.touched.extend(touched);
            }
            false => self.connection.wrote_untracked = true,
        }
    }

    /// Tells what the commands behind the connection have changed, and it what others have.
    #[inline]
    pub(crate) fn tell_changes(&mut self) {
        if self.connection.has_changes() || !self.gateway.handed_over.is_empty() {
            self.gateway.tell_changes(self.connection, self.host);
        }
    }
}

/// What a request may change.
fn touched(keyspace: KeyspaceId, request: &Request<'_>) -> Vec<Touched> {
    match request {
        Request::One { operation, .. } if operation.operation.is_read() => Vec::new(),
        Request::One { operation, .. } => vec![Touched::Key(keyspace, operation.key.into())],
        Request::Many { steps, .. } | Request::Operate { steps, .. } => {
            let writing = steps.iter().filter(|step| step.may_write());
            writing
                .map(|step| match step {
                    Step::Key(keyed) => Touched::Key(keyspace, keyed.key.into()),
                    _ => Touched::All(keyspace),
                })
                .collect()
        }
        Request::Own { .. } => vec![Touched::All(keyspace)],
        _ => Vec::new(),
    }
}

impl Connection {
    /// True if there may be something to announce, or to receive.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        self.wrote_untracked
            || !self.touched.is_empty()
            || !self.invalid.is_empty()
            || self.session.tracking.is_some()
    }

    /// What it has written, or may have, comes to an end.
    fn take_touched(&mut self, is_tracked: bool) -> Vec<Touched> {
        let mut touched: Vec<Touched> = self.touched.drain(..).map(|(_, touched)| touched).collect();
        // Somebody is tracked since a request of it was sent.
        if std::mem::take(&mut self.wrote_untracked) && is_tracked {
            touched.push(Touched::All(self.session.keyspace));
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// What it has written, or may have, with a reply sent while it waits for the rest of a pipeline.
    fn take_answered(&mut self) -> Vec<Touched> {
        let Activity::Batch { next, .. } = self.activity else { return Vec::new() };
        let answered = self.touched.extract_if(.., |(number, _)| *number < next);
        let mut touched: Vec<Touched> = answered.map(|(_, touched)| touched).collect();
        if self.wrote_untracked {
            touched.push(Touched::All(self.session.keyspace));
        }
        touched
    }
}

impl Gateway {
    /// See [`Engine::tell_changes`].
    pub(crate) fn tell_changes(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        if !self.handed_over.is_empty() {
            self.take_handed_over(connection, host);
        }
        let is_done =
            matches!(connection.activity, Activity::Idle | Activity::Held { .. } | Activity::Blocked(_));
        let is_open = matches!(connection.session.mode, Mode::Interactive { .. });
        if !is_done || is_open {
            if !is_open && host.is_tracked() {
                let touched = connection.take_answered();
                self.spread_own(touched, connection, host);
            }
            return self.send_invalid(connection, host);
        }
        let touched = connection.take_touched(host.is_tracked());
        self.spread_own(touched, connection, host);
        if let Some(tracking) = &mut connection.session.tracking
            && let Some(pushed) = tracking.take_inside()
        {
            connection.note_invalid(pushed);
        }
        self.send_invalid(connection, host);
        if !self.handed_over.is_empty() {
            self.take_handed_over(connection, host);
        }
    }

    /// The client is gone: its request may still take effect, and the gateway reports the change when that is known.
    pub(crate) fn leave_changes(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        // Whoever is tracked next may read what was before.
        let touched = connection.take_touched(true);
        for number in connection.activity.awaited() {
            if self.mailbox.take(number).is_none() && !touched.is_empty() {
                self.left.insert(number, touched.clone());
            }
        }
        if host.is_tracked() {
            self.spread_changes(touched, None, None, host);
        }
    }

    /// The reply to a request of a client that is gone has come. False if it is another one.
    pub(crate) fn tell_left(&mut self, number: u64, host: &mut dyn Host) -> bool {
        let Some(touched) = self.left.remove(&number) else { return false };
        self.mailbox.take(number);
        if host.is_tracked() {
            self.spread_changes(touched, None, None, host);
        }
        true
    }

    /// Tells everybody what the connection has changed.
    fn spread_own(&mut self, touched: Vec<Touched>, connection: &mut Connection, host: &mut dyn Host) {
        if !touched.is_empty() {
            let quiet = connection.is_quiet().then_some(connection.id);
            self.spread_changes(touched, quiet, Some(connection), host);
        }
    }

    /// Tells everybody what has changed. `own` is the connection that executes, `quiet` one that knows of the change
    /// and is not notified.
    pub(crate) fn spread_changes(
        &mut self,
        touched: Vec<Touched>,
        quiet: Option<ConnectionId>,
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        let mut all: Vec<Changes> = Vec::new();
        for touched in touched {
            let keyspace = touched.keyspace();
            let position = all.iter().position(|changes| changes.keyspace == keyspace).unwrap_or_else(|| {
                all.push(Changes { keyspace, keys: Vec::new(), all: false, context: None });
                all.len() - 1
            });
            match touched {
                Touched::Key(_, key) => all[position].keys.push(key),
                Touched::All(_) => all[position].all = true,
            }
        }
        for changes in all {
            self.apply_changes(&changes, quiet, own.as_deref_mut(), host);
            self.tell_elsewhere(&changes, host);
            host.tell(Audience::Here, News::Changed { worker: self.config.worker, number: 0, changes });
        }
    }

    /// Something has changed, as this gateway's clients may see by now: tells those that have read it.
    pub(crate) fn apply_changes(
        &mut self,
        changes: &Changes,
        quiet: Option<ConnectionId>,
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        self.changes += 1;
        if self.table.is_empty() {
            return;
        }
        if changes.all {
            self.invalidate_all(own, host);
        } else {
            for key in &changes.keys {
                self.key_changed((changes.keyspace, key), quiet, own.as_deref_mut(), host);
            }
            self.broadcast((changes.keyspace, &changes.keys), quiet, own, host);
        }
        self.note_tracking(host);
    }

    /// Tells all tracked clients that anything may have changed.
    pub(crate) fn invalidate_all(&mut self, mut own: Option<&mut Connection>, host: &mut dyn Host) {
        self.changes += 1;
        // FLUSHALL empties one keyspace after the other.
        if std::mem::replace(&mut self.invalidated_all_in, self.turn) == self.turn && !self.table.has_keys() {
            return;
        }
        self.table.forget_all();
        for id in self.table.clients() {
            self.invalidate(id, Pushed::All, own.as_deref_mut(), host);
        }
    }

    /// A key has changed: the gateway notifies its readers. A reader that is not notified stays in the table.
    fn key_changed(
        &mut self,
        (keyspace, key): (KeyspaceId, &[u8]),
        quiet: Option<ConnectionId>,
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        for id in self.table.forget(keyspace, key, quiet) {
            if self.follows_reads(id, own.as_deref()) {
                self.invalidate(id, Pushed::Keys(vec![key.into()]), own.as_deref_mut(), host);
            }
        }
        // Who stays may have set another deadline.
        if let Some(own) = own.filter(|own| quiet == Some(own.id))
            && self.table.has(keyspace, key)
        {
            self.ask_deadline((keyspace, key), (own, Moment::Before), host);
        }
    }

    /// A key has expired, or there are too many: the gateway notifies every reader, also those that follow prefixes.
    pub(crate) fn key_gone(
        &mut self,
        (keyspace, key): (KeyspaceId, Box<[u8]>),
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        self.changes += 1;
        for id in self.table.forget(keyspace, &key, None) {
            self.invalidate(id, Pushed::Keys(vec![key.clone()]), own.as_deref_mut(), host);
        }
    }

    /// True if the connection tracks only keys that it has read.
    fn follows_reads(&self, id: ConnectionId, own: Option<&Connection>) -> bool {
        let connection = own.filter(|own| own.id == id).or_else(|| self.connection(id));
        let tracking = connection.and_then(|connection| connection.session.tracking.as_ref());
        tracking.is_some_and(|tracking| !tracking.broadcast)
    }

    /// Tells those of keys that have chosen their prefixes.
    fn broadcast(
        &mut self,
        (keyspace, keys): (KeyspaceId, &[Box<[u8]>]),
        quiet: Option<ConnectionId>,
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        for id in self.table.broadcast() {
            let its = own.as_deref().filter(|own| own.id == id).or_else(|| self.connection(id));
            let its = its.filter(|its| quiet != Some(id) && may_choose(&its.session.user, keyspace, &*host));
            let Some(its) = its else { continue };
            let Some(tracking) = &its.session.tracking else { continue };
            let with = |prefix: &[u8]| keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
            let covered: Vec<Vec<Box<[u8]>>> = tracking.prefixes.iter().map(|prefix| with(prefix)).collect();
            for keys in covered.into_iter().filter(|keys| !keys.is_empty()) {
                self.invalidate(id, Pushed::Keys(keys), own.as_deref_mut(), host);
            }
        }
    }

    /// Shows how much there is to `INFO`, and whether anybody is tracked to all gateways.
    pub(crate) fn note_tracking(&mut self, host: &mut dyn Host) {
        host.note_tracking(self.table.figures());
    }
}

impl Connection {
    /// True if it gets no invalidations of its own writes.
    fn is_quiet(&self) -> bool {
        self.session.tracking.as_ref().is_some_and(|tracking| tracking.no_loop)
    }
}
