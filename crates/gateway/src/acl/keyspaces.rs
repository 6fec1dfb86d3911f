//! Which keyspaces a user may choose and see.

use datatypes::glob::Pattern;

/// The rule that adds a pattern.
pub(super) const PREFIX: &[u8] = b"keyspace:";

/// Patterns of names, as of `KEYS`; without any there is no keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceRules {
    /// `None` for all keyspaces.
    patterns: Option<Vec<Vec<u8>>>,
}

impl KeyspaceRules {
    /// All keyspaces.
    pub const ALL: KeyspaceRules = KeyspaceRules { patterns: None };

    /// True if they allow every keyspace.
    pub fn is_all(&self) -> bool {
        self.patterns.is_none()
    }

    /// True if they allow the keyspace of this name.
    pub fn allows(&self, name: &[u8]) -> bool {
        let matches = |pattern: &Vec<u8>| Pattern::new(pattern, false).matches(name);
        self.patterns.as_ref().is_none_or(|patterns| patterns.iter().any(matches))
    }

    /// The only keyspace that they name.
    pub(crate) fn only_one(&self) -> Option<&[u8]> {
        match self.patterns.as_deref() {
            Some([name]) if !name.iter().any(|byte| b"*?[\\".contains(byte)) => Some(name),
            _ => None,
        }
    }

    /// No keyspace any more.
    pub(super) fn clear(&mut self) {
        self.patterns = Some(Vec::new());
    }

    /// Those that match this pattern too; only those, if all were allowed.
    pub(super) fn add(&mut self, pattern: &[u8]) {
        if pattern == b"*" {
            self.patterns = None;
            return;
        }
        let patterns = self.patterns.get_or_insert_default();
        if !patterns.iter().any(|known| known == pattern) {
            patterns.push(pattern.to_vec());
        }
    }

    /// The rules that come to these, with a space behind each.
    pub(super) fn describe(&self, out: &mut Vec<u8>) {
        let Some(patterns) = &self.patterns else { return };
        out.extend_from_slice(b"resetkeyspaces ");
        for pattern in patterns {
            out.extend_from_slice(PREFIX);
            out.extend_from_slice(pattern);
            out.push(b' ');
        }
    }

    /// The patterns with a space between them.
    pub(crate) fn text(&self) -> Vec<u8> {
        let patterns = self.patterns.iter().flatten().map(|pattern| [PREFIX, pattern].concat());
        patterns.collect::<Vec<_>>().join(&b' ')
    }
}
