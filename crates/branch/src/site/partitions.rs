//! The site's record partitions, as its manager uses them (T14): the manager sends them every change, and requests the
//! keys that a client is about to work on. Such a request waits, with later ones of its session, and is then one step
//! like any other.
//!
//! # State and invariants
//! - An order leaves behind the log's record of what it tells: a commit is in the log, a state's end is on the disk.
//! - A question stands behind all orders given before it, so the answer, with the orders since, is what the manager would
//!   have if the key had never been away.
//! - A partition that does not answer refuses the requests that need its keys; all others are served.

use super::bootstrap::Asker;
use super::{Message, Record, Site, Timer};
use crate::Policy;
use crate::instance::Instance;
use crate::keyspace::Piece;
use crate::part::SAY_EVERY;
use mvcc::CompactKey;
use protocol::{Durability, Now, Outputs, Request, Step};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{
    Address, Error, ErrorCode, Incarnation, Instant, ProcessId, ReplyBuf, ReplySink, Rng, SessionId,
};

/// After how long without a word a partition is taken to be away.
const SILENT_AFTER: Duration = Duration::from_millis(1500);
/// How long a request waits for keys.
const PARKED_FOR: Duration = Duration::from_secs(3);
/// After how long a merge looks again whether its keys have come.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// How many keys travel in one message.
const PAGE: u64 = 500;

/// One partition.
#[derive(Debug)]
struct Lane {
    address: Address,
    /// It has said in this life, and in its own, where it stands.
    is_up: bool,
    /// The number of the last order that was sent.
    sent: u64,
    /// When it was last heard, or this life began.
    heard: Option<Instant>,
    /// It does not have what it once had on its disk.
    has_lost: bool,
}

/// A request that waits for keys, or behind one of its session that does.
#[derive(Debug)]
struct Parked {
    asker: Asker,
    session: SessionId,
    request: Box<[u8]>,
    until: Instant,
}

/// Everything is read for a site that has nothing.
#[derive(Debug)]
struct Fetching {
    to: Address,
    attempt: u64,
    lane: usize,
    after: Option<CompactKey>,
    /// The requested page.
    requested: Option<u64>,
}

/// What is to become of a request.
enum RequestReadiness {
    Ready,
    Waits,
    Refused(Error),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Partitions {
    lanes: Vec<Lane>,
    parked: Vec<Parked>,
    fetching: Option<Fetching>,
    /// The last question for a page; no earlier life used such a number.
    pages: u64,
}

impl Partitions {
    pub fn new(addresses: &[Address], incarnation: Incarnation) -> Self {
        let lane = |address: &Address| Lane {
            address: *address,
            is_up: false,
            sent: 0,
            heard: None,
            has_lost: false,
        };
        Partitions {
            lanes: addresses.iter().map(lane).collect(),
            parked: Vec::new(),
            fetching: None,
            pages: u64::from(incarnation.0) << 32,
        }
    }

    /// True if one of them is there.
    pub fn are_at(&self, address: Address) -> bool {
        self.lanes.iter().any(|lane| lane.address == address)
    }

    /// One of them began a life: it will say where it stands.
    pub fn began_anew(&mut self, address: Address) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.address == address) {
            lane.is_up = false;
        }
    }

    /// All is to be forgotten, also by those that do not have what they once had: they obey again.
    pub fn nothing_is_lost(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.has_lost) {
            (lane.has_lost, lane.is_up) = (false, true);
        }
    }

    /// Everything is to be read for this site.
    pub fn fetch_all(&mut self, to: Address, attempt: u64) {
        self.fetching = Some(Fetching { to, attempt, lane: 0, after: None, requested: None });
    }

    /// A site that was sent everything is gone; false if it was not.
    pub fn stop_fetching(&mut self, to: Address) -> bool {
        self.fetching.take_if(|fetching| fetching.to == to).is_some()
    }

    /// When to look again for requested keys.
    pub fn look_again_after(&self, usual: Duration) -> Duration {
        if self.lanes.iter().all(|lane| lane.is_up) { LOOK_AGAIN_AFTER } else { usual }
    }

    /// No session waits for answers to an earlier life of a process.
    pub fn forget_process(&mut self, process: ProcessId) {
        self.parked.retain(|parked| parked.asker.process() != Some(process));
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.parked.len()
    }
}

impl Site {
    /// How many requests wait for keys of record partitions.
    pub fn waiting(&self) -> usize {
        self.partitions.waiting()
    }

    /// A life begins.
    pub(super) fn begin_with_partitions(&mut self, now: Now, out: &mut Outputs<'_, Instance>) {
        if !self.keyspace.is_parted() {
            return;
        }
        self.keyspace.begin_life(self.incarnation);
        if !self.has_begun {
            // They may have something of a site whose disk was lost.
            self.start_afresh(out);
        }
        for lane in &mut self.partitions.lanes {
            lane.heard = Some(now.instant);
            out.stream(lane.address, Message::Attend);
        }
        out.arm(Timer::Partitions, now.instant + SAY_EVERY);
    }

    /// Writes down which moment a checkpoint shows, and which states have gone, on the disk: once partitions have forgotten them, they must not come back here.
    pub(super) fn note_moments(&mut self, out: &mut Outputs<'_, Instance>) {
        if self.is_refusing() {
            return;
        }
        if let Some(mark) = self.marks.take_due() {
            out.persist(&Record::Mark { mark }, self.options.durability);
        }
        for gone in &self.keyspace.take_unlogged() {
            out.persist(&Record::CollectedState { gone }, Durability::Synced);
        }
    }

    /// Sends partitions their pending orders and the requests for wanted keys.
    pub(super) fn tell_partitions(&mut self, out: &mut Outputs<'_, Instance>) {
        if !self.keyspace.is_parted() {
            return;
        }
        assert!(!self.keyspace.has_missed(), "what a step looks at was fetched before it");
        for (number, lane) in self.partitions.lanes.iter_mut().enumerate().filter(|(_, lane)| lane.is_up) {
            for (order, what) in self.keyspace.orders_after(number, lane.sent) {
                out.stream(lane.address, Message::Order { number: order, order: what.clone() });
                lane.sent = order;
            }
            if let Some((question, keys)) = self.keyspace.question(number) {
                out.stream(lane.address, Message::Load { question, keys });
            }
        }
        let Partitions { lanes, fetching, pages, .. } = &mut self.partitions;
        if let Some(fetching) = fetching
            && fetching.requested.is_none()
            && let Some(lane) = lanes.get(fetching.lane).filter(|lane| lane.is_up)
        {
            *pages += 1;
            fetching.requested = Some(*pages);
            let (question, after) = (*pages, fetching.after.clone());
            out.stream(lane.address, Message::Page { question, after, count: PAGE });
        }
    }

    /// A partition says something.
    pub(super) fn on_partition(
        &mut self,
        from: Address,
        message: Message,
        (now, random): (Now, &mut Rng),
        out: &mut Outputs<'_, Instance>,
    ) {
        let place = self.partitions.lanes.iter().position(|lane| lane.address == from);
        let Some((number, lane)) = place.map(|place| (place, &mut self.partitions.lanes[place])) else {
            return;
        };
        lane.heard = Some(now.instant);
        match message {
            Message::SessionPosition { applied } => self.on_standing(number, applied),
            Message::Safe { number: safe } if lane.is_up => {
                self.keyspace.is_safe(number, safe);
            }
            Message::Loaded { question, records } => {
                self.keyspace.loaded(question, records);
                self.serve_parked((now, random), out);
            }
            Message::Paged { question, records, is_last } => {
                self.on_paged(question, (records, is_last), out);
            }
            _ => {}
        }
    }

    /// A partition has everything up to an order, in memory at least: the site sends it the rest.
    fn on_standing(&mut self, number: usize, applied: u64) {
        let lane = &mut self.partitions.lanes[number];
        lane.has_lost = applied < self.keyspace.safe(number) || applied > self.keyspace.last_order();
        (lane.is_up, lane.sent) = (!lane.has_lost, applied);
        self.keyspace.ask_again(number);
        if let Some(fetching) = self.partitions.fetching.as_mut().filter(|fetching| fetching.lane == number) {
            fetching.requested = None;
        }
    }

    fn on_paged(
        &mut self,
        question: u64,
        (records, is_last): (Vec<crate::Stored>, bool),
        out: &mut Outputs<'_, Instance>,
    ) {
        let lanes = self.partitions.lanes.len();
        let requested = |fetching: &&mut Fetching| fetching.requested == Some(question);
        let Some(fetching) = self.partitions.fetching.as_mut().filter(requested) else { return };
        fetching.requested = None;
        fetching.after = records.last().map(|stored| stored.key.clone());
        if is_last {
            (fetching.lane, fetching.after) = (fetching.lane + 1, None);
        }
        let (to, attempt, is_last) = (fetching.to, fetching.attempt, fetching.lane == lanes);
        let pieces: Vec<Piece> = self.keyspace.pieces_of(records);
        out.stream(to, Message::Pieces { attempt, pieces, is_last });
        if is_last {
            self.partitions.fetching = None;
            self.keyspace.end_checkpoint();
        }
    }

    pub(super) fn on_partitions_timer(
        &mut self,
        (now, random): (Now, &mut Rng),
        out: &mut Outputs<'_, Instance>,
    ) {
        self.keyspace.shrink(self.options.near);
        self.serve_parked((now, random), out);
        out.arm(Timer::Partitions, now.instant + SAY_EVERY);
    }

    /// True for a request of this process that can be served as it is: what it looks at is near, and nothing of its session waits.
    /// What chooses branches or merges may turn out to need more, and an end has to reach what waits.
    pub(super) fn is_at_hand(&mut self, request: &Request<'_>) -> bool {
        if !self.keyspace.is_parted() {
            return true;
        }
        if matches!(request, Request::Own { .. } | Request::Close { .. }) {
            return false;
        }
        let session = super::clients::session_at(None, request.session());
        let needs = self.needs(session, request);
        self.partitions.parked.iter().all(|parked| parked.session != session)
            && self.keyspace.fetch(needs.iter())
    }

    /// Serves a request, now or when what it needs is here.
    pub(super) fn serve(
        &mut self,
        asker: Asker,
        request: &[u8],
        (now, random): (Now, &mut Rng),
        out: &mut Outputs<'_, Instance>,
    ) {
        let process = asker.process();
        let whose = |request: &Request<'_>| {
            let session = super::clients::session_at(process, request.session());
            (session, matches!(request, Request::Close { .. }))
        };
        if self.keyspace.is_parted()
            && let Ok((session, is_over)) = crate::request_codec::decoded(request, whose)
        {
            if is_over {
                self.partitions.parked.retain(|parked| parked.session != session);
            }
            let until = now.instant + PARKED_FOR;
            self.partitions.parked.push(Parked { asker, session, request: request.into(), until });
            return self.serve_parked((now, random), out);
        }
        let mut reply = ReplyBuf::new();
        self.serve_encoded(process, request, (now, random), &mut reply, out);
        let thread = self.thread_of(asker, request);
        asker.answer(reply, thread, out);
    }

    /// Serves the requests that have what they need; of a session in their order.
    fn serve_parked(&mut self, (now, random): (Now, &mut Rng), out: &mut Outputs<'_, Instance>) {
        let mut behind: BTreeSet<SessionId> = BTreeSet::new();
        for parked in std::mem::take(&mut self.partitions.parked) {
            let outlook = match behind.contains(&parked.session) {
                true => RequestReadiness::Waits,
                false => self.outlook(&parked, now.instant),
            };
            let mut reply = ReplyBuf::new();
            let is_served = match outlook {
                RequestReadiness::Ready => {
                    self.serve_encoded(
                        parked.asker.process(),
                        &parked.request,
                        (now, random),
                        &mut reply,
                        out,
                    );
                    // A merge handler may read unforeseen keys: the site then runs it again, and nothing has happened.
                    reply.as_error().is_none_or(|error| !crate::Refusal::Elsewhere.is(&error))
                }
                RequestReadiness::Refused(error) => {
                    self.end_refused(&parked);
                    reply.error(&error);
                    true
                }
                RequestReadiness::Waits => false,
            };
            if is_served {
                let thread = self.thread_of(parked.asker, &parked.request);
                parked.asker.answer(reply, thread, out);
            } else {
                behind.insert(parked.session);
                self.partitions.parked.push(parked);
            }
        }
    }

    /// A transaction that was all of one request has ended, and done nothing. Its session watches nothing any more.
    fn end_refused(&mut self, parked: &Parked) {
        let whole = |request: &Request<'_>| match request {
            Request::One { session, .. } => Some((*session, false)),
            Request::Many { session, watched, .. } => Some((*session, *watched)),
            _ => None,
        };
        let Ok(Some((session, watched))) = crate::request_codec::decoded(&parked.request, whole) else {
            return;
        };
        if watched {
            self.forget_watches(parked.session);
        }
        self.claims.asking = session;
        self.claims.ended(&[], None, &mut self.keyspace);
    }

    fn outlook(&mut self, parked: &Parked, now: Instant) -> RequestReadiness {
        let needs =
            crate::request_codec::decoded(&parked.request, |request| self.needs(parked.session, request));
        // What makes no sense says so itself.
        let Ok(needs) = needs else { return RequestReadiness::Ready };
        if self.keyspace.fetch(needs.iter()) {
            return RequestReadiness::Ready;
        }
        let lanes = needs.iter().filter_map(|key| self.keyspace.partition_of(key));
        let away = lanes
            .map(|lane| (lane, &self.partitions.lanes[lane]))
            .find(|(_, lane)| lane.has_lost || lane.heard.is_some_and(|heard| heard + SILENT_AFTER <= now));
        match away {
            Some((number, lane)) => RequestReadiness::Refused(refusal(number, lane)),
            None if parked.until <= now => RequestReadiness::Refused(Error::new(
                ErrorCode::Unavailable,
                "record partitions of this region's site did not answer in time; nothing has happened, retry later",
            )),
            None => RequestReadiness::Waits,
        }
    }

    /// The keys that a request looks at.
    fn needs(&self, session: SessionId, request: &Request<'_>) -> Vec<CompactKey> {
        let mut needs = Vec::new();
        match request {
            Request::One { operation, .. } => needs.push(CompactKey::new(operation.key)),
            Request::Many { steps, watched, .. } => {
                put_keys_of(steps, &mut needs);
                if *watched {
                    self.put_watched(session, &mut needs);
                }
            }
            Request::Operate { steps, .. } => put_keys_of(steps, &mut needs),
            Request::Watch { keys, .. } => needs.extend(keys.iter().map(|(key, _)| CompactKey::new(key))),
            Request::Commit { .. } => self.put_committed(session, &mut needs),
            Request::Own { words, steps, .. } => {
                put_keys_of(steps, &mut needs);
                self.put_needs_of_words(session, words, &mut needs);
            }
            Request::Unwatch { .. }
            | Request::Begin { .. }
            | Request::Abort { .. }
            | Request::Close { .. }
            | Request::Context { .. } => {}
        }
        needs
    }

    fn put_watched(&self, session: SessionId, needs: &mut Vec<CompactKey>) {
        let client = self.clients.get(session);
        needs.extend(client.iter().flat_map(|client| client.watches.iter().map(|watch| watch.key.clone())));
    }

    /// What a commit looks at: watched keys, and what a merge leaves to the keyspace's policy or has to claim.
    fn put_committed(&self, session: SessionId, needs: &mut Vec<CompactKey>) {
        let Some(open) = self.clients.get(session).and_then(|client| client.open.as_ref()) else { return };
        if open.is_watched {
            self.put_watched(session, needs);
        }
        if open.transaction.is_merge() && self.options.policy != Policy::Refuse {
            needs.extend(open.transaction.unresolved().cloned());
        }
        if open.transaction.is_merge() && self.options.claims {
            needs.extend(open.transaction.written().cloned());
        }
    }

    fn put_needs_of_words(&self, session: SessionId, words: &[&[u8]], needs: &mut Vec<CompactKey>) {
        let is = |place: usize, word: &str| {
            words.get(place).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()))
        };
        if is(1, "COMMIT") {
            return self.put_committed(session, needs);
        }
        let Some(key) = words.get(2).filter(|_| is(0, "MERGE")) else { return };
        if is(1, "GET") {
            needs.push(CompactKey::new(key));
        } else if is(1, "RESOLVE") && is(2, "ALL") {
            let open = self.clients.get(session).and_then(|client| client.open.as_ref());
            needs.extend(open.into_iter().flat_map(|open| open.transaction.unresolved().cloned()));
        } else if is(1, "RESOLVE") {
            needs.push(CompactKey::new(key));
        }
    }

    /// Why no more may be written, if partitions that do not answer lack as much as the site may retain for them.
    pub(super) fn partitions_are_full(&self) -> Option<Error> {
        let limit = self.options.queue;
        let is_full = |number: &usize| self.keyspace.pending_bytes(*number) >= limit;
        let full = (0..self.partitions.lanes.len()).find(is_full)?;
        let process = self.partitions.lanes[full].address.process;
        let text = format!(
            "record partition {full} at process {process} lacks {} bytes, and QUEUE allows {limit}; start the process, or \
             raise QUEUE with KEYSPACE ALTER; reads of other partitions go on",
            self.keyspace.pending_bytes(full)
        );
        Some(Error::new(ErrorCode::Unavailable, text))
    }
}

fn put_keys_of(steps: &[Step<'_>], needs: &mut Vec<CompactKey>) {
    for step in steps {
        if let Step::Key(keyed) = step {
            needs.push(CompactKey::new(keyed.key));
        }
    }
}

fn refusal(number: usize, lane: &Lane) -> Error {
    let process = lane.address.process;
    let text = match lane.has_lost {
        false => format!(
            "record partition {number} of this region's site, at process {process}, does not answer; keys of other \
             partitions are served, retry later"
        ),
        true => format!(
            "record partition {number} of this region's site, at process {process}, has lost its disk; start the process \
             of the site with --accept-loss, so that it fetches everything from another region"
        ),
    };
    Error::new(ErrorCode::Unavailable, text)
}
