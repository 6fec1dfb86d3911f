//! May a user do this?

use super::facts::{Access, Facts};
use super::selector::Selector;
use super::user::User;
use crate::table::{self, Command, flag};
use datatypes::glob::Pattern;
use resp::Arguments;
use types::{Error, ErrorCode};

/// Why not. The error names the check that went furthest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The command itself.
    Command,
    /// One of its keys.
    Key,
    /// One of its channels.
    Channel,
    /// `BY` or `GET` of SORT, which reads keys that nothing names.
    Lookup,
}

/// A refusal, and the argument that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Denied {
    pub(crate) reason: Reason,
    pub(crate) at: usize,
}

impl Denied {
    /// The error to the client.
    pub(crate) fn error(self, command: &Command, arguments: Arguments<'_>) -> Error {
        let refused = |text: String| Error::new(ErrorCode::NoPerm, text);
        match self.reason {
            Reason::Command => refused(format!(
                "this user has no permissions to run the '{}' command",
                self.command(command, arguments)
            )),
            Reason::Key => {
                refused("this user has no permissions to access one of the keys used as arguments".to_owned())
            }
            Reason::Channel => refused(
                "this user has no permissions to access one of the channels used as arguments".to_owned(),
            ),
            Reason::Lookup => {
                let word = table::lossy(arguments.get(self.at).unwrap_or_default()).to_ascii_uppercase();
                Error::err(format!("{word} option of SORT denied due to insufficient ACL permissions."))
            }
        }
    }

    /// The command that is refused: behind a prefix another one than was called.
    pub(crate) fn command(self, command: &'_ Command, arguments: Arguments<'_>) -> &'static str {
        match table::find(arguments.after(self.at)) {
            Ok(behind) if self.at > 0 => behind.name,
            _ => command.name,
        }
    }
}

/// A call that is looked at.
struct Subject<'c> {
    facts: &'c Facts,
    command: &'static Command,
    number: u16,
    arguments: Arguments<'c>,
    /// Worked out once for all selectors that ask.
    keys: Option<Vec<(usize, Access)>>,
}

impl User {
    /// # Errors
    /// The user may not do this.
    pub(crate) fn check(
        &self,
        (command, number): (&'static Command, u16),
        arguments: Arguments<'_>,
    ) -> Result<(), Denied> {
        let Some(prefix) = prefix_len(command) else {
            let facts = &self.facts;
            return self.check_one(Subject { facts, command, number, arguments, keys: None });
        };
        let is_allowed = |selector: &Selector| selector.commands.has(number);
        if !self.all_selectors().any(is_allowed) {
            return Err(Denied { reason: Reason::Command, at: 0 });
        }
        // What is no command is refused as such.
        let behind = arguments.after(prefix);
        let Ok(found) = table::locate(behind) else { return Ok(()) };
        // BLIND and AT refuse each other and themselves, however many there are.
        if prefix_len(found.0).is_some() {
            return Ok(());
        }
        let moved = |denied: Denied| Denied { at: denied.at + prefix, ..denied };
        self.check(found, behind).map_err(moved)
    }

    fn check_one(&self, mut subject: Subject<'_>) -> Result<(), Denied> {
        let mut worst = Denied { reason: Reason::Command, at: 0 };
        for selector in self.all_selectors() {
            match selector.check(&mut subject) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// True if it may subscribe to this.
    pub(super) fn may_subscribe(&self, name: &[u8], is_pattern: bool) -> bool {
        self.all_selectors().any(|selector| selector.allows_channel(name, is_pattern))
    }
}

/// How many words stand before the command that another one is about.
fn prefix_len(command: &Command) -> Option<usize> {
    match command.name {
        "blind" => Some(1),
        "at" => Some(2),
        _ => None,
    }
}

impl Selector {
    fn check(&self, subject: &mut Subject<'_>) -> Result<(), Denied> {
        let arguments = subject.arguments;
        if !subject.command.is(flag::NO_AUTH) && !self.allows_command(subject.number, arguments) {
            return Err(Denied { reason: Reason::Command, at: 0 });
        }
        if let Some(patterns) = &self.keys {
            let (facts, command, number) = (subject.facts, subject.command, subject.number);
            // All conflicting keys: which they are nobody knows here.
            if command.name == "merge|resolve"
                && arguments.get(2).is_some_and(|word| word.eq_ignore_ascii_case(b"all"))
                && !patterns.iter().any(|pattern| pattern.access == Access::ALL && pattern.text == b"*")
            {
                return Err(Denied { reason: Reason::Key, at: 2 });
            }
            let keys = subject.keys.get_or_insert_with(|| facts.key_uses(command, number, arguments));
            for (at, access) in keys.iter().copied() {
                let key = arguments.get(at).unwrap_or_default();
                let allows = |pattern: &super::selector::KeyPattern| {
                    pattern.access.allows(access) && Pattern::new(&pattern.text, false).matches(key)
                };
                if !patterns.iter().any(allows) {
                    return Err(Denied { reason: Reason::Key, at });
                }
            }
            if matches!(command.name, "sort" | "sort_ro")
                && !patterns.iter().any(|pattern| pattern.access.reads && pattern.text == b"*")
                && let Some(at) = lookup(arguments)
            {
                return Err(Denied { reason: Reason::Lookup, at });
            }
        }
        if self.channels.is_some()
            && let Some((channels, are_patterns)) = channels(subject.command, arguments)
            && let Some(at) = channels
                .clone()
                .find(|at| !self.allows_channel(arguments.get(*at).unwrap_or_default(), are_patterns))
        {
            return Err(Denied { reason: Reason::Channel, at });
        }
        Ok(())
    }

    fn allows_command(&self, number: u16, arguments: Arguments<'_>) -> bool {
        if self.commands.has(number) {
            return true;
        }
        let (first, known) = (arguments.get(1), self.first_arguments.get(&number));
        known.is_some_and(|known| {
            first.is_some_and(|first| known.iter().any(|known| known.eq_ignore_ascii_case(first)))
        })
    }

    /// A pattern to subscribe to must be one that the user was given.
    fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        let Some(channels) = &self.channels else { return true };
        let allows = |known: &Vec<u8>| match is_pattern {
            true => known == name,
            false => Pattern::new(known, false).matches(name),
        };
        channels.iter().any(allows)
    }
}

/// Which arguments are channels, and whether they are patterns.
fn channels(command: &Command, arguments: Arguments<'_>) -> Option<(std::ops::Range<usize>, bool)> {
    match command.name {
        "publish" | "spublish" => Some((1..2, false)),
        "subscribe" | "ssubscribe" => Some((1..arguments.len(), false)),
        "psubscribe" => Some((1..arguments.len(), true)),
        _ => None,
    }
}

/// Where a SORT first says that it reads other keys.
fn lookup(arguments: Arguments<'_>) -> Option<usize> {
    let mut index = 2;
    while let Some(word) = arguments.get(index) {
        let value = arguments.get(index + 1);
        index += match word.to_ascii_lowercase().as_slice() {
            b"limit" => 3,
            b"store" => 2,
            b"get" if value.is_some() => return Some(index),
            b"by" if value.is_some_and(|pattern| pattern.contains(&b'*')) => return Some(index),
            b"by" => 2,
            _ => 1,
        };
    }
    None
}
