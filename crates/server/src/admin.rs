//! The admin port: `/metrics` and `/healthz` over HTTP/1.1.
//!
//! A monitor asks a few times a minute, so this is as small as it can be: every connection has a thread, which reads one
//! request of bounded size within a bounded time, answers and closes. Of too many connections the newest are refused. The
//! parsing of requests is `httparse`'s.

use crate::config::HostPort;
use anyhow::{Context, Result, anyhow};
use parking_lot::RwLock;
use runtime::Handle;
use serde_json::json;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most connections at the same time.
pub const MOST_CONNECTIONS: usize = 64;
/// The most bytes of a request.
const REQUEST_BYTES: usize = 8 << 10;
/// The most headers of a request.
const HEADERS: usize = 64;
/// How long a client may take to ask, and again to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The running server, until it ends.
pub type Running = Arc<RwLock<Option<Handle>>>;

/// Begins to serve and answers where.
pub fn start(place: &HostPort, running: &Running) -> Result<SocketAddr> {
    let listener = TcpListener::bind(place.resolve()?).map_err(|error| {
        anyhow!("cannot listen on {place} for --admin: {error}{}", runtime::where_else(&error))
    })?;
    let address = listener.local_addr()?;
    let running = Arc::clone(running);
    let thread = std::thread::Builder::new().name("admin".to_owned());
    thread.spawn(move || serve(&listener, &running)).context("cannot start a thread for --admin")?;
    Ok(address)
}

/// Takes one connection after the other, for as long as the process runs.
fn serve(listener: &TcpListener, running: &Running) {
    let open = Arc::new(());
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                // Each thread holds a reference; this function another one.
                if Arc::strong_count(&open) > MOST_CONNECTIONS {
                    tracing::debug!(%peer, "too many admin connections");
                    continue;
                }
                let (held, running) = (Arc::clone(&open), Arc::clone(running));
                let answer = move || {
                    let _held = held;
                    if let Err(error) = converse(stream, &running) {
                        tracing::debug!(%peer, %error, "an admin connection ended early");
                    }
                };
                if let Err(error) = std::thread::Builder::new().name("admin-client".to_owned()).spawn(answer)
                {
                    tracing::warn!(%error, "cannot start a thread for an admin connection");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Reads one request and answers it.
fn converse(mut stream: TcpStream, running: &Running) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let response = match read_request(&mut stream)? {
        Ok(request) => respond(&request, running),
        Err(refusal) => refusal,
    };
    stream.write_all(&response.encode())?;
    stream.shutdown(Shutdown::Write)?;
    // Closing with unread bytes would reset the connection under the answer.
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut rest = [0; 1024];
    let _ = stream.read(&mut rest);
    Ok(())
}

/// What a client asks.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    /// Without its query.
    path: String,
}

/// Reads up to the end of the headers. A body is not read: no request here has one.
fn read_request(stream: &mut TcpStream) -> io::Result<Result<Request, Response>> {
    let deadline = Instant::now() + PATIENCE;
    let mut buffer = [0; REQUEST_BYTES];
    let mut held = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer[held..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            got => held += got,
        }
        match parse(&buffer[..held]) {
            Ok(Some(request)) => return Ok(Ok(request)),
            Ok(None) if held == buffer.len() => {
                return Ok(Err(Response::text(431, "Request Header Fields Too Large")));
            }
            Ok(None) => {}
            Err(error) => return Ok(Err(Response::text(400, &format!("Bad Request: {error}")))),
        }
    }
}

/// The request at the beginning of these bytes; none while it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<Request>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    if parsed.parse(bytes)?.is_partial() {
        return Ok(None);
    }
    let path = parsed.path.unwrap_or_default().split('?').next().unwrap_or_default();
    Ok(Some(Request { method: parsed.method.unwrap_or_default().to_owned(), path: path.to_owned() }))
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
struct Response {
    status: u16,
    content_type: &'static str,
    body: String,
    /// The answer to HEAD has the headers of a body and no body.
    without_body: bool,
}

impl Response {
    fn new(status: u16, content_type: &'static str, body: String) -> Self {
        Response { status, content_type, body, without_body: false }
    }

    fn text(status: u16, line: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{line}\n"))
    }

    fn encode(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             {allow}Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )
        .into_bytes();
        if !self.without_body {
            bytes.extend_from_slice(self.body.as_bytes());
        }
        bytes
    }
}

fn respond(request: &Request, running: &Running) -> Response {
    let response = match (request.method.as_str(), request.path.as_str()) {
        ("GET" | "HEAD", "/metrics") => metrics(running),
        ("GET" | "HEAD", "/healthz") => health(running),
        ("GET" | "HEAD", _) => Response::text(404, "There are /metrics and /healthz."),
        _ => Response::text(405, "There is only GET and HEAD."),
    };
    Response { without_body: request.method == "HEAD", ..response }
}

fn metrics(running: &Running) -> Response {
    match &*running.read() {
        Some(handle) => Response::new(200, "text/plain; version=0.0.4; charset=utf-8", handle.metrics()),
        None => Response::text(503, "The server is shutting down."),
    }
}

fn health(running: &Running) -> Response {
    let (ready, detail) = match &*running.read() {
        Some(handle) => {
            let health = handle.health();
            (health.ready, health.detail)
        }
        None => (false, "shutting down".to_owned()),
    };
    let body = json!({"ready": ready, "detail": detail}).to_string();
    Response::new(if ready { 200 } else { 503 }, "application/json", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, path: &str) -> Response {
        respond(&Request { method: method.into(), path: path.into() }, &Running::default())
    }

    #[test]
    fn a_request_is_complete_with_its_empty_line() {
        let bytes = b"GET /metrics?name=x HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(parse(bytes), Ok(Some(Request { method: "GET".into(), path: "/metrics".into() })));
        assert!(parse(b"*1\r\n$4\r\nPING\r\n").is_err());
    }

    #[test]
    fn a_server_that_has_ended_is_not_well() {
        let health = ask("GET", "/healthz");
        assert_eq!((health.status, health.body.contains("\"ready\":false")), (503, true));
        assert_eq!(ask("GET", "/metrics").status, 503);
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        assert_eq!(ask("GET", "/").status, 404);
        let refused = ask("POST", "/metrics");
        assert!(String::from_utf8(refused.encode()).unwrap().contains("405 Method Not Allowed\r\n"));
        assert!(String::from_utf8(refused.encode()).unwrap().contains("Allow: GET, HEAD\r\n"));
    }

    #[test]
    fn head_is_answered_without_a_body() {
        let text = String::from_utf8(ask("HEAD", "/healthz").encode()).unwrap();
        assert!(text.ends_with("\r\n\r\n") && !text.contains("Content-Length: 0\r\n"), "{text}");
    }
}
