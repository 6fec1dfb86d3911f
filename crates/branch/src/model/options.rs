//! The options of a branch keyspace: as commands spell them, as the catalog stores them, what is wrong with them.

use super::{Compile, NAME};
use crate::{Handler, Keep, Policy, site};
use protocol::model::{OptionWord, OptionWords, Properties, Property, check_partitions};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use types::Error;

/// The options that commands know.
const KNOWN: [&str; 10] =
    ["PARTITIONS", "MERGE", "HANDLER", "EVERY", "LOCAL", "UNRESOLVED", "KEEP", "KEEPFOR", "COLLECT", "QUEUE"];

/// See the module. All but the partitions may be altered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// In how many partitions the records of a site lie; beside its State DAG if it is one.
    pub partitions: u16,
    /// How often, in milliseconds, each site merges all heads; 0 for never: the application does.
    pub merge_every_ms: u64,
    /// True if sites merge by the handler; else by the types' own rules.
    pub merges_by_handler: bool,
    /// The merge handler, a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// True if updates that meet at one site fork; else one of them gets CONFLICT.
    pub forks_locally: bool,
    /// True if a merge of the application or of the handler gives conflicting keys that it leaves to the newest state; else
    /// it is refused.
    pub newest_wins: bool,
    /// About how many of the newest states stay to be read by their id, shared by the heads.
    pub keep: usize,
    /// For how many milliseconds what was a head stays so, whatever their number.
    pub keep_for_ms: u64,
    /// True if collection does not wait for sites that are not heard.
    pub collects_early: bool,
    /// How many bytes of transactions that some site lacks a site keeps in memory before it refuses writes.
    pub queue_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            partitions: 1,
            merge_every_ms: 50,
            merges_by_handler: false,
            handler: None,
            forks_locally: false,
            newest_wins: false,
            keep: 100,
            keep_for_ms: 0,
            collects_early: false,
            queue_bytes: 1 << 30,
        }
    }
}

impl Options {
    /// What `KEYSPACE CREATE` asks for.
    pub(super) fn create(words: &OptionWords<'_>, compile: Compile) -> Result<Self, Error> {
        words.refuse_regions(NAME, &KNOWN)?;
        let mut options = Options::default();
        for word in &words.options {
            match word.name() {
                "PARTITIONS" => options.partitions = word.number()?,
                _ => options.set(word, compile)?,
            }
        }
        Ok(options)
    }

    /// What `KEYSPACE ALTER` asks for.
    pub(super) fn alter(&mut self, words: &OptionWords<'_>, compile: Compile) -> Result<(), Error> {
        words.refuse_regions(NAME, &KNOWN)?;
        if words.get("PARTITIONS").is_some() {
            return Err(Error::err(
                "PARTITIONS stays: records do not move between partitions yet; create another keyspace and copy",
            ));
        }
        words.options.iter().try_for_each(|word| self.set(word, compile))
    }

    fn set(&mut self, word: &OptionWord<'_>, compile: Compile) -> Result<(), Error> {
        match word.name() {
            "MERGE" => {
                let how = word.one_of(&["manual", "auto", "handler"])?;
                let every = match self.merge_every_ms {
                    0 => Options::default().merge_every_ms,
                    every => every,
                };
                self.merge_every_ms = if how == 0 { 0 } else { every };
                self.merges_by_handler = how == 2;
            }
            "HANDLER" if word.value().is_empty() => self.handler = None,
            "HANDLER" => {
                let source =
                    str::from_utf8(word.value()).map_err(|_| Error::err("HANDLER is a program in UTF-8"))?;
                compile(source).map_err(|reason| Error::err(format!("HANDLER: {reason}")))?;
                self.handler = Some(source.to_owned());
            }
            "EVERY" => self.merge_every_ms = word.number()?,
            "LOCAL" => self.forks_locally = word.one_of(&["serialize", "branch"])? == 1,
            "UNRESOLVED" => self.newest_wins = word.one_of(&["refuse", "newest"])? == 1,
            "KEEP" => self.keep = word.number()?,
            "KEEPFOR" => self.keep_for_ms = word.number()?,
            "COLLECT" => self.collects_early = word.one_of(&["pessimistic", "optimistic"])? == 1,
            "QUEUE" => self.queue_bytes = word.number()?,
            _ => return Err(word.unknown(NAME, &KNOWN)),
        }
        Ok(())
    }

    /// Can a cluster keep such a keyspace?
    pub(super) fn check(&self) -> Result<(), String> {
        check_partitions(self.partitions)?;
        if self.merges_by_handler && self.handler.is_none() {
            return Err(
                "MERGE handler needs HANDLER, a program in Lua that defines resolve(key, conflict) or merge(keys)"
                    .to_owned(),
            );
        }
        if self.collects_early && self.partitions > 1 {
            return Err(
                "COLLECT optimistic needs the records with the State DAG; leave PARTITIONS out, or COLLECT \
                        pessimistic"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// How sites are set up.
    pub(super) fn set_up(&self) -> site::Options {
        let every = Duration::from_millis(self.merge_every_ms);
        let merging = match self.merges_by_handler {
            _ if every.is_zero() => site::Merging::Manual,
            true => site::Merging::Handler { every },
            false => site::Merging::Auto { every },
        };
        site::Options {
            merging,
            local: if self.forks_locally { site::Local::Branch } else { site::Local::Serialize },
            policy: if self.newest_wins { Policy::Newest } else { Policy::Refuse },
            keep: Keep { states: self.keep, time: Duration::from_millis(self.keep_for_ms) },
            collect: match self.collects_early {
                true => site::Collecting::Optimistic,
                false => site::Collecting::Pessimistic,
            },
            queue: self.queue_bytes,
            ..site::Options::default()
        }
    }

    /// The merge handler. It was compiled when it was given: one that cannot be compiled now comes from another version of
    /// the program.
    pub(super) fn handler(&self, compile: Compile) -> Result<Option<Box<dyn Handler>>, String> {
        let compiled = self.handler.as_deref().map(compile).transpose();
        compiled.map_err(|reason| format!("the merge handler cannot be used: {reason}"))
    }

    /// What KEYSPACE INFO says.
    pub(super) fn describe(&self) -> Properties {
        let collect = if self.collects_early { "optimistic" } else { "pessimistic" };
        vec![
            ("collect", collect.into()),
            ("keep", Property::Number(self.keep as u64)),
            ("keep_for_ms", Property::Number(self.keep_for_ms)),
        ]
    }
}
