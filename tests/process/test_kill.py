"""kill -9 under load, again and again on the same data: what was acknowledged is there, nothing is half there.

`ANABRANCH_SOAK=1` goes on for many more rounds.
"""

import os
import random
import time

import pytest

from cluster import Cluster
from harness import Anabranch, wait_until
from load import Writer, writers

# Small files and frequent checkpoints, so that crashes meet them; several threads and partitions.
BUSY = """
[server]
threads = 2
[storage]
checkpoint_after_bytes = 200_000
segment_bytes = 65_536
"""
ROUNDS = 200 if os.environ.get("ANABRANCH_SOAK") else 6


def run_until(writing: list[Writer], end, seconds: float) -> None:
    """Lets the writers run, then calls `end` under their load."""
    for writer in writing:
        writer.start()
    try:
        time.sleep(seconds)
    finally:
        end()
        for writer in writing:
            writer.stop()


def check_all(server, writing: list[Writer], may_lose: bool) -> int:
    with server.client(decode_responses=True) as client:
        return sum(writer.check(client, may_lose) for writer in writing)


@pytest.mark.parametrize("config", ["", BUSY], ids=["plain", "busy"])
@pytest.mark.parametrize("durability", ["always", "everysec"])
def test_kill_loses_nothing_acknowledged(durability, config):
    rng = random.Random(7)
    with Anabranch(durability, config) as server:
        writing = writers(server)
        for _ in range(ROUNDS):
            before = sum(writer.acknowledged for writer in writing)
            run_until(writing, server.kill, rng.uniform(0.05, 0.5))
            server.start()
            check_all(server, writing, may_lose=False)
            assert sum(writer.acknowledged for writer in writing) > before, "every round writes something"


@pytest.mark.parametrize("config", ["", BUSY], ids=["plain", "busy"])
def test_kill_without_durability_leaves_a_snapshot(config):
    """`none`: a kill may lose the newest writes, but what is there is one state that was once true; an end in order
    loses nothing."""
    rng = random.Random(8)
    with Anabranch("none", config) as server:
        writing = writers(server)
        for number in range(ROUNDS):
            in_order = number % 3 == 1
            run_until(writing, server.terminate if in_order else server.kill, rng.uniform(0.05, 0.5))
            server.start()
            check_all(server, writing, may_lose=not in_order)


def test_kill_during_recovery_loses_nothing():
    """A process that is killed before it is ready leaves the data as they were."""
    rng = random.Random(9)
    with Anabranch("everysec", BUSY) as server:
        writing = writers(server)
        run_until(writing, server.kill, 1.0)
        for _ in range(ROUNDS // 2):
            server.start_and_kill(rng.uniform(0.0, 0.06))
        server.start()
        check_all(server, writing, may_lose=False)


def test_kill_leaves_deadlines_as_they_were():
    with Anabranch("everysec") as server:
        with server.client(decode_responses=True) as client:
            client.set("stays", "1", ex=10_000)
            client.set("ends", "1", px=300)
            client.set("forever", "1", ex=10_000)
            client.persist("forever")
            before = client.expiretime("stays")
        server.kill()
        time.sleep(0.35)
        server.start()
        with server.client(decode_responses=True) as client:
            assert client.expiretime("stays") == before
            assert client.ttl("forever") == -1
            assert client.get("ends") is None and client.exists("ends") == 0


def test_kill_frees_the_directory_for_the_next_process():
    """Two processes never serve one directory; a killed one does not keep it."""
    with Anabranch("everysec") as server:
        second = Anabranch("everysec", data=server.data)
        try:
            with pytest.raises(AssertionError, match="did not become ready"):
                second.start()
            assert second.process.wait(timeout=10) != 0
            assert str(server.data) in second.stderr()
        finally:
            second.forget()
        with server.client() as client:
            assert client.set("key", "value")
        server.kill()
        server.start()


def test_a_list_of_keyspaces_that_is_missing_or_older_is_refused():
    """Without its list the data of a keyspace would be passed over in silence."""
    with Anabranch("always") as server:
        file = server.data / "keyspaces.json"
        older = file.read_bytes()
        with server.client() as client:
            assert client.execute_command("KEYSPACE", "CREATE", "kept", "MODEL", "strict")
            assert client.execute_command("KEYSPACE", "USE", "kept")
            assert client.set("key", "value")
        newer = file.read_bytes()
        server.kill()
        for spoil, reason in [(file.unlink, "it is missing"), (lambda: file.write_bytes(older), "is the list older?")]:
            spoil()
            with pytest.raises(AssertionError, match="did not become ready"):
                server.start()
            assert reason in server.stderr()
        file.write_bytes(newer)
        server.start()
        with server.client() as client:
            assert client.execute_command("KEYSPACE", "USE", "kept")
            assert client.get("key") == b"value"


def write_some(client) -> bool:
    """Less than what a checkpoint is taken after. Returns whether one has been taken since the process began."""
    for number in range(40):
        client.set("key", "v" * 1000 + str(number))
    return checkpoints(client) > 0


def checkpoints(client) -> int:
    return client.info("persistence")["checkpoints"]


def check_checkpoint(client, taken: bool) -> None:
    """One was taken in an earlier life of the process, or is in this one."""
    wait_until(lambda: taken or checkpoints(client) > 0)
    assert client.get("key").endswith("v39")


def test_what_the_log_has_grown_before_a_kill_counts():
    """Else a process that is killed again and again takes no checkpoint, and its log and its recovery grow without end."""
    with Anabranch("everysec", BUSY) as server:
        taken = False
        for _ in range(8):
            with server.client(decode_responses=True) as client:
                taken |= write_some(client)
            server.kill()
            server.start()
        with server.client(decode_responses=True) as client:
            check_checkpoint(client, taken)


def test_what_the_log_of_a_replica_has_grown_before_a_kill_counts():
    with Cluster(3, 1, config=BUSY.replace("threads = 2", "")) as cluster:
        node, taken = cluster["a/1"], False
        for _ in range(8):
            with node.client() as client:
                taken |= write_some(client)
            cluster.do("kill a/1", "restart a/1")
        with node.client() as client:
            check_checkpoint(client, taken)
