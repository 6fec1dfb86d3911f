"""Types that users define: loaded, checked, called, kept, and refused."""

import os
import threading

import pytest
import redis

from cluster import Cluster
from harness import Anabranch, wait_until
from modules import AUCTION, ENDLESS, GROWING, hostile, importing, last_writer
from test_hot_keys import told as hot_keys_told


# All that bidders can tell of an auction.
READS = [("leader",), ("bids",)]


def load(client, name: str, module: bytes = AUCTION) -> None:
    assert client.execute_command("TYPE", "LOAD", name, module) in ("OK", b"OK")


def call(client, key: str, *words, kind: str = "auction"):
    return client.execute_command("TYPE.CALL", key, kind, *words)


def leader(client, key: str):
    return client.execute_command("TYPE.READ", key, "auction", "leader")


def test_an_auction_is_loaded_and_lives_like_any_type(server):
    with server.client(decode_responses=True) as client:
        load(client, "auction")
        assert "auction" in client.execute_command("TYPES", "LIST")
        info = client.execute_command("TYPE", "INFO", "auction")
        assert info["name"] == "auction" and info["operations"][:2] == ["bid bidder amount:integer (mode bid)", "close"]
        assert info["modes"] == ["bid beside bid, ask", "ask beside bid, ask"]
        assert call(client, "lot", "bid", "ann", 3) == "OK"
        assert call(client, "lot", "bid", "bob", 5) == "OK"
        assert call(client, "lot", "bid", "cat", 5) == "OK"
        assert leader(client, "lot") == ["bob", 5], "of equal bids, the lesser name's"
        assert client.type("lot") == "auction"
        assert list(client.scan_iter(_type="auction")) == ["lot"]
        assert client.rename("lot", "it") and leader(client, "it") == ["bob", 5]
        assert client.expire("it", 100) and client.ttl("it") == 100
        client.execute_command("BLIND", "TYPE.CALL", "it", "auction", "bid", "dan", 9)
        assert leader(client, "it") == ["dan", 9]
        with client.pipeline(transaction=True) as multi:
            multi.execute_command("TYPE.CALL", "it", "auction", "close")
            multi.execute_command("TYPE.READ", "it", "auction", "bids")
            assert multi.execute() == [1, 4]
        with pytest.raises(redis.ResponseError, match="the auction is closed"):
            call(client, "it", "bid", "eve", 10)
        assert client.delete("it") == 1 and client.type("it") == "none"


def test_what_is_not_right_is_refused_and_says_why(server):
    with server.client(decode_responses=True) as client:
        load(client, "auction")
        client.set("text", "x")
        for words, reason in [
            (("TYPE.CALL", "k", "lot", "bid"), "no type 'lot' is loaded"),
            (("TYPE.CALL", "k", "auction", "buy"), "these operations: bid, close, leader, bids, closed"),
            (("TYPE.CALL", "k", "auction", "bid", "ann"), "'bid' takes 2: bidder, amount"),
            (("TYPE.CALL", "k", "auction", "bid", "ann", "much"), "'amount' is an integer"),
            (("TYPE.CALL", "k", "auction", "bid", "ann", "0"), "a bid is 1 or more"),
            (("TYPE.CALL", "text", "auction", "bid", "ann", "1"), "WRONGTYPE"),
            (("TYPE.READ", "k", "auction", "close"), "TYPE.CALL calls it"),
            (("TYPE", "LOAD", "Auction", AUCTION), "a type's name has"),
            (("TYPE", "LOAD", "zset", AUCTION), "built-in type"),
            (("TYPE", "a", "b"), "wrong number of arguments for 'type' command"),
        ]:
            with pytest.raises(redis.ResponseError) as refusal:
                client.execute_command(*words)
            assert reason in str(refusal.value), words
        assert client.keys() == ["text"]
        call(client, "k", "bid", "ann", 1)
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.get("k")


@pytest.mark.parametrize(
    "module, reason",
    [
        (b"garbage", "this is no WebAssembly module that runs here"),
        (importing(), "the module imports env.clock; a type may import nothing"),
        (hostile(ENDLESS), "evaluating go(): it did not end within 1000000 units of fuel"),
        (hostile(GROWING), "evaluating go(): it asked for more than 16777216 bytes of memory"),
        (bytes(600_000), "524288 is the most"),
    ],
)
def test_a_module_that_does_not_behave_is_refused(server, module, reason):
    with server.client(decode_responses=True) as client:
        with pytest.raises(redis.ResponseError) as refusal:
            load(client, "bad", module)
        assert reason in str(refusal.value)
        assert "bad" not in client.execute_command("TYPES", "LIST")
        load(client, "auction")


def test_a_wrong_specification_is_refused_with_an_example(server):
    with server.client(decode_responses=True) as client:
        with pytest.raises(redis.ResponseError) as refusal:
            load(client, "register", last_writer(True))
        text = str(refusal.value)
        assert text.startswith("type 'register' is refused: it says that these commute, and they do not: A = put(")
        assert "on the state after nothing: the order A B leaves the state" in text
        load(client, "register", last_writer(False))
        # A module of the first version of the interface, which has no modes.
        info = client.execute_command("TYPE", "INFO", "register")
        assert info["operations"][0].startswith("put ") and "mode" not in info["operations"][0] and info["modes"] == []
        call(client, "r", "put", 7, kind="register")
        assert client.type("r") == "register"


def test_a_name_means_one_module_for_ever(server):
    with server.client(decode_responses=True) as client:
        load(client, "auction")
        load(client, "auction")
        with pytest.raises(redis.ResponseError, match="such as 'auction@2'"):
            load(client, "auction", last_writer(False))
        load(client, "auction@2", last_writer(False))
        assert {"auction", "auction@2"} <= set(client.execute_command("TYPES", "LIST"))
        call(client, "old", "bid", "ann", 1)
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            call(client, "old", "put", 1, kind="auction@2")


def test_types_and_their_values_outlive_the_process():
    with Anabranch("always", config="[storage]\nsegment_bytes = 65_536\ncheckpoint_after_bytes = 65_536\n") as server:
        with server.client(decode_responses=True) as client:
            load(client, "auction")
            for bidder in range(50):
                call(client, f"lot:{bidder % 3}", "bid", f"b{bidder}", bidder + 1)
        server.kill()
        server.start()
        with server.client(decode_responses=True) as client:
            assert [leader(client, f"lot:{lot}") for lot in range(3)] == [["b48", 49], ["b49", 50], ["b47", 48]]
            # Bids, and enough bytes for a checkpoint.
            for first in range(1, 2000 if os.environ.get("ANABRANCH_SOAK") else 100, 100):
                with client.pipeline(transaction=False) as bids:
                    for amount in range(first, first + 100):
                        call(bids, "lot:3", "bid", "busy", amount)
                    bids.execute()
            for _ in range(20):
                client.set("filler", "x" * 5_000)
            wait_until(lambda: client.info("persistence")["checkpoints"] > 0)
            call(client, "lot:0", "bid", "late", 99)
        server.kill()
        server.start()
        with server.client(decode_responses=True) as client:
            assert leader(client, "lot:0") == ["late", 99] and leader(client, "lot:1") == ["b49", 50]
        # Without the list, what the log names is not known: it is not passed over.
        server.kill()
        names = server.data / "keyspaces.json"
        kept = names.read_text()
        names.write_text(kept.replace('"name": "auction"', '"name": "other"'))
        with pytest.raises(AssertionError, match="it is not loaded"):
            server.start()
        names.write_text(kept)
        server.start()
        with server.client(decode_responses=True) as client:
            assert leader(client, "lot:0") == ["late", 99]


def test_bids_of_interactive_transactions_do_not_conflict(server):
    with server.client(decode_responses=True, single_connection_client=True) as ann:
        with server.client(decode_responses=True, single_connection_client=True) as bob:
            load(ann, "auction")
            call(ann, "lot", "bid", "zoe", 5)
            for client in (ann, bob):
                client.execute_command("TXN", "BEGIN")
            call(ann, "lot", "bid", "ann", 7)
            call(bob, "lot", "bid", "bob", 8)
            assert leader(ann, "lot") == ["ann", 7], "its own, and not the other's"
            assert [client.execute_command("TXN", "COMMIT") for client in (bob,)] == ["OK"]
            with pytest.raises(redis.ResponseError, match="CONFLICT"):
                ann.execute_command("TXN", "COMMIT")
            # Who saw a leader conflicts with better bids only.
            ann.execute_command("TXN", "BEGIN")
            assert leader(ann, "lot") == ["bob", 8]
            call(ann, "lot", "bid", "ann", 9)
            call(bob, "lot", "bid", "low", 2)
            assert ann.execute_command("TXN", "COMMIT") == "OK"
            # Closing and bidding conflict.
            ann.execute_command("TXN", "BEGIN")
            call(ann, "lot", "bid", "ann", 10)
            call(bob, "lot", "close")
            with pytest.raises(redis.ResponseError, match="CONFLICT"):
                ann.execute_command("TXN", "COMMIT")


@pytest.fixture(scope="module")
def cluster():
    with Cluster(1, 3) as cluster:
        yield cluster


@pytest.mark.parametrize("concurrency", [pytest.param("optimistic", marks=pytest.mark.soak), "locking"])
def test_a_cluster_keeps_types_everywhere(cluster, concurrency):
    nodes = list(cluster)
    with nodes[0].client() as client:
        client.execute_command(
            "KEYSPACE", "CREATE", concurrency, "MODEL", "strict", "CONCURRENCY", concurrency, "REPLICAS", 3
        )
        load(client, f"auction.{concurrency}")
    kind = f"auction.{concurrency}"

    def bid(number: int) -> None:
        with nodes[number].using(concurrency) as client:
            # At once, at a process that has not been told.
            for amount in range(1, 41):
                with client.pipeline(transaction=True) as multi:
                    for lot in ("left", "right"):
                        multi.execute_command("TYPE.CALL", lot, kind, "bid", f"b{number}", amount * 10 + number)
                    assert multi.execute() == ["OK", "OK"]

    def all_bid() -> None:
        failed = []

        def guarded(number: int) -> None:
            try:
                bid(number)
            except Exception as error:  # noqa: BLE001, shown below
                failed.append(error)

        threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed

    all_bid()

    def told(node):
        with node.using(concurrency) as client:
            return [client.execute_command("TYPE.READ", lot, kind, *words) for lot in ("left", "right") for words in READS]

    for node in nodes:
        assert told(node) == [["b2", 402], 120] * 2
    # Who has not been told of the type knows none of its modes, and who is the first to write a key says what it is: until then
    # bids are writes. An optimistic one that has seen many others since the last synchronization looks at all of the key.
    with nodes[0].client() as client:
        hot_keys_told(client, concurrency, "RESET")
        all_bid()
        keys, unanswered = hot_keys_told(client, concurrency)
    met = {(pair["wanted"], pair["met"]) for entry in keys for pair in entry["pairs"]}
    assert unanswered == [] and (f"{kind}:bid", f"{kind}:bid") not in met, f"bids share their lock: {keys}"
    assert concurrency == "optimistic" or keys == [], f"bids share their lock: {keys}"
    for node in nodes:
        assert told(node) == [["b2", 402], 240] * 2
    # Every process in turn forgets what it had in memory.
    for node in nodes:
        cluster.do(f"kill {node.name}", f"restart {node.name}")

    def again():
        try:
            return all(told(node) == [["b2", 402], 240] * 2 for node in nodes)
        except redis.RedisError:
            return False

    wait_until(again)


def test_what_names_a_type_waits_for_a_process_that_cannot_read_the_list():
    with Cluster(1, 3) as cluster:
        first, _, behind = cluster
        with first.client() as client:
            client.execute_command("KEYSPACE", "CREATE", "lots", "MODEL", "strict", "REPLICAS", 3)
        with behind.using("lots") as client:
            assert client.set("text", "x")
        cluster.do(f"pause {behind.name}")
        with first.using("lots") as client:
            load(client, "auction")
            call(client, "lot", "bid", "ann", 5)
        names = cluster.folder / "data" / "keyspaces.json"
        aside = names.rename(names.with_suffix(".aside"))
        cluster.do(f"resume {behind.name}")
        wait_until(lambda: "a peer uses types that this process cannot read" in cluster.logs())
        with behind.using("lots") as client:
            with pytest.raises(redis.ResponseError, match="no type 'auction' is loaded"):
                leader(client, "lot")
            aside.rename(names)
            assert leader(client, "lot") == ["ann", 5]
            call(client, "lot", "bid", "bob", 7)
        with first.using("lots") as client:
            assert leader(client, "lot") == ["bob", 7]


def test_keyspaces_where_effects_meet_unseen_refuse(cluster):
    with next(iter(cluster)).client() as client:
        load(client, "auction")
        for model in ("causal", "branch"):
            client.execute_command("KEYSPACE", "CREATE", f"of-{model}", "MODEL", model)
    for model in ("causal", "branch"):
        with next(iter(cluster)).using(f"of-{model}") as client:
            with pytest.raises(redis.ResponseError, match=f"such types are for strict keyspaces: this one is {model}"):
                call(client, "lot", "bid", "ann", 1)
            assert client.set("lot", "x") and client.get("lot") == "x"
