//! The modes of abstract locks.

use crate::user;
use types::{Malformed, Reader, Wire};

/// The lock modes of abstract locks (Claret 5.1.1), coarser than [`crate::commutes`]: holders of compatible modes
/// always commute, whatever their arguments. `Place` and `PlaceFields` are modes of a [`crate::Claim`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Observes.
    Observe,
    /// Adds members to a set.
    Add,
    /// Removes members from a set.
    Remove,
    /// Adds to an integer register.
    Increment,
    /// Adds to integer fields of a dict.
    IncrementFields,
    /// Adds to a counter.
    Count,
    /// Adds to a summary bag.
    Summarize,
    /// Adds members to a top.
    Rank,
    /// Makes a key a generator of identifiers.
    Identify,
    /// Changes anything else.
    Write,
    /// Gives members of a scored set their scores, each under a lock of its own ([`crate::Claim`]).
    Place,
    /// Writes fields of a dict, each under a lock of its own.
    PlaceFields,
    /// Is one command by itself, which a leader puts behind those before it in its log. No operation asks for it.
    Single,
    /// What a user-defined type's author has declared.
    User(user::Mode),
}

impl Mode {
    /// Every mode of the built-in types, in the order of their binary forms.
    pub const BUILT_IN: [Mode; 12] = [
        Mode::Observe,
        Mode::Add,
        Mode::Remove,
        Mode::Increment,
        Mode::IncrementFields,
        Mode::Count,
        Mode::Summarize,
        Mode::Rank,
        Mode::Identify,
        Mode::Write,
        Mode::Place,
        Mode::PlaceFields,
    ];

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Observe => "observe",
            Mode::Add => "add",
            Mode::Remove => "remove",
            Mode::Increment => "increment",
            Mode::IncrementFields => "increment-fields",
            Mode::Count => "count",
            Mode::Summarize => "summarize",
            Mode::Rank => "rank",
            Mode::Identify => "identify",
            Mode::Write => "write",
            Mode::Place => "place",
            Mode::PlaceFields => "place-fields",
            Mode::Single => "single",
            Mode::User(mode) => mode.name(),
        }
    }

    /// The place of a mode of the built-in types among them; after the last of them for all others. It is the first byte of
    /// its binary form.
    fn number(self) -> u8 {
        match self {
            Mode::Observe => 0,
            Mode::Add => 1,
            Mode::Remove => 2,
            Mode::Increment => 3,
            Mode::IncrementFields => 4,
            Mode::Count => 5,
            Mode::Summarize => 6,
            Mode::Rank => 7,
            Mode::Identify => 8,
            Mode::Write => 9,
            Mode::Place => 10,
            Mode::PlaceFields => 11,
            Mode::User(_) => 12,
            Mode::Single => 13,
        }
    }

    /// True when holders of the two modes always commute: a mode with itself, unless it is `Write`; those that look only;
    /// and what a user-defined type says. Those that place do so since nobody has another one's element, and single commands
    /// since their leader evaluates each on what those before it do.
    pub fn compatible(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::User(a), Mode::User(b)) => a.compatible(b),
            (Mode::User(mode), Mode::Observe) | (Mode::Observe, Mode::User(mode)) => mode.only_reads(),
            _ => self == other && self != Mode::Write,
        }
    }

    /// True if who has this one needs nothing more for the other one: whatever it is compatible with, so is that.
    pub fn covers(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::Observe, Mode::User(mode)) => mode.only_reads(),
            _ => self == other || self == Mode::Write,
        }
    }

    /// The mode that is enough for both.
    pub fn and(self, other: Mode) -> Mode {
        match (self.covers(other), other.covers(self)) {
            (true, _) => self,
            (false, true) => other,
            (false, false) => Mode::Write,
        }
    }
}

impl Wire for Mode {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.number());
        if let Mode::User(mode) = self {
            mode.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let number = input.byte()?;
        match Mode::BUILT_IN.get(usize::from(number)) {
            Some(mode) => Ok(*mode),
            None if usize::from(number) == Mode::BUILT_IN.len() => user::Mode::decode(input).map(Mode::User),
            None if number == Mode::Single.number() => Ok(Mode::Single),
            None => Err(Malformed("lock mode")),
        }
    }
}

/// A set of modes that one transaction holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Of the built-in types and of single commands, a bit for each.
    built_in: u16,
    user: Option<user::Modes>,
}

impl Modes {
    /// These and one more. Who holds modes of two user-defined types holds the lock alone, since no mode of the one is
    /// compatible with any of the other: that is `Write`.
    pub fn with(self, mode: Mode) -> Self {
        let built_in = |mode: Mode| Modes { built_in: self.built_in | 1 << mode.number(), ..self };
        let Mode::User(mode) = mode else { return built_in(mode) };
        match self.user.map_or(Some(mode.into()), |others| others.with(mode)) {
            Some(user) => Modes { user: Some(user), ..self },
            None => built_in(Mode::Write),
        }
    }

    /// All of them.
    fn iter(self) -> impl Iterator<Item = Mode> {
        let others = Mode::BUILT_IN.into_iter().chain([Mode::Single]);
        let others = others.filter(move |mode| self.built_in >> mode.number() & 1 == 1);
        others.chain(self.user.into_iter().flat_map(|modes| modes.iter().map(Mode::User)))
    }

    /// True if who holds these needs nothing more for a mode.
    pub fn cover(self, mode: Mode) -> bool {
        match mode {
            Mode::User(_) => self.iter().any(|held| held.covers(mode)),
            _ => self.built_in & (1 << mode.number() | 1 << Mode::Write.number()) != 0,
        }
    }

    /// True if nobody else may have the lock in this mode.
    pub fn conflict(self, mode: Mode) -> bool {
        self.against(mode).is_some()
    }

    /// The first of them that conflicts with this one.
    pub fn against(self, mode: Mode) -> Option<Mode> {
        self.iter().find(|held| !held.compatible(mode))
    }
}
