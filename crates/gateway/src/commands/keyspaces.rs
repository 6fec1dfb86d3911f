//! Commands about keyspaces: named sets of keys, each with a model and its options.

use crate::acl::KeyspaceRules;
use crate::control::Control;
use crate::describe;
use crate::flow::Flow;
use crate::host::{Administration, Host, KeyspaceOptions, Model};
use crate::plan::Call;
use crate::table::flag::{ADMIN, FAST, LOADING, NO_MULTI, NOSCRIPT, STALE};
use crate::table::{Command, Handler, Handler::Flow as Steer, Handler::Local, lossy};
use resp::Arguments;
use types::{Error, KeyspaceId, ReplySink};

/// The longest name of a keyspace, in bytes.
const MAX_NAME_BYTES: usize = 64;

const OPERATOR: u16 = ADMIN | NOSCRIPT | NO_MULTI;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("keyspace", -2, 0, "anabranch 0.1.0", "Commands about keyspaces", Handler::Container).containing(KEYSPACE),
];

#[rustfmt::skip]
static KEYSPACE: &[Command] = &[
    Command::new("keyspace|create", -5, OPERATOR, "anabranch 0.1.0", "Creates a keyspace: KEYSPACE CREATE name MODEL strict|causal|branch [DURABILITY always|everysec|none] [EVICTION policy] [MAXMEMORY bytes] [REGIONS region ...] [option value ...]", Steer(Flow::Administer)),
    Command::new("keyspace|alter", -5, OPERATOR, "anabranch 0.1.0", "Changes options of a keyspace: KEYSPACE ALTER name option value [option value ...]", Steer(Flow::Administer)),
    Command::new("keyspace|drop", 3, OPERATOR, "anabranch 0.1.0", "Drops a keyspace with everything in it: KEYSPACE DROP name", Steer(Flow::Administer)),
    Command::new("keyspace|place", -5, OPERATOR, "anabranch 0.1.0", "Moves the replicas of a partition to other processes of the cluster: KEYSPACE PLACE name partition process [process ...]", Steer(Flow::Administer)),
    Command::new("keyspace|recover", -5, OPERATOR, "anabranch 0.1.0", "Lets a partition that has lost most of its replicas for good go on with the one of this process and what those of other processes that are left have, and reports what may be lost: KEYSPACE RECOVER name partition ACCEPT-LOSS [WITH process ...]", Steer(Flow::Administer)),
    Command::new("keyspace|evict", 5, OPERATOR, "anabranch 0.1.0", "Lets a causal keyspace go on without a region that is gone for good: KEYSPACE EVICT name region ACCEPT-LOSS", Steer(Flow::Administer)),
    Command::new("keyspace|list", 2, NOSCRIPT | NO_MULTI, "anabranch 0.1.0", "Lists the keyspaces", Steer(Flow::Administer)),
    Command::new("keyspace|info", 3, NOSCRIPT | NO_MULTI, "anabranch 0.1.0", "Describes a keyspace: KEYSPACE INFO name", Steer(Flow::Administer)),
    Command::new("keyspace|hotkeys", -3, NOSCRIPT | NO_MULTI, "anabranch 0.1.0", "Lists the keys of a replicated strict keyspace on which transactions wait or are refused, as all processes have seen it or only the asked one, hottest first, with what meets what, and the processes that have not answered: KEYSPACE HOTKEYS name [COUNT count] [RESET] [LOCAL]", Steer(Flow::Administer)),
    Command::new("keyspace|locate", -4, NOSCRIPT | NO_MULTI, "anabranch 0.1.0", "Returns which partition of a keyspace each key lies in: KEYSPACE LOCATE name key [key ...]", Steer(Flow::Administer)),
    Command::new("keyspace|use", 3, NOSCRIPT | FAST, "anabranch 0.1.0", "Chooses the keyspace for the connection: KEYSPACE USE name", Local(use_keyspace)),
    Command::new("keyspace|help", 2, LOADING | STALE, "anabranch 0.1.0", "Lists the subcommands", Local(describe::help)),
];

fn use_keyspace(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let keyspace = used(&control.call, control.host)?;
    control.may_track_in(keyspace)?;
    control.connection.session.select(keyspace, 0);
    sink.simple("OK");
    Ok(())
}

/// The keyspace that a KEYSPACE USE chooses.
///
/// # Errors
/// There is none of that name.
pub(crate) fn used(call: &Call<'_>, host: &mut dyn Host) -> Result<KeyspaceId, Error> {
    let name = call.bytes(2);
    host.keyspace_of_name(name).ok_or_else(|| missing(name))
}

/// What is said of a keyspace that does not exist, or that the user may not see.
pub fn missing(name: &[u8]) -> Error {
    Error::err(format!("no keyspace '{}'; KEYSPACE LIST names them", lossy(name)))
}

/// The keyspace that a command names.
pub(crate) fn named<'a>(command: &Command, arguments: Arguments<'a>) -> Option<&'a [u8]> {
    arguments.get(2).filter(|_| command.name.starts_with("keyspace|"))
}

/// Requests to the host.
///
/// # Errors
/// The name or an option is not well formed.
pub(crate) fn administration<'a>(
    call: &Call<'a>,
    visible: &KeyspaceRules,
) -> Result<Administration<'a>, Error> {
    Ok(match call.command.short_name() {
        "load" => return super::user_types::load(call),
        "save" => Administration::Save,
        "list" => Administration::List { visible: visible.clone() },
        "info" => Administration::Info { name: call.bytes(2) },
        "hotkeys" => hot_keys(call)?,
        "drop" => Administration::Drop { name: call.bytes(2) },
        "locate" => Administration::Locate {
            name: call.bytes(2),
            keys: (3..call.len()).map(|at| call.bytes(at)).collect(),
        },
        "place" => Administration::Place {
            name: call.bytes(2),
            partition: number(call.bytes(3), "a partition")?,
            processes: (4..call.len())
                .map(|at| number(call.bytes(at), "a process"))
                .collect::<Result<_, _>>()?,
        },
        "recover"
            if call.is(4, "ACCEPT-LOSS") && (call.len() == 5 || (call.len() > 6 && call.is(5, "WITH"))) =>
        {
            Administration::Recover {
                name: call.bytes(2),
                partition: number(call.bytes(3), "a partition")?,
                left: (6..call.len())
                    .map(|at| number(call.bytes(at), "a process"))
                    .collect::<Result<_, _>>()?,
            }
        }
        "recover" => {
            return Err(Error::err(
                "KEYSPACE RECOVER name partition ACCEPT-LOSS [WITH process ...]: it gives up what only the lost replicas \
                 had",
            ));
        }
        "evict" if call.is(4, "ACCEPT-LOSS") => {
            Administration::Evict { name: call.bytes(2), region: call.bytes(3) }
        }
        "evict" => {
            return Err(Error::err(
                "KEYSPACE EVICT name region ACCEPT-LOSS: it gives up what only the region had",
            ));
        }
        "alter" => Administration::Alter { name: call.bytes(2), options: options(call)? },
        _ => {
            let (name, options) = (checked_name(call.bytes(2))?, options(call)?);
            if options.model.is_none() {
                return Err(Error::err("KEYSPACE CREATE needs MODEL strict, causal or branch"));
            }
            Administration::Create { name, options }
        }
    })
}

/// How many hot keys are listed if no COUNT is given.
const HOT_KEYS: usize = 10;

fn hot_keys<'a>(call: &Call<'a>) -> Result<Administration<'a>, Error> {
    let (mut count, mut reset, mut local, mut at) = (HOT_KEYS, false, false, 3);
    while at < call.len() {
        if call.is(at, "RESET") {
            reset = true;
        } else if call.is(at, "LOCAL") {
            local = true;
        } else if call.is(at, "COUNT") && at + 1 < call.len() {
            at += 1;
            count = usize::try_from(call.integer(at)?)
                .ok()
                .filter(|count| *count > 0)
                .ok_or_else(|| Error::err("KEYSPACE HOTKEYS: COUNT is a positive number"))?;
        } else {
            return Err(Error::syntax());
        }
        at += 1;
    }
    Ok(Administration::HotKeys { name: call.bytes(2), count, reset, local })
}

/// The names of options; a list of regions ends before one.
const OPTIONS: [&str; 16] = [
    "MODEL",
    "DURABILITY",
    "PARTITIONS",
    "REPLICAS",
    "COPIES",
    "REGIONS",
    "CONCURRENCY",
    "PHASING",
    "COMBINING",
    "PROTOCOL",
    "CONFLICTS",
    "ISOLATION",
    "CLOCKBOUND",
    "SKEWWAIT",
    "EVICTION",
    "MAXMEMORY",
];

fn number(text: &[u8], what: &str) -> Result<u16, Error> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| Error::err(format!("{what} is a number, not '{}'", lossy(text))))
}

fn checked_name(name: &[u8]) -> Result<&[u8], Error> {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.iter().all(allowed) {
        Ok(name)
    } else {
        let text = format!("a keyspace's name has 1 to {MAX_NAME_BYTES} letters, digits, '_', '-' or '.'");
        Err(Error::err(text))
    }
}

fn options<'a>(call: &Call<'a>) -> Result<KeyspaceOptions<'a>, Error> {
    let mut options = KeyspaceOptions::default();
    let mut next = 3;
    while next < call.len() {
        let index = next;
        next += 2;
        if index + 1 == call.len() {
            return Err(Error::err(format!("option {} needs a value", lossy(call.bytes(index)))));
        }
        let (name, value) = (call.bytes(index), call.bytes(index + 1));
        if call.is(index, "MODEL") {
            let model = Model::from_name(value);
            options.model = Some(model.ok_or_else(|| unknown("MODEL", value, "strict, causal or branch"))?);
        } else if call.is(index, "REGIONS") {
            let is_option = |index: &usize| OPTIONS.iter().any(|option| call.is(*index, option));
            next = (index + 2..call.len()).find(is_option).unwrap_or(call.len());
            options.regions = (index + 1..next).map(|region| call.bytes(region)).collect();
        } else {
            options.others.push((name, value));
        }
    }
    Ok(options)
}

fn unknown(option: &str, value: &[u8], known: &str) -> Error {
    Error::err(format!("{option} is {known}, not '{}'", lossy(value)))
}
