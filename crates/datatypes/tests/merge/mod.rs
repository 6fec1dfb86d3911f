//! What concurrent effects come to: the table of `docs/internals/merging.md` cell by cell, and random histories against rules
//! that look at nothing but who observed whom.

mod losses;
mod random;
mod replayed;
mod script;
mod streams;
mod table;
