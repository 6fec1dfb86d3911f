"""What clients of a real cluster saw, exported for other people's checkers, and read here by readers of this test.

They know the formats as those checkers do, and nothing of how ours writes them: each sees to it that the file holds the
recorded history, and all that its checkers take for granted.
"""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "judges"))

import causal
import corruptions
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
            command = [laboratory(), "bench", workload, *urls, "--clients", "4", "--keys", "20", "--seconds", "3", "--json"]
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
    assert all(set(line) == {"client", "call", "return", "input", "output"} for line in lines)
    written = Counter((put["key"], put["value"]) for line in lines for put in line["input"] if put["op"] == "put")
    assert max(written.values()) == 1
    busy_until = defaultdict(int)
    for line in sorted(lines, key=lambda line: line["call"]):
        assert line["call"] <= line["return"], line
        if line["return"] != max(other["return"] for other in lines):
            assert busy_until[line["client"]] <= line["call"], "a client has one operation at a time"
            busy_until[line["client"]] = line["return"]
        gets = [step["key"] for step in line["input"] if step["op"] == "get"]
        assert len(gets) == len(line["output"])
        assert all(value is None or written[key, value] == 1 for key, value in zip(gets, line["output"])), line
    # The durations are those recorded: they come from the same clock.
    spans = Counter(line["return"] - line["call"] for line in lines)
    for transaction in recorded(history):
        spans[transaction["responded"] - transaction["invoked"]] -= 1
    assert min(spans.values()) >= 0


# SMEMBERS and HDEL h f, as histories hold them.
MEMBERS = {"key": "s", "operation": "0304", "text": "Set(Members)", "reply": '{"m"}'}
HDEL = {"key": "h", "operation": "020a01020166", "text": "Dict(Delete)", "reply": "(integer) 1"}


@pytest.mark.parametrize("layout", FORMATS)
def test_what_a_format_cannot_express_is_left_out_by_name(layout, history, tmp_path):
    def with_steps(*steps: dict) -> subprocess.CompletedProcess:
        typed = tmp_path / "typed.jsonl"
        line = {"number": 10**6, "session": 10**6, "invoked": 1, "responded": 2, "outcome": "committed", "steps": steps}
        typed.write_text(history.read_text() + json.dumps(line) + "\n")
        return run_export(typed, layout)

    done = with_steps(HDEL)
    assert done.returncode == 0 and "h: transaction 1000000 did Dict(Delete)" in done.stderr, done.stderr
    if layout != "dbcop":
        lines = Counter(re.sub(r"\d+", "", line) for line in done.stdout.splitlines())
        assert lines == Counter(re.sub(r"\d+", "", line) for line in exported(history, layout).splitlines())
    done = with_steps(MEMBERS)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert len(done.stdout) > len(exported(history, layout)), "a set is told"


def test_a_history_of_which_nothing_is_left_is_refused(tmp_path):
    history = tmp_path / "history.jsonl"
    line = {"number": 1, "session": 1, "invoked": 1, "responded": 2, "outcome": "committed", "steps": [HDEL]}
    history.write_text(json.dumps(line) + "\n")
    done = run_export(history, "plume")
    assert done.returncode == 2 and done.stdout == ""
    assert "can express no key" in done.stderr and "transaction 1 did Dict(Delete)" in done.stderr, done.stderr


def test_the_judge_of_causal_histories_accepts_what_is_strict_and_refuses_it_damaged(history):
    text = exported(history, "plume")
    verdict = causal.judge(text)
    assert verdict["ok"] and verdict["transactions"] > 50, verdict
    judgements = set()
    for damage in corruptions.CAUSAL:
        damaged = damage(text)
        if damaged is None:
            # Its transactions have one key.
            assert damage is corruptions.fractured_read and history.stem == "rmw", damage.__name__
            continue
        verdict = causal.judge(damaged)
        assert not verdict["ok"], damage.__name__
        judgements.add(verdict["judgement"])
    assert {"atomicity", "causality"} <= judgements, judgements
