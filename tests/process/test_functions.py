"""Functions of libraries: kept by every process, through restarts; and what ends a script that runs for long."""

import threading
import time

import pytest
import redis

from cluster import Cluster
from harness import Anabranch, wait_until

BANK = """#!lua name=bank
local function balance(key)
    return tonumber(redis.call('GET', key) or '0')
end
redis.register_function('move', function(keys, args)
    local left, wanted = balance(keys[1]), tonumber(args[1])
    if left < wanted then
        return redis.error_reply('POOR ' .. left)
    end
    redis.call('DECRBY', keys[1], wanted)
    redis.call('INCRBY', keys[2], wanted)
    return left - wanted
end)
redis.register_function{function_name='balance', callback=function(keys) return balance(keys[1]) end,
    flags={'no-writes'}, description='what an account has'}
"""
# Its function writes and never ends.
LOOP = """#!lua name=loop
redis.register_function('loop', function(keys)
    redis.call('SET', keys[1], 'written')
    while true do end
end)
"""


def version(number: int) -> str:
    return f"#!lua name=version\nredis.register_function('version', function() return {number} end)"


def test_functions_outlive_the_process():
    with Anabranch("always") as server:
        with server.client(decode_responses=True) as client:
            assert client.function_load(BANK) == "bank"
            assert client.function_load(version(1)) == "version"
            assert client.function_load(version(2), replace=True) == "version"
            assert client.function_load(LOOP) == "loop"
            assert client.function_delete("loop")
            client.set("a", 10)
            assert client.fcall("move", 2, "a", "b", 3) == 7
            with client.pipeline() as multi:
                multi.fcall("move", 2, "a", "b", 3)
                multi.get("b")
                assert multi.execute() == [4, "6"]
            with pytest.raises(redis.ResponseError, match="^POOR 4$"):
                client.fcall("move", 2, "a", "b", 5)
            client.execute_command("KEYSPACE", "CREATE", "other", "MODEL", "strict")
            listed, dumped = client.function_list(withcode=True), server.client().function_dump()
        server.kill()
        server.start()
        with server.client(decode_responses=True) as client:
            assert client.function_list(withcode=True) == listed and server.client().function_dump() == dumped
            assert client.fcall("version", 0) == 2
            assert client.fcall_ro("balance", 1, "b") == 6
            with pytest.raises(redis.ResponseError, match="Function not found"):
                client.fcall("loop", 1, "k")
            # All keyspaces and databases share them.
            client.execute_command("KEYSPACE", "USE", "other")
            assert client.fcall_ro("balance", 1, "b") == 0
            client.function_flush()
            server.kill()
        server.start()
        with server.client() as client:
            assert client.function_list() == []
            assert client.function_restore(dumped)
            assert client.fcall("version", 0) == 2


def test_a_dump_goes_to_redis_and_back(server, peer):
    with server.client() as ours, peer.client() as redis_server:
        for client in (ours, redis_server):
            client.function_flush()
        ours.function_load(BANK)
        assert redis_server.function_restore(ours.function_dump())
        assert redis_server.function_list(withcode=True, library="bank")[0][1] == b"bank"
        redis_server.function_load(version(3))
        assert ours.function_restore(redis_server.function_dump(), "FLUSH")
        assert ours.fcall("version", 0) == 3
        assert sorted(library[1] for library in ours.function_list()) == [b"bank", b"version"]
        ours.function_flush()


def test_what_the_list_of_keyspaces_has_must_be_whole():
    with Anabranch("always") as server:
        with server.client() as client:
            client.function_load(version(1))
        server.kill()
        names = server.data / "keyspaces.json"
        kept = names.read_text()
        names.write_text(kept.replace('"source": "', '"source": "x'))
        with pytest.raises(AssertionError, match="the library of functions 'version' is damaged"):
            server.start()
        names.write_text(kept)
        server.start()
        with server.client() as client:
            assert client.fcall("version", 0) == 1


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3) as running:
        with running["a/1"].client(decode_responses=True) as client:
            client.execute_command("KEYSPACE", "CREATE", "causal", "MODEL", "causal")
        yield running


def test_every_process_of_a_cluster_has_the_same_functions(cluster):
    first, second = cluster["a/1"], cluster["a/2"]
    with first.client(decode_responses=True) as one, second.client(decode_responses=True) as two:
        assert one.function_load(version(1)) == "version"
        # At once, as a new keyspace.
        assert two.fcall("version", 0) == 1
        # Clients that know Redis Cluster send it to every process.
        assert two.function_load(version(1)) == "version"
        with pytest.raises(redis.ResponseError, match="Library 'version' already exists"):
            two.function_load(version(2))
        two.function_load(version(2), replace=True)
        wait_until(lambda: one.fcall("version", 0) == 2)
        assert one.function_list()[0][1] == "version"
        one.function_load(BANK)
        for keyspace in ("default", "causal"):
            with second.using(keyspace, decode_responses=True) as client:
                client.set("a", 10)
                assert client.fcall("move", 2, "a", "b", 3) == 7 and client.fcall_ro("balance", 1, "a") == 7
        two.function_delete("version")
    cluster.stop()
    cluster.start()
    with cluster["a/1"].client(decode_responses=True) as one, cluster["a/3"].client(decode_responses=True) as three:
        assert three.function_stats()["engines"]["LUA"]["libraries_count"] == 1
        with pytest.raises(redis.ResponseError, match="Function not found"):
            three.fcall("version", 0)
        three.function_flush()
        wait_until(lambda: one.function_list() == [])


def started(work) -> tuple:
    """What the work comes to, once it has ended."""
    outcome = []

    def run() -> None:
        try:
            outcome.append(work())
        except redis.ResponseError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


@pytest.mark.parametrize("threads", [1, 2])
def test_a_script_that_runs_for_long_is_ended_and_undone(threads):
    """Whichever worker serves the client that asks: others are served while a script computes."""
    server = Anabranch("always")
    server.arguments = ["--threads", str(threads)]
    with server, server.client(decode_responses=True) as client:
        client.function_load(LOOP)
        for kill in (client.script_kill, client.function_kill):
            with pytest.raises(redis.ResponseError, match="No scripts in execution right now"):
                kill()
        source = "redis.call('SET', KEYS[1], 'written') while true do end"
        for kind, work in [
            ("FUNCTION", lambda other: other.fcall("loop", 1, "k")),
            ("SCRIPT", lambda other: other.eval(source, 1, "k")),
        ]:
            with server.client(decode_responses=True) as other:
                client.config_set("lua-time-limit", 600_000)
                thread, outcome = started(lambda: work(other))
                if kind == "FUNCTION":
                    running = wait_until(lambda: client.function_stats()["running_script"])
                    assert "loop" in str(running) and "FCALL" in str(running)
                else:
                    time.sleep(0.3)
                with pytest.raises(redis.ResponseError, match="No scripts in execution"):
                    client.execute_command(kind, "KILL")
                client.config_set("busy-reply-threshold", 0)
                # It has written, which is undone.
                assert client.execute_command(kind, "KILL") == "OK"
                thread.join(timeout=60)
                assert len(outcome) == 1 and "Script killed by user" in outcome[0]
                assert client.get("k") is None and client.function_stats()["running_script"] is None
                assert other.eval("return 1", 0) == 1
