//! Whether the log ends where it should: the rule of Corrections 82, and what lies beyond the end.

use crate::disk::{DiskError, Window};
use crate::format::{GROUP_HEADER, GROUP_MAGIC, GroupHeader, Parsed};
use crate::reader::{End, LogReader};
use crate::segment::Numbered;

/// What was found beyond the end of the log, by intact headers of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// The newest group that one of them says was synced.
    pub synced: u64,
    pub groups: u64,
    pub records: u64,
    /// Of the groups, headers included.
    pub bytes: u64,
}

impl LogReader<'_> {
    /// What is missing at the end of the log, in words, if anything is: above everything known synced it is merely cut,
    /// and while the kernel runs that it was handed to, above everything known written. Notes in `end` which file to
    /// blame.
    pub fn judge(&self, end: &mut End) -> Result<(Beyond, Option<String>), DiskError> {
        let is_clean = self.manifest.clean && self.last == self.manifest.synced;
        let beyond = if is_clean { Beyond::default() } else { self.beyond(end)? };
        let begun = self.segments.iter().enumerate();
        let headers = begun.filter_map(|(index, segment)| segment.header.map(|header| (index, header)));
        let valid = headers.filter(|(index, header)| header.previous <= self.limit(*index));
        let synced = valid.map(|(_, header)| header.synced).fold(self.synced.max(beyond.synced), u64::max);
        let is_same_boot = self.mark.is_some_and(|mark| mark.boot == self.boot && self.boot != 0);
        if (synced > self.last || is_same_boot)
            && let Some(missing) = self.missing()
        {
            (end.file, end.offset) = (missing, 0);
            let what = format!(
                "it is missing, and without it the log ends after group {}; {synced} was synced",
                self.last
            );
            return Ok((beyond, Some(what)));
        }
        if synced > self.last {
            let what = format!("group {synced} was synced, but the log ends here, after group {}", self.last);
            return Ok((beyond, Some(what)));
        }
        if !is_same_boot {
            return Ok((beyond, None));
        }
        let mark = self.mark.unwrap_or_default();
        let what = format!(
            "group {} was written, and nothing has taken the power since, but the log ends here, after group {}",
            mark.written, self.last
        );
        Ok((beyond, (mark.written > self.last).then_some(what)))
    }

    /// The newest segment, if a mark names it and it is not there.
    fn missing(&self) -> Option<String> {
        let newest = self.mark?.segment;
        let is_here = self.segments.iter().any(|segment| segment.generation == newest);
        (newest != 0 && newest >= self.from && !is_here).then(|| Numbered::Segment(newest).name())
    }

    fn beyond(&self, end: &End) -> Result<Beyond, DiskError> {
        let mut beyond = Beyond::default();
        for (index, segment) in self.segments.iter().enumerate().skip(end.segment.unwrap_or(0)) {
            let mut window = Window::new(&segment.file)?;
            let ended_here = end.segment == Some(index) && end.file == segment.file.name;
            let mut offset = if ended_here { end.offset } else { 0 };
            while let Some(found) = window.find(offset, GROUP_MAGIC)? {
                if let Some(bytes) = window.bytes(found, GROUP_HEADER as u64)?
                    && let Parsed::Valid(header) = GroupHeader::parse(bytes, self.manifest.id)
                    && header.generation == segment.generation
                {
                    beyond.take(&header, self.last);
                }
                offset = found + 1;
            }
        }
        Ok(beyond)
    }
}

impl Beyond {
    fn take(&mut self, header: &GroupHeader, last: u64) {
        self.synced = self.synced.max(header.synced);
        if header.number > last {
            self.groups += 1;
            self.records += u64::from(header.records);
            self.bytes += GROUP_HEADER as u64 + u64::from(header.length);
        }
    }
}
