"""`anabranch bench tardis`: the paper's transactions on branches, against the same store with locks and with OCC (B6)."""

import json
import subprocess

import pytest

from cluster import Cluster
from harness import binary, wait_until

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
            wait_until(lambda: set(KEYSPACES) <= set(client.execute_command("KEYSPACE", "LIST")), 10)
        yield cluster["a/1"].port


def bench(port: int, keyspace: str, *arguments: str) -> subprocess.CompletedProcess:
    url = f"redis://127.0.0.1:{port}/{keyspace}"
    command = [binary(), "bench", "tardis", "--url", url, "--keys", "50", "--clients", "12", "--seconds", "1", "--json"]
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
