"""A plugin of pytest: writes what became of each test to the file that `APPS_OUTCOMES` names, as JSON."""

import json
import os

# By test: `passed`, `skipped`, or what went wrong, in one line.
outcomes: dict[str, str] = {}


def pytest_runtest_logreport(report):
    before = outcomes.get(report.nodeid, "passed")
    if report.failed:
        lines = str(report.longrepr).strip().splitlines() or ["failed"]
        outcomes[report.nodeid] = before if before not in ("passed", "skipped") else lines[-1]
    elif report.skipped:
        # A test that is expected to fail, and does, counts as skipped: it says nothing.
        outcomes[report.nodeid] = "skipped" if before == "passed" else before
    else:
        outcomes[report.nodeid] = before


def pytest_sessionfinish():
    with open(os.environ["APPS_OUTCOMES"], "w") as file:
        json.dump(outcomes, file)
