"""The application that test_celery.py's workers run: its broker and results are in the server that APPS_URL names."""

import os
import time

import redis
from celery import Celery, chord

URL = os.environ["APPS_URL"]
app = Celery("shop", broker=URL, backend=URL)
app.conf.update(
    # What a worker that died had taken goes to another after so many seconds.
    broker_transport_options={"visibility_timeout": 2},
    worker_prefetch_multiplier=1,
    result_chord_join_timeout=10,
    task_send_sent_event=True,
)
counters = redis.Redis.from_url(URL)


@app.task
def add(left, right):
    return left + right


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def count(name):
    return counters.incr(name)


@app.task
def fail(why):
    raise ValueError(why)


@app.task(bind=True, max_retries=5)
def flaky(self, name, failures):
    if counters.incr(name) <= failures:
        raise self.retry(countdown=0.05, exc=RuntimeError("not yet"))
    return self.request.retries


@app.task(bind=True)
def replaced(self, numbers):
    raise self.replace(chord([add.si(number, number) for number in numbers], total.s()))


@app.task(rate_limit="5/s")
def rated():
    return time.time()


@app.task(bind=True)
def progress(self, name):
    self.update_state(state="PROGRESS", meta={"done": 50})
    hold(name)
    return "done"


@app.task(acks_late=True, reject_on_worker_lost=True)
def late(name):
    """Says that it runs; waits for leave the first time, and counts how often it came to its end."""
    if counters.incr(f"{name}:begun") == 1:
        hold(name)
    return counters.incr(f"{name}:ended")


def hold(name):
    counters.set(f"{name}:pid", os.getpid())
    assert counters.blpop(f"{name}:leave", timeout=30), "nobody gave leave"
