//! The commands that only the laboratory has, one module each.

pub mod bench;
pub mod check;
pub mod figures;
pub mod history;
pub mod sim;
