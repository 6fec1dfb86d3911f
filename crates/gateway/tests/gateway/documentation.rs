//! `docs/reference/commands.md` is generated from the command table.

#![expect(clippy::disallowed_methods, reason = "the page is a file of the repository")]

use std::fs;
use std::path::Path;

#[test]
fn the_page_of_commands_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let page = anabranch_gateway::command_table_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).expect("written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/reference/commands.md is old: run this test with UPDATE_DOCS=1");
}
