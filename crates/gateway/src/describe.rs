//! The command table as clients and readers see it: `COMMAND`, and a page of the documentation.

use crate::control::Control;
use crate::documents::{Document, Documents, KeyUse, write_flags};
use crate::table::{Command, FAMILIES, Handler, Keys, flag};
use std::fmt::Write;
use types::{Error, ReplySink};

/// Redis's names of the flags.
const FLAG_NAMES: [(u16, &str); 12] = [
    (flag::WRITE, "write"),
    (flag::READONLY, "readonly"),
    (flag::DENYOOM, "denyoom"),
    (flag::ADMIN, "admin"),
    (flag::PUBSUB, "pubsub"),
    (flag::NOSCRIPT, "noscript"),
    (flag::LOADING, "loading"),
    (flag::STALE, "stale"),
    (flag::FAST, "fast"),
    (flag::NO_AUTH, "no_auth"),
    (flag::NO_MULTI, "no_multi"),
    (flag::BLOCKING, "blocking"),
];

fn group(command: &Command) -> &'static str {
    let container = command.name.split('|').next().unwrap_or(command.name);
    let of = |family: &&crate::table::Family| family.commands.iter().any(|entry| entry.name == container);
    FAMILIES.iter().find(of).map_or("generic", |family| family.group)
}

/// The command's ACL categories, `@` included, in Redis's order.
pub(crate) fn categories(command: &Command) -> Vec<&'static str> {
    let name = command.name;
    let is_container = matches!(command.handler, Handler::Container);
    let group = if is_container { "" } else { group(command) };
    let sweeping =
        matches!(name, "keys" | "flushdb" | "flushall" | "info" | "swapdb" | "sort" | "sort_ro" | "restore");
    // What was lost to others is shown whatever keys it belongs to.
    let shows_losses = matches!(name, "conflicts|list" | "conflicts|count" | "conflicts|resolve");
    let is_admin = command.is(flag::ADMIN) || matches!(name, "role" | "lastsave") || shows_losses;
    let (sorts, waits) = (matches!(name, "sort" | "sort_ro"), matches!(name, "wait" | "waitaof"));
    let is_connection = matches!(group, "connection" | "sessions")
        || matches!(name, "readonly" | "readwrite" | "asking" | "keyspace|use");
    let keyspace = (group == "generic" && !sorts && !waits)
        || matches!(name, "dbsize" | "flushdb" | "flushall" | "swapdb")
        || matches!(name, "keyspace|list" | "keyspace|info" | "keyspace|locate" | "keyspace|hotkeys");
    let all = [
        (keyspace, "@keyspace"),
        ((command.is(flag::READONLY) && group != "scripting") || name == "at", "@read"),
        (command.is(flag::WRITE), "@write"),
        (group == "set" || sorts, "@set"),
        (group == "sorted-set" || sorts, "@sortedset"),
        (group == "geo", "@geo"),
        (group == "list" || sorts, "@list"),
        (group == "hash", "@hash"),
        (group == "string", "@string"),
        (group == "bitmap", "@bitmap"),
        (group == "hyperloglog", "@hyperloglog"),
        (command.is(flag::PUBSUB), "@pubsub"),
        (group == "stream", "@stream"),
        (is_admin, "@admin"),
        (command.is(flag::FAST), "@fast"),
        (!command.is(flag::FAST), "@slow"),
        (command.is(flag::BLOCKING), "@blocking"),
        (is_admin || sweeping, "@dangerous"),
        (is_connection || waits || name.starts_with("command"), "@connection"),
        (matches!(group, "transactions" | "branches") && name != "at", "@transaction"),
        (group == "scripting", "@scripting"),
    ];
    all.into_iter().filter(|(applies, _)| *applies).map(|(_, category)| category).collect()
}

/// Writes the command's entry of `COMMAND INFO`.
pub(crate) fn write_info(documents: &Documents, command: &Command, sink: &mut dyn ReplySink) {
    let document = documents.of(command.name);
    let known = FLAG_NAMES.iter().filter(|(flag, _)| command.is(*flag)).map(|(_, name)| *name);
    let flags: Vec<&str> = known.chain(document.flags()).collect();
    sink.array(10);
    sink.bulk(command.name.as_bytes());
    sink.integer(i64::from(command.arity));
    write_flags(&flags, sink);
    sink.integer(i64::from(command.keys.first));
    sink.integer(i64::from(command.keys.last));
    sink.integer(i64::from(command.keys.step));
    write_flags(&categories(command), sink);
    let tips = document.tips();
    sink.set(tips.len());
    tips.iter().for_each(|tip| sink.bulk(tip.as_bytes()));
    write_key_specifications(command, document, sink);
    sink.array(command.subcommands.len());
    command.subcommands.iter().for_each(|sub| write_info(documents, sub, sink));
}

/// Which arguments are keys, in the words of Redis 7: what is done with them, where the first is found, and how to go
/// on from there. Several specifications stand for one key each, the last one for the rest too, or for those that are
/// counted.
fn write_key_specifications(command: &Command, document: &Document, sink: &mut dyn ReplySink) {
    let specifications: Vec<KeyUse> = document.keys().collect();
    let placed = specifications.iter().filter(|it| it.keyword.is_none()).count();
    // Before keys that are counted there is a destination at most.
    let fixed = if command.key_count > 0 { command.keys.first as usize } else { placed };
    sink.set(specifications.len());
    for (place, KeyUse { keyword, flags, note }) in specifications.iter().enumerate() {
        sink.map(3 + usize::from(note.is_some()));
        if let Some(note) = note {
            sink.bulk(b"notes");
            sink.bulk(note.as_bytes());
        }
        let is_unknown = flags.first() == Some(&"unknown");
        sink.bulk(b"flags");
        write_flags(&flags[usize::from(is_unknown)..], sink);
        if is_unknown {
            for part in ["begin_search", "find_keys"] {
                sink.bulk(part.as_bytes());
                write_typed("unknown", &[], sink);
            }
            continue;
        }
        sink.bulk(b"begin_search");
        match keyword {
            Some((word, from)) => write_keyword(word, *from, sink),
            None if place < fixed => write_fixed(command.keys, place, placed, sink),
            None => {
                write_typed("index", &[("index", command.key_count as i32)], sink);
                sink.bulk(b"find_keys");
                write_typed("keynum", &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)], sink);
            }
        }
    }
}

/// A key with a place of its own, as one of so many specifications.
fn write_fixed(keys: Keys, place: usize, specifications: usize, sink: &mut dyn ReplySink) {
    write_typed("index", &[("index", keys.first + place as i32)], sink);
    sink.bulk(b"find_keys");
    let last = match keys.last {
        ..0 if place + 1 == specifications => keys.last,
        _ if specifications == 1 => keys.last - keys.first,
        _ => 0,
    };
    write_typed("range", &[("lastkey", last), ("keystep", keys.step), ("limit", 0)], sink);
}

/// The key behind a word.
fn write_keyword(word: &str, from: i64, sink: &mut dyn ReplySink) {
    sink.map(2);
    sink.bulk(b"type");
    sink.bulk(b"keyword");
    sink.bulk(b"spec");
    sink.map(2);
    sink.bulk(b"keyword");
    sink.bulk(word.as_bytes());
    sink.bulk(b"startfrom");
    sink.integer(from);
    sink.bulk(b"find_keys");
    // The first half of what follows STREAMS.
    let (last, limit) = if word == "STREAMS" { (-1, 2) } else { (0, 0) };
    write_typed("range", &[("lastkey", last), ("keystep", 1), ("limit", limit)], sink);
}

fn write_typed(kind: &str, numbers: &[(&str, i32)], sink: &mut dyn ReplySink) {
    sink.map(2);
    sink.bulk(b"type");
    sink.bulk(kind.as_bytes());
    sink.bulk(b"spec");
    sink.map(numbers.len());
    for (name, number) in numbers {
        sink.bulk(name.as_bytes());
        sink.integer(i64::from(*number));
    }
}

/// Writes the command's name and its entry of `COMMAND DOCS`.
pub(crate) fn write_docs(documents: &Documents, command: &Command, sink: &mut dyn ReplySink) {
    let fields = [("summary", command.summary), ("since", command.since), ("group", group(command))];
    let document = documents.of(command.name);
    let has_subcommands = !command.subcommands.is_empty();
    sink.bulk(command.name.as_bytes());
    sink.map(fields.len() + document.len() + usize::from(has_subcommands));
    for (name, value) in fields {
        sink.bulk(name.as_bytes());
        sink.bulk(value.as_bytes());
    }
    document.write(sink);
    if has_subcommands {
        sink.bulk(b"subcommands");
        sink.map(command.subcommands.len());
        command.subcommands.iter().for_each(|sub| write_docs(documents, sub, sink));
    }
}

/// Redis's text for a subcommand that was called with arguments that it does not take.
pub(crate) fn unknown_subcommand(call: &crate::plan::Call<'_>) -> Error {
    let (container, name) = (call.arguments.name(), call.bytes(1));
    let container = String::from_utf8_lossy(container).to_ascii_uppercase();
    let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
    Error::err(format!("unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."))
}

/// `HELP` of a container: its subcommands.
///
/// # Errors
/// None.
pub(crate) fn help(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let container = control.call.arguments.name();
    let subcommands = crate::table::command(container).map_or(&[][..], |command| command.subcommands);
    sink.array(1 + 2 * subcommands.len());
    let title = String::from_utf8_lossy(container).to_ascii_uppercase();
    sink.simple(&format!("{title} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for command in subcommands {
        sink.simple(&command.short_name().to_ascii_uppercase());
        sink.simple(&format!("    {}.", command.summary));
    }
    Ok(())
}

/// What differs from Redis 7.0 on purpose, or because it costs more than it is worth.
const DIFFERENCES: &[&str] = &[
    "A transaction has one keyspace: `SELECT` or `KEYSPACE USE` of another one between `MULTI` and `EXEC` is refused \
     with `CROSSKEYSPACE`, and so is `FLUSHALL` where there is more than one keyspace.",
    "`KEYS`, `SCAN` and `DBSIZE` outside a transaction see no snapshot; a key present all the time is seen. Inside \
     one they are part of it: in `TXN`, keys that come or go meanwhile are a `CONFLICT`; \
     causal keyspaces refuse them in `TXN`, and those with `LOCKS none`, which have no transactions, in `MULTI`. \
     `SCAN` visits at most 10000 keys a call, whatever `COUNT` says.",
    "`RANDOMKEY` draws a key and asks whether it exists: a transaction that has it depends on this key, not on the \
     others. That there is none is exact where commands on the whole keyspace can be part of the transaction.",
    "In a cluster every process has clients of its own, which are all that `CLIENT LIST` and `CLIENT KILL` know, and \
     `SELECT` takes the numbers of the keyspaces that there are.",
    "In replicated strict keyspaces without leaders a deletion of everything stops whoever watches a key, one that \
     was not there included.",
    "`WAIT` and `WAITAOF` reply at once, whatever timeout they are given: a write is answered when it is as safe as its keyspace \
     makes it. `WAIT` tells how many processes are certain to have every answered write, beside one: of a strict keyspace with \
     `REPLICAS` a majority of each shard, so 1 of 3 and 2 of 5; of a causal one with `COPIES 3` one; of any other none. \
     `WAITAOF` tells the same where durability is `always`, and 1 for the process itself; else 0.",
    "`MOVE`, `SWAPDB` and `COPY` with `DB` stay within the keyspace, or reply `CROSSKEYSPACE`: `DUMP` and `RESTORE` take a \
     value to another one.",
    "`DUMP` writes the types of Redis in the form of Redis 7.2, and refuses others; `RESTORE` also reads what older versions \
     wrote, but no modules.",
    "`OBJECT ENCODING` tells how Redis 7.2 would store a new value like this one. No times or numbers of accesses are told: \
     `OBJECT IDLETIME` and `OBJECT FREQ` reply an error, in caches too.",
    "`SORT` compares bytes, whatever the locale. With `BY nosort` the members of a set come in the order of their bytes.",
    "Where several things are wrong with a command, another one of the errors may be replied: arguments are \
     checked before the key is looked at.",
    "`PFCOUNT` reads only: it does not keep the count in the string. A HyperLogLog's bytes are the same for the same registers; \
     Redis reads them, and its own are read.",
    "`LCS` refuses more than 4194304 steps of 64 bytes of the second string, which some megabytes beside a short string come to.",
    "`SRANDMEMBER`, `HRANDFIELD` and `ZRANDMEMBER` repeat at most 10000000 elements, and refuse more.",
    "The members of sets, and the results of `SINTER`, `SUNION` and `SDIFF`, come in another order.",
    "An error that quotes bytes which are not UTF-8 shows replacement characters in their place.",
    "Queued commands and watched keys are bounded in number. A pattern that keys are compared with has at most 1024 characters \
     between its first and its last `*`.",
    "`CONFIG SET` changes `slowlog-log-slower-than`, `slowlog-max-len`, `latency-monitor-threshold`, `maxclients`, `maxmemory`, \
     `maxmemory-policy`, `maxmemory-samples`, `protected-mode`, `timeout`, `requirepass`, \
     `notify-keyspace-events`, `busy-reply-threshold`, `tracking-table-max-keys` and `client-output-buffer-limit` (of \
     which the limits of `pubsub` do something), of this process and until it ends. How Redis packs small values and frees memory (`hash-max-listpack-entries`, \
     `lazyfree-lazy-expire`, `hz` and their like) may be set and has no meaning. Any other parameter stays as it is. \
     `CONFIG REWRITE` is refused, and `CONFIG GET` shows no password.",
    "`used_memory`, which `maxmemory` limits, is what the data occupies as it is counted, without clients' buffers; \
     `used_memory_rss` is what the process occupies. `maxmemory-policy` is for the keyspaces of number that one process keeps by \
     itself; others are caches if they say so ([caches](../operations/memory.md)).",
    "A slow command is timed while it is worked on here, not while it waits for other processes. Of commands that came in one \
     pipeline and were carried out together, `SLOWLOG` shows the first, with the time of all, and `INFO commandstats` gives each \
     an equal share of it. `LATENCY` knows the events `command` and `fast-command`.",
    "`SAVE`, `BGSAVE` and `BGREWRITEAOF` take a checkpoint; with `--memory` they are refused. `SHUTDOWN` waits for no replica; \
     `NOSAVE` gives up what no log holds. `DEBUG` has `SLEEP`, which holds up its own connection, and `ERROR`. `CLIENT REPLY` and \
     `DEBUG SLEEP` are refused inside of transactions. `REPLICAOF` accepts `NO ONE` and nothing else.",
    "A client that waits in a blocking command is passed over while a key holds another type, as in Redis 7.0; `XREADGROUP` gets \
     the error, as in 7.2. In a \
     cluster `CLIENT UNBLOCK` and `blocked_clients` know the clients of the asked process only. Who is served first, and what \
     that means in a cluster, says [blocking commands](../blocking-pubsub-caching.md#blocking-commands).",
    "`PUBLISH` replies how many subscribers of this process get the message; subscribers of the other processes get it, too. \
     Inside `MULTI`, `TXN` and scripts a message is sent when these have committed, behind their reply, and not at all if they do \
     not. Subscribing is refused inside `TXN`. Inside `MULTI` it takes effect even where `EXEC` replies nil after a command of \
     several steps. See [publish and subscribe](../blocking-pubsub-caching.md#publish-and-subscribe).",
    "`MONITOR` shows the commands of one process. It shows a command when it begins, those of a script again if its \
     transaction is tried again, and those of `MULTI` when `EXEC` comes, whether or not a watched key stops them. A client that \
     reads them too slowly is disconnected when 16 times \
     `client_output_limit_bytes` wait for it.",
    "Any process of a cluster executes any command, whatever its keys, and none ever redirects. For clients that spread over \
     processes `CLUSTER SLOTS`, `SHARDS` and `NODES` share the slots of Redis Cluster among the processes of the asked one's \
     region that it is connected to. `INFO` says `cluster_enabled:0` all the same, since no rule of Redis Cluster holds here. A \
     process by itself replies to them as a Redis without cluster support. `CLUSTER LINKS` shows no times and queues, \
     `CLUSTER INFO` no counts of messages.",
    "A script is a transaction: where it fails, or reaches a limit, nothing that it wrote stays, and inside `MULTI` nothing \
     of the whole transaction (`EXECABORT`). It is tried again after a conflict. Others are served while it computes; after \
     200 million instructions, or 10 s of computing, it fails. `SCRIPT KILL` and `FUNCTION KILL` end it sooner, though it has \
     written, which is undone: all that have run in this process for longer than `busy-reply-threshold`. It may use any keys of its keyspace, \
     declared or not. Scripts run Lua 5.1, as in Redis. See [scripts](../scripts.md).",
    "The libraries of functions are the same in all processes and keyspaces, and durable. Their variables begin anew in every \
     call of a function. `FUNCTION LOAD`, `DELETE`, `FLUSH` and `RESTORE` are refused inside `MULTI`.",
];

/// The page `docs/reference/commands.md`: every command with what it does.
pub fn command_table_markdown() -> String {
    let mut page = String::from(
        "# Commands\n\n\
         Generated from the command table; `COMMAND DOCS` tells the same. Where a name, an option, a reply or an \
         error exists in Redis 7.0, it is the same here, the differences below apart; every command on several keys is one transaction.\n\n\
         `since` is the version of Redis, or of Anabranch, that introduced the command. The number of arguments \
         includes the name. A `w` marks commands that may write.\n",
    );
    page.push_str(
        "\n`BLIND` may stand before every command with a `w` but `FLUSHALL`, on one key or several, inside `MULTI` and \
         `TXN` too; it replies `OK`, or an error. What that is good for, and which type suits which job, says \
         [data types](../data-types.md).\n",
    );
    page.push_str("\n## Differences from Redis\n\n");
    DIFFERENCES.iter().for_each(|difference| page.extend(["- ", difference, "\n"]));
    page = wrapped(&page);
    for family in FAMILIES {
        let mut rows: Vec<&Command> = Vec::new();
        for command in family.commands {
            rows.push(command);
            rows.extend(command.subcommands);
        }
        let written = write!(
            page,
            "\n## {}\n\n| command | | arguments | since | |\n|---|---|---|---|---|\n",
            family.title
        );
        debug_assert!(written.is_ok(), "a string takes any text");
        rows.iter().for_each(|command| write_row(command, &mut page));
    }
    page
}

/// The paragraphs and items of a page in lines of at most 100 columns.
fn wrapped(page: &str) -> String {
    const COLUMNS: usize = 100;
    let mut wrapped = String::new();
    for line in page.lines() {
        let indent = if line.starts_with("- ") { "  " } else { "" };
        let mut column = 0;
        for word in line.split(' ') {
            let len = word.chars().count();
            if column > 0 && column + 1 + len > COLUMNS {
                wrapped.extend(["\n", indent]);
                column = indent.len();
            } else if column > 0 {
                wrapped.push(' ');
                column += 1;
            }
            wrapped.push_str(word);
            column += len;
        }
        wrapped.push('\n');
    }
    wrapped
}

fn write_row(command: &Command, page: &mut String) {
    let name = command.name.to_ascii_uppercase().replace('|', " ");
    let arguments = match command.arity {
        exact @ 0.. => exact.to_string(),
        least => format!("{} or more", least.unsigned_abs()),
    };
    let writes = if command.is(flag::WRITE) { "w" } else { "" };
    let summary = command.summary.replace('|', "\\|");
    let written = writeln!(page, "| `{name}` | {writes} | {arguments} | {} | {summary} |", command.since);
    debug_assert!(written.is_ok(), "a string takes any text");
}
