"""Histories of real and simulated clusters before checkers that share no code with ours: `cargo xtask soak judges`.

Porcupine judges strict serializability, `causal.py` transactional causal consistency. Each must accept what was recorded,
and refuse it once it is damaged: a judge that accepts everything says nothing.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

import causal
import corruptions
from cluster import Cluster
from harness import laboratory
from recorder import Recorder

SECONDS = 10
SEEDS = 20
# So many transactions the judges must have looked at: a run that does nothing shows nothing.
FEWEST = 300
# How many kinds of damage histories of a workload have a place for: transactions of `rmw` have one key, none is fractured.
DAMAGES = {"rmw": 3, "retwis": 4}


class Exported:
    """A history in the format of a judge."""

    def __init__(self, history: Path, layout: str):
        command = [laboratory(), "history", "export", str(history), "--format", layout]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.text, self.why_not = done.stdout, "" if done.returncode == 0 else done.stderr
        self.folder = history.parent

    def porcupine(self, text: str | None = None) -> dict:
        path = self.folder / "operations.jsonl"
        path.write_text(self.text if text is None else text)
        command = [os.environ["ANABRANCH_PORCUPINE"], str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return {"ok": done.returncode == 0, **json.loads(done.stdout)}


def accepted_by_porcupine(history: Path, damages) -> dict:
    """The verdict on a strict history, which is good; with each damage that it has a place for it is bad."""
    exported = Exported(history, "porcupine")
    assert not exported.why_not, exported.why_not
    verdict = exported.porcupine()
    assert verdict["ok"], verdict
    verdict["damages"] = 0
    for damage in damages:
        damaged = damage(exported.text)
        if damaged is not None:
            assert not exported.porcupine(damaged)["ok"], damage.__name__
            verdict["damages"] += 1
    return verdict


def accepted_by_definition(history: Path, damages) -> dict:
    """The same of a causal history."""
    exported = Exported(history, "plume")
    assert not exported.why_not, exported.why_not
    verdict = causal.judge(exported.text)
    assert verdict["ok"], verdict
    verdict["damages"] = 0
    for damage in damages:
        damaged = damage(exported.text)
        if damaged is not None:
            assert not causal.judge(damaged)["ok"], damage.__name__
            verdict["damages"] += 1
    return verdict


def record(cluster: Cluster, workload: str, history: Path, kill: str = "") -> None:
    """Records a load, during which a process may be killed and started again."""
    urls = [argument for node in cluster for argument in ("--url", f"127.0.0.1:{node.port}")]
    command = [laboratory(), "bench", workload, *urls, "--history", str(history), "--json"]
    command += ["--clients", "6", "--keys", "100", "--seconds", str(SECONDS)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if kill:
        time.sleep(SECONDS / 3)
        cluster.do(f"kill {kill}")
        time.sleep(1.5)
        cluster.do(f"restart {kill}")
    _, errors = running.communicate(timeout=SECONDS + 120)
    assert running.returncode == 0, errors


def simulated(protocol: str, seed: int, history: Path, *arguments: str) -> None:
    command = [laboratory(), "sim", protocol, "--seed", str(seed), "--quiet", "--history", str(history), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workload", ["rmw", "retwis"])
@pytest.mark.parametrize("concurrency", ["optimistic", "locking", "occ"])
def test_porcupine_accepts_what_strict_processes_did(concurrency, workload, tmp_path):
    history = tmp_path / "history.jsonl"
    with Cluster(3, 1, "--partitions", "2", "--concurrency", concurrency) as cluster:
        record(cluster, workload, history, kill=list(cluster)[1].name)
    verdict = accepted_by_porcupine(history, corruptions.STRICT)
    print(f"\n{concurrency}, {workload}: {verdict}")
    assert verdict["transactions"] > FEWEST and verdict["damages"] == DAMAGES[workload]


def test_porcupine_accepts_lists_sets_and_counters_of_strict_processes(tmp_path):
    history = tmp_path / "history.jsonl"
    with Cluster(3, 1, "--partitions", "2") as cluster:
        Recorder(list(cluster), clients=6, seconds=SECONDS, keys=40).run().write(history)
    verdict = accepted_by_porcupine(history, [corruptions.strict_lost_element])
    print(f"\ntyped: {verdict}")
    assert verdict["transactions"] > FEWEST and verdict["damages"] == 1


@pytest.mark.parametrize("features", [[], ["--with", "registers"]], ids=["all-types", "registers"])
@pytest.mark.parametrize("protocol", ["tapir", "locking", "occ"])
def test_porcupine_accepts_simulated_histories(protocol, features, tmp_path):
    history = tmp_path / "history.jsonl"
    transactions = damages = 0
    for seed in range(1, SEEDS + 1):
        simulated(protocol, seed, history, *features)
        if "can express no key" in Exported(history, "porcupine").why_not:
            continue
        verdict = accepted_by_porcupine(history, corruptions.STRICT)
        transactions += verdict["transactions"]
        damages += verdict["damages"]
    print(f"\n{protocol} {features}: {transactions} transactions of {SEEDS} seeds, {damages} damages refused")
    assert transactions > FEWEST and (damages > SEEDS or not features)


@pytest.mark.parametrize("workload", ["rmw", "retwis"])
def test_the_definition_accepts_what_causal_processes_did(workload, tmp_path):
    history = tmp_path / "history.jsonl"
    with Cluster(3, 2, "--model", "causal") as cluster:
        record(cluster, workload, history, kill=list(cluster)[1].name)
    verdict = accepted_by_definition(history, corruptions.CAUSAL)
    print(f"\ncausal, {workload}: {verdict}")
    assert verdict["transactions"] > FEWEST and verdict["damages"] == DAMAGES[workload]


def test_the_definition_accepts_lists_and_sets_of_causal_processes(tmp_path):
    history = tmp_path / "history.jsonl"
    with Cluster(3, 2, "--model", "causal") as cluster:
        Recorder(list(cluster), clients=6, seconds=SECONDS, keys=100).run().write(history)
    verdict = accepted_by_definition(history, corruptions.CAUSAL)
    print(f"\ncausal, typed: {verdict}")
    assert verdict["transactions"] > FEWEST and verdict["damages"] == len(corruptions.CAUSAL)


@pytest.mark.parametrize("features", [[], ["--with", "registers"]], ids=["all-types", "registers"])
@pytest.mark.parametrize("protocol", ["wren", "paris"])
def test_the_definition_accepts_simulated_histories(protocol, features, tmp_path):
    history = tmp_path / "history.jsonl"
    judged = transactions = damages = 0
    for seed in range(1, SEEDS + 1):
        simulated(protocol, seed, history, *features)
        why_not = Exported(history, "plume").why_not
        if "can express no key" in why_not or "given up with a lost region" in why_not:
            continue
        verdict = accepted_by_definition(history, corruptions.CAUSAL)
        judged += 1
        transactions += verdict["transactions"]
        damages += verdict["damages"]
    print(f"\n{protocol} {features}: {transactions} transactions of {judged} seeds, {damages} damages refused")
    assert judged >= (SEEDS // 2 if features else SEEDS // 4) and transactions > FEWEST and damages > judged
