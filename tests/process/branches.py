"""What tests of branch keyspaces share."""

import redis

from harness import wait_until


def heads(client) -> list:
    """The heads at a client's site, the most recent first."""
    return client.execute_command("BRANCH", "HEADS")


def all_see(clients, count: int = 1, seconds: float = 20) -> None:
    """Waits until all sites have the same heads, so many."""

    def they_do() -> bool:
        # Each is asked once: a site that merges what all have does so before the others hear of it.
        (first, *others) = [heads(client) for client in clients]
        return len(first) == count and all(other == first for other in others)

    wait_until(they_do, seconds)


def create_parted(cluster) -> None:
    """Creates the keyspace `parted`, whose records lie in two partitions, and waits until every process serves it."""
    with cluster["a/1"].client() as client:
        client.execute_command("KEYSPACE", "CREATE", "parted", "MODEL", "branch", "PARTITIONS", "2")

    def serves(node) -> bool:
        try:
            with node.using("parted") as client:
                return client.get("nothing") is None
        except redis.exceptions.RedisError:
            return False

    wait_until(lambda: all(serves(node) for node in cluster))
