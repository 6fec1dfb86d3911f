"""RANDOMKEY in keyspaces of every model."""

from collections import Counter

import pytest

from cluster import Cluster
from harness import wait_until

KEYSPACES = {
    "optimistic": ("MODEL", "strict", "PARTITIONS", 4, "REPLICAS", 3),
    "serializable": ("MODEL", "strict", "PARTITIONS", 2, "REPLICAS", 3, "ISOLATION", "serializable"),
    "locking": ("MODEL", "strict", "PARTITIONS", 2, "REPLICAS", 3, "CONCURRENCY", "locking"),
    "occ": ("MODEL", "strict", "PARTITIONS", 2, "REPLICAS", 3, "CONCURRENCY", "occ"),
    "wren": ("MODEL", "causal", "PARTITIONS", 4),
    "paris": ("MODEL", "causal", "PARTITIONS", 4, "REPLICAS", 1),
    "branch": ("MODEL", "branch"),
}


def draws(client, count: int) -> Counter:
    return Counter(client.randomkey() for _ in range(count))


def check_in_transactions(client) -> None:
    """With the keys a and b there, and with what the transaction itself does."""
    replies = client.pipeline(transaction=True).set("c", 1).delete("a").delete("b").randomkey().delete("c").execute()
    assert replies[3] == "c"
    assert client.set("a", 1)
    client.execute_command("TXN", "BEGIN")
    assert client.set("b", 1) and set(draws(client, 60)) == {"a", "b"}
    assert client.delete("a") == 1 and set(draws(client, 20)) == {"b"}
    assert client.execute_command("TXN", "COMMIT") == "OK"
    assert set(draws(client, 20)) == {"b"}


def check_without_keys(client) -> None:
    client.delete("b")
    assert draws(client, 10) == {None: 10}
    # Of keys that have expired none is drawn.
    client.pipeline(transaction=False).set("x", 1, px=1).set("y", 1, px=1).execute()
    wait_until(lambda: client.exists("x", "y") == 0)
    assert client.randomkey() is None


def test_one_process(client):
    assert client.randomkey() is None
    client.mset({f"key:{number}": 1 for number in range(20)})
    counts = draws(client, 2000)
    assert len(counts) == 20 and min(counts.values()) > 40 and max(counts.values()) < 200, counts
    client.flushdb()
    with client.client() as single:
        single.mset({"a": 1, "b": 1})
        check_in_transactions(single)
        check_without_keys(single)
        assert single.pipeline(transaction=True).randomkey().set("k", 1).randomkey().execute() == [None, True, "k"]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3) as cluster:
        yield cluster


# As in another keyspace of its model, so left to `cargo xtask soak`.
ALIKE = ("serializable", "occ")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.soak if n in ALIKE else ()) for n in KEYSPACES])
def test_keyspaces_of_a_cluster(cluster, name):
    with cluster["a/1"].client() as client:
        client.execute_command("KEYSPACE", "CREATE", name, *KEYSPACES[name])
    with cluster["a/1"].using(name) as client, cluster["a/2"].using(name) as other:
        wait_until(lambda: client.set("first", 1))
        assert client.delete("first") == 1 and client.randomkey() is None
        client.mset({f"key:{number}": 1 for number in range(20)})
        for reader in (client, other):
            wait_until(lambda: reader.exists(*(f"key:{number}" for number in range(20))) == 20)
            counts = draws(reader, 400)
            assert len(counts) == 20 and min(counts.values()) > 2 and max(counts.values()) < 80, counts
        client.delete(*(f"key:{number}" for number in range(20)))
        client.mset({"a": 1, "b": 1})
        check_in_transactions(client)
        check_without_keys(client)
        assert client.pipeline(transaction=True).randomkey().execute() == [None]
