"""`anabranch-lab bench cops`: the workload of COPS on keyspaces of a real cluster, one protocol after the other."""

import json
import subprocess

import pytest

from cluster import Cluster
from harness import laboratory

# Measurements: `cargo xtask soak` runs them.
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def cluster():
    """Two regions, 20 ms apart, of two processes."""
    with Cluster(2, 2, "--model", "causal", "--delay", "a-b=20ms", program=laboratory()) as cluster:
        yield cluster


def bench(cluster: Cluster, *arguments: str) -> dict:
    """As in the paper, all clients are in one region."""
    command = [laboratory(), "bench", "cops", "--keys", "32", "--clients", "8", "--partitions", "2"]
    command += ["--seconds", "2", "--warm-up", "1", "--json", *arguments]
    for name in ("a/1", "a/2"):
        command += ["--url", f"127.0.0.1:{cluster[name].port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_three_systems_are_compared(cluster):
    comparison = bench(cluster, "--ratio", "1:4", "--size", "100")
    found = {measured["protocol"]: measured for measured in comparison["medians"]}
    assert set(found) == {"log", "cops", "cops-gt"}
    for measured in found.values():
        assert measured["committed"] > 500 and measured["unknown"] == 0 and measured["aborts"] == 0, measured
        kinds = measured["kinds"]
        assert kinds["put"] + kinds["get"] == measured["committed"]
        assert 0.15 < kinds["put"] / measured["committed"] < 0.25
        assert measured["far_bytes"] > 0 and measured["processor_us"] > 0
    assert {ratio["protocol"] for ratio in comparison["ratios"]} == {"cops", "cops-gt"}
    with cluster["a/1"].client() as client:
        assert client.execute_command("KEYSPACE", "LIST") == ["default"], "each keyspace is dropped"


def test_clients_rest_between_operations(cluster):
    comparison = bench(cluster, "--protocols", "cops", "--ratio", "1:0", "--delay", "20")
    (measured,) = comparison["medians"]
    # Eight clients, at most 50 operations a second each.
    assert 200 < measured["throughput"] < 410 and set(measured["kinds"]) == {"put"}
