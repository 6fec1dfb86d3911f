//! Pure crates: time, randomness, the network and the disk are arguments, and no result depends on a hash order.
//!
//! Three fences, because each sees what the others do not. Clippy resolves names and refuses the methods and types
//! that `pure-clippy.toml` lists; clippy reads only the configuration nearest to a crate and takes no wildcards, so
//! the file is copied into every pure crate, and this module keeps the copies equal. The text is searched for whole
//! modules of the standard library, for statics that can change, and for `for` loops over hash maps, which no clippy lint
//! covers for hashbrown.
//! The dependency graph is checked in `layers`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;
use super::source::{Source, block_end, find_words, is_word, line_of};

/// The folders under `crates/` of the pure crates. A folder that does not exist yet is skipped.
pub const PURE_CRATES: &[&str] = &[
    "types",
    "usertypes",
    "datatypes",
    "protocol",
    "mvcc",
    "replication",
    "strict",
    "causal",
    "branch",
    "baselines",
    "gateway",
    "resp",
];

/// The modules of the standard library that reach outside a step function.
const IMPURE_MODULES: &[&str] = &["env", "fs", "net", "os", "process", "thread"];

/// Tokens that hide state or time from the driver.
const IMPURE_TOKENS: &[(&str, &str)] = &[
    ("thread_local!", "state that the driver cannot see"),
    (".await", "a step runs to its end"),
    ("extern \"", "foreign code"),
];

/// What makes a static one that can change.
const CHANGING: &[&str] = &[
    "Cell",
    "Condvar",
    "LazyCell",
    "LazyLock",
    "Mutex",
    "Once",
    "OnceCell",
    "OnceLock",
    "RefCell",
    "RwLock",
    "SyncUnsafeCell",
    "UnsafeCell",
];

/// Statics that hold what a process decides once, and that no result depends on otherwise: file and name. A step that
/// looks a type up finds a constant of the program it runs (decision 0033), and the seed of the collections shows in no
/// reply and no effect.
const DECIDED_ONCE: &[(&str, &str)] = &[
    ("crates/datatypes/src/collections/mod.rs", "SEEDS"),
    ("crates/datatypes/src/user/registry.rs", "FIRST"),
];

/// Where a pure crate writes what runs in the sandbox, and never in the driver's process.
const EXPORTS: &str = "crates/usertypes/src/export.rs";

const TEMPLATE: &str = include_str!("pure-clippy.toml");

/// The text of a pure crate's `clippy.toml`: the root's settings, which clippy would otherwise not see, and the
/// disallowed names.
fn configuration(root: &Path) -> Result<String> {
    let path = root.join("clippy.toml");
    let common = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!(
        "# Written by `cargo xtask fix`; its source is xtask/src/tidy/pure-clippy.toml.\n{common}\n{TEMPLATE}"
    ))
}

fn configuration_paths(root: &Path) -> impl Iterator<Item = PathBuf> {
    PURE_CRATES
        .iter()
        .map(|name| Path::new("crates").join(name))
        .filter(move |folder| root.join(folder).join("Cargo.toml").is_file())
        .map(|folder| folder.join("clippy.toml"))
}

/// Writes the `clippy.toml` of every pure crate.
pub fn write_configurations(root: &Path) -> Result<()> {
    let wanted = configuration(root)?;
    for path in configuration_paths(root) {
        fs::write(root.join(&path), &wanted).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Finds pure crates whose `clippy.toml` is missing or was changed by hand.
pub fn check_configurations(root: &Path) -> Result<Vec<Finding>> {
    let wanted = configuration(root)?;
    Ok(configuration_paths(root)
        .filter(|path| fs::read_to_string(root.join(path)).ok().as_ref() != Some(&wanted))
        .map(|path| Finding::error(&path, 0, "missing or changed by hand; run `cargo xtask fix`"))
        .collect())
}

/// Finds what a pure crate must not say. Its tests, which draw their own entropy, are not looked at.
pub fn check_source(source: &Source<'_>) -> Vec<Finding> {
    let is_source = source.path.iter().nth(2).is_some_and(|part| part == "src");
    if !is_source || !source.crate_folder().is_some_and(|name| PURE_CRATES.contains(&name)) {
        return Vec::new();
    }
    let tests = source.test_ranges();
    let mut found: Vec<(usize, String)> = impure_modules(&source.code);
    for &(token, why) in IMPURE_TOKENS {
        if token == "extern \"" && source.path == Path::new(EXPORTS) {
            continue;
        }
        let ends = |at: usize| {
            let end = at + token.len();
            let within = |byte: Option<&u8>| byte.is_some_and(|byte| is_word(*byte));
            !(within(source.code.as_bytes().get(end - 1)) && within(source.code.as_bytes().get(end)))
        };
        let matches = source.code.match_indices(token).filter(|(at, _)| ends(*at));
        found.extend(matches.map(|(at, _)| (at, format!("`{token}` in a pure crate: {why}"))));
    }
    let changing = changing_statics(&source.code);
    let is_known = |name: &str| DECIDED_ONCE.iter().any(|it| source.path == Path::new(it.0) && it.1 == name);
    let changing = changing.into_iter().filter(|(_, name)| !is_known(name));
    let message = |name| format!("the static `{name}` in a pure crate can change: make it an argument");
    found.extend(changing.map(|(at, name)| (at, message(name))));
    found.extend(hash_loops(&source.code));
    found
        .into_iter()
        .filter(|(offset, _)| !tests.iter().any(|range| range.contains(offset)))
        .map(|(offset, message)| Finding::error(source.path, line_of(source.text, offset), message))
        .collect()
}

/// Finds `std::fs` and `use std::{fs, ...}`, for every impure module.
fn impure_modules(code: &str) -> Vec<(usize, String)> {
    let message = |module: &str| format!("`std::{module}` in a pure crate: make it an argument");
    let mut found = Vec::new();
    for start in find_words(code, "std") {
        let Some(rest) = code[start + 3..].strip_prefix("::") else { continue };
        let offset = start + 5;
        if rest.starts_with('{') {
            let group = &code[offset..block_end(code, offset)];
            for module in IMPURE_MODULES {
                found.extend(find_words(group, module).map(|at| (offset + at, message(module))));
            }
        } else {
            let first = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            found.extend(
                IMPURE_MODULES.iter().find(|module| **module == first).map(|module| (start, message(module))),
            );
        }
    }
    found
}

/// Finds statics that are mutable or whose type lets what is inside change, with their names.
fn changing_statics(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for start in find_words(code, "static").filter(|start| !code[..*start].ends_with('\'')) {
        let rest = &code[start + "static".len()..];
        let (item, is_mutable) = match rest.trim_start().strip_prefix("mut ") {
            Some(item) => (item, true),
            None => (rest, false),
        };
        let Some((name, declared)) = item.split_once(':') else { continue };
        let kind = &declared[..declared.find(['=', ';']).unwrap_or(declared.len())];
        let mut words = kind.split(|at: char| !at.is_ascii() || !is_word(at as u8));
        if is_mutable || words.any(|word| word.starts_with("Atomic") || CHANGING.contains(&word)) {
            found.push((start, name.trim()));
        }
    }
    found
}

/// Finds `for` loops over a name that this file declares as a hash map or set.
fn hash_loops(code: &str) -> Vec<(usize, String)> {
    let names = hash_names(code);
    let mut found = Vec::new();
    for start in find_words(code, "for") {
        let Some(open) = code[start..].find('{') else { continue };
        let Some((_, subject)) = code[start..start + open].split_once(" in ") else { continue };
        let subject = subject.trim().trim_start_matches('&').trim_start_matches("mut ").trim();
        let name = subject.rsplit('.').next().unwrap_or_default();
        if names.contains(&name) {
            found.push((
                start,
                format!("a loop over the hash order of `{subject}`: sort it, or use a BTreeMap"),
            ));
        }
    }
    found
}

/// The names of fields, parameters and variables that are declared as a hash map or set on one line.
fn hash_names(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for line in code.lines() {
        for at in ["HashMap", "HashSet"].iter().flat_map(|word| find_words(line, word)) {
            let before = &line[..at];
            let Some((left, path)) = before.rsplit_once(": ").or_else(|| before.rsplit_once(" = ")) else {
                continue;
            };
            let path = path.trim_start_matches('&').trim_start_matches("mut ");
            let length = left.bytes().rev().take_while(|&byte| is_word(byte)).count();
            // A map inside another type says nothing about how the outer one is iterated.
            if length > 0 && path.bytes().all(|byte| is_word(byte) || byte == b':') {
                names.push(&left[left.len() - length..]);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check_source(&Source::new(Path::new(path), text))
            .iter()
            .map(|finding| finding.message.clone())
            .collect()
    }

    const PURE: &str = "crates/mvcc/src/lib.rs";

    #[test]
    fn impure_modules_are_found_in_paths_and_in_groups() {
        assert_eq!(messages(PURE, "fn a() { std::thread::yield_now() }").len(), 1);
        assert_eq!(messages(PURE, "fn a() { b.await; b.awaits() }").len(), 1);
        assert_eq!(messages(PURE, "use std::{collections::BTreeMap, fs, net::TcpStream};").len(), 2);
        assert_eq!(messages(PURE, "thread_local! { static A: u8 = 0; }").len(), 1);
    }

    #[test]
    fn a_static_that_can_change_is_found() {
        let found = |kind: &str| messages(PURE, &format!("pub(crate) static COUNT: {kind} = new();"));
        for kind in [
            "AtomicU64",
            "std::sync::atomic::AtomicBool",
            "OnceLock<&'static str>",
            "LazyLock<BTreeMap<u8, u8>>",
            "[Mutex<u8>; 2]",
            "parking_lot::RwLock<u8>",
        ] {
            let message = "the static `COUNT` in a pure crate can change: make it an argument";
            assert_eq!(found(kind), [message], "{kind}");
        }
        assert_eq!(messages(PURE, "static mut COUNT: u8 = 0;").len(), 1);
        assert_eq!(messages(PURE, "fn a() { static ONCE: OnceLock<u8> = OnceLock::new(); }").len(), 1);
        for kind in ["u8", "&[Command]", "&'static str", "[Folded; SIZE]"] {
            assert_eq!(found(kind), [""; 0], "{kind}");
        }
        assert_eq!(messages(PURE, "struct A { once: OnceLock<&'static u8> }"), [""; 0]);
        assert_eq!(messages(PURE, "#[cfg(test)]\nmod tests { static A: AtomicU8 = a(); }\n"), [""; 0]);
        assert_eq!(messages("crates/runtime/src/lib.rs", "static A: AtomicU8 = a();"), [""; 0]);
    }

    #[test]
    fn what_is_decided_once_may_be_static_in_its_own_file() {
        for &(file, name) in DECIDED_ONCE {
            let text = format!("static {name}: OnceLock<u8> = OnceLock::new();");
            assert_eq!(messages(file, &text), [""; 0]);
            assert_eq!(messages(PURE, &text).len(), 1);
        }
    }

    #[test]
    fn other_crates_tests_and_prose_may_name_them() {
        assert_eq!(messages("crates/runtime/src/lib.rs", "use std::net::TcpStream;"), [""; 0]);
        assert_eq!(messages("crates/mvcc/tests/a.rs", "use std::fs;"), [""; 0]);
        assert_eq!(messages(PURE, "//! No std::fs here.\nuse std::fmt;\n"), [""; 0]);
        assert_eq!(messages(PURE, "#[cfg(test)]\nmod tests { use std::env; }\n"), [""; 0]);
    }

    #[test]
    fn a_loop_over_a_hash_map_is_found() {
        let text =
            "struct A { index: hashbrown::HashMap<u8, u8> }\nfn a(a: &A) { for (k, v) in &a.index { f(k) } }";
        assert_eq!(messages(PURE, text).len(), 1);
        let text = "let seen = HashSet::new();\nfor key in seen { f(key) }";
        assert_eq!(messages(PURE, text).len(), 1);
    }

    #[test]
    fn a_loop_over_an_ordered_map_of_sets_is_not() {
        let text = "let index: BTreeMap<u8, HashSet<u8>> = a;\nfor (k, v) in &index { f(k) }";
        assert_eq!(messages(PURE, text), [""; 0]);
    }

    #[test]
    fn a_configuration_changed_by_hand_is_found() {
        let root = std::env::temp_dir().join(format!("anabranch-tidy-{}", std::process::id()));
        fs::create_dir_all(root.join("crates/mvcc")).unwrap();
        fs::write(root.join("clippy.toml"), "allow-unwrap-in-tests = true\n").unwrap();
        fs::write(root.join("crates/mvcc/Cargo.toml"), "").unwrap();
        assert_eq!(check_configurations(&root).unwrap().len(), 1, "missing");
        write_configurations(&root).unwrap();
        assert_eq!(check_configurations(&root).unwrap(), []);
        fs::write(root.join("crates/mvcc/clippy.toml"), "").unwrap();
        assert_eq!(check_configurations(&root).unwrap().len(), 1, "changed");
        fs::remove_dir_all(&root).unwrap();
    }

    /// Each line breaks one rule of the template; clippy must name every one of them.
    const BAD_SAMPLE: &[(&str, &str)] = &[
        ("pub fn a() -> bool { std::time::Instant::now().elapsed().is_zero() }", "std::time::Instant::now"),
        ("pub fn b() { std::thread::sleep(std::time::Duration::ZERO) }", "std::thread::sleep"),
        ("pub fn c() -> bool { std::fs::read(\"c\").is_ok() }", "std::fs::read"),
        ("pub fn d() -> bool { std::env::var(\"d\").is_ok() }", "std::env::var"),
        ("pub fn e() -> bool { std::net::TcpStream::connect(\"e\").is_ok() }", "std::net::TcpStream"),
        ("pub fn f(f: &std::sync::Mutex<u8>) -> bool { f.is_poisoned() }", "std::sync::Mutex"),
        ("pub fn g(g: &std::collections::HashMap<u8, u8>) -> usize { g.len() }", "std::collections::HashMap"),
        ("pub fn h() { println!() }", "std::println"),
    ];

    #[test]
    fn clippy_with_the_template_refuses_a_bad_sample() {
        let root = std::env::temp_dir().join(format!("anabranch-impure-{}", std::process::id()));
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(root.join("clippy.toml"), TEMPLATE).unwrap();
        let manifest = "[package]\nname = \"impure\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
        fs::write(root.join("Cargo.toml"), manifest).unwrap();
        let lines: Vec<&str> = BAD_SAMPLE.iter().map(|&(line, _)| line).collect();
        fs::write(root.join("src/lib.rs"), lines.join("\n")).unwrap();
        let output = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["clippy", "--offline", "--quiet", "--", "-D", "warnings"])
            .env("CARGO_TARGET_DIR", root.join("target"))
            .current_dir(&root)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        fs::remove_dir_all(&root).unwrap();
        assert!(!output.status.success(), "{errors}");
        for (_, name) in BAD_SAMPLE {
            assert!(errors.contains(&format!("`{name}`")), "{name} was not refused:\n{errors}");
        }
        assert!(!errors.contains("does not refer to"), "the template names what does not exist:\n{errors}");
    }
}
