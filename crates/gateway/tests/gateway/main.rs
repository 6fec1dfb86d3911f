//! The gateway from outside: bytes in, bytes out, over keyspaces of reference.

mod blocking;
mod control;
mod documentation;
mod evals;
mod pipelines;
mod properties;
mod pubsub;
mod scripts;
mod support;
mod transactions;
mod user_types;
