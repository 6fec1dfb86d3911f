#!/usr/bin/env python3
"""Counts the instructions of plain commands in pipelines of 16: what a build or a change costs on the hot path.

Usage: instructions.py BINARY... [--data]

Starts each binary under callgrind (Debian: valgrind), sends it GET, SET, INCR, HSET and ZADD over a hundred keys, and
prints instructions per command and, beside them, ratios to the first binary. With --data the server keeps a log. A count
repeats within 0.5 percent, whatever else the machine does.
"""

import re
import socket
import subprocess
import sys
import tempfile
import time

PIPELINE = 16
WARM_UP = 125
PIPELINES = 500
KEYS = 100


def encode(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words)


COMMANDS = {
    "get": lambda i: encode("GET", f"string:{i % KEYS}"),
    "set": lambda i: encode("SET", f"string:{i % KEYS}", f"value-{i:010}"),
    "incr": lambda i: encode("INCR", f"counter:{i % KEYS}"),
    "hset": lambda i: encode("HSET", f"hash:{i % KEYS}", f"field{i % 7}", f"value-{i:010}"),
    "zadd": lambda i: encode("ZADD", f"scores:{i % KEYS}", str(i % 1013), f"member{i % 11}"),
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connect(port: int, server: subprocess.Popen) -> socket.socket:
    for _ in range(600):
        if server.poll() is not None:
            sys.exit(f"the server ended with exit code {server.returncode}")
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except OSError:
            time.sleep(0.1)
    sys.exit("the server does not answer")


def send(connection: socket.socket, command, first: int, pipelines: int) -> None:
    for pipeline in range(pipelines):
        start = first + pipeline * PIPELINE
        connection.sendall(b"".join(command(i) for i in range(start, start + PIPELINE)))
        replies, got = 0, b""
        while replies < PIPELINE:
            part = connection.recv(1 << 16)
            if not part:
                sys.exit("the server closed the connection")
            got += part
            if got.startswith(b"-") or b"\n-" in got:
                sys.exit(f"the server refuses: {got.decode()}")
            # A string takes two lines, every other reply one.
            replies = got.count(b"\r\n") - len(re.findall(rb"\$\d+\r\n", got))


def executed(server: subprocess.Popen) -> int:
    told = subprocess.run(["callgrind_control", "-e", str(server.pid)], capture_output=True, text=True, check=True)
    return sum(int(count.replace(",", "")) for count in re.findall(r"^\s*Th\s*\d+\s+([\d,]+)", told.stdout, re.M))


def counts(binary: str, keeps_log: bool) -> dict[str, float]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        where = ["--data", f"{folder}/data"] if keeps_log else ["--memory"]
        callgrind = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        arguments = [*callgrind, binary, "serve", "--threads", "1", "--listen", f"127.0.0.1:{port}", "--log-level", "error", *where]
        server = subprocess.Popen(arguments)
        try:
            connection = connect(port, server)
            found = {}
            for name, command in COMMANDS.items():
                if name == "get":
                    send(connection, COMMANDS["set"], 0, WARM_UP)
                send(connection, command, 0, WARM_UP)
                before = executed(server)
                send(connection, command, WARM_UP * PIPELINE, PIPELINES)
                found[name] = (executed(server) - before) / (PIPELINES * PIPELINE)
            return found
        finally:
            server.terminate()
            server.wait(60)


def main() -> None:
    binaries = [argument for argument in sys.argv[1:] if argument != "--data"]
    if not binaries:
        sys.exit(__doc__)
    first = None
    for binary in binaries:
        found = counts(binary, "--data" in sys.argv)
        first = first or found
        print(binary)
        for name, count in found.items():
            print(f"  {name:5} {count:8.0f}  {count / first[name]:.3f}")


if __name__ == "__main__":
    main()
