#!/usr/bin/env python3
"""Judges whether a history is transactionally causally consistent, by the definition alone.

The input has a line for each read and write, in the format of Plume and AWDIT, `r(key,version,session,transaction)`
and `w(key,version,session,transaction)`, numbers all. Lines of a session are in its order; an aborted transaction has the
number -1. Every version is written once, so a read names its writer. Session 0 is the initial transaction.

With SO the order within sessions, WR the pairs of a writer and its reader, and HB the transitive closure of both, a
history is judged in this order (Biswas and Enea, OOPSLA 2019; Terry et al., PDIS 1994):

    integrity    a read sees a version that a committed transaction wrote last, its own if it wrote one before
    atomicity    t reads x of a; b wrote x too, and b is in SO or WR directly before t: then b comes before a
    sessions     the same where b is what t's session wrote (read your writes) or had read there (monotonic
                 reads), or what a session had read there before a write that t's session has seen (writes
                 follow reads)
    causality    the same where b is in HB before t

"Comes before" is an order of all transactions that contains SO and WR: each judgement demands that what it asks for has
no cycle, and there is no such order if and only if there is one. Exit code 0: accepted; 1: refused; 2: no history.
"""

import json
import re
import sys
from bisect import bisect_left
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

LINE = re.compile(r"([rw])\((\d+),(\d+),(\d+),(-?\d+)\)")


class Refused(Exception):
    """The history breaks a promise."""

    def __init__(self, judgement: str, reason: str):
        super().__init__(reason)
        self.judgement = judgement


class Transaction:
    """A committed transaction: what it read of others, and what it left."""

    def __init__(self, name: str, session: int, place: int, events: list):
        self.name, self.session, self.place, self.events = name, session, place, events
        self.reads = []  # (key, writer), each pair once
        self.writes = {key: version for is_write, key, version in events if is_write}


class History:
    """Sessions of committed transactions, and who wrote what."""

    def __init__(self, text: str):
        self.sessions = defaultdict(list)
        self.writers, self.aborted, self.overwritten = {}, set(), set()
        for name, session, events in split(text):
            if name == "-1":
                self.aborted.update((key, version) for is_write, key, version in events if is_write)
                continue
            transaction = Transaction(name, session, len(self.sessions[session]), events)
            self.sessions[session].append(transaction)
            for is_write, key, version in events:
                if is_write and transaction.writes[key] != version:
                    self.overwritten.add((key, version))
                elif is_write and self.writers.setdefault((key, version), transaction) is not transaction:
                    raise Refused("integrity", f"version {version} of {key} was written twice")
        self.transactions = [transaction for session in self.sessions.values() for transaction in session]
        # For each key and session the places of its writers there.
        self.places = defaultdict(lambda: defaultdict(list))
        for transaction in self.transactions:
            for key in transaction.writes:
                self.places[key][transaction.session].append(transaction.place)
        for transaction in self.transactions:
            transaction.reads = list(dict.fromkeys(self.external_reads(transaction)))

    def external_reads(self, transaction: Transaction):
        """What a transaction read of others; refuses what no order explains."""
        own, seen = {}, {}
        for is_write, key, version in transaction.events:
            if is_write:
                own[key] = version
                continue
            what = f"transaction {transaction.name} read version {version} of {key}"
            if own.get(key, version) != version:
                raise Refused("integrity", f"{what} and had written {own[key]} before")
            if key in own:
                continue
            if (key, version) in self.aborted:
                raise Refused("integrity", f"{what}, whose transaction aborted")
            if (key, version) in self.overwritten:
                raise Refused("integrity", f"{what}, which its writer replaced before it ended")
            writer = self.writers.get((key, version))
            if writer is None:
                raise Refused("integrity", f"{what}, which nobody wrote")
            if writer is transaction:
                raise Refused("integrity", f"{what} before it wrote that itself")
            if seen.setdefault(key, version) != version:
                raise Refused("atomicity", f"{what} and had read {seen[key]} before")
            yield key, writer

    def before(self, transaction: Transaction):
        """The transaction before it in its session."""
        return self.sessions[transaction.session][transaction.place - 1] if transaction.place else None

    def last_writer(self, key: int, session: int, count: int):
        """Among the first so many transactions of a session the last one that wrote a key."""
        places = self.places[key].get(session, [])
        found = bisect_left(places, count)
        return self.sessions[session][places[found - 1]] if found else None


def split(text: str):
    """Transactions as (number, session, events), in order of their first line."""
    found, open_now = [], {}
    for line in text.splitlines():
        match = LINE.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"no line of a history: {line[:80]}")
        kind, session, name = match[1], int(match[4]), match[5]
        if open_now.get(session, (None,))[0] != name:
            open_now[session] = (name, session, [])
            found.append(open_now[session])
        open_now[session][2].append((kind == "w", int(match[2]), int(match[3])))
    if not found:
        raise ValueError("it is empty")
    return found


def ordered(history: History, judgement: str, demands) -> list:
    """An order with SO, WR and what is demanded: (b, a, why). Refuses where there is a cycle."""
    after = {transaction: {} for transaction in history.transactions}
    for transaction in history.transactions:
        before = history.before(transaction)
        if before:
            after[transaction][before] = f"session {transaction.session}"
        for key, writer in transaction.reads:
            after[transaction].setdefault(writer, f"its {key} is read")
    for earlier, later, why in demands:
        if earlier is not later:
            after[later].setdefault(earlier, why)
    try:
        return list(TopologicalSorter(after).static_order())
    except CycleError as error:
        cycle = error.args[1]
        lines = [f"{a.name} before {b.name}: {after[b].get(a, '')}" for a, b in zip(cycle, cycle[1:])]
        raise Refused(judgement, "; ".join(lines)) from None


def demand(history: History, reader: Transaction, key: int, source: Transaction, must, promise: str):
    """`must` wrote a key, is to be seen by its reader, and something else was read there."""
    if must is not None and must is not source and must is not reader:
        yield must, source, f"{reader.name} must see its {key} ({promise}) and read that of {source.name}"


def atomicity(history: History):
    """Who is directly before a reader is seen with all that it wrote."""
    for reader in history.transactions:
        direct = {writer for _, writer in reader.reads} | {history.before(reader)} - {None}
        for key, source in reader.reads:
            for must in direct:
                if key in must.writes:
                    yield from demand(history, reader, key, source, must, "atomicity")
            own = history.last_writer(key, reader.session, reader.place)
            yield from demand(history, reader, key, source, own, "atomicity")


def sessions(history: History):
    """Read your writes, monotonic reads, writes follow reads."""
    # What each session read of each key: places and whom it read.
    read = defaultdict(lambda: ([], []))
    for session in history.sessions.values():
        for transaction in session:
            for key, source in transaction.reads:
                places, sources = read[transaction.session, key]
                places.append(transaction.place)
                sources.append(source)
    for session in history.sessions.values():
        seen = {}  # session: how many of its transactions have been seen of
        for reader in session:
            for _, source in reader.reads:
                seen[source.session] = max(seen.get(source.session, 0), source.place + 1)
            for key, source in reader.reads:
                own = history.last_writer(key, reader.session, reader.place)
                yield from demand(history, reader, key, source, own, "read your writes")
                for other, count in [(reader.session, reader.place), *seen.items()]:
                    places, sources = read.get((other, key), ((), ()))
                    found = bisect_left(places, count)
                    promise = "monotonic reads" if other == reader.session else "writes follow reads"
                    must = sources[found - 1] if found else None
                    yield from demand(history, reader, key, source, must, promise)


def causality(history: History, order: list):
    """All that is in a reader's past is seen. `order` contains SO and WR."""
    past = {}  # for each transaction how many of each session are in its past
    for reader in order:
        mine = past[reader] = {}
        for earlier in {writer for _, writer in reader.reads} | {history.before(reader)} - {None}:
            for session, count in past[earlier].items():
                if mine.get(session, 0) < count:
                    mine[session] = count
            mine[earlier.session] = max(mine.get(earlier.session, 0), earlier.place + 1)
        for key, source in reader.reads:
            writers = history.places[key]
            for session in writers if len(writers) < len(mine) else mine:
                must = history.last_writer(key, session, mine.get(session, 0))
                yield from demand(history, reader, key, source, must, "causality")


def judge(text: str) -> dict:
    """The verdict on a history."""
    try:
        history = History(text)
        order = ordered(history, "causality", ())
        ordered(history, "atomicity", atomicity(history))
        ordered(history, "sessions", sessions(history))
        ordered(history, "causality", causality(history, order))
    except Refused as refused:
        return {"ok": False, "judgement": refused.judgement, "reason": str(refused)}
    reads = sum(len(transaction.reads) for transaction in history.transactions)
    return {"ok": True, "transactions": len(history.transactions), "reads": reads}


def main() -> int:
    try:
        with open(sys.argv[1], encoding="ascii") as file:
            verdict = judge(file.read())
    except (IndexError, OSError, ValueError) as error:
        print(f"no history of `history export --format plume`: {error}\nusage: causal.py FILE", file=sys.stderr)
        return 2
    print(json.dumps(verdict))
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
