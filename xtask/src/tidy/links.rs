//! Markdown: relative links lead to files and to headings that exist, and every decision record is in its index.

use std::path::{Component, Path, PathBuf};

use super::{Finding, TextFile, has_extension};

const DECISIONS: &str = "docs/decisions";

/// Finds relative links that lead nowhere and decision records that the index does not name.
pub fn check(root: &Path, files: &[TextFile]) -> Vec<Finding> {
    let exists = |path: &Path| root.join(path).exists();
    let pages: Vec<&TextFile> = files.iter().filter(|file| has_extension(&file.path, "md")).collect();
    let mut findings: Vec<Finding> = pages.iter().flat_map(|page| broken_links(page, exists)).collect();
    findings.extend(pages.iter().flat_map(|page| broken_anchors(page, &pages)));
    findings.extend(unlisted_decisions(&pages));
    findings
}

fn broken_links(page: &TextFile, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let folder = page.path.parent().unwrap_or(Path::new(""));
    links(&page.text)
        .into_iter()
        .map(|(line, target)| (line, without_anchor(target)))
        .filter(|(_, target)| !target.is_empty() && !exists(&normalize(&folder.join(target))))
        .map(|(line, target)| Finding::error(&page.path, line, format!("`{target}` does not exist")))
        .collect()
}

/// Links to a heading that a page of the repository does not have.
fn broken_anchors(page: &TextFile, pages: &[&TextFile]) -> Vec<Finding> {
    let folder = page.path.parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    for (line, target) in links(&page.text) {
        let Some((file, anchor)) = target.split_once('#') else { continue };
        let path = if file.is_empty() { page.path.clone() } else { normalize(&folder.join(file)) };
        let Some(aim) = pages.iter().find(|other| other.path == path) else { continue };
        if !anchors(&aim.text).iter().any(|known| known == anchor) {
            findings.push(Finding::error(&page.path, line, format!("`{target}`: there is no such heading")));
        }
    }
    findings
}

/// The headings of a page as links name them: in lower case, with `-` for blanks, without other signs.
fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let Some((_, heading)) =
            line.split_once("# ").filter(|(marks, _)| marks.bytes().all(|mark| mark == b'#'))
        else {
            continue;
        };
        if !fenced {
            let signs = heading.trim().chars().filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
            found.push(
                signs.map(|sign| if sign == ' ' { '-' } else { sign }).collect::<String>().to_lowercase(),
            );
        }
    }
    found
}

fn without_anchor(target: &str) -> &str {
    target.split('#').next().unwrap_or_default()
}

fn unlisted_decisions(pages: &[&TextFile]) -> Vec<Finding> {
    let index = Path::new(DECISIONS).join("README.md");
    let listed: Vec<&str> = pages
        .iter()
        .filter(|page| page.path == index)
        .flat_map(|page| links(&page.text))
        .map(|(_, target)| without_anchor(target))
        .collect();
    pages
        .iter()
        .filter(|page| page.path.parent() == Some(Path::new(DECISIONS)) && page.path != index)
        .filter(|page| !listed.iter().any(|target| page.path.file_name().is_some_and(|name| name == *target)))
        .map(|page| Finding::error(&page.path, 0, format!("not listed in {}", index.display())))
        .collect()
}

/// The relative targets of the page's inline links, each with its line.
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
        .filter_map(|rest| rest.split([')', ' ']).next())
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
    fn a_link_to_a_missing_heading_is_found() {
        let one = page(
            "docs/one.md",
            "# A page: `X`, two\n```\n# no heading\n```\n[a](#a-page-x-two) [b](#no-heading)\n",
        );
        let two = page("two.md", "[a](docs/one.md#a-page-x-two)\n[b](docs/one.md#part) [c](gone.md#part)\n");
        let pages = [&one, &two];
        let lines = |of: &TextFile| broken_anchors(of, &pages).iter().map(|f| f.line).collect::<Vec<_>>();
        assert_eq!((lines(&one), lines(&two)), (vec![5], vec![2]));
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
