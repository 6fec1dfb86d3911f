//! Checks histories: what clients requested and saw, against what the protocol claims it did.
//!
//! A *black-box* check looks at operations, replies and times only. A *white-box* check also knows what the protocol
//! believes: the place of each transaction in the commit order, the snapshot it read, the effects it committed
//! ([`Claim`]). Nothing claimed is trusted: the checks show that the claims, taken together, explain every reply that
//! a client saw and break no promise. That takes time linear in most histories, where a black-box search may take
//! exponential time.
//!
//! | check | module | looks at |
//! |---|---|---|
//! | strict serializability | `strict` | claimed order of what does not commute, real time, sessions; then replays |
//! | transactional causal consistency | `causal` | visible sets: closed, atomic, monotone, never ahead; then replays |
//! | branch isolation | `branch` | claimed states and their parents: sessions stay on their branch; then replays |
//! | all levels but branch, black box | `dependencies`, `sessions` | cycles among sessions, reads, writes and real time |
//! | serializability, black box | `schedule`, `search`, `configuration` | an execution that explains every reply, built or searched for |
//! | the levels' definition, black box | `axioms` | all commit orders of a small history, as a second opinion |
//! | nothing without a request | `strays` | what took effect unclaimed, beside what clients in doubt requested |
//! | plain types, by a second model | `plain` | what replays execute, with another evaluation than the servers' |
//! | convergence | `convergence` | reads at rest: equal everywhere |
//! | exactly once | `totals` | counters, sets and lists at rest against what was committed |
//! | nothing lost of logs | `logs` | streams that only grow, at rest, against what was added and acknowledged |
//! | every lost write listed | `losses` | what regions list at rest against who observed whom |
//! | nothing lost, nothing resurrected | `survivors` | registers and sets at rest against who observed whom |
//!
//! Which of them decides a level is said in `levels`; what a level promises, in `docs/evidence/histories.md`.
//!
//! # The history format
//!
//! One JSON object a line, in any order; one for every transaction that a client began:
//!
//! ```json
//! {"number":7,"session":3,"invoked":120500,"responded":164020,"outcome":"committed","steps":[
//!   {"key":"set:1","operation":"0301...","text":"Set(Add ...)","blind":false,"reply":"(integer) 1"}],
//!  "claim":{"transaction":[1,1,12],"commit":{"at":88,"depends_on":0,"region":0},"snapshot":null,
//!           "effects":[["set:1","0300..."]]}}
//! ```
//!
//! * `number` names the transaction in the history; `session` the client's causal thread, which has at most one
//!   transaction at a time, or a pipeline, sent at one time, whose order is that of the numbers.
//! * `invoked`, `responded`: microseconds of one clock that all clients share; `responded` is absent while unknown.
//! * `outcome`: `committed`; `aborted` (nothing happened); `unknown` (no answer, or UNKNOWNOUTCOME).
//! * `key`: the key's bytes, printable ASCII as it is, everything else and the backslash as `\xNN`.
//! * `operation`: the binary form of the operation, in hexadecimal; `text` says the same for readers.
//! * `reply`: the reply as [`render`] writes it; absent when the client did not see it. A blind step's is not compared.
//! * `claim`: absent where nobody made one. `commit` is the place in the commit order, compared by `at`, then by
//!   `transaction` (process, incarnation, number); `snapshot` is `{region, local, remote}`; `effects` are keys and
//!   binary effects in the order of application; `branch`, in branch keyspaces only, is [`Branch`]: the states `read`,
//!   the `state` made and its `parents`, by name, where [`ROOT`] is the empty keyspace; `handled` marks a merge in which an
//!   application's handler decides what the types' rules leave open.
//! * `state`, of a step of a merge: the parent that it read.
//! * `thread`: the causal thread that the session shared with other sessions, which then read one another's answered writes at
//!   once; absent where a session is a thread of its own. With it `claim` has a `thread`, too: the coordinator that the
//!   transaction's id names, in that life, took up what it committed one after the other; this one has the `place` in that
//!   order, and could see the first `seen` of it and those named in `beyond`, whatever its snapshot shows.
//! * `follows`: the number of a transaction of another session whose context this one's session took over before it;
//!   absent where there is none. Causal levels know it as they know the order within a session.
//! * `given_up`: true for what was committed in a region that was lost, where an operator accepted that; absent otherwise.
//!   Causal levels show it to that region only, and at rest it must be gone.
//! * `constraints`: in branch keyspaces, what the transaction demanded of states by itself, [`Constraints`]; absent otherwise.
//! * `at_rest`: true for the reads made when everything had come to rest; absent otherwise.
//!
//! # What is not covered
//!
//! Deadlines of keys compare with claimed commit timestamps; where nobody claims, and for causal consistency, keys must
//! not expire. Random choices (SPOP) cannot be replayed yet: the choice is fixed. Identifiers (UID.NEXT) are replayed as
//! others of the same form, and checked to be given once.
//! This crate reads the files it is given and touches nothing else.

mod accesses;
mod axioms;
mod branch;
mod causal;
mod configuration;
mod constraint;
mod convergence;
mod dependencies;
mod export;
mod graph;
mod history;
mod identifiers;
mod invocations;
mod key_order;
mod levels;
mod list_elements;
mod logs;
mod losses;
mod merged;
mod plain;
mod readers;
mod record;
mod render;
mod replay;
mod report;
mod revealed;
mod schedule;
mod search;
mod sessions;
mod strays;
mod strict;
mod survivors;
mod totals;
mod touches;
mod variables;
mod whole;

pub use constraint::{Constraint, Constraints};
pub use export::{ExportError, Format, LeftOut, export};
pub use history::{
    Branch, Bytes, Claim, Commit, HistoryError, Key, Outcome, ROOT, Snapshot, Step, Thread, Transaction,
    Vector, read_history, write_history,
};
pub use levels::{holds_by_claims, holds_by_definition, infer};
pub use losses::{ListedLoss, check_losses};
pub use render::{describe, render, render_values};
pub use report::{Check, Level, Report, Violation, check, check_file, check_replies, check_unclaimed};
pub use search::{SearchOutcome, search_requested, search_serial_order, search_strict_order};
