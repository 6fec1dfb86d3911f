"""Types whose additions never conflict, and BLIND before everything that writes, on the server's own command table."""

import shlex
import threading
from pathlib import Path

import pytest
import redis

from cluster import Cluster
from harness import wait_until

CALLS = Path(__file__).resolve().parents[2] / "crates" / "gateway" / "tests" / "writes.calls"
# Keys of every type, as the calls name them.
SETTING = """SET a 5
SET b 7
HSET h f v n 3
RPUSH l a b a c
SADD s a b c
ZADD z 1 a 2 b 3 c
COUNTER.ADD c 9
SUMMARY.ADD m 4
TOP.ADD t 1 x 2 y
UID.NEXT u
XADD x 0-1 f v
XGROUP CREATE x g 0
XGROUP CREATECONSUMER x g c"""
READS = {
    "string": "GET",
    "hash": "HGETALL",
    "counter": "COUNTER.GET",
    "summary": "SUMMARY.GET",
    "top": "TOP.LIST",
    "uid": "TYPE",
}


def state(client) -> dict:
    """Everything there is, as far as chance does not choose it."""
    found = {}
    for key in sorted(client.execute_command("KEYS", "*")):
        kind = client.execute_command("TYPE", key)
        deadline = client.execute_command("TTL", key) >= 0
        if kind == "set":
            members = client.execute_command("SMEMBERS", key)
            found[key] = (kind, deadline, len(members) if key == "s" else sorted(members))
        elif kind == "zset":
            found[key] = (kind, deadline, client.execute_command("ZRANGE", key, 0, -1, "WITHSCORES"))
        elif kind == "list":
            found[key] = (kind, deadline, client.execute_command("LRANGE", key, 0, -1))
        elif kind == "stream":
            # Ids that the server chose tell the time.
            fields = [entry[1] for entry in client.execute_command("XRANGE", key, "-", "+")]
            found[key] = (kind, deadline, fields, client.execute_command("XINFO", "GROUPS", key))
        else:
            found[key] = (kind, deadline, client.execute_command(READS[kind], key))
    return found


def prepare(client) -> None:
    client.execute_command("FLUSHDB")
    for line in SETTING.splitlines():
        client.execute_command(*line.split())


def calls() -> list:
    lines = CALLS.read_text().splitlines()
    return [words(line) for line in lines if line and not line.startswith("#")]


def words(line: str) -> list:
    """The arguments of a call, as bytes where it stands in quotation marks."""
    parts = shlex.split(line)
    return [part.encode().decode("unicode_escape").encode("latin-1") if "\\" in part else part for part in parts]


def names_of_writing_commands(client) -> set:
    # Parsed here: redis-py reshapes COMMAND's reply.
    client.response_callbacks.pop("COMMAND", None)
    entries = client.execute_command("COMMAND")
    return {entry[0].upper() for entry in entries if "write" in entry[2]}


@pytest.fixture
def plain(server):
    """Replies as they come: nothing is made of them."""
    bytewise = {"decode_responses": True, "encoding_errors": "backslashreplace"}
    with server.client(single_connection_client=True, **bytewise) as client:
        client.response_callbacks.clear()
        yield client


def test_every_writing_command_of_the_server_has_a_call(plain):
    covered = {call[0] for call in calls()}
    # A user-defined type has to be loaded: test_user_types.py. MOVE and SWAPDB refuse.
    assert names_of_writing_commands(plain) - covered == {"BLIND", "FLUSHALL", "MOVE", "SWAPDB", "TYPE.CALL"}


@pytest.mark.parametrize("call", calls(), ids=lambda call: " ".join(map(str, call)))
def test_blind_writes_what_the_command_writes(plain, call):
    prepare(plain)
    plain.execute_command(*call)
    expected = state(plain)

    prepare(plain)
    assert plain.execute_command("BLIND", *call) == "OK"
    assert state(plain) == expected

    prepare(plain)
    plain.execute_command("MULTI")
    assert plain.execute_command("BLIND", *call) == "QUEUED"
    assert plain.execute_command("EXEC") == ["OK"]
    assert state(plain) == expected

    if call[0] != "FLUSHDB":
        prepare(plain)
        plain.execute_command("TXN", "BEGIN")
        assert plain.execute_command("BLIND", *call) == "OK"
        assert plain.execute_command("TXN", "COMMIT") == "OK"
        assert state(plain) == expected


def test_typed_keys(plain):
    prepare(plain)
    assert [plain.execute_command("TYPE", key) for key in "cmtu"] == ["counter", "summary", "top", "uid"]
    for command in ("INCR c", "COUNTER.ADD a", "SUMMARY.ADD c 1", "TOP.ADD m 1 x", "UID.NEXT t", "COUNTER.GET u", "GET m"):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            plain.execute_command(*command.split())
    assert scan(plain, "TYPE", "counter", "COUNT", "100") == ["c"]
    assert plain.execute_command("RENAME", "c", "c2") == "OK"
    assert plain.execute_command("COUNTER.GET", "c2") == 9
    assert plain.execute_command("EXPIRE", "t", "100") == 1 and plain.execute_command("TTL", "t") > 90
    assert plain.execute_command("TOP.LIST", "t", "1") == [["y", 2.0]]
    assert plain.execute_command("DEL", "c2", "m", "t", "u") == 4


def scan(plain, *words) -> list:
    """Every partition has a part of the keys, and a cursor of its own."""
    cursor, found = plain.execute_command("SCAN", "0", *words)
    while cursor != "0":
        cursor, keys = plain.execute_command("SCAN", cursor, *words)
        found += keys
    return found


def both(server):
    return (
        server.client(decode_responses=True, single_connection_client=True),
        server.client(decode_responses=True, single_connection_client=True),
    )


# Read in a transaction, done by somebody else meanwhile, and whether that is a conflict.
MEANWHILE = [
    ("COUNTER.ADD c", "COUNTER.ADD c 5", False),
    ("COUNTER.GET c", "COUNTER.ADD c 5", True),
    ("COUNTER.TAKE c 2", "COUNTER.ADD c 5", False),
    ("COUNTER.TAKE c 2", "COUNTER.DECR c", True),
    ("COUNTER.TAKE c 2", "COUNTER.TAKE c 1", True),
    ("COUNTER.TAKE c 20", "COUNTER.DECR c", False),
    ("COUNTER.TAKE c 20", "COUNTER.ADD c 50", True),
    ("COUNTER.ATLEAST c 9", "COUNTER.ADD c", False),
    ("COUNTER.ATLEAST c 10", "COUNTER.ADD c", True),
    ("SUMMARY.ADD m 1", "SUMMARY.ADD m 2", False),
    ("SUMMARY.MAX m", "SUMMARY.ADD m 2", True),
    ("TOP.ADD t 5 z", "TOP.ADD t 6 z", False),
    ("TOP.LIST t 1", "TOP.ADD t 1 z", False),
    ("TOP.LIST t 1", "TOP.ADD t 2 z", True),
    ("TOP.LIST t", "TOP.ADD t 1 a", True),
    ("TOP.RANGE t 0 1 WITHSCORES", "TOP.ADD t 0 z", False),
    ("TOP.ADD t 5 z", "TOP.RESERVE t 1", False),
    ("UID.NEXT u", "UID.NEXT u", False),
    ("COUNTER.ADD c", "DEL c", True),
    ("UID.NEXT u", "EXPIRE u 100", True),
]


@pytest.mark.parametrize("first, second, conflicts", MEANWHILE, ids=lambda value: str(value))
def test_what_conflicts_in_one_replica(server, plain, first, second, conflicts):
    prepare(plain)
    check_meanwhile(*both(server), first, second, conflicts)


def check_meanwhile(one, other, first, second, conflicts):
    with one, other:
        one.execute_command("TXN", "BEGIN")
        one.execute_command(*first.split())
        one.execute_command("SET", "done", "1")
        other.execute_command(*second.split())
        if conflicts:
            with pytest.raises(redis.ResponseError, match="CONFLICT"):
                one.execute_command("TXN", "COMMIT")
        else:
            assert one.execute_command("TXN", "COMMIT") == "OK"


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3) as cluster:
        with cluster["a/1"].client() as client:
            client.execute_command(
                "KEYSPACE", "CREATE", "locks", "MODEL", "strict", "CONCURRENCY", "locking", "REPLICAS", 3
            )
            client.execute_command("KEYSPACE", "CREATE", "near", "MODEL", "causal")
        yield cluster


@pytest.mark.parametrize("keyspace", ["default", "locks", "near"])
def test_clients_of_every_process_add_at_once(cluster, keyspace):
    """Counters, summaries, tops and identifiers lose nothing and give nothing twice, whatever the model."""
    rounds, given, failures = 25, [], []

    def work(number, node):
        try:
            with node.client(decode_responses=True, single_connection_client=True) as client:
                client.execute_command("KEYSPACE", "USE", keyspace)
                for turn in range(rounds):
                    client.execute_command("COUNTER.ADD", "hits", 2)
                    client.execute_command("SUMMARY.ADD", "seconds", "0.1", "1e17", "-1e17")
                    client.execute_command("TOP.ADD", "bids", 100 * number + turn, f"bidder:{number}")
                    given.append(client.execute_command("UID.NEXT", "ids"))
                    client.execute_command("MULTI")
                    client.execute_command("UID.NEXT", "ids")
                    client.execute_command("COUNTER.DECR", "hits")
                    given.append(client.execute_command("EXEC")[0])
        except Exception as error:  # the test tells it
            failures.append((number, error))

    nodes = list(cluster)
    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(nodes, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    total = rounds * len(nodes)
    assert len(set(given)) == len(given) == 2 * total
    with nodes[0].client(decode_responses=True, single_connection_client=True) as client:
        client.execute_command("KEYSPACE", "USE", keyspace)

        def settled():
            return client.execute_command("COUNTER.GET", "hits") == total

        wait_until(settled)
        assert client.execute_command("SUMMARY.COUNT", "seconds") == 3 * total
        assert float(client.execute_command("SUMMARY.SUM", "seconds")) == pytest.approx(total * 0.1, abs=1e-12)
        best = f"bidder:{len(nodes)}"
        assert client.execute_command("TOP.RANK", "bids", best) == 0
        assert float(client.execute_command("TOP.SCORE", "bids", best)) == 100 * len(nodes) + rounds - 1


@pytest.mark.parametrize("keyspace", ["default", "locks"])
def test_a_stock_is_sold_once(cluster, keyspace):
    """Bounded subtractions from every process at once: exactly what is there is taken."""
    stock, taken, failures = 20, [], []
    nodes = list(cluster)
    with nodes[0].client(decode_responses=True, single_connection_client=True) as client:
        client.execute_command("KEYSPACE", "USE", keyspace)
        client.execute_command("COUNTER.ADD", "stock", stock)

    def work(node):
        try:
            with node.client(decode_responses=True, single_connection_client=True) as client:
                client.execute_command("KEYSPACE", "USE", keyspace)
                for _ in range(10):
                    taken.append(client.execute_command("COUNTER.TAKE", "stock", 1))
        except Exception as error:  # the test tells it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert sum(taken) == stock and len(taken) == 10 * len(nodes)
    with nodes[1].client(decode_responses=True, single_connection_client=True) as client:
        client.execute_command("KEYSPACE", "USE", keyspace)
        assert client.execute_command("COUNTER.GET", "stock") == 0
