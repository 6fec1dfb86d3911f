"""Transactions as clients see them: TXN, MULTI, WATCH, BLIND, and keyspaces."""

import threading
import time

import pytest
import redis

CONFLICT = b"-CONFLICT "


@pytest.fixture
def two(server):
    """Two clients."""
    with server.raw() as first, server.raw() as second:
        yield first, second


def ok(connection, *commands) -> None:
    """Each command is answered OK."""
    for command in commands:
        assert connection.call(*command.split()).raw == b"+OK\r\n", command


def ask(connection, command):
    """The text of the reply, or the texts of its elements."""
    reply = connection.call(*command.split())
    assert not reply.is_error, (command, reply)
    return reply.texts() if reply.items is not None else reply.text


# TXN


def test_a_transaction_answers_at_once_and_reads_its_own_writes(two):
    first, second = two
    ok(first, "SET a 1", "TXN BEGIN")
    assert ask(first, "INCR a") == b"2"
    assert ask(first, "RPUSH list x y") == b"2"
    assert ask(first, "HSET hash f 1") == b"1"
    assert ask(first, "ZADD zset 1.5 m") == b"1"
    assert ask(first, "MGET a b") == [b"2", None]
    assert ask(first, "LRANGE list 0 -1") == [b"x", b"y"]
    assert ask(first, "ZSCORE zset m") == b"1.5"
    assert ask(first, "DEL list") == b"1"
    assert ask(first, "EXISTS list hash") == b"1"
    assert ask(second, "MGET a hash") == [b"1", None], "nothing is seen before the commit"
    assert ask(second, "EXISTS list hash zset") == b"0"
    ok(first, "TXN COMMIT")
    assert ask(second, "GET a") == b"2"
    assert ask(second, "EXISTS list hash zset") == b"2"


def test_an_aborted_transaction_leaves_nothing(two):
    first, second = two
    ok(first, "SET a 1", "TXN BEGIN", "SET a 2", "SET b 2")
    assert ask(first, "DEL a") == b"1"
    ok(first, "TXN ABORT")
    assert ask(first, "MGET a b") == ask(second, "MGET a b") == [b"1", None]


def test_a_closed_connection_aborts(server, two):
    first, _ = two
    with server.raw() as leaving:
        ok(leaving, "TXN BEGIN", "SET a 1")
    assert ask(first, "EXISTS a") == b"0"
    ok(first, "SET a 2")


def test_an_error_in_a_transaction_does_not_end_it(two):
    first, second = two
    ok(first, "SET a text", "TXN BEGIN", "SET b 1")
    assert first.call("INCR", "a").raw.startswith(b"-ERR value is not an integer")
    assert first.call("LPUSH", "a", "x").raw.startswith(b"-WRONGTYPE")
    assert first.call("NONSENSE").raw.startswith(b"-ERR unknown command")
    assert ask(first, "INCR b") == b"2"
    ok(first, "TXN COMMIT")
    assert ask(second, "MGET a b") == [b"text", b"2"]


def test_a_conflict_names_the_key(two):
    first, second = two
    ok(first, "SET account 1", "TXN BEGIN")
    assert ask(first, "GET account") == b"1"
    ok(second, "SET account 5")
    assert ask(first, "GET account") == b"1", "a transaction sees one snapshot"
    ok(first, "SET account 2")
    reply = first.call("TXN", "COMMIT")
    assert reply.raw.startswith(CONFLICT) and b"'account'" in reply.raw
    assert ask(first, "GET account") == b"5", "nothing of it happened, and it is over"
    assert first.call("TXN", "COMMIT").raw.startswith(b"-ERR TXN COMMIT without TXN BEGIN")


def test_write_skew_is_no_snapshot_anomaly_here(two):
    """Each reads what the other writes: under snapshot isolation both commit, here one does not."""
    first, second = two
    ok(first, "MSET x 1 y 1", "TXN BEGIN")
    ok(second, "TXN BEGIN")
    assert ask(first, "MGET x y") == ask(second, "MGET x y") == [b"1", b"1"]
    ok(first, "SET x 0", "TXN COMMIT")
    ok(second, "SET y 0")
    assert second.call("TXN", "COMMIT").raw.startswith(CONFLICT)
    assert ask(first, "MGET x y") == [b"0", b"1"]


def test_what_does_not_touch_does_not_conflict(two):
    first, second = two
    ok(first, "MSET x 1 y 1", "TXN BEGIN")
    ok(second, "TXN BEGIN", "SET y 2", "TXN COMMIT")
    assert ask(first, "INCR x") == b"2"
    ok(first, "TXN COMMIT")


def test_a_readonly_transaction_sees_one_snapshot_and_always_commits(two):
    first, second = two
    ok(first, "MSET a 1 b 1", "TXN BEGIN READONLY")
    ok(second, "MSET a 2 b 2")
    assert ask(second, "RPUSH list x") == b"1"
    assert ask(first, "MGET a b") == [b"1", b"1"]
    assert ask(first, "LLEN list") == b"0"
    assert first.call("SET", "a", "3").raw.startswith(b"-ERR 'set' writes")
    assert ask(second, "DEL a b") == b"2"
    assert ask(first, "MGET a b") == [b"1", b"1"]
    ok(first, "TXN COMMIT")
    assert ask(first, "MGET a b") == [None, None]


def test_a_snapshot_shows_every_type_as_it_was(two):
    first, second = two
    before = ["GET s", "HGET h f", "LRANGE l 0 -1", "SISMEMBER e m", "ZRANGE z 0 -1 WITHSCORES", "TTL s", "TYPE l"]
    for command in ["SET s 1", "HSET h f 1", "RPUSH l a b c", "SADD e m", "ZADD z 1 a 2 b"]:
        second.call(*command.split())
    expected = [second.call(*command.split()).raw for command in before]
    ok(first, "TXN BEGIN READONLY")
    changes = ["APPEND s 9", "EXPIRE s 1000", "HINCRBY h f 5", "LPUSH l z", "LREM l 1 b", "SREM e m", "ZINCRBY z 5 a"]
    for command in [*changes, "ZREM z b", "DEL l", "SET l string", "FLUSHDB"]:
        second.call(*command.split())
        assert [first.call(*read.split()).raw for read in before] == expected, command
    ok(first, "TXN COMMIT")


def test_blind_increments_of_two_transactions_commute(two):
    first, second = two
    for connection in two:
        ok(connection, "TXN BEGIN", "BLIND INCR hits", "BLIND HINCRBY page hits 2", "BLIND SADD visitors x")
    ok(first, "TXN COMMIT")
    ok(second, "TXN COMMIT")
    assert ask(first, "GET hits") == b"2"
    assert ask(first, "HGET page hits") == b"4"
    assert ask(first, "SMEMBERS visitors") == [b"x"]


def test_observed_increments_of_two_transactions_conflict(two):
    first, second = two
    for connection in two:
        ok(connection, "TXN BEGIN")
        assert ask(connection, "INCR hits") == b"1"
    ok(first, "TXN COMMIT")
    assert second.call("TXN", "COMMIT").raw.startswith(CONFLICT)
    assert ask(first, "GET hits") == b"1"


def test_blind_is_for_writes(two):
    first, _ = two
    ok(first, "BLIND INCR hits", "BLIND SET a 1", "BLIND ZADD z 1 m")
    assert ask(first, "MGET hits a") == [b"1", b"1"]
    for command in ["BLIND GET a", "BLIND FLUSHALL", "BLIND ECHO x", "BLIND BLIND INCR hits"]:
        assert first.call(*command.split()).raw.startswith(b"-ERR BLIND takes a command that writes"), command


def test_many_transactions_on_hot_keys_lose_no_update(server):
    """Interactive transfers between few accounts, retried when they conflict: the sum never changes."""
    clients, transfers, accounts = 6, 40, 3
    with server.raw() as setup:
        setup.call("MSET", *(word for account in range(accounts) for word in (f"account:{account}", 100)))
    conflicts, failures = [0] * clients, []

    def move(number):
        with server.raw() as connection:
            for index in range(transfers):
                source, target = f"account:{index % accounts}", f"account:{(index + 1 + number % 2) % accounts}"
                while not transfer(connection, source, target):
                    conflicts[number] += 1

    def watch():
        with server.raw() as connection:
            while any(thread.is_alive() for thread in threads):
                total = sum(int(text) for text in ask(connection, "MGET account:0 account:1 account:2"))
                if total != 100 * accounts:
                    failures.append(total)

    threads = [threading.Thread(target=move, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    watch()
    for thread in threads:
        thread.join()
    assert failures == []
    with server.raw() as connection:
        assert sum(int(text) for text in ask(connection, "MGET account:0 account:1 account:2")) == 100 * accounts


def transfer(connection, source: str, target: str) -> bool:
    """Moves 1; false if another transaction came between."""
    ok(connection, "TXN BEGIN")
    balances = [int(ask(connection, f"GET {account}")) for account in (source, target)]
    ok(connection, f"SET {source} {balances[0] - 1}", f"SET {target} {balances[1] + 1}")
    reply = connection.call("TXN", "COMMIT")
    assert reply.raw == b"+OK\r\n" or reply.raw.startswith(CONFLICT), reply
    return not reply.is_error


@pytest.mark.parametrize(
    "before, command, error",
    [
        ([], "TXN COMMIT", b"-ERR TXN COMMIT without TXN BEGIN"),
        ([], "TXN ABORT", b"-ERR TXN ABORT without TXN BEGIN"),
        ([], "TXN NONSENSE", b"-ERR unknown subcommand"),
        ([], "TXN", b"-ERR wrong number of arguments"),
        ([], "TXN BEGIN WRITEONLY", b"-ERR syntax error"),
        (["TXN BEGIN"], "TXN BEGIN", b"-ERR TXN calls can not be nested"),
        (["TXN BEGIN"], "MULTI", b"-ERR MULTI inside TXN"),
        (["TXN BEGIN"], "WATCH a", b"-ERR WATCH inside TXN"),
        (["TXN BEGIN"], "EXEC", b"-ERR EXEC without MULTI"),
        (["TXN BEGIN"], "DISCARD", b"-ERR DISCARD without MULTI"),
        (["MULTI"], "TXN BEGIN", b"-ERR TXN inside MULTI"),
    ],
)
def test_misplaced_commands_are_refused_with_a_reason(two, before, command, error):
    first, _ = two
    ok(first, *before)
    reply = first.call(*command.split())
    assert reply.raw.startswith(error), reply


# MULTI and WATCH


def test_watch_sees_every_kind_of_change(two):
    """EXEC does nothing after any change of a watched key, even one that was taken back."""
    first, second = two
    cases = [
        (["SET key 1"], ["SET key 2"]),
        (["SET key 1"], ["SET key 2", "SET key 1"]),
        ([], ["SET key 1", "DEL key"]),
        (["SET key 1"], ["DEL key"]),
        (["SET key 1"], ["EXPIRE key 1000"]),
        (["SET key 1"], ["FLUSHALL"]),
        (["SET other 1"], ["RENAME other key"]),
        (["SADD key a"], ["SADD key b"]),
        (["ZADD key 1 a"], ["ZINCRBY key 1 a", "ZINCRBY key -1 a"]),
        (["RPUSH key a"], ["MULTI", "RPUSH key b", "EXEC"]),
        (["SET key 1"], ["TXN BEGIN", "INCR key", "TXN COMMIT"]),
        (["SET key 1"], ["BLIND INCR key"]),
    ]
    for before, changes in cases:
        for command in ["FLUSHALL", *before]:
            second.call(*command.split())
        ok(first, "WATCH key unrelated", "MULTI")
        assert first.call("SET", "result", "1").raw == b"+QUEUED\r\n"
        for command in changes:
            assert not second.call(*command.split()).is_error
        assert first.call("EXEC").raw == b"*-1\r\n", changes
        assert ask(first, "EXISTS result") == b"0"


def test_watch_overlooks_what_changes_nothing(two):
    first, second = two
    cases = [
        (["SET key 1"], ["GET key", "STRLEN key", "TTL key"]),
        ([], ["DEL key", "EXPIRE key 10"]),
        (["SADD key a"], ["SADD key a", "SREM key b"]),
        (["SET key 1"], ["SET other 1"]),
        (["SET key 1"], ["TXN BEGIN", "INCR key", "TXN ABORT"]),
        (["SET key 1"], ["SETNX key 2"]),
    ]
    for before, changes in cases:
        for command in ["FLUSHALL", *before]:
            second.call(*command.split())
        ok(first, "WATCH key", "MULTI")
        first.call("SET", "result", "1")
        for command in changes:
            second.call(*command.split())
        assert first.call("EXEC").texts() == [b"OK"], changes


def test_watch_sees_its_own_changes_before_multi(two):
    first, _ = two
    ok(first, "WATCH key", "SET key 1", "MULTI")
    first.call("GET", "key")
    assert first.call("EXEC").raw == b"*-1\r\n"
    ok(first, "MULTI")
    first.call("GET", "key")
    assert first.call("EXEC").texts() == [b"1"], "EXEC forgets the watches"


def test_unwatch_discard_and_reset_forget(two):
    first, second = two
    for forget in (["UNWATCH"], ["MULTI", "DISCARD"]):
        ok(first, "WATCH key", *forget)
        ok(second, "SET key 1")
        ok(first, "MULTI")
        first.call("GET", "key")
        assert first.call("EXEC").texts() == [b"1"], forget
    ok(first, "WATCH key")
    assert first.call("RESET").raw == b"+RESET\r\n"
    ok(second, "SET key 2")
    ok(first, "MULTI")
    first.call("GET", "key")
    assert first.call("EXEC").texts() == [b"2"]


MODELS = ["strict", "strict CONCURRENCY locking", "strict CONCURRENCY occ", "causal", "branch"]
FAILS_AFTER_A_WRITE = "redis.call('set','x',1) return redis.call('incr','text')"


@pytest.mark.parametrize("model", MODELS)
def test_a_transaction_that_fails_forgets_its_watches(server, model):
    """Whether EXEC's script fails or TXN is aborted; where the key had changed, EXEC says nil, not what failed."""
    name = "fails-" + model.replace(" ", "-").lower()
    with server.raw() as first, server.raw() as second:
        ok(first, f"KEYSPACE CREATE {name} MODEL {model}", f"KEYSPACE USE {name}", "SET text a")
        ok(second, f"KEYSPACE USE {name}")
        for changed in (False, True):
            ok(first, "WATCH d", "MULTI")
            first.call("EVAL", FAILS_AFTER_A_WRITE, "0")
            if changed:
                ok(second, "SET d 1")
            reply = first.call("EXEC")
            assert reply.raw == b"*-1\r\n" if changed else reply.raw.startswith(b"-EXECABORT"), reply
            assert first.call("EXISTS", "x").text == b"0"
            ok(first, "SET d 2", "WATCH d", "MULTI")
            first.call("PING")
            assert first.call("EXEC").texts() == [b"PONG"]
        ok(first, "WATCH d", "TXN BEGIN", "SET e 1", "TXN ABORT", "SET d 3", "WATCH d", "MULTI")
        first.call("PING")
        assert first.call("EXEC").texts() == [b"PONG"]


@pytest.mark.parametrize("held", ["GET k", "INCR k"])
def test_an_idle_transaction_does_not_keep_locks(server, held):
    """Whoever waits for its lock has it after a second or so; the idle client hears CONFLICT. Unwanted locks stay."""
    with server.raw() as first, server.raw() as second:
        if not first.call("KEYSPACE", "USE", "locks").raw.startswith(b"+OK"):
            ok(first, "KEYSPACE CREATE locks MODEL strict CONCURRENCY locking", "KEYSPACE USE locks")
        ok(second, "KEYSPACE USE locks")
        ok(first, "FLUSHDB", "SET k 5", "TXN BEGIN")
        first.call(*held.split())
        time.sleep(1.5)
        before = time.monotonic()
        ok(second, "SET k 2")
        assert time.monotonic() - before < 3
        assert first.call("GET", "k").raw.startswith(CONFLICT)
        assert first.call("TXN", "COMMIT").is_error
        ok(first, "TXN BEGIN", "SET other 1")
        time.sleep(2)
        ok(first, "TXN COMMIT")
        assert ask(first, "MGET k other") == [b"2", b"1"]


@pytest.mark.parametrize("model", ["strict", "causal", "causal PROTOCOL pocc", "branch"])
def test_watch_sees_an_expiry_under_every_model(server, model):
    name = "expiry-" + model.replace(" ", "-").lower()
    with server.raw() as client:
        ok(client, f"KEYSPACE CREATE {name} MODEL {model}", f"KEYSPACE USE {name}")
        for life, gone in ((60, True), (60_000, False)):
            ok(client, f"SET k v PX {life}", "WATCH k", "MULTI")
            client.call("SET", "other", "1")
            time.sleep(0.1)
            assert client.call("EXEC").raw == (b"*-1\r\n" if gone else b"*1\r\n+OK\r\n")


def test_watch_of_a_key_that_expires(two):
    """As in Redis: a key that expires after WATCH was changed; one that had expired before was not."""
    first, second = two
    ok(second, "SET soon 1 PX 60", "WATCH soon")
    ok(first, "WATCH soon")
    time.sleep(0.12)
    ok(first, "MULTI")
    first.call("PING")
    assert first.call("EXEC").raw == b"*-1\r\n"
    ok(second, "UNWATCH", "SET soon 1 PX 30")
    time.sleep(0.06)
    ok(first, "WATCH soon")
    assert ask(second, "GET soon") is None
    ok(first, "MULTI")
    first.call("PING")
    assert first.call("EXEC").texts() == [b"PONG"]


def test_multi_is_atomic_under_concurrent_readers(server):
    """Writers set many keys to one number in a MULTI; no reader ever sees two numbers."""
    keys = [f"key:{number}" for number in range(20)]
    stop, torn = threading.Event(), []

    def write(number):
        with server.client() as client:
            value = number
            while not stop.is_set():
                value += 10
                with client.pipeline() as pipe:
                    for key in keys:
                        pipe.set(key, value)
                    pipe.execute()

    def read(how):
        with server.client() as client:
            while not stop.is_set():
                seen = how(client)
                if len(set(seen)) != 1:
                    torn.append(seen)

    def by_multi(client):
        with client.pipeline() as pipe:
            for key in keys:
                pipe.get(key)
            return pipe.execute()

    threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(3)]
    threads += [threading.Thread(target=read, args=(how,), daemon=True) for how in (lambda client: client.mget(keys), by_multi)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert torn == []


def test_watch_with_retry_loses_no_increment(server):
    """The classic read-modify-write with WATCH, many clients on one key."""
    clients, rounds = 5, 30

    def increment():
        with server.client() as client:
            for _ in range(rounds):
                client.transaction(add_one, "count")

    def add_one(pipe):
        value = int(pipe.get("count") or 0)
        pipe.multi()
        pipe.set("count", value + 1)

    threads = [threading.Thread(target=increment, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with server.client() as client:
        assert int(client.get("count")) == clients * rounds


def test_exec_goes_on_after_an_error_of_a_command(two):
    first, second = two
    ok(first, "SET text abc", "MULTI")
    for command in ["SET a 1", "INCR text", "SET b 1"]:
        assert first.call(*command.split()).raw == b"+QUEUED\r\n"
    reply = first.call("EXEC")
    assert [item.is_error for item in reply.items] == [False, True, False]
    assert ask(second, "MGET a b") == [b"1", b"1"]


# Keyspaces


@pytest.fixture
def shop(server):
    """A keyspace of that name, dropped afterwards."""
    with server.raw() as connection:
        ok(connection, "KEYSPACE CREATE shop MODEL strict")
        yield connection
        ok(connection, "KEYSPACE DROP shop")


def test_keyspaces_are_separate(shop, two):
    first, second = two
    assert b"shop" in ask(first, "KEYSPACE LIST")
    info = ask(first, "KEYSPACE INFO shop")
    assert dict(zip(info[::2], info[1::2]))[b"model"] == b"strict"
    ok(first, "KEYSPACE USE shop", "SET key shop")
    ok(second, "SET key default")
    assert (ask(first, "GET key"), ask(second, "GET key")) == (b"shop", b"default")
    ok(first, "SELECT 0")
    assert ask(first, "GET key") == b"default"
    ok(first, "KEYSPACE USE shop", "FLUSHDB")
    assert (ask(first, "DBSIZE"), ask(second, "DBSIZE")) == (b"0", b"1")


def test_keyspace_errors(shop, two):
    first, _ = two
    assert first.call(*"KEYSPACE CREATE shop MODEL strict".split()).raw.startswith(b"-ERR keyspace 'shop' exists")
    for command in ["KEYSPACE USE nowhere", "KEYSPACE DROP nowhere", "KEYSPACE INFO nowhere"]:
        reply = first.call(*command.split())
        assert reply.raw.startswith(b"-ERR no") and b"'nowhere'" in reply.raw, (command, reply)
    for command in ["KEYSPACE CREATE x", "KEYSPACE CREATE a/b MODEL strict", "KEYSPACE CREATE x MODEL nonsense"]:
        assert first.call(*command.split()).raw.startswith(b"-ERR"), command
    assert first.call("KEYSPACE", "DROP", "default").raw.startswith(b"-ERR")


def test_a_dropped_keyspace_is_gone(server, two):
    first, second = two
    ok(first, "KEYSPACE CREATE brief MODEL strict", "KEYSPACE USE brief", "SET key 1")
    ok(second, "KEYSPACE DROP brief")
    assert first.call("GET", "key").raw.startswith(b"-ERR the keyspace was dropped")
    ok(second, "KEYSPACE CREATE brief MODEL strict", "KEYSPACE USE brief")
    assert ask(second, "EXISTS key") == b"0", "a new keyspace of the name is empty"
    ok(second, "KEYSPACE DROP brief")


@pytest.mark.parametrize("leave", ["SELECT 1", "KEYSPACE USE shop"])
@pytest.mark.parametrize("begin, end", [("MULTI", "EXEC"), ("TXN BEGIN", "TXN COMMIT")])
def test_a_transaction_stays_in_its_keyspace(shop, two, leave, begin, end):
    first, second = two
    ok(first, begin)
    first.call("SET", "key", "1")
    assert first.call(*leave.split()).raw.startswith(b"-CROSSKEYSPACE ")
    reply = first.call(*end.split())
    if begin == "MULTI":
        assert reply.raw.startswith(b"-EXECABORT ")
        assert ask(second, "EXISTS key") == b"0"
    else:
        assert reply.raw == b"+OK\r\n", "an interactive transaction goes on after a refused command"
        assert ask(second, "EXISTS key") == b"1"


def test_watched_keys_belong_to_the_transaction(shop, two):
    first, _ = two
    ok(first, "WATCH key", "KEYSPACE USE shop")
    for command in ["MULTI", "TXN BEGIN", "WATCH other"]:
        assert first.call(*command.split()).raw.startswith(b"-CROSSKEYSPACE "), command
    ok(first, "UNWATCH", "MULTI")
    assert first.call("EXEC").raw == b"*0\r\n"


def test_clients_that_know_only_redis_see_conflicts_as_errors(server):
    """redis-py passes TXN through, and CONFLICT arrives as its ResponseError."""
    with server.client(single_connection_client=True) as first, server.client() as second:
        first.execute_command("TXN", "BEGIN")
        first.get("key")
        second.set("key", "1")
        first.set("key", "2")
        with pytest.raises(redis.ResponseError, match="^CONFLICT .*'key'"):
            first.execute_command("TXN", "COMMIT")


# Commands on the whole keyspace


def test_the_keys_are_part_of_an_interactive_transaction(two):
    first, second = two
    ok(first, "MSET a 1 b 2", "TXN BEGIN")
    ok(second, "SET c 3")
    assert sorted(ask(first, "KEYS *")) == [b"a", b"b"]
    ok(first, "SET d 4")
    assert (sorted(ask(first, "KEYS *")), ask(first, "DBSIZE")) == ([b"a", b"b", b"d"], b"3")
    assert first.call("TXN", "COMMIT").raw.startswith(b"-CONFLICT keys were created or deleted")
    ok(first, "TXN BEGIN", "FLUSHDB")
    assert ask(first, "KEYS *") == []
    ok(first, "SET e 5", "TXN COMMIT")
    assert ask(second, "KEYS *") == [b"e"]


def test_commands_on_the_whole_keyspace_stand_beside_any_other_in_multi(two):
    """RENAME takes several requests, so the queue does."""
    first, second = two
    ok(first, "FLUSHDB", "SET a 1")
    queue = ["RENAME a b", "DBSIZE", "KEYS *", "FLUSHDB", "DBSIZE", "SET c 2", "DBSIZE"]
    for command in ("MULTI", *queue):
        first.call(*command.split())
    renamed, one, keys, flushed, none, _, again = first.call("EXEC").items
    assert (renamed.text, one.text, keys.texts(), flushed.text) == (b"OK", b"1", [b"b"], b"OK")
    assert (none.text, again.text) == (b"0", b"1")
    assert ask(second, "KEYS *") == [b"c"]


def test_keys_in_multi_are_never_in_conflict(server, two):
    """The queue is one request that holds all partitions, whatever the others do meanwhile."""
    first, _ = two
    stopping = threading.Event()

    def churn(number):
        with server.raw() as raw:
            while not stopping.is_set():
                raw.call("SET", f"churn{number}", "1")
                raw.call("DEL", f"churn{number}")

    threads = [threading.Thread(target=churn, args=(number,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            for command in ("MULTI", "DBSIZE", "KEYS *", "DBSIZE"):
                first.call(*command.split())
            before, keys, after = first.call("EXEC").items
            assert int(before.text) == len(keys.items) == int(after.text)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
