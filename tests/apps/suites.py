"""Which tests of other projects run, and how each is told where the server is."""

from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Where what other projects' tests need beside a server of Redis is replaced.
STAND_INS = HERE / "stand_ins"
# What starts servers and clusters.
PROCESS = HERE.parent / "process"


@dataclass
class Suite:
    """Tests that pytest runs, in parts that run beside one another, each against servers of its own."""

    name: str
    about: str
    folder: Path
    parts: list[list[str]]
    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    # Whether its tests are told the server's address and the protocol; others connect to Redis' usual port.
    told: bool = False
    # Whether it starts our clusters itself: nothing is compared, and all of it must pass.
    alone: bool = False
    # Whether only the whole form runs it.
    long: bool = False
    # What runs it, where that is not pytest: see `languages`.
    runner: Any = None
    # What starts our server and theirs, where these are not single processes.
    servers: tuple | None = None
    # Where the file of differences lies.
    home: Path = HERE

    @property
    def differences(self) -> Path:
        return self.home / f"{self.name.split()[0].replace('-', '_').lower()}_differences.txt"

    def known(self) -> dict[str, str]:
        """The tests that may differ, parameters left out, each with its reason."""
        lines = self.differences.read_text().splitlines() if self.differences.exists() else []
        return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def suites(sources: Path) -> list[Suite]:
    """All of them; `sources` holds the unpacked source distributions, each in the folder `name-version`."""
    return [redis_py(sources), documented_uses(), *applications(sources), jobs()]


def source_of(sources: Path, package: str) -> Path:
    folder = f"{package}-{version(package)}".lower()
    return next(path for path in sources.iterdir() if path.name.lower().replace("_", "-") == folder.replace("_", "-"))


def redis_py(sources: Path) -> Suite:
    modules = ["search", "json", "bloom", "graph", "timeseries"]
    left_out = [f"--ignore-glob=*test_{name}" for name in [*(f"{name}.py" for name in modules), "cluster.py", "ssl.py"]]
    marks = ["-m", "not (redismod or ssl or onlycluster or replica)"]
    return Suite(
        name=f"redis-py {version('redis')}",
        about="its own tests, without those of modules, TLS and Redis Cluster",
        folder=source_of(sources, "redis"),
        parts=[["tests", "--ignore=tests/test_asyncio"], ["tests/test_asyncio"]],
        arguments=[*marks, *left_out, "--ignore-glob=*test_graph_utils*"],
        told=True,
    )


def documented_uses() -> Suite:
    libraries = ["redis", "django", "django-redis", "limits", "redlock-py", "dramatiq", "celery", "python-socketio"]
    libraries += ["Flask-Session", "taskiq-redis", "rq-scheduler"]
    return Suite(
        name="documented uses",
        about="of " + ", ".join(f"{name} {version(name)}" for name in libraries),
        folder=HERE / "flows",
        parts=[["test_celery.py"], [".", "--ignore=test_celery.py"]],
        # Most of it is for workers of Celery that start and end.
        arguments=["--timeout=60"],
        told=True,
    )


def jobs() -> Suite:
    names = ["celery", "rq", "huey"]
    return Suite(
        name="jobs while a process dies",
        about="of " + ", ".join(f"{name} {version(name)}" for name in names) + " on three strict replicas",
        folder=HERE / "clusters",
        parts=[["test_jobs.py", "-k", name] for name in names],
        arguments=["--timeout=240"],
        environment={"PYTHONPATH": f"{HERE}:{PROCESS}"},
        alone=True,
    )


def applications(sources: Path) -> list[Suite]:
    """Those whose own tests connect to Redis' usual port."""

    def own(package: str, about: str, parts: list[list[str]], *arguments: str, **others) -> Suite:
        return Suite(f"{package} {version(package)}", about, source_of(sources, package), parts, list(arguments), **others)

    # Of these two, pytest finds classes by another name.
    test_classes = ["-o", "python_classes=test_* Test*"]
    # With CI=true they expect that a server runs.
    started = {"environment": {"CI": "true"}}
    return [
        own("kombu", "its own tests of the transport over Redis", [["t/integration/test_redis.py"]], *test_classes),
        own("rq", "its own tests", rq_parts(source_of(sources, "rq"))),
        own("huey", "its own tests with the storage in Redis", [["huey/tests"]], "-k", "Redis or redis"),
        own("channels-redis", "its own tests, without those of Sentinel", [["tests/test_core.py"], ["tests/test_pubsub.py"]]),
        # One expects an answer within a millisecond.
        own("arq", "its own tests", [["tests"]], "--deselect=tests/test_worker.py::test_default_job_expiry"),
        own("cachelib", "its own tests of the cache in Redis", [["tests/test_redis_cache.py"]], "-p", "xprocess", **started),
        own("Flask-Caching", "its own tests of backends", [["tests/test_backend_cache.py"]], "-p", "xprocess", **started),
        own("aiocache", "its own acceptance tests with Redis", [["tests/acceptance"]], "-k", "redis"),
        own("APScheduler", "its own tests of the job store in Redis", [["tests/test_jobstores.py"]], "-k", "redis"),
        own("walrus", "its own tests, without those of modules", [["walrus/tests/__init__.py"]]),
    ]


def rq_parts(source: Path) -> list[list[str]]:
    """Its tests mostly wait, so they run in several parts."""
    alone = ["tests/test_worker.py", "tests/test_cli.py", "tests/test_scheduler.py"]
    rest = sorted(str(path.relative_to(source)) for path in source.glob("tests/test_*.py"))
    rest = [path for path in rest if path not in alone]
    return [*([path] for path in alone), rest[::2], rest[1::2]]
