"""rq-scheduler: jobs of RQ at their time."""

import datetime

import pytest
import redis
from rq import Queue, SimpleWorker
from rq_scheduler import Scheduler


def add(left, right):
    return left + right


@pytest.fixture
def scheduler(client, url):
    connection = redis.Redis.from_url(url)
    return Scheduler(queue_name="later", connection=connection)


def test_jobs_are_queued_at_their_time(scheduler):
    soon = scheduler.enqueue_in(datetime.timedelta(0), add, 1, 2)
    later = scheduler.enqueue_in(datetime.timedelta(hours=1), add, 3, 4)
    assert list(scheduler.get_jobs(with_times=False)) == [soon, later]
    assert list(scheduler.get_jobs_to_queue()) == [soon]
    scheduler.enqueue_jobs()
    SimpleWorker([Queue("later", connection=scheduler.connection)], connection=scheduler.connection).work(burst=True)
    assert soon.return_value() == 3 and soon not in scheduler and later in scheduler
    scheduler.cancel(later)
    assert later not in scheduler


def test_one_scheduler_at_a_time(scheduler, url):
    other = Scheduler(connection=redis.Redis.from_url(url))
    assert scheduler.acquire_lock() and not other.acquire_lock()
    scheduler.remove_lock()
    assert other.acquire_lock()
