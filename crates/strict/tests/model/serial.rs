//! Strict serializability by brute force: some order of the transactions explains every answer.

use crate::model::setup::{Act, Setup};
use std::collections::BTreeMap;
use types::Timestamp;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed,
    Aborted,
    /// Nobody has said.
    Unknown,
}

impl Fate {
    /// What a reply says of it.
    pub fn of(reply: &str) -> Self {
        if reply.starts_with("CONFLICT") {
            Fate::Aborted
        } else if reply.starts_with("UNKNOWNOUTCOME") || reply.starts_with("UNAVAILABLE") {
            Fate::Unknown
        } else {
            Fate::Committed
        }
    }
}

/// What is known of one transaction.
#[derive(Clone, Debug)]
struct Transaction {
    fate: Fate,
    reply: Option<String>,
    at: Option<Timestamp>,
}

/// What is known of all transactions.
pub struct History<'h> {
    setup: &'h Setup,
    before: &'h [u8],
    transactions: Vec<Transaction>,
    /// Which clients have sent, a bit each.
    pub requested: u32,
}

/// A database.
type Cells = BTreeMap<&'static str, u64>;

impl<'h> History<'h> {
    pub fn new(setup: &'h Setup, before: &'h [u8]) -> Self {
        let unknown = Transaction { fate: Fate::Unknown, reply: None, at: None };
        History { setup, before, transactions: vec![unknown; before.len()], requested: 0 }
    }

    /// A client got a reply.
    pub fn tell(&mut self, index: usize, reply: &str) -> Result<(), String> {
        self.end(index, Fate::of(reply), None)?;
        if Fate::of(reply) == Fate::Committed {
            self.transactions[index].reply = Some(reply.to_owned());
        }
        Ok(())
    }

    /// A transaction ended, with this stamp if it committed and has one.
    pub fn end(&mut self, index: usize, fate: Fate, at: Option<Timestamp>) -> Result<(), String> {
        let known = &mut self.transactions[index];
        if fate == Fate::Unknown {
            return Ok(());
        }
        if known.fate != Fate::Unknown && known.fate != fate {
            return Err(format!("request {index} both committed and aborted"));
        }
        if known.at.is_some() && at.is_some() && known.at != at {
            return Err(format!("request {index} committed at two timestamps"));
        }
        (known.fate, known.at) = (fate, known.at.or(at));
        Ok(())
    }

    /// Some order explains it all; and so does the order of stamps.
    pub fn check(&self) -> Result<(), String> {
        let known = |(index, transaction): (usize, &Transaction)| match transaction.fate {
            Fate::Committed => Some(index),
            Fate::Aborted | Fate::Unknown => None,
        };
        let must: Vec<usize> = self.transactions.iter().enumerate().filter_map(known).collect();
        let may = |index: &usize| {
            self.requested & (1 << index) != 0 && self.transactions[*index].fate == Fate::Unknown
        };
        let may: Vec<usize> = (0..self.transactions.len()).filter(may).collect();
        if !self.explains(&mut Vec::new(), &must, &may, &Cells::new()) {
            return Err(format!("no order explains {:?}, real time {:?}", self.transactions, self.before));
        }
        self.stamps()
    }

    /// Extends an order by each transaction that may come next.
    fn explains(&self, order: &mut Vec<usize>, must: &[usize], may: &[usize], cells: &Cells) -> bool {
        if must.iter().all(|index| order.contains(index)) {
            return true;
        }
        for next in must.iter().chain(may) {
            // A transaction answered before the client sent `next` comes earlier, if it takes part at all.
            let early = |other: &usize| self.before[*next] & (1 << other) != 0 && !order.contains(other);
            if order.contains(next) || must.iter().any(early) {
                continue;
            }
            let late = |other: &usize| self.before[*other] & (1 << next) != 0;
            if order.iter().any(late) {
                continue;
            }
            let mut cells = cells.clone();
            let reply = self.run(*next, &mut cells);
            if self.transactions[*next].reply.as_ref().is_some_and(|seen| *seen != reply) {
                continue;
            }
            order.push(*next);
            if self.explains(order, must, may, &cells) {
                return true;
            }
            order.pop();
        }
        false
    }

    /// Runs a transaction and returns what it replies.
    fn run(&self, index: usize, cells: &mut Cells) -> String {
        let reply = |(key, act): &(&'static str, Act)| match act {
            Act::Get => cells.get(key).map_or("null".to_owned(), u64::to_string),
            Act::Set(value) => {
                cells.insert(key, *value);
                "OK".to_owned()
            }
            Act::Increment | Act::Blind => {
                let sum = cells.entry(key).or_default();
                *sum += 1;
                if *act == Act::Blind { "OK".to_owned() } else { sum.to_string() }
            }
        };
        self.setup.requests[index].acts.iter().map(reply).collect::<Vec<_>>().join(" ")
    }

    /// Invariant 3 of `docs/internals/tapir.md`: the order of stamps explains what validated transactions saw, and
    /// does not contradict real time where two of them conflict.
    fn stamps(&self) -> Result<(), String> {
        let stamped = self.transactions.iter().enumerate().filter_map(|(index, t)| Some((t.at?, index)));
        let mut order: Vec<(Timestamp, usize)> = stamped.collect();
        order.sort_by_key(|(at, index)| (*at, self.setup.requests[*index].coordinator));
        let mut cells = Cells::new();
        for (place, (at, index)) in order.iter().enumerate() {
            let reply = self.run(*index, &mut cells);
            if let Some(seen) = self.transactions[*index].reply.as_ref().filter(|seen| **seen != reply) {
                return Err(format!("request {index} at {at:?} was told {seen}, by stamps it is {reply}"));
            }
            let late = |(_, other): &&(Timestamp, usize)| {
                self.before[*index] & (1 << other) != 0 && self.conflict(*index, *other)
            };
            if let Some((_, other)) = order[place + 1..].iter().find(late) {
                return Err(format!("{other} was answered before {index} was asked, and is stamped later"));
            }
        }
        Ok(())
    }

    fn conflict(&self, a: usize, b: usize) -> bool {
        let acts = |index: usize| &self.setup.requests[index].acts;
        acts(a).iter().any(|(key, first)| {
            let matters = |second: &Act| {
                let both = |act: Act| *first == act && *second == act;
                !both(Act::Blind) && !both(Act::Get)
            };
            acts(b).iter().any(|(other, second)| other == key && matters(second))
        })
    }
}
