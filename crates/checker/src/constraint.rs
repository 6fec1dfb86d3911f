//! What a transaction of a branch keyspace demanded of states (TARDiS 5.1, table 1): of the one that it reads from, and of the
//! one that it commits below.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A begin or an end constraint. Its text is that of `BRANCH BEGIN` and `BRANCH COMMIT`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Constraint {
    /// Every state.
    Any,
    /// Those that descend from what the session last committed and last read.
    Ancestor,
    /// The one that the session last committed.
    Parent,
    /// This one.
    State(String),
    /// Those with fewer than so many children.
    Branching(usize),
    /// To end: those without children.
    NoBranching,
    /// To end: nothing that the transaction read has been written since.
    Serializability,
    /// To end: nothing that it wrote has been written since.
    SnapshotIsolation,
    /// To end: every state.
    ReadCommitted,
    /// Those that satisfy all of these.
    All(Vec<Constraint>),
    /// Those that satisfy one of these.
    Either(Vec<Constraint>),
}

/// What a transaction demanded; what is absent is the keyspace's choice: to begin at an ancestor, and to end serializably.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraints {
    /// Of the state that it reads from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Constraint>,
    /// Of the state that it commits below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Constraint>,
}

impl Constraint {
    /// Whether a state satisfies it, where `part` says that of a constraint that is not joined of others; `None` where that
    /// is not known.
    pub(crate) fn holds(&self, part: &mut impl FnMut(&Constraint) -> Option<bool>) -> Option<bool> {
        let mut each = |constraints: &[Constraint], enough: bool| {
            let found: Vec<Option<bool>> = constraints.iter().map(|it| it.holds(part)).collect();
            match found.contains(&Some(enough)) {
                true => Some(enough),
                false => found.iter().all(Option::is_some).then_some(!enough),
            }
        };
        match self {
            Constraint::All(all) => each(all, false),
            Constraint::Either(some) => each(some, true),
            one => part(one),
        }
    }

    /// True if it demands another one whatever the state is.
    pub(crate) fn demands(&self, wanted: &Constraint) -> bool {
        match self {
            Constraint::All(all) => all.iter().any(|one| one.demands(wanted)),
            Constraint::Either(some) => some.iter().all(|one| one.demands(wanted)),
            one => one == wanted,
        }
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |constraints: &[Constraint], word: &str| {
            constraints.iter().map(ToString::to_string).collect::<Vec<_>>().join(word)
        };
        match self {
            Constraint::Any => f.write_str("ANY"),
            Constraint::Ancestor => f.write_str("ANCESTOR"),
            Constraint::Parent => f.write_str("PARENT"),
            Constraint::State(id) => write!(f, "STATE {id}"),
            Constraint::Branching(limit) => write!(f, "K {limit}"),
            Constraint::NoBranching => f.write_str("NOBRANCH"),
            Constraint::Serializability => f.write_str("SERIALIZABLE"),
            Constraint::SnapshotIsolation => f.write_str("SNAPSHOT"),
            Constraint::ReadCommitted => f.write_str("READCOMMITTED"),
            Constraint::All(all) => f.write_str(&joined(all, " AND ")),
            Constraint::Either(some) => f.write_str(&joined(some, " OR ")),
        }
    }
}
