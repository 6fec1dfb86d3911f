//! BRANCH and MERGE: the commands that only keyspaces of this model have.

use super::requests::{Committed, is_write};
use super::{LOOKER, Site};
use crate::instance::Instance;
use crate::syntax::{self, Words};
use crate::{Begin, Owner, Policy, StateId};
use datatypes::Operation;
use mvcc::CompactKey;
use protocol::{Now, Outputs, Step};
use types::{Error, ReplyBuf, ReplySink, Rng, SessionId};

/// How many states BRANCH LOG, and how many keys MERGE CONFLICTS, shows by default.
const PAGE: usize = 100;

impl Site {
    pub(super) fn on_words(
        &mut self,
        session: SessionId,
        (words, steps): (&[&[u8]], &[Step<'_>]),
        (now, random): (Now, &mut Rng),
        reply: &mut ReplyBuf,
        out: &mut Outputs<'_, Instance>,
    ) -> Result<(), Error> {
        let names = self.named();
        let mut words = Words::new(words, &names);
        if words.take("AT") {
            return self.at(words, steps, (now, random), reply);
        }
        let command = format!("{} {}", words.upper().unwrap_or_default(), words.upper().unwrap_or_default());
        let ends =
            matches!(command.as_str(), "BRANCH COMMIT" | "MERGE COMMIT" | "BRANCH ABORT" | "MERGE ABORT");
        if let Some(error) = self.why_not_all().filter(|_| !ends) {
            return Err(error);
        }
        match command.as_str() {
            "BRANCH BEGIN" => self.branch_begin(session, words, now, reply),
            "BRANCH COMMIT" | "MERGE COMMIT" => self.branch_commit(session, words, now, reply, out),
            "BRANCH ABORT" | "MERGE ABORT" => {
                words.end()?;
                self.abort(session);
                reply.simple("OK");
                Ok(())
            }
            "BRANCH DEFAULTS" => self.branch_defaults(session, words, reply),
            "BRANCH NAME" => self.branch_name(session, words, reply, out),
            "BRANCH CEILING" => self.branch_ceiling(session, words, reply),
            "BRANCH UNNAME" => {
                let name = words.word()?;
                words.end()?;
                let is_known = self.unname(name, out)?;
                reply.integer(is_known.into());
                Ok(())
            }
            "BRANCH NAMES" => {
                words.end()?;
                reply.map(names.len());
                for (name, state) in &names {
                    reply.bulk(name.as_bytes());
                    put_id(*state, reply);
                }
                Ok(())
            }
            "BRANCH HEADS" => words.end().map(|()| put_ids(&self.keyspace.heads(), reply)),
            "BRANCH LOG" => self.branch_log(words, reply),
            "BRANCH SHOW" => self.branch_show(words, reply),
            "BRANCH DIFF" => self.branch_diff(words, reply),
            "BRANCH GRAPH" => self.branch_graph(words, reply),
            "MERGE BEGIN" => self.merge_begin(session, words, now, reply),
            "MERGE FORKS" => self.merge_forks(session, words, reply),
            "MERGE CONFLICTS" => self.merge_conflicts(session, words, reply),
            "MERGE HANDLER" => {
                words.end()?;
                self.show_handler(reply);
                Ok(())
            }
            "MERGE GET" => self.merge_get(words, now, reply),
            "MERGE RESOLVE" => self.merge_resolve(session, words, reply),
            _ => Err(super::not_here(&command)),
        }
    }

    fn branch_begin(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        now: Now,
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        let read_only = words.take("READONLY");
        let on = if words.take("ON") { Some(words.peek()?.into()) } else { None };
        let begin = match on {
            Some(_) => Some(Begin::State(words.state()?)),
            None if words.is_empty() => None,
            None => Some(syntax::begin(&mut words)?),
        };
        words.end()?;
        self.own_thread(session);
        let watched = self.clients.get(session).is_some_and(|client| !client.watches.is_empty());
        let state = self.begin(session, begin, (read_only, watched), now.instant)?;
        if let Some(open) = self.clients.of(session).open.as_mut().filter(|_| !read_only) {
            open.on = on;
        }
        put_id(state, reply);
        Ok(())
    }

    fn branch_commit(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        now: Now,
        reply: &mut ReplyBuf,
        out: &mut Outputs<'_, Instance>,
    ) -> Result<(), Error> {
        let end = if words.is_empty() { None } else { Some(syntax::end(&mut words)?) };
        words.end()?;
        match self.commit(session, end, now, out)? {
            Committed::State(state) => put_id(state, reply),
            Committed::Nothing => reply.null(),
            Committed::Stopped => reply.null_array(),
        }
        Ok(())
    }

    fn branch_name(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        reply: &mut ReplyBuf,
        out: &mut Outputs<'_, Instance>,
    ) -> Result<(), Error> {
        let name = words.word()?;
        let state = if words.is_empty() { self.position(session) } else { words.state()? };
        words.end()?;
        self.name(name, state, out)?;
        put_id(state, reply);
        Ok(())
    }

    /// The state that the session read last, or else the newest head.
    fn position(&self, session: SessionId) -> StateId {
        let last = self.keyspace.last_read(self.clients.thread(session));
        last.or_else(|| self.keyspace.heads().first().copied()).unwrap_or(StateId::ROOT)
    }

    /// A client's ceiling (TARDiS 6.3). What is above the one before may have gone: no state that is named has.
    fn branch_ceiling(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        // So that it is lifted when the session ends.
        self.own_thread(session);
        let owner = Owner::Client(session);
        if words.take("OFF") {
            words.end()?;
            self.keyspace.lift_ceiling(owner);
            put_ids(&[], reply);
            return Ok(());
        }
        let mut states = if words.is_empty() { vec![self.position(session)] } else { Vec::new() };
        while !words.is_empty() {
            states.push(words.state()?);
        }
        states.sort_unstable();
        states.dedup();
        let is_gone = |state: &&StateId| self.keyspace.dag().open(**state).is_none();
        if let Some(gone) = states.iter().find(is_gone) {
            return Err(crate::Refusal::UnknownState(*gone).into());
        }
        put_ids(&states, reply);
        self.keyspace.place_ceiling(owner, states);
        Ok(())
    }

    /// AT state, before steps that read.
    fn at(
        &mut self,
        mut words: Words<'_>,
        steps: &[Step<'_>],
        (now, random): (Now, &mut Rng),
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        let state = words.state()?;
        words.end()?;
        if steps.iter().any(is_write) {
            return Err(Error::err("AT reads; a write needs BRANCH BEGIN STATE id, and BRANCH COMMIT"));
        }
        let mut transaction = self.keyspace.begin_reading(LOOKER, &Begin::State(state))?;
        for step in steps {
            self.perform(&mut transaction, step, (now, random), reply);
        }
        self.keyspace.abort(transaction);
        Ok(())
    }

    fn branch_defaults(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        let (mut begin, mut end) = (None, None);
        while !words.is_empty() {
            if words.take("BEGIN") {
                begin = Some(syntax::begin(&mut words)?);
            } else if words.take("COMMIT") {
                end = Some(syntax::end(&mut words)?);
            } else {
                return Err(Error::err("BRANCH DEFAULTS [BEGIN constraint] [COMMIT constraint]"));
            }
        }
        self.own_thread(session);
        let client = self.clients.of(session);
        (client.begin, client.end) = (begin.or(client.begin.take()), end.or(client.end.take()));
        reply.simple("OK");
        Ok(())
    }

    fn branch_log(&mut self, mut words: Words<'_>, reply: &mut ReplyBuf) -> Result<(), Error> {
        let (mut from, mut count) = (self.keyspace.heads(), PAGE);
        while !words.is_empty() {
            if words.take("FROM") {
                from = vec![words.state()?];
            } else if words.take("COUNT") {
                count = words.number()?;
            } else {
                return Err(Error::err("BRANCH LOG [FROM state] [COUNT n]"));
            }
        }
        let states = self.keyspace.history(&from, count)?;
        reply.array(states.len());
        states.iter().for_each(|state| self.put_state(*state, reply));
        Ok(())
    }

    /// A state: its id, its parents, its children, how many keys its class wrote.
    fn put_state(&self, state: StateId, reply: &mut ReplyBuf) {
        let dag = self.keyspace.dag();
        let Some(node) = dag.node(state) else { return reply.null() };
        let ids = |nodes: &[crate::Node]| nodes.iter().map(|node| dag.id(*node)).collect::<Vec<_>>();
        reply.map(4);
        reply.bulk(b"id");
        put_id(state, reply);
        reply.bulk(b"parents");
        put_ids(&ids(dag.parents(node)), reply);
        reply.bulk(b"children");
        put_ids(&ids(dag.children(node)), reply);
        reply.bulk(b"keys");
        reply.integer(dag.writes(node).len() as i64);
    }

    fn branch_show(&mut self, mut words: Words<'_>, reply: &mut ReplyBuf) -> Result<(), Error> {
        let state = words.state()?;
        words.end()?;
        let keys: Vec<CompactKey> = self.keyspace.written(state)?;
        reply.array(2);
        self.put_state(state, reply);
        put_keys(&keys, reply);
        Ok(())
    }

    /// The keys that changed between two states, or independently on two branches.
    fn branch_diff(&mut self, mut words: Words<'_>, reply: &mut ReplyBuf) -> Result<(), Error> {
        let (a, b) = (words.state()?, words.state()?);
        words.end()?;
        let (only_a, only_b) = (self.keyspace.written_beyond(a, b)?, self.keyspace.written_beyond(b, a)?);
        let forks = self.keyspace.fork_points(&[a, b])?;
        reply.map(3);
        reply.bulk(b"forks");
        put_ids(&forks, reply);
        for (id, keys) in [(a, only_a), (b, only_b)] {
            put_id(id, reply);
            put_keys(&keys, reply);
        }
        Ok(())
    }

    fn branch_graph(&mut self, mut words: Words<'_>, reply: &mut ReplyBuf) -> Result<(), Error> {
        let mut text = String::new();
        let dag = self.keyspace.dag();
        let drawn = match words.upper().as_deref() {
            None | Some("TEXT") => dag.draw(&mut text),
            Some("DOT") => dag.draw_dot(&mut text),
            Some("JSON") => dag.draw_json(&mut text),
            Some(_) => return Err(Error::err("BRANCH GRAPH [TEXT|DOT|JSON]")),
        };
        debug_assert!(drawn.is_ok(), "a string takes any text");
        words.end()?;
        reply.text(&text);
        Ok(())
    }

    fn merge_begin(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        now: Now,
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        self.own_thread(session);
        let mut transaction = if words.is_empty() || words.take("ANY") {
            words.end()?;
            self.keyspace.begin_merge(session, &Begin::Any)?
        } else {
            let mut states = Vec::new();
            while !words.is_empty() {
                states.push(words.state()?);
            }
            self.keyspace.begin_merge_of(session, &states)?
        };
        self.keyspace.resolve_agreed(&mut transaction);
        put_ids(&self.keyspace.read_states(&transaction), reply);
        self.open(session, transaction, (crate::End::Any, false, false), now.instant);
        Ok(())
    }

    /// The open transaction, which has to be a merge.
    fn merging(&self, session: SessionId) -> Result<&crate::Transaction, Error> {
        let open = self.clients.get(session).and_then(|client| client.open.as_ref());
        open.map(|open| &open.transaction)
            .filter(|transaction| transaction.is_merge())
            .ok_or_else(|| Error::err("no merge is open: MERGE BEGIN [ANY|state state ...] begins one"))
    }

    fn merge_forks(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        let mut states = Vec::new();
        while !words.is_empty() {
            states.push(words.state()?);
        }
        if states.is_empty() {
            states = self.keyspace.read_states(self.merging(session)?);
        }
        put_ids(&self.keyspace.fork_points(&states)?, reply);
        Ok(())
    }

    /// MERGE CONFLICTS [cursor] [COUNT n]: the keys that are not resolved yet, a page at a time.
    fn merge_conflicts(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        let (mut cursor, mut count) = (0, PAGE);
        while !words.is_empty() {
            if words.take("COUNT") {
                count = words.number::<usize>()?.max(1);
            } else {
                cursor = words.number()?;
            }
        }
        let unresolved = self.merging(session)?.unresolved();
        let page: Vec<CompactKey> = unresolved.skip(cursor).take(count + 1).cloned().collect();
        let next = if page.len() > count { cursor + count } else { 0 };
        reply.array(2);
        reply.bulk(next.to_string().as_bytes());
        put_keys(&page[..page.len().min(count)], reply);
        Ok(())
    }

    /// MERGE GET key state: the value there, as the type's own command for all of it shows it.
    fn merge_get(&mut self, mut words: Words<'_>, now: Now, reply: &mut ReplyBuf) -> Result<(), Error> {
        let (key, state) = (CompactKey::new(words.word()?), words.state()?);
        words.end()?;
        let cell = self.keyspace.value_at(state, &key)?;
        let cell = cell.living(now.wall.as_millis());
        match &cell.value {
            None => reply.null(),
            Some(value) => whole(value, &cell, now, reply),
        }
        Ok(())
    }

    /// MERGE RESOLVE key|ALL [HANDLER] [NEWEST]: by the keyspace's handler, and by the types' own rules; what they leave open
    /// goes to the newest state, or stays.
    fn merge_resolve(
        &mut self,
        session: SessionId,
        mut words: Words<'_>,
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        self.merging(session)?;
        let key = words.word()?;
        let by_handler = words.take("HANDLER");
        let policy = if words.take("NEWEST") { Policy::Newest } else { Policy::Refuse };
        words.end()?;
        let mut open = self.take_open(session)?;
        let before = open.transaction.unresolved().count();
        let is_all = key.eq_ignore_ascii_case(b"ALL");
        if by_handler {
            let only = (!is_all).then(|| CompactKey::new(key));
            if let Err(refusal) = self.resolve_by_handler(&mut open.transaction, only.as_ref()) {
                self.clients.of(session).open = Some(open);
                return Err(refusal.into());
            }
        }
        if is_all {
            self.keyspace.resolve_all(&mut open.transaction, policy);
        } else {
            // A clash leaves the key unresolved: the count says so.
            let _ = self.keyspace.resolve(&mut open.transaction, &CompactKey::new(key), policy);
        }
        let after = open.transaction.unresolved().count();
        self.clients.of(session).open = Some(open);
        reply.integer((before - after) as i64);
        Ok(())
    }
}

/// A value as the command for all of its type shows it.
fn whole(value: &datatypes::Value, cell: &datatypes::Cell, now: Now, reply: &mut ReplyBuf) {
    let mut random = types::Rng::with_seed(0);
    let mut context =
        datatypes::Context { now_millis: now.wall.as_millis(), random: &mut random, site: None };
    let operation: Operation<'_> = syntax::all_of(value);
    let effect = datatypes::prepare(cell, &operation, &mut context, reply);
    debug_assert!(effect.is_none(), "it only reads");
}

fn put_id(id: StateId, reply: &mut ReplyBuf) {
    reply.bulk(id.to_string().as_bytes());
}

fn put_ids(ids: &[StateId], reply: &mut ReplyBuf) {
    reply.array(ids.len());
    ids.iter().for_each(|id| put_id(*id, reply));
}

fn put_keys(keys: &[CompactKey], reply: &mut ReplyBuf) {
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
}
