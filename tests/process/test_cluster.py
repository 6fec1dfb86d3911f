"""Clusters of real processes: keyspaces replicated over processes and regions, which are killed, paused and cut off."""

import itertools
import os
import re
import statistics
import threading
import time
from pathlib import Path

import pytest
import redis
import retwis

from cluster import Cluster
from harness import laboratory, wait_until
from resp import encode

# Small files and frequent checkpoints, so that restarts meet them.
BUSY = """
[storage]
checkpoint_after_bytes = 65_536
segment_bytes = 65_536
"""
# What a client may meet while processes die: it does not know whether its command happened.
UNKNOWN = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)


# How conflicting transactions of strict keyspaces are kept apart: by TAPIR, or by the shards' leaders.
CONCURRENCY = ["optimistic", "locking", "occ"]


@pytest.fixture(scope="module", params=CONCURRENCY)
def strict(request):
    with Cluster(3, 1, "--concurrency", request.param) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def causal():
    with Cluster(2, 2, "--model", "causal") as cluster:
        yield cluster


def together(*actions) -> None:
    """Runs the actions at the same time; fails if one does."""
    errors = []

    def run(action):
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Counting:
    """A client that increments a key of its own, and goes to the next process when its own does not answer."""

    def __init__(self, cluster: Cluster, number: int, value: str = ""):
        self.nodes = itertools.cycle(list(cluster)[number:] + list(cluster)[:number])
        self.key, self.log = f"counting:{number}", f"counting:{number}:log"
        self.value = value
        self.sent = self.acknowledged = 0
        self.known = []
        self.stopping = threading.Event()
        self.error = self.refusal = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            while not self.stopping.is_set():
                self._use(next(self.nodes))
        except BaseException as error:
            self.error = error

    def _use(self, node):
        try:
            with node.client(socket_timeout=3) as client:
                while not self.stopping.is_set():
                    self.sent += 1
                    with client.pipeline(transaction=True) as both:
                        both.incr(self.key).rpush(self.log, f"{self.sent}{self.value}").execute()
                    self.acknowledged += 1
                    self.known.append(self.sent)
                    time.sleep(0.02)
        except UNKNOWN as error:
            self.refusal = f"{node.name}: {error}"
            time.sleep(0.05)
        except redis.exceptions.ResponseError as error:
            self.refusal = f"{node.name}: {error}"
            assert str(error).startswith(("UNKNOWNOUTCOME", "UNAVAILABLE", "CONFLICT")), error

    def stop(self):
        self.stopping.set()
        self.thread.join()
        if self.error:
            raise self.error

    def check(self, client: redis.Redis):
        """Everything acknowledged happened once, in order; what was not may have happened once, perhaps late."""
        with client.pipeline(transaction=True) as both:
            value, entries = both.get(self.key).lrange(self.log, 0, -1).execute()
        count, numbers = int(value or 0), [int(entry.split(":")[0]) for entry in entries]
        assert len(numbers) == count <= self.sent, f"{len(numbers)} entries, count {count}: a transaction is there in part"
        assert len(set(numbers)) == count, "a transaction happened twice"
        known = set(self.known)
        assert [number for number in numbers if number in known] == self.known, "what was acknowledged is lost"


def progress(counting: list[Counting], least: int = 5, timeout: float = 20.0) -> None:
    """Waits until every client has been acknowledged again."""
    before = [client.acknowledged for client in counting]

    def standing() -> list[str]:
        pairs = zip(counting, before)
        return [f"{c.key}: {c.refusal}" for c, b in pairs if c.acknowledged < b + least and not c.error]

    try:
        wait_until(lambda: not standing(), timeout)
    except AssertionError:
        raise AssertionError(f"clients that stand still, and their last refusals: {standing()}") from None


# strict


def test_every_process_serves_every_key(strict):
    clients = [node.client() for node in strict]
    for number in range(30):
        assert clients[number % 3].set(f"every:{number}", number)
        assert [client.get(f"every:{number}") for client in clients] == [str(number)] * 3
    keys = [f"every:{number}" for number in range(30)]
    assert clients[1].mget(keys) == [str(number) for number in range(30)]


def test_increments_from_everywhere_sum_up(strict):
    seen = {node.name: [] for node in strict}

    def increment(node):
        with node.client() as client:
            seen[node.name] += [client.incr("sum") for _ in range(30)]

    together(*(lambda node=node: increment(node) for node in strict))
    assert sorted(itertools.chain(*seen.values())) == list(range(1, 91)), "every reply is another number"
    assert all(replies == sorted(replies) for replies in seen.values())


def test_a_pipeline_takes_effect_in_its_order(strict):
    with strict["a/1"].client() as client:
        pipeline = client.pipeline(transaction=False)
        for _ in range(50):
            pipeline.incr("piped")
        pipeline.set("piped", "last").get("piped")
        assert pipeline.execute() == [*range(1, 51), True, "last"]


def test_transactions_over_shards_are_seen_whole(strict):
    accounts = [f"account:{number}" for number in range(6)]
    strict["a/1"].client().mset(dict.fromkeys(accounts, 100))
    ended = threading.Event()

    def transfer(node, seed):
        with node.client() as client:
            for number in range(15):
                source, target = accounts[(seed + number) % 6], accounts[(seed + 2 * number + 1) % 6]
                with client.pipeline(transaction=True) as both:
                    both.decrby(source, 7).incrby(target, 7).execute()

    def observe():
        with strict["b/1"].client() as client:
            while not ended.is_set():
                assert sum(map(int, client.mget(accounts))) == 600
                time.sleep(0.002)

    reader = threading.Thread(target=observe, daemon=True)
    reader.start()
    try:
        together(*(lambda node=node, seed=seed: transfer(node, seed) for seed, node in enumerate(strict)))
    finally:
        ended.set()
        reader.join()
    assert sum(map(int, strict["c/1"].client().mget(accounts))) == 600


@pytest.mark.parametrize("strict", ["optimistic", "occ"], indirect=True)
def test_interactive_transactions_conflict(strict):
    with strict["a/1"].raw() as first, strict["b/1"].raw() as second:
        for words in ("SET open:1 1", "SET open:2 2", "TXN BEGIN"):
            assert first.call(*words.split()).raw == b"+OK\r\n"
        assert first.call("GET", "open:1").text == b"1"
        assert first.call("SET", "open:2", "3").raw == b"+OK\r\n"
        assert first.call("GET", "open:2").text == b"3", "it reads its own write"
        assert second.call("GET", "open:2").text == b"2", "nobody else does"
        assert second.call("SET", "open:1", "5").raw == b"+OK\r\n"
        assert first.call("TXN", "COMMIT").raw.startswith(b"-CONFLICT")
        assert second.call("GET", "open:2").text == b"2"


@pytest.mark.parametrize("strict", ["locking"], indirect=True)
def test_locks_let_the_older_transaction_win(strict):
    with strict["a/1"].raw() as older, strict["b/1"].raw() as younger:
        for words in ("SET lock:1 1", "SET lock:2 2", "TXN BEGIN"):
            assert older.call(*words.split()).raw == b"+OK\r\n"
        assert older.call("GET", "lock:1").text == b"1"
        # Whoever is younger waits: its write happens after the commit of the transaction that has read.
        younger.send(encode((b"SET", b"lock:1", b"5")))
        assert older.call("SET", "lock:2", "3").raw == b"+OK\r\n"
        assert older.call("GET", "lock:1").text == b"1", "nothing has changed what it has read"
        assert older.call("TXN", "COMMIT").raw == b"+OK\r\n"
        assert younger.read().raw == b"+OK\r\n"
        assert younger.call("MGET", "lock:1", "lock:2").texts() == [b"5", b"3"]
        # Whoever is older takes the locks away.
        assert older.call("TXN", "BEGIN").raw == younger.call("TXN", "BEGIN").raw == b"+OK\r\n"
        assert younger.call("INCR", "lock:1").text == b"6"
        assert older.call("INCR", "lock:1").text == b"6"
        for words in ("GET lock:1", "SET lock:2 1", "TXN COMMIT"):
            reply = younger.call(*words.split())
            assert reply.raw.startswith(b"-CONFLICT") and b"'lock:1'" in reply.raw, reply
        assert older.call("TXN", "COMMIT").raw == b"+OK\r\n"
        assert younger.call("GET", "lock:1").text == b"6"


def test_watched_keys_stop_a_transaction(strict):
    with strict["a/1"].client() as client, strict["b/1"].client() as other:
        client.mset({"watched:1": 1, "watched:2": 2})
        with client.pipeline() as watching:
            watching.watch("watched:1", "watched:2")
            assert watching.get("watched:1") == "1"
            other.set("watched:2", 3)
            watching.multi()
            watching.set("watched:1", 4)
            with pytest.raises(redis.exceptions.WatchError):
                watching.execute()
        assert client.mget("watched:1", "watched:2") == ["1", "3"], "nothing of it happened"
        with client.pipeline() as watching:
            watching.watch("watched:1", "watched:2")
            other.set("unwatched", 1)
            watching.multi()
            watching.incr("watched:1").get("watched:2")
            assert watching.execute() == [2, "3"]


def test_watch_with_retry_loses_no_increment(strict):
    def add_one(pipe):
        value = int(pipe.get("retried") or 0)
        pipe.multi()
        pipe.set("retried", value + 1)

    def increment(node):
        with node.client() as client:
            for _ in range(10):
                client.transaction(add_one, "retried")

    together(*(lambda node=node: increment(node) for node in strict))
    assert strict["a/1"].client().get("retried") == "30"


def test_every_type_lives_on_every_process(strict):
    a, b, c = (node.client() for node in strict)
    a.flushdb()
    assert b.hset("types:hash", mapping={"f": 1, "g": "x"}) == 2
    assert c.hincrby("types:hash", "f", 4) == 5
    assert a.hgetall("types:hash") == {"f": "5", "g": "x"}
    assert b.rpush("types:list", "x", "y", "z") == 3
    assert c.lpop("types:list") == "x"
    assert a.lrange("types:list", 0, -1) == ["y", "z"]
    assert b.sadd("types:set", "m", "n") == 2
    assert c.srem("types:set", "m") == 1
    assert a.smembers("types:set") == {"n"}
    assert b.zadd("types:zset", {"m": 1.5, "n": 3}) == 2
    assert c.zincrby("types:zset", 2, "m") == 3.5
    assert a.zrange("types:zset", 0, -1, withscores=True) in ([("n", 3.0), ("m", 3.5)], [["n", 3.0], ["m", 3.5]])
    assert b.append("types:string", "ab") == 2 and c.append("types:string", "c") == 3
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        a.lpush("types:string", "x")
    assert b.rename("types:string", "types:renamed") and a.get("types:renamed") == "abc"
    assert c.set("types:short", 1, px=50)
    wait_until(lambda: a.get("types:short") is None and b.exists("types:short") == 0)
    keys = {f"types:{name}" for name in ("hash", "list", "set", "zset", "renamed")}
    wait_until(lambda: set(c.scan_iter(count=2)) == keys)
    assert a.delete(*keys) == 5
    wait_until(lambda: b.dbsize() == 0)
    flushed = [f"flushed:{number}" for number in range(40)]
    assert a.mset(dict.fromkeys(flushed, 1)) and b.mget(flushed) == ["1"] * 40
    wait_until(lambda: b.dbsize() == 40)
    assert b.flushdb() and c.mget(flushed) == [None] * 40


def test_the_whole_keyspace_is_part_of_transactions(strict):
    with strict["a/1"].raw() as first, strict["b/1"].raw() as second:

        def many(raw, *commands):
            """The replies of MULTI, the commands, EXEC."""
            for command in ("MULTI", *commands):
                raw.call(*command.split())
            return raw.call("EXEC").items

        # Nothing of earlier tests; outside of a transaction every key goes one by one.
        flushed, written, count = many(first, "FLUSHDB", "SET whole:1 a", "DBSIZE")
        assert (flushed.raw, written.raw, count.text) == (b"+OK\r\n", b"+OK\r\n", b"1")
        assert [item.text for item in many(second, "DBSIZE", "SET whole:2 b", "DBSIZE")] == [b"1", b"OK", b"2"]
        keys, scanned = many(first, "KEYS whole:*", "SCAN 0 COUNT 100")
        assert sorted(keys.texts()) == [b"whole:1", b"whole:2"] and len(scanned.items) == 2
        # With a command that takes several requests, too.
        renamed, count = many(first, "RENAME whole:2 whole:3", "DBSIZE")
        assert (renamed.text, count.text) == (b"OK", b"2")
        # An open transaction has counted; a key that changes is nothing to it, one that comes is.
        for command, outcome in [("APPEND whole:1 x", b"+OK"), ("SET whole:4 new", b"-CONFLICT")]:
            assert first.call("TXN", "BEGIN").raw == b"+OK\r\n"
            assert first.call("DBSIZE").text == b"2"
            assert second.call(*command.split()).raw[:1] in b":+"
            assert first.call("SET", "whole:1", "y").raw == b"+OK\r\n"
            assert first.call("TXN", "COMMIT").raw.startswith(outcome)
        assert [item.text for item in many(first, "FLUSHDB", "DBSIZE")] == [b"OK", b"0"]
        assert second.call("GET", "whole:1").text is None
        assert [item.text for item in many(second, "DBSIZE")] == [b"0"]


def test_counts_beside_creations_are_all_different(strict):
    """Each transaction creates a key and counts: every count is one that nobody else saw."""
    counts = []

    def create(node, number):
        with node.raw() as raw:
            for index in range(10):
                while True:
                    raw.call("MULTI")
                    raw.call("SET", f"counted:{number}:{index}", "1")
                    raw.call("DBSIZE")
                    reply = raw.call("EXEC")
                    if not reply.raw.startswith(b"-CONFLICT"):
                        break
                counts.append(int(reply.items[1].text))

    before = strict["a/1"].client().dbsize()
    together(*(lambda node=node, number=number: create(node, number) for number, node in enumerate(strict)))
    assert sorted(counts) == list(range(before + 1, before + 31))


def test_what_a_process_says_about_the_cluster(strict):
    with strict["b/1"].client() as client:
        wait_until(lambda: client.info("cluster")["cluster_peers_connected"] == 2)
        about = client.info("cluster")
        assert (about["cluster_region"], about["cluster_processes"], about["cluster_enabled"]) == ("b", 3, 0)
        assert client.execute_command("KEYSPACE", "LIST") == ["default"]
        with pytest.raises(redis.exceptions.ResponseError, match="out of range"):
            client.execute_command("SELECT", "1")


def test_lines_that_make_no_sense_are_answered(strict):
    assert strict.say("restart a/1").startswith("error: it is running")
    assert strict.say("kill d/1").startswith("error: there is no process d/1")
    assert strict.say("cut a z").startswith("error: there is no link")
    assert strict.say("explode").startswith("error: not understood")


@pytest.mark.parametrize(
    "durability, config, concurrency",
    [
        pytest.param("always", "", "optimistic", marks=pytest.mark.soak),
        ("everysec", BUSY, "optimistic"),
        pytest.param("always", BUSY, "locking", marks=pytest.mark.soak),
        pytest.param("everysec", "", "occ", marks=pytest.mark.soak),
    ],
)
def test_a_process_is_killed_and_comes_back_under_load(durability, config, concurrency):
    with Cluster(3, 1, "--durability", durability, "--concurrency", concurrency, config=config) as cluster:
        counting = [Counting(cluster, number, ":" + "x" * 500) for number in range(3)]
        progress(counting)
        for name in ("c/1", "a/1"):
            cluster.do(f"kill {name}")
            progress(counting)
            cluster.do(f"restart {name}")
            progress(counting)
        cluster.do("pause b/1")
        progress(counting)
        cluster.do("resume b/1", "cut a b")
        progress(counting)
        cluster.do("heal")
        progress(counting)
        for client in counting:
            client.stop()
        for node in cluster:
            for client in counting:
                client.check(node.client())
        for node in cluster:
            cluster.do(f"kill {node.name}")
        for node in cluster:
            cluster.do(f"restart {node.name}")
        for client in counting:
            client.check(cluster["b/1"].client())
        if config:
            assert cluster["a/1"].client().incr("after") == 1
            assert "checkpoint" in cluster.logs(), "restarts met none"


def test_a_record_shrinks_when_everybody_knows_it():
    """What replicas remember of finished transactions does not grow with a cluster's life."""

    def recorded(node) -> int:
        with node.client() as client:
            here = client.execute_command("KEYSPACE", "INFO", "default")["partitions_here"]
        return sum(int(re.search(r"(\d+) recorded", partition)[1]) for partition in here)

    keys = [f"key:{number}" for number in range(2000 if os.environ.get("ANABRANCH_SOAK") else 500)]
    with Cluster(1, 3) as cluster:
        with cluster["a/1"].client() as client:
            for key in keys:
                client.set(key, key)
        assert max(map(recorded, cluster)) >= len(keys)
        wait_until(lambda: max(map(recorded, cluster)) == 0)
        cluster.do("kill a/2", "restart a/2")
        with cluster["a/2"].client() as client:
            assert client.mget(keys) == keys


def test_clocks_that_are_off_change_no_order():
    """Real-time order holds whatever clocks say: each increment happens after the one before it was answered."""
    with Cluster(3, 1, "--skew", "a/1=3s", "--skew", "b/1=-2s", program=laboratory()) as cluster:
        clients = itertools.cycle([node.client() for node in cluster])
        for number in range(1, 40):
            assert next(clients).incr("skewed") == number
            assert next(clients).get("skewed") == str(number)


@pytest.mark.parametrize("skew", ["3600s", "-3600s"])
def test_a_clock_that_is_hours_off_expires_nothing(skew):
    """The process follows the clocks of the majority: locks live as long as they say, whoever sets and reads them."""
    with Cluster(3, 1, "--skew", f"a/1={skew}", program=laboratory()) as cluster:
        off, right = cluster["a/1"].client(), cluster["b/1"].client()
        correction = -1000 * int(skew[:-1])
        info = "cluster_clock_correction_ms"
        wait_until(lambda: abs(off.info("cluster")[info] - correction) < 1000)
        assert right.info("cluster")[info] == 0
        for name, options in (("ordered", ""), ("locks", "CONCURRENCY locking")):
            off.execute_command(*f"KEYSPACE CREATE {name} MODEL strict {options}".split())
            for setter, reader in ((right, off), (off, right)):
                for client in (setter, reader):
                    wait_until(lambda: name in client.execute_command("KEYSPACE", "LIST"))
                    client.execute_command("KEYSPACE", "USE", name)
                assert setter.set("lock", "mine", nx=True, px=60_000)
                assert reader.get("lock") == "mine"
                assert not reader.set("lock", "yours", nx=True)
                assert 50_000 < reader.pttl("lock") <= 61_000
                assert setter.delete("lock") == 1


def test_a_minority_refuses_and_the_majority_goes_on(strict):
    strict.do("cut c a", "cut c b")
    try:
        with strict["a/1"].client() as client, strict["c/1"].client() as alone:
            assert client.incr("majority") == 1
            with pytest.raises(redis.exceptions.ResponseError, match="UNAVAILABLE|UNKNOWNOUTCOME"):
                alone.incr("minority")
    finally:
        strict.do("heal")
    with strict["c/1"].client() as client:
        wait_until(lambda: client.info("cluster")["cluster_peers_connected"] == 2)
        assert client.get("majority") == "1"
        assert client.incr("majority") == 2


def test_a_far_region_delays_nobody():
    with Cluster(2, 1, "--model", "causal", "--delay", "a-b=400ms") as cluster:
        with cluster["a/1"].client() as a, cluster["b/1"].client() as b:
            spans = []
            for number in range(20):
                begin = time.monotonic()
                a.set("near", number)
                assert a.get("near") == str(number)
                spans.append(time.monotonic() - begin)
            assert statistics.median(spans) < 0.4, "nobody waited for the other region"
            assert b.get("near") is None
            wait_until(lambda: b.get("near") == "19")
            cluster.do("delay a b 0ms")


@pytest.mark.parametrize("durability", [pytest.param("always", marks=pytest.mark.soak), "everysec"])
def test_a_partition_is_killed_and_comes_back(durability):
    with Cluster(2, 2, "--model", "causal", "--durability", durability, config=BUSY) as cluster:
        keys = [f"partition:{number}" for number in range(20)]
        with cluster["a/1"].client() as a, cluster["b/1"].client() as b:
            for round_number in range(3):
                for _ in range(10):
                    for key in keys:
                        a.append(key, "x" * 50)
                written = a.mget(keys)
                cluster.do("kill a/2")
                assert b.incr("alive") == round_number + 1, "the other region goes on"
                cluster.do("restart a/2")
                assert a.mget(keys) == written, "what was acknowledged is there"
                wait_until(lambda: b.mget(keys) == written)
                wait_until(lambda: a.get("alive") == str(round_number + 1))


def test_processes_do_without_huge_pages():
    with Cluster(1, 3) as cluster:
        pid = cluster["a/1"].pid
        status = Path(f"/proc/{pid}/status").read_text()
    # Kernels before 5.0 do not say so.
    assert "THP_enabled" not in status or re.search(r"THP_enabled:\s+0\b", status)


def test_the_processes_end_in_order_when_whoever_started_them_is_killed():
    with Cluster(1, 3) as cluster:
        pids = [node.pid for node in cluster]
        cluster["a/1"].client().set("kept", "1")
        cluster.process.kill()
        cluster.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        assert cluster.logs().count("ended in order") == 3
        cluster.start()
        assert cluster["a/2"].client().get("kept") == "1"


# An application


def use(app: retwis.Retwis, label: str, begin: int) -> None:
    """Three users follow one another and post; all of it must be there, in order."""
    names = [f"{label}{number}" for number in range(begin, begin + 3)]
    for name in names:
        app.sign_up(name, name)
    tokens = [app.log_in(name, name) for name in names]
    for (name, token), other in itertools.product(zip(names, tokens), names):
        if other != name:
            app.follow(token, other)
    for number, token in enumerate(tokens):
        app.post(token, f"{label} {number}")
    for token in tokens:
        assert [post.text for post in app.timeline(token)[0]] == [f"{label} {number}" for number in (2, 1, 0)]


@pytest.mark.parametrize("shape", [(3, 1), (2, 1)], ids=["strict", "causal"])
def test_retwis_runs_while_a_process_is_killed_and_restarted(shape):
    model = ("--model", "causal") if shape == (2, 1) else ()
    with Cluster(*shape, *model) as cluster:
        app = retwis.Retwis(cluster["a/1"].client())
        use(app, "before", 0)
        cluster.do("kill b/1")
        use(app, "without", 0)
        cluster.do("restart b/1")
        use(app, "after", 0)
        there = retwis.Retwis(cluster["b/1"].client())
        wait_until(lambda: len(there.everybody(0, 100)[0]) == 9)
        assert there.everybody(0, 100) == app.everybody(0, 100)


# causal, last: the processes of a causal keyspace work even while nobody asks them anything


def test_local_writes_are_seen_elsewhere_soon(causal):
    with causal["a/1"].client() as here, causal["a/2"].client() as neighbor, causal["b/2"].client() as there:
        here.mset({"seen:1": "one", "seen:2": "two"})
        assert here.mget("seen:1", "seen:2") == ["one", "two"], "a process reads its own writes"
        for client in (neighbor, there):
            wait_until(lambda: client.get("seen:1") == "one")
            assert client.get("seen:2") == "two", "they were one transaction"


def test_regions_cut_off_both_serve_and_converge(causal):
    with causal["a/1"].client() as a, causal["b/1"].client() as b:
        causal.do("cut a b")
        try:
            for number in range(20):
                a.set(f"cut:a:{number}", number)
                b.set(f"cut:b:{number}", number)
                a.incr("cut:sum"), b.incr("cut:sum")
                a.set("cut:same", f"a{number}"), b.set("cut:same", f"b{number}")
            assert (a.get("cut:sum"), b.get("cut:sum")) == ("20", "20")
            assert (a.get("cut:same"), b.get("cut:same")) == ("a19", "b19")
            assert b.get("cut:a:0") is None
        finally:
            causal.do("heal")
        wait_until(lambda: a.get("cut:b:19") == "19" and b.get("cut:a:19") == "19")
        wait_until(lambda: a.get("cut:sum") == b.get("cut:sum") == "40")
        wait_until(lambda: a.get("cut:same") == b.get("cut:same"))
        assert a.get("cut:same") in ("a19", "b19")
