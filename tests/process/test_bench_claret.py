"""Claret's workloads on a cluster: all transactions commit, and the store holds what they say (E3)."""

import json
import subprocess

import pytest

from cluster import Cluster
from harness import laboratory
from test_keyspaces import create, use

# Measurements: `cargo xtask soak` runs them.
pytestmark = pytest.mark.soak

RUBIS = {"bid", "view_auction", "browse", "view_user", "add_comment", "add_user", "close_auction", "open_auction"}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3, program=laboratory()) as cluster:
        yield cluster


def bench(cluster, *arguments: str, keyspace: str = "") -> subprocess.CompletedProcess:
    urls = [word for node in cluster for word in ("--url", f"redis://127.0.0.1:{node.port}/{keyspace}")]
    command = [laboratory(), "bench", *arguments, *urls, "--clients", "12", "--seconds", "1", "--warm-up", "0", "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def report(cluster, *arguments: str, keyspace: str = "") -> dict:
    result = bench(cluster, *arguments, keyspace=keyspace)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_settings_are_measured_in_turn(cluster):
    settings = ["--setting", "readwrite", "--setting", "typed-phased", "--setting", "mine=CONCURRENCY optimistic"]
    found = report(cluster, "rawmix", "--keys", "50", "--rounds", "2", *settings)
    assert [median["setting"] for median in found["medians"]] == ["readwrite", "typed-phased", "mine"]
    order = [(measured["round"], measured["setting"]) for measured in found["rounds"]]
    assert order[0] == (0, "readwrite") and order[3] == (1, "typed-phased"), "the order turns"
    assert all(measured["committed"] > 20 and measured["unknown"] == 0 for measured in found["rounds"])
    assert [(ratio["setting"], ratio["against"]) for ratio in found["ratios"]] == [
        ("typed-phased", "readwrite"),
        ("mine", "readwrite"),
    ]
    first = found["rounds"][0]
    again = [measured for measured in found["rounds"] if measured["setting"] == "typed-phased"]
    throughputs = [measured["throughput"] for measured in again]
    assert found["ratios"][0]["throughput"]["low"] <= throughputs[0] / first["throughput"] * 1.001
    with cluster["a/1"].client() as client:
        assert not [name for name in client.execute_command("KEYSPACE", "LIST") if name.startswith("bench-")]


@pytest.mark.parametrize("form", [[], ["--txn"]])
def test_every_addition_of_the_raw_mix_is_there(cluster, form):
    """No more members than operations that added, no fewer than transactions that only added have."""
    name = f"rawmix{len(form)}"
    with cluster["a/1"].client() as client:
        create(client, name, "MODEL", "strict", "CONCURRENCY", "locking")
    found = report(cluster, "rawmix", "--keys", "20", "--adds", "100", *form, keyspace=name)["medians"][0]
    assert found["by"] == ("txn" if form else "multi") and found["kinds"].keys() == {"add"}
    with cluster["a/2"].client(single_connection_client=True) as client:
        use(client, name)
        added = sum(client.scard(f"rawmix:{key}") - 1 for key in range(20))
    assert added == 4 * found["committed"] and added > 40


def test_an_auction_site(cluster):
    with cluster["a/1"].client() as client:
        create(client, "auctions", "MODEL", "strict", "CONCURRENCY", "locking")
    found = report(cluster, "rubis", "--items", "30", "--mix", "bid", keyspace="auctions")["medians"][0]
    assert found["kinds"].keys() == RUBIS, found["kinds"]
    with cluster["a/3"].client(single_connection_client=True) as client:
        use(client, "auctions")
        items = [key.split(":", 1)[1] for key in client.scan_iter("item:*", count=1000)]
        assert len(items) == 30 + found["kinds"]["open_auction"]
        bids = {item: client.execute_command("COUNTER.GET", f"bid-count:{item}") for item in items}
        highest = {item: client.execute_command("TOP.RANGE", f"bids:{item}", 0, -1) for item in items}
        assert sum(bids.values()) <= found["kinds"]["bid"], "one that comes too late does not count"
        for item, count in bids.items():
            assert len(highest[item]) == min(count, 100), item
        winners = {item: client.hget(f"item:{item}", "winner") for item in items}
        assert sum(winner is not None for winner in winners.values()) == found["kinds"]["close_auction"]
        for item, winner in winners.items():
            if winner is not None:
                best = highest[item][0] if highest[item] else None
                assert winner == (client.hget(f"bid:{best}", "user") if best else "nobody")
        open_items = [item for key in client.scan_iter("open:*", count=1000) for item in client.zrange(key, 0, -1)]
        assert sorted(open_items) == sorted(item for item, winner in winners.items() if winner is None)


@pytest.mark.parametrize("mix", ["read", "post"])
def test_a_social_network(cluster, mix):
    name = f"network-{mix}"
    with cluster["a/1"].client() as client:
        create(client, name, "MODEL", "strict", "CONCURRENCY", "locking")
    found = report(cluster, "retwis", "--graph", "kronecker", "--scale", "6", "--mix", mix, keyspace=name)["medians"][0]
    assert found["kinds"].keys() >= {"timeline", "post", "follow"} and found["keys"] == 64
    with cluster["a/2"].client(single_connection_client=True) as client:
        use(client, name)
        posts = list(client.scan_iter("post:*", count=1000))
        assert len(posts) == 64 + found["kinds"]["post"]
        reposts = sum(client.scard(key) for key in client.scan_iter("reposts:*", count=1000))
        assert (reposts > 0) == ("repost" in found["kinds"]) and reposts <= found["kinds"].get("repost", 0)


def test_what_does_not_fit_is_refused(cluster):
    assert "--graph" in bench(cluster, "retwis", "--setting", "typed").stderr
    refused = bench(cluster, "rawmix", "--setting", "odd=CONCURRENCY perhaps")
    assert refused.returncode != 0 and "CONCURRENCY is optimistic" in refused.stderr
