//! All users of a process.

use super::facts::Facts;
use super::selector::has_spaces;
use super::user::{RuleError, User, merged_rules};
use crate::table::lossy;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::Error;

/// The user of connections that have not said who they are. It is always there.
pub(crate) const DEFAULT: &[u8] = b"default";

/// See the module. Names are in the order of their bytes.
#[derive(Clone, Debug)]
pub struct Users {
    pub(super) facts: Arc<Facts>,
    pub(super) by_name: BTreeMap<Arc<[u8]>, Arc<User>>,
    pub(super) next_id: u64,
}

impl Users {
    /// The user `default`, who may do everything, with this password or without one.
    pub fn new(password: Option<&str>) -> Self {
        let facts = Arc::new(Facts::default());
        let mut default = User::new(DEFAULT, 0, &facts);
        for rule in [&b"on"[..], b"+@all", b"~*", b"&*"] {
            let applied = default.apply(rule);
            debug_assert!(applied.is_ok(), "these are rules");
        }
        let mut users = Users { facts, by_name: BTreeMap::new(), next_id: 1 };
        users.put(default);
        users.set_default_password(password);
        users
    }

    /// The user `default` has this one password, or needs none: `requirepass`.
    pub fn set_default_password(&mut self, password: Option<&str>) {
        let mut default = User::clone(self.default_user());
        let rule = password.map_or(b"nopass".to_vec(), |password| [b">", password.as_bytes()].concat());
        let applied = default.apply(b"resetpass").and_then(|()| default.apply(&rule));
        debug_assert!(applied.is_ok(), "these are rules");
        self.put(default);
    }

    /// True when a client has to authenticate before it may do anything else.
    pub fn must_authenticate(&self) -> bool {
        let default = self.default_user();
        !default.is_on || !default.needs_no_password
    }

    pub(super) fn put(&mut self, user: User) {
        self.by_name.insert(Arc::clone(&user.name), Arc::new(user));
    }

    pub(crate) fn default_user(&self) -> &Arc<User> {
        self.by_name.get(DEFAULT).unwrap_or_else(|| unreachable!("nobody removes it"))
    }

    /// All, by name.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// The user of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// What has become of a user; `None` if it was deleted.
    pub(super) fn successor(&self, user: &User) -> Option<&Arc<User>> {
        self.get(&user.name).filter(|known| known.id == user.id)
    }

    /// The user that may authenticate so.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        self.get(name).filter(|user| user.accepts(password))
    }

    /// ACL SETUSER: changes a user by all of the rules, or makes one.
    ///
    /// # Errors
    /// The name or a rule is none. Nothing has changed.
    pub(crate) fn set<'a>(
        &mut self,
        name: &[u8],
        rules: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), Error> {
        if has_spaces(name) {
            return Err(Error::err("Usernames can't contain spaces or null characters"));
        }
        let unmatched = |index| {
            let opened = lossy(rules.clone().nth(index).unwrap_or_default()).into_owned();
            Error::err(format!("Unmatched parenthesis in acl selector starting at '{opened}'."))
        };
        let rules = merged_rules(rules.clone()).map_err(unmatched)?;
        let mut user = match self.get(name) {
            Some(known) => User::clone(known),
            None => User::new(name, self.next_id, &self.facts),
        };
        for rule in &rules {
            user.apply(rule).map_err(|error: RuleError| {
                Error::err(format!("Error in ACL SETUSER modifier '{}': {error}", lossy(rule)))
            })?;
        }
        self.next_id = self.next_id.max(user.id + 1);
        self.put(user);
        Ok(())
    }

    /// Deletes a user; false if there was none. `default` stays.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT && self.by_name.remove(name).is_some()
    }
}
