"""The example application: the same session on Redis and on ours, and its data after `kill -9`."""

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import retwis

from cluster import Cluster
from harness import Anabranch

NAMES = ["ada", "bob", "cid", "dan"]


def application(server) -> retwis.Retwis:
    """The application with a clock and secrets that are the same in every run."""
    seconds, tokens = itertools.count(1_700_000_000), itertools.count()
    client = server.client(decode_responses=True)
    return retwis.Retwis(client, now=lambda: next(seconds), random_token=lambda: f"token{next(tokens)}")


def outcome(action, *arguments):
    """What a user sees: a result, or why it was refused."""
    try:
        return action(*arguments)
    except retwis.Refused as refusal:
        return f"refused: {refusal}"


def play(app: retwis.Retwis) -> list:
    """A session of four users; everything that they saw, in order."""
    seen = [outcome(app.sign_up, name, f"secret of {name}") for name in NAMES]
    seen += [outcome(app.sign_up, "ada", "other"), outcome(app.sign_up, "no name", "x")]
    seen += [outcome(app.log_in, "ada", "wrong"), outcome(app.log_in, "nobody", "x")]
    ada, bob, cid, dan = (app.log_in(name, f"secret of {name}") for name in NAMES)
    seen += [outcome(app.follow, bob, "ada"), outcome(app.follow, bob, "ada"), outcome(app.follow, cid, "ada")]
    seen += [outcome(app.follow, ada, "ada"), outcome(app.follow, "no token", "ada"), outcome(app.follow, ada, "dan")]
    seen += [outcome(app.post, ada, f"number {number}") for number in range(25)]
    seen += [outcome(app.post, dan, "only ada reads this"), outcome(app.post, dan, ""), outcome(app.post, dan, "x" * 281)]
    seen += [outcome(app.unfollow, cid, "ada"), outcome(app.unfollow, cid, "ada"), outcome(app.post, ada, "without cid")]
    renewed = app.log_in("dan", "secret of dan")
    seen += [outcome(app.timeline, dan), outcome(app.timeline, renewed)]
    app.log_out(renewed)
    seen += [outcome(app.timeline, renewed)]
    return seen + views(app, [ada, bob, cid])


def views(app: retwis.Retwis, tokens: list[str]) -> list:
    """All pages that anybody can see."""
    seen = [app.profile(name) for name in NAMES]
    seen += [outcome(app.timeline, token, page, 10) for token in tokens for page in range(4)]
    return seen + [app.everybody(page, 7) for page in range(5)]


def test_a_session_has_the_same_outcome_on_redis(server, peer):
    with peer.raw() as connection:
        connection.call("FLUSHALL")
    ours, theirs = play(application(server)), play(application(peer))
    assert ours == theirs
    assert ours[-1] == ([], False), "27 posts fill four pages of 7"
    pages_of_bob, pages_of_cid = ours[-13:-9], ours[-9:-5]
    assert [len(page) for page, _ in pages_of_bob] == [10, 10, 6, 0]
    assert pages_of_bob[0][0][0].text == "without cid" and pages_of_cid[0][0][0].text == "number 24"


def test_a_session_has_the_same_outcome_on_a_branch_keyspace(peer):
    """An application that knows nothing of branches never sees one at its own site."""
    with peer.raw() as connection:
        connection.call("FLUSHALL")
    with Cluster(1, 1, "--model", "branch") as cluster:
        assert play(application(cluster["a/1"])) == play(application(peer))


@pytest.mark.parametrize("durability", ["always", "everysec"])
def test_a_session_survives_a_kill(durability):
    with Anabranch(durability) as server:
        app = application(server)
        play(app)
        tokens = [app.log_in(name, f"secret of {name}") for name in NAMES[:3]]
        before = views(app, tokens)
        server.kill()
        server.start()
        assert views(application(server), tokens) == before
        assert application(server).post(tokens[0], "after the crash") == 28


def test_one_of_many_who_want_a_name_gets_it(server):
    ids, refused = [], []

    def want(number):
        with server.client(decode_responses=True) as client:
            try:
                ids.append(retwis.Retwis(client).sign_up("eve", f"secret {number}"))
            except retwis.Refused as refusal:
                refused.append(str(refusal))

    threads = [threading.Thread(target=want, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 1 and refused == ["the name eve is taken"] * 7
    with server.client(decode_responses=True) as client:
        assert client.hget("users", "eve") == str(ids[0])
        assert client.hget(f"user:{ids[0]}", "name") == "eve"


def test_a_post_reaches_exactly_those_who_follow_when_it_appears(server):
    """Followers come while posts are published: a reader sees a post if and only if the post's order says so."""
    app = retwis.Retwis(server.client(decode_responses=True))
    app.sign_up("ada", "x")
    ada = app.log_in("ada", "x")
    readers = 12

    def follow_all():
        with server.client(decode_responses=True) as client:
            other = retwis.Retwis(client)
            for number in range(readers):
                other.sign_up(f"reader{number}", "x")
                other.follow(other.log_in(f"reader{number}", "x"), "ada")

    follower = threading.Thread(target=follow_all, daemon=True)
    follower.start()
    posts = [app.post(ada, f"post {number}") for number in range(60)]
    follower.join()
    posts.append(app.post(ada, "the last"))
    for number in range(readers):
        token = app.log_in(f"reader{number}", "x")
        ids = [post.id for post in app.timeline(token, 0, 100)[0]]
        assert ids == posts[::-1][: len(ids)] and ids, "from the first post after the follow on, all of them"


def test_the_command_line(server):
    script = Path(retwis.__file__)
    url = f"redis://127.0.0.1:{server.port}"

    def run(*arguments):
        command = [sys.executable, str(script), "--url", url, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=60)

    assert run("sign-up", "ada", "secret").stdout == "1\n"
    token = run("log-in", "ada", "secret").stdout.strip()
    assert run("post", token, "hello").stdout == "1\n"
    assert run("timeline", token).stdout == "ada: hello\n"
    assert run("profile", "ada").stdout == "posts: 1\nfollowers: 0\nfollowing: 0\n"
    refused = run("log-in", "ada", "wrong")
    assert (refused.returncode, refused.stderr) == (1, "error: wrong password\n")
