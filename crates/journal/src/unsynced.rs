//! The groups that recovery found and that nothing says were synced: they are written again before they are synced.
//!
//! The process before may have ended because a sync failed. What it had written is then still read from the kernel's
//! cache, but passes for clean there: a sync claims success and does not write it, and the next power cut takes it.
//! Only what is written again is synced again (Corrections 82).

use crate::disk::{DiskError, OpenFile, Window};
use crate::error::OpenError;
use crate::format::{DirectoryId, GROUP_HEADER, GroupHeader, Parsed};
use std::collections::VecDeque;

/// Where a group was found.
pub(crate) struct Place {
    /// By its index among the segments read.
    pub segment: usize,
    pub offset: u64,
    pub number: u64,
    /// Bytes of payload, and the CRC32 that they had.
    pub length: u64,
    pub checksum: u32,
}

/// The newest groups of the log, in order.
#[derive(Default)]
pub(crate) struct Unsynced {
    places: VecDeque<Place>,
    synced: u64,
}

impl Unsynced {
    /// Adds the next group, and drops those up to `synced`, the newest one that its header or anything else says was.
    pub fn push(&mut self, place: Place, synced: u64) {
        self.places.push_back(place);
        self.synced = self.synced.max(synced);
        while self.places.front().is_some_and(|oldest| oldest.number <= self.synced) {
            self.places.pop_front();
        }
    }

    /// The segments that the groups are in, each once, in order.
    pub fn segments(&self) -> Vec<usize> {
        let mut segments: Vec<usize> = self.places.iter().map(|place| place.segment).collect();
        segments.dedup();
        segments
    }

    /// Writes again what is in one of the segments, as it stands there.
    pub fn write_again(&self, segment: usize, file: &OpenFile, id: DirectoryId) -> Result<(), OpenError> {
        let mut window = Window::new(file)?;
        for place in self.places.iter().filter(|place| place.segment == segment) {
            let Some(bytes) = place.read(&mut window, id)? else {
                let what = format!("group {} is not what it was a moment ago", place.number);
                return Err(OpenError::Corrupt { file: file.name.clone(), offset: place.offset, what });
            };
            file.write_at(place.offset, bytes)?;
        }
        Ok(())
    }
}

impl Place {
    /// The group once more, unless it has changed: the kernel may have dropped its copy and read the disk's.
    fn read<'w>(&self, window: &'w mut Window<'_>, id: DirectoryId) -> Result<Option<&'w [u8]>, DiskError> {
        let Some(bytes) = window.bytes(self.offset, GROUP_HEADER as u64 + self.length)? else {
            return Ok(None);
        };
        let is_same = matches!(GroupHeader::parse(bytes, id), Parsed::Valid(header) if header.number == self.number)
            && crc32fast::hash(&bytes[GROUP_HEADER..]) == self.checksum;
        Ok(is_same.then_some(bytes))
    }
}
