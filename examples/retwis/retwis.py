#!/usr/bin/env python3
"""Retwis: a small social network on redis-py, which runs unchanged on any server that speaks the Redis protocol.

    python retwis.py --url redis://127.0.0.1:6379 sign-up ada secret
    token=$(python retwis.py log-in ada secret)
    python retwis.py post "$token" "hello"
    python retwis.py timeline "$token"

What is stored, one line per key:

    users                hash: name -> id            next:user, next:post   counters
    user:ID              hash: name, salt, password, joined
    sessions             hash: token -> id           session:ID             string: the token of that user
    followers:ID         sorted set: id by the time it began            following:ID           the same, reversed
    post:ID              hash: author, text, time
    timeline:ID          list of post ids, newest first, at most TIMELINE_LENGTH
    posts:ID             list of a user's own post ids, newest first
    timeline             list of everybody's post ids, newest first, at most TIMELINE_LENGTH

Everything that belongs together changes in one MULTI; what depends on something that was read is WATCHed and
tried again when it changed meanwhile.
"""

import argparse
import hashlib
import secrets
import sys
import time
from dataclasses import dataclass

import redis

TIMELINE_LENGTH = 1000
MAX_TEXT_LENGTH = 280
PASSWORD_ROUNDS = 20_000


class Refused(Exception):
    """The user asked for something that is not possible; the text says why."""


@dataclass(frozen=True)
class Post:
    id: int
    author: str
    text: str
    time: int


class Retwis:
    """The application. `client` decodes replies; `now` gives seconds and `random_token` secrets."""

    def __init__(self, client: redis.Redis, now=time.time, random_token=lambda: secrets.token_hex(16)):
        self.redis = client
        self.now = now
        self.random_token = random_token

    # Users

    def sign_up(self, name: str, password: str) -> int:
        """Registers a user and returns the id. Two who want one name at the same time: one of them is refused."""
        if not name or not name.isidentifier():
            raise Refused("a name has letters, digits and underscores")
        salt = self.random_token()
        user = {"name": name, "salt": salt, "password": hash_password(password, salt), "joined": int(self.now())}
        user_id = self.redis.incr("next:user")

        def register(pipe):
            if pipe.hexists("users", name):
                raise Refused(f"the name {name} is taken")
            pipe.multi()
            pipe.hset("users", name, user_id)
            pipe.hset(f"user:{user_id}", mapping=user)

        self.redis.transaction(register, "users")
        return user_id

    def log_in(self, name: str, password: str) -> str:
        """Returns a token for the other calls; the user's previous token is no longer valid."""
        user_id = self._id_of(name)
        salt, expected = self.redis.hmget(f"user:{user_id}", "salt", "password")
        if not secrets.compare_digest(hash_password(password, salt), expected):
            raise Refused("wrong password")
        token = self.random_token()

        def replace(pipe):
            old = pipe.get(f"session:{user_id}")
            pipe.multi()
            if old:
                pipe.hdel("sessions", old)
            pipe.set(f"session:{user_id}", token)
            pipe.hset("sessions", token, user_id)

        self.redis.transaction(replace, f"session:{user_id}")
        return token

    def log_out(self, token: str) -> None:
        user_id = self._user_of(token)
        with self.redis.pipeline() as pipe:
            pipe.hdel("sessions", token).delete(f"session:{user_id}").execute()

    # Following

    def follow(self, token: str, name: str) -> bool:
        """True if the user did not follow that one before."""
        user_id, other = self._user_of(token), self._id_of(name)
        if user_id == other:
            raise Refused("nobody follows themselves")
        moment = int(self.now())
        with self.redis.pipeline() as pipe:
            pipe.zadd(f"following:{user_id}", {other: moment}, nx=True)
            pipe.zadd(f"followers:{other}", {user_id: moment}, nx=True)
            added, mirrored = pipe.execute()
        assert added == mirrored, "the two sides of a follow change together"
        return bool(added)

    def unfollow(self, token: str, name: str) -> bool:
        user_id, other = self._user_of(token), self._id_of(name)
        with self.redis.pipeline() as pipe:
            pipe.zrem(f"following:{user_id}", other).zrem(f"followers:{other}", user_id)
            removed, mirrored = pipe.execute()
        assert removed == mirrored, "the two sides of a follow change together"
        return bool(removed)

    # Posts

    def post(self, token: str, text: str) -> int:
        """Publishes to the followers of this moment and returns the post's id."""
        if not 0 < len(text) <= MAX_TEXT_LENGTH:
            raise Refused(f"a post has 1 to {MAX_TEXT_LENGTH} characters")
        user_id = self._user_of(token)
        post_id = self.new_post_id()
        post = {"author": user_id, "text": text, "time": int(self.now())}

        def publish(pipe):
            followers = pipe.zrange(f"followers:{user_id}", 0, -1)
            pipe.multi()
            pipe.hset(f"post:{post_id}", mapping=post)
            pipe.lpush(f"posts:{user_id}", post_id)
            timelines = [f"timeline:{reader}" for reader in [user_id, *followers]]
            for timeline in [*timelines, "timeline"]:
                pipe.lpush(timeline, post_id)
                pipe.ltrim(timeline, 0, TIMELINE_LENGTH - 1)

        self.redis.transaction(publish, f"followers:{user_id}")
        return post_id

    def new_post_id(self) -> int:
        """A number that no other post has."""
        return self.redis.incr("next:post")

    def timeline(self, token: str, page: int = 0, page_size: int = 10) -> tuple[list[Post], bool]:
        """A page of what the followed users posted, newest first, and whether there is a further page."""
        return self._page(f"timeline:{self._user_of(token)}", page, page_size)

    def everybody(self, page: int = 0, page_size: int = 10) -> tuple[list[Post], bool]:
        """A page of what all users posted, newest first."""
        return self._page("timeline", page, page_size)

    def profile(self, name: str) -> dict[str, int]:
        """How many posts, followers and followed users, all of one moment."""
        user_id = self._id_of(name)
        with self.redis.pipeline() as pipe:
            pipe.llen(f"posts:{user_id}").zcard(f"followers:{user_id}").zcard(f"following:{user_id}")
            return dict(zip(("posts", "followers", "following"), pipe.execute()))

    def _page(self, key: str, page: int, page_size: int) -> tuple[list[Post], bool]:
        first = page * page_size
        ids = self.redis.lrange(key, first, first + page_size)
        with self.redis.pipeline(transaction=False) as pipe:
            for post_id in ids[:page_size]:
                pipe.hgetall(f"post:{post_id}")
            posts = pipe.execute()
            for post in posts:
                pipe.hget(f"user:{post['author']}", "name")
            names = pipe.execute()
        page_of_posts = [
            Post(int(post_id), name, post["text"], int(post["time"])) for post_id, post, name in zip(ids, posts, names)
        ]
        return page_of_posts, len(ids) > page_size

    def _id_of(self, name: str) -> int:
        user_id = self.redis.hget("users", name)
        if user_id is None:
            raise Refused(f"there is no user {name}")
        return int(user_id)

    def _user_of(self, token: str) -> int:
        user_id = self.redis.hget("sessions", token)
        if user_id is None:
            raise Refused("not logged in")
        return int(user_id)


def hash_password(password: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt.encode(), PASSWORD_ROUNDS).hex()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A small social network on a Redis server.")
    parser.add_argument("--url", default="redis://127.0.0.1:6379", help="the server, redis://HOST:PORT/DATABASE")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words, about in [
        ("sign-up", ["name", "password"], "registers a user"),
        ("log-in", ["name", "password"], "prints a token"),
        ("log-out", ["token"], "ends a session"),
        ("follow", ["token", "name"], "shows that user's posts from now on"),
        ("unfollow", ["token", "name"], "shows them no longer"),
        ("post", ["token", "text"], "publishes to the followers"),
        ("timeline", ["token"], "prints a page of what the followed users posted"),
        ("profile", ["name"], "prints a user's counts"),
    ]:
        command = commands.add_parser(name, help=about)
        for word in words:
            command.add_argument(word)
        if name == "timeline":
            command.add_argument("--page", type=int, default=0)
    return parser.parse_args(arguments)


def run(application: Retwis, options: argparse.Namespace) -> list[str]:
    """Carries out one command line; returns the lines to print."""
    values = {name: value for name, value in vars(options).items() if name not in ("url", "command")}
    result = getattr(application, options.command.replace("-", "_"))(**values)
    match options.command:
        case "timeline":
            posts, more = result
            lines = [f"{post.author}: {post.text}" for post in posts]
            return lines + [f"(more: --page {options.page + 1})"] * more
        case "profile":
            return [f"{name}: {count}" for name, count in result.items()]
        case "log-out":
            return []
        case _:
            return [str(result)]


def main() -> int:
    options = parse(sys.argv[1:])
    application = Retwis(redis.Redis.from_url(options.url, decode_responses=True))
    try:
        print(*run(application, options), sep="\n")
    except Refused as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
