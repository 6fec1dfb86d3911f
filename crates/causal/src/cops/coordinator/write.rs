//! `put` (COPS, sections 4.3 and 4.4): the session's context goes along as what the write depends on, and when its version is known
//! the context is that version alone. While the outcome is not known, the context stays what it was, and the session waits
//! (Corrections 49).

use super::{Coordinator, Phase};
use crate::cops::message::{Message, PutOutcome};
use crate::cops::{Cut, Dependencies, Node, Timer};
use crate::stable::{PlannedStep, Replies, work_of};
use protocol::{Now, Outputs};
use std::collections::BTreeMap;
use types::{RequestId, SessionId, TransactionId};

impl Coordinator {
    pub(super) fn start_put(
        &mut self,
        now: Now,
        session: SessionId,
        request: RequestId,
        steps: Vec<PlannedStep>,
        partition: u16,
        out: &mut Outputs<'_, Node>,
    ) {
        let phase = Phase::Restoring { context: Default::default(), awaited: BTreeMap::new() };
        let (number, mut running) = self.begin(now, session, request, steps, phase);
        self.unsettled.insert((partition, number));
        let context = self.sessions.get(&session).map(|state| state.context.clone()).unwrap_or_default();
        let life = self.lives.get(&self.topology.address(self.region, partition));
        let question = Box::new(Message::PutAfter {
            id: self.id(number),
            settled: self.settled(partition),
            life: life.copied().unwrap_or_default(),
            nearest: if self.options.serialized {
                Dependencies::default()
            } else {
                context.nearest().clone()
            },
            all: context.all().clone(),
            latest: context.latest(),
            now_millis: running.now_millis,
            parts: work_of::<Cut>(&running.steps).remove(&partition).unwrap_or_default(),
        });
        running.phase = Phase::Putting { partition, question, repeated: false };
        self.keep(now, number, running, out);
    }

    pub(super) fn on_put_resp(
        &mut self,
        now: Now,
        id: TransactionId,
        outcome: PutOutcome,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(number) = self.number(id) else { return };
        let Some(Phase::Putting { partition, repeated, .. }) =
            self.running.get(&number).map(|running| &running.phase)
        else {
            return;
        };
        let (partition, repeated) = (*partition, *repeated);
        let put = match outcome {
            PutOutcome::Done { put } => *put,
            PutOutcome::Refused { error } => return self.fail(now, number, &error, out),
            // The only copy has come to a life that did nothing of it, and now is known here.
            PutOutcome::Forgotten { .. } if !repeated => return self.put_anew(now, number, partition, out),
            // It will say more when it serves again.
            PutOutcome::Forgotten { up_to: None } => return,
            PutOutcome::Forgotten { up_to: Some(up_to) } => {
                return self.end_in_doubt(now, number, partition, up_to, out);
            }
        };
        let Some(mut running) = self.running.remove(&number) else { return };
        match put.at {
            None => self.note_got(running.session, partition, &put.got),
            Some(_) => {
                let transactions = self.options.transactions;
                if let Some(state) = self.sessions.get_mut(&running.session) {
                    state.context.put(&put.got.seen, &put.got.dependencies, transactions);
                    state.context.forget(partition, put.got.stable);
                }
            }
        }
        let mut assembled =
            Replies { steps: &running.steps, replies: &mut running.replies, numbers: &mut running.numbers };
        put.got.answers.iter().for_each(|answer| assembled.take(partition, answer.clone()));
        self.claim(number, &running, &BTreeMap::from([(partition, put.got.clone())]), Some(&put));
        self.answer(now, number, running, out);
    }

    /// Nothing was done: asks under another number.
    fn put_anew(&mut self, now: Now, number: u64, partition: u16, out: &mut Outputs<'_, Node>) {
        let Some(running) = self.running.remove(&number) else { return };
        self.unsettled.remove(&(partition, number));
        out.disarm(Timer::Retry(number));
        if let Some(request) = running.request {
            self.start_put(now, running.session, request, running.steps, partition, out);
        }
    }
}
