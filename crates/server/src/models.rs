//! The models of the product.

use branch::model::Branch;
use causal::model::Causal;
use runtime::Models;
use strict::model::Strict;

/// Branches, whose merge handlers are programs in Lua.
pub static BRANCH: Branch = Branch::new(scripts::handler);

/// Causal keyspaces, whose handlers of conflicts are programs in Lua.
pub static CAUSAL: Causal = Causal::new(scripts::conflict_handler);

/// What clusters of the product can keep.
pub static MODELS: Models = Models::new(&[&Strict, &CAUSAL, &BRANCH]);
