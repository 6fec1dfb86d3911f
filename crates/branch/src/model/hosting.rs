//! What configures a site and its records in a process.

use super::Compile;
use super::options::Options;
use crate::site::Site;
use crate::{Instance, Part};
use protocol::hosted::{Backlog, Hosting, Locked, Nodes, Turn};
use protocol::model::{StoredOptions, read};

/// See the module. A site that has nothing yet holds requests, and answers with an error after a while: so it counts as
/// complete.
pub(super) struct SiteHosting {
    compile: Compile,
    /// As they were taken over last.
    options: StoredOptions,
}

impl SiteHosting {
    pub(super) fn new(compile: Compile) -> Self {
        SiteHosting { compile, options: StoredOptions::Null }
    }
}

fn sites<'n>(nodes: &'n Locked<'_, Instance>) -> impl Iterator<Item = &'n Site> {
    nodes.protocols().filter_map(Instance::as_site)
}

impl Hosting for SiteHosting {
    type Protocol = Instance;

    /// A site that lacks something holds requests, and answers with an error after a while.
    fn is_complete(&self, nodes: &Locked<'_, Instance>) -> bool {
        sites(nodes).all(|site| !site.is_joining())
    }

    fn backlog(&self, nodes: &Locked<'_, Instance>) -> Backlog {
        Backlog { queued_bytes: sites(nodes).map(Site::queued_bytes).sum(), ..Backlog::default() }
    }

    fn state(&self, nodes: &Locked<'_, Instance>) -> Vec<String> {
        let parts = nodes.protocols().filter_map(Instance::as_part);
        sites(nodes).map(site_state).chain(parts.map(part_state)).collect()
    }

    fn configure(
        &mut self,
        nodes: &mut Nodes<Instance>,
        stored: &StoredOptions,
        _: &mut Turn<'_>,
    ) -> Result<bool, String> {
        if *stored == self.options {
            return Ok(false);
        }
        self.options.clone_from(stored);
        let options: Options = read(stored)?;
        for site in nodes.lock().protocols_mut().filter_map(Instance::as_site_mut) {
            site.alter(&options.set_up());
            if site.handler_source() != options.handler.as_deref() {
                // Nothing is merged by the old one any more.
                site.set_handler(None);
                site.set_handler(options.handler(self.compile)?);
            }
        }
        Ok(false)
    }
}

fn site_state(site: &Site) -> String {
    let census = site.keyspace().census();
    let bootstrap = if site.is_joining() { "waits to hear from the other sites; " } else { "" };
    let handler = site.handler_state().map(|handler| format!(", {handler}")).unwrap_or_default();
    let parted = match site.keyspace().is_parted() {
        true => format!(
            " near, {} orders not yet on the disks of record partitions, {} requests waiting for them",
            site.keyspace().pending_orders(),
            site.waiting()
        ),
        false => String::new(),
    };
    format!(
        "site: {bootstrap}{} states, {} heads, {} keys, {} versions{parted}, {} states ({} bytes) queued for other sites, {} \
         collected early, {} waiting for a parent, {} ceilings of clients{handler}",
        census.states,
        census.heads,
        census.keys,
        census.versions,
        site.unreceived(),
        site.queued_bytes(),
        census.early,
        site.orphans(),
        census.ceilings
    )
}

fn part_state(part: &Part) -> String {
    format!("records: {} keys, {} versions, up to order {}", part.keys(), part.versions(), part.applied())
}
