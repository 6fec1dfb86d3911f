//! A Rust file seen three ways: as written, code only, comments only.
//!
//! This is a scanner and no parser: it knows comments, string, character and raw string literals, and nothing
//! else. That suffices for rules that count lines and look for words, and a rule never trips over its own text,
//! because that text stands in a string.

use std::path::Path;

/// A Rust file and its two masked views. Both have the length and the lines of the text.
pub struct Source<'a> {
    /// Relative to the root.
    pub path: &'a Path,
    /// As written.
    pub text: &'a str,
    /// The text with comments and the insides of literals blanked.
    pub code: String,
    /// The text with everything but comments blanked.
    pub comments: String,
}

impl<'a> Source<'a> {
    /// Scans `text`, the content of the file at `path`.
    pub fn new(path: &'a Path, text: &'a str) -> Source<'a> {
        let mut scanner = Scanner { bytes: text.as_bytes(), at: 0, kinds: vec![Kind::Code; text.len()] };
        scanner.scan();
        let view = |kind: Kind| {
            let keep =
                |(&byte, &found): (&u8, &Kind)| if byte == b'\n' || found == kind { byte } else { b' ' };
            let bytes = text.as_bytes().iter().zip(&scanner.kinds).map(keep).collect::<Vec<u8>>();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Source { path, text, code: view(Kind::Code), comments: view(Kind::Comment) }
    }

    /// The name of the crate's folder when the file lies in `crates/NAME/`.
    pub fn crate_folder(&self) -> Option<&str> {
        let mut parts = self.path.iter().filter_map(|part| part.to_str());
        if parts.next() == Some("crates") { parts.next() } else { None }
    }

    /// The byte ranges of the items under `#[cfg(test)]`, from the attribute to the closing brace or semicolon.
    pub fn test_ranges(&self) -> Vec<std::ops::Range<usize>> {
        const ATTRIBUTE: &str = "#[cfg(test)]";
        self.code
            .match_indices(ATTRIBUTE)
            .map(|(start, _)| start..item_end(&self.code, start + ATTRIBUTE.len()))
            .collect()
    }
}

/// The line, from 1, of a byte offset.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Where the item that begins at `start` ends: after its block, or after the semicolon that comes first.
pub fn item_end(code: &str, start: usize) -> usize {
    match code[start..].find(['{', ';']) {
        Some(found) if code.as_bytes()[start + found] == b'{' => block_end(code, start + found),
        Some(found) => start + found + 1,
        None => code.len(),
    }
}

/// Where the block that opens at `open` ends: one past its closing brace.
pub fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return index + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Whether the byte may stand in an identifier.
pub fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// Every place where `word` stands in `code` and is not a part of a longer word.
pub fn find_words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let is_edge =
        move |index: Option<usize>| index.and_then(|at| bytes.get(at)).is_none_or(|&byte| !is_word(byte));
    code.match_indices(word)
        .map(|(start, _)| start)
        .filter(move |&start| is_edge(start.checked_sub(1)) && is_edge(Some(start + word.len())))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    kinds: Vec<Kind>,
}

impl Scanner<'_> {
    fn scan(&mut self) {
        while self.at < self.bytes.len() {
            match self.bytes[self.at] {
                b'/' if self.peek(1) == Some(b'/') => self.line_comment(),
                b'/' if self.peek(1) == Some(b'*') => self.block_comment(),
                b'"' => self.string(),
                b'\'' => self.character_or_lifetime(),
                b'r' if !self.follows_word() && self.raw_hashes(1).is_some() => self.raw_string(1),
                b'b' | b'c'
                    if !self.follows_word() && self.peek(1) == Some(b'r') && self.raw_hashes(2).is_some() =>
                {
                    self.raw_string(2);
                }
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    /// Whether the byte before this one belongs to a word; `for` ends in `r` and begins no raw string. The `b` of
    /// a byte string does not count, because its own arm saw it first.
    fn follows_word(&self) -> bool {
        self.at > 0 && is_word(self.bytes[self.at - 1])
    }

    fn mark(&mut self, end: usize, kind: Kind) {
        let end = end.min(self.bytes.len());
        self.kinds[self.at..end].fill(kind);
        self.at = end;
    }

    fn line_comment(&mut self) {
        let length = self.bytes[self.at..].iter().position(|&byte| byte == b'\n');
        self.mark(length.map_or(self.bytes.len(), |length| self.at + length), Kind::Comment);
    }

    fn block_comment(&mut self) {
        let (mut end, mut depth) = (self.at + 2, 1);
        while depth > 0 && end < self.bytes.len() {
            match self.bytes.get(end..end + 2) {
                Some(b"/*") => (depth, end) = (depth + 1, end + 2),
                Some(b"*/") => (depth, end) = (depth - 1, end + 2),
                _ => end += 1,
            }
        }
        self.mark(end, Kind::Comment);
    }

    fn string(&mut self) {
        let mut end = self.at + 1;
        while end < self.bytes.len() && self.bytes[end] != b'"' {
            end += if self.bytes[end] == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        self.mark(end, Kind::Literal);
        self.at += 1;
    }

    /// A quote opens a character literal when the next one closes it; else it begins a lifetime or a label.
    fn character_or_lifetime(&mut self) {
        let rest = &self.bytes[self.at + 1..];
        let length = match rest.first() {
            Some(b'\\') => rest.iter().skip(2).position(|&byte| byte == b'\'').map(|found| found + 2),
            Some(&first) => {
                let width = utf8_width(first);
                (rest.get(width) == Some(&b'\'')).then_some(width)
            }
            None => None,
        };
        self.at += 1;
        if let Some(length) = length {
            self.mark(self.at + length, Kind::Literal);
            self.at += 1;
        }
    }

    /// The number of hashes between the prefix and the quote, or nothing when this is no raw string.
    fn raw_hashes(&self, prefix: usize) -> Option<usize> {
        let rest = &self.bytes[self.at + prefix..];
        let hashes = rest.iter().take_while(|&&byte| byte == b'#').count();
        (rest.get(hashes) == Some(&b'"')).then_some(hashes)
    }

    fn raw_string(&mut self, prefix: usize) {
        let hashes = self.raw_hashes(prefix).unwrap_or(0);
        self.at += prefix + hashes + 1;
        let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
        let length = self.bytes[self.at..].windows(close.len()).position(|window| window == close);
        self.mark(length.map_or(self.bytes.len(), |length| self.at + length), Kind::Literal);
        self.at += close.len();
    }
}

fn utf8_width(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new(Path::new("a.rs"), text).code
    }

    #[test]
    fn comments_and_the_insides_of_literals_are_not_code() {
        assert_eq!(code("a // b\nc /* d /* e */ f */ g"), "a     \nc                   g");
        assert_eq!(code(r#"let a = "b\"c"; d"#), r#"let a = "    "; d"#);
        assert_eq!(code(r##"let a = r#"b"c"#; d"##), r##"let a = r#"   "#; d"##);
        assert_eq!(
            code(r#"f(b"{", br"{", '{', '\'', b'"', 'é')"#),
            r#"f(b" ", br" ", ' ', '  ', b' ', '  ')"#
        );
    }

    #[test]
    fn a_lifetime_is_code_and_opens_no_literal() {
        assert_eq!(code("fn a<'b>(c: &'b str) { 'd: loop {} }"), "fn a<'b>(c: &'b str) { 'd: loop {} }");
    }

    #[test]
    fn comments_are_kept_apart() {
        let source = Source::new(Path::new("a.rs"), "a // b \"c\"\n\"// d\"");
        assert_eq!(source.comments, "  // b \"c\"\n      ");
    }

    #[test]
    fn a_test_module_has_a_range() {
        let source =
            Source::new(Path::new("a.rs"), "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}");
        let ranges = source.test_ranges();
        assert_eq!(ranges.len(), 1);
        assert_eq!(&source.text[ranges[0].clone()], "#[cfg(test)]\nmod tests { fn b() {} }");
    }

    #[test]
    fn a_word_is_found_whole() {
        assert_eq!(find_words("mod model mod_ mod", "mod").collect::<Vec<_>>(), [0, 15]);
    }
}
