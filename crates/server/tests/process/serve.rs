//! `serve`: ready, served, ended.

use super::support::{Directory, Server, exchange, output, stderr, stdout};
use std::io::Write;
use std::net::TcpStream;

#[test]
fn a_server_is_ready_answers_and_ends_in_order() {
    let server = Server::start(&["--memory"]);
    assert_eq!(server.ready["ready"], true);
    assert!(server.ready["admin"].is_null());
    assert_eq!(exchange(server.address(), "PING\r\n", Some("\r\n")), "+PONG\r\n");
    assert_eq!(exchange(server.address(), "SET a 1\r\nINCR a\r\n", Some(":2\r\n")), "+OK\r\n:2\r\n");
    server.signal("TERM");
    let (status, logs) = server.wait();
    assert_eq!(status.code(), Some(0), "{logs}");
    assert!(logs.contains("ready") && logs.contains("shutting down"), "{logs}");
}

#[test]
fn an_orderly_end_keeps_what_was_written() {
    let directory = Directory::new("orderly-end");
    let data = directory.file("data");
    for (durability, count) in [("always", 1), ("everysec", 2), ("none", 3)] {
        let server = Server::start(&["--data", &data, "--durability", durability]);
        let expected = format!(":{count}\r\n");
        assert_eq!(exchange(server.address(), "INCR starts\r\n", Some("\r\n")), expected, "{durability}");
        server.signal("INT");
        let (status, logs) = server.wait();
        assert_eq!(status.code(), Some(0), "{logs}");
    }
}

#[test]
fn the_admin_port_tells_health_and_figures() {
    let server = Server::start(&["--memory", "--admin", "127.0.0.1:0"]);
    let admin = server.ready["admin"].as_str().unwrap().to_owned();
    let get = |path: &str| exchange(&admin, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"), None);
    let health = get("/healthz");
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n"), "{health}");
    assert!(health.ends_with("{\"detail\":\"ok\",\"ready\":true}"), "{health}");
    let metrics = get("/metrics");
    let (head, body) = metrics.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(body.lines().any(|line| line.starts_with("# TYPE anabranch_")), "{body}");
    assert!(get("/nothing").starts_with("HTTP/1.1 404"));
    let endless = exchange(&admin, &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(10_000)), None);
    assert!(endless.starts_with("HTTP/1.1 431"), "{endless}");
    assert!(exchange(&admin, "*1\r\n$4\r\nPING\r\n", None).starts_with("HTTP/1.1 400"));
    // A client that asks nothing keeps nobody else from an answer.
    let mut silent = TcpStream::connect(&admin).unwrap();
    silent.write_all(b"GET /hea").unwrap();
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_taken_address_is_named() {
    let first = Server::start(&["--memory"]);
    let second = output(&["serve", "--memory", "--listen", first.address()]);
    assert_eq!(second.status.code(), Some(2));
    assert!(stderr(&second).contains(first.address()), "{}", stderr(&second));
}

#[test]
fn a_wrong_file_is_refused_with_its_place() {
    let directory = Directory::new("wrong-file");
    let file = directory.file("a.toml");
    std::fs::write(&file, "[storage]\ndurability = \"often\"\n").unwrap();
    let refused = output(&["serve", "--config", &file]);
    assert_eq!(refused.status.code(), Some(2));
    let message = stderr(&refused);
    assert!(message.contains(&format!("{file}:2: `storage.durability`")), "{message}");
    assert!(message.contains("everysec"), "{message}");
}

#[test]
fn the_printed_configuration_can_be_used() {
    let directory = Directory::new("print-config");
    let file = directory.file("a.toml");
    let printed = output(&["serve", "--memory", "--threads", "2", "--print-config"]);
    assert_eq!(printed.status.code(), Some(0));
    std::fs::write(&file, &printed.stdout).unwrap();
    let again = output(&["serve", "--config", &file, "--print-config"]);
    assert_eq!(stdout(&again), stdout(&printed));
    let server = Server::start(&["--config", &file]);
    assert_eq!(exchange(server.address(), "PING\r\n", Some("\r\n")), "+PONG\r\n");
}

#[test]
fn the_password_of_the_file_is_required() {
    let directory = Directory::new("password");
    let file = directory.file("a.toml");
    std::fs::write(&file, "[server]\npassword = \"secret\"\n[storage]\nmemory = true\n").unwrap();
    let server = Server::start(&["--config", &file]);
    assert!(exchange(server.address(), "GET a\r\n", Some("\r\n")).starts_with("-NOAUTH"));
    assert_eq!(exchange(server.address(), "AUTH secret\r\n", Some("\r\n")), "+OK\r\n");
    server.signal("TERM");
    let (_, logs) = server.wait();
    assert!(!logs.contains("secret"), "{logs}");
}
