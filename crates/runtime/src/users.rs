//! The users of the process, and their file.
//!
//! Each process has its own. A file is read when the process starts and by `ACL LOAD`, and written by `ACL SAVE` only.

use crate::error::StartError;
use crate::files;
use gateway::{AclLog, Users, no_acl_file};
use parking_lot::{Mutex, RwLock};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use types::Error;

/// Nobody but the process's own user reads the file: it holds digests of passwords.
const FILE_MODE: u32 = 0o600;

/// See the module. All workers share it.
pub(crate) struct SharedUsers {
    users: RwLock<Users>,
    /// How often they have changed.
    version: AtomicU64,
    file: Option<PathBuf>,
    pub(crate) log: Mutex<AclLog>,
}

impl SharedUsers {
    /// The users of the file, if there is one; `default` has this password unless the file says otherwise.
    ///
    /// # Errors
    /// The file cannot be read, or holds what is no user.
    pub(crate) fn new(password: Option<&str>, file: Option<PathBuf>) -> Result<Self, StartError> {
        let mut users = Users::new(password);
        if let Some(path) = &file {
            let refused = |reason| StartError::Users { file: path.clone(), reason };
            read_into(&mut users, path).map_err(refused)?;
        }
        Ok(SharedUsers { users: RwLock::new(users), version: AtomicU64::new(0), file, log: Mutex::default() })
    }

    pub(crate) fn look(&self, look: &mut dyn FnMut(&Users)) {
        look(&self.users.read());
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// How often they have changed. Who has seen the reply to a change sees its number.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Changes them. Workers are to be woken.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Users) -> R) -> R {
        let mut users = self.users.write();
        let result = change(&mut users);
        self.version.fetch_add(1, Ordering::Release);
        result
    }

    /// True when a client has to authenticate before it may do anything else.
    pub(crate) fn must_authenticate(&self) -> bool {
        self.users.read().must_authenticate()
    }

    /// Takes the users of the file in place of the present ones.
    ///
    /// # Errors
    /// There is no file, or it cannot be read, or holds what is no user. Nothing has changed.
    pub(crate) fn load(&self) -> Result<(), Error> {
        let path = self.file.as_deref().ok_or_else(no_acl_file)?;
        self.change(|users| read_into(users, path)).map_err(Error::err)
    }

    /// Writes the users to the file.
    ///
    /// # Errors
    /// There is none, or it cannot be written. It is as it was.
    pub(crate) fn save(&self) -> Result<(), Error> {
        let path = self.file.as_deref().ok_or_else(no_acl_file)?;
        // Held until it is written, so that of two at a time the later one stays.
        let users = self.users.write();
        files::replace_bytes(path, &users.file_text(), FILE_MODE).map_err(|error| {
            tracing::warn!(file = %path.display(), %error, "the users cannot be saved");
            Error::err(format!(
                "There was an error trying to save the ACLs to '{}': {error}. The file is as it was",
                path.display()
            ))
        })
    }
}

fn read_into(users: &mut Users, path: &Path) -> Result<(), String> {
    let name = path.display().to_string();
    let text =
        std::fs::read(path).map_err(|error| format!("Error loading ACLs, opening file '{name}': {error}"))?;
    users.load(&text, &name)
}

/// Fills `bytes` from the system's source of random numbers.
///
/// # Errors
/// It cannot be read.
pub(crate) fn entropy(bytes: &mut [u8]) -> Result<(), Error> {
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(bytes));
    read.map_err(|error| Error::err(format!("the system gives no random numbers: {error}")))
}
