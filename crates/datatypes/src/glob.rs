//! Redis's patterns: `?`, `*`, `[a-z]`, `[^a]` and `\` as in `stringmatchlen`, but in time that does not explode.

/// True when all of `text` matches `pattern`.
///
/// A `*` is first taken as nothing and then, when what follows does not match, as one byte more. Only the last `*`
/// is ever reconsidered, which suffices because every other element takes exactly one byte.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while text_at < text.len() {
        if pattern.get(pattern_at) == Some(&b'*') {
            pattern_at += 1;
            star = Some((pattern_at, text_at));
            continue;
        }
        match element(&pattern[pattern_at..], text[text_at], ignore_case) {
            Some(len) => (pattern_at, text_at) = (pattern_at + len, text_at + 1),
            None => match &mut star {
                None => return false,
                Some((after_star, from)) => {
                    *from += 1;
                    (pattern_at, text_at) = (*after_star, *from);
                }
            },
        }
    }
    pattern[pattern_at..].iter().all(|byte| *byte == b'*')
}

/// How long the element at the front of `pattern` is, if it takes `byte`.
fn element(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
    let (matched, len) = match pattern {
        [] => return None,
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => {
            let (matched, len) = in_class(class, fold(byte), fold);
            (matched, len + 1)
        }
        [b'\\', escaped, ..] => (fold(*escaped) == fold(byte), 2),
        [plain, ..] => (fold(*plain) == fold(byte), 1),
    };
    matched.then_some(len)
}

/// Whether the class, which follows a `[`, has `byte`, and how long it is with its `]`. An unclosed one ends with
/// the pattern.
fn in_class(class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let (mut at, mut found) = (usize::from(negated), false);
    loop {
        match &class[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= fold(*escaped) == byte;
                at += 2;
            }
            [first, b'-', last, ..] => {
                let (first, last) = (fold(*first.min(last)), fold(*first.max(last)));
                found |= (first..=last).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= fold(*plain) == byte;
                at += 1;
            }
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    /// Recorded from `KEYS` of Redis 7.0.15.
    #[test]
    fn patterns_match_as_in_redis() {
        let table = [
            ("*", "", true),
            ("*", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h[a-b]llo", "hcllo", false),
            (r"h\*llo", "h*llo", true),
            (r"h\*llo", "hello", false),
            (r"[\]]", "]", true),
            ("[]]", "]", false),
            ("[a", "a", true),
            ("[a", "b", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZd", false),
            ("", "", true),
            ("", "a", false),
            ("a", "A", false),
            ("a**", "a", true),
            ("\\", "\\", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern} {text}");
        }
        assert!(matches(b"MAX*", b"maxmemory", true));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(1000) + "b";
        let text = "a".repeat(10_000);
        assert!(!matches(pattern.as_bytes(), text.as_bytes(), false));
    }
}
