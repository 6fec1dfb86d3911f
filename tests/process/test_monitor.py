"""MONITOR: clients that watch the commands of all others."""

import threading
import time

import pytest

from harness import Anabranch, Redis, wait_until


@pytest.fixture
def threads():
    with Anabranch(config="[server]\nthreads = 3\nclient_output_limit_bytes = 65536\n") as server:
        yield server


def is_watched(client) -> bool:
    return any("O" in line["flags"] for line in client.client_list())


def lines_until(monitor, last: str) -> list[str]:
    """The commands that a monitor is shown, up to one."""
    lines = []
    while not lines or last not in lines[-1]:
        lines.append(monitor.next_command()["command"])
    return lines


def test_clients_of_every_worker_are_watched(threads):
    with threads.client().monitor() as monitor:
        clients = [threads.client(single_connection_client=True) for _ in range(6)]
        for number, client in enumerate(clients):
            client.set(f"key:{number}", number)
        wait_until(lambda: all(client.ping() for client in clients))
        seen = set()
        while len(seen) < 6:
            command = monitor.next_command()
            if command["command"].startswith("SET key:"):
                assert command["db"] == 0 and command["client_type"] == "tcp"
                seen.add(command["command"])
        assert seen == {f"SET key:{number} {number}" for number in range(6)}
        wait_until(lambda: is_watched(clients[0]))


COMMANDS = [
    ["SET", "a", b"\\ \"\x00\xff\r\n\t\x07"],
    ["GET", "a"],
    *(["MULTI"], ["INCR", "n"], ["GET", "n"], ["EXEC"]),
    ["EVAL", "return redis.call('set', KEYS[1], ARGV[1])", "1", "k", "v"],
    *(["CONFIG", "GET", "hz"], ["CLIENT", "LIST"], ["NONSENSE"], ["GET"]),
    ["AUTH", "user", "password"],
    ["ECHO", "last"],
]


def test_lines_are_those_of_redis(threads):
    found = []
    with Redis() as peer:
        for server in (peer, threads):
            with server.client().monitor() as monitor, server.raw() as client:
                for command in COMMANDS:
                    client.call(*command)
                found.append(lines_until(monitor, "ECHO last"))
    assert found[0] == found[1] and "set k v" in found[0]


def test_a_slow_monitor_is_cut_off_and_holds_up_nobody(threads):
    with threads.raw() as slow, threads.client() as client:
        assert slow.call("MONITOR").raw == b"+OK\r\n"
        wait_until(lambda: is_watched(client))
        began = time.monotonic()
        for _ in range(200):
            with client.pipeline(transaction=False) as pipe:
                for number in range(500):
                    pipe.set(f"key:{number}", "x" * 100)
                pipe.execute()
            if not is_watched(client):
                break
        else:
            raise AssertionError("the monitor is still there")
        assert time.monotonic() - began < 60
        assert client.ping()


def test_who_watches_may_leave(threads):
    stop = threading.Event()

    def work():
        with threads.client() as client:
            while not stop.is_set():
                client.incr("count")

    workers = [threading.Thread(target=work) for _ in range(3)]
    [worker.start() for worker in workers]
    for _ in range(20):
        with threads.raw() as monitor:
            assert monitor.call("MONITOR").raw == b"+OK\r\n"
            while b"INCR" not in monitor.read().raw:
                pass
    stop.set()
    [worker.join() for worker in workers]
