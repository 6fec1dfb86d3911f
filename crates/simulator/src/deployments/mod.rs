//! The protocols that can be simulated, each as a [`crate::Deployment`].

use crate::run::{Options, Summary};

/// The names that [`crate::run`] knows.
pub const NAMES: &[&str] = &[];

/// Simulates a protocol by name; `None` if there is none of that name.
pub(crate) fn run(_name: &str, _options: &Options) -> Option<Summary> {
    None
}
