//! What users were refused: `ACL LOG`.

use std::collections::VecDeque;

/// The log holds so many entries, as in Redis.
const MOST_ENTRIES: usize = 128;
/// What happens again within so many milliseconds is no entry of its own.
const GROUPED_MS: u64 = 60_000;
/// Among so many of the newest entries its like is looked for.
const COMPARED: usize = 10;

/// Why something was refused.
pub(crate) type Cause = &'static str;

/// Where a command stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// By itself.
    TopLevel,
    /// Between MULTI and EXEC.
    Multi,
    /// In a script.
    Lua,
}

impl Context {
    /// Redis's word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// How often.
    pub(crate) count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub(crate) cause: Cause,
    pub(crate) context: Context,
    /// The command, key or channel.
    pub(crate) object: Vec<u8>,
    /// Who, or who it was not.
    pub(crate) user: Vec<u8>,
    /// When it happened last, in milliseconds since 1970.
    pub(crate) at_millis: u64,
    /// The client's line in `CLIENT LIST`.
    pub(crate) client: String,
}

/// See the module. The newest entry comes first.
#[derive(Debug, Default)]
pub struct AclLog {
    entries: VecDeque<Entry>,
}

impl AclLog {
    /// The entries.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Something was refused: an entry, or one time more what an entry tells of.
    pub(crate) fn note(&mut self, entry: Entry) {
        let is_alike = |known: &Entry| {
            (known.cause, known.context, &known.object, &known.user)
                == (entry.cause, entry.context, &entry.object, &entry.user)
                && known.at_millis.abs_diff(entry.at_millis) <= GROUPED_MS
        };
        let known = self.entries.iter().take(COMPARED).position(is_alike);
        let count = known.and_then(|place| self.entries.remove(place)).map_or(0, |known| known.count);
        self.entries.push_front(Entry { count: count + entry.count, ..entry });
        self.entries.truncate(MOST_ENTRIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str, at_millis: u64) -> Entry {
        let (cause, context, client) = ("key", Context::TopLevel, String::new());
        Entry { count: 1, cause, context, object: object.into(), user: b"u".to_vec(), at_millis, client }
    }

    #[test]
    fn what_happens_again_soon_is_counted_and_old_entries_go() {
        let mut log = AclLog::default();
        for (object, at) in [("a", 0), ("b", 1), ("a", GROUPED_MS), ("a", 3 * GROUPED_MS)] {
            log.note(entry(object, at));
        }
        let seen: Vec<(&[u8], u64)> = log.entries().map(|entry| (&*entry.object, entry.count)).collect();
        assert_eq!(seen, [(&b"a"[..], 1), (b"a", 2), (b"b", 1)]);
        (0..200).for_each(|number| log.note(entry(&number.to_string(), 0)));
        assert_eq!(log.entries().len(), MOST_ENTRIES);
    }
}
