//! Commands about slow commands and memory.

use crate::control::Control;
use crate::describe;
use crate::diagnostics::{Diagnostics, Latency};
use crate::plan::{Call, Plan};
use crate::statistics::Statistics;
use crate::table::flag::{ADMIN, LOADING, NOSCRIPT, READONLY, STALE};
use crate::table::{Command, Handler, Handler::Data, Handler::Local, lossy};
use crate::turns::{Compute, Computed};
use std::fmt::Write;
use types::{Error, ReplyBuf, ReplySink};

const OPERATOR: u16 = ADMIN | LOADING | STALE;
/// How many slow commands the reply lists if the call gives no number.
const LISTED: usize = 10;
/// The parameter that says from when on events are remembered.
const THRESHOLD: &str = "latency-monitor-threshold";

/// The entries in the table.
pub(super) const SLOWLOG_ENTRY: Command =
    Command::new("slowlog", -2, 0, "2.2.12", "Commands about commands that took long", Handler::Container)
        .containing(SLOWLOG);
pub(super) const LATENCY_ENTRY: Command =
    Command::new("latency", -2, 0, "2.8.13", "Commands about how long commands take", Handler::Container)
        .containing(LATENCY);
pub(super) const MEMORY_ENTRY: Command =
    Command::new("memory", -2, 0, "4.0.0", "Commands about memory", Handler::Container).containing(MEMORY);

#[rustfmt::skip]
static SLOWLOG: &[Command] = &[
    Command::new("slowlog|get", -2, OPERATOR, "2.2.12", "Lists commands that took at least slowlog-log-slower-than microseconds, newest first", Local(slow_get)),
    Command::new("slowlog|len", 2, OPERATOR, "2.2.12", "Counts the slow commands that are remembered", Local(slow_len)),
    Command::new("slowlog|reset", 2, OPERATOR, "2.2.12", "Forgets the slow commands", Local(slow_reset)),
    Command::new("slowlog|help", 2, LOADING | STALE, "6.2.0", "Lists the subcommands", Local(describe::help)),
];

#[rustfmt::skip]
static LATENCY: &[Command] = &[
    Command::new("latency|latest", 2, OPERATOR | NOSCRIPT, "2.8.13", "Tells the newest and the worst sample of every event", Local(latest)),
    Command::new("latency|history", 3, OPERATOR | NOSCRIPT, "2.8.13", "Tells the samples of an event", Local(history)),
    Command::new("latency|reset", -2, OPERATOR | NOSCRIPT, "2.8.13", "Forgets events, or all of them", Local(reset)),
    Command::new("latency|graph", 3, OPERATOR | NOSCRIPT, "2.8.13", "Draws the samples of an event", Local(graph)),
    Command::new("latency|doctor", 2, OPERATOR | NOSCRIPT, "2.8.13", "Says in words which events there were", Local(doctor)),
    Command::new("latency|histogram", -2, OPERATOR | NOSCRIPT, "7.0.0", "Tells how many calls of commands took at most so many microseconds", Local(histogram)),
    Command::new("latency|help", 2, LOADING | STALE, "2.8.13", "Lists the subcommands", Local(describe::help)),
];

#[rustfmt::skip]
static MEMORY: &[Command] = &[
    Command::new("memory|usage", -3, READONLY, "4.0.0", "Tells about how many bytes a key and its value occupy", Data(usage)).keys(2, 2, 1),
    Command::new("memory|stats", 2, 0, "4.0.0", "Tells what is known of the process's memory", Local(stats)),
    Command::new("memory|doctor", 2, 0, "4.0.0", "Says in words whether memory is a problem", Local(memory_doctor)),
    Command::new("memory|malloc-stats", 2, 0, "4.0.0", "Tells that the allocator keeps no statistics", Local(malloc_stats)),
    Command::new("memory|purge", 2, 0, "4.0.0", "Does nothing: the allocator returns memory by itself", Local(purge)),
    Command::new("memory|help", 2, LOADING | STALE, "4.0.0", "Lists the subcommands", Local(describe::help)),
];

fn slow_get(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let count = match control.call.len() {
        2 => LISTED,
        3 => {
            let count = control.call.integer(2).ok().filter(|count| *count >= -1);
            let count = count.ok_or_else(|| Error::err("count should be greater than or equal to -1"))?;
            usize::try_from(count).unwrap_or(usize::MAX)
        }
        _ => return Err(describe::unknown_subcommand(&control.call)),
    };
    control.host.diagnose(&mut |diagnostics| {
        sink.array(diagnostics.slow().len().min(count));
        for slow in diagnostics.slow().iter().take(count) {
            sink.array(6);
            sink.integer(slow.number as i64);
            sink.integer(slow.at_seconds as i64);
            sink.integer(slow.micros as i64);
            sink.array(slow.words.len());
            slow.words.iter().for_each(|word| sink.bulk(word));
            sink.bulk(slow.address.as_bytes());
            sink.bulk(&slow.name);
        }
    });
    Ok(())
}

fn slow_len(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.host.diagnose(&mut |diagnostics| sink.integer(diagnostics.slow().len() as i64));
    Ok(())
}

fn slow_reset(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.host.diagnose(&mut Diagnostics::forget_slow);
    sink.simple("OK");
    Ok(())
}

fn latest(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.host.diagnose(&mut |diagnostics| {
        sink.array(diagnostics.latencies().len());
        for (event, latency) in diagnostics.latencies() {
            let (at, millis) = latency.newest();
            sink.array(4);
            sink.bulk(event.as_bytes());
            [at, millis, latency.worst].into_iter().for_each(|number| sink.integer(number as i64));
        }
    });
    Ok(())
}

fn history(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let event = control.call.bytes(2);
    control.host.diagnose(&mut |diagnostics| {
        let samples: Vec<(u64, u64)> =
            diagnostics.latency(event).into_iter().flat_map(|latency| &latency.samples).copied().collect();
        sink.array(samples.len());
        for (at, millis) in samples {
            sink.array(2);
            sink.integer(at as i64);
            sink.integer(millis as i64);
        }
    });
    Ok(())
}

fn reset(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let wanted = |event: &str| call.len() == 2 || (2..call.len()).any(|index| call.is(index, event));
    control.host.diagnose(&mut |diagnostics| sink.integer(diagnostics.forget_latencies(wanted) as i64));
    Ok(())
}

fn graph(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let (event, now) = (control.call.bytes(2), control.now.wall.as_millis() / 1000);
    let mut drawn = None;
    control.host.diagnose(&mut |diagnostics| {
        drawn = diagnostics.latency(event).map(|latency| draw(&lossy(event), latency, now));
    });
    let drawn =
        drawn.ok_or_else(|| Error::err(format!("No samples available for event '{}'", lossy(event))))?;
    sink.text(&drawn);
    Ok(())
}

/// A line for each of the newest samples: how old it is, and a bar as long as it took, of the worst one.
fn draw(event: &str, latency: &Latency, now: u64) -> String {
    const LINES: usize = 32;
    const WIDTH: u64 = 60;
    let skipped = latency.samples.len().saturating_sub(LINES);
    let shown = || latency.samples.iter().skip(skipped);
    let (low, high) = shown().fold((u64::MAX, 0), |(low, high), (_, ms)| (low.min(*ms), high.max(*ms)));
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        latency.worst,
        "-".repeat(80)
    );
    for (at, millis) in shown() {
        let bar = "#".repeat((millis * WIDTH).div_ceil(high.max(1)) as usize);
        let written = writeln!(text, "{:>8} s ago {millis:>6} ms {bar}", now.saturating_sub(*at));
        debug_assert!(written.is_ok(), "a string takes any text");
    }
    text
}

fn doctor(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let mut threshold = String::new();
    control.host.configuration(&mut |name, value| {
        if name == THRESHOLD {
            value.clone_into(&mut threshold);
        }
    });
    let mut text = String::new();
    control.host.diagnose(&mut |diagnostics| {
        for (event, Latency { samples, worst }) in diagnostics.latencies() {
            let mean = samples.iter().map(|(_, millis)| millis).sum::<u64>() / (samples.len() as u64).max(1);
            let count = samples.len();
            let written =
                writeln!(text, "{event}: {count} latency spikes, {mean} ms on average, worst {worst} ms.");
            debug_assert!(written.is_ok(), "a string takes any text");
        }
    });
    if text.is_empty() && threshold == "0" {
        text = format!(
            "Latency monitoring is disabled. Use \"CONFIG SET {THRESHOLD} <milliseconds>\" in order to enable it.\n"
        );
    } else if text.is_empty() {
        text = format!("No command has taken {threshold} ms or longer since that was asked for.\n");
    } else {
        text.push_str("SLOWLOG GET lists the commands.\n");
    }
    sink.text(&text);
    Ok(())
}

fn histogram(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let mut sum = Statistics::default();
    sum.add(control.gateway.statistics());
    control.host.other_statistics(&mut sum);
    let is_requested = |name: &str| {
        // A container stands for its subcommands.
        let container = name.split('|').next().unwrap_or(name);
        (2..call.len()).any(|index| call.is(index, name) || call.is(index, container))
    };
    sum.write_histograms(|name| call.len() == 2 || is_requested(name), sink);
    Ok(())
}

/// MEMORY USAGE, with or without `SAMPLES`: nothing is estimated from samples here.
fn usage<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    match call.len() {
        3 => {}
        5 if call.is(3, "SAMPLES") => {
            if call.integer(4)? < 0 {
                return Err(Error::syntax());
            }
        }
        _ => return Err(Error::syntax()),
    }
    let key = call.bytes(2);
    let key_bytes = key.len();
    Ok(Compute::reading(std::iter::once(key), move |cells| {
        let mut reply = ReplyBuf::new();
        match cells.first() {
            Some(cell) if cell.value.is_some() => {
                let value = cell.value.as_ref().map_or(0, datatypes::Value::memory);
                reply.integer((size_of_val(cell) + value + key_bytes) as i64);
            }
            _ => reply.null(),
        }
        Ok(Computed { reply, ..Computed::default() })
    }))
}

fn stats(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let mut found = Vec::new();
    control.host.memory(&mut |name, value| found.push((name.to_owned(), value)));
    let mut keyspaces = Vec::new();
    let visible = &control.connection.session.user.keyspaces;
    control.host.memory_of_keyspaces(visible, &mut |name, figures| {
        let figures: Vec<(String, u64)> =
            figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        keyspaces.push((name.to_owned(), figures));
    });
    sink.map(found.len() + keyspaces.len());
    put_figures(&found, sink);
    for (name, figures) in keyspaces {
        sink.bulk(name.as_bytes());
        sink.map(figures.len());
        put_figures(&figures, sink);
    }
    Ok(())
}

fn put_figures(figures: &[(String, u64)], sink: &mut dyn ReplySink) {
    for (name, value) in figures {
        sink.bulk(name.as_bytes());
        sink.integer(*value as i64);
    }
}

fn memory_doctor(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let mut figures = Vec::new();
    control.host.memory(&mut |name, value| figures.push(format!("{name} {value}")));
    sink.text(&format!("Nothing is known to be wrong. In bytes: {}.\n", figures.join(", ")));
    Ok(())
}

fn malloc_stats(_control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.bulk(b"Stats not supported for the current allocator");
    Ok(())
}

fn purge(_control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.simple("OK");
    Ok(())
}
