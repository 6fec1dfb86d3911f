"""Many clients on few keys, and a client on many: both those that add and those that look get on, and nobody is told CONFLICT."""

import os
import random
import threading

import pytest
import redis

from cluster import Cluster
from harness import laboratory
from test_keyspaces import create, info, use

# With more keys at once, where the machine does nothing else: requests have deadlines.
SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
ADDERS, READERS, ROUNDS = 24, 8, 40 if SOAK else 20
KEYS = ["h0", "h1", "h2", "h3"]


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3, program=laboratory()) as cluster:
        yield cluster


def transact(client, *commands) -> list:
    """Runs commands as one transaction, on the client's own connection."""
    client.execute_command("MULTI")
    for command in commands:
        assert client.execute_command(*command) == "QUEUED"
    return client.execute_command("EXEC")


def at_once(clients: int, work) -> None:
    """Runs a client for each number at the same time; none may fail."""
    failures = []

    def tried(number):
        try:
            work(number)
        except Exception as error:  # the test tells it
            failures.append((number, f"{type(error).__name__}: {error}"))

    threads = [threading.Thread(target=tried, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


CONCURRENCIES = [
    "locking PHASING on LOCKS typed",
    "locking PHASING off LOCKS typed",
    "locking PHASING on LOCKS readwrite",
    "locking PHASING off LOCKS readwrite",
    "occ",
    "optimistic",
]


def crowds():
    """Each concurrency with one partition and with four; every second of these is left to `cargo xtask soak`."""
    for number, concurrency in enumerate(CONCURRENCIES):
        for partitions in (1, 4):
            left = (number % 2 == 0) == (partitions == 1)
            yield pytest.param(partitions, concurrency, marks=[pytest.mark.soak] if left else [])


@pytest.mark.parametrize("partitions, concurrency", list(crowds()))
def test_additions_beside_looks_at_hot_keys(cluster, partitions, concurrency):
    """Every transaction of every client commits, and what was added is there."""
    name = f"crowd-{partitions}-{concurrency.replace(' ', '-')}"
    options = ("CONCURRENCY", *concurrency.split())
    with cluster["a/1"].client() as client:
        create(client, name, "MODEL", "strict", "PARTITIONS", partitions, "REPLICAS", 3, *options)
    nodes, failures = list(cluster), []
    members = {key: set() for key in KEYS}

    def add(client, number, turn):
        keys, member = random.Random(number * ROUNDS + turn).choices(KEYS, k=2), f"{number}.{turn}"
        assert transact(client, *(("BLIND", "SADD", key, member) for key in keys)) == ["OK", "OK"]
        for key in keys:
            members[key].add(member)

    def look(client, number, turn):
        keys = random.Random(number * ROUNDS + turn).choices(KEYS, k=2)
        assert len(transact(client, *(("SCARD", key) for key in keys))) == 2

    def work(number, perform):
        try:
            with nodes[number % 3].client(single_connection_client=True, decode_responses=True) as client:
                use(client, name)
                for turn in range(ROUNDS):
                    perform(client, number, turn)
        except Exception as error:  # the test tells it
            failures.append((number, perform.__name__, error))

    kinds = [add] * ADDERS + [look] * READERS
    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(kinds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    with cluster["a/2"].client(single_connection_client=True, decode_responses=True) as client:
        use(client, name)
        assert {key: client.smembers(key) for key in KEYS} == members


@pytest.mark.parametrize("combining", ["on", "off"])
def test_increments_of_hot_keys_combine(cluster, combining):
    """Each client is told sums of its own, whether it committed with others of its process or by itself."""
    name, nodes, sums = f"combining-{combining}", list(cluster), []
    options = ("CONCURRENCY", "locking", "COMBINING", combining)
    with cluster["a/1"].client() as client:
        create(client, name, "MODEL", "strict", "PARTITIONS", 4, "REPLICAS", 3, *options)
        assert info(client, name)["combining"] == combining
        with pytest.raises(redis.ResponseError, match="COMBINING stays"):
            client.execute_command("KEYSPACE", "ALTER", name, "COMBINING", "on")

    def work(number):
        with nodes[number % 3].client(single_connection_client=True) as client:
            use(client, name)
            for turn in range(ROUNDS):
                blind = transact(client, ("BLIND", "SADD", "s", f"{number}.{turn}"))
                assert blind == ["OK"]
                sums.append(transact(client, ("INCR", "one"), ("INCR", "two")))

    at_once(ADDERS, work)
    assert sorted(sums) == [[number, number] for number in range(1, ADDERS * ROUNDS + 1)]
    combined = 0
    for node in nodes:
        with node.client(single_connection_client=True) as client:
            use(client, name)
            assert client.scard("s") == ADDERS * ROUNDS
            combined += client.info("cluster")[f"strict_{name}"]["combined"]
    assert (combined > 0) == (combining == "on"), combined


def test_a_client_that_watches_a_key_which_many_add_to_wins(cluster):
    """It tries again by itself, as `WATCH` has it; each loss makes it older."""
    with cluster["a/1"].client() as client:
        create(client, "watched", "MODEL", "strict", "PARTITIONS", 1, "REPLICAS", 3)
    nodes, done, failures = list(cluster), threading.Event(), []

    def add(number):
        try:
            with nodes[number % 3].client(single_connection_client=True) as client:
                use(client, "watched")
                while not done.is_set():
                    client.execute_command("BLIND", "INCR", "hot")
        except Exception as error:  # the test tells it
            failures.append((number, error))

    threads = [threading.Thread(target=add, args=(number,), daemon=True) for number in range(12)]
    for thread in threads:
        thread.start()
    seen = []
    try:
        with cluster["a/1"].client(single_connection_client=True, decode_responses=True) as client:
            use(client, "watched")
            for turn in range(10):
                tries = 0
                while tries < 200:
                    tries += 1
                    client.execute_command("WATCH", "hot")
                    value = client.get("hot")
                    if transact(client, ("SADD", "seen", value or 0)) is not None:
                        break
                seen.append(tries)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures
    assert max(seen) < 50, f"tries until it won: {seen}"


def test_blind_additions_to_keys_with_a_deadline(cluster):
    """However many come: each is evaluated, since the coordinator has learned of the deadline."""
    with cluster["a/1"].client(single_connection_client=True, decode_responses=True) as client:
        create(client, "deadlines", "MODEL", "strict", "PARTITIONS", 2, "REPLICAS", 3, "CONCURRENCY", "locking")
        use(client, "deadlines")
        for key in KEYS:
            client.sadd(key, "first")
            client.expire(key, 600)
        for turn in range(5):
            assert transact(client, *(("BLIND", "SADD", key, turn) for key in KEYS)) == ["OK"] * 4
        assert [client.scard(key) for key in KEYS] == [6] * 4
        client.set("text", "no counter")
        with pytest.raises(Exception, match="WRONGTYPE"):
            client.execute_command("COUNTER.ADD", "text", 1)


def pipelined(client, *commands) -> list:
    """The replies to commands that are sent together on the client's own connection."""
    client.connection.send_packed_command(client.connection.pack_commands(commands))
    return [client.connection.read_response() for _ in commands]


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.soak), 4])
@pytest.mark.parametrize("concurrency", ["locking", "occ", "optimistic"])
def test_commands_on_very_many_keys(cluster, partitions, concurrency):
    """Before a request is given up, a command and a transaction on thousands of keys are done."""
    name, keys = f"many-{partitions}-{concurrency}", [f"k{number}" for number in range(10_000 if SOAK else 3_000)]
    with cluster["a/1"].client(single_connection_client=True, decode_responses=True) as client:
        create(client, name, "MODEL", "strict", "PARTITIONS", partitions, "REPLICAS", 3, "CONCURRENCY", concurrency)
        use(client, name)
        assert client.mset(dict.fromkeys(keys, "1"))
        replies = pipelined(client, ("MULTI",), *(("INCR", key) for key in keys[::-1]), ("DBSIZE",), ("EXEC",))
        assert replies[-1] == [2] * len(keys) + [len(keys)]
        assert client.mget(keys) == ["2"] * len(keys)
        assert client.delete(*keys) == len(keys)
        assert transact(client, ("DBSIZE",)) == [0]


@pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("concurrency", ["locking", "occ", "optimistic"])
def test_transactions_on_many_keys_that_meet(cluster, partitions, concurrency):
    """Whichever way round they go through hundreds of keys, each of them is done."""
    name, keys = f"meet-{partitions}-{concurrency}", [f"k{number}" for number in range(1000 if SOAK else 300)]
    with cluster["a/1"].client() as client:
        create(client, name, "MODEL", "strict", "PARTITIONS", partitions, "REPLICAS", 3, "CONCURRENCY", concurrency)
    nodes, clients, rounds = list(cluster), 4, 2

    def work(number):
        own = keys if number % 2 == 0 else keys[::-1]
        with nodes[number % 3].client(single_connection_client=True, decode_responses=True) as client:
            use(client, name)
            for _ in range(rounds):
                replies = pipelined(client, ("MULTI",), *(("INCR", key) for key in own), ("EXEC",))
                assert len(set(replies[-1])) == 1, "it is between the others as a whole"

    at_once(clients, work)
    with cluster["a/2"].client(single_connection_client=True, decode_responses=True) as client:
        use(client, name)
        assert client.mget(keys) == [str(clients * rounds)] * len(keys)


@pytest.mark.parametrize(
    "options",
    ["strict", "strict CONCURRENCY locking", "strict CONCURRENCY locking PARTITIONS 4", "strict CONCURRENCY occ", "causal", "branch"],
)
def test_a_transaction_of_thousands_of_commands_on_a_few_keys(cluster, options):
    """What a client's pipeline sends as one MULTI: each command sees those before it."""
    name = f"load-{options.replace(' ', '-')}"
    commands, expected, counted, rounds = [], [], 0, 2_000
    for number in range(rounds):
        commands += [("RPUSH", "list", f"v{number}"), ("HSET", "hash", f"f{number % 1000}", number), ("INCR", "count")]
        counted += 1
        expected += [number + 1, 1 if number < 1000 else 0, counted]
        if number % 50 == 0:
            commands += [("BLIND", "INCRBY", "count", 7), ("LINDEX", "list", -1), ("HLEN", "hash"), ("GET", "count")]
            counted += 7
            expected += ["OK", f"v{number}", min(number + 1, 1000), str(counted)]
        if number == 1_100:
            commands += [("DEL", "count"), ("EXISTS", "count")]
            counted = 0
            expected += [1, 0]
    with cluster["a/1"].client(single_connection_client=True, decode_responses=True) as client:
        create(client, name, "MODEL", *options.split())
        use(client, name)
        assert pipelined(client, ("MULTI",), *commands, ("EXEC",))[-1] == expected
        assert (client.get("count"), client.llen("list"), client.hlen("hash")) == (str(counted), rounds, 1_000)


def test_transactions_on_many_keys_count_once_whoever_is_killed():
    """No key is in many of them, so each leaves a shard to the end, whose leader evaluates its part and decides. Every result is told once."""
    keys = [f"key:{number}" for number in range(60)]
    told, doubtful, stop = {key: [] for key in keys}, dict.fromkeys(keys, 0), threading.Event()
    lock = threading.Lock()
    with Cluster(1, 3) as cluster:
        with cluster["a/1"].client() as client:
            create(client, "many", "MODEL", "strict", "PARTITIONS", 4, "REPLICAS", 3, "CONCURRENCY", "locking")

        def increment(client, drawn) -> None:
            asked = False
            try:
                use(client, "many")
                while not stop.is_set():
                    own, asked = drawn.sample(keys, 3), False
                    client.execute_command("MULTI")
                    for key in own:
                        assert client.execute_command("INCR", key) == "QUEUED"
                    asked = True
                    results = client.execute_command("EXEC")
                    with lock:
                        for key, result in zip(own, results):
                            told[key].append(result)
                    stop.wait(0.02)
            except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError) as error:
                nothing = str(error).startswith(("UNAVAILABLE", "CONFLICT"))
                with lock:
                    for key in own if asked and not nothing else []:
                        doubtful[key] += 1

        def work(number):
            drawn = random.Random(number)
            while not stop.is_set():
                node = cluster[f"a/{drawn.randrange(3) + 1}"]
                try:
                    with node.client(single_connection_client=True, socket_timeout=8) as client:
                        increment(client, drawn)
                except (redis.ConnectionError, redis.TimeoutError):
                    stop.wait(0.05)

        def kill(_):
            try:
                for name in ("a/1", "a/2", "a/3", "a/1"):
                    stop.wait(1)
                    cluster.do(f"kill {name}")
                    stop.wait(0.5)
                    cluster.do(f"restart {name}")
                stop.wait(2)
            finally:
                stop.set()

        at_once(13, lambda number: work(number) if number else kill(number))
        with cluster["a/2"].client(single_connection_client=True, decode_responses=True) as client:
            use(client, "many")
            counts = dict(zip(keys, [int(count or 0) for count in client.mget(keys)]))
    assert all(told.values()), "clients got on"
    for key, results in told.items():
        assert len(set(results)) == len(results), key
        assert len(results) <= counts[key] <= len(results) + doubtful[key], key
        assert max(results) <= counts[key], key
