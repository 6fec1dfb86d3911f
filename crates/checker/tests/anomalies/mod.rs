//! Known-bad histories: each check sees the anomaly it is for, and lets pass what only looks like it.

mod branch;
mod causal;
mod constraints;
mod format;
mod levels;
mod losses;
mod strays;
mod strict;
mod support;
