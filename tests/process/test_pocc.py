"""Causal keyspaces with PROTOCOL pocc: what has arrived is read at once, and only what is missing is waited for."""

import os
import time

import pytest
import redis

from cluster import Cluster
from harness import wait_until

REGIONS = "abc"
SLOW_MS = 150
# How long a region stays cut off while sessions go on without it: ten minutes in a soak.
CUT_SECONDS = int(os.environ.get("ANABRANCH_CUT_SECONDS") or (600 if os.environ.get("ANABRANCH_SOAK") else 30))


@pytest.fixture(scope="module")
def regions():
    """Three regions, the way between b and c slow; one keyspace of each protocol."""
    with Cluster(3, 1, "--delay", f"b-c={SLOW_MS}ms") as cluster:
        with cluster["a/1"].client() as client:
            for protocol in ("pocc", "wren"):
                client.execute_command(
                    "KEYSPACE", "CREATE", protocol, "MODEL", "causal", "PROTOCOL", protocol, "PARTITIONS", "2"
                )
        yield cluster


def session(cluster, region: str, keyspace: str = "pocc") -> redis.Redis:
    return cluster[f"{region}/1"].session(keyspace)


def test_the_region_says_which_protocol_it_has(regions):
    with session(regions, "a") as client:
        assert "pocc" in str(client.execute_command("KEYSPACE", "INFO", "pocc"))


@pytest.mark.parametrize(
    "options, reason",
    [(("REPLICAS", "2"), "every partition in every region"), (("COPIES", "3"), "3 copies need as many processes")],
)
def test_options_that_do_not_fit_are_refused(regions, options, reason):
    with regions["a/1"].client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match=reason):
            client.execute_command("KEYSPACE", "CREATE", "odd", "MODEL", "causal", "PROTOCOL", "pocc", *options)


def test_a_write_is_read_as_soon_as_it_has_arrived(regions):
    """With region c cut off, nothing new becomes stable: wren shows nothing of b any more, pocc all that arrives."""
    with session(regions, "b") as writer, session(regions, "a") as reader, session(regions, "b", "wren") as other_writer:
        with session(regions, "a", "wren") as other:
            regions.do("cut a c")
            try:
                time.sleep(1)
                writer.set("cut off", "pocc")
                other_writer.set("cut off", "wren")
                wait_until(lambda: reader.get("cut off") == "pocc")
                time.sleep(0.5)
                assert other.get("cut off") is None, "wren waits until region c has said that it is stable"
            finally:
                regions.do("heal")
            wait_until(lambda: other.get("cut off") == "wren")


def test_every_region_agrees_about_typed_values(regions):
    clients = [session(regions, region) for region in REGIONS]
    for number in range(20):
        for region, client in zip(REGIONS, clients):
            client.incr("count")
            client.sadd("members", f"{region}{number}")
    for client in clients:
        wait_until(lambda: client.get("count") == "60" and client.scard("members") == 60)
        client.close()


def test_a_token_waits_elsewhere_for_what_it_depends_on(regions):
    with session(regions, "b") as here, session(regions, "c") as there:
        for number in range(5):
            here.set("moved", number)
            token = here.execute_command("CONTEXT", "TOKEN")
            there.execute_command("CONTEXT", "RESTORE", token)
            assert there.get("moved") == str(number), f"it takes {SLOW_MS} ms to arrive"


def told(client: redis.Redis, key: str) -> str:
    """What is read, or the error."""
    try:
        return f"read {client.get(key)}"
    except redis.exceptions.ResponseError as error:
        return str(error)


class MissingWrites:
    """c's writes of `keys` reach b, and b's `about` that depends on them reaches a; c's do not."""

    def __init__(self, cluster, name: str):
        self.cluster, self.about = cluster, f"{name}:about"
        self.keys = [f"{name}:{number}" for number in range(8)]

    def __enter__(self):
        with session(self.cluster, "c") as far, session(self.cluster, "b") as middle, session(self.cluster, "a") as here:
            for key in self.keys:
                far.set(key, "old")
            for key in self.keys:
                # A cut before this one may still count, until c's next write has come to the partition.
                wait_until(lambda: told(here, key) == "read old")
            # What a partition received of c becomes stable when the others have received something later.
            for key in self.keys:
                far.set(f"{key}:later", "old")
            for key in self.keys:
                wait_until(lambda: told(here, f"{key}:later") == "read old")
            self.cluster.do("cut a c")
            for key in self.keys:
                far.set(key, "new")
            for key in self.keys:
                wait_until(lambda: middle.get(key) == "new")
            middle.set(self.about, "they are new")
        return self

    def __exit__(self, *_):
        self.cluster.do("heal")

    def dependent(self) -> redis.Redis:
        """A session in a that depends on what a lacks."""
        wait_until(self.has_arrived)
        client = session(self.cluster, "a")
        assert client.get(self.about) == "they are new"
        return client

    def has_arrived(self) -> bool:
        with session(self.cluster, "a") as client:
            return client.get(self.about) is not None


def test_a_cut_delays_only_reads_that_need_what_is_missing(regions):
    with MissingWrites(regions, "delayed") as missing:
        with missing.dependent() as here, session(regions, "a") as independent:
            assert {independent.get(key) for key in missing.keys} == {"old"}, "it depends on nothing that is missing"
            begin = time.monotonic()
            refusal = told(here, missing.keys[0])
            assert time.monotonic() - begin < 15
            assert refusal.startswith("DEGRADED") and "of region c " in refusal, refusal
            assert independent.get(missing.about) == "they are new"


def test_a_session_goes_on_through_a_long_cut(regions):
    with MissingWrites(regions, "degraded") as missing:
        here, second = missing.dependent(), missing.dependent()
        assert told(here, missing.keys[0]).startswith("DEGRADED")
        begin = time.monotonic()
        assert told(second, missing.keys[0]).startswith("DEGRADED")
        assert time.monotonic() - begin < 2, "it is known that the region is cut off"
        begin = time.monotonic()
        assert {here.get(key) for key in missing.keys} == {"old"}
        assert here.get(missing.about) is None
        here.set("degraded:mine", "1")
        assert here.incr("degraded:mine") == 2 and here.get("degraded:mine") == "2"
        assert second.get("degraded:mine") == "2", "sessions that were told see one another's writes"
        here.execute_command("MULTI")
        here.execute_command("SET", "degraded:other", "x")
        here.execute_command("MGET", "degraded:mine", missing.keys[0])
        assert here.execute_command("EXEC") == ["OK", ["2", "old"]]
        assert time.monotonic() - begin < 2, "nobody waits"
        figures = ("sessions_pessimistic", "sessions_degraded")
        wait_until(lambda: all(here.info("cluster")["causal_pocc"].get(figure, 0) >= 2 for figure in figures))
        meanwhile = {region: session(regions, region) for region in REGIONS}
        rounds = 0
        while time.monotonic() - begin < CUT_SECONDS:
            rounds += 1
            for region, client in meanwhile.items():
                client.sadd("degraded:all", f"{region}{rounds}")
            for name, client in (("here", here), ("second", second)):
                client.sadd("degraded:all", f"{name}{rounds}")
                assert client.incr(f"degraded:{name}") == rounds, "a pessimistic session reads what it wrote"
            time.sleep(0.1)
    for region, client in meanwhile.items():
        wait_until(lambda: client.scard("degraded:all") == (len(REGIONS) + 2) * rounds)
        wait_until(lambda: client.mget("degraded:here", "degraded:second") == [str(rounds)] * 2)
        client.close()
    for key, value in [(missing.about, "they are new"), ("degraded:mine", "2"), *((key, "new") for key in missing.keys)]:
        wait_until(lambda: told(here, key) == f"read {value}")
    for region in REGIONS:
        with session(regions, region) as client:
            wait_until(lambda: client.get("degraded:mine") == "2" and client.get("degraded:other") == "x")
    here.close()
    second.close()


def partitions_here(client: redis.Redis, keyspace: str) -> list[str]:
    reply = client.execute_command("KEYSPACE", "INFO", keyspace)
    return (dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply)["partitions_here"]


def arrived(cluster: Cluster, keyspace: str, key: str) -> bool:
    """True if b has c's write of a key; who asks depends on nothing else."""
    with session(cluster, "b", keyspace) as client:
        return client.get(key) == "c"


def test_the_others_go_on_without_a_lost_region():
    """Of a session's writes in c one partition's reach the others, and what these depend on does not. Somebody in b has read them
    and written; that goes with them, or stays where that is the policy."""
    keys, policies = [f"key:{number}" for number in range(16)], {"discard": (None, "given up"), "keep": ("nice", "kept")}
    with Cluster(3, 2, "--model", "causal", "--durability", "always") as cluster:
        with cluster["a/1"].client() as client:
            for policy in policies:
                client.execute_command(
                    "KEYSPACE", "CREATE", policy, "MODEL", "causal", "PROTOCOL", "pocc", "PARTITIONS", "2", "DEPENDANTS", policy
                )
        # They have this before c is lost; only from then on does it matter what a partition lacks. What all partitions have
        # received of c, later writes show, is below the cut.
        readers = {}
        for policy in policies:
            with session(cluster, "c", policy) as far:
                for name in ("before", *(f"later:{key}" for key in keys)):
                    far.set(name, "c")
            readers[policy] = session(cluster, "b", policy)
            wait_until(lambda: readers[policy].get("before") == "c")
            for region in "ab":
                with session(cluster, region, policy) as other:
                    wait_until(lambda: all(told(other, f"later:{key}") == "read c" for key in keys))
        cluster.do("cut c/1 a/1", "cut c/1 b/1")
        for policy, reader in readers.items():
            with session(cluster, "c", policy) as far:
                for key in keys:
                    far.set(key, "c")
            wait_until(lambda: any(arrived(cluster, policy, key) for key in keys))
            seen = next(key for key in keys if arrived(cluster, policy, key))
            assert reader.get(seen) == "c"
            reader.set("comment", "nice")
            with session(cluster, "a", policy) as other:
                wait_until(lambda: told(other, "comment") == "read nice")
        cluster.do("kill c/1", "kill c/2", "heal")
        for policy, (comment, word) in policies.items():
            reader = readers[policy]
            reader.execute_command("KEYSPACE", "EVICT", policy, "c", "ACCEPT-LOSS")
            for region in "ab":
                for process in (1, 2):
                    with cluster[f"{region}/{process}"].session(policy) as client:
                        wait_until(lambda: all(state.endswith("; c evicted") for state in partitions_here(client, policy)))
                        # Its coordinator may not have heard of the cut yet, or reads what was stable before it.
                        wanted = ["read None"] * len(keys) + ["read c", f"read {comment}"]
                        wait_until(lambda: [told(client, key) for key in (*keys, "before", "comment")] == wanted)
            reports = [partitions_here(cluster[f"b/{process}"].client(), policy) for process in (1, 2)]
            assert f"1 writes {word} that depended on lost ones (comment)" in str(reports), reports
            if policy == "discard":
                assert told(reader, "before").startswith("UNAVAILABLE region c was evicted, and this session depends on")
            assert told(reader, "before") == "read c"
            reader.set("comment", "anew")
            with session(cluster, "a", policy) as other:
                wait_until(lambda: other.get("comment") == "anew")
                assert other.incr("count") == 1
            wait_until(lambda: reader.get("count") == "1")
            reader.close()
