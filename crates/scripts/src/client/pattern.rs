//! Patterns of Lua 5.1, matched as its library does, except that a search counts its steps: it pauses where others should
//! have their turn, and ends with the script.
//!
//! A pattern ends with its first zero byte, `%z` matches one.

use super::meter::Meter;
use mlua::{Error, Lua, Value};

/// How many captures a pattern has at most.
const MAX_CAPTURES: usize = 32;
/// How deep a match recurs: as deep as the pattern has captures and repetitions. Lua 5.1 has no such limit.
const MAX_DEPTH: usize = 200;

/// Where a capture begins, and what it is.
#[derive(Clone, Copy, Debug)]
struct Capture {
    start: usize,
    extent: Extent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Unfinished,
    Position,
    Length(usize),
}

/// A search of a pattern in a subject. Places count from 0.
pub(super) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    meter: &'a Meter,
    captures: [Capture; MAX_CAPTURES],
    level: usize,
    depth: usize,
}

impl<'a> Matcher<'a> {
    pub fn new(subject: &'a [u8], pattern: &'a [u8], meter: &'a Meter) -> Self {
        let pattern = pattern.split(|byte| *byte == 0).next().unwrap_or_default();
        let captures = [Capture { start: 0, extent: Extent::Unfinished }; MAX_CAPTURES];
        Matcher { subject, pattern, meter, captures, level: 0, depth: 0 }
    }

    /// The first match from a place on, or at that place: where it begins and where it ends.
    pub fn search(&mut self, from: usize, is_anchored: bool) -> mlua::Result<Option<(usize, usize)>> {
        for start in from..=self.subject.len() {
            self.level = 0;
            if let Some(end) = self.match_at(start, 0)? {
                return Ok(Some((start, end)));
            }
            if is_anchored {
                break;
            }
        }
        Ok(None)
    }

    /// How many captures a match has.
    pub fn captures(&self) -> usize {
        self.level
    }

    /// A capture of the last match, or all of it if it is the first and there is none.
    pub fn capture(&self, lua: &Lua, index: usize, whole: (usize, usize)) -> mlua::Result<Value> {
        let (start, end) = match self.captures[..self.level].get(index) {
            None if index == 0 => whole,
            None => return Err(Error::runtime("invalid capture index")),
            Some(Capture { extent: Extent::Unfinished, .. }) => {
                return Err(Error::runtime("unfinished capture"));
            }
            Some(Capture { start, extent: Extent::Position }) => {
                return Ok(Value::Number(*start as f64 + 1.0));
            }
            Some(Capture { start, extent: Extent::Length(length) }) => (*start, start + length),
        };
        self.whole(lua, (start, end))
    }

    /// What stands between two places.
    pub fn whole(&self, lua: &Lua, (start, end): (usize, usize)) -> mlua::Result<Value> {
        Ok(Value::String(lua.create_string(&self.subject[start..end])?))
    }

    /// A byte of the pattern; zero behind its end.
    fn at(&self, place: usize) -> u8 {
        self.pattern.get(place).copied().unwrap_or(0)
    }

    /// The end of the match of the rest of the pattern at this place of the subject.
    fn match_at(&mut self, place: usize, item: usize) -> mlua::Result<Option<usize>> {
        if self.depth == MAX_DEPTH {
            return Err(Error::runtime("pattern too complex"));
        }
        self.depth += 1;
        let end = self.match_items(place, item)?;
        self.depth -= 1;
        Ok(end)
    }

    fn match_items(&mut self, mut place: usize, mut item: usize) -> mlua::Result<Option<usize>> {
        loop {
            self.meter.count(1)?;
            let moved = match (self.at(item), self.at(item + 1)) {
                (0, _) => return Ok(Some(place)),
                (b'(', b')') => return self.open(place, item + 2, Extent::Position),
                (b'(', _) => return self.open(place, item + 1, Extent::Unfinished),
                (b')', _) => return self.close(place, item + 1),
                (b'$', 0) => return Ok((place == self.subject.len()).then_some(place)),
                (b'%', b'b') => self.balanced(place, item + 2)?.map(|place| (place, item + 4)),
                (b'%', b'f') => self.frontier(place, item + 2)?.map(|item| (place, item)),
                (b'%', digit @ b'0'..=b'9') => self.captured(place, digit)?.map(|place| (place, item + 2)),
                _ => {
                    let next = self.class_end(item)?;
                    match self.at(next) {
                        b'*' => return self.longest(place, item, next),
                        b'-' => return self.shortest(place, item, next),
                        b'+' => match self.is_single(place, item, next)? {
                            true => return self.longest(place + 1, item, next),
                            false => None,
                        },
                        b'?' => {
                            if self.is_single(place, item, next)?
                                && let Some(end) = self.match_at(place + 1, next + 1)?
                            {
                                return Ok(Some(end));
                            }
                            Some((place, next + 1))
                        }
                        _ => self.is_single(place, item, next)?.then_some((place + 1, next)),
                    }
                }
            };
            let Some(goes_on) = moved else { return Ok(None) };
            (place, item) = goes_on;
        }
    }

    fn open(&mut self, place: usize, item: usize, extent: Extent) -> mlua::Result<Option<usize>> {
        let capture = self.captures.get_mut(self.level).ok_or_else(|| Error::runtime("too many captures"))?;
        *capture = Capture { start: place, extent };
        self.level += 1;
        let end = self.match_at(place, item)?;
        if end.is_none() {
            self.level -= 1;
        }
        Ok(end)
    }

    fn close(&mut self, place: usize, item: usize) -> mlua::Result<Option<usize>> {
        let open =
            self.captures[..self.level].iter().rposition(|capture| capture.extent == Extent::Unfinished);
        let open = open.ok_or_else(|| Error::runtime("invalid pattern capture"))?;
        self.captures[open].extent = Extent::Length(place - self.captures[open].start);
        let end = self.match_at(place, item)?;
        if end.is_none() {
            self.captures[open].extent = Extent::Unfinished;
        }
        Ok(end)
    }

    /// Behind what the capture of this digit matched, if it stands here again.
    fn captured(&self, place: usize, digit: u8) -> mlua::Result<Option<usize>> {
        let known = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = known.and_then(|index| self.captures[..self.level].get(index));
        let invalid = || Error::runtime("invalid capture index");
        let capture = capture.filter(|capture| capture.extent != Extent::Unfinished).ok_or_else(invalid)?;
        let Extent::Length(length) = capture.extent else { return Ok(None) };
        self.meter.count(1 + length as u64 / 16)?;
        let text = &self.subject[capture.start..capture.start + length];
        Ok(self.subject[place..].starts_with(text).then_some(place + length))
    }

    /// Behind a text that begins with one byte and ends with another, with as many of both between.
    fn balanced(&self, place: usize, item: usize) -> mlua::Result<Option<usize>> {
        let (opens, closes) = (self.at(item), self.at(item + 1));
        if opens == 0 || closes == 0 {
            return Err(Error::runtime("unbalanced pattern"));
        }
        if self.subject.get(place).copied().unwrap_or(0) != opens {
            return Ok(None);
        }
        let mut open = 1_usize;
        for (offset, byte) in self.subject[place + 1..].iter().enumerate() {
            self.meter.count(1)?;
            if *byte == closes {
                open -= 1;
                if open == 0 {
                    return Ok(Some(place + offset + 2));
                }
            } else if *byte == opens {
                open += 1;
            }
        }
        Ok(None)
    }

    /// Behind the set, if this place is where bytes of it begin.
    fn frontier(&self, place: usize, item: usize) -> mlua::Result<Option<usize>> {
        if self.at(item) != b'[' {
            return Err(Error::runtime("missing '[' after '%f' in pattern"));
        }
        let next = self.class_end(item)?;
        let byte_at =
            |place: Option<usize>| place.and_then(|place| self.subject.get(place)).copied().unwrap_or(0);
        let is_in = |byte| self.is_in_set(byte, item, next - 1);
        Ok((!is_in(byte_at(place.checked_sub(1))) && is_in(byte_at(Some(place)))).then_some(next))
    }

    /// As many as there are, and then fewer until the rest matches.
    fn longest(&mut self, place: usize, item: usize, next: usize) -> mlua::Result<Option<usize>> {
        let mut end = place;
        while self.is_single(end, item, next)? {
            end += 1;
        }
        for end in (place..=end).rev() {
            if let Some(end) = self.match_at(end, next + 1)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// As few as the rest matches behind.
    fn shortest(&mut self, mut place: usize, item: usize, next: usize) -> mlua::Result<Option<usize>> {
        loop {
            if let Some(end) = self.match_at(place, next + 1)? {
                return Ok(Some(end));
            }
            if !self.is_single(place, item, next)? {
                return Ok(None);
            }
            place += 1;
        }
    }

    /// Where the class that begins here ends.
    fn class_end(&self, item: usize) -> mlua::Result<usize> {
        match self.at(item) {
            b'%' if self.at(item + 1) == 0 => Err(Error::runtime("malformed pattern (ends with '%')")),
            b'%' => Ok(item + 2),
            b'[' => {
                let mut place = item + if self.at(item + 1) == b'^' { 2 } else { 1 };
                loop {
                    let byte = self.at(place);
                    if byte == 0 {
                        return Err(Error::runtime("malformed pattern (missing ']')"));
                    }
                    place += if byte == b'%' && self.at(place + 1) != 0 { 2 } else { 1 };
                    if self.at(place) == b']' {
                        return Ok(place + 1);
                    }
                }
            }
            _ => Ok(item + 1),
        }
    }

    /// True if the class matches the byte at this place.
    fn is_single(&self, place: usize, item: usize, next: usize) -> mlua::Result<bool> {
        self.meter.count((next - item) as u64)?;
        let Some(byte) = self.subject.get(place).copied() else { return Ok(false) };
        Ok(match self.at(item) {
            b'.' => true,
            b'%' => is_of_class(byte, self.at(item + 1)),
            b'[' => self.is_in_set(byte, item, next - 1),
            other => byte == other,
        })
    }

    /// True if a byte is in the set between these places, which are those of the brackets.
    fn is_in_set(&self, byte: u8, item: usize, end: usize) -> bool {
        let is_complement = self.at(item + 1) == b'^';
        let mut place = item + if is_complement { 2 } else { 1 };
        while place < end {
            let is_match = match (self.at(place), self.at(place + 1)) {
                (b'%', class) => {
                    place += 2;
                    is_of_class(byte, class)
                }
                (first, b'-') if place + 2 < end => {
                    place += 3;
                    (first..=self.at(place - 1)).contains(&byte)
                }
                (other, _) => {
                    place += 1;
                    byte == other
                }
            };
            if is_match {
                return !is_complement;
            }
        }
        is_complement
    }
}

/// True if the letter of a class stands for this byte; others stand for themselves.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_match = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is_match != class.is_ascii_uppercase()
}
