//! What is known of every command that rules are about: its number, its categories, and what it does with its keys.

use crate::commands::sort;
use crate::describe;
use crate::documents::Documents;
use crate::table::{self, Command, NUMBERS, flag};
use resp::Arguments;
use std::sync::OnceLock;

/// The categories, in Redis's order.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// What a command does with a key, or what a pattern of keys allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Access {
    /// Both.
    pub(crate) const ALL: Access = Access { reads: true, writes: true };
    /// It is read.
    pub(crate) const READ: Access = Access { reads: true, writes: false };
    /// It is written.
    pub(crate) const WRITE: Access = Access { reads: false, writes: true };

    /// True if all that `wanted` does is allowed.
    pub(crate) fn allows(self, wanted: Access) -> bool {
        (self.reads || !wanted.reads) && (self.writes || !wanted.writes)
    }

    fn of(flags: &[&str]) -> Self {
        let has = |names: &[&str]| flags.iter().any(|flag| names.contains(flag));
        Access { reads: has(&["access"]), writes: has(&["insert", "delete", "update"]) }
    }
}

/// One command or subcommand.
#[derive(Debug)]
pub(crate) struct Fact {
    /// See [`table::locate`].
    pub(crate) number: u16,
    pub(crate) command: &'static Command,
    /// It is a subcommand.
    pub(crate) is_subcommand: bool,
    /// A bit for each of [`CATEGORIES`].
    categories: u32,
    /// What it does with the keys of each specification.
    keys: Vec<Access>,
}

impl Fact {
    /// True if it belongs to the category with this index.
    pub(crate) fn is_in(&self, category: usize) -> bool {
        self.categories >> category & 1 == 1
    }
}

/// See the module. Read at the first use: the user `default` of most processes never needs it.
#[derive(Debug, Default)]
pub(crate) struct Facts(OnceLock<Known>);

#[derive(Debug)]
struct Known {
    /// A command stands before its subcommands.
    all: Vec<Fact>,
    /// Where each number stands in `all`.
    places: Vec<Option<u16>>,
}

impl Known {
    /// Reads the command table and the documents: a millisecond.
    fn read() -> Self {
        let documents = Documents::read();
        let mut places = vec![None; NUMBERS];
        let mut all = Vec::new();
        for (number, command) in table::all() {
            places[usize::from(number)] = u16::try_from(all.len()).ok();
            all.push(Fact {
                number,
                command,
                is_subcommand: command.name.contains('|'),
                categories: categories(command),
                keys: documents.of(command.name).keys().map(|key| Access::of(&key.flags)).collect(),
            });
        }
        Known { all, places }
    }

    /// Where the command with this number stands.
    fn place(&self, number: u16) -> Option<usize> {
        self.places.get(usize::from(number)).copied().flatten().map(usize::from)
    }
}

impl Facts {
    fn known(&self) -> &Known {
        self.0.get_or_init(Known::read)
    }

    /// All, in the order of the table.
    pub(crate) fn all(&self) -> &[Fact] {
        &self.known().all
    }

    /// The command `get` or `config|get`, in any case.
    pub(crate) fn named(&self, name: &[u8]) -> Option<&Fact> {
        self.all().iter().find(|fact| fact.command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The subcommands of a command.
    pub(crate) fn subcommands<'f>(&'f self, fact: &Fact) -> &'f [Fact] {
        let place = self.known().place(fact.number).unwrap_or(self.all().len());
        self.all().get(place + 1..=place + fact.command.subcommands.len()).unwrap_or_default()
    }

    /// The index of a category, whose name may be in any case.
    pub(crate) fn category(name: &[u8]) -> Option<usize> {
        CATEGORIES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Which arguments of a call are keys, and what is done with them.
    pub(crate) fn key_uses(
        &self,
        command: &'static Command,
        number: u16,
        arguments: Arguments<'_>,
    ) -> Vec<(usize, Access)> {
        // Shard channels stand where keys do, and are none.
        if command.is(flag::PUBSUB) {
            return Vec::new();
        }
        let place = self.known().place(number);
        let known = place.and_then(|place| self.all().get(place)).map_or(&[][..], |fact| &fact.keys);
        // Several specifications stand for one key each; the last one for all others.
        let usual = |order: usize| known.get(order).or(known.last()).copied().unwrap_or(Access::ALL);
        let access = |order: usize| match command.name {
            "set" => of_set(arguments),
            "bitfield" => of_bitfield(arguments),
            _ => usual(order),
        };
        let uses = command.key_indices(arguments).enumerate();
        let mut uses: Vec<(usize, Access)> = uses.map(|(order, index)| (index, access(order))).collect();
        if command.name == "sort" {
            uses.extend(sort::destination(arguments).map(|index| (index, Access::WRITE)));
        }
        // Whoever asks may have left some out.
        uses.retain(|(index, _)| *index < arguments.len());
        uses
    }
}

/// SET reads only with `GET`.
fn of_set(arguments: Arguments<'_>) -> Access {
    let gets = arguments.iter().skip(3).any(|word| word.eq_ignore_ascii_case(b"get"));
    if gets { Access::ALL } else { Access::WRITE }
}

/// BITFIELD writes unless there is nothing but `GET` (and `OVERFLOW`).
fn of_bitfield(arguments: Arguments<'_>) -> Access {
    let mut index = 2;
    while let Some(word) = arguments.get(index) {
        index += match word.to_ascii_lowercase().as_slice() {
            b"get" => 3,
            b"overflow" => 2,
            _ => return Access::ALL,
        };
    }
    Access::READ
}

fn categories(command: &Command) -> u32 {
    let own = describe::categories(command);
    let bit = |(index, name): (usize, &&str)| u32::from(own.iter().any(|own| own[1..] == **name)) << index;
    CATEGORIES.iter().enumerate().map(bit).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_stands_before_its_subcommands() {
        let facts = Facts::default();
        let config = facts.named(b"CONFIG").expect("a command");
        let names: Vec<&str> = facts.subcommands(config).iter().map(|fact| fact.command.name).collect();
        assert!(names.contains(&"config|get") && names.iter().all(|name| name.starts_with("config|")));
        assert!(facts.subcommands(facts.named(b"get").expect("a command")).is_empty());
    }

    #[test]
    fn every_category_has_a_command_and_no_command_another_one() {
        let facts = Facts::default();
        for (index, name) in CATEGORIES.iter().enumerate() {
            assert!(facts.all().iter().any(|fact| fact.is_in(index)), "{name}");
        }
        for fact in facts.all() {
            let known = describe::categories(fact.command);
            assert!(known.iter().all(|name| CATEGORIES.contains(&&name[1..])), "{}", fact.command.name);
        }
    }
}
