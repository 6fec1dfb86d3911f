"""`anabranch-lab bench tcc`: the workload of Wren and PaRiS on keyspaces of a real cluster, one protocol after the other."""

import json
import subprocess

import pytest

from cluster import Cluster
from harness import laboratory

# Measurements: `cargo xtask soak` runs them.
pytestmark = pytest.mark.soak

REGIONS = 3


@pytest.fixture(scope="module")
def cluster():
    """Three regions, 20 ms apart, of two processes, whose clocks are off by up to 2 ms."""
    delays = ("--delay", "a-b=20ms", "--delay", "a-c=20ms", "--delay", "b-c=20ms")
    skews = ("--skew", "a/1=2ms", "--skew", "a/2=-2ms", "--skew", "b/1=2ms", "--skew", "b/2=-2ms")
    with Cluster(REGIONS, 2, "--model", "causal", *delays, *skews, program=laboratory()) as cluster:
        yield cluster


def bench(cluster: Cluster, *arguments: str) -> dict:
    command = [laboratory(), "bench", "tcc", "--keys", "2000", "--zipf", "0.99", "--size", "8", "--clients", "6"]
    command += ["--seconds", "2", "--warm-up", "1", "--json", *arguments]
    for node in cluster:
        command += ["--url", f"127.0.0.1:{node.port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_protocol(comparison: dict) -> dict:
    return {measured["protocol"]: measured for measured in comparison["medians"]}


def test_full_replication(cluster):
    comparison = bench(cluster, "--protocols", "wren,cure,h-cure,nocc", "--writes", "2", "--read-only", "50")
    found = by_protocol(comparison)
    assert set(found) == {"wren", "cure", "h-cure", "nocc"}
    for protocol, measured in found.items():
        assert measured["committed"] > 100 and measured["unknown"] == 0, measured
        kinds = measured["latency_us_by_kind"]
        assert set(kinds) == {"read-only", "update", "reads"}
        assert kinds["reads"]["p50"] <= kinds["update"]["p50"]
        assert measured["kinds"]["update"] + measured["kinds"]["read-only"] == measured["committed"]
        assert measured["far_bytes"] > 0 and measured["near_bytes"] > 0 and measured["processor_us"] > 0
        waits = measured["reads_waited"]
        assert (waits == 0) == (protocol in ("wren", "nocc")) or protocol == "h-cure", (protocol, waits)
    assert found["cure"]["read_wait_us"] > 100
    ratios = {ratio["protocol"]: ratio for ratio in comparison["ratios"]}
    assert set(ratios) == {"cure", "h-cure", "nocc"} and ratios["cure"]["throughput"]["median"] > 0
    with cluster["a/1"].client() as client:
        assert client.execute_command("KEYSPACE", "LIST") == ["default"], "each keyspace is dropped"


def test_partial_replication(cluster):
    arguments = ("--partitions", "3", "--replicas", "2", "--touched", "2", "--local", "95")
    found = by_protocol(bench(cluster, "--protocols", "paris,bpr", *arguments))
    assert found["paris"]["committed"] > 100 and found["paris"]["reads_waited"] == 0
    bpr = found["bpr"]
    assert bpr["committed"] > 20 and bpr["read_wait_us"] > 10_000, "the other replica is 20 ms away"


def test_the_keyspace_that_is_there(cluster):
    measured = bench(cluster, "--writes", "10", "--read-only", "20")
    assert measured["workload"] == "tcc" and measured["committed"] > 100
    assert measured["far_bytes"] > 0


def test_a_key_lies_in_one_partition_wherever_it_is_asked(cluster):
    keys = [f"key:{number}" for number in range(200)]
    answers = set()
    for node in cluster:
        with node.client() as client:
            answers.add(tuple(client.execute_command("KEYSPACE", "LOCATE", "default", *keys)))
    (places,) = answers
    assert set(places) == {0, 1} and 60 < sum(places) < 140
