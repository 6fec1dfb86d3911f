//! Programs: what they see and answer, what is out of their reach, and where they end.

#![allow(clippy::unwrap_used, reason = "a helper of a test panics like the test itself")]

use anabranch_scripts::{Program, conflict_handler};
use branch::{Conflict, Conflicts, Handler};
use causal::cops::check_laws;
use datatypes::register::Register;
use datatypes::{Cell, Effect, Items, Value, apply, counter, dict, list, set, summary, top};
use datatypes::{scored_set, scored_set::ScoredItems};
use mvcc::CompactKey;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A merge by hand: the keys in conflict, and others.
struct Merge {
    keys: Vec<CompactKey>,
    conflicts: BTreeMap<CompactKey, Conflict>,
    others: BTreeMap<CompactKey, Cell>,
}

impl Conflicts for Merge {
    fn keys(&self) -> &[CompactKey] {
        &self.keys
    }

    fn conflict(&mut self, key: &CompactKey) -> Option<Conflict> {
        self.conflicts.get(key).cloned()
    }

    fn read(&mut self, key: &CompactKey) -> Option<Cell> {
        if self.conflicts.contains_key(key) {
            return None;
        }
        Some(self.others.get(key).cloned().unwrap_or(Cell::ABSENT))
    }
}

fn key(name: &str) -> CompactKey {
    CompactKey::new(name.as_bytes())
}

fn text(value: &str) -> Cell {
    Cell { value: Some(Value::Register(Register::new(value.as_bytes()))), expires_at: 0 }
}

fn made(effects: &[Effect<'_>]) -> Cell {
    let mut cell = Cell::ABSENT;
    effects.iter().for_each(|effect| drop(apply::<false>(&mut cell, effect)));
    cell
}

/// `k` has these values at the fork and on the branches; `other` is `beside`.
fn merge_of(fork: &Cell, branches: &[Cell], merged: Option<Cell>) -> Merge {
    let conflict = Conflict {
        fork: fork.clone(),
        forks: vec![fork.clone()],
        branches: branches.to_vec(),
        merged,
        expires_at: 0,
    };
    Merge {
        keys: vec![key("k")],
        conflicts: [(key("k"), conflict)].into(),
        others: [(key("other"), text("beside"))].into(),
    }
}

/// What a program makes of `k`, which is 1 at the fork and 3 and 5 on the branches; or the reason of its failure.
fn answer(source: &str) -> Result<Option<Cell>, String> {
    let mut merge = merge_of(&text("1"), &[text("3"), text("5")], None);
    let mut program = Program::new(source).map_err(|unfit| unfit.to_string())?;
    let answers = program.handle(&mut merge).map_err(|failure| failure.to_string())?;
    Ok(answers.into_iter().find(|(name, _)| *name == key("k")).map(|(_, cell)| cell))
}

fn says(source: &str, expected: &str) {
    assert_eq!(answer(source), Ok(Some(text(expected))), "{source}");
}

fn fails(source: &str, because: &str) {
    let reason = answer(source).unwrap_err();
    assert!(reason.contains(because), "{source}\n{reason}");
    assert!(!reason.contains('\n') && !reason.contains("0x"), "{reason}");
}

/// The answer is what the expression gives.
fn evaluates(expression: &str, expected: &str) {
    says(&format!("function resolve(key, conflict) return {expression} end"), expected);
}

#[test]
fn a_program_resolves_a_key_from_its_fork_and_branches() {
    let sum = "function resolve(key, conflict)
        local sum = conflict.fork
        for _, value in ipairs(conflict.branches) do sum = sum + (value - conflict.fork) end
        return sum
    end";
    says(sum, "7");
    evaluates("key .. #conflict.forks .. conflict.forks[1]", "k11");
    assert_eq!(answer("function resolve() return nil end"), Ok(None), "it leaves it to the type");
    assert_eq!(answer("function resolve() return false end"), Ok(Some(Cell::ABSENT)), "it deletes");
}

#[test]
fn a_program_resolves_all_keys_at_once_and_writes_others() {
    let source = "function merge(keys)
        for _, key in ipairs(keys) do write(key, conflict(key).branches[1] .. read('other')) end
        write('log', {type = 'list', value = keys})
        write('other', false)
        write('seen', read('other') == false and 'gone' or 'there')
    end
    function resolve() error('everything is written') end";
    let mut merge = merge_of(&text("1"), &[text("3"), text("5")], None);
    let answers = Program::new(source).unwrap().handle(&mut merge).unwrap();
    let push = list::Effect::Push { end: list::End::Back, values: Items::one(b"k") };
    let expected = [
        (key("k"), text("3beside")),
        (key("log"), made(&[Effect::List(push)])),
        (key("other"), Cell::ABSENT),
        (key("seen"), text("gone")),
    ];
    assert_eq!(answers, expected);
    says("function merge() end function resolve(key) return key end", "k");
    fails("function merge() read('k') end", "ask conflict(key)");
    fails("function merge() conflict('other') end", "read(key) for others");
    fails("function merge() write('k', nil) end", "says nothing");
}

#[test]
fn every_type_comes_back_as_it_went() {
    let pairs = Items::two(b"f", b"1");
    let members = Items::one(b"m");
    let numbers = summary::Numbers::new([0.5].into_iter()).unwrap();
    let cells = [
        Cell::ABSENT,
        text("x"),
        text("12"),
        made(&[Effect::Dict(dict::Effect::put(pairs))]),
        made(&[Effect::Set(set::Effect::Add { members: members.clone() })]),
        made(&[Effect::ScoredSet(scored_set::Effect::Put { items: ScoredItems::one(1.5, b"m") })]),
        made(&[Effect::List(list::Effect::Push { end: list::End::Back, values: members })]),
        made(&[Effect::Counter(counter::Effect::Add { by: -3 })]),
        made(&[Effect::SummaryBag(summary::Effect::Add { numbers })]),
        made(&[Effect::Top(top::Effect::Add { items: ScoredItems::one(1.5, b"m") })]),
    ];
    let mut program = Program::new("function resolve(_, conflict) return conflict.branches[2] end").unwrap();
    for cell in cells {
        let answers = program.handle(&mut merge_of(&text("1"), &[text("3"), cell.clone()], None)).unwrap();
        assert_eq!(answers, [(key("k"), cell)]);
    }
    // What is merged already is shown, and keeps its deadline.
    let mut program =
        Program::new("function resolve(_, conflict) return conflict.merged .. '!' end").unwrap();
    let mut merge = merge_of(&text("1"), &[text("3"), text("5")], Some(text("8")));
    merge.conflicts.get_mut(&key("k")).unwrap().expires_at = 77;
    let answers = program.handle(&mut merge).unwrap();
    assert_eq!(answers, [(key("k"), Cell { expires_at: 77, ..text("8!") })]);
}

#[test]
fn an_answer_that_is_no_value_is_refused() {
    let answers = |value: &str| format!("function resolve() return {value} end");
    for (value, because) in [
        ("true", "no value"),
        ("1/0", "no value"),
        ("{}", "type"),
        ("{type = 'tree', value = {}}", "no type"),
        ("{type = 'hash', value = 'x'}", "table"),
        ("{type = 'hash', value = {f = {}}}", "no value"),
        ("{type = 'set', value = {'a'}}", "true"),
        ("{type = 'zset', value = {a = 0/0}}", "scores"),
        ("{type = 'list', value = {a = 1}}", "elements"),
        ("{type = 'list', value = {1, nil, 3}}", "elements"),
        ("{type = 'counter', value = 'x'}", "integer"),
        ("{type = 'top', dump = 'x'}", "dump"),
        ("function() end", "no value"),
        ("nothing.at.all", "handler:1"),
    ] {
        fails(&answers(value), because);
    }
    assert_eq!(answer(&answers("{type = 'set', value = {}}")), Ok(Some(Cell::ABSENT)), "nothing in it");
}

#[test]
fn a_text_that_is_no_program_is_refused_when_it_is_given() {
    let unfit = |source: &str| Program::new(source).unwrap_err().to_string();
    assert!(unfit("function resolve(").contains("handler:1"), "{}", unfit("function resolve("));
    assert!(unfit("x = 1").contains("defines"));
    assert!(unfit("error('no')").contains("no"));
    assert!(unfit("while true do end").contains("instructions"));
    assert!(unfit(&" ".repeat(70_000)).contains("bytes"));
    assert!(unfit("\u{1b}Lua").contains("binary"), "{}", unfit("\u{1b}Lua"));
}

/// Corrections 88: neither time nor chance nor an address nor a hash order can be seen.
#[test]
fn what_differs_between_sites_is_out_of_reach() {
    for name in [
        "os",
        "io",
        "load",
        "loadstring",
        "dofile",
        "loadfile",
        "require",
        "package",
        "debug",
        "print",
        "collectgarbage",
        "next",
        "pcall",
        "xpcall",
        "coroutine",
        "setmetatable",
        "getmetatable",
        "rawset",
        "rawget",
        "rawequal",
        "rawlen",
        "utf8",
        "_G",
        "sorted_keys",
        "warn",
        "math.random",
        "math.randomseed",
        "math.sin",
        "string.dump",
        "string.match",
        "string.gsub",
        "string.gmatch",
        "string.pack",
        "table.move",
    ] {
        evaluates(&format!("tostring({name})"), "nil");
    }
    evaluates("tostring({})", "table");
    evaluates("tostring(resolve) .. ('%s'):format({})", "functiontable");
    fails("function resolve() return ('%p'):format({}) end", "address");
    fails("function resolve() return ('%-8p'):format({}) end", "address");
    let order = "function resolve()
        local all = {}
        for key in pairs({z = 1, a = 2, [3] = 1, [-1] = 2, [true] = 1, m = 5, [0.5] = 1}) do all[#all + 1] = tostring(key) end
        return table.concat(all, ' ')
    end";
    says(order, "-1 0.5 3 a m z true");
    fails("function resolve() for _ in pairs({[{}] = 1}) do end end", "no order");
    let sorted = "function resolve()
        local list = {}
        for place = 1, 400 do list[place] = {rank = place % 3, place = place} end
        table.sort(list, function(a, b) return a.rank < b.rank end)
        for place = 2, 400 do
            local a, b = list[place - 1], list[place]
            assert(a.rank < b.rank or a.rank == b.rank and a.place < b.place)
        end
        local words = {'c', 'a', 'b'}
        table.sort(words)
        return table.concat(words)
    end";
    says(sorted, "abc");
    evaluates("table.concat(('a,b,,c'):split(','), '|') .. tostring(('a.c'):find('.'))", "a|b||c2");
}

#[test]
fn nothing_is_remembered_from_one_merge_to_the_next() {
    let mut program =
        Program::new("count = 0 function resolve() count = count + 1 return count end").unwrap();
    for _ in 0..3 {
        let answers = program.handle(&mut merge_of(&text("1"), &[text("3")], None)).unwrap();
        assert_eq!(answers, [(key("k"), text("1"))]);
    }
}

#[test]
fn a_program_that_does_not_end_is_ended() {
    let begun = Instant::now();
    fails("function resolve() while true do end end", "instructions");
    fails("function resolve() return resolve() end", "instructions");
    fails("function resolve() return 1 + resolve() end", "");
    fails("function resolve() local s = 'x' while true do s = s .. s end end", "MiB of memory");
    fails("function resolve() return ('x'):rep(2 ^ 40) end", "");
    fails("function resolve() local t = {} for i = 1, 1e9 do t[i] = i end end", "");
    fails("function resolve() local s = ('x'):rep(2 ^ 23) while true do local t = s .. 'y' end end", "");
    let long = "local s = ('a'):rep(2 ^ 22) local part = ('a'):rep(2 ^ 21) .. 'b'";
    fails(&format!("function resolve() {long} return s:find(part) end"), "too long for a search");
    fails(&format!("function resolve() {long} return #s:split(part) end"), "too long for a search");
    says("function resolve() return ('x' .. ('').rep('', 2 ^ 60)):rep(3, '-') end", "x-x-x");
    let shared = "local t = {} for i = 1, 30 do t = {t, t} end";
    fails(&format!("function resolve() {shared} return json.encode(t) end"), "MiB");
    let many = "local s, t = ('x'):rep(2 ^ 20), {} for i = 1, 1000 do t[i] = s end";
    fails(&format!("function resolve() {many} return {{type = 'list', value = t}} end"), "MiB");
    fails("function resolve() local t = {} t.t = t return json.encode(t) end", "nested");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn json_is_read_and_written_in_one_form() {
    evaluates("json.encode(json.decode('{\"b\": [1, 2.5, null, \"x\"], \"a\": {\"t\": true}}'))", {
        "{\"a\":{\"t\":true},\"b\":[1,2.5,null,\"x\"]}"
    });
    evaluates("json.encode({}) .. tostring(json.decode('null') == json.null)", "[]true");
    fails("function resolve() return json.decode('{') end", "no JSON");
    fails("function resolve() return json.encode({1, a = 2}) end", "no form");
    fails("function resolve() return json.encode(1/0) end", "no form");
}

#[test]
fn the_version_is_the_texts() {
    let version = |source: &str| Program::new(source).unwrap().version();
    let (one, other) = ("function resolve() return 1 end", "function resolve() return 2 end");
    assert_eq!(version(one), version(one));
    assert_ne!(version(one), version(other));
}

/// A limit grows with the keys that are merged.
#[test]
fn many_keys_are_resolved_one_by_one() {
    let mut merge = merge_of(&text("1"), &[text("3"), text("5")], None);
    let conflict = merge.conflicts[&key("k")].clone();
    merge.keys = (0..20_000).map(|number| key(&format!("{number:05}"))).collect();
    merge.conflicts = merge.keys.iter().map(|name| (name.clone(), conflict.clone())).collect();
    let mut program =
        Program::new("function resolve(_, c) return c.branches[1] + c.branches[2] - c.fork end").unwrap();
    assert_eq!(program.handle(&mut merge).unwrap().len(), 20_000);
}

/// What a program makes of two concurrent values of a key of a keyspace with CONFLICTS handler.
fn of_two(source: &str, one: &str, other: &str) -> Result<String, String> {
    let handler = conflict_handler(source)?;
    let merged = handler.merge(b"k", one.as_bytes(), other.as_bytes())?;
    Ok(String::from_utf8_lossy(&merged).into_owned())
}

fn laws(source: &str) -> String {
    conflict_handler(source).and_then(|handler| check_laws(&*handler)).expect_err("it breaks a law")
}

const GREATEST: &str = "function resolve(key, c)
  if c.branches[1] > c.branches[2] then return c.branches[1] end
  return c.branches[2]
end";

/// COPS-CD (section 5.3; Corrections 50).
#[test]
fn a_program_merges_two_values_where_they_are_read() {
    assert_eq!(of_two(GREATEST, "a", "b"), Ok("b".to_owned()));
    assert_eq!(
        of_two("function resolve(key, c) return key .. #c.branches end", "a", "b"),
        Ok("k2".to_owned())
    );
    assert_eq!(conflict_handler(GREATEST).and_then(|handler| check_laws(&*handler)), Ok(()));
    for answers_nothing in ["return nil", "return false", "return {type = 'set', value = {a = true}}"] {
        let outcome = of_two(&format!("function resolve(key, c) {answers_nothing} end"), "a", "b");
        assert!(outcome.unwrap_err().contains("no string for the key"));
    }
    assert!(
        of_two("function resolve(key, c) while true do end end", "a", "b")
            .unwrap_err()
            .contains("instructions")
    );
    assert!(conflict_handler("x = 1").unwrap_err().contains("resolve"));
}

#[test]
fn a_program_that_breaks_a_law_is_refused_with_a_counterexample() {
    let first = laws("function resolve(key, c) return c.branches[1] end");
    assert!(first.contains("not commutative") && first.contains("merge('"), "{first}");
    let longer = laws("function resolve(key, c) return #c.branches[1] + #c.branches[2] end");
    assert!(longer.contains("not associative") || longer.contains("not idempotent"), "{longer}");
}
