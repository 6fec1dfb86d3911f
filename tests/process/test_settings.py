"""What CONFIG SET changes in a running process, and what clients are told of one another at once."""

import time

import pytest
import redis

from harness import Anabranch, wait_until


@pytest.fixture
def threads():
    """A server with several workers, of its own."""
    with Anabranch(config="[server]\nthreads = 3\n") as server:
        yield server


def test_silent_clients_are_closed(threads):
    with threads.raw() as silent, threads.raw() as busy, threads.raw() as admin:
        assert admin.call("CONFIG", "SET", "timeout", "4").raw == b"+OK\r\n"
        assert admin.call("CONFIG", "GET", "timeout").items[1].text == b"4"
        silent.call("PING")
        for _ in range(60):
            assert busy.call("PING").raw == b"+PONG\r\n"
            assert admin.call("PING").raw == b"+PONG\r\n"
            time.sleep(0.1)
        with pytest.raises((OSError, EOFError, AssertionError)):
            silent.call("PING")
        assert admin.call("CONFIG", "SET", "timeout", "0").raw == b"+OK\r\n"
        time.sleep(5)
        assert busy.call("PING").raw == b"+PONG\r\n"
        for wrong in ("-1", "x"):
            assert admin.call("CONFIG", "SET", "timeout", wrong).is_error


def test_a_password_that_is_set_counts_for_who_comes_later(threads):
    with threads.client() as early:
        early.ping()
        assert early.config_set("requirepass", "secret") is True
        assert early.config_get("requirepass")["requirepass"] == "(set, and not shown)"
        assert early.set("k", 1)
        # One for each worker.
        for _ in range(3):
            with pytest.raises(redis.AuthenticationError):
                threads.client().ping()
            with threads.client(password="secret") as late:
                assert late.get("k") == b"1"
        with threads.raw() as waits:
            assert waits.call("GET", "k").raw.startswith(b"-NOAUTH")
            assert int(early.info("clients")["unauthenticated_clients"]) >= 1
            assert early.config_set("requirepass", "") is True
            assert waits.call("GET", "k").raw == b"$1\r\n1\r\n"
        assert threads.client().get("k") == b"1"
        wait_until(lambda: early.info("clients")["unauthenticated_clients"] == 0)
        connected = early.info("clients")["connected_clients"]
        assert connected == len(early.client_list()), "who was let in later is counted, too"


def test_names_are_seen_at_once(threads):
    clients = [threads.client(single_connection_client=True) for _ in range(6)]
    for number, client in enumerate(clients):
        client.client_setname(f"client-{number}")
        named = {line["name"] for line in clients[0].client_list()} - {""}
        assert named >= {f"client-{earlier}" for earlier in range(number + 1)}
    killed = next(line for line in clients[0].client_list() if line["name"] == "client-5")
    assert clients[0].client_kill(killed["addr"]) is True
    assert "client-5" not in {line["name"] for line in clients[0].client_list()}


def test_statistics_begin_anew(threads):
    with threads.client() as client:
        [client.ping() for _ in range(20)]
        before = client.info("stats")
        assert before["total_commands_processed"] >= 20 and before["total_connections_received"] >= 1
        client.config_resetstat()
        after = client.info("stats")
        assert after["total_commands_processed"] < 5 and after["total_connections_received"] == 0


def test_few_keys_are_one_piece_of_a_scan(threads):
    """However many partitions there are."""
    with threads.client(decode_responses=True) as client:
        client.mset({"a": 1, "b": 2, "c": 3})
        assert client.scan() == (0, client.scan()[1]) and sorted(client.scan()[1]) == ["a", "b", "c"]
        client.execute_command("TXN", "BEGIN")
        client.mset({f"key{number}": number for number in range(1000)})
        assert len(client.keys()) == 1003
        found = sorted(client.scan_iter(count=7))
        assert found == sorted(client.keys()) and len(found) == 1003


def test_information_that_dashboards_show(threads):
    with threads.client() as client:
        info = client.info()
        assert len(info["run_id"]) == 40 and info["used_memory_human"][-1] in "KMG"
        assert info["used_memory_peak"] >= info["used_memory_rss"] > 0
        assert float(info["used_memory_rss_human"][:-1]) > 0 and info["master_repl_offset"] == 0
