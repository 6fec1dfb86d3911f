"""Causal keyspaces: what a write of one region loses to a concurrent one of another is listed in both, until it is
resolved (docs/internals/merging.md)."""

import itertools

import pytest
import redis

from cluster import Cluster
from harness import wait_until

BOTH = ("a/1", "b/1")
MARKS = itertools.count()

# A key, what was there before, what region a does, what region b does, and of which parts of the key one value is lost:
# the element, and the two values.
SCENES = [
    ("set", ["SET {k} old"], ["SET {k} one"], ["SET {k} two"], [(None, "one", "two")]),
    ("set-same", ["SET {k} old"], ["SET {k} same"], ["SET {k} same"], []),
    ("set-del", ["SET {k} old"], ["SET {k} new"], ["DEL {k}"], []),
    ("set-again", [], ["SET {k} one", "SET {k} three"], ["SET {k} two"], [(None, "three", "two")]),
    ("set-and-del", [], ["SET {k} one", "DEL {k}"], ["SET {k} two"], []),
    ("incr", ["SET {k} 10"], ["INCR {k}"], ["INCRBY {k} 7"], []),
    ("incr-set", ["SET {k} 10"], ["SET {k} 100"], ["INCRBY {k} 7"], []),
    ("append", [], ["APPEND {k} one"], ["APPEND {k} two"], []),
    (
        "append-expire",
        ["SET {k} old"],
        ["APPEND {k} one"],
        ["PEXPIREAT {k} 4000000000000"],
        [(None, "APPEND one", "PEXPIREAT 4000000000000")],
    ),
    (
        "expire-sadd",
        ["SADD {k} a"],
        ["PEXPIREAT {k} 4000000000000"],
        ["SADD {k} b"],
        [(None, "SADD b", "PEXPIREAT 4000000000000")],
    ),
    ("incr-expire", [], ["INCR {k}", "PEXPIREAT {k} 4000000000000"], ["INCR {k}", "PEXPIREAT {k} 4000000000001"], []),
    ("expire-incr", ["SET {k} 1"], ["PEXPIREAT {k} 4000000000000", "INCR {k}"], ["PEXPIREAT {k} 4000000000001"], []),
    ("sadd-expire-persist", ["SADD {k} a"], ["SADD {k} b"], ["PEXPIREAT {k} 4000000000000", "PERSIST {k}"], []),
    ("hset", ["HSET {k} f 0 g 0"], ["HSET {k} f 1 g 2"], ["HSET {k} f 3 h 4"], [("f", "1", "3")]),
    ("hset-hdel", ["HSET {k} f 0"], ["HSET {k} f 1"], ["HDEL {k} f"], []),
    ("hset-del", ["HSET {k} f 0"], ["HSET {k} f 1"], ["DEL {k}"], []),
    ("hincrby", ["HSET {k} f 0"], ["HSET {k} f 10"], ["HINCRBY {k} f 3"], []),
    ("zadd", [], ["ZADD {k} 1 m"], ["ZADD {k} 2 m"], [("m", "1", "2")]),
    ("sadd", [], ["SADD {k} a"], ["SADD {k} b"], []),
    ("rpush", [], ["RPUSH {k} a"], ["RPUSH {k} b"], []),
    ("type", [], ["SET {k} one"], ["SADD {k} m"], [(None, "one", "SADD m")]),
    ("incr-word", ["SET {k} 10"], ["INCRBY {k} 5"], ["SET {k} word"], [(None, "INCRBY 5", "word")]),
    ("word-incr", ["SET {k} 10"], ["SET {k} word"], ["INCRBY {k} 5"], [(None, "INCRBY 5", "word")]),
    ("incr-settled", ["SET {k} 10"], ["INCRBY {k} 5", "SET {k} 9"], ["SET {k} word"], [(None, "9", "word")]),
    ("incr-type", [], ["INCRBY {k} 5"], ["SADD {k} m"], [(None, "INCRBY 5", "SADD m")]),
    ("hincrby-word", ["HSET {k} f 0"], ["HINCRBY {k} f 3"], ["HSET {k} f word"], [("f", "HINCRBY f 3", "word")]),
    ("lset", ["RPUSH {k} o p"], ["LSET {k} 0 one"], ["LSET {k} 0 two"], [("0", "one", "two")]),
    ("lset-apart", ["RPUSH {k} o p"], ["LSET {k} 0 one"], ["LSET {k} 1 two"], []),
    ("lset-moved", ["RPUSH {k} o"], ["LPUSH {k} n", "LSET {k} 1 one"], ["DEL {k}"], [("1", "one", "DEL")]),
    ("lset-lpop", ["RPUSH {k} o p"], ["LSET {k} 0 one"], ["LPOP {k}"], [("0", "one", "LPOP")]),
    ("lpop-lset", ["RPUSH {k} o p"], ["LPOP {k}"], ["LSET {k} 0 one"], [("0", "one", "LPOP")]),
    (
        "rename",
        ["HSET {k} f 0", "HSET {k}:from f 1 g 2"],
        ["HSET {k} f 3"],
        ["RENAME {k}:from {k}"],
        [("f", "1", "3")],
    ),
    ("rename-hdel", ["HSET {k} f 0", "HSET {k}:from f 1"], ["HDEL {k} f"], ["RENAME {k}:from {k}"], []),
]


def do(client, key: str, commands: list[str]) -> None:
    for command in commands:
        client.execute_command(*command.format(k=key).split())


def conflicts(client, *arguments: str) -> list[dict]:
    """Everything that is listed, piece by piece. What becomes final meanwhile may be told twice, under one id."""
    cursor, found = "0", {}
    while True:
        cursor, piece = client.execute_command("CONFLICTS", "LIST", "CURSOR", cursor, *arguments)
        for entry in piece:
            known = found.setdefault(entry["id"], entry)
            assert known == entry, (known, entry)
        if cursor == "0":
            return sorted(found.values(), key=lambda entry: entry["id"])


def count(client) -> list[int]:
    return client.execute_command("CONFLICTS", "COUNT")


@pytest.fixture(scope="module", params=[(), ("--replicas", "2")], ids=["wren", "paris"])
def regions(request):
    with Cluster(2, 2, "--model", "causal", *request.param) as cluster:
        yield cluster


def in_info(cluster) -> int:
    """How many the processes of region a tell of."""
    total = 0
    for name in ("a/1", "a/2"):
        with cluster[name].client() as client:
            total += int(client.info("cluster")["cluster_conflicts"]["default"])
    return total


def settled(cluster, prefix: str) -> list[dict]:
    """What both regions list of these keys, once they list the same and nothing changes any more."""
    with cluster["a/1"].client() as a, cluster["b/1"].client() as b:
        # Whoever sees these has all that came before them.
        mark = str(next(MARKS))
        a.set("healed-a", mark)
        b.set("healed-b", mark)
        wait_until(lambda: b.get("healed-a") == mark and a.get("healed-b") == mark)
        listed = [conflicts(client, "MATCH", f"{prefix}:*") for client in (a, b)]
        assert listed[0] == listed[1]
        return listed[0]


def cut_and_heal(cluster, prefix: str) -> None:
    """Both regions write without hearing of each other."""
    with cluster["a/1"].client() as a, cluster["b/1"].client() as b:
        for name, before, *_ in SCENES:
            do(a, f"{prefix}:{name}", before)
        a.set(f"{prefix}:begun", "yes")
        wait_until(lambda: b.get(f"{prefix}:begun") == "yes")
        cluster.do("cut a b")
        try:
            for name, _, here, there, _ in SCENES:
                do(a, f"{prefix}:{name}", here)
                do(b, f"{prefix}:{name}", there)
        finally:
            cluster.do("heal")


def wanted(prefix: str) -> list[tuple]:
    return sorted((f"{prefix}:{name}", part or "", {one, two}) for name, *_, lost in SCENES for part, one, two in lost)


def told(listed: list[dict]) -> list[tuple]:
    values = [(e["key"], e["element"] or "", {e["lost"]["value"], e["kept"]["value"]}) for e in listed]
    return sorted(values)


def test_every_lost_write_is_listed_in_both_regions_and_nothing_else(regions):
    cut_and_heal(regions, "list")
    listed = settled(regions, "list")
    assert told(listed) == wanted("list")
    with regions["a/1"].client() as a:
        for entry in listed:
            assert {entry["lost"]["region"], entry["kept"]["region"]} == {"a", "b"}
            # What a write may be hidden by, though it is earlier, is in the names of the keys.
            earlier = ("word-incr", "lpop-lset", "rename", "expire-sadd")
            if not entry["key"].endswith(earlier):
                assert entry["lost"]["time_us"] <= entry["kept"]["time_us"]
        # What is kept is what is read.
        for entry in (entry for entry in listed if entry["part"] == "value" and "type" not in entry["key"]):
            assert a.get(entry["key"]) == entry["kept"]["value"]
        assert count(a)[0] >= len(listed) and count(a)[1] == 0
        # Once every write that may come has observed them, they are listed for good, and counted in INFO.
        wait_until(lambda: in_info(regions) >= len(listed))
        assert len(a.execute_command("CONFLICTS", "LIST", "COUNT", "2", "MATCH", "list:*")[1]) >= 2


def test_what_is_resolved_in_one_region_is_so_in_both_and_survives_kills(regions):
    cut_and_heal(regions, "resolve")
    listed = settled(regions, "resolve")
    assert told(listed) == wanted("resolve")
    with regions["a/1"].client() as a, regions["b/2"].client() as b:
        first, second, *rest = listed
        assert a.execute_command("CONFLICTS", "RESOLVE", "ID", first["id"]) == 1
        assert a.execute_command("CONFLICTS", "RESOLVE", "ID", first["id"]) == 0
        assert b.execute_command("CONFLICTS", "RESOLVE", "KEY", second["key"], "resolve:incr") == 1
        assert settled(regions, "resolve") == rest
    for name in ("a/1", "b/1", "a/2", "b/2"):
        regions.do(f"kill {name}", f"restart {name}")
    for name in BOTH:
        with regions[name].client() as client:
            wait_until(lambda: answers(client))
    assert settled(regions, "resolve") == rest
    assert told(settled(regions, "list")) == wanted("list")
    with regions["b/1"].client() as b, regions["a/2"].client() as a:
        keys = {entry["key"] for entry in rest}
        assert b.execute_command("CONFLICTS", "RESOLVE", "KEY", *keys) == len(rest)
        wait_until(lambda: conflicts(a, "MATCH", "resolve:*") == conflicts(b, "MATCH", "resolve:*") == [])


def answers(client) -> bool:
    try:
        return bool(client.set("answers", "yes")) and bool(count(client))
    except redis.RedisError:
        return False


def test_a_keyspace_that_ignores_conflicts_lists_none(regions):
    with regions["a/1"].client() as a, regions["b/1"].client() as b:
        a.execute_command("KEYSPACE", "CREATE", "careless", "MODEL", "causal", "CONFLICTS", "ignore")
        for client in (a, b):
            wait_until(lambda: uses(client, "careless"))
            with pytest.raises(redis.ResponseError, match="records no conflicts"):
                client.execute_command("CONFLICTS", "COUNT")
            with pytest.raises(redis.ResponseError, match="records no conflicts"):
                client.execute_command("CONFLICTS", "RESOLVE", "KEY", "k")


def uses(client, name: str) -> bool:
    try:
        return bool(client.execute_command("KEYSPACE", "USE", name))
    except redis.ResponseError:
        return False


def test_keyspaces_without_a_list_say_so(regions):
    with regions["a/1"].client() as a:
        a.execute_command("KEYSPACE", "CREATE", "strict", "MODEL", "strict", "REPLICAS", "1")
        wait_until(lambda: uses(a, "strict"))
        for words in (["COUNT"], ["LIST"]):
            with pytest.raises(redis.ResponseError, match="records no conflicts"):
                a.execute_command("CONFLICTS", *words)
        with pytest.raises(redis.ResponseError, match="no conflicts to resolve here|records no conflicts"):
            a.execute_command("CONFLICTS", "RESOLVE", "KEY", "k")


@pytest.mark.parametrize(
    "words, error",
    [
        (("RESOLVE", "ID", "nonsense"), "is no id of a conflict"),
        (("RESOLVE", "ALL", "k"), "needs ID id"),
        (("LIST", "COUNT", "many"), "not an integer"),
        (("LIST", "CURSOR"), "syntax error"),
        (("FORGET",), "unknown subcommand"),
    ],
)
def test_what_is_malformed_is_refused(regions, words, error):
    with regions["a/1"].client() as a:
        with pytest.raises(redis.ResponseError, match=error):
            a.execute_command("CONFLICTS", *words)


def test_conflicts_does_not_alter(regions):
    with regions["a/1"].client() as a:
        with pytest.raises(redis.ResponseError, match="CONFLICTS stays"):
            a.execute_command("KEYSPACE", "ALTER", "default", "CONFLICTS", "ignore")
        with pytest.raises(redis.ResponseError, match="CONFLICTS is record, ignore, keep or handler"):
            a.execute_command("KEYSPACE", "CREATE", "x", "MODEL", "causal", "CONFLICTS", "perhaps")
        with pytest.raises(redis.ResponseError, match="unknown keyspace option 'CONFLICTS'"):
            a.execute_command("KEYSPACE", "CREATE", "x", "MODEL", "strict", "CONFLICTS", "ignore")
