//! The subcommands of CLIENT about client-side caching.

use crate::control::Control;
use crate::gateway::Gateway;
use crate::host::Host;
use crate::session::Connection;
use crate::table::lossy;
use crate::tracking::{Pushed, Tracking};
use std::collections::BTreeSet;
use types::{Error, KeyspaceId, ReplySink};

/// Why a session that reads only what is stable is not tracked.
pub(crate) fn stable_only() -> Error {
    Error::err(
        "a connection with SESSION SCOPE connection is not tracked: it sees what others of its process write later than they \
         tell; use SESSION SCOPE process, or a connection of its own for what is cached",
    )
}

/// CLIENT TRACKING
pub(super) fn track(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let (wanted, prefixes) = options(control)?;
    let (call, session) = (control.call, &control.connection.session);
    if call.is(2, "ON") {
        check(&wanted, &prefixes, session.tracking.as_deref())?;
        if session.reads_stable_only {
            return Err(stable_only());
        }
        let keyspace = session.keyspace;
        control.host.may_track(keyspace)?;
        control.gateway.track(control.connection, wanted, prefixes, control.host);
    } else if call.is(2, "OFF") {
        control.gateway.stop_tracking(control.connection, control.host);
    } else {
        return Err(Error::syntax());
    }
    control.host.note_client(&control.own_info());
    sink.simple("OK");
    Ok(())
}

/// Prefixes of keys.
type Prefixes = Vec<Box<[u8]>>;

fn options(control: &Control<'_>) -> Result<(Tracking, Prefixes), Error> {
    let call = control.call;
    let (mut wanted, mut prefixes, mut index) = (Tracking::default(), Vec::new(), 3);
    while index < call.len() {
        let has_value = index + 1 < call.len();
        match () {
            () if has_value && call.is(index, "REDIRECT") => {
                index += 1;
                wanted.redirect = redirection(control, index, wanted.redirect)?;
            }
            () if has_value && call.is(index, "PREFIX") => {
                index += 1;
                prefixes.push(call.bytes(index).into());
            }
            () if call.is(index, "BCAST") => wanted.broadcast = true,
            () if call.is(index, "OPTIN") => wanted.opt_in = true,
            () if call.is(index, "OPTOUT") => wanted.opt_out = true,
            () if call.is(index, "NOLOOP") => wanted.no_loop = true,
            () => return Err(Error::syntax()),
        }
        index += 1;
    }
    Ok((wanted, prefixes))
}

fn redirection(control: &Control<'_>, index: usize, before: u64) -> Result<u64, Error> {
    if before != 0 {
        return Err(Error::err("A client can only redirect to a single other client"));
    }
    let target = control.call.integer(index)?;
    let is_known = control.clients().iter().any(|client| client.peer.client as i64 == target);
    if !is_known {
        return Err(Error::err("The client ID you want redirect to does not exist"));
    }
    Ok(target as u64)
}

/// # Errors
/// The options do not go together, or not with how the client is tracked already.
fn check(wanted: &Tracking, prefixes: &[Box<[u8]>], present: Option<&Tracking>) -> Result<(), Error> {
    if !wanted.broadcast && !prefixes.is_empty() {
        return Err(Error::err("PREFIX option requires BCAST mode to be enabled"));
    }
    if let Some(present) = present
        && present.broadcast != wanted.broadcast
    {
        return Err(Error::err(
            "You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a \
             different mode.",
        ));
    }
    if wanted.broadcast && (wanted.opt_in || wanted.opt_out) {
        return Err(Error::err("OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if wanted.opt_in && wanted.opt_out {
        return Err(Error::err("You can't specify both OPTIN mode and OPTOUT mode"));
    }
    if let Some(present) = present
        && (wanted.opt_in && present.opt_out || wanted.opt_out && present.opt_in)
    {
        return Err(Error::err(
            "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a \
             different mode.",
        ));
    }
    check_prefixes(prefixes, present)
}

fn check_prefixes(prefixes: &[Box<[u8]>], present: Option<&Tracking>) -> Result<(), Error> {
    let overlaps = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let refused = |prefix: &[u8], what: &str, other: &[u8]| {
        Err(Error::err(format!(
            "Prefix '{}' overlaps with {what} prefix '{}'. Prefixes for a single client must not overlap.",
            lossy(prefix),
            lossy(other)
        )))
    };
    for (index, prefix) in prefixes.iter().enumerate() {
        let existing = present.into_iter().flat_map(|present| &present.prefixes);
        if let Some(other) = existing.into_iter().find(|other| overlaps(prefix, other)) {
            return refused(prefix, "an existing", other);
        }
        if let Some(other) = prefixes[index + 1..].iter().find(|other| overlaps(prefix, other)) {
            return refused(prefix, "another provided", other);
        }
    }
    Ok(())
}

/// CLIENT CACHING
pub(super) fn caching(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let Some(tracking) = &mut control.connection.session.tracking else {
        return Err(Error::err(
            "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    if call.is(2, "YES") {
        if !tracking.opt_in {
            return Err(Error::err(
                "CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
    } else if !call.is(2, "NO") {
        return Err(Error::syntax());
    } else if !tracking.opt_out {
        return Err(Error::err("CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."));
    }
    tracking.caching = true;
    sink.simple("OK");
    Ok(())
}

/// CLIENT GETREDIR
pub(super) fn get_redirection(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let tracking = control.connection.session.tracking.as_ref();
    sink.integer(tracking.map_or(-1, |tracking| tracking.redirect as i64));
    Ok(())
}

/// CLIENT TRACKINGINFO
pub(super) fn tracking_info(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let tracking = control.connection.session.tracking.as_deref();
    let is = |what: fn(&Tracking) -> bool| tracking.is_some_and(what);
    let flags = [
        (tracking.is_none(), "off"),
        (tracking.is_some(), "on"),
        (is(|tracking| tracking.broadcast), "bcast"),
        (is(|tracking| tracking.opt_in), "optin"),
        (is(|tracking| tracking.opt_in && tracking.caching), "caching-yes"),
        (is(|tracking| tracking.opt_out), "optout"),
        (is(|tracking| tracking.opt_out && tracking.caching), "caching-no"),
        (is(|tracking| tracking.no_loop), "noloop"),
        (is(|tracking| tracking.is_broken), "broken_redirect"),
    ];
    let set: Vec<&str> = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
    sink.map(3);
    sink.bulk(b"flags");
    sink.set(set.len());
    set.iter().for_each(|name| sink.bulk(name.as_bytes()));
    sink.bulk(b"redirect");
    sink.integer(tracking.map_or(-1, |tracking| tracking.redirect as i64));
    sink.bulk(b"prefixes");
    let prefixes = tracking.map(|tracking| &tracking.prefixes);
    sink.array(prefixes.map_or(0, BTreeSet::len));
    prefixes.into_iter().flatten().for_each(|prefix| sink.bulk(prefix));
    Ok(())
}

impl Control<'_> {
    /// May the client go on in this keyspace, tracked as it is?
    ///
    /// # Errors
    /// Nobody could tell it of all changes there.
    pub(super) fn may_track_in(&mut self, keyspace: KeyspaceId) -> Result<(), Error> {
        match &self.connection.session.tracking {
            Some(_) => self.host.may_track(keyspace),
            None => Ok(()),
        }
    }
}

impl Gateway {
    /// The client is tracked from now on.
    fn track(
        &mut self,
        connection: &mut Connection,
        wanted: Tracking,
        mut prefixes: Prefixes,
        host: &mut dyn Host,
    ) {
        let before = connection.session.tracking.take().map(|before| before.prefixes).unwrap_or_default();
        if wanted.broadcast && prefixes.is_empty() {
            prefixes.push(Box::default());
        }
        let all: BTreeSet<Box<[u8]>> = before.into_iter().chain(prefixes).collect();
        self.table.begin(connection.id, wanted.broadcast.then(|| all.clone()));
        let mut tracking = Box::new(wanted);
        if tracking.broadcast {
            tracking.prefixes = all;
        }
        connection.session.tracking = Some(tracking);
        self.note_tracking(host);
    }

    /// Its keyspace was chosen for it: it is not tracked there if nobody could tell it of all changes, and has to forget what
    /// it has read.
    pub(crate) fn stop_where_untold(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        if connection.session.tracking.is_none() || host.may_track(connection.session.keyspace).is_ok() {
            return;
        }
        connection.invalid = vec![Pushed::All];
        self.send_invalid(connection, host);
        self.stop_tracking(connection, host);
        host.note_client(&connection.info());
    }

    /// It is not tracked any longer.
    pub(crate) fn stop_tracking(&mut self, connection: &mut Connection, host: &mut dyn Host) {
        if connection.session.tracking.take().is_some() {
            self.table.end(connection.id);
            connection.invalid.clear();
            self.note_tracking(host);
        }
    }
}
