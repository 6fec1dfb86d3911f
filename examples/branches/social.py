"""Retwis on branches: timelines are lists, followers sorted sets, and merge by the rules of their types. Only numbers have to
be given out differently: sites that cannot hear each other would give two posts the same one.
"""

import redis
import retwis

SITES = 1000


class Social(retwis.Retwis):
    """The application at one site."""

    def __init__(self, client: redis.Redis, site: int, **options):
        super().__init__(client, **options)
        self.site = site

    def new_post_id(self) -> int:
        return self.redis.incr(f"next:post:{self.site}") * SITES + self.site
