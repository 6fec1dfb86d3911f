"""dramatiq: tasks through its broker for Redis, whose queues are lists, sets and sorted sets in scripts."""

import threading
import time

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend


@pytest.fixture
def broker(client, url):
    broker = RedisBroker(url=url)
    broker.add_middleware(Results(backend=RedisBackend(url=url)))
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def worker(broker):
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=4)
    worker.start()
    yield worker
    worker.stop()


def test_tasks_are_carried_out_once_each(broker, worker):
    done, lock = [], threading.Lock()

    @dramatiq.actor(queue_name="orders")
    def order(number):
        with lock:
            done.append(number)

    [order.send(number) for number in range(100)]
    broker.join("orders", timeout=20_000)
    worker.join()
    assert sorted(done) == list(range(100))


def test_a_task_that_fails_is_repeated(broker, worker):
    tries = []

    @dramatiq.actor(queue_name="flaky", max_retries=3, min_backoff=10, max_backoff=20)
    def flaky():
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise RuntimeError("on purpose")

    flaky.send()
    broker.join("flaky", timeout=20_000)
    worker.join()
    assert len(tries) == 3


def test_delayed_tasks_wait(broker, worker, client):
    ran = threading.Event()
    dramatiq.actor(ran.set, actor_name="later", queue_name="later").send_with_options(delay=300)
    assert not ran.wait(0.1) and ran.wait(10)
