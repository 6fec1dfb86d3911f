//! What a command that concerns the session or the process may look at and change.

use crate::client::{ClientFilter, ClientInfo};
use crate::gateway::Gateway;
use crate::host::Host;
use crate::news::{Audience, News};
use crate::plan::Call;
use crate::session::Connection;
use protocol::Now;
use resp::Arguments;

/// A command answered without any keyspace.
pub(crate) struct Control<'c> {
    /// The gateway; the asking connection is not among its connections meanwhile.
    pub(crate) gateway: &'c mut Gateway,
    /// The asking connection.
    pub(crate) connection: &'c mut Connection,
    /// The process.
    pub(crate) host: &'c mut dyn Host,
    /// The command.
    pub(crate) call: Call<'c>,
    /// The present.
    pub(crate) now: Now,
}

impl<'c> Control<'c> {
    /// The arguments, the name first.
    pub(crate) fn arguments(&self) -> Arguments<'c> {
        self.call.arguments
    }

    /// The asking client as others see it.
    pub(crate) fn own_info(&self) -> ClientInfo {
        self.connection.info()
    }

    /// All clients of the process, by number.
    pub(crate) fn clients(&self) -> Vec<ClientInfo> {
        let mut clients = vec![self.own_info()];
        self.gateway.clients(&mut |client| clients.push(client.clone()));
        self.host.other_clients(&mut |client| clients.push(client.clone()));
        clients.sort_by_key(|client| client.peer.client);
        clients
    }

    /// Ends the wait of a blocked client of the process; false if it does not wait.
    pub(crate) fn unblock(&mut self, client: u64, with_error: bool) -> bool {
        let mut gateway = None;
        self.host.waiters(&mut |waiters| gateway = waiters.gateway_of(client));
        match gateway {
            None => false,
            Some(worker) if worker == self.gateway.config.worker => self.gateway.unblock(client, with_error),
            Some(worker) => {
                self.host.tell(Audience::Worker(worker), News::Unblock { client, with_error });
                true
            }
        }
    }

    /// Ends the matching clients of the process; returns how many.
    pub(crate) fn kill(&mut self, filter: &ClientFilter) -> u64 {
        let session = &self.connection.session;
        let own = filter.matches(&session.peer, &session.user.name, session.is_subscriber());
        self.connection.closing |= own;
        u64::from(own) + self.gateway.kill(filter) + self.host.kill_other_clients(filter)
    }
}
