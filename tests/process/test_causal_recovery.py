"""Causal clusters whose processes lose their memory, and regions that are cut off for long."""

import shutil
import time

import pytest
import redis

from cluster import Cluster
from harness import wait_until


def data_of(cluster: Cluster, name: str):
    """The data directory of a process."""
    return cluster.folder / "data" / name.replace("/", "-") / "data"


def lose(cluster: Cluster, name: str) -> None:
    """Kills a process and deletes its data directory."""
    # Without a directory a life is named after the second in which it begins: two in one second would be one.
    time.sleep(1.1)
    cluster.do(f"kill {name}")
    shutil.rmtree(data_of(cluster, name))


def partitions(client: redis.Redis, keyspace: str = "default") -> list[str]:
    reply = client.execute_command("KEYSPACE", "INFO", keyspace)
    about = dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply
    return about["partitions_here"]


@pytest.mark.parametrize("durability", [pytest.param("always", marks=pytest.mark.soak), "everysec"])
def test_a_process_that_lost_its_data_takes_it_from_the_other_region(durability):
    with Cluster(2, 2, "--model", "causal", "--durability", durability) as cluster:
        keys = {f"lost:{number}": "x" * 100 + str(number) for number in range(500)}
        with cluster["a/1"].client() as a, cluster["b/1"].client() as b:
            a.mset(keys)
            for number in range(20):
                a.incr(f"lost:sum:{number}")
                b.incr(f"lost:sum:{number}")
                b.sadd(f"lost:set:{number}", "here")
            sums = [f"lost:sum:{number}" for number in range(20)]
            wait_until(lambda: b.mget(list(keys)) == list(keys.values()))
            wait_until(lambda: a.mget(sums) == b.mget(sums) == ["2"] * 20)
            for name in ("a/2", "b/1", "a/1"):
                lose(cluster, name)
                alive = cluster["b/2" if name.startswith("a") else "a/2"]
                with alive.client() as other:
                    other.set("meanwhile:" + name, "written")
                cluster.do(f"restart {name}")
                with cluster[name].client() as back:
                    wait_until(lambda: serves(back, keys, sums))
                    wait_until(lambda: back.get("meanwhile:" + name) == "written")
                    assert all("serving" in state for state in partitions(back))
                    back.set("after:" + name, "written")
                wait_until(lambda: reads(b, "after:" + name) == reads(a, "after:" + name) == "written")
            for number in range(20):
                a.incr(f"lost:sum:{number}")
            wait_until(lambda: a.mget(sums) == b.mget(sums) == ["3"] * 20)
            assert all(b.smembers(f"lost:set:{number}") == {"here"} for number in range(20))


def reads(client: redis.Redis, key: str):
    """A value, or None while nothing is served."""
    try:
        return client.get(key)
    except redis.exceptions.RedisError:
        return None


def serves(client: redis.Redis, keys: dict, sums: list) -> bool:
    """True once everything that was replicated is read."""
    try:
        return client.mget(list(keys)) == list(keys.values()) and client.mget(sums) == ["2"] * len(sums)
    except redis.exceptions.ResponseError as error:
        assert "UNAVAILABLE" in str(error) or "SNAPSHOTTOOOLD" in str(error), error
        return False


def test_what_was_taken_survives_another_kill():
    with Cluster(2, 1, "--model", "causal") as cluster:
        with cluster["a/1"].client() as a, cluster["b/1"].client() as b:
            a.set("kept", "1")
            wait_until(lambda: b.get("kept") == "1")
            lose(cluster, "a/1")
            cluster.do("restart a/1")
            wait_until(lambda: reads(a, "kept") == "1")
            wait_until(lambda: "everything that was missing has been learnt" in cluster.logs())
            a.set("new", "2")
            cluster.do("cut a b", "kill a/1", "restart a/1")
            wait_until(lambda: reads(a, "kept") == "1" or "lost records" in str(partitions(a)))
            cluster.do("heal")
            wait_until(lambda: reads(a, "kept") == "1" and reads(a, "new") == "2")
            wait_until(lambda: b.get("new") == "2")


def test_a_region_alone_says_what_to_do_and_accepts_the_loss():
    with Cluster(1, 2, "--model", "causal") as cluster:
        keys = [f"alone:{number}" for number in range(40)]
        with cluster["a/1"].client() as a:
            for key in keys:
                a.set(key, "x")
            lose(cluster, "a/2")
            cluster.do("restart a/2")
            errors = set()
            for key in keys:
                try:
                    a.set(key, "y")
                except redis.exceptions.ResponseError as error:
                    errors.add(str(error))
            # The first one was sent before the gateway knew of the new life, so its outcome is unknown.
            assert any("UNAVAILABLE" in error and "--accept-loss" in error for error in errors), errors
            assert all("UNAVAILABLE" in error or "lost its memory" in error for error in errors), errors
            cluster.do("kill a/2", "accept-loss a/2")
            wait_until(lambda: all(reads(a, key) in ("x", "y", None) for key in keys))
            wait_until(lambda: takes(a, keys))
            assert a.mget(keys) == ["z"] * len(keys)
            # Until a checkpoint holds it and the directory says so, the loss would have to be accepted again.
            log = cluster.folder / "data" / "a-2" / "log"
            wait_until(lambda: "everything that was missing" in log.read_text())
            cluster.do("kill a/2", "restart a/2")
            wait_until(lambda: takes(a, keys))


def takes(client: redis.Redis, keys: list) -> bool:
    """True once every key can be written."""
    try:
        return all(client.set(key, "z") for key in keys)
    except redis.exceptions.ResponseError:
        return False
