//! The product's `serve` in the laboratory's binary.

use super::support::{Server, exchange};

#[test]
fn the_laboratory_serves_as_the_product_does() {
    let server = Server::start(&["--memory"]);
    assert_eq!(exchange(server.address(), "SET a 1\r\nINCR a\r\n", Some(":2\r\n")), "+OK\r\n:2\r\n");
    server.signal("TERM");
    let (status, logs) = server.wait();
    assert_eq!(status.code(), Some(0), "{logs}");
    assert!(logs.contains("ready") && logs.contains("shutting down"), "{logs}");
}
