"""The same random command sequences on Redis and on ours, reply by reply.

`ANABRANCH_SEEDS=1000-2000` plays other seeds, `ANABRANCH_SOAK=1` many more.
"""

import os
from pathlib import Path

import pytest

from differences import INTENDED, render
from differential import Play, agrees, find_mismatch, shrink
from resp import Raw, encode
from sequences import Step, generate

LENGTH = 120
# Seeds are played in groups, so that a failure does not hide the others.
GROUPS, SEEDS_PER_GROUP = (1, 20) if not os.environ.get("ANABRANCH_SOAK") else (100, 100)
# The groups behind these are left to `cargo xtask soak`.
BRIEF_GROUPS = 1


def seeds() -> list[range]:
    if chosen := os.environ.get("ANABRANCH_SEEDS"):
        first, _, last = chosen.partition("-")
        return [range(int(first), int(last or first) + 1)]
    return [range(group * SEEDS_PER_GROUP, (group + 1) * SEEDS_PER_GROUP) for group in range(GROUPS)]


def groups():
    """Each group of seeds as a parameter."""
    for index, group in enumerate(seeds()):
        marks = [pytest.mark.soak] if index >= BRIEF_GROUPS else []
        yield pytest.param(group, marks=marks, id=f"seeds-{group.start}-{group.stop - 1}")


@pytest.mark.parametrize("group", groups())
def test_random_sequences_have_the_same_replies(server, peer, group):
    for seed in group:
        steps = generate(seed, LENGTH)
        if find_mismatch((server, peer), steps) is None:
            continue
        assert server.is_running(), server.stderr()
        small = shrink(steps, lambda candidate: find_mismatch((server, peer), candidate) is not None)
        mismatch = find_mismatch((server, peer), small)
        listing = "\n".join(f"  {step}" for step in small)
        pytest.fail(f"seed {seed} (ANABRANCH_SEEDS={seed}); the shortest sequence found:\n{listing}\nends at {mismatch}")


def play(server, lines) -> list:
    """The replies to the lines of an example."""
    with server.raw() as raw:
        raw.call("FLUSHALL")
        return [raw.call(*line.split()) for line in lines]


@pytest.mark.parametrize("difference", [row for row in INTENDED if row.example], ids=lambda difference: difference.example[-1].replace(" ", "-"))
def test_an_intended_difference_is_one(server, peer, difference):
    ours, theirs = play(server, difference.example), play(peer, difference.example)
    # The reply to HELLO tells the connection's number.
    alike = [place for place, line in enumerate(difference.example[:-1]) if not line.startswith("HELLO")]
    assert [ours[place].raw for place in alike] == [theirs[place].raw for place in alike]
    arguments = encode_words(difference.example[-1])
    assert ours[-1].raw != theirs[-1].raw, "no difference any more: remove it from the table"
    assert difference.covers(arguments, ours[-1].raw, theirs[-1].raw), (ours[-1], theirs[-1])


def test_the_differences_are_documented():
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "differences.md"
    assert page.read_text() == render(), "run: python tests/process/differences.py > docs/reference/differences.md"


# The test is tested: it must see what is wrong.


def encode_words(line: str) -> tuple:
    return tuple(word.encode() for word in line.split())


def reply(data: bytes):
    raw = Raw.__new__(Raw)
    raw.buffer, raw.position = bytearray(data), 0
    return raw.read()


@pytest.mark.parametrize(
    "command, ours, theirs, same",
    [
        ("GET k", b"$1\r\na\r\n", b"$1\r\na\r\n", True),
        ("GET k", b"$1\r\na\r\n", b"$1\r\nb\r\n", False),
        ("GET k", b"$-1\r\n", b"_\r\n", False),
        ("SMEMBERS k", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"*2\r\n$1\r\nb\r\n$1\r\na\r\n", True),
        ("SMEMBERS k", b"*2\r\n$1\r\na\r\n$1\r\na\r\n", b"*2\r\n$1\r\nb\r\n$1\r\na\r\n", False),
        ("SMEMBERS k", b"*1\r\n$1\r\na\r\n", b"~1\r\n$1\r\na\r\n", False),
        ("LRANGE k 0 -1", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"*2\r\n$1\r\nb\r\n$1\r\na\r\n", False),
        ("HGETALL k", b"%1\r\n$1\r\na\r\n$1\r\nb\r\n", b"%1\r\n$1\r\nb\r\n$1\r\na\r\n", False),
        ("TTL k", b":1000\r\n", b":999\r\n", True),
        ("TTL k", b":1000\r\n", b":-1\r\n", False),
        ("TTL k", b":1000\r\n", b":900\r\n", False),
        ("INCR k", b"-ERR one\r\n", b"-ERR another\r\n", False),
        ("INFO", b"$1\r\na\r\n", b"=5\r\ntxt:a\r\n", False),
    ],
)
def test_the_comparison_sees_what_differs(command, ours, theirs, same):
    assert agrees(encode_words(command), reply(ours), reply(theirs)) is same


def test_a_failing_sequence_is_shrunk():
    steps = [Step(0, (b"GET", str(number).encode())) for number in range(100)]
    culprits = {steps[17], steps[80]}
    assert shrink(steps, lambda candidate: culprits.issubset(candidate)) == [steps[17], steps[80]]


def test_a_mismatch_is_found(peer):
    """Two Redis servers with one odd command between them: what one does not know must be seen."""

    class Odd:
        def __init__(self, server):
            self.server = server

        def raw(self):
            connection = self.server.raw()
            connection.send = lambda data, send=connection.send: send(data.replace(b"INCRBY", b"DECRBY"))
            return connection

    steps = [Step(0, encode_words("SET s0 1")), Step(1, encode_words("INCRBY s0 2")), Step(0, encode_words("GET s0"))]
    assert find_mismatch((peer, peer), steps[:1]) is None
    assert "INCRBY" in str(find_mismatch((Odd(peer), peer), steps))
    assert encode(steps[0].arguments) == b"*3\r\n$3\r\nSET\r\n$2\r\ns0\r\n$1\r\n1\r\n"
    with Play((peer, peer)) as nothing:
        nothing.run([])
        assert nothing.compared == 0
