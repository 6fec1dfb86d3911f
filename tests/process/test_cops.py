"""Causal keyspaces with PROTOCOL cops: a write is shown after what it depends on, and reads never wait."""

import os
import time

import pytest
import redis

from cluster import Cluster
from harness import wait_until

REGIONS = "abc"
SLOW_MS = 150
# How long a region stays cut off: ten minutes in a soak.
CUT_SECONDS = int(os.environ.get("ANABRANCH_CUT_SECONDS") or (600 if os.environ.get("ANABRANCH_SOAK") else 30))
GREATEST = """
function resolve(key, conflict)
  local one, other = conflict.branches[1], conflict.branches[2]
  if one > other then return one end
  return other
end
"""
MERGED = ("merged", "CONFLICTS", "handler", "HANDLER", GREATEST)


@pytest.fixture(scope="module")
def regions():
    """Three regions, the way between b and c slow; COPS and COPS-GT, of eight partitions each."""
    with Cluster(3, 1, "--delay", f"b-c={SLOW_MS}ms") as cluster:
        with cluster["a/1"].client() as client:
            for keyspace, *options in (("cops",), ("gt", "TRANSACTIONS", "on"), ("kept", "CONFLICTS", "keep"), MERGED):
                client.execute_command(
                    "KEYSPACE", "CREATE", keyspace, "MODEL", "causal", "PROTOCOL", "cops", "PARTITIONS", "8", *options
                )
        yield cluster


def session(cluster, region: str, keyspace: str = "cops") -> redis.Redis:
    return cluster[f"{region}/1"].session(keyspace)


def test_the_region_says_which_protocol_it_has(regions):
    with session(regions, "a") as client:
        assert "cops" in str(client.execute_command("KEYSPACE", "INFO", "cops"))
        assert "on" in str(client.execute_command("KEYSPACE", "INFO", "gt"))


@pytest.mark.parametrize(
    "options, reason",
    [
        (("REPLICAS", "2"), "every partition in every region"),
        (("COPIES", "3"), "3 copies need as many processes"),
        (("CONFLICTS", "handler"), "go together"),
        (
            ("CONFLICTS", "handler", "HANDLER", "function resolve(key, c) return c.branches[1] end"),
            r"HANDLER: it is not commutative.* merge\('",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(regions, options, reason):
    with regions["a/1"].client() as client:
        with pytest.raises(redis.exceptions.ResponseError, match=reason):
            client.execute_command("KEYSPACE", "CREATE", "odd", "MODEL", "causal", "PROTOCOL", "cops", *options)


def test_what_it_does_not_have_is_refused(regions):
    with session(regions, "a") as client, session(regions, "a", "gt") as transactional:
        pairs = {f"several:{number}": str(number) for number in range(20)}
        for own in (client, transactional):
            with pytest.raises(redis.exceptions.ResponseError, match="wren or paris"):
                own.mset(pairs)
            assert all(own.get(key) is None for key in pairs), "nothing happened"
            with pytest.raises(redis.exceptions.ResponseError, match="no interactive transactions"):
                own.execute_command("TXN", "BEGIN")
        with pytest.raises(redis.exceptions.ResponseError, match="TRANSACTIONS on"):
            client.mget(list(pairs))
        assert transactional.mget(list(pairs)) == [None] * len(pairs)
        client.mset({"{tag}one": "1", "{tag}two": "2"})
        assert client.mget(["{tag}one", "{tag}two"]) == ["1", "2"]


def test_a_write_is_shown_after_what_it_depends_on_through_a_long_cut(regions):
    """c's photos reach b, and b's albums reach a; a shows each album when its photo has come, and serves reads meanwhile."""
    with session(regions, "c") as far, session(regions, "b") as middle, session(regions, "a") as here:
        number, end, took = 0, time.monotonic() + CUT_SECONDS, []
        regions.do("cut a c")
        try:
            while time.monotonic() < end:
                far.set(f"photo:{number}", "photo")
                wait_until(lambda: middle.get(f"photo:{number}") == "photo")
                middle.set(f"album:{number}", "with photo")
                begin = time.monotonic()
                seen = [here.get(f"{what}:{earlier}") for earlier in (0, number // 2, number) for what in ("album", "photo")]
                took.append(time.monotonic() - begin)
                assert seen == [None] * 6
                number += 1
                time.sleep(0.05)
            with session(regions, "b") as independent:
                independent.set("other", "depends on nothing")
        finally:
            regions.do("heal")
        assert min(took) < 1, "no read waits"
        hidden, begin = set(range(number)), time.monotonic()
        while hidden:
            shown = {album for album in hidden if here.get(f"album:{album}") is not None}
            assert [here.get(f"photo:{album}") for album in shown] == ["photo"] * len(shown), "an album without its photo"
            hidden -= shown
            assert time.monotonic() - begin < 60, f"{len(hidden)} of {number} albums have not come"
        wait_until(lambda: here.get("other") == "depends on nothing")


def test_every_region_agrees_about_typed_values(regions):
    clients = [session(regions, region) for region in REGIONS]
    for number in range(20):
        for region, client in zip(REGIONS, clients):
            client.incr("count")
            client.sadd("members", f"{region}{number}")
    for client in clients:
        wait_until(lambda: client.get("count") == "60" and client.scard("members") == 60)
        client.close()


def test_a_token_waits_elsewhere_for_what_it_depends_on(regions):
    with session(regions, "b") as here, session(regions, "c") as there:
        for number in range(5):
            here.set("moved", number)
            token = here.execute_command("CONTEXT", "TOKEN")
            there.execute_command("CONTEXT", "RESTORE", token)
            assert there.get("moved") == str(number), f"it takes {SLOW_MS} ms to arrive"


def test_a_token_is_refused_where_what_it_depends_on_does_not_come(regions):
    with session(regions, "b") as here, session(regions, "c") as there:
        regions.do("cut b c")
        regions.do("cut a c")
        try:
            here.set("cut off", "yes")
            token = here.execute_command("CONTEXT", "TOKEN")
            with pytest.raises(redis.exceptions.ResponseError, match="UNAVAILABLE.*has not written yet"):
                there.execute_command("CONTEXT", "RESTORE", token, "TIMEOUT", "500")
        finally:
            regions.do("heal")
        wait_until(lambda: there.execute_command("CONTEXT", "RESTORE", token) in ("OK", b"OK", True))
        assert there.get("cut off") == "yes"


def test_a_connection_has_several_contexts(regions):
    with session(regions, "a") as client:
        number = client.execute_command("CONTEXT", "NEW")
        first = client.execute_command("CONTEXT", "TOKEN")
        client.execute_command("CONTEXT", "USE", number)
        client.set("in another context", "yes")
        assert client.execute_command("CONTEXT", "TOKEN") != first
        client.execute_command("CONTEXT", "USE", "0")
        assert client.execute_command("CONTEXT", "TOKEN") == first
        client.execute_command("CONTEXT", "DROP", number)
        with pytest.raises(redis.exceptions.ResponseError, match=f"no context {number}"):
            client.execute_command("CONTEXT", "USE", number)


def write_apart(regions, clients, values) -> None:
    """Each region writes while it is cut off from the others."""
    cuts = ("a b", "a c", "b c")
    for cut in cuts:
        regions.do(f"cut {cut}")
    try:
        for client, value in zip(clients, values):
            client.set("cart", value)
    finally:
        regions.do("heal")


def test_a_lost_write_is_listed_in_every_region(regions):
    clients = [session(regions, region) for region in REGIONS]
    write_apart(regions, clients, ["one", "two", "three"])
    for client in clients:
        wait_until(lambda: len(client.execute_command("CONFLICTS", "LIST", "MATCH", "cart")[1]) == 2)
    kept = clients[0].get("cart")
    assert {client.get("cart") for client in clients} == {kept}
    listed = [client.execute_command("CONFLICTS", "LIST", "MATCH", "cart")[1] for client in clients]
    lost = [{entry["lost"]["value"] for entry in entries} for entries in listed]
    assert lost == [{"one", "two", "three"} - {kept}] * 3
    assert clients[1].execute_command("CONFLICTS", "RESOLVE", "KEY", "cart") == 2
    for client in clients:
        wait_until(lambda: client.execute_command("CONFLICTS", "LIST", "MATCH", "cart")[1] == [])
        client.close()


def test_siblings_are_kept_until_a_write_settles_them(regions):
    clients = [session(regions, region, "kept") for region in REGIONS]
    values = {"bread", "milk", "eggs"}
    write_apart(regions, clients, sorted(values))

    def siblings(client) -> list[dict]:
        return client.execute_command("CONFLICTS", "OF", "cart")

    for client in clients:
        wait_until(lambda: {entry["value"] for entry in siblings(client)} == values)
        assert {entry["region"] for entry in siblings(client)} == set(REGIONS)
        for command in (("GET", "cart"), ("APPEND", "cart", "more"), ("GETSET", "cart", "x")):
            with pytest.raises(redis.exceptions.ResponseError, match="SIBLINGS 'cart' has 3 concurrent values"):
                client.execute_command(*command)
        assert client.exists("cart") == 1
    regions.do("kill b/1", "restart b/1")
    clients[1].close()
    clients[1] = session(regions, "b", "kept")
    wait_until(lambda: {entry["value"] for entry in siblings(clients[1])} == values)
    clients[0].set("cart", "all of it")
    for client in clients:
        wait_until(lambda: [entry["value"] for entry in siblings(client)] == ["all of it"])
        assert client.get("cart") == "all of it"
        client.close()


def test_a_handler_merges_siblings_where_they_are_read(regions):
    clients = [session(regions, region, "merged") for region in REGIONS]
    write_apart(regions, clients, ["3", "9", "5"])
    for client in clients:
        wait_until(lambda: len(client.execute_command("CONFLICTS", "OF", "cart")) == 3)
        assert client.get("cart") == "9"
    assert clients[2].incr("cart") == 10
    for client in clients:
        wait_until(lambda: len(client.execute_command("CONFLICTS", "OF", "cart")) == 1)
        assert client.get("cart") == "10"
        client.close()


def test_keys_are_read_together(regions):
    """A writer keeps two counters in step, one after the other; whoever reads both never sees the second ahead of the first."""
    with session(regions, "b", "gt") as writer:
        readers = [session(regions, region, "gt") for region in REGIONS]
        for number in range(200):
            writer.set("first", number)
            writer.set("second", number)
            for reader in readers:
                first, second = (int(value or -1) for value in reader.mget(["first", "second"]))
                assert first >= second
        for reader in readers:
            reader.close()


def test_a_process_that_is_killed_comes_back_with_everything(regions):
    with session(regions, "b") as elsewhere:
        with session(regions, "c") as client:
            for number in range(50):
                client.set(f"kept:{number}", number)
        regions.do("kill c/1")
        elsewhere.set("while down", "yes")
        regions.do("restart c/1")
        with session(regions, "c") as client:
            assert [client.get(f"kept:{number}") for number in range(50)] == [str(number) for number in range(50)]
            wait_until(lambda: client.get("while down") == "yes")


def refused(client: redis.Redis, *command: str) -> str:
    try:
        client.execute_command(*command)
        return ""
    except redis.exceptions.ResponseError as error:
        return str(error)


def partitions_here(client: redis.Redis) -> list[str]:
    reply = client.execute_command("KEYSPACE", "INFO", "cops")
    return (dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) else reply)["partitions_here"]


def test_the_others_go_on_without_a_lost_region():
    """What the lost region had sent to one of the others only reaches the other one, too, and so does what depends on it."""
    photos = [f"photo:{number}" for number in range(8)]
    with Cluster(3, 1, "--durability", "always") as cluster:
        with cluster["a/1"].client() as client:
            client.execute_command("KEYSPACE", "CREATE", "cops", "MODEL", "causal", "PROTOCOL", "cops", "PARTITIONS", "4")
        with session(cluster, "a") as a, session(cluster, "b") as b:
            with session(cluster, "c") as c:
                cluster.do("cut c b")
                for photo in photos:
                    c.set(photo, "photo")
                    wait_until(lambda: a.get(photo) == "photo")
                cluster.do("cut c a")
                c.set("nobody", "has it")
                lost = c.execute_command("CONTEXT", "TOKEN")
            cluster.do("kill c/1", "heal")
            a.set("comment", "nice")
            time.sleep(0.5)
            assert b.get("comment") is None, "it waits for the photos"
            b.execute_command("KEYSPACE", "EVICT", "cops", "c", "ACCEPT-LOSS")
            wait_until(lambda: b.get("comment") == "nice")
            assert [b.get(photo) for photo in photos] == ["photo"] * len(photos)
            for client in (a, b):
                wait_until(lambda: all(state.endswith("; c evicted") for state in partitions_here(client)))
                assert client.get("nobody") is None
                told = refused(client, "CONTEXT", "RESTORE", lost)
                assert "lost when region c was evicted" in told
            b.set("after", "b")
            wait_until(lambda: a.get("after") == "b")
            cluster.do("restart c/1")
            with cluster["c/1"].using("cops") as c:
                wait_until(lambda: refused(c, "GET", "after").startswith("UNAVAILABLE region c was evicted"))
            cluster.do("kill a/1", "restart a/1")
            b.set("again", "b")
            with session(cluster, "a") as again:
                wait_until(lambda: again.get("again") == "b")
                assert again.get(photos[0]) == "photo"
