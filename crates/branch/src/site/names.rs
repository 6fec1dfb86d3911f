//! Names for states, as a version control system gives them to branches: a name stands at a state, goes on with what is
//! committed on it (`BRANCH BEGIN ON name`), and, when its state is collected, with the state that took its place. Names
//! are this site's own, and keep no state from being collected.

use super::logged::Recorded;
use super::{Record, Site};
use crate::StateId;
use crate::instance::Instance;
use protocol::Outputs;
use std::collections::BTreeMap;
use types::{Error, SessionId};

/// How many names a site gives.
const MAX_NAMES: usize = 1000;
/// How long a name may be, in bytes.
const MAX_LEN: usize = 64;
/// Names are threads of the keyspace from this number on: the promotion table moves them with the others.
const FIRST: u64 = u64::MAX - (1 << 32);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Names {
    threads: BTreeMap<Box<str>, SessionId>,
    last: u64,
}

/// The names with their states, for reading a command.
pub(crate) type Named = BTreeMap<Box<str>, StateId>;

/// A name begins with a letter, so that it is never taken for the id of a state.
fn check(name: &[u8]) -> Result<&str, Error> {
    let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./".contains(byte);
    let fits = name.len() <= MAX_LEN && name.first().is_some_and(u8::is_ascii_alphabetic);
    std::str::from_utf8(name).ok().filter(|_| fits && name.iter().all(is_fit)).ok_or_else(|| {
        Error::err(format!(
            "'{}' is no name for a state: a letter, then up to {} letters, digits, and - _ . /",
            String::from_utf8_lossy(name),
            MAX_LEN - 1
        ))
    })
}

impl Site {
    /// Where the names stand.
    pub(super) fn named(&self) -> Named {
        let state = |thread: &SessionId| self.keyspace.committed(*thread);
        let names = self.names.threads.iter();
        names.filter_map(|(name, thread)| Some((name.clone(), state(thread)?))).collect()
    }

    /// Puts a name at a state, and notes it in the log.
    pub(super) fn name(
        &mut self,
        name: &[u8],
        state: StateId,
        out: &mut Outputs<'_, Instance>,
    ) -> Result<(), Error> {
        let name = check(name)?;
        if self.keyspace.dag().open(state).is_none() {
            return Err(crate::Refusal::UnknownState(state).into());
        }
        if self.names.threads.len() >= MAX_NAMES && !self.names.threads.contains_key(name) {
            return Err(Error::err(format!(
                "the site has {MAX_NAMES} names, and gives no more; BRANCH UNNAME forgets one"
            )));
        }
        self.put_name(name, Some(state));
        out.persist(&Record::Name { name, state: Some(state) }, self.options.durability);
        self.note_recorded(Recorded::Name, out);
        Ok(())
    }

    /// Forgets a name; false if there is none.
    pub(super) fn unname(&mut self, name: &[u8], out: &mut Outputs<'_, Instance>) -> Result<bool, Error> {
        let name = check(name)?;
        let is_known = self.names.threads.contains_key(name);
        if is_known {
            self.put_name(name, None);
            out.persist(&Record::Name { name, state: None }, self.options.durability);
            self.note_recorded(Recorded::Name, out);
        }
        Ok(is_known)
    }

    /// Puts a name at a state, or forgets it.
    pub(super) fn put_name(&mut self, name: &str, state: Option<StateId>) {
        if let Some(thread) = self.names.threads.remove(name) {
            self.keyspace.close(thread);
        }
        if let Some(state) = state {
            let thread = SessionId(FIRST + self.names.last);
            self.names.last += 1;
            self.names.threads.insert(name.into(), thread);
            self.keyspace.has_committed(thread, state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_no_name() {
        for name in ["main", "a", "release/1.2_x-y"] {
            assert_eq!(check(name.as_bytes()).ok(), Some(name));
        }
        for name in ["", "12@3.1", "1st", "a b", "a@b", "\u{e4}"] {
            assert!(check(name.as_bytes()).is_err(), "{name}");
        }
        assert!(check(&[b'a'; MAX_LEN + 1]).is_err());
    }
}
