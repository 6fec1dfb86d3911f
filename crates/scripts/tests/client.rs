//! Scripts of clients by themselves: what they may do, what ends them, what they leave behind.
//! What they say to clients stands in the gateway's `tests/scripts/eval.txt`.

use anabranch_scripts::{Library, Scripts, load_library};
use gateway::{Event, FunctionLibrary, Interpreter, Run, Script, ScriptCall, ScriptFlags, ScriptKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{Reply, ReplyBuf, ReplySink};

/// How often a script pauses before a test gives up on it.
const PATIENCE: usize = 100_000;

fn begin(scripts: &mut Scripts, source: &str) -> Box<dyn Run> {
    let script = Script::Source(source.as_bytes());
    let call = ScriptCall { script, keys: vec![b"k"], arguments: vec![b"a"], seed: 7 };
    scripts.begin(&call).expect("it compiles")
}

/// What a script comes to that asks for nothing, and how often it paused.
fn end_of(run: &mut dyn Run) -> (Event, usize) {
    for pauses in 0..PATIENCE {
        match run.resume(None) {
            Event::Pauses => {}
            event => return (event, pauses),
        }
    }
    panic!("it does not end");
}

fn run(scripts: &mut Scripts, source: &str) -> Event {
    end_of(&mut *begin(scripts, source)).0
}

fn text(scripts: &mut Scripts, source: &str) -> String {
    shown(run(scripts, source))
}

fn shown(event: Event) -> String {
    match event {
        Event::Ends(reply) => match reply.first() {
            Some(Reply::Bulk(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Some(Reply::Integer(number)) => number.to_string(),
            other => format!("{other:?}"),
        },
        Event::Fails(error) => error.to_string(),
        other => format!("{other:?}"),
    }
}

/// However slow the processor is.
const LONG: Duration = Duration::from_secs(600);

fn scripts() -> Scripts {
    Scripts::new(Library::default()).with_limits(200_000_000, LONG)
}

#[test]
fn a_script_stands_still_while_a_command_is_carried_out() {
    let mut scripts = scripts();
    let source = "local ok, got = pcall(function() return redis.call('GET', KEYS[1]) .. redis.call('PING', 1.5, 2) end)
                  return got";
    let (mut first, mut second) = (begin(&mut scripts, source), begin(&mut scripts, source));
    let get = Event::Asks(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".to_vec());
    let ping = Event::Asks(b"*3\r\n$4\r\nPING\r\n$3\r\n1.5\r\n$1\r\n2\r\n".to_vec());
    let reply = |text: &str| {
        let mut reply = ReplyBuf::new();
        reply.bulk(text.as_bytes());
        reply
    };
    // Two at once, each with its own replies.
    assert_eq!([first.resume(None), second.resume(None)], [get.clone(), get]);
    assert_eq!([first.resume(Some(reply("a"))), second.resume(Some(reply("b")))], [ping.clone(), ping]);
    assert_eq!(first.resume(Some(reply("c"))), Event::Ends(reply("ac")));
    assert_eq!(second.resume(Some(reply("d"))), Event::Ends(reply("bd")));
}

#[test]
fn a_long_script_pauses_wherever_it_is() {
    let mut scripts = scripts();
    let count = "local n = 0 for i = 1, 1000000 do n = n + 1 end return n";
    for source in [
        count.to_owned(),
        format!("return select(2, pcall(function() {count} end))"),
        format!("return (setmetatable({{}}, {{__index = function() {count} end}})).x"),
    ] {
        let (end, pauses) = end_of(&mut *begin(&mut scripts, &source));
        assert!(
            matches!(&end, Event::Ends(reply) if reply.first() == Some(Reply::Integer(1_000_000))),
            "{end:?}"
        );
        assert!(pauses > 10, "{source}: {pauses}");
    }
    // Inside of functions of the libraries too.
    let long = "local n = 0 for i = 1, 300 do n = n + i end";
    for (source, expected) in [
        ("return tostring(('a'):rep(40):find(('a*'):rep(4) .. 'b'))".to_owned(), "nil"),
        ("return select(2, ('x'):rep(500):gsub('.-y', ''))".to_owned(), "0"),
        (format!("return (('x'):rep(300):gsub('x', function() {long} return 'y' end)):sub(-1)"), "y"),
        (format!("local t = {{}} for i = 1, 100 do t[i] = -i end
                  table.sort(t, function(a, b) {long} return a < b end) return t[1]"), "-100"),
        ("local t = {} for i = 1, 50000 do t[i] = i * 7919 % 50021 end table.sort(t) return t[50000] - t[1] > 0 and 1".to_owned(), "1"),
        ("return #cjson.encode(cjson.decode('[' .. ('1,'):rep(50000) .. '2]'))".to_owned(), "100003"),
        ("local t = {} for i = 1, 50000 do t[i] = i end return #cmsgpack.unpack(cmsgpack.pack(t))".to_owned(), "50000"),
        ("local s, n = ('x'):rep(1e6), 0 for i = 1, 10 do n = n + #string.format('%q', s) end return n".to_owned(), "10000020"),
        ("local s, n = ('0'):rep(1e6) .. 1, 0 for i = 1, 10 do n = n + tonumber(s) end return n".to_owned(), "10"),
        ("local s, n = ('x'):rep(1e6), 0 for i = 1, 10 do n = n + #redis.sha1hex(s) end return n".to_owned(), "400"),
        (format!("local f = coroutine.wrap(function() for i = 1, 300 do {long} end coroutine.yield(5) end) return f()"), "5"),
    ] {
        let mut run = begin(&mut scripts, &source);
        let (end, pauses) = end_of(&mut *run);
        assert_eq!(shown(end), expected, "{source}");
        assert!(pauses > 3, "{source}: {pauses}");
    }
}

/// What C's stack is between, Lua 5.1 cannot suspend: a script can.
#[test]
fn a_script_asks_for_commands_wherever_it_is() {
    let mut scripts = scripts();
    for (source, expected) in [
        ("return (('ab'):gsub('.', function(c) return redis.call('ECHO', c) end))", "rr"),
        (
            "local t = {2, 1} table.sort(t, function(a, b) redis.call('PING') return a < b end) return t[1]",
            "1",
        ),
        ("return setmetatable({}, {__index = function(_, key) return redis.call('GET', key) end}).x", "r"),
        (
            "local n = 0 for k in function(_, last) return not last and redis.call('GET', 'k') or nil end do n = n + 1 end return n",
            "1",
        ),
        ("return coroutine.wrap(function() return redis.call('GET', 'k') end)()", "r"),
        ("return select(2, pcall(function() return select(2, pcall(redis.call, 'GET', 'k')) end))", "r"),
        ("return load(function() return redis.call('GET', 'k') and nil end) and 5", "5"),
        ("local t = '' table.foreach({1}, function() t = redis.call('GET', 'k') end) return t", "r"),
    ] {
        let mut run = begin(&mut scripts, source);
        let (mut calls, mut answer) = (0, None);
        let event = loop {
            match run.resume(answer.take()) {
                Event::Pauses => {}
                Event::Asks(_) => {
                    let mut reply = ReplyBuf::new();
                    reply.bulk(b"r");
                    calls += 1;
                    answer = Some(reply);
                }
                event => break event,
            }
        };
        assert_eq!(shown(event), expected, "{source}");
        assert!(calls > 0, "{source}");
    }
}

/// A client may leave, or a transaction may begin again, while a script waits in the middle of anything.
#[test]
fn a_script_that_nobody_needs_any_more_leaves_its_interpreter_sound() {
    let mut scripts = scripts();
    for source in [
        "redis.call('GET', 'k')",
        "while true do pcall(redis.call, 'GET', 'k') end",
        "('abc'):gsub('.', function() while true do redis.call('GET', 'k') end end)",
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "while true do load(function() while true do end end) end",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    ] {
        let mut run = begin(&mut scripts, source);
        assert!(matches!(run.resume(None), Event::Asks(_) | Event::Pauses), "{source}");
        drop(run);
        drop(begin(&mut scripts, source));
        assert_eq!(text(&mut scripts, "return tostring(math.floor(2.5)) .. #KEYS"), "21", "{source}");
    }
}

#[test]
fn nothing_goes_on_for_ever() {
    let mut scripts = scripts().with_limits(2_000_000, LONG);
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() return f() end return f()",
        "local function f() pcall(f) end while true do f() end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(function() return t[1] end) end",
        "table.sort({3, 2, 1}, function(a, b) while true do end end)",
        "local function f() pcall(f) return f() end return f()",
        "return ('a'):rep(100):find(('a-'):rep(100) .. 'b')",
        "return ('a'):rep(1000):find('.-.-.-.-b')",
        "return ('a'):rep(1000):gsub('.-.-.-.-b', '')",
        "for _ in ('a'):rep(1000):gmatch('.-.-.-.-b') do end",
        "local s = '[' .. ('1,'):rep(1000) .. '1]' while true do cjson.decode(s) end",
        "table.insert({}, -1e9, 'x')",
        "local c = coroutine.wrap(function() while true do end end) while true do pcall(c) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
    ] {
        let reply = text(&mut scripts, source);
        assert!(
            reply.starts_with("ERR the script executed more than 2000000 instructions script: "),
            "{reply}"
        );
    }
    // What executes few instructions that take long ends too, and lets others have their turn.
    let mut scripts = self::scripts().with_limits(u64::MAX, Duration::from_secs(1));
    let heavy = "local s = ('x'):rep(1e6) while true do local t = s:rep(10) end";
    let (end, pauses) = end_of(&mut *begin(&mut scripts, heavy));
    assert!(
        matches!(&end, Event::Fails(error) if error.message.contains("computed for more than 1000 ms")),
        "{end:?}"
    );
    assert!(pauses > 0, "{pauses}");
    // What would not execute instructions is nothing.
    assert_eq!(text(&mut scripts, "return string.rep('', 1e15)"), "");
}

#[test]
fn memory_is_bounded_and_given_back() {
    let mut scripts = scripts().with_limits(u64::MAX, LONG);
    for source in [
        "local t = {} for i = 1, 1e8 do t[i] = tostring(i) .. 'x' end",
        "return string.rep('x', 1e9)",
        "local t = {('x'):rep(1e7)} for i = 2, 20 do t[i] = t[1] end return table.concat(t)",
        "return select(2, pcall(string.rep, 'x', 1e9))",
    ] {
        let reply = text(&mut scripts, source);
        assert!(reply.contains("memory"), "{source}: {reply}");
        assert_eq!(text(&mut scripts, "return 1"), "1");
    }
    // A reply that grows where the script's memory does not.
    let nested = "local t = {} for i = 1, 100 do t = {t, t} end return t";
    assert!(text(&mut scripts, nested).contains("at most 250000 tables"));
    let endless = "local t = {} t[1] = t return t";
    assert!(text(&mut scripts, endless).contains("128 in each other"));
    let long = "local t, x = {}, ('x'):rep(1e6) for i = 1, 100 do t[i] = x end return t";
    assert!(text(&mut scripts, long).contains("at most 64 MiB"));
}

#[test]
fn a_script_leaves_nothing_to_the_next() {
    let mut scripts = scripts();
    for source in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "string.format = nil",
        "rawset(string, 'format', nil)",
        "rawset(redis, 'call', nil)",
        "setmetatable(_G, {})",
        "setmetatable(string, nil)",
        "getmetatable('').__index = {}",
        "getmetatable(_G).__index.x = 1",
        "setmetatable(redis, {__index = {}})",
        "loadstring('x = 1')()",
        "table.insert(string, 1)",
        "cjson.encode_number_precision(3) error('so')",
        "redis.setresp(3) math.randomseed(7) error('so')",
    ] {
        let reply = text(&mut scripts, source);
        assert!(reply.starts_with("ERR "), "{source}: {reply}");
        let reply = text(
            &mut scripts,
            "return string.format('%d', math.random(1000)) .. cjson.encode(1 / 3) .. tostring(string[1] == nil)",
        );
        assert_eq!(
            reply,
            text(&mut self::scripts(), "return tostring(math.random(1000)) .. '0.33333333333333true'"),
            "{source}"
        );
    }
    assert!(text(&mut scripts, "return x").contains("nonexistent global variable 'x'"));
}

#[test]
fn there_is_no_way_out() {
    let mut scripts = scripts();
    for name in
        ["io", "os", "debug", "require", "dofile", "loadfile", "package", "getfenv", "newproxy", "print"]
    {
        let reply = text(&mut scripts, &format!("return {name}"));
        assert!(reply.contains("nonexistent global variable"), "{name}: {reply}");
    }
    // Bytes of compiled code could do anything.
    assert_eq!(text(&mut scripts, "return tostring(loadstring('\\27Lua'))"), "nil");
    assert_eq!(text(&mut scripts, "return tostring(string.dump)"), "nil");
    let script = Script::Source(b"\x1bLua");
    let call = ScriptCall { script, keys: Vec::new(), arguments: Vec::new(), seed: 0 };
    scripts.begin(&call).expect_err("it is no text");
}

#[test]
fn scripts_of_lua_5_1_find_what_they_know() {
    let mut scripts = scripts();
    for (source, reply) in [
        ("return unpack({7, 8})", "7"),
        ("return table.getn({7, 8})", "2"),
        ("return table.maxn({[3] = 1})", "3"),
        ("return loadstring('return 3')()", "3"),
        ("return tostring(4 / 2)", "2"),
        ("return tostring(1 / 4)", "0.25"),
        ("return string.format('%d %s %5.1f %%', 3.7, 4.0, 2)", "3 4   2.0 %"),
        ("return math.pow(2, 3)", "8"),
        ("return tostring(math.floor(7 / 2))", "3"),
        ("return redis.replicate_commands() and 1", "1"),
        ("#!lua flags=no-writes\nreturn 5", "5"),
    ] {
        assert_eq!(text(&mut scripts, source), reply, "{source}");
    }
    let flags = begin(&mut scripts, "#!lua flags=no-writes,allow-oom\nreturn 5").flags();
    assert_eq!(flags, Some(ScriptFlags::NO_WRITES.and(ScriptFlags::ALLOW_OOM)));
    assert_eq!(begin(&mut scripts, "return 5").flags(), None);
}

#[test]
fn errors_say_where() {
    let mut scripts = scripts();
    let reply = text(&mut scripts, "local x = 1\nlocal y = nil\nreturn y.z");
    assert!(reply.starts_with("ERR user_script:3: attempt to index local 'y' (a nil value)"), "{reply}");
    assert!(reply.ends_with(", on @user_script:3."), "{reply}");
    let reply =
        text(&mut scripts, "local ok, why = pcall(function()\n error({err = 'MY own'}) end)\nreturn why");
    assert_eq!(reply, "MY own");
}

/// What Redis 7.0.15 replies to each.
const LIBRARIES: &[(&str, &str)] = &[
    ("cjson.encode({})", "{}"),
    ("cjson.encode({{}, {a = {}}})", r#"[{},{"a":{}}]"#),
    ("cjson.encode({[1] = 'a', [3] = 'c'})", r#"["a",null,"c"]"#),
    ("cjson.encode({[11] = 'a'})", "Cannot serialise table: excessively sparse array"),
    ("cjson.encode({[true] = 'x'})", "Cannot serialise boolean: table key must be a number or string"),
    ("cjson.encode(cjson.null)", "null"),
    ("cjson.encode(1/3)", "0.33333333333333"),
    (r#"cjson.encode('a/b"c\\d\b\t\n\f\r\1\31\127')"#, r#""a\/b\"c\\d\b\t\n\f\r\u0001\u001f\u007f""#),
    ("cjson.decode('1.0')", "1"),
    ("cjson.decode('null') == cjson.null", "true"),
    (r#"cjson.decode('[1, [2, {"a": "b"}], []]')[2][2].a"#, "b"),
    (r#"cjson.decode('"\\u00e9\\ud83d\\ude00\\n\\/"')"#, "\u{e9}\u{1f600}\n/"),
    ("cjson.decode('{')", "Expected object key string but found T_END at character 2"),
    ("cjson.decode('[1 2]')", "Expected comma or array end but found T_NUMBER at character 4"),
    ("cjson.decode('xyz')", "Expected value but found invalid token at character 1"),
    ("cjson.decode(('['):rep(1001))", "Found too many nested data structures (1001) at character 1001"),
    ("bit.band(0xff, 0x0f)", "15"),
    ("bit.bnot('x')", "bad argument #1 to 'bnot' (number expected, got string)"),
];

#[test]
fn libraries_are_those_of_redis() {
    let mut scripts = scripts();
    for (expression, expected) in LIBRARIES {
        let reply = text(&mut scripts, &format!("return tostring({expression})"));
        let reply = reply.strip_prefix("ERR user_script:1: ").unwrap_or(&reply);
        let reply = reply.split(" script: ").next().unwrap_or(reply);
        assert_eq!(reply, *expected, "{expression}");
    }
}

#[test]
fn tables_in_each_other_end() {
    let mut scripts = scripts();
    let nested = |depth, inner: &str| {
        format!("local t = {{}} for i = 1, {depth} do t = {inner} end return cjson.encode(t)")
    };
    assert_eq!(text(&mut scripts, &nested(999, "{t}")).len(), 2000);
    assert!(text(&mut scripts, &nested(1000, "{t}")).contains("Cannot serialise, excessive nesting (1001)"));
    assert!(text(&mut scripts, &nested(60, "{t, t}")).contains("more than 64 MiB"));
    let endless = "local t = {} t.t = t return cjson.encode(t)";
    assert!(text(&mut scripts, endless).contains("Cannot serialise, excessive nesting (1001)"));
}

#[test]
fn what_is_encoded_is_decoded() {
    let source = r#"
        local value = {1, -2.5, "x\0\255\n", true, {a = {b = {}}, ["1"] = 2}, 2^60}
        local bytes = cmsgpack.pack(value)
        assert(cmsgpack.pack(cmsgpack.unpack(bytes)) == bytes)
        value[#value + 1] = cjson.null
        local json = cjson.encode(value)
        return tostring(cjson.encode(cjson.decode(json)) == json)"#;
    assert_eq!(text(&mut scripts(), source), "true");
}

/// A library with one function, as a process keeps it.
fn library(source: &str) -> Arc<FunctionLibrary> {
    Arc::new(load_library(source.as_bytes()).expect("it is a library"))
}

fn call(scripts: &mut Scripts, library: &Arc<FunctionLibrary>, name: &str) -> Box<dyn Run> {
    let script = Script::Function { library, name, command: &[b"FCALL", name.as_bytes(), b"0"] };
    let call = ScriptCall { script, keys: Vec::new(), arguments: Vec::new(), seed: 7 };
    scripts.begin(&call).expect("it compiles")
}

#[test]
fn a_function_begins_anew_in_every_call_and_when_its_library_changes() {
    let mut scripts = scripts();
    let counts =
        library("#!lua name=a\nlocal n = 0\nredis.register_function('f', function() n = n + 1 return n end)");
    let other = library("#!lua name=a\nredis.register_function('f', function() return 9 end)");
    for (library, reply) in [(&counts, "1"), (&counts, "1"), (&other, "9"), (&counts, "1")] {
        assert_eq!(shown(end_of(&mut *call(&mut scripts, library, "f")).0), reply);
    }
    // What it sees is no other's, and what it is given is not for all.
    assert_eq!(text(&mut scripts, "return KEYS[1] .. tostring(redis.register_function)"), "knil");
}

#[test]
fn a_library_has_half_a_second_to_register_what_it_has() {
    let begun = Instant::now();
    let refused = load_library(b"#!lua name=a\nwhile true do end").expect_err("it does not end");
    assert_eq!(refused.message, "Error registering functions: ERR FUNCTION LOAD timeout");
    assert!(begun.elapsed() < LONG);
    let text = "#!lua name=a\nlocal t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end";
    load_library(text.as_bytes()).expect_err("there is not so much memory");
}

#[test]
fn who_runs_for_long_is_ended_by_whoever_asks() {
    let library_of_scripts = Library::default();
    let mut scripts = Scripts::new(library_of_scripts.clone()).with_limits(u64::MAX, LONG);
    // Another worker of the process.
    let mut others = Scripts::new(library_of_scripts);
    let loops = library("#!lua name=a\nredis.register_function('f', function() while true do end end)");
    for kind in [ScriptKind::Script, ScriptKind::Function] {
        let mut run = match kind {
            ScriptKind::Script => {
                begin(&mut scripts, "while true do pcall(function() while true do end end) end")
            }
            ScriptKind::Function => call(&mut scripts, &loops, "f"),
        };
        assert_eq!(run.resume(None), Event::Pauses);
        assert_eq!(others.longest_function().is_some(), kind == ScriptKind::Function);
        assert!(!others.kill(kind, 1_000_000), "it has not run for so long");
        let other_kind = match kind {
            ScriptKind::Script => ScriptKind::Function,
            ScriptKind::Function => ScriptKind::Script,
        };
        assert!(!others.kill(other_kind, 0));
        assert!(others.kill(kind, 0));
        let (end, pauses) = end_of(&mut *run);
        assert!(matches!(&end, Event::Killed(error) if error.message.contains("killed by user")), "{end:?}");
        assert_eq!(pauses, 0);
        drop(run);
        assert!(!others.kill(kind, 0), "none is left");
        assert_eq!(text(&mut scripts, "return 1"), "1");
    }
    assert_eq!(others.longest_function(), None);
}
