//! What the steps of a request are answered, put together from what partitions tell.

use super::ask::{KeyAction, PlannedStep};
use crate::stable::message::{Answer, KeyspaceWork};
use protocol::Losses;
use std::collections::BTreeMap;
use types::{Reply, ReplyBuf, ReplySink};

/// How many bits of a scan cursor belong to the partition's own cursor; the partition's number is above them.
const CURSOR_BITS: u32 = 48;

/// The replies of a request's steps, as far as partitions have answered.
pub(crate) struct Replies<'r> {
    /// The steps.
    pub(crate) steps: &'r [PlannedStep],
    /// One for each step.
    pub(crate) replies: &'r mut [ReplyBuf],
    /// Sums of counts and cursors of scans, by step.
    pub(crate) numbers: &'r mut BTreeMap<u32, u64>,
}

/// The reply to a step that depends on no state.
pub(crate) fn known_reply(step: &PlannedStep) -> ReplyBuf {
    let mut reply = ReplyBuf::new();
    match step {
        PlannedStep::Key { what: KeyAction::Write { reply, .. }, .. } => return reply.clone(),
        PlannedStep::Flush => reply.simple("OK"),
        _ => {}
    }
    reply
}

/// Work on all keys of partitions, by partition.
pub(crate) fn keyspace_work_of(steps: &[PlannedStep], partitions: u16) -> BTreeMap<u16, Vec<KeyspaceWork>> {
    let place =
        |cursor: u64| ((cursor >> CURSOR_BITS) as u16 % partitions, cursor & ((1 << CURSOR_BITS) - 1));
    let mut keyspace_work: BTreeMap<u16, Vec<KeyspaceWork>> = BTreeMap::new();
    for (step, planned) in (0u32..).zip(steps) {
        let of_all = match planned {
            PlannedStep::Count => KeyspaceWork::Count { step },
            PlannedStep::Keys => KeyspaceWork::Scan { step, cursor: 0, count: u32::MAX },
            PlannedStep::Random => KeyspaceWork::Draw { step },
            PlannedStep::Scan { cursor, count } => {
                let (partition, cursor) = place(*cursor);
                keyspace_work.entry(partition).or_default().push(KeyspaceWork::Scan {
                    step,
                    cursor,
                    count: *count,
                });
                continue;
            }
            PlannedStep::Losses(Losses::Count { cursor }) => {
                let (partition, cursor) = place(*cursor);
                keyspace_work.entry(partition).or_default().push(KeyspaceWork::CountLosses { step, cursor });
                continue;
            }
            PlannedStep::Losses(Losses::List { cursor, count }) => {
                let (partition, cursor) = place(*cursor);
                keyspace_work.entry(partition).or_default().push(KeyspaceWork::Losses {
                    step,
                    cursor,
                    count: *count,
                });
                continue;
            }
            PlannedStep::Key { .. } | PlannedStep::Flush => continue,
        };
        (0..partitions)
            .for_each(|partition| keyspace_work.entry(partition).or_default().push(of_all.clone()));
    }
    keyspace_work
}

impl Replies<'_> {
    /// A partition has answered a step.
    pub(crate) fn take(&mut self, partition: u16, answer: Answer) {
        let step = answer.step;
        let Some(planned) = self.steps.get(step as usize) else { return };
        match planned {
            PlannedStep::Count => {
                if let Some(Reply::Integer(count)) = answer.reply.first() {
                    *self.numbers.entry(step).or_default() += count as u64;
                }
            }
            PlannedStep::Keys => {
                *self.numbers.entry(step).or_default() += answer.reply.elements().count() as u64;
                answer.reply.replay(&mut self.replies[step as usize]);
            }
            PlannedStep::Random => self.take_drawn(step, &answer.reply),
            PlannedStep::Scan { .. } | PlannedStep::Losses(_) => {
                self.numbers.insert(step, u64::from(partition) << CURSOR_BITS | answer.cursor);
                self.replies[step as usize] = answer.reply;
            }
            PlannedStep::Key { .. } => self.replies[step as usize] = answer.reply,
            PlannedStep::Flush => {}
        }
    }

    /// A partition has drawn.
    fn take_drawn(&mut self, step: u32, drawn: &ReplyBuf) {
        let mut elements = drawn.elements();
        let (Some(Reply::Integer(keys)), Some(Reply::Integer(lot)), Some(key)) =
            (elements.next(), elements.next(), elements.next())
        else {
            return;
        };
        let all = self.numbers.entry(step).or_default();
        let Reply::Bulk(key) = key else { return };
        let keys = (keys as u64).max(1);
        *all = all.saturating_add(keys);
        if lot as u64 % *all < keys {
            let mut candidate = ReplyBuf::new();
            candidate.bulk(key);
            self.replies[step as usize] = candidate;
        }
    }

    /// Makes replies of the numbers that several partitions gave, and of scans.
    pub(crate) fn finish(&mut self, partitions: u16) {
        for (step, number) in std::mem::take(self.numbers) {
            let reply = &mut self.replies[step as usize];
            let mut finished = ReplyBuf::new();
            match &self.steps[step as usize] {
                PlannedStep::Scan { .. } | PlannedStep::Losses(_) => {
                    let (partition, inner) = (number >> CURSOR_BITS, number & ((1 << CURSOR_BITS) - 1));
                    let next = match inner {
                        0 if partition + 1 >= u64::from(partitions) => 0,
                        0 => (partition + 1) << CURSOR_BITS,
                        _ => number,
                    };
                    finished.array(2);
                    finished.integer(next as i64);
                    finished.array(reply.elements().count());
                    reply.replay(&mut finished);
                }
                PlannedStep::Keys => {
                    finished.array(number as usize);
                    reply.replay(&mut finished);
                }
                PlannedStep::Random if reply.first().is_none() => finished.null(),
                PlannedStep::Random => reply.replay(&mut finished),
                _ => finished.integer(number as i64),
            }
            *reply = finished;
        }
    }
}
