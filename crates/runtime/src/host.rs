//! What surrounds a worker's gateway.

use crate::cluster::{self, HotKeysQuestion};
use crate::eviction::{EvictionOutcome, Evictor};
use crate::functions::{self, Wanted};
use crate::keyspace::Keyspace;
use crate::lapsed::LapsedKeys;
use crate::options::DebugCommand;
use crate::process::{Process, WorkerHandle};
use crate::routed::Routed;
use crate::solo::{Outcome, SoloCall, SoloLoan};
use crate::user_types::{self, StoredType};
use crate::{guard, info, parameters, users};
use gateway::{
    AclLog, Administration, Audience, ClientFilter, ClientInfo, ClusterMap, Diagnostics, Figures,
    FunctionLibraries, Host, Incident, Interest, KeyspaceRules, Lapsed, LibraryChange, Lines, Loan,
    MONITOR_OUTPUTS, News, Notifications, OutputLimit, Pause, Safety, SlowCommand, Statistics,
    TrackingFigures, Users, Waiters, missing_keyspace,
};
use protocol::{Now, Replies, Request};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::{Error, KeyspaceId, ProcessId, ReplySink, RequestId, Rng};

/// The most words of a command in keyspaces that are served behind a lock of their own: steps of some hundredths of a second.
const MOST_WORDS: usize = 20_000;

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
    /// Keyspaces that this worker has submitted to since it pumped them.
    pub(crate) submitted: Vec<KeyspaceId>,
    /// What is due in any keyspace is to be pumped before this turn ends.
    pub(crate) stirred: bool,
    /// News to other gateways since the last `Worker::hold_news`.
    pub(crate) news: Vec<(Audience, Arc<News>)>,
    /// Another worker was far behind with its news when this worker last sent some.
    pub(crate) is_congested: bool,
    /// How often statistics had been reset when this worker's were begun.
    pub(crate) resets: u64,
    /// Keys that this worker's steps have let go.
    pub(crate) lapsed: LapsedKeys,
    /// What this worker's gateway has added to [`Process::tracking`].
    tracking: [u64; 4],
}

impl WorkerHost {
    pub(crate) fn new(process: Arc<Process>, me: Arc<WorkerHandle>, worker: u16) -> Self {
        let (keyspaces, now) = (process.keyspaces(), process.now());
        let outcome = Outcome::NOTHING;
        WorkerHost {
            process,
            me,
            worker,
            keyspaces,
            now,
            random: Rng::new(),
            outcome,
            submitted: Vec::new(),
            stirred: false,
            news: Vec::new(),
            is_congested: false,
            resets: 0,
            lapsed: LapsedKeys::new(),
            tracking: [0; 4],
        }
    }

    /// A new turn of the loop begins.
    pub(crate) fn turn(&mut self) {
        self.now = self.process.now();
        self.lapsed.wanted = self.hears_of_lapses();
    }

    /// True if somebody wants to know which keys go by themselves.
    fn hears_of_lapses(&self) -> bool {
        self.process.parameters.notifications().tell_of_lapses()
            || self.process.awaits_streams.load(Ordering::Acquire)
            || self.is_tracked()
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
        let process = &self.process;
        let gate = process.hostings.submit(process, keyspace, requests, &mut self.random, &mut routed);
        routed.hand_out(process, gate);
        self.outcome.gate = self.outcome.gate.and(gate);
        if !self.submitted.contains(&keyspace) {
            self.submitted.push(keyspace);
        }
    }

    fn administer_now(&mut self, command: &Administration<'_>) -> Result<(), Error> {
        let process = Arc::clone(&self.process);
        let mut cluster = process.cluster.lock();
        let outcome = match command {
            Administration::Create { name, options } => cluster.create(text(name), options),
            Administration::List { .. }
            | Administration::Info { .. }
            | Administration::HotKeys { .. }
            | Administration::Locate { .. } => {
                cluster.refresh();
                Ok(())
            }
            Administration::Place { name, partition, processes } => {
                cluster.place(name, *partition, processes)
            }
            Administration::Recover { .. }
            | Administration::LoadType { .. }
            | Administration::LoadLibrary { .. }
            | Administration::RestoreLibraries { .. }
            | Administration::DeleteLibrary { .. }
            | Administration::FlushLibraries
            | Administration::Save => Ok(()),
            Administration::Evict { name, region } => cluster.evict(name, region),
            Administration::Alter { name, options } => cluster.alter(&text(name), options),
            Administration::Drop { name } => cluster.drop_keyspace(&text(name)),
        };
        drop(cluster);
        self.keyspaces = process.keyspaces();
        self.stirred = true;
        outcome
    }

    /// Makes a type known that was checked.
    pub(crate) fn add_type(&mut self, new: StoredType) -> Result<(), Error> {
        self.stirred = true;
        self.process.cluster.lock().add_type(&new)
    }

    /// Begins to change the libraries of functions, if that is what the command asks for.
    fn change_functions(
        &mut self,
        id: RequestId,
        command: &Administration<'_>,
        replies: &mut dyn Replies,
    ) -> bool {
        let wanted = match command {
            Administration::LoadLibrary { source, replace } => Wanted::Library(source.to_vec(), *replace),
            Administration::RestoreLibraries { sources, policy } => {
                Wanted::Libraries(sources.clone(), *policy)
            }
            Administration::DeleteLibrary { name } => Wanted::Change(LibraryChange::Delete(text(name))),
            Administration::FlushLibraries => Wanted::Change(LibraryChange::Flush),
            _ => return false,
        };
        if let Some(error) = functions::begin(&self.process, &self.me, id, wanted) {
            replies.reply(id).error(&error);
        }
        true
    }

    fn list(&self, visible: &KeyspaceRules, sink: &mut dyn ReplySink) {
        let cluster = self.process.cluster.lock();
        let names = cluster.served().map(|(_, keyspace)| keyspace.name.as_bytes());
        let names: Vec<&[u8]> = names.filter(|name| visible.allows(name)).collect();
        sink.array(names.len());
        names.iter().for_each(|name| sink.bulk(name));
    }

    fn locate(&self, name: &[u8], keys: &[&[u8]], sink: &mut dyn ReplySink) {
        let cluster = self.process.cluster.lock();
        let Some(id) = cluster.keyspace_of_name(name) else { return sink.error(&missing_keyspace(name)) };
        let (partitions, seed) = (cluster.partitions(id), cluster.seed());
        sink.array(keys.len());
        keys.iter().for_each(|key| sink.integer(i64::from(seed.hash(key).share(partitions))));
    }

    fn describe(&self, name: &[u8], sink: &mut dyn ReplySink) {
        let cluster = self.process.cluster.lock();
        match cluster.keyspace_of_name(name) {
            Some(id) => cluster::describe(&self.process, &cluster, id, sink),
            None => sink.error(&missing_keyspace(name)),
        }
    }

    fn accept_loss(&self, name: &[u8], partition: u16, left: &[u16], sink: &mut dyn ReplySink) {
        let mut cluster = self.process.cluster.lock();
        match cluster.accept_loss(name, partition, left) {
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

fn nothing_to_save() -> Error {
    Error::err("this process keeps everything in memory: there is no directory for a checkpoint")
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
            memory: &self.process.locals.memory,
            journal: self.process.journal.as_ref(),
            now: self.now,
            random: &mut self.random,
            outcome: &mut self.outcome,
            lapsed: &mut self.lapsed,
        };
        call.serve(requests, replies);
    }

    fn lend(&mut self, keyspace: KeyspaceId, work: &mut dyn FnMut(&mut Self, &mut dyn Loan) -> bool) -> bool {
        let Some(keyspace) = self.keyspace(keyspace) else { return false };
        let process = Arc::clone(&self.process);
        let journal = process.journal.as_ref();
        let mut loan = SoloLoan {
            keyspace: &keyspace,
            journal,
            now: self.now,
            random: self.random.fork(),
            notes_expired: self.lapsed.wanted,
            held: Vec::new(),
        };
        let stays = work(self, &mut loan);
        let held = loan.held;
        let mut call = SoloCall {
            keyspace: &keyspace,
            memory: &process.locals.memory,
            journal,
            now: self.now,
            random: &mut self.random,
            outcome: &mut self.outcome,
            lapsed: &mut self.lapsed,
        };
        call.give_back(held, stays);
        true
    }

    fn administer(&mut self, id: RequestId, command: Administration<'_>, replies: &mut dyn Replies) {
        if let Administration::LoadType { name, module } = command {
            if let Some(outcome) = user_types::begin(&self.process, &self.me, id, text(name), module) {
                answer(outcome, replies.reply(id));
            }
            return;
        }
        if self.change_functions(id, &command, replies) {
            return;
        }
        if let Administration::Save = command {
            if self.process.journal.is_none() {
                return replies.reply(id).error(&nothing_to_save());
            }
            // Nobody looks for who waits in between.
            let mut savers = self.process.savers.lock();
            let number = self.process.view.want_checkpoint();
            return savers.push((id, number));
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
            (Ok(()), Administration::List { visible }) => self.list(&visible, sink),
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
            cluster.refresh();
            self.stirred = true;
        }
        cluster.serves(number).then_some(KeyspaceId(number as u16))
    }

    fn keyspace_of_name(&mut self, name: &[u8]) -> Option<KeyspaceId> {
        let mut cluster = self.process.cluster.lock();
        if cluster.keyspace_of_name(name).is_none() {
            cluster.refresh();
            self.stirred = true;
        }
        cluster.keyspace_of_name(name)
    }

    fn look_for_types(&mut self) -> bool {
        let mut cluster = self.process.cluster.lock();
        let known = cluster.known_types();
        cluster.refresh();
        self.stirred = true;
        cluster.known_types() > known
    }

    fn functions(&mut self, look: bool) -> Arc<FunctionLibraries> {
        if look {
            self.process.cluster.lock().refresh();
            self.stirred = true;
        }
        self.process.view.functions()
    }

    fn busy_millis(&self) -> u64 {
        self.process.parameters.busy_millis()
    }

    fn keyspaces(&self) -> Vec<KeyspaceId> {
        self.process.cluster.lock().served().map(|(id, _)| id).collect()
    }

    fn safety(&self, keyspace: KeyspaceId) -> Safety {
        self.process.cluster.lock().safety(keyspace, self.process.options.replicas_durability())
    }

    fn authentication_required(&self) -> bool {
        self.process.asks_password()
    }

    fn users(&self, look: &mut dyn FnMut(&Users)) {
        self.process.users.look(look);
    }

    fn change_users(&mut self, change: &mut dyn FnMut(&mut Users)) {
        self.process.users.change(change);
        self.process.workers.read().iter().for_each(|worker| worker.wake());
    }

    #[inline]
    fn users_version(&self) -> u64 {
        self.process.users.version()
    }

    fn acl_log(&self, work: &mut dyn FnMut(&mut AclLog)) {
        work(&mut self.process.users.log.lock());
    }

    fn load_users(&mut self) -> Result<(), Error> {
        let outcome = self.process.users.load();
        self.process.workers.read().iter().for_each(|worker| worker.wake());
        outcome
    }

    fn save_users(&mut self) -> Result<(), Error> {
        self.process.users.save()
    }

    fn entropy(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        users::entropy(bytes)
    }

    fn keyspace_name(&self, keyspace: KeyspaceId) -> Option<String> {
        let cluster = self.process.cluster.lock();
        cluster.served().find(|(id, _)| *id == keyspace).map(|(_, keyspace)| keyspace.name.clone())
    }

    fn info(&self, sections: &[String], own: &Statistics, visible: &KeyspaceRules, out: &mut String) {
        let mut sum = own.clone();
        self.other_statistics(&mut sum);
        info::write(&self.process, (&self.keyspaces, visible), sections, &sum, out);
    }

    fn other_statistics(&self, sum: &mut Statistics) {
        let resets = self.process.resets.load(Ordering::Relaxed);
        for worker in self.process.workers.read().iter().filter(|worker| !Arc::ptr_eq(worker, &self.me)) {
            let statistics = worker.statistics.lock();
            if statistics.0 == resets {
                sum.add(&statistics.1);
            }
        }
    }

    fn reset_statistics(&mut self) {
        let process = &self.process;
        self.resets = process.resets.fetch_add(1, Ordering::Relaxed) + 1;
        let counts = [&process.total_connections, &process.rejected_connections];
        for (then, count) in process.connections_at_reset.iter().zip(counts) {
            then.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn configuration(&self, visit: &mut dyn FnMut(&str, &str)) {
        let databases = self.process.cluster.lock().numbers();
        parameters::visit(&self.process, databases, visit);
    }

    fn configure(&mut self, wanted: &[(&[u8], &[u8])]) -> Result<(), Error> {
        let databases = self.process.cluster.lock().numbers();
        parameters::change(&self.process, databases, wanted)
    }

    fn cluster_map(&mut self) -> Option<ClusterMap> {
        self.process.cluster.lock().map()
    }

    fn why_not_rewritten(&self) -> Error {
        Error::err(match self.process.options.config_file {
            None => "The server is running without a config file",
            Some(_) => "Rewriting config file: this process only reads it; change it by hand",
        })
    }

    fn clock(&self) -> u64 {
        self.process.started.elapsed().as_nanos() as u64
    }

    fn slow_nanos(&self) -> u64 {
        self.process.parameters.slow_nanos()
    }

    fn note_slow(&self, command: SlowCommand) {
        let parameters = &self.process.parameters;
        let (millis, micros) = (command.micros / 1000, command.micros);
        let mut diagnostics = self.process.diagnostics.lock();
        if millis >= parameters.event_from() {
            let event = if command.is_fast { "fast-command" } else { "command" };
            diagnostics.note(event, command.at_seconds, millis);
        }
        if parameters.is_logged(micros) {
            diagnostics.log(command, parameters.slowlog_length());
        }
    }

    fn diagnose(&self, work: &mut dyn FnMut(&mut Diagnostics)) {
        work(&mut self.process.diagnostics.lock());
    }

    fn report(&self, incident: Incident<'_>) {
        self.process.guard.report(incident);
    }

    fn admit(&mut self) -> Result<(), Error> {
        let process = &self.process;
        if process.clients.load(Ordering::Relaxed) >= process.parameters.max_clients() {
            process.rejected_connections.fetch_add(1, Ordering::Relaxed);
            return Err(Error::err("max number of clients reached"));
        }
        process.clients.fetch_add(1, Ordering::Relaxed);
        process.unauthenticated.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn pause(&self) -> Pause {
        self.process.guard.pause()
    }

    fn set_pause(&mut self, pause: Pause) {
        self.process.guard.set_pause(pause);
        self.process.workers.read().iter().for_each(|worker| worker.wake());
    }

    fn may_debug(&self, address: &str) -> bool {
        match self.process.options.debug_command {
            DebugCommand::No => false,
            DebugCommand::Local => {
                address.parse().is_ok_and(|address: SocketAddr| guard::is_local(address.ip()))
            }
            DebugCommand::Yes => true,
        }
    }

    fn want_checkpoint(&mut self) -> Result<(), Error> {
        let process = &self.process;
        if process.journal.is_none() {
            return Err(nothing_to_save());
        }
        if process.view.is_checkpoint_wanted() {
            return Err(Error::err("Background save already in progress"));
        }
        process.view.want_checkpoint();
        Ok(())
    }

    fn last_checkpoint_seconds(&self) -> u64 {
        self.process.last_checkpoint.load(Ordering::Relaxed)
    }

    fn shut_down(&mut self, saving: bool) {
        self.process.ends_unsaved.store(!saving, Ordering::Relaxed);
        tracing::info!(saving, "a client has asked the process to end");
        self.process.stop();
    }

    fn memory(&self, visit: &mut dyn FnMut(&str, u64)) {
        info::memory_stats(&self.process, &self.keyspaces, visit);
    }

    fn tell(&mut self, whom: Audience, news: News) {
        let is_alone = match whom {
            Audience::Others | Audience::Process(_) | Audience::Worker(_) => false,
            Audience::Here => self.process.options.threads == 1,
            Audience::Elsewhere => !self.process.view.has_peers(),
        };
        if !is_alone {
            self.news.push((whom, Arc::new(news)));
        }
    }

    fn interest(&self, look: &mut dyn FnMut(&Interest)) {
        look(&self.process.interest.read());
    }

    fn change_interest(&mut self, change: &mut dyn FnMut(&mut Interest)) {
        change(&mut self.process.interest.write());
    }

    fn output_limit(&self) -> OutputLimit {
        self.process.parameters.output_limits.subscribers()
    }

    fn notifications(&self) -> Notifications {
        self.process.parameters.notifications()
    }

    fn is_congested(&self) -> bool {
        self.is_congested
    }

    fn process(&self) -> ProcessId {
        self.process.view.process()
    }

    fn may_need_context(&self, keyspace: KeyspaceId) -> bool {
        self.process.view.has_peers() && find(&self.keyspaces, keyspace).is_none()
    }

    #[inline]
    fn is_monitored(&self) -> bool {
        self.process.monitors.load(Ordering::Relaxed) > 0
    }

    fn set_monitors(&mut self, count: usize) {
        let before = self.me.monitors.swap(count, Ordering::Relaxed);
        self.process.monitors.fetch_add(count.wrapping_sub(before), Ordering::Relaxed);
    }

    fn monitor(&mut self, lines: &[u8]) {
        let watched = |worker: &&Arc<WorkerHandle>| {
            !Arc::ptr_eq(worker, &self.me) && worker.monitors.load(Ordering::Relaxed) > 0
        };
        for worker in self.process.workers.read().iter().filter(watched) {
            let mut inbox = worker.inbox.lock();
            let most = self.process.options.client_output_limit_bytes.saturating_mul(MONITOR_OUTPUTS);
            match inbox.monitored.len() + lines.len() <= most {
                true => inbox.monitored.extend_from_slice(lines),
                false => inbox.monitored_too_much = true,
            }
            drop(inbox);
            worker.wake();
        }
    }

    fn note_client(&self, client: &ClientInfo) {
        if self.process.options.threads > 1 {
            self.me.clients.lock().insert(client.peer.client, client.clone());
        }
    }

    fn memory_of_keyspaces(&self, visible: &KeyspaceRules, visit: &mut dyn FnMut(&str, Figures<'_>)) {
        info::memory_of_keyspaces(&self.process, &self.keyspaces, visible, visit);
    }

    fn most_words(&mut self, keyspace: KeyspaceId) -> usize {
        match self.keyspace(keyspace) {
            Some(_) => usize::MAX,
            None => MOST_WORDS,
        }
    }

    fn may_grow(&mut self, keyspace: KeyspaceId) -> Result<(), Error> {
        let process = Arc::clone(&self.process);
        let memory = &*process.locals.memory;
        if memory.is_full(keyspace) {
            let name = self.process.cluster.lock().entry(keyspace).name.clone();
            return Err(memory.refusal(Some(&name)));
        }
        if memory.limit() == 0 || memory.excess(false) == 0 {
            return Ok(());
        }
        if memory.is_barren(self.now.instant) {
            return Err(memory.refusal(None));
        }
        let (journal, now) = (process.journal.as_ref(), self.now);
        let (random, lapsed) = (&mut self.random, &mut self.lapsed);
        let mut evictor = Evictor { memory, journal, now, random, lapsed };
        match evictor.make_room(&process.keyspaces()) {
            EvictionOutcome::None => Err(memory.refusal(None)),
            EvictionOutcome::Enough | EvictionOutcome::Some => Ok(()),
        }
    }

    fn waiters(&self, work: &mut dyn FnMut(&mut Waiters)) {
        let mut waiters = self.process.waiters.lock();
        work(&mut waiters);
        self.process.has_waiters.store(waiters.is_concerned(), Ordering::Release);
        self.process.awaits_streams.store(waiters.awaits_streams(), Ordering::Release);
        self.process.blocked.store(waiters.blocked(), Ordering::Relaxed);
    }

    fn has_waiters(&self) -> bool {
        // What a write was executed behind, a lock or a message, orders this.
        self.process.has_waiters.load(Ordering::Acquire)
    }

    fn awaits_streams(&self) -> bool {
        self.process.awaits_streams.load(Ordering::Acquire)
    }

    #[inline]
    fn has_lapsed(&self) -> bool {
        !self.lapsed.keys.is_empty()
    }

    fn take_lapsed(&mut self) -> Vec<Lapsed> {
        let lapsed = std::mem::replace(&mut self.lapsed, LapsedKeys::new());
        self.lapsed.wanted = lapsed.wanted;
        if !self.hears_of_lapses() {
            return Vec::new();
        }
        self.outcome.gate = self.outcome.gate.and(lapsed.gate);
        self.outcome.undoable = self.outcome.undoable.max(lapsed.undoable);
        lapsed.keys
    }

    fn lines(&self, keyspace: KeyspaceId) -> Lines {
        if find(&self.keyspaces, keyspace).is_some_and(|keyspace| !keyspace.dropped.load(Ordering::Acquire)) {
            return Lines { lags: false, is_strict: true, groups: vec![vec![self.process()]] };
        }
        let (is_strict, groups) = self.process.cluster.lock().sharing(keyspace);
        Lines { lags: true, is_strict, groups }
    }

    #[inline]
    fn is_tracked(&self) -> bool {
        // What a write was executed behind, a lock or a message, orders this.
        self.process.tracking[0].load(Ordering::Acquire) > 0
            || self.process.tracked_until.load(Ordering::Acquire) > self.now.instant.0
    }

    fn note_tracking(&mut self, figures: TrackingFigures) {
        let TrackingFigures { clients, keys, items, prefixes } = figures;
        let now = [clients, keys, items, prefixes];
        for ((sum, before), now) in self.process.tracking.iter().zip(&mut self.tracking).zip(now) {
            if *before != now {
                sum.fetch_add(now.wrapping_sub(*before), Ordering::AcqRel);
                *before = now;
            }
        }
    }

    fn note_tracked_elsewhere(&mut self, until: types::Instant) {
        self.process.tracked_until.fetch_max(until.0, Ordering::AcqRel);
    }

    fn most_tracked_keys(&self) -> usize {
        match self.process.parameters.most_tracked_keys() {
            0 => usize::MAX,
            most => most.div_ceil(self.process.options.threads),
        }
    }

    fn may_track(&mut self, keyspace: KeyspaceId) -> Result<(), Error> {
        let is_solo = self.keyspace(keyspace).is_some();
        self.process.cluster.lock().may_track(keyspace, is_solo)
    }

    fn other_processes(&self) -> Vec<ProcessId> {
        self.process.peers.all().collect()
    }

    fn gateways(&self) -> u16 {
        self.process.options.threads as u16
    }

    fn other_clients(&self, visit: &mut dyn FnMut(&ClientInfo)) {
        for worker in self.process.workers.read().iter().filter(|worker| !Arc::ptr_eq(worker, &self.me)) {
            worker.clients.lock().values().for_each(&mut *visit);
        }
    }

    fn kill_other_clients(&mut self, filter: &ClientFilter) -> u64 {
        let mut killed = 0;
        for worker in self.process.workers.read().iter().filter(|worker| !Arc::ptr_eq(worker, &self.me)) {
            // Nobody is shown them any more, though their worker has yet to close them.
            let mut clients = worker.clients.lock();
            let is_meant = |_: &u64, client: &mut ClientInfo| {
                filter.matches(&client.peer, &client.user, client.is_subscriber())
            };
            killed += clients.extract_if(.., is_meant).count() as u64;
            drop(clients);
            worker.inbox.lock().kills.push(filter.clone());
            worker.wake();
        }
        killed
    }
}
