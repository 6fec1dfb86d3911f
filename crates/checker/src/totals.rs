//! Exactly once, without believing any claim: a counter at rest is the sum of what was committed, a set that only
//! grows holds what was added, a list that only grows holds what was pushed, as often as it was pushed. Transactions whose outcome is unknown may count or not.

use crate::history::{Key, Outcome, Transaction};
use crate::report::{Check, Findings};
use crate::touches::{elements, quoted};
use datatypes::{Operation, counter, key, list, register, set};
use std::collections::{BTreeMap, BTreeSet};
use types::Reader;

/// What may have been done to a key.
#[derive(Default)]
struct Total {
    /// The sum of what committed, and of what may have: all negative, all positive summands.
    sum: i64,
    perhaps_less: i64,
    perhaps_more: i64,
    /// True when an increment committed for certain, so that the key must be there.
    counted: bool,
    added: BTreeSet<String>,
    perhaps_added: BTreeSet<String>,
    /// How often each element was pushed, for certain and perhaps.
    pushed: BTreeMap<String, (usize, usize)>,
    /// Something else was done to the key: nothing can be said.
    mixed: bool,
}

pub(crate) fn check(history: &[Transaction], findings: &mut Findings) {
    let totals = totals(history);
    for transaction in history.iter().filter(|t| t.at_rest && t.outcome == Outcome::Committed) {
        for step in &transaction.steps {
            let (Some(reply), Some(total)) = (step.reply.as_deref(), totals.get(&step.key)) else { continue };
            let Ok(operation) = Operation::decode(&mut Reader::new(&step.operation.0)) else { continue };
            let complaint = match operation {
                _ if total.mixed => None,
                Operation::List(list::Operation::Range { start: 0, stop: -1 }) => total.wrong_elements(reply),
                Operation::Register(register::Operation::Get) if !total.is_collection() => {
                    total.wrong_sum(reply)
                }
                Operation::Counter(counter::Operation::Get) => total.wrong_count(reply),
                Operation::Set(set::Operation::Members) => total.wrong_members(reply),
                _ => None,
            };
            if let Some(complaint) = complaint {
                let message = format!("{} at rest is {reply}, but {complaint}", step.key);
                findings.add(Check::ExactlyOnce, message, vec![transaction.number]);
            }
        }
    }
}

fn totals(history: &[Transaction]) -> BTreeMap<&Key, Total> {
    let mut totals: BTreeMap<&Key, Total> = BTreeMap::new();
    for transaction in history.iter().filter(|t| t.outcome != Outcome::Aborted && !t.given_up) {
        let certain = transaction.outcome == Outcome::Committed;
        for step in &transaction.steps {
            let total = totals.entry(&step.key).or_default();
            let refused = step.reply.as_deref().is_some_and(|reply| reply.starts_with('-'));
            match Operation::decode(&mut Reader::new(&step.operation.0)) {
                Ok(operation) if operation.is_read() || refused => {}
                Ok(Operation::Key(key::Operation::Resolve { .. })) => {}
                Ok(Operation::Register(register::Operation::Increment { by })) => {
                    total.increment(by, certain)
                }
                Ok(Operation::Counter(counter::Operation::Add { by })) => total.increment(by, certain),
                Ok(Operation::Counter(counter::Operation::Take { by, .. })) => match step.reply.as_deref() {
                    Some("(integer) 0") if certain => {}
                    Some("(integer) 1") if certain => total.increment(-by, true),
                    _ => total.increment(-by, false),
                },
                Ok(Operation::Set(set::Operation::Add { members })) => {
                    let set = if certain { &mut total.added } else { &mut total.perhaps_added };
                    set.extend(members.iter().map(quoted));
                }
                Ok(Operation::List(list::Operation::Push { values, only_if_exists: false, .. })) => {
                    for value in values.iter() {
                        let (surely, perhaps) = total.pushed.entry(quoted(value)).or_default();
                        *(if certain { surely } else { perhaps }) += 1;
                    }
                }
                _ => total.mixed = true,
            }
        }
    }
    totals
}

impl Total {
    fn increment(&mut self, by: i64, certain: bool) {
        match (certain, by < 0) {
            (true, _) => {
                self.sum = self.sum.wrapping_add(by);
                self.counted = true;
            }
            (false, true) => self.perhaps_less = self.perhaps_less.wrapping_add(by),
            (false, false) => self.perhaps_more = self.perhaps_more.wrapping_add(by),
        }
    }

    fn is_collection(&self) -> bool {
        !(self.added.is_empty() && self.perhaps_added.is_empty() && self.pushed.is_empty())
    }

    /// What is wrong with the elements of a list that only grows, if anything.
    fn wrong_elements(&self, reply: &str) -> Option<String> {
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        elements(reply)?.into_iter().for_each(|element| *found.entry(element).or_default() += 1);
        let wrong = self.pushed.iter().find(|(element, (surely, perhaps))| {
            let found = found.get(*element).copied().unwrap_or(0);
            found < *surely || found > surely + perhaps
        });
        if let Some((element, (surely, _))) = wrong {
            let found = found.get(element).copied().unwrap_or(0);
            return Some(format!(
                "{element} is there {found} times, and {surely} pushes of it were committed"
            ));
        }
        let nobody = found.keys().find(|element| !self.pushed.contains_key(*element));
        nobody.map(|element| format!("nobody pushed {element}"))
    }

    /// What is wrong with the value of a counter, if anything.
    fn wrong_sum(&self, reply: &str) -> Option<String> {
        let value = match reply {
            "(nil)" if self.counted => {
                return Some(format!("increments by {} in all were committed", self.sum));
            }
            "(nil)" => 0,
            reply => reply.trim_matches('"').parse::<i64>().ok()?,
        };
        let (low, high) = (self.sum + self.perhaps_less, self.sum + self.perhaps_more);
        (value < low || value > high).then(|| match low == high {
            true => format!("increments by {low} in all were committed"),
            false => format!("increments by between {low} and {high} in all were committed"),
        })
    }

    /// What is wrong with the sum of a counter that is added to unseen, if anything.
    fn wrong_count(&self, reply: &str) -> Option<String> {
        self.wrong_sum(reply.strip_prefix("(integer) ")?)
    }

    /// What is wrong with the members of a set that only grows, if anything.
    fn wrong_members(&self, reply: &str) -> Option<String> {
        let members = reply.strip_prefix('{')?.strip_suffix('}')?;
        let members: BTreeSet<&str> = members.split(", ").filter(|member| !member.is_empty()).collect();
        if let Some(lost) = self.added.iter().find(|member| !members.contains(member.as_str())) {
            return Some(format!("the addition of {lost} was committed"));
        }
        let known = |member: &&&str| !self.added.contains(**member) && !self.perhaps_added.contains(**member);
        members.iter().find(known).map(|member| format!("nobody added {member}"))
    }
}
