"""Client-side caching: bytes as Redis sends them, and no cached value that outlives a change, whoever makes it."""

import random
import socket
import threading
import time

import pytest

from cluster import Cluster
from harness import Anabranch, wait_until
from resp import Raw, encode
from test_pubsub import play, without_numbers

# By name: what clients send, in order. What each of them gets after each line is the same as from Redis.
SCENARIOS = {
    "default": """
        a: HELLO 3
        a: CLIENT TRACKING on
        b: SET k 1
        a: GET k
        b: SET k 2
        b: SET k 3
        a: SET k 4
        a: GET k | SET k 5 | GET k
        a: MGET k l m
        b: MSET k 1 l 2 m 3
        a: GET k
        b: FLUSHALL
        b: SET k 1
        a: HGETALL h
        b: HSET h f 1
        a: MULTI | GET k | LRANGE l 0 -1 | EXEC
        b: RPUSH l 1
        b: EVAL "return redis.call('set', KEYS[1], '9')" 1 k
        a: CLIENT TRACKING off | GET k
        b: SET k 7
    """,
    "choices": """
        a: HELLO 3 | CLIENT TRACKING on OPTIN | CLIENT TRACKINGINFO
        a: GET k
        b: SET k 1
        a: CLIENT CACHING yes | CLIENT TRACKINGINFO | GET k | CLIENT TRACKINGINFO | GET l
        b: SET l 1
        b: SET k 2
        a: CLIENT CACHING yes | MULTI | GET k | GET l | EXEC
        b: SET k 3
        b: SET l 3
        a: CLIENT CACHING no | CLIENT TRACKING on OPTOUT | CLIENT TRACKING off | CLIENT TRACKING on OPTOUT NOLOOP
        a: CLIENT CACHING yes | CLIENT CACHING no | CLIENT TRACKINGINFO | GET k | GET l
        b: SET k 4
        b: SET l 4
        a: GET k | SET k 5
        a: RESET | CLIENT TRACKINGINFO | CLIENT GETREDIR
    """,
    "prefixes": """
        a: HELLO 3 | CLIENT TRACKING on BCAST PREFIX k: PREFIX l:
        b: SET k:1 1
        b: MSET k:2 1 l:1 1 m 1
        a: CLIENT TRACKING on BCAST PREFIX k:1 | CLIENT TRACKING on BCAST PREFIX m | CLIENT TRACKING on | CLIENT TRACKINGINFO
        b: SET m 1
        b: FLUSHDB
        a: CLIENT TRACKING off | CLIENT TRACKING on BCAST NOLOOP
        a: SET k 1
        b: SET k 1
    """,
    "errors": """
        a: CLIENT TRACKING | CLIENT TRACKING foo | CLIENT TRACKING on foo | CLIENT TRACKING on PREFIX a | CLIENT TRACKING on REDIRECT
        a: CLIENT TRACKING on BCAST OPTIN | CLIENT TRACKING on OPTIN OPTOUT | CLIENT TRACKING on REDIRECT x
        a: CLIENT TRACKING on REDIRECT 999999 | CLIENT CACHING yes | CLIENT CACHING | CLIENT CACHING a b
        a: CLIENT TRACKING on BCAST PREFIX a PREFIX ab | CLIENT TRACKINGINFO | CLIENT GETREDIR
        a: CLIENT TRACKING on OPTIN | CLIENT TRACKING on OPTOUT | CLIENT CACHING no | CLIENT CACHING maybe | CLIENT TRACKING off x
        a: CLIENT TRACKING off | CLIENT TRACKING off | CONFIG GET tracking-table-max-keys
    """,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_bytes_are_those_of_redis(server, peer, name):
    for each in (peer, server):
        with each.client() as client:
            client.flushall()
    expected = play(peer, SCENARIOS[name], None)
    got = play(server, SCENARIOS[name], expected)
    lines = [line.strip() for line in SCENARIOS[name].strip().splitlines() for _ in "ab"]
    for line, theirs, ours in zip(lines, expected, got):
        assert without_numbers(ours) == without_numbers(theirs), line


class Cacher:
    """A client that keeps what it has read until it is told that it has changed."""

    def __init__(self, raw: Raw, *options: str, keyspace: str | None = None):
        self.raw, self.cache = raw, {}
        self.told = 0
        self.call("HELLO", 3)
        if keyspace:
            self.call("KEYSPACE", "USE", keyspace)
        reply = self.call("CLIENT", "TRACKING", "on", *options)
        assert reply.text == b"OK", reply
        self.opts_in = "OPTIN" in options

    def _push(self, frame) -> None:
        kind, what = frame.items
        assert kind.text == b"invalidate", frame
        self.told += 1
        if what.items is None:
            self.cache.clear()
        else:
            for key in what.items:
                self.cache.pop(key.text, None)

    def call(self, *arguments):
        self.raw.send(encode(arguments))
        while (frame := self.raw.read()).kind == b">":
            self._push(frame)
        return frame

    def get(self, key: bytes) -> bytes | None:
        if self.opts_in:
            self.call("CLIENT", "CACHING", "yes")
        self.cache[key] = self.call("GET", key).text
        return self.cache[key]

    def drain(self, seconds: float = 0.0) -> None:
        """Takes in what it is told."""
        self.call("PING")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.raw.socket.settimeout(left)
            try:
                frame = self.raw.read()
            except TimeoutError:
                break
            self._push(frame)
        self.raw.socket.settimeout(60)

    def loses(self, key: bytes, within: float = 10.0) -> None:
        """It is told that the key has changed."""
        end = time.monotonic() + within
        while key in self.cache and time.monotonic() < end:
            self.drain(0.05)
        assert key not in self.cache, f"{key} is cached as {self.cache[key]} after {within} s"


def chase(cachers, writers, keys: int, seconds: float, promise: float) -> None:
    """Writers count up keys, cachers read; what was cached when a newer value had been answered for `promise` seconds is gone."""
    names = [b"key:%d" % number for number in range(keys)]
    acknowledged = {name: [] for name in names}
    over, failures = threading.Event(), []

    def write(client, its):
        number = 0
        while not over.is_set():
            number += 1
            for name in its:
                client.call("SET", name, number)
                acknowledged[name].append((time.monotonic(), number))
            time.sleep(0.002)

    def check(cacher, final):
        before = time.monotonic()
        cacher.drain()
        for name, value in cacher.cache.items():
            newer = [at for at, number in list(acknowledged[name]) if number > int(value or 0)]
            if newer and (final or before - newer[0] > promise):
                failures.append((name, value, before - newer[0], len(newer)))

    def read(cacher, seed):
        drawn = random.Random(seed)
        while not over.is_set() and not failures:
            for _ in range(20):
                name = drawn.choice(names)
                if name not in cacher.cache:
                    cacher.get(name)
                cacher.drain()
            check(cacher, False)

    threads = [threading.Thread(target=write, args=(client, names[index :: len(writers)])) for index, client in enumerate(writers)]
    threads += [threading.Thread(target=read, args=(cacher, seed)) for seed, cacher in enumerate(cachers)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[:5]
    time.sleep(promise)
    for cacher in cachers:
        check(cacher, True)
        assert cacher.told > 0
    assert not failures, failures[:5]
    assert all(acknowledged.values())


@pytest.fixture(scope="module")
def workers():
    server = Anabranch()
    server.arguments = ["--threads", "2"]
    with server:
        yield server


def test_no_stale_value_outlives_a_change_in_one_process(workers):
    cachers = [Cacher(workers.raw()), Cacher(workers.raw()), Cacher(workers.raw(), "OPTIN"), Cacher(workers.raw(), "BCAST")]
    chase(cachers, [workers.raw(), workers.raw(), workers.raw()], keys=12, seconds=3, promise=1)


def test_keys_and_fields_that_expire_are_told(workers):
    client, cacher = workers.raw(), Cacher(workers.raw())
    client.call("SET", "e", "1", "PX", "700")
    assert cacher.get(b"e") == b"1"
    # It may be told of the SET itself, which came before it looked.
    end = time.monotonic() + 5
    while cacher.get(b"e") is not None and time.monotonic() < end:
        cacher.loses(b"e", 5)
    assert cacher.get(b"e") is None
    client.call("HSET", "eh", "f", "1", "g", "2")
    client.call("HPEXPIRE", "eh", "700", "FIELDS", "1", "f")
    cacher.call("HGETALL", "eh")
    cacher.cache[b"eh"] = b"f g"
    cacher.loses(b"eh", 5)
    # A deadline that comes later than the read.
    client.call("SET", "later", "1")
    assert cacher.get(b"later") == b"1"
    client.call("PEXPIRE", "later", "300")
    cacher.loses(b"later", 5)
    assert cacher.get(b"later") == b"1" or True
    cacher.loses(b"later", 5)


def test_a_subscriber_is_sent_nothing_that_it_did_not_ask_for(workers):
    client, raw = workers.raw(), workers.raw()
    assert raw.call("CLIENT", "TRACKING", "on").text == b"OK"
    raw.call("GET", "unasked")
    raw.call("SUBSCRIBE", "some")
    client.call("SET", "unasked", "1")
    client.call("PUBLISH", "some", "next")
    assert raw.read().texts() == [b"message", b"some", b"next"]


def test_who_is_put_into_a_keyspace_that_cannot_tell_is_not_tracked(workers):
    client, cacher = workers.raw(), Cacher(workers.raw())
    assert client.call("KEYSPACE", "CREATE", "headed", "MODEL", "branch").text == b"OK"
    made = client.call("ACL", "SETUSER", "headed", "on", ">pw", "+@all", "allkeys", "resetkeyspaces", "keyspace:headed")
    assert made.text == b"OK", made.text
    cacher.get(b"before")
    assert cacher.call("AUTH", "headed", "pw").text == b"OK"
    cacher.drain()
    assert not cacher.cache
    assert cacher.call("CLIENT", "GETREDIR").text == b"-1"


def test_what_a_client_is_told_does_not_wait_for_its_transaction(workers):
    client, cacher = workers.raw(), Cacher(workers.raw())
    cacher.get(b"outside")
    cacher.call("TXN", "BEGIN")
    client.call("SET", "outside", "1")
    cacher.loses(b"outside", 3)
    cacher.call("TXN", "ABORT")


def test_a_deadline_that_the_client_sets_itself_is_told(workers):
    cacher = Cacher(workers.raw(), "NOLOOP")
    cacher.call("SET", "own", "1")
    assert cacher.get(b"own") == b"1"
    cacher.call("PEXPIRE", "own", "700")
    cacher.loses(b"own", 5)
    assert cacher.get(b"own") is None


def test_what_a_cache_evicts_is_told(workers):
    client = workers.raw()
    assert client.call("KEYSPACE", "CREATE", "evicting", "MODEL", "strict", "EVICTION", "allkeys-lru", "MAXMEMORY", "1mb").text == b"OK"
    assert client.call("KEYSPACE", "USE", "evicting").text == b"OK"
    cachers = [Cacher(workers.raw(), *options, keyspace="evicting") for options in [(), (), ("NOLOOP",), ("BCAST",)]]
    client.call("SET", "first", "1")
    for cacher in cachers:
        cacher.get(b"first")
    # Whoever fills the cache is told as well, with NOLOOP too. Which keys go is drawn: the oldest one almost surely with these.
    for writer in [client, cachers[2]]:
        for number in range(300):
            writer.call("SET", f"filler:{number}", "x" * 8000)
    for number in range(3000):
        if client.call("EXISTS", "first").text == b"0":
            break
        client.call("SET", f"filler:{number}", "x" * 8000)
    assert client.call("EXISTS", "first").text == b"0"
    for cacher in cachers:
        cacher.loses(b"first", 5)


def test_the_table_is_bounded(workers):
    client, cacher = workers.raw(), Cacher(workers.raw())
    client.call("CONFIG", "SET", "tracking-table-max-keys", "100")
    try:
        for number in range(300):
            cacher.get(b"bounded:%d" % number)
        cacher.drain(0.2)
        # Half of the table is each worker's.
        assert len(cacher.cache) <= 50
        for number in range(300):
            client.call("SET", f"bounded:{number}", "1")
        cacher.drain(0.5)
        assert not cacher.cache
    finally:
        client.call("CONFIG", "SET", "tracking-table-max-keys", "1000000")


def test_a_client_that_does_not_read_is_cut(workers):
    client, lazy = workers.raw(), Cacher(workers.raw(), "BCAST")
    client.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0")
    try:
        for number in range(200):
            client.send(b"".join(encode(["SET", "x" * 2000 + str(n), "1"]) for n in range(100)))
            for _ in range(100):
                client.read()
        with pytest.raises((EOFError, ConnectionError)):
            for _ in range(100_000):
                lazy.raw.read()
    finally:
        client.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 33554432 8388608 60")


def test_a_subscriber_of_another_worker_is_told_instead(workers):
    client = workers.raw()
    tracked = [workers.raw() for _ in range(4)]
    target = workers.raw()
    number = target.call("CLIENT", "ID").text
    assert target.call("SUBSCRIBE", "__redis__:invalidate").items[2].text == b"1"
    for index, raw in enumerate(tracked):
        assert raw.call("CLIENT", "TRACKING", "on", "REDIRECT", number).text == b"OK"
        assert raw.call("GET", f"redirected:{index}").text is None
    for index in range(4):
        client.call("SET", f"redirected:{index}", "1")
        frame = target.read()
        assert [item.text for item in frame.items[:2]] == [b"message", b"__redis__:invalidate"]
        assert [key.text for key in frame.items[2].items] == [b"redirected:%d" % index]
    info = client.call("INFO", "clients").text
    assert b"tracking_clients:" in info and b"tracking_clients:0" not in info


def test_what_a_transaction_reads_inside_is_told_at_its_end(workers):
    client, cacher = workers.raw(), Cacher(workers.raw())
    client.call("SET", "inside", "1")
    cacher.call("TXN", "BEGIN")
    cacher.call("SET", "inside", "2")
    assert cacher.get(b"inside") == b"2"
    cacher.call("TXN", "ABORT")
    cacher.loses(b"inside", 2)


@pytest.fixture(scope="module")
def replicas():
    with Cluster(1, 3) as cluster:
        client = cluster["a/1"].client()
        client.execute_command("KEYSPACE", "CREATE", "s", "MODEL", "strict", "REPLICAS", "3")
        client.execute_command("KEYSPACE", "CREATE", "lax", "MODEL", "strict", "REPLICAS", "3", "ISOLATION", "serializable")
        for node in cluster:
            node.session("s")
        yield cluster


def using(node, keyspace: str) -> Raw:
    raw = node.raw()
    assert raw.call("KEYSPACE", "USE", keyspace).text == b"OK"
    return raw


def test_no_stale_value_outlives_a_change_in_a_strict_cluster(replicas):
    cachers = [Cacher(node.raw(), keyspace="s") for node in replicas] + [Cacher(replicas["a/2"].raw(), "BCAST", keyspace="s")]
    chase(cachers, [using(node, "s") for node in replicas], keys=6, seconds=5, promise=3)


def test_a_value_is_kept_while_nothing_changes(replicas):
    cacher, writer = Cacher(replicas["a/1"].raw(), keyspace="s"), using(replicas["a/3"], "s")
    cacher.drain(4)
    cacher.get(b"kept")
    cacher.drain(3)
    assert b"kept" in cacher.cache, "nobody has changed it"
    writer.call("SET", "kept", "1")
    cacher.loses(b"kept", 3)


def test_expiry_is_told_in_a_cluster(replicas):
    cacher, writer = Cacher(replicas["a/1"].raw(), keyspace="s"), using(replicas["a/2"], "s")
    writer.call("SET", "e", "1", "PX", "3000")
    cacher.drain(1)
    assert cacher.get(b"e") == b"1"
    cacher.loses(b"e", 8)


def test_what_cannot_be_told_is_refused(replicas):
    raw = using(replicas["a/1"], "lax")
    assert b"ISOLATION serializable" in raw.call("CLIENT", "TRACKING", "on").text
    client = replicas["a/1"].client()
    client.execute_command("KEYSPACE", "CREATE", "p", "MODEL", "causal", "PROTOCOL", "pocc")
    client.execute_command("KEYSPACE", "CREATE", "br", "MODEL", "branch")
    for keyspace, word in [("p", b"PROTOCOL"), ("br", b"heads")]:
        raw = using(replicas["a/1"], keyspace)
        refused = raw.call("CLIENT", "TRACKING", "on")
        assert refused.is_error and word in refused.text and keyspace.encode() in refused.text
        tracked = replicas["a/1"].raw()
        assert tracked.call("CLIENT", "TRACKING", "on").text == b"OK"
        assert tracked.call("KEYSPACE", "USE", keyspace).is_error


def test_a_process_that_is_gone_lets_nobody_rely_on_what_they_have(replicas):
    cacher = Cacher(replicas["a/1"].raw(), keyspace="s")
    cacher.drain(2)
    replicas.do("kill a/3")
    try:
        cacher.get(b"blind")
        cacher.loses(b"blind", 8)
        writer = using(replicas["a/2"], "s")
        cacher.get(b"blind")
        writer.call("SET", "blind", "1")
        cacher.loses(b"blind", 8)
    finally:
        replicas.do("restart a/3")


@pytest.fixture(scope="module")
def regions():
    with Cluster(2, 1, "--model", "causal", "--delay", "a-b=150ms") as cluster:
        for node in cluster:
            node.session("default")
        yield cluster


def test_no_stale_value_outlives_a_change_in_causal_regions(regions):
    cachers = [Cacher(node.raw()) for node in regions]
    # One writer for each key: values only rise.
    chase(cachers, [node.raw() for node in regions], keys=6, seconds=5, promise=4)


def test_regions_that_were_cut_are_told_what_they_missed(regions):
    writer, cacher = regions["b/1"].raw(), Cacher(regions["a/1"].raw())
    writer.call("SET", "cut", "old")
    wait_until(lambda: cacher.get(b"cut") == b"old", timeout=20)
    cacher.drain(3)
    cacher.get(b"cut")
    regions.do("cut a b")
    writer.call("SET", "cut", "new")
    end = time.monotonic() + 4
    while time.monotonic() < end:
        cacher.drain(0.1)
        if b"cut" not in cacher.cache:
            assert cacher.get(b"cut") == b"old"
    regions.do("heal")
    end = time.monotonic() + 30
    while cacher.cache.get(b"cut") != b"new" and time.monotonic() < end:
        cacher.drain(0.1)
        if b"cut" not in cacher.cache:
            cacher.get(b"cut")
    assert cacher.cache[b"cut"] == b"new"


def test_socket_closed_in_between(workers):
    """Clients that vanish with reads and writes under way leave nothing behind."""
    watcher = Cacher(workers.raw())
    for number in range(50):
        cacher = Cacher(workers.raw(), "NOLOOP")
        cacher.raw.send(encode(["GET", f"gone:{number}"]) + encode(["SET", f"gone:{number}", "1"]))
        cacher.raw.socket.shutdown(socket.SHUT_RDWR)
        cacher.raw.close()
    watcher.get(b"gone:1")
    with workers.raw() as client:
        client.call("SET", "gone:1", "2")
    watcher.loses(b"gone:1", 3)
