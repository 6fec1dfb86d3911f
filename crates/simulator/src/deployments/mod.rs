//! The protocols that can be simulated, each as a [`crate::Deployment`].

mod causal;
mod copies;
mod cops;
mod locking;
mod replicated;
mod solo;
mod tapir;
mod tardis;

use crate::deployment::Deployment;
pub use causal::{
    BlockingDeployment, CausalDeployment, Checked, CureDeployment, HybridCureDeployment, ParisDeployment,
    PoccDeployment, UncoordinatedDeployment, WrenDeployment,
};
pub use copies::{CopiesDeployment, ParisCopiesDeployment, PoccCopiesDeployment, WrenCopiesDeployment};
pub use cops::{CopsCopiesDeployment, CopsDeployment};
pub use locking::LockingDeployment;
pub use solo::SoloDeployment;
pub use tapir::TapirDeployment;
pub use tardis::TardisDeployment;

/// The names that [`crate::run`] knows.
pub const NAMES: &[&str] = &[
    "bpr",
    "cops",
    "cops-cd",
    "cops-copies",
    "cops-gt",
    "cops-gt-copies",
    "cure",
    "h-cure",
    "locking",
    "log",
    "nocc",
    "occ",
    "paris",
    "paris-copies",
    "pocc",
    "pocc-copies",
    "solo",
    "tapir",
    "tapir-serializable",
    "tardis",
    "tardis-forking",
    "tardis-handler",
    "tardis-parts",
    "wren",
    "wren-copies",
];

/// Something to do with a deployment, whatever its protocol.
pub(crate) trait Task {
    type Result;

    /// `build` makes a fresh deployment for each run.
    fn perform<D: Deployment>(self, build: impl Fn() -> D) -> Self::Result;
}

/// Performs a task with the protocol of a name; `None` if there is none of that name.
pub(crate) fn with<T: Task>(name: &str, task: T) -> Option<T::Result> {
    match name {
        "bpr" => Some(task.perform(BlockingDeployment::default)),
        "cops" => Some(task.perform(CopsDeployment::default)),
        "cops-cd" => Some(task.perform(CopsDeployment::keeping)),
        "cops-copies" => Some(task.perform(CopsCopiesDeployment::default)),
        "cops-gt-copies" => Some(task.perform(CopsCopiesDeployment::transactional)),
        "cops-gt" => Some(task.perform(CopsDeployment::transactional)),
        "cure" => Some(task.perform(CureDeployment::default)),
        "h-cure" => Some(task.perform(HybridCureDeployment::default)),
        "locking" => Some(task.perform(LockingDeployment::default)),
        "log" => Some(task.perform(CopsDeployment::serialized)),
        "nocc" => Some(task.perform(UncoordinatedDeployment::default)),
        "occ" => Some(task.perform(LockingDeployment::optimistic)),
        "paris" => Some(task.perform(ParisDeployment::default)),
        "paris-copies" => Some(task.perform(ParisCopiesDeployment::default)),
        "pocc" => Some(task.perform(PoccDeployment::default)),
        "pocc-copies" => Some(task.perform(PoccCopiesDeployment::default)),
        "solo" => Some(task.perform(|| SoloDeployment)),
        "tapir" => Some(task.perform(TapirDeployment::default)),
        "tapir-serializable" => Some(task.perform(TapirDeployment::serializable)),
        "tardis" => Some(task.perform(TardisDeployment::default)),
        "tardis-forking" => Some(task.perform(TardisDeployment::forking)),
        "tardis-handler" => Some(task.perform(TardisDeployment::handler_runner)),
        "tardis-parts" => Some(task.perform(TardisDeployment::parted)),
        "wren" => Some(task.perform(WrenDeployment::default)),
        "wren-copies" => Some(task.perform(WrenCopiesDeployment::default)),
        _ => None,
    }
}
