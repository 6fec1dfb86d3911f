//! Libraries of functions (`FUNCTION`, `FCALL`) as the gateway sees them: sources with the functions that they register. It
//! knows no language; who keeps them is the [`Host`](crate::Host), who runs them the [`Interpreter`](crate::Interpreter).
//!
//! All databases and keyspaces share them, and so do all processes of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use types::Error;

/// What a function, or a script with a shebang, says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    /// It writes nothing.
    pub const NO_WRITES: ScriptFlags = ScriptFlags(1);
    /// It may write though memory is used up.
    pub const ALLOW_OOM: ScriptFlags = ScriptFlags(1 << 1);
    /// The names of all, in Redis's order; the last three forbid what is no danger here.
    const NAMES: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

    /// The flag of this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let place = Self::NAMES.iter().position(|known| known.as_bytes() == name)?;
        Some(ScriptFlags(1 << place))
    }

    /// These and those.
    #[must_use]
    pub fn and(self, other: ScriptFlags) -> Self {
        ScriptFlags(self.0 | other.0)
    }

    /// True if all of those are among these.
    pub fn has(self, other: ScriptFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Their names, in Redis's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = Self::NAMES.into_iter().enumerate();
        all.filter(move |(place, _)| self.0 >> place & 1 == 1).map(|(_, name)| name)
    }
}

/// A function of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name: letters, digits and underscores.
    pub name: String,
    /// What it says that it does.
    pub description: Option<Vec<u8>>,
    /// What it says of itself.
    pub flags: ScriptFlags,
}

/// A library that was loaded on trial: these are the functions that it registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionLibrary {
    /// Its name: letters, digits and underscores.
    pub name: String,
    /// Its text, with the first line that names it.
    pub source: Arc<[u8]>,
    /// Its functions, by name.
    pub functions: Vec<Function>,
}

/// The libraries at some time, by name. Names of functions are unique among all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionLibraries(BTreeMap<String, Arc<FunctionLibrary>>);

/// What becomes of the libraries that there are when others are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePolicy {
    /// They go.
    Flush,
    /// They stay: nothing is restored if one has the name of another.
    Append,
    /// Those go that have the name of another.
    Replace,
}

/// A change of the libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryChange {
    /// `FUNCTION LOAD`.
    Load {
        /// The library.
        library: FunctionLibrary,
        /// One of its name goes.
        replace: bool,
    },
    /// `FUNCTION DELETE`.
    Delete(String),
    /// `FUNCTION FLUSH`.
    Flush,
    /// `FUNCTION RESTORE`.
    Restore(Vec<FunctionLibrary>, RestorePolicy),
}

/// How many bytes of sources and of descriptions of functions are stored at most.
pub const MAX_FUNCTION_BYTES: usize = 4 << 20;
/// What a function takes beside its name and description, in bytes.
const FUNCTION_BYTES: usize = 64;

impl FunctionLibraries {
    /// Those libraries; their names and those of their functions are known to be unique.
    pub fn new(libraries: impl IntoIterator<Item = FunctionLibrary>) -> Self {
        let named = |library: FunctionLibrary| (library.name.clone(), Arc::new(library));
        FunctionLibraries(libraries.into_iter().map(named).collect())
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<FunctionLibrary>> {
        self.0.values()
    }

    /// True if there is a library of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The function of this name, with its library. As in Redis, the case of the name does not matter, unless a library has
    /// several that differ in nothing else.
    pub fn function(&self, name: &[u8]) -> Option<(&Arc<FunctionLibrary>, &Function)> {
        let exact = self.0.values().find_map(|library| {
            let functions = &library.functions;
            let found = functions.binary_search_by(|function| function.name.as_bytes().cmp(name)).ok()?;
            Some((library, &functions[found]))
        });
        exact.or_else(|| {
            self.0.values().find_map(|library| {
                let is_it = |function: &&Function| function.name.as_bytes().eq_ignore_ascii_case(name);
                Some((library, library.functions.iter().find(is_it)?))
            })
        })
    }

    /// The libraries after a change.
    ///
    /// # Errors
    /// Redis's: a name is taken, there is no such library; or there is no room. Nothing is changed then.
    pub fn changed(&self, change: LibraryChange) -> Result<Self, Error> {
        let mut next = self.clone();
        match change {
            LibraryChange::Flush => next.0.clear(),
            LibraryChange::Delete(name) => {
                next.0.remove(&name).ok_or_else(|| Error::err("Library not found"))?;
            }
            LibraryChange::Load { library, replace } => {
                if replace {
                    next.0.remove(&library.name);
                }
                next.add(library)?;
            }
            LibraryChange::Restore(libraries, policy) => {
                let mut restored = FunctionLibraries::default();
                libraries.into_iter().try_for_each(|library| restored.add(library))?;
                if policy == RestorePolicy::Flush {
                    next.0.clear();
                }
                for name in restored.0.keys() {
                    if next.0.remove(name).is_some() && policy == RestorePolicy::Append {
                        return Err(Error::err(format!("Library {name} already exists")));
                    }
                }
                next.0.extend(restored.0);
            }
        }
        check_room(next.0.values().map(|library| library.bytes()).sum())?;
        next.check_functions()?;
        Ok(next)
    }

    /// Fails if there is a library of this name.
    pub(crate) fn check_new(&self, name: &str) -> Result<(), Error> {
        match self.has(name) {
            true => Err(Error::err(format!("Library '{name}' already exists"))),
            false => Ok(()),
        }
    }

    fn add(&mut self, library: FunctionLibrary) -> Result<(), Error> {
        self.check_new(&library.name)?;
        self.0.insert(library.name.clone(), Arc::new(library));
        Ok(())
    }

    /// Fails if two libraries have a function of one name: its case does not matter.
    fn check_functions(&self) -> Result<(), Error> {
        let mut owners = BTreeMap::new();
        for library in self.0.values() {
            for function in &library.functions {
                let owner = owners.entry(function.name.to_ascii_lowercase()).or_insert(&library.name);
                if *owner != &library.name {
                    return Err(Error::err(format!("Function {} already exists", function.name)));
                }
            }
        }
        Ok(())
    }
}

impl FunctionLibrary {
    /// How much of [`MAX_FUNCTION_BYTES`] it takes.
    fn bytes(&self) -> usize {
        let described = |function: &Function| function.description.as_ref().map_or(0, Vec::len);
        let of_function = |function: &Function| FUNCTION_BYTES + function.name.len() + described(function);
        self.name.len() + self.source.len() + self.functions.iter().map(of_function).sum::<usize>()
    }
}

/// Fails if libraries of so many bytes exceed the limit.
///
/// # Errors
/// Names the limit.
pub fn check_room(bytes: usize) -> Result<(), Error> {
    match bytes > MAX_FUNCTION_BYTES {
        true => Err(Error::err(format!(
            "the libraries of functions would take {bytes} bytes, and there is room for {MAX_FUNCTION_BYTES}: their texts, and \
             {FUNCTION_BYTES} bytes, name and description of each function; FUNCTION DELETE makes room"
        ))),
        false => Ok(()),
    }
}

/// The name that a library's source gives it in its first line, `#!lua name=NAME`.
///
/// # Errors
/// Redis's: there is no such line, or another language.
pub fn library_name(source: &[u8]) -> Result<String, Error> {
    let invalid = || Error::err("Invalid library metadata");
    if !source.starts_with(b"#!") {
        return Err(Error::err("Missing library metadata"));
    }
    let end = source.iter().position(|byte| *byte == b'\n').ok_or_else(invalid)?;
    let words = resp::split_words(&source[..end]).ok_or_else(invalid)?;
    let mut words = words.iter();
    let engine = &words.next().ok_or_else(invalid)?[2..];
    let mut name = None;
    for word in words {
        let prefix = word.get(..5).filter(|prefix| prefix.eq_ignore_ascii_case(b"name="));
        match prefix {
            None => {
                let text = format!("Invalid metadata value given: {}", String::from_utf8_lossy(word));
                return Err(Error::err(text));
            }
            Some(_) if name.is_some() => {
                return Err(Error::err("Invalid metadata value, name argument was given multiple times"));
            }
            Some(_) => name = Some(&word[5..]),
        }
    }
    let name = name.ok_or_else(|| Error::err("Library name was not given"))?;
    let name = function_name(name).ok_or_else(|| Error::err(WRONG_NAME))?;
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(Error::err(format!("Engine '{}' not found", String::from_utf8_lossy(engine))));
    }
    Ok(name)
}

/// Redis's text for a name of a library or a function that is none.
pub const WRONG_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// The name of a library or a function, if it is well formed.
pub fn function_name(name: &[u8]) -> Option<String> {
    let fits = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    fits.then(|| String::from_utf8_lossy(name).into_owned())
}
