"""Django's cache, with its own backend for Redis and with django-redis."""

import pytest
from django.conf import settings
from django.core.cache import caches

settings.configure(CACHES={})


BACKENDS = ["django.core.cache.backends.redis.RedisCache", "django_redis.cache.RedisCache"]


@pytest.fixture(params=BACKENDS)
def cache(request, client, url):
    settings.CACHES = {"default": {"BACKEND": request.param, "LOCATION": url, "KEY_PREFIX": "site"}}
    caches.settings = caches.configure_settings(None)
    yield caches.create_connection("default")


def test_values_and_deadlines(cache, client):
    cache.set("user", {"name": "ü", "ids": [1, 2]}, timeout=60)
    assert cache.get("user") == {"name": "ü", "ids": [1, 2]} and cache.get("nobody", "x") == "x"
    assert 0 < client.ttl("site:1:user") <= 60
    assert cache.touch("user", 600) and client.ttl("site:1:user") > 60
    cache.set("for ever", 1, timeout=None)
    assert client.ttl("site:1:for ever") == -1
    assert cache.delete("user") and not cache.delete("user") and "user" not in cache


def test_add_and_count(cache):
    assert cache.add("once", 1) and not cache.add("once", 2)
    assert cache.incr("once") == 2 and cache.incr("once", 10) == 12 and cache.decr("once", 2) == 10
    with pytest.raises(ValueError):
        cache.incr("nothing")
    assert cache.get_or_set("made", lambda: "now") == "now"


def test_many_at_once(cache):
    cache.set_many({f"key{number}": number for number in range(50)}, timeout=60)
    found = cache.get_many([f"key{number}" for number in range(60)])
    assert found == {f"key{number}": number for number in range(50)}
    cache.delete_many([f"key{number}" for number in range(25)])
    assert len(cache.get_many(found)) == 25
    cache.clear()
    assert cache.get_many(found) == {}


def test_versions(cache):
    cache.set("page", "old", version=1)
    assert cache.incr_version("page") == 2
    assert cache.get("page", version=2) == "old" and cache.get("page", version=1) is None


@pytest.mark.parametrize("cache", BACKENDS[1:], indirect=True)
def test_what_django_redis_adds(cache, client):
    cache.set_many({"a:1": 1, "a:2": 2, "b:1": 3})
    assert sorted(cache.iter_keys("a:*")) == ["a:1", "a:2"] and cache.delete_pattern("a:*") == 2
    assert cache.keys("*") == ["b:1"] and cache.persist("b:1") and cache.ttl("b:1") is None
    assert cache.set("b:1", 4, nx=True) is False and cache.expire("b:1", 30) and cache.ttl("b:1") <= 30
    with cache.lock("b", timeout=5):
        assert client.keys("site:1:b") == ["site:1:b"]
