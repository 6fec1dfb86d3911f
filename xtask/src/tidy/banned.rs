//! Text that marks unfinished or silenced code.

use super::Finding;
use super::source::{Source, find_words, line_of};

/// Banned in code.
const CODE: &[(&str, &str)] = &[
    ("todo!(", "finish it or leave it out"),
    ("unimplemented!(", "finish it or leave it out"),
    ("dbg!(", "remove it"),
    ("#[ignore", "a test that does not run shows nothing; repair or remove it"),
];

/// Lints that nobody may silence, by the beginning of their names.
const LINTS: &[(&str, &str)] = &[
    ("dead_code", "remove the dead code"),
    ("unused", "remove what is unused"),
    ("missing_docs", "write the documentation"),
    ("warnings", "name the lint, with a reason"),
    ("clippy::all", "name the lint, with a reason"),
    ("clippy::too_many", "split the function, or name its arguments in a struct"),
];

/// The lints behind the purity of a crate: an exception says why the result does not depend on it.
const REASONED_LINTS: &str = "clippy::disallowed";

/// Banned as whole words in comments.
const COMMENTS: &[(&str, &str)] = &[
    ("FIXME", "repair it, or write down what falls short in the documentation"),
    ("TODO", "do it, or write down what falls short in the documentation"),
];

/// Names of a private language that the code gave up, each with the term: words that prose may use
/// (docs/decisions/0066-terms.md; the others are in `pages.rs`).
const NAMES: &[(&str, &str)] = &[
    ("Recall", "query of holdings"),
    ("Coming", "out-of-order buffer"),
    ("Inquire", "outcome query"),
    ("Remains", "deferred drop"),
    ("Heat", "contention statistics"),
    ("Meeting", "contention"),
    ("Mute", "discarded replies"),
    ("Glance", "read of one replica"),
    ("Wants", "lock set"),
    ("Away", "remote records"),
    ("Meanwhile", "rebase"),
    ("Parting", "divergence"),
    ("Besides", "extra bounds"),
    ("Gone", "collected state"),
    ("Handling", "runner"),
    ("Joining", "bootstrap"),
    ("gained", "results"),
    ("beside", "concurrent, compatible, colocated or neighbor"),
    ("apart", "separate, independent, isolated or a distance"),
    ("asked", "a request or query"),
    ("told", "a reply, report or notification"),
    ("kept", "retained, stored or held"),
    ("Asked", "a request or query"),
    ("Told", "a reply, report or notification"),
    ("Kept", "retained, stored or held"),
];

/// Finds banned text.
pub fn check(source: &Source<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (text, advice) in CODE {
        found.extend(source.code.match_indices(text).map(|(at, _)| (at, format!("`{text}`: {advice}"))));
    }
    for (text, advice) in COMMENTS {
        found.extend(find_words(&source.comments, text).map(|at| (at, format!("`{text}`: {advice}"))));
    }
    for (name, term) in NAMES {
        let private = |at| (at, format!("`{name}` is a name of ours alone: say \"{term}\""));
        found.extend(find_words(&source.code, name).map(private));
    }
    found.extend(silenced_lints(&source.code));
    found
        .into_iter()
        .map(|(offset, message)| Finding::error(source.path, line_of(source.text, offset), message))
        .collect()
}

/// Finds lists such as `allow(a, b)` that silence what must not be silenced.
fn silenced_lints(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for start in ["allow", "expect"].iter().flat_map(|word| find_words(code, word)) {
        let Some((_, rest)) = code[start..].split_once('(') else { continue };
        // A call such as `.expect("...")` has no list of lints: its argument is blank.
        let list = rest.split(')').next().unwrap_or_default();
        let has_reason = list.contains("reason =");
        for lint in list.split(',').map(str::trim) {
            if let Some((_, advice)) = LINTS.iter().find(|(banned, _)| lint.starts_with(banned)) {
                found.push((start, format!("`{lint}` is silenced: {advice}")));
            } else if lint.starts_with(REASONED_LINTS) && !has_reason {
                found.push((start, format!("`{lint}` is silenced without a `reason = \"...\"`")));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check_text(text: &str) -> Vec<Finding> {
        check(&Source::new(Path::new("a.rs"), text))
    }

    #[test]
    fn unfinished_code_is_found_with_its_line() {
        for (text, _) in CODE {
            let findings = check_text(&format!("fn a() {{}}\n{text}\n"));
            assert_eq!(findings.len(), 1, "{text}");
            assert_eq!(findings[0].line, 2, "{text}");
        }
        assert_eq!(check_text("// FIXME: later\n").len(), 1);
        assert_eq!(check_text("/* TODO */\n").len(), 1);
    }

    #[test]
    fn a_silenced_lint_is_found_anywhere_in_the_list() {
        for (lint, _) in LINTS {
            assert_eq!(check_text(&format!("#[allow({lint})]")).len(), 1, "{lint}");
            assert_eq!(check_text(&format!("#![expect(a, {lint}_more, b)]")).len(), 1, "{lint}");
        }
    }

    #[test]
    fn an_exception_to_purity_needs_a_reason() {
        assert_eq!(check_text("#[expect(clippy::disallowed_methods)]").len(), 1);
        assert_eq!(check_text("#[expect(clippy::disallowed_methods, reason = \"sorted below\")]"), []);
    }

    #[test]
    fn a_name_that_was_given_up_is_found_and_a_longer_one_is_not_it() {
        let findings = check_text("struct Heat;\nstruct Heated;\nlet told = 1;\n");
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 3]);
        assert!(findings[0].message.contains("contention statistics"));
    }

    #[test]
    fn the_same_words_in_strings_calls_and_prose_are_no_code() {
        assert_eq!(check_text("// no todo!() here\nlet a = \"FIXME dbg!(1)\";\n"), []);
        assert_eq!(check_text("map.get(a).expect(\"unused\");\n"), []);
    }
}
