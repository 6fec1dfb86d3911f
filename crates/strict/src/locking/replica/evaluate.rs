//! The leader evaluates operations: under locks, where locks are used, for which some wait.

use super::{Replica, Step};
use crate::Mutant;
use crate::locking::leader::{Stage, claim_of, claim_of_unread};
use crate::locking::locks::Asker;
use crate::locking::machine::Question;
use crate::locking::message::Message;
use crate::locking::options::Concurrency;
use datatypes::{Claim, Mode, Operation};
use smallvec::SmallVec;
use types::{Address, Malformed, Reader, TransactionId};

impl Replica {
    /// Locks, where locks are used, and evaluates.
    pub(super) fn on_execute(&mut self, from: Address, message: Message, step: &mut Step<'_, '_>) {
        let Message::Execute {
            transaction: id,
            age,
            step: index,
            key,
            operation,
            only_lock,
            reserve,
            write,
            alone,
            shown,
            patient,
            own,
            then,
            now_millis,
            ..
        } = &message
        else {
            return;
        };
        let Some(leader) = &mut self.leader else { return };
        let Ok(decoded) = Operation::decode(&mut Reader::new(operation)) else { return };
        let expired = self.machine.is_expired(key, leader.unapplied.on(key), *now_millis);
        if leader.is_closed(*id) {
            return step.out.send(from, Message::refused(*id, Some(key.clone())));
        }
        let optimistic = self.options.concurrency == Concurrency::Optimistic;
        let free = *alone
            && !optimistic
            && decoded.is_read()
            && !expired
            && !self.machine.is_expired(key, None, *now_millis)
            && leader.reads_past(*id, key, &self.options);
        if free {
            // No client can have seen more than the applied state.
        } else if !optimistic || *reserve {
            let open = leader.open(*id, from, step.now.instant);
            if !matches!(open.stage, Stage::Executing) {
                return;
            }
            let asker = Asker { id: *id, age: *age, votes: false, passes: false, now: step.now.instant };
            let claims = requested_claims(&decoded, then, (*write, *only_lock), expired);
            let Ok(granted) = claims.map(|claims| leader.locks.lock_all(asker, key, &claims)) else { return };
            if !granted {
                return self.block(*id, message, step);
            }
            let contested = match optimistic {
                true => leader.is_contested(*id, key, &decoded, *only_lock),
                // A deletion of everything has no key's lock.
                false => leader.is_flushing(*id),
            };
            if contested {
                return leader.wait_for_ends(*id, message);
            }
        } else if *alone && leader.is_undecided(*id, key, &decoded) {
            return step.out.send(from, Message::refused(*id, Some(key.clone())));
        } else if *patient {
            if !leader.is_executing(*id) {
                return;
            }
            let others = leader.changing(key, *id);
            if leader.is_behind((*id, *index), from, others, step.now.instant) {
                return leader.wait_for_ends(*id, message);
            }
        }
        if *only_lock {
            let (step_index, term) = (*index, leader.term);
            return step.out.send(from, Message::Locked { transaction: *id, step: step_index, term });
        }
        let question = Question { key, operation: &decoded, own, now_millis: *now_millis };
        let on_applied = free || self.options.mutants.has(Mutant::EvaluateOnApplied);
        let unapplied = leader.unapplied.on(key).filter(|_| !on_applied);
        let Ok((evaluation, then)) = self.machine.evaluate_all(&question, then, unapplied, step.random)
        else {
            return;
        };
        let over = *alone && evaluation.expiry.is_none() && evaluation.effect.is_none();
        let shown = *shown && !self.options.mutants.has(Mutant::ShowUnapplied);
        let term = leader.term;
        let answer = Message::Executed { transaction: *id, step: *index, term, evaluation, then };
        let behind = if on_applied { None } else { leader.unapplied.last_on([&**key]) };
        if over {
            leader.forget(*id);
            self.answer_confirmed(from, answer, behind, step);
        } else if let Some((to, answer)) = leader.unapplied.hold(behind.filter(|_| shown), (from, answer)) {
            step.out.send(to, answer);
        }
    }

    /// Looks at which keys there are. No lock protects that: the vote judges whether it is still so. What has been voted for
    /// may be known already, and comes first.
    pub(super) fn on_look(&mut self, from: Address, message: Message, step: &mut Step<'_, '_>) {
        let Message::KeysetRead { transaction: id, step: index, question } = &message else { return };
        let (id, index) = (*id, *index);
        let Some(leader) = &mut self.leader else { return };
        if leader.is_closed(id) {
            return step.out.send(from, Message::refused(id, None));
        }
        if self.options.patient {
            if !leader.is_executing(id) {
                return;
            }
            let others = leader.changing_keys(id, &self.machine);
            if leader.is_behind((id, index), from, others, step.now.instant) {
                return leader.wait_for_ends(id, message);
            }
        }
        let term = leader.term;
        let Ok(look) = self.machine.look(question) else { return };
        step.out.send(from, Message::Looked { transaction: id, step: index, term, look });
    }

    /// Evaluates on what is applied here, for a transaction whose votes validate what it saw.
    pub(super) fn look(&mut self, from: Address, message: &Message, step: &mut Step<'_, '_>) {
        let Message::Execute { transaction, step: index, key, operation, own, then, now_millis, .. } =
            message
        else {
            return;
        };
        let Ok(operation) = Operation::decode(&mut Reader::new(operation)) else { return };
        let question = Question { key, operation: &operation, own, now_millis: *now_millis };
        let Ok((evaluation, then)) = self.machine.evaluate_all(&question, then, None, step.random) else {
            return;
        };
        let answer = Message::Executed { transaction: *transaction, step: *index, term: 0, evaluation, then };
        step.out.send(from, answer);
    }

    /// Sends an answer that is true only if this replica still leads, and, where it shows what a transaction has put into the log,
    /// if that is applied.
    pub(in crate::locking) fn answer_confirmed(
        &mut self,
        to: Address,
        answer: Message,
        behind: Option<TransactionId>,
        step: &mut Step<'_, '_>,
    ) {
        let Some(leader) = &mut self.leader else { return };
        if self.options.mutants.has(Mutant::UnconfirmedReads) {
            return step.out.send(to, answer);
        }
        let behind = behind.filter(|_| !self.options.mutants.has(Mutant::ShowUnapplied));
        let context = leader.hold_until_confirmed(to, answer, behind);
        self.log.confirm(context);
    }

    /// The question waits until locks are freed.
    pub(super) fn block(&mut self, id: TransactionId, message: Message, step: &mut Step<'_, '_>) {
        let is_execute = matches!(message, Message::Execute { .. });
        let is_last = matches!(message, Message::Run { last: Some(_), .. });
        if let Some(leader) = &mut self.leader
            && let Some(open) = leader.open.get_mut(&id)
        {
            let is_repeated = !open.keep(message);
            let is_news = is_repeated || !open.said_blocked;
            if (self.options.locks.phasing.is_some() && is_execute || is_last) && is_news {
                open.said_blocked = true;
                step.out.send(open.coordinator, Message::Blocked { transaction: id });
            }
        }
        self.tell_wounded(step);
    }

    pub(super) fn tell_wounded(&mut self, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        for (id, key) in leader.locks.take_wounded() {
            if let Some(open) = leader.close(id) {
                step.out.send(open.coordinator, Message::refused(id, Some(key)));
            }
        }
    }

    /// Lets those go on that waited for what has been freed.
    pub(super) fn wake(&mut self, step: &mut Step<'_, '_>) {
        loop {
            self.tell_wounded(step);
            let Some(leader) = &mut self.leader else { return };
            let ready = leader.locks.take_ready(step.now.instant);
            if ready.is_empty() {
                return;
            }
            self.ask_again(ready, step);
        }
    }

    /// Repeats the unanswered questions of these transactions; except for one that another of them has wounded in
    /// between, which would get a vote although it hears that it was refused.
    pub(super) fn ask_again(
        &mut self,
        ids: impl IntoIterator<Item = TransactionId>,
        step: &mut Step<'_, '_>,
    ) {
        for id in ids {
            self.tell_wounded(step);
            let Some(leader) = &mut self.leader else { return };
            let Some(open) = leader.open.get_mut(&id) else { continue };
            let (from, blocked) = (open.coordinator, std::mem::take(&mut open.blocked));
            for message in blocked {
                self.ask(from, id, message, step);
            }
            let open = self.leader.as_mut().and_then(|leader| leader.open.get_mut(&id));
            if let Some(open) = open.filter(|open| open.blocked.is_empty()) {
                open.said_blocked = false;
            }
        }
    }
}

/// The locks that a question asks for. In several modes on one key it waits once, for all of it.
fn requested_claims<'o>(
    operation: &Operation<'o>,
    then: &'o [(u32, Box<[u8]>)],
    (write, only_lock): (bool, bool),
    expired: bool,
) -> Result<SmallVec<[Claim<'o>; 1]>, Malformed> {
    let first = match (write, only_lock) {
        (true, _) => Mode::Write.into(),
        (false, true) => claim_of_unread(operation),
        (false, false) => claim_of(operation, expired),
    };
    let mut claims = SmallVec::from([first]);
    for (_, operation) in then {
        claims.push(claim_of(&Operation::decode(&mut Reader::new(operation))?, expired));
    }
    if claims.iter().any(|claim| claim.mode != claims[0].mode) {
        claims = SmallVec::from([Mode::Write.into()]);
    }
    Ok(claims)
}
