//! The keyspace's merge handler at this site: who runs it when, and what came of it (T13).

use super::{MERGER, Merging, Site};
use crate::keyspace::Handled;
use crate::{Commit, Handler, Policy, Refusal, StateId, Transaction};
use mvcc::CompactKey;
use protocol::Now;
use std::time::Duration;
use types::{Instant, ReplyBuf, ReplySink};

/// The longest wait between attempts of a handler that goes on failing.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Handling {
    handler: Option<Box<dyn Handler>>,
    /// Merges that it took part in.
    merges: u64,
    /// How often it failed.
    failures: u64,
    /// Merges that did not happen, because it failed or left keys open, and nothing was declared for that.
    refused: u64,
    /// What refused the last of them, or made it fail.
    last: Option<String>,
    /// Nothing is tried before this.
    not_before: Instant,
    pause: Duration,
}

impl Site {
    /// Has another merge handler from now on, or none. One of the same version stays as it is.
    pub fn set_handler(&mut self, handler: Option<Box<dyn Handler>>) {
        let version = |handler: &Option<Box<dyn Handler>>| handler.as_ref().map(|handler| handler.version());
        if version(&self.handling.handler) != version(&handler) {
            self.handling = Handling { handler, ..Handling::default() };
        }
    }

    /// The program of the handler.
    pub fn handler_source(&self) -> Option<&str> {
        self.handling.handler.as_ref().map(|handler| handler.source())
    }

    /// The handler in words, if there is one.
    pub fn handler_state(&self) -> Option<String> {
        let Handling { handler: Some(handler), merges, failures, refused, .. } = &self.handling else {
            return None;
        };
        Some(format!(
            "handler {:016x} merged {merges} times, failed {failures} times, {refused} merges refused",
            handler.version()
        ))
    }

    /// Merges these heads as the keyspace declares. A handler that fails is left alone for a while, longer each time.
    pub(super) fn merge_heads(&mut self, heads: &[StateId], now: Now) -> Result<Commit, Refusal> {
        let Merging::Handler { every } = self.options.merging else {
            return self.keyspace.merge_of(MERGER, heads, Policy::Newest);
        };
        let handling = &mut self.handling;
        let Some(handler) = handling.handler.as_deref_mut() else { return Err(Refusal::NoHandler) };
        if now.instant < handling.not_before {
            return Err(Refusal::NothingToMerge);
        }
        let Handled { outcome, failure } =
            self.keyspace.merge_by(MERGER, heads, handler, self.options.policy);
        if outcome == Err(Refusal::Elsewhere) {
            return outcome;
        }
        handling.failures += u64::from(failure.is_some());
        handling.refused += u64::from(outcome.is_err());
        handling.merges += u64::from(outcome.is_ok() && failure.is_none());
        let what = failure.map(|failure| failure.to_string());
        let what = what.or_else(|| outcome.as_ref().err().map(Refusal::to_string));
        if what.is_some() {
            handling.last = what;
        }
        if outcome.is_err() {
            handling.pause = (handling.pause * 2).clamp(every, LONGEST_PAUSE.max(every));
            handling.not_before = now.instant + handling.pause;
        } else {
            handling.pause = Duration::ZERO;
        }
        outcome
    }

    /// Asks the handler in a merge of an application.
    pub(super) fn resolve_by_handler(
        &mut self,
        transaction: &mut Transaction,
        only: Option<&CompactKey>,
    ) -> Result<(), Refusal> {
        let Some(handler) = self.handling.handler.as_deref_mut() else { return Err(Refusal::NoHandler) };
        let outcome = self.keyspace.resolve_by_handler(transaction, only, handler);
        if let Err(Refusal::Handler(failure)) = &outcome {
            self.handling.failures += 1;
            self.handling.last = Some(failure.to_string());
        }
        outcome
    }

    /// MERGE HANDLER: what it is, and what came of it here.
    pub(super) fn show_handler(&self, reply: &mut ReplyBuf) {
        let Handling { handler, merges, failures, refused, last, .. } = &self.handling;
        let Some(handler) = handler else { return reply.null() };
        reply.map(6);
        reply.bulk(b"version");
        reply.bulk(format!("{:016x}", handler.version()).as_bytes());
        for (name, count) in [("merges", merges), ("failures", failures), ("refused", refused)] {
            reply.bulk(name.as_bytes());
            reply.integer(*count as i64);
        }
        reply.bulk(b"last-failure");
        match last {
            Some(text) => reply.bulk(text.as_bytes()),
            None => reply.null(),
        }
        reply.bulk(b"source");
        reply.bulk(handler.source().as_bytes());
    }
}
