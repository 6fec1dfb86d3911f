//! Bootstrap of a site that remembers nothing (TARDiS 6.5): a new one, or one whose disk was lost. It must not create a
//! state on the empty keyspace after the others have collected that one: no site could ever apply it. A site that has
//! lost the end of its log bootstraps too, for others may have collected what it lacks because it had acknowledged it
//! (Corrections 57); but it forgets what it remembers only when another site has begun and sends it everything.
//!
//! ```text
//!  Join --> every other site --> Joined { has_begun } --> of the first that has: Fetch --> Pieces ... is_last
//!                                                    \--> none has, and all have answered: it begins empty
//! ```
//!
//! What clients ask meanwhile waits, and so does what other sites lack: states come before their values. What came from a
//! site is that site's whole State DAG, so that the others can say exactly what is lacking (`Greeting`); and the new site
//! begins nothing above the heads that it got (Corrections 54).

use super::logged::Recorded;
use super::message::Thread;
use super::{Message, Record, Site, Timer};
use crate::StateId;
use crate::instance::Instance;
use crate::keyspace::Piece;
use protocol::{Durability, Now, Outputs, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Address, Error, ErrorCode, Instant, NodeId, ProcessId, ReplyBuf, RequestId, Rng};

/// How often it asks again.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// After how long without a piece the site turns to another site.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// How long what clients ask may wait.
const HELD_FOR: Duration = Duration::from_secs(3);
/// How many pieces travel in one message.
const PIECES: usize = 500;

/// Who sent a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asker {
    Client(RequestId),
    /// A gateway of another process of the region, and its number of the question.
    Process(NodeId, u64),
}

impl Asker {
    /// The process, if it is another one.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Asker::Client(_) => None,
            Asker::Process(from, _) => Some(from.process),
        }
    }

    /// Gives the reply, if there is any; to another process with where the session stands.
    pub fn answer(&self, reply: ReplyBuf, thread: Option<Thread>, out: &mut Outputs<'_, Instance>) {
        match self {
            _ if reply.is_empty() => {}
            Asker::Client(id) => reply.replay(out.reply(*id)),
            Asker::Process(from, number) => {
                out.stream(from.address(), Message::Answer { number: *number, thread, reply });
            }
        }
    }
}

#[derive(Debug)]
struct Held {
    asker: Asker,
    thread: Option<Thread>,
    request: Box<[u8]>,
    until: Instant,
}

/// A site's beginning.
#[derive(Debug, Default)]
pub(super) struct Bootstrap {
    /// False once the site has begun, in this life or before it.
    is_under_way: bool,
    /// Other sites that have not begun either.
    empty: BTreeSet<Address>,
    /// The site that this one fetches everything from, and the time of its last message.
    source: Option<(Address, Instant)>,
    /// Numbers the attempts, from the life's number on: answers to an earlier life may still arrive.
    attempt: u64,
    held: Vec<Held>,
    /// Which states the sites have that greeted during the bootstrap: this site may lack values yet, and would send
    /// states without them.
    greeted: BTreeMap<Address, Vec<StateId>>,
    /// The sites that wanted to fetch everything while a checkpoint was in progress, and their questions.
    fetchers: BTreeMap<Address, u64>,
}

impl Site {
    /// True until the site may serve.
    pub fn is_joining(&self) -> bool {
        self.bootstrap.is_under_way
    }

    /// The log was read. A site that has never begun looks for another one that has; so does one of whose log something
    /// is missing.
    pub(super) fn begin_or_join(&mut self, complete: bool, now: Now, out: &mut Outputs<'_, Instance>) {
        self.marks.recovered();
        out.persist(&Record::Life { incarnation: self.incarnation }, self.options.durability);
        self.begin_with_partitions(now, out);
        self.has_begun &= complete;
        if self.has_begun || self.topology.sites.len() == 1 {
            return self.begin_serving(now, out);
        }
        self.bootstrap.is_under_way = true;
        self.bootstrap.attempt = u64::from(self.incarnation.0) << 32;
        self.ask_to_join(now, out);
    }

    fn begin_serving(&mut self, now: Now, out: &mut Outputs<'_, Instance>) {
        if !self.has_begun {
            self.has_begun = true;
            out.persist(&Record::PartialRebase, self.options.durability);
        }
        self.bootstrap.is_under_way = false;
        self.begin_life(now, out);
        for (site, states) in std::mem::take(&mut self.bootstrap.greeted) {
            self.tell_what_is_lacking(site, &states, out);
        }
    }

    /// Forgets everything, in the log too. The site orders its partitions to forget, too: a power cut must not bring
    /// back here what they forgot.
    pub(super) fn start_afresh(&mut self, out: &mut Outputs<'_, Instance>) {
        self.start_over();
        self.partitions.nothing_is_lost();
        let parted = self.keyspace.is_parted();
        let class = if parted { Durability::Synced } else { self.options.durability };
        out.persist(&Record::Afresh, class);
    }

    fn others(&self) -> impl Iterator<Item = Address> {
        self.topology.sites.iter().enumerate().filter(|(site, _)| *site != self.index).map(|(_, site)| *site)
    }

    fn ask_to_join(&mut self, now: Now, out: &mut Outputs<'_, Instance>) {
        self.others().for_each(|site| out.stream(site, Message::Join));
        out.arm(Timer::Join, now.instant + ASK_EVERY);
    }

    /// Asks again, and gives up what has waited for too long.
    pub(super) fn on_join_timer(&mut self, now: Now, out: &mut Outputs<'_, Instance>) {
        if !self.bootstrap.is_under_way {
            return;
        }
        // A partitioned site sends nothing: another one may help.
        if self.bootstrap.source.is_none_or(|(_, heard)| heard + SILENT_AFTER <= now.instant) {
            self.bootstrap.source = None;
            self.ask_to_join(now, out);
        }
        out.arm(Timer::Join, now.instant + ASK_EVERY);
        let silent: Vec<String> = self
            .others()
            .filter(|site| !self.bootstrap.empty.contains(site))
            .map(|site| site.process.to_string())
            .collect();
        let text = format!(
            "the site lacks data and waits to hear from the sites of process {}: they may have them; retry later",
            silent.join(", ")
        );
        for held in self.bootstrap.held.extract_if(.., |held| held.until <= now.instant) {
            let mut reply = ReplyBuf::new();
            types::ReplySink::error(&mut reply, &Error::new(ErrorCode::Loading, text.clone()));
            held.asker.answer(reply, None, out);
        }
    }

    /// A peer's new life has nothing of the old one's pieces.
    pub(super) fn peer_began_anew(&mut self, peer: Address) {
        self.bootstrap.empty.remove(&peer);
        self.bootstrap.greeted.remove(&peer);
        self.bootstrap.fetchers.remove(&peer);
        if self.partitions.stop_fetching(peer) {
            self.keyspace.end_checkpoint();
        }
        if self.bootstrap.source.is_some_and(|(source, _)| source == peer) {
            self.bootstrap.source = None;
        }
    }

    /// Remembers what another site has until this one can send what it lacks.
    pub(super) fn hold_greeting(&mut self, from: Address, states: Vec<StateId>) {
        self.bootstrap.greeted.insert(from, states);
    }

    /// Keeps a client's request until the site serves.
    pub(super) fn hold(&mut self, id: RequestId, request: &Request<'_>, now: Instant) {
        let (asker, request) = (Asker::Client(id), crate::request_codec::encoded(request));
        self.bootstrap.held.push(Held { asker, thread: None, request, until: now + HELD_FOR });
    }

    /// The same for one of another process of the region.
    pub(super) fn hold_forwarded(
        &mut self,
        asker: Asker,
        thread: Option<Thread>,
        request: Box<[u8]>,
        now: Instant,
    ) {
        self.bootstrap.held.push(Held { asker, thread, request, until: now + HELD_FOR });
    }

    pub(super) fn on_joined(
        &mut self,
        from: Address,
        has_begun: bool,
        (now, random): (Now, &mut Rng),
        out: &mut Outputs<'_, Instance>,
    ) {
        if !self.bootstrap.is_under_way || self.bootstrap.source.is_some() {
            return;
        }
        if has_begun {
            self.bootstrap.source = Some((from, now.instant));
            self.bootstrap.attempt += 1;
            self.start_afresh(out);
            return out.stream(from, Message::Fetch { attempt: self.bootstrap.attempt });
        }
        self.bootstrap.empty.insert(from);
        if self.others().all(|site| self.bootstrap.empty.contains(&site)) {
            self.begin_serving(now, out);
            self.serve_held((now, random), out);
        }
    }

    /// Sends everything that is here to a site that has nothing; later, if a checkpoint is being taken.
    pub(super) fn on_fetch(&mut self, from: Address, attempt: u64, out: &mut Outputs<'_, Instance>) {
        if self.keyspace.is_frozen() {
            self.bootstrap.fetchers.insert(from, attempt);
            return;
        }
        self.keyspace.begin_checkpoint();
        self.gossip.took_out(self.keyspace.take_collected());
        let mut pieces = Vec::new();
        let is_parted = self.keyspace.is_parted();
        while self.keyspace.next_piece(|piece| pieces.push(piece)) {
            if pieces.len() >= PIECES {
                let pieces = std::mem::take(&mut pieces);
                out.stream(from, Message::Pieces { attempt, pieces, is_last: false });
            }
        }
        let mut last = StateId::ROOT;
        while let Some((id, commit)) = self.keyspace.retained().after(last) {
            last = id;
            pieces.push(Piece::RetainedTransactions {
                commit: commit.clone(),
                heir: self.keyspace.retained().heir(id),
            });
        }
        out.stream(from, Message::Pieces { attempt, pieces, is_last: !is_parted });
        match is_parted {
            true => self.partitions.fetch_all(from, attempt),
            false => self.keyspace.end_checkpoint(),
        }
    }

    /// Sends what had to wait for a checkpoint.
    pub(super) fn send_fetched(&mut self, out: &mut Outputs<'_, Instance>) {
        if !self.keyspace.is_frozen()
            && let Some((fetcher, attempt)) = self.bootstrap.fetchers.pop_first()
        {
            self.on_fetch(fetcher, attempt, out);
        }
    }

    pub(super) fn on_pieces(
        &mut self,
        attempt: u64,
        (pieces, is_last): (Vec<Piece>, bool),
        (now, random): (Now, &mut Rng),
        out: &mut Outputs<'_, Instance>,
    ) {
        let Some((_, heard)) = self.bootstrap.source.as_mut() else { return };
        if !self.bootstrap.is_under_way || attempt != self.bootstrap.attempt {
            return;
        }
        *heard = now.instant;
        for piece in pieces {
            out.persist(&Record::Piece { piece: &piece }, self.options.durability);
            let fits = self.keyspace.restore(piece, now.instant);
            debug_assert!(fits, "a site sends its pieces in order");
        }
        if is_last {
            let states = self.keyspace.announce_ceiling();
            out.persist(&Record::Ceiling { states: &states }, self.options.durability);
            self.note_recorded(Recorded::All, out);
            self.begin_serving(now, out);
            self.serve_held((now, random), out);
        }
    }

    fn serve_held(&mut self, (now, random): (Now, &mut Rng), out: &mut Outputs<'_, Instance>) {
        for held in std::mem::take(&mut self.bootstrap.held) {
            self.go_on(held.asker, held.thread, &held.request);
            self.serve(held.asker, &held.request, (now, random), out);
        }
    }
}
