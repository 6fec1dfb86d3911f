//! Contexts: the threads of execution of one session, and those that go to another session (COPS, section 4.3), in any region.
//!
//! A session that restores a context goes on when its region has written what the context depends on: the coordinator
//! asks the partitions, as they ask one another about a write that has arrived (`dep_check`). After that no read of the
//! session waits.

use super::{Context, Coordinator, Phase};
use crate::cops::dependencies::{covers, tell};
use crate::cops::message::Message;
use crate::cops::{Entries, Mutant, Node};
use crate::stable::token;
use protocol::{Now, Outputs};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Error, ErrorCode, RegionId, RequestId, SessionId, Timestamp};

/// How many contexts a session has at most.
const MOST: usize = 1000;

impl Coordinator {
    /// `createContext`: a thread that depends on nothing yet.
    pub(super) fn new_context(&mut self, session: SessionId, id: RequestId, out: &mut Outputs<'_, Node>) {
        let state = self.sessions.entry(session).or_default();
        if state.others.len() + 1 >= MOST {
            let text = format!("this connection has {MOST} contexts; drop some");
            return out.reply(id).error(&Error::err(text));
        }
        state.made += 1;
        state.others.insert(state.made, Context::default());
        out.reply(id).integer(state.made as i64);
    }

    /// What the session does from now on it does in this context.
    pub(super) fn use_context(
        &mut self,
        session: SessionId,
        id: RequestId,
        number: u64,
        out: &mut Outputs<'_, Node>,
    ) {
        let state = self.sessions.entry(session).or_default();
        if number != state.number {
            let Some(context) = state.others.remove(&number) else {
                return out.reply(id).error(&no_context(number));
            };
            let before = std::mem::replace(&mut state.context, context);
            state.others.insert(std::mem::replace(&mut state.number, number), before);
        }
        out.reply(id).simple("OK");
    }

    /// `deleteContext`.
    pub(super) fn drop_context(
        &mut self,
        session: SessionId,
        id: RequestId,
        number: u64,
        out: &mut Outputs<'_, Node>,
    ) {
        let state = self.sessions.entry(session).or_default();
        if number == state.number {
            let text = "this context is in use; CONTEXT USE another one first";
            return out.reply(id).error(&Error::err(text));
        }
        match state.others.remove(&number) {
            Some(_) => out.reply(id).simple("OK"),
            None => out.reply(id).error(&no_context(number)),
        }
    }

    /// Everything that the session depends on, for another session.
    pub(super) fn tell_context(&mut self, session: SessionId, id: RequestId, out: &mut Outputs<'_, Node>) {
        let context = self.sessions.get(&session).map(|state| state.context.clone()).unwrap_or_default();
        out.reply(id).bulk(token::seal(tell(&context), &self.topology).as_bytes());
    }

    pub(super) fn restore(
        &mut self,
        now: Now,
        session: SessionId,
        id: RequestId,
        context: Option<Context>,
        timeout: Duration,
        out: &mut Outputs<'_, Node>,
    ) {
        let known = |context: &Context| {
            let partitions = self.topology.partitions();
            context.nearest().iter().all(|(partition, ..)| partition < partitions)
        };
        let Some(context) = context.filter(known) else {
            let text = "this is no context of this keyspace: CONTEXT TOKEN gives one, for the keyspace that it is asked in";
            return out.reply(id).error(&Error::err(text));
        };
        let mut awaited = BTreeMap::new();
        for (partition, ..) in context.nearest().iter() {
            let versions = context.nearest().of(partition).collect();
            awaited.insert(partition, Message::DepCheck { versions });
        }
        if self.has(Mutant::ContextIgnored) {
            return out.reply(id).simple("OK");
        }
        if awaited.is_empty() {
            // Every region has what it depends on; its writes come later in Lamport's order all the same.
            self.sessions.entry(session).or_default().context.join(&context);
            return out.reply(id).simple("OK");
        }
        let phase = Phase::Restoring { context, awaited };
        let (number, mut running) = self.begin(now, session, id, Vec::new(), phase);
        running.deadline = now.instant + timeout;
        self.keep(now, number, running, out);
    }

    /// A partition has written a version that a request waits for.
    pub(super) fn on_dep_checked(
        &mut self,
        now: Now,
        from: Address,
        written: &Entries,
        ends: &[(RegionId, Timestamp)],
        out: &mut Outputs<'_, Node>,
    ) {
        let Some((_, partition)) = self.topology.locate(from) else { return };
        let (mut over, mut lost) = (Vec::new(), Vec::new());
        for (number, running) in &mut self.running {
            let Phase::Restoring { context, awaited } = &mut running.phase else { continue };
            let is_lost = |region, at| ends.iter().any(|(of, end)| *of == region && at > *end);
            let mut versions = context.nearest().of(partition);
            if let Some((region, _)) = versions.find(|(region, at)| is_lost(*region, *at)) {
                lost.push((*number, region));
            } else if covers(written, context.nearest().of(partition)) && awaited.remove(&partition).is_some()
            {
                over.extend(awaited.is_empty().then_some(*number));
            }
        }
        over.into_iter().for_each(|number| self.restored(now, number, out));
        for (number, region) in lost {
            let error = self.lost_with(region);
            self.fail(now, number, &error, out);
        }
    }

    /// A context names a write of a lost region that no survivor has.
    fn lost_with(&self, region: RegionId) -> Error {
        let text = format!(
            "the context depends on writes that were lost when region {} was evicted; nothing was done; go on without \
             this context, and read before you write what it knew",
            self.topology.name(region)
        );
        Error::new(ErrorCode::Unavailable, text)
    }

    fn restored(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node>) {
        let Some(running) = self.running.remove(&number) else { return };
        if let Phase::Restoring { context, .. } = &running.phase
            && let Some(state) = self.sessions.get_mut(&running.session)
        {
            state.context.join(context);
        }
        if let Some(request) = running.request {
            out.reply(request).simple("OK");
        }
        self.end(now, number, &running, out);
    }
}

fn no_context(number: u64) -> Error {
    Error::err(format!("this connection has no context {number}; CONTEXT NEW makes one"))
}
