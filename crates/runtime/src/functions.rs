//! Libraries of functions on their way: from a client through a load on trial into the list of keyspaces, and from there into
//! every process.

use crate::hex;
use crate::process::{Process, WorkerHandle};
use gateway::{
    Function, FunctionLibraries, FunctionLibrary, LibraryChange, RestorePolicy, ScriptFlags, check_room,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
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

/// How many clients may wait for changes of libraries.
const MOST_WAITING: usize = 64;
/// How long the libraries of a payload may take, all together, to be loaded on trial.
const RESTORE_TIME: Duration = Duration::from_secs(5);
/// For how long a change is tried again while another process changes the list of keyspaces, and how often.
const CHANGE_TIME: Duration = Duration::from_secs(1);
const CHANGE_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Changes libraries, in a thread of its own, one change after the other: the worker finds in its inbox what has become of it.
/// What can be said at once is returned.
pub(crate) fn begin(
    process: &Arc<Process>,
    worker: &Arc<WorkerHandle>,
    id: RequestId,
    wanted: Wanted,
) -> Option<Error> {
    if let Err(error) = check_room(wanted.bytes()) {
        return Some(error);
    }
    let unavailable = |text| Some(Error::new(ErrorCode::Unavailable, text));
    if process.library_changes.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
        process.library_changes.fetch_sub(1, Ordering::Relaxed);
        let text = format!("{MOST_WAITING} changes of libraries of functions wait at this process; retry");
        return unavailable(text);
    }
    let (process, worker) = (Arc::clone(process), Arc::clone(worker));
    let waiting = Arc::clone(&process);
    let started = thread::Builder::new().name("function-load".to_owned()).spawn(move || {
        // One at a time: there are other things to do for the processors.
        let turn = process.changes_libraries.lock();
        let outcome = wanted.load().and_then(|change| make(&process, change));
        drop(turn);
        process.library_changes.fetch_sub(1, Ordering::Relaxed);
        worker.inbox.lock().libraries.push((id, outcome));
        worker.wake();
    });
    let error = started.err()?;
    waiting.library_changes.fetch_sub(1, Ordering::Relaxed);
    unavailable(format!("no thread can be started to change the libraries of functions: {error}; retry"))
}

/// Makes a change durable and known; waits for another process that changes the list of keyspaces.
fn make(process: &Process, change: LibraryChange) -> Result<LibraryChange, Error> {
    let until = Instant::now() + CHANGE_TIME;
    loop {
        let outcome = process.cluster.lock().change_libraries(&change);
        match outcome {
            Ok(()) => return Ok(change),
            Err(error) if error.code != ErrorCode::Unavailable => return Err(error),
            Err(_) if Instant::now() < until => thread::sleep(CHANGE_AGAIN_AFTER),
            Err(_) => {
                let text = "the libraries of functions are as they were: other processes are changing the list of keyspaces, \
                            which has them; retry";
                return Err(Error::new(ErrorCode::Unavailable, text));
            }
        }
    }
}

/// What a client wants to change.
pub(crate) enum Wanted {
    /// A library, in the place of one of its name or not.
    Library(Vec<u8>, bool),
    /// Several.
    Libraries(Vec<Vec<u8>>, RestorePolicy),
    /// That needs nothing loaded.
    Change(LibraryChange),
}

impl Wanted {
    /// How many bytes of sources there are to load.
    fn bytes(&self) -> usize {
        match self {
            Wanted::Library(source, _) => source.len(),
            Wanted::Libraries(sources, _) => sources.iter().map(Vec::len).sum(),
            Wanted::Change(_) => 0,
        }
    }

    /// Loads on trial what there is to load.
    fn load(self) -> Result<LibraryChange, Error> {
        match self {
            Wanted::Library(source, replace) => {
                Ok(LibraryChange::Load { library: scripts::load_library(&source)?, replace })
            }
            Wanted::Libraries(sources, policy) => {
                let until = Instant::now() + RESTORE_TIME;
                let loaded = sources.iter().map(|source| match Instant::now() < until {
                    true => scripts::load_library(source),
                    false => Err(Error::err("FUNCTION RESTORE timeout")),
                });
                Ok(LibraryChange::Restore(loaded.collect::<Result<_, _>>()?, policy))
            }
            Wanted::Change(change) => Ok(change),
        }
    }
}

/// The reply to the client that wanted a change.
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
    fn what_functions_say_of_themselves_takes_room() {
        let mut stored = Vec::new();
        let mut wordy = library("a", "f");
        wordy.functions[0].description = Some(vec![b'x'; gateway::MAX_FUNCTION_BYTES]);
        let mut many = library("a", "f");
        many.functions = (0..gateway::MAX_FUNCTION_BYTES / 64)
            .map(|number| Function {
                name: format!("f{number}"),
                description: None,
                flags: ScriptFlags::default(),
            })
            .collect();
        for library in [wordy, many] {
            let load = LibraryChange::Load { library, replace: false };
            let error = change(&mut stored, &load).expect_err("it does not fit");
            assert!(error.message.contains("FUNCTION DELETE makes room"), "{error:?}");
        }
        assert_eq!(stored, []);
    }

    #[test]
    fn a_restore_of_more_than_there_is_room_for_loads_nothing() {
        let half = b"#!lua name=a\n"
            .iter()
            .copied()
            .chain(std::iter::repeat_n(b' ', gateway::MAX_FUNCTION_BYTES / 2));
        let wanted = Wanted::Libraries(vec![half.collect(); 2], RestorePolicy::Flush);
        check_room(wanted.bytes()).expect_err("they are too long together");
    }

    #[test]
    fn a_damaged_library_is_named() {
        let mut stored = vec![StoredLibrary::new(&library("a", "f"))];
        stored[0].source = "0".to_owned();
        assert_eq!(read(&stored), Err("the library of functions 'a' is damaged".to_owned()));
    }
}
