"""A RESP client that keeps the bytes of every reply: what the server said, not what a library made of it."""

import socket
from dataclasses import dataclass

# The markers of replies that hold others, and how many replies one counted element stands for.
AGGREGATES = {b"*": 1, b"~": 1, b">": 1, b"%": 2}
# The markers of replies that are a counted piece of bytes.
BULKS = {b"$", b"=", b"!"}


@dataclass(frozen=True)
class Reply:
    """One reply: its marker, its text (for a line or a bulk, `None` for a null) or its elements, and its bytes."""

    kind: bytes
    text: bytes | None
    items: tuple["Reply", ...] | None
    raw: bytes

    @property
    def is_error(self) -> bool:
        return self.kind in (b"-", b"!")

    @property
    def is_null(self) -> bool:
        return self.kind == b"_" or (self.text is None and self.items is None)

    def texts(self) -> list[bytes | None]:
        """The texts of the elements of a flat aggregate."""
        return [item.text for item in self.items or ()]

    def __str__(self) -> str:
        return repr(self.raw)[1:]


def encode(arguments) -> bytes:
    """A command as clients send it."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        argument = as_bytes(argument)
        parts.append(b"$%d\r\n%s\r\n" % (len(argument), argument))
    return b"".join(parts)


def as_bytes(argument) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


class Raw:
    """A socket on which bytes are sent and replies are read."""

    def __init__(self, port: int, timeout: float = 60.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.position = 0

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def call(self, *arguments) -> Reply:
        """Sends one command and reads its reply."""
        self.send(encode(arguments))
        return self.read()

    def read(self) -> Reply:
        """Reads one reply. Raises `EOFError` if the server closes before it is complete."""
        del self.buffer[: self.position]
        self.position = 0
        return self._reply()

    def read_rest(self) -> bytes:
        """Everything until the server closes or resets the connection."""
        parts = [bytes(self.buffer[self.position :])]
        self.buffer, self.position = bytearray(), 0
        try:
            while data := self.socket.recv(65536):
                parts.append(data)
        except ConnectionError:
            pass
        return b"".join(parts)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _more(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise EOFError(f"the server closed the connection after {bytes(self.buffer[self.position :])!r}")
        self.buffer += data

    def _line(self) -> bytes:
        while (end := self.buffer.find(b"\r\n", self.position)) < 0:
            self._more()
        line = bytes(self.buffer[self.position : end])
        self.position = end + 2
        return line

    def _bytes(self, count: int) -> bytes:
        while len(self.buffer) < self.position + count + 2:
            self._more()
        data = bytes(self.buffer[self.position : self.position + count])
        end = self.buffer[self.position + count : self.position + count + 2]
        if end != b"\r\n":
            raise ValueError(f"a bulk of {count} bytes ends with {end!r}")
        self.position += count + 2
        return data

    def _reply(self) -> Reply:
        start = self.position
        line = self._line()
        kind, rest = line[:1], line[1:]
        text, items = rest, None
        if kind in BULKS:
            text = self._bytes(int(rest)) if int(rest) >= 0 else None
        elif kind in AGGREGATES:
            text, count = None, int(rest)
            if count >= 0:
                items = tuple(self._reply() for _ in range(count * AGGREGATES[kind]))
        elif kind == b"_":
            text = None
        elif kind not in b"+-:,#(":
            raise ValueError(f"no reply begins with {line!r}")
        return Reply(kind, text, items, bytes(self.buffer[start : self.position]))
