"""taskiq: its brokers over a list, a stream and pub/sub, and its result backends."""

import asyncio

import pytest
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker, PubSubBroker, RedisAsyncResultBackend, RedisStreamBroker

LIMIT_SECONDS = 20


@pytest.fixture(params=[ListQueueBroker, RedisStreamBroker, PubSubBroker])
async def broker(request, client, url):
    broker = request.param(url).with_result_backend(RedisAsyncResultBackend(url, result_ex_time=60))

    @broker.task(task_name="add")
    async def add(left, right):
        return left + right

    @broker.task(task_name="fail")
    async def fail():
        raise ValueError("on purpose")

    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker, run_startup=False))
    if request.param is PubSubBroker:
        while client.pubsub_numsub("taskiq")[0][1] == 0:
            await asyncio.sleep(0.02)
    yield broker
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await broker.shutdown()


async def test_results(broker, client):
    tasks = [await broker.find_task("add").kiq(number, 1) for number in range(30)]
    results = [await task.wait_result(timeout=LIMIT_SECONDS, check_interval=0.02) for task in tasks]
    assert [result.return_value for result in results] == list(range(1, 31))
    assert 0 < client.ttl(tasks[0].task_id) <= 60


async def test_errors(broker):
    task = await broker.find_task("fail").kiq()
    result = await task.wait_result(timeout=LIMIT_SECONDS, check_interval=0.02)
    assert result.is_err and "on purpose" in str(result.error)
