//! Identifiers: whoever replays a history draws others, but none may have been given twice.

use crate::history::Transaction;
use crate::report::{Check, Findings};
use datatypes::Operation;
use std::collections::BTreeMap;
use types::Reader;

/// True for two replies to the same drawing of identifiers that differ in what was drawn only.
pub(crate) fn is_drawn_alike(operation: &Operation<'_>, expected: &str, seen: &str) -> bool {
    let drawn = |text: &str| text.replace(|c: char| c.is_ascii_hexdigit(), "x");
    matches!(operation, Operation::UidGenerator(_)) && drawn(expected) == drawn(seen)
}

/// Whatever its transaction came to, an id in a reply is unique.
pub(crate) fn check(history: &[Transaction], findings: &mut Findings) {
    let mut given: BTreeMap<&str, u64> = BTreeMap::new();
    for transaction in history {
        for step in &transaction.steps {
            let Some(reply) = step.reply.as_deref().filter(|reply| !reply.starts_with('-')) else { continue };
            if !matches!(
                Operation::decode(&mut Reader::new(&step.operation.0)),
                Ok(Operation::UidGenerator(_))
            ) {
                continue;
            }
            // Between quotes: every second part.
            for identifier in reply.split('"').skip(1).step_by(2) {
                if let Some(first) = given.insert(identifier, transaction.number) {
                    let numbers = vec![first, transaction.number];
                    let message = format!(
                        "{} gave the identifier {identifier} twice: to {first} and {}",
                        step.key, numbers[1]
                    );
                    findings.add(Check::ExactlyOnce, message, numbers);
                }
            }
        }
    }
}
