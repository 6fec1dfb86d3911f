//! Registers, counters, sets, dicts, and operations on keys of any type.

use super::{Answer, Held, Key, Text, array, braces, bulk, flag, held_as, integer, ok};
use crate::touches::quoted;
use datatypes::{Operation, counter, key, register, set};

/// The number that a text is, if it is one as it would be printed.
pub(crate) fn number(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

impl Key {
    pub(super) fn expire(&mut self, now_millis: u64) {
        if self.deadline != 0 && self.deadline <= now_millis {
            *self = Key::default();
        }
        if let Some(Held::Dict(dict)) = &mut self.held {
            dict.retain(|_, (_, at)| *at == 0 || *at > now_millis);
            if dict.is_empty() {
                *self = Key::default();
            }
        }
    }

    pub(super) fn execute(&mut self, operation: &Operation<'_>, now_millis: u64) -> Answer {
        self.expire(now_millis);
        let answer = match operation {
            Operation::Key(operation) => self.any(operation, now_millis),
            Operation::Register(operation) => self.register(operation, now_millis),
            Operation::Counter(operation) => self.counter(operation),
            Operation::Set(operation) => self.set(operation),
            Operation::Dict(operation) => self.dict(operation, now_millis),
            Operation::List(operation) => self.list(operation),
            Operation::Stream(operation) => self.stream(operation),
            _ => return Answer::NotJudged,
        };
        let is_empty = match &self.held {
            Some(Held::Set(set)) => set.is_empty(),
            Some(Held::Dict(dict)) => dict.is_empty(),
            Some(Held::List(list)) => list.is_empty(),
            held => held.is_none(),
        };
        if is_empty {
            *self = Key::default();
        }
        answer
    }

    fn any(&mut self, operation: &key::Operation<'_>, now_millis: u64) -> Answer {
        use key::Operation;
        let exists = self.held.is_some();
        match operation {
            Operation::Delete => self.held = None,
            Operation::Exists => {}
            Operation::Persist => return flag(std::mem::take(&mut self.deadline) != 0),
            Operation::ExpireAt { at_millis, condition } => {
                let (has, at) = (self.deadline != 0, *at_millis);
                let later = has && at > self.deadline;
                let earlier = !has || at < self.deadline;
                let done = exists
                    && !(condition.if_none && has || condition.if_some && !has)
                    && (later || !condition.if_later)
                    && (earlier || !condition.if_earlier);
                if done {
                    self.deadline = at;
                    self.expire(now_millis);
                    // A deadline of 0 has passed like any other.
                    self.held = self.held.take().filter(|_| at != 0);
                }
                return flag(done);
            }
            _ => return Answer::NotJudged,
        }
        flag(exists)
    }

    fn register(&mut self, operation: &register::Operation<'_>, now_millis: u64) -> Answer {
        use register::{Condition, Deadline, Operation, SetReply};
        let old = match &self.held {
            Some(Held::Register(text)) => Some(text.clone()),
            None => None,
            Some(_) if matches!(operation, Operation::Set { reply, .. } if *reply != SetReply::Old) => None,
            Some(_) => return Answer::Refusal,
        };
        let mut text = old.clone().unwrap_or_default();
        match operation {
            Operation::Get => bulk(old),
            Operation::Length => integer(text.len()),
            Operation::GetDelete => {
                self.held = None;
                bulk(old)
            }
            Operation::Append { value } => {
                text.extend_from_slice(value);
                self.held = Some(Held::Register(text.clone()));
                integer(text.len())
            }
            Operation::Increment { by } => {
                let before = if old.is_some() { number(&text) } else { Some(0) };
                let Some(sum) = before.and_then(|before| before.checked_add(*by)) else {
                    return Answer::Refusal;
                };
                self.held = Some(Held::Register(sum.to_string().into_bytes()));
                integer(sum)
            }
            Operation::Set { value, deadline, condition, reply } => {
                let done = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => self.held.is_none(),
                    Condition::IfPresent => self.held.is_some(),
                };
                if done {
                    self.held = Some(Held::Register(value.to_vec()));
                    self.deadline = match deadline {
                        Deadline::Clear => 0,
                        Deadline::Keep => self.deadline,
                        Deadline::At { millis } => *millis,
                    };
                    if matches!(deadline, Deadline::At { millis } if *millis <= now_millis) {
                        self.held = None;
                    }
                }
                match reply {
                    SetReply::Status if done => ok(),
                    SetReply::Status => bulk(None::<Text>),
                    SetReply::Flag => flag(done),
                    SetReply::Old => bulk(old),
                }
            }
            // No workload asks for parts of a string.
            Operation::GetRange { .. }
            | Operation::SetRange { .. }
            | Operation::IncrementFloat { .. }
            | Operation::GetBit { .. }
            | Operation::SetBit { .. }
            | Operation::CountBits { .. }
            | Operation::FindBit { .. }
            | Operation::BitField { .. }
            | Operation::CountDistinct
            | Operation::Unite { .. } => Answer::NotJudged,
        }
    }

    fn counter(&mut self, operation: &counter::Operation) -> Answer {
        use counter::Operation;
        let sum = match self.held {
            Some(Held::Counter(sum)) => sum,
            None => 0,
            Some(_) => return Answer::Refusal,
        };
        match operation {
            Operation::Get => integer(sum),
            Operation::AtLeast { bound, .. } => flag(sum >= i128::from(*bound)),
            Operation::Add { by } => {
                self.held = Some(Held::Counter(sum + i128::from(*by)));
                ok()
            }
            Operation::Take { by, floor } => {
                let left = sum - i128::from(*by);
                let enough = left >= i128::from(*floor) && *by != i64::MIN;
                if enough {
                    self.held = Some(Held::Counter(left));
                }
                flag(enough)
            }
        }
    }

    fn set(&mut self, operation: &set::Operation<'_>) -> Answer {
        use set::Operation;
        let set = held_as!(self.held, Set);
        match operation {
            Operation::Add { members } => {
                integer(members.iter().filter(|member| set.insert(member.to_vec())).count())
            }
            Operation::Remove { members } => {
                integer(members.iter().filter(|member| set.remove(*member)).count())
            }
            Operation::Contains { member } => flag(set.contains(*member)),
            Operation::ContainsMany { members } => {
                array(members.iter().map(|member| format!("(integer) {}", u8::from(set.contains(member)))))
            }
            Operation::Members => braces(set.iter().map(quoted)),
            Operation::Length => integer(set.len()),
            Operation::Pop { .. } | Operation::Random { .. } | Operation::Scan { .. } => Answer::NotJudged,
        }
    }
}
