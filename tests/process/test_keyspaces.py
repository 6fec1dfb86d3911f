"""Keyspaces created in a running cluster."""

import threading
import time

import pytest
import redis

from cluster import Cluster
from harness import laboratory, wait_until


def create(client, name: str, *options) -> None:
    assert client.execute_command("KEYSPACE", "CREATE", name, *options) == "OK"


def use(client, name: str) -> None:
    assert client.execute_command("KEYSPACE", "USE", name) == "OK"


def info(client, name: str) -> dict:
    flat = client.execute_command("KEYSPACE", "INFO", name)
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2]))


@pytest.fixture(scope="module")
def five():
    with Cluster(1, 5) as cluster:
        yield cluster


@pytest.fixture
def cluster(five):
    """Five processes; the test's keyspaces are dropped behind it: causal ones keep processes busy that nobody asks anything."""
    yield five
    with five["a/1"].client() as client:
        for name in client.execute_command("KEYSPACE", "LIST"):
            if name != "default":
                assert client.execute_command("KEYSPACE", "DROP", name) == "OK"


@pytest.fixture(scope="module")
def with_baselines():
    with Cluster(1, 5, program=laboratory()) as cluster:
        yield cluster


def test_a_strict_keyspace_serves_every_process_at_once(cluster):
    with cluster["a/1"].client() as client:
        create(client, "orders", "MODEL", "strict", "PARTITIONS", 4, "REPLICAS", 3)
    placed = 0
    for number, node in enumerate(cluster, 1):
        with node.client(single_connection_client=True) as client:
            use(client, "orders")
            assert client.incr("count") == number
            # Both keys, whichever shards they are in and wherever these are.
            client.execute_command("TXN", "BEGIN")
            assert client.set(f"left:{number}", number) and client.set(f"right:{number}", number)
            client.execute_command("TXN", "COMMIT")
            description = info(client, "orders")
            assert (description["model"], description["partitions"]) == ("strict", 4)
            placed += len(description["partitions_here"])
    assert placed == 4 * 3
    with cluster["a/3"].client() as client:
        assert client.get("count") is None, "the default keyspace is another"
        assert client.execute_command("KEYSPACE", "LIST") == ["default", "orders"]


def test_every_model_and_concurrency_can_be_chosen(cluster):
    for name, options in [
        ("locks", ("MODEL", "strict", "CONCURRENCY", "locking", "REPLICAS", 3)),
        ("near", ("MODEL", "causal", "PARTITIONS", 7)),
    ]:
        with cluster["a/2"].client() as client:
            create(client, name, *options)
        for number, node in enumerate(cluster, 1):
            with node.client(single_connection_client=True) as client:
                use(client, name)
                wait_until(lambda: client.incr("count") >= number)
                assert client.mset({f"key:{index}": "x" for index in range(20)})
                assert client.mget([f"key:{index}" for index in range(20)]) == ["x"] * 20


@pytest.mark.parametrize(
    "options, reason",
    [
        (("MODEL", "strict", "REPLICAS", 2), "1, 3, 5"),
        (("MODEL", "strict", "REPLICAS", 7), "the cluster has 5"),
        (("MODEL", "strict", "PARTITIONS", 0), "1 to 1024"),
        (("MODEL", "strict", "PARTITIONS", "many"), "PARTITIONS is a number"),
        (("MODEL", "strict", "CONCURRENCY", "luck"), "optimistic, locking or occ"),
        (("MODEL", "strict", "CONCURRENCY", "qwstore"), "optimistic, locking or occ"),
        (("MODEL", "causal", "PROTOCOL", "cure"), "PROTOCOL is wren, paris, pocc or cops"),
        (("MODEL", "causal", "PROTOCOL", "wren", "REPLICAS", 1), "every partition in every region"),
        (("MODEL", "causal", "REPLICAS", 3), "at most one replica in a region"),
        (("MODEL", "strict", "COLOUR", "red"), "unknown keyspace option"),
        (("MODEL", "strict", "ISOLATION", "loose"), "strict or serializable"),
        (("MODEL", "strict", "CONCURRENCY", "locking", "ISOLATION", "serializable"), "CONCURRENCY optimistic"),
        (("MODEL", "causal", "SKEWWAIT", 5), "unknown keyspace option 'SKEWWAIT'; keyspaces of model causal know"),
        (("MODEL", "strict", "PHASING", "off"), "CONCURRENCY locking"),
        (("MODEL", "strict", "CONCURRENCY", "locking", "LOCKS", "none"), "unknown keyspace option 'LOCKS'"),
        (("MODEL", "strict", "CONCURRENCY", "occ", "COMBINING", "off"), "CONCURRENCY locking"),
        (("MODEL", "strict", "CONCURRENCY", "locking", "PHASING", "some"), "PHASING is on or off"),
        (("MODEL", "strict", "CLOCKBOUND", 0), "1 millisecond or more"),
        (("MODEL", "strict", "SKEWWAIT", 5000), "at most 1000"),
        (("MODEL", "branch", "PARTITIONS", 0), "1 to 1024"),
        (("MODEL", "branch", "MERGE", "sometimes"), "manual, auto or handler"),
        (("MODEL", "causal", "KEEP", 5), "unknown keyspace option 'KEEP'"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_reason(cluster, options, reason):
    with cluster["a/1"].client() as client:
        with pytest.raises(redis.ResponseError, match=reason):
            create(client, "refused", *options)
        with pytest.raises(redis.ResponseError, match="no keyspace"):
            use(client, "refused")


def answered(action) -> object:
    """What it returns; nothing while a new partition has no leader."""
    try:
        return action()
    except redis.ResponseError as error:
        assert str(error).startswith("UNAVAILABLE"), error
        return None


@pytest.mark.parametrize("options", [(), ("CONCURRENCY", "locking")])
def test_keys_of_one_tag_are_together(cluster, options):
    name = f"tagged-{len(options)}"
    with cluster["a/2"].client(single_connection_client=True) as client:
        create(client, name, "MODEL", "strict", "PARTITIONS", 7, "REPLICAS", 3, *options)
        use(client, name)
        fields = [f"{{user:{number}}}.{field}" for number in range(20) for field in ("name", "mail", "seen")]
        places = client.execute_command("KEYSPACE", "LOCATE", name, *fields)
        assert all(len(set(places[first : first + 3])) == 1 for first in range(0, 60, 3))
        assert len(set(places)) > 3, "different tags are in different partitions"
        untagged = [f"{{}}{number}" for number in range(40)]
        assert len(set(client.execute_command("KEYSPACE", "LOCATE", name, *untagged))) > 1
        wait_until(lambda: answered(lambda: client.mset({field: field for field in fields})))
        assert client.mget(fields) == fields
        assert sorted(client.keys("{user:7}*")) == ["{user:7}.mail", "{user:7}.name", "{user:7}.seen"]


@pytest.mark.parametrize("phasing", ["on", "off"])
@pytest.mark.parametrize("locks", ["typed", pytest.param("readwrite", marks=pytest.mark.soak)])
def test_hot_keys_keep_their_books(request, phasing, locks):
    """Transactions over two hot keys in different modes: additions, looks at both, and writes that read first."""
    cluster = request.getfixturevalue("cluster" if locks == "typed" else "with_baselines")
    name = f"hot-{phasing}-{locks}"
    options = ("CONCURRENCY", "locking", "PHASING", phasing)
    if locks != "typed":
        options += ("LOCKS", locks)
    with cluster["a/1"].client(decode_responses=True) as client:
        create(client, name, "MODEL", "strict", "PARTITIONS", 3, "REPLICAS", 3, *options)
        told = info(client, name)
        assert (told.get("locks", "typed"), told["phasing"]) == (locks, phasing)
        with pytest.raises(redis.ResponseError, match="PHASING stays"):
            client.execute_command("KEYSPACE", "ALTER", name, "PHASING", "on")
    rounds, failures = 15, []

    def perform(client, number, turn):
        client.execute_command("MULTI")
        if (number + turn) % 3 == 0:
            client.execute_command("COUNTER.GET", "one")
            client.execute_command("COUNTER.GET", "two")
            one, two = client.execute_command("EXEC")
            assert one == two, "additions of one transaction are seen together"
            return
        if (number + turn) % 3 == 1:
            client.execute_command("COUNTER.ADD", "one", 1)
            client.execute_command("COUNTER.ADD", "two", 1)
        else:
            client.execute_command("INCR", "writes")
            client.execute_command("COUNTER.ADD", "two", 1)
            client.execute_command("COUNTER.ADD", "one", 1)
        client.execute_command("EXEC")

    def work(number, node):
        try:
            with node.client(single_connection_client=True) as client:
                use(client, name)
                for turn in range(rounds):
                    perform(client, number, turn)
        except Exception as error:  # the test tells it
            failures.append((number, error))

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(cluster)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    done = [(number + turn) % 3 for number, _ in enumerate(cluster) for turn in range(rounds)]
    with cluster["a/1"].client(single_connection_client=True) as client:
        use(client, name)
        assert client.execute_command("COUNTER.GET", "one") == len([kind for kind in done if kind])
        assert int(client.get("writes")) == done.count(2)


def test_one_of_many_creators_of_a_name_wins():
    """Processes create at the same time: each name once, and nothing is lost."""
    with Cluster(1, 3) as cluster:
        outcomes = []

        def run(node, number):
            with node.client() as client:
                for index in range(6):
                    for name in (f"shared-{index}", f"own-{number}-{index}"):
                        while True:
                            try:
                                outcomes.append((name, client.execute_command("KEYSPACE", "CREATE", name, "MODEL", "strict")))
                            except redis.ResponseError as error:
                                if "retry" in str(error):
                                    continue
                                assert "exists already" in str(error)
                            break

        threads = [threading.Thread(target=run, args=(node, number), daemon=True) for number, node in enumerate(cluster)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        created = sorted(name for name, _ in outcomes)
        expected = [f"shared-{index}" for index in range(6)]
        expected += [f"own-{number}-{index}" for number in range(3) for index in range(6)]
        assert created == sorted(expected)
        for node in cluster:
            with node.client() as client:
                assert sorted(client.execute_command("KEYSPACE", "LIST")) == sorted(["default", *expected])


def test_keyspaces_outlive_processes_and_the_cluster():
    with Cluster(1, 3) as cluster:
        cluster.do("kill a/2")
        with cluster["a/1"].client(single_connection_client=True) as client:
            create(client, "kept", "MODEL", "strict", "PARTITIONS", 3)
            use(client, "kept")
            assert client.mset({f"key:{index}": index for index in range(50)})
        cluster.do("restart a/2")

        def check(node):
            with node.client(single_connection_client=True) as client:
                use(client, "kept")
                assert client.mget([f"key:{index}" for index in range(50)]) == [str(index) for index in range(50)]
                assert client.incr(f"seen:{node.name}") > 0

        check(cluster["a/2"])
        cluster.do("kill a/1")
        check(cluster["a/2"])
        cluster.do("restart a/1")
        check(cluster["a/1"])
        assert cluster.stop() == 0
        cluster.start()
        for node in cluster:
            check(node)


def test_a_serializable_keyspace_serves_every_process(cluster):
    with cluster["a/1"].client() as client:
        create(client, "past", "MODEL", "strict", "REPLICAS", 3, "ISOLATION", "serializable", "SKEWWAIT", 5)
        assert info(client, "past")["isolation"] == "serializable"
    for number, node in enumerate(cluster, 1):
        with node.client(single_connection_client=True) as client:
            use(client, "past")
            assert client.incr("count") == number
            assert client.mset({f"key:{index}": number for index in range(10)})
            assert client.mget([f"key:{index}" for index in range(10)]) == [str(number)] * 10


@pytest.mark.parametrize(
    "options, reason",
    [
        (("MODEL", "causal"), "MODEL stays"),
        (("PARTITIONS", 3), "PARTITIONS stays"),
        (("REPLICAS", 3), "REPLICAS stays"),
        (("CONCURRENCY", "locking"), "CONCURRENCY stays"),
        (("ISOLATION", "serializable"), "ISOLATION stays"),
        (("DURABILITY", "always"), "has the durability of its processes"),
        (("COLOUR", "red"), "unknown keyspace option"),
        (("CLOCKBOUND", "soon"), "CLOCKBOUND is a number"),
        (("CLOCKBOUND", 0), "1 millisecond or more"),
    ],
)
def test_what_cannot_be_altered_says_why(cluster, options, reason):
    with cluster["a/1"].client() as client:
        with pytest.raises(redis.ResponseError, match=reason):
            client.execute_command("KEYSPACE", "ALTER", "default", *options)


def test_clocks_are_altered_everywhere(cluster):
    with cluster["a/1"].client() as client:
        create(client, "waits", "MODEL", "strict", "REPLICAS", 3, "PARTITIONS", 1)
        assert client.execute_command("KEYSPACE", "ALTER", "waits", "SKEWWAIT", 100, "CLOCKBOUND", 5000) == "OK"

    def took(node) -> float:
        with node.client(single_connection_client=True) as client:
            use(client, "waits")
            start = time.monotonic()
            assert client.set("key", "value")
            return time.monotonic() - start

    for node in cluster:
        with node.client() as client:
            wait_until(lambda: info(client, "waits")["skew_wait_ms"] == 100)
            assert info(client, "waits")["clock_bound_ms"] == 5000
    assert all(took(node) >= 0.09 for node in cluster), "replicas wait for others with lower timestamps"
    with cluster["a/3"].client() as client:
        assert client.execute_command("KEYSPACE", "ALTER", "waits", "SKEWWAIT", 0) == "OK"
    wait_until(lambda: all(took(node) < 0.09 for node in cluster))


@pytest.mark.parametrize("options", [("MODEL", "strict"), ("MODEL", "strict", "CONCURRENCY", "locking"), ("MODEL", "causal")])
def test_a_dropped_keyspace_is_gone_everywhere_and_its_clients_hear_of_it(cluster, options):
    name = "gone-" + "-".join(str(option) for option in options).lower()
    with cluster["a/1"].client() as client:
        create(client, name, *options)
    gone = "the keyspace was dropped"
    stopping, told, problems = threading.Event(), [], []

    def write(node):
        with node.client(single_connection_client=True) as client:
            use(client, name)
            number = 0
            while not stopping.is_set():
                number += 1
                try:
                    client.set(f"key:{number % 50}", number)
                except redis.ResponseError as error:
                    if gone in str(error):
                        return told.append(node.name)
                    if not str(error).startswith(("CONFLICT", "UNAVAILABLE", "UNKNOWNOUTCOME")):
                        return problems.append(error)
            problems.append(f"{node.name} was never told")

    with cluster["a/2"].client(single_connection_client=True) as open_transaction:
        use(open_transaction, name)
        open_transaction.execute_command("TXN", "BEGIN")
        open_transaction.set("in:transaction", 1)
        threads = [threading.Thread(target=write, args=(node,), daemon=True) for node in cluster]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        with cluster["a/4"].client() as client:
            assert client.execute_command("KEYSPACE", "DROP", name) == "OK"
            assert name not in client.execute_command("KEYSPACE", "LIST")
        wait_until(lambda: len(told) + len(problems) == len(threads))
        stopping.set()
        for thread in threads:
            thread.join()
        assert not problems
        for command in (("GET", "in:transaction"), ("TXN", "COMMIT"), ("PING",)):
            if command == ("PING",):
                assert open_transaction.ping()
            else:
                with pytest.raises(redis.ResponseError, match=gone):
                    open_transaction.execute_command(*command)
    for node in cluster:
        with node.client() as client:
            with pytest.raises(redis.ResponseError, match="no keyspace"):
                use(client, name)
    # The name is free, and what comes under it is new.
    with cluster["a/5"].client(single_connection_client=True) as client:
        create(client, name, *options)
        use(client, name)
        wait_until(lambda: client.set("new", 1))
        assert client.get("key:1") is None
        assert client.execute_command("KEYSPACE", "DROP", name) == "OK"


def test_the_first_keyspace_and_unknown_ones_are_not_dropped(cluster):
    with cluster["a/1"].client() as client:
        with pytest.raises(redis.ResponseError, match="clients begin in"):
            client.execute_command("KEYSPACE", "DROP", "default")
        with pytest.raises(redis.ResponseError, match="no keyspace 'nothing'"):
            client.execute_command("KEYSPACE", "DROP", "nothing")


def test_a_process_that_was_away_forgets_what_was_dropped():
    with Cluster(1, 3) as cluster:
        with cluster["a/1"].client(single_connection_client=True) as client:
            for name in ("kept", "dropped"):
                create(client, name, "MODEL", "strict")
                use(client, name)
                assert client.mset({f"{name}:{index}": "x" * 1000 for index in range(50)})
            cluster.do("kill a/2")
            assert client.execute_command("KEYSPACE", "DROP", "dropped") == "OK"
        cluster.do("restart a/2")
        with cluster["a/2"].client(single_connection_client=True) as client:
            assert client.execute_command("KEYSPACE", "LIST") == ["default", "kept"]
            use(client, "kept")
            assert client.get("kept:1") == "x" * 1000
        # Its data is in no file any more, once a checkpoint has taken the place of the log.
        wait_until(lambda: not contains(cluster.folder, b"dropped:1"), every=0.25)
        assert contains(cluster.folder, b"kept:1")
        assert cluster.stop() == 0
        cluster.start()
        for node in cluster:
            with node.client(single_connection_client=True) as client:
                assert client.execute_command("KEYSPACE", "LIST") == ["default", "kept"]
                use(client, "kept")
                assert client.get("kept:49") == "x" * 1000


def contains(folder, needle: bytes) -> bool:
    """True if a file of the cluster's data holds these bytes, but for segments that only wait to be written over."""
    paths = [path for path in (folder / "data").rglob("*") if not path.name.startswith("spare-")]
    files = [path for path in paths if path.is_file()]
    assert files
    return any(needle in read(path) for path in files)


def read(path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        # The log goes on, and leaves segments behind.
        return b""


def test_every_process_tells_where_all_partitions_are(cluster):
    with cluster["a/1"].client() as client:
        create(client, "led", "MODEL", "strict", "CONCURRENCY", "locking", "PARTITIONS", 3, "REPLICAS", 3)
        create(client, "spread", "MODEL", "causal", "PARTITIONS", 7)
        create(client, "branched", "MODEL", "branch", "PARTITIONS", 2)
    for node in cluster:
        with node.session("led") as client:
            wait_until(lambda: client.mset({f"key:{number}": "x" for number in range(50)}))
            placed = info(client, "led")["partition_processes"]
            assert [line.split(",")[0].split(" ")[:2] for line in placed] == [["0:", "on"], ["1:", "on"], ["2:", "on"]]
            for line in placed:
                where, leader = line.split(": on ")[1].split(", led by ")
                assert leader in where.split(",") and len(where.split(",")) == 3, line
            assert info(client, "spread")["partition_processes"] == [f"{number}: on {number % 5 + 1}" for number in range(7)]
            assert len(info(client, "branched")["partition_processes"]) == 3


def test_a_command_of_too_many_words_is_refused_with_the_limit(cluster):
    with cluster["a/1"].client() as client:
        create(client, "wide", "MODEL", "causal")
        create(client, "wide-strict", "MODEL", "strict")
    for name in ("wide", "wide-strict"):
        client = cluster["a/2"].session(name)
        many = {f"key:{number}": "x" for number in range(10_000 if name == "wide" else 2_000)}
        assert client.mset(many)
        assert client.mget(list(many)) == ["x"] * len(many)
        for command in (["MSET", *("more",) * 20_002], ["SADD", "set", *range(20_000)], ["DEL", *range(20_001)]):
            with pytest.raises(redis.ResponseError, match="20000.*send several commands"):
                client.execute_command(*command)
        assert client.exists("more", "set") == 0
