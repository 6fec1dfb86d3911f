//! Causal threads that clients hold in their hands: contexts that go to other sessions, and whose writes a session reads
//! (Corrections 35).

use super::Coordinator;
use super::ask::Ask;
use crate::stable::token::Token;
use crate::stable::{Mutant, Mutants, Node, Scope, Times};
use protocol::Outputs;
use types::{Error, ErrorCode, RegionId, RequestId, SessionId};

impl<S: Times> Coordinator<S> {
    /// Everything that the session has seen and written, for another session.
    pub(super) fn tell_context(&mut self, session: SessionId, id: RequestId, out: &mut Outputs<'_, Node<S>>) {
        let vector = match S::OPTIMISTIC {
            true => self.seen_in_all(session).by_region(self.topology.regions.len()),
            false => Vec::new(),
        };
        let snapshot = self.stable.begin(self.region, self.given);
        let own = snapshot.reach().max(self.thread(session).highest);
        let token = Token { region: self.region, own, whole: snapshot.whole(), vector };
        let text = token.seal(&self.topology);
        out.reply(id).bulk(text.as_bytes());
    }

    /// The session's snapshots show what the token tells, or there is no such token.
    pub(super) fn restored(
        &mut self,
        session: SessionId,
        id: RequestId,
        token: Option<Token>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if token.is_none() {
            let text = "this is no context of this keyspace: CONTEXT TOKEN gives one, for the keyspace that it is asked in";
            out.reply(id).error(&Error::err(text));
        } else if self.is_open(session) {
            out.reply(id).error(&open_transaction());
        } else if let Some(region) = token.as_ref().and_then(|token| self.bereft_token(token)) {
            out.reply(id).error(&Error::new(ErrorCode::Unavailable, self.topology.why_bereft(region)));
        } else {
            token.into_iter().for_each(|token| self.depend_on(session, &token));
            out.reply(id).simple("OK");
        }
    }

    /// Where sessions know what they depend on, a token says it, and what is read waits for it.
    fn depend_on(&mut self, session: SessionId, token: &Token) {
        let Some(seen) = token.seen::<S>().filter(|_| !self.options.mutants.has(Mutant::ContextIgnored))
        else {
            return;
        };
        self.track(session, seen);
        self.promote(session);
    }

    /// The lost region of which something was given up that the token depends on.
    fn bereft_token(&self, token: &Token) -> Option<RegionId> {
        self.bereaves(token.seen::<S>()?.depends_on(self.region))
    }

    /// Gives the session a causal thread of its own, which knows what the process's knows so far, or lets the process's
    /// know what its own does.
    pub(super) fn set_scope(
        &mut self,
        session: SessionId,
        id: RequestId,
        private: bool,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if self.is_open(session) {
            return out.reply(id).error(&open_transaction());
        }
        if self.options.scope == Scope::Process && private != self.private.contains(&session) {
            if private {
                let shared = self.thread(session).clone();
                self.private.insert(session);
                self.threads.insert(Some(session), shared);
            } else {
                self.private.remove(&session);
                let own = self.threads.remove(&Some(session)).unwrap_or_default();
                self.thread(session).join(own);
            }
        }
        out.reply(id).simple("OK");
    }

    fn is_open(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|state| state.open.is_some())
    }
}

impl Ask {
    /// True if it has to wait until snapshots show more than this one.
    pub(super) fn is_ahead_of<S: Times>(&self, snapshot: S, region: RegionId, mutants: Mutants) -> bool {
        match self {
            Ask::Restore { .. } if S::OPTIMISTIC || mutants.has(Mutant::ContextIgnored) => false,
            Ask::Restore { token: Some(token), .. } if mutants.has(Mutant::ForeignLocalTime) => {
                !token.is_shown_at_home(snapshot)
            }
            Ask::Restore { token: Some(token), .. } => !token.is_shown_by(snapshot, region),
            _ => false,
        }
    }
}

/// The error for a session that asks for several causal threads.
pub(super) fn of_another_protocol() -> Error {
    Error::err(
        "a connection has several contexts in keyspaces with PROTOCOL cops; here it has one, or SESSION SCOPE's",
    )
}

fn open_transaction() -> Error {
    Error::err("a transaction is open in this session; commit or abort it first")
}
