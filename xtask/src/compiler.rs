//! What compiles the workspace's crates in this program's builds: clippy's driver, and for tests without optimization.
//!
//! Cargo calls this program as `RUSTC_WORKSPACE_WRAPPER`, with the compiler's path and arguments. Optimized, the tests
//! would take five times the processor time to compile, and would save less than that when they run. The libraries that
//! they test are optimized. A profile cannot say so: for cargo, a package's tests and its library are one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Compiles, if the arguments are those of a compiler; says whether it succeeded. `None` if they are not.
pub fn compile(arguments: &[String]) -> Option<Result<bool>> {
    let rustc = Path::new(arguments.first()?);
    let is_compiler = rustc.is_absolute() && rustc.file_stem()? == "rustc";
    is_compiler.then(|| {
        let driver = driver(rustc);
        let status = Command::new(&driver).args(arguments).args(unoptimized(arguments)).status();
        Ok(status.with_context(|| format!("cannot start {}", driver.display()))?.success())
    })
}

/// What makes a compiler leave a test unoptimized; nothing for what is no test.
fn unoptimized(arguments: &[String]) -> Option<&'static str> {
    arguments.iter().any(|argument| argument == "--test").then_some("-Copt-level=0")
}

/// Clippy's driver of the same toolchain, which is the compiler with clippy's lints: beside its rustc.
fn driver(rustc: &Path) -> PathBuf {
    let sibling = rustc.with_file_name("clippy-driver");
    if sibling.is_file() { sibling } else { PathBuf::from("clippy-driver") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_compilers_arguments_compile_and_only_tests_are_left_unoptimized() {
        let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(compile(&words("test unit")).is_none());
        assert!(compile(&[]).is_none());
        assert_eq!(unoptimized(&words("/bin/rustc --crate-name a -C opt-level=1")), None);
        let test = words("/bin/rustc --crate-name a -C opt-level=1 --test");
        assert_eq!(unoptimized(&test), Some("-Copt-level=0"));
    }
}
