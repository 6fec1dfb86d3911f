//! What the process tests need besides Rust: a few system packages and a Python environment of their own.
//!
//! Nothing is installed into the system's Python. System packages are installed only as root and with apt; for
//! anyone else the error is the command to type.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, capture, is_installed, run};

const REQUIREMENTS: &str = "tests/requirements.txt";
/// Where an environment keeps the source distributions that were fetched for it.
pub const SOURCES: &str = "sources";
const PROCESS_TESTS: &str = "tests/process";
/// Debian's names for the peer of the differential test, its client tools, Python's environments, and the peer of `bench tardis`.
const PACKAGES: &str = "redis-server redis-tools python3-venv libdb5.3-dev";
/// What that peer is compiled with.
const BERKELEYDB: &str = "/usr/include/db.h";

/// How many files of process tests run at a time. More of them make requests time out, and what is tried again costs more.
const PARALLEL_FILES: &str = "5";

/// Parts of the names of the tests that [`Length::Long`] runs.
const LONGER: [&str; 10] = [
    "kill",
    "random_sequences",
    "differential_cluster",
    "cut_apart",
    "long_cut",
    "spill",
    "crowds",
    "orders",
    "shrinks",
    "outlive",
];

/// After how many seconds a test of [`Length::Brief`] fails: a multiple of what the longest takes.
const TEST_LIMIT: &str = "--timeout=300";

/// Which process tests run, and for how long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// All but those that are marked `soak`, several files at a time.
    Brief,
    /// Those that are marked `soak`.
    Left,
    /// Those of [`Length::Brief`] again, where every process has two worker threads.
    Threads,
    /// Those that find more the longer they go on.
    Long,
}

/// Runs what `test` runs of `tests/process/test_*.py`, against the binaries of the shared profile.
pub fn process_tests(workspace: &Workspace) -> Result<()> {
    run_process_tests(workspace, Length::Brief)
}

/// Runs process tests.
pub fn run_process_tests(workspace: &Workspace, length: Length) -> Result<()> {
    let files = process_test_files(&workspace.root)?;
    if files.is_empty() {
        println!("no {PROCESS_TESTS}/test_*.py in this tree");
        return Ok(());
    }
    let mut pytest = pytest(workspace)?;
    pytest.args(&files);
    // Their order is that of `conftest.py`, not by how many tests they have.
    let parallel = ["-n", PARALLEL_FILES, "--dist", "loadfile", "--no-loadscope-reorder", TEST_LIMIT];
    match length {
        // They wait more than they work; a file's tests share servers, so a file stays together.
        Length::Brief => pytest.args(["-m", "not soak"]).args(parallel),
        Length::Threads => pytest.args(["-m", "not soak"]).args(parallel).env("ANABRANCH_THREADS", "2"),
        // They load the machine, and are not to disturb one another.
        Length::Left => pytest.args(["-m", "soak"]).env("ANABRANCH_SOAK", "1"),
        Length::Long => pytest.args(["-k", &LONGER.join(" or ")]).env("ANABRANCH_SOAK", "1"),
    };
    run(&mut pytest)
}

/// Installs what the process tests need, where it is missing, and returns their Python.
pub fn prepare(workspace: &Workspace) -> Result<PathBuf> {
    install_packages(workspace)?;
    Ok(python_environment(workspace, REQUIREMENTS, &[])?.join("bin/python"))
}

/// The same, with the packages that a file of requirements pins; of some of them, their source distributions unpacked in the
/// folder [`SOURCES`] of the environment. Returns the environment's folder.
pub fn prepare_with_sources(workspace: &Workspace, requirements: &str, packages: &[&str]) -> Result<PathBuf> {
    install_packages(workspace)?;
    python_environment(workspace, requirements, packages)
}

/// Pytest in the environment of the pinned requirements, for tests of the binaries of the shared profile.
pub fn pytest(workspace: &Workspace) -> Result<Command> {
    let (product, laboratory) = (workspace.product(), workspace.laboratory());
    if let Some(missing) = [&product, &laboratory].into_iter().find(|binary| !binary.is_file()) {
        bail!("{} does not exist; run `cargo xtask test build` first", missing.display());
    }
    let mut pytest = workspace.command(prepare(workspace)?);
    pytest.args(["-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "--durations=10"]);
    pytest.env("ANABRANCH_BIN", &product).env("ANABRANCH_LAB", &laboratory);
    pytest.env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(pytest)
}

/// The process tests of this tree, sorted, relative to the root.
fn process_test_files(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join(PROCESS_TESTS);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("test_") && name.ends_with(".py") {
            files.push(Path::new(PROCESS_TESTS).join(name));
        }
    }
    files.sort();
    Ok(files)
}

/// Installs the system packages that are missing, or fails with the command that does.
fn install_packages(workspace: &Workspace) -> Result<()> {
    let has_peers =
        is_installed("redis-server") && is_installed("redis-cli") && Path::new(BERKELEYDB).exists();
    if has_peers && python_can_make_environments(workspace) {
        return Ok(());
    }
    if !is_installed("apt-get") || !is_root(workspace) {
        bail!("system packages are missing; install them with: sudo apt-get install -y {PACKAGES}");
    }
    println!("installing {PACKAGES}");
    let apt = |arguments: &[&str]| {
        run(workspace.command("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let had_server = is_installed("redis-server");
    if let Err(error) = apt(&["update", "-q"]) {
        println!("{error:#}; trying with the package lists at hand");
    }
    apt(&[&["install", "-y", "-q", "--no-install-recommends"], &*PACKAGES.split(' ').collect::<Vec<_>>()]
        .concat())?;
    if !had_server {
        // Debian starts the server that it installs; the tests start their own. Without an init system there is
        // nothing to stop, so a failure means nothing.
        let _ = workspace.command("service").args(["redis-server", "stop"]).status();
    }
    Ok(())
}

fn is_root(workspace: &Workspace) -> bool {
    capture(workspace.command("id").arg("-u")).is_ok_and(|user| user.trim() == "0")
}

fn python_can_make_environments(workspace: &Workspace) -> bool {
    is_installed("python3")
        && workspace
            .command("python3")
            .args(["-c", "import ensurepip, venv"])
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

/// An environment that holds exactly the pinned requirements, and the sources of some of them, made on first use.
///
/// Its folder is named by the requirements, the sources and the Python that made it, so a change of any makes a new one.
fn python_environment(workspace: &Workspace, file: &str, sources_of: &[&str]) -> Result<PathBuf> {
    let requirements =
        fs::read_to_string(workspace.root.join(file)).with_context(|| format!("cannot read {file}"))?;
    if let Some(loose) = unpinned(&requirements) {
        bail!("{file}: `{loose}` is not pinned with `==`");
    }
    let version =
        capture(workspace.command("python3").args(["-c", "import sys; print(sys.executable, sys.version)"]))?;
    let key =
        fingerprint(&[requirements.as_bytes(), version.as_bytes(), sources_of.concat().as_bytes()].concat());
    let folder = workspace.root.join(".cache/venv").join(format!("{key:016x}"));
    let python = folder.join("bin/python");
    let complete = folder.join("complete");
    if complete.is_file() {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    run(workspace.command("python3").args(["-m", "venv"]).arg(&folder))?;
    let pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", file];
    run(workspace.command(&python).args(pip))?;
    if !sources_of.is_empty() {
        unpack_sources(workspace, &folder, file, sources_of)?;
    }
    fs::write(&complete, "").with_context(|| format!("cannot write {}", complete.display()))?;
    Ok(folder)
}

/// Fetches and unpacks the source distributions of packages in the versions that the requirements name.
fn unpack_sources(workspace: &Workspace, folder: &Path, requirements: &str, packages: &[&str]) -> Result<()> {
    let (python, sources) = (folder.join("bin/python"), folder.join(SOURCES));
    let pip =
        ["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"];
    let mut download = workspace.command(&python);
    download.args(pip).args(["--no-build-isolation", "-c", requirements]).args(packages).arg("-d");
    run(download.arg(&sources))?;
    for entry in fs::read_dir(&sources)? {
        let mut unpack = workspace.command(&python);
        run(unpack.args(["-m", "tarfile", "-e"]).arg(entry?.path()).arg(&sources))?;
    }
    Ok(())
}

/// The first requirement that does not name an exact version.
fn unpinned(requirements: &str) -> Option<&str> {
    requirements
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .find(|line| !line.is_empty() && !line.contains("=="))
}

/// FNV-1a, 64 bits: names a folder, protects nothing.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_without_an_exact_version_is_found() {
        assert_eq!(unpinned("# tools\npytest==8.0.0\n\nredis==5.0.0 # client\n"), None);
        assert_eq!(unpinned("pytest==8.0.0\nredis>=5\n"), Some("redis>=5"));
    }

    #[test]
    fn other_requirements_have_another_fingerprint() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_ne!(fingerprint(b"redis==5.0.0"), fingerprint(b"redis==5.0.1"));
    }
}
