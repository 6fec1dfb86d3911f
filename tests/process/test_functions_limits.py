"""What libraries of functions may take, how their changes meet, and who waits for a stream that expires."""

import threading

import pytest
import redis

from cluster import Cluster

MANY = """#!lua name={0}
local f = function() end
for i = 1, 100000 do
    redis.register_function('{0}' .. i, f)
end
"""
WORDY = """#!lua name=wordy
redis.register_function{function_name='wordy', callback=function() end, description=('x'):rep(2e7)}
"""


def test_a_short_text_may_not_register_more_than_there_is_room_for(server):
    with server.client(decode_responses=True) as client:
        for text in (MANY.format("a"), WORDY):
            # A slow server ends the load before it is counted.
            with pytest.raises(redis.ResponseError, match="there is room for|FUNCTION LOAD timeout|not enough memory"):
                client.function_load(text)
        assert client.function_list() == []


def test_a_script_may_not_block_whatever_it_reads(server):
    with server.client(decode_responses=True) as client:
        client.xgroup_create("s", "g", mkstream=True)
        reading = "return redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'BLOCK', '1', 'STREAMS', 's', '{}')"
        for behind in ("0", ">"):
            with pytest.raises(redis.ResponseError, match="not allowed with BLOCK option from scripts"):
                client.eval(reading.format(behind), 0)


def test_a_consumer_hears_that_its_stream_has_expired(server):
    with server.client(decode_responses=True) as client:
        client.xgroup_create("s", "g", mkstream=True)
        client.pexpire("s", 500)
        with pytest.raises(redis.ResponseError, match="NOGROUP|UNBLOCKED"):
            client.execute_command("XREADGROUP", "GROUP", "g", "c", "BLOCK", 20_000, "STREAMS", "s", ">")


def test_processes_that_change_libraries_at_once_wait_for_each_other():
    failed = []

    def load(client, name):
        text = f"#!lua name={name}\nredis.register_function('{name}', function() end)"
        for _ in range(10):
            try:
                client.function_load(text, replace=True)
                client.function_delete(name)
            except redis.RedisError as error:
                failed.append(error)

    with Cluster(1, 3) as cluster:
        threads = [
            threading.Thread(target=load, args=(cluster[f"a/{number}"].client(), f"library{number}"))
            for number in (1, 2, 3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
