//! Small files that are replaced as a whole.

use serde::Serialize;
use std::fs::{File, OpenOptions, rename};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Replaces `path` by `content` as JSON, durably: after a crash there is the old file or the new one, whole. Of writers
/// at the same time the last one wins, if each holds a lock of its own making.
pub(crate) fn replace(path: &Path, content: &impl Serialize) -> std::io::Result<()> {
    replace_bytes(path, &serde_json::to_vec_pretty(content)?, 0o666)
}

/// The same with bytes; the new file has this mode, less what the process's mask takes.
pub(crate) fn replace_bytes(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    // One that a crash has left may have another mode.
    if let Err(error) = std::fs::remove_file(&temporary)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    rename(&temporary, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// What tells one content of a file from another: its inode, size and time of change.
pub(crate) fn identify(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_stays_beside_it() {
        let directory = std::env::temp_dir().join(format!("anabranch-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("names.json");
        for content in [vec!["a", "b"], vec!["c"]] {
            replace(&path, &content).unwrap();
            let read: Vec<String> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            assert_eq!(read, content);
        }
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        assert!(replace(&directory.join("absent/names.json"), &"x").is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
