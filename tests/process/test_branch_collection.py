"""Collection of branch keyspaces across sites (TARDiS 6.4): a site that is cut off holds nothing up with `COLLECT optimistic`."""

import re
import threading
import time

import pytest
import redis

from branches import all_see, heads
from cluster import Cluster
from harness import wait_until
from test_branch import CONFIG, using

CUT_SECONDS = 6


@pytest.fixture(scope="module")
def sites():
    with Cluster(3, 1, "--model", "branch", config=CONFIG) as cluster:
        yield cluster


def state(client, keyspace: str) -> dict:
    """What a site says of a keyspace, in numbers."""
    text = words(client, keyspace)
    names = {"states": r"(\d+) states", "early": r"(\d+) collected early", "orphans": r"(\d+) waiting for a parent"}
    return {name: int(re.search(pattern, text)[1]) for name, pattern in names.items()}


def create(sites, name: str, collect: str) -> list:
    with sites["a/1"].client() as client:
        client.execute_command("KEYSPACE", "CREATE", name, "MODEL", "branch", "KEEP", "0", "COLLECT", collect)
    clients = [using(node, name) for node in sites]
    clients[0].set("n", 0)
    all_see(clients)
    return clients


def write_while_cut(sites, clients, name: str) -> tuple[list[int], list[int], list[dict]]:
    """All three sites count, and the third is cut off meanwhile. Returns how often each did, how often during the cut, and
    the states that each had late in the cut."""
    counted, stopping, errors = [0] * 3, threading.Event(), []

    def count(site: int, node) -> None:
        try:
            client = using(node, name)
            while not stopping.is_set():
                # Not through a pipeline, which would take another connection, that has not chosen the keyspace.
                client.execute_command("MULTI")
                for command in ("INCR n", f"INCR of-{site}", f"SADD s {site}-{counted[site]}"):
                    client.execute_command(*command.split())
                client.execute_command("EXEC")
                counted[site] += 1
                time.sleep(0.004)
            client.close()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=count, args=(site, node), daemon=True) for site, node in enumerate(sites)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    sites.do("cut a c", "cut b c")
    before = list(counted)
    time.sleep(CUT_SECONDS)
    during = [late - early for early, late in zip(before, counted)]
    most = [state(client, name) for client in clients]
    sites.do("heal")
    time.sleep(1)
    stopping.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    return counted, during, most


@pytest.mark.parametrize("collect", ["optimistic", "pessimistic"])
def test_a_site_that_is_cut_off_while_all_write(sites, collect):
    clients = create(sites, collect, collect)
    counted, during, late = write_while_cut(sites, clients, collect)
    all_see(clients, seconds=30)
    print(counted, late)
    for client in clients:
        assert client.get("n") == str(sum(counted))
        assert [client.get(f"of-{site}") for site in range(3)] == [str(count) for count in counted]
        assert client.scard("s") == sum(counted)
    # In the end nothing is kept for anybody.
    states = lambda: [state(client, collect) for client in clients]
    wait_until(lambda: all(site["states"] <= 3 and site["early"] == 0 for site in states()))
    assert len(heads(clients[0])) == 1
    if collect == "optimistic":
        # What the third may have begun at stays: what was on its way to it when it fell silent.
        assert all(site["early"] > site["states"] for site in late), late
    else:
        # Nothing goes that was written since the cut.
        assert all(site["early"] == 0 and site["states"] >= own > 0 for site, own in zip(late, during)), (late, during)


def test_how_a_keyspace_collects_can_be_altered(sites):
    with sites["a/1"].client() as client:
        client.execute_command("KEYSPACE", "CREATE", "altered", "MODEL", "branch")
        client.execute_command("KEYSPACE", "ALTER", "altered", "COLLECT", "optimistic")
        assert client.execute_command("KEYSPACE", "INFO", "altered")["collect"] == "optimistic"
        with pytest.raises(redis.exceptions.ResponseError, match="COLLECT"):
            client.execute_command("KEYSPACE", "ALTER", "altered", "COLLECT", "sometimes")


def test_a_clients_ceiling_keeps_the_past_until_its_connection_ends(sites):
    clients = create(sites, "held", "pessimistic")
    [at] = clients[0].execute_command("BRANCH", "CEILING")
    for _ in range(20):
        clients[1].incr("n")
    all_see(clients)
    assert [clients[0].execute_command("AT", at, "GET", "n"), clients[0].get("n")] == ["0", "20"]
    # Who promised to begin nothing above it may begin at it, and finds what everybody has there.
    assert clients[0].execute_command("BRANCH", "BEGIN", "STATE", at) == at
    assert clients[0].get("n") == "0"
    clients[0].execute_command("BRANCH", "ABORT")
    with pytest.raises(redis.exceptions.ResponseError, match="not here"):
        clients[0].execute_command("BRANCH", "CEILING", "99@9.9")
    assert all(state(client, "held")["states"] > 20 for client in clients)
    assert "1 ceilings of clients" in words(clients[0], "held") and "0 ceilings of clients" in words(clients[1], "held")
    clients[0].close()
    wait_until(lambda: all(state(client, "held")["states"] <= 3 for client in clients[1:]))


def test_the_past_is_kept_for_as_long_as_asked(sites):
    clients = create(sites, "aged", "pessimistic")
    clients[0].execute_command("KEYSPACE", "ALTER", "aged", "KEEPFOR", "600000")
    wait_until(lambda: all("keep_for_ms 600000" in words(client, "aged") for client in clients))
    [at] = clients[2].execute_command("BRANCH", "HEADS")
    for _ in range(20):
        clients[1].incr("n")
    all_see(clients)
    time.sleep(1)
    assert all(client.execute_command("AT", at, "GET", "n") == "0" for client in clients)
    clients[0].execute_command("KEYSPACE", "ALTER", "aged", "KEEPFOR", "500")
    wait_until(lambda: all(state(client, "aged")["states"] <= 3 for client in clients))


def words(client, keyspace: str) -> str:
    """What a site says of a keyspace."""
    return re.sub(r"[^\w]+", " ", str(client.execute_command("KEYSPACE", "INFO", keyspace)))
