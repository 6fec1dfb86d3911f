//! Two-phase commit over replicated logs, in a network where every message takes a millisecond.

mod batches;
mod bidders;
mod chains;
mod closest;
mod collecting;
mod combining;
mod contended;
mod crowd;
mod early;
mod elements;
mod keysets;
mod last;
mod local;
mod network;
mod patience;
mod scripts;
mod singles;
mod unlocked;
