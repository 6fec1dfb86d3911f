//! `cluster`: several processes that replicate keyspaces.

mod children;
mod console;
mod layout;
pub mod local;
mod place;
mod relay;

pub use place::{Delay, Skew};
