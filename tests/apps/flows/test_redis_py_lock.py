"""redis-py's Lock, as its documentation uses it."""

import threading
import time

import pytest
from redis.exceptions import LockError, LockNotOwnedError


def test_one_holder_at_a_time(client):
    counted = []

    def work():
        with client.lock("shop", timeout=10, blocking_timeout=10, sleep=0.01):
            seen = int(client.get("stock") or 0)
            time.sleep(0.01)
            client.set("stock", seen + 1)
            counted.append(seen)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert client.get("stock") == "8" and sorted(counted) == list(range(8))


def test_who_does_not_hold_it_cannot_release_it(client):
    holder, other = client.lock("one", timeout=10), client.lock("one", timeout=10)
    assert holder.acquire(blocking=False) and not other.acquire(blocking=False)
    with pytest.raises(LockError):
        other.release()
    holder.release()
    assert other.acquire(blocking=False) and other.owned()


def test_an_expired_lock_is_lost(client):
    lock = client.lock("short", timeout=0.05)
    assert lock.acquire()
    time.sleep(0.1)
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_it_is_extended_and_renewed(client):
    lock = client.lock("long", timeout=5)
    assert lock.acquire() and lock.extend(5) and 9000 <= client.pttl("long") <= 10000
    assert lock.reacquire() and client.pttl("long") <= 5000
    lock.release()
    assert not client.exists("long")
