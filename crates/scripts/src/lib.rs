//! Lua 5.1 in the server: scripts of clients (`EVAL`: [`Scripts`]), and merge handlers, the programs that keyspaces of the
//! model `branch` keep (T13: [`Program`]).
//!
//! Keyspaces with `CONFLICTS handler` (COPS-CD) keep such programs, too: `conflict.branches` are two concurrent values, there is no
//! fork, and a string must be answered.
//!
//! # Merge handlers
//! A program defines `resolve(key, conflict)`, called for every conflicting key by itself, or `merge(keys)`, called once
//! with all of them, or both: then `resolve` handles what `merge` did not write.
//!
//! ```lua
//! function resolve(key, conflict)                    -- the longest text wins
//!   local best = conflict.fork or ""
//!   for _, value in ipairs(conflict.branches) do
//!     if value and #value > #best then best = value end
//!   end
//!   return best                                      -- false deletes, nil leaves it to the type's rule
//! end
//! ```
//!
//! `conflict` has `fork`, `forks`, `branches` and `merged` (see [`branch::Conflict`]; `merged` is nil where the type's rule
//! does not decide). `merge` calls `conflict(key)`, `read(key)` for other keys, and `write(key, value)`.
//!
//! | type | in Lua |
//! |---|---|
//! | absent | `false` |
//! | register | a string |
//! | hash, set, sorted set | `{type = "hash", value = {field = value}}`, `{type = "set", value = {member = true}}`, `{type = "zset", value = {member = score}}` |
//! | list, counter | `{type = "list", value = {"a", "b"}}`, `{type = "counter", value = 3}` |
//! | all others | `{type = name, dump = bytes}`, which can be handed back |
//!
//! ## What it never does
//! It has no clock, no entropy, no files, and no memory of earlier calls: each merge begins in a fresh interpreter. Its
//! instructions and its memory are limited, and equal programs give equal answers at every site (Corrections 88). A second
//! limit, in time, only ever makes a merge fail: an answer does not depend on it.

mod client;
mod convert;
mod json;
mod limits;
mod order;
mod program;

pub use client::{Library, Scripts, load_library};
pub use program::{Program, Unfit, conflict_handler, handler};
