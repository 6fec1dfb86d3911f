"""Starts, kills and restarts servers: ours, and Redis as its peer."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from resp import Raw

# How long a server may take to say that it is ready, in seconds. Generous: a loaded machine is no failure.
READY_TIMEOUT = 60.0
# How many threads servers have that are not told; their own default if it is empty.
THREADS = os.environ.get("ANABRANCH_THREADS", "")
# A process that ended in order, by a signal that asked for it, or by SIGKILL.
EXPECTED_ENDS = (0, -signal.SIGTERM, -signal.SIGKILL)


def product() -> str:
    """The binary that users run."""
    return _binary("ANABRANCH_BIN")


def laboratory() -> str:
    """The binary that simulates, checks and measures, and whose servers have the baselines, too."""
    return _binary("ANABRANCH_LAB")


def _binary(variable: str) -> str:
    path = os.environ.get(variable)
    assert path, f"{variable} names no binary; run the process tests with: cargo xtask test process"
    return path


class Server:
    """A server process. Its address changes with every start, its data directory does not."""

    name = "?"

    def __init__(self):
        self.process = None
        self.port = 0
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.log = self.folder / "stderr"

    def start(self):
        raise NotImplementedError

    def client(self, **options) -> redis.Redis:
        """A client that never repeats a command by itself, so that tests count what was acknowledged."""
        options.setdefault("retry", Retry(NoBackoff(), 0))
        options.setdefault("socket_timeout", 60)
        return redis.Redis(host="127.0.0.1", port=self.port, **options)

    def raw(self, timeout: float = 60.0) -> Raw:
        return Raw(self.port, timeout)

    def kill(self) -> None:
        """SIGKILL: no goodbye, no flush."""
        self.process.kill()
        self.process.wait()
        self._check_log()

    def terminate(self) -> int:
        """SIGTERM: an end in order; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=READY_TIMEOUT)
        self._check_log()
        return status

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def memory_bytes(self) -> int:
        """What the kernel counts as resident."""
        statm = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stderr(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def close(self) -> None:
        """Ends the process and removes its data. Fails if the process had ended by itself."""
        status = self.process.poll() if self.process else 0
        if self.process and status is None:
            self.process.kill()
            self.process.wait()
        errors = self.stderr()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert status is None or status in EXPECTED_ENDS, f"{self.name} ended with {status}:\n{errors}"
        assert "panicked" not in errors, errors

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def _check_log(self) -> None:
        assert "panicked" not in self.stderr(), self.stderr()

    def _spawn(self, command: list[str], **options) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True, **options
            )


class Anabranch(Server):
    """Our server. `durability=None` keeps everything in memory; `config` is written to a configuration file."""

    name = "anabranch"

    def __init__(self, durability: str | None = None, config: str = "", data: Path | None = None):
        super().__init__()
        self.data = data or self.folder / "data"
        self.durability = durability
        self.config = self.folder / "config.toml"
        self.config.write_text(config)
        # What the command line of the server begins with, to run it somewhere else.
        self.wrapper = []
        # What it ends with.
        self.arguments = ["--threads", THREADS] if THREADS else []

    def start(self):
        self._spawn(self._command())
        ready = self._ready_line()
        self.port = int(ready["address"].rsplit(":", 1)[1])
        return self

    def start_and_kill(self, seconds: float) -> None:
        """Starts and kills after a moment, ready or not."""
        self._spawn(self._command())
        time.sleep(seconds)
        self.kill()

    def forget(self) -> None:
        """Cleans up after a process that was expected to fail."""
        self.process.kill()
        self.process.wait()
        self.process = None
        self.close()

    def _command(self) -> list[str]:
        where = ["--memory"]
        if self.durability:
            where = ["--data", str(self.data), "--durability", self.durability]
        serve = [product(), "serve", "--config", str(self.config), "--listen", "127.0.0.1:0", *where, "--json"]
        return self.wrapper + serve + self.arguments

    def _ready_line(self) -> dict:
        lines = []
        reader = threading.Thread(target=lambda: lines.append(self.process.stdout.readline()), daemon=True)
        reader.start()
        reader.join(READY_TIMEOUT)
        assert lines and lines[0], f"the server did not become ready:\n{self.stderr()}"
        ready = json.loads(lines[0])
        assert ready["ready"] is True, ready
        # Whatever else it prints must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return ready


class Redis(Server):
    """The peer: Redis in memory only."""

    name = "redis-server"

    def __init__(self, databases: int = 16, arguments: list[str] | None = None):
        super().__init__()
        self.databases = databases
        # What its command line ends with.
        self.arguments = arguments or []

    def start(self):
        for _ in range(10):
            self.port = free_port()
            data = self.folder / "data"
            data.mkdir(exist_ok=True)
            self._spawn(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(data), "--save", ""]
                + ["--appendonly", "no", "--logfile", str(self.folder / "log"), "--databases", str(self.databases), *self.arguments]
            )
            if self._answers():
                return self
        raise AssertionError(f"redis-server did not start:\n{(self.folder / 'log').read_text()}")

    def _answers(self) -> bool:
        deadline = time.monotonic() + READY_TIMEOUT
        while self.is_running() and time.monotonic() < deadline:
            try:
                with self.raw() as connection:
                    if connection.call("PING").raw == b"+PONG\r\n":
                        return True
            except OSError:
                pass
            time.sleep(0.02)
        return False


def free_port() -> int:
    """A port that was free a moment ago; whoever uses it tries again if it was taken meanwhile."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, timeout: float = 60.0, every: float = 0.06):
    """Waits for `condition()` to be true and returns what it returned; fails after `timeout` seconds.

    Asks often at first, then `every` so many seconds: asking is work, too.
    """
    deadline, pause = time.monotonic() + timeout, min(0.005, every)
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {condition}"
        time.sleep(pause)
        pause = min(1.5 * pause, every)
    return result
