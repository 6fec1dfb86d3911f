//! The file that stores users: a line `user name rules` for each, as `ACL LIST` shows it.

use super::selector::has_spaces;
use super::user::{RuleError, User, merged_rules};
use super::users::Users;
use crate::table::lossy;
use std::sync::Arc;

impl Users {
    /// What a file has to hold so that these are its users.
    pub fn file_text(&self) -> Vec<u8> {
        self.all().flat_map(|user| [user.line(), b"\n".to_vec()].concat()).collect()
    }

    /// Takes the users of a file in place of these. A `default` that it does not have stays as it is. Who is in both stays the
    /// same user, with other rules.
    ///
    /// # Errors
    /// Lines are no users: which and why, in one line. Nothing has changed.
    pub fn load(&mut self, text: &[u8], file: &str) -> Result<(), String> {
        let mut loaded = self.clone();
        loaded.by_name.retain(|_, user| Arc::ptr_eq(user, self.default_user()));
        let (mut errors, mut seen) = (String::new(), Vec::new());
        for (line, number) in text.split(|byte| *byte == b'\n').zip(1usize..) {
            let words: Vec<&[u8]> = line.trim_ascii().split(|byte| *byte == b' ').collect();
            let outcome = match words.as_slice() {
                [b""] => continue,
                [b"user", name, rules @ ..] => {
                    self.read_user(name, rules, &mut loaded.next_id, &seen, number)
                }
                _ => {
                    Err(Wrong::Bare(" should start with user keyword followed by the username. ".to_owned()))
                }
            };
            match outcome {
                Ok(user) => {
                    seen.push(Arc::clone(&user.name));
                    loaded.put(user);
                }
                Err(Wrong::Bare(text)) => errors.push_str(&format!("{file}:{number}{text}")),
                Err(Wrong::Whole(text)) => errors.push_str(&text),
            }
        }
        if !errors.is_empty() {
            errors.push_str(
                "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
            );
            return Err(errors);
        }
        *self = loaded;
        Ok(())
    }

    fn read_user(
        &self,
        name: &[u8],
        rules: &[&[u8]],
        next_id: &mut u64,
        seen: &[Arc<[u8]>],
        number: usize,
    ) -> Result<User, Wrong> {
        if name.is_empty() || has_spaces(name) {
            return Err(Wrong::Bare(format!(": username '{}' contains invalid characters. ", lossy(name))));
        }
        if seen.iter().any(|known| **known == *name) {
            return Err(Wrong::Whole(format!(
                "WARNING: Duplicate user '{}' found on line {number}. ",
                lossy(name)
            )));
        }
        let id = self.get(name).map_or(*next_id, |known| known.id);
        *next_id = (*next_id).max(id + 1);
        let mut user = User::new(name, id, &self.facts);
        let unmatched = |_| Wrong::Bare(": Unmatched parenthesis in selector definition. ".to_owned());
        let rules = merged_rules(rules.iter().copied()).map_err(unmatched)?;
        for rule in rules {
            user.apply(&rule).map_err(|error| {
                Wrong::Bare(match error {
                    RuleError::Unknown => {
                        format!(": Error in applying operation '{}': {error}. ", lossy(&rule))
                    }
                    _ => format!(": {error}. "),
                })
            })?;
        }
        Ok(user)
    }
}

/// What is wrong with a line.
enum Wrong {
    /// What follows the file's name and the line's number.
    Bare(String),
    /// All of it.
    Whole(String),
}
