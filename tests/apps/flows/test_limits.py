"""The library limits: its strategies keep their counts in scripts."""

import pytest
from limits import parse
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter


@pytest.fixture
def storage(client, url):
    return storage_from_string(url)


@pytest.mark.parametrize("strategy", [FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter])
def test_so_many_and_no_more(storage, strategy):
    limiter, limit = strategy(storage), parse("5/hour")
    assert [limiter.hit(limit, "shop", "ada") for _ in range(7)] == [True] * 5 + [False] * 2
    assert not limiter.test(limit, "shop", "ada") and limiter.test(limit, "shop", "bob")
    window = limiter.get_window_stats(limit, "shop", "ada")
    assert window.remaining == 0 and window.reset_time > 0
    limiter.clear(limit, "shop", "ada")
    assert limiter.hit(limit, "shop", "ada")


def test_a_hit_may_cost_more(storage):
    limiter, limit = MovingWindowRateLimiter(storage), parse("10/minute")
    assert limiter.hit(limit, "export", cost=8) and not limiter.hit(limit, "export", cost=3)
    assert limiter.hit(limit, "export", cost=2)


def test_the_storage_itself(storage):
    assert storage.check() and storage.incr("page", 60) == 1 and storage.incr("page", 60, amount=4) == 5
    assert storage.get("page") == 5 and storage.get_expiry("page") > 0
    storage.incr("other", 60)
    assert storage.reset() == 2 and storage.get("page") == 0
