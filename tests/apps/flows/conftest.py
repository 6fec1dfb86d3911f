"""What every documented use is given: the server's address, and a client; nothing is left behind."""

import pytest
import redis


def pytest_addoption(parser):
    parser.addoption("--redis-url")
    parser.addoption("--protocol", type=int)


@pytest.fixture
def url(request):
    return request.config.getoption("--redis-url")


@pytest.fixture
def client(request, url):
    with redis.Redis.from_url(url, protocol=request.config.getoption("--protocol"), decode_responses=True) as client:
        client.flushall()
        yield client
