//! The keyspace's merge handler at this site: who runs it when, and what came of it (T13).

use super::{MERGER, Merging, Site};
use crate::keyspace::HandlerMerge;
use crate::{Commit, Handler, Policy, Refusal, StateId, Transaction};
use mvcc::CompactKey;
use protocol::Now;
use std::time::Duration;
use types::{Instant, ReplyBuf, ReplySink};

/// The longest wait between attempts of a handler that goes on failing.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct HandlerRunner {
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
        if version(&self.handler_runner.handler) != version(&handler) {
            self.handler_runner = HandlerRunner { handler, ..HandlerRunner::default() };
        }
    }

    /// The program of the handler.
    pub fn handler_source(&self) -> Option<&str> {
        self.handler_runner.handler.as_ref().map(|handler| handler.source())
    }

    /// The handler in words, if there is one.
    pub fn handler_state(&self) -> Option<String> {
        let HandlerRunner { handler: Some(handler), merges, failures, refused, .. } = &self.handler_runner
        else {
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
        let handler_runner = &mut self.handler_runner;
        let Some(handler) = handler_runner.handler.as_deref_mut() else { return Err(Refusal::NoHandler) };
        if now.instant < handler_runner.not_before {
            return Err(Refusal::NothingToMerge);
        }
        let HandlerMerge { outcome, failure } =
            self.keyspace.merge_by_dependencies(MERGER, heads, handler, self.options.policy);
        if outcome == Err(Refusal::Elsewhere) {
            return outcome;
        }
        handler_runner.failures += u64::from(failure.is_some());
        handler_runner.refused += u64::from(outcome.is_err());
        handler_runner.merges += u64::from(outcome.is_ok() && failure.is_none());
        let what = failure.map(|failure| failure.to_string());
        let what = what.or_else(|| outcome.as_ref().err().map(Refusal::to_string));
        if what.is_some() {
            handler_runner.last = what;
        }
        if outcome.is_err() {
            handler_runner.pause = (handler_runner.pause * 2).clamp(every, LONGEST_PAUSE.max(every));
            handler_runner.not_before = now.instant + handler_runner.pause;
        } else {
            handler_runner.pause = Duration::ZERO;
        }
        outcome
    }

    /// Asks the handler in a merge of an application.
    pub(super) fn resolve_by_handler(
        &mut self,
        transaction: &mut Transaction,
        only: Option<&CompactKey>,
    ) -> Result<(), Refusal> {
        let Some(handler) = self.handler_runner.handler.as_deref_mut() else {
            return Err(Refusal::NoHandler);
        };
        let outcome = self.keyspace.resolve_by_handler(transaction, only, handler);
        if let Err(Refusal::Handler(failure)) = &outcome {
            self.handler_runner.failures += 1;
            self.handler_runner.last = Some(failure.to_string());
        }
        outcome
    }

    /// MERGE HANDLER: the handler, and its statistics here.
    pub(super) fn show_handler(&self, reply: &mut ReplyBuf) {
        let HandlerRunner { handler, merges, failures, refused, last, .. } = &self.handler_runner;
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
