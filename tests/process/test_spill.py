"""A region that is cut off while far more is written than memory keeps for it (decision 0016).

`ANABRANCH_SOAK=1` writes twice as much.
"""

import os
import time
from pathlib import Path

import pytest
import redis
from cluster import Cluster
from harness import wait_until
from test_causal_recovery import data_of

MEMORY = 1 << 20
KEYS = 200
ROUNDS = 25 if os.environ.get("ANABRANCH_SOAK") else 12
VALUE = 4000
# What each region writes, and more than both memory and the window (4 MiB) take.
WRITTEN = KEYS * ROUNDS * VALUE
# What of it lies in the spool at least: what memory may not hold.
SPILLED = WRITTEN - 2 * MEMORY
CONFIG = "[storage]\nregion_queue_bytes = {}\nregion_spill_bytes = {}\n"


def queues(client) -> dict:
    """What a process keeps for other regions, and how often it took their state instead."""
    return client.info("cluster")["queues_default"]


def resident(cluster: Cluster) -> int:
    """The memory of all processes."""
    status = "".join(Path(f"/proc/{node.pid}/status").read_text() for node in cluster)
    return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


def spool_files(cluster: Cluster, name: str) -> list[Path]:
    return list((data_of(cluster, name) / "spool").glob("*/*"))


def write_apart(clients: list, most: int = 0) -> None:
    """Every region writes all keys again and again; what it queues in memory never exceeds `most`, if that is said."""
    for round_number in range(ROUNDS):
        for side, client in enumerate(clients):
            pipeline = client.pipeline(transaction=False)
            for number in range(KEYS):
                pipeline.set(f"spill:{side}:{number}", f"{round_number}:" + "v" * VALUE)
                pipeline.incr(f"spill:count:{number}")
            pipeline.execute()
            queued = queues(client)["queued_bytes"]
            assert not most or queued <= most, f"{queued} bytes are queued in memory"


def state(client) -> list:
    keys = [f"spill:{side}:{number}" for side in range(2) for number in range(KEYS)]
    return client.mget(keys) + client.mget([f"spill:count:{number}" for number in range(KEYS)])


def state_or_none(client) -> list | None:
    """None where a copy has just begun to lead in place of one that was taking the other region's state."""
    try:
        return state(client)
    except redis.ResponseError as error:
        if not str(error).startswith("UNAVAILABLE"):
            raise
        return None


def assert_converges(clients: list, seen=state) -> None:
    last = f"{ROUNDS - 1}:" + "v" * VALUE
    expected = [last] * (2 * KEYS) + [str(2 * ROUNDS)] * KEYS
    for client in clients:
        wait_until(lambda: seen(client) == expected)


def transfers(clients: list) -> int:
    return sum(queues(client)["state_transfers"] for client in clients)


def test_what_memory_has_no_room_for_is_spilled_and_sent_when_the_region_is_back():
    with Cluster(2, 1, "--model", "causal", config=CONFIG.format(MEMORY, 1 << 30)) as cluster:
        clients = [cluster[name].client() for name in ("a/1", "b/1")]
        clients[0].set("begun", "yes")
        wait_until(lambda: clients[1].get("begun") == "yes")
        before = resident(cluster)
        cluster.do("cut a b")
        # Beside the queue: what one tick commits, and two chunks of the spool for the other region.
        write_apart(clients, most=4 * MEMORY)
        grown = resident(cluster) - before
        for name, client in zip(("a/1", "b/1"), clients):
            # The gauges are noted now and then.
            wait_until(lambda: queues(client)["spilled_bytes"] > SPILLED)
            assert queues(client)["queued_bytes"] <= 2 * MEMORY
            assert sum(path.stat().st_size for path in spool_files(cluster, name)) > SPILLED
        healed = time.monotonic()
        cluster.do("heal")
        assert_converges(clients)
        converged = time.monotonic() - healed
        assert transfers(clients) == 0, "nobody took the other's state"
        for name, client in zip(("a/1", "b/1"), clients):
            wait_until(lambda: queues(client) == {"queued_bytes": 0, "spilled_bytes": 0, "state_transfers": 0})
            assert spool_files(cluster, name) == [], "what nobody needs is freed"
        assert "the spool fails" not in cluster.logs()
        print(f"\n{WRITTEN >> 20} MiB written on each side; both grew by {grown >> 20} MiB; equal after {converged:.1f} s")


def test_without_a_spool_a_region_that_lacks_too_much_takes_the_state():
    with Cluster(2, 1, "--model", "causal", config=CONFIG.format(MEMORY, 0)) as cluster:
        clients = [cluster[name].client() for name in ("a/1", "b/1")]
        cluster.do("cut a b")
        write_apart(clients, most=4 * MEMORY)
        assert [queues(client)["spilled_bytes"] for client in clients] == [0, 0]
        cluster.do("heal")
        assert_converges(clients)
        assert transfers(clients) > 0
        assert not (data_of(cluster, "a/1") / "spool").exists()


def test_a_spool_that_is_refused_is_said_once_and_costs_a_transfer():
    with Cluster(2, 1, "--model", "causal", config=CONFIG.format(MEMORY, 1 << 30)) as cluster:
        clients = [cluster[name].client() for name in ("a/1", "b/1")]
        for name in ("a/1", "b/1"):
            # No directory can be made in its place.
            (data_of(cluster, name) / "spool").write_text("")
        cluster.do("cut a b")
        write_apart(clients, most=4 * MEMORY)
        cluster.do("heal")
        assert_converges(clients)
        assert transfers(clients) > 0
        assert cluster.logs().count("the spool fails") == 2, "once by each process"


def test_a_restart_removes_the_spool_and_loses_nothing():
    with Cluster(2, 1, "--model", "causal", config=CONFIG.format(MEMORY, 1 << 30)) as cluster:
        clients = [cluster[name].client() for name in ("a/1", "b/1")]
        cluster.do("cut a b")
        write_apart(clients)
        wait_until(lambda: queues(clients[0])["spilled_bytes"] > 0)
        assert spool_files(cluster, "a/1")
        cluster.do("kill a/1", "restart a/1")
        clients[0] = cluster["a/1"].client()
        # What its log tells lies in memory again, what that has no room for in a new spool.
        cluster.do("heal")
        assert_converges(clients)
        for client in clients:
            wait_until(lambda: queues(client)["queued_bytes"] == 0 and queues(client)["spilled_bytes"] == 0)
        assert spool_files(cluster, "a/1") == []


@pytest.mark.soak
def test_copies_do_not_spill_and_their_queues_stay_bounded():
    with Cluster(2, 3, "--model", "causal", "--copies", "3", config=CONFIG.format(MEMORY, 1 << 30)) as cluster:
        clients = [cluster[name].client() for name in ("a/1", "b/1")]
        cluster.do("cut a b")
        write_apart(clients, most=4 * MEMORY)
        for node in cluster:
            with node.client() as client:
                assert queues(client)["spilled_bytes"] == 0
        cluster.do("heal")
        assert_converges(clients, seen=state_or_none)
