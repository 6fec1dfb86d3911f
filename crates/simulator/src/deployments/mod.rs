//! The protocols that can be simulated, each as a [`crate::Deployment`].

mod locking;
mod paris;
mod replicated;
mod solo;
mod tapir;
mod tardis;
mod wren;

use crate::deployment::Deployment;
pub use locking::LockingDeployment;
pub use paris::ParisDeployment;
pub use solo::SoloDeployment;
pub use tapir::TapirDeployment;
pub use tardis::TardisDeployment;
pub use wren::WrenDeployment;

/// The names that [`crate::run`] knows.
pub const NAMES: &[&str] =
    &["locking", "occ", "paris", "solo", "tapir", "tapir-serializable", "tardis", "tardis-forking", "wren"];

/// Something to do with a deployment, whatever its protocol.
pub(crate) trait Task {
    type Result;

    /// `build` makes a fresh deployment for each run.
    fn perform<D: Deployment>(self, build: impl Fn() -> D) -> Self::Result;
}

/// Performs a task with the protocol of a name; `None` if there is none of that name.
pub(crate) fn with<T: Task>(name: &str, task: T) -> Option<T::Result> {
    match name {
        "locking" => Some(task.perform(LockingDeployment::default)),
        "occ" => Some(task.perform(LockingDeployment::optimistic)),
        "paris" => Some(task.perform(ParisDeployment::default)),
        "solo" => Some(task.perform(|| SoloDeployment)),
        "tapir" => Some(task.perform(TapirDeployment::default)),
        "tapir-serializable" => Some(task.perform(TapirDeployment::serializable)),
        "tardis" => Some(task.perform(TardisDeployment::default)),
        "tardis-forking" => Some(task.perform(TardisDeployment::forking)),
        "wren" => Some(task.perform(WrenDeployment::default)),
        _ => None,
    }
}
