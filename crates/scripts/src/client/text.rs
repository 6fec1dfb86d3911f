//! The functions of the library `string` that may take long: they count their steps. The rest is Lua's own.
//!
//! Where a replacement is a function or a table, the search for the next match is here, and the loop in `client.lua`.

use super::arguments::{Arguments, define};
use super::meter::Meter;
use super::pattern::Matcher;
use memchr::memmem;
use mlua::{Error, Lua, LuaString, MultiValue, Table, Value};

/// The longest string that is built here, in bytes; the interpreter's memory sets a narrower limit.
const MAX_BYTES: usize = 64 << 20;
/// How many bytes are copied or searched in the time of an instruction.
const BYTES_PER_STEP: usize = 16;
const SPECIAL: &[u8] = b"^$*+?.([%-";

/// The functions.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    define(lua, &library, "find", |arguments| find(arguments, true))?;
    define(lua, &library, "match", |arguments| find(arguments, false))?;
    define(lua, &library, "gmatch", |arguments| Ok((arguments.string(1)?, arguments.string(2)?)))?;
    define(lua, &library, "gsub", gsub)?;
    define(lua, &library, "next_match", next_match)?;
    define(lua, &library, "rep", repeat)?;
    define(lua, &library, "upper", |arguments| changed(arguments, |text| text.make_ascii_uppercase()))?;
    define(lua, &library, "lower", |arguments| changed(arguments, |text| text.make_ascii_lowercase()))?;
    define(lua, &library, "reverse", |arguments| changed(arguments, |text| text.reverse()))?;
    Ok(library)
}

fn count_bytes(meter: &Meter, bytes: usize) -> mlua::Result<()> {
    meter.count((bytes / BYTES_PER_STEP) as u64)
}

fn changed(arguments: &Arguments, change: impl FnOnce(&mut Vec<u8>)) -> mlua::Result<LuaString> {
    let mut text = arguments.string(1)?.as_bytes().to_vec();
    count_bytes(arguments.meter, text.len())?;
    change(&mut text);
    arguments.lua.create_string(text)
}

/// `rep(text, times)`.
fn repeat(arguments: &Arguments) -> mlua::Result<LuaString> {
    let text = arguments.string(1)?;
    let times = usize::try_from(arguments.int(2)?).unwrap_or(0);
    let size = text.as_bytes().len().saturating_mul(times);
    if size > MAX_BYTES {
        return Err(Error::MemoryError("not enough memory".to_owned()));
    }
    count_bytes(arguments.meter, size)?;
    let times = if size == 0 { 0 } else { times };
    arguments.lua.create_string(text.as_bytes().repeat(times))
}

/// `find(text, pattern, from, is_plain)` and `match(text, pattern, from)`.
fn find(arguments: &Arguments, is_find: bool) -> mlua::Result<MultiValue> {
    let (subject, pattern) = (arguments.string(1)?, arguments.string(2)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let from = place(arguments.integer_or(3, 1)?, subject.len());
    let is_special = |byte: &u8| SPECIAL.contains(byte);
    let shown = pattern.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_plain = !matches!(arguments.value(4), Value::Nil | Value::Boolean(false));
    if is_find && (is_plain || !shown.iter().any(is_special)) {
        count_bytes(arguments.meter, subject.len() - from + pattern.len())?;
        let found = memmem::find(&subject[from..], &pattern).map(|offset| from + offset);
        return Ok(match found {
            Some(start) => span(start, start + pattern.len()),
            None => MultiValue::from_iter([Value::Nil]),
        });
    }
    let (pattern, is_anchored) = anchor(&pattern);
    let mut matcher = Matcher::new(&subject, pattern, arguments.meter);
    let Some(whole) = matcher.search(from, is_anchored)? else {
        return Ok(MultiValue::from_iter([Value::Nil]));
    };
    let mut values = if is_find { span(whole.0, whole.1) } else { MultiValue::new() };
    let captures = matcher.captures().max(usize::from(!is_find));
    for index in 0..captures {
        values.push_back(matcher.capture(arguments.lua, index, whole)?);
    }
    Ok(values)
}

/// Where a text begins and where it ends, as Lua counts.
fn span(start: usize, end: usize) -> MultiValue {
    MultiValue::from_iter([start as f64 + 1.0, end as f64].map(Value::Number))
}

/// The pattern without the sign that it only matches at the beginning, and whether it had it.
fn anchor(pattern: &[u8]) -> (&[u8], bool) {
    pattern.strip_prefix(b"^").map_or((pattern, false), |rest| (rest, true))
}

/// The place that an argument means, of which a negative one counts from the end; from 0.
fn place(from: i64, length: usize) -> usize {
    let from = if from < 0 { from.saturating_add_unsigned(length as u64 + 1) } else { from };
    usize::try_from(from.saturating_sub(1)).unwrap_or(0).min(length)
}

/// `next_match(text, pattern, from, is_anchored)`: where the next match begins and ends, with its captures, or all of it if
/// there are none. Nothing if there is no match.
fn next_match(arguments: &Arguments) -> mlua::Result<MultiValue> {
    let (subject, pattern) = (arguments.string(1)?, arguments.string(2)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let from = usize::try_from(arguments.integer(3)? - 1).unwrap_or(0);
    let is_anchored = *arguments.value(4) == Value::Boolean(true);
    let mut matcher = Matcher::new(&subject, &pattern, arguments.meter);
    let Some(whole) = matcher.search(from, is_anchored)? else { return Ok(MultiValue::new()) };
    let mut values = span(whole.0, whole.1);
    for index in 0..matcher.captures().max(1) {
        values.push_back(matcher.capture(arguments.lua, index, whole)?);
    }
    Ok(values)
}

/// `gsub(text, pattern, replacement, most)` where the replacement is a string.
fn gsub(arguments: &Arguments) -> mlua::Result<MultiValue> {
    let (subject, pattern) = (arguments.string(1)?, arguments.string(2)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let most = match arguments.value(4) {
        Value::Nil => usize::MAX,
        _ => usize::try_from(arguments.int(4)?).unwrap_or(0),
    };
    let replacement = arguments.string(3).map_err(|_| arguments.bad(3, "string/function/table expected"))?;
    let replacement = replacement.as_bytes();
    let (pattern, is_anchored) = anchor(&pattern);
    let mut matcher = Matcher::new(&subject, pattern, arguments.meter);
    let (mut output, mut place, mut count) = (Vec::new(), 0, 0);
    while count < most {
        let Some(whole) = matcher.search(place, is_anchored)? else { break };
        count += 1;
        extend(arguments.meter, &mut output, &subject[place..whole.0])?;
        replace(arguments, &matcher, whole, &replacement, &mut output)?;
        place = whole.1;
        if whole.0 == whole.1 {
            let Some(byte) = subject.get(place) else { break };
            output.push(*byte);
            place += 1;
        }
        if is_anchored {
            break;
        }
    }
    extend(arguments.meter, &mut output, &subject[place..])?;
    let replaced = Value::String(arguments.lua.create_string(output)?);
    Ok(MultiValue::from_iter([replaced, Value::Number(count as f64)]))
}

/// Appends what a match is replaced by: `%0` is all of it, `%1` its first capture.
fn replace(
    arguments: &Arguments,
    matcher: &Matcher,
    whole: (usize, usize),
    replacement: &[u8],
    output: &mut Vec<u8>,
) -> mlua::Result<()> {
    let mut rest = replacement;
    while let Some(length) = rest.iter().position(|byte| *byte == b'%') {
        extend(arguments.meter, output, &rest[..length])?;
        let index = match rest.get(length + 1).copied().unwrap_or(0) {
            b'0' => None,
            digit @ b'1'..=b'9' => Some(usize::from(digit - b'1')),
            other => {
                output.push(other);
                rest = rest.get(length + 2..).unwrap_or_default();
                continue;
            }
        };
        rest = &rest[length + 2..];
        let capture = match index {
            Some(index) => matcher.capture(arguments.lua, index, whole)?,
            None => matcher.whole(arguments.lua, whole)?,
        };
        if let Some(text) = arguments.lua.coerce_string(capture)? {
            extend(arguments.meter, output, &text.as_bytes())?;
        }
    }
    extend(arguments.meter, output, rest)
}

fn extend(meter: &Meter, output: &mut Vec<u8>, bytes: &[u8]) -> mlua::Result<()> {
    if output.len() + bytes.len() > MAX_BYTES {
        return Err(Error::MemoryError("not enough memory".to_owned()));
    }
    count_bytes(meter, bytes.len())?;
    output.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::bit::tests::expect;
    use super::library;

    #[test]
    fn patterns_match_as_in_lua() {
        let results = [
            ("text.find('hello world', 'o w')", "5 7"),
            ("text.find('hello', 'l', -2)", "4 4"),
            ("text.find('a.b', '.', 2, true)", "2 2"),
            ("text.find('', ''), text.find('abc', '', 10)", "1 4 3"),
            ("text.find('abc', 'b()')", "2 2 3"),
            ("text.match('key = value', '(%w+)%s*=%s*(%w+)')", "key value"),
            ("text.match('2024-01-02', '^(%d+)-(%d+)-(%d+)$')", "2024 01 02"),
            ("text.match('aaab', 'a-b'), text.match('aaab', 'a*'), text.match('b', 'a?b')", "aaab aaa b"),
            (
                "text.match('f(a(b)c)d', '%b()'), text.match('THE (quick) fox', '%f[%a]%a+', 5)",
                "(a(b)c) quick",
            ),
            ("text.match('\"x\" \\'y\\'', '([\"\\'])(.-)%1')", "\" x"),
            ("text.match('x]', '[]]'), text.match('a-c', '[a%-]+'), text.match('b', '[^a]')", "] a- b"),
            (r"text.match('a\0b', '%z'), text.match('aaa', 'a\0b')", "<00> a"),
            ("text.match('abc', '((a)(b))')", "ab a b"),
            ("text.match('abc', '%d')", "nil"),
        ];
        expect("text", library, &results);
    }

    #[test]
    fn matches_are_replaced_as_in_lua() {
        let results = [
            ("text.gsub('hello world', 'o', '0')", "hell0 w0rld 2"),
            ("text.gsub('hello', '', '-')", "-h-e-l-l-o- 6"),
            ("text.gsub('abc', '%w', '%0%0', 2)", "aabbc 2"),
            ("text.gsub('a b', '(%w) (%w)', '%2 %1')", "b a 1"),
            ("text.gsub('abc', '^a', 'x'), text.gsub('abc', '$', '%%')", "xbc abc% 1"),
            ("text.gsub('ab', '()', '%1')", "1a2b3 3"),
            ("text.gsub('abc', 'x*', '-', -1)", "abc 0"),
        ];
        expect("text", library, &results);
    }

    #[test]
    fn patterns_that_are_none_are_refused() {
        let results = [
            ("text.find('a', '[a')", "malformed pattern (missing ']')"),
            ("text.find('a', '%')", "malformed pattern (ends with '%')"),
            ("text.find('a', '(a')", "unfinished capture"),
            ("text.find('a', '.)')", "invalid pattern capture"),
            ("text.find('a', '%1')", "invalid capture index"),
            ("text.find('a', '%f')", "missing '[' after '%f' in pattern"),
            ("text.find('(', '%b')", "unbalanced pattern"),
            ("text.find('a', ('()'):rep(33))", "too many captures"),
            ("text.find(('a'):rep(300), ('a?'):rep(300))", "pattern too complex"),
            ("text.gsub('abc', 'a', '%2')", "invalid capture index"),
            ("text.gsub('abc', 'a')", "bad argument #3 to 'gsub' (string/function/table expected)"),
            ("text.find('a')", "bad argument #2 to 'find' (string expected, got no value)"),
        ];
        expect("text", library, &results);
    }
}
