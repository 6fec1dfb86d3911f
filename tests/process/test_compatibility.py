"""docs/reference/compatibility.md: every command on data, called in a keyspace of each model and on Redis."""

import os
import shlex
from pathlib import Path

import pytest

from compatibility import MODELS, RULE_OF, SETUP, calls, render
from differences import INTENDED
from differential import agrees
from resp import encode

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/compatibility.md"
# In these families every command is about keys; other commands with keys steer connections, or are prefixes.
GROUPS = {"generic", "string", "bitmap", "hyperloglog", "hash", "list", "set", "sorted-set", "stream", "geo"}
GROUPS |= {"commuting"}


def words(line: str) -> list[bytes]:
    """A command's arguments; `\\x00` in quotation marks is a byte."""
    return [word.encode().decode("unicode_escape").encode("latin-1") for word in shlex.split(line, posix=True)]


def reply_of(raw, call: str):
    """The reply to a call that finds what `SETUP` leaves."""
    before = [["FLUSHDB"], *(words(line) for line in SETUP.strip().splitlines())]
    raw.send(b"".join(map(encode, before)))
    for command in before:
        reply = raw.read()
        assert not reply.is_error, (command, reply)
    return words(call), raw.call(*words(call))


@pytest.fixture(scope="module")
def keyspaces(shared_server):
    with shared_server.raw() as raw:
        for model in MODELS:
            assert raw.call("KEYSPACE", "CREATE", f"of-{model}", "MODEL", model).raw == b"+OK\r\n"
    return shared_server


def judged(arguments, ours, theirs) -> str:
    """What a call was found to be."""
    if theirs is None:
        return f"refused: `{ours.text.split()[0].decode()}`" if ours.is_error else "ours"
    if ours.is_error and ours.raw != theirs.raw:
        return f"refused: `{ours.text.split()[0].decode()}`"
    if any(difference.covers(arguments, ours.raw, theirs.raw) for difference in INTENDED):
        return "[differs](differences.md)"
    # A key at random.
    is_random = arguments[0] == b"RANDOMKEY" and ours.kind == theirs.kind
    assert agrees(arguments, ours, theirs) or is_random, (arguments, ours, theirs)
    return "exact"


@pytest.fixture(scope="module")
def cells(keyspaces, peer):
    found = {}
    for name, (_, its, in_redis) in calls().items():
        found[name] = {}
        for model in MODELS:
            with keyspaces.raw() as ours, peer.raw() as theirs:
                ours.call("KEYSPACE", "USE", f"of-{model}")
                verdicts = set()
                for call in its:
                    arguments, reply = reply_of(ours, call)
                    verdicts.add(judged(arguments, reply, reply_of(theirs, call)[1] if in_redis else None))
                found[name][model] = max(verdicts, key=lambda verdict: (verdict != "exact", verdict))
    return found


def test_the_page_says_what_was_found(cells):
    page = render(cells)
    if "UPDATE_DOCS" in os.environ:
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run this test with UPDATE_DOCS=1, and look at what changed"


def test_strict_keyspaces_answer_as_redis_does(cells):
    refused = {name for name, cell in cells.items() if cell["strict"].startswith("refused")}
    assert refused == {"move", "swapdb"}
    differs = {name for name, cell in cells.items() if "differs" in cell["strict"]}
    assert differs <= {"object", "dump"}, differs


def test_every_command_on_data_is_called(keyspaces):
    """And each that writes says what comes of concurrent writes."""
    with keyspaces.raw() as raw:
        docs = raw.call("COMMAND", "DOCS").items
        names = [item.text.decode() for item in docs[::2]]
        groups = [dict(zip((field.text for field in doc.items[::2]), doc.items[1::2]))[b"group"].text for doc in docs[1::2]]
        on_data = {name for name, group in zip(names, groups) if group.decode() in GROUPS}
        assert on_data - calls().keys() == set()
        infos = raw.call("COMMAND", "INFO", *calls()).items
        writes = {info.items[0].text.decode() for info in infos if "write" in {flag.text.decode() for flag in info.items[2].items}}
    assert writes - {"swapdb"} == RULE_OF.keys(), writes ^ RULE_OF.keys()
