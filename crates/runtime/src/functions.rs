//! Libraries of functions on their way: from a client through a load on trial into the list of keyspaces, and from there into
//! every process.

use crate::hex;
use crate::process::{Process, WorkerHandle};
use gateway::{Function, FunctionLibraries, FunctionLibrary, LibraryChange, RestorePolicy, ScriptFlags};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::thread;
use types::{Error, ErrorCode, ReplySink, RequestId};

/// A library as the list of keyspaces has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredLibrary {
    name: String,
    /// Its text, in hexadecimal digits: it may be any bytes.
    source: String,
    functions: Vec<StoredFunction>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFunction {
    name: String,
    /// In hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    flags: Vec<String>,
}

impl StoredLibrary {
    fn new(library: &FunctionLibrary) -> Self {
        let stored = |function: &Function| StoredFunction {
            name: function.name.clone(),
            description: function.description.as_deref().map(hex::encode),
            flags: function.flags.names().map(str::to_owned).collect(),
        };
        StoredLibrary {
            name: library.name.clone(),
            source: hex::encode(&library.source),
            functions: library.functions.iter().map(stored).collect(),
        }
    }

    /// The library; `None` if the entry is damaged.
    fn library(&self) -> Option<FunctionLibrary> {
        let function = |stored: &StoredFunction| {
            let description = match &stored.description {
                Some(digits) => Some(hex::decode(digits)?),
                None => None,
            };
            let flags = stored.flags.iter().map(|flag| ScriptFlags::from_name(flag.as_bytes()));
            let flags = flags.collect::<Option<Vec<_>>>()?;
            let flags = flags.into_iter().fold(ScriptFlags::default(), ScriptFlags::and);
            Some(Function { name: stored.name.clone(), description, flags })
        };
        let mut functions = self.functions.iter().map(function).collect::<Option<Vec<_>>>()?;
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        Some(FunctionLibrary {
            name: self.name.clone(),
            source: hex::decode(&self.source)?.into(),
            functions,
        })
    }
}

/// The libraries of the list.
///
/// # Errors
/// Says which one is damaged.
pub(crate) fn read(stored: &[StoredLibrary]) -> Result<FunctionLibraries, String> {
    let library = |stored: &StoredLibrary| {
        stored.library().ok_or_else(|| format!("the library of functions '{}' is damaged", stored.name))
    };
    Ok(FunctionLibraries::new(stored.iter().map(library).collect::<Result<Vec<_>, _>>()?))
}

/// Changes the libraries of the list.
///
/// # Errors
/// The change is refused, or one of them is damaged: then none is changed.
pub(crate) fn change(stored: &mut Vec<StoredLibrary>, change: &LibraryChange) -> Result<(), Error> {
    let damaged = |reason| Error::new(ErrorCode::Misconf, reason);
    let changed = read(stored).map_err(damaged)?.changed(change.clone())?;
    *stored = changed.iter().map(|library| StoredLibrary::new(library)).collect();
    Ok(())
}

/// Loads libraries on trial, in a thread of its own, one after the other: the worker finds in its inbox what is to be changed.
/// What can be said at once is returned.
pub(crate) fn begin(
    process: &Arc<Process>,
    worker: &Arc<WorkerHandle>,
    id: RequestId,
    wanted: Wanted,
) -> Option<Error> {
    let (process, worker) = (Arc::clone(process), Arc::clone(worker));
    let started = thread::Builder::new().name("function-load".to_owned()).spawn(move || {
        // One at a time: there are other things to do for the processors.
        let turn = process.loads_library.lock();
        let change = wanted.load();
        drop(turn);
        worker.inbox.lock().libraries.push((id, change));
        worker.wake();
    });
    let error = started.err()?;
    let text = format!("no thread can be started to load the library: {error}; retry");
    Some(Error::new(ErrorCode::Unavailable, text))
}

/// What a client wants to load.
pub(crate) enum Wanted {
    /// A library, in the place of one of its name or not.
    Library(Vec<u8>, bool),
    /// Several.
    Libraries(Vec<Vec<u8>>, RestorePolicy),
}

impl Wanted {
    fn load(self) -> Result<LibraryChange, Error> {
        match self {
            Wanted::Library(source, replace) => {
                Ok(LibraryChange::Load { library: scripts::load_library(&source)?, replace })
            }
            Wanted::Libraries(sources, policy) => {
                let loaded = sources.iter().map(|source| scripts::load_library(source));
                Ok(LibraryChange::Restore(loaded.collect::<Result<_, _>>()?, policy))
            }
        }
    }
}

/// What the client is told that wanted to load something.
pub(crate) fn reply(outcome: Result<LibraryChange, Error>, sink: &mut dyn ReplySink) {
    match outcome {
        Err(error) => sink.error(&error),
        Ok(LibraryChange::Load { library, .. }) => sink.bulk(library.name.as_bytes()),
        Ok(_) => sink.simple("OK"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, function: &str) -> FunctionLibrary {
        let flags = ScriptFlags::NO_WRITES.and(ScriptFlags::ALLOW_OOM);
        let function = Function { name: function.to_owned(), description: Some(vec![0xff, 0]), flags };
        FunctionLibrary { name: name.to_owned(), source: vec![b'#', 0xfe].into(), functions: vec![function] }
    }

    #[test]
    fn a_library_is_stored_and_read_back() {
        let mut stored = Vec::new();
        let load = LibraryChange::Load { library: library("a", "f"), replace: false };
        change(&mut stored, &load).expect("it is new");
        assert_eq!(read(&stored), Ok(FunctionLibraries::new([library("a", "f")])));
        let text = serde_json::to_string(&stored).expect("it is text");
        assert_eq!(serde_json::from_str::<Vec<StoredLibrary>>(&text).expect("it is JSON"), stored);
    }

    #[test]
    fn a_change_that_is_refused_changes_nothing() {
        let mut stored = Vec::new();
        let restored = |names: &[(&str, &str)], policy| {
            let libraries = names.iter().map(|(name, function)| library(name, function)).collect();
            LibraryChange::Restore(libraries, policy)
        };
        change(&mut stored, &restored(&[("a", "f"), ("b", "g")], RestorePolicy::Append)).expect("new");
        let before = stored.clone();
        for refused in [
            restored(&[("c", "h"), ("a", "i")], RestorePolicy::Append),
            restored(&[("c", "f")], RestorePolicy::Replace),
            restored(&[("c", "h"), ("c", "i")], RestorePolicy::Flush),
            LibraryChange::Delete("c".to_owned()),
            LibraryChange::Load { library: library("a", "h"), replace: false },
            LibraryChange::Load { library: library("a", "g"), replace: true },
        ] {
            change(&mut stored, &refused).expect_err("a name is taken, or not there");
            assert_eq!(stored, before, "{refused:?}");
        }
        change(&mut stored, &restored(&[("b", "f"), ("a", "g")], RestorePolicy::Replace)).expect("swapped");
        change(&mut stored, &restored(&[("d", "f")], RestorePolicy::Flush)).expect("alone");
        assert_eq!(read(&stored), Ok(FunctionLibraries::new([library("d", "f")])));
    }

    #[test]
    fn a_damaged_library_is_named() {
        let mut stored = vec![StoredLibrary::new(&library("a", "f"))];
        stored[0].source = "0".to_owned();
        assert_eq!(read(&stored), Err("the library of functions 'a' is damaged".to_owned()));
    }
}
