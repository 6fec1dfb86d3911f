//! A user, and the rules that make it.

use super::facts::Facts;
use super::keyspaces::{self, KeyspaceRules};
use super::password::{self, Digest};
use super::selector::{Selector, has_spaces};
use std::fmt;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// Distinguishes it from another one that had its name before.
    pub(super) id: u64,
    pub(crate) name: Arc<[u8]>,
    pub(crate) is_on: bool,
    /// Any password will do.
    pub(crate) needs_no_password: bool,
    /// `skip-sanitize-payload` or `sanitize-payload`, if that was said. It means nothing: what is restored is always checked.
    skips_checks: Option<bool>,
    passwords: Vec<Digest>,
    pub(super) facts: Arc<Facts>,
    pub(crate) keyspaces: KeyspaceRules,
    /// What stands outside of parentheses.
    pub(crate) root: Selector,
    /// What stands in parentheses.
    pub(crate) selectors: Vec<Selector>,
}

/// What is wrong with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    /// No command or category has this name.
    Unknown,
    /// It is no rule.
    Syntax,
    /// A pattern of keys where all are allowed.
    AllKeys,
    /// A pattern of channels where all are allowed.
    AllChannels,
    /// The password that is to go is not there.
    NoSuchPassword,
    /// It is no SHA-256 in lower case hexadecimal digits.
    BadHash,
    /// `+config|get|x`.
    FirstArgumentOfSubcommand,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::AllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
                 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. \
                 Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::FirstArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
        })
    }
}

impl User {
    /// A user that is off and may do nothing.
    pub(super) fn new(name: &[u8], id: u64, facts: &Arc<Facts>) -> Self {
        User {
            id,
            name: name.into(),
            is_on: false,
            needs_no_password: false,
            skips_checks: None,
            passwords: Vec::new(),
            facts: Arc::clone(facts),
            keyspaces: KeyspaceRules::ALL,
            root: Selector::none(),
            selectors: Vec::new(),
        }
    }

    /// True if nothing has to be checked.
    pub(crate) fn may_all(&self) -> bool {
        self.keyspaces.is_all() && self.root.is_all()
    }

    /// What is known of commands.
    pub(crate) fn facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    /// All its selectors.
    pub(super) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Changes it by a rule.
    ///
    /// # Errors
    /// See [`RuleError`].
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"skip-sanitize-payload" => self.skips_checks = Some(true),
            b"sanitize-payload" => self.skips_checks = Some(false),
            b"nopass" => self.forget_passwords(true),
            b"resetpass" => self.forget_passwords(false),
            b"clearselectors" => self.selectors.clear(),
            b"reset" => {
                *self = User::new(&self.name, self.id, &self.facts);
                self.skips_checks = Some(false);
            }
            b"allkeyspaces" => self.keyspaces = KeyspaceRules::ALL,
            b"resetkeyspaces" => self.keyspaces.clear(),
            lower if lower.starts_with(keyspaces::PREFIX) => {
                let pattern = &rule[keyspaces::PREFIX.len()..];
                if pattern.is_empty() || has_spaces(pattern) {
                    return Err(RuleError::Syntax);
                }
                self.keyspaces.add(pattern);
            }
            _ => return self.apply_prefixed(rule),
        }
        Ok(())
    }

    fn apply_prefixed(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule {
            [b'>', password @ ..] => self.add_password(password::digest(password)),
            [b'#', hash @ ..] => self.add_password(password::from_hex(hash).ok_or(RuleError::BadHash)?),
            [b'<', password @ ..] => return self.remove_password(&password::digest(password)),
            [b'!', hash @ ..] => {
                return self.remove_password(&password::from_hex(hash).ok_or(RuleError::BadHash)?);
            }
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::none();
                let rules = rules.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty());
                for rule in rules {
                    selector.apply(rule, &self.facts)?;
                }
                self.selectors.push(selector);
            }
            _ => return self.root.apply(rule, &self.facts),
        }
        Ok(())
    }

    /// It needs no password from now on, or has none that would do.
    fn forget_passwords(&mut self, needs_none: bool) {
        self.needs_no_password = needs_none;
        self.passwords.clear();
    }

    fn add_password(&mut self, digest: Digest) {
        self.needs_no_password = false;
        if !self.passwords.contains(&digest) {
            self.passwords.push(digest);
        }
    }

    fn remove_password(&mut self, digest: &Digest) -> Result<(), RuleError> {
        let place =
            self.passwords.iter().position(|known| known == digest).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(place);
        Ok(())
    }

    /// True if it may authenticate with this password.
    pub(super) fn accepts(&self, password: &[u8]) -> bool {
        let digest = password::digest(password);
        // All are compared, so that the time does not tell which one it was.
        let fits = self.passwords.iter().filter(|known| password::are_equal(known, &digest)).count() > 0;
        self.is_on && (self.needs_no_password || fits)
    }

    /// The words of its state, as `ACL GETUSER` tells them.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.is_on, "on"),
            (!self.is_on, "off"),
            (self.needs_no_password, "nopass"),
            (self.skips_checks == Some(true), "skip-sanitize-payload"),
            (self.skips_checks == Some(false), "sanitize-payload"),
        ];
        all.into_iter().filter(|(applies, _)| *applies).map(|(_, word)| word)
    }

    /// The SHA-256 of its passwords.
    pub(crate) fn password_hashes(&self) -> Vec<String> {
        self.passwords.iter().map(password::hex).collect()
    }

    /// `user name rules`: the line of the file that makes it again.
    pub(crate) fn line(&self) -> Vec<u8> {
        let facts = &self.facts;
        let mut line = [b"user ", &*self.name, b" "].concat();
        self.flags().for_each(|flag| line.extend([flag.as_bytes(), b" "].concat()));
        self.password_hashes().iter().for_each(|hash| line.extend([b"#", hash.as_bytes(), b" "].concat()));
        let mut keyspaces = Vec::new();
        self.keyspaces.describe(&mut keyspaces);
        line.extend(self.root.describe(&keyspaces, facts));
        for selector in &self.selectors {
            line.extend_from_slice(b" (");
            line.extend(selector.describe(b"", facts));
            line.push(b')');
        }
        line
    }
}

/// Puts rules together that are one selector, `(` in one argument and `)` in a later one.
///
/// # Errors
/// The parenthesis of the argument with this index is not closed.
pub(super) fn merged_rules<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, usize> {
    let mut rules = Vec::new();
    // Where the selector begins that is not closed yet, and what of it has come.
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (index, argument) in arguments.enumerate() {
        let closes = argument.ends_with(b")");
        match &mut open {
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(argument);
            }
            None if argument.starts_with(b"(") && !closes => {
                open = Some((index, argument.to_vec()));
                continue;
            }
            None => rules.push(argument.to_vec()),
        }
        if closes {
            rules.extend(open.take().map(|(_, selector)| selector));
        }
    }
    match open {
        Some((index, _)) => Err(index),
        None => Ok(rules),
    }
}
