//! Reading the configuration file. An error names the file, the line, the key and what is allowed.

use super::Config;
use anyhow::{Context, Result, anyhow};
use std::path::Path;

/// Reads a file.
pub fn read(path: &Path) -> Result<Config> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    parse(&text, &name)
}

/// Reads the text of the file `name`.
pub fn parse(text: &str, name: &str) -> Result<Config> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().trim_end().replace('\n', "; ");
        match error.span() {
            Some(span) => {
                let place = Place::of(text, span.start);
                match place.key {
                    Some(key) => anyhow!("{name}:{}: `{key}`: {message}", place.line),
                    None => anyhow!("{name}:{}: {message}", place.line),
                }
            }
            None => anyhow!("{name}: {message}"),
        }
    })
}

/// Where in a file something stands.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// From 1.
    line: usize,
    /// With its section; none where there is no key.
    key: Option<String>,
}

impl Place {
    /// The place of a byte.
    fn of(text: &str, offset: usize) -> Self {
        let offset = text.floor_char_boundary(offset);
        let end = text[offset..].find('\n').map_or(text.len(), |length| offset + length);
        let lines: Vec<&str> = text[..end].lines().collect();
        let section = lines.iter().rev().find_map(|line| section(line));
        // A list may go over several lines; its key stands on the first of them.
        let key =
            lines.iter().rev().take_while(|line| self::section(line).is_none()).find_map(|line| key(line));
        let key = match (section, key) {
            (Some(section), Some(key)) => Some(format!("{section}.{key}")),
            (Some(name), None) | (None, Some(name)) => Some(name.to_owned()),
            (None, None) => None,
        };
        Place { line: lines.len().max(1), key }
    }
}

/// The name in a section's heading.
fn section(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix('[')?.split(']').next()?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

/// The key that a line sets.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (!key.is_empty() && key.bytes().all(is_key)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse(text, "a.toml").unwrap_err().to_string()
    }

    proptest::proptest! {
        #[test]
        fn a_damaged_file_is_read_or_refused_by_name(
            edits in proptest::collection::vec((0usize..4000, 0usize..8, "\\PC{0,6}|\n|=|\\[|\\]|\""), 1..8),
        ) {
            let mut text = include_str!("template.toml").to_owned();
            for (place, removed, inserted) in edits {
                let start = text.floor_char_boundary(place % (text.len() + 1));
                let end = text.ceil_char_boundary((start + removed).min(text.len()));
                text.replace_range(start..end, &inserted);
            }
            match crate::completed_configuration(&text, "a.toml") {
                Ok(printed) => {
                    let again = crate::completed_configuration(&printed, "a.toml").unwrap_or_default();
                    proptest::prop_assert_eq!(again, printed, "what is printed reads as the same");
                }
                Err(error) => proptest::prop_assert!(error.to_string().starts_with("a.toml:"), "{error}"),
            }
        }
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(parse("", "a.toml").unwrap(), Config::default());
    }

    #[test]
    fn an_unknown_key_is_named_with_those_that_there_are() {
        let error = refusal("[server]\nthreads = 2\n\nlisten_on = ['127.0.0.1:1']\n");
        assert!(error.starts_with("a.toml:4: `server.listen_on`: unknown field `listen_on`"), "{error}");
        assert!(error.contains("`listen`") && error.contains("`max_clients`"), "{error}");
        let error = refusal("[sever]\n");
        assert!(error.starts_with("a.toml:1: `sever`: unknown field `sever`"), "{error}");
        assert!(error.contains("`storage`"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_named_with_what_is_allowed() {
        for (text, place, allowed) in [
            ("[storage]\ndurability = \"often\"\n", "a.toml:2: `storage.durability`: ", "`everysec`"),
            ("[server]\n\nthreads = 0\n", "a.toml:3: `server.threads`: ", "at least 1"),
            ("[server]\nthreads = \"two\"\n", "a.toml:2: `server.threads`: ", "whole number, at least 1"),
            ("[server]\nlisten = ['h:1', '6379']\n", "a.toml:2: `server.listen`: `6379`", "HOST:PORT"),
            ("[storage]\nsegment_bytes = 1\n", "a.toml:2: `storage.segment_bytes`: ", "at least 65536"),
            ("[server]\nthreads = 70000\n", "a.toml:2: `server.threads`: ", "at most 65535"),
            ("[server]\npassword = ''\n", "a.toml:2: `server.password`: ", "not empty"),
            ("[log]\nlevel = \"loud\"\n", "a.toml:2: `log.level`: ", "debug"),
            ("[admin]\nlisten = true\n", "a.toml:2: `admin.listen`: ", "string"),
        ] {
            let error = refusal(text);
            assert!(error.starts_with(place) && error.contains(allowed), "{error}");
        }
    }

    #[test]
    fn an_element_of_a_long_list_has_the_key_of_the_list() {
        let error = refusal("[server]\nthreads = 2\nlisten = [\n  'h:1',\n  7,\n]\n");
        assert!(error.starts_with("a.toml:5: `server.listen`: ") && error.contains("string"), "{error}");
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = refusal("[server]\nthreads = 1\nthis is no toml\n");
        assert!(error.starts_with("a.toml:3: "), "{error}");
        let error = refusal("[server]\nthreads = 1\nthreads = 2\n");
        assert!(error.starts_with("a.toml:3: `server.threads`: "), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = format!("{:#}", read(Path::new("/nowhere/a.toml")).unwrap_err());
        assert!(error.contains("/nowhere/a.toml"), "{error}");
    }
}
