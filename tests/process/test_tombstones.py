"""Causal keyspaces: keys that are gone occupy little while a region is silent, and nothing when it is back."""

import pytest

from cluster import Cluster
from harness import wait_until

KEYS = 1000
# Beside the entry of the queue for the silent region, of which the keyspace's memory counts the bytes, too.
MOST = 220


def about(client, name: str) -> dict:
    reply = client.execute_command("KEYSPACE", "INFO", name)
    return dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply


def occupied(client, name: str) -> int:
    """The memory of the keyspace but for what waits for the other region."""
    return int(about(client, name)["memory_bytes"]) - client.info("cluster")[f"queues_{name}"]["queued_bytes"]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2, 1) as cluster:
        yield cluster


@pytest.mark.parametrize("protocol", ["wren", "paris", "pocc", "cops"])
def test_keys_that_are_gone_occupy_little_while_a_region_is_silent(cluster, protocol):
    with cluster["a/1"].client() as client:
        client.execute_command("KEYSPACE", "CREATE", protocol, "MODEL", "causal", "PROTOCOL", protocol)
    with cluster["a/1"].session(protocol) as here, cluster["b/1"].session(protocol) as there:
        wait_until(lambda: here.set("first", 1))
        wait_until(lambda: there.get("first") in ("1", b"1"))
        before = occupied(here, protocol)
        cluster.do("cut a b")
        for number in range(KEYS):
            here.set(f"dead:{number}", "value")
            here.delete(f"dead:{number}")
            here.set(f"over:{number}", "value", px=50)
        wait_until(lambda: occupied(here, protocol) - before < 2 * KEYS * MOST)
        assert here.dbsize() == 1
        assert here.get("dead:7") is None and here.get("over:7") is None
        # What is written concurrently stays, and so does what is written again.
        there.sadd("dead:7", "kept")
        there.set("over:7", "kept")
        here.set("dead:8", "again")
        cluster.do("heal")
        for client in (here, there):
            wait_until(lambda: client.dbsize() == 4)
            assert client.smembers("dead:7") in ({"kept"}, {b"kept"})
            assert client.get("dead:8") in ("again", b"again")
            assert client.get("over:7") in ("kept", b"kept")
        wait_until(lambda: occupied(here, protocol) - before < 20_000)
