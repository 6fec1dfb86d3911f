//! Which user-defined types are loaded.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use types::{Error, Malformed, Reader, put_bytes};
use usertypes::Module;

/// The most types of a process.
pub const MAX_TYPES: usize = 100;

struct Loaded {
    name: Box<str>,
    digest: u64,
    module: Module,
    /// By their numbers, the names of its lock modes with its own.
    modes: Box<[String]>,
}

struct Registered {
    loaded: Loaded,
    next: OnceLock<&'static Registered>,
}

/// The first of the types that are loaded; each knows the next one. It only grows.
static FIRST: OnceLock<&'static Registered> = OnceLock::new();

/// A type that is loaded.
#[derive(Clone, Copy)]
pub struct Type(&'static Loaded);

/// Makes a type known to this process, for ever. One that is known already is the same.
///
/// # Errors
/// Another type has the name, or there are too many.
pub fn register(name: &str, digest: u64, module: Module) -> Result<Type, Error> {
    check_new(name, digest)?;
    if let Some(known) = find(name.as_bytes()) {
        return Ok(known);
    }
    let modes = module.spec().modes.iter().map(|mode| format!("{name}:{}", mode.name)).collect();
    let loaded = Loaded { name: name.into(), digest, module, modes };
    let new: &'static Registered = Box::leak(Box::new(Registered { loaded, next: OnceLock::new() }));
    let mut slot = &FIRST;
    while slot.set(new).is_err() {
        // Whoever was quicker may have had the same name.
        match slot.get() {
            Some(other) if *other.loaded.name == *name => {
                return check_new(name, digest).map(|()| Type(&other.loaded));
            }
            Some(other) => slot = &other.next,
            None => {}
        }
    }
    Ok(Type(&new.loaded))
}

/// Can there be a type of this name and digest?
///
/// # Errors
/// Another one has the name, or there are too many.
pub fn check_new(name: &str, digest: u64) -> Result<(), Error> {
    match find(name.as_bytes()) {
        Some(known) if known.0.digest == digest => Ok(()),
        Some(_) => Err(Error::err(format!(
            "type '{name}' is loaded already, from another module, and values of it exist or may; load this one under \
             another name, such as '{name}@2'"
        ))),
        None if all().count() >= MAX_TYPES => {
            Err(Error::err(format!("{MAX_TYPES} types are loaded; no more")))
        }
        None => Ok(()),
    }
}

/// Every type, in the order of loading.
pub fn all() -> impl Iterator<Item = Type> {
    std::iter::successors(FIRST.get(), |it| it.next.get()).map(|it| Type(&it.loaded))
}

/// The type of this name.
pub fn find(name: &[u8]) -> Option<Type> {
    all().find(|it| it.0.name.as_bytes() == name)
}

impl Type {
    /// Its name.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The digest of its module.
    pub fn digest(self) -> u64 {
        self.0.digest
    }

    /// Its functions.
    pub fn module(self) -> &'static Module {
        &self.0.module
    }

    /// Its place among those that this process has loaded. Nothing that others see may depend on it.
    pub(super) fn place(self) -> u8 {
        all().position(|it| it == self).map_or(0, |place| place as u8)
    }

    /// The type at a place.
    pub(super) fn at(place: u8) -> Option<Self> {
        all().nth(usize::from(place))
    }

    /// The names of its lock modes, by their numbers.
    pub(super) fn modes(self) -> &'static [String] {
        &self.0.modes
    }

    /// Appends name and digest.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        put_bytes(out, self.0.name.as_bytes());
        out.extend_from_slice(&self.0.digest.to_le_bytes());
    }

    /// Reads name and digest of a type that must be loaded.
    pub(super) fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let name = input.bytes()?;
        let digest = input.take(8)?;
        let found = find(name).ok_or(Malformed("user-defined type: it is not loaded"))?;
        if found.0.digest.to_le_bytes() == digest {
            Ok(found)
        } else {
            Err(Malformed("user-defined type: it is loaded from another module"))
        }
    }

    fn order(&self) -> (&str, u64) {
        (&self.0.name, self.0.digest)
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Type {}

impl PartialOrd for Type {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Type {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Hash for Type {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.order().hash(state);
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
