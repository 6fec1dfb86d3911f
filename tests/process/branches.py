"""What tests of branch keyspaces share."""

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
