//! What clients run: the paper's microbenchmarks, types that merge, and Retwis.

use bench::transactions::{Keys, Workload};
use datatypes::scored_set::{AddFlags, RangeBy, ScoredItems};
use datatypes::{Items, Operation, dict, register, scored_set, set};
use protocol::{KeyedOperation, Step};
use types::{HashSeed, Reply, ReplyBuf, Rng};

const VALUE: [u8; 64] = [7; 64];
/// How many posts a timeline shows (section 7.2.2).
const SHOWN: i64 = 50;
/// How many others a user follows.
const FOLLOWED: usize = 10;
/// How many members a mergeable set has to choose from.
const MEMBERS: u32 = 100;

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Get(Name),
    Set(Name),
    Increment(Name),
    Add(Name, u32),
    Members(Name),
    Field(Name, u32),
    Fields(Name),
    /// Writes a field: one more than the last reply said, or a text.
    Put(Name, u32, Written),
    Post(Name, f64, u64),
    /// Posts to the timelines of the users that the last reply named.
    VisibilitySplit(f64, u64),
    Timeline(Name),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Written {
    Next,
    Text,
}

/// A key: what it is of, and which one.
pub(super) type Name = (u8, u32);

fn bytes((of, number): Name) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [of, a, b, c, d]
}

impl Op {
    fn key(&self) -> Name {
        match self {
            Op::Get(name) | Op::Set(name) | Op::Increment(name) | Op::Add(name, _) | Op::Members(name) => {
                *name
            }
            Op::Field(name, _) | Op::Fields(name) | Op::Put(name, ..) | Op::Post(name, ..) => *name,
            Op::Timeline(name) => *name,
            Op::VisibilitySplit(..) => (b't', 0),
        }
    }

    /// True if it writes.
    pub fn is_write(&self) -> bool {
        !matches!(self, Op::Get(_) | Op::Members(_) | Op::Field(..) | Op::Fields(_) | Op::Timeline(_))
    }

    /// The operations that it stands for, after this reply.
    fn meant(&self, last: &ReplyBuf) -> Vec<Op> {
        let Op::VisibilitySplit(score, id) = self else { return vec![self.clone()] };
        let user = |reply: Reply<'_>| match reply {
            Reply::Bulk(bytes) => Some(u32::from_be_bytes(bytes.try_into().ok()?)),
            _ => None,
        };
        last.elements().filter_map(user).map(|user| Op::Post((b't', user), *score, *id)).collect()
    }

    /// Texts that its operation borrows.
    fn texts(&self, last: &ReplyBuf) -> (Vec<u8>, Vec<u8>) {
        match self {
            Op::Add(_, member) => (member.to_be_bytes().to_vec(), Vec::new()),
            Op::Post(_, _, id) | Op::VisibilitySplit(_, id) => (id.to_be_bytes().to_vec(), Vec::new()),
            Op::Field(_, field) => (field.to_be_bytes().to_vec(), Vec::new()),
            Op::Put(_, field, written) => {
                let value = match written {
                    Written::Next => (number(last) + 1).to_string().into_bytes(),
                    Written::Text => VALUE.to_vec(),
                };
                (field.to_be_bytes().to_vec(), value)
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    fn operation<'t>(&self, first: &'t [u8], second: &'t [u8]) -> Operation<'t> {
        match self {
            Op::Get(_) => Operation::Register(register::Operation::Get),
            Op::Set(_) => Operation::Register(register::Operation::Set {
                value: &VALUE,
                deadline: register::Deadline::Clear,
                condition: register::Condition::Always,
                reply: register::SetReply::Status,
            }),
            Op::Increment(_) => Operation::Register(register::Operation::Increment { by: 1 }),
            Op::Add(..) => Operation::Set(set::Operation::Add { members: Items::One([first]) }),
            Op::Members(_) => Operation::Set(set::Operation::Members),
            Op::Field(..) => Operation::Dict(dict::Operation::Get { field: first }),
            Op::Fields(_) => Operation::Dict(dict::Operation::GetAll),
            Op::Put(..) => Operation::Dict(dict::Operation::Put {
                pairs: Items::Two([first, second]),
                reply: dict::PutReply::Added,
            }),
            Op::Post(_, score, _) | Op::VisibilitySplit(score, _) => {
                Operation::ScoredSet(scored_set::Operation::Add {
                    flags: AddFlags::default(),
                    items: ScoredItems::one(*score, first),
                })
            }
            Op::Timeline(_) => Operation::ScoredSet(scored_set::Operation::Range {
                by: RangeBy::Index { start: 0, stop: SHOWN - 1 },
                reverse: true,
                limit: None,
                with_scores: false,
            }),
        }
    }
}

/// The first number of a reply, as an integer or in text; 0 if there is none.
pub(super) fn number(reply: &ReplyBuf) -> i64 {
    match reply.first() {
        Some(Reply::Integer(number)) => number,
        Some(Reply::Bulk(text)) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Calls `ask` with these operations as steps; `last` is the reply before.
pub(super) fn with_steps(ops: &[Op], last: &ReplyBuf, seed: HashSeed, ask: impl FnOnce(&[Step<'_>])) {
    let ops: Vec<Op> = ops.iter().flat_map(|op| op.meant(last)).collect();
    let owned: Vec<_> = ops.iter().map(|op| (bytes(op.key()), op.texts(last))).collect();
    let steps: Vec<Step<'_>> = ops
        .iter()
        .zip(&owned)
        .map(|(op, (key, (first, second)))| {
            let operation = op.operation(first, second);
            Step::Key(KeyedOperation { key, hash: seed.hash(key), operation, blind: false })
        })
        .collect();
    ask(&steps);
}

/// A transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    /// A request is a round trip.
    pub requests: Vec<Vec<Op>>,
    /// False for a single command, which is sent without begin and commit.
    pub is_transaction: bool,
    /// False for what only tells other sites.
    pub counts: bool,
}

/// A type that merges, and how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mergeable {
    /// A counter of additions and subtractions.
    Counter,
    /// A register: the last writer wins.
    Register,
    /// A set.
    Set,
}

impl Mergeable {
    /// All of them.
    pub const ALL: [Mergeable; 3] = [Mergeable::Counter, Mergeable::Register, Mergeable::Set];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Mergeable::Counter => "counter",
            Mergeable::Register => "register",
            Mergeable::Set => "set",
        }
    }
}

/// Which transactions are run.
#[derive(Clone, Debug)]
pub enum Load {
    /// Six reads, or three reads and three writes, of so many writers in a hundred.
    Micro {
        /// How many of a hundred transactions write.
        writers: u8,
        /// On these keys.
        keys: Keys,
    },
    /// Transactions of a single write.
    Blind {
        /// On these keys.
        keys: Keys,
    },
    /// Nine reads to a write of values of a type that merges.
    Types {
        /// Which.
        of: Mergeable,
        /// True for the library on flat storage, whose sites get every write by a transaction.
        flat: bool,
        /// How many values there are.
        values: u32,
        /// How many sites there are.
        sites: u16,
    },
    /// Retwis.
    Retwis {
        /// Of a hundred transactions, how many post.
        posts: u8,
        /// How many follow.
        follows: u8,
        /// How many users there are.
        users: u32,
    },
}

impl Load {
    /// The transactions that load the keys.
    pub(super) fn loading(&self, random: &mut Rng) -> Vec<Vec<Op>> {
        let ops: Vec<Op> = match self {
            Load::Micro { keys, .. } | Load::Blind { keys } => {
                (0..keys.count()).map(|key| Op::Set((b'k', key))).collect()
            }
            Load::Types { of, flat: false, values, .. } => {
                (0..*values).map(|value| of.write((b'v', value), random)).collect()
            }
            Load::Types { values, .. } => {
                (0..*values).map(|value| Op::Put((b'v', value), 0, Written::Next)).collect()
            }
            Load::Retwis { users, .. } => {
                let popular = Keys::new(*users, Some(0.99));
                let follow = |user: u32, random: &mut Rng| {
                    (0..FOLLOWED)
                        .map(|_| Op::Add((b'f', popular.draw(random)), user))
                        .chain([Op::Post((b't', user), 0.0, u64::from(user))])
                        .collect::<Vec<Op>>()
                };
                (0..*users).flat_map(|user| follow(user, random)).collect()
            }
        };
        ops.chunks(200).map(<[Op]>::to_vec).collect()
    }

    /// Draws the next transactions of a client, one after the other; `now` is the time, for posts.
    pub(super) fn draw(&self, client: u32, now: u64, random: &mut Rng) -> Vec<Script> {
        match self {
            Load::Micro { writers, keys } => {
                let planned = Workload::Tardis { writers: *writers }.draw(keys, 0, random);
                let reads = planned.reads.iter().map(|key| vec![Op::Get((b'k', *key))]);
                let writes = planned.writes.iter().map(|key| vec![Op::Set((b'k', *key))]);
                vec![transaction(reads.chain(writes).collect())]
            }
            Load::Blind { keys } => vec![transaction(vec![vec![Op::Set((b'k', keys.draw(random)))]])],
            Load::Types { of, flat, values, sites } => {
                let value = (b'v', random.u32(..*values));
                match (random.u8(..100) < 10, *flat) {
                    (false, false) => vec![command(of.read(value))],
                    (true, false) => vec![command(of.write(value, random))],
                    (false, true) => vec![command(Op::Fields(value))],
                    (true, true) => of.flat_write(value, *sites, random),
                }
            }
            Load::Retwis { posts, follows, users } => {
                let (user, what) = (random.u32(..*users), random.u8(..100));
                vec![if what < *posts {
                    let id = now << 20 | u64::from(client);
                    let text = Op::Set((b'p', random.u32(..)));
                    let timelines =
                        [text, Op::Post((b't', user), now as f64, id), Op::VisibilitySplit(now as f64, id)];
                    transaction(vec![vec![Op::Members((b'f', user))], timelines.to_vec()])
                } else if what < posts + follows {
                    let other = random.u32(..*users);
                    transaction(vec![vec![Op::Members((b'f', other))], vec![Op::Add((b'f', other), user)]])
                } else {
                    transaction(vec![vec![Op::Timeline((b't', user))]])
                }]
            }
        }
    }
}

fn transaction(requests: Vec<Vec<Op>>) -> Script {
    Script { requests, is_transaction: true, counts: true }
}

fn command(op: Op) -> Script {
    Script { requests: vec![vec![op]], is_transaction: false, counts: true }
}

impl Mergeable {
    fn read(self, value: Name) -> Op {
        match self {
            Mergeable::Counter | Mergeable::Register => Op::Get(value),
            Mergeable::Set => Op::Members(value),
        }
    }

    fn write(self, value: Name, random: &mut Rng) -> Op {
        match self {
            Mergeable::Counter => Op::Increment(value),
            Mergeable::Register => Op::Set(value),
            Mergeable::Set => Op::Add(value, random.u32(..MEMBERS)),
        }
    }

    /// A write of the library on flat storage: it reads what its site holds and writes what follows, and every other
    /// site repeats it when it receives it. A site receives as many as others write.
    fn flat_write(self, value: Name, sites: u16, random: &mut Rng) -> Vec<Script> {
        let own = match self {
            Mergeable::Counter => vec![vec![Op::Field(value, 0)], vec![Op::Put(value, 0, Written::Next)]],
            Mergeable::Register => vec![vec![Op::Fields(value)], vec![Op::Put(value, 0, Written::Text)]],
            // The number of its last addition, and the addition with its tag.
            Mergeable::Set => vec![
                vec![Op::Field(value, 0)],
                vec![
                    Op::Put(value, 0, Written::Next),
                    Op::Put(value, 1 + random.u32(..MEMBERS), Written::Text),
                ],
            ],
        };
        let copied = |site: u16, random: &mut Rng| {
            let (field, written) = match self {
                Mergeable::Counter => (u32::from(site), Written::Next),
                Mergeable::Register => (u32::from(site), Written::Text),
                Mergeable::Set => (1 + random.u32(..MEMBERS), Written::Text),
            };
            let requests = vec![vec![Op::Fields(value)], vec![Op::Put(value, field, written)]];
            Script { requests, is_transaction: true, counts: false }
        };
        let mut scripts = vec![transaction(own)];
        scripts.extend((1..sites).map(|site| copied(site, random)));
        scripts
    }
}
