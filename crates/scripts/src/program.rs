//! A program, and how it is run within its limits.

use crate::convert::{from_lua, to_lua};
use crate::limits::{Limits, MEMORY, STRIDE};
use branch::{Conflict, Conflicts, Failure, Handler};
use datatypes::register::Register;
use datatypes::{Cell, Value as Stored};
use mlua::{
    Error, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState, chunk::ChunkMode,
};
use mvcc::CompactKey;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// The longest program, in bytes: every process of a cluster keeps it.
const MAX_SOURCE: usize = 64 * 1024;
/// What answers depend on beside the source: the interpreter, the limits and the prelude. It rises with them.
const RULES: &[u8] = b"lua 5.1, rules 2";
const PRELUDE: &str = include_str!("prelude.lua");

/// A merge handler in Lua.
#[derive(Clone)]
pub struct Program {
    source: Box<str>,
    version: u64,
}

/// Why a text is no program, for the operator who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit(pub String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({:016x})", self.version)
    }
}

impl Program {
    /// The program of this text.
    ///
    /// # Errors
    /// Lua does not read it, it does not run as far as its definitions, or it defines nothing to call.
    pub fn new(source: &str) -> Result<Self, Unfit> {
        if source.len() > MAX_SOURCE {
            return Err(Unfit(format!(
                "a merge handler has at most {MAX_SOURCE} bytes, not {}",
                source.len()
            )));
        }
        let mut hash = Xxh3::new();
        for bytes in [RULES, PRELUDE.as_bytes(), source.as_bytes()] {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        let program = Program { source: source.into(), version: hash.digest() };
        let limits = Limits::of(0);
        let defined = program.start(&limits).and_then(|lua| {
            let defines = |name| Ok::<_, Error>(!lua.globals().get::<Value>(name)?.is_nil());
            Ok(defines("resolve")? || defines("merge")?)
        });
        match defined {
            Ok(true) => Ok(program),
            Ok(false) => Err(Unfit(
                "a merge handler defines `function resolve(key, conflict)` or `function merge(keys)`"
                    .to_owned(),
            )),
            Err(error) => Err(Unfit(limits.reason(&error))),
        }
    }

    /// A fresh interpreter that has executed the program's definitions.
    fn start(&self, limits: &Rc<Limits>) -> mlua::Result<Lua> {
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, options)?;
        lua.globals().set("json", crate::json::library(&lua, limits)?)?;
        lua.globals().set("sorted_keys", lua.create_function(crate::order::sorted_keys)?)?;
        lua.load(PRELUDE).set_name("=prelude").set_mode(ChunkMode::Text).exec()?;
        lua.set_memory_limit(MEMORY)?;
        let watched = Rc::clone(limits);
        let triggers = HookTriggers::new().every_nth_instruction(STRIDE);
        lua.set_hook(triggers, move |_, _| watched.count().map(|()| VmState::Continue))?;
        lua.load(&*self.source).set_name("=handler").set_mode(ChunkMode::Text).exec()?;
        Ok(lua)
    }

    fn run(
        &self,
        conflicts: &mut dyn Conflicts,
        limits: &Rc<Limits>,
    ) -> mlua::Result<BTreeMap<CompactKey, Cell>> {
        let lua = self.start(limits)?;
        let keys = conflicts.keys().to_vec();
        let merge = Merge { conflicts: RefCell::new(conflicts), written: RefCell::default(), limits };
        if let Value::Function(function) = lua.globals().get("merge")? {
            let names = lua.create_table()?;
            for (place, key) in keys.iter().enumerate() {
                names.raw_set(place + 1, lua.create_string(&**key)?)?;
            }
            lua.scope(|scope| {
                let globals = lua.globals();
                let conflict = |lua: &Lua, key: LuaString| merge.conflict(lua, &key);
                globals.set("conflict", scope.create_function(conflict)?)?;
                globals.set("read", scope.create_function(|lua, key: LuaString| merge.read(lua, &key))?)?;
                let write = |_: &Lua, (key, value): (LuaString, Value)| merge.write(&key, &value);
                globals.set("write", scope.create_function(write)?)?;
                function.call::<()>(names)
            })?;
            for name in ["conflict", "read", "write"] {
                lua.globals().set(name, Value::Nil)?;
            }
        }
        if let Value::Function(function) = lua.globals().get("resolve")? {
            for key in &keys {
                if merge.written.borrow().contains_key(key) {
                    continue;
                }
                let Some(conflict) = merge.conflicts.borrow_mut().conflict(key) else { continue };
                let shown = show(&lua, &conflict)?;
                let answer: Value = function.call((lua.create_string(&**key)?, shown))?;
                if let Some(cell) = from_lua(&answer, conflict.expires_at, limits)? {
                    merge.written.borrow_mut().insert(key.clone(), cell);
                }
            }
        }
        Ok(merge.written.into_inner())
    }
}

/// A keyspace's merge handler.
///
/// # Errors
/// The program is none; says what is wrong with it.
pub fn handler(source: &str) -> Result<Box<dyn Handler>, String> {
    match Program::new(source) {
        Ok(program) => Ok(Box::new(program)),
        Err(unfit) => Err(unfit.to_string()),
    }
}

/// A keyspace's handler of concurrent values.
///
/// # Errors
/// The program is none; says what is wrong with it.
pub fn conflict_handler(source: &str) -> Result<Arc<dyn causal::cops::Handler>, String> {
    match Program::new(source) {
        Ok(program) => Ok(Arc::new(program)),
        Err(unfit) => Err(unfit.to_string()),
    }
}

impl causal::cops::Handler for Program {
    fn source(&self) -> &str {
        &self.source
    }

    fn merge(&self, key: &[u8], one: &[u8], other: &[u8]) -> Result<Vec<u8>, String> {
        let limits = Limits::of_read();
        let mut pair = Pair { key: [CompactKey::new(key)], values: [one, other] };
        let written = self.run(&mut pair, &limits).map_err(|error| limits.reason(&error))?;
        match written.get(&pair.key[0]).and_then(|cell| cell.value.as_ref()) {
            Some(Stored::Register(register)) => Ok(register.with_bytes(<[u8]>::to_vec)),
            _ => Err("it answered no string for the key".to_owned()),
        }
    }
}

/// Two concurrent values of a key.
struct Pair<'v> {
    key: [CompactKey; 1],
    values: [&'v [u8]; 2],
}

impl Conflicts for Pair<'_> {
    fn keys(&self) -> &[CompactKey] {
        &self.key
    }

    fn conflict(&mut self, key: &CompactKey) -> Option<Conflict> {
        let cell =
            |value: &&[u8]| Cell { value: Some(Stored::Register(Register::new(value))), expires_at: 0 };
        let branches = self.values.iter().map(cell).collect();
        let conflict =
            Conflict { fork: Cell::ABSENT, forks: Vec::new(), branches, merged: None, expires_at: 0 };
        (*key == self.key[0]).then_some(conflict)
    }

    /// It knows of no other key.
    fn read(&mut self, key: &CompactKey) -> Option<Cell> {
        (*key != self.key[0]).then_some(Cell::ABSENT)
    }
}

impl Handler for Program {
    fn version(&self) -> u64 {
        self.version
    }

    fn source(&self) -> &str {
        &self.source
    }

    fn handle(&mut self, conflicts: &mut dyn Conflicts) -> Result<Vec<(CompactKey, Cell)>, Failure> {
        let limits = Limits::of(conflicts.keys().len());
        match self.run(conflicts, &limits) {
            Ok(written) => Ok(written.into_iter().collect()),
            Err(error) => Err(Failure(limits.reason(&error))),
        }
    }
}

/// The merge that a program works on.
struct Merge<'m> {
    conflicts: RefCell<&'m mut dyn Conflicts>,
    written: RefCell<BTreeMap<CompactKey, Cell>>,
    limits: &'m Limits,
}

impl Merge<'_> {
    fn conflict(&self, lua: &Lua, key: &LuaString) -> mlua::Result<Table> {
        let conflict = self.conflicts.borrow_mut().conflict(&CompactKey::new(&key.as_bytes()));
        let unknown = || {
            Error::runtime("conflict(key) is for the keys that merge(keys) was given; read(key) for others")
        };
        show(lua, &conflict.ok_or_else(unknown)?)
    }

    fn read(&self, lua: &Lua, key: &LuaString) -> mlua::Result<Value> {
        let key = CompactKey::new(&key.as_bytes());
        if let Some(cell) = self.written.borrow().get(&key) {
            return to_lua(lua, cell);
        }
        let cell = self.conflicts.borrow_mut().read(&key);
        to_lua(
            lua,
            &cell.ok_or_else(|| Error::runtime("the branches differ in this key: ask conflict(key)"))?,
        )
    }

    fn write(&self, key: &LuaString, value: &Value) -> mlua::Result<()> {
        let key = CompactKey::new(&key.as_bytes());
        let mut conflicts = self.conflicts.borrow_mut();
        let known = conflicts.conflict(&key).map(|conflict| conflict.expires_at);
        let expires_at = known.or_else(|| conflicts.read(&key).map(|cell| cell.expires_at)).unwrap_or(0);
        let cell = from_lua(value, expires_at, self.limits)?;
        let nothing = || Error::runtime("write(key, nil) says nothing; write(key, false) deletes");
        self.written.borrow_mut().insert(key, cell.ok_or_else(nothing)?);
        Ok(())
    }
}

fn show(lua: &Lua, conflict: &Conflict) -> mlua::Result<Table> {
    let values = |cells: &[Cell]| {
        let values: mlua::Result<Vec<Value>> = cells.iter().map(|cell| to_lua(lua, cell)).collect();
        lua.create_sequence_from(values?)
    };
    let shown = lua.create_table()?;
    shown.raw_set("fork", to_lua(lua, &conflict.fork)?)?;
    shown.raw_set("forks", values(&conflict.forks)?)?;
    shown.raw_set("branches", values(&conflict.branches)?)?;
    if let Some(merged) = &conflict.merged {
        shown.raw_set("merged", to_lua(lua, merged)?)?;
    }
    Ok(shown)
}
