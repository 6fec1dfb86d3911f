"""Fields of hashes that expire, in keyspaces of every model."""

import time

import pytest

from cluster import Cluster
from harness import Anabranch, wait_until

KEYSPACES = {
    "optimistic": ("MODEL", "strict", "PARTITIONS", 2, "REPLICAS", 3),
    "locking": ("MODEL", "strict", "PARTITIONS", 2, "REPLICAS", 3, "CONCURRENCY", "locking"),
    "occ": ("MODEL", "strict", "PARTITIONS", 2, "REPLICAS", 3, "CONCURRENCY", "occ"),
    "wren": ("MODEL", "causal", "PARTITIONS", 2),
    "pocc": ("MODEL", "causal", "PROTOCOL", "pocc"),
    "cops": ("MODEL", "causal", "PROTOCOL", "cops"),
    "branch": ("MODEL", "branch"),
}


def check(client) -> None:
    """Fields expire one by one, the last one with the hash; nobody sees one that has."""
    run = client.execute_command
    assert run("HSETEX", "h", "PX", 60_500, "FIELDS", 2, "f", 1, "g", 2) == 1
    assert client.hset("h", "stays", 3) == 1
    left, *others = run("HTTL", "h", "FIELDS", 3, "f", "stays", "nope")
    assert 1 <= left <= 61 and others == [-1, -2]
    assert run("HPERSIST", "h", "FIELDS", 1, "g") == [1]
    assert run("HINCRBY", "h", "f", 5) == 6
    assert run("HGETEX", "h", "EX", 1000, "FIELDS", 2, "g", "nope") == ["2", None]
    assert run("HPEXPIRE", "h", 1500, "FIELDS", 1, "f") == [1]
    wait_until(lambda: client.hget("h", "f") is None)
    assert client.hgetall("h") == {"g": "2", "stays": "3"} and client.hlen("h") == 2
    assert not client.hexists("h", "f") and client.hmget("h", "f", "g") == [None, "2"]
    # Nothing of the old value is left.
    assert client.hincrby("h", "f", 1) == 1
    assert run("HEXPIRE", "h", 0, "FIELDS", 2, "f", "nope") == [2, -2]
    assert client.hsetnx("h", "f", 7) == 1
    assert run("HPEXPIRE", "h", 1500, "FIELDS", 3, "f", "g", "stays") == [1, 1, 1]
    wait_until(lambda: client.exists("h") == 0)
    assert client.type("h") == "none" and client.hgetall("h") == {} and client.keys("h") == []
    assert client.hset("h", "new", 1) == 1 and client.hgetall("h") == {"new": "1"}
    assert run("HGETDEL", "h", "FIELDS", 2, "new", "new") == ["1", None]
    assert client.exists("h") == 0
    # In transactions and scripts.
    assert run("HSETEX", "h", "PX", 60_000, "FIELDS", 1, "f", 1) == 1 and client.hset("h", "g", 1) == 1
    with client.pipeline(transaction=True) as pipeline:
        pipeline.execute_command("HPEXPIRE", "h", 1500, "GT", "FIELDS", 1, "f")
        pipeline.execute_command("HPEXPIRE", "h", 1500, "FIELDS", 1, "f")
        assert pipeline.execute() == [[0], [1]]
    wait_until(lambda: client.hlen("h") == 1)
    with client.pipeline(transaction=True) as pipeline:
        pipeline.hincrby("h", "f", 2).hgetall("h").delete("h")
        assert pipeline.execute() == [2, {"g": "1", "f": "2"}, 1]


def check_moving(client) -> None:
    """What holds the whole hash holds its deadlines."""
    run = client.execute_command
    assert run("HSETEX", "h", "PXAT", 4_000_000_000_000, "FIELDS", 1, "f", 1) == 1
    assert client.copy("h", "{h}copy") and client.rename("h", "{h}moved")
    client.restore("{h}restored", 0, client.dump("{h}copy"))
    for key in ("{h}copy", "{h}moved", "{h}restored"):
        assert run("HPEXPIRETIME", key, "FIELDS", 1, "f") == [4_000_000_000_000]
    client.delete("{h}copy", "{h}moved", "{h}restored")


def test_one_process(server):
    with server.client(decode_responses=True) as client:
        client.flushall()
        check(client)
        check_moving(client)
        # A watched hash of which a field expires has changed.
        client.hset("h", "f", 1)
        with client.pipeline() as pipeline:
            client.execute_command("HPEXPIRE", "h", 2000, "FIELDS", 1, "f")
            pipeline.watch("h")
            time.sleep(2.2)
            pipeline.multi()
            pipeline.set("written", 1)
            with pytest.raises(Exception, match="Watched"):
                pipeline.execute()
        # In an interactive transaction time stands still.
        assert client.execute_command("HSETEX", "h", "PX", 2000, "FIELDS", 1, "f", 1) == 1
    with server.client(decode_responses=True, single_connection_client=True) as client:
        client.execute_command("TXN", "BEGIN")
        assert client.hget("h", "f") == "1"
        time.sleep(2.2)
        assert client.hget("h", "f") == "1"
        client.execute_command("TXN", "ABORT")
        assert client.hget("h", "f") is None and client.dbsize() == 0


def test_fields_that_nobody_meets_leave_the_memory(server):
    with server.client(decode_responses=True) as client:
        client.flushall()
        with client.pipeline(transaction=False) as pipeline:
            for number in range(200):
                pipeline.execute_command("HSETEX", f"h:{number}", "EX", 1000, "FIELDS", 1, "f", "x" * 1000)
            pipeline.dbsize()
            for number in range(200):
                pipeline.execute_command("HPEXPIRE", f"h:{number}", 100, "FIELDS", 1, "f")
            assert pipeline.execute()[200] == 200
        wait_until(lambda: client.dbsize() == 0)


def test_deadlines_are_there_after_a_crash():
    with Anabranch("always") as server:
        crash(server)


def crash(server) -> None:
    with server.client(decode_responses=True) as client:
        client.execute_command("HSETEX", "h", "PXAT", 4_000_000_000_000, "FIELDS", 1, "f", 1)
        client.execute_command("HSETEX", "h", "PX", 1000, "FIELDS", 1, "g", 1)
        client.hset("h", "stays", 1)
    server.kill()
    server.start()
    with server.client(decode_responses=True) as client:
        assert client.execute_command("HPEXPIRETIME", "h", "FIELDS", 2, "f", "stays") == [4_000_000_000_000, -1]
        wait_until(lambda: sorted(client.hkeys("h")) == ["f", "stays"])


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3) as cluster:
        yield cluster


@pytest.mark.parametrize("name", KEYSPACES)
def test_keyspaces_of_a_cluster(cluster, name):
    with cluster["a/1"].client() as client:
        client.execute_command("KEYSPACE", "CREATE", name, *KEYSPACES[name])
    with cluster["a/1"].session(name) as client:
        wait_until(lambda: client.set("first", 1))
        check(client)
        # COPS has no transactions that read before they write.
        if name != "cops":
            check_moving(client)
