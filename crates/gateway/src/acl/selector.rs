//! A selector: commands, keys and channels that are allowed together. Rules change it, and it tells the rules that come to it.

use super::facts::{Access, CATEGORIES, Fact, Facts};
use super::user::RuleError;
use crate::table::NUMBERS;
use std::collections::BTreeMap;

/// A set of commands, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandSet {
    words: Vec<u64>,
    /// Commands of later versions, too: it began with all.
    later: bool,
}

impl CommandSet {
    fn none() -> Self {
        CommandSet { words: vec![0; NUMBERS.div_ceil(64)], later: false }
    }

    fn all() -> Self {
        CommandSet { words: vec![u64::MAX; NUMBERS.div_ceil(64)], later: true }
    }

    /// True if the command with this number is in it.
    #[inline]
    pub(super) fn has(&self, number: u16) -> bool {
        self.words.get(usize::from(number) / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn put(&mut self, number: u16, is_in: bool) {
        if let Some(word) = self.words.get_mut(usize::from(number) / 64) {
            *word = *word & !(1 << (number % 64)) | u64::from(is_in) << (number % 64);
        }
    }

    fn is_full(&self) -> bool {
        self.words.iter().all(|word| *word == u64::MAX)
    }
}

/// A pattern of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPattern {
    pub(super) text: Vec<u8>,
    pub(super) access: Access,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(super) commands: CommandSet,
    /// First arguments with which commands are allowed that are not otherwise, by the commands' numbers.
    pub(super) first_arguments: BTreeMap<u16, Vec<Vec<u8>>>,
    /// `None` for all keys.
    pub(super) keys: Option<Vec<KeyPattern>>,
    /// `None` for all channels.
    pub(super) channels: Option<Vec<Vec<u8>>>,
}

impl Selector {
    /// One that allows nothing.
    pub(super) fn none() -> Self {
        let (keys, channels) = (Some(Vec::new()), Some(Vec::new()));
        Selector { commands: CommandSet::none(), first_arguments: BTreeMap::new(), keys, channels }
    }

    /// True if it allows everything.
    pub(super) fn is_all(&self) -> bool {
        self.commands.is_full() && self.keys.is_none() && self.channels.is_none()
    }

    /// Changes it by a rule.
    ///
    /// # Errors
    /// It is none, or has no effect.
    pub(super) fn apply(&mut self, rule: &[u8], facts: &Facts) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => self.keys = None,
            b"resetkeys" => self.keys = Some(Vec::new()),
            b"allchannels" | b"&*" => self.channels = None,
            b"resetchannels" => self.channels = Some(Vec::new()),
            b"allcommands" | b"+@all" => self.set_commands(CommandSet::all()),
            b"nocommands" | b"-@all" => self.set_commands(CommandSet::none()),
            _ => return self.apply_prefixed(rule, facts),
        }
        Ok(())
    }

    fn set_commands(&mut self, commands: CommandSet) {
        self.commands = commands;
        self.first_arguments.clear();
    }

    fn apply_prefixed(&mut self, rule: &[u8], facts: &Facts) -> Result<(), RuleError> {
        match rule {
            [b'~', pattern @ ..] => self.add_keys(pattern, Access::ALL),
            [b'%', rest @ ..] => {
                if self.keys.is_none() {
                    return Err(RuleError::AllKeys);
                }
                let (access, pattern) = parse_access(rest)?;
                self.add_keys(pattern, access)
            }
            [b'&', pattern @ ..] => self.add_channel(pattern),
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = Facts::category(name).ok_or(RuleError::Unknown)?;
                self.put_category(category, *sign == b'+', facts);
                Ok(())
            }
            [b'+', name @ ..] => self.allow(name, facts),
            [b'-', name @ ..] => {
                let fact = facts.named(name).ok_or(RuleError::Unknown)?;
                self.put(fact, false, facts);
                Ok(())
            }
            _ => Err(RuleError::Syntax),
        }
    }

    fn add_keys(&mut self, pattern: &[u8], access: Access) -> Result<(), RuleError> {
        let keys = self.keys.as_mut().ok_or(RuleError::AllKeys)?;
        let text = checked_pattern(pattern)?;
        match keys.iter_mut().find(|known| known.text == text) {
            Some(known) => {
                known.access.reads |= access.reads;
                known.access.writes |= access.writes;
            }
            None => keys.push(KeyPattern { text, access }),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let channels = self.channels.as_mut().ok_or(RuleError::AllChannels)?;
        let text = checked_pattern(pattern)?;
        if !channels.contains(&text) {
            channels.push(text);
        }
        Ok(())
    }

    /// `+command`, `+command|subcommand`, or `+command|first-argument`.
    fn allow(&mut self, name: &[u8], facts: &Facts) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let fact = facts.named(name).ok_or(RuleError::Unknown)?;
            self.put(fact, true, facts);
            return Ok(());
        };
        let (command, argument) = (&name[..bar], &name[bar + 1..]);
        let fact = facts.named(command).ok_or(RuleError::Unknown)?;
        if fact.is_subcommand {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        if argument.is_empty() || has_spaces(argument) {
            return Err(RuleError::Syntax);
        }
        if !fact.command.subcommands.is_empty() {
            let fact = facts.named(name).ok_or(RuleError::Unknown)?;
            self.put(fact, true, facts);
            return Ok(());
        }
        let known = self.first_arguments.entry(fact.number).or_default();
        if !known.iter().any(|known| known.eq_ignore_ascii_case(argument)) {
            known.push(argument.to_vec());
        }
        Ok(())
    }

    /// A command with its subcommands is allowed, or not.
    fn put(&mut self, fact: &Fact, is_allowed: bool, facts: &Facts) {
        self.commands.put(fact.number, is_allowed);
        self.first_arguments.remove(&fact.number);
        facts.subcommands(fact).iter().for_each(|sub| self.commands.put(sub.number, is_allowed));
    }

    fn put_category(&mut self, category: usize, is_allowed: bool, facts: &Facts) {
        for fact in facts.all().iter().filter(|fact| fact.is_in(category)) {
            self.put(fact, is_allowed, facts);
        }
    }

    /// The rules that come to what commands it allows: categories that fit best, then commands one by one.
    ///
    /// As in Redis 7.0: the given rules are not stored. They are applied to another selector as they are found.
    pub(crate) fn command_rules(&self, facts: &Facts) -> String {
        let adds = !self.commands.later;
        let (mut rules, mut made) = (String::from(if adds { "-@all" } else { "+@all" }), Selector::none());
        if !adds {
            made.commands = CommandSet::all();
        }
        let sign = if adds { '+' } else { '-' };
        let mut rest = self.clone();
        let mut applied = [false; CATEGORIES.len()];
        while let Some(best) = best_category(&rest.commands, adds, &applied, facts) {
            made.put_category(best, adds, facts);
            rest.put_category(best, !adds, facts);
            rules.extend([' ', sign, '@']);
            rules.push_str(CATEGORIES[best]);
            applied[best] = true;
        }
        for fact in facts.all() {
            let is_allowed = self.commands.has(fact.number);
            if is_allowed != made.commands.has(fact.number) {
                rules.extend([' ', if is_allowed { '+' } else { '-' }]);
                rules.push_str(fact.command.name);
                made.put(fact, is_allowed, facts);
            }
            for argument in
                self.first_arguments.get(&fact.number).into_iter().flatten().filter(|_| !is_allowed)
            {
                rules.push_str(&format!(" +{}|{}", fact.command.name, String::from_utf8_lossy(argument)));
            }
        }
        rules
    }

    /// The rules about keys, with spaces between them.
    pub(crate) fn key_rules(&self) -> Vec<u8> {
        let Some(keys) = &self.keys else { return b"~*".to_vec() };
        let rule = |pattern: &KeyPattern| {
            let prefix: &[u8] = match (pattern.access.reads, pattern.access.writes) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                (true, true) | (false, false) => b"~",
            };
            [prefix, &pattern.text].concat()
        };
        keys.iter().map(rule).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about channels, with spaces between them.
    pub(crate) fn channel_rules(&self) -> Vec<u8> {
        let Some(channels) = &self.channels else { return b"&*".to_vec() };
        channels.iter().map(|pattern| [b"&", &**pattern].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// All its rules, with spaces between them; `other` ones stand before those about commands, each with a space behind it.
    pub(super) fn describe(&self, other: &[u8], facts: &Facts) -> Vec<u8> {
        let mut rules = self.key_rules();
        if !rules.is_empty() {
            rules.push(b' ');
        }
        if self.channels.is_some() {
            rules.extend_from_slice(b"resetchannels ");
        }
        let channels = self.channel_rules();
        if !channels.is_empty() {
            rules.extend_from_slice(&channels);
            rules.push(b' ');
        }
        rules.extend_from_slice(other);
        rules.extend_from_slice(self.command_rules(facts).as_bytes());
        rules
    }
}

/// The category whose commands differ least from what is still to be said, and have more in common with it.
fn best_category(rest: &CommandSet, adds: bool, applied: &[bool], facts: &Facts) -> Option<usize> {
    let mut best: Option<(usize, usize, usize)> = None;
    for category in (0..CATEGORIES.len()).filter(|category| !applied[*category]) {
        let of = facts.all().iter().filter(|fact| fact.is_in(category));
        let (all, allowed) =
            of.fold((0, 0), |(all, allowed), fact| (all + 1, allowed + usize::from(rest.has(fact.number))));
        let same = if adds { allowed } else { all - allowed };
        let different = all - same;
        let is_better =
            best.is_none_or(|(_, least, most)| different < least || (different == least && same > most));
        if same > different && is_better {
            best = Some((category, different, same));
        }
    }
    best.map(|(category, _, _)| category)
}

/// `R~pattern`, `W~pattern` or `RW~pattern`.
fn parse_access(rest: &[u8]) -> Result<(Access, &[u8]), RuleError> {
    // As in Redis, without a tilde the pattern is empty.
    let tilde = rest.iter().position(|byte| *byte == b'~').unwrap_or(rest.len());
    let mut access = Access::default();
    for letter in &rest[..tilde] {
        let place = match letter.to_ascii_uppercase() {
            b'R' => &mut access.reads,
            b'W' => &mut access.writes,
            _ => return Err(RuleError::Syntax),
        };
        if std::mem::replace(place, true) {
            return Err(RuleError::Syntax);
        }
    }
    let pattern = rest.get(tilde + 1..).unwrap_or_default();
    if access == Access::default() { Err(RuleError::Syntax) } else { Ok((access, pattern)) }
}

/// True if rules with it would be ambiguous.
pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

fn checked_pattern(pattern: &[u8]) -> Result<Vec<u8>, RuleError> {
    if has_spaces(pattern) { Err(RuleError::Syntax) } else { Ok(pattern.to_vec()) }
}
