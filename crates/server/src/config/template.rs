//! The configuration as a file with its comments: `--print-config`.

use super::Config;
use anyhow::{Context, Result};
use std::fmt::Write;

/// The file with comments; its values are replaced by those in effect.
const TEMPLATE: &str = include_str!("template.toml");

/// The template with the values of `config`. A key without a value keeps its commented example.
pub fn fill(config: &Config) -> Result<String> {
    let values = toml::Table::try_from(config).context("the configuration cannot be written")?;
    let mut output = String::with_capacity(TEMPLATE.len() * 2);
    let mut section = None;
    for line in TEMPLATE.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = values.get(name).and_then(toml::Value::as_table);
        }
        match (key(line), section) {
            (Some("password"), _) if config.server.password.is_some() => {
                let origin = match (&config.server.password_file, &config.server.password_origin) {
                    (Some(_), _) => "password_file",
                    (None, Some(origin)) => origin,
                    (None, None) => "the configuration",
                };
                writeln!(output, "# password is set by {origin}, and not shown here")?;
            }
            (Some(key), Some(values)) if values.contains_key(key) => {
                writeln!(output, "{key} = {}", values[key])?;
            }
            _ => {
                output.push_str(line);
                output.push('\n');
            }
        }
    }
    Ok(output)
}

/// The key that a line sets, or would set were it no comment.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.strip_prefix("# ").unwrap_or(line).split_once(" = ")?;
    key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(key)
}

#[cfg(test)]
mod tests {
    use super::super::{Durability, file};
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A configuration in which every key has a value that is not its default.
    const OTHER: &str = r#"
        [server]
        listen = ["127.0.0.1:7001", "[::1]:7002"]
        announce = "cache.example:7001"
        threads = 77
        partitions = 12
        max_clients = 77
        client_output_limit_bytes = 4096
        client_query_limit_bytes = 8192
        max_memory_bytes = 1048576
        max_memory_policy = "volatile-ttl"
        max_memory_samples = 10
        databases = 3
        protected_mode = false
        enable_debug_command = "local"
        password = "se\"cret"
        password_file = "/etc/anabranch/password"
        acl_file = "/etc/anabranch/users.acl"
        [storage]
        directory = "/var/lib/ana \"branch\""
        memory = true
        durability = "none"
        checkpoint_after_bytes = 1000000
        segment_bytes = 100000
        region_queue_bytes = 70000
        region_spill_bytes = 80000
        sync_every_ms = 50
        [admin]
        listen = "localhost:9000"
        [log]
        level = "warn,anabranch_runtime=debug"
        format = "json"
    "#;

    /// Every key with its section, and its value where there is one.
    fn entries(config: &Config) -> BTreeMap<String, String> {
        let table = toml::Table::try_from(config).unwrap();
        let mut entries = BTreeMap::new();
        for (section, values) in &table {
            for (key, value) in values.as_table().unwrap() {
                entries.insert(format!("{section}.{key}"), value.to_string());
            }
        }
        entries
    }

    /// Every key that can be set.
    fn all_keys() -> BTreeSet<String> {
        let mut keys: BTreeSet<String> = entries(&file::parse(OTHER, "other").unwrap()).into_keys().collect();
        keys.insert("server.password".to_owned());
        keys
    }

    #[test]
    fn a_printed_configuration_reads_as_the_same() {
        for mut config in [Config::default(), file::parse(OTHER, "other").unwrap()] {
            let printed = fill(&config).unwrap();
            assert!(!printed.contains("cret"), "{printed}");
            config.server.password = None;
            assert_eq!(file::parse(&printed, "printed").unwrap(), config, "{printed}");
        }
    }

    #[test]
    fn the_other_configuration_differs_in_every_key() {
        let (default, other) = (entries(&Config::default()), entries(&file::parse(OTHER, "other").unwrap()));
        for (key, value) in &other {
            assert_ne!(default.get(key), Some(value), "{key}");
        }
        assert!(default.keys().all(|key| other.contains_key(key)));
        assert_eq!(file::parse(OTHER, "other").unwrap().storage.durability, Durability::None);
    }

    #[test]
    fn the_template_has_every_key_and_a_comment_above_it() {
        let (mut section, mut found, mut previous) = ("", BTreeSet::new(), "");
        for line in TEMPLATE.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name;
            } else if let Some(key) = key(line) {
                assert!(previous.starts_with("# "), "`{key}` has no comment");
                found.insert(format!("{section}.{key}"));
            }
            previous = line;
        }
        assert_eq!(found, all_keys());
    }

    #[test]
    fn the_documentation_has_every_key_with_its_default() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
        let text = std::fs::read_to_string(path).unwrap();
        let defaults = entries(&Config::default());
        let mut documented = BTreeSet::new();
        let (mut section, mut rows) = (String::new(), 0);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("## `[").and_then(|rest| rest.strip_suffix("]`")) {
                section = name.to_owned();
                continue;
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, key, default, allowed, meaning, _] = cells.as_slice() else { continue };
            // The table of durabilities quotes its first words.
            let Some(key) = key.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) else { continue };
            if key.starts_with('"') {
                continue;
            }
            rows += 1;
            let name = format!("{section}.{key}");
            let value = defaults.get(&name).map_or("none".to_owned(), |value| format!("`{value}`"));
            // The machine decides.
            let of_cores = (name == "server.threads").then(|| "one for each core, at most 8".to_owned());
            let expected = of_cores.unwrap_or(value);
            assert_eq!(*default, expected, "the default of `{name}` in docs/reference/configuration.md");
            assert!(!allowed.is_empty() && !meaning.is_empty(), "`{name}` says too little");
            documented.insert(name);
        }
        assert_eq!(documented, all_keys());
        assert_eq!(rows, documented.len(), "a key is documented twice");
    }
}
