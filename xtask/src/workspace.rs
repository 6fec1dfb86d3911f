//! Where the workspace lies, and how its tools are started.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The profile that tests, the simulation and the binaries of the process tests share, so that one build serves all.
pub const PROFILE: &str = "ci";

/// `-D warnings`, in the form in which `cargo clippy` hands arguments to its driver.
const DENY_WARNINGS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

/// The checked-out tree and what `cargo metadata` says about it.
pub struct Workspace {
    /// The folder that holds the root `Cargo.toml`.
    pub root: PathBuf,
    /// The output of `cargo metadata`: packages, targets and the resolved dependency graph.
    pub metadata: Value,
    target_directory: PathBuf,
}

impl Workspace {
    /// Finds the workspace that this program was built from and reads its metadata.
    pub fn open() -> Result<Workspace> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask lies in a folder of the workspace")?
            .to_path_buf();
        let output = Command::new(cargo_program())
            .args(["metadata", "--format-version", "1"])
            .current_dir(&root)
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed");
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).context("cannot read `cargo metadata`")?;
        let target_directory = metadata["target_directory"]
            .as_str()
            .map(PathBuf::from)
            .context("`cargo metadata` names no target directory")?;
        Ok(Workspace { root, metadata, target_directory })
    }

    /// The product's binary of the shared profile; it exists once the `build` step has run.
    pub fn product(&self) -> PathBuf {
        self.target_directory.join(PROFILE).join("anabranch")
    }

    /// The laboratory's binary of the shared profile, likewise.
    pub fn laboratory(&self) -> PathBuf {
        self.target_directory.join(PROFILE).join("anabranch-lab")
    }

    /// A number that follows from the commit, for what is to be different in each and repeatable; 0 outside of git.
    pub fn seed(&self) -> u32 {
        let head = capture(self.command("git").args(["rev-parse", "HEAD"])).unwrap_or_default();
        head.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0)
    }

    /// A cargo command in the workspace's root. The workspace's crates are compiled by clippy's driver (`compiler`), which
    /// denies warnings here: one pass lints and builds.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(cargo_program());
        command.args(arguments).env("CLIPPY_ARGS", DENY_WARNINGS);
        if let Ok(this) = std::env::current_exe() {
            command.env("RUSTC_WORKSPACE_WRAPPER", this);
        }
        command
    }

    /// A command in the workspace's root.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }
}

/// The cargo that runs this program, so that a nested call uses the same toolchain.
fn cargo_program() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs `command` to its end with this program's own output; an error names the command when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs `command` to its end and returns its standard output; its errors go to this program's own.
pub fn capture(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        print!("{text}");
        bail!("`{shown}` failed ({})", output.status);
    }
    Ok(text)
}

/// Whether a program of this name is in the search path.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// `command` as a person would type it, with the variables that were set for it in front.
fn show(command: &Command) -> String {
    let mut words: Vec<String> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)))
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), quote(&value.to_string_lossy())))
        .collect();
    let program = Path::new(command.get_program());
    let is_cargo = program == Path::new(&cargo_program());
    words.push(if is_cargo { "cargo".to_owned() } else { program.display().to_string() });
    words.extend(command.get_args().map(|argument| quote(&argument.to_string_lossy())));
    words.join(" ")
}

fn quote(word: &str) -> String {
    if word.is_empty() || word.contains([' ', '*', '$', '"']) { format!("'{word}'") } else { word.to_owned() }
}
