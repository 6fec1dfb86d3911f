"""Clients that spread over the processes of a cluster by a map of slots: CLUSTER, and redis-py's RedisCluster."""

import time

import pytest
from redis.cluster import RedisCluster

from cluster import Cluster
from harness import Redis, wait_until


@pytest.fixture(scope="module")
def processes():
    with Cluster(1, 3) as cluster:
        wait_until(lambda: all(len(node.client().cluster("SLOTS")) == 3 for node in cluster))
        yield cluster


def commands(node) -> int:
    return node.client().info("commandstats").get("cmdstat_set", {"calls": 0})["calls"]


def test_a_client_of_redis_cluster_spreads_over_the_processes(processes):
    first = next(iter(processes))
    with RedisCluster(host="127.0.0.1", port=first.port, decode_responses=True) as client:
        assert {node.port for node in client.get_nodes()} == {node.port for node in processes}
        for number in range(300):
            assert client.set(f"key:{number}", number)
        assert [client.get(f"key:{number}") for number in range(300)] == [str(number) for number in range(300)]
        assert all(commands(node) > 50 for node in processes), "each had its share"
        assert client.mset_nonatomic({"{a}1": 1, "{b}1": 2}) and client.mget_nonatomic("{a}1", "{b}1") == ["1", "2"]
        assert client.keyslot("key:1") == first.client().execute_command("CLUSTER", "KEYSLOT", "key:1")
        pipe = client.pipeline()
        [pipe.incr(f"count:{number}") for number in range(100)]
        assert pipe.execute() == [1] * 100


def test_commands_over_slots_work_at_any_process(processes):
    for node in processes:
        client = node.client()
        assert client.mset({f"over:{number}": number for number in range(20)})
        assert client.mget([f"over:{number}" for number in range(20)]) == [str(number) for number in range(20)]
        with client.pipeline() as pipe:
            assert pipe.incr("one").decr("other").get("over:7").execute()[2] == "7"
        client.delete("one", "other")
        assert client.execute_command("READONLY") and client.execute_command("ASKING")


def test_every_process_tells_the_same_map(processes):
    maps = [node.raw().call("CLUSTER", "SLOTS").raw for node in processes]
    assert len(set(maps)) == 1
    names = {node.client().execute_command("CLUSTER", "MYID") for node in processes}
    assert len(names) == 3
    for node in processes:
        listed = node.client().cluster("NODES")
        assert {entry["node_id"] for entry in listed.values()} == names
        assert sum("myself" in entry["flags"] for entry in listed.values()) == 1
        assert node.client().cluster("INFO")["cluster_state"] == "ok"
        assert node.client().info("cluster")["cluster_enabled"] == 0


def test_slots_of_keys_are_those_of_redis(processes):
    client = next(iter(processes)).client()
    client.mset({"{tag}1": 1, "{tag}2": 2})
    slot = client.execute_command("CLUSTER", "KEYSLOT", "{tag}anything")
    assert client.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 2
    assert client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10) == ["{tag}1", "{tag}2"]


def test_who_is_gone_has_no_slots(tmp_path):
    with Cluster(1, 3) as cluster:
        nodes = list(cluster)
        wait_until(lambda: all(len(node.client().cluster("SLOTS")) == 3 for node in nodes))
        client = RedisCluster(host="127.0.0.1", port=nodes[0].port)
        assert client.set("before", 1)
        cluster.do(f"kill {nodes[2].name}")
        wait_until(lambda: all(len(node.client().cluster("SLOTS")) == 2 for node in nodes[:2]))
        lines = nodes[0].client().cluster("NODES").values()
        assert [entry["connected"] for entry in lines].count(False) == 1
        deadline = time.monotonic() + 60
        written = 0
        while written < 50:
            assert time.monotonic() < deadline
            try:
                client.set(f"after:{written}", 1)
                written += 1
            except Exception:  # noqa: BLE001 - the client has yet to learn of it
                time.sleep(0.1)


def test_a_region_has_its_own_processes(tmp_path):
    with Cluster(2, 2, "--model", "causal") as cluster:
        wait_until(lambda: all(len(node.client().cluster("SLOTS")) == 2 for node in cluster))
        for region in ("a", "b"):
            ports = {node.port for node in cluster if node.name.startswith(region)}
            for node in cluster:
                if node.name.startswith(region):
                    shards = node.raw().call("CLUSTER", "SLOTS").items
                    assert {int(shard.items[2].items[1].text) for shard in shards} == ports


def test_a_process_by_itself_replies_as_redis_without_a_cluster(server):
    with Redis() as peer, server.raw() as ours, peer.raw() as theirs:
        for words in (["CLUSTER", "SLOTS"], ["CLUSTER", "NODES"], ["CLUSTER", "INFO"], ["READONLY"], ["ASKING"], ["CLUSTER"], ["CLUSTER", "FOO"]):
            assert ours.call(*words).raw == theirs.call(*words).raw, words
