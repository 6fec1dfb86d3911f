"""Clients that break the protocol, take too much or go away: a clear error or a clean close, and nobody else suffers."""

import random
import socket
import struct
import threading
import time

import pytest

from harness import Anabranch, wait_until
from resp import encode

MIB = 1 << 20
ERR = b"-ERR Protocol error: "


@pytest.fixture
def bystander(server):
    """A client that must be served normally all the time."""
    with server.raw(timeout=5.0) as connection:
        assert connection.call("SET", "bystander", "1").raw == b"+OK\r\n"
        yield connection
        assert connection.call("GET", "bystander").text == b"1"


@pytest.mark.parametrize(
    "data, error",
    [
        (b"*abc\r\n", ERR + b"invalid multibulk length\r\n"),
        (b"*1.5\r\n", ERR + b"invalid multibulk length\r\n"),
        (b"*99999999999999999999\r\n", ERR + b"invalid multibulk length\r\n"),
        (b"*2147483648\r\n", ERR + b"invalid multibulk length\r\n"),
        (b"*1\r\n$-1\r\n", ERR + b"invalid bulk length\r\n"),
        (b"*1\r\n$abc\r\n", ERR + b"invalid bulk length\r\n"),
        (b"*1\r\n$536870913\r\n", ERR + b"invalid bulk length\r\n"),
        (b"*1\r\n$99999999999999999999\r\n", ERR + b"invalid bulk length\r\n"),
        (b"*1\r\n:1\r\n", ERR + b"expected '$', got ':'\r\n"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", ERR + b"expected '$', got '*'\r\n"),
        (b"*2\r\n$4\r\nECHO\r\n+x\r\n", ERR + b"expected '$', got '+'\r\n"),
        (b"*1\r\n\r\n", ERR + b"expected '$', got ' '\r\n"),
        (b'SET a "b\r\n', ERR + b"unbalanced quotes in request\r\n"),
        (b"GET 'a'b\r\n", ERR + b"unbalanced quotes in request\r\n"),
        (b"*" + b"1" * 70_000, ERR + b"too big mbulk count string\r\n"),
        (b"*1\r\n$" + b"1" * 70_000, ERR + b"too big bulk count string\r\n"),
        (b"x" * 70_000, ERR + b"too big inline request\r\n"),
    ],
    ids=lambda value: repr(value[:24]) if value[:1] != b"-" else None,
)
def test_what_is_no_command_is_answered_and_closed(server, bystander, data, error):
    with server.raw(timeout=5.0) as connection:
        connection.send(encode(["PING"]) + data)
        assert connection.read().raw == b"+PONG\r\n", "what came before is answered"
        assert connection.read_rest() == error


@pytest.mark.parametrize("data", [b"\r\n", b"\n", b"*0\r\n", b"*-1\r\n", b"   \r\n", b"\r\n\r\n*0\r\n"], ids=repr)
def test_nothing_is_answered_to_nothing(server, data):
    with server.raw(timeout=5.0) as connection:
        connection.send(data + encode(["PING"]))
        assert connection.read().raw == b"+PONG\r\n"


def test_inline_commands(server):
    with server.raw(timeout=5.0) as connection:
        connection.send(b"set key \"a\\x00b c\"\r\nGET key\nPING 'it\\'s'\r\n")
        assert [connection.read().text for _ in range(3)] == [b"OK", b"a\0b c", b"it's"]


def test_commands_arrive_in_any_pieces(server):
    """Byte by byte, and split at every place once."""
    data = encode(["SET", "key", "a\r\nb"]) + encode(["GET", "key"]) + b"PING\r\n"
    expected = b"+OK\r\n$4\r\na\r\nb\r\n+PONG\r\n"
    with server.raw(timeout=5.0) as connection:
        for place in range(1, len(data)):
            connection.send(data[:place])
            connection.send(data[place:])
            assert b"".join(connection.read().raw for _ in range(3)) == expected, place
        for byte in data:
            connection.send(bytes([byte]))
        assert b"".join(connection.read().raw for _ in range(3)) == expected


def test_an_announced_length_costs_nothing(server, bystander):
    """Many clients announce half a gigabyte, or a billion arguments, and send nothing of it."""
    before = server.memory_bytes()
    connections = [server.raw() for _ in range(40)]
    for number, connection in enumerate(connections):
        connection.send(b"*2\r\n$4\r\nECHO\r\n$536870912\r\nx" if number % 2 else b"*2147483647\r\n$1\r\nx\r\n")
    for _ in range(20):
        assert bystander.call("PING").raw == b"+PONG\r\n"
    assert server.memory_bytes() - before < 64 * MIB
    for connection in connections:
        connection.close()


def test_a_half_closed_client_gets_its_replies(server):
    with server.raw(timeout=5.0) as connection:
        connection.send(encode(["SET", "key", "value"]) + encode(["GET", "key"]))
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.read_rest() == b"+OK\r\n$5\r\nvalue\r\n"


def test_a_half_command_of_a_closed_client_does_nothing(server, bystander):
    with server.raw(timeout=5.0) as connection:
        connection.send(encode(["SET", "whole", "1"]) + encode(["SET", "half", "1"])[:-1])
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.read_rest() == b"+OK\r\n"
    assert bystander.call("EXISTS", "whole", "half").raw == b":1\r\n"


def test_resets_in_the_middle_of_everything(server, bystander):
    """Connections are reset in the middle of commands, of replies and of transactions."""
    bystander.call("SET", "big", b"x" * 200_000)
    for number in range(200):
        connection = server.raw()
        connection.send([b"*3\r\n$3\r\nSE", encode(["GET", "big"]) * 20, encode(["MULTI"]) + encode(["SET", "half", 1])][number % 3])
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert bystander.call("EXISTS", "half").raw == b":0\r\n"
    wait_until(lambda: connected(bystander) == 1)


def connected(connection) -> int:
    info = connection.call("INFO", "clients").text.decode()
    return int(info.split("connected_clients:")[1].split()[0])


def test_a_thousand_idle_clients(server, bystander):
    before = server.memory_bytes()
    connections = [server.raw() for _ in range(1000)]
    for connection in connections:
        connection.send(encode(["PING"]))
    for connection in connections:
        assert connection.read().raw == b"+PONG\r\n"
    assert connected(bystander) == 1001
    start = time.monotonic()
    for number in range(500):
        assert bystander.call("INCR", "count").raw == b":%d\r\n" % (number + 1)
    assert time.monotonic() - start < 5.0, "idle clients cost nobody anything"
    assert server.memory_bytes() - before < 64 * MIB
    for connection in connections:
        connection.close()
    wait_until(lambda: connected(bystander) == 1)


def test_a_client_that_never_reads_is_bounded(server, bystander):
    """It asks for two gigabytes of replies; the server keeps a bounded part of them and serves the others."""
    bystander.call("SET", "big", b"x" * MIB)
    before = server.memory_bytes()
    with server.raw(timeout=2.0) as connection:
        stuffed = threading.Thread(target=stuff, args=(connection, encode(["GET", "big"]) * 2000), daemon=True)
        stuffed.start()
        slowest = 0.0
        for _ in range(300):
            start = time.monotonic()
            assert bystander.call("PING").raw == b"+PONG\r\n"
            slowest = max(slowest, time.monotonic() - start)
            time.sleep(0.002)
        assert server.memory_bytes() - before < 64 * MIB
        assert slowest < 1.0, f"another client waited {slowest} s"
        connection.socket.shutdown(socket.SHUT_RDWR)
        stuffed.join()
    wait_until(lambda: connected(bystander) == 1)


def stuff(connection, data: bytes) -> None:
    """Sends until the other side takes no more or the connection ends."""
    try:
        connection.send(data)
    except OSError:
        pass


def test_a_slow_reader_gets_everything_in_order(server):
    """More replies than the server keeps for a client, read slowly: none is lost, all are in order."""
    count = 400
    with server.raw() as connection:
        connection.call("SET", "big", b"x" * 50_000)
        commands = b"".join(encode(["GET", "big"]) + encode(["ECHO", number]) for number in range(count))
        sender = threading.Thread(target=connection.send, args=(commands,), daemon=True)
        sender.start()
        for number in range(count):
            assert len(connection.read().text) == 50_000
            assert connection.read().text == b"%d" % number
            if number % 50 == 0:
                time.sleep(0.05)
        sender.join()


def test_a_deep_transaction_queue_is_bounded(server, bystander):
    """A client queues without end: it is refused at a limit and the transaction with it."""
    before = server.memory_bytes()
    with server.raw() as connection:
        connection.call("MULTI")
        big = encode(["SET", "big", b"x" * MIB])
        replies = []
        for _ in range(100):
            connection.send(big)
            replies.append(connection.read().raw)
        assert replies[0] == b"+QUEUED\r\n" and replies[-1].startswith(b"-ERR"), replies[-1]
        assert connection.call("EXEC").raw.startswith(b"-EXECABORT")
        assert bystander.call("EXISTS", "big").raw == b":0\r\n"
        assert server.memory_bytes() - before < 256 * MIB


def test_large_arguments_and_replies(server):
    """Values of many megabytes, and commands of many arguments."""
    value = random.Random(1).randbytes(24 * MIB)
    with server.raw() as connection:
        assert connection.call("SET", "big", value).raw == b"+OK\r\n"
        assert connection.call("GET", "big").text == value
        assert connection.call("DEL", "big").raw == b":1\r\n"
        assert connection.call("RPUSH", "list", *range(100_000)).raw == b":100000\r\n"
        assert connection.call("LRANGE", "list", 0, -1).texts() == [b"%d" % number for number in range(100_000)]


REFUSED = b"-ERR the reply would be larger than 512 MiB"


def test_replies_are_bounded(server, bystander):
    """Whoever names a large value often gets an error, in every way to ask; its process and everybody else go on."""
    with server.raw(timeout=60.0) as connection:
        assert connection.call("SET", "large", b"x" * (32 * MIB)).raw == b"+OK\r\n"
        assert connection.call("SADD", "set", b"y" * MIB).text == b"1"
        assert connection.call("MGET", *["large"] * 20).raw.startswith(REFUSED)
        assert connection.call("SRANDMEMBER", "set", "-10000000").raw.startswith(REFUSED)
        for begin, end in (("MULTI", "EXEC"), ("TXN BEGIN", "TXN COMMIT")):
            assert connection.call(*begin.split()).raw == b"+OK\r\n"
            if end == "EXEC":
                for _ in range(20):
                    assert connection.call("GET", "large").raw == b"+QUEUED\r\n"
                assert connection.call("EXEC").raw.startswith(REFUSED)
            else:
                assert connection.call("MGET", *["large"] * 20).raw.startswith(REFUSED)
                assert connection.call(*end.split()).raw == b"+OK\r\n"
        assert connection.call("STRLEN", "large").text == b"%d" % (32 * MIB)
        assert connection.call("DEL", "large", "set").text == b"2"


@pytest.mark.parametrize("seed", range(6))
def test_garbage(server, bystander, seed):
    """Random bytes, and commands with random damage, on many connections: every one is answered or closed."""
    rng = random.Random(seed)
    deadline = time.monotonic() + 0.7
    while time.monotonic() < deadline:
        with server.raw(timeout=5.0) as connection:
            stuff(connection, garbage(rng))
            try:
                connection.socket.shutdown(socket.SHUT_WR)
            except OSError:
                continue
            connection.read_rest()
    assert bystander.call("PING").raw == b"+PONG\r\n"


def garbage(rng: random.Random) -> bytes:
    """Random bytes, or well-formed commands with bytes changed, removed or doubled."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(1, 2000))
    words = [b"SET", b"GET", b"MULTI", b"EXEC", b"ZADD", b"HSET", b"key", b"1", b"nan", b"", b"(1", b"LRANGE", b"HELLO", b"3"]
    words += [b"TXN", b"BEGIN", b"COMMIT", b"BLIND", b"INCR", b"KEYSPACE", b"LIST", b"SCAN", b"0", b"COUNT", b"WATCH", b"AUTH"]
    data = bytearray(b"".join(encode(rng.choices(words, k=rng.randrange(1, 6))) for _ in range(rng.randrange(1, 30))))
    for _ in range(rng.randrange(1, 8)):
        place = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[place] = rng.choice(b"*$\r\n:-+0129\xff\x00 '\"")
            case 1:
                del data[place : place + rng.randrange(1, 4)]
            case _:
                data[place:place] = data[place : place + 8]
        if not data:
            break
    return bytes(data)


def test_too_many_clients_are_refused_with_a_reason():
    with Anabranch(config="[server]\nmax_clients = 20\n") as server:
        connections = [server.raw() for _ in range(20)]
        assert all(connection.call("PING").raw == b"+PONG\r\n" for connection in connections)
        with server.raw() as refused:
            assert refused.read_rest() == b"-ERR max number of clients reached\r\n"
        connections.pop().close()
        wait_until(lambda: accepted(server))
        for connection in connections:
            connection.close()


def accepted(server) -> bool:
    with server.raw() as connection:
        try:
            return connection.call("PING").raw == b"+PONG\r\n"
        except (EOFError, ConnectionError):
            return False
