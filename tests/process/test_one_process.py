"""One process by itself serves keyspaces of every model, with any number of threads."""

import json
import threading
import time

import pytest
import redis

from cluster import Cluster
from harness import Anabranch, free_port, wait_until

# Name, and what KEYSPACE CREATE gets.
KEYSPACES = {
    "plain": "MODEL strict",
    "synced": "MODEL strict DURABILITY always PARTITIONS 3",
    "tapir": "MODEL strict CONCURRENCY optimistic PARTITIONS 3",
    "weak": "MODEL strict ISOLATION serializable",
    "locks": "MODEL strict CONCURRENCY locking",
    "occ": "MODEL strict CONCURRENCY occ",
    "likes": "MODEL causal",
    "many": "MODEL causal PARTITIONS 5",
    "paris": "MODEL causal PROTOCOL paris REPLICAS 1",
    "cart": "MODEL branch",
    "manual": "MODEL branch MERGE manual LOCAL branch PARTITIONS 2",
}


def using(server, keyspace: str):
    """A client of one connection, of which every further one, such as a pipeline's, uses the keyspace too."""

    def use(connection):
        connection.on_connect()
        connection.send_command("KEYSPACE", "USE", keyspace)
        assert connection.read_response() in ("OK", b"OK")

    return server.client(single_connection_client=True, decode_responses=True, redis_connect_func=use)


def create_all(server) -> None:
    with server.client(decode_responses=True) as client:
        for name, options in KEYSPACES.items():
            assert client.execute_command("KEYSPACE", "CREATE", name, *options.split()) == "OK"


def with_threads(server, threads: int):
    server.arguments = ["--threads", str(threads)]
    return server.start()


def info(server, name: str) -> dict:
    with server.client(decode_responses=True) as client:
        flat = client.execute_command("KEYSPACE", "INFO", name)
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2]))


def test_every_model_outlives_kills_with_other_numbers_of_threads():
    server = Anabranch("everysec")
    try:
        with_threads(server, 3)
        create_all(server)
        for life, threads in enumerate((3, 1, 2, 1)):
            if life:
                server.kill() if life % 2 else server.terminate()
                with_threads(server, threads)
            for name in KEYSPACES:
                # Two connections, which different workers have where there are several.
                with using(server, name) as one, using(server, name) as two:
                    assert one.incr("count") == life + 1, name
                    assert two.incr("other") == life + 1, name
                    assert one.rpush("list", life) == life + 1, name
                    assert two.lrange("list", 0, -1) == [str(index) for index in range(life + 1)], name
                    with two.pipeline() as pipe:
                        pipe.get("count").hset("hash", str(life), "x").hlen("hash")
                        assert pipe.execute() == [str(life + 1), 1, life + 1], name
                    two.execute_command("TXN", "BEGIN")
                    assert two.incrby("sum", 2) == 2 * (life + 1), name
                    assert two.execute_command("TXN", "COMMIT") == "OK", name
                    assert one.get("sum") == str(2 * (life + 1)), name
        with server.client(decode_responses=True) as client:
            names = client.execute_command("KEYSPACE", "LIST")
            assert names == ["default"] + [f"db{number}" for number in range(1, 16)] + list(KEYSPACES)
    finally:
        server.close()


@pytest.fixture(scope="module", params=[1, 2])
def server(request):
    with Anabranch() as server:
        server.kill()
        with_threads(server, request.param)
        create_all(server)
        yield server


def test_everybody_adds_to_one_counter(server):
    """Requests and replies cross workers, in order, and none is lost."""
    clients, rounds = 6, 40

    def add(name: str, number: int, failures: list) -> None:
        with using(server, name) as client:
            for turn in range(rounds):
                with client.pipeline(transaction=False) as pipe:
                    for index in range(8):
                        pipe.echo(f"{number}:{turn}:{index}").incr("shared").incr(f"own:{number}")
                    replies = pipe.execute()
                if replies[::3] != [f"{number}:{turn}:{index}" for index in range(8)]:
                    failures.append((name, "order", replies))
                if replies[2::3] != [turn * 8 + index + 1 for index in range(8)]:
                    failures.append((name, "own", replies))

    for name in ("plain", "tapir", "locks", "likes", "cart"):
        failures = []
        threads = [threading.Thread(target=add, args=(name, number, failures)) for number in range(clients)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not failures, failures[0]
        with using(server, name) as client:
            assert int(client.get("shared")) == clients * rounds * 8, name


def test_a_token_and_a_lost_write_of_nobody(server):
    with using(server, "likes") as one, using(server, "likes") as two:
        one.set("k", "v")
        token = one.execute_command("CONTEXT", "TOKEN")
        assert two.execute_command("CONTEXT", "RESTORE", token) == "OK"
        assert two.get("k") == "v"
        assert two.execute_command("CONFLICTS", "COUNT") == [0, 0]


def test_a_keyspace_forks_and_is_merged(server):
    with using(server, "manual") as one, using(server, "manual") as two:
        one.set("n", 1)
        for client in (one, two):
            client.execute_command("TXN", "BEGIN")
        one.incrby("n", 5)
        two.incrby("n", 10)
        for client in (one, two):
            assert client.execute_command("TXN", "COMMIT")
        heads = one.execute_command("BRANCH", "HEADS")
        assert len(heads) == 2, heads
        one.execute_command("MERGE", "BEGIN")
        assert one.execute_command("MERGE", "CONFLICTS") == ["0", ["n"]]
        one.execute_command("MERGE", "RESOLVE", "ALL")
        one.execute_command("MERGE", "COMMIT")
        assert one.get("n") == "16"


def test_options_have_the_reasons_that_they_have_in_a_cluster(server):
    with server.client(decode_responses=True) as client:
        for options, reason in [
            ("MODEL strict REPLICAS 3", "the cluster has 1"),
            ("MODEL strict COLOUR red", "unknown keyspace option"),
            ("MODEL strict PARTITIONS 0", "1 to 1024"),
            ("MODEL strict DURABILITY sometimes", "DURABILITY is none, everysec or always, not 'sometimes'"),
            ("MODEL strict CONCURRENCY locking DURABILITY always", "has the durability of its processes"),
            ("MODEL causal DURABILITY none", "has the durability of its processes"),
            ("MODEL causal REGIONS b", "b"),
            ("MODEL causal PROTOCOL cure", "wren, paris, pocc or cops"),
        ]:
            with pytest.raises(redis.ResponseError, match=reason):
                client.execute_command("KEYSPACE", "CREATE", "refused", *options.split())
        for command, reason in [
            ("KEYSPACE PLACE plain 0 1", "stays where it is"),
            ("KEYSPACE HOTKEYS plain", "none waits for another"),
            ("KEYSPACE DROP db3", "belongs to a SELECT number"),
            ("KEYSPACE DROP default", "begin in"),
            ("KEYSPACE ALTER likes DURABILITY always", "has the durability of its processes"),
            ("KEYSPACE ALTER plain PARTITIONS 4", "stays"),
        ]:
            with pytest.raises(redis.ResponseError, match=reason):
                client.execute_command(*command.split())
        assert client.execute_command("KEYSPACE", "ALTER", "synced", "DURABILITY", "none") == "OK"
    assert info(server, "synced")["durability"] == "none"
    assert info(server, "plain")["partitions"] >= 1
    assert info(server, "likes")["model"] == "causal" and info(server, "cart")["model"] == "branch"
    with server.client(decode_responses=True) as client:
        for number in (16, 17, 40):
            with pytest.raises(redis.ResponseError, match="out of range"):
                client.execute_command("SELECT", number)


@pytest.mark.parametrize("model", ["strict", "causal", "branch"])
def test_a_dropped_keyspace_is_gone_for_every_worker(server, model):
    name = f"gone-{model}"
    with server.client(decode_responses=True) as client:
        client.execute_command("KEYSPACE", "CREATE", name, "MODEL", model)
    with using(server, name) as one, using(server, name) as two, using(server, name) as three:
        one.set("k", "v")
        one.execute_command("KEYSPACE", "DROP", name)

        def refused(client) -> bool:
            try:
                client.get("k")
            except redis.ResponseError as error:
                return "dropped" in str(error)
            return False

        for client in (one, two, three):
            wait_until(lambda: refused(client), timeout=10)
        with pytest.raises(redis.ResponseError, match="no keyspace"):
            one.execute_command("KEYSPACE", "USE", name)
        one.execute_command("KEYSPACE", "CREATE", name, "MODEL", model)
        with using(server, name) as again:
            assert again.get("k") is None
        one.execute_command("KEYSPACE", "DROP", name)


def test_a_worker_that_computes_holds_up_nobody_elsewhere():
    """A script keeps one worker busy; keyspaces of instances are served by the others meanwhile."""
    with Anabranch() as server:
        server.kill()
        with_threads(server, 2)
        create_all(server)
        clients = [using(server, name) for name in ("likes", "likes", "cart", "cart")]
        busy = [server.client(single_connection_client=True) for _ in range(2)]
        script = "local n = 0 for i = 1, 3e7 do n = n + i end return n"
        runs = threading.Thread(target=lambda: busy[0].eval(script, 0))
        runs.start()
        while runs.is_alive():
            for client in clients:
                began = time.monotonic()
                client.incr("n")
                assert time.monotonic() - began < 5
        runs.join()
        [client.close() for client in clients + busy]


def longest_wait_beside_a_step(busy, other, size: int) -> tuple[float, float]:
    """How long a transaction of so many writes and counts took as one step, and the longest wait of `other` meanwhile."""
    commands = [command for number in range(size) for command in (("SET", f"k{number}", number), ("DBSIZE",))]
    connection = busy.connection
    connection.send_packed_command(connection.pack_commands([("MULTI",), *commands]))
    assert {str(connection.read_response()) for _ in range(len(commands) + 1)} == {"OK", "QUEUED"}
    ended = []

    def work():
        connection.send_command("EXEC")
        connection.can_read(timeout=60)
        ended.append(time.monotonic())

    thread = threading.Thread(target=work)
    longest, began = 0.0, time.monotonic()
    thread.start()
    while thread.is_alive():
        sent = time.monotonic()
        other.incr("n")
        longest = max(longest, time.monotonic() - sent)
    thread.join()
    assert len(connection.read_response()) == len(commands)
    return ended[0] - began, longest


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_long_step_holds_up_only_its_keyspace(order):
    """Clients of other keyspaces go on, if another worker has them."""
    with Anabranch("everysec") as server:
        server.kill()
        with_threads(server, 2)
        create_all(server)
        # New connections go to the workers in turn.
        clients = [using(server, ("likes", "cart")[place]) for place in order]
        [client.ping() for client in clients]
        busy, other = (clients[place] for place in order)
        size, steps = 1000, []
        # A busy machine may hold up whom it likes, but not in every step.
        while len(steps) < 8 and not any(longest < length / 3 for length, longest in steps):
            length, longest = longest_wait_beside_a_step(busy, other, size)
            # A transaction has at most 100,000 commands.
            if length < 0.3 and size < 49_000:
                size = min(size * 2, 49_000)
            else:
                steps.append((length, longest))
        assert any(longest < length / 3 for length, longest in steps), steps
        [client.close() for client in clients]


def test_checkpoints_hold_every_model():
    """The log alone does not: what a checkpoint covers is cut off from it."""
    config = "[storage]\ncheckpoint_after_bytes = 65536\nsegment_bytes = 65536\n"
    with Anabranch("everysec", config=config) as server:
        server.kill()
        with_threads(server, 2)
        create_all(server)
        value = "v" * 500
        for round_ in range(3):
            for name in KEYSPACES:
                with using(server, name) as client:
                    for number in range(60):
                        client.set(f"key:{number}", f"{value}:{round_}:{number}")
        with server.client() as client:
            wait_until(lambda: client.info("persistence")["checkpoints"] > 1)
        server.kill()
        with_threads(server, 1)
        for name in KEYSPACES:
            with using(server, name) as client:
                expected = [f"{value}:2:{number}" for number in range(60)]
                assert client.mget([f"key:{number}" for number in range(60)]) == expected, name


def test_a_second_region_joins_without_a_copy_of_the_data():
    """The data directory of a process by itself is that of a cluster's first process."""
    with Anabranch("everysec") as server:
        create_all(server)
        for name in ("default", "likes", "cart"):
            with using(server, name) as client:
                client.set("k", f"of {name}")
                client.incr("n")
        with server.client(decode_responses=True) as client:
            # Strict keyspaces with replicas on every process do not have two.
            for name in ("tapir", "weak", "locks", "occ", "manual", "paris", "many"):
                client.execute_command("KEYSPACE", "DROP", name)
        server.terminate()
        catalog = server.data / "keyspaces.json"
        seed = json.loads(catalog.read_text())["seed"]
        processes = [
            {"id": 1, "region": 0, "region_name": "a", "peer_address": f"127.0.0.1:{free_port()}"},
            {"id": 2, "region": 1, "region_name": "b", "peer_address": f"127.0.0.1:{free_port()}"},
        ]
        file = server.folder / "cluster.json"
        file.write_text(json.dumps({"seed": seed, "processes": processes, "catalog": str(catalog)}))
        server.arguments = ["--cluster", str(file), "--process", "1"]
        server.start()
        other = Anabranch("everysec")
        other.arguments = ["--cluster", str(file), "--process", "2"]
        with other:
            for name in ("likes", "cart"):
                with using(other, name) as client:
                    wait_until(lambda: client.get("k") == f"of {name}")
                    wait_until(lambda: client.incr("n") >= 2)
            with server.client(decode_responses=True) as client:
                assert client.get("k") == "of default"
            with other.client(decode_responses=True) as client:
                with pytest.raises(redis.ResponseError, match="process 1 keeps the keyspace by itself"):
                    client.get("k")
            with using(server, "likes") as client:
                wait_until(lambda: int(client.get("n")) >= 2)


def test_a_cluster_serves_with_several_threads():
    with Cluster(1, 3, "--threads", "2") as cluster:
        with cluster["a/1"].client() as client:
            for name, options in [("likes", "MODEL causal"), ("cart", "MODEL branch"), ("locks", "MODEL strict CONCURRENCY locking")]:
                client.execute_command("KEYSPACE", "CREATE", name, *options.split())
        for name in ("default", "likes", "cart", "locks"):
            for turn in range(2):
                for node in cluster:
                    clients = [node.using(name) for _ in range(4)]
                    for client in clients:
                        client.incr("n")
                        client.incr(f"of {node.name}")
                        assert int(client.get(f"of {node.name}")) > 0
                    [client.close() for client in clients]
                    if turn == 0 and node.name == "a/2":
                        cluster.do("kill a/2", "restart a/2")
            with cluster["a/3"].using(name) as client:
                wait_until(lambda: int(client.get("n")) == 24)
