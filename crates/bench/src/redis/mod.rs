//! `bench redis`: the load of `redis-benchmark -r` for any server that speaks the Redis protocol, two in turn.
//!
//! # How a number comes about
//! For every test and pipeline: one short run that is thrown away, then rounds of *ours, theirs, ours*. Before every
//! measurement the server gets the same contents. A round's ratio is the mean of our two rates through theirs, so that
//! a machine that gets slower or faster steadily favors nobody; the median over the rounds is reported with its
//! extremes. The ratio of our two rates to each other is what two equal things differ by on this machine: a difference
//! smaller than that is noise.
//!
//! # What it costs
//! One thread drives all connections. Requests are made once and only their numbers change ([`Template`]); replies
//! are counted, not parsed. At a pipeline of 1 the load generator and the kernel are the limit, not the server: compare
//! processor time per request there, which is measured when the servers' process ids are given.
//!
//! The keys that the tests use (`key:*`, `counter:*`, `mylist`, `myset`, `myhash`, `myzset`) are overwritten; nothing
//! else is touched.

mod catalogue;
mod compare;
mod load;
mod report;
mod scanner;
mod target;
mod template;

pub use catalogue::{Fill, TESTS, Test};
pub use compare::{Comparison, Latency, Ratio, Server, Settings, Spread, compare};
pub use load::{LoadError, Measurement, Plan, run};
pub use report::{Report, json_line, run_all, table_head, table_line};
pub use scanner::{Malformed, Scanned, Scanner};
pub use target::Target;

pub(crate) use target::processor_seconds;
pub use template::{Numbers, Template};
