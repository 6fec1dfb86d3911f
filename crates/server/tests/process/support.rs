//! Starting the program under test and talking to it. The laboratory's tests have this file, too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take here.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The binary under test with these arguments.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::PROGRAM);
    command.args(arguments).env_remove("ANABRANCH_LOG").stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub fn output(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

/// What it wrote to standard output.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What it wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A directory of one test, empty at first and removed at its end.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("anabranch-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running server; killed when a test forgets it.
pub struct Server {
    child: Child,
    /// The object that it printed when it was ready.
    pub ready: serde_json::Value,
}

impl Server {
    /// Starts `serve --json` on a free port and waits until it serves.
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = program(&["serve", "--json", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| {
            let _ = child.kill();
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("the server printed `{line}` and {errors}");
        });
        Server { child, ready }
    }

    /// Where clients connect.
    pub fn address(&self) -> &str {
        self.ready["address"].as_str().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end; answers how it ended and what it logged.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut logs = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut logs).unwrap();
                return (status, logs);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server did not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends bytes and reads until `end` has come, or until the other side closes.
pub fn exchange(address: &str, request: &str, end: Option<&str>) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (String::new(), [0; 4096]);
    while end.is_none_or(|end| !answer.ends_with(end)) {
        let got = stream.read(&mut buffer).unwrap();
        if got == 0 {
            break;
        }
        answer.push_str(std::str::from_utf8(&buffer[..got]).unwrap());
    }
    answer
}
