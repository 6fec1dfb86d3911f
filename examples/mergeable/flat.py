"""The same types on flat storage, as the papers on them give them (Shapiro et al.): every site has a replica of its own, a
hash, which says what it knows of every other one, and merges what another site tells it.

Whatever reads before it writes is a transaction, and is repeated when another client of the site came between.
"""

import json

import redis


class Replica:
    """The replica of a value at one of `sites`."""

    def __init__(self, client, name: str, site: int, sites: int):
        self.redis, self.name, self.site, self.sites = client, f"{name}@{site}", site, sites

    def transact(self, work) -> None:
        """Runs `work(pipeline)`, which reads and then queues writes, until nobody came between."""
        with self.redis.pipeline() as pipe:
            while True:
                try:
                    pipe.watch(self.name)
                    work(pipe)
                    pipe.execute()
                    return
                except redis.WatchError:
                    continue

    def state(self) -> dict:
        """What another site is told."""
        return self.redis.hgetall(self.name)


class PNCounter(Replica):
    """A sum of additions and one of subtractions for every site."""

    def _change(self, side: str, amount: int) -> None:
        self.transact(lambda pipe: self._count(pipe, f"{side}{self.site}", amount))

    def _count(self, pipe, field: str, amount: int) -> None:
        before = int(pipe.hget(self.name, field) or 0)
        pipe.multi()
        pipe.hset(self.name, field, before + amount)

    def add(self, amount: int) -> None:
        self._change("p", amount)

    def subtract(self, amount: int) -> None:
        self._change("n", amount)

    def value(self) -> int:
        return sum(int(count) * (1 if field[0] == "p" else -1) for field, count in self.state().items())

    def merge(self, told: dict) -> None:
        def join(pipe) -> None:
            own = pipe.hgetall(self.name)
            pipe.multi()
            for field, count in told.items():
                pipe.hset(self.name, field, max(int(count), int(own.get(field, 0))))

        self.transact(join)


class OpCounter(Replica):
    """Every operation is told once, in the order of its site: `seen` says how many of every site's have come."""

    def add(self, amount: int) -> None:
        def count(pipe) -> None:
            own = pipe.hgetall(self.name)
            number = int(own.get(f"seen{self.site}", 0)) + 1
            pipe.multi()
            pipe.hset(self.name, f"op{self.site}.{number}", amount)
            pipe.hset(self.name, f"seen{self.site}", number)
            pipe.hset(self.name, "sum", int(own.get("sum", 0)) + amount)

        self.transact(count)

    def value(self) -> int:
        return int(self.redis.hget(self.name, "sum") or 0)

    def merge(self, told: dict) -> None:
        def join(pipe) -> None:
            own = pipe.hgetall(self.name)
            total = int(own.get("sum", 0))
            pipe.multi()
            for site in range(self.sites):
                last, seen = int(told.get(f"seen{site}", 0)), int(own.get(f"seen{site}", 0))
                for number in range(seen + 1, last + 1):
                    amount = int(told[f"op{site}.{number}"])
                    pipe.hset(self.name, f"op{site}.{number}", amount)
                    total += amount
                pipe.hset(self.name, f"seen{site}", max(seen, last))
            pipe.hset(self.name, "sum", total)

        self.transact(join)

    def forget(self, states: list[dict]) -> None:
        """Drops operations that all sites have."""
        own = self.state()
        for site in range(self.sites):
            known = min(int(state.get(f"seen{site}", 0)) for state in states)
            gone = [field for field in own if field.startswith(f"op{site}.") and int(field.split(".")[1]) <= known]
            if gone:
                self.redis.hdel(self.name, *gone)


class LWWRegister(Replica):
    """A value with its time; of equal times the greater site's."""

    def _put(self, time: float, site: int, value: str) -> None:
        def put(pipe) -> None:
            own = pipe.hgetall(self.name)
            pipe.multi()
            if not own or (float(own["time"]), int(own["site"])) < (time, site):
                pipe.hset(self.name, mapping={"time": time, "site": site, "value": value})

        self.transact(put)

    def set(self, value: str, time: float) -> None:
        self._put(time, self.site, value)

    def value(self) -> str | None:
        return self.redis.hget(self.name, "value")

    def merge(self, told: dict) -> None:
        if told:
            self._put(float(told["time"]), int(told["site"]), told["value"])


class MVRegister(Replica):
    """Values, each with a version vector: one that another one's vector dominates has been replaced."""

    def set(self, value: str) -> None:
        def put(pipe) -> None:
            vectors = [json.loads(vector) for vector in pipe.hgetall(self.name)]
            vector = [max((other[site] for other in vectors), default=0) for site in range(self.sites)]
            vector[self.site] += 1
            pipe.multi()
            pipe.delete(self.name)
            pipe.hset(self.name, json.dumps(vector), value)

        self.transact(put)

    def values(self) -> set:
        return set(self.state().values())

    def merge(self, told: dict) -> None:
        def is_replaced(vector: list, all_vectors: list) -> bool:
            return any(
                other != vector and all(a <= b for a, b in zip(vector, other, strict=True)) for other in all_vectors
            )

        def join(pipe) -> None:
            both = pipe.hgetall(self.name) | told
            vectors = {text: json.loads(text) for text in both}
            pipe.multi()
            for text, value in both.items():
                if is_replaced(vectors[text], list(vectors.values())):
                    pipe.hdel(self.name, text)
                else:
                    pipe.hset(self.name, text, value)

        self.transact(join)


class ORSet(Replica):
    """Every addition has a tag of its own; a removal names the tags that it saw, which never come back."""

    def add(self, member: str) -> None:
        def put(pipe) -> None:
            number = int(pipe.hget(self.name, f"last{self.site}") or 0) + 1
            pipe.multi()
            pipe.hset(self.name, f"last{self.site}", number)
            pipe.hset(self.name, f"add:{self.site}.{number}", member)

        self.transact(put)

    def remove(self, member: str) -> None:
        def drop(pipe) -> None:
            seen = [field for field, value in pipe.hgetall(self.name).items() if field[:4] == "add:" and value == member]
            pipe.multi()
            for field in seen:
                pipe.hdel(self.name, field)
                pipe.hset(self.name, "gone:" + field[4:], "")

        self.transact(drop)

    def members(self) -> set:
        return {value for field, value in self.state().items() if field[:4] == "add:"}

    def merge(self, told: dict) -> None:
        def join(pipe) -> None:
            own = pipe.hgetall(self.name)
            gone = {field[5:] for field in own | told if field[:5] == "gone:"}
            pipe.multi()
            for tag in gone:
                pipe.hdel(self.name, "add:" + tag)
                pipe.hset(self.name, "gone:" + tag, "")
            for field, value in told.items():
                if field[:4] == "add:" and field[4:] not in gone:
                    pipe.hset(self.name, field, value)

        self.transact(join)


def tell(replicas: list) -> None:
    """Every site tells every other one what it knows."""
    for told in replicas:
        state = told.state()
        for replica in replicas:
            if replica is not told:
                replica.merge(state)
