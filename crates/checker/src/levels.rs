//! Which checks decide a level.
//!
//! | level | with claims | without |
//! |---|---|---|
//! | strict, serializable | `strict` | dependencies; then a schedule proves it, or a search decides |
//! | transactional causal | `causal`, or `strict` where no snapshot is claimed | dependencies |
//! | snapshot | if serializable by claims, it holds | dependencies; where they leave orders open, the definition |
//! | causal, read atomic, session guarantees | if a stronger level holds by claims, they hold | dependencies |
//! | branch | `branch` | undecided |
//! | convergence, exactly once | reads at rest | the same |
//!
//! Claims can only prove that a level holds: a protocol that claims more than a weak level asks for, and breaks its
//! claim, may still keep the weak level, which then is checked as if nothing was claimed.

use crate::accesses::{Accesses, decode};
use crate::dependencies::Dependencies;
use crate::history::Transaction;
use crate::report::{Check, Findings, Level};
use crate::strict::Demands;
use crate::{
    axioms, branch, causal, convergence, identifiers, logs, schedule, search, sessions, strays, strict,
    survivors, totals,
};

/// Checks a level. False if the history remained undecided.
pub(crate) fn check(history: &[Transaction], level: Level, findings: &mut Findings) -> bool {
    let decided = check_claimed(history, level, true, findings);
    if !is_session_guarantee(level) {
        totals::check(history, findings);
        logs::check(history, findings);
        identifiers::check(history, findings);
    }
    decided
}

/// The same without what requested operations come to in the end.
pub(crate) fn check_replies(history: &[Transaction], level: Level, findings: &mut Findings) -> bool {
    check_claimed(history, level, false, findings)
}

fn check_claimed(
    history: &[Transaction],
    level: Level,
    no_foreign_effects: bool,
    findings: &mut Findings,
) -> bool {
    let claims = Claims::of(history);
    let has_rest = history.iter().any(|transaction| transaction.at_rest) || history.is_empty();
    let decided = match level {
        Level::StrictSerializable | Level::Serializable if claims.serial(level) => {
            let real_time = level == Level::StrictSerializable;
            strict::check(history, Demands { real_time, no_foreign_effects }, findings)
        }
        Level::TransactionalCausal if claims.snapshots => {
            causal::check(history, findings);
            survivors::check(history, findings);
            true
        }
        Level::Branch if claims.branches => {
            branch::check(history, findings);
            true
        }
        Level::Branch => history.is_empty(),
        Level::Convergence | Level::ExactlyOnce => has_rest,
        _ => holds_by_claims(history, level) || infer_into(history, level, findings),
    };
    if no_foreign_effects && !claims.serial(level) && !is_session_guarantee(level) {
        strays::check(history, findings);
    }
    if level != Level::ExactlyOnce && !is_session_guarantee(level) {
        convergence::check(history, findings);
    }
    decided
}

fn is_session_guarantee(level: Level) -> bool {
    use Level::{MonotonicReads, MonotonicWrites, ReadYourWrites, WritesFollowReads};
    matches!(level, ReadYourWrites | MonotonicReads | MonotonicWrites | WritesFollowReads)
}

/// What is claimed in a history.
struct Claims {
    any: bool,
    snapshots: bool,
    branches: bool,
}

impl Claims {
    /// True if a level is decided by the order that is claimed.
    fn serial(&self, level: Level) -> bool {
        self.any && matches!(level, Level::StrictSerializable | Level::Serializable)
    }

    fn of(history: &[Transaction]) -> Self {
        let mut found = Claims { any: false, snapshots: false, branches: false };
        for claim in history.iter().filter_map(|transaction| transaction.claim.as_ref()) {
            found.any |= claim.branch.is_none();
            found.snapshots |= claim.snapshot.is_some();
            found.branches |= claim.branch.is_some();
        }
        found
    }
}

/// White box: true if the claims show that a level holds. False says that they do not show it, nothing more.
pub fn holds_by_claims(history: &[Transaction], level: Level) -> bool {
    let claims = Claims::of(history);
    let mut findings = Findings::default();
    let demands = |real_time| Demands { real_time, no_foreign_effects: false };
    let decided = match level {
        Level::StrictSerializable if claims.any => strict::check(history, demands(true), &mut findings),
        Level::Branch if claims.branches => {
            branch::check(history, &mut findings);
            true
        }
        Level::StrictSerializable | Level::Branch | Level::Convergence | Level::ExactlyOnce => false,
        Level::Serializable | Level::Snapshot if claims.any && !claims.snapshots => {
            strict::check(history, demands(false), &mut findings)
        }
        Level::Serializable | Level::Snapshot => false,
        _ if claims.snapshots => {
            causal::check(history, &mut findings);
            true
        }
        _ if claims.any => strict::check(history, demands(false), &mut findings),
        _ => false,
    };
    decided && findings.is_empty()
}

/// Black box: whether a level holds, as far as it can be inferred from what clients saw; `None` if that leaves it
/// open.
pub fn infer(history: &[Transaction], level: Level) -> Option<bool> {
    let mut findings = Findings::default();
    let decided = infer_into(history, level, &mut findings);
    if findings.is_empty() { decided.then_some(true) } else { Some(false) }
}

/// A small history against the definition of a level, by a search over all commit orders; `None` for one that is
/// large, holds operations that name no version, or for a level that is not defined that way.
pub fn holds_by_definition(history: &[Transaction], level: Level) -> Option<bool> {
    if is_session_guarantee(level) || matches!(level, Level::Branch | Level::Convergence | Level::ExactlyOnce)
    {
        return None;
    }
    let decoded = decode(history)?;
    axioms::holds(&Accesses::new(&decoded, level), level)
}

/// Infers a level and notes what breaks it. False if it remained undecided.
pub(crate) fn infer_into(history: &[Transaction], level: Level, findings: &mut Findings) -> bool {
    let Some(decoded) = decode(history) else {
        findings.add(Check::Claims, "an operation or an effect is malformed".into(), Vec::new());
        return true;
    };
    let accesses = Accesses::new(&decoded, level);
    if is_session_guarantee(level) {
        if let Some((message, numbers)) = sessions::violation(&accesses, level) {
            findings.add(Check::Session, message, numbers);
        }
        return accesses.complete;
    }
    for (check, message, numbers) in &accesses.broken {
        findings.add(*check, message.clone(), numbers.clone());
    }
    let dependencies = match Dependencies::new(&accesses, level) {
        Ok(dependencies) => dependencies,
        Err((message, numbers)) => {
            findings.add(Check::Order, message, numbers);
            return true;
        }
    };
    if let Some((message, numbers)) = dependencies.cycle() {
        findings.add(Check::Order, message, numbers);
    }
    if !findings.is_empty() {
        return true;
    }
    match level {
        Level::StrictSerializable | Level::Serializable => {
            let real_time = level == Level::StrictSerializable;
            schedule::finds_execution(&accesses, &dependencies) || search::check(history, real_time, findings)
        }
        Level::Snapshot if !(accesses.complete && dependencies.is_total()) => {
            match axioms::holds(&accesses, level) {
                Some(false) => {
                    let message = "no commit order gives every transaction a snapshot".to_owned();
                    findings.add(Check::Order, message, history.iter().map(|t| t.number).collect());
                    true
                }
                other => other.is_some(),
            }
        }
        _ => accesses.complete,
    }
}
