"""Scripts of clients: as in Redis, as transactions, in keyspaces of every model."""

import threading

import pytest
import redis
from redis.lock import Lock

from cluster import Cluster
from harness import Anabranch

ADD = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
# Moves as much as asked for from one key to another, if it is there: a transaction that plain commands cannot make.
MOVE = """
    local left = tonumber(redis.call('GET', KEYS[1]) or '0')
    local wanted = tonumber(ARGV[1])
    if left < wanted then
        return redis.error_reply('POOR ' .. left)
    end
    redis.call('DECRBY', KEYS[1], wanted)
    redis.call('INCRBY', KEYS[2], wanted)
    return left - wanted
"""

# Each is sent to both servers; the replies are the same, byte for byte.
SAME = [
    "return {KEYS, ARGV}",
    "return {1, 2.9, -2.9, 'x', true, false, {ok = 'fine'}, {err = 'MY no'}, {{{}}}, nil, 9}",
    "return redis.call('SET', KEYS[1], 10 / 4)",
    "return redis.call('SET', KEYS[1], 10 / 5)",
    "return redis.call('GET', KEYS[1])",
    "return redis.call('INCRBY', KEYS[1], 1)",
    "return redis.call('HSET', 'h', 'f', 'v', 'g', 1.5)",
    "return redis.call('HGETALL', 'h')",
    "return redis.call('HMGET', 'h', 'f', 'none')",
    "return redis.call('ZADD', 'z', 1.5, 'm', 2, 'n')",
    "return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')",
    "return redis.call('ZSCORE', 'z', 'm')",
    "return redis.call('LPUSH', 'l', 1, 2, 3)",
    "return redis.call('LRANGE', 'l', 0, -1)",
    "return #redis.call('LRANGE', 'l', 0, -1)",
    "return redis.call('GET', 'l')",
    "return redis.pcall('GET', 'l')",
    "local reply = redis.pcall('GET', 'l') return reply.err",
    "local ok, why = pcall(redis.call, 'GET', 'l') return {tostring(ok), why}",
    "local function f() return redis.call('GET', 'l') end return {pcall(f)}",
    "redis.setresp(3) return redis.call('HGETALL', 'h').map.g",
    "redis.setresp(3) return redis.call('ZSCORE', 'z', 'm')",
    "redis.setresp(3) return redis.call('GET', 'none') == nil",
    "return redis.call('GET', 'none') == false",
    "local s = 0 for _, v in ipairs(redis.call('LRANGE', 'l', 0, -1)) do s = s + v end return s",
    "return cjson.encode({1, 2.5, 'x/y', cjson.null, {}})",
    "return cjson.decode('{\"a\": [1, {\"b\": null}, \"x\"]}').a[3]",
    "local ok, why = pcall(cjson.decode, '{') return {tostring(ok), why}",
    "return cmsgpack.unpack(cmsgpack.pack({1, 'x', {a = 2.5}}))[3].a * 2",
    "return redis.sha1hex(cmsgpack.pack(1, -1, 'x', 1.5, {1, 2}, true, 1e10))",
    "return {bit.band(0xff, 0x0f), bit.lshift(1, 31), bit.tohex(255, 4)}",
    "return {string.format('%5.2f|%-5s|%03d', 1.005, 'a', 7), string.rep('ab', 3, '-') == nil}",
    "return {tostring(nil), tostring(1.5), tostring(10 / 2), tonumber('0x10'), tonumber('1e2')}",
    "return {unpack({1, 2, 3})}",
    "return {math.floor(2.5), math.max(1, 2), math.pow(2, 10), math.fmod(7, 3)}",
    "return table.concat({1, 2, 3}, ',')",
    "local t = {3, 1, 2} table.sort(t) return t",
    "return string.gsub('hello world', 'o', '0')",
    "return {string.match('key:42:x', '(%a+):(%d+)')}",
    "return type(redis.call('TIME')[1])",
    "error('stop')",
    "error({err = 'MY stop'})",
    "return nothing",
    "x = 1",
    "return redis.call('NOSUCH', 1)",
    "return redis.call('GET')",
    "return redis.call('MULTI')",
    "return redis.call({})",
    "return redis.call()",
    "return redis.error_reply('reason')",
    "return redis.error_reply('MY reason')",
    "return redis.status_reply('fine')",
    "#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])",
    "#!lua flags=no-writes\nlocal set = redis.call('SET', KEYS[1], 1)\nreturn set",
    "#!lua flags=none\nreturn 1",
    "#!js\nreturn 1",
]


@pytest.mark.parametrize("protocol", [2, 3])
def test_scripts_reply_as_in_redis(server, peer, protocol):
    with server.raw() as ours, peer.raw() as theirs:
        for raw in (ours, theirs):
            raw.call("FLUSHALL")
            raw.call("HELLO", protocol)
        for source in SAME:
            # With this protocol on both sides Redis knows a truth from a 1.
            if protocol == 3 and source.endswith("== nil"):
                continue
            replies = [raw.call("EVAL", source, 2, "k", "other", "argument", "").raw for raw in (ours, theirs)]
            assert replies[0] == replies[1], source


def test_a_registered_script_is_found_by_every_connection(server):
    first, second = server.client(decode_responses=True), server.client(decode_responses=True)
    add = first.register_script(ADD)
    assert add(keys=["n"], args=[2]) == 2
    assert second.evalsha(add.sha, 1, "n", 3) == 5
    assert second.script_exists(add.sha, "0" * 40) == [True, False]
    second.script_flush()
    with pytest.raises(redis.exceptions.NoScriptError):
        first.evalsha(add.sha, 1, "n", 3)
    assert add(keys=["n"], args=[1]) == 6, "the client sends the text again"
    with first.pipeline() as pipe:
        pipe.set("n", 1)
        add(keys=["n"], args=[5], client=pipe)
        pipe.get("n")
        assert pipe.execute() == [True, 6, "6"]


def test_a_script_that_fails_takes_everything_back(client):
    client.set("from", 10)
    source = "redis.call('DECRBY', KEYS[1], 5) redis.call('LPUSH', KEYS[1], 'x') return 1"
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.eval(source, 1, "from")
    assert client.get("from") == "10"
    with client.pipeline() as pipe:
        pipe.set("from", 20)
        pipe.eval(source, 1, "from")
        with pytest.raises(redis.exceptions.ExecAbortError, match="WRONGTYPE"):
            pipe.execute()
    assert client.get("from") == "10", "nor does anything of the transaction around it stay"


def test_a_long_script_holds_nobody_up(server):
    slow, quick = server.client(socket_timeout=120), server.client(decode_responses=True)
    refusals = []

    def compute():
        try:
            slow.eval("redis.call('SET', 'slow', 1) while true do end", 0)
        except redis.RedisError as error:
            refusals.append(str(error))

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    answered = 0
    while thread.is_alive():
        assert quick.incr("n") == answered + 1
        answered += 1
    assert len(refusals) == 1 and refusals[0].startswith("the script ") and "more than" in refusals[0], refusals
    assert answered > 100, "others are answered all the time"
    assert quick.get("slow") is None
    assert quick.eval("return 1", 0) == 1


def together(connect, work, count: int = 4) -> None:
    """Runs `work` with clients of their own at the same time."""
    failures = []

    def run(number: int) -> None:
        try:
            with connect() as client:
                work(client, number)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def transfers(connect, rounds: int = 100) -> None:
    """Clients move amounts between four keys, and into a list what they moved: nothing is lost, and nothing made."""
    with connect() as client:
        client.mset({f"account:{number}": 100 for number in range(4)})

    def work(client, number):
        move = client.register_script(MOVE)
        for turn in range(rounds):
            keys = [f"account:{(number + turn) % 4}", f"account:{(number + turn + 1 + turn % 3) % 4}"]
            try:
                move(keys=keys, args=[1 + turn % 7])
            except redis.ResponseError as poor:
                assert str(poor).startswith("POOR"), poor

    together(connect, work)
    with connect() as client:
        left = [int(client.get(f"account:{number}")) for number in range(4)]
        assert sum(left) == 400 and min(left) >= 0, left


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_scripts_of_many_clients_meet(threads):
    with Anabranch(config=f"[server]\nthreads = {threads}\n") as server:
        transfers(lambda: server.client(decode_responses=True), rounds=150)
        # Long ones, each of many commands on the keys that everybody writes.
        long = "for i = 1, 300 do redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], i) end return 1"
        together(server.client, lambda client, _: [client.eval(long, 2, "n", "list") for _ in range(5)])
        with server.client() as client:
            assert (int(client.get("n")), client.llen("list")) == (6000, 6000)


def test_locks_of_redis_py_hold(server):
    """They are released and extended by scripts."""
    with server.client(decode_responses=True) as client:
        first, second = (Lock(client, "lock", timeout=20, blocking=False) for _ in range(2))
        assert first.acquire() and not second.acquire()
        assert first.extend(5) and first.owned()
        first.release()
        assert second.acquire()
        with pytest.raises(redis.exceptions.LockError):
            first.release()
        client.set("lock", "somebody else")
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            second.release()


KEYSPACES = {
    "optimistic": "MODEL strict",
    "led": "MODEL strict CONCURRENCY locking",
    "causal": "MODEL causal",
    "branch": "MODEL branch",
    "parts": "MODEL branch PARTITIONS 2",
}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3) as running:
        with running["a/1"].client(decode_responses=True) as client:
            for name, options in KEYSPACES.items():
                client.execute_command("KEYSPACE", "CREATE", name, *options.split())
        yield running


@pytest.mark.parametrize("keyspace", KEYSPACES)
def test_scripts_are_transactions_in_keyspaces_of_every_model(cluster, keyspace):
    node = cluster["a/1"]
    with node.using(keyspace, decode_responses=True) as client:
        assert client.eval(ADD, 1, "n", 3) == 3
        with pytest.raises(redis.ResponseError, match="stop"):
            client.eval("redis.call('SET', KEYS[1], 'lost') error('stop')", 1, "n")
        assert client.eval_ro("return redis.call('GET', KEYS[1])", 1, "n") == "3"
        with pytest.raises(redis.ResponseError, match="Write commands are not allowed"):
            client.eval_ro(ADD, 1, "n", 3)
        with client.pipeline() as pipe:
            pipe.incr("n")
            pipe.eval(ADD, 1, "n", 10)
            assert pipe.execute() == [4, 14]
        client.execute_command("TXN", "BEGIN")
        assert client.eval(ADD, 1, "n", 1) == 15
        client.execute_command("TXN", "ABORT")
        assert client.get("n") == "14"
    transfers(lambda: node.using(keyspace, decode_responses=True), rounds=25)


def test_a_script_forks_where_the_session_wants_it_to(cluster):
    """Its transaction demands what the session's defaults demand (`BRANCH DEFAULTS`)."""
    node = cluster["a/1"]
    with node.client() as client:
        client.execute_command("KEYSPACE", "CREATE", "forks", "MODEL", "branch", "LOCAL", "branch", "MERGE", "manual")
    with node.using("forks", decode_responses=True) as first, node.using("forks", decode_responses=True) as second:
        for client in (first, second):
            client.execute_command("BRANCH", "DEFAULTS", "BEGIN", "ANY")
        first.set("n", 1)
        second.get("n")
        first.execute_command("TXN", "BEGIN")
        first.incr("n")
        assert second.eval(ADD, 1, "n", 10) == 11
        first.execute_command("TXN", "COMMIT")
        assert len(first.execute_command("BRANCH", "HEADS")) == 2
        # A script is told what any transaction of this session would be.
        second.execute_command("BRANCH", "DEFAULTS", "BEGIN", "ANCESTOR", "COMMIT", "NOBRANCH")
        assert second.eval(ADD, 1, "n", 1) == 12
        assert len(first.execute_command("BRANCH", "HEADS")) == 2
