//! Merging (TARDiS 5.1, 6.2): which keys conflict between heads, over which fork points, and what their values become.

mod delta;
mod evaluation;
mod lens;
mod list;
mod parting;
mod plan;
mod stream;
mod value;

pub(crate) use delta::effects_between;
pub(crate) use evaluation::Resolved;
pub(crate) use parting::{Changed, Changes, Parting, Partings, conflicting_keys};
pub(crate) use plan::{Plan, Planning};
pub use value::{Clash, Policy, Side, three_way};
