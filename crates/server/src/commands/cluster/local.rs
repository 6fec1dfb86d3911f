//! `cluster local`: a cluster of processes on this machine, in the foreground, whose faults are made by lines.

use super::ClusterExtras;
use super::children::{Children, Member, Settings};
use super::console::Instruction;
use super::layout::{self, Layout};
use super::relay::Relays;
use crate::cli::ClusterLocalArguments;
use crate::commands::Outcome;
use crate::config::threads_for;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often dead processes are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What wakes the command.
enum Event {
    Line(String),
    Signal,
}

/// Runs a cluster on this machine until a signal ends it. Its processes run the program of this process, whose `serve` they
/// call.
///
/// # Errors
/// The cluster cannot be laid out as asked, or a process of it did not become ready.
pub fn run_local(arguments: &ClusterLocalArguments, extras: ClusterExtras) -> Result<Outcome> {
    let events = listen()?;
    let mut relays = Relays::new();
    let layout = layout::lay_out(arguments, &extras, &mut relays)?;
    let outcome = serve(arguments, &layout, &relays, &events);
    if layout.temporary {
        std::fs::remove_dir_all(&layout.directory)
            .with_context(|| format!("cannot remove {}", layout.directory.display()))?;
    }
    outcome
}

fn serve(
    arguments: &ClusterLocalArguments,
    layout: &Layout,
    relays: &Relays,
    events: &Receiver<Event>,
) -> Result<Outcome> {
    let durability = (!arguments.memory).then_some(arguments.durability);
    let shared = || arguments.config.is_none().then(|| threads_for(layout.processes.len()));
    let threads = arguments.threads.or_else(shared);
    let settings = Settings { durability, threads, config: arguments.config.clone() };
    let mut children = Children::start(layout, settings)?;
    print_ready(&children, arguments.json)?;
    loop {
        match events.recv_timeout(LOOK_EVERY) {
            Ok(Event::Line(line)) => {
                let answer = match obey(&line, &mut children, relays) {
                    Ok(()) => "ok".to_owned(),
                    Err(error) => format!("error: {error:#}").replace('\n', "; "),
                };
                print_line(&answer)?;
            }
            Ok(Event::Signal) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        children.ended().iter().for_each(|ended| eprintln!("{ended}"));
    }
    Ok(Outcome::of(children.stop()))
}

fn obey(line: &str, children: &mut Children, relays: &Relays) -> Result<()> {
    match Instruction::parse(line).map_err(anyhow::Error::msg)? {
        Instruction::Cut(a, b) => relays.cut(a, b).map_err(anyhow::Error::msg),
        Instruction::Heal => {
            relays.heal();
            Ok(())
        }
        Instruction::Delay(a, b, delay) => relays.delay(a, b, delay).map_err(anyhow::Error::msg),
        Instruction::Kill(process) => children.kill(process),
        Instruction::Pause(process) => children.pause(process),
        Instruction::Resume(process) => children.resume(process),
        Instruction::Restart(process) => children.restart(process, false),
        Instruction::AcceptLoss(process) => children.restart(process, true),
    }
}

/// Signals, and lines of standard input, whose end means nothing.
fn listen() -> Result<Receiver<Event>> {
    let (sender, events) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let lines: Sender<Event> = sender.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        // When nobody receives any more, the process is about to end.
        signals.forever().try_for_each(|_| sender.send(Event::Signal)).unwrap_or_default();
    })?;
    std::thread::Builder::new().name("lines".to_owned()).spawn(move || {
        let mut each = std::io::stdin().lock().lines().map_while(std::io::Result::ok);
        each.try_for_each(|line| lines.send(Event::Line(line))).unwrap_or_default();
    })?;
    Ok(events)
}

fn print_line(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}

fn print_ready(children: &Children, json: bool) -> Result<()> {
    if json {
        let processes: Vec<Value> = children.members().iter().map(entry).collect();
        return print_line(&json!({"ready": true, "processes": processes}).to_string());
    }
    for member in children.members() {
        let layout = member.layout();
        print_line(&format!("{} serves {} (pid {})", layout.place, layout.client, member.pid()))?;
    }
    print_line("ready")
}

fn entry(member: &Member) -> Value {
    let layout = member.layout();
    json!({
        "region": layout.place.region_name().to_string(),
        "process": layout.place.process.map_or(0, |process| process + 1),
        "address": layout.client,
        "pid": member.pid(),
    })
}
