"""Causal keyspaces: regions that are cut apart go on writing the same keys, and come together when the cut is over.

`ANABRANCH_SOAK=1` keeps them apart for five minutes. Every increment must count, every lost write be listed in all
regions alike, and requests must be answered while it heals. What other clients see of all regions from before the cut
until after it is recorded, checked, and exported for other people's checkers.
"""

import os
import random
import threading
import time

import pytest

from cluster import Cluster
from harness import wait_until
from test_conflicts import conflicts
from test_history_export import FORMATS, READERS, exported
from test_histories import bench, check, finish

SECONDS = int(os.environ.get("ANABRANCH_CUT_SECONDS") or (300 if os.environ.get("ANABRANCH_SOAK") else 6))
# Commands a second of each side, and in a pipeline.
RATE, BATCH = 1500, 50
KEYS, ELEMENTS = 40, 12
# Milliseconds for which the recorded clients rest between transactions: five minutes of them are checked at once.
PAUSE = 5
# How long what is written may take to be the same everywhere once the cut is over, and a pipeline meanwhile, in seconds.
CONVERGED_WITHIN = 60
ANSWERED_WITHIN = 5.0


class Side(threading.Thread):
    """Writes in one region, remembering what was acknowledged."""

    def __init__(self, node, name: str):
        super().__init__()
        self.client, self.name_of, self.random = node.client(), name, random.Random(name)
        self.increments = [0] * KEYS
        self.added: dict[str, set] = {}
        # What was last written of a string, a field or a score; None for a deletion.
        self.last: dict[tuple, str | None] = {}
        self.written, self.longest = 0, 0.0
        # Once it heals only what is merged is written.
        self.heals, self.stopping = threading.Event(), threading.Event()
        self.error = None

    def run(self):
        try:
            while not self.stopping.is_set():
                begun = time.monotonic()
                self.batch()
                took = time.monotonic() - begun
                if self.heals.is_set():
                    self.longest = max(self.longest, took)
                self.stopping.wait(max(0.0, BATCH / RATE - took))
        except Exception as error:
            self.error = error

    def batch(self) -> None:
        pipeline = self.client.pipeline(transaction=False)
        done = [self.command(pipeline) for _ in range(BATCH)]
        for reply in pipeline.execute():
            assert reply is not None
        for note in done:
            note()
        self.written += BATCH

    def command(self, pipeline):
        """Adds a command; returns what notes it."""
        number, element = self.random.randrange(KEYS), self.random.randrange(ELEMENTS)
        value = f"{self.name_of}{self.random.randrange(10**9)}"
        dice = self.random.randrange(100) if not self.heals.is_set() else 0
        if dice < 40:
            pipeline.incr(f"heal:count:{number}")
            return lambda: self.count(number)
        if dice < 55:
            member = f"{self.name_of}{self.random.randrange(100)}"
            pipeline.sadd(f"heal:set:{number}", member)
            return lambda: self.added.setdefault(f"heal:set:{number}", set()).add(member)
        if dice < 65:
            score = str(self.random.randrange(10**6))
            pipeline.zadd(f"heal:scores:{number}", {f"m{element}": score})
            return lambda: self.last.update({(f"heal:scores:{number}", f"m{element}"): score})
        if dice < 75:
            pipeline.hset(f"heal:hash:{number}", f"f{element}", value)
            return lambda: self.last.update({(f"heal:hash:{number}", f"f{element}"): value})
        if dice < 90:
            pipeline.set(f"heal:string:{number}", value)
            return lambda: self.last.update({(f"heal:string:{number}", None): value})
        if dice < 95:
            pipeline.delete(f"heal:string:{number}")
            return lambda: self.last.update({(f"heal:string:{number}", None): None})
        if dice < 97:
            pipeline.delete(f"heal:group:{number}")
        else:
            pipeline.sadd(f"heal:group:{number}", value)
        return lambda: None

    def count(self, number: int) -> None:
        self.increments[number] += 1


def state(client) -> dict:
    pipeline = client.pipeline(transaction=False)
    names = []
    for number in range(KEYS):
        pipeline.get(f"heal:count:{number}").get(f"heal:string:{number}")
        pipeline.smembers(f"heal:set:{number}").smembers(f"heal:group:{number}")
        pipeline.hgetall(f"heal:hash:{number}").zrange(f"heal:scores:{number}", 0, -1, withscores=True)
        kinds = ("count", "string", "set", "group", "hash", "scores")
        names += [f"heal:{kind}:{number}" for kind in kinds]
    return dict(zip(names, pipeline.execute()))


def lost(here: Side, there: Side) -> list[tuple]:
    """What both wrote without knowing of each other, and wrote otherwise."""
    both = here.last.keys() & there.last.keys()
    values = ((key, part, here.last[key, part], there.last[key, part]) for key, part in both)
    return sorted((key, part or "", {one, two}) for key, part, one, two in values if None not in (one, two) and one != two)


def told(listed: list[dict]) -> list[tuple]:
    return sorted((e["key"], e["element"] or "", {e["lost"]["value"], e["kept"]["value"]}) for e in listed)


def resident(cluster) -> int:
    """The memory of all processes, in MiB."""
    total = 0
    for node in cluster:
        with open(f"/proc/{node.pid}/status") as status:
            total += sum(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return total // 1024


# The first is left to `cargo xtask soak`.
@pytest.mark.parametrize("regions", [pytest.param(2, marks=pytest.mark.soak), 3])
def test_regions_that_were_cut_apart_come_together_with_every_change(regions, tmp_path):
    with Cluster(regions, 1, "--model", "causal") as cluster:
        first, last = "a/1", f"{'abc'[regions - 1]}/1"
        nodes = [node.name for node in cluster]
        sides = [Side(cluster[first], "a"), Side(cluster[last], "z")]
        here, there = (side.client for side in sides)
        here.set("begun", "yes")
        wait_until(lambda: there.get("begun") == "yes")
        before = resident(cluster)
        # The clients that are recorded go on for a while when it is over.
        after = min(SECONDS / 2, 10)
        arguments = ["--clients", "4", "--keys", "200", "--most-keys", "3", "--pause", str(PAUSE)]
        history = tmp_path / "history.jsonl"
        running = bench(cluster, "rmw", history, *arguments, "--seconds", str(int(SECONDS + after + 2)))
        time.sleep(0.5)
        cut = [f"cut {name[0]} {last[0]}" for name in nodes if name != last]
        cluster.do(*cut)
        begun = time.monotonic()
        for side in sides:
            side.start()
        time.sleep(SECONDS)
        for side in sides:
            side.heals.set()
        # Nobody writes without a merge any more.
        time.sleep(1)
        cut_s, written, at_most = time.monotonic() - begun, sum(side.written for side in sides), resident(cluster)
        cluster.do("heal")
        healed = time.monotonic()
        time.sleep(after)
        for side in sides:
            side.stopping.set()
            side.join()
            assert side.error is None, side.error
        goal = {f"heal:count:{number}": str(sum(side.increments[number] for side in sides)) for number in range(KEYS)}
        clients = [cluster[name].client() for name in nodes]
        wait_until(
            lambda: all(goal.items() <= state(client).items() for client in clients), timeout=CONVERGED_WITHIN
        )
        wait_until(lambda: all(state(client) == state(here) for client in clients), timeout=CONVERGED_WITHIN)
        converged = time.monotonic() - healed
        summary = finish(running, CONVERGED_WITHIN)
        report = check(history, "transactional-causal")
        for layout in FORMATS:
            assert transactions_in(exported(history, layout), layout) >= summary["committed"]
        wanted = lost(*sides)
        wait_until(lambda: told(conflicts(here, "MATCH", "heal:*")) == wanted, timeout=CONVERGED_WITHIN)
        listed = [conflicts(client, "MATCH", "heal:*") for client in clients]
        for one in listed:
            assert one == listed[0], [entry for entry in one + listed[0] if (entry in one) != (entry in listed[0])][:4]
        assert told(listed[0]) == wanted and all(client.execute_command("CONFLICTS", "COUNT")[1] == 0 for client in clients)
        merged = state(here)
        for side in sides:
            assert all(members <= merged[key] for key, members in side.added.items())
        for (key, _), value in there_and_gone(sides):
            assert merged[key] == value, key
        settled = resident(cluster)
        longest = max(side.longest for side in sides)
        print(
            f"\n{regions} regions, cut off for {cut_s:.0f} s: {written} commands, {written / cut_s:.0f} a second; the same "
            f"everywhere after {converged:.1f} s, of which {after} s were written on; the longest pipeline of {BATCH} "
            f"took {longest:.2f} s; {len(wanted)} lost writes listed; {report['transactions']} transactions checked, "
            f"{summary['committed']} committed; {before} MiB before, {at_most} at the end of the cut, {settled} after"
        )
        assert longest < ANSWERED_WITHIN


def transactions_in(text: str, layout: str) -> int:
    """How many committed transactions an exported history has, some for its beginning included."""
    if layout not in READERS:
        return len(text.splitlines())
    return sum(committed for transactions in READERS[layout](text).values() for committed, _ in transactions)


def there_and_gone(sides: list[Side]):
    """Strings that one side deleted last: what the other wrote stays."""
    one, other = sides
    for part in one.last.keys() & other.last.keys():
        values = {one.last[part], other.last[part]}
        if part[1] is None and None in values:
            yield part, next((value for value in values if value is not None), None)
