//! The model as a process knows it.

mod full_log;
mod options;
mod placement;
