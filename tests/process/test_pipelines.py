"""Pipelines over partitions of which one is gone: only its own commands fail, and nothing is done twice."""

import redis

from cluster import Cluster
from harness import wait_until

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
        wait_until(lambda: reads(client) == expected, timeout=20)


def reads(client: redis.Redis) -> list:
    try:
        return client.mget(KEYS)
    except redis.ResponseError as error:
        return [str(error)]
