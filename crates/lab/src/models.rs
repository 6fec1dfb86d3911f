//! The models of the laboratory: the product's, with the baselines.

use baselines::{CausalBaselines, StrictBaselines};
use runtime::Models;
use server::BRANCH;

/// What clusters of the laboratory can keep.
pub static MODELS: Models = Models::new(&[&StrictBaselines, &CausalBaselines, &BRANCH]);
