//! User-defined types as WebAssembly: modules that can do nothing but answer (Corrections 88).
//!
//! A module exports its `memory`, `anabranch_allocate(len: i32) -> i32`, and `anabranch_call(entry: i32, place: i32, len:
//! i32) -> i64`, which answers the question at `place` with the place of the answer in the high half and its length in the
//! low half. Questions and answers are those of [`usertypes::abi`].
//!
//! # What it never does
//! A module imports nothing, so it has no clock, no chance and no host. It has no floating-point numbers, whose NaNs differ
//! between processors, and no start function. Every call begins in a fresh instance, so that nothing is remembered.
//! Instructions and memory are limited, and equal calls come to equal ends on every machine: the interpreter's version is
//! pinned, because it says what an instruction costs.

use std::fmt;
use usertypes::abi::Entry;
use usertypes::{Fault, Limits, Machine, Module};
use wasmi::errors::{ErrorKind, MemoryError};
use wasmi::{
    CompilationMode, Config, Engine, Error, ExternType, Instance, Store, StoreLimits, StoreLimitsBuilder,
    TrapCode, TypedFunc, ValType,
};

/// The largest module, in bytes.
pub(crate) const MAX_MODULE_BYTES: usize = 512 << 10;
/// The most elements of a module's tables.
const MAX_TABLE_ELEMENTS: usize = 10_000;
/// The most calls within calls.
const MAX_DEPTH: usize = 1_000;

const MEMORY: &str = "memory";
const ALLOCATE: &str = "anabranch_allocate";
const CALL: &str = "anabranch_call";

/// Why a module is no type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a module. Whether its specification is right is for [`usertypes::check`] to find.
///
/// # Errors
/// It is no module, may do what it must not, or does not describe a type.
pub(crate) fn load(bytes: &[u8]) -> Result<Module, Unfit> {
    if bytes.len() > MAX_MODULE_BYTES {
        return Err(Unfit(format!("the module has {} bytes; {MAX_MODULE_BYTES} is the most", bytes.len())));
    }
    let engine = Engine::new(&config());
    let module = wasmi::Module::new(&engine, bytes);
    let module =
        module.map_err(|error| Unfit(format!("this is no WebAssembly module that runs here: {error}")))?;
    if let Some(import) = module.imports().next() {
        let name = format!("{}.{}", import.module(), import.name());
        return Err(Unfit(format!("the module imports {name}; a type may import nothing")));
    }
    check_exports(&module)?;
    Module::new(Box::new(Program { engine, module })).map_err(Unfit)
}

fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .floats(false)
        .allow_start_fn(false)
        .wasm_multi_memory(false)
        .ignore_custom_sections(true)
        .set_max_recursion_depth(MAX_DEPTH)
        // Translating as calls need it would take their fuel.
        .compilation_mode(CompilationMode::Eager);
    config
}

fn check_exports(module: &wasmi::Module) -> Result<(), Unfit> {
    let is_memory = matches!(module.get_export(MEMORY), Some(ExternType::Memory(memory)) if !memory.is_64());
    let is_function = |name: &str, parameters: usize, result: ValType| match module.get_export(name) {
        Some(ExternType::Func(of)) => {
            of.params() == vec![ValType::I32; parameters] && of.results() == [result]
        }
        _ => false,
    };
    if is_memory && is_function(ALLOCATE, 1, ValType::I32) && is_function(CALL, 3, ValType::I64) {
        return Ok(());
    }
    Err(Unfit(format!(
        "the module does not export what a type has: memory '{MEMORY}', '{ALLOCATE}' (i32) -> i32 and '{CALL}' (i32, i32, i32) \
         -> i64"
    )))
}

struct Program {
    engine: Engine,
    module: wasmi::Module,
}

impl Machine for Program {
    fn call(&self, entry: Entry, input: &[u8], limits: Limits) -> Result<Vec<u8>, Fault> {
        let bounds = StoreLimitsBuilder::new()
            .memory_size(limits.memory)
            .table_elements(MAX_TABLE_ELEMENTS)
            .trap_on_grow_failure(true)
            .build();
        let mut store = Store::new(&self.engine, bounds);
        store.limiter(|bounds| bounds);
        self.answer(&mut store, entry, input, limits).map_err(|error| fault(&error, limits))
    }
}

impl Program {
    fn answer(
        &self,
        store: &mut Store<StoreLimits>,
        entry: Entry,
        input: &[u8],
        limits: Limits,
    ) -> Result<Vec<u8>, Error> {
        store.set_fuel(limits.fuel)?;
        let instance = Instance::new(&mut *store, &self.module, &[])?;
        let allocate: TypedFunc<u32, u32> = instance.get_typed_func(&*store, ALLOCATE)?;
        let call: TypedFunc<(u32, u32, u32), u64> = instance.get_typed_func(&*store, CALL)?;
        let memory = instance.get_memory(&*store, MEMORY).ok_or_else(|| Error::new("it has no memory"))?;
        let len = u32::try_from(input.len()).map_err(|_| Error::new("the question is too long"))?;
        let place = allocate.call(&mut *store, len)?;
        memory.write(&mut *store, place as usize, input)?;
        let answer = call.call(&mut *store, (entry as u32, place, len))?;
        let (place, len) = ((answer >> 32) as usize, answer as u32 as usize);
        let bytes = memory.data(&*store).get(place..).and_then(|rest| rest.get(..len));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| Error::new("its answer lies outside of its memory"))
    }
}

fn fault(error: &Error, limits: Limits) -> Fault {
    match (error.as_trap_code(), error.kind()) {
        (Some(TrapCode::OutOfFuel), _) => Fault::Fuel(limits.fuel),
        (Some(TrapCode::GrowthOperationLimited), _)
        | (_, ErrorKind::Memory(MemoryError::ResourceLimiterDeniedAllocation)) => {
            Fault::Memory(limits.memory)
        }
        _ => Fault::Trap(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
