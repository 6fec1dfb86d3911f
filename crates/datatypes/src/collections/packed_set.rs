//! A set of byte strings.

use std::fmt;
use std::ops::Deref;

use super::buffer::{allocated, resize_gap};
use super::int_set::{IntSet, parse_canonical, write_decimal};
use super::record_table::{Format, RecordTable};
use super::{PACKED_ELEMENT_BYTES, PACKED_ENTRIES, PACKED_INTEGERS};

/// A set of members. Integers in their canonical decimal form are stored as numbers while all members are. Iteration
/// order is a function of the operations alone.
#[derive(Clone)]
pub struct PackedSet {
    seed: u64,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Integers(IntSet),
    /// Members one after the other: length, member.
    Packed {
        bytes: Vec<u8>,
        count: u32,
    },
    Table(Box<RecordTable<MemberOnly>>),
}

/// A record that is a member and nothing else.
struct MemberOnly;

impl Format for MemberOnly {
    #[inline]
    fn key(record: &[u8]) -> &[u8] {
        record
    }
}

/// Splits the first member off a packed form.
#[inline]
fn split_packed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    Some(rest.split_at(len as usize))
}

/// Where a member's entry starts in a packed form.
fn find_packed(bytes: &[u8], member: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    while let Some((other, next)) = split_packed(rest) {
        if other == member {
            return Some(bytes.len() - rest.len());
        }
        rest = next;
    }
    None
}

impl PackedSet {
    /// An empty set. The seed keeps strangers from choosing members that collide; it has no effect on content.
    pub fn new(seed: u64) -> Self {
        PackedSet { seed, form: Form::Integers(IntSet::new()) }
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.len(),
            Form::Packed { count, .. } => *count as usize,
            Form::Table(table) => table.len(),
        }
    }

    /// True when there is no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True while all members are stored as numbers.
    pub fn is_integers(&self) -> bool {
        matches!(self.form, Form::Integers(_))
    }

    /// Bytes on the heap, in constant time.
    pub fn memory(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.memory(),
            Form::Packed { bytes, .. } => allocated(bytes.capacity()),
            Form::Table(table) => allocated(size_of_val(&**table)) + table.memory(),
        }
    }

    /// True when the set has the member.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.form {
            Form::Integers(integers) => {
                parse_canonical(member).is_some_and(|value| integers.search(value).is_ok())
            }
            Form::Packed { bytes, .. } => find_packed(bytes, member).is_some(),
            Form::Table(table) => table.find(table.hash(member), member).is_some(),
        }
    }

    /// Adds a member; true when it is new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        if let Form::Table(table) = &mut self.form {
            return insert_into_table(table, member);
        }
        if self.contains(member) {
            return false;
        }
        let len = self.len();
        let packs = len < PACKED_ENTRIES && member.len() <= PACKED_ELEMENT_BYTES;
        match (&mut self.form, parse_canonical(member)) {
            (Form::Integers(integers), Some(value)) if len < PACKED_INTEGERS => {
                integers.insert(value);
            }
            (Form::Integers(_), _) if packs => {
                let mut bytes = Vec::new();
                self.iter().for_each(|member| push_packed(&mut bytes, &member));
                push_packed(&mut bytes, member);
                self.form = Form::Packed { bytes, count: len as u32 + 1 };
            }
            (Form::Packed { bytes, count }, _) if packs => {
                push_packed(bytes, member);
                *count += 1;
            }
            _ => {
                let mut table = Box::new(RecordTable::new(self.seed, len + len / 2));
                self.iter().for_each(|member| {
                    insert_into_table(&mut table, &member);
                });
                insert_into_table(&mut table, member);
                self.form = Form::Table(table);
            }
        }
        true
    }

    /// Removes a member; true when the set had it.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.form {
            Form::Integers(integers) => parse_canonical(member).is_some_and(|value| integers.remove(value)),
            Form::Packed { bytes, count } => {
                let Some(at) = find_packed(bytes, member) else { return false };
                resize_gap(bytes, at, 1 + member.len(), 0);
                *count -= 1;
                true
            }
            Form::Table(table) => {
                let hash = table.hash(member);
                let Some(position) = table.find(hash, member) else { return false };
                table.remove(hash, position);
                true
            }
        }
    }

    /// The member at a position of the iteration order, in constant time for a large set.
    pub fn member_at(&self, position: usize) -> Option<Member<'_>> {
        if position >= self.len() {
            return None;
        }
        match &self.form {
            Form::Integers(integers) => Some(Member::integer(integers.get(position))),
            Form::Packed { .. } => self.iter().nth(position),
            Form::Table(table) => Some(Member::Bytes(table.record(position as u32))),
        }
    }

    /// A member, each equally likely; none of an empty set.
    pub fn random(&self, rng: &mut types::Rng) -> Option<Member<'_>> {
        if self.is_empty() { None } else { self.member_at(rng.usize(..self.len())) }
    }

    /// Resumes a scan: calls `visit` for about `count` members and returns the cursor to go on with, 0 at the
    /// end. A scan starts with cursor 0. Every member that stays in the set from start to end is visited at
    /// least once, whatever else comes and goes; a packed set is visited whole.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8])) -> u64 {
        match &self.form {
            Form::Table(table) => table.scan(cursor, count, visit),
            _ => {
                self.iter().for_each(|member| visit(&member));
                0
            }
        }
    }

    /// All members.
    pub fn iter(&self) -> Members<'_> {
        let rest = if let Form::Packed { bytes, .. } = &self.form { &bytes[..] } else { &[] };
        Members { set: self, position: 0, rest }
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        match &self.form {
            Form::Integers(integers) => {
                assert!(integers.len() <= PACKED_INTEGERS);
                assert!((1..integers.len()).all(|i| integers.get(i - 1) < integers.get(i)));
            }
            Form::Packed { bytes, count } => {
                let mut rest = &bytes[..];
                for _ in 0..*count {
                    rest = split_packed(rest).expect("count members").1;
                }
                assert!(rest.is_empty() && *count as usize <= PACKED_ENTRIES);
            }
            Form::Table(table) => table.check_invariants(),
        }
    }
}

fn push_packed(bytes: &mut Vec<u8>, member: &[u8]) {
    let at = bytes.len();
    resize_gap(bytes, at, 0, 1 + member.len());
    bytes[at] = member.len() as u8;
    bytes[at + 1..].copy_from_slice(member);
}

fn insert_into_table(table: &mut RecordTable<MemberOnly>, member: &[u8]) -> bool {
    let hash = table.hash(member);
    let new = table.find(hash, member).is_none();
    if new {
        table.push(hash, [member, &[], &[]]);
    }
    new
}

/// A member of a set, as bytes: borrowed from the set, or the decimal form of an integer.
#[derive(Clone, Copy)]
pub enum Member<'a> {
    /// Bytes of the set.
    Bytes(&'a [u8]),
    /// The digits of an integer, at the end of a buffer.
    Integer {
        /// The buffer; the digits end where it ends.
        buffer: [u8; 20],
        /// Where the digits start.
        start: u8,
    },
}

impl Member<'_> {
    fn integer(value: i64) -> Self {
        let mut buffer = [0; 20];
        let start = write_decimal(&mut buffer, value) as u8;
        Member::Integer { buffer, start }
    }
}

impl Deref for Member<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Member::Bytes(bytes) => bytes,
            Member::Integer { buffer, start } => &buffer[usize::from(*start)..],
        }
    }
}

impl AsRef<[u8]> for Member<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

/// The members of a set.
#[derive(Clone)]
pub struct Members<'a> {
    set: &'a PackedSet,
    position: usize,
    /// What is left of a packed form.
    rest: &'a [u8],
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    #[inline]
    fn next(&mut self) -> Option<Member<'a>> {
        let member = if let Form::Packed { .. } = self.set.form {
            let (member, rest) = split_packed(self.rest)?;
            self.rest = rest;
            Member::Bytes(member)
        } else {
            self.set.member_at(self.position)?
        };
        self.position += 1;
        Some(member)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.set.len() - self.position;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Members<'_> {}

impl PartialEq for PackedSet {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|member| other.contains(&member))
    }
}

impl Eq for PackedSet {}

impl fmt::Debug for PackedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
