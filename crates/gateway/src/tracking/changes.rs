//! What connections write is told to those who have read it, when it has been answered.
//!
//! Whatever the answer is: a write that failed, or whose outcome nobody knows, is told as well, and so is a transaction that
//! was given up, as what its own session has read in it was never there. To be told in vain costs a read.

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
    /// A request is about to be sent: what it may change is told when it is done, if anybody reads with tracking.
    #[inline]
    pub(crate) fn touch(&mut self, keyspace: KeyspaceId, request: &Request<'_>) {
        match self.host.is_tracked() {
            true => self.connection.touched.extend(touched(keyspace, request)),
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
    /// True if there may be something to tell, or to be told.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        self.wrote_untracked
            || !self.touched.is_empty()
            || !self.invalid.is_empty()
            || self.session.tracking.is_some()
    }

    /// What it has written, or may have, comes to an end.
    fn take_touched(&mut self, is_tracked: bool) -> Vec<Touched> {
        let mut touched = std::mem::take(&mut self.touched);
        // Somebody is tracked since a request of it was sent.
        if std::mem::take(&mut self.wrote_untracked) && is_tracked {
            touched.push(Touched::All(self.session.keyspace));
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }
}

impl Gateway {
    /// See [`Engine::tell_changes`].
    pub(crate) fn tell_changes(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        let is_done =
            matches!(connection.activity, Activity::Idle | Activity::Held { .. } | Activity::Blocked(_));
        if !is_done || matches!(connection.session.mode, Mode::Interactive { .. }) {
            return;
        }
        let touched = connection.take_touched(host.is_tracked());
        if !touched.is_empty() {
            self.spread_changes(touched, Some(&mut *connection), host);
        }
        if let Some(tracking) = &mut connection.session.tracking
            && let Some(pushed) = tracking.take_inside()
        {
            connection.invalid.push(pushed);
        }
        self.send_invalid(connection, host);
        if !self.handed_over.is_empty() {
            self.take_handed_over(connection, host);
        }
    }

    /// The client is gone: what it has asked for may happen yet, and is told when that is known.
    pub(crate) fn leave_changes(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        let is_tracked = host.is_tracked();
        let touched = connection.take_touched(is_tracked);
        if !is_tracked || touched.is_empty() {
            return;
        }
        if let Some(awaited) = connection.activity.last_awaited() {
            self.left.insert(awaited, touched.clone());
        }
        self.spread_changes(touched, None, host);
    }

    /// The reply to what a client had asked for that is gone has come. False if it is another one.
    pub(crate) fn tell_left(&mut self, number: u64, host: &mut dyn Host) -> bool {
        let Some(touched) = self.left.remove(&number) else { return false };
        self.mailbox.take(number);
        self.spread_changes(touched, None, host);
        true
    }

    /// Tells everybody what has changed; `own` is the connection that has changed it.
    fn spread_changes(
        &mut self,
        touched: Vec<Touched>,
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        let mut all: Vec<Changes> = Vec::new();
        for touched in touched {
            let (Touched::Key(keyspace, _) | Touched::All(keyspace)) = &touched;
            let keyspace = *keyspace;
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
            self.apply_changes(&changes, own.as_deref_mut(), host);
            self.tell_elsewhere(&changes, host);
            host.tell(Audience::Here, News::Changed { worker: self.config.worker, number: 0, changes });
        }
    }

    /// Something has changed, as this gateway's clients may see by now: tells those that have read it.
    pub(crate) fn apply_changes(
        &mut self,
        changes: &Changes,
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
            changes
                .keys
                .iter()
                .for_each(|key| self.key_changed(changes.keyspace, key, own.as_deref_mut(), host));
            self.broadcast((changes.keyspace, &changes.keys), own, host);
        }
        self.note_tracking(host);
    }

    /// Tells all tracked clients that anything may have changed.
    pub(crate) fn invalidate_all(&mut self, mut own: Option<&mut Connection>, host: &mut dyn Host) {
        self.changes += 1;
        // FLUSHALL empties one keyspace after the other.
        if std::mem::replace(&mut self.told_all_in, self.turn) == self.turn && !self.table.has_keys() {
            return;
        }
        self.table.forget_all();
        for id in self.table.clients() {
            self.invalidate(id, Pushed::All, own.as_deref_mut(), host);
        }
    }

    /// A key has changed: who has read it is told. Who has changed it itself stays in the table if it is not told.
    fn key_changed(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        let keeps = own.as_deref().filter(|own| own.is_quiet()).map(|own| own.id);
        for id in self.table.forget(keyspace, key, keeps) {
            if self.is_told_of_reads(id, own.as_deref()) {
                self.invalidate(id, Pushed::Keys(vec![key.into()]), own.as_deref_mut(), host);
            }
        }
    }

    /// A key has expired, or there are too many: who has read it is told, whatever else it is told.
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

    /// True if the connection is told of what it has read only.
    fn is_told_of_reads(&self, id: ConnectionId, own: Option<&Connection>) -> bool {
        let connection = own.filter(|own| own.id == id).or_else(|| self.connection(id));
        let tracking = connection.and_then(|connection| connection.session.tracking.as_ref());
        tracking.is_some_and(|tracking| !tracking.broadcast)
    }

    /// Tells those of keys that have chosen their prefixes.
    fn broadcast(
        &mut self,
        (keyspace, keys): (KeyspaceId, &[Box<[u8]>]),
        mut own: Option<&mut Connection>,
        host: &mut dyn Host,
    ) {
        for id in self.table.broadcast() {
            let its = own.as_deref().filter(|own| own.id == id).or_else(|| self.connection(id));
            let Some(its) = its.filter(|its| may_choose(&its.session.user, keyspace, &*host)) else {
                continue;
            };
            if own.as_deref().is_some_and(|own| own.id == id && own.is_quiet()) {
                continue;
            }
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
    /// True if it is not told of what it changes itself.
    fn is_quiet(&self) -> bool {
        self.session.tracking.as_ref().is_some_and(|tracking| tracking.no_loop)
    }
}
