"""Sessions of causal keyspaces: contexts that go from one connection to another, and whose writes a connection reads."""

import time

import pytest
import redis

from cluster import Cluster
from harness import wait_until


@pytest.fixture(scope="module")
def causal():
    with Cluster(2, 2, "--model", "causal", "--delay", "a-b=150ms") as cluster:
        yield cluster


def single(node) -> redis.Redis:
    """A client with one connection."""
    return node.client(single_connection_client=True)


@pytest.mark.parametrize("elsewhere", ["a/1", "a/2", "b/1"])
def test_a_session_goes_on_elsewhere(causal, elsewhere):
    with single(causal["a/1"]) as here, single(causal[elsewhere]) as there:
        for number in range(10):
            here.set(f"moved:{elsewhere}", number)
            token = here.execute_command("CONTEXT", "TOKEN")
            assert len(token) < 100
            assert there.execute_command("CONTEXT", "RESTORE", token) in ("OK", b"OK", True)
            assert there.get(f"moved:{elsewhere}") == str(number)


def test_a_context_that_does_not_arrive_in_time_is_refused(causal):
    with single(causal["a/1"]) as here, single(causal["b/1"]) as there:
        causal.do("cut a b")
        try:
            here.set("late", "1")
            token = here.execute_command("CONTEXT", "TOKEN")
            begin = time.monotonic()
            with pytest.raises(redis.exceptions.ResponseError, match="UNAVAILABLE.*does not show yet"):
                there.execute_command("CONTEXT", "RESTORE", token, "TIMEOUT", "300")
            assert 0.25 < time.monotonic() - begin < 5
            assert there.get("late") is None
        finally:
            causal.do("heal")
        there.execute_command("CONTEXT", "RESTORE", token, "TIMEOUT", "20000")
        assert there.get("late") == "1"


def test_what_is_no_context_is_refused(causal):
    with single(causal["a/1"]) as client, Cluster(1, 1, "--model", "causal") as other:
        with single(other["a/1"]) as stranger:
            strange = stranger.execute_command("CONTEXT", "TOKEN")
        token = client.execute_command("CONTEXT", "TOKEN")
        for text in ("", "nonsense", token[:-1], token[:-2] + "00", strange):
            if text != token:
                with pytest.raises(redis.exceptions.ResponseError, match="no context of this keyspace"):
                    client.execute_command("CONTEXT", "RESTORE", text)
        with pytest.raises(redis.exceptions.ResponseError, match="at most 60000"):
            client.execute_command("CONTEXT", "RESTORE", token, "TIMEOUT", "60001")
        client.execute_command("KEYSPACE", "CREATE", "exact", "MODEL", "strict", "REPLICAS", 3)
        wait_until(lambda: "exact" in client.execute_command("KEYSPACE", "LIST"))
        client.execute_command("KEYSPACE", "USE", "exact")
        with pytest.raises(redis.exceptions.ResponseError, match="another model"):
            client.execute_command("CONTEXT", "TOKEN")


def test_a_connection_with_a_scope_of_its_own_does_not_depend_on_others(causal):
    with single(causal["a/1"]) as own, single(causal["a/1"]) as other:
        own.execute_command("SESSION", "SCOPE", "connection")
        unseen = 0
        for number in range(50):
            other.set("scope:other", number)
            unseen += own.get("scope:other") != str(number)
            own.set("scope:own", number)
            assert own.get("scope:own") == str(number), "a connection reads what it wrote"
        assert unseen > 0, "what others wrote it reads when it is stable"
        own.execute_command("SESSION", "SCOPE", "process")
        for number in range(50, 100):
            other.set("scope:other", number)
            assert own.get("scope:other") == str(number), "connections of a process read each other's writes"
        with pytest.raises(redis.exceptions.ResponseError, match="connection or process"):
            own.execute_command("SESSION", "SCOPE", "else")
