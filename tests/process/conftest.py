"""What every test may ask for: a server of ours in memory, emptied before each test, and clients of it."""

import sys
from pathlib import Path

import pytest

from harness import Anabranch, Redis

for example in ("retwis", "branches", "mergeable"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / example))


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: takes long; `cargo xtask test` leaves it to `cargo xtask soak`")


@pytest.fixture(scope="module")
def shared_server():
    with Anabranch() as server:
        yield server


@pytest.fixture
def server(shared_server):
    """Our server, empty. A test that ends it must start one of its own instead."""
    with shared_server.raw() as connection:
        assert connection.call("FLUSHALL").raw == b"+OK\r\n"
    yield shared_server
    assert shared_server.is_running(), shared_server.stderr()


@pytest.fixture(scope="module")
def peer():
    with Redis() as redis_server:
        yield redis_server


@pytest.fixture
def client(server):
    """A redis-py client that decodes replies."""
    with server.client(decode_responses=True) as connection:
        yield connection
