//! Tests of branch keyspaces against a naive model, and of what the paper shows.

#![allow(clippy::unwrap_used, reason = "a helper of a test panics like the test itself")]

mod beside;
mod collecting;
mod early;
mod elements;
mod exhaustive;
mod handling;
mod hosting;
mod labelling;
mod merging;
mod model;
mod paper;
mod parts;
mod reading;
mod sites;
