//! Markdown: relative links lead to files, and every decision record is in its index.

use std::path::{Component, Path, PathBuf};

use super::{Finding, TextFile, has_extension};

const DECISIONS: &str = "docs/decisions";

/// Finds relative links that lead nowhere and decision records that the index does not name.
pub fn check(root: &Path, files: &[TextFile]) -> Vec<Finding> {
    let exists = |path: &Path| root.join(path).exists();
    let pages: Vec<&TextFile> = files.iter().filter(|file| has_extension(&file.path, "md")).collect();
    let mut findings: Vec<Finding> = pages.iter().flat_map(|page| broken_links(page, exists)).collect();
    findings.extend(unlisted_decisions(&pages));
    findings
}

fn broken_links(page: &TextFile, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let folder = page.path.parent().unwrap_or(Path::new(""));
    links(&page.text)
        .into_iter()
        .filter(|(_, target)| !exists(&normalize(&folder.join(target))))
        .map(|(line, target)| Finding::error(&page.path, line, format!("`{target}` does not exist")))
        .collect()
}

fn unlisted_decisions(pages: &[&TextFile]) -> Vec<Finding> {
    let index = Path::new(DECISIONS).join("README.md");
    let listed: Vec<&str> = pages
        .iter()
        .filter(|page| page.path == index)
        .flat_map(|page| links(&page.text))
        .map(|(_, target)| target)
        .collect();
    pages
        .iter()
        .filter(|page| page.path.parent() == Some(Path::new(DECISIONS)) && page.path != index)
        .filter(|page| !listed.iter().any(|target| page.path.file_name().is_some_and(|name| name == *target)))
        .map(|page| Finding::error(&page.path, 0, format!("not listed in {}", index.display())))
        .collect()
}

/// The relative targets of the page's inline links, without anchors, each with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        // Every other piece between backticks is code, and a link in code is text.
        for prose in line.split('`').step_by(2).filter(|_| !fenced) {
            found.extend(targets(prose).map(|target| (index + 1, target)));
        }
    }
    found
}

fn targets(prose: &str) -> impl Iterator<Item = &str> {
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ', '#']).next())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
}

/// The path without `.` and `..`.
fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_link_to_a_missing_file_is_found() {
        let text = "[a](b.md) [c](../d.md#part)\n[e](https://example.org) [f](#here)\n[`g`](gone.md)\n";
        let page = page("docs/page.md", text);
        let findings = broken_links(&page, |path| path == Path::new("d.md"));
        let missing: Vec<(usize, &str)> = findings.iter().map(|f| (f.line, f.message.as_str())).collect();
        assert_eq!(missing, [(1, "`b.md` does not exist"), (3, "`gone.md` does not exist")]);
    }

    #[test]
    fn links_in_code_are_text() {
        assert_eq!(links("```\n[a](b)\n```\n`[c](d)`\n"), []);
    }

    #[test]
    fn a_decision_that_the_index_does_not_name_is_found() {
        let index = page("docs/decisions/README.md", "- [one](0001-one.md)\n");
        let one = page("docs/decisions/0001-one.md", "");
        let two = page("docs/decisions/0002-two.md", "");
        let findings = unlisted_decisions(&[&index, &one, &two]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].file, two.path);
    }
}
