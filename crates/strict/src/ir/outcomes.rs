//! Outcomes are facts, whoever knows them: a replica fetches those it lacks from one that has them, bucket by bucket
//! where their digests differ, in messages of bounded size. Lost ones are asked for again with the next comparison.

use super::log::{bucket, end_of};
use super::replica::{Port, Replica};
use super::{Application, EndedGroup, Message, Operations, Question, Summary};
use crate::Mutant;
use std::collections::BTreeSet;
use types::{NodeId, Timestamp, TransactionId, Wire};

/// About how many bytes of outcomes or groups one message carries.
pub(super) const MESSAGE_BYTES: usize = 64 * 1024;
/// How many buckets are asked for at a time.
const ASKED: usize = 8;

/// What is being fetched from one replica, which told more than is here. An answer counts only if that life of it was
/// asked after it told: an earlier answer may lack what the replica has learned in between, and so may another life.
#[derive(Debug)]
pub(super) struct Pull {
    node: NodeId,
    question: Question,
    /// The buckets that differ; the first few of them are asked for.
    missing: BTreeSet<u64>,
}

impl<O: Operations> Replica<O> {
    /// Fetches what this replica may lack of the outcomes in another's summary that were born above `above`. True if
    /// it lacks nothing; else `pulled` follows once it has them all.
    pub(super) fn has_all(
        &mut self,
        (from, member): (NodeId, usize),
        summary: &Summary,
        above: Timestamp,
        port: &mut impl Port<O>,
    ) -> bool {
        let differs = summary
            .digests
            .iter()
            .filter(|(of, digest)| end_of(**of) > above && self.log.digest(**of) != **digest);
        let missing: BTreeSet<u64> = differs.map(|(of, _)| *of).collect();
        if missing.is_empty() {
            self.pulls.remove(&member);
            return true;
        }
        self.questions += 1;
        let question = Question { incarnation: self.incarnation, number: self.questions };
        for of in missing.iter().take(ASKED) {
            self.ask_outcomes(member, question, *of, port);
        }
        self.pulls.insert(member, Pull { node: from, question, missing });
        false
    }

    fn ask_outcomes(&self, member: usize, question: Question, of: u64, port: &mut impl Port<O>) {
        let known = self.log.ended_in(of).map(|(id, _)| id).collect();
        port.send(self.members[member], Message::Lacking { question, bucket: of, known });
    }

    pub(super) fn on_lacking(
        &self,
        from: NodeId,
        (question, of): (Question, u64),
        known: &[TransactionId],
        port: &mut impl Port<O>,
    ) {
        if end_of(of) <= self.points.trimmed {
            return;
        }
        let known: BTreeSet<TransactionId> = known.iter().copied().collect();
        let (mut groups, mut bytes, mut complete) = (Vec::new(), Vec::new(), true);
        for (id, group) in self.log.ended_in(of).filter(|(id, _)| !known.contains(id)) {
            let Some(operation) = group.outcome.clone() else { continue };
            if bytes.len() >= MESSAGE_BYTES {
                complete = false;
                break;
            }
            let ended = EndedGroup { id, born: group.born, operation };
            ended.encode(&mut bytes);
            groups.push(ended);
        }
        port.send(from.address(), Message::Ended { question, bucket: of, groups, complete });
    }

    pub(super) fn on_ended(
        &mut self,
        from: NodeId,
        (question, of): (Question, u64),
        groups: Vec<EndedGroup<O>>,
        complete: bool,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let Some(member) = self.member(from) else { return };
        for EndedGroup { id, born, operation } in groups {
            if bucket(born) == of {
                self.end(id, born, operation, app, port);
            }
        }
        let any = self.mutants.has(Mutant::StaleOutcomes);
        let asked = |pull: &&mut Pull| {
            pull.missing.contains(&of) && (any || (pull.node, pull.question) == (from, question))
        };
        let Some(pull) = self.pulls.get_mut(&member).filter(asked) else { return };
        let question = pull.question;
        self.changing.came_on();
        if !complete {
            return self.ask_outcomes(member, question, of, port);
        }
        pull.missing.remove(&of);
        match (pull.missing.is_empty(), pull.missing.iter().nth(ASKED - 1).copied()) {
            (true, _) => {
                self.pulls.remove(&member);
                self.pulled(member, app, port);
            }
            (false, Some(next)) => self.ask_outcomes(member, question, next, port),
            (false, None) => {}
        }
    }
}
