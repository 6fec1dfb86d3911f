"""KEYSPACE HOTKEYS and its metric: which keys transactions are in each other's way on, and by what."""

import random
import threading
import time

import pytest
import redis

from cluster import Cluster
from harness import laboratory, wait_until
from test_crowds import transact
from test_keyspaces import create, use

# The variants of locking are left to `cargo xtask soak`.
VARIANTS = [pytest.param(f"locking {variant}", marks=pytest.mark.soak) for variant in ("PHASING off", "LOCKS readwrite")]
CONCURRENCIES = ["locking", *VARIANTS, "occ", "optimistic"]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3, program=laboratory()) as cluster:
        yield cluster


def plain(reply):
    """A map of RESP2 or of RESP3."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))


def told(client, name: str, *options) -> tuple[list[dict], list[int]]:
    """What one process replies: the keys, and who has not answered."""
    reply = plain(client.execute_command("KEYSPACE", "HOTKEYS", name, *options))
    keys = [plain(entry) for entry in reply["keys"]]
    return [{**entry, "pairs": [plain(pair) for pair in entry["pairs"]]} for entry in keys], reply["unanswered"]


def hot_keys(cluster, name: str, *options) -> list[dict]:
    """What all processes tell of themselves."""
    found = []
    for node in cluster:
        with node.client() as client:
            keys, unanswered = told(client, name, *options, "LOCAL")
            assert unanswered == []
            found += keys
    return found


def together(found: list[dict]) -> dict[str, dict[str, int]]:
    """The sums by key and by pair."""
    sums: dict[str, dict[str, int]] = {}
    for entry in found:
        of_key = sums.setdefault(entry["key"], {})
        numbers = [(kind, entry[kind]) for kind in ("count", "waits", "conflicts", "wounds")]
        for pair in entry["pairs"]:
            numbers += [(f"{pair['wanted']}/{pair['met']}/{kind}", pair[kind]) for kind in ("waits", "conflicts", "wounds")]
        for kind, number in numbers:
            of_key[kind] = of_key.get(kind, 0) + number
    return sums


def crowd(cluster, name: str, commands, clients: int = 12, turns: int = 25) -> None:
    """Many clients at once, each with transactions of its own."""
    nodes, failures = list(cluster), []

    def work(number):
        try:
            with nodes[number % 3].client(single_connection_client=True) as client:
                use(client, name)
                for turn in range(turns):
                    transact(client, *commands(number, turn))
        except Exception as error:  # the test tells it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize("concurrency", CONCURRENCIES)
def test_the_key_that_all_want_is_the_hottest(cluster, concurrency):
    name = f"hot-{concurrency.replace(' ', '-')}"
    with cluster["a/1"].client() as client:
        create(client, name, "MODEL", "strict", "PARTITIONS", 2, "REPLICAS", 3, "CONCURRENCY", *concurrency.split())
    assert hot_keys(cluster, name) == []
    # Nobody meets anybody on keys of one's own.
    crowd(cluster, name, lambda number, turn: [("INCR", f"own-{number}")], turns=5)
    assert hot_keys(cluster, name) == []

    def commands(number, turn):
        other = f"side-{random.Random(number * 100 + turn).randrange(40)}"
        look = number % 2 == 0
        return (("SCARD", "hot"), ("SCARD", other)) if look else (("BLIND", "SADD", "hot", f"{number}.{turn}"), ("BLIND", "SADD", other, turn))

    crowd(cluster, name, commands)
    found = hot_keys(cluster, name)
    hottest = max(found, key=lambda entry: entry["count"])
    assert hottest["key"] == "hot" and all(not entry["key"].startswith("own-") for entry in found)
    for entry in found:
        total = entry["waits"] + entry["conflicts"] + entry["wounds"]
        assert total == entry["count"] - entry["excess"] > 0
        for kind in ("waits", "conflicts", "wounds"):
            assert entry[kind] == sum(pair[kind] for pair in entry["pairs"])
    met = {(pair["wanted"], pair["met"]) for pair in hottest["pairs"]}
    adds = "write" if "readwrite" in concurrency else "add"
    assert met & {("observe", adds), (adds, "observe"), ("observe", "newer")}, met
    assert ("add", "add") not in met, "additions commute"
    assert ("write", "write") in met or "readwrite" not in concurrency, met
    if "locking" in concurrency:
        assert hottest["waits"] > 0


def test_counts_are_cut_and_forgotten(cluster):
    name = "hot-reset"
    with cluster["a/1"].client() as client:
        # Nobody waits for anybody on one shard.
        create(client, name, "MODEL", "strict", "PARTITIONS", 16, "REPLICAS", 3, "CONCURRENCY", "locking")
    crowd(cluster, name, lambda number, turn: [("INCR", key) for key in "abcd"], clients=6, turns=10)
    with cluster["a/2"].client() as client:
        found, unanswered = told(client, name)
        assert {entry["key"] for entry in found} <= set("abcd") and found and unanswered == []
        assert [entry["count"] for entry in found] == sorted((entry["count"] for entry in found), reverse=True)
        assert told(client, name, "COUNT", 1) == (found[:1], [])
        assert told(client, name, "COUNT", 1, "RESET") == (found[:1], [])
        assert told(client, name) == ([], [])


@pytest.mark.parametrize("concurrency", ["locking", "optimistic"])
def test_any_process_tells_what_all_have_seen(cluster, concurrency):
    name = f"hot-together-{concurrency}"
    with cluster["a/1"].client() as client:
        # Three leaders, each on a process of its own as far as may be.
        create(client, name, "MODEL", "strict", "PARTITIONS", 3, "REPLICAS", 3, "CONCURRENCY", concurrency)
    crowd(cluster, name, lambda number, turn: [("INCR", f"k{(number + place) % 6}") for place in range(3)], turns=10)
    separate = together(hot_keys(cluster, name, "COUNT", 100))
    assert separate
    for node in cluster:
        with node.client() as client:
            found, unanswered = told(client, name, "COUNT", 100)
            assert unanswered == []
            assert together(found) == separate
            assert [entry["count"] for entry in found] == sorted((entry["count"] for entry in found), reverse=True)
            assert len({entry["key"] for entry in found}) == len(found), "each key once"
            assert told(client, name, "COUNT", 1) == (found[:1], [])
    with cluster["a/2"].client() as client:
        assert together(told(client, name, "COUNT", 100, "RESET")[0]) == separate
    assert hot_keys(cluster, name) == [], "all have forgotten them"


def test_who_does_not_answer_is_named():
    with Cluster(1, 3) as cluster:
        with cluster["a/1"].client() as client:
            create(client, "hot", "MODEL", "strict", "PARTITIONS", 1, "REPLICAS", 3, "CONCURRENCY", "optimistic")
            crowd(cluster, "hot", lambda number, turn: [("INCR", "a"), ("INCR", "b")], clients=6, turns=10)
            before, unanswered = told(client, "hot")
            assert before and unanswered == []
            cluster.do("kill a/3")
            rest, unanswered = told(client, "hot")
            assert unanswered == [3]
            assert sum(entry["count"] for entry in rest) <= sum(entry["count"] for entry in before)
            cluster.do("pause a/2")
            asked = time.monotonic()
            assert told(client, "hot")[1] == [2, 3], "one that is silent is named, too"
            assert time.monotonic() - asked > 0.9, "after it was waited for"
            assert told(client, "hot", "LOCAL")[1] == []
            cluster.do("resume a/2", "restart a/3")
            wait_until(lambda: told(client, "hot")[1] == [])


@pytest.mark.parametrize(
    "options, reason",
    [
        (("nowhere",), "no keyspace"),
        (("hot-causal",), "is not strict"),
        (("default", "COUNT", 0), "positive number"),
        (("default", "COUNT"), "syntax error"),
        (("default", "WARM"), "syntax error"),
    ],
)
def test_what_cannot_be_told_is_refused(cluster, options, reason):
    with cluster["a/1"].client() as client:
        if options[0] == "hot-causal":
            create(client, "hot-causal", "MODEL", "causal")
        with pytest.raises(redis.ResponseError, match=reason):
            client.execute_command("KEYSPACE", "HOTKEYS", *options)


def test_a_keyspace_of_one_process_has_none(server):
    with server.client() as client:
        with pytest.raises(redis.ResponseError, match="none waits for another"):
            client.execute_command("KEYSPACE", "HOTKEYS", "default")
