"""Runs other projects' own tests, and documented uses of libraries, against redis-server and against our server, and
compares them test by test: what passes on redis-server must pass on ours, or be named in `*_differences.txt`.

`cargo xtask test apps` calls it. With UPDATE_DOCS=1 it removes from the lists what passes now, and rewrites
docs/reference/applications.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs/reference/applications.md"
sys.path.insert(0, str(HERE.parent / "process"))

import languages  # noqa: E402
from harness import Anabranch, Redis  # noqa: E402

# Both servers are told to let tests fake errors.
CONFIG = '[server]\nenable_debug_command = "local"\n'
# A run of one part against one server takes a minute.
LIMIT_SECONDS = 540
# So many tests that fail on our server alone are repeated, in case the machine was too slow for them.
MOST_REPEATED = 20


@dataclass
class Suite:
    """Tests that pytest runs, in parts that run beside one another, each against servers of its own."""

    name: str
    about: str
    folder: Path
    parts: list[list[str]]
    arguments: list[str]
    differences: Path
    # What runs it, where that is not pytest: see `languages`.
    runner: Any = None
    # What starts our server and theirs, where these are not single processes.
    servers: tuple | None = None

    def known(self) -> dict[str, str]:
        """The tests that may differ, parameters left out, each with its reason."""
        lines = self.differences.read_text().splitlines() if self.differences.exists() else []
        return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def suites(source: Path) -> list[Suite]:
    modules = ["search", "json", "bloom", "graph", "timeseries"]
    left_out = [f"--ignore-glob=*test_{name}" for name in [*(f"{name}.py" for name in modules), "cluster.py", "ssl.py"]]
    marks = ["-m", "not (redismod or ssl or onlycluster or replica)"]
    redis_py = Suite(
        name=f"redis-py {version('redis')}",
        about="its own tests, without those of modules, TLS and Redis Cluster",
        folder=source,
        parts=[["tests", "--ignore=tests/test_asyncio"], ["tests/test_asyncio"]],
        arguments=[*marks, *left_out, "--ignore-glob=*test_graph_utils*"],
        differences=HERE / "redis_py_differences.txt",
    )
    libraries = ["redis", "django", "django-redis", "limits", "redlock-py", "dramatiq"]
    flows = Suite(
        name="documented uses",
        about="of " + ", ".join(f"{name} {version(name)}" for name in libraries),
        folder=HERE / "flows",
        parts=[["."]],
        arguments=[],
        differences=HERE / "flows_differences.txt",
    )
    return [redis_py, flows]


def run_part(suite: Suite, tests: list[str], server: Redis | Anabranch, protocol: int) -> dict[str, str]:
    """What became of each test."""
    if suite.runner:
        return suite.runner.run(tests, server, protocol)
    url = f"redis://127.0.0.1:{server.port}/0"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "outcomes.json"
        command = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), f"--rootdir={suite.folder}"]
        command += ["-p", "outcomes", f"--redis-url={url}", f"--protocol={protocol}", *suite.arguments, *tests]
        environment = {**os.environ, "APPS_OUTCOMES": str(report), "PYTHONPATH": str(HERE)}
        done = subprocess.run(
            command, cwd=suite.folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
        )
        if not report.exists() or done.returncode not in (0, 1):
            sys.exit(f"{suite.name}: pytest ended with {done.returncode} at {server.name}\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
        return json.loads(report.read_text())


def run_at(suite: Suite, tests: list[str], start, protocol: int) -> dict[str, str]:
    with start() as server:
        return run_part(suite, tests, server, protocol)


def ours() -> Anabranch:
    """With a directory, since tests save."""
    return Anabranch("everysec", CONFIG)


def theirs() -> Redis:
    return Redis(arguments=["--enable-debug-command", "local"])


@dataclass
class Outcome:
    """What came of a suite with one version of the protocol."""

    suite: Suite
    protocol: int
    passed_there: set[str]
    failed_here: dict[str, str]

    def counts(self) -> tuple[int, int]:
        return len(self.passed_there) - len(self.failed_here), len(self.passed_there)


def compare(suite: Suite, protocol: int, pool: ThreadPoolExecutor) -> Outcome:
    """Runs the suite at both servers."""
    mine, others = suite.servers or (ours, theirs)
    runs = [(part, pool.submit(run_at, suite, part, mine, protocol), pool.submit(run_at, suite, part, others, protocol)) for part in suite.parts]
    here, there = {}, {}
    for _, run_here, run_there in runs:
        here.update(run_here.result())
        there.update(run_there.result())
    passed = {test for test, outcome in there.items() if outcome == "passed"}
    failed = {test: here.get(test, "not run") for test in passed if here.get(test) != "passed"}
    known = suite.known()
    unknown = [test for test in failed if bare(test) not in known]
    if 0 < len(unknown) <= MOST_REPEATED:
        print(f"{suite.name}: repeats {len(unknown)} tests that failed on ours only")
        again = pool.submit(run_at, suite, unknown, mine, protocol).result()
        failed = {test: why for test, why in failed.items() if again.get(test) != "passed"}
    return Outcome(suite, protocol, passed, failed)


def bare(test: str) -> str:
    """A test without its parameters."""
    return test.split("[")[0]


def judge(outcomes: list[Outcome]) -> bool:
    """Tells what was found; false if the list of differences does not say the same."""
    suite, fine = outcomes[0].suite, True
    for outcome in outcomes:
        here, there = outcome.counts()
        print(f"{suite.name}, RESP{outcome.protocol}: {here} of {there} tests that pass on redis-server pass here")
        for test, why in sorted(outcome.failed_here.items()):
            if bare(test) not in suite.known():
                fine = False
                print(f"  FAILED here only: {test}: {why}")
    differ = {bare(test) for outcome in outcomes for test in outcome.failed_here}
    # Of a test that does not pass on redis-server, or not with this version of the protocol, nothing is known.
    passed = {(bare(test), outcome.protocol) for outcome in outcomes for test in outcome.passed_there}
    stale = [
        test
        for test, reason in suite.known().items()
        if test not in differ and ((test, 3) in passed or ((test, 2) in passed and not reason.startswith("RESP3: ")))
    ]
    if stale and "UPDATE_DOCS" in os.environ:
        kept = [line for line in suite.differences.read_text().splitlines() if line.split(maxsplit=1)[:1] not in [[test] for test in stale]]
        suite.differences.write_text("\n".join(kept) + "\n")
    elif stale:
        fine = False
        print(f"  {suite.differences.name} names tests that pass now; UPDATE_DOCS=1 removes them:")
        print("".join(f"    {test}\n" for test in stale), end="")
    return fine


def page(outcomes: list[Outcome]) -> str:
    lines = [
        "# Applications and their own tests",
        "",
        "`cargo xtask test apps` makes this page: it runs tests of other projects against redis-server and",
        "against one process of Anabranch with a strict keyspace, and compares them test by test. A test that",
        "passes on redis-server and not here is listed below, or the run fails; one that is listed and passes",
        "fails the run, too.",
        "",
        "| suite | what | protocol | passed here | of those that pass on redis-server |",
        "|---|---|---|---|---|",
    ]
    for outcome in outcomes:
        here, there = outcome.counts()
        lines.append(f"| {outcome.suite.name} | {outcome.suite.about} | RESP{outcome.protocol} | {here} | {there} |")
    for suite in {outcome.suite.name: outcome.suite for outcome in outcomes}.values():
        by_reason: dict[str, list[str]] = {}
        for test, reason in suite.known().items():
            by_reason.setdefault(reason, []).append(test)
        if by_reason:
            lines += ["", f"## What differs of {suite.name}", ""]
        for reason, tests in by_reason.items():
            lines += [f"- {reason}:", *(f"  - `{test.removeprefix('tests/')}`" for test in sorted(tests))]
    return "\n".join(lines) + "\n"


def without_counts(text: str) -> str:
    """Some tests of others fail now and then wherever they run, so the numbers of one run are no promise."""
    return re.sub(r"\| \d+ \| \d+ \|", "", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis-py", type=Path, required=True, help="the folder of redis-py's source distribution")
    parser.add_argument("--only", default="", help="a part of the names of the suites to run; the page is not looked at then")
    parser.add_argument("--protocols", type=int, nargs="+", default=[2], help="versions of the protocol to speak")
    options = parser.parse_args()
    began = time.monotonic()
    all_suites = [*suites(options.redis_py.resolve()), *languages.suites(Suite, whole=len(options.protocols) > 1)]
    chosen = [suite for suite in all_suites if options.only in suite.name]
    with ThreadPoolExecutor(8) as pool:
        found = [[compare(suite, protocol, pool) for protocol in options.protocols] for suite in chosen]
    fine = all([judge(outcomes) for outcomes in found])
    text = page([outcome for outcomes in found for outcome in outcomes if outcome.protocol == 2])
    if options.only:
        print(text)
    elif "UPDATE_DOCS" in os.environ:
        PAGE.write_text(text)
    elif without_counts(PAGE.read_text()) != without_counts(text):
        fine = False
        print(f"{PAGE.relative_to(ROOT)} says something else; run this with UPDATE_DOCS=1, and look at what changed")
    here = sum(outcome.counts()[0] for outcomes in found for outcome in outcomes)
    there = sum(outcome.counts()[1] for outcomes in found for outcome in outcomes)
    processor = os.times()
    seconds = processor.children_user + processor.children_system
    print(f"{here} of {there} tests that pass on redis-server pass here, in {time.monotonic() - began:.0f} s, {seconds:.0f} s of CPU time")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
