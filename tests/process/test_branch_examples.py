"""The examples of branch keyspaces: three sites go on while they are cut off, and the application merges."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import counter
import pytest
import shop
import social
import wiki

from branches import all_see
from cluster import Cluster
from harness import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "branches"


@pytest.fixture(scope="module")
def sites():
    with Cluster(3, 1, "--model", "branch") as cluster:
        with cluster["a/1"].client() as client:
            for name in ("counters", "shop", "wiki"):
                client.execute_command("KEYSPACE", "CREATE", name, "MODEL", "branch", "MERGE", "manual")
            client.execute_command("KEYSPACE", "CREATE", "social", "MODEL", "branch")
        yield cluster


def connected(sites, keyspace: str) -> list:
    for node in sites:
        with node.client() as client:
            wait_until(lambda: keyspace in client.execute_command("KEYSPACE", "LIST"))
    return [node.using(keyspace) for node in sites]


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


def test_the_parts_of_a_page_are_merged_together(sites):
    """Figure 2 of the paper: each reference and picture goes with the text that it was made for."""
    clients = connected(sites, "wiki")
    pages = [wiki.Page(client, "controversial politician") for client in clients]
    pages[0].edit(text="is a politician", references="", picture="none.png")
    all_see(clients, 1)
    cut(sites)
    pages[0].edit(text="is a good politician")
    pages[0].edit(references="the party's newspaper")
    pages[1].edit(text="is a bad politician")
    pages[1].edit(picture="frowning.png")
    clients[2].set("beside", "another page")
    sites.do("heal")
    all_see(clients, 3)
    seen = []

    def choose(fork: dict, versions: list[dict]) -> dict:
        seen.append((fork, versions))
        return max(versions, key=lambda version: version["text"])

    assert pages[2].merge(choose)
    ((fork, versions),) = seen
    assert fork["text"] == "is a politician"
    good = {"text": "is a good politician", "references": "the party's newspaper", "picture": "none.png"}
    bad = {"text": "is a bad politician", "references": "", "picture": "frowning.png"}
    assert sorted(versions, key=str) == sorted([good, bad], key=str), "whole pages, never half of one and half of another"
    all_see(clients, 1)
    assert [page.read() for page in pages] == [good] * 3
    assert clients[0].get("beside") == "another page"
    assert not pages[0].merge(choose), "there is one branch"


def test_posts_of_sites_that_are_cut_off_come_together(sites):
    clients = connected(sites, "social")
    apps = [social.Social(client, site) for site, client in enumerate(clients)]
    names = ["ada", "bob", "cid"]
    for name in names:
        apps[0].sign_up(name, "secret")
    tokens = [apps[0].log_in(name, "secret") for name in names]
    for name in names[1:]:
        apps[0].follow(tokens[0], name)
    all_see(clients, 1)
    cut(sites)
    posted = {}
    for number in range(20):
        for app, token, name in zip(apps, tokens, names, strict=True):
            posted[app.post(token, f"{name} says {number}")] = f"{name} says {number}"
    sites.do("heal")
    all_see(clients, 1)
    assert len(posted) == 60, "every post has a number of its own"
    for app in apps:
        for posts, more in (app.timeline(tokens[0], 0, 100), app.everybody(0, 100)):
            assert {post.id: post.text for post in posts} == posted and len(posts) == 60 and not more
        assert [app.profile(name)["posts"] for name in names] == [20] * 3


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
