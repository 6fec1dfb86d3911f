//! What a connection does with the one reply it waits for.

use crate::blocking::Woken;
use crate::combine::{Combine, whole_error};
use crate::engine::Engine;
use crate::exec::{Exec, is_nil};
use crate::host::Host;
use crate::news::Message;
use crate::sequence::Sequence;
use crate::session::{Activity, Mode, Session};
use protocol::{Request, Step};
use types::{ErrorCode, KeyspaceId, ReplyBuf, ReplySink, RequestId};

/// See the module.
#[derive(Debug)]
pub(crate) enum Task {
    /// Pass it on, and change the session.
    Forward(After),
    /// Ignore it: the client has its reply.
    Ignore,
    /// Make one reply of the replies to the steps.
    Combine {
        /// How.
        combine: Combine,
        /// How many.
        len: usize,
    },
    /// Make EXEC's array.
    Exec(Exec),
    /// Go on with the sequence.
    Sequence(Box<Sequence>),
    /// Publish the messages with what their publisher had seen.
    Publish(Vec<Message>),
    /// Empty the next keyspace.
    FlushAll {
        /// The one that is being emptied.
        keyspace: KeyspaceId,
        /// The others.
        rest: Vec<KeyspaceId>,
    },
}

impl Task {
    /// The keyspace that it waits for.
    pub(crate) fn keyspace(&self, session: &Session) -> KeyspaceId {
        match self {
            Task::FlushAll { keyspace, .. } => *keyspace,
            _ => session.keyspace,
        }
    }
}

/// What a reply that is passed on means for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing.
    Nothing,
    /// Unless it is an error, a transaction is open.
    Began {
        /// It may not write.
        read_only: bool,
    },
    /// The transaction is over, and with it the watches.
    Ended,
    /// The transaction was given up; the keyspace still has the watches.
    Aborted,
    /// Unless it is an error, the session watches so many keys more.
    Watched(usize),
}

impl<H: Host> Engine<'_, H> {
    /// Sends a request; its reply comes into the mailbox, at once or later.
    pub(crate) fn send(&mut self, keyspace: KeyspaceId, request: Request<'_>) -> RequestId {
        let id = self.new_request();
        self.touch(keyspace, id.0, &request);
        self.note_woken(keyspace, &request);
        let mailbox = &mut self.gateway.mailbox;
        mailbox.expect(Some(id.0));
        self.host.submit(keyspace, &mut vec![(id, request)], mailbox);
        mailbox.expect(None);
        id
    }

    /// Clients may wait for what a request writes.
    pub(crate) fn note_woken(&mut self, keyspace: KeyspaceId, request: &Request<'_>) {
        let woken = Woken::keys_of(request, self.host.awaits_streams());
        self.connection.woken.extend(woken.map(|(key, what)| (keyspace, key.into(), what)));
    }

    /// Sends steps as a transaction of their own, or as part of the session's open one.
    pub(crate) fn send_steps(&mut self, steps: &[Step<'_>], in_transaction: bool) -> RequestId {
        let session = self.connection.session.id();
        let request = if in_transaction {
            Request::Operate { session, steps }
        } else {
            Request::Many { session, steps, watched: false, multi: false }
        };
        self.send(self.connection.session.keyspace, request)
    }

    /// Does the task if the reply is there, else remembers it.
    pub(crate) fn finish_or_wait(&mut self, id: RequestId, task: Task) {
        match self.gateway.mailbox.take(id.0) {
            Some(reply) => self.finish(task, reply),
            None => self.connection.activity = Activity::Task { awaiting: id.0, task },
        }
    }

    /// Does the task.
    pub(crate) fn finish(&mut self, task: Task, reply: ReplyBuf) {
        match &task {
            Task::Forward(_) | Task::Exec(_) | Task::Sequence(_) => {
                self.connection.tally.replies_on_data += 1
            }
            Task::Combine { combine, len } => {
                self.connection.tally.replies_on_data += combine.commands(*len) as u64;
            }
            Task::Ignore | Task::Publish(_) | Task::FlushAll { .. } => {}
        }
        match task {
            Task::Forward(after) => {
                let error = reply.as_error();
                // A merge that is not resolved goes on.
                let goes_on = error.as_ref().is_some_and(|error| error.code == ErrorCode::Unresolved);
                let ends = matches!(after, After::Ended | After::Aborted);
                if ends && !goes_on && (after == After::Aborted || error.is_some() || is_nil(&reply)) {
                    self.connection.outbox.clear();
                }
                if !goes_on {
                    self.apply(after, error.is_some());
                }
                reply.replay(&mut self.connection.encoder());
                if after == After::Aborted {
                    self.forget_watches();
                }
            }
            Task::Ignore => {}
            Task::Combine { combine, len } => {
                let mut encoder = self.connection.encoder();
                match whole_error(&reply, len) {
                    Some(error) => (0..combine.commands(len)).for_each(|_| encoder.error(&error)),
                    None => combine.write(len, &mut reply.elements(), &mut encoder),
                }
            }
            Task::Publish(messages) => self.publish_with(messages, &reply),
            Task::Exec(exec) => self.finish_exec(exec, &reply),
            Task::Sequence(mut sequence) => {
                if !self.on_sequence_reply(&mut sequence, reply) {
                    self.run_sequence(sequence);
                }
            }
            Task::FlushAll { rest, .. } => match whole_error(&reply, 1).or(reply.as_error()) {
                Some(error) => self.connection.encoder().error(&error),
                None => self.flush_all(rest),
            },
        }
    }

    fn apply(&mut self, after: After, failed: bool) {
        let session = &mut self.connection.session;
        match after {
            After::Began { read_only } if !failed => {
                session.mode = Mode::Interactive { read_only, rules_changed: false };
            }
            After::Ended => {
                session.mode = Mode::Plain;
                session.watching = None;
            }
            After::Watched(keys) if !failed => {
                let before = session.watching.map_or(0, |watching| watching.keys);
                session.watching =
                    Some(crate::session::Watching { keyspace: session.keyspace, keys: before + keys });
            }
            After::Aborted => session.mode = Mode::Plain,
            After::Nothing | After::Began { .. } | After::Watched(_) => {}
        }
    }

    /// Empties the keyspaces, one after the other, and replies.
    pub(crate) fn flush_all(&mut self, mut rest: Vec<KeyspaceId>) {
        while let Some(keyspace) = rest.pop() {
            let session = self.connection.session.id();
            let id = self.send(
                keyspace,
                Request::Many { session, steps: &[Step::Flush], watched: false, multi: false },
            );
            match self.gateway.mailbox.take(id.0) {
                None => {
                    let task = Task::FlushAll { keyspace, rest };
                    self.connection.activity = Activity::Task { awaiting: id.0, task };
                    return;
                }
                Some(reply) => {
                    if let Some(error) = reply.as_error() {
                        return self.connection.encoder().error(&error);
                    }
                }
            }
        }
        self.connection.encoder().simple("OK");
    }
}
