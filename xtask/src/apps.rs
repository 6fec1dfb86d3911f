//! `apps`: other projects' own tests against our server and, for comparison, against redis-server (`tests/apps`).

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::environment::{SOURCES, prepare_with_source};
use crate::workspace::{Workspace, run};

const DRIVER: &str = "tests/apps/run.py";
const REQUIREMENTS: &str = "tests/apps/requirements.txt";
/// The package whose tests are in its source distribution.
const PACKAGE: &str = "redis";

/// The suites in RESP2.
pub fn brief(workspace: &Workspace) -> Result<()> {
    run(&mut driver(workspace)?)
}

/// The suites in RESP2 and in RESP3.
pub fn whole(workspace: &Workspace) -> Result<()> {
    run(driver(workspace)?.args(["--protocols", "2", "3"]))
}

/// The driver in the environment of its own requirements, which is made on first use.
fn driver(workspace: &Workspace) -> Result<Command> {
    let product = workspace.product();
    if !product.is_file() {
        bail!("{} does not exist; run `cargo xtask test build` first", product.display());
    }
    let environment = prepare_with_source(workspace, REQUIREMENTS, PACKAGE)?;
    let sources = environment.join(SOURCES);
    let folders = std::fs::read_dir(&sources)?.filter_map(Result::ok).map(|entry| entry.path());
    let source = folders.into_iter().find(|path| path.is_dir());
    let source = source.with_context(|| format!("{} holds no source of {PACKAGE}", sources.display()))?;
    let mut driver = workspace.command(environment.join("bin/python"));
    driver.arg(DRIVER).arg("--redis-py").arg(source);
    driver.env("ANABRANCH_BIN", product).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(driver)
}
