"""COMMAND INFO and COMMAND DOCS, field by field, for every command that both servers have."""

import difflib
import re

import pytest

# From this likeness on a sentence is somebody else's.
NEARLY = 0.87
# Fields that differ on purpose, each with the reason. Everything else is the same, byte for byte.
OWN_WORDS = "sentences are our own"
NO_SUCH = "subcommands that we do not have, or that came after 7.0"
INTENDED = {
    "summary": OWN_WORDS,
    "complexity": OWN_WORDS,
    "history": OWN_WORDS,
    "replaced_by": OWN_WORDS,
    "subcommands": NO_SUCH,
}
MISSING = {
    "acl": set(),
    "client": set(),
    # Nobody assigns slots here, no process is another one's replica, and nothing of it is in a file.
    "cluster": {
        *("addslots", "addslotsrange", "bumpepoch", "count-failure-reports", "delslots", "delslotsrange", "failover"),
        *("flushslots", "forget", "meet", "replicas", "replicate", "reset", "saveconfig", "set-config-epoch", "setslot"),
        "slaves",
    },
    "command": set(),
    "config": set(),
    "debug": set(),
    "latency": set(),
    "memory": set(),
    "object": set(),
    "pubsub": set(),
    "module": {"load", "loadex", "unload"},
    "slowlog": set(),
    "function": set(),
    "script": {"debug"},
    "xgroup": set(),
    "xinfo": set(),
}
ADDED = {"client": {"setinfo", "no-touch"}, "debug": {"error", "sleep", "help"}}
# Options that came after 7.0, and the fields that tell of them.
LATER = {"hscan": {"arguments"}} | dict.fromkeys(["zrank", "zrevrank"], {"arity", "arguments", "history"})
# Scripts may call them since 7.2.
LATER |= dict.fromkeys(["blpop", "brpop", "blmove", "brpoplpush", "bzpopmin", "bzpopmax"], {"flags"})
# Refused inside MULTI; one process tells all others, so clients need not send them to each.
LATER |= dict.fromkeys([f"function|{name}" for name in ("delete", "flush", "load", "restore")], {"flags", "tips"})
# Ours alone, or of Redis after 7.0; the commands of types that Redis does not have are named with a dot.
OURS_ALONE = {"at", "blind", "branch", "conflicts", "context", "keyspace", "merge", "session", "txn", "types", "waitaof"}
# Of later versions of Redis.
OURS_ALONE |= set("hexpire hpexpire hexpireat hpexpireat httl hpttl hexpiretime hpexpiretime hpersist hgetex hgetdel hsetex".split())
INFO = ["name", "arity", "flags", "first key", "last key", "step", "categories", "tips", "key specifications"]


def table(server, protocol) -> tuple[dict, dict]:
    """By name, subcommands among them: the fields of COMMAND INFO, and those of COMMAND DOCS."""
    infos, docs = {}, {}
    with server.raw() as raw:
        raw.call("HELLO", protocol)
        add_infos(raw.call("COMMAND").items, infos)
        add_docs(raw.call("COMMAND", "DOCS").items, docs)
    return infos, docs


def add_infos(entries, infos) -> None:
    for entry in entries:
        infos[entry.items[0].text.decode()] = dict(zip(INFO, entry.items))
        add_infos(entry.items[len(INFO)].items, infos)


def add_docs(items, docs) -> None:
    for name, entry in zip(items[::2], items[1::2]):
        fields = {field.text.decode(): value for field, value in zip(entry.items[::2], entry.items[1::2])}
        docs[name.text.decode()] = fields
        if "subcommands" in fields:
            add_docs(fields["subcommands"].items, docs)


def shape(reply):
    """A reply to compare: the elements of sets in any order, without the text of notes, which are our own words."""
    if reply.items is None:
        return reply.raw
    elements = [shape(item) for item in reply.items]
    for at, name in enumerate(reply.items[:-1]):
        if reply.kind == b"%" and name.text == b"notes":
            elements[at + 1] = OWN_WORDS
    return (reply.kind, sorted(elements, key=repr) if reply.kind == b"~" else elements)


def differing(ours: dict, theirs: dict) -> list[str]:
    """The fields in which two entries are not the same."""
    fields = sorted(ours.keys() | theirs.keys())
    return [f for f in fields if f not in ours or f not in theirs or shape(ours[f]) != shape(theirs[f])]


def versions(fields: dict) -> list[bytes]:
    """The versions in which a command changed, as its history tells them."""
    return sorted(change.items[0].text for change in fields["history"].items) if "history" in fields else []


@pytest.fixture(scope="module")
def tables(shared_server, peer):
    return table(shared_server, 3), table(peer, 3)


def subcommands(names, container) -> set[str]:
    return {name.split("|")[1] for name in names if name.startswith(container + "|")}


def test_the_same_commands_are_there(tables):
    for ours, theirs in zip(*tables):
        assert {name for name in ours if "|" not in name and "." not in name} - theirs.keys() == OURS_ALONE
        for container in MISSING:
            assert subcommands(theirs, container) - subcommands(ours, container) == MISSING[container]
            assert subcommands(ours, container) - subcommands(theirs, container) == ADDED.get(container, set())


def test_the_information_is_the_same(tables):
    (ours, _), (theirs, _) = tables
    both = ours.keys() & theirs.keys()
    assert len(both) > 100
    fields = {name: set(differing(ours[name], theirs[name])) - LATER.get(name, set()) for name in sorted(both)}
    assert {name: left for name, left in fields.items() if left} == {}


def test_the_documentation_is_the_same_but_for_what_is_intended(tables):
    (_, ours), (_, theirs) = tables
    both = ours.keys() & theirs.keys()
    differences = {
        name: left
        for name in sorted(both)
        if (left := set(differing(ours[name], theirs[name])) - INTENDED.keys() - LATER.get(name, set()))
    }
    assert differences == {}
    for name in both - LATER.keys():
        for field in (field for field, reason in INTENDED.items() if reason == OWN_WORDS):
            assert (field in ours[name]) == (field in theirs[name]), (name, field)
        assert versions(ours[name]) == versions(theirs[name]), name
    assert all("summary" in differing(ours[name], theirs[name]) for name in ("get", "set"))
    containers = {name for name in both if "subcommands" in differing(ours[name], theirs[name])}
    assert containers == MISSING.keys(), NO_SUCH


def test_both_protocols_tell_the_same(shared_server, peer):
    for server in (shared_server, peer):
        with server.raw() as raw:
            reply = raw.call("COMMAND", "INFO", "set")
            assert reply.kind == b"*" and reply.items[0].items[2].kind == b"*"
    with shared_server.raw() as ours, peer.raw() as theirs:
        for name in ("get", "mset", "hset"):
            assert ours.call("COMMAND", "INFO", name).raw == theirs.call("COMMAND", "INFO", name).raw


def test_sentences_are_our_own(tables):
    """No summary, complexity or history is nearly Redis's; a short formula or list of options cannot be said otherwise."""
    (_, ours), (_, theirs) = tables
    for name in ours.keys() & theirs.keys():
        for field in {"summary", "complexity", "history"} & ours[name].keys() & theirs[name].keys():
            for sentence in sentences(ours[name][field]):
                for other in sentences(theirs[name][field]):
                    ratio = difflib.SequenceMatcher(None, sentence, other).ratio()
                    assert ratio < NEARLY or len(sentence.split()) < 3, f"{name}: {sentence!r} is {other!r}"


def sentences(reply) -> list[str]:
    """The texts of a field, without their signs."""
    if reply.items is None:
        return [re.sub(r"[^a-z0-9() ]", "", reply.text.decode().lower())]
    return [sentence for item in reply.items for sentence in sentences(item)]
