//! Reading JSON.

use super::super::arguments::Arguments;
use super::super::meter::Meter;
use super::Options;
use mlua::{Error, Lua, LuaString, Table, Value};

/// How many instructions a token counts, and how many bytes of a string count as one.
const TOKEN: u64 = 3;
const BYTES_PER_STEP: usize = 16;

/// The value that a text is.
pub(super) fn decode(arguments: &Arguments, options: Options, text: &[u8]) -> mlua::Result<Value> {
    if text.len() >= 2 && text[..2].contains(&0) {
        return Err(Error::runtime("JSON parser does not support UTF-16 or UTF-32"));
    }
    let (lua, meter) = (arguments.lua, arguments.meter);
    Decoder { lua, meter, options, text, at: 0, unescaped: Vec::new(), open: Vec::new() }.decode()
}

/// Reads a text. It reads a zero byte where the text ends, and ends where it reads one.
struct Decoder<'t> {
    lua: &'t Lua,
    meter: &'t Meter,
    options: Options,
    text: &'t [u8],
    at: usize,
    /// A string without its escapes.
    unescaped: Vec<u8>,
    /// The tables that are not complete, each in the one before.
    open: Vec<Open>,
}

struct Open {
    table: Table,
    next: Next,
}

/// What is to come in a table.
enum Next {
    /// The element of this place.
    Element(i64),
    /// The member of this name.
    Member(LuaString),
}

enum Token {
    Scalar(Value),
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Token {
    /// What lua-cjson calls it in errors.
    fn name(&self) -> &'static str {
        match self {
            Token::Scalar(Value::String(_)) => "T_STRING",
            Token::Scalar(Value::Boolean(_)) => "T_BOOLEAN",
            Token::Scalar(Value::LightUserData(_)) => "T_NULL",
            Token::Scalar(_) => "T_NUMBER",
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Wrong(reason) => reason,
        }
    }
}

impl Decoder<'_> {
    /// The value that the text is.
    fn decode(&mut self) -> mlua::Result<Value> {
        let mut token = self.next()?;
        loop {
            let value = match token {
                (Token::Scalar(value), _) => value,
                (Token::ArrayBegin, _) => match self.begin()? {
                    (table, (Token::ArrayEnd, _)) => Value::Table(table),
                    (table, first) => {
                        self.open.push(Open { table, next: Next::Element(1) });
                        token = first;
                        continue;
                    }
                },
                (Token::ObjectBegin, _) => match self.begin()? {
                    (table, (Token::ObjectEnd, _)) => Value::Table(table),
                    (table, first) => {
                        let next = Next::Member(self.name(first)?);
                        self.open.push(Open { table, next });
                        token = self.next()?;
                        continue;
                    }
                },
                other => return Err(unexpected("value", &other)),
            };
            match self.put(value)? {
                Some(whole) => return Ok(whole),
                None => token = self.next()?,
            }
        }
    }

    /// A table is open: the token behind.
    fn begin(&mut self) -> mlua::Result<(Table, (Token, usize))> {
        let depth = self.open.len() + 1;
        if depth > self.options.decode_depth() {
            let text = format!("Found too many nested data structures ({depth}) at character {}", self.at);
            return Err(Error::runtime(text));
        }
        Ok((self.lua.create_table()?, self.next()?))
    }

    /// The name of a member, and the colon behind.
    fn name(&mut self, token: (Token, usize)) -> mlua::Result<LuaString> {
        let (Token::Scalar(Value::String(name)), _) = token else {
            return Err(unexpected("object key string", &token));
        };
        match self.next()? {
            (Token::Colon, _) => Ok(name),
            other => Err(unexpected("colon", &other)),
        }
    }

    /// Puts a value into the table that it is in, and that into its own if it is complete. `None` if another value is to
    /// come.
    fn put(&mut self, mut value: Value) -> mlua::Result<Option<Value>> {
        while let Some(mut open) = self.open.pop() {
            let is_array = matches!(open.next, Next::Element(_));
            match &mut open.next {
                Next::Element(place) => {
                    open.table.raw_set(*place, value)?;
                    *place += 1;
                }
                Next::Member(name) => open.table.raw_set(&*name, value)?,
            }
            match (self.next()?, is_array) {
                ((Token::ArrayEnd, _), true) | ((Token::ObjectEnd, _), false) => {
                    value = Value::Table(open.table)
                }
                ((Token::Comma, _), is_array) => {
                    if !is_array {
                        let first = self.next()?;
                        open.next = Next::Member(self.name(first)?);
                    }
                    self.open.push(open);
                    return Ok(None);
                }
                (other, true) => return Err(unexpected("comma or array end", &other)),
                (other, false) => return Err(unexpected("comma or object end", &other)),
            }
        }
        match self.next()? {
            (Token::End, _) => Ok(Some(value)),
            other => Err(unexpected("the end", &other)),
        }
    }

    /// The next token, and where it begins; if it is wrong, where it is that.
    fn next(&mut self) -> mlua::Result<(Token, usize)> {
        self.meter.count(TOKEN)?;
        while matches!(self.byte(), b' ' | b'\t' | b'\n' | b'\r') {
            self.meter.count(1)?;
            self.at += 1;
        }
        let start = self.at;
        let simple = match self.byte() {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            0 => return Ok((Token::End, start)),
            b'"' => {
                self.at += 1;
                let token = self.string()?;
                let at = if matches!(token, Token::Wrong(_)) { self.at } else { start };
                return Ok((token, at));
            }
            _ => return Ok((self.word()?, start)),
        };
        self.at += 1;
        Ok((simple, start))
    }

    fn byte(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// A word or a number.
    fn word(&mut self) -> mlua::Result<Token> {
        let words = [("true", Value::Boolean(true)), ("false", Value::Boolean(false)), ("null", Value::NULL)];
        for (word, value) in words {
            if self.rest().starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(Token::Scalar(value));
            }
        }
        if !self.options.decode_invalid && is_invalid(self.rest()) {
            return Ok(Token::Wrong(match self.byte() {
                b'-' | b'0'..=b'9' => "invalid number",
                _ => "invalid token",
            }));
        }
        if self.byte() != b'.'
            && let Some((value, length)) = number(self.lua, self.rest())?
        {
            self.at += length;
            return Ok(Token::Scalar(value));
        }
        Ok(Token::Wrong(match self.byte() {
            b'+' | b'-' => "invalid number",
            _ => "invalid token",
        }))
    }

    /// A string, from behind its first quotation mark.
    fn string(&mut self) -> mlua::Result<Token> {
        self.unescaped.clear();
        loop {
            // What is read stays while more is written.
            let rest = self.text.get(self.at..).unwrap_or_default();
            let length = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0)).unwrap_or(rest.len());
            let plain = &rest[..length];
            self.meter.count(1 + (length / BYTES_PER_STEP) as u64)?;
            self.at += length;
            match self.byte() {
                b'"' => {
                    self.at += 1;
                    if self.unescaped.is_empty() {
                        return Ok(Token::Scalar(Value::String(self.lua.create_string(plain)?)));
                    }
                    self.unescaped.extend_from_slice(plain);
                    return Ok(Token::Scalar(Value::String(self.lua.create_string(&self.unescaped)?)));
                }
                b'\\' => self.unescaped.extend_from_slice(plain),
                _ => return Ok(Token::Wrong("unexpected end of string")),
            }
            let (character, length) = match self.rest().get(1).copied().unwrap_or(0) {
                byte @ (b'"' | b'\\' | b'/') => (char::from(byte), 2),
                b'b' => ('\u{8}', 2),
                b't' => ('\t', 2),
                b'n' => ('\n', 2),
                b'f' => ('\u{c}', 2),
                b'r' => ('\r', 2),
                b'u' => match unicode(self.rest()) {
                    Some(escaped) => escaped,
                    None => return Ok(Token::Wrong("invalid unicode escape code")),
                },
                _ => return Ok(Token::Wrong("invalid escape code")),
            };
            self.unescaped.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            self.at += length;
        }
    }
}

fn unexpected(wanted: &str, (token, at): &(Token, usize)) -> Error {
    Error::runtime(format!("Expected {wanted} but found {} at character {}", token.name(), at + 1))
}

/// The character that `\uXXXX` is, or two of these, and how long they are.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        digits.iter().try_fold(0, |unit, byte| Some(unit << 4 | digit(byte)?))
    };
    let first = unit(0)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    // Of two halves, the second.
    let second = unit(6).filter(|second| first < 0xdc00 && (0xdc00..0xe000).contains(second))?;
    char::from_u32(0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff)).map(|character| (character, 12))
}

/// True if a text begins with a number that JSON does not know, though C does.
fn is_invalid(text: &[u8]) -> bool {
    let body = text.strip_prefix(b"-").unwrap_or(text);
    match body {
        [b'+', ..] => true,
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        [b'.'..=b'9', ..] => false,
        _ => body
            .get(..3)
            .is_some_and(|word| [b"inf", b"nan"].iter().any(|name| word.eq_ignore_ascii_case(*name))),
    }
}

/// The number that a text begins with, as C's `strtod` reads it, and how long it is.
fn number(lua: &Lua, text: &[u8]) -> mlua::Result<Option<(Value, usize)>> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let is_negative = text.first() == Some(&b'-');
    let body = &text[sign..];
    let has = |word: &[u8]| body.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let signed = |number: f64| Value::Number(if is_negative { -number } else { number });
    if has(b"inf") {
        let length = if has(b"infinity") { 8 } else { 3 };
        return Ok(Some((signed(f64::INFINITY), sign + length)));
    }
    if has(b"nan") {
        return Ok(Some((signed(f64::NAN), sign + 3)));
    }
    if has(b"0x")
        && let Some(length) = extent(&body[2..], u8::is_ascii_hexdigit, b'p')
    {
        let digits = &text[..sign + 2 + length];
        let value = lua.coerce_number(Value::String(lua.create_string(digits)?))?;
        return Ok(value.map(|value| (Value::Number(value), digits.len())));
    }
    let Some(length) = extent(body, u8::is_ascii_digit, b'e') else { return Ok(None) };
    let length = sign + length;
    let digits = std::str::from_utf8(&text[..length]).unwrap_or_default();
    Ok(Some((Value::Number(digits.parse().unwrap_or(f64::NAN)), length)))
}

/// How long digits are, with a point between or beside them and an exponent behind; `None` if there are no digits.
fn extent(text: &[u8], is_digit: fn(&u8) -> bool, exponent: u8) -> Option<usize> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| is_digit(byte)).count();
    let whole = digits(0);
    let fraction = if text.get(whole) == Some(&b'.') { digits(whole + 1) } else { 0 };
    if whole + fraction == 0 {
        return None;
    }
    let mut length = whole;
    if text.get(whole) == Some(&b'.') {
        length += 1 + fraction;
    }
    if text.get(length).is_some_and(|byte| byte.eq_ignore_ascii_case(&exponent)) {
        let sign = usize::from(matches!(text.get(length + 1), Some(b'+' | b'-')));
        let power = text[length + 1 + sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if power > 0 {
            length += 1 + sign + power;
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::super::super::bit::tests::expect;
    use mlua::{Lua, Table};

    fn library(lua: &Lua) -> mlua::Result<Table> {
        super::super::library(lua, &Default::default())
    }

    /// Texts with what they read as in Redis.
    fn expect_read(results: &[(&str, &str)]) {
        let scripts: Vec<_> =
            results.iter().map(|(text, _)| format!("cjson.decode([==[{text}]==])")).collect();
        let results: Vec<_> =
            scripts.iter().zip(results).map(|(script, (_, read))| (&**script, *read)).collect();
        expect("cjson", library, &results);
    }

    #[test]
    fn numbers_are_read_as_by_redis() {
        expect_read(&[
            ("1", "1"),
            ("1.0", "1"),
            ("-0", "-0.0"),
            ("1e3", "1000"),
            ("1E+3", "1000"),
            ("1e-3", "0.001"),
            ("1e400", "inf"),
            ("1e-400", "0"),
            ("0123", "123"),
            ("+5", "5"),
            ("-.5", "-0.5"),
            ("5.", "5"),
            ("5.e1", "50"),
            ("0x10", "16"),
            ("-0x1.8p1", "-3"),
            ("0x.8", "0.5"),
            ("0xffffffffffffffffff", "4.722366482869645e21"),
            ("iNf", "inf"),
            ("-Infinity", "-inf"),
            ("+inf", "inf"),
            ("NaN", "NaN"),
            ("1e1000000000000000000000", "inf"),
            ("3.141592653589793238462643383279", "3.141592653589793"),
            ("123456789012345678901234567890", "1.2345678901234568e29"),
            ("9007199254740993", "9007199254740992"),
        ]);
    }

    #[test]
    fn numbers_that_are_none_are_refused_as_by_redis() {
        expect_read(&[
            ("-", "Expected value but found invalid number at character 1"),
            ("- 1", "Expected value but found invalid number at character 1"),
            ("+-5", "Expected value but found invalid number at character 1"),
            (".5", "Expected value but found invalid token at character 1"),
            ("1e+", "Expected the end but found invalid token at character 2"),
            ("1.2.3", "Expected the end but found invalid token at character 4"),
            ("0x", "Expected the end but found invalid token at character 2"),
            ("0x1p", "Expected the end but found invalid token at character 4"),
            ("infinit", "Expected the end but found invalid token at character 4"),
            ("ii", "Expected value but found invalid token at character 1"),
        ]);
    }

    #[test]
    fn strings_are_read_as_by_redis() {
        expect_read(&[
            (r#""""#, ""),
            (r#""abc""#, "abc"),
            (r#""\"\\\/\b\f\n\r\t\u0041x""#, r#""\/<08><0c><0a><0d><09>Ax"#),
            (r#""\u00e9\u20ac\uD83D\ude00\u0000""#, "<c3><a9><e2><82><ac><f0><9f><98><80><00>"),
            (r#""abc"#, "Expected value but found unexpected end of string at character 5"),
            (r#""a\"#, "Expected value but found invalid escape code at character 3"),
            (r#""a\q""#, "Expected value but found invalid escape code at character 3"),
            (r#""ab\u12g4""#, "Expected value but found invalid unicode escape code at character 4"),
            (r#""\u123"#, "Expected value but found invalid unicode escape code at character 2"),
            (r#""\ud83d""#, "Expected value but found invalid unicode escape code at character 2"),
            (r#""\ud83d\u0041""#, "Expected value but found invalid unicode escape code at character 2"),
            (r#""\ude00""#, "Expected value but found invalid unicode escape code at character 2"),
        ]);
        let bytes = r#"cjson.decode('"\128\255\1\n"')"#;
        expect("cjson", library, &[(bytes, "<80><ff><01><0a>")]);
    }

    #[test]
    fn tables_are_read_as_by_redis() {
        expect_read(&[
            ("null", "null"),
            (" \t\r\n[true , false]\n", "{1=true 2=false}"),
            ("{}", "{}"),
            ("[ ]", "{}"),
            ("[[[]],{}]", "{1={1={}} 2={}}"),
            (r#"{"a":null,"1":[1,null,3]}"#, "{1={1=1 2=null 3=3} a=null}"),
            (r#"{"a":1,"a":2}"#, "{a=2}"),
        ]);
    }

    #[test]
    fn texts_that_are_no_json_are_refused_as_by_redis() {
        expect_read(&[
            ("", "Expected value but found T_END at character 1"),
            ("tru", "Expected value but found invalid token at character 1"),
            ("1 2", "Expected the end but found T_NUMBER at character 3"),
            ("nullx", "Expected the end but found invalid token at character 5"),
            ("[", "Expected value but found T_END at character 2"),
            ("]", "Expected value but found T_ARR_END at character 1"),
            ("[1", "Expected comma or array end but found T_END at character 3"),
            ("[1,]", "Expected value but found T_ARR_END at character 4"),
            ("[1}", "Expected comma or array end but found T_OBJ_END at character 3"),
            ("{", "Expected object key string but found T_END at character 2"),
            ("{true:1}", "Expected object key string but found T_BOOLEAN at character 2"),
            ("{[]:1}", "Expected object key string but found T_ARR_BEGIN at character 2"),
            (r#"{"a",1}"#, "Expected colon but found T_COMMA at character 5"),
            (r#"{"a":1,}"#, "Expected object key string but found T_OBJ_END at character 8"),
            (r#"{"a":1 "b":2}"#, "Expected comma or object end but found T_STRING at character 8"),
            (r#"{"a":1]"#, "Expected comma or object end but found T_ARR_END at character 7"),
            (r#"{"a":1}}"#, "Expected the end but found T_OBJ_END at character 8"),
        ]);
    }

    #[test]
    fn arguments_zero_bytes_and_depth_are_treated_as_by_redis() {
        let results = [
            ("cjson.decode(5)", "5"),
            ("cjson.decode(nil)", "bad argument #1 to 'decode' (string expected, got nil)"),
            ("cjson.decode()", "bad argument #1 to 'decode' (expected 1 argument)"),
            ("cjson.decode('1', nil)", "bad argument #1 to 'decode' (expected 1 argument)"),
            (r"cjson.decode('[1]\0garbage')", "{1=1}"),
            (r#"cjson.decode('"a\0b"')"#, "Expected value but found unexpected end of string at character 3"),
            (r"cjson.decode('1\0')", "JSON parser does not support UTF-16 or UTF-32"),
            ("type(cjson.decode(('['):rep(1000) .. (']'):rep(1000)))", "table"),
            (
                r#"cjson.decode(('{"a":'):rep(1001))"#,
                "Found too many nested data structures (1001) at character 5001",
            ),
            (
                "cjson.decode(('['):rep(10000000))",
                "Found too many nested data structures (1001) at character 1001",
            ),
        ];
        expect("cjson", library, &results);
    }
}
