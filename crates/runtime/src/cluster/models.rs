//! The models that a process serves, and a keyspace's entry in the cluster's list.

use protocol::model::{ClusterShape, Model, OptionWords, StoredOptions, listed};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Debug, Formatter};
use types::Error;

/// The models of a program: what it links is what its clusters can keep.
#[derive(Clone, Copy)]
pub struct Models(&'static [&'static dyn Model]);

impl Debug for Models {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Models {
    /// These.
    pub const fn new(models: &'static [&'static dyn Model]) -> Self {
        Models(models)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|model| model.name())
    }

    /// The model of this name.
    ///
    /// # Errors
    /// This program has none.
    pub(crate) fn named(&self, name: &str) -> Result<&'static dyn Model, String> {
        self.0.iter().copied().find(|model| model.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            format!("there is no model '{name}' here; there are {}", listed(&names, "and"))
        })
    }

    /// A keyspace with these options, as `KEYSPACE CREATE` makes one.
    ///
    /// # Errors
    /// There is no such model, or no such option.
    pub fn keyspace(
        &self,
        name: String,
        model: &str,
        words: &OptionWords<'_>,
    ) -> Result<ClusterKeyspace, Error> {
        let options = self.named(model).map_err(Error::err)?.create(words)?;
        Ok(ClusterKeyspace { name, model: model.to_owned(), options, dropped: false })
    }
}

/// A keyspace of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterKeyspace {
    /// Its name.
    pub name: String,
    /// The name of the model that keeps it.
    pub model: String,
    /// As the model stores them.
    pub options: StoredOptions,
    /// It was dropped: nothing is left of it but its number, which no other keyspace gets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

impl ClusterKeyspace {
    /// Can this cluster keep it?
    ///
    /// # Errors
    /// Says why not.
    pub(crate) fn check(&self, models: Models, cluster: &ClusterShape) -> Result<(), String> {
        let checked = models.named(&self.model).and_then(|model| model.check(&self.options, cluster));
        checked.map_err(|reason| self.reason(&reason))
    }

    /// A reason, with the keyspace that it is about.
    pub(crate) fn reason(&self, reason: &str) -> String {
        format!("keyspace '{}': {reason}", self.name)
    }

    /// True if this is what `earlier` may have become.
    pub(crate) fn follows(&self, earlier: &Self, models: Models) -> bool {
        let may_become =
            || models.named(&self.model).is_ok_and(|model| model.may_become(&earlier.options, &self.options));
        (&self.name, &self.model) == (&earlier.name, &earlier.model)
            && (self.dropped || (!earlier.dropped && may_become()))
    }

    /// True if it was created as `created`, whatever has become of its partitions and regions since.
    pub fn was_created_as(&self, created: &Self, models: Models) -> bool {
        let same = |model: &dyn Model| model.was_created_as(&self.options, &created.options);
        (&self.name, &self.model) == (&created.name, &created.model)
            && models.named(&self.model).is_ok_and(same)
    }
}
