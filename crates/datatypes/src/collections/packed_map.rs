//! A map from byte strings to byte strings.

use std::fmt;
use std::ops::Bound;

use types::put_varint;

use super::buffer::{allocated, resize_gap};
use super::record_table::{Format, RecordTable};
use super::scored_tree::ScoredTree;
use super::{PACKED_ELEMENT_BYTES, PACKED_ENTRIES};

/// The latest deadline of a field, in milliseconds since 1970; Redis has the same bound.
pub const MAX_DEADLINE: u64 = (1 << 46) - 1;

/// A map from fields to values, some of which may have deadlines. Iteration follows insertion order until a removal from a large map, which moves
/// the last field to the place of the removed one; it is always a function of the operations alone.
#[derive(Clone)]
pub struct PackedMap {
    seed: u64,
    form: Form,
}

#[derive(Clone)]
enum Form {
    /// Entries one after the other: length of field, length of value, field, value.
    Packed {
        bytes: Vec<u8>,
        count: u32,
    },
    Table(Box<RecordTable<FieldThenValue>>),
    /// Some fields have deadlines. A map without any has one of the other forms.
    Dated(Box<Dated>),
}

#[derive(Clone)]
struct Dated {
    /// In one of the other forms.
    map: PackedMap,
    /// Fields in the order of their deadlines, which are whole numbers below 2^53.
    deadlines: ScoredTree,
}

/// A record: the length of the field as a varint, the field, the value.
struct FieldThenValue;

impl FieldThenValue {
    #[inline]
    fn split(record: &[u8]) -> (&[u8], &[u8]) {
        let mut len = 0;
        let mut at = 0;
        loop {
            let byte = record[at];
            len |= usize::from(byte & 0x7f) << (7 * at);
            at += 1;
            if byte < 0x80 {
                return record[at..].split_at(len);
            }
        }
    }
}

impl Format for FieldThenValue {
    #[inline]
    fn key(record: &[u8]) -> &[u8] {
        FieldThenValue::split(record).0
    }
}

/// Splits the first entry off a packed form.
#[inline]
fn split_packed(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&[field_len, value_len], rest) = bytes.split_first_chunk()?;
    let (field, rest) = rest.split_at(field_len as usize);
    let (value, rest) = rest.split_at(value_len as usize);
    Some((field, value, rest))
}

/// Where a field's entry starts in a packed form, and its value.
fn find_packed<'a>(bytes: &'a [u8], field: &[u8]) -> Option<(usize, &'a [u8])> {
    let mut rest = bytes;
    while let Some((other, value, next)) = split_packed(rest) {
        if other == field {
            return Some((bytes.len() - rest.len(), value));
        }
        rest = next;
    }
    None
}

impl PackedMap {
    /// An empty map. The seed keeps strangers from choosing fields that collide; it has no effect on content.
    pub fn new(seed: u64) -> Self {
        PackedMap { seed, form: Form::Packed { bytes: Vec::new(), count: 0 } }
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed { count, .. } => *count as usize,
            Form::Table(table) => table.len(),
            Form::Dated(dated) => dated.map.len(),
        }
    }

    /// True when there is no field.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap, in constant time.
    pub fn memory(&self) -> usize {
        match &self.form {
            Form::Packed { bytes, .. } => allocated(bytes.capacity()),
            Form::Table(table) => allocated(size_of_val(&**table)) + table.memory(),
            Form::Dated(dated) => {
                allocated(size_of_val(&**dated)) + dated.map.memory() + dated.deadlines.memory()
            }
        }
    }

    /// The value of a field.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.form {
            Form::Packed { bytes, .. } => find_packed(bytes, field).map(|(_, value)| value),
            Form::Table(table) => {
                let position = table.find(table.hash(field), field)?;
                Some(FieldThenValue::split(table.record(position)).1)
            }
            Form::Dated(dated) => dated.map.get(field),
        }
    }

    /// True when the map has the field.
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Sets a field, which then has no deadline; true when it is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.set_deadline(field, 0);
        self.replace(field, value)
    }

    /// Sets a field, which keeps the deadline that it has; true when it is new.
    pub fn replace(&mut self, field: &[u8], value: &[u8]) -> bool {
        match &mut self.form {
            Form::Packed { bytes, count } => {
                let found = find_packed(bytes, field).map(|(at, old)| (at, old.len()));
                let short = field.len().max(value.len()) <= PACKED_ELEMENT_BYTES;
                match found {
                    Some((at, old)) if short => {
                        bytes[at + 1] = value.len() as u8;
                        let at = at + 2 + field.len();
                        resize_gap(bytes, at, old, value.len());
                        bytes[at..at + value.len()].copy_from_slice(value);
                        false
                    }
                    None if short && (*count as usize) < PACKED_ENTRIES => {
                        let at = bytes.len();
                        resize_gap(bytes, at, 0, 2 + field.len() + value.len());
                        bytes[at..at + 2].copy_from_slice(&[field.len() as u8, value.len() as u8]);
                        bytes[at + 2..at + 2 + field.len()].copy_from_slice(field);
                        bytes[at + 2 + field.len()..].copy_from_slice(value);
                        *count += 1;
                        true
                    }
                    _ => insert_into_table(self.unpack(), field, value),
                }
            }
            Form::Table(table) => insert_into_table(table, field, value),
            Form::Dated(dated) => dated.map.replace(field, value),
        }
    }

    /// Changes a packed map into a record table.
    fn unpack(&mut self) -> &mut RecordTable<FieldThenValue> {
        if matches!(self.form, Form::Packed { .. }) {
            let mut table = Box::new(RecordTable::new(self.seed, self.len() + self.len() / 2));
            for (field, value) in self.iter() {
                insert_into_table(&mut table, field, value);
            }
            self.form = Form::Table(table);
        }
        match &mut self.form {
            Form::Table(table) => table,
            Form::Packed { .. } | Form::Dated(_) => unreachable!("the form was changed above"),
        }
    }

    /// Removes a field; true when the map had it.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.set_deadline(field, 0);
        match &mut self.form {
            Form::Packed { bytes, count } => {
                let Some((at, value)) = find_packed(bytes, field) else { return false };
                let len = 2 + field.len() + value.len();
                resize_gap(bytes, at, len, 0);
                *count -= 1;
            }
            Form::Table(table) => {
                let hash = table.hash(field);
                let Some(position) = table.find(hash, field) else { return false };
                table.remove(hash, position);
            }
            Form::Dated(dated) => return dated.map.remove(field),
        }
        true
    }

    /// The deadline of a field, in milliseconds since 1970; 0 for none.
    pub fn deadline(&self, field: &[u8]) -> u64 {
        self.deadlines().and_then(|deadlines| deadlines.score(field)).map_or(0, |at| at as u64)
    }

    /// Gives a field that is there another deadline, at most [`MAX_DEADLINE`]; 0 for none.
    #[inline]
    pub fn set_deadline(&mut self, field: &[u8], at_millis: u64) {
        if at_millis != 0 {
            if self.contains(field) {
                self.dated().deadlines.insert(field, at_millis.min(MAX_DEADLINE) as f64);
            }
        } else if let Form::Dated(dated) = &mut self.form {
            dated.deadlines.remove(field);
            if dated.deadlines.is_empty() {
                let empty = Form::Packed { bytes: Vec::new(), count: 0 };
                self.form = std::mem::replace(&mut dated.map.form, empty);
            }
        }
    }

    /// Changes a map without deadlines into one that may have some.
    fn dated(&mut self) -> &mut Dated {
        if !matches!(self.form, Form::Dated(_)) {
            let map = std::mem::replace(self, PackedMap::new(self.seed));
            let deadlines = ScoredTree::new(self.seed);
            self.form = Form::Dated(Box::new(Dated { map, deadlines }));
        }
        match &mut self.form {
            Form::Dated(dated) => dated,
            Form::Packed { .. } | Form::Table(_) => unreachable!("the form was changed above"),
        }
    }

    /// The fields that have deadlines, which are the scores; `None` if no field has one.
    #[inline]
    pub fn deadlines(&self) -> Option<&ScoredTree> {
        match &self.form {
            Form::Dated(dated) => Some(&dated.deadlines),
            Form::Packed { .. } | Form::Table(_) => None,
        }
    }

    /// The first deadline later than a time, both in milliseconds since 1970; 0 for none.
    pub fn next_deadline(&self, after_millis: u64) -> u64 {
        let next = self.deadlines().and_then(|deadlines| {
            deadlines.entry_at(deadlines.score_range(after(after_millis), Bound::Unbounded).start)
        });
        next.map_or(0, |(at, _)| at as u64)
    }

    /// The fields whose deadline has passed, at a time in milliseconds since 1970.
    pub fn overdue(&self, now_millis: u64) -> impl Iterator<Item = &[u8]> {
        let overdue = self.deadlines().into_iter().flat_map(move |deadlines| {
            deadlines.range(deadlines.score_range(Bound::Unbounded, until(now_millis)))
        });
        overdue.map(|(_, field)| field)
    }

    /// The last deadline, in milliseconds since 1970, if every field has one; else 0.
    pub fn last_deadline(&self) -> u64 {
        let all = self.deadlines().filter(|deadlines| deadlines.len() == self.len());
        all.and_then(ScoredTree::last).map_or(0, |(last, _)| last as u64)
    }

    /// True if there are fields and the deadlines of all have passed.
    #[inline]
    pub fn is_overdue(&self, now_millis: u64) -> bool {
        (1..=now_millis).contains(&self.last_deadline())
    }

    /// The entry at a position of the iteration order, in constant time for a large map.
    pub fn entry_at(&self, position: usize) -> Option<(&[u8], &[u8])> {
        match &self.form {
            Form::Packed { .. } => self.iter().nth(position),
            Form::Table(table) if position < table.len() => {
                Some(FieldThenValue::split(table.record(position as u32)))
            }
            Form::Table(_) => None,
            Form::Dated(dated) => dated.map.entry_at(position),
        }
    }

    /// An entry, each equally likely; none of an empty map.
    pub fn random(&self, rng: &mut types::Rng) -> Option<(&[u8], &[u8])> {
        if self.is_empty() { None } else { self.entry_at(rng.usize(..self.len())) }
    }

    /// Resumes a scan: calls `visit` for about `count` entries and returns the cursor to go on with, 0 at the
    /// end. A scan starts with cursor 0. Every field that stays in the map from start to end is visited at
    /// least once, whatever else comes and goes; a packed map is visited whole.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, mut visit: impl FnMut(&'a [u8], &'a [u8])) -> u64 {
        match &self.form {
            Form::Packed { .. } => {
                self.iter().for_each(|(field, value)| visit(field, value));
                0
            }
            Form::Table(table) => table.scan(cursor, count, |record| {
                let (field, value) = FieldThenValue::split(record);
                visit(field, value);
            }),
            Form::Dated(dated) => dated.map.scan(cursor, count, visit),
        }
    }

    /// All entries.
    pub fn iter(&self) -> Entries<'_> {
        Entries(match &self.form {
            Form::Packed { bytes, count } => Source::Packed(bytes, *count as usize),
            Form::Table(table) => Source::Table(table, 0),
            Form::Dated(dated) => return dated.map.iter(),
        })
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        match &self.form {
            Form::Packed { bytes, count } => {
                let mut rest = &bytes[..];
                for _ in 0..*count {
                    let (field, value, next) = split_packed(rest).expect("count entries");
                    assert!(field.len().max(value.len()) <= PACKED_ELEMENT_BYTES);
                    rest = next;
                }
                assert!(rest.is_empty() && *count as usize <= PACKED_ENTRIES);
            }
            Form::Table(table) => table.check_invariants(),
            Form::Dated(dated) => {
                dated.map.check_invariants();
                assert!(!matches!(dated.map.form, Form::Dated(_)) && !dated.deadlines.is_empty());
                assert!(dated.deadlines.iter().all(|(_, field)| dated.map.contains(field)));
            }
        }
    }
}

/// Scores later than a time.
fn after(millis: u64) -> Bound<f64> {
    Bound::Excluded(millis as f64)
}

/// Scores up to a time.
fn until(millis: u64) -> Bound<f64> {
    Bound::Included(millis as f64)
}

fn insert_into_table(table: &mut RecordTable<FieldThenValue>, field: &[u8], value: &[u8]) -> bool {
    let hash = table.hash(field);
    let found = table.find(hash, field);
    if let Some(position) = found {
        let start = table.record(position).len() - FieldThenValue::split(table.record(position)).1.len();
        if table.record(position).len() - start == value.len() {
            table.record_mut(position)[start..].copy_from_slice(value);
            return false;
        }
    }
    let mut len_buffer = [0; 10];
    let len = varint(&mut len_buffer, field.len());
    match found {
        Some(position) => table.replace(position, [len, field, value]),
        None => {
            table.push(hash, [len, field, value]);
        }
    }
    found.is_none()
}

/// The varint of a length, in `buffer`.
fn varint(buffer: &mut [u8; 10], len: usize) -> &[u8] {
    if len < 0x80 {
        buffer[0] = len as u8;
        return &buffer[..1];
    }
    let mut long = Vec::with_capacity(10);
    put_varint(&mut long, len as u64);
    buffer[..long.len()].copy_from_slice(&long);
    &buffer[..long.len()]
}

/// The entries of a map.
#[derive(Clone)]
pub struct Entries<'a>(Source<'a>);

#[derive(Clone)]
enum Source<'a> {
    Packed(&'a [u8], usize),
    Table(&'a RecordTable<FieldThenValue>, usize),
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Packed(bytes, left) => {
                let (field, value, rest) = split_packed(bytes)?;
                (*bytes, *left) = (rest, *left - 1);
                Some((field, value))
            }
            Source::Table(table, position) => {
                if *position == table.len() {
                    return None;
                }
                *position += 1;
                Some(FieldThenValue::split(table.record(*position as u32 - 1)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            Source::Packed(_, left) => *left,
            Source::Table(table, position) => table.len() - position,
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for Entries<'_> {}

impl PartialEq for PackedMap {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.deadlines() == other.deadlines()
            && self.iter().all(|(field, value)| other.get(field) == Some(value))
    }
}

impl Eq for PackedMap {}

impl fmt::Debug for PackedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.iter().map(|(field, value)| (field.escape_ascii(), value.escape_ascii()));
        f.debug_map()
            .entries(entries.map(|(field, value)| (field.to_string(), value.to_string())))
            .finish()?;
        self.deadlines().map_or(Ok(()), |deadlines| write!(f, " until {deadlines:?}"))
    }
}
