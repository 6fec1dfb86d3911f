//! The protocols that can be simulated, each as a [`crate::Deployment`].

mod solo;
mod tapir;
mod wren;

use crate::run::{Options, Summary, run_seeds};
pub use solo::SoloDeployment;
pub use tapir::TapirDeployment;
pub use wren::WrenDeployment;

/// The names that [`crate::run`] knows.
pub const NAMES: &[&str] = &["solo", "tapir", "wren"];

/// Simulates a protocol by name; `None` if there is none of that name.
pub(crate) fn run(name: &str, options: &Options) -> Option<Summary> {
    match name {
        "solo" => Some(run_seeds(name, options, || SoloDeployment)),
        "tapir" => Some(run_seeds(name, options, TapirDeployment::default)),
        "wren" => Some(run_seeds(name, options, WrenDeployment::default)),
        _ => None,
    }
}
