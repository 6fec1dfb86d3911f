"""Branch keyspaces whose records lie in partitions: two regions of three processes, the site on one, records on two others."""

import threading
import time

import pytest
import redis

from branches import create_parted
from cluster import Cluster
from harness import wait_until

CONFIG = """
[storage]
checkpoint_after_bytes = 65_536
segment_bytes = 65_536
"""
KEYS = [f"key:{number}" for number in range(60)]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(2, 3, "--model", "branch", config=CONFIG) as cluster:
        create_parted(cluster)
        yield cluster


def kept(node) -> int:
    """How many keys the record partitions of a process keep."""
    with node.using("parted") as client:
        state = client.execute_command("KEYSPACE", "INFO", "parted")
    lines = dict(zip(state[::2], state[1::2]))["partitions_here"] if isinstance(state, list) else state["partitions_here"]
    return sum(int(line.split()[1]) for line in lines if line.startswith("records"))


def role(cluster, region: str) -> tuple[str, list[str]]:
    """The process with a region's site, and those with its records."""
    site, records = None, []
    for process in (1, 2, 3):
        name = f"{region}/{process}"
        with cluster[name].using("parted") as client:
            state = client.execute_command("KEYSPACE", "INFO", "parted")
        state = dict(zip(state[::2], state[1::2])) if isinstance(state, list) else state
        if any(line.startswith("site") for line in state["partitions_here"]):
            site = name
        if any(line.startswith("records") for line in state["partitions_here"]):
            records.append(name)
    return site, records


def heads(client) -> list:
    return client.execute_command("BRANCH", "HEADS")


def test_keys_lie_in_partitions_and_every_process_serves_them(cluster):
    clients = [node.using("parted") for node in cluster]
    for number, key in enumerate(KEYS):
        assert clients[number % 3].set(key, number)
        clients[number % 3].hset(f"h{key}", "field", number)
    for number, key in enumerate(KEYS):
        for client in clients[:3]:
            assert client.get(key) == str(number) and client.hget(f"h{key}", "field") == str(number)
    wait_until(lambda: all(client.get(KEYS[-1]) == str(len(KEYS) - 1) for client in clients[3:]))
    for region in "ab":
        site, records = role(cluster, region)
        assert site not in records and len(records) == 2
        wait_until(lambda: sum(kept(cluster[name]) for name in records) >= 2 * len(KEYS))
        assert all(kept(cluster[name]) > 20 for name in records)


def test_transactions_watches_and_merges_are_as_elsewhere(cluster):
    clients = [node.using("parted") for node in cluster]
    with clients[0].pipeline(transaction=True) as pipe:
        assert pipe.incr("n").incr("m").rpush("l", "a", "b").execute() == [1, 1, 2]
    with clients[1].pipeline() as pipe:
        pipe.watch("n")
        clients[0].incr("n")
        pipe.multi()
        pipe.set("n", "lost")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    wait_until(lambda: clients[3].get("n") == "2")
    cluster.do("cut a b")
    for _ in range(5):
        clients[0].incr("n")
        clients[4].incr("n")
    clients[0].sadd("s", "of a")
    clients[4].sadd("s", "of b")
    cluster.do("heal")
    wait_until(lambda: all(client.get("n") == "12" for client in clients))
    wait_until(lambda: all(client.smembers("s") == {"of a", "of b"} for client in clients))
    session = cluster["a/3"].using("parted")
    state = heads(session)[0]
    clients[0].set("n", "other")
    assert session.execute_command("AT", state, "GET", "n") == "12"
    with pytest.raises(redis.exceptions.ResponseError, match="record partitions"):
        session.keys("*")


def test_a_process_with_records_that_is_down_refuses_its_keys_and_no_others(cluster):
    _, records = role(cluster, "a")
    keys = [f"down:{number}" for number in range(40)]
    site, _ = role(cluster, "a")
    with cluster[site].using("parted") as client:
        assert all(client.set(key, "1") for key in keys)
    time.sleep(0.5)
    # What is near is served in any case: another life of the site has nothing near.
    cluster.do(f"kill {site}", f"restart {site}", f"kill {records[0]}")
    time.sleep(2)
    try:
        with cluster[site].using("parted") as client:
            wait_until(lambda: outcome(client, keys[0]) != "LOADING")
            outcomes = [outcome(client, key) for key in keys]
        assert set(outcomes) == {"1", "UNAVAILABLE"}
    finally:
        cluster.do(f"restart {records[0]}")
    with cluster[site].using("parted") as client:
        wait_until(lambda: all(outcome(client, key) == "1" for key in keys))


def outcome(client, key: str) -> str:
    try:
        return client.get(key)
    except redis.exceptions.ConnectionError:
        return "CONNECTION"
    except redis.exceptions.RedisError as error:
        return str(error).split(" ", 1)[0]


def test_nothing_is_lost_or_counted_twice_where_processes_are_killed(cluster):
    names = [node.name for node in cluster]
    acknowledged, unknown, errors = dict.fromkeys(names, 0), dict.fromkeys(names, 0), []
    stopping = threading.Event()

    def count(name):
        """Increments counters that all share, and one of its own."""
        while not stopping.is_set():
            try:
                with cluster[name].using("parted", socket_timeout=6) as client:
                    while not stopping.is_set():
                        with client.pipeline(transaction=True) as pipe:
                            pipe.incr(f"all:{acknowledged[name] % 7}").incr(f"of {name}").execute()
                        acknowledged[name] += 1
                        time.sleep(0.004)
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                unknown[name] += 1
                time.sleep(0.05)
            except redis.exceptions.ResponseError as error:
                if not str(error).startswith(("UNAVAILABLE", "UNKNOWNOUTCOME", "LOADING", "TIMEOUT")):
                    errors.append(error)
                    raise
                unknown[name] += 1
                time.sleep(0.05)

    threads = [threading.Thread(target=count, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for victim in names:
        time.sleep(0.7)
        cluster.do(f"kill {victim}")
        time.sleep(0.3)
        cluster.do(f"restart {victim}")
    time.sleep(2)
    stopping.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    ends = [cluster[name].using("parted") for name in ("a/1", "b/1")]
    wait_until(lambda: heads(ends[0]) == heads(ends[1]) and len(heads(ends[0])) == 1, 40)
    counts = [[int(client.get(f"of {name}") or 0) for name in names] for client in ends]
    shared = [sum(int(client.get(f"all:{number}") or 0) for number in range(7)) for client in ends]
    assert counts[0] == counts[1] and shared == [sum(counts[0])] * 2
    for name, found in zip(names, counts[0]):
        assert acknowledged[name] > 0
        assert acknowledged[name] <= found <= acknowledged[name] + unknown[name]
