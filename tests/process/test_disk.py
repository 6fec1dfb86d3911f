"""A full disk: writes are refused with MISCONF, reads go on, nothing acknowledged is lost, and writes come back.

The data lie on a small file system of its own, a tmpfs in a mount namespace, so that nothing of it is left behind.
Root makes the namespace directly; anyone else, and root where that is forbidden, inside a user namespace. Where
neither works the tests fail and say so.
"""

import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
import redis

from cluster import Cluster
from harness import Anabranch, wait_until
from resp import encode

MIB = 1 << 20
SIZE = 96 * MIB
# What is left for the log when the disk is filled.
LEFT = 2 * MIB
REFUSED = ("MISCONF", "UNKNOWNOUTCOME")


class FileSystem:
    """A small file system, with a file on it that takes up the space."""

    def __init__(self, mount_point: Path):
        self.mount_point = mount_point
        self.mount_point.mkdir(parents=True)
        # What the command line of a program begins with that sees the file system.
        self.wrapper = []
        self.holder = self._hold(())
        if not self.holder:
            self.holder = self._hold(("--user", "--map-root-user"))
        assert self.holder, "no small file system can be made here: run the tests as root, or allow user namespaces"

    def _hold(self, kind: tuple[str, ...]) -> subprocess.Popen | None:
        """Starts the process that keeps the namespace and its file system; nothing if that is not allowed."""
        inside = f"mount -t tmpfs -o size={SIZE} tmpfs {self.mount_point} && echo mounted && exec sleep infinity"
        command = ["unshare", *kind, "--mount", "sh", "-c", inside]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if holder.stdout.readline() != "mounted\n":
            print(holder.communicate()[1])
            return None
        enter = ["--user", "--preserve-credentials"] if kind else []
        self.wrapper = ["nsenter", f"--target={holder.pid}", *enter, "--mount"]
        return holder

    @property
    def folder(self) -> Path:
        """The file system as this process reaches it."""
        return Path(f"/proc/{self.holder.pid}/root") / self.mount_point.relative_to("/")

    def fill(self) -> None:
        """Leaves `LEFT` bytes, all of which may be written."""
        free = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize
        assert free > LEFT, f"only {free} bytes are free from the beginning"
        with open(self.folder / "ballast", "wb") as ballast:
            for _ in range((free - LEFT) // MIB):
                ballast.write(b"\0" * MIB)
            ballast.write(b"\0" * ((free - LEFT) % MIB))

    def empty(self) -> None:
        (self.folder / "ballast").unlink()

    def close(self) -> None:
        self.holder.kill()
        self.holder.communicate()


class SmallDisk(FileSystem):
    """A server whose data directory is on a small file system."""

    def __init__(self, durability: str):
        self.server = Anabranch(durability)
        super().__init__(self.server.folder / "disk")
        self.server.data = self.mount_point / "data"
        self.server.wrapper = self.wrapper

    def restart(self) -> None:
        self.server.kill()
        self.server.start()

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.close()
        self.server.close()


@pytest.fixture(params=["always", "everysec"])
def disk(request):
    with SmallDisk(request.param) as small_disk:
        yield small_disk


def write_until_refused(client, acknowledged: dict) -> str:
    """Writes values of 10 kB until one is refused, and remembers the others; returns the error."""
    for number in range(len(acknowledged), 100_000):
        value = f"{number}:" + "x" * 10_000
        try:
            client.set(f"key:{number}", value)
        except redis.ResponseError as error:
            return str(error)
        acknowledged[f"key:{number}"] = value
    raise AssertionError("the disk took a gigabyte")


def check(client, acknowledged: dict, attempted: int) -> None:
    """Everything acknowledged is there; a write that was refused may only be there if its outcome was unknown."""
    keys = list(acknowledged)
    for start in range(0, len(keys), 100):
        part = keys[start : start + 100]
        assert client.mget(part) == [acknowledged[key] for key in part]
    assert client.dbsize() in range(len(keys), len(keys) + attempted + 1)


def test_a_full_disk_refuses_writes_and_serves_reads(disk):
    acknowledged = {}
    with disk.server.client(decode_responses=True) as client:
        client.set("before", "1")
        disk.fill()
        error = write_until_refused(client, acknowledged)
        assert error.startswith(REFUSED), error
        assert acknowledged, "there was room for some"

        # From now on: MISCONF at once, and nothing else is harmed.
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            client.set("refused", "1")
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            client.transaction(lambda pipe: (pipe.multi(), pipe.set("refused", 1), pipe.incr("refused")))
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            client.delete("before")
        assert client.get("before") == "1" and client.exists("refused") == 0
        check(client, acknowledged, 1)

        # Space is back: writes are accepted again by themselves.
        disk.empty()
        wait_until(lambda: accepts(client))
        assert client.incr("after") == 1
        check(client, acknowledged, 4)
    disk.restart()
    with disk.server.client(decode_responses=True) as client:
        check(client, acknowledged, 4)
        assert (client.get("before"), client.get("after"), client.get("refused")) == ("1", "1", None)


def accepts(client) -> bool:
    try:
        return client.set("probe", "1")
    except redis.ResponseError as error:
        assert str(error).startswith(REFUSED), error
        return False


def test_each_command_of_a_pipeline_gets_its_own_reply(disk):
    """What was answered and is undone becomes an error in its place; the session's own replies stand."""
    value = b"x" * 10_000
    with disk.server.raw() as raw:
        assert raw.call("SET", "before", "1").raw == b"+OK\r\n"
        disk.fill()
        for number in range(10_000):
            commands = [
                ("SET", f"key:{number}", value),
                ("PING",),
                ("GET", f"key:{number}"),
                ("SELECT", "1"),
                ("INCR", "counter"),
                ("SELECT", "0"),
                ("MULTI",),
                ("INCR", f"n:{number}"),
                ("GET", "before"),
                ("EXEC",),
                ("WATCH", "before"),
                ("GET", "before"),
                ("UNWATCH",),
            ]
            raw.send(b"".join(encode(command) for command in commands))
            replies = [raw.read() for _ in commands]
            if any(reply.is_error for reply in replies):
                break
            assert [reply.raw for reply in replies if reply.raw == b"+QUEUED\r\n"] == [b"+QUEUED\r\n"] * 2
        own = {1: b"+PONG", 3: b"+OK", 5: b"+OK", 6: b"+OK", 7: b"+QUEUED", 8: b"+QUEUED", 10: b"+OK", 12: b"+OK"}
        assert {place: replies[place].raw.strip() for place in own} == own
        unknown = [place for place, reply in enumerate(replies) if reply.text and reply.text.startswith(b"UNKNOWNOUTCOME")]
        assert unknown and not own.keys() & set(unknown), replies
        for place in (0, 4, 9):
            assert replies[place].text.startswith((b"UNKNOWNOUTCOME", b"MISCONF")), replies[place]

        # The same connection goes on, in its keyspace, outside of any transaction, and nothing of it happened.
        assert raw.call("GET", "before").raw == b"$1\r\n1\r\n"
        assert raw.call("EXISTS", f"key:{number}", f"n:{number}").raw == b":0\r\n"
        assert raw.call("SET", "refused", "1").text.startswith(b"MISCONF")
        disk.empty()
        wait_until(lambda: raw.call("SET", "after", "1").raw == b"+OK\r\n")
        assert raw.call("SELECT", "1").raw == b"+OK\r\n"
        assert raw.call("GET", "counter").raw == b"$%d\r\n%d\r\n" % (len(str(number)), number)


def test_a_kill_while_the_disk_is_full_loses_nothing(disk):
    acknowledged = {}
    with disk.server.client(decode_responses=True) as client:
        disk.fill()
        write_until_refused(client, acknowledged)
    disk.server.kill()
    disk.empty()
    disk.server.start()
    with disk.server.client(decode_responses=True) as client:
        check(client, acknowledged, 1)
        assert client.set("after", "1")


def test_many_clients_at_a_full_disk(disk):
    """Writers in parallel, in transactions too: what each was told is true afterwards."""
    acknowledged, refused = [0] * 6, []

    def write(number):
        with disk.server.client(decode_responses=True) as client:
            try:
                for index in range(1, 100_000):
                    with client.pipeline() as pipe:
                        pipe.rpush(f"list:{number}", f"{index}").set(f"twin:{number}", f"{index}:" + "x" * 3000)
                        pipe.execute()
                    acknowledged[number] = index
            except redis.ResponseError as error:
                assert "MISCONF" in str(error) or "UNKNOWNOUTCOME" in str(error), error
                refused.append(number)

    disk.fill()
    threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(refused) == list(range(6)) and sum(acknowledged) > 0
    with disk.server.client() as client:
        # What is left of the disk may still take something small.
        assert re.match("MISCONF|UNKNOWNOUTCOME", write_until_refused(client, {}))
    disk.empty()
    for _ in range(2):
        with disk.server.client(decode_responses=True) as client:
            wait_until(lambda: accepts(client))
            for number, count in enumerate(acknowledged):
                items = client.lrange(f"list:{number}", 0, -1)
                assert items == [str(index) for index in range(1, len(items) + 1)]
                assert count <= len(items) <= count + 1, "acknowledged, and at most the one that was under way"
                assert client.get(f"twin:{number}").split(":")[0] == str(len(items))
        disk.restart()


def test_deadlines_and_reads_go_on_at_a_full_disk(disk):
    """Keys expire for readers although their deletion cannot be logged."""
    with disk.server.client(decode_responses=True) as client:
        client.set("soon", "1", px=1500)
        client.rpush("list", *range(1000))
        disk.fill()
        write_until_refused(client, {})
        assert client.lrange("list", 0, -1) == [str(number) for number in range(1000)]
        wait_until(lambda: client.get("soon") is None)
        assert client.llen("list") == 1000
        disk.empty()
        wait_until(lambda: accepts(client))
        time.sleep(0.2)
        assert client.get("soon") is None


class OneSmallDisk:
    """Three processes in three regions, each with a keyspace of every model; the data of a/1 are on a small file system."""

    KEYSPACES = ("default", "causal", "branch")

    def __init__(self, durability: str):
        self.cluster = Cluster(3, 1, "--durability", durability)
        self.disk = FileSystem(self.cluster.folder / "data" / "a-1" / "data")
        self.cluster.wrapper = self.disk.wrapper

    def __enter__(self):
        self.cluster.__enter__()
        self.of_full, *self.of_others = self.cluster
        with self.of_full.client() as client:
            for model in self.KEYSPACES[1:]:
                client.execute_command("KEYSPACE", "CREATE", model, "MODEL", model)
        return self

    def __exit__(self, *_):
        self.cluster.close()
        self.disk.close()

    def write_until_suspended(self, acknowledged: dict) -> None:
        """Writes at another process until the log of a/1 refuses what comes of it there."""
        self.disk.fill()
        with self.of_others[0].client() as other, self.of_full.client() as full:
            for number in range(10_000):
                other.set(f"fill:{number}", f"{number}:" + "x" * 10_000)
                acknowledged[f"fill:{number}"] = f"{number}:" + "x" * 10_000
                if full.info("persistence")["aof_last_write_status"] == "err":
                    return
        raise AssertionError("the disk took 100 megabytes")

    def clients(self, node) -> dict[str, redis.Redis]:
        return {name: node.using(name) for name in self.KEYSPACES}

    def check(self, acknowledged: dict) -> None:
        """Every process has everything acknowledged, in time."""
        for node in self.cluster:
            for keyspace, client in self.clients(node).items():
                expected = {key[1]: value for key, value in acknowledged.items() if key[0] == keyspace}
                if not expected:
                    continue
                wait_until(lambda: client.mget(list(expected)) == list(expected.values()))

    def fill_keys(self, acknowledged: dict) -> dict:
        return {("default", key): value for key, value in acknowledged.items()}


@pytest.fixture(params=[pytest.param("always", marks=pytest.mark.soak), "everysec"])
def one_small_disk(request):
    with OneSmallDisk(request.param) as it:
        yield it


def test_a_process_of_a_cluster_with_a_full_disk_stays_up_and_heals(one_small_disk):
    acknowledged, filled = {}, {}
    full = one_small_disk.clients(one_small_disk.of_full)
    for keyspace, client in full.items():
        client.set("before", "1")
        acknowledged[keyspace, "before"] = "1"
    one_small_disk.check(acknowledged)
    pid = full["default"].info("server")["process_id"]
    one_small_disk.write_until_suspended(filled)
    acknowledged |= one_small_disk.fill_keys(filled)

    # Its clients read on and cannot write, in any keyspace.
    for keyspace, client in full.items():
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            client.set("refused", "1")
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            client.transaction(lambda pipe: (pipe.multi(), pipe.set("refused", 1), pipe.incr("refused")))
        with one_small_disk.of_full.using(keyspace, socket_timeout=1) as reader:
            assert [reader.get(key) for key in ("before", "refused")] == ["1", None], keyspace

    # The others go on, in every keyspace.
    for number, node in enumerate(one_small_disk.of_others):
        for keyspace, client in one_small_disk.clients(node).items():
            for index in range(20):
                client.set(f"during:{number}:{index}", "y" * 1000)
                acknowledged[keyspace, f"during:{number}:{index}"] = "y" * 1000
            assert client.get("before") == "1"
    with pytest.raises(redis.ResponseError, match="MISCONF"):
        full["default"].set("refused", "1")

    # Room again: it takes writes, and has what it missed.
    one_small_disk.disk.empty()
    for keyspace, client in full.items():
        wait_until(lambda: accepts(client))
        client.set("after", keyspace)
        acknowledged[keyspace, "after"] = keyspace
    one_small_disk.check(acknowledged)
    assert full["default"].info("persistence")["aof_last_write_status"] == "ok"
    assert full["default"].info("server")["process_id"] == pid

    # And so it has after a kill, although it had been refused.
    one_small_disk.cluster.do("kill a/1", "restart a/1")
    one_small_disk.check(acknowledged)
    assert all(client.get("refused") is None for client in one_small_disk.clients(one_small_disk.of_full).values())
    assert "fatal" not in one_small_disk.cluster.logs()


def test_a_kill_of_a_process_of_a_cluster_while_its_disk_is_full_loses_nothing(one_small_disk):
    filled = {}
    one_small_disk.write_until_suspended(filled)
    one_small_disk.cluster.do("kill a/1")
    one_small_disk.disk.empty()
    one_small_disk.cluster.do("restart a/1")
    one_small_disk.check(one_small_disk.fill_keys(filled))
    for client in one_small_disk.clients(one_small_disk.of_full).values():
        wait_until(lambda: accepts(client))
