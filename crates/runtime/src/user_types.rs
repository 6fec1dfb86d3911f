//! User-defined types on their way: from a client through the check into the list of keyspaces, and from there into every
//! process.

use crate::hex;
use crate::process::{Process, WorkerHandle};
use crate::sandbox;
use datatypes::user;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use types::{Error, ErrorCode, RequestId};
use usertypes::check::check_until;
use xxhash_rust::xxh3::xxh3_64;

/// For how long a type is checked, on a machine however busy. Usual ones take less than a second.
const MAX_CHECK: Duration = Duration::from_secs(60);

/// A type as the list of keyspaces has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredType {
    /// Its name, which means this module for ever.
    name: String,
    /// WebAssembly, in hexadecimal digits.
    module: String,
}

impl StoredType {
    fn new(name: String, module: &[u8]) -> Self {
        StoredType { name, module: hex::encode(module) }
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        hex::decode(&self.module)
    }
}

/// Makes a type of the list known to this process.
pub(crate) fn register(stored: &StoredType) -> Result<(), String> {
    let name = &stored.name;
    let bytes = stored.bytes().ok_or_else(|| format!("type '{name}': its module is damaged"))?;
    let digest = xxh3_64(&bytes);
    if user::all().any(|known| known.name() == name && known.digest() == digest) {
        return Ok(());
    }
    let module = sandbox::load(&bytes).map_err(|reason| format!("type '{name}': {reason}"))?;
    user::register(name, digest, module).map(drop).map_err(|error| error.message.into_owned())
}

/// Makes all types of the list known to this process.
pub(crate) fn register_all(stored: &[StoredType]) -> Result<(), String> {
    stored.iter().try_for_each(register)
}

/// Adds a type to the list, unless it is there.
pub(crate) fn add_to(types: &mut Vec<StoredType>, new: &StoredType) -> Result<(), Error> {
    match types.iter().find(|known| known.name == new.name) {
        Some(known) if known == new => Ok(()),
        Some(_) => Err(Error::err(format!(
            "type '{0}' was loaded meanwhile, from another module; load this one under another name, such as '{0}@2'",
            new.name
        ))),
        None => {
            types.push(new.clone());
            Ok(())
        }
    }
}

/// Begins to check a module, in a thread of its own: the worker finds what came of it in its inbox. What can be said at
/// once is returned.
pub(crate) fn begin(
    process: &Arc<Process>,
    worker: &Arc<WorkerHandle>,
    id: RequestId,
    name: String,
    module: &[u8],
) -> Option<Result<(), Error>> {
    let digest = xxh3_64(module);
    if let Err(error) = user::check_new(&name, digest) {
        return Some(Err(error));
    }
    if user::all().any(|known| known.name() == name && known.digest() == digest) {
        return Some(Ok(()));
    }
    if process.checks_type.swap(true, Ordering::AcqRel) {
        let text = "another type is being checked, which takes a second or so; retry";
        return Some(Err(Error::new(ErrorCode::Unavailable, text)));
    }
    let (process, worker) = (Arc::clone(process), Arc::clone(worker));
    let (owned, own_process) = (module.to_vec(), Arc::clone(&process));
    let started = thread::Builder::new().name("type-check".to_owned()).spawn(move || {
        let checked = checked(name, &owned);
        own_process.checks_type.store(false, Ordering::Release);
        worker.inbox.lock().types.push((id, checked));
        worker.wake();
    });
    match started {
        Ok(_) => None,
        Err(error) => {
            process.checks_type.store(false, Ordering::Release);
            let text = format!("no thread can be started to check the type: {error}; retry");
            Some(Err(Error::new(ErrorCode::Unavailable, text)))
        }
    }
}

fn checked(name: String, bytes: &[u8]) -> Result<StoredType, Error> {
    let refused = |reason: String| Error::err(format!("type '{name}' is refused: {reason}"));
    let module = sandbox::load(bytes).map_err(|unfit| refused(unfit.to_string()))?;
    let begun = Instant::now();
    let report =
        check_until(&module, &|| begun.elapsed() > MAX_CHECK).map_err(|unfit| refused(unfit.to_string()))?;
    tracing::info!(r#type = name, scenes = report.scenes, commuting = report.commuting, "a type was checked");
    Ok(StoredType::new(name, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_stored_and_read_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        let stored = StoredType::new("t".to_owned(), &bytes);
        assert_eq!(stored.bytes(), Some(bytes));
        for damaged in ["0", "0g", "é"] {
            let stored = StoredType { name: "t".to_owned(), module: damaged.to_owned() };
            assert_eq!(stored.bytes(), None, "{damaged}");
        }
    }

    #[test]
    fn a_name_of_the_list_keeps_its_module() {
        let mut types = Vec::new();
        let one = StoredType::new("t".to_owned(), b"one");
        assert!(add_to(&mut types, &one).is_ok() && add_to(&mut types, &one).is_ok());
        assert_eq!(types.len(), 1);
        let other = StoredType::new("t".to_owned(), b"other");
        assert!(add_to(&mut types, &other).is_err_and(|error| error.message.contains("'t@2'")));
        assert_eq!(types, [one]);
    }
}
