//! Redis's patterns: `?`, `*`, `[a-z]`, `[^a]` and `\` as in `stringmatchlen`, but in time that does not explode.
//!
//! A pattern is read once into elements that take one byte each, in constant time. What stands before the first `*` and
//! behind the last one is compared in place; what stands between two of them is searched for, from the left. So a match of
//! a text of N bytes takes O(N), or O(N * M) where M elements stand between two `*`: [`Pattern::for_many`] bounds M.

use types::Error;

/// The most elements between the first and the last `*` of a pattern that many keys are compared with.
const MOST_SEARCHED: usize = 1024;

/// A pattern, read.
#[derive(Debug)]
pub struct Pattern {
    /// The elements between the stars: without a star one part, with a star two or more.
    parts: Vec<Vec<Element>>,
    ignore_case: bool,
}

/// What takes one byte.
#[derive(Debug)]
enum Element {
    Any,
    Byte(u8),
    Class(Box<[u64; 4]>),
}

impl Pattern {
    /// Reads a pattern.
    pub fn new(pattern: &[u8], ignore_case: bool) -> Self {
        let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
        let (mut parts, mut part, mut rest) = (Vec::new(), Vec::new(), pattern);
        while let [first, after @ ..] = rest {
            rest = after;
            match (first, after) {
                (b'*', _) => {
                    // Several stars in a row are one.
                    if parts.is_empty() || !part.is_empty() {
                        parts.push(std::mem::take(&mut part));
                    }
                }
                (b'?', _) => part.push(Element::Any),
                (b'[', _) => {
                    let (class, len) = read_class(after, fold);
                    part.push(Element::Class(class));
                    rest = &after[len..];
                }
                (b'\\', [escaped, after @ ..]) => {
                    part.push(Element::Byte(fold(*escaped)));
                    rest = after;
                }
                (plain, _) => part.push(Element::Byte(fold(*plain))),
            }
        }
        parts.push(part);
        Pattern { parts, ignore_case }
    }

    /// Reads a pattern that the keys of a keyspace, or of a collection, are compared with.
    ///
    /// # Errors
    /// Too much of it would have to be searched for in every key.
    pub fn for_many(pattern: &[u8]) -> Result<Self, Error> {
        let pattern = Pattern::new(pattern, false);
        let searched: usize = pattern.searched().iter().map(Vec::len).sum();
        if searched > MOST_SEARCHED {
            let text =
                format!("a pattern has at most {MOST_SEARCHED} characters between its first and its last *");
            return Err(Error::err(text));
        }
        Ok(pattern)
    }

    /// The parts between two stars.
    fn searched(&self) -> &[Vec<Element>] {
        self.parts.get(1..self.parts.len() - 1).unwrap_or_default()
    }

    /// True when all of `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        let ([first, .., last], searched) = (&self.parts[..], self.searched()) else {
            let only = self.parts.first().map_or(&[][..], Vec::as_slice);
            return only.len() == text.len() && self.fits(only, text);
        };
        if text.len() < first.len() + last.len() {
            return false;
        }
        let (head, rest) = text.split_at(first.len());
        let (mut rest, tail) = rest.split_at(rest.len() - last.len());
        if !self.fits(first, head) || !self.fits(last, tail) {
            return false;
        }
        for part in searched {
            let found =
                (0..(rest.len() + 1).saturating_sub(part.len())).find(|at| self.fits(part, &rest[*at..]));
            let Some(at) = found else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }

    /// True when the elements take the bytes at the front of `text`, which has enough.
    fn fits(&self, part: &[Element], text: &[u8]) -> bool {
        part.iter().zip(text).all(|(element, byte)| {
            let byte = if self.ignore_case { byte.to_ascii_lowercase() } else { *byte };
            match element {
                Element::Any => true,
                Element::Byte(wanted) => *wanted == byte,
                Element::Class(class) => class[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
            }
        })
    }
}

/// True when all of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    Pattern::new(pattern, ignore_case).matches(text)
}

/// The class, which follows a `[`, and how long it is with its `]`. An unclosed one ends with the pattern.
fn read_class(class: &[u8], fold: impl Fn(u8) -> u8) -> (Box<[u64; 4]>, usize) {
    let negated = class.first() == Some(&b'^');
    let (mut at, mut set) = (usize::from(negated), Box::new([0_u64; 4]));
    let mut add = |byte: u8| set[usize::from(byte >> 6)] |= 1 << (byte & 63);
    loop {
        match &class[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                add(fold(*escaped));
                at += 2;
            }
            [first, b'-', last, ..] => {
                let (first, last) = (fold(*first.min(last)), fold(*first.max(last)));
                (first..=last).for_each(&mut add);
                at += 3;
            }
            [plain, ..] => {
                add(fold(*plain));
                at += 1;
            }
        }
    }
    if negated {
        set.iter_mut().for_each(|word| *word = !*word);
    }
    (set, at)
}

#[cfg(test)]
mod tests {
    use super::{MOST_SEARCHED, Pattern, matches};

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
            ("**", "", true),
            ("*a", "ba", true),
            ("a*a", "a", false),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
            ("*[a-c]?*z", "--bxyz", true),
            ("*[^a]*", "aaa", false),
            ("*[^a]*", "aab", true),
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

    #[test]
    fn long_patterns_take_time_in_proportion_or_are_refused() {
        let class = [b"*[", &b"z".repeat(100_000)[..], b"]x"].concat();
        let text = b"z".repeat(100_000);
        assert!(!Pattern::for_many(&class).expect("nothing is searched for").matches(&text));
        let searched = |len: usize| Pattern::for_many(&[b"*", &b"z".repeat(len)[..], b"*"].concat()).is_ok();
        assert!(searched(MOST_SEARCHED) && !searched(MOST_SEARCHED + 1));
    }
}
