//! The `unit` step: every test binary that cargo builds, as many at a time as there are processors.
//!
//! `cargo test` runs one binary after the other, and where the last test of one takes seconds, all processors but one
//! wait for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::parallel::{lock, on_all_processors};
use crate::suite::{FIGURES, SOAK};
use crate::workspace::{PROFILE, Workspace, capture};

/// A program with tests, and the folder of its package, in which it runs.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    program: PathBuf,
    folder: PathBuf,
}

/// Property tests draw from a seed that follows from the commit, so that every commit tries others and any run can be repeated.
pub fn unit(workspace: &Workspace) -> Result<()> {
    let seed = workspace.seed().to_string();
    println!("properties draw from PROPTEST_RNG_SEED={seed}");
    let (left, failed) = (Mutex::new(binaries(workspace)?), Mutex::new(Vec::new()));
    on_all_processors(|| {
        loop {
            let Some(binary) = lock(&left).pop() else { return Ok(()) };
            let mut tests = Command::new(&binary.program);
            tests.args(["--skip", SOAK]).current_dir(&binary.folder).env("PROPTEST_RNG_SEED", &seed);
            let output = tests.stdin(Stdio::null()).output();
            let output = output.with_context(|| format!("cannot start {}", binary.program.display()))?;
            let mut failed = lock(&failed);
            println!("{}", binary.program.display());
            print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            if !output.status.success() {
                failed.push(format!(
                    "{} in {} ({})",
                    binary.program.display(),
                    binary.folder.display(),
                    output.status
                ));
            }
        }
    })?;
    let failed = failed.into_inner().unwrap_or_default();
    if !failed.is_empty() {
        bail!("tests failed:\n{}", failed.join("\n"));
    }
    Ok(())
}

/// The binaries with tests, built; the largest one last, which is run first, since it has the most to do.
fn binaries(workspace: &Workspace) -> Result<Vec<Binary>> {
    let mut build = workspace.cargo(&["test", "--profile", PROFILE, "--workspace", "--exclude", FIGURES]);
    let messages = capture(build.args(["--lib", "--bins", "--tests", "--no-run", "--message-format=json"]))?;
    let mut binaries = Vec::new();
    for message in messages.lines() {
        let message = serde_json::from_str(message).with_context(|| format!("cargo said `{message}`"))?;
        binaries.extend(binary(&message));
    }
    if binaries.is_empty() {
        bail!("cargo named no program with tests");
    }
    binaries.sort_by_key(|binary: &Binary| std::fs::metadata(&binary.program).map_or(0, |file| file.len()));
    Ok(binaries)
}

/// The program with tests that a message of cargo's is about.
fn binary(message: &Value) -> Option<Binary> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    Some(Binary { program: message["executable"].as_str()?.into(), folder })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn programs_with_tests_are_found_and_nothing_else() {
        let message = |test: bool, executable: Value| {
            json!({
                "reason": "compiler-artifact", "manifest_path": "/a/Cargo.toml",
                "profile": {"test": test}, "executable": executable,
            })
        };
        let found = Binary { program: "/t/a-1".into(), folder: "/a".into() };
        assert_eq!(binary(&message(true, json!("/t/a-1"))), Some(found));
        assert_eq!(binary(&message(false, json!("/t/a-1"))), None);
        assert_eq!(binary(&message(true, Value::Null)), None);
        assert_eq!(binary(&json!({"reason": "build-finished", "success": true})), None);
    }
}
