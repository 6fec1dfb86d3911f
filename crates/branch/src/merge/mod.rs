//! Merging (TARDiS 5.1, 6.2): which keys conflict between heads, over which fork points, and what their values become.

mod delta;
mod divergence;
mod evaluation;
mod lens;
mod list;
mod plan;
mod stream;
mod value;

pub(crate) use delta::effects_between;
pub(crate) use divergence::{Changed, Changes, Divergence, DivergenceFinder, conflicting_keys};
pub(crate) use evaluation::Resolved;
pub(crate) use plan::{Plan, Planning};
pub use value::{Clash, Policy, Side, three_way};
