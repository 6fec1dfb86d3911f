"""Causal keyspaces that go on without a region that is gone for good, and how old what they know of others is."""

import pytest
import redis

from cluster import Cluster
from harness import wait_until


def about(client: redis.Redis, name: str = "default") -> dict:
    reply = client.execute_command("KEYSPACE", "INFO", name)
    return dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply


def lag(client: redis.Redis) -> dict[str, int]:
    """Milliseconds: the age of the snapshot, and by region of what has arrived."""
    return client.info("cluster")["causal_default"]


def evict(client: redis.Redis, region: str, *more: str) -> None:
    client.execute_command("KEYSPACE", "EVICT", "default", region, *more)


def refused(client: redis.Redis, *command: str) -> str:
    try:
        client.execute_command(*command)
        return ""
    except redis.exceptions.ResponseError as error:
        return str(error)


def test_the_others_go_on_without_a_lost_region():
    with Cluster(3, 1, "--model", "causal", "--durability", "always") as cluster:
        with cluster["a/1"].client() as a, cluster["b/1"].client() as b:
            with cluster["c/1"].client() as c:
                c.mset({f"old:{number}": "c" for number in range(20)})
                wait_until(lambda: a.get("old:0") == b.get("old:0") == "c")
                wait_until(lambda: lag(a)["snapshot_age_ms"] < 1500 and lag(a)["lag_c_ms"] < 1500)
                cluster.do("cut c b")
                # Only region a hears of this; what all regions have is seen, so a sees it when b's time has come.
                c.mset({f"last:{number}": "c" for number in range(20)})
                wait_until(lambda: a.get("last:0") == "c")
            cluster.do("kill c/1", "heal")
            a.set("since", "a")
            wait_until(lambda: lag(b)["snapshot_age_ms"] > 1500 and lag(b)["lag_c_ms"] > 1500)
            assert b.get("since") is None and b.get("last:0") is None, "stable times stand still"
            assert "it gives up what only" in refused(b, "KEYSPACE", "EVICT", "default", "c", "NOW")
            assert "ask one of a region that stays" in refused(b, "KEYSPACE", "EVICT", "default", "b", "ACCEPT-LOSS")
            assert "no region 'd'" in refused(b, "KEYSPACE", "EVICT", "default", "d", "ACCEPT-LOSS")
            evict(b, "c", "ACCEPT-LOSS")
            for client in (a, b):
                wait_until(lambda: client.mget([f"last:{number}" for number in range(20)]) == ["c"] * 20)
                wait_until(lambda: client.get("since") == "a")
                wait_until(lambda: all(state.endswith("; c evicted") for state in about(client)["partitions_here"]))
                wait_until(lambda: lag(client)["snapshot_age_ms"] < 1500)
                assert "lag_c_ms" not in lag(client)
            b.set("after", "b")
            wait_until(lambda: a.get("after") == "b")
            cluster.do("restart c/1")
            with cluster["c/1"].client() as c:
                wait_until(lambda: all("region c was evicted" in state for state in about(c)["partitions_here"]))
                assert refused(c, "GET", "after").startswith("UNAVAILABLE region c was evicted")
                assert "ask one of a region that stays" in refused(c, "KEYSPACE", "EVICT", "default", "a", "ACCEPT-LOSS")
            cluster.do("kill a/1", "restart a/1")
            b.incr("again")
            with cluster["a/1"].client() as again:
                wait_until(lambda: refused(again, "GET", "again") == "" and again.get("again") == "1")
                assert again.get("last:0") == "c"


COPIED = ("KEYSPACE", "CREATE", "copied", "MODEL", "causal", "COPIES", "3", "PARTITIONS", "2")


def uses(client: redis.Redis) -> bool:
    return refused(client, "KEYSPACE", "USE", "copied") == "" and refused(client, "SET", "is-there", "yes") == ""


def led(clients: list[redis.Redis]) -> dict[str, int]:
    """The partitions that these processes lead, in words, and who does."""
    found = {}
    for number, client in enumerate(clients):
        found |= {state: number for state in about(client, "copied")["partitions_here"] if "leads" in state}
    return found


def test_the_others_go_on_where_partitions_have_copies_and_a_leader_dies_meanwhile():
    with Cluster(3, 3, "--durability", "always") as cluster:
        with cluster["a/1"].client() as client:
            assert client.execute_command(*COPIED)
        names = [f"{region}/{process}" for region in "abc" for process in (1, 2, 3)]
        clients = {name: cluster[name].client(single_connection_client=True) for name in names}
        for client in clients.values():
            wait_until(lambda: uses(client))
        a, b, c = clients["a/1"], clients["b/1"], clients["c/1"]
        last = [f"last:{number}" for number in range(20)]
        for client in (a, b):
            c.set("old", "c")
            wait_until(lambda: client.get("old") == "c")
        cluster.do("cut c b")
        # Only region a hears of these.
        c.mset({key: "c" for key in last})
        wait_until(lambda: a.get(last[0]) == "c")
        cluster.do("kill c/1", "kill c/2", "kill c/3", "heal")
        a.set("since", "a")
        b.execute_command("KEYSPACE", "EVICT", "copied", "c", "ACCEPT-LOSS")
        # Whoever leads partition 0 in region a; another copy goes on with the eviction.
        of_a = [clients[f"a/{process}"] for process in (1, 2, 3)]
        victim = next(number for state, number in led(of_a).items() if state.startswith("0:"))
        cluster.do(f"kill a/{victim + 1}")
        left = [clients[name] for name in names if name[0] != "c" and name != f"a/{victim + 1}"]
        for client in left:
            wait_until(lambda: client.mget(last) == ["c"] * 20 and client.get("since") == "a")
        for region in (left[:2], left[2:]):
            wait_until(lambda: ["; c evicted" in state for state in led(region)] == [True] * 2)
        left[-1].set("after", "b")
        wait_until(lambda: left[0].get("after") == "b")
        cluster.do(f"restart a/{victim + 1}", "restart c/1", "restart c/2")
        with cluster[f"a/{victim + 1}"].client() as back:
            wait_until(lambda: refused(back, "KEYSPACE", "USE", "copied") == "" and refused(back, "GET", "after") == "")
        with cluster["c/1"].using("copied") as c:
            wait_until(lambda: refused(c, "GET", "after").startswith("UNAVAILABLE region c was evicted"))
        for client in clients.values():
            client.close()


def of_part(cluster: Cluster, region: str) -> redis.Redis:
    def use(connection):
        connection.on_connect()
        connection.send_command("KEYSPACE", "USE", "part")
        assert connection.read_response() in ("OK", b"OK")

    return cluster[f"{region}/1"].client(redis_connect_func=use)


def goes_on(client: redis.Redis, action) -> object:
    """What it gives, whatever the session is told first."""
    given = []

    def tried() -> bool:
        try:
            given.append(action(client))
            return True
        except redis.exceptions.ResponseError:
            return False

    wait_until(tried)
    return given[-1]


def test_the_others_go_on_where_partitions_are_in_some_regions():
    """Transactions have parts in several regions; one of these is lost for good."""
    keys = [f"key:{number}" for number in range(24)]
    with Cluster(3, 1, "--durability", "always") as cluster:
        with cluster["b/1"].client() as client:
            client.execute_command(
                "KEYSPACE", "CREATE", "part", "MODEL", "causal", "PARTITIONS", "6", "REPLICAS", "2", "REGIONS", "a", "b", "c"
            )
        with of_part(cluster, "a") as a, of_part(cluster, "b") as b:
            with of_part(cluster, "c") as c:
                # Each MSET has parts in all regions.
                c.mset({key: "before" for key in keys})
                for client in (a, b):
                    wait_until(lambda: client.mget(keys) == ["before"] * len(keys))
            cluster.do("kill c/1")
            goes_on(a, lambda client: client.mset({key: "since" for key in keys}))
            assert a.mget(keys) == ["since"] * len(keys)
            assert b.mget(keys) == ["before"] * len(keys), "the stable time stands still"
            b.execute_command("KEYSPACE", "EVICT", "part", "c", "ACCEPT-LOSS")
            for client in (a, b):
                wait_until(lambda: goes_on(client, lambda it: it.mget(keys)) == ["since"] * len(keys))
                wait_until(
                    lambda: all(state.endswith("; c evicted") for state in about(client, "part")["partitions_here"]),
                    timeout=20,
                )
            b.mset({key: "after" for key in keys})
            wait_until(lambda: a.mget(keys) == ["after"] * len(keys))
            cluster.do("restart c/1")
            with of_part(cluster, "c") as c:
                wait_until(lambda: "region c was evicted" in refused(c, "GET", keys[0]))
            cluster.do("kill a/1", "restart a/1")
            goes_on(b, lambda client: client.mset({key: "again" for key in keys}))
            with of_part(cluster, "a") as again:
                wait_until(lambda: goes_on(again, lambda it: it.mget(keys)) == ["again"] * len(keys))
            assert "nobody else has what is in the partitions" in refused(
                b, "KEYSPACE", "EVICT", "part", "a", "ACCEPT-LOSS"
            )


@pytest.mark.parametrize(
    ("cluster_of", "options", "reason"),
    [
        ((3, 1), ("MODEL", "strict"), "is strict"),
        ((3, 1), ("MODEL", "branch"), "has branches"),
        ((3, 1), ("MODEL", "causal", "REPLICAS", "1"), "nobody else has what is in the partitions"),
        ((2, 3, "--model", "causal"), ("MODEL", "causal", "REPLICAS", "1", "COPIES", "3"), "with copies of its partitions"),
    ],
)
def test_other_keyspaces_are_not_left_by_regions(cluster_of, options, reason):
    with Cluster(*cluster_of) as cluster, cluster["a/1"].client() as client:
        client.execute_command("KEYSPACE", "CREATE", "other", *options)
        assert reason in refused(client, "KEYSPACE", "EVICT", "other", "b", "ACCEPT-LOSS")
