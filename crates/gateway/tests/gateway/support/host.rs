//! Hosts around keyspaces of reference: one answers at once, the other when the test says so, in any order.

use crate::support::memory::Memory;
use anabranch_gateway::{
    AclLog, Administration, Audience, ClientFilter, ClientInfo, ClusterMap, Diagnostics, FunctionLibraries,
    Host, Incident, Interest, KeyspaceOptions, KeyspaceRules, LibraryChange, Lines, Loan, Model, News,
    Notifications, OutputLimit, Pause, Safety, SlowCommand, Statistics, Users, Waiters, no_acl_file,
};
use protocol::{ContextRequest, Durability, KeyedOperation, Now, Replies, Request};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{
    Error, Instant, KeyspaceId, ProcessId, ReplyBuf, ReplySink, RequestId, Rng, SessionId, WallTime,
};

/// A process with sixteen numbered keyspaces.
#[derive(Debug)]
pub struct TestHost {
    keyspaces: BTreeMap<KeyspaceId, (String, Memory)>,
    next: u16,
    pub now_millis: u64,
    pub users: RefCell<Users>,
    pub users_version: u64,
    pub acl_log: RefCell<AclLog>,
    /// What the file of users holds; `None` without one.
    pub acl_file: Option<Vec<u8>>,
    /// `Some` holds replies back.
    pub held: Option<Vec<(RequestId, ReplyBuf)>>,
    /// Keyspaces lend keys.
    pub lends: bool,
    /// How often a transaction on lent keys ended, and what it did stayed; and how often not.
    pub loans: [usize; 2],
    /// Every request, as the keyspace saw it.
    pub seen: Vec<String>,
    /// Sizes of the vectors that were submitted.
    pub batches: Vec<usize>,
    /// The name of an auction that others have loaded.
    pub unheard_of: Option<&'static str>,
    /// What `CONFIG SET slowlog-log-slower-than` said.
    pub slow_micros: Option<u64>,
    /// How often the clock was looked at.
    pub looks: Cell<u64>,
    pub diagnostics: RefCell<Diagnostics>,
    /// What was reported of clients.
    pub incidents: RefCell<Vec<String>>,
    pub pause: Pause,
    /// Clients that wait.
    pub waiters: RefCell<Waiters>,
    /// The connected processes of its cluster, whose clients wait in the same lines; none without a cluster.
    pub sharing: Vec<ProcessId>,
    /// All of its clients see the same.
    pub is_strict: bool,
    /// The news sent to other gateways.
    pub sent_news: Vec<(Audience, News)>,
    pub interest: Interest,
    /// Sessions of keyspaces have contexts: the next token.
    pub contexts: Option<u64>,
    pub output_limit: OutputLimit,
    pub notifications: Notifications,
    /// A request to end the process, saving or not.
    pub shut_down: Option<bool>,
    /// The processes of its cluster, if it belongs to one.
    pub cluster: Option<ClusterMap>,
    /// How clients have described themselves: their names.
    pub noted: RefCell<Vec<String>>,
    /// How many of its clients watch.
    pub monitors: usize,
    /// What other gateways were to show those who watch.
    pub monitored: Vec<u8>,
    pub functions: Arc<FunctionLibraries>,
}

impl TestHost {
    pub fn new() -> Self {
        let keyspaces = (0..16).map(|number| {
            let name = if number == 0 { "default".to_owned() } else { number.to_string() };
            (KeyspaceId(number), (name, Memory::default()))
        });
        TestHost {
            keyspaces: keyspaces.collect(),
            next: 16,
            now_millis: 1_700_000_000_000,
            users: RefCell::new(Users::new(None)),
            users_version: 0,
            acl_log: RefCell::default(),
            acl_file: None,
            held: None,
            lends: false,
            loans: [0; 2],
            seen: Vec::new(),
            batches: Vec::new(),
            unheard_of: None,
            slow_micros: None,
            looks: Cell::new(0),
            diagnostics: RefCell::default(),
            incidents: RefCell::default(),
            pause: Pause::default(),
            waiters: RefCell::new(Waiters::new(ProcessId(0))),
            sharing: Vec::new(),
            is_strict: true,
            sent_news: Vec::new(),
            interest: Interest::default(),
            contexts: None,
            output_limit: OutputLimit::default(),
            notifications: Notifications::default(),
            shut_down: None,
            cluster: None,
            noted: RefCell::default(),
            monitors: 0,
            monitored: Vec::new(),
            functions: Arc::default(),
        }
    }

    /// What the user `default` must say to AUTH.
    pub fn set_password(&mut self, password: Option<&str>) {
        self.change_users(&mut |users| users.set_default_password(password));
    }

    /// What the next draws of a key come to, the next one last: see [`Memory::draws`].
    pub fn set_draws(&mut self, draws: &[Option<&str>]) {
        let draws = draws.iter().map(|draw| draw.map(|key| key.as_bytes().to_vec())).collect();
        if let Some((_, memory)) = self.keyspaces.get_mut(&KeyspaceId(0)) {
            memory.draws = draws;
        }
    }

    /// Gives out the replies that were held back, in an order that `random` chooses.
    pub fn release(&mut self, replies: &mut dyn Replies, random: &mut Rng) {
        let mut held = self.held.as_mut().map(std::mem::take).unwrap_or_default();
        random.shuffle(&mut held);
        for (id, reply) in held {
            reply.replay(replies.reply(id));
        }
    }

    fn answer(&mut self, id: RequestId, reply: ReplyBuf, replies: &mut dyn Replies) {
        match &mut self.held {
            Some(held) => held.push((id, reply)),
            None => reply.replay(replies.reply(id)),
        }
    }

    /// Tokens are numbers, and whatever they tell of is seen.
    fn tell_context(&mut self, request: &Request<'_>) -> ReplyBuf {
        let mut reply = ReplyBuf::new();
        match request {
            Request::Context { ask: ContextRequest::Token, .. } => {
                let token = self.contexts.get_or_insert(0);
                reply.bulk(token.to_string().as_bytes());
                *token += 1;
            }
            _ => reply.simple("OK"),
        }
        reply
    }

    fn change(&mut self, change: LibraryChange) -> Result<(), Error> {
        self.functions = Arc::new(self.functions.changed(change)?);
        Ok(())
    }

    fn find(&self, name: &[u8]) -> Option<KeyspaceId> {
        self.keyspaces.iter().find(|(_, (own, _))| own.as_bytes() == name).map(|(id, _)| *id)
    }

    fn create(&mut self, name: &[u8], options: &KeyspaceOptions<'_>) -> Result<(), Error> {
        if options.model != Some(Model::Strict) {
            return Err(Error::err("this process has strict keyspaces only"));
        }
        if self.find(name).is_some() {
            return Err(Error::err("the keyspace exists"));
        }
        let name = String::from_utf8_lossy(name).into_owned();
        self.keyspaces.insert(KeyspaceId(self.next), (name, Memory::default()));
        self.next += 1;
        Ok(())
    }
}

/// A keyspace lent as a whole.
struct Lent {
    memory: Memory,
    now_millis: u64,
}

impl Loan for Lent {
    fn operate(&mut self, operation: &KeyedOperation<'_>, reply: &mut ReplyBuf) -> bool {
        let request = Request::One { session: SessionId(0), operation: operation.clone() };
        self.memory.execute(&request, self.now_millis).replay(reply);
        true
    }
}

impl Host for TestHost {
    fn submit(
        &mut self,
        keyspace: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        replies: &mut dyn Replies,
    ) {
        self.batches.push(requests.len());
        for (id, request) in requests.drain(..) {
            self.seen.push(format!("{keyspace} {request:?}"));
            let closes = matches!(request, Request::Close { .. });
            let now_millis = self.now_millis;
            let reply = match self.keyspaces.get_mut(&keyspace) {
                Some(_) if self.contexts.is_some() && matches!(request, Request::Context { .. }) => {
                    self.tell_context(&request)
                }
                Some((_, memory)) => memory.execute(&request, now_millis),
                None => {
                    let mut reply = ReplyBuf::new();
                    reply.error(&Error::refused("the keyspace was dropped"));
                    reply
                }
            };
            if !closes {
                self.answer(id, reply, replies);
            }
        }
    }

    fn lend(&mut self, keyspace: KeyspaceId, work: &mut dyn FnMut(&mut Self, &mut dyn Loan) -> bool) -> bool {
        let Some((_, memory)) = self.keyspaces.get(&keyspace).filter(|_| self.lends) else { return false };
        let mut lent = Lent { memory: memory.clone(), now_millis: self.now_millis };
        let stays = work(self, &mut lent);
        self.loans[usize::from(!stays)] += 1;
        if let Some((_, memory)) = self.keyspaces.get_mut(&keyspace).filter(|_| stays) {
            *memory = lent.memory;
        }
        true
    }

    fn administer(&mut self, id: RequestId, command: Administration<'_>, replies: &mut dyn Replies) {
        let mut reply = ReplyBuf::new();
        let missing = || Error::err("no such keyspace");
        let outcome = match &command {
            Administration::Create { name, options } => self.create(name, options),
            Administration::Alter { name, .. } => self.find(name).map(|_| ()).ok_or_else(missing),
            Administration::Drop { name } => match self.find(name) {
                Some(found) => {
                    self.keyspaces.remove(&found);
                    Ok(())
                }
                None => Err(missing()),
            },
            Administration::Place { .. }
            | Administration::Recover { .. }
            | Administration::Evict { .. }
            | Administration::HotKeys { .. } => Err(Error::err("there is no cluster")),
            Administration::Save => Ok(()),
            Administration::LoadLibrary { source, replace } => {
                scripts::load_library(source).and_then(|library| {
                    reply.bulk(library.name.as_bytes());
                    self.change(LibraryChange::Load { library, replace: *replace })
                })
            }
            Administration::RestoreLibraries { sources, policy } => {
                let loaded = sources.iter().map(|source| scripts::load_library(source));
                let loaded = loaded.collect::<Result<Vec<_>, _>>();
                loaded.and_then(|loaded| self.change(LibraryChange::Restore(loaded, *policy)))
            }
            Administration::DeleteLibrary { name } => {
                self.change(LibraryChange::Delete(String::from_utf8_lossy(name).into_owned()))
            }
            Administration::FlushLibraries => self.change(LibraryChange::Flush),
            Administration::LoadType { .. } => Err(Error::err("there is no sandbox")),
            Administration::List { visible } => {
                let names = self.keyspaces.values().map(|(name, _)| name.as_bytes());
                let names: Vec<&[u8]> = names.filter(|name| visible.allows(name)).collect();
                reply.array(names.len());
                names.iter().for_each(|name| reply.bulk(name));
                Ok(())
            }
            Administration::Locate { name, keys } => match self.find(name) {
                Some(_) => {
                    reply.array(keys.len());
                    keys.iter().for_each(|_| reply.integer(0));
                    Ok(())
                }
                None => Err(missing()),
            },
            Administration::Info { name } => match self.find(name) {
                Some(_) => {
                    reply.map(1);
                    reply.bulk(b"name");
                    reply.bulk(name);
                    Ok(())
                }
                None => Err(missing()),
            },
        };
        match outcome {
            Err(error) => {
                reply = ReplyBuf::new();
                reply.error(&error);
            }
            Ok(()) if reply.is_empty() => reply.simple("OK"),
            Ok(()) => {}
        }
        self.answer(id, reply, replies);
    }

    fn now(&self) -> Now {
        Now {
            wall: WallTime(self.now_millis * 1000),
            instant: Instant((self.now_millis - 1_700_000_000_000) * 1000),
        }
    }

    fn keyspace_of_number(&mut self, number: u64) -> Option<KeyspaceId> {
        u16::try_from(number).ok().filter(|number| *number < 16).map(KeyspaceId)
    }

    fn keyspace_of_name(&mut self, name: &[u8]) -> Option<KeyspaceId> {
        self.find(name)
    }

    fn look_for_types(&mut self) -> bool {
        let Some(name) = self.unheard_of.take() else { return false };
        datatypes::user::register(name, 1, usertypes::Module::native::<auction::Auction>()).is_ok()
    }

    fn functions(&mut self, _look: bool) -> Arc<FunctionLibraries> {
        Arc::clone(&self.functions)
    }

    fn keyspaces(&self) -> Vec<KeyspaceId> {
        self.keyspaces.keys().copied().collect()
    }

    fn safety(&self, keyspace: KeyspaceId) -> Safety {
        match keyspace.0 {
            0 => Safety::NONE,
            1 => Safety { replicas: 0, durability: Durability::Written },
            _ => Safety { replicas: 1, durability: Durability::Synced },
        }
    }

    fn users(&self, look: &mut dyn FnMut(&Users)) {
        look(&self.users.borrow());
    }

    fn change_users(&mut self, change: &mut dyn FnMut(&mut Users)) {
        change(&mut self.users.borrow_mut());
        self.users_version += 1;
    }

    fn users_version(&self) -> u64 {
        self.users_version
    }

    fn acl_log(&self, work: &mut dyn FnMut(&mut AclLog)) {
        work(&mut self.acl_log.borrow_mut());
    }

    fn load_users(&mut self) -> Result<(), Error> {
        let text = self.acl_file.clone().ok_or_else(no_acl_file)?;
        let mut outcome = Ok(());
        self.change_users(&mut |users| outcome = users.load(&text, "users.acl"));
        outcome.map_err(Error::err)
    }

    fn save_users(&mut self) -> Result<(), Error> {
        let text = self.users.borrow().file_text();
        *self.acl_file.as_mut().ok_or_else(no_acl_file)? = text;
        Ok(())
    }

    fn entropy(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        bytes.fill(0xa5);
        Ok(())
    }

    fn keyspace_name(&self, keyspace: KeyspaceId) -> Option<String> {
        self.keyspaces.get(&keyspace).map(|(name, _)| name.clone())
    }

    fn info(&self, sections: &[String], own: &Statistics, _visible: &KeyspaceRules, out: &mut String) {
        if sections.is_empty() || sections.iter().any(|section| section == "server") {
            out.push_str("# Server\r\nredis_version:7.0.15\r\n");
        }
        if sections.iter().any(|section| section == "commandstats") {
            own.write_commands(out);
        }
        if sections.iter().any(|section| section == "errorstats") {
            own.write_errors(out);
        }
    }

    fn configure(&mut self, parameters: &[(&[u8], &[u8])]) -> Result<(), Error> {
        if let [(b"notify-keyspace-events", letters)] = parameters {
            let letters = String::from_utf8_lossy(letters);
            self.notifications = Notifications::parse(&letters).ok_or_else(Error::syntax)?;
            return Ok(());
        }
        let unknown =
            parameters.iter().find(|(name, _)| !name.eq_ignore_ascii_case(b"slowlog-log-slower-than"));
        if let Some((name, _)) = unknown {
            let name = String::from_utf8_lossy(name);
            let text = format!("Unknown option or number of arguments for CONFIG SET - '{name}'");
            return Err(Error::err(text));
        }
        let micros = parameters.iter().find_map(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
        self.slow_micros = micros;
        Ok(())
    }

    /// Each look at it takes a microsecond.
    fn clock(&self) -> u64 {
        self.looks.set(self.looks.get() + 1);
        self.looks.get() * 1000
    }

    fn slow_nanos(&self) -> u64 {
        self.slow_micros.map_or(u64::MAX, |micros| micros * 1000)
    }

    fn note_slow(&self, command: SlowCommand) {
        let mut diagnostics = self.diagnostics.borrow_mut();
        diagnostics.note("command", command.at_seconds, command.micros);
        diagnostics.log(command, 128);
    }

    fn diagnose(&self, work: &mut dyn FnMut(&mut Diagnostics)) {
        work(&mut self.diagnostics.borrow_mut());
    }

    fn report(&self, incident: Incident<'_>) {
        self.incidents.borrow_mut().push(format!("{incident:?}"));
    }

    fn pause(&self) -> Pause {
        self.pause
    }

    fn set_pause(&mut self, pause: Pause) {
        self.pause = pause;
    }

    fn cluster_map(&mut self) -> Option<ClusterMap> {
        self.cluster.clone()
    }

    fn is_monitored(&self) -> bool {
        self.monitors > 0
    }

    fn set_monitors(&mut self, count: usize) {
        self.monitors = count;
    }

    fn monitor(&mut self, lines: &[u8]) {
        self.monitored.extend_from_slice(lines);
    }

    fn note_client(&self, client: &ClientInfo) {
        self.noted.borrow_mut().push(String::from_utf8_lossy(&client.name).into_owned());
    }

    fn may_debug(&self, _address: &str) -> bool {
        true
    }

    fn want_checkpoint(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn last_checkpoint_seconds(&self) -> u64 {
        1_700_000_000
    }

    fn shut_down(&mut self, saving: bool) {
        self.shut_down = Some(saving);
    }

    fn memory(&self, visit: &mut dyn FnMut(&str, u64)) {
        visit("total.allocated", 1);
    }

    fn configuration(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit("appendonly", "no");
        visit("save", "");
    }

    fn tell(&mut self, whom: Audience, news: News) {
        self.sent_news.push((whom, news));
    }

    fn interest(&self, look: &mut dyn FnMut(&Interest)) {
        look(&self.interest);
    }

    fn change_interest(&mut self, change: &mut dyn FnMut(&mut Interest)) {
        change(&mut self.interest);
    }

    fn may_need_context(&self, _keyspace: KeyspaceId) -> bool {
        self.contexts.is_some()
    }

    fn notifications(&self) -> Notifications {
        self.notifications
    }

    fn output_limit(&self) -> OutputLimit {
        self.output_limit
    }

    fn waiters(&self, work: &mut dyn FnMut(&mut Waiters)) {
        work(&mut self.waiters.borrow_mut());
    }

    fn lines(&self, _keyspace: KeyspaceId) -> Lines {
        match self.sharing.is_empty() {
            true => Lines { lags: false, is_strict: true, groups: vec![vec![self.process()]] },
            false => Lines { lags: true, is_strict: self.is_strict, groups: vec![self.sharing.clone()] },
        }
    }

    fn has_waiters(&self) -> bool {
        self.waiters.borrow().is_concerned()
    }

    fn awaits_streams(&self) -> bool {
        self.waiters.borrow().awaits_streams()
    }

    fn other_clients(&self, _visit: &mut dyn FnMut(&ClientInfo)) {}

    fn kill_other_clients(&mut self, _filter: &ClientFilter) -> u64 {
        0
    }
}
