//! Convergence: when everything has come to rest, the same read answers the same everywhere.

use crate::history::{Key, Outcome, Transaction};
use crate::report::{Check, Findings};
use std::collections::BTreeMap;

pub(crate) fn check(history: &[Transaction], findings: &mut Findings) {
    let mut first: BTreeMap<(&Key, &[u8]), (&str, u64)> = BTreeMap::new();
    let at_rest = history.iter().filter(|t| t.at_rest && t.outcome == Outcome::Committed);
    for (transaction, step) in at_rest.flat_map(|t| t.steps.iter().map(move |step| (t, step))) {
        let Some(reply) = step.reply.as_deref() else { continue };
        let (expected, number) =
            *first.entry((&step.key, &step.operation.0)).or_insert((reply, transaction.number));
        if expected != reply {
            let message = format!(
                "at rest, {} on {} answers {expected} in transaction {number} and {reply} in transaction {}",
                step.text, step.key, transaction.number
            );
            findings.add(Check::Convergence, message, vec![number, transaction.number]);
        }
    }
}
