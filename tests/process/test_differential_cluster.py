"""The random command sequences of test_differential.py on a strict keyspace of three replicas and two partitions: each
connection is to another process, and the replies must be those of one server.

`ANABRANCH_SEEDS=1000-2000` plays other seeds, `ANABRANCH_SOAK=1` many more.
"""

import itertools
import os
import time
from dataclasses import replace

import pytest

from cluster import Cluster
from differential import LeftOut, find_mismatch, shrink
from harness import Anabranch, Redis
from sequences import Step, generate
from test_differential import seeds

LENGTH = 120
# How conflicting transactions are kept apart, and how many sequences of each sort are played.
SEQUENCES = dict.fromkeys(("optimistic", "locking", "occ"), 4 if not os.environ.get("ANABRANCH_SOAK") else 50)
# Alone they ask one replica of each partition, which may not have heard yet of what another process was answered: they
# "see no snapshot" (docs/reference/commands.md). In a transaction they are exact.
LOOKS = frozenset({b"KEYS", b"SCAN", b"DBSIZE"})
# Without leaders they count as a change to every key that somebody watches, one that is not there included.
FLUSHES = frozenset({b"FLUSHDB", b"FLUSHALL"})
AS_A_TXN = {(b"MULTI",): b"BEGIN", (b"EXEC",): b"COMMIT", (b"DISCARD",): b"ABORT"}


class Anywhere:
    """A cluster as if it were one server: every connection is to the next process."""

    def __init__(self, cluster: Cluster):
        self.nodes = itertools.cycle(cluster)

    def raw(self):
        return next(self.nodes).raw()


class Documented(LeftOut):
    """What a cluster is documented to answer otherwise."""

    def __init__(self, concurrency: str):
        self.led = concurrency != "optimistic"
        self.names = LOOKS | FLUSHES | {b"CLIENT"}

    def __call__(self, step: Step, in_transaction: bool, watched: bool) -> bool:
        name = step.arguments[0].upper()
        if name in LOOKS:
            return not in_transaction
        if name in FLUSHES:
            return watched and not self.led
        # Every process has clients of its own.
        return step.arguments[-1].startswith(b"{client ")


class FlushOfWatched(LeftOut):
    """A deletion of everything while keys are watched."""

    names = FLUSHES

    def __call__(self, step: Step, in_transaction: bool, watched: bool) -> bool:
        return watched


# A cluster's keyspaces are the numbers that SELECT takes there: one, so the servers that it is compared with have one too.


@pytest.fixture(scope="module")
def peer():
    with Redis(databases=1) as server:
        yield server


@pytest.fixture(scope="module")
def single():
    with Anabranch(config="[server]\ndatabases = 1\n") as server:
        yield server


@pytest.fixture(scope="module", params=SEQUENCES)
def cluster(request):
    with Cluster(3, 1, "--partitions", "2", "--concurrency", request.param) as cluster:
        yield request.param, cluster


def interactive(steps: list[Step], left_out: Documented) -> list[Step]:
    """The steps with TXN in the place of MULTI, one transaction at a time: what others do meanwhile may be a conflict for
    it or wait for it, and nobody says which."""
    played, owner = [], None
    for step in steps:
        if owner is not None:
            step = replace(step, connection=owner)
        if word := AS_A_TXN.get(step.arguments):
            owner = step.connection if word == b"BEGIN" else None
            step = replace(step, arguments=(b"TXN", word))
        # These two end the transaction, or not, by how they are spelt.
        ends = step.arguments[0].upper() in (b"QUIT", b"RESET")
        if not left_out(step, owner is not None, False) and not (ends and owner is not None):
            played.append(step)
    return played


def assert_same_replies(ours, theirs, sequences: dict, **options) -> None:
    """`ours` gives the server on which the sequence of a seed is played."""
    for seed, steps in sequences.items():
        servers = (ours(seed), theirs)
        first = find_mismatch(servers, steps, **options)
        if first is None:
            continue
        small = shrink(steps, lambda tried: find_mismatch(servers, tried, **options) is not None, 100)
        mismatch = find_mismatch(servers, small, **options)
        listing = "\n".join(f"  {step}" for step in small)
        pytest.fail(f"seed {seed} (ANABRANCH_SEEDS={seed}); the shortest sequence found:\n{listing}\nends at {mismatch or first}")


def sequences_of(concurrency: str) -> dict:
    count = None if os.environ.get("ANABRANCH_SEEDS") else SEQUENCES[concurrency]
    return {seed: generate(seed, LENGTH) for seed in itertools.islice(itertools.chain(*seeds()), count)}


def test_any_process_replies_what_redis_does(cluster, peer):
    concurrency, cluster = cluster
    anywhere = Anywhere(cluster)
    assert_same_replies(lambda _: anywhere, peer, sequences_of(concurrency), left_out=Documented(concurrency))


def test_interactive_transactions_reply_what_one_server_does(cluster, single):
    concurrency, cluster = cluster
    left_out = Documented(concurrency)
    sequences = {seed: interactive(steps, left_out) for seed, steps in sequences_of(concurrency).items()}
    assert any(step.arguments == (b"TXN", b"COMMIT") for steps in sequences.values() for step in steps)
    anywhere, nodes = Anywhere(cluster), list(cluster)
    # Without leaders an open transaction reads the closest replica, which may be behind what another process was answered:
    # its COMMIT would be a CONFLICT. So each sequence has one process.
    ours = (lambda _: anywhere) if left_out.led else (lambda seed: nodes[seed % 3])
    assert_same_replies(ours, single, sequences, left_out=FlushOfWatched())


def test_an_open_transaction_deletes_by_a_deadline_that_has_passed(cluster):
    """Its own time is that of its beginning, at which the deadline lies ahead."""
    with Anywhere(cluster[1]).raw() as raw:
        for deadline in ("EXPIRE passed 0", "PEXPIRE passed -1"):
            assert raw.call("TXN", "BEGIN").raw == raw.call("SET", "passed", "1").raw == b"+OK\r\n"
            time.sleep(0.01)
            assert raw.call(*deadline.split()).raw == b":1\r\n" and raw.call("GET", "passed").is_null
            assert raw.call("TXN", "COMMIT").raw == b"+OK\r\n"


def test_unwatch_means_nothing_inside_a_transaction(cluster, single):
    for server in (Anywhere(cluster[1]), single):
        with server.raw() as raw:
            for words in ("WATCH unwatched", "SET unwatched 1", "TXN BEGIN", "UNWATCH"):
                assert raw.call(*words.split()).raw == b"+OK\r\n"
            assert raw.call("TXN", "COMMIT").raw == b"*-1\r\n"
            assert raw.call("TXN", "BEGIN").raw == raw.call("TXN", "COMMIT").raw == b"+OK\r\n", "it is over"
