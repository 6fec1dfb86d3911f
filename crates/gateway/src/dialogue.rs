//! Commands whose next step needs the result of the one before.

use crate::blocking::Blocked;
use crate::combine::no_such_key;
use crate::commands::cluster::slot_of;
use crate::commands::conflicts::{self, Listing, NamedLosses};
use crate::random_key::RandomKey;
use crate::turns::{On, Turns};
use datatypes::glob::Pattern;
use datatypes::{Items, Operation, key};
use protocol::{Conflict, KeyedOperation, Losses, Step};
use std::borrow::Cow;
use std::collections::BTreeSet;
use types::{HashSeed, Reader, Reply, ReplyBuf, ReplySink, Wire};

/// A command in progress. It owns what it needs of its arguments.
#[derive(Debug)]
pub(crate) enum Dialogue {
    /// RENAME: takes the value from one key, then puts it under the other.
    Rename {
        /// The old name.
        from: Box<[u8]>,
        /// The new name.
        to: Box<[u8]>,
        /// The value in its binary form, once it was taken.
        taken: Option<Vec<u8>>,
    },
    /// KEYS: visits the keyspace piece by piece.
    Keys {
        /// Which keys are wanted.
        pattern: Pattern,
        /// Where the next piece begins.
        cursor: u64,
        /// About how many keys a piece has.
        piece: u32,
        /// What was found.
        found: BTreeSet<Vec<u8>>,
    },
    /// CLUSTER COUNTKEYSINSLOT and GETKEYSINSLOT: visits the keyspace piece by piece.
    InSlot {
        /// The slot of Redis Cluster.
        slot: u16,
        /// At most so many keys are listed; `None` counts all.
        listed: Option<usize>,
        /// Where the next piece begins.
        cursor: u64,
        /// About how many keys a piece has.
        piece: u32,
        /// What was found.
        found: BTreeSet<Vec<u8>>,
    },
    /// SCAN: visits one piece, then perhaps asks for the types of what it found.
    Scan(Scan),
    /// RANDOMKEY: draws keys until one exists.
    RandomKey(RandomKey),
    /// A command that reads first and decides then.
    Turns(Box<dyn Turns>),
    /// CONFLICTS LIST: visits the list piece by piece.
    Conflicts(Listing),
    /// CONFLICTS COUNT: visits the list piece by piece.
    CountConflicts {
        /// Where the next piece begins.
        cursor: u64,
        /// How many there were so far, and how many had been dropped.
        counted: [i64; 2],
    },
    /// CONFLICTS RESOLVE.
    Resolve {
        /// What is settled.
        keys: NamedLosses,
    },
}

/// SCAN in progress.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Where to begin.
    pub(crate) cursor: u64,
    /// About how many keys to visit.
    pub(crate) count: u32,
    /// Which keys are wanted.
    pub(crate) pattern: Option<Pattern>,
    /// The wanted type's name in Redis.
    pub(crate) kind: Option<Box<[u8]>>,
    /// Where the next call continues, and the keys whose types it reads.
    pub(crate) visited: Option<(u64, Vec<Vec<u8>>)>,
}

impl Dialogue {
    /// True when its steps are one transaction even outside MULTI.
    pub(crate) fn is_atomic(&self) -> bool {
        match self {
            Dialogue::Rename { .. } => true,
            Dialogue::Turns(turns) => turns.is_atomic(),
            _ => false,
        }
    }

    /// An attempt of a blocking command begins: see [`Turns::skip_other_types`] and [`Turns::only_look`].
    pub(crate) fn attempt(&mut self, blocked: &Blocked) {
        let Dialogue::Turns(turns) = self else { return };
        if blocked.is_entered() {
            turns.skip_other_types();
        }
        if blocked.only_looks() {
            turns.only_look();
        }
    }

    /// See [`Turns::may_wait`].
    pub(crate) fn may_wait(&self) -> bool {
        matches!(self, Dialogue::Turns(turns) if turns.may_wait())
    }

    /// See [`Turns::again`].
    pub(crate) fn again(&self) -> Option<Vec<u8>> {
        match self {
            Dialogue::Turns(turns) => turns.again(),
            _ => None,
        }
    }

    /// True when the steps that come next are to be one transaction even if they stand alone.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self, Dialogue::RandomKey(_) | Dialogue::Turns(_))
    }

    /// The one step that does it all, where there is one and no request has been sent.
    pub(crate) fn only_step(&self) -> Option<Step<'static>> {
        match self {
            Dialogue::Keys { .. } | Dialogue::InSlot { .. } => Some(Step::Keys),
            Dialogue::Scan(Scan { cursor, count, kind: None, .. }) => {
                Some(Step::Scan { cursor: *cursor, count: *count })
            }
            Dialogue::Rename { .. }
            | Dialogue::Scan(_)
            | Dialogue::RandomKey(_)
            | Dialogue::Turns(_)
            | Dialogue::Conflicts(_)
            | Dialogue::CountConflicts { .. }
            | Dialogue::Resolve { .. } => None,
        }
    }

    /// What to ask next.
    pub(crate) fn steps(&self, seed: HashSeed) -> Vec<Step<'_>> {
        let on_key = |key, operation| {
            let operation = Operation::Key(operation);
            Step::Key(KeyedOperation { key, hash: seed.hash(key), operation, blind: false })
        };
        match self {
            Dialogue::Rename { from, taken: None, .. } => vec![on_key(from, key::Operation::Take)],
            Dialogue::Rename { to, taken: Some(taken), .. } => {
                vec![on_key(to, key::Operation::Restore(Cow::Borrowed(taken)))]
            }
            Dialogue::Keys { cursor, piece, .. } | Dialogue::InSlot { cursor, piece, .. } => {
                vec![Step::Scan { cursor: *cursor, count: *piece }]
            }
            Dialogue::Scan(Scan { visited: Some((_, keys)), .. }) => {
                keys.iter().map(|key| on_key(key, key::Operation::Type)).collect()
            }
            Dialogue::Scan(scan) => vec![Step::Scan { cursor: scan.cursor, count: scan.count }],
            Dialogue::RandomKey(draw) => draw.steps(seed),
            Dialogue::Turns(turns) => turns.steps(On { seed }),
            Dialogue::Conflicts(listing) => vec![listing.step()],
            Dialogue::CountConflicts { cursor, .. } => vec![Step::Losses(Losses::Count { cursor: *cursor })],
            Dialogue::Resolve { keys } => {
                let losses = |names: &Vec<Vec<u8>>| Items::collect(names.iter().map(Vec::as_slice));
                let resolve = |names| key::Operation::Resolve { losses: losses(names) };
                keys.iter().map(|(key, names)| on_key(key, resolve(names))).collect()
            }
        }
    }

    /// Reads the reply to the last steps. True when the command is done and its reply is written into `sink`.
    pub(crate) fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Dialogue::Turns(turns) = self {
            return turns.on_reply(reply, sink);
        }
        if let Some(error) = reply.as_error() {
            sink.error(&error);
            return true;
        }
        match self {
            Dialogue::Turns(_) => {}
            Dialogue::Rename { taken: taken @ None, .. } => match reply.first() {
                Some(Reply::Bulk(bytes)) => {
                    *taken = Some(bytes.to_vec());
                    return false;
                }
                _ => sink.error(&no_such_key()),
            },
            Dialogue::Rename { .. } => sink.simple("OK"),
            Dialogue::Keys { pattern, cursor, found, .. } => {
                let (next, keys) = piece(reply);
                found.extend(keys.filter(|key| pattern.matches(key)).map(<[u8]>::to_vec));
                if next != 0 {
                    *cursor = next;
                    return false;
                }
                sink.array(found.len());
                found.iter().for_each(|key| sink.bulk(key));
            }
            Dialogue::InSlot { slot, listed, cursor, found, .. } => {
                let (next, keys) = piece(reply);
                found.extend(keys.filter(|key| slot_of(key) == *slot).map(<[u8]>::to_vec));
                if next != 0 {
                    *cursor = next;
                    return false;
                }
                let Some(most) = *listed else {
                    sink.integer(found.len() as i64);
                    return true;
                };
                sink.array(most.min(found.len()));
                found.iter().take(most).for_each(|key| sink.bulk(key));
            }
            Dialogue::Scan(scan) => return scan.on_reply(reply, sink),
            Dialogue::RandomKey(draw) => return draw.on_reply(reply, sink),
            Dialogue::Resolve { .. } => conflicts::write_resolved(reply, sink),
            Dialogue::CountConflicts { cursor, counted } => {
                *cursor = conflicts::count_piece(reply, counted);
                if *cursor != 0 {
                    return false;
                }
                sink.array(counted.len());
                counted.iter().for_each(|number| sink.integer(*number));
            }
            Dialogue::Conflicts(listing) => {
                let (next, found) = piece(reply);
                let pattern = listing.pattern.take();
                let found = found.filter_map(|bytes| Conflict::decode(&mut Reader::new(bytes)).ok());
                let wanted = |conflict: &Conflict| {
                    pattern.as_ref().is_none_or(|pattern| pattern.matches(&conflict.key))
                };
                let done = listing.on_piece(next, found.filter(wanted), sink);
                listing.pattern = pattern;
                return done;
            }
        }
        true
    }
}

impl Scan {
    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        let (next, keys) = match self.visited.take() {
            None => {
                let (next, keys) = piece(reply);
                let wanted = |key: &&[u8]| self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key));
                let keys: Vec<Vec<u8>> = keys.filter(wanted).map(<[u8]>::to_vec).collect();
                if self.kind.is_some() && !keys.is_empty() {
                    self.visited = Some((next, keys));
                    return false;
                }
                (next, keys)
            }
            Some((next, keys)) => {
                let kind = self.kind.as_deref().unwrap_or_default();
                let has_kind = |element| matches!(element, Reply::Simple(name) if name.as_bytes() == kind);
                let fits = reply.elements().map(has_kind);
                (next, keys.into_iter().zip(fits).filter_map(|(key, fits)| fits.then_some(key)).collect())
            }
        };
        sink.array(2);
        sink.bulk(next.to_string().as_bytes());
        sink.array(keys.len());
        keys.iter().for_each(|key| sink.bulk(key));
        true
    }
}

/// The next cursor and the keys of a visited piece; of all keys, which come without a cursor, there is no next.
pub(crate) fn piece(reply: &ReplyBuf) -> (u64, impl Iterator<Item = &[u8]>) {
    let next = reply.elements().find_map(|element| match element {
        Reply::Integer(next) => Some(next as u64),
        _ => None,
    });
    let keys = reply.elements().filter_map(|element| match element {
        Reply::Bulk(key) => Some(key),
        _ => None,
    });
    (next.unwrap_or(0), keys)
}
