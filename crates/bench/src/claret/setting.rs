//! What is compared: options of keyspaces.

use std::str::FromStr;

/// Settings that have a name of their own, with the options of `KEYSPACE CREATE`.
const NAMED: [(&str, &str); 7] = [
    ("readwrite", "CONCURRENCY locking LOCKS readwrite PHASING off"),
    ("readwrite-phased", "CONCURRENCY locking LOCKS readwrite PHASING on"),
    ("typed", "CONCURRENCY locking LOCKS typed PHASING off"),
    ("typed-phased", "CONCURRENCY locking LOCKS typed PHASING on"),
    ("none", "CONCURRENCY locking LOCKS none"),
    ("occ", "CONCURRENCY occ"),
    ("optimistic", "CONCURRENCY optimistic"),
];

/// How a keyspace is created that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it is called in reports.
    pub name: String,
    /// Further words of `KEYSPACE CREATE name MODEL strict`.
    pub options: Vec<String>,
    /// False for the keyspace that is there.
    created: bool,
}

impl Setting {
    /// The keyspace that is there.
    pub(super) fn as_is() -> Self {
        Setting { name: "as it is".to_owned(), options: Vec::new(), created: false }
    }

    /// The name of the keyspace that is created for it.
    pub(super) fn keyspace(&self) -> Option<String> {
        self.created.then(|| format!("bench-{}", self.name))
    }

    /// False if operations are all there is.
    pub(super) fn has_transactions(&self) -> bool {
        let is = |word: &str, wanted: &str| word.eq_ignore_ascii_case(wanted);
        !self.options.windows(2).any(|pair| is(&pair[0], "LOCKS") && is(&pair[1], "none"))
    }
}

impl FromStr for Setting {
    type Err = String;

    /// A setting that has a name, such as `typed-phased`, or `name=options`.
    fn from_str(text: &str) -> Result<Self, String> {
        let named = NAMED.iter().find(|(name, _)| *name == text).copied();
        let (name, options) = named.or_else(|| text.split_once('=')).ok_or_else(|| {
            let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            format!(
                "`{text}` is none of {}, nor NAME=OPTIONS, such as occ4='CONCURRENCY occ'",
                names.join(", ")
            )
        })?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!("`{name}` names a keyspace: letters, digits, `-` and `_`"));
        }
        let options = options.split_whitespace().map(str::to_owned).collect();
        Ok(Setting { name: name.to_owned(), options, created: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_names_or_options() {
        let typed: Setting = "typed-phased".parse().unwrap();
        assert_eq!(typed.options.join(" "), "CONCURRENCY locking LOCKS typed PHASING on");
        assert!(typed.has_transactions());
        assert!(!"none".parse::<Setting>().unwrap().has_transactions());
        let own: Setting = "mine=CONCURRENCY occ REPLICAS 1".parse().unwrap();
        assert_eq!((own.keyspace().unwrap(), own.options.len()), ("bench-mine".to_owned(), 4));
        assert!("fast".parse::<Setting>().unwrap_err().contains("typed-phased"));
        assert!("a b=CONCURRENCY occ".parse::<Setting>().is_err());
    }
}
