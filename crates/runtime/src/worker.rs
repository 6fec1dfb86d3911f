//! A worker thread: its event loop, its connections, its gateway.

mod held_news;
mod replicated;

use crate::cluster::{Arrivals, FIRST_TOKEN, HostedKeyspace, dropped};
use crate::connection::{Connection, Io};
use crate::eviction::{self, EvictionOutcome};
use crate::functions;
use crate::guard::{AUTHENTICATION_TIME, DENIED, MOMENT, MOST_UNAUTHENTICATED, is_local};
use crate::health;
use crate::host::{WorkerHost, answer};
use crate::journal::Journal;
use crate::process::{Process, WorkerHandle};
use crate::refusal;
use crate::solo::Outcome;
use gateway::{Config, ConnectionId, Gateway, Peer, State};
use held_news::HeldNews;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use protocol::{Durable, Gate, NoReplies, Replies};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strict::solo::Group;
use types::{ReplyBuf, RequestId};

pub(crate) const WAKER: Token = Token(usize::MAX);
/// Tokens of listeners count down from here.
const LISTENERS: usize = usize::MAX - 1;
const TICK: Duration = Duration::from_millis(100);
const READ_BUFFER: usize = 64 * 1024;
const EVENTS: usize = 1024;
/// The worker that pumps keyspaces when a deadline comes.
const TIMEKEEPER: usize = 0;
/// The replies to a transaction's steps wait for that to its commit, up to so many bytes.
const HELD_FOR_COMMIT: usize = 4 * 1024;
/// So much memory the output of a subscriber keeps while nothing is published.
const IDLE_SUBSCRIBER_BYTES: usize = 256;
/// How long replies wait for a log that refuses what they rest on.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Worker {
    index: usize,
    poll: Poll,
    listeners: Vec<TcpListener>,
    host: WorkerHost,
    gateway: Gateway,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// From the gateway's names of connections to ours.
    tokens: BTreeMap<ConnectionId, usize>,
    /// Connections with something to execute or to send in this turn.
    touched: Vec<usize>,
    /// Connections whose socket may hold more than was read.
    unread: Vec<usize>,
    /// Connections whose replies wait for the log.
    holding: Vec<usize>,
    buffer: Box<[u8]>,
    /// Packets that peers have sent to this worker's sockets.
    arrived: Arrivals,
    /// Keyspaces that this worker attends in this turn.
    attended: Vec<Arc<HostedKeyspace>>,
    /// Something of a keyspace waits for the log.
    awaits_log: bool,
    /// Which of the listeners take clients at any address.
    wildcards: Vec<bool>,
    /// Clients that have not authenticated, the oldest first, and when they came.
    unauthenticated: VecDeque<(usize, ConnectionId, types::Instant)>,
    /// News of this worker's clients to other gateways, which the log holds back.
    held_news: VecDeque<HeldNews>,
    /// What the messages to this worker's subscribers wait for that were published in this turn, as replies do.
    pushed: Outcome,
    /// News on clients that wait for a key to hold something.
    turns: Vec<HeldNews>,
    /// About how many bytes of news wait in `held_news`.
    held_news_bytes: usize,
    /// Subscribers whose output may have more memory than it needs.
    grown: Vec<usize>,
    /// How many commands there were when statistics were published.
    published: u64,
    /// There is too much memory in use, and keys that may go.
    is_relieving: bool,
    /// How often the log had failed when those that wait looked for what that gave back.
    failures_seen: u64,
    next_tick: types::Instant,
}

/// What a worker is made of.
pub(crate) struct Parts {
    pub(crate) index: usize,
    pub(crate) poll: Poll,
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) process: Arc<Process>,
    pub(crate) me: Arc<WorkerHandle>,
}

impl Worker {
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        let Parts { index, poll, mut listeners, process, me } = parts;
        for (number, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener, Token(LISTENERS - number), Interest::READABLE)?;
        }
        let limits = resp::Limits {
            max_command_bytes: process.options.client_query_limit_bytes,
            ..resp::Limits::default()
        };
        let config = Config {
            worker: index as u16,
            hash_seed: process.locals.seed,
            limits,
            max_output_bytes: process.options.client_output_limit_bytes,
            ..Config::default()
        };
        let scripts = scripts::Scripts::new(process.library.clone());
        let is_wildcard =
            |listener: &TcpListener| listener.local_addr().is_ok_and(|address| address.ip().is_unspecified());
        Ok(Worker {
            wildcards: listeners.iter().map(is_wildcard).collect(),
            unauthenticated: VecDeque::new(),
            held_news: VecDeque::new(),
            pushed: Outcome::NOTHING,
            turns: Vec::new(),
            held_news_bytes: 0,
            grown: Vec::new(),
            published: 0,
            is_relieving: false,
            failures_seen: 0,
            index,
            poll,
            listeners,
            host: WorkerHost::new(process, me, index as u16),
            gateway: Gateway::new(config).with_interpreter(scripts),
            connections: Vec::new(),
            free: Vec::new(),
            tokens: BTreeMap::new(),
            touched: Vec::new(),
            unread: Vec::new(),
            holding: Vec::new(),
            buffer: vec![0; READ_BUFFER].into(),
            arrived: Arrivals::default(),
            attended: Vec::new(),
            awaits_log: false,
            next_tick: types::Instant(0),
        })
    }

    /// Serves until the process stops.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        while !self.host.process.is_stopping() {
            let waiting = self.unread.is_empty() && self.touched.is_empty() && !self.gateway.is_busy();
            let idle = waiting && !self.is_relieving;
            let timeout = if idle { self.rest().min(self.until_deadline()) } else { Duration::ZERO };
            if let Err(error) = self.poll.poll(&mut events, Some(timeout))
                && error.kind() != ErrorKind::Interrupted
            {
                crate::process::fatal(&format!("the event loop failed: {error}"));
            }
            self.turn(&events);
        }
        self.finish();
    }

    /// How long it is until a client that waits for a time goes on.
    fn until_deadline(&self) -> Duration {
        let now = self.host.process.now().instant;
        self.gateway.deadline().map_or(TICK, |deadline| deadline.max(now) - now)
    }

    fn turn(&mut self, events: &Events) {
        self.host.turn();
        self.host.me.turned_at.store(self.host.now.instant.0, Ordering::Relaxed);
        for token in std::mem::take(&mut self.unread) {
            self.readable(token);
        }
        for event in events {
            match event.token() {
                WAKER => self.empty_inbox(),
                Token(token) if token > LISTENERS - self.listeners.len() => self.accept(LISTENERS - token),
                Token(token) if token >= FIRST_TOKEN => {
                    self.peer_ready(token, event.is_read_closed() || event.is_error());
                }
                Token(token) => {
                    let ending = event.is_read_closed() || event.is_error();
                    if ending {
                        self.ending(token);
                    }
                    if event.is_readable() || ending {
                        self.readable(token);
                    }
                    if event.is_writable() {
                        self.touch(token);
                    }
                }
            }
        }
        if self.host.now.instant >= self.next_tick {
            self.tick();
        }
        if self.is_relieving {
            self.relieve();
        }
        if !self.is_due() {
            self.settle();
        }
        if self.is_due() {
            self.turn_cluster();
        }
        self.log();
        self.send_all();
    }

    fn accept(&mut self, listener: usize) {
        loop {
            match self.listeners[listener].accept() {
                Ok((socket, address)) => self.admit(socket, address, listener),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Out of file descriptors, most likely: the next event tries again.
                    tracing::warn!(%error, "a connection could not be accepted");
                    return;
                }
            }
        }
    }

    /// Takes a new connection, or hands it to the worker whose turn it is.
    fn admit(&mut self, mut socket: TcpStream, address: SocketAddr, listener: usize) {
        let process = &self.host.process;
        let number = process.total_connections.fetch_add(1, Ordering::Relaxed);
        let asks_password = process.asks_password();
        let is_stranger = !asks_password && self.wildcards[listener] && !is_local(address.ip());
        // Who has not authenticated is counted when that has been done.
        let is_full =
            !asks_password && process.clients.load(Ordering::Relaxed) >= process.parameters.max_clients();
        if is_stranger && process.parameters.protected_mode() {
            process.rejected_connections.fetch_add(1, Ordering::Relaxed);
            process.guard.report_denied(address.ip());
            let _ = socket.write(DENIED);
            return;
        }
        if is_full {
            process.rejected_connections.fetch_add(1, Ordering::Relaxed);
            // The socket is new, so this fits its buffer; if not, the client sees the end all the same.
            let _ = socket.write(b"-ERR max number of clients reached\r\n");
            return;
        }
        let count = if asks_password { &process.unauthenticated } else { &process.clients };
        count.fetch_add(1, Ordering::Relaxed);
        let target = {
            let workers = process.workers.read();
            Arc::clone(&workers[number as usize % workers.len()])
        };
        if Arc::ptr_eq(&target, &self.host.me) {
            self.open(socket, address, !asks_password);
        } else {
            target.inbox.lock().sockets.push((socket, address, !asks_password));
            target.wake();
        }
    }

    /// Begins to serve a connection, which counts among those that are served already if it is `counted`.
    fn open(&mut self, mut socket: TcpStream, address: SocketAddr, counted: bool) {
        let token = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let registered =
            self.poll.registry().register(&mut socket, Token(token), Interest::READABLE | Interest::WRITABLE);
        if let Err(error) = registered.and_then(|()| socket.set_nodelay(true)) {
            tracing::warn!(%error, "a connection could not be opened");
            self.free.push(token);
            return self.uncount(counted);
        }
        let peer = Peer {
            client: self.host.process.next_client.fetch_add(1, Ordering::Relaxed),
            address: address.to_string(),
            local_address: socket.local_addr().map_or(String::new(), |local| local.to_string()),
        };
        let number = peer.client;
        let id = self.gateway.open(peer, &mut self.host);
        if self.host.process.options.threads > 1 {
            self.host.me.clients.lock().extend(self.gateway.client(id).map(|client| (number, client)));
        }
        self.tokens.insert(id, token);
        self.connections[token] = Some(Connection::new(socket, id, self.host.now.instant));
        let admitted = self.gateway.is_admitted(id);
        if admitted != counted {
            // The password was changed since it was accepted.
            self.uncount(counted);
            self.count(admitted).fetch_add(1, Ordering::Relaxed);
        }
        if !admitted {
            self.unauthenticated.push_back((token, id, self.host.now.instant));
            self.make_room();
        }
        self.readable(token);
    }

    /// One client less: of those that are served, or of those that have not authenticated.
    fn uncount(&self, admitted: bool) {
        self.count(admitted).fetch_sub(1, Ordering::Relaxed);
    }

    /// How many clients there are that are served, or that have not authenticated.
    fn count(&self, admitted: bool) -> &AtomicUsize {
        let process = &self.host.process;
        if admitted { &process.clients } else { &process.unauthenticated }
    }

    /// Closes the connections whose clients have sent nothing for too long.
    fn close_silent(&mut self) {
        let Some(longest) = self.host.process.parameters.longest_silence() else { return };
        let (now, gateway) = (self.host.now.instant, &self.gateway);
        let is_silent = |connection: &Connection| {
            now - connection.heard_at > longest && gateway.may_time_out(connection.id)
        };
        let open = self.connections.iter().enumerate();
        let silent: Vec<usize> = open
            .filter_map(|(token, connection)| connection.as_ref().filter(|it| is_silent(it)).map(|_| token))
            .collect();
        silent.into_iter().for_each(|token| self.close(token));
    }

    /// Disconnects the clients that have had their time to authenticate, and the oldest ones where there are too many.
    fn make_room(&mut self) {
        let most = (MOST_UNAUTHENTICATED / self.host.process.options.threads).max(1);
        let (gateway, connections) = (&self.gateway, &self.connections);
        let waits = |(token, id, _): &(usize, ConnectionId, types::Instant)| {
            let is_open = connections[*token].as_ref().is_some_and(|connection| connection.id == *id);
            is_open && !gateway.is_admitted(*id)
        };
        self.unauthenticated.retain(waits);
        let is_over = |waiting: usize, age: Duration| {
            age >= AUTHENTICATION_TIME || (waiting > most && age >= MOMENT) || waiting > 2 * most
        };
        while let Some((token, id, opened)) = self.unauthenticated.front().copied()
            && is_over(self.unauthenticated.len(), self.host.now.instant - opened)
        {
            self.unauthenticated.pop_front();
            if let Some(client) = self.gateway.client(id) {
                self.host.process.guard.report_late(&client.peer.address);
            }
            self.close(token);
        }
    }

    fn empty_inbox(&mut self) {
        let inbox = std::mem::take(&mut *self.host.me.inbox.lock());
        for (socket, address, counted) in inbox.sockets {
            self.open(socket, address, counted);
        }
        for filter in inbox.kills {
            self.gateway.kill(&filter);
        }
        if inbox.monitored_too_much {
            self.gateway.cut_monitors();
        } else if !inbox.monitored.is_empty() {
            self.gateway.show_monitored(&inbox.monitored);
        }
        self.take_replies(inbox.replies);
        // After the replies: who has got one waits no more.
        for keyspace in inbox.dropped {
            self.gateway.give_up_waiting(keyspace, &dropped(), &mut self.host);
        }
        for (from, news) in inbox.news {
            self.gateway.hear(from, &news, &mut self.host);
        }
        // A gate of a keyspace may have opened.
        self.host.stirred |= self.awaits_log || inbox.looks_at_keyspaces;
        for (id, checked) in inbox.types {
            let outcome = checked.and_then(|new| self.host.add_type(new));
            answer(outcome, self.gateway.reply(id));
        }
        for (id, outcome) in inbox.libraries {
            self.host.stirred = true;
            functions::reply(outcome, self.gateway.reply(id));
        }
        for token in std::mem::take(&mut self.holding) {
            self.touch(token);
        }
    }

    /// Takes what other workers' steps replied to clients of this one. What waits for less is not held up by what waits for more.
    fn take_replies(&mut self, replies: Vec<(RequestId, ReplyBuf, Gate)>) {
        let mut replies = replies.into_iter().peekable();
        while let Some((id, reply, gate)) = replies.next() {
            reply.replay(self.gateway.reply(id));
            self.host.outcome.gate = self.host.outcome.gate.and(gate);
            if replies.peek().is_none_or(|(_, _, next)| *next != gate) {
                self.settle();
            }
        }
    }

    fn touch(&mut self, token: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(token)
            && !connection.touched
        {
            connection.touched = true;
            self.touched.push(token);
        }
    }

    /// The other side has closed its half, or the connection has failed.
    fn ending(&mut self, token: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(token) {
            connection.ending = true;
            // Who waits for an element and goes takes none that comes in this turn.
            if self.gateway.is_blocked(connection.id) {
                self.close(token);
            }
        }
    }

    /// Reads what the socket has, a buffer's worth, and executes it.
    fn readable(&mut self, token: usize) {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        if connection.closing || connection.half_closed || connection.stalled {
            return self.touch(token);
        }
        let (count, io) = connection.read(&mut self.buffer);
        if io == Io::Closed {
            connection.half_closed = true;
        }
        if io == Io::More {
            self.unread.push(token);
        }
        if count > 0 {
            connection.heard_at = self.host.now.instant;
            let buffer = std::mem::take(&mut self.buffer);
            self.execute(token, &buffer[..count]);
            self.buffer = buffer;
        }
        self.touch(token);
    }

    /// Executes what has been read before and `fresh`.
    fn execute(&mut self, token: usize, fresh: &[u8]) {
        let failures = self.log_failures();
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        let received = if connection.input.is_empty() {
            let received = self.gateway.receive(connection.id, fresh, &mut self.host);
            connection.input.extend_from_slice(&fresh[received.consumed..]);
            received
        } else {
            connection.input.extend_from_slice(fresh);
            let received = self.gateway.receive(connection.id, &connection.input, &mut self.host);
            connection.input.drain(..received.consumed);
            if connection.input.is_empty() {
                connection.input = Vec::new();
            }
            received
        };
        connection.stalled = matches!(received.state, State::Waiting | State::OutputFull);
        connection.closing |= received.state == State::Closing;
        let mut outcome = self.host.take_outcome();
        // A log that failed meanwhile may have taken back what the first of these replies tell of.
        outcome.refused |= outcome.is_solo && self.log_failures() != failures;
        self.gate(token, &outcome);
        if !self.host.news.is_empty() || self.gateway.has_news() {
            // Its news to other processes follow its earlier writes.
            let held = self.connections.get(token).and_then(Option::as_ref);
            for (gate, undoable) in held.into_iter().flat_map(Connection::held) {
                outcome.gate = outcome.gate.and(gate);
                outcome.undoable = outcome.undoable.max(undoable);
            }
        }
        self.hold_news(&outcome);
        if self.gateway.has_news() && !outcome.refused {
            self.pushed.gate = self.pushed.gate.and(outcome.gate);
            self.pushed.undoable = self.pushed.undoable.max(outcome.undoable);
        }
    }

    fn log_failures(&self) -> u64 {
        self.host.process.journal.as_ref().map_or(0, |journal| journal.failures())
    }

    /// The replies just written wait for what they reveal.
    fn gate(&mut self, token: usize, outcome: &Outcome) {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        if self.gateway.is_cut(connection.id) {
            return;
        }
        let own = self.gateway.take_own_replies(connection.id);
        let Some(output) = self.gateway.output_mut(connection.id) else { return };
        let Some(journal) = &self.host.process.journal else { return };
        if outcome.refused {
            connection.closing |= !connection.refuse(output, &own);
            return;
        }
        let gate = (!outcome.gate.is_open(journal.durable())).then_some(outcome.gate);
        connection.gate(output, own, gate, outcome.undoable);
    }

    /// Goes on where replies have come, and reads on where output has drained.
    fn settle(&mut self) {
        let mut news = Vec::new();
        self.gateway.settle(&mut self.host, &mut news);
        // Any of them may tell of what any of them did.
        let mut outcome = self.host.take_outcome();
        self.hold_news(&outcome);
        let pushed = std::mem::replace(&mut self.pushed, Outcome::NOTHING);
        outcome.gate = outcome.gate.and(pushed.gate);
        outcome.undoable = outcome.undoable.max(pushed.undoable);
        let mut resumable = Vec::new();
        for id in news {
            let Some(token) = self.tokens.get(&id).copied() else { continue };
            if self.gateway.is_cut(id) {
                tracing::info!(
                    "a client is disconnected before it was sent everything: it read too slowly, or was killed"
                );
                self.close(token);
                continue;
            }
            self.gate(token, &outcome);
            self.touch(token);
            let state = self.gateway.state(id);
            let Some(Some(connection)) = self.connections.get_mut(token) else { continue };
            connection.closing |= state == State::Closing;
            if state == State::Reading && connection.stalled {
                resumable.push(token);
            }
        }
        // What they do now may give others messages, which wait for what these tell of.
        resumable.into_iter().for_each(|token| self.resume(token));
    }

    fn resume(&mut self, token: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(token) {
            connection.stalled = false;
            self.execute(token, &[]);
            self.unread.push(token);
        }
    }

    /// Makes the turn's records as durable as this thread can without waiting for the disk.
    fn log(&mut self) {
        let Some(journal) = &self.host.process.journal else { return };
        let durable = journal.durable();
        let (mut write, mut sync) = (false, false);
        for token in &self.touched {
            let Some(Some(connection)) = self.connections.get(*token) else { continue };
            for gate in connection.gates() {
                sync |= gate.synced > durable.synced;
                write |= gate.written > durable.written;
            }
        }
        for held_news in &self.held_news {
            sync |= held_news.gate.synced > durable.synced;
            write |= held_news.gate.written > durable.written;
        }
        if sync {
            self.host.me.awaits_log.store(true, Ordering::Release);
            journal.want_sync();
        } else if write {
            journal.write_out();
        }
    }

    fn send_all(&mut self) {
        let durable = match &self.host.process.journal {
            Some(journal) => journal.durable(),
            None => Durable::default(),
        };
        for token in std::mem::take(&mut self.touched) {
            self.send(token, durable);
        }
        self.send_held_news(durable);
        if !self.holding.is_empty() || !self.held_news.is_empty() {
            self.host.me.awaits_log.store(true, Ordering::Release);
            let late = self.host.process.journal.as_ref().is_some_and(|journal| journal.durable() != durable);
            if late {
                // It became durable between the look and the note: nobody else will wake us.
                self.host.me.wake();
            }
        }
    }

    fn send(&mut self, token: usize, durable: Durable) {
        let Some(Some(connection)) = self.connections.get_mut(token) else { return };
        connection.touched = false;
        if self.gateway.is_cut(connection.id) {
            return self.close(token);
        }
        // Settling touches the connection again when the outcome has come.
        let awaits_outcome =
            connection.stalled && !connection.closing && self.gateway.ends_transaction(connection.id);
        let Some(output) = self.gateway.output_mut(connection.id) else { return };
        if awaits_outcome && output.len() <= HELD_FOR_COMMIT {
            return;
        }
        let is_logged = self.host.process.journal.is_some();
        if let Some(journal) = &self.host.process.journal
            && journal.failures() != 0
        {
            let is_late = journal.refuses_for().is_some_and(|refusing| refusing >= PATIENCE);
            let replaced =
                connection.refuse_held(output, |gate, undoable| match journal.has_failed(undoable) {
                    true => Some(refusal::UNDONE),
                    false => (is_late && gate.written > durable.written).then_some(refusal::RETAINED),
                });
            connection.closing |= !replaced;
        }
        let io = if output.is_empty() { Io::More } else { connection.send(output, durable, is_logged) };
        let drained = output.is_empty();
        if drained && output.capacity() > IDLE_SUBSCRIBER_BYTES && self.gateway.is_subscriber(connection.id) {
            self.grown.push(token);
        }
        if connection.holds() {
            self.holding.push(token);
        }
        // Who is gone takes nothing any more.
        let is_gone = (connection.ending || connection.half_closed) && self.gateway.is_blocked(connection.id);
        let over = connection.closing || is_gone || (connection.half_closed && !connection.stalled);
        if io == Io::Closed || (over && drained) {
            return self.close(token);
        }
        if drained && connection.stalled && self.gateway.state(connection.id) == State::Reading {
            self.resume(token);
            self.touch(token);
        }
    }

    fn close(&mut self, token: usize) {
        let Some(mut connection) = self.connections[token].take() else { return };
        if let Some(client) = self.gateway.client(connection.id) {
            self.host.me.clients.lock().remove(&client.peer.client);
        }
        let admitted = self.gateway.is_admitted(connection.id);
        self.gateway.close(connection.id, &mut self.host);
        self.tokens.remove(&connection.id);
        // A socket that cannot be deregistered is closed all the same.
        let _ = self.poll.registry().deregister(&mut connection.socket);
        self.free.push(token);
        self.uncount(admitted);
        // Those it has woken have replies that wait for it.
        let outcome = self.host.take_outcome();
        self.pushed.gate = self.pushed.gate.and(outcome.gate);
        self.pushed.undoable = self.pushed.undoable.max(outcome.undoable);
    }

    /// Every 100 ms: the timers of this worker's partitions, leases, what others want to know.
    fn tick(&mut self) {
        self.next_tick = self.host.now.instant + TICK;
        self.host.keyspaces = self.host.process.keyspaces();
        if self.index == TIMEKEEPER {
            self.tick_cluster();
        }
        if self.host.is_congested {
            let is_behind = self.host.process.workers.read().iter().any(|worker| worker.is_congested());
            self.host.is_congested = is_behind || self.holds_much_news();
        }
        if self.host.process.journal.as_ref().is_some_and(Journal::is_suspended) {
            // What they hold may have waited for long enough.
            std::mem::take(&mut self.holding).into_iter().for_each(|token| self.touch(token));
        }
        if !self.unauthenticated.is_empty() {
            self.make_room();
        }
        self.shrink_outputs();
        self.close_silent();
        self.publish_counts();
        let threads = self.host.process.options.threads;
        if threads > 1 {
            let mut clients = BTreeMap::new();
            self.gateway.clients(&mut |client| {
                clients.insert(client.peer.client, client.clone());
            });
            *self.host.me.clients.lock() = clients;
        }
        let keyspaces = Arc::clone(&self.host.keyspaces);
        for keyspace in keyspaces.iter() {
            for cell in keyspace.partitions.iter().skip(self.index).step_by(threads) {
                let mut replica = cell.replica.lock();
                self.host.lapsed.begin(&mut replica);
                replica.fire(self.host.now, &mut self.host.random, &mut NoReplies::default());
                let mut refused = false;
                if let Some(journal) = &self.host.process.journal {
                    // Nobody waits for a reply; if the log refused, it is undone and comes again.
                    refused = !journal.append(&mut [(cell, &mut replica)]);
                }
                self.host.lapsed.end(keyspace.id, &mut replica, refused);
                cell.count(replica.protocol());
            }
            if self.index == 0 {
                self.expire_leases(keyspace);
            }
        }
        if self.index == TIMEKEEPER {
            self.wake_after_refusal();
            self.relieve();
        }
    }

    /// Lets keys of caches go, as long as there is too much.
    fn relieve(&mut self) {
        let host = &mut self.host;
        self.is_relieving = eviction::look_after(&host.process, host.now, &mut host.random, &mut host.lapsed)
            == EvictionOutcome::Some;
    }

    /// Gives back the memory of subscribers' outputs that are empty.
    fn shrink_outputs(&mut self) {
        for token in std::mem::take(&mut self.grown) {
            let Some(Some(connection)) = self.connections.get(token) else { continue };
            if let Some(output) = self.gateway.output_mut(connection.id)
                && output.is_empty()
            {
                *output = Vec::new();
            }
        }
    }

    /// Tells the other threads what this worker's commands came to.
    fn publish_counts(&mut self) {
        let (process, me) = (&self.host.process, &self.host.me);
        let resets = process.resets.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.host.resets, resets) != resets {
            self.gateway.reset_statistics();
            self.published = 0;
        }
        let commands = self.gateway.commands();
        me.commands.store(commands, Ordering::Relaxed);
        let answered = self.gateway.statistics().answered();
        for (target, sum) in me.answered.iter().zip([answered.replies, answered.unavailable]) {
            target.store(sum, Ordering::Relaxed);
        }
        if process.options.threads > 1 && std::mem::replace(&mut self.published, commands) != commands {
            *me.statistics.lock() = (resets, self.gateway.statistics().clone());
        }
        if self.index == TIMEKEEPER {
            process.recent.lock().sample(self.host.now.instant, health::answered(process));
        }
    }

    fn expire_leases(&mut self, keyspace: &crate::keyspace::Keyspace) {
        let mut transactions = keyspace.transactions.lock();
        if transactions.deadline().is_some_and(|deadline| deadline <= self.host.now.instant) {
            let mut guards = keyspace.lock_all();
            let mut partitions: Vec<_> = guards.iter_mut().map(|guard| &mut **guard).collect();
            transactions.expire(self.host.now, &mut Group::new(&mut partitions));
        }
    }

    /// The process stops: what is logged becomes durable, what waits for it is sent.
    fn finish(mut self) {
        if let Some(journal) = &self.host.process.journal {
            journal.sync_all();
        }
        if self.host.process.view.is_active() {
            self.host.stirred = true;
            self.turn_cluster();
        }
        self.empty_inbox();
        self.settle();
        self.touched = (0..self.connections.len()).collect();
        self.send_all();
    }
}
