"""Partly replicated causal keyspaces: each partition in two of three regions, every command from each region."""

import time

import pytest
import redis

from cluster import Cluster
from harness import wait_until

REGIONS = "abc"
# Partition 0 is in the regions a and b, 1 in b and c, 2 in c and a.
PLACEMENT = ["0: a, b", "1: b, c", "2: c, a"]
# The partition that a region does not hold.
ELSEWHERE = {"a": 1, "b": 2, "c": 0}
CREATE = ("KEYSPACE", "CREATE", "part", "MODEL", "causal", "PARTITIONS", "3", "REPLICAS", "2", "REGIONS", *REGIONS)


class Clients(dict):
    """A client at each region's process."""

    def __init__(self, cluster: Cluster):
        super().__init__({region: connect(cluster, region) for region in REGIONS})

    def close(self):
        for client in self.values():
            client.close()


def connect(cluster: Cluster, region: str) -> redis.Redis:
    """A client of which every connection uses the keyspace, those of pipelines too."""

    def use(connection):
        connection.on_connect()
        connection.send_command("KEYSPACE", "USE", "part")
        assert connection.read_response() in ("OK", b"OK")

    return cluster[f"{region}/1"].client(redis_connect_func=use)


def took(action) -> float:
    """How long this takes, in seconds."""
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def refused(client: redis.Redis, *command: str) -> str:
    """Why this command is not done; empty if it is."""
    try:
        client.execute_command(*command)
        return ""
    except redis.exceptions.ResponseError as error:
        return str(error)


def everywhere(clients, read, expected) -> None:
    """Waits until every region reads this."""
    for client in clients.values():
        wait_until(lambda: read(client) == expected)


def partitions_of(client: redis.Redis, keys: list[str]) -> dict[str, list[str]]:
    """The keys that a cut off region can and cannot write, by the error or `ok`."""
    found: dict[str, list[str]] = {}
    for key in keys:
        try:
            client.set(key, f"cut off:{key}")
            found.setdefault("ok", []).append(key)
        except redis.exceptions.ResponseError as error:
            found.setdefault(str(error), []).append(key)
    return found


@pytest.fixture(scope="module")
def part():
    with Cluster(3, 1) as cluster:
        with cluster["b/1"].client() as client:
            assert client.execute_command(*CREATE)
        yield cluster


@pytest.fixture
def clients(part):
    clients = Clients(part)
    yield clients
    clients.close()


def test_each_partition_is_in_two_regions(part):
    for region in REGIONS:
        with part[f"{region}/1"].client() as client:
            about = client.execute_command("KEYSPACE", "INFO", "part")
            about = about if isinstance(about, dict) else dict(zip(about[::2], about[1::2]))
            assert about["placement"] == PLACEMENT
            held = [int(partition.split(":")[0]) for partition in about["partitions_here"]]
            assert held == [partition for partition in range(3) if partition != ELSEWHERE[region]]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("REPLICAS", "4"), "1 to 3 here, not 4"),
        (("REPLICAS", "1", "REGIONS", "a", "d"), "no region 'd'; there are a, b, c"),
        (("REGIONS", "a", "a"), "a region twice"),
        (("REGIONS",), "needs a value"),
    ],
)
def test_what_cannot_be_placed_is_refused(part, options, reason):
    with part["a/1"].client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match=reason):
            client.execute_command("KEYSPACE", "CREATE", "wrong", "MODEL", "causal", *options)


def test_every_region_writes_and_reads_every_key(clients):
    keys = [f"every:{number}" for number in range(30)]
    for number, key in enumerate(keys):
        writer = clients[REGIONS[number % 3]]
        assert writer.set(key, number)
        assert writer.get(key) == str(number), "a session reads its own write at once, wherever it is kept"
    everywhere(clients, lambda client: client.mget(keys), [str(number) for number in range(30)])
    everywhere(clients, lambda client: sorted(client.keys("every:*")), sorted(keys))
    for client in clients.values():
        assert client.dbsize() >= len(keys)
        assert sorted(client.scan_iter("every:*")) == sorted(keys)


def test_collections_and_counters_work_from_everywhere(clients):
    for number, (region, client) in enumerate(clients.items()):
        for turn in range(5):
            key = f"kinds:{number}:{turn}"
            assert [client.incr(f"{key}:counter") for _ in range(3)] == [1, 2, 3]
            assert client.rpush(f"{key}:list", "x", "y") == 2 and client.lpop(f"{key}:list") == "x"
            assert client.hset(f"{key}:hash", mapping={"one": 1, "two": 2}) == 2
            assert client.zadd(f"{key}:board", {region: turn}) == 1
            assert client.set(f"{key}:once", region, nx=True) and not client.set(f"{key}:once", "again", nx=True)
    everywhere(clients, lambda client: client.hgetall("kinds:1:4:hash"), {"one": "1", "two": "2"})
    everywhere(clients, lambda client: client.lrange("kinds:2:0:list", 0, -1), ["y"])
    everywhere(clients, lambda client: client.get("kinds:0:0:once"), "a")


def test_transactions_over_regions_are_seen_whole(clients):
    keys = [f"whole:{number}" for number in range(9)]
    for turn in range(10):
        writer = clients[REGIONS[turn % 3]]
        with writer.pipeline(transaction=True) as pipeline:
            for key in keys:
                pipeline.set(key, turn)
            pipeline.execute()
        assert writer.mget(keys) == [str(turn)] * 9
        for client in clients.values():
            assert len(set(client.mget(keys))) == 1, "a part of a transaction was seen"
    # The places of the last two writers may be in the other order by their clocks, but all agree.
    wait_until(lambda: len({tuple(client.mget(keys)) for client in clients.values()}) == 1)


def test_interactive_transactions_and_watches(clients):
    a, c = clients["a"], clients["c"]
    keys = [f"inter:{number}" for number in range(6)]
    a.execute_command("TXN", "BEGIN")
    for key in keys:
        a.execute_command("SET", key, "begun")
        assert a.execute_command("INCRBY", f"{key}:n", "2") == 2
    assert c.mget(keys) == [None] * 6, "nothing is seen before the commit"
    a.execute_command("TXN", "COMMIT")
    assert a.mget(keys) == ["begun"] * 6
    everywhere(clients, lambda client: client.mget(keys), ["begun"] * 6)
    with c.pipeline() as watching:
        watching.watch("inter:0")
        c.set("inter:0", "in between")
        watching.multi()
        watching.set("inter:1", "too late")
        with pytest.raises(redis.exceptions.WatchError):
            watching.execute()


def test_counters_from_all_regions_add_up(clients):
    for _ in range(10):
        for client in clients.values():
            client.execute_command("BLIND", "INCR", "sum")
    everywhere(clients, lambda client: client.get("sum"), "30")


def test_a_region_cut_off_serves_what_it_holds(part, clients):
    a, c = clients["a"], clients["c"]
    keys = [f"cut:{number}" for number in range(24)]
    for key in keys:
        a.set(key, "before")
    everywhere(clients, lambda client: client.mget(keys), ["before"] * 24)
    part.do("cut c a", "cut c b")
    try:
        # A write that is on its way when the others fall silent may have happened: reads find out without that doubt.
        wait_until(lambda: "cannot be reached" in refused(c, "MGET", *keys))
        found = partitions_of(c, keys)
        held, lost = found.pop("ok"), found
        assert len(lost) == 1, f"one reason: {lost}"
        reason, out_of_reach = lost.popitem()
        assert reason.startswith("UNAVAILABLE partition 0 (in the regions a, b) cannot be reached"), reason
        begin = time.monotonic()
        assert c.mget(held) == [f"cut off:{key}" for key in held], "reads of held partitions go on"
        assert refused(c, "GET", out_of_reach[0]).startswith("UNAVAILABLE partition 0")
        assert time.monotonic() - begin < 2, "and nothing waits"
        # The others go on with everything, and do not see what they have not heard of: the stable time stands still.
        for key in keys:
            a.set(f"{key}:during", "a")
            assert a.get(f"{key}:during") == "a"
        assert a.mget(held) == ["before"] * len(held)
        assert clients["b"].get("cut:0:during") is None
    finally:
        part.do("heal")
    everywhere(clients, lambda client: client.mget(held), [f"cut off:{key}" for key in held])
    everywhere(clients, lambda client: client.get("cut:0:during"), "a")
    wait_until(lambda: partitions_of(c, keys).keys() == {"ok"})


def test_the_next_replica_is_asked_when_the_nearest_is_down():
    with Cluster(3, 1, "--delay", "a-b=5ms", "--delay", "a-c=150ms", "--delay", "b-c=150ms") as cluster:
        with cluster["a/1"].client() as client:
            client.execute_command(*CREATE)
        clients = Clients(cluster)
        keys = [f"next:{number}" for number in range(24)]
        a = clients["a"]
        for key in keys:
            a.set(key, "before")
        everywhere(clients, lambda client: client.mget(keys), ["before"] * 24)
        assert min(took(lambda: a.mget(keys)) for _ in range(5)) < 0.3, "partition 1 is read in b: c is 300 ms away"
        clients.close()
        cluster.do("kill b/1")
        with connect(cluster, "a") as a:
            begin = time.monotonic()
            assert a.mget(keys) == ["before"] * 24, "any replica has the snapshot"
            assert time.monotonic() - begin < 2
            time.sleep(1.5)  # Then b counts as down, and writes go to c.
            assert partitions_of(a, keys).keys() == {"ok"}
            assert a.mget(keys) == [f"cut off:{key}" for key in keys]
        cluster.do("restart b/1")
        clients = Clients(cluster)
        everywhere(clients, lambda client: client.mget(keys), [f"cut off:{key}" for key in keys])
        clients.close()


def test_a_process_that_died_holds_nothing_up_when_it_is_back():
    with Cluster(3, 1) as cluster:
        with cluster["a/1"].client() as client:
            client.execute_command(*CREATE)
        clients = Clients(cluster)
        keys = [f"dead:{number}" for number in range(12)]
        clients["c"].mset({key: "before" for key in keys})
        everywhere(clients, lambda client: client.mget(keys), ["before"] * 12)
        writer = clients["c"]
        writer.execute_command("TXN", "BEGIN")
        for key in keys:
            writer.execute_command("SET", key, "never")
        clients.close()
        cluster.do("kill c/1", "restart c/1")
        clients = Clients(cluster)
        clients["a"].set("dead:after", "seen")
        everywhere(clients, lambda client: client.get("dead:after"), "seen")
        everywhere(clients, lambda client: client.mget(keys), ["before"] * 12)
        clients.close()
