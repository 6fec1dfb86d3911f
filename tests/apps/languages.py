"""The suites of other languages that `run.py` compares: JavaScript in `node/`, Go in `go/`.

What they need is installed on first use by `npm` and `go` themselves, in the versions that the lock files pin, below
`.cache/apps`.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import Cluster
from harness import Redis, free_port, wait_until
from suites import Suite

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache/apps"
# How long an installation or a compilation may take, in seconds: the first one fetches everything.
PREPARE_SECONDS = 1500
# Suites run side by side and share what is installed: one at a time looks whether it is there.
PREPARES = threading.Lock()
LIMIT_SECONDS = 540
# A part that begins so is a regular expression, others name one test.
PATTERN = "~"
GO_REDIS = "github.com/redis/go-redis/v9"
ASYNQ = "github.com/hibiken/asynq"
REDIGO = "github.com/gomodule/redigo"


def tool(name: str, others: tuple[str, ...] = ()) -> str:
    """Where a program is, or the end with what to do."""
    for place in (name, *others):
        if found := shutil.which(place):
            return found
    sys.exit(f"`{name}` is not installed: the suites of tests/apps/{'go' if name == 'go' else 'node'} need it. Install it, and run this again.")


def prepare(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Runs an installation or a compilation; ends everything if it fails."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=PREPARE_SECONDS
    )
    if done.returncode:
        sys.exit(f"`{' '.join(command)}` in {folder} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def pattern(tests: list[str]) -> str:
    """The regular expression of these tests. Names have underscores for spaces, as lists of differences need."""
    return "|".join(test.removeprefix(PATTERN) if test.startswith(PATTERN) else re.sub(r"\W|_", ".", test) for test in tests)


def named(text: str) -> str:
    return re.sub(r"\s+", "_", text.strip()).replace("[", "(").replace("]", ")")


def ports(server) -> list[int]:
    return [node.port for node in server] if isinstance(server, Cluster | RedisCluster) else [server.port]


# --- Go


@dataclass
class Go:
    """Compiled tests of a Go package, run where its sources are."""

    package: str
    # The flags that point them to a server.
    flags: list[str]
    skip: str = ""

    def folder(self) -> Path:
        if self.package == ".":
            return HERE / "go"
        return Path(prepare([go(), "list", "-f", "{{.Dir}}", self.package], HERE / "go", GO_ENVIRONMENT).strip())

    def binary(self) -> Path:
        """Compiled already, if nothing has changed: Go keeps what it compiles."""
        name = re.sub(r"\W", "-", self.package).strip("-") or "flows"
        binary = CACHE / "go-bin" / f"{name}.test"
        with PREPARES:
            prepare([go(), "test", "-c", "-o", str(binary), self.package], HERE / "go", GO_ENVIRONMENT)
        return binary

    def run(self, tests: list[str], server, protocol: int) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            # A test that is part of another one runs with it.
            tests = sorted({test if test.startswith(PATTERN) else test.split("/")[0] for test in tests})
            command = [str(self.binary()), "-test.v=test2json", f"-test.timeout={LIMIT_SECONDS}s", f"-test.run=^({pattern(tests)})$"]
            command += [f"-test.skip={self.skip}"] if self.skip else []
            command += [flag.format(port=server_port(server), free=free_port(), server=wrapper(folder, server)) for flag in self.flags]
            environment = {"APPS_PORTS": ",".join(map(str, ports(server))), "APPS_PROTOCOL": str(protocol)}
            done = execute(command, self.folder(), environment)
        return go_outcomes(done.stdout + done.stderr)


def server_port(server) -> int:
    return ports(server)[0]


def go() -> str:
    return tool("go", ("/usr/local/go/bin/go",))


# A machine that names caches of its own keeps them.
GO_ENVIRONMENT = {
    "GOFLAGS": "-mod=readonly",
    "GOTOOLCHAIN": "local",
    "GOMODCACHE": os.environ.get("GOMODCACHE", str(CACHE / "go-mod")),
    "GOCACHE": os.environ.get("GOCACHE", str(CACHE / "go-build")),
}


def execute(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, errors="replace", timeout=LIMIT_SECONDS + 60
    )


def go_outcomes(output: str) -> dict[str, str]:
    """What `go test -v` tells of each test that is no part of another one."""
    ends = {"PASS": "passed", "SKIP": "skipped", "FAIL": "failed"}
    outcomes = {}
    lines = output.splitlines()
    for at, line in enumerate(lines):
        if found := re.match(r"\x16?--- (PASS|SKIP|FAIL): (\S+)", line):
            # The time at which a test runs may be part of its name.
            name, why = re.sub(r"[A-Z][a-z]{2}_[A-Z][a-z]{2}_+\d+_\d\d:\d\d:\d\d_[A-Z]+_\d{4}", "time", found[2]), ends[found[1]]
            outcomes[name] = why if why != "failed" else f"failed: {' '.join(lines[max(0, at - 3) : at])[-300:]}"
    if not outcomes:
        sys.exit(f"tests of Go ended without telling of any:\n{output[-3000:]}")
    return outcomes


def wrapper(folder: str, server) -> str:
    """A program that tests start as if it were redis-server: the server that is compared."""
    if isinstance(server, Redis):
        return shutil.which("redis-server")
    path = Path(folder) / "redis-server"
    path.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && { echo "Redis server v=7.0.15"; exit; }\n'
        'port=$(echo "$*" | sed -n "s/.*--port \\([0-9]*\\).*/\\1/p")\n'
        f"echo '[server]\\nenable_debug_command = \"local\"' > {folder}/config.toml\n"
        f'"$ANABRANCH_BIN" serve --config {folder}/config.toml --memory --listen "127.0.0.1:$port" --json | (read line; echo " * Ready to accept connections"; cat) &\n'
        'trap "kill $(pgrep -P $$ -f anabranch) 2>/dev/null" INT TERM\n'
        "wait\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


class GoRedis(Go):
    """go-redis's own tests are written with Ginkgo, which writes a report. It takes the address of a server that others
    started from a file, as its authors have it for Redis Enterprise; so tests of sentinels, rings and clusters are left out."""

    def run(self, tests: list[str], server, protocol: int) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            endpoints, report = Path(folder) / "endpoints.json", Path(folder) / "report.json"
            endpoints.write_text(json.dumps({"server": {"raw_endpoints": [{"dns_name": "127.0.0.1", "port": server_port(server)}]}}))
            environment = {"RE_CLUSTER": "true", "REDIS_ENDPOINTS_CONFIG_PATH": str(endpoints), "REDIS_VERSION": "7.0"}
            command = [str(self.binary()), "-test.run=TestGinkgoSuite", f"-ginkgo.json-report={report}"]
            command += [f"-ginkgo.focus=^go-redis ({pattern(tests)})$"]
            done = execute(command, self.folder(), environment)
            if not report.exists():
                sys.exit(f"go-redis's tests wrote no report:\n{(done.stdout + done.stderr)[-3000:]}")
            specs = [spec for suite in json.loads(report.read_text()) for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It"]
        outcomes = {}
        for spec in specs:
            if spec["State"] != "skipped" or spec.get("Failure", {}).get("Message"):
                message = " ".join(spec.get("Failure", {}).get("Message", "").split())[:200]
                outcomes[named(" ".join([*spec["ContainerHierarchyTexts"], spec["LeafNodeText"]]))] = (
                    "passed" if spec["State"] == "passed" else f"{spec['State']}: {message}"
                )
        return outcomes


# --- JavaScript


@dataclass
class Node:
    """Files of tests for Node's own runner."""

    files: str

    def run(self, tests: list[str], server, protocol: int) -> dict[str, str]:
        modules = node_modules()
        command = [tool("node"), "--test", "--test-concurrency=4", "--test-force-exit", "--test-reporter=./outcomes.mjs"]
        command += [f"--test-name-pattern=/^({pattern(tests)})$/"] if tests != [f"{PATTERN}.*"] else []
        command += sorted(path.name for path in modules.glob(self.files))
        environment = {"APPS_PORTS": ",".join(map(str, ports(server))), "APPS_PROTOCOL": str(protocol)}
        done = execute(command, modules, environment)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"test"')]
        if not lines:
            sys.exit(f"{self.files}: Node told of no test:\n{(done.stdout + done.stderr)[-3000:]}")
        outcomes = {}
        for line in lines:
            # A file that ends by itself, a test that other tests made fail.
            before = outcomes.get(named(line["test"]), "passed")
            outcomes[named(line["test"])] = line["outcome"] if before == "passed" else before
        return outcomes


def node_modules() -> Path:
    """A folder with the tests and, beside them, what they import."""
    lock = (HERE / "node/package-lock.json").read_bytes()
    folder = CACHE / f"node-{hashlib.sha256(lock).hexdigest()[:16]}"
    ready = folder / "node_modules/.ready"
    with PREPARES:
        if not ready.exists():
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "node" / name, folder)
            prepare([tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
            ready.touch()
        tool("node")
        for path in (HERE / "node").glob("*.mjs"):
            if not (folder / path.name).exists() or (folder / path.name).read_bytes() != path.read_bytes():
                shutil.copy(path, folder)
    return folder


# --- Clusters


class RedisCluster:
    """Three processes of redis-server that share the slots."""

    name = "redis-server"

    def __init__(self):
        self.servers = []
        for _ in range(3):
            # The bus of a cluster has a port of its own, which must be free as well.
            self.servers.append(Redis(databases=1, arguments=["--cluster-enabled", "yes", "--cluster-port", str(free_port())]))

    def __iter__(self):
        return iter(self.servers)

    def __enter__(self):
        for server in self.servers:
            server.start()
        addresses = [f"127.0.0.1:{server.port}" for server in self.servers]
        prepare(["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"], HERE)
        wait_until(lambda: all(server.client().cluster("INFO")["cluster_state"] == "ok" for server in self.servers))
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.close()


@contextmanager
def our_cluster():
    with Cluster(1, 3) as cluster:
        wait_until(lambda: all(len(node.client().cluster("SLOTS")) == 3 for node in cluster))
        yield cluster


CLUSTERS = (our_cluster, RedisCluster)


@dataclass
class KilledProcess:
    """BullMQ at all processes of a cluster whose default keyspace has three strict replicas, while one is killed. What
    it promises is that a job is done at least once: none may be lost, or fail."""

    jobs: int

    def run(self, tests: list[str], server, protocol: int) -> dict[str, str]:
        command = [tool("node"), "replicas.mjs", f"killed-{os.getpid()}", str(self.jobs), *map(str, ports(server))]
        last = ""
        with subprocess.Popen(command, cwd=node_modules(), stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if line.startswith("killed?") and isinstance(server, Cluster):
                    server.do(f"kill {next(iter(server)).name}")
                last = line
        told = json.loads(last)
        is_right = (told["done"], told["completed"], told["failed"]) == (self.jobs, self.jobs, 0)
        return {"bullmq:_no_job_is_lost": "passed" if is_right else f"failed: {last.strip()}"}


# --- The suites


def node_versions() -> dict[str, str]:
    return json.loads((HERE / "node/package.json").read_text())["dependencies"]


def go_versions() -> dict[str, str]:
    """Of each module, by the last part of its path that is no version."""
    found = re.findall(r"^\t(\S+) (v\S+)$", (HERE / "go/go.mod").read_text(), re.MULTILINE)
    return {re.sub(r"/v\d+$", "", path).rsplit("/", 1)[1]: version for path, version in found}


def suites(whole: bool) -> list[Suite]:
    """All suites; asynq's longer tests only where everything runs."""
    everything = [f"{PATTERN}.*"]
    of_go, of_node = go_versions(), node_versions()

    def suite(name: str, about: str, runner: Any, parts: list[list[str]], servers: tuple | None = None):
        folder = HERE / ("go" if isinstance(runner, Go) else "node")
        return Suite(name, about, folder, parts, told=True, runner=runner, servers=servers, home=folder)

    commands = f"{PATTERN}(Commands|PubSub|Tx|pool|pipelining|Client|ScanIterator|Redis|Monitor|Cmd|BitCount|races|UniversalClient).*"
    asynq_flags = ["-redis_addr=127.0.0.1:{port}"]
    found = [
        suite("JavaScript", "uses of " + ", ".join(f"{name} {of}" for name, of in of_node.items()), Node("*.test.mjs"), [everything]),
        suite(
            "JavaScript on a cluster",
            f"three processes: ioredis {of_node['ioredis']}, redis {of_node['redis']}",
            Node("*.cluster.mjs"),
            [everything],
            CLUSTERS,
        ),
        suite(
            "BullMQ and a killed process",
            f"three strict replicas, against one redis-server that lives: bullmq {of_node['bullmq']}",
            KilledProcess(60),
            [everything],
            (our_cluster, Redis),
        ),
        suite(f"go-redis {of_go['go-redis']}", "its own tests, without those of sentinels, rings, clusters and modules", GoRedis(GO_REDIS, []), [[commands]]),
        suite(f"asynq {of_go['asynq']}", "its own tests of what it keeps", Go(f"{ASYNQ}/internal/rdb", asynq_flags), [everything]),
        suite(
            f"redigo {of_go['redigo']}",
            "its own tests, which start the server",
            Go(f"{REDIGO}/redis", ["-redis-server={server}", "-redis-port={free}"]),
            [everything],
        ),
        suite("Go", "uses of " + ", ".join(f"{name} {of}" for name, of in of_go.items()), Go(".", [], skip="Cluster"), [everything]),
        suite("Go on a cluster", f"three processes: go-redis {of_go['go-redis']}", Go(".", []), [["TestClusterOfProcesses"]], CLUSTERS),
    ]
    if whole:
        found.append(suite(f"asynq-server {of_go['asynq']}", "asynq's own tests of servers and schedulers", Go(ASYNQ, asynq_flags), [everything]))
    return found
