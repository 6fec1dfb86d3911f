"""redlock-py: a lock held at most of several servers, here of one."""

import time

import pytest
from redlock import Redlock


@pytest.fixture
def manager(client, url):
    return Redlock([url], retry_count=2, retry_delay=0.01)


def test_one_holder_at_a_time(manager, client):
    held = manager.lock("resource", 10_000)
    assert held and 0 < held.validity < 10_000 and client.get("resource") == held.key.decode()
    assert manager.lock("resource", 10_000) is False
    manager.unlock(held)
    assert not client.exists("resource") and manager.lock("resource", 10_000)


def test_a_lock_ends_by_itself(manager):
    assert manager.lock("short", 50)
    time.sleep(0.1)
    assert manager.lock("short", 10_000)


def test_another_ones_lock_stays(manager, client):
    held = manager.lock("mine", 10_000)
    manager.unlock(held._replace(key=b"another"))
    assert client.get("mine") == held.key.decode()
