"""What clients and tools ask when they connect gets the replies of redis-server."""

import pytest

from harness import Anabranch, Redis

CONFIG = '[server]\nenable_debug_command = "local"\n'
# By StackExchange.Redis, Lettuce, RedisInsight, Sentinel-aware clients and Redis's own test harness.
SAME = {
    "StackExchange.Redis": [
        ["CLIENT", "SETNAME", "machine"],
        ["CONFIG", "GET", "databases"],
        ["CONFIG", "GET", "timeout"],
        ["SENTINEL", "MASTERS"],
        ["CLUSTER", "NODES"],
        ["GET", "__Booksleeve_TieBreak"],
        ["ECHO", b"\x00\xff\r\n\x80"],
        ["SUBSCRIBE", "__Booksleeve_MasterChanged"],
        ["UNSUBSCRIBE", "__Booksleeve_MasterChanged"],
        ["PING"],
    ],
    "Lettuce": [["CLIENT", "SETNAME", "lettuce"], ["PING"], ["READONLY"], ["ROLE"], ["COMMAND", "INFO", "get", "nothere"]],
    "RedisInsight": [
        ["MODULE", "LIST"],
        ["CLIENT", "NO-EVICT", "on"],
        ["MEMORY", "USAGE", "nokey"],
        ["OBJECT", "ENCODING", "nokey"],
        ["SELECT", "0"],
        ["DBSIZE"],
        ["SCAN", "0", "MATCH", "*", "COUNT", "100", "TYPE", "string"],
        ["CONFIG", "GET", "notify-keyspace-events"],
        ["CONFIG", "GET", "requirepass"],
        ["CONFIG", "GET", "maxmemory"],
    ],
    "a test harness": [
        ["CONFIG", "SET", "save", ""],
        ["CONFIG", "GET", "save"],
        ["FLUSHALL"],
        ["CONFIG", "RESETSTAT"],
        ["SCRIPT", "FLUSH"],
        ["DEBUG", "SLEEP", "0"],
        ["CONFIG", "SET", "hash-max-listpack-entries", "512"],
        ["CONFIG", "SET", "list-max-ziplist-size", "-2"],
        ["CONFIG", "SET", "maxmemory", "0"],
        ["CONFIG", "SET", "slowlog-log-slower-than", "10000"],
        ["WAIT", "0", "0"],
    ],
}


@pytest.fixture(scope="module")
def servers():
    with Anabranch(None, CONFIG) as ours, Redis(arguments=["--enable-debug-command", "local"]) as theirs:
        yield ours, theirs


@pytest.mark.parametrize("who", SAME)
def test_a_handshake_is_answered_as_by_redis(servers, who):
    ours, theirs = servers
    with ours.raw() as here, theirs.raw() as there:
        for words in SAME[who]:
            assert here.call(*words).raw == there.call(*words).raw, words


def test_what_a_greeting_tells(servers):
    """Fields that differ by nature have the same names and places."""
    for protocol in ("2", "3"):
        told = []
        for server in servers:
            with server.raw() as connection:
                told.append(connection.call("HELLO", protocol, "SETNAME", "client").raw)
        assert [reply.split(b"$4\r\nmode")[1] for reply in told][0] == told[1].split(b"$4\r\nmode")[1]
        assert told[0].split(b"$2\r\nid")[0] == told[1].split(b"$2\r\nid")[0]


def test_info_has_the_fields_that_clients_look_for(servers):
    wanted = {
        "server": {"redis_version", "redis_mode", "os", "arch_bits", "process_id", "run_id", "tcp_port", "uptime_in_seconds", "uptime_in_days"},
        "memory": {"used_memory", "used_memory_human", "used_memory_peak_human", "used_memory_peak_perc", "maxmemory_policy"},
    }
    for section, fields in wanted.items():
        for server in servers:
            assert fields <= set(server.client().info(section)), (server.name, section)


def test_a_master_without_replicas_says_what_redis_says(servers):
    """A client that looks for a master's history finds one, and no process refuses writes as Redis's replicas do."""
    told = []
    for server in servers:
        client = server.client()
        replication = client.info("replication")
        assert len(replication.pop("master_replid")) == 40, server.name
        told.append((replication, client.config_get("replica-read-only"), client.config_get("slave-read-*")))
    assert told[0] == told[1] and told[0][1:] == ({"replica-read-only": "yes"}, {"slave-read-only": "yes"})


def test_debug_sleep_is_a_slow_command(servers):
    for server in servers:
        client = server.client()
        client.config_set("latency-monitor-threshold", 50)
        client.config_set("slowlog-log-slower-than", 50_000)
        client.slowlog_reset()
        client.execute_command("LATENCY", "RESET")
        assert client.execute_command("DEBUG", "SLEEP", "0.1") == b"OK"
        [[event, _, newest, worst]] = client.execute_command("LATENCY", "LATEST")
        assert (event, newest, worst) == (b"command", newest, newest) and 100 <= newest < 5000, server.name
        [slow] = client.slowlog_get()
        assert slow["command"] == b"DEBUG SLEEP 0.1" and slow["duration"] >= 100_000, server.name
