"""What clients of a real cluster saw, recorded while its processes are killed in any order, and checked.

`ANABRANCH_SOAK=1` goes on for ten minutes with what a keyspace has by default and for five with each of the others, and
bounds how long nobody is served after a kill.
"""

import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from cluster import Cluster
from harness import laboratory

SOAK = bool(os.environ.get("ANABRANCH_SOAK"))
# Each round is a run and a history of its own, so that checking needs memory for one only.
ROUNDS = 10 if SOAK else 1
SECONDS = 30 if SOAK else 9
DEFAULT = ("watch", "optimistic")
CLIENTS = 6
# How long a process runs between kills, and how long it is away, in seconds.
CALM, AWAY = 2.0, 1.5
# Checkpoints are taken between kills, so that starts take as long in the last round as in the first.
CHECKPOINTS = "[storage]\ncheckpoint_after_bytes = 33_554_432\n"
# After a kill nobody may be served for so long, in seconds.
LONGEST_SILENCE = 2.0


def bench(cluster: Cluster, workload: str, history: Path, *arguments: str) -> subprocess.Popen:
    """Starts a recorded run against all processes."""
    urls = [argument for node in cluster for argument in ("--url", f"127.0.0.1:{node.port}")]
    command = [laboratory(), "bench", workload, *urls, "--history", str(history), "--json", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen, seconds: int) -> dict:
    output, errors = process.communicate(timeout=seconds + 120)
    assert process.returncode == 0, errors
    return json.loads(output)


def check(history: Path, model: str) -> dict:
    """Checks a history, which must be good; an undecided one is no good one."""
    command = [laboratory(), "check", str(history), "--model", model, "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=600).stdout)
    assert report["ok"] and not report.get("undecided"), report
    return report


def longest_silences(history: Path) -> tuple[float, float]:
    """The longest times, in seconds, in which nobody committed, and in which some client did not."""
    last, ends = {}, []
    silence = 0.0
    with history.open() as lines:
        for line in lines:
            transaction = json.loads(line)
            if transaction["outcome"] == "committed" and not transaction.get("at_rest"):
                ends.append((transaction["responded"], transaction["session"] % CLIENTS))
    ends.sort()
    for end, client in ends:
        silence = max(silence, end - last.get(client, end))
        last[client] = end
    of_all = max((later[0] - earlier[0] for earlier, later in zip(ends, ends[1:])), default=0)
    return of_all / 1e6, silence / 1e6


# How clients make transactions, and how the keyspace keeps conflicting ones apart.
WAYS = [DEFAULT, ("watch", "locking"), ("txn", "occ")]
if SOAK:
    WAYS = [(by, concurrency) for by in ("watch", "txn") for concurrency in ("optimistic", "locking", "occ")]


def victims(number: int):
    """Processes at random, but each of them once before any of them again."""
    draw = random.Random(number)
    while True:
        yield from draw.sample(range(3), 3)


@pytest.mark.parametrize("by, concurrency", WAYS)
def test_retwis_is_strictly_serializable_while_processes_are_killed(by, concurrency, tmp_path):
    seconds = 2 * SECONDS if SOAK and (by, concurrency) == DEFAULT else SECONDS
    arguments = ["--clients", str(CLIENTS), "--keys", "300", "--zipf", "0.75", "--seconds", str(seconds)]
    arguments += ["--txn"] if by == "txn" else []
    # With locks in one region, where the first participant is asked last; else over three, where it collects the votes.
    regions, processes = (1, 3) if concurrency == "locking" else (3, 1)
    options = ("--partitions", "2", "--concurrency", concurrency)
    with Cluster(regions, processes, *options, config=CHECKPOINTS) as cluster:
        nodes = list(cluster)
        for number in range(ROUNDS):
            history = tmp_path / f"retwis-{number}.jsonl"
            running = bench(cluster, "retwis", history, *arguments)
            order = victims(number)
            kills = int((seconds - 1) / (CALM + AWAY))
            for _ in range(kills):
                node = nodes[next(order)]
                time.sleep(CALM)
                cluster.do(f"kill {node.name}")
                time.sleep(AWAY)
                cluster.do(f"restart {node.name}")
            summary = finish(running, seconds)
            report = check(history, "strict-serializable")
            of_all, of_one = longest_silences(history)
            print(
                f"\n{concurrency} by {by}, round {number}: {kills} kills, {summary['committed']} committed, "
                f"{summary['aborts']} aborts, {summary['unknown']} unknown, {report['transactions']} checked; nobody "
                f"was served for {of_all:.2f} s, some client for {of_one:.2f} s"
            )
            assert summary["committed"] > 2 * seconds and summary["lost_connections"] >= kills, summary
            if SOAK:
                assert of_all < LONGEST_SILENCE, f"nobody was served for {of_all:.2f} s"
            history.unlink()
