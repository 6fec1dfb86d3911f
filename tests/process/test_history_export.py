"""What clients of a real cluster saw, exported for other people's checkers, and read here by readers of this test.

They know the formats as those checkers do, and nothing of how ours writes them: each sees to it that the file holds the
recorded history, and all that its checkers take for granted.
"""

import json
import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from cluster import Cluster
from harness import laboratory

FORMATS = ("plume", "dbcop", "porcupine")
WORKLOADS = ("rmw", "retwis")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A recorded history for each workload."""
    folder = tmp_path_factory.mktemp("histories")
    with Cluster(3, 1, "--partitions", "2") as cluster:
        urls = [argument for node in cluster for argument in ("--url", f"127.0.0.1:{node.port}")]
        for workload in WORKLOADS:
            command = [laboratory(), "bench", workload, *urls, "--clients", "4", "--keys", "20", "--seconds", "1", "--json"]
            command += ["--history", str(folder / f"{workload}.jsonl")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
    return folder


def run_export(history: Path, layout: str) -> subprocess.CompletedProcess:
    command = [laboratory(), "history", "export", str(history), "--format", layout]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def exported(history: Path, layout: str) -> str:
    done = run_export(history, layout)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=WORKLOADS)
def history(request, folder) -> Path:
    return folder / f"{request.param}.jsonl"


def recorded(history: Path) -> list[dict]:
    """What is certain to have happened."""
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    transactions = [line for line in lines if line["outcome"] == "committed"]
    assert len(transactions) > 50, "the run did something"
    return transactions


# A history by session: transactions in order, each as whether it committed and its (is a write, key, value).


def read_plume(text: str) -> dict:
    sessions, last = defaultdict(list), {}
    for line in text.splitlines():
        found = re.fullmatch(r"([rw])\((\d+),(\d+),(\d+),(-?\d+)\)", line)
        assert found, line
        kind, (key, value, session, number) = found[1], map(int, found.groups()[1:])
        if last.get(session) != number or number == -1:
            last[session] = number
            sessions[session].append((number != -1, []))
        sessions[session][-1][1].append((kind == "w", key, value))
    return dict(sessions)


def read_dbcop(text: str) -> dict:
    history = json.loads(text)
    params = history["params"]
    assert params["n_node"] == len(history["data"])
    sessions = {}
    for number, transactions in enumerate(history["data"]):
        sessions[number] = []
        for transaction in transactions:
            events = []
            for event in transaction["events"]:
                ((kind, at),) = event.items()
                assert kind in ("Read", "Write") and 0 <= at["variable"] < params["n_variable"], event
                events.append((kind == "Write", at["variable"], at["version"]))
            sessions[number].append((transaction["committed"], events))
    return sessions


READERS = {"plume": read_plume, "dbcop": read_dbcop}


@pytest.mark.parametrize("layout", READERS)
def test_every_read_value_was_written_once_and_the_initial_transaction_comes_first(history, layout):
    sessions = READERS[layout](exported(history, layout))
    initial = sessions.pop(0)
    assert len(initial) == 1 and initial[0][0] and all(is_write for is_write, _, _ in initial[0][1])
    writers = Counter(
        (key, value) for every in [initial, *sessions.values()] for _, events in every for w, key, value in events if w
    )
    assert max(writers.values()) == 1, "a value names its writer"
    first_values = {key: value for _, key, value in initial[0][1]}
    committed = reads = 0
    for transactions in sessions.values():
        is_committed, events = transactions[0]
        assert is_committed and [w for w, _, _ in events] == [False], "a session begins by reading"
        assert all(first_values[key] == value for _, key, value in events), "from the initial transaction"
        for is_committed, events in transactions[1:]:
            committed += is_committed
            for is_write, key, value in events:
                assert key in first_values, "the initial transaction wrote every key"
                reads += not is_write
                assert is_write or writers[key, value] == 1, f"nobody wrote {value} to {key}"
    assert committed >= len(recorded(history)) and reads > 50


def test_dbcop_and_plume_tell_the_same(history):
    def committed(layout: str) -> list:
        sessions = READERS[layout](exported(history, layout))
        return [[events for done, events in sessions[number] if done] for number in sorted(sessions)]

    assert committed("plume") == committed("dbcop")


def test_calls_and_returns_are_on_one_clock(history):
    lines = [json.loads(line) for line in exported(history, "porcupine").splitlines()]
    first, operations = lines[0], lines[1:]
    assert all(set(line) == {"client", "call", "return", "input", "output"} for line in lines)
    assert all(put["op"] == "put" and put["value"] is None for put in first["input"]) and first["output"] == []
    keys = {put["key"] for put in first["input"]}
    written = Counter((put["key"], put["value"]) for line in lines for put in line["input"] if put["op"] == "put")
    assert max(written.values()) == 1
    busy_until = defaultdict(int)
    for line in sorted(operations, key=lambda line: line["call"]):
        assert first["return"] < line["call"] <= line["return"], line
        if line["return"] != max(other["return"] for other in lines):
            assert busy_until[line["client"]] <= line["call"], "a client has one operation at a time"
            busy_until[line["client"]] = line["return"]
        gets = [step["key"] for step in line["input"] if step["op"] == "get"]
        assert len(gets) == len(line["output"]) and keys.issuperset(step["key"] for step in line["input"])
        assert all(written[key, value] == 1 for key, value in zip(gets, line["output"])), line
    # The durations are those recorded: they come from the same clock.
    spans = Counter(line["return"] - line["call"] for line in operations)
    for transaction in recorded(history):
        spans[transaction["responded"] - transaction["invoked"]] -= 1
    assert min(spans.values()) >= 0


# SMEMBERS, as histories hold it.
MEMBERS = {"key": "s", "operation": "0304", "text": "Set(Members)", "reply": "{}"}


@pytest.mark.parametrize("layout", FORMATS)
def test_a_history_with_other_types_is_refused_by_name(layout, history, tmp_path):
    typed = tmp_path / "typed.jsonl"
    line = {"number": 10**6, "session": 1, "invoked": 1, "responded": 2, "outcome": "committed", "steps": [MEMBERS]}
    typed.write_text(history.read_text() + json.dumps(line) + "\n")
    done = run_export(typed, layout)
    assert done.returncode == 2 and done.stdout == ""
    assert "transaction 1000000 did Set(Members) on s, which no register has" in done.stderr
    assert "anabranch-lab check" in done.stderr, "it says what to do instead"
