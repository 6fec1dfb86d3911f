//! Outcomes are facts, whoever knows them: a replica fetches the outcomes that it lacks from another replica, bucket
//! by bucket where their digests differ, in messages of bounded size. After a lost message the next comparison
//! requests them again.

use super::log::{bucket, end_of};
use super::replica::{Port, Replica};
use super::{Application, Digest, EndedGroup, Message, Operations, Question, Summary};
use crate::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use types::{Address, NodeId, Timestamp, TransactionId, Wire};

/// About how many bytes of outcomes or groups one message carries.
pub(super) const MESSAGE_BYTES: usize = 64 * 1024;
/// How many buckets a replica requests at a time.
const REQUESTED_AT_ONCE: usize = 8;

/// The outcomes that this replica fetches from another one, which reported more than this replica has. An answer counts
/// only if this replica asked that life after its report: an earlier answer, or one of another life, may lack what the
/// replica has learned in between.
#[derive(Debug)]
pub(super) struct OutcomeFetch {
    node: NodeId,
    /// The buckets that differ, with the digests that the other replica reported; this replica asks for the first few.
    missing: BTreeMap<u64, Digest>,
}

impl<O: Operations> Replica<O> {
    /// Fetches what this replica may lack of the outcomes in another's summary that were born above `above`. True if
    /// it lacks nothing; else `pulled` follows once it has them all.
    pub(super) fn has_all(
        &mut self,
        from: NodeId,
        summary: &Summary,
        above: Timestamp,
        port: &mut impl Port<O>,
    ) -> bool {
        let differs = summary
            .digests
            .iter()
            .filter(|(of, digest)| end_of(**of) > above && self.log.digest(**of) != **digest);
        let missing: BTreeMap<u64, Digest> = differs.map(|(of, digest)| (*of, *digest)).collect();
        if missing.is_empty() {
            self.pulls.remove(&from.address());
            return true;
        }
        for (of, reported) in missing.iter().take(REQUESTED_AT_ONCE) {
            self.ask_outcomes(from.address(), *of, *reported, port);
        }
        self.pulls.insert(from.address(), OutcomeFetch { node: from, missing });
        false
    }

    fn ask_outcomes(&self, to: Address, of: u64, reported: Digest, port: &mut impl Port<O>) {
        let question = Question { asker: self.incarnation, bucket: of, reported };
        let known = self.log.ended_in(of).map(|(id, _)| id).collect();
        port.send(to, Message::Lacking { question, known });
    }

    pub(super) fn on_lacking(
        &self,
        from: NodeId,
        question: Question,
        known: &[TransactionId],
        port: &mut impl Port<O>,
    ) {
        let of = question.bucket;
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
        port.send(from.address(), Message::Ended { question, groups, complete });
    }

    pub(super) fn on_ended(
        &mut self,
        from: NodeId,
        question: Question,
        groups: Vec<EndedGroup<O>>,
        complete: bool,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let Question { asker, bucket: of, reported } = question;
        let source = from.address();
        for EndedGroup { id, born, operation } in groups {
            if bucket(born) == of {
                self.end(id, born, operation, app, port);
            }
        }
        let (any, life) = (self.mutants.has(Mutant::StaleOutcomes), self.incarnation);
        let current = |pull: &&mut OutcomeFetch| match pull.missing.get(&of) {
            Some(latest) => any || (pull.node, life, *latest) == (from, asker, reported),
            None => false,
        };
        let Some(pull) = self.pulls.get_mut(&source).filter(current) else { return };
        self.changing.came_on();
        if !complete {
            return self.ask_outcomes(source, of, reported, port);
        }
        pull.missing.remove(&of);
        let next = pull.missing.iter().nth(REQUESTED_AT_ONCE - 1).map(|(of, reported)| (*of, *reported));
        match (pull.missing.is_empty(), next) {
            (true, _) => {
                self.pulls.remove(&source);
                self.pulled(source, app, port);
            }
            (false, Some((of, reported))) => self.ask_outcomes(source, of, reported, port),
            (false, None) => {}
        }
    }
}
