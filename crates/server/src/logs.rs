//! Logs: structured events on standard error.

use crate::config::{LogFormat, LogSection};
use std::io::IsTerminal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// Sends the events of this process to standard error from now on. A thread that panics is an event as well.
pub fn start(section: &LogSection) -> anyhow::Result<()> {
    let filter: Targets = section.level.as_str().parse()?;
    let most = <Targets as Layer<Registry>>::max_level_hint(&filter).unwrap_or(LevelFilter::TRACE);
    let builder = tracing_subscriber::fmt().with_max_level(most).with_writer(std::io::stderr);
    let started = match section.format {
        LogFormat::Text => {
            builder.with_ansi(std::io::stderr().is_terminal()).finish().with(filter).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).finish().with(filter).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = panic.payload_as_str().unwrap_or("without a message");
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(thread = thread.name(), location, message, %backtrace, "a thread panicked");
    }));
    Ok(())
}
