"""Runs other projects' own tests, and documented uses of libraries, against redis-server and against our server, and
compares them test by test: what passes on redis-server must pass on ours, or be named in `*_differences.txt`.

`cargo xtask test apps` calls it. With UPDATE_DOCS=1 it removes from the lists what passes now, and rewrites
docs/reference/applications.md.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs/reference/applications.md"
sys.path.insert(0, str(HERE.parent / "process"))

import languages  # noqa: E402
from harness import Anabranch, Redis  # noqa: E402
from suites import STAND_INS, Suite, suites  # noqa: E402

# Both servers are told to let tests fake errors.
CONFIG = '[server]\nenable_debug_command = "local"\n'
# A run of one part against one server takes a minute.
LIMIT_SECONDS = 540
# So long a run may take to end after its report.
END_SECONDS = 5
# Tests mostly wait, so more runs go on at a time than there are cores.
PARALLEL_RUNS = 8
# So many tests that fail on our server alone are repeated, in case the machine was too slow for them.
MOST_REPEATED = 20


def run_part(suite: Suite, tests: list[str], server: Redis | Anabranch, protocol: int) -> dict[str, str]:
    """What became of each test."""
    if suite.runner:
        return suite.runner.run(tests, server, protocol)
    url = f"redis://127.0.0.1:{server.port}/0"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "outcomes.json"
        command = [sys.executable, "-m", "pytest", "-c", str(HERE / "pytest.ini"), f"--rootdir={suite.folder}"]
        command += ["-p", "outcomes", *suite.arguments, *tests]
        environment = {**os.environ, "APPS_OUTCOMES": str(report), "PYTHONPATH": str(HERE)}
        if suite.told:
            command += [f"--redis-url={url}", f"--protocol={protocol}"]
        else:
            environment |= {"APPS_PORT": str(server.port), "PYTHONPATH": f"{HERE}:{STAND_INS}"}
        environment |= suite.environment
        # Some tests start programs of their project.
        environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        # What a test left running must not keep this waiting, so the output goes to a file.
        output = Path(folder) / "output"
        with open(output, "w") as file:
            pytest = subprocess.Popen(command, cwd=suite.folder, env=environment, stdout=file, stderr=file, start_new_session=True)
            status = ended(pytest, report)
        if not report.exists() or status not in (0, 1, None):
            raise Broken(f"{suite.name}: pytest ended with {status} at {server.name}\n{output.read_text()[-5000:]}")
        return json.loads(report.read_text())


class Broken(Exception):
    """Tests that did not run to their end."""


def ended(pytest: subprocess.Popen, report: Path) -> int | None:
    """Waits for pytest's report and its end, ends what its tests left running, and returns the status; none if it did
    not end by itself, as when it waits for processes that a test has forgotten."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while pytest.poll() is None and not report.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(subprocess.TimeoutExpired):
        pytest.wait(END_SECONDS)
    status = pytest.poll()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pytest.pid, signal.SIGKILL)
    pytest.wait()
    return status


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


def begin(suite: Suite, protocol: int, pool: ThreadPoolExecutor) -> list[tuple[Future, ...]]:
    """Has the suite's parts run at both servers, or at ours only."""
    return [tuple(pool.submit(run_at, suite, part, start, protocol) for start in servers(suite)) for part in suite.parts]


def servers(suite: Suite) -> tuple:
    """Ours, then the one to compare with."""
    return (ours,) if suite.alone else suite.servers or (ours, theirs)


def compare(suite: Suite, protocol: int, runs: list[tuple[Future, ...]], pool: ThreadPoolExecutor) -> Outcome:
    """Waits for what was begun."""
    here, there = {}, {}
    for mine, *other in runs:
        here.update(mine.result())
        [there.update(run.result()) for run in other]
    if suite.alone:
        there = {test: "passed" for test, outcome in here.items() if outcome != "skipped"}
    passed = {test for test, outcome in there.items() if outcome == "passed"}
    failed = {test: here.get(test, "not run") for test in passed if here.get(test) != "passed"}
    known = suite.known()
    unknown = [test for test in failed if bare(test) not in known]
    if 0 < len(unknown) <= MOST_REPEATED:
        print(f"{suite.name}: repeats {len(unknown)} tests that failed on ours only")
        again = pool.submit(run_at, suite, unknown, servers(suite)[0], protocol).result()
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
        "fails the run, too. Own tests are those of the source distribution. Jobs while a process dies are not",
        "compared: they run on clusters, and all must pass.",
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


def says(page: str, found: str) -> bool:
    """Whether the page has all lines of what was found; those of suites that take long may be left over."""
    return set(without_counts(found).splitlines()) <= set(without_counts(page).splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=Path, required=True, help="the folder of the unpacked source distributions")
    parser.add_argument("--protocols", type=int, nargs="+", default=[2], help="versions of the protocol to speak")
    parser.add_argument("--long", action="store_true", help="run the suites that take long, too")
    parser.add_argument("--only", nargs="+", help="run the suites whose names begin so; the page is left alone")
    options = parser.parse_args()
    if "UPDATE_DOCS" in os.environ and not options.only:
        options.long = True
    began = time.monotonic()
    all_suites = [*suites(options.sources.resolve()), *languages.suites(whole=options.long)]
    chosen = [suite for suite in all_suites if options.long or not suite.long]
    if options.only:
        chosen = [suite for suite in chosen if suite.name.startswith(tuple(options.only))]
    with ThreadPoolExecutor(PARALLEL_RUNS) as pool:
        begun = [
            [(suite, protocol, begin(suite, protocol, pool)) for protocol in (options.protocols if suite.told else [2])]
            for suite in chosen
        ]
        found = [[compare(*one, pool) for one in runs] for runs in begun]
    fine = all([judge(outcomes) for outcomes in found])
    text = page([outcome for outcomes in found for outcome in outcomes if outcome.protocol == 2])
    if options.only:
        pass
    elif "UPDATE_DOCS" in os.environ:
        PAGE.write_text(text)
    elif not says(PAGE.read_text(), text):
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
