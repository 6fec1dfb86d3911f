//! What the directory must hold at least: a small file that says how far the log was written and synced, so that an
//! end of the log that is missing is noticed although nothing behind it could say so.
//!
//! A mark is written after each sync, at each new segment and at each new incarnation, in turn into one of two slots
//! that are sectors of their own. It only ever claims what holds already, so a mark that a power cut takes claims
//! less, and none claims too much. It is not synced with what it claims, but when the log comes to rest
//! ([`Log::begin_idle_sync`](crate::Log::begin_idle_sync)); while groups follow one another, each says in its header
//! what was synced before it.

use crate::disk::{OpenFile, Store};
use crate::error::OpenError;
use crate::format::{DirectoryId, Parsed, begin_header, end_header, open_header};

pub(crate) const MARKS: &str = "marks";
const MAGIC: [u8; 4] = *b"ANBY";
const MARK: usize = 72;
const SLOT: usize = 512;
const SLOTS: usize = 2;

/// What was true when it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Counts the marks of a directory: of two the greater is the newer one.
    pub number: u64,
    /// The newest group known synced.
    pub synced: u64,
    /// The newest group handed to the kernel.
    pub written: u64,
    /// The newest segment, by generation; 0 before the first.
    pub segment: u64,
    /// The run of the kernel; see [`Disk::boot`](crate::Disk::boot).
    pub boot: u64,
    pub incarnation: u32,
}

impl Mark {
    fn encode(&self, id: DirectoryId) -> Vec<u8> {
        let mut out = Vec::with_capacity(MARK);
        begin_header(&mut out, MAGIC, 0);
        for field in [self.number, self.synced, self.written, self.segment, self.boot] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&id.0.to_le_bytes());
        end_header(&mut out, 0, MARK, DirectoryId::default());
        out
    }

    /// A slot's mark and whose it is.
    fn parse(bytes: &[u8]) -> Parsed<(Self, DirectoryId)> {
        match open_header(bytes, MARK, MAGIC, DirectoryId::default()) {
            Parsed::Valid(mut fields) => {
                let mark = Mark {
                    number: fields.u64(),
                    synced: fields.u64(),
                    written: fields.u64(),
                    segment: fields.u64(),
                    boot: fields.u64(),
                    incarnation: fields.u32(),
                };
                Parsed::Valid((mark, DirectoryId(fields.u128())))
            }
            Parsed::Newer(version) => Parsed::Newer(version),
            Parsed::Invalid => Parsed::Invalid,
        }
    }

    /// The newest mark of a directory's file. One slot may be damaged: the other one says as much, but for what came
    /// with one sync.
    pub fn read(store: &Store, id: DirectoryId) -> Result<Self, OpenError> {
        let damaged = |what: &str| OpenError::Corrupt { file: MARKS.into(), offset: 0, what: what.into() };
        let file = match store.open(MARKS) {
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => {
                return Err(damaged("it is missing, so nothing says where the log ends"));
            }
            file => file?,
        };
        let mut newest = None;
        for slot in 0..SLOTS {
            let mut bytes = [0; MARK];
            let read = file.read_at((slot * SLOT) as u64, &mut bytes)?;
            match Mark::parse(&bytes[..read]) {
                Parsed::Newer(found) => return Err(OpenError::NewerVersion { file: MARKS.into(), found }),
                Parsed::Valid((_, of)) if of != id => return Err(OpenError::Foreign { file: MARKS.into() }),
                Parsed::Valid((mark, _)) => {
                    newest = newest.filter(|newer: &Mark| newer.number > mark.number).or(Some(mark));
                }
                Parsed::Invalid => {}
            }
        }
        newest.ok_or_else(|| damaged("no mark in it is intact"))
    }
}

/// The file of a log that is open.
pub(crate) struct Marks {
    file: OpenFile,
    id: DirectoryId,
    last: Mark,
    /// Written since the file's last sync began.
    dirty: bool,
}

impl Marks {
    /// Makes this mark the only one, durably but for the file's name.
    pub fn begin(store: &Store, id: DirectoryId, mark: Mark) -> Result<Self, OpenError> {
        let file = match store.open(MARKS) {
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => store.create(MARKS)?,
            file => file?,
        };
        let mut marks = Marks { file, id, last: mark, dirty: false };
        for _ in 0..SLOTS {
            marks.last.number += 1;
            marks.write(marks.last)?;
        }
        marks.file.sync()?;
        Ok(marks)
    }

    fn write(&self, mark: Mark) -> Result<(), crate::disk::DiskError> {
        let slot = mark.number as usize % SLOTS;
        self.file.write_at((slot * SLOT) as u64, &mark.encode(self.id))
    }

    /// Replaces the older mark. One that cannot be written is left out, and the next one takes its slot: the log is as
    /// good without, and the newest intact mark stays.
    pub fn note(&mut self, mark: Mark) {
        let next = Mark { number: self.last.number + 1, boot: self.last.boot, ..mark };
        if self.write(next).is_ok() {
            self.last = next;
            self.dirty = true;
        }
    }

    /// The file, if it has marks that are not synced; from now on they count as such.
    pub fn take_dirty(&mut self) -> Option<OpenFile> {
        std::mem::take(&mut self.dirty).then(|| self.file.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, SimulatedDisk};

    const ID: DirectoryId = DirectoryId(7);

    fn mark(synced: u64) -> Mark {
        Mark { synced, written: synced + 1, segment: 1 << 32, boot: 3, incarnation: 2, number: 0 }
    }

    #[test]
    fn of_two_marks_the_newer_counts_and_one_may_be_damaged() {
        let disk = SimulatedDisk::new();
        let store = Store(disk.mount());
        let mut marks = Marks::begin(&store, ID, mark(0)).unwrap();
        for synced in 1..6 {
            marks.note(mark(synced));
            assert_eq!(Mark::read(&store, ID).unwrap(), marks.last);
            assert_eq!((marks.last.synced, marks.last.written, marks.last.boot), (synced, synced + 1, 3));
            let newest = marks.last.number % 2 * SLOT as u64;
            assert!(disk.flip_bit(MARKS, newest + 20, 1));
            assert_eq!(Mark::read(&store, ID).unwrap().synced, synced - 1);
            assert!(disk.flip_bit(MARKS, newest + 20, 1));
        }
    }

    #[test]
    fn without_an_intact_mark_the_file_is_refused() {
        let disk = SimulatedDisk::new();
        let store = Store(disk.mount());
        Marks::begin(&store, ID, mark(4)).unwrap();
        assert!(matches!(Mark::read(&store, DirectoryId(8)), Err(OpenError::Foreign { .. })));
        disk.overwrite(MARKS, 0, &[0; 2 * SLOT]);
        assert!(matches!(Mark::read(&store, ID), Err(OpenError::Corrupt { .. })));
        disk.mount().delete(MARKS).unwrap();
        assert!(matches!(Mark::read(&Store(disk.mount()), ID), Err(OpenError::Corrupt { .. })));
    }
}
