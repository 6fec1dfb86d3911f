//! What `COMMAND DOCS` and `COMMAND INFO` tell of a command beyond its entry in the table: arguments, complexity,
//! history, tips, what is done with its keys. The text stands in `documents.txt`, an entry for each command.

use std::collections::BTreeMap;
use types::ReplySink;

/// The documents of all commands, by name.
pub(crate) struct Documents(BTreeMap<&'static str, Document>);

/// The lines of one command: fields with their texts.
#[derive(Debug, Default)]
pub(crate) struct Document(Vec<(&'static str, &'static str)>);

/// What is done with the keys that one specification finds.
pub(crate) struct KeyUse {
    /// The word before the key, and from which argument on it may stand, where it is found so.
    pub(crate) keyword: Option<(&'static str, i64)>,
    /// Redis's flags.
    pub(crate) flags: Vec<&'static str>,
    /// What else there is to know.
    pub(crate) note: Option<&'static str>,
}

/// One argument of a command, or a group of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Argument {
    name: &'static str,
    kind: &'static str,
    /// Which of the command's key specifications describes it.
    key: Option<i64>,
    token: Option<&'static str>,
    since: Option<&'static str>,
    deprecated_since: Option<&'static str>,
    optional: bool,
    multiple: bool,
    /// Its token comes each time too.
    multiple_token: bool,
    arguments: Vec<Argument>,
}

impl Documents {
    /// Reads them: a fraction of a millisecond, when a client asks for them.
    pub(crate) fn read() -> Self {
        let mut entries: BTreeMap<&str, Document> = BTreeMap::new();
        let mut name = "";
        for line in include_str!("documents.txt").lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix("  ").and_then(|field| field.split_once(": ")) {
                Some(field) => entries.entry(name).or_default().0.push(field),
                None => {
                    name = line;
                    entries.entry(name).or_default();
                }
            }
        }
        Documents(entries)
    }

    /// What is known of the command; nothing if it has no entry, which a test excludes.
    pub(crate) fn of(&self, command: &str) -> &Document {
        const NOTHING: &Document = &Document(Vec::new());
        self.0.get(command).unwrap_or(NOTHING)
    }
}

impl Document {
    fn all(&self, field: &'static str) -> impl Iterator<Item = &'static str> + Clone {
        self.0.iter().filter(move |(name, _)| *name == field).map(|(_, text)| *text)
    }

    fn words(&self, field: &'static str) -> Vec<&'static str> {
        self.all(field).flat_map(|text| text.split(' ')).collect()
    }

    /// Flags beyond those that the table knows.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        self.words("flags")
    }

    /// Hints for proxies and clients.
    pub(crate) fn tips(&self) -> Vec<&'static str> {
        self.words("tips")
    }

    /// What is done with the keys, for each specification of keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyUse> {
        self.all("keys").map(|text| {
            let (text, note) =
                text.split_once(" -- ").map_or((text, None), |(text, note)| (text, Some(note)));
            let mut words = text.split(' ').peekable();
            let keyword =
                words.next_if(|word| word.starts_with('=')).and_then(|word| word[1..].split_once('@'));
            let keyword = keyword.and_then(|(word, from)| Some((word, from.parse().ok()?)));
            KeyUse { keyword, flags: words.collect(), note }
        })
    }

    /// How many pairs `write` writes.
    pub(crate) fn len(&self) -> usize {
        let deprecated = if self.all("deprecated").next().is_some() { 3 } else { 0 };
        let once = ["complexity", "doc_flags", "history", "arguments"].into_iter();
        deprecated + once.filter(|field| self.all(field).next().is_some()).count()
    }

    /// Writes the fields of `COMMAND DOCS`, in Redis's order.
    pub(crate) fn write(&self, sink: &mut dyn ReplySink) {
        for complexity in self.all("complexity") {
            write_text("complexity", complexity, sink);
        }
        if self.all("doc_flags").next().is_some() {
            sink.bulk(b"doc_flags");
            write_flags(&self.words("doc_flags"), sink);
        }
        for (since, replacement) in self.all("deprecated").filter_map(|text| text.split_once(' ')) {
            sink.bulk(b"doc_flags");
            write_flags(&["deprecated"], sink);
            write_text("deprecated_since", since, sink);
            write_text("replaced_by", replacement, sink);
        }
        let history = self.all("history").filter_map(|text| text.split_once(' '));
        if history.clone().next().is_some() {
            sink.bulk(b"history");
            sink.set(history.clone().count());
            for (version, change) in history {
                sink.array(2);
                sink.bulk(version.as_bytes());
                sink.bulk(change.as_bytes());
            }
        }
        if let Some(arguments) = self.all("arguments").next() {
            sink.bulk(b"arguments");
            write_arguments(&parse(arguments), sink);
        }
    }
}

/// Splits at the spaces outside of parentheses.
fn split(text: &'static str) -> Vec<&'static str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b' ' if depth == 0 => {
                parts.push(&text[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The arguments that a text stands for; its form is described at the top of `documents.txt`.
fn parse(text: &'static str) -> Vec<Argument> {
    split(text).into_iter().map(argument).collect()
}

fn argument(text: &'static str) -> Argument {
    let (head, inner) = match text.split_once('(') {
        Some((head, inner)) => (head, parse(inner.strip_suffix(')').unwrap_or(inner))),
        None => (text, Vec::new()),
    };
    let end = |text: &'static str| text.find(['#', '=', '@', '!', '?', '*', '+']).unwrap_or(text.len());
    let (name, mut rest) = head.split_at(end(head));
    let (name, kind) = name.rsplit_once(':').unwrap_or((name, "string"));
    let mut argument = Argument { name, kind, arguments: inner, ..Argument::default() };
    while let Some(mark) = rest.chars().next() {
        let after = &rest[1..];
        // A token has a character at least, whichever it is.
        let least = usize::from(mark == '=' && !after.is_empty());
        let (value, next) = after.split_at(least + end(&after[least..]));
        match mark {
            '#' => argument.key = value.parse().ok(),
            '=' => argument.token = Some(value),
            '@' => argument.since = Some(value),
            '!' => argument.deprecated_since = Some(value),
            '?' => argument.optional = true,
            '+' => (argument.multiple, argument.multiple_token) = (true, true),
            _ => argument.multiple = true,
        }
        rest = next;
    }
    argument
}

fn write_arguments(arguments: &[Argument], sink: &mut dyn ReplySink) {
    sink.array(arguments.len());
    arguments.iter().for_each(|argument| argument.write(sink));
}

impl Argument {
    fn flags(&self) -> Vec<&'static str> {
        let all = [
            (self.optional, "optional"),
            (self.multiple, "multiple"),
            (self.multiple_token, "multiple_token"),
        ];
        all.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
    }

    fn write(&self, sink: &mut dyn ReplySink) {
        let flags = self.flags();
        let texts =
            [("token", self.token), ("since", self.since), ("deprecated_since", self.deprecated_since)];
        let texts = || texts.into_iter().filter_map(|(field, text)| Some((field, text?)));
        let others = [self.key.is_some(), !flags.is_empty(), !self.arguments.is_empty()];
        sink.map(2 + texts().count() + others.into_iter().filter(|other| *other).count());
        write_text("name", self.name, sink);
        write_text("type", self.kind, sink);
        if let Some(key) = self.key {
            sink.bulk(b"key_spec_index");
            sink.integer(key);
        }
        texts().for_each(|(field, text)| write_text(field, text, sink));
        if !flags.is_empty() {
            sink.bulk(b"flags");
            write_flags(&flags, sink);
        }
        if !self.arguments.is_empty() {
            sink.bulk(b"arguments");
            write_arguments(&self.arguments, sink);
        }
    }
}

fn write_text(field: &str, text: &str, sink: &mut dyn ReplySink) {
    sink.bulk(field.as_bytes());
    sink.bulk(text.as_bytes());
}

/// Writes names as a set of statuses.
pub(crate) fn write_flags(names: &[&str], sink: &mut dyn ReplySink) {
    sink.set(names.len());
    names.iter().for_each(|name| sink.simple(name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::FAMILIES;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_has_an_entry_and_every_entry_a_command() {
        let families = FAMILIES.iter().flat_map(|family| family.commands);
        let commands = families.flat_map(|command| std::iter::once(command).chain(command.subcommands));
        let names: BTreeSet<&str> = commands.map(|command| command.name).collect();
        let documents = Documents::read();
        let entries: BTreeSet<&str> = documents.0.keys().copied().collect();
        let (none, no_command) = (&names - &entries, &entries - &names);
        assert!(none.is_empty(), "documents.txt has no entry of {none:?}");
        assert!(no_command.is_empty(), "documents.txt has entries of {no_command:?}, which are no commands");
        for (name, document) in &documents.0 {
            let known =
                ["arguments", "complexity", "deprecated", "doc_flags", "flags", "history", "keys", "tips"];
            assert!(document.0.iter().all(|(field, _)| known.contains(field)), "{name}");
            // Redis says nothing of theirs.
            assert_eq!(
                document.all("complexity").count(),
                usize::from(!["lolwut", "monitor"].contains(name)),
                "{name}"
            );
        }
    }

    #[test]
    fn the_entries_of_a_key_agree_with_the_table() {
        let documents = Documents::read();
        for command in FAMILIES.iter().flat_map(|family| family.commands) {
            let has_keys = command.keys.first > 0 || command.key_count > 0 || command.streams_from > 0;
            let says = documents.of(command.name).keys().next().is_some();
            assert_eq!(says, has_keys, "`keys` of {} in documents.txt", command.name);
        }
    }

    #[test]
    fn arguments_are_read() {
        let text =
            "key:key#0 ip:port:string!2.8.12 limit:block=LIMIT@6.2.0?*(offset:integer count:integer=COUNT?)";
        let [key, place, limit] = &parse(text)[..] else { panic!("three arguments") };
        assert_eq!((key.name, key.kind, key.key), ("key", "key", Some(0)));
        assert_eq!((place.name, place.kind, place.deprecated_since), ("ip:port", "string", Some("2.8.12")));
        assert_eq!(
            (limit.token, limit.since, limit.flags()),
            (Some("LIMIT"), Some("6.2.0"), vec!["optional", "multiple"])
        );
        assert_eq!(
            limit.arguments.iter().map(|inner| (inner.name, inner.optional)).collect::<Vec<_>>(),
            [("offset", false), ("count", true)]
        );
    }
}
