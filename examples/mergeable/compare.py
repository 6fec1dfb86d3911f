#!/usr/bin/env python3
"""Compares the two libraries: lines of code, and operations per second of clients that share one value at one site.

    anabranch cluster local --regions 1 --processes 1 --model branch
    python compare.py --url redis://127.0.0.1:7001

Nine of ten operations read and one writes, as in TARDiS's figure 14(b). Both are measured in the same keyspaces: the types on
branches in one that merges by their handler, the flat ones in a strict one.
"""

import argparse
import ast
import json
import multiprocessing
import random
import statistics
import time
from pathlib import Path

import branching
import flat
import redis

KINDS = {
    "OpCounter": (lambda value: value.add(1), lambda value: value.value()),
    "PNCounter": (lambda value: value.subtract(1), lambda value: value.value()),
    "LWWRegister": (lambda value: value.set("x", time.time()), lambda value: value.value()),
    "MVRegister": (lambda value: value.set("x"), lambda value: value.values()),
    "ORSet": (lambda value: value.add(f"m{random.randrange(100)}"), lambda value: value.members()),
}
SITES = 3


def lines(module) -> dict:
    """Lines of code of every class, what it inherits included, without comments; merging included."""
    tree = ast.parse(Path(module.__file__).read_text())
    own, bases = {}, {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            code = {inner.lineno for inner in ast.walk(node) if isinstance(inner, (ast.stmt, ast.expr))}
            texts = [inner.value for inner in node.body if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)]
            code -= {line for text in texts for line in range(text.lineno, text.end_lineno + 1)}
            own[node.name], bases[node.name] = len(code), [base.id for base in node.bases]
    return {name: count + sum(own.get(base, 0) for base in bases[name]) for name, count in own.items()}


def handled() -> dict:
    """Lines of the merge handler for every type that has a part of it."""
    prefixes = {'"lww:"': "LWWRegister", '"mv:"': "MVRegister", '"or:"': "ORSet"}
    counts, kind = {}, None
    for line in branching.HANDLER.splitlines():
        kind = next((prefixes[prefix] for prefix in prefixes if prefix in line), kind)
        if kind and line.strip() not in ("", "end"):
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def made(library: str, kind: str, url: str):
    def use(connection) -> None:
        connection.on_connect()
        connection.send_command("KEYSPACE", "USE", f"types-{library}")
        connection.read_response()

    client = redis.Redis.from_url(url, decode_responses=True, redis_connect_func=use)
    if library == "flat":
        return getattr(flat, kind)(client, kind, 0, SITES)
    return getattr(branching, kind)(client, kind)


def work(library: str, kind: str, url: str, until: float, writes: float, done) -> None:
    value, (write, read), count = made(library, kind, url), KINDS[kind], 0
    while time.time() < until:
        (write if random.random() < writes else read)(value)
        count += 1
    done.put(count)


def measure(library: str, kind: str, url: str, clients: int, seconds: float, writes: float) -> float:
    """Operations per second."""
    made(library, kind, url).redis.flushdb()
    KINDS[kind][0](made(library, kind, url))
    done, until = multiprocessing.Queue(), time.time() + seconds
    arguments = (library, kind, url, until, writes, done)
    processes = [multiprocessing.Process(target=work, args=arguments) for _ in range(clients)]
    for process in processes:
        process.start()
    total = sum(done.get() for _ in processes)
    for process in processes:
        process.join()
    return total / seconds


def create(url: str) -> None:
    client = redis.Redis.from_url(url, decode_responses=True)
    known = client.execute_command("KEYSPACE", "LIST")
    wanted = {
        "types-branching": ["branch", "MERGE", "handler", "HANDLER", branching.HANDLER],
        "types-flat": ["strict", "PARTITIONS", "1", "REPLICAS", "1"],
    }
    for name, options in wanted.items():
        if name not in known:
            client.execute_command("KEYSPACE", "CREATE", name, "MODEL", *options)
    time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the two libraries of mergeable types.")
    parser.add_argument("--url", default="redis://127.0.0.1:7001")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writes", type=float, default=0.1, help="the share of operations that write")
    given = parser.parse_args()
    create(given.url)
    counted = {"branching": lines(branching), "flat": lines(flat)}
    for kind, count in handled().items():
        counted["branching"][kind] += count
    for kind in KINDS:
        pairs = []
        for _ in range(given.rounds):
            rates = [
                measure(library, kind, given.url, given.clients, given.seconds, given.writes)
                for library in ("branching", "flat")
            ]
            pairs.append(rates)
        ratios = sorted(ours / theirs for ours, theirs in pairs)
        result = {
            "type": kind,
            "lines": [counted["branching"][kind], counted["flat"][kind]],
            "operations_per_second": [round(statistics.median(side)) for side in zip(*pairs, strict=True)],
            "ratio": round(statistics.median(ratios), 2),
            "range": [round(ratios[0], 2), round(ratios[-1], 2)],
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
