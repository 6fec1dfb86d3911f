//! The repository's own lint: rules that rustfmt, clippy and rustdoc do not know.
//!
//! Each rule is a function from text to findings, so that its tests can show it a bad sample. This module walks the
//! tree, hands every file to the rules and prints what they found.

mod banned;
mod layers;
mod lengths;
mod links;
mod modules;
mod pages;
mod promises;
pub mod purity;
mod source;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// Folders that hold no source of ours.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", ".cache", "node_modules", "__pycache__"];

/// Something that a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the root.
    pub file: PathBuf,
    /// The line, from 1; 0 when the finding is about the whole file.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub message: String,
    /// Whether it fails the lint or is only printed.
    pub severity: Severity,
}

/// What a finding does to the lint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Fails it.
    Error,
    /// Is only printed.
    Warning,
}

impl Finding {
    fn error(file: &Path, line: usize, message: impl Into<String>) -> Finding {
        Finding { file: file.to_path_buf(), line, message: message.into(), severity: Severity::Error }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = if self.severity == Severity::Error { "error" } else { "warning" };
        write!(f, "{label}: {}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// One text file of the tree.
pub struct TextFile {
    /// Relative to the root.
    pub path: PathBuf,
    /// Its whole content.
    pub text: String,
}

/// Checks the tree against every rule; fails when a rule found an error.
pub fn check(workspace: &Workspace) -> Result<()> {
    let files = read_tree(&workspace.root)?;
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| has_extension(&file.path, "rs")) {
        let source = source::Source::new(&file.path, &file.text);
        findings.extend(lengths::check(&source));
        findings.extend(banned::check(&source));
        findings.extend(purity::check_source(&source));
    }
    findings.extend(links::check(&workspace.root, &files));
    findings.extend(pages::check(&files));
    findings.extend(promises::check(&workspace.root, &files));
    findings.extend(modules::check(&target_roots(workspace)?, &files));
    findings.extend(purity::check_configurations(&workspace.root)?);
    findings.extend(layers::check(&workspace.metadata)?);
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    println!("{} files, {errors} errors, {} warnings", files.len(), findings.len() - errors);
    if errors > 0 {
        bail!("{errors} errors");
    }
    Ok(())
}

/// Every Rust and Markdown file of the tree, sorted by path.
fn read_tree(root: &Path) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                if !SKIPPED_FOLDERS.contains(&&*entry.file_name().to_string_lossy()) {
                    folders.push(path);
                }
            } else if has_extension(&path, "rs") || has_extension(&path, "md") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                files.push(TextFile { path: path.strip_prefix(root)?.to_path_buf(), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The root file of every target of the workspace, relative to the root: where cargo begins to read modules.
fn target_roots(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let packages = workspace.metadata["packages"].as_array().context("metadata without packages")?;
    let mut roots = Vec::new();
    for target in packages.iter().filter_map(|package| package["targets"].as_array()).flatten() {
        let path = Path::new(target["src_path"].as_str().context("a target without src_path")?);
        if let Ok(relative) = path.strip_prefix(&workspace.root) {
            roots.push(relative.to_path_buf());
        }
    }
    Ok(roots)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}
