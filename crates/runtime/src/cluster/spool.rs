//! Where replicas keep what does not fit into memory: files of this life, in the directory `spool` of the data directory.
//!
//! ```text
//!   spool/3.0/0000000000.spool    chunks one behind the other, as keyspace 3's partition 0 gave them
//!   spool/3.0/0000000001.spool    the next 16 MiB
//! ```
//!
//! Nothing here is durable or needed after a restart, so nothing is synced, and a start removes what is left of an earlier
//! life. Where each chunk lies, and its checksum, is in memory. A file is removed when none of its chunks is needed.
//! Whatever fails is answered by "gone", and said in the process's log once until it works again.

use protocol::SpoolRequest;
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use types::{KeyspaceId, PartitionId};
use xxhash_rust::xxh3::xxh3_64;

/// A file takes no more chunks when it is as large as this.
const SEGMENT_BYTES: u64 = 16 << 20;

/// What is said about a chunk: its number, and its bytes unless it is gone.
pub(crate) type Answer = (u64, Option<Vec<u8>>);

/// Removes what an earlier life left below this data directory.
pub(crate) fn remove_earlier(data: &Path) {
    if let Err(error) = fs::remove_dir_all(directory_in(data))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "what an earlier life left in the spool cannot be removed; it occupies the disk");
    }
}

fn directory_in(data: &Path) -> PathBuf {
    data.join("spool")
}

/// The spools of a keyspace's replicas in this process. Their files go with them.
pub(crate) struct Spools {
    /// `None` if the process holds everything in memory.
    directory: Option<PathBuf>,
    open: BTreeMap<(KeyspaceId, PartitionId), Spool>,
    /// The last operation of the disk failed.
    is_failing: bool,
}

impl Spools {
    /// None yet, below this data directory.
    pub(crate) fn new(data: Option<&Path>) -> Self {
        Spools { directory: data.map(directory_in), open: BTreeMap::new(), is_failing: false }
    }

    /// Does what a replica asks. What there is to tell it.
    pub(crate) fn perform(
        &mut self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        request: SpoolRequest,
    ) -> Option<Answer> {
        let place = (keyspace, partition);
        match request {
            SpoolRequest::Spill { chunk, bytes } => {
                let stored = self.spool(place).and_then(|spool| spool.append(chunk, &bytes));
                if stored.is_ok() && self.is_failing {
                    tracing::info!(%keyspace, %partition, "the spool works again");
                    self.is_failing = false;
                }
                stored.inspect_err(|error| self.note_failure(place, error)).is_err().then_some((chunk, None))
            }
            SpoolRequest::Fetch { chunk } => {
                let read = self.open.get_mut(&place).map_or(Ok(None), |spool| spool.read(chunk));
                let read = read.inspect_err(|error| self.note_failure(place, error));
                Some((chunk, read.ok().flatten()))
            }
            SpoolRequest::Forget { through } => {
                self.open.get_mut(&place)?.forget(through);
                None
            }
        }
    }

    fn spool(&mut self, place: (KeyspaceId, PartitionId)) -> io::Result<&mut Spool> {
        let Some(directory) = &self.directory else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "everything is kept in memory"));
        };
        let own = directory.join(format!("{}.{}", place.0.0, place.1.0));
        Ok(self.open.entry(place).or_insert_with(|| Spool::new(own)))
    }

    fn note_failure(&mut self, (keyspace, partition): (KeyspaceId, PartitionId), error: &io::Error) {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                %keyspace,
                %partition,
                %error,
                "the spool fails: what waits for silent regions and does not fit into region_queue_bytes is dropped, and \
                 they take the whole state when they return; nothing else is lost. Look at the data directory's disk"
            );
        }
    }
}

/// Where a chunk lies.
struct Chunk {
    number: u64,
    offset: u64,
    length: usize,
    checksum: u64,
}

/// A file of chunks.
struct Segment {
    path: PathBuf,
    file: File,
    length: u64,
    chunks: VecDeque<Chunk>,
}

impl Segment {
    fn create(path: PathBuf) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok(Segment { path, file, length: 0, chunks: VecDeque::new() })
    }

    fn append(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        // What a write leaves that fails halfway is written over.
        self.file.write_all_at(bytes, self.length)?;
        let (offset, length) = (self.length, bytes.len());
        self.chunks.push_back(Chunk { number, offset, length, checksum: xxh3_64(bytes) });
        self.length += length as u64;
        Ok(())
    }

    fn read(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        let Ok(at) = self.chunks.binary_search_by_key(&number, |chunk| chunk.number) else { return Ok(None) };
        let chunk = &self.chunks[at];
        let mut bytes = vec![0; chunk.length];
        self.file.read_exact_at(&mut bytes, chunk.offset)?;
        match xxh3_64(&bytes) == chunk.checksum {
            true => Ok(Some(bytes)),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk is not what was written")),
        }
    }
}

/// One replica's chunks, in the order of their numbers.
struct Spool {
    directory: PathBuf,
    segments: VecDeque<Segment>,
    /// How many files there have been.
    created: u64,
}

impl Spool {
    fn new(directory: PathBuf) -> Self {
        Spool { directory, segments: VecDeque::new(), created: 0 }
    }

    fn append(&mut self, number: u64, bytes: &[u8]) -> io::Result<()> {
        if self.segments.back().is_none_or(|segment| segment.length >= SEGMENT_BYTES) {
            fs::create_dir_all(&self.directory)?;
            let path = self.directory.join(format!("{:010}.spool", self.created));
            self.segments.push_back(Segment::create(path)?);
            self.created += 1;
        }
        self.segments.back_mut().map_or(Ok(()), |segment| segment.append(number, bytes))
    }

    fn read(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        let last = |segment: &Segment| segment.chunks.back().map(|chunk| chunk.number);
        let at = self.segments.partition_point(|segment| last(segment) < Some(number));
        self.segments.get(at).map_or(Ok(None), |segment| segment.read(number))
    }

    fn forget(&mut self, through: u64) {
        while let Some(segment) = self.segments.front_mut() {
            while segment.chunks.pop_front_if(|chunk| chunk.number <= through).is_some() {}
            if !segment.chunks.is_empty() {
                return;
            }
            // One that cannot be removed is removed at the next start.
            let _ = fs::remove_file(&segment.path);
            self.segments.pop_front();
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if !self.segments.is_empty() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (KeyspaceId, PartitionId) = (KeyspaceId(3), PartitionId(0));

    fn data(name: &str) -> PathBuf {
        let data = std::env::temp_dir().join(format!("anabranch-spool-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&data);
        fs::create_dir_all(&data).unwrap();
        data
    }

    fn ask(spools: &mut Spools, request: SpoolRequest) -> Option<Answer> {
        spools.perform(PLACE.0, PLACE.1, request)
    }

    fn spill(spools: &mut Spools, chunk: u64, bytes: Vec<u8>) -> Option<Answer> {
        ask(spools, SpoolRequest::Spill { chunk, bytes })
    }

    fn fetch(spools: &mut Spools, chunk: u64) -> Option<Vec<u8>> {
        let (number, bytes) = ask(spools, SpoolRequest::Fetch { chunk }).expect("a fetch is answered");
        assert_eq!(number, chunk);
        bytes
    }

    fn files(data: &Path) -> usize {
        fs::read_dir(data.join("spool/3.0")).map_or(0, Iterator::count)
    }

    #[test]
    fn chunks_stay_until_they_are_forgotten_and_files_with_them() {
        let data = data("kept");
        let mut spools = Spools::new(Some(&data));
        let of = |chunk: u64| vec![chunk as u8; 6 << 20];
        for chunk in 0..7 {
            assert_eq!(spill(&mut spools, chunk, of(chunk)), None);
        }
        assert_eq!(files(&data), 3, "of three chunks each, the last with one");
        assert!((0..7).all(|chunk| fetch(&mut spools, chunk) == Some(of(chunk))));
        assert_eq!(ask(&mut spools, SpoolRequest::Forget { through: 1 }), None);
        assert_eq!((fetch(&mut spools, 1), files(&data)), (None, 3));
        assert_eq!(fetch(&mut spools, 2), Some(of(2)));
        ask(&mut spools, SpoolRequest::Forget { through: 2 });
        assert_eq!(files(&data), 2);
        ask(&mut spools, SpoolRequest::Forget { through: 6 });
        assert_eq!(files(&data), 0);
        assert_eq!(spill(&mut spools, 7, of(7)), None);
        assert_eq!(fetch(&mut spools, 7), Some(of(7)));
        drop(spools);
        assert!(!data.join("spool/3.0").exists());
        fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn a_changed_chunk_is_gone_and_a_start_removes_everything() {
        let data = data("changed");
        let mut spools = Spools::new(Some(&data));
        assert_eq!(spill(&mut spools, 0, vec![7; 100]), None);
        assert_eq!(spill(&mut spools, 1, vec![8; 100]), None);
        let path = data.join("spool/3.0/0000000000.spool");
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0], 50).unwrap();
        assert_eq!(fetch(&mut spools, 0), None);
        assert!(spools.is_failing);
        assert_eq!(fetch(&mut spools, 1), Some(vec![8; 100]));
        file.set_len(150).unwrap();
        assert_eq!(fetch(&mut spools, 1), None);
        assert_eq!(spill(&mut spools, 2, vec![9; 10]), None);
        assert!(!spools.is_failing);
        std::mem::forget(spools);
        assert!(path.exists(), "as a killed process leaves it");
        remove_earlier(&data);
        assert!(!data.join("spool").exists());
        fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn what_cannot_be_stored_is_gone_at_once() {
        let data = data("refused");
        let mut spools = Spools::new(Some(&data));
        // A file in the directory's place.
        fs::write(data.join("spool"), "").unwrap();
        assert_eq!(spill(&mut spools, 0, vec![1]), Some((0, None)));
        assert!(spools.is_failing);
        fs::remove_file(data.join("spool")).unwrap();
        assert_eq!(spill(&mut spools, 1, vec![1]), None);
        assert_eq!((fetch(&mut spools, 0), fetch(&mut spools, 1)), (None, Some(vec![1])));
        let mut without = Spools::new(None);
        assert_eq!(spill(&mut without, 0, vec![1]), Some((0, None)));
        fs::remove_dir_all(&data).unwrap();
    }
}
