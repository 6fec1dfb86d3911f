//! Scores with members, as commands give them.

use crate::Items;
use crate::codec::Field;
use std::ops::Deref;
use types::{Malformed, Reader, put_bytes, put_varint};

/// Scores, none of them NaN, with their members; a single one takes no memory of its own. Made by `collect`,
/// read as a slice.
#[derive(Clone, Debug)]
pub enum ScoredItems<'a> {
    /// A single one.
    One([(f64, &'a [u8]); 1]),
    /// None, or several.
    Many(Vec<(f64, &'a [u8])>),
}

impl<'a> ScoredItems<'a> {
    /// A single score with its member.
    pub fn one(score: f64, member: &'a [u8]) -> Self {
        ScoredItems::One([(score, member)])
    }

    /// Adds one at the end.
    pub fn push(&mut self, item: (f64, &'a [u8])) {
        match self {
            ScoredItems::Many(items) if items.is_empty() => *self = ScoredItems::One([item]),
            ScoredItems::Many(items) => items.push(item),
            ScoredItems::One([first]) => *self = ScoredItems::Many(vec![*first, item]),
        }
    }

    /// The members, without a copy where there are one or two.
    pub fn members(&self) -> Items<'a> {
        match &**self {
            [(_, member)] => Items::one(member),
            [(_, first), (_, second)] => Items::two(first, second),
            items => Items::collect(items.iter().map(|(_, member)| *member)),
        }
    }
}

impl Default for ScoredItems<'_> {
    fn default() -> Self {
        ScoredItems::Many(Vec::new())
    }
}

impl<'a> Deref for ScoredItems<'a> {
    type Target = [(f64, &'a [u8])];

    fn deref(&self) -> &Self::Target {
        match self {
            ScoredItems::One(item) => item,
            ScoredItems::Many(items) => items,
        }
    }
}

impl PartialEq for ScoredItems<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<'a> FromIterator<(f64, &'a [u8])> for ScoredItems<'a> {
    fn from_iter<I: IntoIterator<Item = (f64, &'a [u8])>>(items: I) -> Self {
        let mut collected = ScoredItems::default();
        items.into_iter().for_each(|item| collected.push(item));
        collected
    }
}

impl<'a> Field<'a> for ScoredItems<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (score, member) in self.iter() {
            Field::put(score, out);
            put_bytes(out, member);
        }
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        (0..input.count()?).map(|_| Ok((Field::take(input)?, input.bytes()?))).collect()
    }
}
