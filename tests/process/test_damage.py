"""Damaged data directories: what was acknowledged and synced is there, or the process refuses to start and says what to do.

Every damage is done to the files of a process that was killed.
"""

import shutil
import time
from pathlib import Path

import pytest
import redis

from branches import create_parted
from cluster import Cluster
from harness import READY_TIMEOUT, Anabranch, wait_until

KEYS = 12_000
CONFIG = """
[storage]
segment_bytes = 131_072
"""
# An `everysec` log is synced every second, and marks that.
REST = 2.5


def newest_segment(data: Path) -> Path:
    return max(data.glob("segment-*"))


def used(segment: Path) -> int:
    """Where the log ends in a segment, which is as long as it will ever be."""
    return len(segment.read_bytes().rstrip(b"\0"))


def overwrite(file: Path, offset: int, content: bytes) -> None:
    with open(file, "r+b") as opened:
        opened.seek(offset)
        opened.write(content)


def flip_a_bit(data: Path) -> None:
    segment = newest_segment(data)
    middle = used(segment) // 2
    overwrite(segment, middle, bytes([segment.read_bytes()[middle] ^ 4]))


def zero_the_end(data: Path) -> None:
    """The last 20 kB, but not the segment's header."""
    segment = newest_segment(data)
    end = used(segment)
    start = max(end - 20_000, 64)
    overwrite(segment, start, bytes(end - start))


def zero_the_last_byte(data: Path) -> None:
    """The last group, and nothing else: it looks like one that was being written when the process died."""
    segment = newest_segment(data)
    overwrite(segment, used(segment) - 1, b"\0")


def lose_the_newest(data: Path) -> None:
    newest_segment(data).unlink()


def exchange_two(data: Path) -> None:
    *_, one, other = sorted(data.glob("segment-*"))
    one.rename(data / "aside")
    other.rename(one)
    (data / "aside").rename(other)


DAMAGES = [flip_a_bit, zero_the_end, zero_the_last_byte, lose_the_newest, exchange_two]


def rest(data: Path, durability: str) -> None:
    """Waits until what was written is marked."""
    since, deadline = time.time_ns(), time.monotonic() + REST
    while durability == "everysec" and (data / "marks").stat().st_mtime_ns <= since and time.monotonic() < deadline:
        time.sleep(0.02)


def refusal(server: Anabranch) -> str:
    """What a process says that does not start."""
    before = len(server.stderr())
    server._spawn(server._command())
    assert server.process.wait(timeout=READY_TIMEOUT) == 2
    return server.stderr()[before:]


def files(data: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in data.iterdir()}


@pytest.mark.parametrize("durability", [pytest.param("always", marks=pytest.mark.soak), "everysec"])
def test_a_damaged_log_is_refused_and_accepted_only_with_a_list_of_what_goes(durability):
    with Anabranch(durability, CONFIG) as server:
        with server.client() as client:
            for start in range(0, KEYS, 500):
                pipeline = client.pipeline(transaction=False)
                for number in range(start, start + 500):
                    pipeline.set(f"key:{number}", number)
                pipeline.execute()
        rest(server.data, durability)
        server.kill()
        intact = server.folder / "intact"
        shutil.copytree(server.data, intact)
        for count, damage in enumerate(DAMAGES, 1):
            restore(intact, server.data)
            damage(server.data)
            damaged = files(server.data)
            said = refusal(server)
            assert all(word in said for word in ("segment-", "offset", "restore", "--accept-loss")), (damage, said)
            assert files(server.data) == damaged, "refusing changes nothing"
            accept_loss(server, count)
            with server.client(decode_responses=True) as client:
                kept = client.dbsize()
                assert 0 < kept < KEYS, damage
                # What is left is what was first written.
                assert client.mget([f"key:{number}" for number in range(kept)]) == [str(n) for n in range(kept)]
                client.set("after", "1")
            server.kill()
            server.start()
            with server.client(decode_responses=True) as client:
                assert (client.get("after"), client.dbsize()) == ("1", kept + 1), "the loss is over"
            server.kill()
        restore(intact, server.data)
        server.start()
        with server.client() as client:
            assert client.dbsize() == KEYS, "a backup is whole"


def restore(copy: Path, data: Path) -> None:
    shutil.rmtree(data)
    shutil.copytree(copy, data)


def accept_loss(server: Anabranch, count: int) -> None:
    """Starts accepting a loss, which is listed; it is the `count`th one."""
    server.arguments = ["--accept-loss"]
    server.start()
    server.arguments = []
    listed = [line for line in server.stderr().splitlines() if line.startswith("anabranch: a loss is accepted")]
    assert len(listed) == count and "groups" in listed[-1], listed


def data_of(cluster: Cluster, name: str) -> Path:
    return cluster.folder / "data" / name.replace("/", "-") / "data"


COUNTERS = [f"of:{number}" for number in range(7)]


def counted(client) -> int | None:
    """The sum of all counters, or None while nothing is served."""
    try:
        return sum(int(value or 0) for value in client.mget(COUNTERS))
    except redis.exceptions.RedisError as error:
        assert any(word in str(error) for word in ("UNAVAILABLE", "LOADING", "SNAPSHOTTOOOLD", "onnection", "imed")), error
        return None


def count(clients, rounds: int) -> None:
    """Increments at all sites, and waits until all have everything."""
    total = counted(clients[0])
    for number in range(rounds):
        for client in clients:
            client.incr(COUNTERS[number % len(COUNTERS)])
    wait_until(lambda: {counted(client) for client in clients} == {total + rounds * len(clients)})


def damage_and_heal(cluster: Cluster, name: str, damage, clients) -> None:
    """A damaged process is refused, and when that is accepted it learns what is missing from the others."""
    total = counted(clients[0])
    cluster.do(f"kill {name}")
    damage(data_of(cluster, name))
    log = cluster.folder / "data" / name.replace("/", "-") / "log"
    before = len(log.read_text())
    assert cluster.say(f"restart {name}").startswith("error")
    said = log.read_text()[before:]
    assert all(word in said for word in ("segment-", "offset", "--accept-loss")), (damage, said)
    wait_until(lambda: cluster.say(f"accept-loss {name}") == "ok")
    assert "a loss is accepted" in log.read_text()[before:]
    wait_until(lambda: {counted(client) for client in clients} == {total}, timeout=40)
    count(clients, 1)


@pytest.mark.parametrize("model", ["branch", "causal"])
@pytest.mark.parametrize(
    "durability, damages",
    [
        ("everysec", [zero_the_end, lose_the_newest]),
        # Left to `cargo xtask soak`: a damage that is among those above.
        pytest.param("always", [lose_the_newest], marks=pytest.mark.soak),
    ],
)
def test_a_damaged_process_of_a_cluster_is_refused_and_learns_from_the_others(model, durability, damages):
    with Cluster(3, 1, "--model", model, "--durability", durability) as cluster:
        clients = [node.client() for node in cluster]
        for damage in damages:
            count(clients, 40)
            rest(data_of(cluster, "a/1"), durability)
            damage_and_heal(cluster, "a/1", damage, clients)


def test_a_site_with_record_partitions_learns_from_another_region():
    """The site is at one process of the region, and of its two record partitions one is at the other process."""
    with Cluster(2, 2, "--model", "branch") as cluster:
        create_parted(cluster)
        clients = [cluster[name].using("parted") for name in ("a/1", "a/2", "b/1")]
        (site, records) = ("a/1", "a/2") if has_site(clients[0]) else ("a/2", "a/1")
        count(clients, 20)
        rest(data_of(cluster, site), "everysec")
        damage_and_heal(cluster, site, zero_the_end, clients)

        # Lost records come from the site, while it still holds them; else they are refused, until it fetches everything.
        total = counted(clients[2])
        rest(data_of(cluster, records), "everysec")
        cluster.do(f"kill {records}")
        zero_the_end(data_of(cluster, records))
        assert cluster.say(f"restart {records}").startswith("error")
        wait_until(lambda: cluster.say(f"accept-loss {records}") == "ok")
        lost = lambda: any("has lost its disk" in refused(client, key) for client in clients[:2] for key in COUNTERS)
        wait_until(lambda: {counted(client) for client in clients} == {total} or lost())
        cluster.do(f"kill {site}")
        wait_until(lambda: cluster.say(f"accept-loss {site}") == "ok")
        wait_until(lambda: {counted(client) for client in clients} == {total}, timeout=40)
        count(clients, 1)


def has_site(client) -> bool:
    return "site: " in str(client.execute_command("KEYSPACE", "INFO", "parted"))


def refused(client, key: str) -> str:
    try:
        client.get(key)
    except redis.exceptions.RedisError as error:
        return str(error)
    return ""


def test_a_process_with_an_older_copy_of_its_directory_is_found_out_and_learns():
    with Cluster(3, 1, "--model", "branch") as cluster:
        clients = [node.client() for node in cluster]
        count(clients, 2)
        data, copy = data_of(cluster, "a/1"), cluster.folder / "copy"
        cluster.do("kill a/1")
        shutil.copytree(data, copy)
        cluster.do("restart a/1")
        wait_until(lambda: counted(clients[0]) == 6)
        count(clients, 20)
        # The others hear twice a second how far it is.
        time.sleep(REST)
        cluster.do("kill a/1")
        restore(copy, data)
        cluster.say("restart a/1")
        wait_until(lambda: "the data directory is older" in cluster.logs())
        wait_until(lambda: cluster.say("restart a/1") == "ok")
        wait_until(lambda: {counted(client) for client in clients} == {66}, timeout=40)
        count(clients, 1)
