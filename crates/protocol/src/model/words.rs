//! A keyspace's options as commands spell them.

use std::borrow::Cow;
use types::Error;

/// An option and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionWord<'a> {
    /// In upper case.
    name: String,
    value: &'a [u8],
}

impl<'a> OptionWord<'a> {
    /// An option and its value, as a client spelled them.
    pub fn new(name: &[u8], value: &'a [u8]) -> Self {
        OptionWord { name: String::from_utf8_lossy(name).to_uppercase(), value }
    }

    /// The option, in upper case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.value)
    }

    /// The value, a number.
    ///
    /// # Errors
    /// It is none, or too large.
    pub fn number<N: std::str::FromStr>(&self) -> Result<N, Error> {
        self.text()
            .parse()
            .map_err(|_| Error::err(format!("{} is a number, not '{}'", self.name, self.text())))
    }

    /// The value, an amount of memory in bytes, such as `100mb`.
    ///
    /// # Errors
    /// It is none.
    pub fn bytes(&self) -> Result<u64, Error> {
        crate::eviction::parse_bytes(&self.text()).ok_or_else(|| {
            Error::err(format!(
                "{} is an amount of memory, such as 100mb or 1073741824, not '{}'",
                self.name,
                self.text()
            ))
        })
    }

    /// Which of these words, in any case, the value is.
    ///
    /// # Errors
    /// It is another one.
    pub fn one_of(&self, words: &[&str]) -> Result<usize, Error> {
        let found = words.iter().position(|word| self.value.eq_ignore_ascii_case(word.as_bytes()));
        found.ok_or_else(|| {
            Error::err(format!("{} is {}, not '{}'", self.name, listed(words, "or"), self.text()))
        })
    }

    /// What a model says to an option that it does not know.
    pub fn unknown(&self, model: &str, known: &[&str]) -> Error {
        unknown(&self.name, model, known)
    }
}

fn unknown(option: &str, model: &str, known: &[&str]) -> Error {
    if matches!(option, "EVICTION" | "MAXMEMORY") {
        return Error::err(format!(
            "{option} is for strict keyspaces, not for model {model}: what one region forgets to save memory, the others \
             would lose, or bring back; keep caches in a strict keyspace, or give keys a deadline"
        ));
    }
    Error::err(format!(
        "unknown keyspace option '{option}'; keyspaces of model {model} know {}",
        listed(known, "and")
    ))
}

/// `a, b and c`.
pub fn listed(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

/// The options that a command names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionWords<'a> {
    /// `REGIONS`: those that keep the keyspace; empty if it does not say.
    pub regions: Vec<&'a [u8]>,
    /// Any other option.
    pub options: Vec<OptionWord<'a>>,
}

impl<'a> OptionWords<'a> {
    /// Options and their values.
    pub fn new(regions: Vec<&'a [u8]>, options: &[(&'a [u8], &'a [u8])]) -> Self {
        let options = options.iter().map(|(name, value)| OptionWord::new(name, value)).collect();
        OptionWords { regions, options }
    }

    /// The value of an option; the last one if it is named several times.
    pub fn get(&self, name: &str) -> Option<&OptionWord<'a>> {
        self.options.iter().rfind(|option| option.name == name)
    }

    /// The options without one of them.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let options = self.options.iter().filter(|option| option.name != name).cloned().collect();
        OptionWords { regions: self.regions.clone(), options }
    }

    /// Fails if there are regions, of a model whose keyspaces have none of their own.
    ///
    /// # Errors
    /// As for any unknown option.
    pub fn refuse_regions(&self, model: &str, known: &[&str]) -> Result<(), Error> {
        match self.regions.is_empty() {
            true => Ok(()),
            false => Err(unknown("REGIONS", model, known)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_case_and_refused_with_what_is_known() {
        let words = OptionWords::new(vec![b"a"], &[(b"keep", b"7"), (b"Merge", b"AUTO"), (b"KEEP", b"x")]);
        assert_eq!(words.get("MERGE").unwrap().one_of(&["manual", "auto"]), Ok(1));
        let keep = words.get("KEEP").unwrap();
        assert!(keep.number::<u16>().unwrap_err().message.contains("KEEP is a number, not 'x'"));
        assert!(keep.one_of(&["a", "b", "c"]).unwrap_err().message.contains("KEEP is a, b or c, not 'x'"));
        let unknown = keep.unknown("strict", &["PARTITIONS", "REPLICAS"]);
        assert!(unknown.message.contains("'KEEP'; keyspaces of model strict know PARTITIONS and REPLICAS"));
        assert_eq!(words.without("KEEP").options.len(), 1);
        assert!(words.refuse_regions("strict", &["REPLICAS"]).is_err());
        let memory = OptionWord::new(b"maxmemory", b"100mb");
        assert_eq!(memory.bytes(), Ok(100 << 20));
        assert!(memory.unknown("causal", &["MERGE"]).message.contains("is for strict keyspaces"));
        assert!(OptionWord::new(b"maxmemory", b"much").bytes().is_err());
    }
}
