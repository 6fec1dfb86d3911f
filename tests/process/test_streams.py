"""Streams of two regions that do not hear of each other for a while, and of two heads of a branch keyspace (docs/data-types.md)."""

import pytest

from cluster import Cluster
from harness import wait_until

BOTH = ("a/1", "b/1")
SITES = 65536


@pytest.fixture(scope="module")
def regions():
    with Cluster(2, 1, "--model", "causal") as cluster:
        yield cluster


@pytest.fixture
def clients(regions):
    clients = [regions[name].client(single_connection_client=True) for name in BOTH]
    yield clients
    for client in clients:
        client.close()


def same(clients, *command) -> list:
    """What both regions reply, once they reply the same."""

    def replies():
        return [client.execute_command(*command) for client in clients]

    wait_until(lambda: len({repr(reply) for reply in replies()}) == 1)
    return replies()[0]


def ids(entries) -> list[str]:
    return [entry[0] for entry in entries]


def test_entries_of_two_regions_never_share_an_id_and_none_is_lost(regions, clients):
    regions.do("cut a b")
    given = [[client.execute_command("XADD", "apart", "*", "n", number) for number in range(50)] for client in clients]
    regions.do("heal")
    for number, its in enumerate(given):
        assert {int(entry.split("-")[1]) % SITES for entry in its} == {number}
    wait_until(lambda: all(client.xlen("apart") == 100 for client in clients))
    together = ids(same(clients, "XRANGE", "apart", "-", "+"))
    assert len(set(together)) == 100
    for its in given:
        assert [entry for entry in together if entry in its] == its, "each region's keep their order"


def test_one_id_that_both_regions_give_becomes_two(regions, clients):
    regions.do("cut a b")
    for client, value in zip(clients, ("of a", "of b")):
        client.execute_command("XADD", "named", "5-1", "from", value)
        client.execute_command("XADD", "named", "5-2", "from", value + " too")
    regions.do("heal")
    wait_until(lambda: all(client.xlen("named") == 4 for client in clients))
    entries = same(clients, "XRANGE", "named", "-", "+")
    assert ids(entries) == ["5-1", "5-2", "5-3", "5-4"]
    assert {entry[1]["from"] for entry in entries} == {"of a", "of a too", "of b", "of b too"}


def test_what_one_region_acknowledged_is_pending_nowhere(regions, clients):
    first, second = clients
    for number in (1, 2):
        first.execute_command("XADD", "work", f"{number}-1", "job", number)
    first.execute_command("XGROUP", "CREATE", "work", "workers", "0")
    wait_until(lambda: second.xlen("work") == 2 and second.execute_command("XINFO", "GROUPS", "work"))
    regions.do("cut a b")
    for client, consumer in zip(clients, ("ann", "bob")):
        client.execute_command("XREADGROUP", "GROUP", "workers", consumer, "STREAMS", "work", ">")
    assert first.execute_command("XACK", "work", "workers", "1-1") == 1
    regions.do("heal")

    def pending(client):
        rows = client.xpending_range("work", "workers", "-", "+", 10)
        return sorted((row["message_id"], row["consumer"]) for row in rows)

    wait_until(lambda: all(pending(client) == [("2-1", "ann"), ("2-1", "bob")] for client in clients))
    assert second.execute_command("XACK", "work", "workers", "2-1") == 1
    wait_until(lambda: all(pending(client) == [] for client in clients))


def test_two_heads_of_a_branch_keyspace(server):
    one, two = (server.client(single_connection_client=True, decode_responses=True) for _ in range(2))
    with one, two:
        one.execute_command("KEYSPACE", "CREATE", "heads", "MODEL", "branch", "MERGE", "manual")
        for client in (one, two):
            client.execute_command("KEYSPACE", "USE", "heads")
        one.execute_command("XADD", "s", "1-1", "from", "both")
        for client in (one, two):
            client.execute_command("BRANCH", "BEGIN", "ANY")
        for client, value in ((one, "one"), (two, "two")):
            client.execute_command("XADD", "s", "2-1", "from", value)
        for client in (one, two):
            client.execute_command("BRANCH", "COMMIT")
        one.execute_command("MERGE", "BEGIN")
        one.execute_command("MERGE", "RESOLVE", "ALL")
        one.execute_command("MERGE", "COMMIT")
        entries = one.execute_command("XRANGE", "s", "-", "+")
        assert ids(entries) == ["1-1", "2-1", "2-2"]
