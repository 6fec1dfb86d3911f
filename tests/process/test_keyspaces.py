"""Keyspaces created in a running cluster."""

import threading

import pytest
import redis

from cluster import Cluster
from harness import wait_until


def create(client, name: str, *options) -> None:
    assert client.execute_command("KEYSPACE", "CREATE", name, *options) == "OK"


def use(client, name: str) -> None:
    assert client.execute_command("KEYSPACE", "USE", name) == "OK"


def info(client, name: str) -> dict:
    flat = client.execute_command("KEYSPACE", "INFO", name)
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2]))


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 5) as cluster:
        yield cluster


def test_a_strict_keyspace_serves_every_process_at_once(cluster):
    with cluster["a/1"].client() as client:
        create(client, "orders", "MODEL", "strict", "PARTITIONS", 4, "REPLICAS", 3)
    placed = 0
    for number, node in enumerate(cluster, 1):
        with node.client(single_connection_client=True) as client:
            use(client, "orders")
            assert client.incr("count") == number
            # Both keys, whichever shards they are in and wherever these are.
            client.execute_command("TXN", "BEGIN")
            assert client.set(f"left:{number}", number) and client.set(f"right:{number}", number)
            client.execute_command("TXN", "COMMIT")
            description = info(client, "orders")
            assert (description["model"], description["partitions"]) == ("strict", 4)
            placed += len(description["partitions_here"])
    assert placed == 4 * 3
    with cluster["a/3"].client() as client:
        assert client.get("count") is None, "the default keyspace is another"
        assert client.execute_command("KEYSPACE", "LIST") == ["default", "orders"]


def test_every_model_and_concurrency_can_be_chosen(cluster):
    for name, options in [
        ("locks", ("MODEL", "strict", "CONCURRENCY", "locking", "REPLICAS", 3)),
        ("near", ("MODEL", "causal", "PARTITIONS", 7)),
    ]:
        with cluster["a/2"].client() as client:
            create(client, name, *options)
        for number, node in enumerate(cluster, 1):
            with node.client(single_connection_client=True) as client:
                use(client, name)
                wait_until(lambda: client.incr("count") >= number)
                assert client.mset({f"key:{index}": "x" for index in range(20)})
                assert client.mget([f"key:{index}" for index in range(20)]) == ["x"] * 20


@pytest.mark.parametrize(
    "options, reason",
    [
        (("MODEL", "strict", "REPLICAS", 2), "1, 3, 5"),
        (("MODEL", "strict", "REPLICAS", 7), "the cluster has 5"),
        (("MODEL", "strict", "PARTITIONS", 0), "1 to 1024"),
        (("MODEL", "strict", "PARTITIONS", "many"), "PARTITIONS is a number"),
        (("MODEL", "strict", "CONCURRENCY", "luck"), "optimistic, locking or occ"),
        (("MODEL", "causal", "REPLICAS", 3), "one replica in every region"),
        (("MODEL", "strict", "COLOUR", "red"), "unknown keyspace option"),
        (("MODEL", "branch"), "not built yet"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_reason(cluster, options, reason):
    with cluster["a/1"].client() as client:
        with pytest.raises(redis.ResponseError, match=reason):
            create(client, "refused", *options)
        with pytest.raises(redis.ResponseError, match="no keyspace"):
            use(client, "refused")


def test_one_of_many_creators_of_a_name_wins():
    """Processes create at the same time: each name once, and nothing is lost."""
    with Cluster(1, 3) as cluster:
        outcomes = []

        def run(node, number):
            with node.client() as client:
                for index in range(6):
                    for name in (f"shared-{index}", f"own-{number}-{index}"):
                        while True:
                            try:
                                outcomes.append((name, client.execute_command("KEYSPACE", "CREATE", name, "MODEL", "strict")))
                            except redis.ResponseError as error:
                                if "retry" in str(error):
                                    continue
                                assert "exists already" in str(error)
                            break

        threads = [threading.Thread(target=run, args=(node, number)) for number, node in enumerate(cluster)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        created = sorted(name for name, _ in outcomes)
        expected = [f"shared-{index}" for index in range(6)]
        expected += [f"own-{number}-{index}" for number in range(3) for index in range(6)]
        assert created == sorted(expected)
        for node in cluster:
            with node.client() as client:
                assert sorted(client.execute_command("KEYSPACE", "LIST")) == sorted(["default", *expected])


def test_keyspaces_outlive_processes_and_the_cluster():
    with Cluster(1, 3) as cluster:
        cluster.do("kill a/2")
        with cluster["a/1"].client(single_connection_client=True) as client:
            create(client, "kept", "MODEL", "strict", "PARTITIONS", 3)
            use(client, "kept")
            assert client.mset({f"key:{index}": index for index in range(50)})
        cluster.do("restart a/2")

        def check(node):
            with node.client(single_connection_client=True) as client:
                use(client, "kept")
                assert client.mget([f"key:{index}" for index in range(50)]) == [str(index) for index in range(50)]
                assert client.incr(f"seen:{node.name}") > 0

        check(cluster["a/2"])
        cluster.do("kill a/1")
        check(cluster["a/2"])
        cluster.do("restart a/1")
        check(cluster["a/1"])
        assert cluster.stop() == 0
        cluster.start()
        for node in cluster:
            check(node)
