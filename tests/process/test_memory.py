"""Limits of memory: what is refused above them, what goes from caches, and that replicas stay equal."""

import time

import pytest
import redis

from cluster import Cluster
from harness import Anabranch, Redis, wait_until
from test_cluster import CONCURRENCY
from test_keyspaces import create, info, use

VALUE = "v" * 1000
# How many keys are written at a time: fewer than a cache lets go at once.
BATCH = 50
OOM = "command not allowed when used memory > 'maxmemory'."


@pytest.fixture(scope="module")
def server():
    with Anabranch() as server:
        yield server


@pytest.fixture
def client(server):
    with server.client(decode_responses=True, single_connection_client=True) as client:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
        client.execute_command("SELECT", 0)
        client.flushall()
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


def fill(client, keys: int, prefix: str = "key", *options) -> None:
    put(client, names(prefix, keys), *options)


def names(prefix: str, keys: int) -> list[str]:
    return [f"{prefix}:{number}" for number in range(keys)]


def put(client, keys: list[str], *options) -> None:
    """Writes keys, some at a time, over the client's one connection: a pipeline's own knows nothing of KEYSPACE USE."""
    connection = client.connection
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        connection.send_packed_command(connection.pack_commands([("SET", key, VALUE, *options) for key in batch]))
        errors = [error for error in (refusal(connection) for _ in batch) if error]
        if errors:
            raise errors[0]


def refusal(connection) -> redis.ResponseError | None:
    try:
        connection.read_response()
    except redis.ResponseError as error:
        return error


def used(client) -> int:
    return client.info("memory")["used_memory"]


def test_without_a_policy_growing_commands_are_refused_as_in_redis(server, client):
    script = "return redis.call('set', 'a', '1')"
    with Redis() as peer, peer.client(decode_responses=True, single_connection_client=True) as other:
        told = []
        for who in (other, client):
            who.set("a", "b")
            who.config_set("maxmemory", "1")
            replies = []

            def ask(*command):
                try:
                    replies.append(str(who.execute_command(*command)))
                except redis.ResponseError as error:
                    replies.append(f"{type(error).__name__} {error}")

            for command in [("SET", "a", "c"), ("GET", "a"), ("LPUSH", "l", "x"), ("INCR", "n"), ("EXPIRE", "a", "100")]:
                ask(*command)
            for queued in (("SET", "a", "c"), ("GET", "a"), ("DEL", "gone")):
                ask("MULTI")
                ask(*queued)
                ask("EXEC")
            ask("EVAL", "return redis.pcall('set', 'a', '1').err", "0")
            ask("EVAL", "redis.call('del', 'a'); return redis.call('set', 'a', '1')", "0")
            ask("EVAL", "return redis.call('get', 'a')", "0")
            who.config_set("maxmemory", "0")
            ask("MULTI")
            ask("SET", "a", "c")
            replies.append("queued below the limit")
            with (peer if who is other else server).client() as operator:
                operator.config_set("maxmemory", "1")
            ask("EXEC")
            ask("GET", "a")
            who.config_set("maxmemory", "0")
            ask("SET", "a", "d")
            told.append(replies)
        assert told[1] == told[0]
        assert any(OOM in reply for reply in told[0])
    with pytest.raises(redis.ResponseError, match="used memory"):
        client.config_set("maxmemory", 1)
        client.eval(script, 0)


def test_memory_is_counted_as_it_grows_and_as_it_shrinks(client):
    before = used(client)
    fill(client, 2000)
    grown = used(client) - before
    assert 2000 * len(VALUE) < grown < 2000 * (len(VALUE) + 400), grown
    stats = client.memory_stats()
    assert stats["db.0"]["keys"] == 2000
    assert stats["db.0"]["bytes"] > 2000 * len(VALUE)
    assert client.memory_usage("key:1") > len(VALUE)
    client.flushdb()
    wait_until(lambda: used(client) - before < grown / 10)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"])
def test_with_a_policy_keys_go_and_writes_go_on(client, policy):
    fill(client, 500, "last")
    limit = used(client) + 2000 * (len(VALUE) + 150)
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", limit)
    evicted = client.info("stats")["evicted_keys"]
    fill(client, 6000, "leased", "EX", 1000)
    assert client.info("stats")["evicted_keys"] - evicted > 2000
    wait_until(lambda: used(client) <= limit)
    assert used(client) > limit * 0.7
    left = client.dbsize()
    lasting = client.exists(*names("last", 500))
    assert lasting == 500 if policy.startswith("volatile") else lasting < 500, (lasting, left)


def test_recently_used_keys_stay(client):
    client.config_set("maxmemory-policy", "allkeys-lru")
    fill(client, 200, "hot")
    client.config_set("maxmemory", used(client) + 2000 * (len(VALUE) + 150))
    for turn in range(20):
        fill(client, 300, f"cold{turn}")
        time.sleep(0.02)
        client.mget(names("hot", 200))
    left = client.exists(*names("hot", 200))
    assert left > 180, left


def test_a_policy_without_keys_that_may_go_refuses(client):
    fill(client, 100)
    client.config_set("maxmemory-policy", "volatile-lru")
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.ResponseError, match="used memory"):
        client.set("more", "x")
    assert client.get("key:1") == VALUE
    assert client.delete("key:1") == 1


def test_a_lower_limit_is_reached_without_further_commands(client):
    fill(client, 5000)
    client.config_set("maxmemory-policy", "allkeys-random")
    client.config_set("maxmemory", used(client) // 2)
    wait_until(lambda: used(client) <= int(client.config_get("maxmemory")["maxmemory"]))
    assert 1000 < client.dbsize() < 3500


def test_an_open_snapshot_does_not_empty_a_cache(server, client):
    fill(client, 3000)
    with server.client(decode_responses=True, single_connection_client=True) as reader:
        reader.execute_command("TXN", "BEGIN", "READONLY")
        assert reader.get("key:7") == VALUE
        client.config_set("maxmemory-policy", "allkeys-random")
        client.config_set("maxmemory", used(client) - 500 * len(VALUE))
        fill(client, 2000, "more")
        assert client.dbsize() > 1500
        assert reader.get("key:7") == VALUE
        reader.execute_command("TXN", "COMMIT")


def test_a_keyspace_is_a_cache_of_its_own(server, client):
    create(client, "pages", "MODEL", "strict", "EVICTION", "allkeys-lru", "MAXMEMORY", "1mb")
    use(client, "pages")
    fill(client, 5000)
    about = info(client, "pages")
    assert (about["eviction"], about["max_memory_bytes"]) == ("allkeys-lru", 1 << 20)
    assert about["memory_bytes"] <= 1 << 20
    assert 500 < client.dbsize() < 1100
    assert about["evicted_keys"] + client.dbsize() == 5000
    client.execute_command("KEYSPACE", "ALTER", "pages", "MAXMEMORY", "2mb")
    fill(client, 5000)
    assert 1 << 20 < info(client, "pages")["memory_bytes"] <= 2 << 20
    client.execute_command("KEYSPACE", "ALTER", "pages", "EVICTION", "volatile-ttl")
    with pytest.raises(redis.ResponseError, match="MAXMEMORY of keyspace 'pages'"):
        fill(client, 5000, "other")
    client.execute_command("KEYSPACE", "ALTER", "pages", "EVICTION", "noeviction")
    fill(client, 5000, "other")
    about = info(client, "pages")
    assert "eviction" not in about and about["memory_bytes"] > 2 << 20
    use(client, "default")
    client.execute_command("KEYSPACE", "DROP", "pages")


def test_what_went_stays_away_after_a_restart():
    with Anabranch("everysec", config="[server]\nmax_memory_bytes = 2000000\nmax_memory_policy = 'allkeys-random'\n") as server:
        with server.client(decode_responses=True, single_connection_client=True) as client:
            assert client.config_get("maxmemory*")["maxmemory"] == "2000000"
            fill(client, 5000)
            wait_until(lambda: used(client) <= 2_000_000)
            left = set(client.scan_iter(count=1000))
            assert 500 < len(left) < 2000
        server.kill()
        server.start()
        with server.client(decode_responses=True) as client:
            found = set(client.scan_iter(count=1000))
            assert found <= left and len(found) > len(left) * 0.9


@pytest.mark.parametrize(
    "options, reason",
    [
        (("MODEL", "causal", "EVICTION", "allkeys-lru"), "is for strict keyspaces"),
        (("MODEL", "branch", "MAXMEMORY", "1mb"), "is for strict keyspaces"),
        (("MODEL", "strict", "EVICTION", "lru"), "EVICTION is noeviction, allkeys-lru"),
        (("MODEL", "strict", "MAXMEMORY", "1mb"), "say by EVICTION which keys go"),
        (("MODEL", "strict", "EVICTION", "allkeys-lru", "MAXMEMORY", "much"), "an amount of memory"),
        (("MODEL", "strict", "EVICTION", "allkeys-lru", "CONCURRENCY", "locking"), "needs MAXMEMORY"),
    ],
)
def test_what_makes_no_cache_says_why(client, options, reason):
    with pytest.raises(redis.ResponseError, match=reason):
        create(client, "refused", *options)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def caches(cluster):
    """Clients of a cache of each concurrency, whose keys go while the others are filled."""
    clients = {}
    for concurrency in CONCURRENCY:
        name = f"cache-{concurrency}"
        options = ["MODEL", "strict", "CONCURRENCY", concurrency, "PARTITIONS", 2]
        with cluster["a/1"].client() as client:
            create(client, name, *options, "EVICTION", "allkeys-lru", "MAXMEMORY", "1mb")
        clients[concurrency] = [node.session(name) for node in cluster]
        keys, few = names("key", 4000), 10
        # Few at a time: where a pipeline takes long, its last commands are not begun.
        for turn in range(len(keys) // few):
            put(clients[concurrency][turn % 3], keys[turn * few : (turn + 1) * few])
    return clients


@pytest.mark.parametrize("concurrency", CONCURRENCY)
def test_replicas_of_a_cache_let_the_same_keys_go(caches, concurrency):
    name, clients = f"cache-{concurrency}", caches[concurrency]
    # Without leaders, replicas keep versions and records of transactions for some 30 s.
    wait_until(lambda: all(here(client, name)["memory_bytes_here"] < 3 << 20 for client in clients), timeout=90)
    keys = wait_until(lambda: the_same_keys(clients), timeout=30)
    assert 100 < len(keys) < 1500, len(keys)
    assert sum(here(client, name)["evicted_keys"] for client in clients) >= 2500


def the_same_keys(clients) -> set:
    """The keys that all of them see; nothing while they differ."""
    seen = [set(client.scan_iter(count=1000)) for client in clients]
    return seen[0] if seen[0] == seen[1] == seen[2] else set()


def here(client, name: str) -> dict:
    return info(client, name)


@pytest.mark.parametrize("concurrency", CONCURRENCY)
def test_expired_keys_that_nobody_reads_are_deleted(cluster, concurrency):
    name = f"leases-{concurrency}"
    with cluster["a/1"].client() as client:
        create(client, name, "MODEL", "strict", "CONCURRENCY", concurrency)
    clients = [node.session(name) for node in cluster]
    for number in range(500):
        clients[0].set(f"key:{number}", "v", px=1000)
    clients[0].set("stays", "v")
    wait_until(lambda: [here(client, name)["keys_here"] for client in clients] == [1, 1, 1], timeout=30)
    assert clients[1].get("stays") == "v"


@pytest.mark.parametrize("concurrency", CONCURRENCY)
def test_a_watched_key_that_expires_stops_the_transaction(cluster, concurrency):
    name = f"watched-{concurrency}"
    with cluster["a/1"].client() as client:
        create(client, name, "MODEL", "strict", "CONCURRENCY", concurrency)
    session = cluster["a/3"].session(name)
    # Before anybody else has deleted it, and after.
    for pause in (1.1, 2.5):
        session.set("lease", "mine", px=1000)
        session.set("lasts", "mine", px=60_000)
        with session.pipeline() as pipeline:
            pipeline.watch("lease", "lasts")
            pipeline.multi()
            pipeline.set("done", "yes")
            time.sleep(pause)
            with pytest.raises(redis.WatchError):
                pipeline.execute()
        assert session.get("done") is None
        with session.pipeline() as pipeline:
            pipeline.watch("lease", "lasts")
            pipeline.multi()
            pipeline.get("lasts")
            # With leaders, the deletion of a key that had expired before counts as a change.
            if concurrency == "optimistic":
                assert pipeline.execute() == ["mine"], "an absent key stays absent"


def test_others_delete_what_expires_when_the_first_replica_is_gone():
    with Cluster(1, 3) as cluster:
        clients = [cluster[name].client() for name in ("a/2", "a/3")]
        clients[0].set("key", "v", px=1500)
        cluster.do("kill a/1")
        wait_until(lambda: [here(client, "default")["keys_here"] for client in clients] == [0, 0], timeout=30)
