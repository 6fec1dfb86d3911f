//! Which keyspaces there are, and what this process keeps of each: the list of keyspaces becomes instances and partitions.

use super::catalog::Catalog;
use super::hosted_keyspace::HostedKeyspace;
use super::hosting::KeyspaceHosting;
use super::{Cluster, ClusterKeyspace, ClusterView};
use crate::keyspace::Locals;
use crate::user_types::{self, StoredType};
use gateway::{KeyspaceOptions, LibraryChange, Safety};
use protocol::Durability;
use protocol::hosted::{Hosted, Life, Place};
use protocol::model::Properties;
use std::path::Path;
use std::sync::Arc;
use types::{Error, HashSeed, KeyspaceId};

impl Cluster {
    /// Begins to serve the keyspaces that were created elsewhere since, and ends those that were dropped. This process
    /// has never said anything for a new one, so it misses nothing of it.
    pub(crate) fn refresh(&mut self) {
        self.catalog.refresh();
        self.note_types();
        self.view.note_functions(self.catalog.functions());
        for index in 0..self.catalog.keyspaces().len() {
            if index == self.hostings.count() {
                self.begin_keyspace(index);
            } else if self.catalog.keyspaces()[index].dropped {
                self.end_keyspace(KeyspaceId(index as u16));
            }
            self.configure(index);
        }
        self.view.note(self.is_active());
    }

    /// Keeps what is to be here of a new keyspace.
    fn begin_keyspace(&self, index: usize) {
        let data = self.directory.as_deref();
        let hosting = begin(&self.catalog, index, self.life, &self.locals, data).unwrap_or_else(|reason| {
            tracing::error!(%reason, "a keyspace cannot be served");
            KeyspaceHosting::Dropped
        });
        if let Some(keyspace) = hosting.hosted() {
            keyspace.change(&self.view, |hosted, turn| hosted.recovered(true, turn));
        }
        self.hostings.begin(hosting);
    }

    /// Ends a keyspace that was dropped, unless it has ended.
    fn end_keyspace(&self, id: KeyspaceId) {
        match self.hostings.of(id) {
            None | Some(KeyspaceHosting::Dropped) => return,
            Some(KeyspaceHosting::Solo) => self.locals.end(id),
            Some(KeyspaceHosting::Hosted(keyspace)) => keyspace.end(),
            Some(KeyspaceHosting::Elsewhere(_)) => {}
        }
        tracing::info!(keyspace = self.entry(id).name, "dropped");
        // What was submitted before it ended waits, and what comes afterwards is refused.
        self.hostings.end(id);
        // The log has records of it; a checkpoint will not.
        self.view.want_checkpoint();
    }

    /// Hands a keyspace's options to its hosted instances.
    fn configure(&self, index: usize) {
        let (id, entry) = (KeyspaceId(index as u16), &self.catalog.keyspaces()[index]);
        match self.hostings.of(id) {
            Some(KeyspaceHosting::Hosted(keyspace)) => {
                if let Err(reason) = keyspace.configure(&entry.options, &self.view) {
                    tracing::error!(keyspace = entry.name, %reason, "options cannot be used");
                }
            }
            Some(KeyspaceHosting::Solo) => {
                let model = self.catalog.models().named(&entry.model).ok();
                let solo = model.and_then(|model| model.solo(&entry.options));
                if let Some(solo) = &solo {
                    self.locals.set_cache(id, solo);
                }
                if solo.is_some_and(|solo| self.locals.set_durability(id, solo.durability)) {
                    // What was not logged so far is in no log: only a checkpoint makes it durable.
                    self.view.want_checkpoint();
                }
            }
            Some(KeyspaceHosting::Elsewhere(_) | KeyspaceHosting::Dropped) | None => {}
        }
    }

    /// `KEYSPACE CREATE`: durable, and known to every process that a client uses it at, when this returns.
    pub(crate) fn create(&mut self, name: String, options: &KeyspaceOptions<'_>) -> Result<(), Error> {
        self.catalog.create(name, options, self.durability)?;
        self.refresh();
        Ok(())
    }

    /// `KEYSPACE ALTER`: durable when this returns; the other processes know within a tenth of a second.
    pub(crate) fn alter(&mut self, name: &str, options: &KeyspaceOptions<'_>) -> Result<(), Error> {
        self.catalog.alter(name, options)?;
        self.refresh();
        Ok(())
    }

    /// `KEYSPACE DROP`: durable when this returns, and nothing is left here; the other processes know within a tenth
    /// of a second.
    pub(crate) fn drop_keyspace(&mut self, name: &str) -> Result<(), Error> {
        self.catalog.drop_keyspace(name)?;
        self.refresh();
        Ok(())
    }

    /// `TYPES LOAD`: durable, and known to every process that meets the name, when this returns.
    pub(crate) fn add_type(&mut self, new: &StoredType) -> Result<(), Error> {
        self.catalog.add_type(new)?;
        self.refresh();
        user_types::register(new).map_err(Error::err)
    }

    /// `FUNCTION LOAD`, `DELETE`, `FLUSH` and `RESTORE`: durable when this returns; the other processes know within a tenth of a
    /// second, and of a new function at its first call.
    pub(crate) fn change_libraries(&mut self, change: &LibraryChange) -> Result<(), Error> {
        self.catalog.change_libraries(change)?;
        self.refresh();
        Ok(())
    }

    /// The keyspaces that the process keeps by itself.
    pub(crate) fn locals(&self) -> &Arc<Locals> {
        &self.locals
    }

    /// What other threads may know.
    pub(crate) fn view(&self) -> &Arc<ClusterView> {
        &self.view
    }

    /// The keyspace's number in the catalog.
    pub(crate) fn keyspace_of_name(&self, name: &[u8]) -> Option<KeyspaceId> {
        self.served().find(|(_, keyspace)| keyspace.name.as_bytes() == name).map(|(id, _)| id)
    }

    /// True if `SELECT` takes this number.
    pub(crate) fn serves(&self, number: u64) -> bool {
        usize::try_from(number).is_ok_and(|number| self.catalog.serves(number))
    }

    /// The keyspaces that are served here, with their numbers.
    pub(crate) fn served(&self) -> impl Iterator<Item = (KeyspaceId, &ClusterKeyspace)> {
        let entries = (0..).map(KeyspaceId).zip(self.catalog.keyspaces());
        entries.filter(|(_, entry)| !entry.dropped)
    }

    /// What hashes keys into partitions.
    pub(crate) fn seed(&self) -> HashSeed {
        HashSeed(self.file.seed)
    }

    /// How many numbers `SELECT` takes.
    pub(crate) fn numbers(&self) -> usize {
        self.catalog.numbers()
    }

    /// A keyspace's entry.
    pub(crate) fn entry(&self, id: KeyspaceId) -> &ClusterKeyspace {
        &self.catalog.keyspaces()[usize::from(id.0)]
    }

    /// How many partitions a keyspace has.
    pub(crate) fn partitions(&self, id: KeyspaceId) -> u16 {
        if let Some(keyspace) = self.locals.of(id) {
            return keyspace.partitions.len() as u16;
        }
        let entry = self.entry(id);
        self.catalog.models().named(&entry.model).map_or(0, |model| model.partitions(&entry.options))
    }

    /// What is certain of every write to a keyspace that has been answered.
    pub(crate) fn safety(&self, id: KeyspaceId, replicas_durability: Durability) -> Safety {
        if let Some(keyspace) = self.locals.of(id) {
            return Safety { replicas: 0, durability: keyspace.durability() };
        }
        let Some(entry) = self.catalog.keyspaces().get(usize::from(id.0)) else { return Safety::NONE };
        let model = self.catalog.models().named(&entry.model);
        let replicas =
            model.map_or(0, |model| model.acknowledged_replicas(&entry.options, self.catalog.cluster()));
        Safety { replicas, durability: replicas_durability }
    }

    /// Which processes keep each partition of a keyspace, and which one leads it if that is known here.
    pub(super) fn placement(&self, id: KeyspaceId) -> Vec<String> {
        let entry = self.entry(id);
        let Ok(model) = self.catalog.models().named(&entry.model) else { return Vec::new() };
        let place = Place { cluster: self.catalog.cluster(), keyspace: id, life: self.life };
        let hosted = self.hostings.hosted_of(id);
        let mut placed = model.placement(&entry.options, &place);
        // The process that hosts the keyspace knows what follows its threads.
        if let Some(solo) = model.solo(&entry.options) {
            placed.resize(usize::from(self.partitions(id)), vec![solo.process]);
        }
        let line = |(partition, processes): (u16, Vec<u16>)| {
            let said = |hosted: &dyn Hosted| (hosted.present(partition), hosted.leader(partition));
            let (present, leader) =
                hosted.as_ref().and_then(|keyspace| keyspace.with(said)).unwrap_or_default();
            let processes = present.map_or(processes, |present| present.processes);
            let processes: Vec<String> = processes.iter().map(u16::to_string).collect();
            let led = leader.map(|leader| format!(", led by {leader}")).unwrap_or_default();
            format!("{partition}: on {}{led}", processes.join(","))
        };
        (0..).zip(placed).map(line).collect()
    }

    /// What a keyspace's options are, for people.
    pub(super) fn properties(&self, id: KeyspaceId) -> Properties {
        let (entry, cluster) = (self.entry(id), self.catalog.cluster());
        let model = self.catalog.models().named(&entry.model);
        model.map(|model| model.describe(&entry.options, cluster)).unwrap_or_default()
    }
}

/// What a process keeps of the keyspace with this number.
pub(super) fn begin(
    catalog: &Catalog,
    index: usize,
    life: Life,
    locals: &Locals,
    data: Option<&Path>,
) -> Result<KeyspaceHosting, String> {
    let entry = &catalog.keyspaces()[index];
    if entry.dropped {
        return Ok(KeyspaceHosting::Dropped);
    }
    let (model, id) = (catalog.models().named(&entry.model)?, KeyspaceId(index as u16));
    match model.solo(&entry.options) {
        Some(solo) if solo.process == life.process.0 => {
            locals.begin(id, &entry.name, &solo);
            Ok(KeyspaceHosting::Solo)
        }
        Some(solo) => Ok(KeyspaceHosting::Elsewhere(solo.process)),
        None => {
            let place = Place { cluster: catalog.cluster(), keyspace: id, life };
            let hosted = model.host(&entry.options, &place).map_err(|reason| entry.reason(&reason))?;
            Ok(KeyspaceHosting::Hosted(Arc::new(HostedKeyspace::new(id, hosted, data))))
        }
    }
}
