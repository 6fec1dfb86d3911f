"""`anabranch-lab bench tardis`: the paper's transactions on branches, against the same store with locks and with OCC (B6)."""

import json
import subprocess
from pathlib import Path

import pytest
import redis

from cluster import Cluster
from harness import laboratory, free_port, wait_until

# Measurements: `cargo xtask soak` runs them.
pytestmark = pytest.mark.soak

BERKELEYDB = Path(__file__).parents[2] / "examples" / "berkeleydb" / "server.c"

KEYSPACES = {
    "forks": ["branch", "LOCAL", "branch"],
    "plain": ["branch"],
    "locks": ["strict", "PARTITIONS", "1", "REPLICAS", "1", "CONCURRENCY", "locking"],
    "occ": ["strict", "PARTITIONS", "1", "REPLICAS", "1", "CONCURRENCY", "occ"],
}


@pytest.fixture(scope="module")
def port():
    with Cluster(1, 1, "--model", "branch") as cluster:
        with cluster["a/1"].client() as client:
            for name, options in KEYSPACES.items():
                client.execute_command("KEYSPACE", "CREATE", name, "MODEL", *options)
            wait_until(lambda: set(KEYSPACES) <= set(client.execute_command("KEYSPACE", "LIST")))
        yield cluster["a/1"].port


def bench(port: int, keyspace: str, *arguments: str) -> subprocess.CompletedProcess:
    url = f"redis://127.0.0.1:{port}/{keyspace}"
    command = [laboratory(), "bench", "tardis", "--url", url, "--keys", "50", "--clients", "12", "--seconds", "1", "--json"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("baseline", ["locks", "occ"])
def test_on_branches_nothing_aborts_that_does_by_the_baseline(port, baseline):
    result = bench(port, "forks", "--branch", "--zipf", "0.99", "--against", f"redis://127.0.0.1:{port}/{baseline}")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["workload"], report["by"], report["theirs"]["by"]) == ("tardis", "branch", "txn")
    assert report["committed"] > 100 and report["aborts"] == 0 and report["kinds"].keys() == {"update"}
    assert report["theirs"]["committed"] > 0 and report["theirs"]["aborts"] > 0, "they contend for few keys"
    assert report["ratio"] > 0


def test_without_branching_one_of_two_is_refused(port):
    report = json.loads(bench(port, "plain", "--zipf", "0.99").stdout)
    assert report["by"] == "txn" and report["committed"] > 0 and report["aborts"] > 0
    report = json.loads(bench(port, "plain", "--writers", "0").stdout)
    assert report["aborts"] == 0 and report["kinds"].keys() == {"read"}


def test_what_cannot_be_run_is_refused(port):
    refused = bench(port, "nowhere")
    assert refused.returncode != 0 and "nowhere" in refused.stderr
    assert bench(port, "locks", "--branch").returncode != 0
    assert "--history" in bench(port, "locks", "--history", "/tmp/never").stderr


@pytest.fixture(scope="module")
def berkeleydb(tmp_path_factory):
    """The port of the paper's peer, built from its source."""
    folder, port = tmp_path_factory.mktemp("berkeleydb"), free_port()
    program = folder / "server"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, BERKELEYDB, "-ldb"], check=True)
    with subprocess.Popen([program, str(port), folder], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline() == "ready\n"
            yield port
        finally:
            server.kill()


def test_berkeleydb_runs_the_same_transactions(port, berkeleydb):
    result = bench(port, "forks", "--branch", "--zipf", "0.99", "--against", f"127.0.0.1:{berkeleydb}")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    theirs = report["theirs"]
    assert report["aborts"] == 0 and theirs["by"] == "txn"
    assert theirs["committed"] > 0 and theirs["aborts"] > 0, "locks on fifty keys meet"
    assert theirs["unknown"] == 0 and report["ratio"] > 0


def test_berkeleydb_commits_a_transaction_as_a_whole(berkeleydb):
    with redis.Redis(port=berkeleydb, decode_responses=True, protocol=2).client() as client:
        run = client.execute_command
        assert run("TXN", "BEGIN") == "OK" and run("SET", "first", "1") and run("TXN", "ABORT") == "OK"
        assert client.get("first") is None
        assert run("TXN", "BEGIN") == "OK" and run("MSET", "first", "2", "second", "3") and run("TXN", "COMMIT") == "OK"
        assert client.mget("first", "second", "third") == ["2", "3", None]
        with pytest.raises(redis.ResponseError):
            run("TXN", "COMMIT")
