//! `fuzz`: every target under `fuzz/fuzz_targets` for a while.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::simulation::number;
use crate::workspace::{Workspace, run};

const TARGETS: &str = "fuzz/fuzz_targets";
/// Inputs that a target begins with, in a folder of its name, and where what is found is kept.
const SEEDS: &str = "fuzz/seeds";
const CORPUS: &str = "fuzz/corpus";

/// `cargo xtask fuzz [--seconds N]`: each target for so long.
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let seconds = match arguments {
        [] => 60,
        [flag, value] if flag == "--seconds" => number(flag, value)?,
        other => bail!("fuzz takes `--seconds N`, not `{}`", other.join(" ")),
    };
    fuzz(workspace, seconds)
}

/// Runs each target for so many seconds; fails at the first input that a target does not survive.
pub fn fuzz(workspace: &Workspace, seconds: u32) -> Result<()> {
    ensure_installed(workspace)?;
    for target in targets(workspace)? {
        println!("== fuzz {target}, {seconds} s");
        let mut fuzz = workspace.command("rustup");
        fuzz.args(["run", "nightly", "cargo", "fuzz", "run", &target]).args(inputs(workspace, &target)?);
        fuzz.args(["--", "-max_len=4096", "-verbosity=0"]);
        run(fuzz.arg(format!("-max_total_time={seconds}")).env_remove("CARGO"))?;
    }
    Ok(())
}

/// Fails with the commands to type when the fuzzer is not there.
pub fn ensure_installed(workspace: &Workspace) -> Result<()> {
    let mut version = workspace.command("rustup");
    version.args(["run", "nightly", "cargo", "fuzz", "--version"]).env_remove("CARGO");
    run(&mut version).context(
        "the fuzzer is missing; install it with: rustup toolchain install nightly && cargo install cargo-fuzz",
    )
}

/// The folders of a target's inputs: the first takes new ones.
fn inputs(workspace: &Workspace, target: &str) -> Result<Vec<PathBuf>> {
    let [corpus, seeds] = [CORPUS, SEEDS].map(|folder| workspace.root.join(folder).join(target));
    fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
    Ok(if seeds.is_dir() { vec![corpus, seeds] } else { vec![corpus] })
}

fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(workspace.root.join(TARGETS)).with_context(|| format!("cannot read {TARGETS}"))?;
    let mut targets = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}
