//! Lengths of files and functions. The limits are ratchets: they may go down, never up.

use super::source::{Source, block_end, find_words, line_of};
use super::{Finding, Severity};

/// Lines of code above which a file fails.
const FILE_LIMIT: usize = 800;
/// Lines of code above which a file should be split.
const FILE_GOAL: usize = 500;
/// Lines above which a function fails.
const FUNCTION_LIMIT: usize = 90;
/// Lines above which a function should be split.
const FUNCTION_GOAL: usize = 70;

/// Finds files and functions that are too long. Lines without code do not count for a file.
pub fn check(source: &Source<'_>) -> Vec<Finding> {
    let lines = source.code.lines().filter(|line| !line.trim().is_empty()).count();
    let mut findings: Vec<Finding> = judge(lines, FILE_GOAL, FILE_LIMIT)
        .map(|(severity, limit)| Finding {
            severity,
            ..Finding::error(
                source.path,
                0,
                format!("{lines} lines of code, more than {limit}: look for a split"),
            )
        })
        .into_iter()
        .collect();
    for function in functions(&source.code) {
        if let Some((severity, limit)) = judge(function.lines, FUNCTION_GOAL, FUNCTION_LIMIT) {
            let message = format!("`{}` has {} lines, more than {limit}", function.name, function.lines);
            findings.push(Finding { severity, ..Finding::error(source.path, function.line, message) });
        }
    }
    findings
}

fn judge(length: usize, goal: usize, limit: usize) -> Option<(Severity, usize)> {
    if length > limit {
        Some((Severity::Error, limit))
    } else if length > goal {
        Some((Severity::Warning, goal))
    } else {
        None
    }
}

struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
}

/// Every function with a body, with the lines from its `fn` to its closing brace.
fn functions(code: &str) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    for start in find_words(code, "fn") {
        let rest = &code[start + 2..];
        let name =
            rest.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        // A pointer type such as `fn(u8)` has no name; a declaration in a trait ends in a semicolon.
        let Some(open) = body_of(rest).filter(|_| !name.is_empty()) else { continue };
        let end = block_end(code, start + 2 + open);
        let (line, last) = (line_of(code, start), line_of(code, end.saturating_sub(1)));
        functions.push(Function { name, line, lines: last - line + 1 });
    }
    functions
}

/// Where the body opens: the first brace outside of brackets, unless a semicolon comes before it.
fn body_of(rest: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            b'{' if depth == 0 => return Some(index),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn check_text(text: &str) -> Vec<Finding> {
        check(&Source::new(Path::new("a.rs"), text))
    }

    fn function_of(lines: usize) -> String {
        format!("fn long(a: [u8; 4]) -> u8 {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_ninety_lines_warns_and_a_longer_one_fails() {
        assert_eq!(check_text(&function_of(70)), []);
        assert_eq!(check_text(&function_of(90))[0].severity, Severity::Warning);
        let findings = check_text(&function_of(91));
        assert_eq!(findings[0].severity, Severity::Error);
        assert_eq!(findings[0].message, "`long` has 91 lines, more than 90");
    }

    #[test]
    fn a_file_counts_its_code_and_not_its_comments() {
        assert_eq!(check_text(&"// a\n\n".repeat(900)), []);
        assert_eq!(check_text(&"use a;\n".repeat(501))[0].severity, Severity::Warning);
        assert_eq!(check_text(&"use a;\n".repeat(801))[0].severity, Severity::Error);
    }

    #[test]
    fn declarations_and_pointer_types_are_no_functions() {
        let text = "trait A { fn a(b: [u8; 2]); }\nstruct B { run: fn(u8) -> u8 }\n";
        assert_eq!(functions(text).len(), 0);
    }
}
