//! Text that marks unfinished or silenced code.

use super::Finding;
use super::source::{Source, find_words, line_of};

/// Banned in code, spaces between tokens left out.
const CODE: &[(&str, &str)] = &[
    ("todo!(", "finish it or leave it out"),
    ("unimplemented!(", "finish it or leave it out"),
    ("dbg!(", "remove it"),
    ("#[ignore", "a test that does not run shows nothing; repair or remove it"),
    ("allow(dead_code)", "remove the dead code"),
    ("allow(unused)", "remove what is unused"),
    ("allow(clippy::too_many", "split the function or name its arguments in a struct"),
    ("allow(missing_docs)", "write the documentation"),
];

/// Banned as whole words in comments.
const COMMENTS: &[(&str, &str)] = &[
    ("FIXME", "repair it, or write down what falls short in the documentation"),
    ("TODO", "do it, or write down what falls short in the documentation"),
];

/// Finds banned text.
pub fn check(source: &Source<'_>) -> Vec<Finding> {
    let in_code = CODE.iter().flat_map(|&(text, advice)| {
        source.code.match_indices(text).map(move |(offset, _)| (offset, text, advice))
    });
    let in_comments = COMMENTS.iter().flat_map(|&(text, advice)| {
        find_words(&source.comments, text).map(move |offset| (offset, text, advice))
    });
    in_code
        .chain(in_comments)
        .map(|(offset, text, advice)| {
            Finding::error(source.path, line_of(source.text, offset), format!("`{text}`: {advice}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check_text(text: &str) -> Vec<Finding> {
        check(&Source::new(Path::new("a.rs"), text))
    }

    #[test]
    fn unfinished_and_silenced_code_is_found_with_its_line() {
        for (text, _) in CODE {
            let findings = check_text(&format!("fn a() {{}}\n{text}\n"));
            assert_eq!(findings.len(), 1, "{text}");
            assert_eq!(findings[0].line, 2, "{text}");
        }
        assert_eq!(check_text("// FIXME: later\n").len(), 1);
        assert_eq!(check_text("/* TODO */\n").len(), 1);
    }

    #[test]
    fn the_same_words_in_strings_and_prose_are_no_code() {
        assert_eq!(check_text("// no todo!() here\nlet a = \"FIXME dbg!(1)\";\n"), []);
    }
}
