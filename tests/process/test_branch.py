"""Branch keyspaces (TARDiS): three sites, cut off from one another, forks, merges by hand and by themselves."""

import json
import shutil
import subprocess
import threading
import time

import pytest
import redis

from branches import all_see, heads
from cluster import Cluster
from harness import wait_until

CONFIG = """
[storage]
checkpoint_after_bytes = 65_536
segment_bytes = 65_536
"""


@pytest.fixture(scope="module")
def sites():
    """Three regions of one process each, with a keyspace that merges by itself and one that does not."""
    with Cluster(3, 1, "--model", "branch", config=CONFIG) as cluster:
        with cluster["a/1"].client() as client:
            client.execute_command("KEYSPACE", "CREATE", "manual", "MODEL", "branch", "MERGE", "manual")
        yield cluster


@pytest.fixture
def auto(sites):
    """Clients of the keyspace `default`, emptied, one per site."""
    clients = [node.client() for node in sites]
    clients[0].flushdb()
    all_see(clients)
    yield clients
    sites.do("heal")
    for client in clients:
        client.close()


def using(node, keyspace: str) -> redis.Redis:
    """A client of one connection that has chosen a keyspace."""
    client = node.client(single_connection_client=True)
    wait_until(lambda: chose(client, keyspace))
    return client


def chose(client, keyspace: str) -> bool:
    try:
        return client.execute_command("KEYSPACE", "USE", keyspace) in (b"OK", "OK", True)
    except redis.exceptions.ResponseError:
        return False


def emptied(sites, node) -> redis.Redis:
    """A client of the keyspace `manual`, emptied, in which all that earlier tests did at any site has arrived."""
    clients = [using(site, "manual") for site in sites]
    wait_until(lambda: len({tuple(sorted(heads(client))) for client in clients}) == 1)
    for client in clients:
        client.close()
    client = using(node, "manual")
    client.flushdb()
    return client


def test_an_application_that_knows_nothing_of_branches_works(auto):
    client = auto[0]
    assert client.set("k", "v") and client.get("k") == "v"
    assert client.incrby("n", 5) == 5 and client.incr("n") == 6
    with client.pipeline(transaction=True) as pipe:
        assert pipe.lpush("l", "a", "b").hset("h", "f", "1").get("k").execute() == [2, 1, "v"]
    assert sorted(client.keys("*")) == ["h", "k", "l", "n"] and client.dbsize() == 4
    assert sorted(client.scan_iter(count=1)) == ["h", "k", "l", "n"]
    with client.pipeline(transaction=True) as pipe:
        pipe.watch("k")
        client.set("k", "changed")
        pipe.multi()
        pipe.set("k", "mine")
        with pytest.raises(redis.exceptions.WatchError):
            pipe.execute()
    assert client.get("k") == "changed"
    assert client.delete("k") == 1 and client.exists("k") == 0
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        client.lpush("n", "x")


def test_what_is_written_at_one_site_comes_to_the_others(auto):
    auto[0].set("k", "v")
    for client in auto:
        wait_until(lambda: client.get("k") == "v")


def test_sites_that_are_cut_off_fork_and_merge_by_the_types_rules(sites, auto):
    auto[0].sadd("s", "common", "gone")
    auto[0].set("n", 10)
    all_see(auto)
    sites.do("cut a b", "cut a c", "cut b c")
    for number, client in enumerate(auto):
        for _ in range(100):
            client.incr("n")
        client.sadd("s", f"of {number}")
        client.hset("h", f"field {number}", number)
    auto[0].srem("s", "gone")
    assert [client.get("n") for client in auto] == ["110"] * 3
    assert [len(heads(client)) for client in auto] == [1] * 3
    sites.do("heal")
    all_see(auto)
    for client in auto:
        assert client.get("n") == "310"
        assert client.smembers("s") == {"common", "of 0", "of 1", "of 2"}
        assert client.hgetall("h") == {f"field {number}": str(number) for number in range(3)}


def test_interactive_transactions_of_one_site_conflict_or_fork(sites):
    one, two = emptied(sites, sites["a/1"]), using(sites["a/1"], "manual")
    one.set("n", 1)
    # TXN: as in a strict keyspace, one of two that read and write the same is told to retry.
    for client in (one, two):
        client.execute_command("TXN", "BEGIN")
        assert client.get("n") == "1"
        client.set("n", 2)
    one.execute_command("TXN", "COMMIT")
    with pytest.raises(redis.exceptions.ResponseError, match="CONFLICT"):
        two.execute_command("TXN", "COMMIT")
    assert len(heads(one)) == 1
    # BRANCH: both commit, each on its branch, and each session follows its own.
    states = [client.execute_command("BRANCH", "BEGIN") for client in (one, two)]
    assert states[0] == states[1]
    for value, client in ((10, one), (20, two)):
        assert client.get("n") == "2"
        client.set("n", value)
    made = [client.execute_command("BRANCH", "COMMIT") for client in (one, two)]
    assert sorted(heads(one)) == sorted(made)
    assert (one.get("n"), two.get("n")) == ("10", "20")
    assert one.execute_command("MERGE", "FORKS", *made) == [states[0]]
    assert one.execute_command("MERGE", "GET", "n", made[1]) == "20"
    assert one.execute_command("MERGE", "GET", "n", states[0]) == "2"
    # A merge that leaves the conflict open is refused, and goes on; one that writes it makes one state. What both wrote
    # alike is no conflict.
    for client in (one, two):
        client.set("alike", "x")
        client.hset("hash", "f", 1)
    one.execute_command("MERGE", "BEGIN")
    assert one.execute_command("MERGE", "CONFLICTS") == ["0", ["n"]]
    one.set("beside", "kept")
    with pytest.raises(redis.exceptions.ResponseError, match="UNRESOLVED `n`.*stays open"):
        one.execute_command("MERGE", "COMMIT")
    assert len(heads(one)) == 2
    one.set("n", 30)
    merged = one.execute_command("MERGE", "COMMIT")
    assert heads(two) == [merged]
    assert (one.get("n"), two.get("n"), two.get("beside")) == ("30", "30", "kept")


def test_end_constraints_decide_what_forks(sites):
    one, two = emptied(sites, sites["a/1"]), using(sites["a/1"], "manual")

    def race(end: str):
        """Two transactions read and write the same from one state; the second ends with `end`."""
        for client in (one, two):
            client.execute_command("BRANCH", "BEGIN", "ANY")
            client.get("k")
            client.set("k", f"{end} of {'one' if client is one else 'two'}")
        one.execute_command("BRANCH", "COMMIT")
        return two.execute_command("BRANCH", "COMMIT", *end.split())

    race("READCOMMITTED")
    assert len(heads(one)) == 1, "it went below the other one"
    for refused in ("SERIALIZABLE AND NOBRANCH", "SNAPSHOT AND K 1", "PARENT AND NOBRANCH"):
        with pytest.raises(redis.exceptions.ResponseError, match="CONFLICT"):
            race(refused)
    assert len(heads(one)) == 1
    race("SERIALIZABLE")
    assert len(heads(one)) == 2
    one.execute_command("MERGE", "BEGIN")
    assert one.execute_command("MERGE", "RESOLVE", "ALL", "NEWEST") == 1
    one.execute_command("MERGE", "COMMIT")
    assert len(heads(one)) == 1
    for bad in (["BRANCH", "BEGIN", "NONE"], ["BRANCH", "BEGIN", "STATE", "x"], ["BRANCH", "BEGIN", "K"]):
        with pytest.raises(redis.exceptions.ResponseError):
            one.execute_command(*bad)
    with pytest.raises(redis.exceptions.ResponseError, match="without BRANCH BEGIN"):
        one.execute_command("BRANCH", "COMMIT")
    assert one.set("k", "still serves")


def test_old_states_can_be_read_and_looked_at(sites):
    client = emptied(sites, sites["a/1"])
    client.set("k", "old")
    (old,) = heads(client)
    client.set("k", "new")
    # By then the sites have promised each other to begin nothing above the head.
    time.sleep(1)
    assert client.execute_command("BRANCH", "BEGIN", "READONLY", "STATE", old) == old
    assert client.get("k") == "old"
    with pytest.raises(redis.exceptions.ResponseError, match="READONLY"):
        client.set("k", "x")
    assert client.execute_command("BRANCH", "COMMIT") is None
    assert client.get("k") == "new", "the session comes back to its own branch"
    (head,) = heads(client)
    newest = client.execute_command("BRANCH", "LOG", "COUNT", "2")
    assert [state["id"] for state in newest] == [head, old] and newest[0]["parents"] == [old]
    assert client.execute_command("BRANCH", "SHOW", head)[1] == ["k"]
    assert client.execute_command("BRANCH", "DIFF", old, head) == {"forks": [old], old: [], head: ["k"]}
    graph = json.loads(client.execute_command("BRANCH", "GRAPH", "JSON"))
    assert graph[-1]["id"] == head and graph[-1]["parents"] == [old]
    assert client.execute_command("BRANCH", "GRAPH", "DOT").startswith("digraph")
    assert head in client.execute_command("BRANCH", "GRAPH")


def test_commands_that_read_are_answered_at_any_state_that_is_kept(sites):
    client = emptied(sites, sites["a/1"])
    client.mset({"k": "old", "l": "1"})
    client.rpush("list", "a", "b")
    (old,) = heads(client)
    client.mset({"k": "new", "m": "2"})
    client.rpush("list", "c")
    assert client.execute_command("AT", old, "GET", "k") == "old"
    assert client.execute_command("AT", old, "MGET", "k", "l", "m") == ["old", "1", None]
    assert client.execute_command("AT", old, "LRANGE", "list", "0", "-1") == ["a", "b"]
    assert client.execute_command("AT", old, "EXISTS", "k", "m") == 1
    assert client.execute_command("AT", old, "DBSIZE") == 3 and client.dbsize() == 4
    assert client.get("k") == "new" and client.lrange("list", 0, -1) == ["a", "b", "c"]
    refused = {
        ("AT", old, "SET", "k", "x"): "reads data",
        ("AT", old, "PING"): "reads data",
        ("AT", old, "KEYS", "*"): "reads data",
        ("AT", old, "NONSENSE"): "unknown command",
        ("AT", "1@77.1", "GET", "k"): "not here",
        ("AT", "nowhere", "GET", "k"): "nowhere",
    }
    for command, reason in refused.items():
        with pytest.raises(redis.exceptions.ResponseError, match=reason):
            client.execute_command(*command)
    client.execute_command("BRANCH", "BEGIN")
    with pytest.raises(redis.exceptions.ResponseError, match="inside a transaction"):
        client.execute_command("AT", old, "GET", "k")
    client.execute_command("BRANCH", "ABORT")


def test_a_name_goes_on_with_what_is_committed_on_it(sites):
    client = emptied(sites, sites["b/1"])
    client.set("k", "base")
    (base,) = heads(client)
    assert client.execute_command("BRANCH", "NAME", "release/1", base) == base
    assert client.execute_command("BRANCH", "NAME", "work") == base, "where the session stands"
    client.set("k", "on the way")
    assert client.execute_command("BRANCH", "BEGIN", "ON", "release/1") == base
    client.set("fix", "1")
    made = client.execute_command("BRANCH", "COMMIT", "STATE", base)
    names = client.execute_command("BRANCH", "NAMES")
    assert names == {"release/1": made, "work": base}
    assert client.execute_command("AT", "release/1", "MGET", "k", "fix") == ["base", "1"]
    assert client.execute_command("AT", "work", "GET", "fix") is None
    assert client.execute_command("BRANCH", "BEGIN", "READONLY", "ON", "work") == base
    client.execute_command("BRANCH", "COMMIT")
    assert client.execute_command("BRANCH", "SHOW", "release/1")[0]["id"] == made
    sites.do("kill b/1", "restart b/1")
    client = using(sites["b/1"], "manual")
    assert client.execute_command("BRANCH", "NAMES") == names
    assert client.execute_command("BRANCH", "UNNAME", "work") == 1
    assert client.execute_command("BRANCH", "UNNAME", "work") == 0
    with pytest.raises(redis.exceptions.ResponseError, match="no name"):
        client.execute_command("BRANCH", "NAME", "12@3.1", base)
    assert len(client.execute_command("MERGE", "BEGIN")) == 2
    client.execute_command("MERGE", "RESOLVE", "ALL", "NEWEST")
    client.execute_command("MERGE", "COMMIT")


def test_other_models_refuse_these_commands(sites):
    client = sites["a/1"].client(single_connection_client=True)
    client.execute_command("KEYSPACE", "CREATE", "plain", "MODEL", "causal")
    wait_until(lambda: chose(client, "plain"))
    with pytest.raises(redis.exceptions.ResponseError, match="another model than causal"):
        client.execute_command("BRANCH", "HEADS")
    for command in (["BRANCH", "BEGIN"], ["AT", "1@1.1", "GET", "k"]):
        with pytest.raises(redis.exceptions.ResponseError, match="another model than causal"):
            client.execute_command(*command)
    assert client.set("k", "v")
    for options in (["PARTITIONS", "0"], ["REPLICAS", "3"], ["MERGE", "sometimes"], ["LOCAL", "x"]):
        with pytest.raises(redis.exceptions.ResponseError):
            client.execute_command("KEYSPACE", "CREATE", "bad", "MODEL", "branch", *options)
    with pytest.raises(redis.exceptions.ResponseError, match="unknown keyspace option 'MERGE'"):
        client.execute_command("KEYSPACE", "CREATE", "bad", "MODEL", "causal", "MERGE", "manual")


def test_two_processes_of_a_region_share_its_site():
    with Cluster(2, 2, "--model", "branch") as cluster:
        clients = [node.client() for node in cluster]
        assert clients[0].set("k", "v")
        assert clients[1].get("k") == "v", "one region, one site"
        with clients[1].pipeline(transaction=True) as pipe:
            assert pipe.incr("n").incr("n").execute() == [1, 2]
        assert clients[0].get("n") == "2"
        wait_until(lambda: clients[3].get("n") == "2")
        session = cluster["a/2"].client(single_connection_client=True)
        session.execute_command("BRANCH", "BEGIN")
        session.set("k", "w")
        assert clients[0].get("k") == "v"
        session.execute_command("BRANCH", "COMMIT")
        wait_until(lambda: clients[0].get("k") == "w")


def test_clients_of_another_process_stay_on_their_branches_when_the_site_is_killed():
    with Cluster(1, 2, "--model", "branch") as cluster:
        with cluster["a/1"].client() as client:
            create = "KEYSPACE CREATE manual MODEL branch MERGE manual"
            client.execute_command(*create.split())
        with using(cluster["a/1"], "manual") as client:
            client.set("n", "nobody")
            # States are named after the process that has the site.
            site = heads(client)[0].split("@")[1].split(".")[0]
        other = cluster["a/2" if site == "1" else "a/1"]
        clients = {name: using(other, "manual") for name in ("one", "two", "three")}
        for client in clients.values():
            client.execute_command("BRANCH", "BEGIN")
        for name, client in clients.items():
            assert client.get("n") == "nobody"
            client.set("n", name)
        for client in clients.values():
            client.execute_command("BRANCH", "COMMIT")
        assert len(heads(clients["one"])) == 3
        for _ in range(2):
            assert {client.get("n"): name for name, client in clients.items()} == {name: name for name in clients}
            cluster.do(f"kill a/{site}", f"restart a/{site}")

            def answers() -> bool:
                """A connection that did not choose a branch."""
                try:
                    with using(other, "manual") as client:
                        return client.get("n") is not None
                except redis.exceptions.ResponseError:
                    return False

            wait_until(answers, 10)
        assert {client.get("n"): name for name, client in clients.items()} == {name: name for name in clients}


def test_killed_sites_lose_nothing_and_the_graph_is_compressed():
    with Cluster(3, 1, "--model", "branch", config=CONFIG) as cluster:
        clients = {node.name: node for node in cluster}
        acknowledged = dict.fromkeys(clients, 0)
        unknown, errors = dict.fromkeys(clients, 0), []
        stopping = threading.Event()

        def count(name):
            """Increments a counter that all share and a key of its own."""
            while not stopping.is_set():
                try:
                    with cluster[name].client(socket_timeout=3) as client:
                        while not stopping.is_set():
                            with client.pipeline(transaction=True) as pipe:
                                pipe.incr("all").incr(f"of {name}").sadd("names", name).execute()
                            acknowledged[name] += 1
                            time.sleep(0.004)
                except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                    unknown[name] += 1
                    time.sleep(0.05)
                except BaseException as error:
                    errors.append(error)
                    raise

        threads = [threading.Thread(target=count, args=(name,), daemon=True) for name in clients]
        for thread in threads:
            thread.start()
        for victim in list(clients) * 2:
            time.sleep(0.7)
            cluster.do(f"kill {victim}")
            time.sleep(0.3)
            cluster.do(f"restart {victim}")
        cluster.do("cut a b")
        time.sleep(1)
        cluster.do("heal")
        time.sleep(1)
        stopping.set()
        for thread in threads:
            thread.join()
        assert not errors, errors
        ends = [node.client() for node in cluster]
        all_see(ends, seconds=30)
        totals = [int(client.get("all")) for client in ends]
        assert len(set(totals)) == 1
        own = {name: int(ends[0].get(f"of {name}") or 0) for name in clients}
        assert sum(own.values()) == totals[0]
        for name, count in own.items():
            assert acknowledged[name] <= count <= acknowledged[name] + unknown[name]
        assert ends[0].smembers("names") == set(clients)
        # Ceilings have gone round: nothing is kept but the head, once nothing has to be.
        ends[0].execute_command("KEYSPACE", "ALTER", "default", "KEEP", "0")
        wait_until(lambda: all(states(client) <= 3 for client in ends))


# Makes every sync of the disk take a while; LD_PRELOAD puts it before the C library.
SLOW_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

static int slowly(const char *name, int file) {
    usleep(150 * 1000);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
}
int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
"""


@pytest.fixture
def slow_disk(tmp_path, monkeypatch):
    """Whatever is started meanwhile has one."""
    source, library = tmp_path / "slow_sync.c", tmp_path / "slow_sync.so"
    source.write_text(SLOW_SYNC)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))


@pytest.mark.parametrize("durability", ["everysec", pytest.param("always", marks=pytest.mark.soak)])
def test_what_was_answered_while_the_disk_synced_outlives_the_process(slow_disk, durability):
    with Cluster(3, 1, "--model", "branch", "--durability", durability) as cluster:
        for _ in range(3):
            with cluster["a/1"].client() as client:
                # Sites promise something five times a second, and sync that.
                end, answered = time.monotonic() + 0.7, 0
                while time.monotonic() < end:
                    answered = client.incr("n")
            cluster.do("kill a/1", "restart a/1")
            with cluster["a/1"].client() as client:
                assert int(client.get("n") or 0) >= answered > 0


def states(client) -> int:
    """How many states a site keeps."""
    return len(json.loads(client.execute_command("BRANCH", "GRAPH", "JSON")))


def test_a_site_that_lost_its_disk_learns_everything_from_another_one():
    with Cluster(3, 1, "--model", "branch", config=CONFIG) as cluster:
        ends = [node.client() for node in cluster]
        ends[0].execute_command("KEYSPACE", "ALTER", "default", "KEEP", "0")
        for number in range(50):
            ends[number % 3].incr("n")
            ends[number % 3].hset("h", f"f{number}", number)
        all_see(ends)
        # The states that the lost site began with are taken out everywhere.
        wait_until(lambda: all(states(client) <= 3 for client in ends))
        # Lives are told apart by the second that they began in, where nothing else is remembered.
        time.sleep(1.1)
        cluster.do("kill b/1")
        shutil.rmtree(cluster.folder / "data" / "b-1" / "data")
        cluster.do("restart b/1")
        ends[1] = cluster["b/1"].client()
        assert ends[1].get("n") == "50" and ends[1].hlen("h") == 50
        assert ends[1].incr("n") == 51 and ends[0].incr("m") == 1
        all_see(ends, seconds=30)
        for client in ends:
            assert client.mget("n", "m") == ["51", "1"] and client.hlen("h") == 50
        wait_until(lambda: all(states(client) <= 3 for client in ends))
