//! Publishing messages, and subscribing to them.

use crate::control::Control;
use crate::describe::{self, unknown_subcommand};
use crate::interest::{Interest, Reached};
use crate::news::Message;
use crate::subscriptions::Topic;
use crate::table::flag::{FAST, LOADING, MAY_REPLICATE, NOSCRIPT, PUBSUB, STALE};
use crate::table::{Command, Handler, Handler::Local};
use datatypes::glob::Pattern;
use types::{Error, ReplySink};

const SUBSCRIBES: u16 = PUBSUB | NOSCRIPT | LOADING | STALE;
const PUBLISHES: u16 = PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE;
const TELLS: u16 = PUBSUB | LOADING | STALE;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("subscribe", -2, SUBSCRIBES, "2.0.0", "Subscribes to channels: their messages are sent to the client until it unsubscribes", Local(subscribe)),
    Command::new("unsubscribe", -1, SUBSCRIBES, "2.0.0", "Unsubscribes from channels, or from all of them", Local(unsubscribe)),
    Command::new("psubscribe", -2, SUBSCRIBES, "2.0.0", "Subscribes to all channels whose names match patterns", Local(subscribe)),
    Command::new("punsubscribe", -1, SUBSCRIBES, "2.0.0", "Unsubscribes from patterns, or from all of them", Local(unsubscribe)),
    Command::new("ssubscribe", -2, SUBSCRIBES, "7.0.0", "Subscribes to shard channels, which SPUBLISH publishes to", Local(subscribe)).keys(1, -1, 1),
    Command::new("sunsubscribe", -1, SUBSCRIBES, "7.0.0", "Unsubscribes from shard channels, or from all of them", Local(unsubscribe)).keys(1, -1, 1),
    Command::new("publish", 3, PUBLISHES, "2.0.0", "Publishes a message to a channel when the transaction commits, and replies how many subscribers of this process get it", Local(publish)),
    Command::new("spublish", 3, PUBLISHES, "7.0.0", "Publishes a message to a shard channel, as PUBLISH to a channel", Local(publish)).keys(1, 1, 1),
    Command::new("pubsub", -2, 0, "2.8.0", "Commands about subscribers of this process", Handler::Container).containing(OF_PROCESS),
];

#[rustfmt::skip]
static OF_PROCESS: &[Command] = &[
    Command::new("pubsub|channels", -2, TELLS, "2.8.0", "Lists the channels that have subscribers, or those that match a pattern", Local(channels)),
    Command::new("pubsub|numsub", -2, TELLS, "2.8.0", "Tells how many subscribers channels have, those of patterns apart", Local(subscribers)),
    Command::new("pubsub|numpat", 2, TELLS, "2.8.0", "Tells how many patterns have subscribers", Local(patterns)),
    Command::new("pubsub|shardchannels", -2, TELLS, "7.0.0", "Lists the shard channels that have subscribers, or those that match a pattern", Local(channels)),
    Command::new("pubsub|shardnumsub", -2, TELLS, "7.0.0", "Tells how many subscribers shard channels have", Local(subscribers)),
    Command::new("pubsub|help", 2, LOADING | STALE, "6.2.0", "Lists the subcommands", Local(describe::help)),
];

/// True for the commands whose replies are messages to a subscriber, which `CLIENT REPLY` does not keep back.
pub(crate) fn is_confirmed(command: &Command) -> bool {
    command.is(PUBSUB) && command.name.ends_with("subscribe")
}

/// True for what a client of RESP2 may say while it has subscriptions.
pub(crate) fn is_for_subscribers(command: &Command) -> bool {
    is_confirmed(command) || matches!(command.name, "ping" | "quit" | "reset")
}

/// The error to a client of RESP2 that sends another command while it has subscriptions.
#[cold]
pub(crate) fn not_for_subscribers(command: &Command) -> Error {
    Error::err(format!(
        "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        command.name
    ))
}

fn topic_of(command: &Command) -> Topic {
    match command.name.as_bytes().first() {
        Some(b'p') => Topic::Pattern,
        Some(b's') if command.name.starts_with("ss") || command.name.starts_with("sun") => Topic::Shard,
        _ => Topic::Channel,
    }
}

/// Writes one confirmation: the command, the name, and how many subscriptions the client has now.
fn confirm(control: &Control<'_>, topic: Topic, name: Option<&[u8]>, sink: &mut dyn ReplySink) {
    let [channels, patterns, shards] = control.connection.session.subscriptions;
    sink.push(3);
    sink.bulk(control.call.command.name.as_bytes());
    match name {
        Some(name) => sink.bulk(name),
        None => sink.null(),
    }
    sink.integer(if topic == Topic::Shard { shards } else { channels + patterns } as i64);
}

fn subscribe(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let topic = topic_of(control.call.command);
    if topic == Topic::Pattern {
        control.arguments().iter().skip(1).try_for_each(|name| Pattern::for_many(name).map(|_| ()))?;
    }
    for name in control.arguments().iter().skip(1) {
        control.gateway.subscribe(control.connection, topic, name, control.host);
        confirm(control, topic, Some(name), sink);
    }
    // Who asks for clients from now on is to find the subscriber.
    control.host.note_client(&control.own_info());
    Ok(())
}

fn unsubscribe(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let topic = topic_of(control.call.command);
    if control.call.len() == 1 {
        let names = control.gateway.subscriptions.of(topic, control.connection.id);
        for name in &names {
            control.gateway.unsubscribe(control.connection, topic, name, control.host);
            confirm(control, topic, Some(name), sink);
        }
        if names.is_empty() {
            confirm(control, topic, None, sink);
        }
    }
    for name in control.arguments().iter().skip(1) {
        control.gateway.unsubscribe(control.connection, topic, name, control.host);
        confirm(control, topic, Some(name), sink);
    }
    control.host.note_client(&control.own_info());
    Ok(())
}

fn publish(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let message = Message {
        sharded: call.command.name == "spublish",
        channel: call.bytes(1).into(),
        payload: call.bytes(2).into(),
        context: None,
    };
    let (gateway, most) = (control.gateway.config.worker, control.gateway.config.max_queued_bytes);
    let mut reached = Reached::default();
    control.host.interest(&mut |interest| reached = interest.reached(gateway, &message));
    control.connection.outbox.push(message, most)?;
    sink.integer(reached.receivers as i64);
    Ok(())
}

fn sharded(control: &Control<'_>) -> Topic {
    Topic::of_message(control.call.command.short_name().starts_with("shard"))
}

fn channels(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let (call, topic) = (control.call, sharded(control));
    let pattern = match call.len() {
        2 => None,
        3 => Some(Pattern::for_many(call.bytes(2))?),
        _ => return Err(unknown_subcommand(&call)),
    };
    control.host.interest(&mut |interest: &Interest| {
        let names = interest.names(topic, pattern.as_ref());
        sink.array(names.len());
        names.iter().for_each(|name| sink.bulk(name));
    });
    Ok(())
}

fn subscribers(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let (call, topic) = (control.call, sharded(control));
    control.host.interest(&mut |interest: &Interest| {
        sink.array(2 * (call.len() - 2));
        for name in call.arguments.iter().skip(2) {
            sink.bulk(name);
            sink.integer(interest.subscribers(topic, name) as i64);
        }
    });
    Ok(())
}

fn patterns(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.host.interest(&mut |interest: &Interest| sink.integer(interest.counts()[1] as i64));
    Ok(())
}
