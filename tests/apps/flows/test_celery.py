"""Celery: broker and results in the server, the worker a process as in production."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import redis
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

# No wait is longer.
LIMIT_SECONDS = 25


class Worker:
    """`celery worker`, in a group of processes that can be killed at once."""

    def __init__(self, url: str, name: str, *arguments: str):
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "--events", "-n", f"{name}@shop", *arguments]
        self.process = subprocess.Popen(
            command, cwd=Path(__file__).parent, env={**os.environ, "APPS_URL": url}, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(LIMIT_SECONDS)


def until(condition):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def server(request):
    url = request.config.getoption("--redis-url")
    with redis.Redis.from_url(url, decode_responses=True) as server:
        server.flushall()
        yield server


@pytest.fixture(scope="module")
def tasks(request, server):
    os.environ["APPS_URL"] = request.config.getoption("--redis-url")
    yield importlib.import_module("celery_tasks")


@pytest.fixture(scope="module")
def worker(tasks):
    worker = Worker(tasks.URL, "first", "--concurrency=4")
    until(lambda: tasks.app.control.ping(timeout=0.3))
    yield worker
    assert worker.stop() == 0


def get(result):
    return result.get(timeout=LIMIT_SECONDS)


def test_results_and_errors(tasks, worker):
    results = [tasks.add.delay(number, 1) for number in range(50)]
    assert [get(result) for result in results] == list(range(1, 51))
    failed = tasks.fail.delay("on purpose")
    with pytest.raises(ValueError, match="on purpose"):
        get(failed)
    assert failed.state == "FAILURE" and "on purpose" in failed.traceback
    results[0].forget()
    assert tasks.app.AsyncResult(results[0].id).state == "PENDING"


def test_a_result_expires(tasks, worker, server):
    result = tasks.add.delay(1, 1)
    assert get(result) == 2 and 80_000 < server.ttl(f"celery-task-meta-{result.id}") <= 86_400


def test_retries(tasks, worker):
    assert get(tasks.flaky.delay("flaky", 3)) == 3
    with pytest.raises(RuntimeError, match="not yet"):
        get(tasks.flaky.delay("hopeless", 100))


def test_chains_groups_and_chords(tasks, worker):
    add, total = tasks.add, tasks.total
    assert get(chain(add.s(1, 2), add.s(3), add.s(4))()) == 10
    assert get(group(add.s(number, number) for number in range(20))()) == [2 * number for number in range(20)]
    assert get(chord(add.s(number, 1) for number in range(30))(total.s())) == 465
    # A chain of groups becomes chords in chords.
    nested = chain(group(add.si(1, 1), add.si(2, 2)), total.s(), group(add.s(10), add.s(20)), total.s())
    assert get(nested()) == 42
    assert get(tasks.replaced.delay([1, 2, 3])) == 12


def test_a_chord_whose_part_fails_fails(tasks, worker):
    result = chord([tasks.add.s(1, 1), tasks.fail.s("part")])(tasks.total.s())
    with pytest.raises(Exception, match="part"):
        get(result)


def test_countdown_eta_and_expiry(tasks, worker, server):
    began = time.monotonic()
    waiting = tasks.add.apply_async((1, 1), countdown=1)
    late = tasks.count.apply_async(("expired",), countdown=0.5, expires=0.2)
    assert get(waiting) == 2 and time.monotonic() - began >= 1
    with pytest.raises(TaskRevokedError):
        get(late)
    assert not server.exists("expired")


def test_a_revoked_task_does_not_run(tasks, worker, server):
    result = tasks.count.apply_async(("revoked",), countdown=1)
    result.revoke()
    with pytest.raises(TaskRevokedError):
        get(result)
    assert not server.exists("revoked")


def test_a_running_task_is_terminated(tasks, worker, server):
    result = tasks.progress.delay("terminated")
    until(lambda: server.get("terminated:pid"))
    result.revoke(terminate=True, signal="SIGKILL")
    with pytest.raises(TaskRevokedError):
        get(result)


def test_states_on_the_way(tasks, worker, server):
    result = tasks.progress.delay("states")
    until(lambda: result.state == "PROGRESS")
    assert result.info == {"done": 50}
    server.rpush("states:leave", 1)
    assert get(result) == "done" and result.state == "SUCCESS"


def test_rate_limits(tasks, worker):
    times = sorted(get(tasks.rated.delay()) for _ in range(1)) + sorted(map(get, [tasks.rated.delay() for _ in range(6)]))
    assert times[-1] - times[0] >= 0.9


def test_remote_control(tasks, worker):
    inspect = tasks.app.control.inspect(timeout=1)
    assert inspect.ping() == {"first@shop": {"ok": "pong"}} and "celery_tasks.add" in inspect.registered()["first@shop"]
    assert inspect.stats()["first@shop"]["broker"]["transport"] == "redis"
    tasks.app.control.add_consumer("other", destination=["first@shop"], reply=True, timeout=1)
    assert get(tasks.add.apply_async((2, 3), queue="other")) == 5


def test_events(tasks, worker):
    seen, done = [], threading.Event()

    def on_event(event):
        seen.append((event["type"], event.get("uuid")))
        if event["type"] == "task-succeeded":
            done.set()

    with tasks.app.connection() as connection:
        receiver = tasks.app.events.Receiver(connection, handlers={"*": on_event})
        consumer = receiver.itercapture(limit=None, timeout=LIMIT_SECONDS)
        next(consumer)
        result = tasks.add.delay(1, 1)
        for _ in consumer:
            if done.is_set():
                break
    types = [type for type, uuid in seen if uuid == result.id]
    assert {"task-sent", "task-received", "task-started", "task-succeeded"} <= set(types)


def test_priorities_and_broadcast_queues(tasks, worker):
    results = [tasks.add.apply_async((number, 0), priority=number % 10) for number in range(20)]
    assert [get(result) for result in results] == list(range(20))


def test_a_late_task_outlives_its_process(tasks, worker, server):
    result = tasks.late.delay("child")
    os.kill(int(until(lambda: server.get("child:pid"))), signal.SIGKILL)
    assert get(result) == 1 and server.get("child:begun") == "2"


def test_a_late_task_outlives_its_worker(tasks, server):
    """Of a worker of its own, with a queue of its own, that is killed with all its processes."""
    first = Worker(tasks.URL, "doomed", "--concurrency=1", "-Q", "late")
    result = tasks.late.apply_async(("whole",), queue="late")
    until(lambda: server.get("whole:pid"))
    first.kill()
    second = Worker(tasks.URL, "heir", "--concurrency=1", "-Q", "late")
    try:
        assert get(result) == 1 and server.get("whole:begun") == "2"
    finally:
        second.kill()
