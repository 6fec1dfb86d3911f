"""Causal keyspaces kept by the baselines for measurements: Cure, H-Cure, BPR, NoCC and LOG, in real processes."""

import pytest
import redis

from cluster import Cluster
from harness import laboratory, wait_until

REGIONS = "ab"
PROTOCOLS = ("cure", "h-cure", "bpr", "cure-applied", "h-cure-applied", "nocc", "log")


def connect(cluster: Cluster, region: str, protocol: str) -> redis.Redis:
    """A client of which every connection uses the protocol's keyspace."""

    def use(connection):
        connection.on_connect()
        connection.send_command("KEYSPACE", "USE", protocol)
        assert connection.read_response() in ("OK", b"OK")

    return cluster[f"{region}/1"].client(redis_connect_func=use)


def refused(client: redis.Redis, *command: str) -> str:
    """Why this command is not done; empty if it is."""
    try:
        client.execute_command(*command)
        return ""
    except redis.exceptions.ResponseError as error:
        return str(error)


@pytest.fixture(scope="module")
def cluster():
    """Two regions, 20 ms apart, with a keyspace of two partitions for each protocol, of one for LOG."""
    with Cluster(2, 1, "--model", "causal", "--delay", "a-b=20ms", program=laboratory()) as cluster:
        with cluster["a/1"].client() as client:
            for protocol in PROTOCOLS:
                partitions = "1" if protocol == "log" else "2"
                create = ("KEYSPACE", "CREATE", protocol, "MODEL", "causal", "PARTITIONS", partitions, "PROTOCOL", protocol)
                assert client.execute_command(*create)
        yield cluster


@pytest.fixture(params=PROTOCOLS)
def clients(cluster, request):
    """The keyspace's name and a client in each region."""
    clients = {region: connect(cluster, region, request.param) for region in REGIONS}
    yield request.param, clients
    for client in clients.values():
        client.close()


def test_what_one_region_writes_all_read(clients):
    _, clients = clients
    for number, (region, client) in enumerate(clients.items()):
        client.set(f"from:{region}", number)
        assert client.get(f"from:{region}") == str(number), "its own write, at once"
    for client in clients.values():
        wait_until(lambda: client.mget("from:a", "from:b") == ["0", "1"])


def test_increments_of_both_regions_add_up(clients):
    _, clients = clients
    for _ in range(20):
        for client in clients.values():
            client.execute_command("BLIND", "INCR", "sum")
    for client in clients.values():
        wait_until(lambda: client.get("sum") == "40")


def test_a_transaction_is_seen_as_a_whole(clients):
    protocol, clients = clients
    keys = [f"pair:{number}" for number in range(8)]
    for value in range(30):
        clients["a"].mset(dict.fromkeys(keys, value))
        seen = clients["b"].mget(keys)
        assert protocol == "nocc" or len(set(seen)) == 1, seen
    wait_until(lambda: clients["b"].mget(keys) == ["29"] * len(keys))


def test_it_says_what_it_is_and_how_long_reads_waited(clients):
    protocol, clients = clients
    told = clients["a"].execute_command("KEYSPACE", "INFO", protocol)
    told = told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
    assert told["protocol"] == protocol
    for _ in range(10):
        clients["a"].mset({f"waited:{number}": "1" for number in range(8)})
        clients["a"].mget([f"waited:{number}" for number in range(8)])

    def told_of_reads():
        line = clients["a"].info("cluster").get(f"causal_{protocol}", {})
        return line.get("reads", 0), line.get("reads_waited", 0), line.get("read_wait_us", 0)

    if protocol in ("nocc", "log"):
        assert told_of_reads() == (0, 0, 0)
        return
    wait_until(lambda: told_of_reads()[0] > 0)
    if protocol == "bpr":
        # What is read must have come from the other region, 20 ms away.
        wait_until(lambda: told_of_reads()[1] > 0)
        _, waited, micros = told_of_reads()
        assert micros / waited > 10_000


def test_they_list_no_conflicts(clients):
    _, clients = clients
    for words in (["COUNT"], ["LIST"]):
        assert "records no conflicts" in refused(clients["a"], "CONFLICTS", *words)
    resolved = refused(clients["a"], "CONFLICTS", "RESOLVE", "KEY", "k")
    assert "no conflicts to resolve here" in resolved or "records no conflicts" in resolved


def test_only_causal_keyspaces_have_a_protocol_and_cure_is_whole_everywhere(cluster):
    with cluster["b/1"].client() as client:
        assert "unknown keyspace option" in refused(client, "KEYSPACE", "CREATE", "x", "MODEL", "branch", "PROTOCOL", "cure")
        partial = ("KEYSPACE", "CREATE", "x", "MODEL", "causal", "REPLICAS", "1", "PROTOCOL", "cure")
        assert "every partition in every region" in refused(client, *partial)
        copies = ("KEYSPACE", "CREATE", "x", "MODEL", "causal", "COPIES", "3", "PROTOCOL", "bpr")
        assert "without COPIES" in refused(client, *copies)
        logs = ("KEYSPACE", "CREATE", "x", "MODEL", "causal", "PARTITIONS", "2", "PROTOCOL", "log")
        assert "one log in each region" in refused(client, *logs)
        assert "h-cure" in refused(client, "KEYSPACE", "CREATE", "x", "MODEL", "causal", "PROTOCOL", "occult")
        assert "PROTOCOL stays" in refused(client, "KEYSPACE", "ALTER", "cure", "PROTOCOL", "bpr")
        evict = ("KEYSPACE", "EVICT", "cure", "a", "ACCEPT-LOSS")
        assert "baseline" in refused(client, *evict)
