//! Requests that one partition serves, and what it contributes to those over several.

use super::Solo;
use protocol::{ContextRequest, Losses, Now, Outputs, Request, Step, misconf};
use types::{Error, KeyHash, ReplyBuf, ReplySink, RequestId, Rng, SessionId};

/// How many places of the index a scan visits at most for each requested key, as Redis does: an index that is mostly
/// empty must not make one scan a long step.
pub(super) const PLACES_PER_KEY: u32 = 10;

impl Solo {
    pub(super) fn on_request(
        &mut self,
        now: Now,
        id: RequestId,
        request: &Request<'_>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        match request {
            Request::One { operation, .. } => self.execute(now, id, operation, random, out),
            Request::Many { session, steps, watched, .. } => {
                let stopped = *watched && self.is_touched(*session, now);
                if *watched {
                    self.watches.remove(*session);
                }
                if stopped {
                    out.reply(id).null_array();
                } else if self.fenced && steps.iter().any(Step::may_write) {
                    out.reply(id).error(&misconf());
                } else {
                    steps.iter().for_each(|step| self.on_step(now, id, step, random, out));
                }
            }
            Request::Watch { session, keys } => {
                keys.iter().for_each(|(key, hash)| self.watch(now, *session, *hash, key, out));
                out.reply(id).simple("OK");
            }
            Request::Unwatch { session } => {
                self.watches.remove(*session);
                out.reply(id).simple("OK");
            }
            Request::Context { .. } => out.reply(id).error(&ContextRequest::refusal()),
            Request::Own { words, .. } => out.reply(id).error(&Request::refused(words, "strict")),
            Request::Close { session } => self.watches.remove(*session),
            Request::Begin { .. }
            | Request::Operate { .. }
            | Request::Commit { .. }
            | Request::Abort { .. } => {
                out.reply(id)
                    .error(&Error::err("interactive transactions go through the keyspace, not a partition"));
            }
        }
    }

    fn on_step(
        &mut self,
        now: Now,
        id: RequestId,
        step: &Step<'_>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        match step {
            Step::Key(keyed) => self.execute(now, id, keyed, random, out),
            Step::Losses(_) => out.reply(id).error(&Losses::none()),
            Step::Count => out.reply(id).integer(self.store.len() as i64),
            Step::Random => {
                put_drawn(self.draw(now.wall.as_millis(), random), out.reply(id));
            }
            Step::Flush => match self.flush(now, out) {
                Ok(()) => out.reply(id).simple("OK"),
                Err(error) => out.reply(id).error(&error),
            },
            Step::Keys => {
                let mut keys = ReplyBuf::new();
                let found = self.list(now.wall.as_millis(), &mut keys);
                reply_keys(found, &keys, out.reply(id));
            }
            Step::Scan { cursor, count } => {
                let mut keys = ReplyBuf::new();
                let (next, found) = self.scan(*cursor, *count, now.wall.as_millis(), &mut keys);
                reply_scan(next, found, &keys, out.reply(id));
            }
        }
    }

    /// Watches a key for a session; an expired one is absent from now on.
    pub(super) fn watch(
        &mut self,
        now: Now,
        session: SessionId,
        hash: KeyHash,
        key: &[u8],
        out: &mut Outputs<'_, Self>,
    ) {
        self.settle_expiry(now, now.wall.as_millis(), hash, key, out);
        self.watches.add(session, key);
    }

    /// True if a key that the session watches here has changed or expired.
    pub(super) fn is_touched(&self, session: SessionId, now: Now) -> bool {
        let now_millis = now.wall.as_millis();
        let expired = |key: &[u8]| {
            let record = self.store.record(self.store.hash(key), key);
            record.is_some_and(|record| record.cell().expiry(now_millis).is_some())
        };
        self.watches.is_touched(session) || self.watches.keys(session).iter().any(|key| expired(key))
    }

    /// Visits keys from `cursor` until about `count` are in `keys`; returns where to go on, 0 at the end, and how
    /// many there are.
    pub(super) fn scan(
        &self,
        mut cursor: u64,
        count: u32,
        now_millis: u64,
        keys: &mut ReplyBuf,
    ) -> (u64, usize) {
        let mut found = 0;
        for _ in 0..count.max(1).saturating_mul(PLACES_PER_KEY) {
            cursor = self.visit(cursor, now_millis, keys, &mut found);
            if cursor == 0 || found >= count as usize {
                break;
            }
        }
        (cursor, found)
    }

    /// Adds every key to `keys`; returns how many there are.
    pub(super) fn list(&self, now_millis: u64, keys: &mut ReplyBuf) -> usize {
        let (mut cursor, mut found) = (0, 0);
        loop {
            cursor = self.visit(cursor, now_millis, keys, &mut found);
            if cursor == 0 {
                return found;
            }
        }
    }

    /// Any key that has not expired, by chance.
    pub(super) fn draw(&self, now_millis: u64, random: &mut Rng) -> Option<&[u8]> {
        self.store.random_key(random, |_, record| !record.cell().is_expired(now_millis))
    }

    /// Adds the keys of one place of the index; returns the next one, 0 at the end.
    fn visit(&self, cursor: u64, now_millis: u64, keys: &mut ReplyBuf, found: &mut usize) -> u64 {
        self.store.scan(cursor, |key, record| {
            if !record.cell().is_expired(now_millis) {
                keys.bulk(key);
                *found += 1;
            }
        })
    }
}

/// Replies with a key that was drawn, or that there is none.
pub(super) fn put_drawn(key: Option<&[u8]>, sink: &mut dyn ReplySink) {
    match key {
        Some(key) => sink.bulk(key),
        None => sink.null(),
    }
}

/// Replies to a scan.
pub(super) fn reply_scan(next: u64, found: usize, keys: &ReplyBuf, sink: &mut dyn ReplySink) {
    sink.array(2);
    sink.integer(next as i64);
    reply_keys(found, keys, sink);
}

/// Replies with keys.
pub(super) fn reply_keys(found: usize, keys: &ReplyBuf, sink: &mut dyn ReplySink) {
    sink.array(found);
    keys.replay(sink);
}
