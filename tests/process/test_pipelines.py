"""Pipelines over partitions of which one is gone: only its own commands fail, and nothing is done twice. Replies of a
transaction leave together."""

import redis

from cluster import Cluster
from harness import wait_until
from resp import encode

KEYS = [f"key{number}" for number in range(16)]


def count_up(client: redis.Redis) -> list:
    """Each key is counted up and read, all in one pipeline; returns the replies in pairs."""
    pipeline = client.pipeline(transaction=False)
    for key in KEYS:
        pipeline.execute_command("BLIND", "INCR", key)
        pipeline.get(key)
    replies = pipeline.execute(raise_on_error=False)
    return list(zip(replies[::2], replies[1::2], strict=True))


def test_a_pipeline_over_a_partition_that_is_gone():
    with Cluster(1, 2, "--model", "causal") as cluster, cluster["a/1"].client() as client:
        assert count_up(client) == [("OK", "1")] * len(KEYS)
        cluster.do("kill a/2")
        replies = count_up(client)
        lost = [key for key, pair in zip(KEYS, replies, strict=True) if pair != ("OK", "2")]
        assert 0 < len(lost) < len(KEYS), "both partitions have keys"
        errors = [str(reply) for pair in replies if pair != ("OK", "2") for reply in pair]
        text = "UNAVAILABLE partition 1 of the region did not answer in time; nothing was done"
        assert set(errors) == {text}
        cluster.do("restart a/2")
        expected = ["1" if key in lost else "2" for key in KEYS]
        wait_until(lambda: reads(client) == expected)


def reads(client: redis.Redis) -> list:
    try:
        return client.mget(KEYS)
    except redis.ResponseError as error:
        return [str(error)]


def test_the_replies_of_a_transaction_leave_with_its_outcome():
    far = [word for pair in ("a-b", "a-c", "b-c") for word in ("--delay", f"{pair}=60ms")]
    with Cluster(3, 1, *far) as cluster, cluster["a/1"].raw() as raw:
        assert raw.call("SET", "large", "x" * 8192).text == b"OK"
        sets = [encode(("SET", key, "1")) for key in ("one", "two")]
        interactive = b"".join([encode(("TXN", "BEGIN")), *sets, encode(("TXN", "COMMIT"))])
        queued = b"".join([encode(("MULTI",)), *sets, encode(("EXEC",))])
        for pipeline, answer in (
            (interactive, b"+OK\r\n" * 4),
            (queued, b"+OK\r\n" + b"+QUEUED\r\n" * 2 + b"*2\r\n" + b"+OK\r\n" * 2),
        ):
            raw.send(pipeline)
            assert raw.socket.recv(65536) == answer, "one piece"
        # What is large does not wait for the far regions.
        raw.send(encode(("GET", "large")) + queued)
        early = raw.socket.recv(65536)
        while not early.endswith(b"+QUEUED\r\n"):
            early += raw.socket.recv(65536)
        assert raw.socket.recv(65536) == b"*2\r\n" + b"+OK\r\n" * 2
