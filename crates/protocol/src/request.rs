//! What a gateway asks of a keyspace, whatever its model.

use datatypes::Operation;
use std::time::Duration;
use types::{Error, ErrorCode, KeyHash, SessionId};

/// The words of [`Request::Own`] that leave something behind, or write in the open transaction.
const WRITING_WORDS: [&[u8]; 3] = [b"NAME", b"UNNAME", b"RESOLVE"];

/// What a write gets while the log takes no records.
pub fn misconf() -> Error {
    Error::new(
        ErrorCode::Misconf,
        "the log cannot be written (disk full or I/O error, see the server's log); writes are refused until it can, reads go on",
    )
}

/// What a read gets, while the log takes no records, that would show what it lacks: of this key, or of some one.
pub fn unlogged(key: Option<&[u8]>) -> Error {
    let what = match key {
        Some(key) => format!("the newest write to key '{}'", String::from_utf8_lossy(key)),
        None => "some write that this would show".to_owned(),
    };
    let text = format!(
        "{what} is not durable: the log of this process cannot be written (disk full or I/O error, see the server's log); \
         nothing was read; keys that the log has can be read; try again when the disk has room, or at another region"
    );
    Error::new(ErrorCode::Unavailable, text)
}

/// An operation on a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedOperation<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash, computed once per command.
    pub hash: KeyHash,
    /// What to do.
    pub operation: Operation<'a>,
    /// True when the result is not to be observed (`BLIND`): the reply is `OK` whatever the result, and the
    /// invocation commutes wherever its effect does.
    pub blind: bool,
}

/// One step of a transaction: an operation on a key, or one on the whole keyspace.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// On a key; the operation's own reply.
    Key(KeyedOperation<'a>),
    /// How many keys there are: an integer.
    Count,
    /// Removes every key: `OK`.
    Flush,
    /// Every key: an array, in any order. However many there are, it is one step: for a transaction, where the pieces
    /// of a scan would each see another moment.
    Keys,
    /// Visits a piece of the keyspace: an array of the next cursor (an integer, 0 at the end) and an array of keys.
    /// A key present during a whole iteration is visited at least once.
    Scan {
        /// 0 to begin, then what the last piece returned.
        cursor: u64,
        /// About how many keys to visit.
        count: u32,
    },
    /// Draws one of the keys that exist where the step is evaluated, at random. A byte string: the key; the transaction
    /// does not depend on its being there, so whoever does asks for it in the next step. Nil: there is none, as the
    /// transaction has observed. An integer: none was found, and nobody vouches for there being none. Replicated strict
    /// keyspaces take it alone only.
    Random,
    /// About the writes that were lost to concurrent ones. Models that lose none refuse it.
    Losses(Losses),
}

impl Step<'_> {
    /// True if it may change something.
    pub fn may_write(&self) -> bool {
        match self {
            Step::Key(keyed) => !keyed.operation.is_read(),
            Step::Flush => true,
            Step::Count | Step::Keys | Step::Random | Step::Scan { .. } | Step::Losses(_) => false,
        }
    }
}

/// A question about lost writes. They are settled key by key, by an operation ([`datatypes::key::Operation::Resolve`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// Counts a piece of the list: an array of the next cursor (an integer, 0 at the end) and an array of two integers, how
    /// many there are, and how many were dropped because the list was full.
    Count {
        /// 0 to begin, then what the last piece returned.
        cursor: u64,
    },
    /// A piece of the list: an array of the next cursor (an integer, 0 at the end) and an array of byte strings, each a
    /// [`crate::Conflict`].
    List {
        /// 0 to begin, then what the last piece returned.
        cursor: u64,
        /// About how many.
        count: u32,
    },
}

impl Losses {
    /// What a model replies that loses none.
    pub fn none() -> Error {
        Error::err(
            "this keyspace records no conflicts: only causal ones do, unless created with CONFLICTS ignore",
        )
    }
}

/// A request. Its reply is written in one step of the protocol: one value per step of the transaction, in order,
/// without a container around them; or one error in place of all, and then nothing happened (unless the error is
/// `UNKNOWNOUTCOME`). An operation's own error (`WRONGTYPE`) stands in its place and stops nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// One operation as a transaction of its own.
    One {
        /// The asking session.
        session: SessionId,
        /// The operation.
        operation: KeyedOperation<'a>,
    },
    /// Several steps as one transaction, known in advance; none needs another's result, later ones see the
    /// effects of earlier ones.
    Many {
        /// The asking session.
        session: SessionId,
        /// The steps, evaluated in order.
        steps: &'a [Step<'a>],
        /// True if a change to a key that the session watches since `Watch` must stop it: then the reply is one
        /// null array and nothing happens. The watches are gone afterwards, whatever the outcome.
        watched: bool,
        /// True for the steps of a MULTI: one on the whole keyspace is part of the transaction even if it stands
        /// alone. Without, one that stands alone may be answered by what replicas happen to hold, piece by piece.
        multi: bool,
    },
    /// Watches keys: any change to one, until the session's next `watched` transaction or `Unwatch`, stops that
    /// transaction. Replies `OK`.
    Watch {
        /// The asking session.
        session: SessionId,
        /// The keys with their hashes.
        keys: &'a [(&'a [u8], KeyHash)],
    },
    /// Forgets the watches: `OK`.
    Unwatch {
        /// The asking session.
        session: SessionId,
    },
    /// Opens an interactive transaction; a session has at most one. Replies `OK`.
    Begin {
        /// The asking session.
        session: SessionId,
        /// No operation will have an effect.
        read_only: bool,
        /// See `Many`: a touched watch makes `Commit` reply a null array.
        watched: bool,
    },
    /// Evaluates steps inside the session's open transaction, where reads see its own effects.
    Operate {
        /// The asking session.
        session: SessionId,
        /// The steps, evaluated in order.
        steps: &'a [Step<'a>],
    },
    /// Commits the open transaction: `OK`, or `CONFLICT` naming the key.
    Commit {
        /// The asking session.
        session: SessionId,
    },
    /// Gives the open transaction up: `OK`. The watches stay until the next `watched` transaction or `Unwatch`.
    Abort {
        /// The asking session.
        session: SessionId,
    },
    /// Something about the session's causal thread; refused by keyspaces that have none.
    Context {
        /// The asking session.
        session: SessionId,
        /// What.
        ask: ContextRequest<'a>,
    },
    /// A command that only keyspaces of one model have, in its words, the name first (`BRANCH HEADS`). Other keyspaces
    /// refuse it.
    Own {
        /// The asking session.
        session: SessionId,
        /// The words.
        words: &'a [&'a [u8]],
        /// The steps of the command that they stand before (`AT state GET k`); none for most.
        steps: &'a [Step<'a>],
    },
    /// The session is over: its open transaction and its watches are given up. No reply.
    Close {
        /// The session.
        session: SessionId,
    },
}

/// What a session asks about its causal thread: what it has read and written, and so depends on.
#[derive(Clone, Debug, PartialEq)]
pub enum ContextRequest<'a> {
    /// All of it, as an opaque token for another session: a byte string.
    Token,
    /// Goes on only when snapshots of this process show what another session depended on: `OK`, or `UNAVAILABLE` if that
    /// takes longer than `timeout`.
    Restore {
        /// What the other session was given.
        token: &'a [u8],
        /// How long to wait.
        timeout: Duration,
    },
    /// Another causal thread of the session, which has seen nothing: its number, an integer from 1. The session goes on with the one
    /// that it has. Of protocols whose sessions know what they depend on.
    New,
    /// The session goes on with this thread of its own, 0 for the one that it began with: `OK`.
    Use {
        /// Its number.
        context: u64,
    },
    /// Forgets a thread that is not in use: `OK`.
    Drop {
        /// Its number.
        context: u64,
    },
    /// Whose writes the session reads before they are stable: its own only, or those of the whole process. `OK`.
    Scope {
        /// Its own only.
        private: bool,
    },
}

impl ContextRequest<'_> {
    /// What a keyspace answers that has no causal threads.
    pub fn refusal() -> Error {
        Error::err("contexts and session scopes are of causal keyspaces; this keyspace has another model")
    }
}

impl Request<'_> {
    /// What a keyspace of another model replies to [`Request::Own`].
    pub fn refused(words: &[&[u8]], model: &str) -> Error {
        let command: Vec<_> = words.iter().take(2).map(|word| String::from_utf8_lossy(word)).collect();
        Error::err(format!(
            "{} is for keyspaces of another model than {model}; KEYSPACE LIST and KEYSPACE USE choose one",
            command.join(" ").to_ascii_uppercase()
        ))
    }

    /// What a keyspace whose effects meet unobserved says to operations of user-defined types.
    ///
    /// # Errors
    /// There is one.
    pub fn refuse_user_types(&self, model: &str) -> Result<(), Error> {
        let on_key = |step: &Step<'_>| match step {
            Step::Key(keyed) => keyed.operation.user_type(),
            _ => None,
        };
        let found = match self {
            Request::One { operation, .. } => operation.operation.user_type(),
            Request::Many { steps, .. } | Request::Operate { steps, .. } | Request::Own { steps, .. } => {
                steps.iter().find_map(on_key)
            }
            _ => None,
        };
        found.map_or(Ok(()), |of| {
            Err(Error::refused(format!(
                "type '{}' is user-defined, and such types are for strict keyspaces: this one is {model}; KEYSPACE LIST and \
                 KEYSPACE USE choose one",
                of.name()
            )))
        })
    }

    /// True if it may bring new writes. A commit does not: its transaction's earlier requests brought the writes.
    pub fn may_write(&self) -> bool {
        match self {
            Request::One { operation, .. } => !operation.operation.is_read(),
            Request::Many { steps, .. } | Request::Operate { steps, .. } => steps.iter().any(Step::may_write),
            Request::Own { words, steps, .. } => {
                let writes = |word: &&[u8]| WRITING_WORDS.iter().any(|name| name.eq_ignore_ascii_case(word));
                steps.iter().any(Step::may_write) || words.get(1).is_some_and(writes)
            }
            Request::Watch { .. }
            | Request::Unwatch { .. }
            | Request::Begin { .. }
            | Request::Commit { .. }
            | Request::Abort { .. }
            | Request::Context { .. }
            | Request::Close { .. } => false,
        }
    }

    /// How many steps it asks for; what has none, such as a begin, is one.
    pub fn step_count(&self) -> usize {
        match self {
            Request::Many { steps, .. } | Request::Operate { steps, .. } | Request::Own { steps, .. } => {
                steps.len().max(1)
            }
            _ => 1,
        }
    }

    /// The asking session.
    pub fn session(&self) -> SessionId {
        match self {
            Request::One { session, .. }
            | Request::Many { session, .. }
            | Request::Watch { session, .. }
            | Request::Unwatch { session }
            | Request::Begin { session, .. }
            | Request::Operate { session, .. }
            | Request::Commit { session }
            | Request::Abort { session }
            | Request::Context { session, .. }
            | Request::Own { session, .. }
            | Request::Close { session } => *session,
        }
    }
}
