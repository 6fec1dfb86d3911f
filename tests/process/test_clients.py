"""Unmodified clients: redis-cli and what applications use of redis-py."""

import os
import shutil
import subprocess
import threading

import pytest
import redis

from harness import Anabranch, wait_until


# redis-cli


def cli(server, *arguments, stdin: str | None = None) -> str:
    assert shutil.which("redis-cli"), "redis-cli is missing; install redis-tools"
    command = ["redis-cli", "-h", "127.0.0.1", "-p", str(server.port), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 0, done
    return done.stdout


def test_redis_cli(server):
    assert cli(server, "PING") == "PONG\n"
    assert cli(server, "SET", "key", "value") == "OK\n"
    assert cli(server, "-3", "--no-raw", "HGETALL", "nothing") == "(empty hash)\n"
    assert cli(server, "--no-raw", "GET", "key") == '"value"\n'
    assert cli(server, "-n", "3", "DBSIZE") == "0\n"
    assert "redis_version:" in cli(server, "INFO")
    assert cli(server, "--no-raw", "NONSENSE").startswith("(error) ERR unknown command 'NONSENSE'")


def test_redis_cli_reads_commands_from_its_input(server):
    script = ["MULTI", "SET a 1", "INCR a", "EXEC", "TXN BEGIN", "SET a 7", "TXN ABORT", "GET a", 'SADD e "a b"', "SMEMBERS e"]
    lines = cli(server, stdin="\n".join(script) + "\n").splitlines()
    assert lines == ["OK", "QUEUED", "QUEUED", "OK", "2", "OK", "OK", "OK", "2", "1", "a b"]


def test_redis_cli_pipe_and_scan(server):
    count = 5000
    commands = "".join(f"SET key:{number} {number}\r\n" for number in range(count))
    assert f"errors: 0, replies: {count}" in cli(server, "--pipe", stdin=commands)
    found = cli(server, "--scan", "--pattern", "key:*").split()
    assert sorted(found) == sorted(f"key:{number}" for number in range(count))
    assert cli(server, "DBSIZE") == f"{count}\n"


# redis-py


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def redis_py(request, server):
    with server.client(protocol=request.param, decode_responses=True) as client:
        yield client


def test_values_of_every_type(redis_py):
    assert redis_py.set("s", "ü", ex=100, nx=True) is True
    assert redis_py.set("s", "x", xx=True, get=True) == "ü"
    assert redis_py.hset("h", mapping={"a": 1, "b": "two"}) == 2
    assert redis_py.hgetall("h") == {"a": "1", "b": "two"}
    assert redis_py.rpush("l", 1, 2, 3) == 3
    assert redis_py.lrange("l", 0, -1) == ["1", "2", "3"]
    assert redis_py.sadd("e", "a", "b") == 2
    assert redis_py.smembers("e") == {"a", "b"}
    assert redis_py.zadd("z", {"a": 1, "b": 2.5}) == 2
    assert [tuple(pair) for pair in redis_py.zrange("z", 0, -1, withscores=True)] == [("a", 1.0), ("b", 2.5)]
    assert redis_py.zscore("z", "b") == 2.5
    assert redis_py.zincrby("z", 1, "b") == 3.5
    assert [tuple(pair) for pair in redis_py.zpopmin("z", 1)] == [("a", 1.0)]
    assert redis_py.zadd("z", {"b": 1}, xx=True, incr=True) == 4.5
    assert redis_py.get("nothing") is None and redis_py.lpop("nothing") is None
    assert redis_py.type("z") == "zset" and redis_py.ttl("h") == -1


def test_binary_values(server):
    value = bytes(range(256)) * 100
    with server.client() as client:
        assert client.set(b"\xff\x00key", value) is True
        assert client.get(b"\xff\x00key") == value
        assert client.keys("*") == [b"\xff\x00key"]


def test_pipelines(redis_py):
    with redis_py.pipeline(transaction=False) as pipe:
        for number in range(1000):
            pipe.rpush("list", number)
        assert pipe.execute() == list(range(1, 1001))
    with redis_py.pipeline() as pipe:
        pipe.set("text", "abc").incr("text").set("after", 1)
        replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] is True
    with pytest.raises(redis.ResponseError, match="wrong kind of value"):
        redis_py.lpush("text", 1)


def test_transaction_helper_and_watch_error(server, redis_py):
    redis_py.set("stock", 5)

    def take(pipe):
        left = int(pipe.get("stock"))
        pipe.multi()
        pipe.decr("stock")
        return left

    assert redis_py.transaction(take, "stock", value_from_callable=True) == 5
    with redis_py.pipeline() as pipe:
        pipe.watch("stock")
        with server.client() as other:
            other.set("stock", 100)
        pipe.multi()
        pipe.decr("stock")
        with pytest.raises(redis.WatchError):
            pipe.execute()
    assert redis_py.get("stock") == "100"


def test_iterators(redis_py):
    expected = {f"user:{number}" for number in range(2500)}
    redis_py.mset(dict.fromkeys(expected, "1"))
    redis_py.mset({f"other:{number}": 1 for number in range(500)})
    assert set(redis_py.scan_iter("user:*", count=100)) == expected
    assert set(redis_py.scan_iter("other:1?", _type="string")) == {f"other:{number}" for number in range(10, 20)}


def test_scan_visits_what_stays_while_others_come_and_go(server, redis_py):
    """A key that exists from the first to the last step is visited, whatever happens to the others."""
    staying = {f"stays:{number}" for number in range(2000)}
    redis_py.mset(dict.fromkeys(staying, "1"))
    stop = threading.Event()

    def disturb():
        with server.client() as client:
            number = 0
            while not stop.is_set():
                number += 1
                with client.pipeline(transaction=False) as pipe:
                    for index in range(50):
                        pipe.set(f"comes:{number}:{index}", 1)
                        pipe.delete(f"comes:{number - 3}:{index}")
                    pipe.execute()

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    try:
        for _ in range(3):
            assert staying.issubset(set(redis_py.scan_iter(count=20)))
    finally:
        stop.set()
        thread.join()


def test_the_client_introduces_itself(server):
    with server.client(client_name="me", decode_responses=True) as client:
        info = client.client_info()
        assert (info["name"], info["lib-name"], info["lib-ver"]) == ("me", "redis-py", redis.__version__)
        assert client.client_getname() == "me"
        named = [int(other["id"]) for other in client.client_list() if other["name"] == "me"]
        assert named == [client.client_id()]


def test_clients_can_be_killed(server):
    with server.client() as admin, server.client(client_name="victim", single_connection_client=True) as victim:
        number = victim.client_id()
        assert admin.client_kill_filter(_id=number) == 1
        with pytest.raises(redis.ConnectionError):
            victim.ping()
            victim.ping()
        assert victim.client_id() != number, "it connects again"


def test_a_connection_pool_under_threads(server):
    """One client object, many threads: replies never go to the wrong one."""
    wrong = []
    with server.client(decode_responses=True) as client:

        def work(number):
            for index in range(150):
                client.set(f"key:{number}", f"{number}:{index}")
                if client.get(f"key:{number}") != f"{number}:{index}" or client.echo(f"{number}") != f"{number}":
                    wrong.append((number, index))

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_databases(server):
    with server.client(db=0) as first, server.client(db=9) as second:
        first.set("key", "first")
        second.set("key", "second")
        assert (first.get("key"), second.get("key")) == (b"first", b"second")
        assert (first.dbsize(), second.dbsize()) == (1, 1)
        second.flushdb()
        assert (first.dbsize(), second.dbsize()) == (1, 0)
    with server.client(db=99) as beyond, pytest.raises(redis.ResponseError, match="out of range"):
        beyond.ping()


def test_keys_expire(redis_py):
    redis_py.set("soon", 1, px=80)
    redis_py.hset("hash", "field", 1)
    redis_py.pexpire("hash", 80)
    assert 0 < redis_py.pttl("soon") <= 80
    wait_until(lambda: redis_py.dbsize() == 0)
    assert redis_py.get("soon") is None and redis_py.hget("hash", "field") is None and redis_py.ttl("soon") == -2


def test_the_server_describes_itself(redis_py):
    info = redis_py.info()
    assert info["redis_version"].startswith("7.") and info["anabranch_version"] and info["process_id"] > 0
    assert redis_py.info("keyspace") == {}
    redis_py.set("key", 1)
    assert redis_py.info("keyspace")["db0"]["keys"] == 1
    assert redis_py.config_get("databases") == {"databases": "16"}
    assert redis_py.command_count() > 100
    assert {"get", "zadd", "multi"} <= set(redis_py.command())
    seconds, _ = redis_py.time()
    assert seconds > 1_600_000_000


def test_a_password():
    """Nothing but the handshake works before it, neither by AUTH nor by HELLO with a wrong one."""
    with Anabranch(config='[server]\npassword = "long secret"\n') as server:
        with server.raw() as raw:
            for command in ("GET a", "MULTI", "CLIENT LIST", "TXN BEGIN", "KEYSPACE LIST", "NONSENSE", "CONFIG GET *"):
                assert raw.call(*command.split()).raw.startswith((b"-NOAUTH ", b"-ERR unknown command")), command
            assert raw.call("AUTH", "wrong").raw.startswith(b"-WRONGPASS ")
            assert raw.call("HELLO", "3", "AUTH", "default", "wrong").raw.startswith(b"-WRONGPASS ")
            assert raw.call("GET", "a").raw.startswith(b"-NOAUTH ")
            assert raw.call("AUTH", "long secret").raw == b"+OK\r\n"
            assert raw.call("GET", "a").raw == b"$-1\r\n"
            assert raw.call("RESET").raw == b"+RESET\r\n"
            assert raw.call("GET", "a").raw.startswith(b"-NOAUTH ")
        with server.raw() as raw:
            raw.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$20000\r\n")
            assert raw.read_rest() == b"-ERR Protocol error: unauthenticated bulk length\r\n"
        with server.client(password="long secret", protocol=3) as client:
            assert client.set("a", 1) is True
        with server.client(password="short") as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_a_restart_in_order_keeps_everything():
    """SIGTERM: clients are let go, the process ends with 0 and finds everything again."""
    with Anabranch("none") as server:
        with server.client() as client:
            client.mset({f"key:{number}": number for number in range(1000)})
        assert server.terminate() == 0
        server.start()
        with server.client() as client:
            assert client.dbsize() == 1000 and client.get("key:999") == b"999"


def test_keyspaces_survive_a_restart():
    with Anabranch("everysec") as server:
        with server.client(single_connection_client=True) as client:
            client.execute_command("KEYSPACE", "CREATE", "shop", "MODEL", "strict", "DURABILITY", "always")
            client.execute_command("KEYSPACE", "USE", "shop")
            client.set("key", "shop")
        server.kill()
        server.start()
        with server.client(single_connection_client=True) as client:
            assert client.get("key") is None
            client.execute_command("KEYSPACE", "USE", "shop")
            assert client.get("key") == b"shop"
