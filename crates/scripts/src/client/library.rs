//! The scripts that a process keeps, whichever of its workers was given them.

use super::at_work::Register;
use gateway::no_script;
use parking_lot::Mutex;
use sha1::{Digest, Sha1};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use types::Error;

/// How many scripts of EVAL the library holds: the one that was used longest ago goes first.
const SEEN: usize = 500;
/// How many bytes of scripts SCRIPT LOAD keeps.
const LOADED_BYTES: usize = 64 << 20;

/// The SHA-1 of a script's text.
pub(super) type Name = [u8; 20];

/// See the module. Clones share what they keep, and know the scripts at work.
#[derive(Clone, Debug, Default)]
pub struct Library {
    stored: Arc<Mutex<Stored>>,
    pub(super) at_work: Register,
}

#[derive(Debug, Default)]
struct Stored {
    scripts: BTreeMap<Name, Entry>,
    /// The scripts that came with EVAL, by their last use.
    seen: BTreeMap<u64, Name>,
    uses: u64,
    loaded_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    source: Arc<[u8]>,
    /// Its last use; `None` if it was loaded, and so stays.
    used: Option<u64>,
}

impl Library {
    /// Keeps a script until all are forgotten.
    pub(super) fn load(&self, name: Name, source: &[u8]) -> Result<(), Error> {
        let mut guard = self.stored.lock();
        let stored = &mut *guard;
        let is_loaded = stored.scripts.get(&name).is_some_and(|entry| entry.used.is_none());
        if is_loaded {
            return Ok(());
        }
        if stored.loaded_bytes + source.len() > LOADED_BYTES {
            let text = format!(
                "SCRIPT LOAD keeps at most {} MiB of scripts; SCRIPT FLUSH makes room",
                LOADED_BYTES >> 20
            );
            return Err(Error::err(text));
        }
        stored.loaded_bytes += source.len();
        let before = stored.scripts.insert(name, Entry { source: source.into(), used: None });
        if let Some(used) = before.and_then(|entry| entry.used) {
            stored.seen.remove(&used);
        }
        Ok(())
    }

    /// A script came with EVAL.
    pub(super) fn see(&self, name: Name, source: &[u8]) {
        let mut guard = self.stored.lock();
        let stored = &mut *guard;
        if stored.touch(&name).is_some() {
            return;
        }
        if stored.seen.len() >= SEEN
            && let Some((_, oldest)) = stored.seen.pop_first()
        {
            stored.scripts.remove(&oldest);
        }
        stored.uses += 1;
        stored.seen.insert(stored.uses, name);
        stored.scripts.insert(name, Entry { source: source.into(), used: Some(stored.uses) });
    }

    /// The text of a stored script.
    pub(super) fn find(&self, name: &Name) -> Result<Arc<[u8]>, Error> {
        let found = self.stored.lock().touch(name);
        found.ok_or_else(no_script)
    }

    /// True if the library holds a script of this name.
    pub(super) fn keeps(&self, name: &Name) -> bool {
        self.stored.lock().scripts.contains_key(name)
    }

    /// Forgets all.
    pub(super) fn forget(&self) {
        *self.stored.lock() = Stored::default();
    }
}

impl Stored {
    /// The script, which is used now.
    fn touch(&mut self, name: &Name) -> Option<Arc<[u8]>> {
        let entry = self.scripts.get_mut(name)?;
        if let Some(used) = &mut entry.used {
            self.seen.remove(used);
            self.uses += 1;
            *used = self.uses;
            self.seen.insert(self.uses, *name);
        }
        Some(Arc::clone(&entry.source))
    }
}

/// The name of a script.
pub(super) fn name_of(source: &[u8]) -> Name {
    Sha1::digest(source).into()
}

/// A name as clients write it.
pub(super) fn hex(name: &Name) -> String {
    let mut text = String::with_capacity(2 * name.len());
    for byte in name {
        let written = write!(text, "{byte:02x}");
        debug_assert!(written.is_ok(), "a string takes any text");
    }
    text
}

/// What clients write for a name, in any case.
pub(super) fn from_hex(text: &[u8]) -> Option<Name> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if text.len() != 40 {
        return None;
    }
    let mut name = Name::default();
    for (byte, digits) in name.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_redis() {
        let name = name_of(b"return 1");
        assert_eq!(hex(&name), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(from_hex(b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB"), Some(name));
        assert_eq!([&b"e0"[..], &[b'g'; 40], &[0xff; 40], &[b'a'; 41]].map(from_hex), [None; 4]);
    }

    #[test]
    fn what_came_with_eval_goes_when_it_was_not_used_for_long_and_what_was_loaded_stays() {
        let (library, clone) = (Library::default(), Library::default());
        let source = |number: usize| format!("return {number}").into_bytes();
        let name = |number: usize| name_of(&source(number));
        library.load(name(0), &source(0)).expect("there is room");
        (1..=SEEN).for_each(|number| library.see(name(number), &source(number)));
        library.find(&name(1)).expect("it is kept");
        library.see(name(SEEN + 1), &source(SEEN + 1));
        let is_held = [0, 1, 2, 3, SEEN + 1].map(|number| library.keeps(&name(number)));
        assert_eq!(is_held, [true, true, false, true, true]);
        assert!(!clone.keeps(&name(0)) && library.clone().keeps(&name(0)));
        library.forget();
        assert_eq!(library.find(&name(0)).expect_err("it is forgotten").to_string(), no_script().to_string());
    }

    #[test]
    fn what_is_loaded_is_bounded() {
        let library = Library::default();
        let half = |byte: u8| vec![byte; LOADED_BYTES / 2];
        for byte in [1, 2, 2] {
            library.load(name_of(&half(byte)), &half(byte)).expect("there is room");
        }
        library.load(name_of(b"x"), b"x").expect_err("there is no room");
        library.forget();
        library.load(name_of(b"x"), b"x").expect("there is room again");
    }
}
