"""Clients that write one request after the other and remember exactly what was acknowledged, and what must hold after a crash.

Every writer owns its keys and has at most one request under way, so after a crash it knows what the server may show:
everything acknowledged, and the one request under way either wholly or not at all.
"""

import threading
import time
from dataclasses import dataclass, field

import redis

# What a crash may do to a request under way.
INTERRUPTED = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError)


@dataclass
class Writer:
    """A client thread. `sent` counts requests that were begun, `acknowledged` those that were answered."""

    number: int
    server: object
    sent: int = 0
    acknowledged: int = 0
    # What can no longer be lost: an end in order, or durability, has saved it.
    saved: int = 0
    error: BaseException | None = None
    thread: threading.Thread | None = None
    stopping: threading.Event = field(default_factory=threading.Event)

    def key(self, name: str) -> str:
        return f"{type(self).__name__}:{self.number}:{name}"

    def start(self) -> None:
        self.stopping.clear()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            with self.server.client(decode_responses=True) as client:
                while not self.stopping.is_set():
                    self.sent = self.acknowledged + 1
                    self.write(client, self.sent)
                    self.acknowledged = self.sent
                    time.sleep(0.001)
        except INTERRUPTED:
            pass
        except BaseException as error:
            self.error = error

    def write(self, client: redis.Redis, number: int) -> None:
        """Performs request `number`, counted from 1."""
        raise NotImplementedError

    def read(self, client: redis.Redis) -> int:
        """How many requests the server shows; fails if one is there in part or out of order."""
        raise NotImplementedError

    def check(self, client: redis.Redis, may_lose: bool) -> int:
        """Checks what the server shows after a restart and goes on from there; returns how many were lost."""
        shown = self.read(client)
        where = f"{type(self).__name__} {self.number}"
        assert shown <= self.sent, f"{where}: {shown} requests are shown, {self.sent} were sent"
        lost = max(0, self.acknowledged - shown)
        assert may_lose or lost == 0, f"{where}: {self.acknowledged} were acknowledged, {shown} are shown"
        assert shown >= self.saved, f"{where}: {self.saved} were saved, {shown} are shown"
        if not may_lose:
            self.saved = shown
        self.sent = self.acknowledged = shown
        return lost


class Counter(Writer):
    """One command, whose reply is the count."""

    def write(self, client, number):
        assert client.incr(self.key("count")) == number

    def read(self, client):
        return int(client.get(self.key("count")) or 0)


class Pair(Writer):
    """A MULTI over several keys of several types: all of it or nothing."""

    def write(self, client, number):
        with client.pipeline() as pipe:
            pipe.incr(self.key("a")).hincrby(self.key("b"), "field", 1).rpush(self.key("c"), number)
            pipe.zadd(self.key("d"), {"member": number})
            assert pipe.execute() == [number, number, number, 1 if number == 1 else 0]

    def read(self, client):
        with client.pipeline() as pipe:
            pipe.get(self.key("a")).hget(self.key("b"), "field")
            pipe.lrange(self.key("c"), 0, -1).zscore(self.key("d"), "member")
            a, b, c, d = pipe.execute()
        shown = int(a or 0)
        assert c == [str(number) for number in range(1, shown + 1)], f"{c[-3:]} beside {shown}"
        assert (int(b or 0), int(d or 0)) == (shown, shown), (a, b, d)
        return shown


class Sequence(Writer):
    """Two keys one after the other: what came later is never there without what came before."""

    def write(self, client, number):
        client.rpush(self.key("first"), number)
        client.set(self.key("second"), number)

    def read(self, client):
        first = client.lrange(self.key("first"), 0, -1)
        second = int(client.get(self.key("second")) or 0)
        assert first == [str(number) for number in range(1, len(first) + 1)], first[-3:]
        assert second <= len(first) <= second + 1, f"{second} in the second key, {len(first)} in the first"
        if len(first) > second:
            client.rpop(self.key("first"))
        return second


class Pipelined(Writer):
    """Fifty commands at once, without a transaction: the answered ones are there."""

    DEPTH = 50

    def write(self, client, number):
        with client.pipeline(transaction=False) as pipe:
            for _ in range(self.DEPTH):
                pipe.incr(self.key("count"))
            assert pipe.execute()[-1] == number * self.DEPTH

    def read(self, client):
        count = int(client.get(self.key("count")) or 0)
        # A pipeline under way may be there in part; the rest of it is repeated.
        client.set(self.key("count"), count - count % self.DEPTH)
        return count // self.DEPTH


class Transfer(Writer):
    """Moves between accounts that all writers of the kind share: the sum never changes."""

    ACCOUNTS = 8

    def write(self, client, number):
        source, target = number % self.ACCOUNTS, (number * 3 + self.number) % self.ACCOUNTS
        with client.pipeline() as pipe:
            pipe.decrby(f"account:{source}", number).incrby(f"account:{target}", number).incr(self.key("done"))
            pipe.execute()

    def read(self, client):
        balances = client.mget([f"account:{account}" for account in range(self.ACCOUNTS)])
        assert sum(int(balance or 0) for balance in balances) == 0, balances
        return int(client.get(self.key("done")) or 0)


def writers(server) -> list[Writer]:
    kinds = [Counter, Counter, Pair, Pair, Sequence, Pipelined, Transfer, Transfer]
    return [kind(number, server) for number, kind in enumerate(kinds)]
