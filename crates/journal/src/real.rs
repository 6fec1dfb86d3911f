//! A disk that is a directory of the file system.

use crate::disk::{Disk, DiskFile};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file whose lock says that a process uses the directory; never holds data.
const LOCK: &str = "lock";
/// Where Linux names its present run, a random number.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A directory of the file system, locked for this process as long as the value lives.
#[derive(Debug)]
pub struct RealDisk {
    directory: PathBuf,
    handle: File,
    _lock: File,
}

impl RealDisk {
    /// Opens the directory, creating it if need be, and locks it. Fails with `ResourceBusy` and a message that names
    /// the directory if another process has it open.
    pub fn open(directory: impl AsRef<Path>) -> io::Result<Self> {
        let directory = directory.as_ref().to_path_buf();
        let named = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("cannot open the data directory {}: {error}", directory.display()),
            )
        };
        fs::create_dir_all(&directory).map_err(named)?;
        if let Some(parent) = directory.canonicalize().map_err(named)?.parent() {
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(named)?;
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(directory.join(LOCK));
        let lock = lock.map_err(named)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("the data directory {} is in use by another process", directory.display()),
            ),
            TryLockError::Error(error) => named(error),
        })?;
        let handle = File::open(&directory).map_err(named)?;
        Ok(RealDisk { directory, handle, _lock: lock })
    }

    /// The directory's path.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Disk for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && name != LOCK
                && entry.file_type()?.is_file()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file =
            OpenOptions::new().create_new(true).read(true).write(true).open(self.directory.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.directory.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn boot(&self) -> u64 {
        let name = fs::read_to_string(BOOT_ID).unwrap_or_default();
        let digits: String = name.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).unwrap_or(0)
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
