//! `serve`: one process, from its configuration to its orderly end.

use super::Outcome;
use crate::admin::{self, Running};
use crate::cli::{MemberArguments, ServeArguments};
use crate::config::Config;
use crate::logs;
use anyhow::{Context, Result};
use runtime::Models;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a binary adds to the process that it serves with: its models, the laboratory also what only tests and measurements
/// set.
#[derive(Clone, Copy, Debug)]
pub struct ServeExtras {
    /// The models of the keyspaces.
    pub models: Models,
    /// Added to the wall clock of a process of a cluster, in milliseconds.
    pub clock_skew_ms: i64,
}

/// Serves until a signal or a client ends the process.
///
/// # Errors
/// The configuration is refused, an address or the data directory cannot be used, or the server could not end in order.
pub fn serve(arguments: &ServeArguments, extras: ServeExtras) -> Result<Outcome> {
    let config = Config::of(arguments)?;
    if arguments.print_config {
        print!("{}", config.to_toml()?);
        return Ok(Outcome::Good);
    }
    logs::start(&config.log)?;
    // Whatever the process creates is for its own user only.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let running = Running::default();
    obey_signals(&running)?;
    if arguments.member.until_input_ends {
        end_with_input()?;
    }
    let mut options = options(&config, &arguments.member, extras)?;
    options.max_clients = fitting(options.max_clients);
    if options.cluster.is_some() {
        do_without_huge_pages();
    }
    let server = runtime::Server::start(options)?;
    *running.write() = Some(server.handle());
    let admin = config.admin.listen.as_ref().map(|place| admin::start(place, &running)).transpose()?;
    let addresses = server.addresses().to_vec();
    tracing::info!(
        ?addresses,
        ?admin,
        data = (!config.storage.memory).then(|| tracing::field::display(config.storage.directory.display())),
        threads = config.server.threads,
        "ready"
    );
    print_ready(&addresses, admin, arguments.json)?;
    server.wait().context("the server could not end in order")?;
    tracing::info!("ended in order");
    Ok(Outcome::Good)
}

/// What the runtime is told.
fn options(config: &Config, member: &MemberArguments, extras: ServeExtras) -> Result<runtime::Options> {
    let ServeExtras { models, clock_skew_ms } = extras;
    let options = runtime::Options { accept_loss: member.accept_loss, models, ..config.options()? };
    let (Some(file), Some(process)) = (&member.cluster, member.process) else { return Ok(options) };
    let file = runtime::ClusterFile::load(file).map_err(anyhow::Error::msg)?;
    let cluster = runtime::ClusterOptions { file, process, bootstrap: member.bootstrap, clock_skew_ms };
    Ok(runtime::Options { cluster: Some(cluster), ..options })
}

/// So many clients at most as there are file descriptors for, beside what else the process opens. Asks for as many as that
/// takes.
fn fitting(max_clients: usize) -> usize {
    /// Files, sockets of peers, clients that have not authenticated, connections of the admin port.
    const OTHERS: u64 = 512;
    let limit = getrlimit(Resource::Nofile);
    let wanted = (max_clients as u64).saturating_add(OTHERS);
    if limit.current.is_none_or(|current| current >= wanted) {
        return max_clients;
    }
    let possible = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum: limit.maximum });
    let files = if raised.is_ok() { possible } else { limit.current.unwrap_or(possible) };
    let clients = usize::try_from(files.saturating_sub(OTHERS)).unwrap_or(max_clients).clamp(1, max_clients);
    if clients < max_clients {
        tracing::warn!(
            max_clients,
            clients,
            files,
            "fewer clients are served: the process may open few files"
        );
    }
    clients
}

/// Replicas take new memory all the time. When a huge page is touched first, the kernel clears two megabytes before
/// anything else goes on, which takes milliseconds on some machines: 3 ms instead of 9 at the 99th percentile without.
fn do_without_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "transparent huge pages stay enabled: some commands may take milliseconds longer");
    }
}

/// Ends the server in order at the first SIGINT or SIGTERM, and the process at the second, or while it is starting.
fn obey_signals(running: &Running) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let running = Arc::clone(running);
    let watch = move || {
        for signal in signals.forever() {
            let name = signal_name(signal).unwrap_or("signal");
            match running.write().take() {
                Some(handle) => {
                    tracing::info!(name, "shutting down");
                    handle.shutdown();
                }
                None => {
                    tracing::warn!(name, "ending at once");
                    std::process::exit(128 + signal);
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .context("cannot watch for signals")?;
    Ok(())
}

/// Ends the process in order, as a signal does, when standard input ends.
fn end_with_input() -> Result<()> {
    let watch = || {
        // An input that cannot be read has ended, too.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        tracing::warn!("the parent process has exited");
        // The other thread obeys; a signal that cannot be raised leaves the process as it is.
        let _ = signal_hook::low_level::raise(SIGTERM);
    };
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(watch)
        .context("cannot watch standard input")?;
    Ok(())
}

/// Tells whoever started the process that it serves, and where.
fn print_ready(addresses: &[SocketAddr], admin: Option<SocketAddr>, json: bool) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", ready_line(addresses, admin, json))?;
    output.flush()?;
    Ok(())
}

fn ready_line(addresses: &[SocketAddr], admin: Option<SocketAddr>, json: bool) -> String {
    if json {
        let (first, all) = (addresses.first(), addresses);
        return json!({"ready": true, "address": first, "addresses": all, "admin": admin}).to_string();
    }
    let places: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let admin = admin.map(|address| format!(", admin http://{address}")).unwrap_or_default();
    format!("ready: {}{admin}", places.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_has_the_fixed_shape() {
        let addresses = ["127.0.0.1:6379".parse().unwrap(), "[::1]:6379".parse().unwrap()];
        let admin = Some("127.0.0.1:9121".parse().unwrap());
        let value: serde_json::Value = serde_json::from_str(&ready_line(&addresses, admin, true)).unwrap();
        assert_eq!(value["ready"], true);
        assert_eq!(value["address"], "127.0.0.1:6379");
        assert_eq!(value["admin"], "127.0.0.1:9121");
        assert_eq!(ready_line(&addresses, None, false), "ready: 127.0.0.1:6379, [::1]:6379");
    }
}
