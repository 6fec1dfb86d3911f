//! docs/evidence/promises.md: the tests that its tables name exist. A filter that matches no test runs none, and passes.

use std::path::{Component, Path};

use super::{Finding, TextFile};

const PAGE: &str = "docs/evidence/promises.md";

/// Finds what the page names as `crate/target filter` or `test_x.py -k words` and no test matches.
pub fn check(root: &Path, files: &[TextFile]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == Path::new(PAGE)) else { return Vec::new() };
    let process_test = |name: &str| std::fs::read_to_string(root.join("tests/process").join(name)).ok();
    let is_missing = |code: &&str| match code.starts_with("test_") {
        true => !matches_process_test(code, process_test),
        false => matches_test(code, files) == Some(false),
    };
    named(&page.text)
        .filter(|(_, code)| is_missing(code))
        .map(|(line, code)| Finding::error(&page.path, line, format!("`{code}` matches no test")))
        .collect()
}

/// What stands between backticks in the page's tables, each with its line.
fn named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    rows.flat_map(|(index, row)| row.split('`').skip(1).step_by(2).map(move |code| (index + 1, code)))
}

/// Whether some Rust test matches `crate/target filter`; `None` for what is no such name.
fn matches_test(code: &str, files: &[TextFile]) -> Option<bool> {
    let (target, filter) = code.split_once(' ').unwrap_or((code, ""));
    let (package, target) = target.split_once('/')?;
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let tests = Path::new("crates").join(package).join("tests");
    let of_package = |file: &TextFile| file.path.starts_with(Path::new("crates").join(package));
    if !is_name(package) || !is_name(target) || !files.iter().any(of_package) {
        return None;
    }
    let folder = match target {
        "lib" => Path::new("crates").join(package).join("src"),
        // One binary has all modules of the folder.
        "all" => tests.clone(),
        target => tests.join(target),
    };
    let root = tests.join(format!("{target}.rs"));
    let in_target = |file: &&TextFile| file.path.starts_with(&folder) || file.path == root;
    Some(files.iter().filter(in_target).any(|file| {
        let modules = file.path.strip_prefix(&folder).map(modules).unwrap_or_default();
        tests_of(&file.text).any(|test| {
            [format!("{modules}{test}"), format!("{modules}tests::{test}")]
                .iter()
                .any(|name| name.contains(filter))
        })
    }))
}

/// The modules that lead to a file of a target, as the names of its tests begin.
fn modules(path: &Path) -> String {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names = parts.map(|part| part.trim_end_matches(".rs"));
    names.filter(|name| !matches!(*name, "mod" | "main" | "lib")).map(|name| format!("{name}::")).collect()
}

/// The names of the functions behind `#[test]`.
fn tests_of(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[test]").skip(1).filter_map(|behind| {
        let (_, name) = behind.split_once("fn ")?;
        name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
    })
}

/// True if the file is there and has every word that `-k` asks for.
fn matches_process_test(code: &str, read: impl Fn(&str) -> Option<String>) -> bool {
    let (name, words) = code.split_once(" -k ").unwrap_or((code, ""));
    let Some(text) = read(name) else { return false };
    let words = words.split([' ', '"']).filter(|word| !matches!(*word, "" | "and" | "or" | "not"));
    words.into_iter().all(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<TextFile> {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        vec![
            file("crates/branch/tests/branch/model.rs", "fn state() {}"),
            file("crates/branch/tests/branch/exhaustive.rs", "#[test]\nfn every_dag() {}"),
            file("crates/strict/src/locks.rs", "mod tests {\n    #[test]\n    fn they_hold() {}\n}"),
            file("crates/strict/tests/tapir/views.rs", "#[test]\nfn a_view() {}"),
        ]
    }

    #[test]
    fn a_filter_that_matches_no_test_is_found() {
        let matches = |code| matches_test(code, &files());
        assert_eq!(matches("branch/branch model"), Some(false));
        assert_eq!(matches("branch/branch exhaustive"), Some(true));
        assert_eq!(matches("branch/all branch::exhaustive"), Some(true));
        assert_eq!(matches("strict/lib locks::tests::they_hold"), Some(true));
        assert_eq!(matches("strict/all tapir::views"), Some(true));
        assert_eq!(matches("strict/all tapir::nowhere"), Some(false));
        assert_eq!(matches("anabranch sim/x"), None);
        let rows: Vec<_> = named("`a/b`\n| x `branch/branch model`; `sim tapir` |").collect();
        assert_eq!(rows, [(2, "branch/branch model"), (2, "sim tapir")]);
    }

    #[test]
    fn words_are_looked_for_in_the_file() {
        let read = |name: &str| (name == "test_x.py").then(|| "def test_forks(): ...".to_owned());
        assert!(matches_process_test("test_x.py -k \"forks and not\"", read));
        assert!(!matches_process_test("test_x.py -k merges", read));
        assert!(!matches_process_test("test_y.py", read));
    }
}
