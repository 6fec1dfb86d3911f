//! The processes of a local cluster as their parent sees them.

use super::layout::{Layout, ProcessLayout};
use super::place::Place;
use crate::config::Durability;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a process may take to say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long a process may take to end in order.
const END_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// One process, dead or alive.
pub struct Member {
    layout: ProcessLayout,
    child: Option<Child>,
}

/// All of them.
pub struct Children {
    members: Vec<Member>,
    settings: Settings,
}

/// What every process is told alike.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a reply promises; `None` keeps everything in memory only.
    pub durability: Option<Durability>,
    /// How many worker threads, if that is said.
    pub threads: Option<NonZeroU16>,
    /// A file with further options.
    pub config: Option<PathBuf>,
}

impl Member {
    /// Its place in the cluster.
    pub fn layout(&self) -> &ProcessLayout {
        &self.layout
    }

    /// Its process id; 0 while it is dead.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    fn spawn(&mut self, settings: &Settings, flag: Option<&str>) -> Result<Receiver<String>> {
        let layout = &self.layout;
        let log = File::options().create(true).append(true).open(layout.directory.join("log"))?;
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg("serve").arg("--cluster").arg(layout.cluster_file());
        command.args(["--process", &layout.id.to_string(), "--listen", &layout.client.to_string()]);
        if let Some(durability) = settings.durability {
            command.arg("--data").arg(layout.directory.join("data"));
            let durability = durability.to_possible_value().context("a durability has a name")?;
            command.args(["--durability", durability.get_name()]);
        } else {
            command.arg("--memory");
        }
        command.arg("--json");
        if let Some(config) = &settings.config {
            command.arg("--config").arg(config);
        }
        if let Some(threads) = settings.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        if layout.clock_skew_ms != 0 {
            command.args(["--clock-skew-ms", &layout.clock_skew_ms.to_string()]);
        }
        // Its input ends when this process dies, however that happens.
        command.arg("--until-input-ends");
        command.args(flag);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("cannot start a process")?;
        let output = child.stdout.take().context("a process without output")?;
        self.child = Some(child);
        Ok(first_line(output))
    }

    fn await_ready(&mut self, line: &Receiver<String>) -> Result<()> {
        let place = self.layout.place;
        let log = self.layout.directory.join("log");
        match line.recv_timeout(READY_WITHIN) {
            Ok(line) if line.contains("\"ready\":true") => Ok(()),
            _ => {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = lines[lines.len().saturating_sub(5)..].join("\n");
                bail!("{place} did not become ready; the end of {}:\n{last}", log.display())
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result<Pid> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("it is dead")?;
        // The child has not been waited for, so the number is still its own.
        kill_process(pid, signal)?;
        Ok(pid)
    }

    /// Notices an end; says how it was.
    fn reap(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(status.to_string())
    }

    fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it is dead already")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }
}

/// The first line that a process prints; what follows is read and forgotten, so that it never waits for a reader.
fn first_line(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Nobody waits for the later ones.
            let _ = sender.send(line);
        }
    });
    receiver
}

impl Children {
    /// Starts every process and waits until all are ready.
    pub fn start(layout: &Layout, settings: Settings) -> Result<Self> {
        let member = |layout: &ProcessLayout| Member { layout: layout.clone(), child: None };
        let mut children = Children { members: layout.processes.iter().map(member).collect(), settings };
        let started = children.start_all(layout.fresh);
        if started.is_err() {
            children.stop();
        }
        started.map(|()| children)
    }

    fn start_all(&mut self, bootstrap: bool) -> Result<()> {
        let settings = self.settings.clone();
        let flag = bootstrap.then_some("--bootstrap");
        let lines: Result<Vec<_>> =
            self.members.iter_mut().map(|member| member.spawn(&settings, flag)).collect();
        self.members.iter_mut().zip(lines?).try_for_each(|(member, line)| member.await_ready(&line))
    }

    /// The processes.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    fn member(&mut self, place: Place) -> Result<&mut Member> {
        let found = self.members.iter_mut().find(|member| member.layout.place == place);
        found.with_context(|| format!("there is no process {place}"))
    }

    /// SIGKILL.
    pub fn kill(&mut self, place: Place) -> Result<()> {
        self.member(place)?.kill()
    }

    /// SIGSTOP, and waits until it stands still: on a busy machine its threads go on for a while after the signal.
    pub fn pause(&mut self, place: Place) -> Result<()> {
        let member = self.member(place)?;
        let pid = member.signal(Signal::STOP)?;
        let until = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), until).context("cannot wait until it stands still")?;
        Ok(())
    }

    /// SIGCONT.
    pub fn resume(&mut self, place: Place) -> Result<()> {
        let member = self.member(place)?;
        member.signal(Signal::CONT)?;
        Ok(())
    }

    /// Starts a dead process again, perhaps to accept a loss, and waits until it is ready.
    pub fn restart(&mut self, place: Place, accept_loss: bool) -> Result<()> {
        let settings = self.settings.clone();
        let member = self.member(place)?;
        member.reap();
        if member.child.is_some() {
            bail!("it is running; kill it first");
        }
        let line = member.spawn(&settings, accept_loss.then_some("--accept-loss"))?;
        member.await_ready(&line)
    }

    /// The processes that ended by themselves since the last call, and how.
    pub fn ended(&mut self) -> Vec<String> {
        let end =
            |member: &mut Member| member.reap().map(|how| format!("{} ended: {how}", member.layout.place));
        self.members.iter_mut().filter_map(end).collect()
    }

    /// Ends all: in order, and by force those that do not in time. True if all ended in order.
    pub fn stop(&mut self) -> bool {
        for member in self.members.iter().filter(|member| member.child.is_some()) {
            // Who cannot be asked is dead, or will be killed.
            let _ = member.signal(Signal::TERM).and_then(|_| member.signal(Signal::CONT));
        }
        let deadline = Instant::now() + END_WITHIN;
        while self.members.iter_mut().any(|member| member.reap().is_none() && member.child.is_some()) {
            if Instant::now() >= deadline {
                self.members.iter_mut().for_each(|member| drop(member.kill()));
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        true
    }
}
