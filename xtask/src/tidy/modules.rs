//! Dead files: a Rust file under `src` or `tests` that no `mod` leads to is compiled by nobody and read by everybody.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::source::{Source, block_end, find_words};
use super::{Finding, TextFile, has_extension};

/// Finds files under `src` and `tests` that cannot be reached from `roots`, the root files of all targets.
pub fn check(roots: &[PathBuf], files: &[TextFile]) -> Vec<Finding> {
    let texts: BTreeMap<&Path, &str> = files
        .iter()
        .filter(|file| has_extension(&file.path, "rs"))
        .map(|file| (file.path.as_path(), file.text.as_str()))
        .collect();
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    let mut pending: Vec<(PathBuf, bool)> = roots.iter().map(|root| (root.clone(), true)).collect();
    while let Some((path, is_root)) = pending.pop() {
        let Some(text) = texts.get(path.as_path()) else { continue };
        if reached.insert(path.clone()) {
            pending
                .extend(children(&Source::new(&path, text), is_root).into_iter().map(|child| (child, false)));
        }
    }
    texts
        .keys()
        .filter(|path| path.iter().any(|part| part == "src" || part == "tests") && !reached.contains(**path))
        .map(|path| Finding::error(path, 0, "no `mod` leads to this file; declare or remove it"))
        .collect()
}

/// Every path where a module declared in this file may lie; some of them do not exist.
fn children(source: &Source<'_>, is_root: bool) -> Vec<PathBuf> {
    let parent = source.path.parent().unwrap_or(Path::new(""));
    let is_folder = is_root || source.path.file_name().is_some_and(|name| name == "mod.rs");
    let folder = if is_folder { parent.to_path_buf() } else { source.path.with_extension("") };
    let modules = declared_modules(&source.code);
    let mut paths = Vec::new();
    for module in modules.iter().filter(|module| module.body.is_none()) {
        let enclosing = modules.iter().filter(|outer| outer.contains(module.start)).map(|outer| outer.name);
        let place = enclosing.fold(folder.clone(), |place, name| place.join(name));
        paths.push(place.join(format!("{}.rs", module.name)));
        paths.push(place.join(module.name).join("mod.rs"));
    }
    paths.extend(named_files(source.text, &source.code).map(|name| parent.join(name)));
    paths
}

struct Module<'a> {
    name: &'a str,
    start: usize,
    body: Option<Range<usize>>,
}

impl Module<'_> {
    fn contains(&self, offset: usize) -> bool {
        self.body.as_ref().is_some_and(|body| body.contains(&offset))
    }
}

/// The modules that the code declares, in the order of the text, so that outer ones come before inner ones.
fn declared_modules(code: &str) -> Vec<Module<'_>> {
    let mut modules = Vec::new();
    for start in find_words(code, "mod") {
        let rest = code[start + 3..].trim_start();
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        let after = rest[name.len()..].trim_start();
        let offset = code.len() - after.len();
        match after.bytes().next() {
            Some(b';') => modules.push(Module { name, start, body: None }),
            Some(b'{') => modules.push(Module { name, start, body: Some(offset..block_end(code, offset)) }),
            _ => {}
        }
    }
    modules
}

/// The files named by `#[path = "..."]` and `include!("...")`.
fn named_files<'a>(text: &'a str, code: &'a str) -> impl Iterator<Item = &'a str> {
    ["#[path = \"", "include!(\""]
        .into_iter()
        .flat_map(|opening| code.match_indices(opening))
        .filter_map(|(start, opening)| text[start + opening.len()..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<TextFile> =
            files.iter().map(|(path, text)| TextFile { path: path.into(), text: (*text).into() }).collect();
        let findings = check(&["a/src/lib.rs".into()], &files);
        findings.iter().map(|finding| finding.file.display().to_string()).collect()
    }

    #[test]
    fn a_file_without_a_mod_is_dead_and_so_is_what_it_declares() {
        let files = [
            ("a/src/lib.rs", "mod used;\n// mod unused;\n"),
            ("a/src/used.rs", ""),
            ("a/src/unused.rs", "mod inner;"),
            ("a/src/unused/inner.rs", ""),
            ("a/tests/forgotten.rs", "#[test] fn never_runs() {}"),
        ];
        assert_eq!(dead(&files), ["a/src/unused/inner.rs", "a/src/unused.rs", "a/tests/forgotten.rs"]);
    }

    #[test]
    fn modules_are_followed_through_folders_and_inline_modules() {
        let files = [
            ("a/src/lib.rs", "pub mod one; mod two { mod three; }\n#[path = \"odd-name.rs\"] mod odd;"),
            ("a/src/one/mod.rs", "mod four;"),
            ("a/src/one/four.rs", "mod five;"),
            ("a/src/one/four/five.rs", ""),
            ("a/src/two/three.rs", ""),
            ("a/src/odd-name.rs", ""),
        ];
        assert_eq!(dead(&files), Vec::<String>::new());
    }
}
