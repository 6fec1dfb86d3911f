"""The examples of branch keyspaces: three sites go on while they are cut off, and the application merges."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import counter
import pytest
import shop

from cluster import Cluster
from harness import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "branches"


@pytest.fixture(scope="module")
def sites():
    with Cluster(3, 1, "--model", "branch") as cluster:
        with cluster["a/1"].client() as client:
            for name in ("counters", "shop"):
                client.execute_command("KEYSPACE", "CREATE", name, "MODEL", "branch", "MERGE", "manual")
        yield cluster


def connected(sites, keyspace: str) -> list:
    clients = [node.client(single_connection_client=True) for node in sites]
    for client in clients:
        wait_until(lambda: keyspace in client.execute_command("KEYSPACE", "LIST"), 10)
        client.execute_command("KEYSPACE", "USE", keyspace)
    return clients


def heads(client) -> tuple:
    return tuple(client.execute_command("BRANCH", "HEADS"))


def all_see(clients, count: int) -> None:
    """Waits until all sites have the same heads, so many."""
    wait_until(lambda: len({heads(client) for client in clients}) == 1 and len(heads(clients[0])) == count, 20)


def cut(sites) -> None:
    sites.do("cut a b", "cut a c", "cut b c")


def test_a_counter_is_merged_with_the_fork_point_in_hand(sites):
    clients = connected(sites, "counters")
    counter.add(clients[0], "visits", 100)
    all_see(clients, 1)
    cut(sites)
    for amount, client in enumerate(clients, 1):
        assert counter.add(client, "visits", amount) == 100 + amount
        client.set("last", amount)
    sites.do("heal")
    all_see(clients, 3)
    assert counter.merge(clients[1], "visits") == 106
    all_see(clients, 1)
    assert [client.get("visits") for client in clients] == ["106"] * 3
    assert counter.merge(clients[0], "visits") is None


def test_no_order_is_lost_and_every_apology_is_accounted_for(sites):
    clients = connected(sites, "shop")
    shops = [shop.Shop(client) for client in clients]
    stock = {"game": 7, "extension": 30, "dice": 200}
    shops[0].add_stock(stock)
    shops[0].require("extension", "game")
    all_see(clients, 1)
    cut(sites)
    sold, customers = {}, {}
    for number, site in enumerate(shops):
        for customer in range(12):
            name = f"customer {number}.{customer}"
            # The extension and the dice are orders of their own.
            for order, items in (("game", ["game"]), ("rest", ["extension", "dice"])):
                order = f"{customer:02}-{number}-{order}"
                try:
                    site.order(order, name, items)
                except shop.SoldOut:
                    continue
                sold[order], customers[order] = items, name
        assert int(clients[number].hget("stock", "game")) == 0, "each branch sold what there was, and no more"
    assert len([items for items in sold.values() if items == ["game"]]) == 21
    sites.do("heal")
    all_see(clients, 3)
    cancelled = shops[2].settle()
    all_see(clients, 1)
    for client in clients:
        orders, apologies = client.hgetall("orders"), client.hgetall("apologies")
        assert orders.keys() | apologies.keys() == sold.keys() and not orders.keys() & apologies.keys()
        assert apologies.keys() == set(cancelled)
        left = {item: int(count) for item, count in client.hgetall("stock").items()}
        delivered = Counter(item for order in orders for item in sold[order])
        assert left == {item: count - delivered[item] for item, count in stock.items()}
        assert min(left.values()) >= 0 and left["game"] == 0
        happy = {customers[order] for order in orders if sold[order] == ["game"]}
        for order, text in apologies.items():
            reason = json.loads(text)["reason"]
            assert customers[order] not in happy, (order, reason)
    assert shops[0].settle() is None
    shops[1].order("after", "customer 0.0", ["dice"])


def test_the_examples_are_programs(sites):
    clients = connected(sites, "shop")
    all_see(clients, 1)

    def call(program: str, *words: str) -> str:
        url = f"redis://127.0.0.1:{sites['a/1'].port}"
        command = [sys.executable, str(EXAMPLES / program), "--url", url, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    call("shop.py", "stock", "kite=1")
    assert call("shop.py", "order", "kite-1", "ada", "kite") == "sold"
    with pytest.raises(subprocess.CalledProcessError):
        call("shop.py", "order", "kite-2", "bob", "kite")
    assert call("shop.py", "settle") == "one branch, nothing to settle"
    assert call("counter.py", "add", "of programs", "5") == "5"
    assert call("counter.py", "merge", "of programs") == "one branch, nothing to merge"
