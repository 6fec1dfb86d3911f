"""Merge handlers: a program in Lua that the keyspace keeps and every site merges by."""

import json
import os
import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import redis
import shop

from branches import all_see, heads
from cluster import Cluster
from harness import wait_until

SHOP = (Path(__file__).resolve().parents[2] / "examples" / "branches" / "shop.lua").read_text()
LONGEST = """
function resolve(key, conflict)
  local best = conflict.fork or ""
  for _, value in ipairs(conflict.branches) do
    if value and #value > #best then best = value end
  end
  return best
end
"""
FAILING = "function resolve(key, conflict) error('not ' .. key) end"
ENDLESS = "function resolve(key, conflict) while true do end end"
# How long the shops are cut off; everything else grows with it.
CUT_SECONDS = int(os.environ.get("ANABRANCH_CUT_SECONDS") or (120 if os.environ.get("ANABRANCH_SOAK") else 3))


@pytest.fixture(scope="module")
def sites():
    with Cluster(3, 1, "--model", "branch") as cluster:
        yield cluster


def create(sites, name: str, *options: str) -> list:
    """A keyspace of this name, and a client of it at every site."""
    with sites["a/1"].client() as client:
        client.execute_command("KEYSPACE", "CREATE", name, "MODEL", "branch", *options)
    for node in sites:
        with node.client() as client:
            wait_until(lambda: name in client.execute_command("KEYSPACE", "LIST"))
    return [node.using(name) for node in sites]


def fork(sites, clients, **values: list) -> None:
    """Every site writes its value of these keys while it hears no other one."""
    all_see(clients, 1)
    sites.do("cut a b", "cut a c", "cut b c")
    for key, each in values.items():
        for client, value in zip(clients, each, strict=True):
            client.set(key, value)
    sites.do("heal")


def test_three_sites_merge_by_the_handler(sites):
    clients = create(sites, "longest", "MERGE", "handler", "HANDLER", LONGEST)
    clients[0].set("k", "base")
    fork(sites, clients, k=["short", "the longest", "middle"], l=["x", "yy", "z"])
    all_see(clients, 1)
    assert [client.mget("k", "l") for client in clients] == [["the longest", "yy"]] * 3
    shown = [client.execute_command("MERGE", "HANDLER") for client in clients]
    assert len({state["version"] for state in shown}) == 1 and shown[0]["source"] == LONGEST
    assert sum(state["merges"] for state in shown) >= 1
    assert all(state["failures"] == state["refused"] == 0 and state["last-failure"] is None for state in shown)
    here = clients[0].execute_command("KEYSPACE", "INFO", "longest")["partitions_here"]
    assert shown[0]["version"] in here[0]
    # It is kept with the keyspace: a site that starts again has it.
    sites.do("kill c/1", "restart c/1")
    clients[2] = sites["c/1"].using("longest")
    assert clients[2].execute_command("MERGE", "HANDLER")["source"] == LONGEST
    fork(sites, clients, k=["1", "22", "333"])
    all_see(clients, 1)
    assert [client.get("k") for client in clients] == ["the longest"] * 3


@pytest.mark.parametrize("program, reason", [(FAILING, "not k"), (ENDLESS, "instructions|too long")])
def test_a_handler_that_fails_loses_no_branch(sites, program, reason):
    name = f"failing-{len(program)}"
    clients = create(sites, name, "MERGE", "handler", "HANDLER", program)
    clients[0].set("k", "base")
    fork(sites, clients, k=["a", "b", "c"])
    wait_until(lambda: len(heads(clients[0])) == 3)
    wait_until(lambda: clients[0].execute_command("MERGE", "HANDLER")["refused"] > 0)
    shown = clients[0].execute_command("MERGE", "HANDLER")
    assert shown["merges"] == 0 and re.search(reason, shown["last-failure"])
    assert clients[0].get("k") == "a" and clients[1].get("k") == "b", "each goes on on its branch"
    # What the keyspace declares, and a better program, are taken up by every site.
    clients[0].execute_command("KEYSPACE", "ALTER", name, "UNRESOLVED", "newest")
    # One head each may be different heads, until the last merge has come everywhere.
    wait_until(lambda: len({client.get("k") for client in clients}) == 1)
    all_see(clients, 1)
    clients[0].execute_command("KEYSPACE", "ALTER", name, "UNRESOLVED", "refuse", "HANDLER", LONGEST)
    wait_until(lambda: all(client.execute_command("MERGE", "HANDLER")["source"] == LONGEST for client in clients))
    fork(sites, clients, k=["a", "bbbbbb", "c"])
    wait_until(lambda: [client.get("k") for client in clients] == ["bbbbbb"] * 3)
    all_see(clients, 1)


def test_a_merge_by_hand_can_ask_the_handler(sites):
    clients = create(sites, "by-hand", "MERGE", "manual", "HANDLER", LONGEST)
    fork(sites, clients, k=["a", "bb", "c"], l=["aa", "b", "c"])
    all_see(clients, 3)
    client = clients[1]
    client.execute_command("MERGE", "BEGIN")
    assert client.execute_command("MERGE", "RESOLVE", "k", "HANDLER") == 1
    clients[0].execute_command("KEYSPACE", "ALTER", "by-hand", "HANDLER", FAILING)
    wait_until(lambda: client.execute_command("MERGE", "HANDLER")["source"] == FAILING)
    with pytest.raises(redis.exceptions.ResponseError, match="not l"):
        client.execute_command("MERGE", "RESOLVE", "ALL", "HANDLER")
    # Neither a failure nor an end constraint that is not satisfied ends the merge.
    with pytest.raises(redis.exceptions.ResponseError, match="UNRESOLVED `l`"):
        client.execute_command("MERGE", "COMMIT")
    client.set("l", "mine")
    with pytest.raises(redis.exceptions.ResponseError, match="UNRESOLVED.*stays open"):
        client.execute_command("MERGE", "COMMIT", "K", "0")
    client.execute_command("MERGE", "COMMIT")
    all_see(clients, 1)
    assert [end.mget("k", "l") for end in clients] == [["bb", "mine"]] * 3
    client.execute_command("KEYSPACE", "ALTER", "by-hand", "HANDLER", "")
    assert client.execute_command("MERGE", "HANDLER") is None


def test_what_is_no_handler_is_refused_when_it_is_given(sites):
    with sites["a/1"].client() as client:
        for options, reason in (
            (["MERGE", "handler"], "needs HANDLER"),
            (["HANDLER", "function resolve("], "handler:1"),
            (["HANDLER", "x = 1"], "defines"),
            (["HANDLER", "os.exit()"], "handler:1"),
        ):
            with pytest.raises(redis.exceptions.ResponseError, match=reason):
                client.execute_command("KEYSPACE", "CREATE", "bad", "MODEL", "branch", *options)
        with pytest.raises(redis.exceptions.ResponseError, match="unknown keyspace option 'HANDLER'"):
            client.execute_command("KEYSPACE", "CREATE", "bad", "MODEL", "strict", "HANDLER", LONGEST)


def test_sites_that_sell_while_they_are_cut_apart_settle_by_themselves(sites):
    """No order is lost, every apology is accounted for, and the graph is compressed back."""
    clients = create(sites, "shop", "MERGE", "handler", "HANDLER", SHOP, "KEEP", "0")
    more = max(1, CUT_SECONDS // 6)
    stock = {"game": 40 * more, "extension": 60 * more, "dice": 300 * more}
    shop.Shop(clients[0]).add_stock(stock)
    shop.Shop(clients[0]).require("extension", "game")
    all_see(clients, 1)
    sold, stopping, errors, slowest = {}, threading.Event(), [], [0.0] * 3

    def sell(site: int, node) -> None:
        try:
            client = node.using("shop")
            for number in range(100_000):
                if stopping.is_set():
                    return
                for order, items in (("game", ["game"]), ("rest", ["extension", "dice"])):
                    name = f"{number:05}-{site}-{order}"
                    begun = time.monotonic()
                    try:
                        shop.Shop(client).order(name, f"customer {site}.{number}", items)
                        sold[name] = items
                    except shop.SoldOut:
                        pass
                    slowest[site] = max(slowest[site], time.monotonic() - begun)
                time.sleep(0.01 if more == 1 else 0.1)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=sell, args=(site, node), daemon=True) for site, node in enumerate(sites)]
    for thread in threads:
        thread.start()
    for seconds in (1, CUT_SECONDS):
        sites.do("cut a b", "cut a c", "cut b c")
        time.sleep(seconds)
        sites.do("heal")
        time.sleep(1)
    stopping.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    begun = time.monotonic()
    all_see(clients, 1, 30)
    healed = time.monotonic() - begun
    memory = [client.info("memory")["used_memory_rss"] >> 20 for client in clients]
    print(f"{len(sold)} orders; one head {healed:.1f} s after the last; slowest order {max(slowest):.3f} s; {memory} MiB")
    assert max(slowest) < 10, "a merge stopped a shop"
    assert max(memory) < 512
    for client in clients:
        orders, apologies = client.hgetall("orders"), client.hgetall("apologies")
        assert orders.keys() | apologies.keys() == sold.keys() and not orders.keys() & apologies.keys()
        left = {item: int(count) for item, count in client.hgetall("stock").items()}
        delivered = Counter(item for order in orders for item in sold[order])
        assert left == {item: count - delivered[item] for item, count in stock.items()}
        assert min(left.values()) >= 0
        assert {json.loads(text)["reason"].split(" ")[0] for text in apologies.values()} >= {"game"}
    shown = [client.execute_command("MERGE", "HANDLER") for client in clients]
    assert sum(state["merges"] for state in shown) > 0
    failed = [(state["failures"], state["last-failure"]) for state in shown]
    assert all(count == 0 for count, _ in failed), failed
    states = lambda client: len(json.loads(client.execute_command("BRANCH", "GRAPH", "JSON")))  # noqa: E731
    wait_until(lambda: all(states(client) <= 3 for client in clients))


def test_two_reasons_for_one_apology_are_settled(sites):
    """A key that the types' rules leave open is answered also where nothing has to be cancelled."""
    clients = create(sites, "reasons", "MERGE", "handler", "HANDLER", SHOP)
    all_see(clients, 1)
    sites.do("cut a b", "cut a c", "cut b c")
    for client, reason in zip(clients, ("game", "dice", "extension"), strict=True):
        client.hset("apologies", "00000-0-game", json.dumps({"reason": f"{reason} was sold out"}))
    sites.do("heal")
    all_see(clients, 1)
    for client in clients:
        assert client.hgetall("apologies") == {"00000-0-game": json.dumps({"reason": "dice was sold out"})}


def test_a_handler_settles_some_thousand_orders(sites):
    """What an example needs stays far below the limits."""
    clients = create(sites, "many", "MERGE", "handler", "HANDLER", SHOP)
    orders = 1500 if os.environ.get("ANABRANCH_SOAK") else 500
    clients[0].hset("received", "game", 2 * orders)
    clients[0].hset("stock", "game", 2 * orders)
    all_see(clients, 1)
    sites.do("cut a b", "cut a c", "cut b c")
    for site, client in enumerate(clients):
        with client.pipeline(transaction=True) as pipe:
            for number in range(orders):
                order = {"customer": f"customer {site}.{number}", "items": ["game"]}
                pipe.hset("orders", f"{number:05}-{site}", json.dumps(order)).hincrby("stock", "game", -1)
            pipe.execute()
    sites.do("heal")
    all_see(clients, 1)
    for client in clients:
        assert (client.hlen("orders"), client.hlen("apologies"), client.hget("stock", "game")) == (2 * orders, orders, "0")
    assert all(client.execute_command("MERGE", "HANDLER")["failures"] == 0 for client in clients)
