//! `apps`: other projects' own tests against our server and, for comparison, against redis-server (`tests/apps`).

use std::process::Command;

use anyhow::{Result, bail};

use crate::environment::{SOURCES, prepare_with_sources};
use crate::workspace::{Workspace, run};

const DRIVER: &str = "tests/apps/run.py";
const REQUIREMENTS: &str = "tests/apps/requirements.txt";
/// The packages whose tests are in their source distributions.
const PACKAGES: &[&str] = &[
    "aiocache",
    "APScheduler",
    "arq",
    "cachelib",
    "channels-redis",
    "Flask-Caching",
    "huey",
    "kombu",
    "redis",
    "rq",
    "walrus",
];

/// The suites that do not take long, in RESP2.
pub fn brief(workspace: &Workspace) -> Result<()> {
    run(&mut driver(workspace)?)
}

/// All suites, in RESP2 and in RESP3 where a suite can be told which.
pub fn whole(workspace: &Workspace) -> Result<()> {
    run(driver(workspace)?.args(["--long", "--protocols", "2", "3"]))
}

/// The driver in the environment of its own requirements, which is made on first use.
fn driver(workspace: &Workspace) -> Result<Command> {
    let product = workspace.product();
    if !product.is_file() {
        bail!("{} does not exist; run `cargo xtask test build` first", product.display());
    }
    let environment = prepare_with_sources(workspace, REQUIREMENTS, PACKAGES)?;
    let mut driver = workspace.command(environment.join("bin/python"));
    driver.arg(DRIVER).arg("--sources").arg(environment.join(SOURCES));
    driver.env("ANABRANCH_BIN", product).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(driver)
}
