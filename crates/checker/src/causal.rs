//! Transactional causal consistency, checked through claimed snapshots.
//!
//! What a transaction sees is the set of committed transactions that Wren's rule gives for its snapshot, and its
//! session's own earlier ones, merged where they did not observe one another (Corrections 75); what changes a key may
//! be evaluated on the newest state of its region instead. Checked: replies and effects are those of an execution on
//! that set, in order of place; the set holds everything that its members saw; a session's sets only grow and hold its
//! own writes, and those of a context that it took over; a transaction's place is above everything it saw; and nothing
//! in a set began after it was used, which is the promise of stable times. Only the session that wrote it sees what was
//! given up with a lost region, and only until it gets an error. Sets are bit sets over the committed transactions:
//! memory grows with the square of the history.
//!
//! Where sessions share a causal thread (Corrections 72), a transaction claims what it saw of the thread beyond its snapshot, as
//! no order of overlapping requests tells it. A transaction invoked after another one of the thread was answered must
//! see what that one saw and wrote: sessions read one another's answered writes at once, and the thread's sets only
//! grow.
//!
//! Where a transaction claims what it saw of keys one by one (COPS), its set is the least that holds that, what its session had seen
//! before, and what all of that had seen: what is shown too soon, or not together, shows in replies that do not follow from the set.

use crate::history::{Claim, Commit, Key, Outcome, Snapshot, Thread, Transaction};
use crate::invocations::{Decoded, decode_all};
use crate::merged::Merged;
use crate::replay::{Cells, replay};
use crate::report::{Check, Findings};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// True when a snapshot shows a committed transaction (Wren, Algorithm 6; Corrections 26).
fn is_visible(commit: Commit, snapshot: Snapshot) -> bool {
    if commit.region == snapshot.region {
        commit.at <= snapshot.local && commit.depends_on <= snapshot.remote
    } else {
        commit.at <= snapshot.remote
    }
}

/// The same where there is a time for each region: what an effect depends on is shown with it. It may also name regions that the
/// keyspace does not have.
fn is_visible_by_region(writer: &Claim, commit: Commit, snapshot: &[u64]) -> bool {
    let up_to = |region: usize| snapshot.get(region).copied().unwrap_or(0);
    let mut depends_on = writer.vector.iter().flat_map(|vector| vector.depends_on.iter().zip(snapshot));
    commit.at <= up_to(usize::from(commit.region)) && depends_on.all(|(at, shown)| at <= shown)
}

/// The snapshot of a transaction, region by region, if it has a time for each.
fn by_region<'d>(transaction: &'d Decoded<'_>) -> Option<&'d [u64]> {
    let vector = transaction.transaction.claim.as_ref()?.vector.as_ref()?;
    Some(vector.snapshot.as_slice()).filter(|snapshot| !snapshot.is_empty())
}

/// What a transaction saw of keys, region by region, if it saw each by itself.
fn by_key<'d>(transaction: &'d Decoded<'_>) -> Option<&'d [(Key, Vec<u64>)]> {
    transaction.transaction.claim.as_ref()?.vector.as_ref()?.keys.as_deref()
}

/// True if it saw what a committed transaction did to one of these keys.
fn is_visible_by_key(writer: &Decoded<'_>, commit: Commit, keys: &[(Key, Vec<u64>)]) -> bool {
    keys.iter().any(|(key, times)| {
        let up_to = times.get(usize::from(commit.region)).copied().unwrap_or(0);
        commit.at <= up_to && writer.effects.iter().any(|(on, _)| *on == key.0)
    })
}

/// A set of writers by their position in the order of places.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BitSet(Vec<u64>);

impl BitSet {
    fn new(size: usize) -> Self {
        BitSet(vec![0; size.div_ceil(64)])
    }
    fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }
    fn remove(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }
    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & 1 << (index % 64) != 0
    }
    fn union(&mut self, other: &BitSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn first_missing(&self, of: &BitSet) -> Option<usize> {
        let word = self.0.iter().zip(&of.0).position(|(mine, theirs)| theirs & !mine != 0)?;
        Some(word * 64 + (of.0[word] & !self.0[word]).trailing_zeros() as usize)
    }

    /// All below it is in both sets or in none; nothing if they are equal.
    fn first_difference(&self, other: &BitSet) -> Option<usize> {
        let word = self.0.iter().zip(&other.0).position(|(mine, theirs)| mine != theirs)?;
        Some(word * 64 + (self.0[word] ^ other.0[word]).trailing_zeros() as usize)
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|index| self.contains(*index))
    }
}

/// What the transactions of a region saw of a key so far: the writers that the last of them saw, and what these made of it.
#[derive(Default)]
struct Timeline<'h> {
    seen: Option<BitSet>,
    merged: Merged<'h>,
}

/// By key and region, if that is known.
type Timelines<'h> = BTreeMap<(&'h [u8], Option<u16>), Timeline<'h>>;

/// The committed transactions in order of place, and what every transaction saw of them.
struct Visible<'d, 'h> {
    all: &'d [Decoded<'h>],
    /// Positions in `all`, in order of place.
    writers: Vec<usize>,
    /// The positions among these of what was given up.
    lost: Vec<usize>,
    /// The sessions that got an error since their writes were given up, and the times of these requests.
    loss_reports: Vec<(u64, u64)>,
    /// For each of `all` that has a snapshot: the writers it saw.
    seen: Vec<Option<BitSet>>,
    /// For each of `all`: its position among the writers.
    rank: Vec<Option<usize>>,
    /// The positions of the writers of each key.
    of_key: BTreeMap<&'h [u8], Vec<usize>>,
}

pub(crate) fn check(history: &[Transaction], findings: &mut Findings) {
    let decoded = decode_all(history, findings);
    let mut visible = Visible::new(&decoded, findings);
    // Most of these had no effect.
    let loss_reports = history.iter().filter(|transaction| transaction.loss_reported);
    visible.loss_reports =
        loss_reports.map(|transaction| (transaction.session, transaction.invoked)).collect();
    visible.check_places(findings);
    visible.check_stable_time(findings);
    visible.check_closure(findings);
    visible.check_sessions(findings);
    visible.check_threads(findings);
    visible.check_contexts(findings);
    visible.replay(findings);
}

impl<'d, 'h> Visible<'d, 'h> {
    fn new(all: &'d [Decoded<'h>], findings: &mut Findings) -> Self {
        let mut writers: Vec<usize> =
            (0..all.len()).filter(|at| all[*at].transaction.place().is_some()).collect();
        writers.sort_by_key(|at| all[*at].transaction.place());
        let mut rank = vec![None; all.len()];
        writers.iter().enumerate().for_each(|(position, at)| rank[*at] = Some(position));
        let lost = (0..writers.len()).filter(|at| all[writers[*at]].transaction.given_up).collect();
        let mut of_key: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        for (position, at) in writers.iter().enumerate() {
            let keys: BTreeSet<&[u8]> = all[*at].effects.iter().map(|(key, _)| *key).collect();
            keys.into_iter().for_each(|key| of_key.entry(key).or_default().push(position));
        }
        let (loss_reports, seen) = (Vec::new(), Vec::new());
        let mut visible = Visible { all, writers, lost, loss_reports, seen, rank, of_key };
        let own = visible.own_earlier();
        visible.seen = (0..all.len()).map(|at| visible.seen_by(at, &own)).collect();
        visible.add_beyond();
        visible.close();
        for transaction in all.iter().filter(|t| snapshot(t).is_none() && !t.steps.is_empty()) {
            if transaction.steps.iter().any(|step| step.observed.is_some()) {
                let message = format!("transaction {} claims no snapshot", transaction.number());
                findings.add(Check::Claims, message, vec![transaction.number()]);
            }
        }
        visible
    }

    /// For each transaction what it sees whatever its snapshot shows: of its thread what it claims, if it shares one; otherwise
    /// the session's committed ones before it.
    fn own_earlier(&self) -> Vec<Vec<usize>> {
        let threads = self.threads();
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|at| self.all[*at].transaction.invoked);
        let mut sessions: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut own = vec![Vec::new(); self.all.len()];
        for at in order {
            let session = sessions.entry(self.all[at].transaction.session).or_default();
            match thread(&self.all[at]) {
                None => own[at].clone_from(session),
                Some((thread, claim)) => {
                    let of_thread = threads.get(&thread).into_iter().flatten();
                    let seen = of_thread.filter(|(place, _)| *place <= claim.seen);
                    own[at].extend(seen.map(|(_, position)| *position));
                }
            }
            session.extend(self.rank[at]);
        }
        own
    }

    /// What each shared thread took up, each transaction with its place in that order.
    fn threads(&self) -> BTreeMap<[u64; 2], Vec<(u64, usize)>> {
        let mut threads: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for position in 0..self.writers.len() {
            let claimed = thread(self.writer(position));
            if let Some((of, place)) = claimed.and_then(|(of, claim)| Some((of, claim.place?))) {
                threads.entry(of).or_default().push((place, position));
            }
        }
        threads
    }

    /// Adds what transactions observed of their thread beyond what it showed them when they began, with all that these saw.
    /// Those have lower places, so they come first.
    fn add_beyond(&mut self) {
        let name = |position: usize| Some(self.writer(position).transaction.claim.as_ref()?.transaction);
        let names: BTreeMap<_, usize> =
            (0..self.writers.len()).filter_map(|position| Some((name(position)?, position))).collect();
        let others = (0..self.all.len()).filter(|at| self.rank[*at].is_none());
        for at in self.writers.clone().into_iter().chain(others) {
            let Some((_, claim)) = thread(&self.all[at]) else { continue };
            for position in claim.beyond.iter().filter_map(|name| names.get(name).copied()) {
                let with_it = self.seen[self.writers[position]].clone();
                if let Some(seen) = &mut self.seen[at] {
                    with_it.iter().for_each(|with_it| seen.union(with_it));
                    seen.insert(position);
                }
            }
        }
    }

    /// Where keys are seen by themselves: adds to what a transaction saw what its session had seen before, what a context had that
    /// the session took over, and what all of that had seen. Its replies then tell whether it was shown so much.
    fn close(&mut self) {
        let mut order: Vec<usize> =
            (0..self.all.len()).filter(|at| by_key(&self.all[*at]).is_some()).collect();
        order.sort_by_key(|at| self.all[*at].transaction.invoked);
        let numbers: BTreeMap<u64, usize> = order.iter().map(|at| (self.all[*at].number(), *at)).collect();
        loop {
            let (mut sessions, mut grew): (BTreeMap<u64, BitSet>, bool) = (BTreeMap::new(), false);
            for at in &order {
                let transaction = self.all[*at].transaction;
                let Some(mut seen) = self.seen[*at].clone() else { continue };
                let direct: Vec<usize> = seen.iter().collect();
                let with_it =
                    direct.iter().filter_map(|position| self.seen[self.writers[*position]].as_ref());
                with_it.for_each(|with_it| seen.union(with_it));
                let giver = transaction.follows.and_then(|giver| numbers.get(&giver));
                giver.into_iter().for_each(|giver| seen.union(&self.known_after(*giver)));
                let session =
                    sessions.entry(transaction.session).or_insert_with(|| BitSet::new(self.writers.len()));
                seen.union(session);
                self.rank[*at].into_iter().for_each(|own| seen.remove(own));
                grew |= self.seen[*at].as_ref() != Some(&seen);
                self.seen[*at] = Some(seen);
                session.union(&self.known_after(*at));
            }
            if !grew {
                return;
            }
        }
    }

    fn seen_by(&self, at: usize, own: &[Vec<usize>]) -> Option<BitSet> {
        let snapshot = snapshot(&self.all[at])?;
        let mut seen = BitSet::new(self.writers.len());
        for (position, writer) in self.writers.iter().enumerate() {
            let Some(claim) = &self.all[*writer].transaction.claim else { continue };
            let lost = self.all[*writer].transaction.given_up;
            let shows = |commit: Commit| match by_region(&self.all[at]) {
                // Who names a lost region's end began when what is above its cut had been given up.
                Some(regions) if lost && regions.contains(&u64::MAX) => false,
                Some(regions) => is_visible_by_region(claim, commit, regions),
                None if lost && commit.region != snapshot.region => false,
                None if by_key(&self.all[at]).is_some() => by_key(&self.all[at])
                    .is_some_and(|keys| is_visible_by_key(&self.all[*writer], commit, keys)),
                None => is_visible(commit, snapshot),
            };
            if *writer != at && claim.commit.is_some_and(shows) {
                seen.insert(position);
            }
        }
        own[at].iter().for_each(|position| seen.insert(*position));
        Some(seen)
    }

    fn writer(&self, position: usize) -> &'d Decoded<'h> {
        &self.all[self.writers[position]]
    }

    fn with_sets(&self) -> impl Iterator<Item = (usize, &BitSet)> {
        self.seen.iter().enumerate().filter_map(|(at, seen)| Some((at, seen.as_ref()?)))
    }

    fn check_places(&self, findings: &mut Findings) {
        for (at, seen) in self.with_sets() {
            let Some(mine) = self.rank[at] else { continue };
            if let Some(above) = seen.iter().find(|position| *position > mine) {
                let (number, other) = (self.all[at].number(), self.writer(above).number());
                let message = format!("transaction {number} saw {other}, whose place is above its own");
                findings.add(Check::Order, message, vec![other, number]);
            }
        }
    }

    fn check_stable_time(&self, findings: &mut Findings) {
        for (at, seen) in self.with_sets() {
            let fresh = by_region(&self.all[at]).is_some() || by_key(&self.all[at]).is_some();
            let Some(end) = self.all[at].transaction.responded.filter(|_| !fresh) else { continue };
            let late = |position: &usize| {
                let writer = self.writer(*position);
                !writer.steps.is_empty() && writer.transaction.invoked > end
            };
            if let Some(late) = seen.iter().find(late) {
                let (number, other) = (self.all[at].number(), self.writer(late));
                let message = format!(
                    "the snapshot of transaction {number}, answered at {end} us, counts {}, which began at {} us",
                    other.number(),
                    other.transaction.invoked
                );
                findings.add(Check::StableTime, message, vec![other.number(), number]);
            }
        }
    }

    fn check_closure(&self, findings: &mut Findings) {
        for (at, seen) in self.with_sets() {
            for position in seen.iter() {
                let Some(needed) = &self.seen[self.writers[position]] else { continue };
                let needed = self.without_own_lost(self.writers[position], needed);
                if let Some(missing) = seen.first_missing(&needed) {
                    let (number, middle) = (self.all[at].number(), self.writer(position).number());
                    let first = self.writer(missing).number();
                    let message = format!(
                        "{number} sees {middle} and {middle} saw {first}, but {number} does not see {first}"
                    );
                    findings.add(Check::CausalClosure, message, vec![first, middle, number]);
                    break;
                }
            }
        }
    }

    /// What a transaction saw, without what its session, or its thread, had written and was given up: that is a part of
    /// nothing else.
    fn without_own_lost<'s>(&self, at: usize, seen: &'s BitSet) -> Cow<'s, BitSet> {
        let of_thread = thread(&self.all[at]).map(|(thread, _)| thread);
        let is_of_thread =
            |writer| of_thread.is_some() && thread(writer).map(|(thread, _)| thread) == of_thread;
        let is_own = |position: &&usize| {
            let writer = self.writer(**position);
            writer.transaction.session == self.all[at].transaction.session || is_of_thread(writer)
        };
        let mut left = Cow::Borrowed(seen);
        let gone = self.lost.iter().filter(|position| seen.contains(**position)).filter(is_own);
        gone.for_each(|position| left.to_mut().remove(*position));
        left
    }

    fn check_sessions(&self, findings: &mut Findings) {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|at| self.all[*at].transaction.invoked);
        let mut sessions: BTreeMap<u64, (BitSet, u64)> = BTreeMap::new();
        for at in order {
            let (Some(seen), number) = (&self.seen[at], self.all[at].number()) else { continue };
            let (before, last) = sessions
                .entry(self.all[at].transaction.session)
                .or_insert_with(|| (BitSet::new(self.writers.len()), number));
            if let Some(lost) = seen.first_missing(before) {
                let lost = self.writer(lost).number();
                let message = format!(
                    "session {}: transaction {number} does not see {lost}, which transaction {last} saw",
                    self.all[at].transaction.session
                );
                findings.add(Check::Session, message, vec![lost, *last, number]);
            }
            before.union(seen);
            // What was taken up by its thread, the session's next transaction must see, whether its client was answered or not.
            let is_known = thread(&self.all[at]).is_none_or(|(_, claim)| claim.place.is_some());
            self.rank[at].filter(|_| is_known).into_iter().for_each(|position| before.insert(position));
            *last = number;
        }
    }

    /// In a causal thread that sessions share, a transaction invoked after another one's reply sees what that one saw
    /// and wrote.
    fn check_threads(&self, findings: &mut Findings) {
        let mut threads: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, _) in self.with_sets() {
            if let Some(thread) = self.all[at].transaction.thread {
                threads.entry(thread).or_default().push(at);
            }
        }
        for (thread, mut members) in threads {
            let answer = |at: usize| {
                let Transaction { outcome, responded, .. } = self.all[at].transaction;
                responded.filter(|_| *outcome == Outcome::Committed)
            };
            let mut answered: Vec<(u64, usize)> =
                members.iter().filter_map(|at| Some((answer(*at)?, *at))).collect();
            answered.sort_unstable();
            members.sort_by_key(|at| self.all[*at].transaction.invoked);
            let (mut next, mut needed) = (0, BitSet::new(self.writers.len()));
            for at in members {
                let invoked = self.all[at].transaction.invoked;
                while let Some((_, earlier)) = answered.get(next).filter(|(end, _)| *end < invoked) {
                    needed.union(&self.known_after(*earlier));
                    next += 1;
                }
                let lost = self.seen[at].as_ref().and_then(|seen| seen.first_missing(&needed));
                let Some(lost) = lost else { continue };
                let who = answered[..next].iter().find(|(_, at)| self.known_after(*at).contains(lost));
                let who = who.map_or(0, |(_, at)| self.all[*at].number());
                let (number, lost) = (self.all[at].number(), self.writer(lost).number());
                let message = format!(
                    "thread {thread}: transaction {number}, asked for at {invoked} us, does not see {lost}, which transaction \
                     {who} of the thread saw or was, and that was answered before"
                );
                findings.add(Check::Session, message, vec![lost, who, number]);
            }
        }
    }

    /// What a transaction saw, and itself.
    fn known_after(&self, at: usize) -> BitSet {
        let mut known = self.seen[at].clone().unwrap_or_else(|| BitSet::new(self.writers.len()));
        self.rank[at].into_iter().for_each(|position| known.insert(position));
        known
    }

    /// Who took over a context sees what the transaction saw and wrote after which it was given.
    fn check_contexts(&self, findings: &mut Findings) {
        let given: BTreeMap<u64, usize> =
            self.all.iter().enumerate().map(|(at, decoded)| (decoded.number(), at)).collect();
        for (at, seen) in self.with_sets() {
            let number = self.all[at].number();
            let Some(giver) = self.all[at].transaction.follows.and_then(|giver| given.get(&giver)) else {
                continue;
            };
            let Some(given) = &self.seen[*giver] else { continue };
            // A context does not bring back what was given up.
            let here = snapshot(&self.all[at]).map(|snapshot| snapshot.region);
            let is_left = |position: &usize| {
                let Decoded { transaction, .. } = self.writer(*position);
                !transaction.given_up || transaction.region() == here
            };
            let mut needed = BitSet::new(self.writers.len());
            let all = given.iter().chain(self.rank[*giver]);
            all.filter(is_left).for_each(|position| needed.insert(position));
            if let Some(lost) = seen.first_missing(&needed) {
                let (lost, giver) = (self.writer(lost).number(), self.all[*giver].number());
                let message = format!(
                    "transaction {number} does not see {lost}, which is part of the context of transaction {giver} that \
                     its session had taken over"
                );
                findings.add(Check::Session, message, vec![lost, giver, number]);
            }
        }
    }

    /// Each key by itself: its steps are explained by the snapshot or, where the transaction changes the key, by the
    /// newest state of its region, on which such operations are evaluated so that two of one region cannot both win
    /// (Corrections 70).
    ///
    /// A session may see its own writes that were given up until it gets an error: from then on it must not see any of
    /// them. A transaction sees all of them or none. A session gets no error for such writes of others of its thread.
    fn replay(&self, findings: &mut Findings) {
        let mut order: Vec<(usize, &BitSet)> = self.with_sets().collect();
        order.sort_by_key(|(at, _)| self.all[*at].transaction.invoked);
        let mut notified: BTreeSet<u64> = BTreeSet::new();
        let mut timelines = Timelines::new();
        for (at, seen) in order {
            let number = self.all[at].number();
            let left = self.without_own_lost(at, seen);
            let session = self.all[at].transaction.session;
            if *left == *seen {
                self.explain(at, seen, &mut timelines)
                    .into_iter()
                    .for_each(|(check, text)| findings.add(check, text, vec![number]));
                continue;
            }
            let with_lost = self.explain(at, seen, &mut timelines);
            let without = (notified.contains(&session) || !with_lost.is_empty())
                .then(|| self.explain(at, &left, &mut timelines));
            match without {
                None => {}
                Some(without) if without.is_empty() => {
                    let is_news = notified.insert(session) && !with_lost.is_empty();
                    if is_news && !self.was_notified(at, seen, &left) {
                        let message = format!(
                            "session {session}: transaction {number} does not see what the session wrote and was given up, \
                             and nobody has told it"
                        );
                        findings.add(Check::Session, message, vec![number]);
                    }
                }
                Some(without) => {
                    let found = if notified.contains(&session) { without } else { with_lost };
                    found.into_iter().for_each(|(check, text)| findings.add(check, text, vec![number]));
                }
            }
        }
    }

    /// True if the session got the error after it had written what it sees no more, as far as it had and was answered.
    fn was_notified(&self, at: usize, seen: &BitSet, left: &BitSet) -> bool {
        let own = &self.all[at].transaction;
        let gone = seen.iter().filter(|position| !left.contains(*position));
        let gone = gone.map(|position| self.writer(position).transaction);
        let is_known =
            |gone: &&Transaction| gone.session == own.session && gone.outcome == Outcome::Committed;
        let Some(gone) = gone.filter(is_known).map(|gone| gone.invoked).max() else { return true };
        let is_meant = |(session, invoked): &(u64, u64)| {
            *session == own.session && (gone..=own.invoked).contains(invoked)
        };
        self.loss_reports.iter().any(is_meant)
    }

    /// What does not follow from this set, key by key.
    fn explain(&self, at: usize, seen: &BitSet, timelines: &mut Timelines<'h>) -> Vec<(Check, String)> {
        let transaction = &self.all[at];
        let region = snapshot(transaction).map(|snapshot| snapshot.region);
        let keys: BTreeSet<&'h [u8]> = transaction.steps.iter().map(|step| step.key).collect();
        let mut unexplained = Vec::new();
        for key in keys {
            let timeline = timelines.entry((key, region)).or_default();
            let on_snapshot = self.replay_key(at, key, (seen, "its snapshot"), timeline);
            let changes = transaction.steps.iter().any(|step| step.key == key && !step.operation.is_read());
            let newest = self.newest(at, seen).filter(|_| changes && on_snapshot.is_err());
            let explained = newest.map(|newest| {
                self.replay_key(at, key, (&newest, "the newest state of its region"), timeline)
            });
            if let (Err(found), None | Some(Err(_))) = (on_snapshot, explained) {
                unexplained.push(found);
            }
        }
        unexplained
    }

    fn replay_key(
        &self,
        at: usize,
        key: &'h [u8],
        (seen, whence): (&BitSet, &str),
        timeline: &mut Timeline<'h>,
    ) -> Result<(), (Check, String)> {
        self.bring(timeline, key, seen);
        let mut cells = Cells::default();
        cells.put(key, timeline.merged.cell().clone());
        replay(&self.all[at], Some(key), &cells, whence).1
    }

    /// Makes a timeline show of its key what these writers did.
    fn bring(&self, timeline: &mut Timeline<'h>, key: &[u8], seen: &BitSet) {
        let from = timeline.seen.as_ref().map_or(Some(0), |before| before.first_difference(seen));
        let (Some(from), Some(writers)) = (from, self.of_key.get(key)) else { return };
        timeline.merged.go_back(from);
        let later = &writers[writers.partition_point(|position| *position < from)..];
        for position in later.iter().copied().filter(|position| seen.contains(*position)) {
            let writer = self.writer(position);
            let claim = writer.transaction.claim.as_ref();
            let Some(commit) = claim.and_then(|claim| claim.place_among_concurrent()) else { continue };
            let effects = writer.effects.iter().filter(|(on, _)| *on == key);
            effects.for_each(|(_, effect)| timeline.merged.add(position, commit, effect));
        }
        timeline.seen = Some(seen.clone());
    }

    /// What the newest state of a transaction's region held when it took its place: everything of the region below
    /// it, of the others what its snapshot shows.
    fn newest(&self, at: usize, seen: &BitSet) -> Option<BitSet> {
        let (mine, snapshot) = (self.rank[at]?, snapshot(&self.all[at])?);
        let mut newest = seen.clone();
        for position in 0..mine {
            let commit = self.writer(position).transaction.claim.as_ref().and_then(|claim| claim.commit);
            if commit.is_some_and(|commit| commit.region == snapshot.region) {
                newest.insert(position);
            }
        }
        Some(newest)
    }
}

/// The thread that a transaction shares, by the process and the incarnation of its coordinator, and what it claims of it.
fn thread<'h>(transaction: &Decoded<'h>) -> Option<([u64; 2], &'h Thread)> {
    let claim = transaction.transaction.claim.as_ref()?;
    let [process, incarnation, _] = claim.transaction;
    Some(([process, incarnation], claim.thread.as_ref()?))
}

fn snapshot(transaction: &Decoded<'_>) -> Option<Snapshot> {
    transaction.transaction.claim.as_ref().and_then(|claim| claim.snapshot)
}
