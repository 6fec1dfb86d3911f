"""docs/porting.md: its Python blocks are run, and keep what the page says of them."""

import re
import threading
from pathlib import Path

import pytest
import redis

PAGE = Path(__file__).resolve().parents[2] / "docs" / "porting.md"


@pytest.fixture(scope="module")
def page() -> dict:
    """What the page's blocks define, each after the ones before it."""
    names = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, PAGE
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    return names


@pytest.fixture(params=["strict", "causal", "branch"])
def model(request) -> str:
    return request.param


@pytest.fixture
def client(model, server, page):
    """A client made as the page says, of an empty keyspace of each model."""
    name = f"porting-{model}"
    with server.client() as admin:
        if name.encode() not in admin.execute_command("KEYSPACE", "LIST"):
            admin.execute_command("KEYSPACE", "CREATE", name, "MODEL", model)
    with page["connect"](server.port, name) as connected:
        yield connected


class Lossy:
    """A client whose commits are carried out, and whose first answers to them are lost."""

    def __init__(self, client, error: redis.RedisError, losses: int):
        self.inner, self.error, self.losses = client, error, losses

    def client(self):
        connection = self.inner.client()
        ask = connection.execute_command

        def execute_command(*arguments, **options):
            reply = ask(*arguments, **options)
            if arguments == ("TXN", "COMMIT") and self.losses:
                self.losses -= 1
                raise self.error
            return reply

        connection.execute_command = execute_command
        return connection


def test_every_connection_uses_the_keyspace(client, server):
    client.set("here", "yes")
    with server.client() as other:
        assert other.get("here") is None
    with client.pipeline() as pipeline:
        assert pipeline.get("here").execute() == ["yes"]


def test_no_increment_of_the_retry_loop_is_lost(client, page):
    client.set("n", 0)

    def add_one(connection):
        connection.incr("n")

    def add_ten():
        for _ in range(10):
            page["transact"](client, add_one)

    threads = [threading.Thread(target=add_ten) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert client.get("n") == "40"


def test_a_read_is_validated_where_the_page_says_so(client, model, page):
    client.set("seen", 1)
    runs = []

    def read_then_write(connection):
        seen = connection.get("seen")
        if not runs:
            client.set("seen", 2)
        runs.append(seen)
        connection.set("copy", seen)

    page["transact"](client, read_then_write)
    assert runs == (["1"] if model == "causal" else ["1", "2"])
    assert client.get("copy") == runs[-1]


@pytest.mark.parametrize("error", [redis.ResponseError("UNKNOWNOUTCOME shard 1"), redis.ConnectionError("closed")])
def test_a_transfer_whose_answer_is_lost_happens_once(client, page, error):
    client.mset({"account:1": 100, "account:2": 0})
    lossy = Lossy(client, error, losses=2)
    page["once"](lossy, "order-17", page["transfer"])
    assert lossy.losses == 0, "the second try finds the mark, and its answer is lost, too"
    assert client.mget("account:1", "account:2") == ["70", "30"]


def test_a_body_that_fails_leaves_nothing(client, page):
    client.mset({"account:1": 20, "account:2": 0})
    client.delete("done:order-18")
    with pytest.raises(ValueError):
        page["once"](client, "order-18", page["transfer"])
    assert client.mget("account:1", "account:2", "done:order-18") == ["20", "0", None]


def test_data_of_redis_is_copied(client, server, peer, page):
    with peer.client() as source, server.client() as target:
        source.flushall()
        source.set("s", "x", px=100_000)
        source.rpush("l", 1, 2)
        source.hset("h", "f", "v")
        source.zadd("z", {"m": 1.5})
        page["copy"](source, target)
        assert sorted(target.keys()) == [b"h", b"l", b"s", b"z"]
        assert 0 < target.pttl("s") <= 100_000 and target.pttl("l") == -1
        assert target.lrange("l", 0, -1) == [b"1", b"2"] and target.zscore("z", "m") == 1.5
