"""The baselines without transactions: `LOCKS none`, each operation of which is atomic, durable and replicated, but several are not
one; and QWStore, which writes everywhere, reads anywhere, and lets the last writer win."""

import threading

import pytest
import redis

from cluster import Cluster
from harness import laboratory, wait_until
from test_keyspaces import create, info, use

OPTIONS = ("MODEL", "strict", "CONCURRENCY", "locking", "LOCKS", "none", "REPLICAS", 3, "PARTITIONS", 2)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3, program=laboratory()) as cluster:
        yield cluster


def test_it_says_what_it_is_and_refuses_transactions(cluster):
    with cluster["a/1"].client(single_connection_client=True) as client:
        create(client, "single", *OPTIONS)
        told = info(client, "single")
        assert (told["locks"], told["phasing"]) == ("none", "off")
        for refused, options in (("no PHASING", (*OPTIONS, "PHASING", "off")), ("CONCURRENCY locking", (*OPTIONS[:2], *OPTIONS[4:]))):
            with pytest.raises(redis.ResponseError, match=refused):
                create(client, "refused", *options)
        use(client, "single")
        for command in (("WATCH", "a"), ("TXN", "BEGIN")):
            with pytest.raises(redis.ResponseError, match="LOCKS none, a baseline without transactions"):
                client.execute_command(*command)
        # What comes with MULTI, or names several keys, is done one by one.
        client.execute_command("MULTI")
        client.execute_command("INCR", "a")
        client.execute_command("BLIND", "SADD", "s", "x")
        client.execute_command("SCARD", "s")
        assert client.execute_command("EXEC") == [1, "OK", 1]
        assert client.mset({f"k{number}": number for number in range(20)})
        assert client.mget([f"k{number}" for number in range(20)]) == [str(number) for number in range(20)]
        assert client.delete(*(f"k{number}" for number in range(20))) == 20
        assert client.execute_command("UID.NEXT", "ids") != client.execute_command("UID.NEXT", "ids")
        assert client.lpush("list", 1, 2) == 2 and client.lpop("list") == "2"
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.incr("list")


@pytest.mark.parametrize("restart", [False, True])
def test_every_increment_counts_once(cluster, restart):
    """Clients at all processes increment one key, while one process is killed and comes back."""
    name = f"counted-{restart}"
    with cluster["a/1"].client() as client:
        create(client, name, *OPTIONS)
    told, unknown, failures = [], [], []
    enough = threading.Event()

    def work(node):
        with node.client(single_connection_client=True) as client:
            try:
                use(client, name)
                while not enough.is_set():
                    try:
                        told.append(client.incr("sum"))
                    except redis.ResponseError as error:
                        assert str(error).startswith(("UNKNOWNOUTCOME", "UNAVAILABLE")), error
                        unknown.append(error)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                failures.append(error)

    nodes = [node for node in cluster if not restart or node.name != "a/2"]
    threads = [threading.Thread(target=work, args=(node,), daemon=True) for node in nodes for _ in range(4)]
    for thread in threads:
        thread.start()
    if restart:
        cluster.do("kill a/2", "restart a/2")
    enough.wait(3)
    enough.set()
    for thread in threads:
        thread.join()
    assert not failures and len(told) == len(set(told)) > 100
    with cluster["a/2"].client(single_connection_client=True) as client:
        use(client, name)
        held = int(client.get("sum"))
    assert max(told) <= held <= len(told) + len(unknown)


QWSTORE = ("MODEL", "strict", "CONCURRENCY", "qwstore", "REPLICAS", 3, "PARTITIONS", 2)


def test_qwstore_has_what_it_acknowledged_at_every_replica_and_after_a_restart(cluster):
    clients = [node.client(single_connection_client=True) for node in cluster]
    create(clients[0], "everywhere", *QWSTORE)
    assert info(clients[1], "everywhere")["concurrency"] == "qwstore"
    for client in clients:
        use(client, "everywhere")
    keys = [f"k{number}" for number in range(50)]
    for round_number, client in enumerate(clients):
        values = [f"{round_number}.{number}" for number in range(50)]
        assert client.mset(dict(zip(keys, values)))
        # All replicas have acknowledged it, so each, the one of its own process, shows it at once.
        assert all(reader.mget(keys) == values for reader in clients)
    assert clients[0].sadd("s", "x", "y") == 2 and clients[1].smembers("s") == {"x", "y"}
    for command, refused in (("WATCH k1", "watches"), ("DBSIZE", "whole keyspace"), ("TXN ABORT", "aborts|TXN BEGIN")):
        with pytest.raises(redis.ResponseError, match=refused):
            clients[0].execute_command(*command.split())
    clients[2].close()
    cluster.do("kill a/3", "restart a/3")
    with cluster["a/3"].client(single_connection_client=True) as client:
        wait_until(lambda: client.ping())
        use(client, "everywhere")
        assert client.mget(keys) == values and client.smembers("s") == {"x", "y"}
    for client in clients[:2]:
        client.close()


def test_qwstore_says_that_a_write_is_in_doubt_while_a_replica_is_away(cluster):
    with cluster["a/1"].client(single_connection_client=True) as client:
        create(client, "doubted", *QWSTORE)
        use(client, "doubted")
        assert client.set("k", "before")
        cluster.do("kill a/3")
        try:
            with pytest.raises(redis.ResponseError, match="UNKNOWNOUTCOME"):
                client.set("k", "after")
            assert client.get("k") == "after", "the closest replica has it"
        finally:
            cluster.do("restart a/3")
        assert client.set("k", "again") and client.get("k") == "again"
