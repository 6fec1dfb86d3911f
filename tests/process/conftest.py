"""What every test may ask for: a server of ours in memory, emptied before each test, and clients of it."""

import sys
from pathlib import Path

import pytest

from harness import Anabranch, Redis

# What takes longest begins first where files run beside one another, with `--no-loadscope-reorder`: nothing long is left when
# the others have ended.
LONGEST = [
    "cluster",
    "blocking",
    "memory",
    "copies",
    "crowds",
    "keyspaces",
    "tracking",
    "spill",
    "pocc",
    "cops",
    "epochs",
    "histories",
    "damage",
    "branch",
    "user_types",
    "compatibility",
    "healing",
    "bad_input",
    "pubsub",
    "transactions",
    "types",
    "conflicts",
    "kill",
    "one_process",
]

for example in ("retwis", "branches", "mergeable"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / example))


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: takes long; `cargo xtask test` leaves it to `cargo xtask soak`")


def pytest_collection_modifyitems(items):
    place = {Path(__file__).parent / f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    gone = [path.name for path in place if not path.exists()]
    assert not gone, f"LONGEST in conftest.py names what is not there: {gone}"
    items.sort(key=lambda item: place.get(item.path, len(place)))


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
