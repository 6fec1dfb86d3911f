"""Damages exported histories, so that no order explains them: a judge must refuse every one.

Each function returns the damaged history, or None if this one offers no place for the damage. All of them show a version
that certainly comes before another one: the one that its writer had read, or the one that was there first.
"""

import copy
import json
import re

LINE = re.compile(r"([rw])\((\d+),(\d+),(\d+),(-?\d+)\)")


# Plume's lines: transactions as [session, number, [(kind, key, version), ...]].


def read_plume(text: str) -> list:
    transactions = []
    for line in text.splitlines():
        kind, key, version, session, number = LINE.fullmatch(line).groups()
        if number == "-1" or not transactions or transactions[-1][:2] != [session, number]:
            transactions.append([session, number, []])
        transactions[-1][2].append((kind, key, version))
    return transactions


def write_plume(transactions: list) -> str:
    return "".join(
        f"{kind}({key},{version},{session},{number})\n"
        for session, number, events in transactions
        for kind, key, version in events
    )


def replaced(transactions: list) -> dict:
    """For each version: (the one that its writer had read, or the initial one; the writer's place)."""
    found = {}
    initial = {key: version for _, key, version in transactions[0][2]}
    for place, (_, number, events) in enumerate(transactions):
        read = dict(initial)
        for kind, key, version in events if place and number != "-1" else []:
            if kind == "r":
                read[key] = version
            else:
                found[key, version] = (read[key], place)
    return found


def with_read(transactions: list, place: int, key: str, version: str) -> str:
    """The history, but the first read of a key by a transaction shows another version."""
    damaged = copy.deepcopy(transactions)
    events = damaged[place][2]
    at = next(at for at, event in enumerate(events) if event[:2] == ("r", key))
    events[at] = ("r", key, version)
    return write_plume(damaged)


def pairs_of_session(transactions: list):
    """Places of two transactions of a session, the earlier one first."""
    sessions = {}
    for place, (session, number, _) in enumerate(transactions):
        if number != "-1":
            yield from ((earlier, place) for earlier in sessions.setdefault(session, []))
            sessions[session].append(place)


def read_by(events: list, key: str) -> bool:
    """True if a transaction reads a key before it writes it."""
    first = next((kind for kind, on, _ in events if on == key), None)
    return first == "r"


def stale_read(text: str):
    """A session reads a version, and later the one before it."""
    transactions = read_plume(text)
    before = replaced(transactions)
    for earlier, later in pairs_of_session(transactions):
        for kind, key, version in transactions[earlier][2]:
            if kind == "r" and (key, version) in before and read_by(transactions[later][2], key):
                return with_read(transactions, later, key, before[key, version][0])
    return None


def lost_write(text: str):
    """A session writes, and then reads what it had replaced."""
    transactions = read_plume(text)
    before = replaced(transactions)
    for earlier, later in pairs_of_session(transactions):
        for kind, key, version in transactions[earlier][2]:
            if kind == "w" and (key, version) in before and read_by(transactions[later][2], key):
                return with_read(transactions, later, key, before[key, version][0])
    return None


def fractured_read(text: str):
    """A transaction sees one write of another, and not the second."""
    transactions = read_plume(text)
    before = replaced(transactions)
    for place, (_, _, events) in enumerate(transactions):
        for kind, key, version in events:
            writer = before.get((key, version), (None, place))[1] if kind == "r" else place
            for also, on, wrote in transactions[writer][2] if writer != place else []:
                if also == "w" and on != key and (on, wrote) in before and read_by(events, on):
                    return with_read(transactions, place, on, before[on, wrote][0])
    return None


def reordered_session(text: str):
    """A session reads what it writes only afterwards."""
    transactions = read_plume(text)
    for earlier, later in pairs_of_session(transactions):
        written = {(key, version) for kind, key, version in transactions[earlier][2] if kind == "w"}
        if any(kind == "r" and (key, version) in written for kind, key, version in transactions[later][2]):
            transactions[earlier], transactions[later] = transactions[later], transactions[earlier]
            return write_plume(transactions)
    return None


CAUSAL = (stale_read, lost_write, fractured_read, reordered_session)


# Porcupine's lines: operations as dictionaries.


def read_operations(text: str) -> list:
    return [json.loads(line) for line in text.splitlines()]


def write_operations(operations: list) -> str:
    return "".join(json.dumps(operation) + "\n" for operation in operations)


def gets(operation: dict) -> dict:
    """What an operation got of each key before it put there: (place in the output, value)."""
    found, put, seen = {}, set(), 0
    for step in operation["input"]:
        if step["op"] == "put":
            put.add(step["key"])
        elif not step.get("blind"):
            if step["op"] == "get" and step["key"] not in put:
                found.setdefault(step["key"], (seen, operation["output"][seen]))
            seen += 1
    return found


def puts(operation: dict) -> dict:
    return {step["key"]: step["value"] for step in operation["input"] if step["op"] == "put"}


def later_readers(operations: list):
    """(writer, reader, key): the writer had got the key, and ended before the reader began, who got what it had put."""
    writers = {
        (key, value): operation
        for operation in operations
        for key, value in puts(operation).items()
        if key in gets(operation)
    }
    for reader in operations:
        for key, (_, value) in gets(reader).items():
            writer = writers.get((key, value))
            if writer and writer is not reader and writer["return"] < reader["call"]:
                yield writer, reader, key


def with_output(operations: list, operation: dict, key: str, value) -> str:
    damaged = copy.deepcopy(operations)
    at = gets(operation)[key][0]
    damaged[operations.index(operation)]["output"][at] = value
    return write_operations(damaged)


def strict_stale_read(text: str):
    """Who began after a write had ended reads what that had replaced."""
    operations = read_operations(text)
    for writer, reader, key in later_readers(operations):
        return with_output(operations, reader, key, gets(writer)[key][1])
    return None


def strict_fractured_read(text: str):
    """An operation sees one write of another, and not the second."""
    operations = read_operations(text)
    for writer, reader, key in later_readers(operations):
        for other in gets(reader).keys() & puts(writer).keys() & gets(writer).keys() - {key}:
            return with_output(operations, reader, other, gets(writer)[other][1])
    return None


def strict_lost_write(text: str):
    """An acknowledged write lies between a write and a read that still sees the latter."""
    operations = read_operations(text)
    for writer, reader, key in later_readers(operations):
        if writer["return"] + 2 < reader["call"]:
            put = {"op": "put", "key": key, "value": "lost"}
            times = {"call": writer["return"] + 1, "return": reader["call"] - 1}
            return write_operations([*operations, {"client": -1, **times, "input": [put], "output": []}])
    return None


def strict_reordered_session(text: str):
    """A read trades its time with the write that it saw."""
    operations = read_operations(text)
    for writer, reader, _ in later_readers(operations):
        for end in ("call", "return"):
            writer[end], reader[end] = reader[end], writer[end]
        return write_operations(operations)
    return None


def strict_lost_element(text: str):
    """A list lacks what was appended to it before."""
    operations = read_operations(text)
    ends = {
        (step["key"], value): operation["return"]
        for operation in operations
        for step in operation["input"]
        if step["op"] == "rpush"
        for value in step["values"]
    }
    for operation in operations:
        seen = [step for step in operation["input"] if step["op"] != "put" and not step.get("blind")]
        for at, step in enumerate(seen):
            result, begin = operation["output"][at], operation["call"]
            if step["op"] == "lrange" and result and ends.get((step["key"], result[-1]), begin) < begin:
                result.pop()
                return write_operations(operations)
    return None


STRICT = (strict_stale_read, strict_fractured_read, strict_lost_write, strict_reordered_session)
