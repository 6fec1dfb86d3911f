//! The model as a process knows it.

mod options;
mod placement;
