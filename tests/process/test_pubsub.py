"""Publish and subscribe: bytes as Redis sends them, over workers and processes, with slow and dying clients."""

import itertools
import re
import select
import shlex
import socket
import threading
import time

import pytest
import redis

from cluster import Cluster
from harness import Anabranch, wait_until
from resp import Raw, encode

# By name: what clients send, in order. What each of them gets after each line is the same as from Redis.
SCENARIOS = {
    "subscribing": """
        a: SUBSCRIBE x y x
        a: PING | PING hi | GET k | CLIENT LIST | MULTI | HELLO 3 | FOO | GET | SUBSCRIBE
        b: PUBLISH x 1 | PUBLISH y 2 | PUBLISH z 3
        a: UNSUBSCRIBE z | UNSUBSCRIBE x
        b: PUBLISH x 4
        a: UNSUBSCRIBE | UNSUBSCRIBE | GET k
        b: PUBLISH y 5
    """,
    "patterns": """
        a: PSUBSCRIBE n?ws* n?ws*
        b: PUBLISH news 1 | PUBLISH nws 2 | PUBLISH naws.x 3
        a: SUBSCRIBE news
        b: PUBLISH news 4 | PUBSUB NUMPAT | PUBSUB CHANNELS | PUBSUB CHANNELS x* | PUBSUB NUMSUB news other | PUBSUB NUMSUB
        a: PUNSUBSCRIBE q | PUNSUBSCRIBE | PUNSUBSCRIBE
        b: PUBLISH news 5 | PUBSUB NUMPAT
    """,
    "shard channels": """
        a: SSUBSCRIBE s
        a: SUBSCRIBE s
        b: SPUBLISH s 1 | PUBLISH s 2 | PUBSUB SHARDCHANNELS | PUBSUB SHARDNUMSUB s t | PUBSUB SHARDCHANNELS t*
        a: SUNSUBSCRIBE t | SUNSUBSCRIBE | SUNSUBSCRIBE
        b: SPUBLISH s 3
    """,
    "in MULTI": """
        a: MULTI | SUBSCRIBE q | PING | GET k | EXEC
        a: GET k | EXEC
        b: MULTI | PUBLISH q 1
        b: PUBLISH q 2 | EXEC
        b: MULTI | PUBLISH q 3 | DISCARD | MULTI | PUBLISH q 4 | GET | EXEC
        b: WATCH k | SET k 1 | MULTI | PUBLISH q 5 | EXEC
        a: RESET
    """,
    "in scripts": """
        a: SUBSCRIBE q
        b: EVAL "redis.call('publish','q','1') return redis.call('publish','q','2')" 0
        b: EVAL "return redis.call('pubsub','numsub','q')" 0
        b: EVAL_RO "return redis.call('publish','q','2')" 0
        b: EVAL "return redis.call('subscribe','q')" 0
    """,
    "RESP3": """
        a: HELLO 3
        a: SUBSCRIBE c | GET none | PING | PING x | PSUBSCRIBE c* | SSUBSCRIBE s
        b: PUBLISH c 1 | SPUBLISH s 2
        a: MULTI | SUBSCRIBE d | GET none | EXEC
        b: PUBLISH d 3
        a: UNSUBSCRIBE c d | PUNSUBSCRIBE | SUNSUBSCRIBE | UNSUBSCRIBE
        a: CLIENT REPLY OFF | SUBSCRIBE c | PING
        b: PUBLISH c 4
        a: UNSUBSCRIBE c | PING | CLIENT REPLY ON | CLIENT REPLY SKIP | SUBSCRIBE c | PING
        a: HELLO 2 | GET none | UNSUBSCRIBE | GET none
    """,
    "the end": """
        a: SUBSCRIBE c | RESET | GET none
        b: PUBLISH c 1
        a: SUBSCRIBE c | QUIT
        b: PUBLISH c 2
    """,
    "CLIENT KILL": """
        a: SUBSCRIBE c
        b: CLIENT KILL TYPE pubsub
        b: CLIENT KILL TYPE pubsub | PUBSUB NUMSUB c
    """,
    "limits": """
        b: CONFIG GET client-output-buffer-limit
        b: CONFIG SET client-output-buffer-limit "pubsub 1mb 2k 3"
        b: CONFIG GET client-output-buffer-limit
        b: CONFIG SET client-output-buffer-limit "foo 1mb 0 0" | CONFIG SET client-output-buffer-limit "pubsub 1mb 0"
        b: CONFIG SET client-output-buffer-limit "pubsub 1mb x 0" | CONFIG SET client-output-buffer-limit ""
        b: CONFIG SET client-output-buffer-limit "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
        b: CONFIG GET client-output-buffer-limit
    """,
}


class Client:
    """A socket whose bytes are kept as they come."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port))

    def take(self, least: int | None, quiet: float = 0.05) -> bytes:
        """What comes until nothing does; waits for `least` bytes, if that is known."""
        data, deadline = b"", time.monotonic() + 10
        while True:
            known = least is not None and len(data) < least and time.monotonic() < deadline
            self.socket.settimeout(1 if known else quiet)
            try:
                more = self.socket.recv(65536)
            except TimeoutError:
                if known:
                    continue
                return data
            if not more:
                return data + b"<end>"
            data += more


def play(server, scenario: str, expected: list[bytes] | None) -> list[bytes]:
    """What both clients get after each line."""
    clients, got = {name: Client(server) for name in "ab"}, []
    for line in scenario.strip().splitlines():
        name, _, commands = line.strip().partition(": ")
        for command in commands.split(" | "):
            clients[name].socket.sendall(command.encode() + b"\r\n")
        if not expected:
            settle(server)
        for name, client in clients.items():
            got.append(client.take(len(expected[len(got)].removesuffix(b"<end>")) if expected else None))
    for client in clients.values():
        client.socket.close()
    return got


def settle(server) -> None:
    """Returns when Redis, which does one thing after the other, has done what it was sent before, and has written what came of it."""
    with server.client(single_connection_client=True) as client:
        client.ping()
        client.ping()


def without_numbers(data: bytes) -> bytes:
    """Without the client's number, which HELLO tells."""
    return re.sub(rb"\r\nid\r\n:\d+", b"", data)


@pytest.mark.parametrize("name", SCENARIOS)
def test_bytes_are_those_of_redis(server, peer, name):
    expected = play(peer, SCENARIOS[name], None)
    got = play(server, SCENARIOS[name], expected)
    lines = [line.strip() for line in SCENARIOS[name].strip().splitlines() for _ in "ab"]
    for line, theirs, ours in zip(lines, expected, got):
        assert without_numbers(ours) == without_numbers(theirs), line


@pytest.fixture(scope="module")
def workers():
    server = Anabranch()
    server.arguments = ["--threads", "3"]
    with server:
        yield server


@pytest.fixture(scope="module")
def three():
    with Cluster(1, 3) as cluster:
        for publisher, subscriber in itertools.permutations(cluster, 2):
            with publisher.raw() as client:
                wait_for_link(client, subscriber)
        yield cluster


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_pubsub_object_of_redis_py(workers, protocol):
    with workers.client(protocol=protocol, decode_responses=True) as client:
        handled = []
        pubsub = client.pubsub()
        pubsub.subscribe("plain", **{"handled": lambda message: handled.append(message["data"])})
        pubsub.psubscribe("p*")
        kinds = [pubsub.get_message(timeout=5)["type"] for _ in range(3)]
        assert kinds == ["subscribe", "subscribe", "psubscribe"]
        assert client.publish("plain", "1") == 2 and client.publish("handled", "2") == 1
        messages = [pubsub.get_message(timeout=5) for _ in range(3)]
        assert [(m["type"], m["channel"], m["data"]) for m in messages if m] == [
            ("message", "plain", "1"),
            ("pmessage", "plain", "1"),
        ]
        assert handled == ["2"]
        assert client.pubsub_numsub("plain", "none") == [("plain", 1), ("none", 0)]
        assert client.pubsub_numpat() == 1 and set(client.pubsub_channels()) == {"plain", "handled"}
        pubsub.unsubscribe()
        pubsub.punsubscribe()
        assert [pubsub.get_message(timeout=5)["type"] for _ in range(3)] == ["unsubscribe", "unsubscribe", "punsubscribe"]
        assert client.publish("plain", "3") == 0 and not pubsub.subscribed
        pubsub.close()


def subscribed(server, channel: str, protocol: int = 2) -> Raw:
    raw = server.raw()
    if protocol == 3:
        raw.call("HELLO", 3)
    assert raw.call("SUBSCRIBE", channel).items[1].text == channel.encode()
    return raw


def numbers(raw: Raw, count: int) -> list[int]:
    """The payloads of so many messages."""
    return [int(raw.read().items[2].text) for _ in range(count)]


def wait_for_link(publisher: Raw, node):
    """Waits until messages of one process reach another: processes that have just started drop them until they are connected."""
    with subscribed(node, "link") as subscriber:
        def arrives():
            publisher.call("PUBLISH", "link", 0)
            return bool(select.select([subscriber.socket], [], [], 0.05)[0])

        wait_until(arrives)


def test_all_workers_deliver_in_order(workers):
    subscribers = [subscribed(workers, "c", 2 + number % 2) for number in range(12)]
    with workers.raw() as publisher:
        publisher.send(b"".join(encode(["PUBLISH", "c", number]) for number in range(2000)))
        assert all(publisher.read().text == b"12" for _ in range(2000))
        assert publisher.call("PUBSUB", "NUMSUB", "c").items[1].text == b"12"
        for subscriber in subscribers:
            assert numbers(subscriber, 2000) == list(range(2000))
        info = publisher.call("INFO", "stats").text
        assert b"pubsub_channels:1\r\npubsub_patterns:0\r\npubsubshard_channels:0\r\n" in info
        wait_until(lambda: publisher.call("CLIENT", "LIST", "TYPE", "pubsub").text.count(b"flags=P") == 12)
        assert publisher.call("CLIENT", "KILL", "TYPE", "pubsub").text == b"12"
        assert all(subscriber.read_rest() == b"" for subscriber in subscribers)
        wait_until(lambda: publisher.call("PUBSUB", "NUMSUB", "c").items[1].text == b"0")


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_process_of_a_cluster_delivers(three, protocol):
    subscribers = [subscribed(node, "c", protocol) for node in three for _ in range(2)]
    with three["a/1"].raw() as publisher:
        publisher.send(b"".join(encode(["PUBLISH", "c", number]) for number in range(1000)))
        # As in Redis Cluster, those of the own process are counted.
        assert {publisher.read().text for _ in range(1000)} == {b"2"}
        for subscriber in subscribers:
            assert numbers(subscriber, 1000) == list(range(1000))
        publisher.send(encode(["MULTI"]) + encode(["SET", "k", 1]) + encode(["PUBLISH", "c", 7]) + encode(["EXEC"]))
        assert [publisher.read().is_error for _ in range(4)] == [False] * 4
        assert [numbers(subscriber, 1) for subscriber in subscribers] == [[7]] * 6
    for subscriber in subscribers:
        subscriber.close()


def test_a_killed_publisher_leaves_no_gap():
    with Cluster(1, 3) as cluster:
        publisher = cluster["a/1"].raw()
        for name in ("a/2", "a/3"):
            wait_for_link(publisher, cluster[name])
        subscribers = [subscribed(cluster[name], "c") for name in ("a/2", "a/3")]
        stop = threading.Event()

        def publish():
            number = 0
            try:
                while not stop.is_set():
                    publisher.send(b"".join(encode(["PUBLISH", "c", number + i]) for i in range(100)))
                    [publisher.read() for _ in range(100)]
                    number += 100
            except (OSError, EOFError):
                pass

        thread = threading.Thread(target=publish)
        thread.start()
        assert all(numbers(subscriber, 500) == list(range(500)) for subscriber in subscribers)
        cluster.do("kill a/1")
        stop.set()
        thread.join()
        # Whatever else came is the next in order, and ends; others publish as before.
        with cluster["a/2"].raw() as other:
            wait_until(lambda: other.call("PUBLISH", "c", -1).text == b"1")
        for subscriber in subscribers:
            expected = 500
            while (number := numbers(subscriber, 1)[0]) >= 0:
                assert number == expected
                expected += 1


def test_a_slow_subscriber_is_disconnected_and_costs_bounded_memory(workers):
    with workers.raw() as publisher:
        publisher.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 4mb 0 0")
        slow, quick = subscribed(workers, "big"), subscribed(workers, "big")
        before, payload = workers.memory_bytes(), b"x" * 20_000
        for _ in range(300):
            publisher.send(encode(["PUBLISH", "big", payload]) * 10)
            [publisher.read() for _ in range(10)]
            assert [quick.read().items[2].text for _ in range(10)] == [payload] * 10
        wait_until(lambda: publisher.call("PUBSUB", "NUMSUB", "big").items[1].text == b"1")
        assert workers.memory_bytes() - before < 48 << 20
        assert b"message" in slow.read_rest()
        quick.close()
        publisher.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 32mb 8mb 60")


def test_an_idle_subscriber_costs_little():
    server = Anabranch()
    server.arguments = ["--threads", "1"]

    def open_clients(commands: bytes) -> tuple[list[socket.socket], float]:
        before, clients = server.memory_bytes(), []
        for _ in range(3000):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(commands)
            client.recv(1 << 16)
            clients.append(client)
        with server.raw() as raw:
            assert raw.call("PUBLISH", "idle", "x" * 100).text == (b"3000" if b"SUBSCRIBE" in commands else b"0")
        time.sleep(0.3)
        return clients, (server.memory_bytes() - before) / 3000

    with server:
        # The first of them grow tables that all share.
        plain, each = open_clients(b"PING\r\n")
        idle, each_idle = open_clients(b"SUBSCRIBE idle\r\n")
        print(f"a client {each:.0f} bytes, a subscriber {each_idle:.0f}")
        assert each_idle < each + 2048
        for client in plain + idle:
            client.close()


def test_who_was_told_of_a_write_finds_it_in_another_region():
    # What b shows of a's writes waits for c, which is far away; messages from a to b travel at once.
    with Cluster(3, 1, "--model", "causal", "--delay", "a-c=300ms", "--delay", "b-c=300ms") as cluster:
        with cluster["a/1"].raw() as client:
            wait_for_link(client, cluster["b/1"])
        subscriber = subscribed(cluster["b/1"], "c")
        with cluster["a/1"].session("default") as writer, cluster["b/1"].session("default") as reader:

            def delay(publish, number: int) -> float:
                begin = time.monotonic()
                publish("c", number)
                assert numbers(subscriber, 1) == [number]
                return time.monotonic() - begin

            def exec_and_publish(number: int) -> None:
                with writer.pipeline() as transaction:
                    transaction.set(f"key:{number}", "new").publish("c", -number).execute()

            waited = []
            for number in range(1, 16):
                writer.set(f"key:{number}", number)
                waited.append(delay(writer.publish, number))
                # On a busy machine a second may pass: then it is delivered as it is.
                assert reader.get(f"key:{number}") == str(number) or waited[-1] > 0.9
                waited.append(delay(lambda *_: exec_and_publish(number), -number))
                assert reader.get(f"key:{number}") == "new" or waited[-1] > 0.9
            assert min(waited) > 0.1, "they came as soon as they could, and would have told of what is not there"
            assert sum(one < 0.9 for one in waited) > 3
            # Nobody waits for what is cut off for longer than a second.
            cluster.do("cut b c")
            writer.set("key:late", 1)
            assert 0.9 < delay(writer.publish, 99) < 10
            cluster.do("heal")


# Commands whose events are those of Redis, in this order.
EVENTS = """
    SET k 1; SET k 2 EX 100; SET k 3 NX; SET k 4 XX GET; SET n 5 NX GET; SET n 5 NX GET; SETNX k 1; SETEX k 100 1; GETSET k 2
    MSET a 1 b 2; MSETNX a 1 c 2; MSETNX c 1 d 2; APPEND a x; SETRANGE a 0 yy; SETRANGE none 0 ""; INCR b; DECRBY b 3
    INCRBYFLOAT b 0.5; SETBIT bits 1 1; BITOP NOT dest bits; PFADD p x; PFADD p x; PFMERGE q p; GETDEL q; GETDEL q
    GETEX a EX 100; GETEX none EX 100; DEL a none b; UNLINK c d; EXPIRE k 100; EXPIRE none 100; PEXPIRE k 900000 GT; PEXPIRE k 5 GT
    PERSIST k; PERSIST k; EXPIREAT k 4000000000; RENAME k l; RENAMENX l n; RENAMENX l m; COPY m o; COPY m o; RESTORE r 0 %DUMP%
    EXPIRE m -1; HSET h f 1 g 2; HSET h f 1; HSETNX h f 2; HINCRBY h n 1; HINCRBYFLOAT h n 0.5; HDEL h none; HDEL h f g; HDEL h n
    LPUSH l a b c; RPUSH l d e f g; LPUSHX none x; RPUSHX l x; LINSERT l BEFORE a y; LINSERT l BEFORE none y; LSET l 0 z
    LREM l 0 none; LREM l 0 z; LTRIM l 0 4; LTRIM none 0 1; LPOP l; RPOP l; RPOPLPUSH l other; LMOVE l other LEFT RIGHT
    LPOP none; LPUSH l 1; LPOP l 5; SADD s a b c; SADD s a; SREM s none; SREM s a; SMOVE s t b; SPOP t; SREM s c; SPOP s
    SADD s a b; SADD t b c; SINTERSTORE u s t; SUNIONSTORE u s t; SDIFFSTORE v s none; ZADD z 1 a 2 b 3 c; ZADD z 1 a
    ZADD z 9 a; ZADD z CH 9 a; ZADD z XX 1 none; ZADD z INCR 1 a; ZINCRBY z 1 b; ZREM z none; ZREM z c; ZPOPMIN z; ZPOPMAX z
    ZADD z 1 a 2 b 3 c 4 d; ZREMRANGEBYRANK z 0 0; ZREMRANGEBYSCORE z 2 2; ZREMRANGEBYSCORE z 8 9; ZUNIONSTORE w 1 z
    ZRANGESTORE x z 0 -1; GEOADD g 13.361389 38.115556 P; GEOADD g 13.361389 38.115556 P; GEOSEARCHSTORE f g FROMMEMBER P BYRADIUS 1 km
    RPUSH mp 1 2 3; LMPOP 2 none mp LEFT COUNT 1; LMPOP 1 mp RIGHT; LMPOP 1 none LEFT; ZADD zp 1 a 2 b 3 c; ZMPOP 1 zp MIN; ZMPOP 2 none zp MAX
    XADD x1 1-0 a b; XADD x1 MAXLEN 3 1-1 a b; XADD x1 MAXLEN = 1 1-2 a b; XADD x1 NOMKSTREAM 1-3 a b; XADD x2 NOMKSTREAM 1-1 a b
    XADD x1 1-1 a b; XTRIM x1 MAXLEN 9; XTRIM x1 MAXLEN 1; XDEL x1 9-9; XDEL x1 1-3; XGROUP CREATE x1 g $; XGROUP CREATE x1 g $
    XGROUP SETID x1 g 0; XGROUP CREATECONSUMER x1 g ann; XGROUP CREATECONSUMER x1 g ann; XGROUP DELCONSUMER x1 g none
    XGROUP DELCONSUMER x1 g ann; XGROUP DESTROY x1 none; XGROUP DESTROY x1 g; XSETID x1 9-9; XREAD STREAMS x1 0; XGROUP CREATE x3 g $ MKSTREAM
    SORT z BY nosort STORE sorted; INCR z; GET o; MULTI; SET t1 1; DEL t1 none; EXEC; EVAL "return redis.call('set','e','1')" 0
"""


def test_events_are_those_of_redis(server, peer):
    def told(one) -> list:
        with one.raw() as raw, one.raw() as marker, one.raw() as subscriber:
            raw.call("FLUSHALL")
            raw.call("SET", "dumped", "x")
            dump = raw.call("DUMP", "dumped").text
            assert raw.call("CONFIG", "SET", "notify-keyspace-events", "KEA").raw == b"+OK\r\n"
            subscriber.call("PSUBSCRIBE", "__key*__:*")
            found = []
            for command in re.split(r";|\n", EVENTS):
                words = [dump if word == "%DUMP%" else word for word in shlex.split(command)]
                if words:
                    raw.call(*words)
                    marker.call("PUBLISH", "__key__:", "end")
                    events = []
                    while (message := subscriber.read().texts())[2:] != [b"__key__:", b"end"]:
                        events.append(message[2:])
                    found.append((command.strip(), events))
            assert raw.call("CONFIG", "SET", "notify-keyspace-events", "").raw == b"+OK\r\n"
        return found

    for theirs, ours in zip(told(peer), told(server)):
        assert ours == theirs


def lapses(one) -> list:
    """What is told of keys that expire: met by a read, by a write, by an EXEC, by a script, and by nobody."""
    with one.raw() as raw, one.raw() as subscriber:
        raw.call("FLUSHALL")
        assert raw.call("CONFIG", "SET", "notify-keyspace-events", "Ex$g").raw == b"+OK\r\n"
        subscriber.call("PSUBSCRIBE", "__keyevent@0__:*")
        for number, commands in enumerate([["GET k0"], ["SET k1 2"], ["MULTI", "APPEND k2 x", "EXEC"], ["RENAME k3 x"], ["EXISTS k4"], []]):
            raw.call("SET", f"k{number}", 1, "PX", 30)
            time.sleep(0.06)
            for command in commands:
                raw.call(*command.split())
        told = []
        while told.count(b"k5") < 3:
            told += subscriber.read().texts()[2:]
        raw.call("CONFIG", "SET", "notify-keyspace-events", "")
        return told


def test_a_key_that_expires_is_told_of_once(server, peer):
    assert lapses(server) == lapses(peer)


def test_a_key_that_a_cache_lets_go_is_told_of():
    server = Anabranch()
    server.arguments = ["--threads", "2"]
    with server, server.raw() as raw, server.raw() as subscriber:
        for name, value in [("notify-keyspace-events", "Ee"), ("maxmemory-policy", "allkeys-random"), ("maxmemory", "2mb")]:
            assert raw.call("CONFIG", "SET", name, value).raw == b"+OK\r\n"
        subscriber.call("PSUBSCRIBE", "__keyevent@0__:*")
        for number in range(4000):
            raw.call("SET", f"key:{number}", "x" * 1000)
        first = subscriber.read().texts()
        assert first[2] == b"__keyevent@0__:evicted"
        gone = {first[3]}
        raw.call("PUBLISH", "__keyevent@0__:end", "x")
        while (message := subscriber.read().texts())[2] != b"__keyevent@0__:end":
            assert message[2] == b"__keyevent@0__:evicted" and message[3] not in gone
            gone.add(message[3])
        left = int(raw.call("DBSIZE").text)
        # A moment's eviction may be under way.
        assert abs(4000 - len(gone) - left) < 100 and len(gone) > 1000
        assert raw.call("EXISTS", *sorted(gone)[:50]).text == b"0"


def test_events_of_any_process_reach_every_subscriber(three):
    with three["a/1"].raw() as writer, three["a/2"].raw() as subscriber:
        for node in three:
            with node.raw() as raw:
                assert raw.call("CONFIG", "SET", "notify-keyspace-events", "EA").raw == b"+OK\r\n"
        subscriber.call("SUBSCRIBE", "__keyevent@0__:set", "__keyevent@0__:del")
        subscriber.read()
        writer.call("SET", "k", 1)
        writer.call("MULTI")
        writer.call("SET", "k", 2)
        writer.call("DEL", "k")
        writer.call("EXEC")
        assert [subscriber.read().texts()[1:] for _ in range(3)] == [
            [b"__keyevent@0__:set", b"k"],
            [b"__keyevent@0__:set", b"k"],
            [b"__keyevent@0__:del", b"k"],
        ]
