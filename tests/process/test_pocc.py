"""Causal keyspaces with PROTOCOL pocc: what has arrived is read at once, and only what is missing is waited for."""

import time

import pytest
import redis

from cluster import Cluster
from harness import wait_until

REGIONS = "abc"
SLOW_MS = 150


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
    """A client with one connection, which is a session."""
    client = cluster[f"{region}/1"].client(single_connection_client=True)
    wait_until(lambda: client.execute_command("KEYSPACE", "USE", keyspace) in ("OK", b"OK", True))
    wait_until(lambda: answers(client))
    return client


def answers(client: redis.Redis) -> bool:
    try:
        client.get("ready")
        return True
    except redis.exceptions.ResponseError:
        return False


def test_the_region_says_which_protocol_it_has(regions):
    with session(regions, "a") as client:
        assert "pocc" in str(client.execute_command("KEYSPACE", "INFO", "pocc"))


@pytest.mark.parametrize(
    "options, reason",
    [(("REPLICAS", "2"), "every partition in every region"), (("COPIES", "3"), "no copies yet")],
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


def test_a_cut_delays_only_reads_that_need_what_is_missing(regions):
    """c's write reaches b, and b's that depends on it reaches a; c's does not."""
    with session(regions, "c") as far, session(regions, "b") as middle, session(regions, "a") as here:
        keys = [f"missing:{number}" for number in range(8)]
        for key in keys:
            far.set(key, "old")
        for key in keys:
            wait_until(lambda: here.get(key) == "old")
        regions.do("cut a c")
        try:
            for key in keys:
                far.set(key, "new")
            for key in keys:
                wait_until(lambda: middle.get(key) == "new")
            middle.set("about", "they are new")
            with session(regions, "a") as independent:
                wait_until(lambda: here.get("about") == "they are new")
                assert {independent.get(key) for key in keys} == {"old"}, "it depends on nothing that is missing"
                begin = time.monotonic()
                with pytest.raises(redis.exceptions.ResponseError, match="UNAVAILABLE.*of region c .*not received"):
                    here.get(keys[0])
                assert time.monotonic() - begin < 15
                assert independent.get("about") == "they are new"
        finally:
            regions.do("heal")
        for key in keys:
            wait_until(lambda: answers(here) and here.get(key) == "new")
