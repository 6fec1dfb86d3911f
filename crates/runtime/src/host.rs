//! What surrounds a worker's gateway.

use crate::cluster::{self, HotKeysQuestion};
use crate::info;
use crate::keyspace::Keyspace;
use crate::process::{Process, WorkerHandle};
use crate::routed::Routed;
use crate::solo::{Outcome, SoloCall};
use crate::user_types::{self, StoredType};
use gateway::{Administration, ClientFilter, ClientInfo, Host, Safety};
use protocol::hosted::Turn;
use protocol::{Now, Replies, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::{Error, KeyspaceId, ReplySink, RequestId, Rng};

/// See [`Host`].
pub(crate) struct WorkerHost {
    pub(crate) process: Arc<Process>,
    pub(crate) me: Arc<WorkerHandle>,
    /// The worker's number.
    pub(crate) worker: u16,
    /// The keyspaces that the process keeps by itself, as of the last time that this worker looked.
    pub(crate) keyspaces: Arc<Vec<Arc<Keyspace>>>,
    pub(crate) now: Now,
    pub(crate) random: Rng,
    /// What the replies written since the last `take_outcome` wait for.
    pub(crate) outcome: Outcome,
    /// The cluster is to be pumped before this turn ends.
    pub(crate) stirred: bool,
}

impl WorkerHost {
    pub(crate) fn new(process: Arc<Process>, me: Arc<WorkerHandle>, worker: u16) -> Self {
        let (keyspaces, now) = (process.keyspaces(), process.now());
        let outcome = Outcome::NOTHING;
        WorkerHost { process, me, worker, keyspaces, now, random: Rng::new(), outcome, stirred: false }
    }

    /// A new turn of the loop begins.
    pub(crate) fn turn(&mut self) {
        self.now = self.process.now();
    }

    pub(crate) fn take_outcome(&mut self) -> Outcome {
        std::mem::replace(&mut self.outcome, Outcome::NOTHING)
    }

    /// The keyspace, if the process keeps it by itself.
    fn keyspace(&mut self, id: KeyspaceId) -> Option<Arc<Keyspace>> {
        if let Some(keyspace) = find(&self.keyspaces, id)
            && !keyspace.dropped.load(Ordering::Acquire)
        {
            return Some(Arc::clone(keyspace));
        }
        // Another worker may have created or dropped it.
        self.keyspaces = self.process.keyspaces();
        find(&self.keyspaces, id).cloned()
    }

    fn submit_to_cluster(
        &mut self,
        keyspace: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        replies: &mut dyn Replies,
    ) {
        let mut routed = Routed::new(self.worker, replies);
        let mut cluster = self.process.cluster.lock();
        // Read behind the lock, so that time does not go back from one worker to the next.
        self.now = self.process.now();
        let mut turn = Turn { now: self.now, random: &mut self.random, replies: &mut routed };
        let journal = self.process.journal.as_ref();
        let gate = cluster.submit(keyspace, requests, journal, &mut turn);
        drop(cluster);
        routed.hand_out(&self.process, gate);
        self.outcome.gate = self.outcome.gate.and(gate);
        self.stirred = true;
    }

    fn administer_now(&mut self, command: &Administration<'_>) -> Result<(), Error> {
        let process = Arc::clone(&self.process);
        let mut cluster = process.cluster.lock();
        let now = process.now();
        let outcome = match command {
            Administration::Create { name, options } => cluster.create(text(name), options, now),
            Administration::List
            | Administration::Info { .. }
            | Administration::HotKeys { .. }
            | Administration::Locate { .. } => {
                cluster.refresh(now);
                Ok(())
            }
            Administration::Place { name, partition, processes } => {
                cluster.place(name, *partition, processes, now)
            }
            Administration::Recover { .. } | Administration::LoadType { .. } => Ok(()),
            Administration::Evict { name, region } => cluster.evict(name, region, now),
            Administration::Alter { name, options } => cluster.alter(&text(name), options, now),
            Administration::Drop { name } => cluster.drop_keyspace(&text(name), now),
        };
        drop(cluster);
        self.keyspaces = process.keyspaces();
        self.stirred = true;
        outcome
    }

    /// Makes a type known that was checked.
    pub(crate) fn add_type(&mut self, new: StoredType) -> Result<(), Error> {
        self.stirred = true;
        self.process.cluster.lock().add_type(&new, self.process.now())
    }

    fn list(&self, sink: &mut dyn ReplySink) {
        let cluster = self.process.cluster.lock();
        sink.array(cluster.served().count());
        cluster.served().for_each(|(_, keyspace)| sink.bulk(keyspace.name.as_bytes()));
    }

    fn locate(&self, name: &[u8], keys: &[&[u8]], sink: &mut dyn ReplySink) {
        let cluster = self.process.cluster.lock();
        let Some(id) = cluster.keyspace_of_name(name) else { return sink.error(&missing(name)) };
        let (partitions, seed) = (cluster.partitions(id), cluster.seed());
        sink.array(keys.len());
        keys.iter().for_each(|key| sink.integer(i64::from(seed.hash(key).share(partitions))));
    }

    fn describe(&self, name: &[u8], sink: &mut dyn ReplySink) {
        let cluster = self.process.cluster.lock();
        match cluster.keyspace_of_name(name) {
            Some(id) => cluster::describe(&self.process, &cluster, id, sink),
            None => sink.error(&missing(name)),
        }
    }

    fn accept_loss(&self, name: &[u8], partition: u16, left: &[u16], sink: &mut dyn ReplySink) {
        let mut cluster = self.process.cluster.lock();
        match cluster.accept_loss(name, partition, left, self.process.now()) {
            Ok(lines) => {
                sink.array(lines.len());
                lines.iter().for_each(|line| sink.bulk(line.as_bytes()));
            }
            Err(error) => sink.error(&error),
        }
    }
}

/// The keyspace with this number; most lie where their numbers say.
fn find(keyspaces: &[Arc<Keyspace>], id: KeyspaceId) -> Option<&Arc<Keyspace>> {
    match keyspaces.get(usize::from(id.0)) {
        Some(keyspace) if keyspace.id == id => Some(keyspace),
        _ => keyspaces.iter().find(|keyspace| keyspace.id == id),
    }
}

/// `OK`, or the error.
pub(crate) fn answer(outcome: Result<(), Error>, sink: &mut dyn ReplySink) {
    match outcome {
        Ok(()) => sink.simple("OK"),
        Err(error) => sink.error(&error),
    }
}

fn missing(name: &[u8]) -> Error {
    Error::err(format!("no such keyspace '{}'", String::from_utf8_lossy(name)))
}

/// The gateway has checked the names of new keyspaces.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Host for WorkerHost {
    fn submit(
        &mut self,
        keyspace: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        replies: &mut dyn Replies,
    ) {
        let Some(keyspace) = self.keyspace(keyspace) else {
            return self.submit_to_cluster(keyspace, requests, replies);
        };
        let mut call = SoloCall {
            keyspace: &keyspace,
            journal: self.process.journal.as_ref(),
            now: self.now,
            random: &mut self.random,
            outcome: &mut self.outcome,
        };
        call.serve(requests, replies);
    }

    fn administer(&mut self, id: RequestId, command: Administration<'_>, replies: &mut dyn Replies) {
        if let Administration::LoadType { name, module } = command {
            if let Some(outcome) = user_types::begin(&self.process, &self.me, id, text(name), module) {
                answer(outcome, replies.reply(id));
            }
            return;
        }
        let outcome = self.administer_now(&command);
        if let (Ok(()), Administration::HotKeys { name, count, reset, local }) = (&outcome, &command) {
            let question = HotKeysQuestion { name, count: *count, reset: *reset, local: *local };
            let mut cluster = self.process.cluster.lock();
            return cluster.ask_hot_keys(id, question, self.process.now(), replies);
        }
        let sink = replies.reply(id);
        match (outcome, command) {
            (Err(error), _) => sink.error(&error),
            (Ok(()), Administration::List) => self.list(sink),
            (Ok(()), Administration::Info { name }) => self.describe(name, sink),
            (Ok(()), Administration::Locate { name, keys }) => self.locate(name, &keys, sink),
            (Ok(()), Administration::Recover { name, partition, left }) => {
                self.accept_loss(name, partition, &left, sink);
            }
            (Ok(()), _) => sink.simple("OK"),
        }
    }

    fn now(&self) -> Now {
        self.now
    }

    fn keyspace_of_number(&mut self, number: u64) -> Option<KeyspaceId> {
        let mut cluster = self.process.cluster.lock();
        if !cluster.serves(number) {
            cluster.refresh(self.process.now());
            self.stirred = true;
        }
        cluster.serves(number).then_some(KeyspaceId(number as u16))
    }

    fn keyspace_of_name(&mut self, name: &[u8]) -> Option<KeyspaceId> {
        let mut cluster = self.process.cluster.lock();
        if cluster.keyspace_of_name(name).is_none() {
            cluster.refresh(self.process.now());
            self.stirred = true;
        }
        cluster.keyspace_of_name(name)
    }

    fn look_for_types(&mut self) -> bool {
        let mut cluster = self.process.cluster.lock();
        let known = cluster.known_types();
        cluster.refresh(self.process.now());
        self.stirred = true;
        cluster.known_types() > known
    }

    fn keyspaces(&self) -> Vec<KeyspaceId> {
        self.process.cluster.lock().served().map(|(id, _)| id).collect()
    }

    fn safety(&self, keyspace: KeyspaceId) -> Safety {
        self.process.cluster.lock().safety(keyspace, self.process.options.replicas_durability())
    }

    fn authentication_required(&self) -> bool {
        self.process.options.password.is_some()
    }

    fn authenticate(&self, user: &[u8], password: &[u8]) -> bool {
        // As in Redis, without a password the default user may say any.
        let Some(expected) = self.process.options.password.as_deref() else { return user == b"default" };
        let expected = expected.as_bytes();
        // Compares every byte, so that the time tells nothing.
        let different = expected.iter().zip(password).fold(0, |sum, (a, b)| sum | (a ^ b));
        user == b"default" && expected.len() == password.len() && different == 0
    }

    fn info(&self, sections: &[String], out: &mut String) {
        info::write(&self.process, &self.keyspaces, sections, out);
    }

    fn configuration(&self, visit: &mut dyn FnMut(&str, &str)) {
        let databases = self.process.cluster.lock().numbers();
        info::configuration(&self.process, databases, visit);
    }

    fn other_clients(&self, visit: &mut dyn FnMut(&ClientInfo)) {
        for worker in self.process.workers.read().iter().filter(|worker| !Arc::ptr_eq(worker, &self.me)) {
            worker.clients.lock().values().for_each(&mut *visit);
        }
    }

    fn kill_other_clients(&mut self, filter: &ClientFilter) -> u64 {
        let mut killed = 0;
        for worker in self.process.workers.read().iter().filter(|worker| !Arc::ptr_eq(worker, &self.me)) {
            let clients = worker.clients.lock();
            killed += clients.values().filter(|client| filter.matches(&client.peer)).count() as u64;
            drop(clients);
            worker.inbox.lock().kills.push(filter.clone());
            worker.wake();
        }
        killed
    }
}
