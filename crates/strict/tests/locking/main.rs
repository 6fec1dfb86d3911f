//! Two-phase commit over replicated logs, in a network where every message takes a millisecond.

mod combining;
mod crowd;
mod network;
mod scripts;
mod unlocked;
