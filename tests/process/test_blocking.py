"""Blocking commands: the same replies as Redis's, in the order of arrival, and nothing taken twice in a cluster."""

import collections
import select
import threading
import time

import pytest
import redis

from cluster import Cluster
from harness import Anabranch, Redis, wait_until
from resp import encode
from test_cluster import UNKNOWN, together

# Who sends what, in Redis's inline words; a number alone waits for so many milliseconds, and `close a` lets a client go.
SCENARIO = """
a: RPUSH l 1 2 3 | a: BLPOP l 0 | a: BRPOP none l 0 | a: BLPOP l none 0 | a: DEL l
a: ZADD z 1 one 2 two 3 three | a: BZPOPMIN z 0 | a: BZPOPMAX none z 0 | a: BZMPOP 0 2 none z MAX COUNT 5
a: BLPOP q 0 | b: RPUSH q x | a: GET k
a: BLPOP q 0 | c: BRPOP q 0 | d: BLMPOP 0 1 q LEFT COUNT 2 | b: RPUSH q 1 | b: RPUSH q 2 3 4 5 | b: LRANGE q 0 -1 | b: DEL q
a: BLPOP p q p 0 | c: BLMPOP 0 2 q p RIGHT COUNT 2 | b: RPUSH q 1 | b: RPUSH p 1 2 3 | b: LRANGE p 0 -1 | b: DEL p
a: BLPOP w 0 | b: RPUSH o 1 | b: RENAME o w | a: BLPOP w 0 | b: RPUSH o 2 | b: COPY o w
a: BLPOP w 0 | b: SORT o STORE w | a: BLPOP w 0 | b: LMOVE o w LEFT LEFT | b: DEL o w
a: BLPOP w 0 | b: MULTI | b: RPUSH w 3 | b: DEL w | b: RPUSH w 4 5 | b: EXEC | a: BLPOP w 0
a: BLPOP w 0 | b: EVAL redis.call('RPUSH',KEYS[1],'s') 1 w
a: BLMOVE w w2 LEFT LEFT 0 | c: BRPOPLPUSH w2 w3 0 | d: BLPOP w3 0 | b: LPUSH w along
a: BZPOPMIN s 0 | b: ZADD s 1 x | a: BZPOPMAX s 0 | b: ZINCRBY s 2 y | a: BZMPOP 0 1 s MIN COUNT 10 | b: ZADD t 1 a 2 b
b: ZUNIONSTORE s 1 t | a: BZPOPMIN s 0 | b: ZRANGESTORE s t 0 0 | a: BZPOPMIN s 0 | b: GEOADD s 13 38 here
a: SET str 1 | a: BLPOP str 0 | a: BLPOP none str 0 | a: BLMOVE str none LEFT LEFT 0 | a: BZPOPMIN none str 0
a: BLPOP y x 0 | b: SET y 1 | b: ZADD x 1 a | b: DEL x | b: RPUSH x 1 | b: DEL x y
a: BLMOVE x str LEFT LEFT 0 | b: RPUSH x 1 | b: LRANGE x 0 -1 | b: DEL x
a: BZPOPMIN x 0 | c: BLPOP x 0 | b: RPUSH x 1 | b: ZADD x 1 m | b: EXISTS x
a: MULTI | a: BLPOP none 0 | a: BLMOVE none o LEFT LEFT 0 | a: BZPOPMIN none 0 | a: BLMPOP 0 1 none LEFT | a: EXEC
a: BLPOP t1 0.05 | 100 | a: BLMOVE t1 t2 LEFT LEFT 0.05 | 100 | a: BZPOPMIN t1 0.05 | 100 | a: BLMPOP 0.05 1 t1 LEFT | 100
a: HELLO 3 | a: BLPOP t1 0.05 | 100 | a: BLMOVE t1 t2 LEFT LEFT 0.05 | 100 | a: ZADD z 1 m | a: BZPOPMIN z 0 | a: HELLO 2
a: BLPOP u 0 | c: BLPOP u 0 | close a | 100 | b: RPUSH u 1 | b: LLEN u
a: BLPOP u 0 | close a | 100 | b: RPUSH u 1 | b: LLEN u | b: DEL u
a: BLPOP l x | a: BLPOP l -1 | a: BLPOP l | a: BLMOVE a b LEFT UP 1 | a: BLMPOP x 0 l LEFT | a: BLMPOP x 1 l LEFT
b: CLIENT PAUSE 200 WRITE | a: BLPOP u 0 | c: RPUSH u 1 | 400 | b: INFO clients
a: BLPOP ty 0 | b: SET ty 1 | c: BLPOP ty 0 | c: BLPOP ty none 0 | c: BLMOVE ty none LEFT LEFT 0 | b: DEL ty | b: RPUSH ty 1
a: BLMOVE v1 v2 LEFT LEFT 0 | b: SET v2 1 | c: BLMOVE v1 v2 LEFT LEFT 0.1 | 200 | b: DEL v2 | b: RPUSH v1 1 | b: DEL v1 v2
a: XREAD BLOCK 0 STREAMS s $ | c: XREAD BLOCK 0 COUNT 1 STREAMS s 0 | d: XREAD BLOCK 0 STREAMS s 1-0 | b: XADD s 1-0 a b | b: XADD s 1-1 a b
a: XREAD BLOCK 0 STREAMS s none 99-0 5 | b: XADD s 98-1 a b | b: XADD none 6-1 c d | b: DEL s none
a: XREAD BLOCK 500 STREAMS s $ | b: SET s 1 | 600 | b: DEL s | a: XREAD BLOCK 60 STREAMS s $ | 100 | a: XREAD STREAMS s $
b: XADD s 1-1 a b | b: DEL s | a: XREAD BLOCK 0 STREAMS s $ | b: XADD s 1-1 a b | b: DEL s | b: XADD st 2-2 a b
a: XREAD BLOCK 900 STREAMS s $ | b: RENAME st s | a: XREAD BLOCK 900 STREAMS s2 $ | b: COPY s s2 | b: DEL s s2
a: XREAD BLOCK 0 STREAMS s $ | b: MULTI | b: XADD s 5-1 a b | b: XADD s 6-1 c d | b: EXEC | a: XREAD BLOCK 0 STREAMS s $
b: EVAL redis.call('XADD',KEYS[1],'7-7','a','b') 1 s | a: XREAD BLOCK 0 STREAMS s 0 | a: XREAD BLOCK 0 STREAMS none s $ 0
a: XREAD BLOCK x STREAMS s 0 | a: XREAD BLOCK -1 STREAMS s 0 | a: XREAD BLOCK 1.5 STREAMS s 0 | a: XREAD BLOCK 9 STREAMS s + | a: XREAD BLOCK 9 STREAMS s >
a: MULTI | a: XREAD BLOCK 0 STREAMS s $ | a: XREAD BLOCK 0 STREAMS none 0 | a: EXEC | a: SET str 1 | a: XREAD BLOCK 0 STREAMS str $
a: EVAL return(redis.pcall('XREAD','BLOCK','0','STREAMS','s','$')) 0 | a: EVAL return(redis.pcall('XREAD','STREAMS','s','$')) 0
a: XREADGROUP GROUP g c BLOCK 0 STREAMS s > | a: XREADGROUP GROUP g c BLOCK 0 STREAMS none > | a: XREADGROUP GROUP g c BLOCK 0 STREAMS str >
a: XGROUP CREATE s g $ | a: XREADGROUP GROUP g c BLOCK 0 STREAMS s 0 | a: XREADGROUP GROUP g c BLOCK 0 STREAMS s $ | a: XREADGROUP GROUP g c BLOCK 60 STREAMS s > | 100
a: XREADGROUP GROUP g c BLOCK 0 STREAMS s > | c: XREADGROUP GROUP g d BLOCK 0 COUNT 1 STREAMS s > | d: XREAD BLOCK 0 STREAMS s $
b: XADD s 8-1 a b | b: XADD s 9-1 c d | b: XPENDING s g | b: XINFO CONSUMERS none g
a: XREADGROUP GROUP g c BLOCK 0 STREAMS s > | c: XREADGROUP GROUP g d BLOCK 0 COUNT 1 STREAMS s > | b: MULTI | b: XADD s 10-1 a b | b: XADD s 10-2 a b | b: EXEC | b: XADD s 10-3 a b
c: XGROUP CREATE s h $ | a: XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS s > | c: XREADGROUP GROUP h d BLOCK 0 STREAMS s > | b: XADD s 11-1 a b | b: XPENDING s g
a: XREADGROUP GROUP g c BLOCK 0 STREAMS s > | c: XREADGROUP GROUP h d BLOCK 0 STREAMS s > | d: XREAD BLOCK 60 STREAMS s $ | 100
b: XGROUP DESTROY s g | b: DEL s | a: XGROUP CREATE s g $ MKSTREAM | a: XREADGROUP GROUP g c BLOCK 0 STREAMS s > | b: SET s x | b: DEL s
a: XGROUP CREATE s g $ MKSTREAM | a: XREADGROUP GROUP g c BLOCK 0 STREAMS s > | b: RENAME s st | a: XREADGROUP GROUP g c BLOCK 0 STREAMS st > | b: FLUSHALL
a: XGROUP CREATE s g $ MKSTREAM | a: XREADGROUP GROUP g c BLOCK 0 STREAMS s > | close a | 100 | b: XADD s 1-1 a b | b: XPENDING s g
a: HELLO 3 | a: XREAD BLOCK 0 STREAMS s $ | b: XADD s 9-1 a b | a: XREAD BLOCK 50 STREAMS s $ | 100 | a: XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS s >
"""
# How long the peer has nothing more to tell, in seconds, before the next step.
MOMENT = 0.01


class Actors:
    """Named connections to one server."""

    def __init__(self, server):
        self.server, self.raws, self.control = server, {}, server.raw()

    def send(self, name: str, words: list) -> None:
        if name not in self.raws:
            self.raws[name] = self.server.raw()
            self.raws[name].call("PING")
        self.raws[name].send(encode(words))

    def close(self, name: str) -> None:
        self.raws.pop(name).socket.close()

    def told(self, expected: dict | None) -> dict:
        """What each is told, as bytes, until that is what is expected, or for a moment after the server has executed what was
        sent; of INFO what it counts as blocked."""
        if expected is None:
            # Redis writes all replies of a turn before it sleeps: whatever the first turn told has been sent before the second.
            for _ in range(2):
                assert self.control.call("PING").raw == b"+PONG\r\n"
        told, quiet_at = {}, time.monotonic() + (MOMENT if expected is None else 5)
        while (expected is None or told != expected) and time.monotonic() < quiet_at:
            for raw in select.select([raw.socket for raw in self.raws.values()], [], [], MOMENT)[0]:
                (name,) = [name for name, known in self.raws.items() if known.socket is raw]
                told[name] = told.get(name, b"") + raw.recv(65536)
                if b"blocked_clients" in told[name]:
                    told[name] = b"".join(line for line in told[name].split(b"\r\n") if line.startswith(b"blocked"))
                if expected is None:
                    quiet_at = time.monotonic() + MOMENT
        return told


def blocked(client: redis.Redis) -> int:
    return client.info("clients")["blocked_clients"]


def play(server, expected: list | None = None) -> list:
    """What everybody is told after each step of the scenario, and how many clients are blocked then."""
    actors, log, control = Actors(server), [], server.client()
    for step in (part.strip() for line in SCENARIO.splitlines() for part in line.split(" | ") if part.strip()):
        if step.isdigit():
            time.sleep(int(step) / 1000)
        elif step.startswith("close "):
            actors.close(step.split()[1])
        else:
            name, command = step.split(": ")
            actors.send(name, command.split(" "))
        # HELLO names the server.
        awaits = expected is not None and "HELLO" not in step
        told = actors.told(expected[len(log)][1] if awaits else None)
        if awaits and not told:
            # Nobody is told when a command begins to wait, or a client is gone.
            deadline = time.monotonic() + 1
            while blocked(control) != expected[len(log)][2] and time.monotonic() < deadline:
                time.sleep(0.01)
        log.append((step, {} if "HELLO" in step else told, blocked(control) if expected is None else expected[len(log)][2]))
    return log


@pytest.fixture(scope="module")
def as_in_redis(peer):
    return play(peer)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_as_redis(threads, as_in_redis):
    server = Anabranch()
    server.arguments = ["--threads", str(threads)]
    with server:
        for ours, theirs in zip(play(server, as_in_redis), as_in_redis, strict=True):
            assert ours == theirs


@pytest.mark.parametrize("threads", [1, 3])
def test_a_hundred_clients_are_served_in_their_order(threads):
    server = Anabranch()
    server.arguments = ["--threads", str(threads)]
    with server, server.client() as client:
        waiting = []
        for number in range(100):
            raw = server.raw()
            raw.send(encode(["BLPOP", f"other{number}", "queue", 0]))
            waiting.append(raw)
            wait_until(lambda: client.info("clients")["blocked_clients"] == number + 1)
        wait_until(lambda: sum(entry["flags"] == "b" for entry in client.client_list()) == 100)
        for number in range(0, 100, 4):
            client.rpush("queue", number, number + 1)
            client.rpush("queue", number + 2)
            client.rpush("queue", number + 3)
        got = [int(raw.read().items[1].text) for raw in waiting]
        assert got == list(range(100))
        assert client.info("clients")["blocked_clients"] == 0


def test_a_wait_ends():
    server = Anabranch()
    server.arguments = ["--threads", "2"]
    with server, server.client() as client:
        client.execute_command("KEYSPACE", "CREATE", "short", "MODEL", "strict")
        raws = [server.raw() for _ in range(6)]
        numbers = [int(raw.call("CLIENT", "ID").text) for raw in raws]
        raws[4].call("KEYSPACE", "USE", "short")
        for raw in raws:
            raw.send(encode(["BLPOP", "none", 0]))
        wait_until(lambda: client.info("clients")["blocked_clients"] == 6)
        for number, words in zip(numbers, [[], ["TIMEOUT"], ["ERROR"]]):
            assert client.execute_command("CLIENT", "UNBLOCK", number, *words) == 1
        assert [raw.read().raw for raw in raws[:2]] == [b"*-1\r\n"] * 2
        assert raws[2].read().raw == b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
        assert raws[2].call("PING").text == b"PONG"
        client.execute_command("CLIENT", "KILL", "ID", numbers[3])
        with pytest.raises((EOFError, ConnectionError)):
            raws[3].read()
        client.execute_command("KEYSPACE", "DROP", "short")
        assert b"dropped" in raws[4].read().raw
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
        assert client.execute_command("CLIENT", "UNBLOCK", numbers[0]) == 0
        assert server.terminate() == 0


def test_thousands_of_clients_wait_for_one_key():
    server = Anabranch()
    server.arguments = ["--threads", "2"]
    with server, server.client() as client:
        raws = []
        for _ in range(4000):
            raws.append(server.raw())
        before = server.memory_bytes()
        for raw in raws:
            raw.send(encode(["BLPOP", "jobs:of:the:day", 0]))
        wait_until(lambda: client.info("clients")["blocked_clients"] == len(raws))
        each = (server.memory_bytes() - before) / len(raws)
        assert each < 2048, each
        began = time.monotonic()
        for number in range(100):
            client.rpush("jobs:of:the:day", number)
        assert time.monotonic() - began < 5, "work for a hundred, not for all"
        wait_until(lambda: client.llen("jobs:of:the:day") == 0)
        poll, got = select.epoll(), []
        for raw in raws:
            poll.register(raw.socket, select.EPOLLIN)
        while len(got) < 100:
            ready = {descriptor for descriptor, _ in poll.poll(10)}
            assert ready, got
            got += [int(raw.read().items[1].text) for raw in raws if raw.socket.fileno() in ready]
        assert sorted(got) == list(range(100))


class Consumer:
    """Takes elements of a list at one process, and goes to the next one when that is gone."""

    def __init__(self, nodes: list, first: int, command: list, keyspace: str | None):
        self.nodes, self.at, self.command, self.keyspace = nodes, first, command, keyspace
        self.got, self.doubts, self.stopping = [], 0, threading.Event()

    def __call__(self):
        while not self.stopping.is_set():
            node = self.nodes[self.at % len(self.nodes)]
            try:
                client = node.using(self.keyspace, socket_timeout=8) if self.keyspace else node.client(socket_timeout=8)
                with client:
                    while not self.stopping.is_set():
                        self.take(client)
            except UNKNOWN:
                # An element may be lost with its reply, as with LPOP.
                self.doubts += 1
                self.at += 1
                time.sleep(0.05)

    def take(self, client):
        try:
            reply = client.execute_command(*self.command)
        except redis.exceptions.ResponseError as error:
            self.doubts += str(error).startswith("UNKNOWNOUTCOME")
            assert str(error).startswith(("UNKNOWNOUTCOME", "UNAVAILABLE", "CONFLICT")), error
            return time.sleep(0.02)
        if reply is not None:
            self.got.append(reply if isinstance(reply, str) else reply[1])


def hand_over(nodes, keyspace, command, elements: int, meanwhile=lambda: None):
    """Pushes at all processes while clients wait at all of them; what was pushed for sure, perhaps, and the consumers."""
    consumers = [Consumer(nodes, number, command, keyspace) for number in range(2 * len(nodes))]
    threads = [threading.Thread(target=consumer, daemon=True) for consumer in consumers]
    for thread in threads:
        thread.start()
    sure, unsure = set(), set()

    def push(number):
        at = number
        for element in range(elements):
            name = f"{number}-{element}"
            unsure.add(name)
            try:
                node = nodes[at % len(nodes)]
                client = node.using(keyspace, socket_timeout=8) if keyspace else node.client(socket_timeout=8)
                with client:
                    client.rpush("jobs", name)
                    sure.add(name)
            except UNKNOWN:
                at += 1
            except redis.exceptions.ResponseError as error:
                assert str(error).startswith(("UNKNOWNOUTCOME", "UNAVAILABLE", "CONFLICT")), error
            time.sleep(0.01)

    together(meanwhile, *(lambda number=number: push(number) for number in range(len(nodes))))
    # Whose reply was lost has lost an element; then all of this time is waited for.
    deadline = time.monotonic() + 3
    while sure - {element for consumer in consumers for element in consumer.got} and time.monotonic() < deadline:
        time.sleep(0.02)
    for consumer in consumers:
        consumer.stopping.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return sure, unsure, consumers


def check_handed_over(sure, unsure, consumers, left):
    got = [element for consumer in consumers for element in consumer.got]
    assert max(collections.Counter(got + left).values()) == 1, "nothing is taken twice"
    assert set(got + left) <= unsure
    missing = sure - set(got) - set(left)
    assert len(missing) <= sum(consumer.doubts for consumer in consumers), missing
    assert all(consumer.got for consumer in consumers), [len(consumer.got) for consumer in consumers]


# In the other, processes die as well, below.
@pytest.mark.parametrize("concurrency", ["optimistic", pytest.param("locking", marks=pytest.mark.soak), "occ"])
def test_strict_replicas_hand_each_element_to_one_client(concurrency):
    with Cluster(1, 3, "--concurrency", concurrency) as cluster, cluster["a/1"].client() as client:
        nodes = list(cluster)
        sure, unsure, consumers = hand_over(nodes, None, ["BLPOP", "jobs", 1], 40)
        assert len(sure) == 120
        left = client.lrange("jobs", 0, -1)
        check_handed_over(sure, unsure, consumers, left)
        assert not left, "who waits gets what is there"
        if not any(consumer.doubts for consumer in consumers):
            assert sum(len(consumer.got) for consumer in consumers) == len(sure)


@pytest.mark.parametrize("concurrency", ["optimistic", "locking", pytest.param("occ", marks=pytest.mark.soak)])
def test_a_process_that_dies_takes_nothing_twice(concurrency):
    with Cluster(1, 3, "--concurrency", concurrency) as cluster, cluster["a/1"].client() as client:
        nodes = list(cluster)

        def kill():
            time.sleep(0.4)
            cluster.do("kill a/3")

        sure, unsure, consumers = hand_over(nodes, None, ["BLMOVE", "jobs", "taken", "LEFT", "RIGHT", 1], 60, kill)
        left, taken = client.lrange("jobs", 0, -1), client.lrange("taken", 0, -1)
        got = [element for consumer in consumers for element in consumer.got]
        assert max(collections.Counter(left + taken).values()) == 1
        assert sure <= set(left + taken) <= unsure, "nothing is lost"
        assert len(set(got)) == len(got) and set(got) <= set(taken)
        assert not left, "who waits gets what is there"


def test_waiting_clients_of_several_processes_are_woken_at_once():
    """A push at any process wakes who waits at any other, sooner than by looking now and then."""
    with Cluster(1, 3) as cluster:
        check_latencies(list(cluster), None)


@pytest.mark.parametrize("options", ["", "PROTOCOL pocc", "PROTOCOL cops"])
def test_causal_within_a_region(options):
    with Cluster(1, 3, "--model", "causal") as cluster, cluster["a/1"].client() as client:
        keyspace = None
        if options:
            keyspace = "jobs"
            client.execute_command("KEYSPACE", "CREATE", keyspace, "MODEL", "causal", *options.split())
            for node in cluster:
                node.session(keyspace).close()
        nodes = list(cluster)
        sure, unsure, consumers = hand_over(nodes, keyspace, ["BLPOP", "jobs", 1], 30)
        with nodes[0].using(keyspace) if keyspace else nodes[0].client() as reader:
            left = reader.lrange("jobs", 0, -1)
        check_handed_over(sure, unsure, consumers, left)
        assert not left and len(sure) == 90
        check_latencies(nodes, keyspace)


def test_causal_regions_wake_each_other():
    with Cluster(2, 1, "--model", "causal") as cluster:
        check_latencies(list(cluster), None)


def test_branch():
    with Cluster(2, 1, "--model", "branch") as cluster:
        check_latencies(list(cluster), None, most=2.5)


@pytest.mark.parametrize("options", ["", "--model causal", "--model branch"])
def test_streams_over_the_processes(options):
    """Every reader hears of an entry, one consumer of a group gets it, and who waits for what is gone is told; wherever they are."""
    with Cluster(1, 3, *options.split()) as cluster:
        nodes, most = list(cluster), 2.5 if "branch" in options else 0.6
        with nodes[0].client() as client:
            client.xgroup_create("s", "g", "$", mkstream=True)
            wait_until(lambda: all(node.client().exists("s") for node in nodes))
            for number, node in enumerate(nodes):
                check_stream_readers(nodes, node, f"{number + 1}-1", most)
            waiting = nodes[2].raw()
            waiting.send(encode(["XREADGROUP", "GROUP", "g", "late", "BLOCK", 0, "STREAMS", "s", ">"]))
            wait_until(lambda: blocked(nodes[2].client()) == 1)
            client.delete("s")
            assert waiting.read().raw == b"-UNBLOCKED the stream key no longer exists\r\n"


def check_stream_readers(nodes, writer, entry, most):
    waiting = [(node.raw(), kind) for node in nodes for kind in ("reader", "consumer")]
    for number, (raw, kind) in enumerate(waiting):
        group = ["XREADGROUP", "GROUP", "g", f"c{number}"] if kind == "consumer" else ["XREAD"]
        raw.send(encode([*group, "BLOCK", 0, "STREAMS", "s", ">" if kind == "consumer" else "$"]))
    wait_until(lambda: sum(blocked(node.client()) for node in nodes) == len(waiting))
    time.sleep(0.3)
    began = time.monotonic()
    assert writer.client().xadd("s", {"field": "value"}, entry) == entry
    sockets = {raw.socket: (raw, kind) for raw, kind in waiting}
    got = collections.Counter()
    while len(got) < 2 or got["reader"] < len(nodes):
        ready = select.select(list(sockets), [], [], 5)[0]
        assert ready, got
        for socket in ready:
            raw, kind = sockets.pop(socket)
            assert entry.encode() in raw.read().raw
            got[kind] += 1
            raw.close()
    assert time.monotonic() - began < most, "sooner than by looking now and then"
    assert not select.select(list(sockets), [], [], 0.1)[0] and got["consumer"] == 1
    for raw, _ in sockets.values():
        raw.close()
    wait_until(lambda: sum(blocked(node.client()) for node in nodes) == 0)


def test_a_thousand_readers_of_one_stream():
    server = Anabranch()
    server.arguments = ["--threads", "2"]
    with server, server.client() as client:
        raws = [server.raw() for _ in range(1000)]
        for raw in raws:
            raw.send(encode(["XREAD", "BLOCK", 0, "STREAMS", "news", "$"]))
        wait_until(lambda: blocked(client) == len(raws))
        client.xadd("news", {"a": "b"}, "1-1")
        assert all(b"1-1" in raw.read().raw for raw in raws)
        assert blocked(client) == 0


def check_latencies(nodes, keyspace, most: float = 0.5):
    def connect(node):
        return node.using(keyspace) if keyspace else node.client()

    late = []
    for number in range(12):
        waits, pushes = nodes[number % len(nodes)], nodes[(number // 2 + 1) % len(nodes)]
        with connect(waits) as waiting, connect(pushes) as pushing:
            got = []
            thread = threading.Thread(
                target=lambda: got.append((waiting.blpop([f"once:{number}"], 10), time.monotonic())), daemon=True
            )
            thread.start()
            time.sleep(0.3)
            began = time.monotonic()
            pushing.rpush(f"once:{number}", "x")
            thread.join()
            assert got[0][0] == (f"once:{number}", "x")
            late.append(got[0][1] - began)
    late.sort()
    assert late[len(late) // 2] < most / 2, late
    assert late[-2] < most, late
