"""The library of mergeable types, on branches and on flat storage: cut off from one another, then together again."""

import pytest

import branching
import flat
from branches import all_see
from cluster import Cluster
from harness import wait_until


@pytest.fixture(scope="module")
def sites():
    with Cluster(3, 1, "--model", "branch") as cluster:
        with cluster["a/1"].client() as client:
            client.execute_command(
                "KEYSPACE", "CREATE", "types", "MODEL", "branch", "MERGE", "handler", "HANDLER", branching.HANDLER
            )
        yield cluster


@pytest.fixture(scope="module")
def clients(sites):
    clients = [node.client(single_connection_client=True) for node in sites]
    for client in clients:
        wait_until(lambda: "types" in client.execute_command("KEYSPACE", "LIST"))
        client.execute_command("KEYSPACE", "USE", "types")
    return clients


def counters(all_sites: list) -> None:
    for number, counter in enumerate(all_sites, 1):
        counter.add(number)


def pn_counters(all_sites: list) -> None:
    for number, counter in enumerate(all_sites, 1):
        counter.add(10 * number)
        counter.subtract(number)


def lww_registers(all_sites: list) -> None:
    for number, register in enumerate(all_sites):
        # The one that is written first, at the first site, has the latest time.
        register.set(f"of site {number}", 30 - number)


def mv_registers(all_sites: list) -> None:
    all_sites[0].set("one")
    all_sites[1].set("first")
    all_sites[1].set("two")


def or_sets(all_sites: list) -> None:
    all_sites[0].remove("kept")
    all_sites[1].add("kept")
    all_sites[1].remove("gone")
    all_sites[2].add("new")


# A type, what it is before the cut, what the sites do, how it is read, what it is afterwards.
CASES = [
    ("OpCounter", lambda first: first.add(100), counters, "value", 106),
    ("PNCounter", lambda first: first.add(100), pn_counters, "value", 154),
    ("LWWRegister", lambda first: first.set("base", 1), lww_registers, "value", "of site 0"),
    ("MVRegister", lambda first: first.set("base"), mv_registers, "values", {"one", "two"}),
    ("ORSet", lambda first: [first.add(member) for member in ("kept", "gone")], or_sets, "members", {"kept", "new"}),
]


@pytest.mark.parametrize("kind, begin, work, read, expected", CASES)
def test_a_type_on_branches(sites, clients, kind, begin, work, read, expected):
    values = [getattr(branching, kind)(client, f"{kind}-value") for client in clients]
    begin(values[0])
    all_see(clients)
    sites.do("cut a b", "cut a c", "cut b c")
    work(values)
    sites.do("heal")
    all_see(clients)
    assert [getattr(value, read)() for value in values] == [expected] * 3
    if kind == "MVRegister":
        values[2].set("three")
        all_see(clients)
        assert values[0].values() == {"three"}


@pytest.mark.parametrize("kind, begin, work, read, expected", CASES)
def test_the_same_type_on_flat_storage(sites, clients, kind, begin, work, read, expected):
    client = sites["a/1"].client()
    values = [getattr(flat, kind)(client, f"flat-{kind}", site, 3) for site in range(3)]
    begin(values[0])
    flat.tell(values)
    work(values)
    flat.tell(values)
    flat.tell(values)
    assert [getattr(value, read)() for value in values] == [expected] * 3
    if kind == "OpCounter":
        for value in values:
            value.forget([other.state() for other in values])
        assert not any(field.startswith("op") for value in values for field in value.state())
        values[1].add(1)
        flat.tell(values)
        assert [value.value() for value in values] == [107] * 3
