//! `bit`: operations on 32 bits, as the library Lua BitOp has them that Redis gives to scripts.
//!
//! A number is rounded and taken modulo 2^32, and results are signed.

use super::arguments::{Arguments, define};
use mlua::{Lua, Table};

type Unary = fn(u32) -> u32;
type Binary = fn(u32, u32) -> u32;

const UNARY: [(&str, Unary); 3] =
    [("tobit", |bits| bits), ("bnot", |bits| !bits), ("bswap", u32::swap_bytes)];
const FOLDS: [(&str, Binary); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
/// By 0 to 31 places.
const SHIFTS: [(&str, Binary); 5] = [
    ("lshift", |bits, by| bits << by),
    ("rshift", |bits, by| bits >> by),
    ("arshift", |bits, by| (bits.cast_signed() >> by).cast_unsigned()),
    ("rol", u32::rotate_left),
    ("ror", u32::rotate_right),
];

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    for (name, operation) in UNARY {
        define(lua, &library, name, move |arguments| Ok(signed(operation(bits(arguments, 1)?))))?;
    }
    for (name, operation) in FOLDS {
        define(lua, &library, name, move |arguments| {
            let first = bits(arguments, 1)?;
            let mut others = (2..=arguments.count()).map(|place| bits(arguments, place));
            others.try_fold(first, |sum, other| Ok(operation(sum, other?))).map(signed)
        })?;
    }
    for (name, operation) in SHIFTS {
        define(lua, &library, name, move |arguments| {
            Ok(signed(operation(bits(arguments, 1)?, bits(arguments, 2)? & 31)))
        })?;
    }
    define(lua, &library, "tohex", hex)?;
    Ok(library)
}

/// The argument as 32 bits.
fn bits(arguments: &Arguments, place: usize) -> mlua::Result<u32> {
    /// Added to a number, it moves the units to the lowest bit, and the processor rounds: 2^52 + 2^51.
    const UNITS: f64 = 6_755_399_441_055_744.0;
    Ok(((arguments.number(place)? + UNITS).to_bits() & u64::from(u32::MAX)) as u32)
}

fn signed(bits: u32) -> i32 {
    bits.cast_signed()
}

/// `tohex(bits, digits)`: the lowest digits, in capitals if their number is negative.
fn hex(arguments: &Arguments) -> mlua::Result<String> {
    let bits = bits(arguments, 1)?;
    let digits = match arguments.count() {
        0 | 1 => 8,
        _ => self::bits(arguments, 2)?.cast_signed(),
    };
    let text = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    let cut = usize::try_from(digits.unsigned_abs()).map_or(0, |digits| 8_usize.saturating_sub(digits));
    Ok(text[cut..].to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::fiber::STACK;
    use super::super::meter::{Limits, Meter};
    use super::*;
    use mlua::{Error, MultiValue, Value};
    use std::rc::Rc;
    use std::thread::Builder;
    use std::time::Duration;

    /// What a script gives that finds this library: values with blanks between, or the text of the error.
    pub fn shown(name: &str, library: fn(&Lua) -> mlua::Result<Table>, script: &str) -> String {
        // Scripts have a larger stack than tests.
        std::thread::scope(|scope| {
            let thread = Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, || evaluated(name, library, script)).unwrap().join().unwrap()
        })
    }

    fn evaluated(name: &str, library: fn(&Lua) -> mlua::Result<Table>, script: &str) -> String {
        let lua = Lua::new();
        let limits = Limits { instructions: u64::MAX, time: Duration::from_secs(60) };
        lua.set_app_data(Rc::new(Meter::new(limits)));
        lua.globals().set(name, library(&lua).unwrap()).unwrap();
        let script = if script.contains("return ") { script.to_owned() } else { format!("return {script}") };
        match lua.load(&script).eval::<MultiValue>() {
            Ok(values) => values.iter().map(show).collect::<Vec<_>>().join(" "),
            Err(Error::CallbackError { cause, .. }) => cause.to_string().replace("runtime error: ", ""),
            Err(error) => panic!("{script}: {error}"),
        }
    }

    fn show(value: &Value) -> String {
        match value {
            Value::Number(number) => format!("{number:?}"),
            Value::Table(table) => {
                let pairs = table.pairs::<Value, Value>().map(Result::unwrap);
                let mut pairs: Vec<_> =
                    pairs.map(|(key, value)| format!("{}={}", show(&key), show(&value))).collect();
                pairs.sort();
                format!("{{{}}}", pairs.join(" "))
            }
            Value::String(text) => {
                let printable = |byte: &u8| match byte {
                    b' '..=b'~' => char::from(*byte).to_string(),
                    other => format!("<{other:02x}>"),
                };
                text.as_bytes().iter().map(printable).collect()
            }
            null if *null == Value::NULL => "null".to_owned(),
            other => other.to_string().unwrap(),
        }
    }

    /// Scripts with what they give in Redis.
    pub fn expect(name: &str, library: fn(&Lua) -> mlua::Result<Table>, results: &[(&str, &str)]) {
        for (script, expected) in results {
            assert_eq!(shown(name, library, script), *expected, "{script}");
        }
    }

    #[test]
    fn results_are_those_of_redis() {
        let results = [
            (
                "bit.tobit(0xffffffff), bit.tobit(2^32), bit.tobit(2^40+1234), bit.tobit(2^31)",
                "-1 0 1234 -2147483648",
            ),
            ("bit.tobit(-2^31-1), bit.tobit(-2147483649), bit.tobit(-1)", "2147483647 2147483647 -1"),
            (
                "bit.tobit(1.4), bit.tobit(1.5), bit.tobit(2.5), bit.tobit(-1.5), bit.tobit(-0.5)",
                "1 2 2 -2 0",
            ),
            ("bit.tobit(2^51), bit.tobit(1/0), bit.tobit(-1/0)", "0 0 0"),
            ("bit.tobit('12'), bit.tobit('0x10'), bit.tobit(' 7 '), bit.tobit('1.5')", "12 16 7 2"),
            ("bit.tohex(1), bit.tohex(-1), bit.tohex(0x87654321, 4)", "00000001 ffffffff 4321"),
            ("bit.tohex(-1, -4), bit.tohex(255, 100), bit.tohex(255, -100)", "FFFF 000000ff 000000FF"),
            (
                "bit.tohex(255, 1), bit.tohex(255, '2'), bit.tohex(255, 0), bit.tohex(1, 2^31)",
                "f ff  00000001",
            ),
            ("bit.bnot(0), bit.bnot(-1), bit.bnot(0x12345678)", "-1 0 -305419897"),
            ("bit.band(0x12345678, 0xff), bit.band(-1), bit.band(7, 6, 5)", "120 -1 4"),
            ("bit.bor(1, 2, 4, 8), bit.bxor(0xa5a5f0f0, 0xaa55ff00), bit.bor('1', '2')", "15 267390960 3"),
            ("bit.lshift(1, 31), bit.lshift(1, 32), bit.lshift(1, 40)", "-2147483648 1 256"),
            (
                "bit.lshift(0x87654321, 12), bit.lshift(1, -1), bit.lshift(1, 8.5)",
                "1412567040 -2147483648 256",
            ),
            ("bit.rshift(-256, 8), bit.rshift(0x87654321, 12), bit.rshift(-1, 0)", "16777215 554580 -1"),
            ("bit.arshift(-256, 8), bit.arshift(0x87654321, 12), bit.arshift(-1, 31)", "-1 -493996 -1"),
            ("bit.rol(0x12345678, 12), bit.ror(0x12345678, 12), bit.rol(1, 32)", "1164411171 1736516421 1"),
            ("bit.bswap(0x12345678), bit.bswap(1)", "2018915346 16777216"),
        ];
        expect("bit", library, &results);
    }

    #[test]
    fn errors_are_those_of_redis() {
        let errors = [
            ("bit.tobit()", "bad argument #1 to 'tobit' (number expected, got no value)"),
            ("bit.tobit(nil)", "bad argument #1 to 'tobit' (number expected, got nil)"),
            ("bit.bnot('x')", "bad argument #1 to 'bnot' (number expected, got string)"),
            ("bit.bor(1, {})", "bad argument #2 to 'bor' (number expected, got table)"),
            ("bit.lshift(1)", "bad argument #2 to 'lshift' (number expected, got no value)"),
            ("bit.tohex(255, nil)", "bad argument #2 to 'tohex' (number expected, got nil)"),
        ];
        expect("bit", library, &errors);
    }
}
