//! Requests that several partitions serve as one. The driver holds all of them while it calls, and puts everything
//! they persist into one group of its log: that makes the request atomic.

use super::Solo;
use super::requests::{put_drawn, reply_keys, reply_scan};
use protocol::{Losses, Now, Replica, Replies, Step, misconf};
use types::{Error, KeyHash, ReplyBuf, RequestId, Rng, SessionId};

/// How many bits of a scan cursor belong to the partition's own cursor; the partition's number is above them.
pub(super) const CURSOR_BITS: u32 = 48;

/// All partitions of a keyspace, held together, in order of their number.
pub struct Group<'g, 'p> {
    partitions: &'g mut [&'p mut Replica<Solo>],
}

impl<'g, 'p> Group<'g, 'p> {
    /// Holds these, at most 2^15, so that a cursor is a positive `i64`.
    pub fn new(partitions: &'g mut [&'p mut Replica<Solo>]) -> Self {
        debug_assert!(partitions.len() <= 1 << (63 - CURSOR_BITS), "a cursor holds the partition's number");
        Group { partitions }
    }

    /// The partition that a key belongs to, of `partitions`.
    pub fn index_of(hash: KeyHash, partitions: usize) -> usize {
        if partitions == 1 { 0 } else { usize::from(hash.share(partitions as u16)) }
    }

    pub(super) fn of(&mut self, hash: KeyHash) -> &mut Replica<Solo> {
        let index = Self::index_of(hash, self.partitions.len());
        self.partitions[index]
    }

    /// How many partitions there are.
    pub(super) fn len(&self) -> usize {
        self.partitions.len()
    }

    /// How many keys they hold.
    pub(super) fn keys(&self) -> usize {
        self.partitions.iter().map(|partition| partition.protocol().len()).sum()
    }

    /// How many keys they hold or remember.
    pub(super) fn known(&self) -> usize {
        self.partitions.iter().map(|partition| partition.protocol().store.known()).sum()
    }

    /// The partition with this number.
    pub(super) fn partition(&mut self, index: usize) -> &mut Solo {
        self.partitions[index].protocol_mut()
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Replica<Solo>> {
        self.partitions.iter_mut().map(|partition| &mut **partition)
    }

    /// Serves [`protocol::Request::Many`].
    pub fn many(
        &mut self,
        now: Now,
        id: RequestId,
        session: SessionId,
        steps: &[Step<'_>],
        watched: bool,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) {
        if watched && self.take_watches(session, now) {
            return replies.reply(id).null_array();
        }
        if self.is_fenced() && steps.iter().any(Step::may_write) {
            // Some partitions may be healed already: all or nothing.
            return replies.reply(id).error(&misconf());
        }
        steps.iter().for_each(|step| self.step(now, id, step, random, replies));
    }

    /// True if a partition refuses writes.
    pub(super) fn is_fenced(&self) -> bool {
        self.partitions.iter().any(|partition| partition.protocol().is_fenced())
    }

    /// How often logs have refused what these partitions had done.
    pub(super) fn refusals(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.protocol().refusals()).sum()
    }

    /// Forgets the session's watches; true if one was touched.
    pub(super) fn take_watches(&mut self, session: SessionId, now: Now) -> bool {
        let touched = self.partitions.iter().any(|partition| partition.protocol().is_touched(session, now));
        self.all().for_each(|partition| partition.protocol_mut().watches.remove(session));
        touched
    }

    /// Serves [`protocol::Request::Watch`].
    pub fn watch(
        &mut self,
        now: Now,
        id: RequestId,
        session: SessionId,
        keys: &[(&[u8], KeyHash)],
        replies: &mut dyn Replies,
    ) {
        for (key, hash) in keys {
            self.of(*hash).drive(replies, |solo, out| solo.watch(now, session, *hash, key, out));
        }
        replies.reply(id).simple("OK");
    }

    /// Serves [`protocol::Request::Unwatch`]; the reply is the caller's.
    pub fn unwatch(&mut self, session: SessionId) {
        self.all().for_each(|partition| partition.protocol_mut().watches.remove(session));
    }

    fn step(
        &mut self,
        now: Now,
        id: RequestId,
        step: &Step<'_>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) {
        match step {
            Step::Key(keyed) => {
                self.of(keyed.hash).drive(replies, |solo, out| solo.execute(now, id, keyed, random, out));
            }
            Step::Losses(_) => replies.reply(id).error(&Losses::none()),
            Step::Count => replies.reply(id).integer(self.keys() as i64),
            Step::Random => put_drawn(self.draw(now, random), replies.reply(id)),
            Step::Flush => match self.flush(now, replies) {
                Ok(()) => replies.reply(id).simple("OK"),
                Err(error) => replies.reply(id).error(&error),
            },
            Step::Keys => {
                let (mut keys, mut found) = (ReplyBuf::new(), 0);
                for partition in self.partitions.iter() {
                    found += partition.protocol().list(now.wall.as_millis(), &mut keys);
                }
                reply_keys(found, &keys, replies.reply(id));
            }
            Step::Scan { cursor, count } => {
                let mut keys = ReplyBuf::new();
                let (next, found) = self.scan(*cursor, *count, now, &mut keys);
                reply_scan(next, found, &keys, replies.reply(id));
            }
        }
    }

    /// Removes every key.
    pub(super) fn flush(&mut self, now: Now, replies: &mut dyn Replies) -> Result<(), Error> {
        if self.is_fenced() {
            return Err(misconf());
        }
        self.all().try_for_each(|partition| partition.drive(replies, |solo, out| solo.flush(now, out)))
    }

    /// Any key that has not expired, by chance: of a partition drawn by the number of its keys, or of the next one if
    /// all of that one have.
    fn draw(&self, now: Now, random: &mut Rng) -> Option<&[u8]> {
        let mut place = random.usize(0..self.keys().max(1));
        let mut sizes = self.partitions.iter().map(|partition| partition.protocol().len());
        let found = sizes.position(|len| {
            let here = place < len;
            place -= if here { 0 } else { len };
            here
        });
        let start = found.unwrap_or(0);
        let mut order = (start..self.len()).chain(0..start);
        let now_millis = now.wall.as_millis();
        order.find_map(|index| self.partitions[index].protocol().draw(now_millis, random))
    }

    /// Goes on in the next partition where one ends before `count` keys were found, so that few keys are one piece.
    fn scan(&self, mut cursor: u64, count: u32, now: Now, keys: &mut ReplyBuf) -> (u64, usize) {
        let mut found = 0;
        loop {
            let index = (cursor >> CURSOR_BITS) as usize;
            let Some(partition) = self.partitions.get(index) else { return (0, found) };
            let (inner, left) = (cursor & ((1 << CURSOR_BITS) - 1), count.saturating_sub(found as u32));
            let (next, more) = partition.protocol().scan(inner, left, now.wall.as_millis(), keys);
            (cursor, found) = (self.next_cursor(index, next), found + more);
            if next != 0 || cursor == 0 || found >= count as usize {
                return (cursor, found);
            }
        }
    }

    /// The cursor after a piece of the partition with this number, whose own next cursor is `inner`.
    pub(super) fn next_cursor(&self, index: usize, inner: u64) -> u64 {
        match inner {
            0 if index + 1 == self.partitions.len() => 0,
            0 => (index as u64 + 1) << CURSOR_BITS,
            inner => (index as u64) << CURSOR_BITS | inner,
        }
    }
}
