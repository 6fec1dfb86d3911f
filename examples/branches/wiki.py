"""A page whose text, references and picture belong together (TARDiS, section 2.1 and figure 2).

A store that merges key by key would join one author's text with another one's picture. On branches each author's page is
whole; who merges sees the page on every branch that changed it, and the one that they had in common, and writes one. All of it
is one state.
"""

from collections.abc import Callable

import redis

PARTS = ("text", "references", "picture")


class Page:
    """A page at a site. `client` has one connection, decodes replies, and has chosen the keyspace."""

    def __init__(self, client: redis.Redis, title: str):
        self.redis = client
        self.keys = {part: f"page:{title}:{part}" for part in PARTS}

    def edit(self, **parts: str) -> None:
        """Changes some parts, on the branch where this site is."""
        self.redis.mset({self.keys[part]: value for part, value in parts.items()})

    def read(self) -> dict[str, str | None]:
        return dict(zip(PARTS, self.redis.mget(self.keys.values()), strict=True))

    def at(self, state: str) -> dict[str, str | None]:
        """The page at a state."""
        return {part: self.redis.execute_command("MERGE", "GET", key, state) for part, key in self.keys.items()}

    def merge(self, choose: Callable[[dict, list[dict]], dict]) -> bool:
        """Merges all branches: `choose` is given the page at the fork and the pages that differ from it, and makes one page of
        them. False if there is one branch."""
        try:
            heads = self.redis.execute_command("MERGE", "BEGIN")
        except redis.ResponseError as error:
            if "nothing to merge" in str(error):
                return False
            raise
        fork = self.at(self.redis.execute_command("MERGE", "FORKS")[0])
        versions = [page for page in map(self.at, heads) if page != fork]
        if len(versions) > 1:
            page = choose(fork, versions)
            for part, key in self.keys.items():
                self.redis.set(key, page[part])
        # All other pages: by the types' rules, and what these leave open as it was changed last.
        self.redis.execute_command("MERGE", "RESOLVE", "ALL", "NEWEST")
        self.redis.execute_command("MERGE", "COMMIT")
        return True
