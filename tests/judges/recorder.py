"""Records what clients of real processes see of lists, sets and counters, in the history format (docs/evidence/histories.md).

Each client runs small transactions, by MULTI and EXEC. Each element is added once, so that it names who added it.
"""

import json
import random
import threading
import time
from pathlib import Path

from cluster import Node


def items(*values: str) -> bytes:
    """Byte strings in their binary form: count, total length, strings."""
    packed = b"".join(bytes([len(value)]) + value.encode() for value in values)
    return bytes([len(values), len(packed)]) + packed


def quoted(text: bytes) -> str:
    return f'"{text.decode()}"'


def rendered(reply, is_set: bool) -> str:
    """A reply as histories hold it."""
    if reply.items is not None:
        elements = [quoted(item.text) for item in reply.items]
        return "{" + ", ".join(sorted(elements)) + "}" if is_set else "[" + ", ".join(elements) + "]"
    if reply.kind == b":":
        return f"(integer) {int(reply.text)}"
    return "(nil)" if reply.is_null else quoted(reply.text)


class Step:
    """A command, and the operation that it is."""

    def __init__(self, command: list, operation: bytes):
        self.command, self.operation = command, operation

    def record(self, reply) -> dict:
        seen = {"key": self.command[1], "operation": self.operation.hex(), "text": " ".join(self.command)}
        if reply is not None:
            seen["reply"] = rendered(reply, self.command[0] == "SMEMBERS")
        return seen


def push(key: str, value: str) -> Step:
    return Step(["RPUSH", key, value], b"\x05\x00\x01" + items(value) + b"\x00")


def elements(key: str) -> Step:
    return Step(["LRANGE", key, "0", "-1"], b"\x05\x02\x00\x01")


def add(key: str, value: str) -> Step:
    return Step(["SADD", key, value], b"\x03\x00" + items(value))


def members(key: str) -> Step:
    return Step(["SMEMBERS", key], b"\x03\x04")


def increment(key: str) -> Step:
    return Step(["INCR", key], b"\x01\x04\x02")


def get(key: str) -> Step:
    return Step(["GET", key], b"\x01\x00")


class Recorder:
    """Runs clients at some nodes, for so long, and keeps what they saw."""

    def __init__(self, nodes: list[Node], clients: int, seconds: float, keys: int):
        self.nodes, self.clients, self.keys = nodes, clients, keys
        self.lock, self.lines = threading.Lock(), []
        self.end = time.monotonic() + seconds

    def run(self) -> "Recorder":
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(self.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self

    def write(self, path: Path) -> None:
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))

    def _steps(self, draw: random.Random, value: str) -> list[Step]:
        def one() -> Step:
            number = draw.randrange(self.keys)
            return draw.choice(
                [
                    push(f"list:{number}", value),
                    elements(f"list:{number}"),
                    add(f"set:{number}", value),
                    members(f"set:{number}"),
                    increment(f"counter:{number}"),
                    get(f"counter:{number}"),
                ]
            )

        steps = [one() for _ in range(draw.randint(1, 4))]
        # An element is added once at most.
        return list({tuple(step.command): step for step in steps}.values())

    def _client(self, number: int) -> None:
        draw = random.Random(number)
        count = 0
        with self.nodes[number % len(self.nodes)].raw() as connection:
            while time.monotonic() < self.end:
                count += 1
                steps = self._steps(draw, f"{number}.{count}")
                invoked = time.monotonic_ns() // 1000
                assert connection.call("MULTI").raw == b"+OK\r\n"
                for step in steps:
                    assert connection.call(*step.command).raw == b"+QUEUED\r\n", step.command
                reply = connection.call("EXEC")
                responded = time.monotonic_ns() // 1000
                self._note(number, invoked, responded, steps, reply)

    def _note(self, session: int, invoked: int, responded: int, steps: list[Step], reply) -> None:
        committed = reply.items is not None
        assert committed or reply.is_error, reply
        line = {"session": session, "invoked": invoked, "outcome": "committed" if committed else "unknown"}
        if committed:
            line["responded"] = responded
        line["steps"] = [step.record(seen) for step, seen in zip(steps, reply.items or [None] * len(steps))]
        with self.lock:
            self.lines.append({"number": len(self.lines) + 1, **line})
