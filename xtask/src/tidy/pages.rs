//! Documents: how long a page and a line may be, how many words there are in all, and words that are ours alone.

use std::path::Path;

use super::source::{find_words, line_of};
use super::{Finding, TextFile, has_extension};

/// Lines of a page, by its path or the beginning of its path; the first that fits counts.
const LINES: &[(&str, usize)] = &[
    ("README.md", 120),
    ("ARCHITECTURE.md", 120),
    ("CHANGELOG.md", 120),
    ("docs/quickstart.md", 80),
    ("docs/porting.md", 120),
    ("docs/errors.md", 60),
    ("docs/limitations.md", 60),
    ("docs/performance.md", 100),
    ("docs/consistency/", 150),
    ("docs/operations/", 80),
    ("docs/evidence/", 150),
    ("docs/internals/", 250),
    ("docs/decisions/", 60),
    ("docs/data-types.md", 150),
    ("docs/user-types.md", 150),
    ("docs/scripts.md", 150),
    ("docs/blocking-pubsub-caching.md", 150),
    (REFERENCE, usize::MAX),
];
/// Every page below it has a place in [`LINES`]: a reader finds a page by its name, so there are few.
const TREE: &str = "docs/";
/// What a program writes, or a test compares with the code: any length.
const REFERENCE: &str = "docs/reference/";
/// Characters of a line of prose. Tables and code cannot be broken.
const COLUMNS: usize = 100;
/// Words of all pages but the reference. The limit is a ratchet: it may go down, never up.
const WORDS: usize = 45_000;

/// Words of a private language, each with the standard term: banned in documents.
const PRIVATE: &[(&str, &str)] = &[("nobody was served", "outage")];
/// The record of what was renamed names the old words, and so do the rules.
const RENAMES: [&str; 2] = ["docs/decisions/0066-terms.md", "xtask/src/tidy"];
/// Those that no code uses any more, banned there too, in comments and strings as well.
const PRIVATE_IN_CODE: &[(&str, &str)] = &[
    ("Pledge", "write intent"),
    ("Deed", "prepared operation"),
    ("Gained", "results"),
    ("Survives", "report of a survivor"),
    ("Refilling", "catching up"),
    ("bereaved", "sessions that lost writes"),
    ("watershed", "causal-stability frontier"),
    ("pledge", "write intent"),
    ("pledges", "write intents"),
    ("deed", "prepared operation"),
    ("refill", "state transfer"),
    ("Refill", "state transfer"),
    ("Sight", "dependency vector"),
    ("Chore", "maintenance task"),
    ("Chores", "maintenance"),
    ("chores", "maintenance"),
    ("Fates", "outcome query"),
    ("Fated", "outcome query"),
    ("Inquired", "outcome query"),
    ("Recalled", "query of holdings"),
    ("Accord", "agreement"),
    ("Spreading", "unconfirmed decision"),
    ("KeptContext", "retained effects"),
    ("KeptEffects", "retained effects"),
    ("heats", "contention statistics"),
    ("Meetings", "contention"),
    ("Quickest", "minimum of a window"),
    ("Objection", "conflict"),
    ("Relief", "outcome of an eviction"),
    ("Standings", "log positions"),
    ("Partings", "divergence"),
    ("Underway", "in progress"),
    ("Outlook", "readiness"),
    ("Flying", "in flight"),
    ("merge_beside", "rebase"),
    ("hold_told", "hold news"),
    ("send_told", "send news"),
    ("no circle lasts", "deadlock-free"),
    ("no circle can form", "deadlock-free"),
    ("waits in a circle", "deadlock-free"),
];

/// Checks every page; and that code does not take up words that were given up.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let (pages, code): (Vec<&TextFile>, Vec<&TextFile>) =
        files.iter().partition(|file| has_extension(&file.path, "md"));
    let mut findings: Vec<Finding> = Vec::new();
    for page in &pages {
        findings.extend(too_long(page));
        findings.extend(wide_lines(page));
        findings.extend(PRIVATE.iter().flat_map(|(word, term)| uses(page, word, term)));
    }
    for (word, term) in PRIVATE_IN_CODE {
        findings.extend(pages.iter().chain(&code).flat_map(|file| uses(file, word, term)));
    }
    findings.extend(too_many_words(&pages));
    findings
}

fn is_reference(page: &TextFile) -> bool {
    page.path.starts_with(REFERENCE)
}

/// A page beyond its limit, or one below `docs` that has none.
fn too_long(page: &TextFile) -> Option<Finding> {
    let (path, lines) = (page.path.to_str()?, page.text.lines().count());
    let Some((_, limit)) = LINES.iter().find(|(prefix, _)| path.starts_with(prefix)) else {
        let message = "no page of the tree of documents: put the text into one that is";
        return path.starts_with(TREE).then(|| Finding::error(&page.path, 0, message));
    };
    let message = format!("{lines} lines, more than {limit}: shorten or divide the page");
    (lines > *limit).then(|| Finding::error(&page.path, 0, message))
}

/// Lines of prose beyond the limit: not of tables, fenced or indented code.
fn wide_lines(page: &TextFile) -> Vec<Finding> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (index, line) in page.text.lines().enumerate().filter(|_| !is_reference(page)) {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        let prose = !fenced && !is_fence && !line.starts_with('|') && !line.starts_with("    ");
        let columns = line.chars().count();
        if prose && columns > COLUMNS {
            let message = format!("{columns} columns, more than {COLUMNS}");
            found.push(Finding::error(&page.path, index + 1, message));
        }
    }
    found
}

fn uses(file: &TextFile, word: &str, term: &str) -> Vec<Finding> {
    if RENAMES.iter().any(|rule| file.path.starts_with(rule)) {
        return Vec::new();
    }
    let message = format!("`{word}` is a word of ours alone: say \"{term}\"");
    find_words(&file.text, word)
        .map(|at| Finding::error(&file.path, line_of(&file.text, at), message.clone()))
        .collect()
}

fn too_many_words(pages: &[&TextFile]) -> Option<Finding> {
    let counted = pages.iter().filter(|page| !is_reference(page));
    let words: usize = counted.map(|page| page.text.split_whitespace().count()).sum();
    let message = format!("{words} words outside of {REFERENCE}, more than {WORDS}: shorten pages");
    (words > WORDS).then(|| Finding::error(Path::new("docs"), 0, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_page_beyond_its_limit_is_found_and_the_reference_may_be_long() {
        assert!(too_long(&page("docs/errors.md", &"a\n".repeat(60))).is_none());
        assert!(too_long(&page("docs/errors.md", &"a\n".repeat(61))).is_some());
        assert!(too_long(&page("docs/decisions/0001-one.md", &"a\n".repeat(61))).is_some());
        assert!(too_long(&page("docs/reference/commands.md", &"a\n".repeat(900))).is_none());
    }

    #[test]
    fn a_page_beside_the_tree_is_found() {
        assert!(too_long(&page("docs/unfinished/README.md", "a\n")).is_some());
        assert!(too_long(&page("docs/streams.md", "a\n")).is_some());
        assert!(too_long(&page("docs/consistency/overview.md", "a\n")).is_none());
        assert!(too_long(&page("examples/branches/README.md", "a\n")).is_none());
    }

    #[test]
    fn wide_prose_is_found_and_tables_and_code_may_be_wide() {
        let wide = "é".repeat(COLUMNS + 1);
        let text = format!("{}\n{wide}\n| {wide} |\n    {wide}\n```\n{wide}\n```\n", "é".repeat(COLUMNS));
        assert_eq!(lines(&wide_lines(&page("a.md", &text))), [2]);
    }

    #[test]
    fn a_private_word_is_found_with_its_line_and_longer_words_are_not_it() {
        let text = "Deeds\nand a Deed\n";
        let found = check(&[page("docs/scripts.md", text), page("crates/a/src/lib.rs", "struct Survives;")]);
        assert_eq!(lines(&found), [2, 1]);
        assert!(found[0].message.contains("prepared operation"));
    }

    #[test]
    fn words_of_all_pages_are_counted_together() {
        let half = page("docs/a.md", &"a ".repeat(WORDS / 2));
        let (more, free) = (page("docs/b.md", "b b"), page("docs/reference/c.md", &"c ".repeat(WORDS)));
        assert!(too_many_words(&[&half, &half, &free]).is_none());
        assert!(too_many_words(&[&half, &half, &more]).is_some());
    }
}
