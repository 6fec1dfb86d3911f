"""Starts clusters of processes on this machine, and makes their faults."""

import json
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from harness import READY_TIMEOUT, THREADS, product, wait_until
from resp import Raw


class Node:
    """A process of a cluster, as clients see it. Its port stays when it starts again."""

    def __init__(self, entry: dict):
        self.name = f"{entry['region']}/{entry['process']}"
        self.port = int(entry["address"].rsplit(":", 1)[1])
        self.pid = entry["pid"]

    def client(self, **options) -> redis.Redis:
        """A client that never repeats a command by itself."""
        options.setdefault("retry", Retry(NoBackoff(), 0))
        options.setdefault("socket_timeout", 60)
        options.setdefault("decode_responses", True)
        return redis.Redis(host="127.0.0.1", port=self.port, **options)

    def using(self, keyspace: str, **options) -> redis.Redis:
        """A client of one connection, of which every further one, such as a pipeline's, uses the keyspace too."""

        def use(connection):
            connection.on_connect()
            connection.send_command("KEYSPACE", "USE", keyspace)
            assert connection.read_response() in ("OK", b"OK")

        return self.client(single_connection_client=True, redis_connect_func=use, **options)

    def session(self, keyspace: str) -> redis.Redis:
        """The same, as soon as the keyspace answers here."""
        client = self.using(keyspace)

        def answers() -> bool:
            try:
                client.get("ready")
                return True
            except redis.ResponseError:
                return False

        wait_until(answers)
        return client

    def raw(self, timeout: float = 60.0) -> Raw:
        return Raw(self.port, timeout)


class Cluster:
    """`cluster local` of the product, or of another program."""

    def __init__(self, regions: int, processes: int, *arguments: str, config: str = "", program: str | None = None):
        self.folder = Path(tempfile.mkdtemp(prefix="anabranch-cluster-"))
        self.command = [program or product(), "cluster", "local", "--regions", str(regions)]
        self.command += ["--processes", str(processes), "--base-port", "0", "--data", str(self.folder / "data"), "--json", *arguments]
        if THREADS and "--threads" not in arguments:
            self.command += ["--threads", THREADS]
        if config:
            (self.folder / "config.toml").write_text(config)
            self.command += ["--config", str(self.folder / "config.toml")]
        # What the command line begins with, to run it somewhere else.
        self.wrapper: list[str] = []
        self.process = None
        self.nodes: dict[str, Node] = {}

    def start(self) -> "Cluster":
        with open(self.folder / "stderr", "ab") as errors:
            self.process = subprocess.Popen(
                self.wrapper + self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        ready = json.loads(self._line() or "{}")
        assert ready.get("ready") is True, (self.folder / "stderr").read_text()
        self.nodes = {node.name: node for node in map(Node, ready["processes"])}
        return self

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __iter__(self):
        return iter(self.nodes.values())

    def say(self, line: str) -> str:
        """Gives an instruction; returns the answer."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._line().strip()

    def do(self, *lines: str) -> None:
        """Gives instructions, which must succeed."""
        for line in lines:
            answer = self.say(line)
            assert answer == "ok", f"{line}: {answer}\n{self.logs()[-2000:]}"

    def logs(self) -> str:
        """What all processes have logged."""
        return "".join(log.read_text(errors="replace") for log in self.folder.glob("data/*/log"))

    def stop(self) -> int:
        """SIGTERM: an end in order; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=READY_TIMEOUT)

    def close(self) -> None:
        status = self.stop() if self.process.poll() is None else self.process.returncode
        logs = self.logs()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert "panicked" not in logs, logs
        assert status == 0, f"the cluster ended with {status}:\n{logs}"

    def __enter__(self) -> "Cluster":
        try:
            return self.start()
        except BaseException:
            self.process.terminate()
            self.process.wait(timeout=READY_TIMEOUT)
            raise

    def __exit__(self, *_):
        self.close()

    def _line(self) -> str:
        lines = []
        reader = threading.Thread(target=lambda: lines.append(self.process.stdout.readline()), daemon=True)
        reader.start()
        reader.join(READY_TIMEOUT)
        assert lines, f"the cluster does not answer:\n{self.logs()}"
        return lines[0]
