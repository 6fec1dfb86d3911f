//! The model as a process knows it.

mod full_log;
mod log_world;
mod options;
mod placement;
