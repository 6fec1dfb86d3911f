"""Causal keyspaces: what concurrent changes of two regions come to (docs/internals/merging.md)."""

import pytest

from cluster import Cluster
from harness import wait_until

# A key, what was there before, what region a does, what region b does, how it is read, and what both read in the end.
# Deadlines are far away.
FAR = 4_000_000_000_000
SCENES = [
    ("incr", ["SET {k} 10"], ["INCRBY {k} 5", "INCR {k}"], ["INCRBY {k} 7"], "GET {k}", "23"),
    ("incr-del", ["SET {k} 10"], ["DEL {k}"], ["INCRBY {k} 7"], "GET {k}", "7"),
    ("incr-set", ["SET {k} 10"], ["SET {k} 100"], ["INCRBY {k} 7"], "GET {k}", "107"),
    ("del", ["SET {k} x"], ["DEL {k}"], [], "GET {k}", None),
    ("del-twice", ["SET {k} x"], ["DEL {k}"], ["DEL {k}"], "GET {k}", None),
    ("set-del", ["SET {k} x"], ["SET {k} y"], ["DEL {k}"], "GET {k}", "y"),
    ("sadd", ["SADD {k} o"], ["SADD {k} a"], ["SADD {k} b"], "SMEMBERS {k}", {"o", "a", "b"}),
    ("sadd-srem", ["SADD {k} o p"], ["SADD {k} o"], ["SREM {k} o p"], "SMEMBERS {k}", {"o"}),
    ("sadd-del", ["SADD {k} o"], ["SADD {k} a"], ["DEL {k}"], "SMEMBERS {k}", {"a"}),
    ("srem-twice", ["SADD {k} o p"], ["SREM {k} o"], ["SREM {k} o"], "SMEMBERS {k}", {"p"}),
    ("hset", ["HSET {k} f 1"], ["HSET {k} g 2"], ["HDEL {k} f"], "HGETALL {k}", {"g": "2"}),
    ("hincrby", ["HSET {k} f 1"], ["HINCRBY {k} f 2"], ["HINCRBY {k} f 3"], "HGETALL {k}", {"f": "6"}),
    ("hset-hdel", ["HSET {k} f 1"], ["HSET {k} f 2"], ["HDEL {k} f"], "HGETALL {k}", {"f": "2"}),
    ("hexpire-hincrby", ["HSET {k} f 1"], [f"HPEXPIREAT {{k}} {FAR} FIELDS 1 f"], ["HINCRBY {k} f 1"], "HPEXPIRETIME {k} FIELDS 1 f", [FAR]),
    ("hexpire-hdel", ["HSET {k} f 1 g 1"], [f"HPEXPIREAT {{k}} {FAR} FIELDS 1 f"], ["HDEL {k} f"], "HGETALL {k}", {"g": "1"}),
    ("expired-hset", ["HSET {k} f 1"], ["HPEXPIREAT {k} 1 FIELDS 1 f"], ["HSET {k} f 2"], "HGETALL {k}", {"f": "2"}),
    ("hsetex-hdel", ["HSET {k} f 1"], [f"HSETEX {{k}} PXAT {FAR} FIELDS 1 f 2"], ["HDEL {k} f"], "HPEXPIRETIME {k} FIELDS 1 f", [FAR]),
    ("zincrby", ["ZADD {k} 1 m"], ["ZINCRBY {k} 2 m"], ["ZINCRBY {k} 4 m"], "ZSCORE {k} m", 7.0),
    ("zadd-zrem", ["ZADD {k} 1 m"], ["ZADD {k} 5 m"], ["ZREM {k} m"], "ZSCORE {k} m", 5.0),
    ("rpush-lpop", ["RPUSH {k} o p"], ["LPOP {k}"], ["RPUSH {k} b"], "LRANGE {k} 0 -1", ["p", "b"]),
    ("rpush-del", ["RPUSH {k} o p"], ["DEL {k}"], ["RPUSH {k} b"], "LRANGE {k} 0 -1", ["b"]),
    ("lpop-twice", ["RPUSH {k} o p q"], ["LPOP {k}"], ["LPOP {k}"], "LRANGE {k} 0 -1", ["p", "q"]),
]


def do(client, key: str, commands: list[str]) -> None:
    for command in commands:
        client.execute_command(*command.format(k=key).split())


@pytest.fixture(scope="module")
def regions():
    with Cluster(2, 2, "--model", "causal") as cluster:
        yield cluster


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_concurrent_changes_of_regions_that_are_cut_apart_reset_only_what_they_saw(regions, restart):
    keys = [f"{restart}:{name}" for name, *_ in SCENES]
    with regions["a/1"].client() as a, regions["b/1"].client() as b:
        for key, (_, before, *_) in zip(keys, SCENES):
            do(a, key, before)
        a.set(f"{restart}:begun", "yes")
        wait_until(lambda: b.get(f"{restart}:begun") == "yes")
        regions.do("cut a b")
        try:
            for key, (_, _, here, there, _, _) in zip(keys, SCENES):
                do(a, key, here)
                do(b, key, there)
            if restart:
                # The regions are still apart: who did what is in the logs.
                for name in ("a/1", "a/2", "b/1", "b/2"):
                    regions.do(f"kill {name}", f"restart {name}")
                wait_until(lambda: can_write(regions, "a/1") and can_write(regions, "b/1"))
        finally:
            regions.do("heal")
        for key, (name, _, _, _, read, wanted) in zip(keys, SCENES):
            for client in (a, b):
                command = read.format(k=key).split()
                wait_until(lambda: client.execute_command(*command) == wanted)


def can_write(regions, name: str) -> bool:
    with regions[name].client() as client:
        return bool(client.set(f"written:{name}", "x"))


def test_keys_that_are_overdue_leave_though_nobody_meets_them(regions):
    """DBSIZE counts what occupies memory. A key whose deadline one region moves in time stays in both."""
    with regions["a/1"].client() as a, regions["b/2"].client() as b:
        before = a.dbsize()
        for number in range(300):
            a.set(f"overdue:{number}", "x", px=1500)
        a.set("refreshed", "x", px=3000)
        wait_until(lambda: b.get("refreshed") == "x")
        assert b.expire("refreshed", 3600)
        wait_until(lambda: a.dbsize() <= before + 1 and b.dbsize() <= before + 1, timeout=60, every=0.25)
        assert a.get("refreshed") == b.get("refreshed") == "x"


def test_dead_keys_do_not_count_while_a_region_is_cut_off(regions):
    """What has expired stays until the other region is back, but DBSIZE, INFO and KEYSPACE INFO tell what lives."""
    with regions["a/1"].client() as a, regions["b/1"].client() as b:
        wait_until(lambda: a.dbsize() == b.dbsize())
        before = a.dbsize()
        regions.do("cut a b")
        try:
            for number in range(300):
                a.set(f"dead:{number}", "x", px=200 if number < 200 else None)
                a.hset(f"gone:{number % 10}", "f", number)
            assert a.dbsize() >= before + 110
            for number in range(200, 300):
                a.delete(f"dead:{number}")
            for number in range(10):
                a.delete(f"gone:{number}")
            a.set("dead:0", "again")
            wait_until(lambda: a.dbsize() == before + 1)
            wait_until(lambda: sum(database["keys"] for database in a.info("keyspace").values()) <= before + 1)
        finally:
            regions.do("heal")
        wait_until(lambda: a.dbsize() == b.dbsize() == before + 1)
