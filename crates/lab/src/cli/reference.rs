//! `docs/reference/cli.md` is generated from the definitions of both command lines.

use super::CommandLine;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const BEGINNING: &str = "\
# Command lines

Generated from the definitions in `crates/server/src/cli.rs` and `crates/lab/src/cli.rs`; `--help` after a command
tells the same.
";

const OF_THE_LABORATORY: &str = "
## `anabranch-lab`

The laboratory is not installed with the store: `cargo run --release --bin anabranch-lab --` runs it. Its commands and
their options; `--help` after a command explains them.

| command | what it does | options |
|---|---|---|
";

/// The whole page.
fn page() -> String {
    let mut page = String::from(BEGINNING);
    write_commands(&server::command_line(), "", &mut page);
    page.push_str(OF_THE_LABORATORY);
    write_rows(&CommandLine::command(), "", &mut page);
    page
}

/// A section for the command and for each below it: what it does, its options, and the rest of its help.
fn write_commands(command: &Command, above: &str, page: &mut String) {
    let name = format!("{above}{}", command.get_name());
    // A group of commands says nothing of its own.
    let options = options(command);
    if above.is_empty() || !options.is_empty() {
        let written = write!(page, "\n## `{name}`\n\n{}\n", about(command));
        debug_assert!(written.is_ok(), "a string takes any text");
    }
    if !options.is_empty() {
        page.push_str("\n| option | meaning |\n|---|---|\n");
        options.iter().for_each(|option| write_option(command, option, page));
    }
    if let Some(rest) = command.get_after_help() {
        page.push_str(&format!("\n```text\n{rest}\n```\n"));
    }
    command.get_subcommands().for_each(|below| write_commands(below, &format!("{name} "), page));
}

/// A row for each command that has no others below it.
fn write_rows(command: &Command, above: &str, page: &mut String) {
    let name = format!("{above}{}", command.get_name());
    if command.has_subcommands() {
        return command.get_subcommands().for_each(|below| write_rows(below, &format!("{name} "), page));
    }
    let named = command.get_positionals().map(|argument| format!(" {}", value(argument)));
    let named: String = named.collect();
    let options: Vec<String> = options(command).iter().map(|option| usage(option)).collect();
    page.push_str(&format!("| `{name}{named}` | {} | {} |\n", about(command), options.join(" ")));
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    about.map(ToString::to_string).unwrap_or_default()
}

fn options(command: &Command) -> Vec<&Arg> {
    let of_all = ["help", "version"];
    command
        .get_opts()
        .filter(|option| !option.is_hide_set() && !of_all.contains(&option.get_id().as_str()))
        .collect()
}

/// The value that an argument takes, as its name.
fn value(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// As code in a cell of a table.
fn usage(option: &Arg) -> String {
    let long = option.get_long().unwrap_or_default();
    if option.get_action().takes_values() {
        format!("`--{long} {}`", value(option).replace('|', "\\|"))
    } else {
        format!("`--{long}`")
    }
}

/// What an option means, its values where they are a list, its default, and the options that exclude it.
fn write_option(command: &Command, option: &Arg, page: &mut String) {
    let mut meaning = option.get_help().map(ToString::to_string).unwrap_or_default();
    let values = option.get_possible_values();
    // Where the value's name is a list of them, it says enough.
    if option.get_action().takes_values() && !values.is_empty() && !value(option).contains('|') {
        let said = values.iter().map(|value| match value.get_help() {
            Some(help) => format!("`{}`: {help}", value.get_name()),
            None => format!("`{}`", value.get_name()),
        });
        meaning.push_str(&format!(". {}", said.collect::<Vec<_>>().join("; ")));
    }
    let defaults: Vec<String> =
        option.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if option.get_action().takes_values() && !defaults.is_empty() {
        meaning.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    if option.is_required_set() {
        meaning.push_str(" [required]");
    }
    let excluded = command.get_arg_conflicts_with(option);
    let excluded: Vec<String> =
        excluded.iter().filter_map(|other| other.get_long()).map(|long| format!("`--{long}`")).collect();
    if !excluded.is_empty() {
        meaning.push_str(&format!(". Not with {}", excluded.join(", ")));
    }
    page.push_str(&format!("| {} | {} |\n", usage(option), meaning.replace('|', "\\|")));
}

#[test]
fn the_page_of_command_lines_is_their_definition() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page, "docs/reference/cli.md is old: run this test with UPDATE_DOCS=1");
}
