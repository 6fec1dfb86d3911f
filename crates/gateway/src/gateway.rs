//! The gateway itself: its connections, and the calls by which a runtime drives it.

use crate::acl::default_user;
use crate::client::{ClientFilter, ClientInfo, Peer};
use crate::engine::Engine;
use crate::host::Host;
use crate::interpreter::Interpreter;
use crate::mailbox::Mailbox;
use crate::news::News;
use crate::pending_deliveries::PendingDeliveries;
use crate::pubsub::Outbox;
use crate::session::{Activity, Connection, FIRST_PIECE, Hold, Session};
use crate::statistics::Statistics;
use crate::subscriptions::Subscriptions;
use crate::tally::Tally;
use crate::tracking::peers::Peers;
use crate::tracking::{Pushed, Table, Touched};
use crate::waiters::Place;
use protocol::{Replies, Request};
use resp::{Parser, Pipeline};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use types::{Error, HashSeed, Instant, KeyspaceId, ProcessId, ReplyBuf, ReplySink, RequestId};

/// How many bits of a request's number count requests; the bits above name the worker.
const REQUEST_BITS: u32 = 48;

/// The configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which of the process's gateways it is. Request numbers start with it: see [`Config::worker_of`].
    pub worker: u16,
    /// The deployment's hash seed.
    pub hash_seed: HashSeed,
    /// What a client may send.
    pub limits: resp::Limits,
    /// The most commands between MULTI and EXEC.
    pub max_queued_commands: usize,
    /// The most bytes of the commands between MULTI and EXEC. At most 1 GiB.
    pub max_queued_bytes: usize,
    /// The most keys that a session watches at a time.
    pub max_watched_keys: usize,
    /// A connection with this many bytes of unsent replies executes nothing more until they are sent.
    pub max_output_bytes: usize,
    /// How often a command that needs several steps, or an EXEC, is tried while it meets conflicts.
    pub max_attempts: u32,
    /// About how many keys one step of KEYS visits.
    pub scan_piece: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            worker: 0,
            hash_seed: HashSeed::default(),
            limits: resp::Limits::default(),
            max_queued_commands: 100_000,
            max_queued_bytes: 64 << 20,
            max_watched_keys: 100_000,
            max_output_bytes: 1 << 20,
            max_attempts: 64,
            scan_piece: 256,
        }
    }
}

impl Config {
    /// The worker whose gateway made this request, so that a reply finds its way back.
    pub fn worker_of(id: RequestId) -> u16 {
        (id.0 >> REQUEST_BITS) as u16
    }
}

/// Names a connection of one gateway; never used again after it closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    slot: u32,
    generation: u32,
}

impl ConnectionId {
    /// Where its gateway keeps it.
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }
}

#[cfg(test)]
impl ConnectionId {
    /// One for tests of what has no gateway.
    pub(crate) fn numbered(slot: u32) -> Self {
        ConnectionId { slot, generation: 0 }
    }
}

/// What [`Gateway::receive`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many bytes of the input are done with.
    pub consumed: usize,
    /// What the connection can do next.
    pub state: State,
}

/// What a connection can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It needs more bytes from the client.
    Reading,
    /// It waits for a reply of a keyspace; [`Gateway::settle`] tells when to call `receive` again.
    Waiting,
    /// It has more unsent replies than it may; call `receive` again when the output is empty.
    OutputFull,
    /// It is over: send the output, close the socket, call [`Gateway::close`].
    Closing,
}

/// Everything a worker thread knows about its clients.
///
/// A runtime drives it so. A socket connects: [`Gateway::open`]. Bytes arrive: [`Gateway::receive`] with all unread
/// bytes; keep what was not consumed. Replies have piled up in [`Gateway::output_mut`]: send them, drain what was
/// sent. A keyspace answers outside of `receive`: it writes into the gateway, which is a [`Replies`]. After every
/// round of receiving and answering: [`Gateway::settle`], which goes on where a reply was missing and names the
/// connections that have output, can receive again, or are over. A socket disconnects: [`Gateway::close`].
///
/// Replies are encoded when they are given. A runtime whose keyspaces promise durability keeps a connection's output
/// until what its replies reveal is as durable as promised.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) config: Config,
    pub(crate) slots: Vec<Slot>,
    free: Vec<u32>,
    pub(crate) mailbox: Mailbox,
    /// Connections that wait, by the number of the last reply they wait for.
    waiting: BTreeMap<u64, ConnectionId>,
    /// Connections with news for the runtime.
    pub(crate) news: Vec<ConnectionId>,
    /// Connections that interrupted what they do.
    interrupted: Vec<ConnectionId>,
    /// For replies that are written in one piece.
    pub(crate) scratch: ReplyBuf,
    /// What runs scripts, if anything does.
    pub(crate) interpreter: Option<Box<dyn Interpreter>>,
    pub(crate) next_request: u64,
    pub(crate) requests: Vec<(RequestId, Request<'static>)>,
    pipeline: Pipeline,
    open: usize,
    pub(crate) commands: u64,
    pub(crate) statistics: Statistics,
    /// Connections that wait for a time.
    held: Vec<ConnectionId>,
    pub(crate) subscriptions: Subscriptions,
    /// For messages that are encoded once.
    pub(crate) frame: Vec<u8>,
    /// How often it has settled.
    pub(crate) turn: u64,
    /// Subscribers that have much to read.
    pub(crate) swollen: Vec<ConnectionId>,
    /// Messages of other processes that wait for what their publishers had seen.
    pub(crate) due: BTreeMap<ProcessId, PendingDeliveries>,
    /// Keyspaces that have said that their sessions depend on nothing.
    pub(crate) without_contexts: BTreeSet<KeyspaceId>,
    /// Connections that watch the commands of all.
    pub(crate) monitors: Vec<ConnectionId>,
    /// Lines for those who watch, here and elsewhere.
    pub(crate) monitored: Vec<u8>,
    /// Blocked connections, by their clients' numbers.
    pub(crate) blocked: BTreeMap<u64, ConnectionId>,
    /// When to look at which of them.
    pub(crate) alarms: BTreeSet<(Instant, ConnectionId)>,
    /// Those whose wait ends.
    pub(crate) ending: Vec<ConnectionId>,
    /// Clients that have the turn of a line.
    pub(crate) turns: VecDeque<(Place, u64)>,
    /// When the process's lines are to be looked at.
    pub(crate) look_at_lines: Option<Instant>,
    /// Turns wait for this time, at which a pause ends.
    pub(crate) paused_until: Option<Instant>,
    /// Which version of the users its sessions follow.
    pub(crate) users_seen: u64,
    /// Other gateways know which clients are gone.
    pub(crate) has_departures: bool,
    /// Its connections, by their clients' numbers.
    pub(crate) numbers: BTreeMap<u64, ConnectionId>,
    /// What tracked clients have read.
    pub(crate) table: Table,
    /// The turn in which it last invalidated everything for all tracked clients.
    pub(crate) invalidated_all_in: u64,
    /// How many changes it has heard of, its own among them.
    pub(crate) changes: u64,
    /// What executing connections are sent for others.
    pub(crate) handed_over: Vec<(ConnectionId, Pushed)>,
    /// What clients that are gone may yet change, by the number of the reply that tells.
    pub(crate) left: BTreeMap<u64, Vec<Touched>>,
    /// Keys whose deadlines are requested, by the number of the request.
    pub(crate) pending_deadlines: BTreeMap<u64, (KeyspaceId, Box<[u8]>)>,
    /// When the next tracked key expires.
    pub(crate) expires_at: Option<Instant>,
    pub(crate) peers: Peers,
    /// There were other processes when it looked last.
    pub(crate) has_peers: bool,
}

#[derive(Debug)]
pub(crate) struct Slot {
    generation: u32,
    pub(crate) connection: Option<Box<Connection>>,
}

impl Gateway {
    /// A gateway without connections.
    pub fn new(config: Config) -> Self {
        let next_request = u64::from(config.worker) << REQUEST_BITS;
        Gateway {
            config,
            slots: Vec::new(),
            free: Vec::new(),
            mailbox: Mailbox::default(),
            waiting: BTreeMap::new(),
            news: Vec::new(),
            interrupted: Vec::new(),
            scratch: ReplyBuf::new(),
            interpreter: None,
            next_request,
            requests: Vec::new(),
            pipeline: Pipeline::default(),
            open: 0,
            commands: 0,
            statistics: Statistics::default(),
            held: Vec::new(),
            subscriptions: Subscriptions::default(),
            frame: Vec::new(),
            turn: 1,
            swollen: Vec::new(),
            due: BTreeMap::new(),
            without_contexts: BTreeSet::new(),
            monitors: Vec::new(),
            monitored: Vec::new(),
            blocked: BTreeMap::new(),
            alarms: BTreeSet::new(),
            ending: Vec::new(),
            turns: VecDeque::new(),
            look_at_lines: None,
            paused_until: None,
            users_seen: 0,
            has_departures: false,
            numbers: BTreeMap::new(),
            table: Table::default(),
            invalidated_all_in: 0,
            changes: 0,
            handed_over: Vec::new(),
            left: BTreeMap::new(),
            pending_deadlines: BTreeMap::new(),
            expires_at: None,
            peers: Peers::default(),
            has_peers: true,
        }
    }

    /// The same, running scripts of clients.
    pub fn with_interpreter(mut self, interpreter: impl Interpreter + 'static) -> Self {
        self.interpreter = Some(Box::new(interpreter));
        self
    }

    /// A client connected.
    pub fn open(&mut self, peer: Peer, host: &mut impl Host) -> ConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            (self.slots.len() - 1) as u32
        });
        let id = ConnectionId { slot, generation: self.slots[slot as usize].generation };
        let authenticated = !host.authentication_required();
        let keyspace = host.keyspace_of_number(0).unwrap_or_default();
        let client = peer.client;
        let mut session = Session::new(peer, keyspace, default_user(host), authenticated, host.now().instant);
        session.set_user(Arc::clone(&session.user), host);
        self.slots[slot as usize].connection = Some(Box::new(Connection {
            id,
            parser: Parser::new(self.config.limits, authenticated),
            session,
            output: Vec::new(),
            own_replies: Vec::new(),
            activity: Activity::Idle,
            closing: false,
            cut: false,
            tally: Tally::default(),
            discarded: Vec::new(),
            admitted: authenticated,
            outbox: Outbox::default(),
            pushed_in: 0,
            long_since: None,
            piece: FIRST_PIECE,
            woken: Vec::new(),
            touched: Vec::new(),
            wrote_untracked: false,
            invalid: Vec::new(),
        }));
        self.numbers.insert(client, id);
        self.open += 1;
        id
    }

    /// Bytes arrived, or a connection may go on: executes what `input`, all unread bytes, holds of complete
    /// commands. Does nothing for a connection that waits or is over.
    pub fn receive<H: Host>(&mut self, id: ConnectionId, input: &[u8], host: &mut H) -> Received {
        self.follow_users(host);
        let Some(mut connection) = self.take(id) else {
            return Received { consumed: input.len(), state: State::Closing };
        };
        let mut pipeline = std::mem::take(&mut self.pipeline);
        let mut consumed = 0;
        let state = loop {
            if let Some(state) = self.obstacle(&connection) {
                break state;
            }
            let unread = &input[consumed..];
            let outcome = connection.parser.parse(unread, &mut pipeline);
            let executed = Engine::new(self, &mut connection, host).execute(&pipeline, unread);
            if executed < pipeline.len() {
                consumed += executed.checked_sub(1).and_then(|last| pipeline.end_of(last)).unwrap_or(0);
                connection.parser.reset();
                continue;
            }
            match outcome {
                Ok(0) => break self.obstacle(&connection).unwrap_or(State::Reading),
                Ok(bytes) => consumed += bytes,
                // The error is the last reply: it waits until those before it have come.
                Err(error) if matches!(connection.activity, Activity::Idle) => {
                    error.write_reply(&mut connection.output);
                    connection.closing = true;
                }
                Err(_) => {
                    consumed +=
                        pipeline.len().checked_sub(1).and_then(|last| pipeline.end_of(last)).unwrap_or(0);
                    connection.parser.reset();
                }
            }
        };
        self.pipeline = pipeline;
        self.tell_of_lapsed(Some(&mut connection), host);
        self.put_back(connection, host);
        if !self.monitored.is_empty() {
            self.tell_monitors(host);
        }
        Received { consumed, state }
    }

    /// What keeps the connection from executing commands.
    fn obstacle(&self, connection: &Connection) -> Option<State> {
        if connection.closing {
            Some(State::Closing)
        } else if !matches!(connection.activity, Activity::Idle) {
            Some(State::Waiting)
        } else if connection.output.len() >= self.config.max_output_bytes {
            Some(State::OutputFull)
        } else {
            None
        }
    }

    /// Goes on where replies have come and where long commands were interrupted, and appends the connections that
    /// have news: output, readiness for `receive` (their state is `Reading` now), or their end.
    pub fn settle<H: Host>(&mut self, host: &mut H, news: &mut Vec<ConnectionId>) {
        self.follow_users(host);
        for id in std::mem::take(&mut self.interrupted) {
            let Some(mut connection) = self.take(id) else { continue };
            Engine::new(self, &mut connection, host).continue_sequence();
            self.news.push(id);
            self.put_back(connection, host);
        }
        self.release_held(host);
        if !self.due.is_empty() {
            self.deliver_late(host);
        }
        self.tell_expired(host);
        self.beat(host);
        if !self.swollen.is_empty() {
            self.check_swollen(host);
        }
        loop {
            let fresh = self.mailbox.take_fresh();
            if fresh.is_empty() {
                break;
            }
            fresh.into_iter().for_each(|number| self.deliver(number, host));
        }
        self.tell_of_lapsed(None, host);
        self.serve_waits(host);
        self.tell_of_lapsed(None, host);
        if !self.monitored.is_empty() {
            self.tell_monitors(host);
        }
        self.news.sort_unstable();
        self.news.dedup();
        news.append(&mut self.news);
        self.turn += 1;
    }

    /// News from another gateway, of the process `from`. To be called outside of `receive`, like a reply; before
    /// `settle`.
    pub fn hear<H: Host>(&mut self, from: ProcessId, news: &News, host: &mut H) {
        match news {
            News::Published { message } => self.hear_message(from, message, host),
            News::Line { place, what } => self.hear_line(from, place, what, host),
            News::Unblock { client, with_error } => {
                self.unblock(*client, *with_error);
            }
            News::Changed { worker, number, changes } => {
                self.hear_changed(from, (*worker, *number), changes, host);
            }
            News::Tracks { missed } => self.hear_tracks(from, missed, host),
            News::Tells { worker, gateways, number } => {
                self.hear_tells(from, (*worker, *gateways), *number, host);
            }
            News::Invalidated { client, keys, all } => self.hear_redirected(*client, (keys, *all), host),
        }
    }

    /// True if connections have news for [`Gateway::settle`] to tell.
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// True when [`Gateway::settle`] is to be called again soon even if nothing happens: a long command, such as
    /// KEYS, let others go first.
    pub fn is_busy(&self) -> bool {
        !self.interrupted.is_empty() || self.has_waits_to_serve()
    }

    /// When [`Gateway::settle`] is to be called at the latest: a connection waits for that time.
    pub fn deadline(&self) -> Option<Instant> {
        let until = |id: &ConnectionId| match self.connection(*id)?.activity {
            Activity::Held { until, .. } => Some(until),
            _ => None,
        };
        let due = self.due.values().filter_map(PendingDeliveries::deadline);
        let tracked = self.expires_at.into_iter().chain(self.next_beat());
        self.held.iter().filter_map(until).chain(due).chain(self.wait_deadline()).chain(tracked).min()
    }

    /// Lets connections go on for which the time has come.
    fn release_held<H: Host>(&mut self, host: &mut H) {
        if self.held.is_empty() {
            return;
        }
        let (now, pause) = (host.now().instant, host.pause());
        for id in std::mem::take(&mut self.held) {
            let Some(mut connection) = self.take(id) else { continue };
            match connection.activity {
                Activity::Held { until, hold: Hold::Congestion } if until <= now => {
                    connection.activity = Activity::Idle;
                    self.news.push(id);
                }
                Activity::Held { until, hold: Hold::Sleep } if until <= now => {
                    connection.activity = Activity::Idle;
                    connection.encoder().simple("OK");
                    self.news.push(id);
                }
                Activity::Held { hold: Hold::Pause, .. } if !pause.is_on(now) => {
                    connection.activity = Activity::Idle;
                    self.news.push(id);
                }
                // The pause may have been prolonged.
                Activity::Held { hold: Hold::Pause, .. } => {
                    connection.activity = Activity::Held { until: pause.until, hold: Hold::Pause };
                }
                _ => {}
            }
            self.put_back(connection, host);
        }
    }

    /// What its commands came to.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Begins to count anew.
    pub fn reset_statistics(&mut self) {
        self.statistics = Statistics::default();
    }

    /// True when the client counts among those that are served: it has authenticated once, or did not have to.
    pub fn is_admitted(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| connection.admitted)
    }

    /// True if the connection may be closed when its client has sent nothing for long: nothing is under way for it, and it
    /// waits for no message.
    pub fn may_time_out(&self, id: ConnectionId) -> bool {
        let is_idle = |connection: &Connection| {
            matches!(connection.activity, Activity::Idle) && !connection.session.is_subscriber()
        };
        self.connection(id).is_some_and(is_idle) && !self.monitors.contains(&id)
    }

    /// Lets the connection that waits for this reply go on; forgets a reply that nobody waits for.
    fn deliver<H: Host>(&mut self, number: u64, host: &mut H) {
        if !self.due.is_empty() && self.deliver_awaited(number, host) {
            return;
        }
        if self.hear_deadline(number, host) || self.hear_context(number, host) || self.tell_left(number, host)
        {
            return;
        }
        let waiting = self.waiting.range(number..).next().map(|(last, id)| (*last, *id));
        if let Some((last, id)) = waiting
            && let Some(mut connection) = self.take(id)
        {
            let resumed = Engine::new(self, &mut connection, host).resume(number);
            if resumed {
                self.waiting.remove(&last);
                self.news.push(id);
            }
            self.put_back(connection, host);
            if resumed {
                return;
            }
        }
        self.mailbox.take(number);
    }

    /// Nothing of this keyspace will be answered any more: whoever waits for a reply of it gets the error. The host
    /// answers later requests. To be called outside of `receive`, like a reply; before `settle`.
    pub fn give_up_waiting<H: Host>(&mut self, keyspace: KeyspaceId, error: &Error, host: &mut H) {
        self.forget_tracked(keyspace, host);
        self.give_up_waits(keyspace, error);
        let connections = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        let awaited = connections.flat_map(|connection| connection.due_of(keyspace));
        let missing: Vec<u64> = awaited.filter(|number| !self.mailbox.has(*number)).collect();
        for number in missing {
            self.mailbox.reply(RequestId(number)).error(error);
        }
        self.give_up_due(keyspace, error);
    }

    /// The connection's state, as `receive` would report it without new bytes.
    pub fn state(&self, id: ConnectionId) -> State {
        match self.connection(id) {
            Some(connection) => self.obstacle(connection).unwrap_or(State::Reading),
            None => State::Closing,
        }
    }

    /// True if its command waits until there is something for it: a client that is gone meanwhile waits for nothing.
    pub fn is_blocked(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| matches!(connection.activity, Activity::Blocked(_)))
    }

    /// True while an EXEC or a COMMIT is not answered: the replies to the transaction's steps are of little use
    /// without its reply, so a runtime may send both together.
    pub fn ends_transaction(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| connection.activity.ends_transaction())
    }

    /// The encoded replies that wait to be sent. The caller drains what it has sent.
    pub fn output_mut(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        self.connection_mut(id).map(|connection| &mut connection.output)
    }

    /// The places in the output of replies, written since the last call, that tell of the session only and of no
    /// keyspace. They are right as long as nothing was drained since.
    #[inline]
    pub fn take_own_replies(&mut self, id: ConnectionId) -> Vec<Range<usize>> {
        let connection = self.connection_mut(id);
        connection.map(|connection| std::mem::take(&mut connection.own_replies)).unwrap_or_default()
    }

    /// How many unread bytes it takes until `receive` can do more, if that is known (see [`Parser::needed`]).
    pub fn needed(&self, id: ConnectionId) -> Option<usize> {
        self.connection(id).and_then(|connection| connection.parser.needed())
    }

    /// The client is gone: its transaction and its watches are given up.
    pub fn close<H: Host>(&mut self, id: ConnectionId, host: &mut H) {
        let Some(mut connection) = self.take(id) else { return };
        self.set_monitor(id, false, host);
        self.has_departures |= connection.is_blocked();
        Engine::new(self, &mut connection, host).abandon_wait();
        self.wake_now(&mut connection, host);
        // Nobody is redirected to it any more.
        self.numbers.remove(&connection.session.peer.client);
        self.leave_changes(&mut connection, host);
        self.stop_tracking(&mut connection, host);
        Engine::new(self, &mut connection, host).close_session();
        self.unsubscribe_all(&mut connection, host);
        if let Some(last) = connection.activity.last_awaited() {
            self.waiting.remove(&last);
        }
        self.slots[id.slot as usize].generation = id.generation.wrapping_add(1);
        self.free.push(id.slot);
        self.open -= 1;
        self.handed_over.retain(|(its, _)| *its != id);
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.open
    }

    /// How many commands it has executed or queued.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Visits its clients.
    pub fn clients(&self, visit: &mut dyn FnMut(&ClientInfo)) {
        for connection in self.slots.iter().filter_map(|slot| slot.connection.as_ref()) {
            visit(&connection.info());
        }
    }

    /// The same of one connection.
    pub fn client(&self, id: ConnectionId) -> Option<ClientInfo> {
        self.connection(id).map(Connection::info)
    }

    /// Ends the matching connections; returns how many. [`Gateway::settle`] names them.
    pub fn kill(&mut self, filter: &ClientFilter) -> u64 {
        let mut killed = 0;
        for connection in self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut()) {
            let session = &connection.session;
            if filter.matches(&session.peer, &session.user.name, session.is_subscriber())
                && !connection.closing
            {
                connection.end();
                self.news.push(connection.id);
                killed += 1;
            }
        }
        killed
    }

    /// The runtime is to look at this connection.
    pub(crate) fn tell_of(&mut self, id: ConnectionId) {
        self.news.push(id);
    }

    pub(crate) fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        let slot = self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.connection.as_deref()
    }

    pub(crate) fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.connection.as_deref_mut()
    }

    pub(crate) fn take(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.connection.take()
    }

    /// Keeps the connection until its next turn, and remembers what it waits for.
    pub(crate) fn put_back<H: Host>(&mut self, mut connection: Box<Connection>, host: &mut H) {
        let id = connection.id;
        if !connection.woken.is_empty() {
            self.wake(&mut connection, host);
        }
        if connection.has_changes() || !self.handed_over.is_empty() {
            self.tell_changes(&mut connection, host);
        }
        connection.tally.count_replies(&mut self.statistics);
        if matches!(connection.activity, Activity::Held { .. }) {
            self.held.push(id);
        }
        if let Some(last) = connection.activity.last_awaited() {
            self.waiting.insert(last, id);
        }
        if matches!(connection.activity, Activity::Interrupted(_)) && !self.interrupted.contains(&id) {
            self.interrupted.push(id);
        }
        self.slots[id.slot as usize].connection = Some(connection);
    }
}

impl Replies for Gateway {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.mailbox.reply(id)
    }
}
