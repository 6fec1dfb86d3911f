//! Naive types whose additions merge: everything that was added, summarized at every read.

use super::{Bytes, expect};
use datatypes::counter::Operation as Counter;
use datatypes::summary::{Figure, Numbers, Operation as SummaryBag};
use datatypes::top::{self, Operation};
use datatypes::uid::Operation as UidGenerator;
use std::collections::BTreeMap;
use types::{Error, Reply, ReplyBuf, ReplySink, Wire};

pub(super) fn perform_counter(state: &mut Vec<i64>, operation: &Counter, _actual: &ReplyBuf) -> ReplyBuf {
    let sum: i128 = state.iter().map(|by| i128::from(*by)).sum();
    match operation {
        Counter::Add { by } => {
            state.push(*by);
            expect(|reply| reply.simple("OK"))
        }
        Counter::Get => match i64::try_from(sum) {
            Ok(sum) => expect(|reply| reply.integer(sum)),
            Err(_) => expect(|reply| {
                reply.error(&Error::err("the counter's sum is beyond 64 bits; nothing of it is lost"));
            }),
        },
        Counter::Take { by, floor } => {
            let suffices = sum >= i128::from(*floor) + i128::from(*by);
            if suffices {
                state.push(-by);
            }
            expect(|reply| reply.integer(suffices.into()))
        }
        Counter::AtLeast { bound, .. } => expect(|reply| reply.integer((sum >= i128::from(*bound)).into())),
    }
}

pub(super) fn perform_summary(state: &mut Vec<f64>, operation: &SummaryBag, _actual: &ReplyBuf) -> ReplyBuf {
    match operation {
        SummaryBag::Add { numbers } => {
            state.extend(listed(numbers));
            expect(|reply| reply.simple("OK"))
        }
        SummaryBag::Read { figure } => expect(|reply| write_figure(state, *figure, reply)),
        SummaryBag::ReadAll => expect(|reply| {
            reply.map(5);
            for (name, figure) in ["count", "sum", "mean", "min", "max"].into_iter().zip(Figure::ALL) {
                reply.bulk(name.as_bytes());
                write_figure(state, figure, reply);
            }
        }),
    }
}

/// The numbers, from their binary form.
fn listed(numbers: &Numbers) -> Vec<f64> {
    let mut bytes = Vec::new();
    numbers.encode(&mut bytes);
    bytes[1..].as_chunks::<8>().0.iter().map(|number| f64::from_le_bytes(*number)).collect()
}

fn write_figure(numbers: &[f64], figure: Figure, reply: &mut ReplyBuf) {
    match figure {
        Figure::Count => reply.integer(numbers.len() as i64),
        Figure::Sum => reply.double(sum(numbers)),
        _ if numbers.is_empty() => reply.null(),
        Figure::Mean => reply.double(sum(numbers) / numbers.len() as f64),
        Figure::Min => reply.double(numbers.iter().copied().fold(f64::INFINITY, f64::min)),
        Figure::Max => reply.double(numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    }
}

/// The sum, rounded once: partial sums that do not overlap (Shewchuk 1997), from the greatest down.
fn sum(numbers: &[f64]) -> f64 {
    let mut partials: Vec<f64> = Vec::new();
    for number in numbers {
        let mut carried = *number;
        let mut remaining = Vec::new();
        for partial in partials {
            let (large, small) =
                if carried.abs() < partial.abs() { (partial, carried) } else { (carried, partial) };
            let high = large + small;
            let low = small - (high - large);
            if low != 0.0 {
                remaining.push(low);
            }
            carried = high;
        }
        remaining.push(carried);
        partials = remaining;
    }
    let mut rest = partials.into_iter().rev();
    let mut high = rest.next().unwrap_or(0.0);
    while let Some(next) = rest.next() {
        let total = high + next;
        let low = next - (total - high);
        high = total;
        if low != 0.0 {
            // Half-way cases go where what is left points to.
            let beyond = rest.next().unwrap_or(0.0);
            let doubled = low * 2.0;
            if (low < 0.0) == (beyond < 0.0) && beyond != 0.0 && doubled == (high + doubled) - high {
                high += doubled;
            }
            break;
        }
    }
    high + 0.0
}

/// Every member since the last reservation, of which only those that it left stayed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Top {
    reserved: Option<usize>,
    added: BTreeMap<Bytes, f64>,
}

impl Top {
    pub(super) fn is_empty(&self) -> bool {
        self.reserved.is_none() && self.added.is_empty()
    }

    /// Highest first.
    fn highest(&self) -> Vec<(f64, Bytes)> {
        let mut all: Vec<(f64, Bytes)> =
            self.added.iter().map(|(member, score)| (*score, member.clone())).collect();
        all.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| y.cmp(x)));
        all.truncate(self.reserved.unwrap_or(100));
        all
    }
}

pub(super) fn perform_top(state: &mut Top, operation: &Operation<'_>, _actual: &ReplyBuf) -> ReplyBuf {
    let highest = state.highest();
    match operation {
        Operation::Add { items } => {
            for (score, member) in items.iter() {
                let best = state.added.entry(member.to_vec()).or_insert(*score);
                *best = best.max(*score) + 0.0;
            }
            expect(|reply| reply.simple("OK"))
        }
        Operation::Reserve { capacity } if (1..=u64::from(top::MAX_CAPACITY)).contains(capacity) => {
            state.reserved = Some(*capacity as usize);
            let left = highest.into_iter().take(*capacity as usize);
            state.added = left.map(|(score, member)| (member, score)).collect();
            expect(|reply| reply.simple("OK"))
        }
        Operation::Reserve { .. } => expect(|reply| {
            reply.error(&Error::err("the capacity must be from 1 to 1000000"));
        }),
        Operation::Range { start, stop, with_scores } => {
            let place =
                |index: i64| if index < 0 { index.saturating_add(highest.len() as i64) } else { index };
            let (start, stop) = (place(*start).max(0), place(*stop));
            let range = highest.iter().zip(0..).filter(|(_, at)| (start..=stop).contains(at));
            let range: Vec<&(f64, Bytes)> = range.map(|(item, _)| item).collect();
            expect(|reply| write_range(&range, *with_scores, reply))
        }
        Operation::DownTo { score, member } => {
            let above =
                highest.iter().filter(|(it, of)| it > score || it == score && of.as_slice() >= *member);
            let range: Vec<&(f64, Bytes)> = above.collect();
            expect(|reply| write_range(&range, true, reply))
        }
        Operation::Rank { member } => match highest.iter().position(|(_, other)| other == member) {
            Some(place) => expect(|reply| reply.integer(place as i64)),
            None => expect(ReplyBuf::null),
        },
        Operation::Score { member } => match highest.iter().find(|(_, other)| other == member) {
            Some((score, _)) => expect(|reply| reply.double(*score)),
            None => expect(ReplyBuf::null),
        },
        Operation::Length => expect(|reply| reply.integer(highest.len() as i64)),
        Operation::Capacity => expect(|reply| reply.integer(state.reserved.unwrap_or(100) as i64)),
    }
}

fn write_range(range: &[&(f64, Bytes)], with_scores: bool, reply: &mut ReplyBuf) {
    if with_scores {
        reply.pairs(range.len())
    } else {
        reply.array(range.len())
    }
    for (score, member) in range {
        if with_scores {
            reply.pair();
            reply.bulk(member);
            reply.double(*score);
        } else {
            reply.bulk(member);
        }
    }
}

/// Identifiers are taken over if they are as many as requested, and different.
pub(super) fn perform_uid(state: &mut Vec<()>, operation: &UidGenerator, actual: &ReplyBuf) -> ReplyBuf {
    let UidGenerator::Next { count } = operation;
    *state = vec![()];
    let mut drawn: Vec<Reply<'_>> = actual.elements().collect();
    if let Some(count) = count {
        assert_eq!(drawn.remove(0), Reply::Array(*count as usize));
    }
    assert_eq!(drawn.len() as u64, count.unwrap_or(1));
    assert!(drawn.iter().enumerate().all(|(place, one)| !drawn[..place].contains(one)));
    assert!(drawn.iter().all(|one| matches!(one, Reply::Bulk(text) if text.len() == 36)));
    actual.clone()
}
