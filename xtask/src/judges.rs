//! `soak judges`: histories of real and simulated clusters before checkers that share no code with ours.
//!
//! Porcupine is built from the version that `go.mod` and `go.sum` pin, in a folder of its own; the judge of causal
//! histories is Python without dependencies. `tests/judges` runs both.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::environment::pytest;
use crate::workspace::{Workspace, is_installed, run};

const TESTS: &str = "tests/judges";
const GO_MODULE: &str = "tests/judges/porcupine";
/// Where Go keeps what it fetches and builds.
const GO_CACHE: &str = ".cache/go";

/// Runs the judges; each must accept what was recorded, and refuse it once it is damaged.
pub fn judge(workspace: &Workspace) -> Result<()> {
    let porcupine = porcupine(workspace)?;
    run(pytest(workspace)?.args(["-s", TESTS]).env("ANABRANCH_PORCUPINE", porcupine))
}

/// Builds the judge of strict histories.
fn porcupine(workspace: &Workspace) -> Result<PathBuf> {
    if !is_installed("go") {
        bail!("Go is missing; install it with: sudo apt-get install -y golang-go");
    }
    let cache = workspace.root.join(GO_CACHE);
    let program = cache.join("bin/porcupine-judge");
    let mut go = workspace.command("go");
    go.args(["build", "-C", GO_MODULE, "-mod=readonly", "-modcacherw", "-buildvcs=false", "-o"]);
    go.arg(&program).arg(".");
    run(go.env("GOMODCACHE", cache.join("modules")).env("GOCACHE", cache.join("build")))?;
    Ok(program)
}
