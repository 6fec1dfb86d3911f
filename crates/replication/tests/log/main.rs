//! The replicated log over a network that a test decides on: elections, amnesia (Corrections 67), state transfer.

mod group;
mod scripts;
