//! What surrounds a worker's gateway.

use crate::cluster::{self, Cluster, HotKeysQuestion};
use crate::info;
use crate::keyspace::{Keyspace, class_of, durability_of};
use crate::process::{Process, WorkerHandle};
use crate::solo::{Outcome, SoloCall};
use crate::user_types::{self, StoredType};
use gateway::{Administration, ClientFilter, ClientInfo, Host, KeyspaceOptions, Model};
use protocol::hosted::Turn;
use protocol::{Now, Replies, Request};
use std::sync::Arc;
use types::{Error, KeyspaceId, ReplySink, RequestId, Rng};

/// See [`Host`].
pub(crate) struct WorkerHost {
    pub(crate) process: Arc<Process>,
    pub(crate) me: Arc<WorkerHandle>,
    /// The keyspaces as of the beginning of the turn.
    pub(crate) keyspaces: Arc<Vec<Arc<Keyspace>>>,
    pub(crate) now: Now,
    pub(crate) random: Rng,
    /// What the replies written since the last `take_outcome` wait for.
    pub(crate) outcome: Outcome,
    /// In a process of a cluster all keyspaces are here, and none in `keyspaces`.
    pub(crate) cluster: Option<Box<Cluster>>,
}

impl WorkerHost {
    pub(crate) fn new(process: Arc<Process>, me: Arc<WorkerHandle>, cluster: Option<Box<Cluster>>) -> Self {
        let (keyspaces, now) = (process.keyspaces(), process.now());
        WorkerHost { process, me, keyspaces, now, random: Rng::new(), outcome: Outcome::NOTHING, cluster }
    }

    /// A new turn of the loop begins.
    pub(crate) fn turn(&mut self) {
        self.now = self.process.now();
    }

    pub(crate) fn take_outcome(&mut self) -> Outcome {
        std::mem::replace(&mut self.outcome, Outcome::NOTHING)
    }

    fn keyspace(&self, id: KeyspaceId) -> Option<&Arc<Keyspace>> {
        match self.keyspaces.get(usize::from(id.0)) {
            Some(keyspace) if keyspace.id == id => Some(keyspace),
            _ => self.keyspaces.iter().find(|keyspace| keyspace.id == id),
        }
    }

    fn administer_now(&mut self, command: &Administration<'_>) -> Result<(), Error> {
        if let Some(cluster) = &mut self.cluster {
            return match command {
                Administration::Create { name, options } => cluster.create(text(name), options, self.now),
                Administration::List
                | Administration::Info { .. }
                | Administration::HotKeys { .. }
                | Administration::Locate { .. } => {
                    cluster.refresh(self.now);
                    Ok(())
                }
                Administration::Place { name, partition, processes } => {
                    cluster.place(name, *partition, processes, self.now)
                }
                Administration::Recover { .. } => Ok(()),
                Administration::Evict { name, region } => cluster.evict(name, region, self.now),
                Administration::Alter { name, options } => cluster.alter(&text(name), options, self.now),
                Administration::Drop { name } => cluster.drop_keyspace(&text(name), self.now),
                Administration::LoadType { .. } => Ok(()),
            };
        }
        match command {
            Administration::Create { name, options } => {
                let (name, options) = (text(name), supported(options)?);
                let durability = options.durability.map_or(self.process.options.durability, durability_of);
                self.process.create(&name, durability)?;
            }
            Administration::Alter { name, options } => {
                let (name, options) = (text(name), supported(options)?);
                let durability =
                    options.durability.ok_or_else(|| Error::err("ALTER needs DURABILITY and a class"))?;
                self.process.alter(&name, durability_of(durability))?;
            }
            Administration::Drop { name } => self.process.drop_keyspace(&text(name))?,
            Administration::Place { .. } | Administration::Recover { .. } | Administration::Evict { .. } => {
                return Err(Error::err("a single process keeps everything itself; clusters have places"));
            }
            Administration::HotKeys { .. } => {
                return Err(Error::err(
                    "KEYSPACE HOTKEYS is for clusters: a single process runs transactions one by one",
                ));
            }
            Administration::List
            | Administration::Info { .. }
            | Administration::Locate { .. }
            | Administration::LoadType { .. } => {}
        }
        self.keyspaces = self.process.keyspaces();
        Ok(())
    }

    /// Makes a type known that was checked.
    pub(crate) fn add_type(&mut self, new: StoredType) -> Result<(), Error> {
        match &mut self.cluster {
            Some(cluster) => cluster.add_type(&new, self.now),
            None => self.process.add_type(new),
        }
    }

    fn list(&self, sink: &mut dyn ReplySink) {
        if let Some(cluster) = &self.cluster {
            sink.array(cluster.served().count());
            return cluster.served().for_each(|(_, keyspace)| sink.bulk(keyspace.name.as_bytes()));
        }
        sink.array(self.keyspaces.len());
        self.keyspaces.iter().for_each(|keyspace| sink.bulk(keyspace.name.as_bytes()));
    }

    fn locate(&self, name: &[u8], keys: &[&[u8]], sink: &mut dyn ReplySink) {
        let solo = self.keyspaces.iter().find(|keyspace| keyspace.name.as_bytes() == name);
        let replicated = || {
            let cluster = self.cluster.as_ref()?;
            Some((cluster.partitions(cluster.keyspace_of_name(name)?), cluster.seed()))
        };
        let found = solo.map(|keyspace| (keyspace.partitions.len() as u16, self.process.seed));
        let Some((partitions, seed)) = found.or_else(replicated) else { return sink.error(&missing(name)) };
        sink.array(keys.len());
        keys.iter().for_each(|key| sink.integer(i64::from(seed.hash(key).share(partitions))));
    }

    fn describe(&self, name: &[u8], sink: &mut dyn ReplySink) {
        let solo = self.keyspaces.iter().find(|keyspace| keyspace.name.as_bytes() == name);
        let replicated =
            self.cluster.as_ref().and_then(|cluster| Some((cluster, cluster.keyspace_of_name(name)?)));
        match (solo, replicated) {
            (Some(keyspace), _) => info::describe(keyspace, sink),
            (None, Some((cluster, id))) => cluster::describe(&self.process, cluster, id, sink),
            (None, None) => sink.error(&missing(name)),
        }
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

fn supported<'o>(options: &'o KeyspaceOptions<'o>) -> Result<&'o KeyspaceOptions<'o>, Error> {
    if let Some((option, _)) = options.others.first() {
        return Err(Error::err(format!("unknown keyspace option '{}'", String::from_utf8_lossy(option))));
    }
    if !options.regions.is_empty() {
        return Err(Error::err("a single process has no REGIONS; they are of clusters"));
    }
    match options.model {
        None | Some(Model::Strict) => Ok(options),
        Some(model) => Err(Error::err(format!(
            "model '{}' is not available in a single process, only 'strict' is; start a cluster for it, as with \
             'anabranch cluster local --regions 1 --processes 1'",
            model.as_str()
        ))),
    }
}

impl Host for WorkerHost {
    fn submit(
        &mut self,
        keyspace: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        replies: &mut dyn Replies,
    ) {
        if let Some(cluster) = &mut self.cluster {
            let mut turn = Turn { now: self.now, random: &mut self.random, replies };
            let gate = cluster.submit(keyspace, requests, self.process.journal.as_ref(), &mut turn);
            self.outcome.gate = self.outcome.gate.and(gate);
            return;
        }
        let Some(keyspace) = self.keyspace(keyspace).cloned() else {
            let gone = Error::refused("the keyspace was dropped; choose another with KEYSPACE USE or SELECT");
            return requests.drain(..).for_each(|(id, request)| {
                if !matches!(request, Request::Close { .. }) {
                    replies.reply(id).error(&gone);
                }
            });
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
        if let (Ok(()), Administration::HotKeys { name, count, reset, local }, Some(cluster)) =
            (&outcome, &command, &mut self.cluster)
        {
            let question = HotKeysQuestion { name, count: *count, reset: *reset, local: *local };
            return cluster.ask_hot_keys(id, question, self.now, replies);
        }
        let sink = replies.reply(id);
        match (outcome, command) {
            (Err(error), _) => sink.error(&error),
            (Ok(()), Administration::List) => self.list(sink),
            (Ok(()), Administration::Info { name }) => self.describe(name, sink),
            (Ok(()), Administration::Locate { name, keys }) => self.locate(name, &keys, sink),
            (Ok(()), Administration::Recover { name, partition, left }) => {
                let cluster = self.cluster.as_mut();
                let report = cluster.map(|cluster| cluster.accept_loss(name, partition, &left, self.now));
                match report {
                    Some(Ok(lines)) => {
                        sink.array(lines.len());
                        lines.iter().for_each(|line| sink.bulk(line.as_bytes()));
                    }
                    Some(Err(error)) => sink.error(&error),
                    None => sink.error(&Error::err("there is no cluster")),
                }
            }
            (Ok(()), _) => sink.simple("OK"),
        }
    }

    fn now(&self) -> Now {
        self.now
    }

    fn keyspace_of_number(&mut self, number: u64) -> Option<KeyspaceId> {
        if let Some(cluster) = &mut self.cluster {
            if !cluster.serves(number) {
                cluster.refresh(self.now);
            }
            return cluster.serves(number).then_some(KeyspaceId(number as u16));
        }
        (number < u64::from(self.process.options.databases.max(1))).then_some(KeyspaceId(number as u16))
    }

    fn keyspace_of_name(&mut self, name: &[u8]) -> Option<KeyspaceId> {
        if let Some(cluster) = &mut self.cluster {
            if cluster.keyspace_of_name(name).is_none() {
                cluster.refresh(self.now);
            }
            return cluster.keyspace_of_name(name);
        }
        self.keyspaces.iter().find(|keyspace| keyspace.name.as_bytes() == name).map(|keyspace| keyspace.id)
    }

    fn look_for_types(&mut self) -> bool {
        let Some(cluster) = &mut self.cluster else { return false };
        let known = cluster.known_types();
        cluster.refresh(self.now);
        cluster.known_types() > known
    }

    fn keyspaces(&self) -> Vec<KeyspaceId> {
        if let Some(cluster) = &self.cluster {
            return cluster.served().map(|(id, _)| id).collect();
        }
        self.keyspaces.iter().map(|keyspace| keyspace.id).collect()
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
        let databases = match &self.cluster {
            Some(cluster) => cluster.numbers(),
            None => usize::from(self.process.options.databases),
        };
        info::configuration(&self.process, databases, visit);
    }

    fn other_clients(&self, visit: &mut dyn FnMut(&ClientInfo)) {
        for worker in self.process.workers.read().iter().filter(|worker| !Arc::ptr_eq(worker, &self.me)) {
            worker.clients.lock().iter().for_each(&mut *visit);
        }
    }

    fn kill_other_clients(&mut self, filter: &ClientFilter) -> u64 {
        let mut killed = 0;
        for worker in self.process.workers.read().iter().filter(|worker| !Arc::ptr_eq(worker, &self.me)) {
            killed +=
                worker.clients.lock().iter().filter(|client| filter.matches(&client.peer)).count() as u64;
            worker.inbox.lock().kills.push(filter.clone());
            worker.wake();
        }
        killed
    }
}

pub(crate) fn durability_name(keyspace: &Keyspace) -> &'static str {
    class_of(keyspace.durability()).as_str()
}
