//! What the steps of a request are answered, put together from what partitions tell.

use super::ask::{Planned, What};
use crate::stable::message::{Answer, Whole};
use protocol::Losses;
use std::collections::BTreeMap;
use types::{Reply, ReplyBuf, ReplySink};

/// How many bits of a scan cursor belong to the partition's own cursor; the partition's number is above them.
const CURSOR_BITS: u32 = 48;

/// The replies of a request's steps, as far as partitions have answered.
pub(crate) struct Replies<'r> {
    /// The steps.
    pub(crate) steps: &'r [Planned],
    /// One for each step.
    pub(crate) replies: &'r mut [ReplyBuf],
    /// Sums of counts and cursors of scans, by step.
    pub(crate) numbers: &'r mut BTreeMap<u32, u64>,
}

/// The reply to a step that depends on no state.
pub(crate) fn known_reply(step: &Planned) -> ReplyBuf {
    let mut reply = ReplyBuf::new();
    match step {
        Planned::Key { what: What::Write { reply, .. }, .. } => return reply.clone(),
        Planned::Flush => reply.simple("OK"),
        _ => {}
    }
    reply
}

/// What is asked of partitions as a whole, by partition.
pub(crate) fn whole_of(steps: &[Planned], partitions: u16) -> BTreeMap<u16, Vec<Whole>> {
    let place =
        |cursor: u64| ((cursor >> CURSOR_BITS) as u16 % partitions, cursor & ((1 << CURSOR_BITS) - 1));
    let mut whole: BTreeMap<u16, Vec<Whole>> = BTreeMap::new();
    for (step, planned) in (0u32..).zip(steps) {
        let of_all = match planned {
            Planned::Count => Whole::Count { step },
            Planned::Keys => Whole::Scan { step, cursor: 0, count: u32::MAX },
            Planned::Random => Whole::Draw { step },
            Planned::Scan { cursor, count } => {
                let (partition, cursor) = place(*cursor);
                whole.entry(partition).or_default().push(Whole::Scan { step, cursor, count: *count });
                continue;
            }
            Planned::Losses(Losses::Count { cursor }) => {
                let (partition, cursor) = place(*cursor);
                whole.entry(partition).or_default().push(Whole::CountLosses { step, cursor });
                continue;
            }
            Planned::Losses(Losses::List { cursor, count }) => {
                let (partition, cursor) = place(*cursor);
                whole.entry(partition).or_default().push(Whole::Losses { step, cursor, count: *count });
                continue;
            }
            Planned::Key { .. } | Planned::Flush => continue,
        };
        (0..partitions).for_each(|partition| whole.entry(partition).or_default().push(of_all.clone()));
    }
    whole
}

impl Replies<'_> {
    /// A partition has answered a step.
    pub(crate) fn take(&mut self, partition: u16, answer: Answer) {
        let step = answer.step;
        let Some(planned) = self.steps.get(step as usize) else { return };
        match planned {
            Planned::Count => {
                if let Some(Reply::Integer(count)) = answer.reply.first() {
                    *self.numbers.entry(step).or_default() += count as u64;
                }
            }
            Planned::Keys => {
                *self.numbers.entry(step).or_default() += answer.reply.elements().count() as u64;
                answer.reply.replay(&mut self.replies[step as usize]);
            }
            Planned::Random => self.take_drawn(step, &answer.reply),
            Planned::Scan { .. } | Planned::Losses(_) => {
                self.numbers.insert(step, u64::from(partition) << CURSOR_BITS | answer.cursor);
                self.replies[step as usize] = answer.reply;
            }
            Planned::Key { .. } => self.replies[step as usize] = answer.reply,
            Planned::Flush => {}
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
            let mut kept = ReplyBuf::new();
            kept.bulk(key);
            self.replies[step as usize] = kept;
        }
    }

    /// Makes replies of the numbers that several partitions gave, and of scans.
    pub(crate) fn finish(&mut self, partitions: u16) {
        for (step, number) in std::mem::take(self.numbers) {
            let reply = &mut self.replies[step as usize];
            let mut finished = ReplyBuf::new();
            match &self.steps[step as usize] {
                Planned::Scan { .. } | Planned::Losses(_) => {
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
                Planned::Keys => {
                    finished.array(number as usize);
                    reply.replay(&mut finished);
                }
                Planned::Random if reply.first().is_none() => finished.null(),
                Planned::Random => reply.replay(&mut finished),
                _ => finished.integer(number as i64),
            }
            *reply = finished;
        }
    }
}
