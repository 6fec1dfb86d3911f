"""Celery, RQ and huey on three strict replicas of which one is killed, and starts again, while jobs come and go."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from cluster import Cluster

JOBS = 120
# No wait is longer.
LIMIT_SECONDS = 60
WORKERS = {
    "celery": ["-m", "celery", "-A", "jobs:celery", "worker", "--pool=threads", "--concurrency=4", "--without-mingle", "--without-gossip"],
    "rq": ["-m", "rq.cli", "worker", "--worker-class", "rq.SimpleWorker", "--url"],
    "huey": ["-m", "huey.bin.huey_consumer", "jobs.huey", "--workers", "4"],
}
# How many jobs an application may lose, and how many it may carry out twice, when the connection of its worker breaks.
# A job is lost that was taken from the queue for a worker whom the answer did not reach: a worker of Celery, or of RQ,
# takes one at a time, one of huey as many as it has threads. Celery acknowledges late here: what reached it runs again.
LOST = {"celery": 1, "rq": 1, "huey": 4}
TWICE = {"celery": JOBS, "rq": 1, "huey": 0}


class Application:
    """Its worker, which is started again when it ends, and who gives it jobs."""

    def __init__(self, name: str, folder: Path):
        self.name = name
        self.folder = folder
        self.done = folder / "done"
        self.done.touch()
        self.stopped = threading.Event()

    def start(self, *arguments: str, url: str) -> subprocess.Popen:
        environment = {**os.environ, "APPS_URL": url, "APPS_DONE": str(self.done)}
        with open(self.folder / "output", "a") as output:
            return subprocess.Popen(
                [sys.executable, *arguments], cwd=Path(__file__).parent, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def supervise(self, url: str) -> None:
        """As production does it: a worker that ends is started again."""
        arguments = [*WORKERS[self.name], *([url] if self.name == "rq" else [])]
        while not self.stopped.is_set():
            worker = self.start(*arguments, url=url)
            while worker.poll() is None and not self.stopped.wait(0.05):
                pass
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()

    def runs(self) -> Counter:
        """How often each job was carried out."""
        return Counter(map(int, self.done.read_text().split()))

    def output(self) -> str:
        return (self.folder / "output").read_text()[-3000:]


def until(condition) -> bool:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def url(cluster: Cluster, name: str) -> str:
    return f"redis://127.0.0.1:{cluster[name].port}/0"


def carried_out(application: Application, worker_at: str, enough: int) -> Counter:
    """Jobs given at a/1 and carried out by a worker at a process, while c/1 is killed and started again."""
    with Cluster(3, 1) as cluster:
        [node.session("default") for node in cluster]
        supervisor = threading.Thread(target=application.supervise, args=[url(cluster, worker_at)])
        supervisor.start()
        try:
            producer = application.start("-c", f"import jobs; jobs.submit('{application.name}', {JOBS})", url=url(cluster, "a/1"))
            assert until(lambda: len(application.runs()) > JOBS // 8), application.output()
            cluster.do("kill c/1")
            if worker_at != "c/1":
                assert until(lambda: len(application.runs()) > JOBS // 2), application.output()
            cluster.do("restart c/1")
            assert producer.wait(LIMIT_SECONDS) == 0, application.output()
            assert until(lambda: len(application.runs()) >= enough), (set(range(JOBS)) - set(application.runs()), application.output())
            # Whoever would run twice has run twice, and who was only late has come.
            until_quiet(application)
        finally:
            application.stopped.set()
            supervisor.join()
    return application.runs()


def until_quiet(application: Application) -> None:
    seen, since = application.runs(), time.monotonic()
    while time.monotonic() < since + 1:
        time.sleep(0.1)
        if (now := application.runs()) != seen:
            seen, since = now, time.monotonic()


@pytest.mark.parametrize("name", WORKERS)
def test_each_job_runs_once_while_another_process_dies(name, tmp_path):
    runs = carried_out(Application(name, tmp_path), "b/1", JOBS)
    assert runs == Counter(range(JOBS))


@pytest.mark.parametrize("name", WORKERS)
def test_no_job_is_lost_when_the_workers_own_process_dies(name, tmp_path):
    runs = carried_out(Application(name, tmp_path), "c/1", JOBS - LOST[name])
    assert set(runs) <= set(range(JOBS)) and sum(runs.values()) - len(runs) <= TWICE[name]
