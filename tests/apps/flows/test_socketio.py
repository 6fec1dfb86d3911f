"""python-socketio: several servers and a process that only writes, joined by pub/sub."""

import asyncio

import pytest
import socketio
from aiohttp import web

LIMIT_SECONDS = 20


class Site:
    """A server of the application with one browser connected to it."""

    def __init__(self, url: str):
        self.server = socketio.AsyncServer(async_mode="aiohttp", client_manager=socketio.AsyncRedisManager(url))
        self.browser = socketio.AsyncClient()
        self.received: asyncio.Queue = asyncio.Queue()
        self.browser.on("news", self.on_news)
        self.browser.on("question", self.on_question)

    async def on_news(self, text):
        await self.received.put(text)

    async def on_question(self, text):
        return f"answer to {text}"

    async def start(self) -> None:
        app = web.Application()
        self.server.attach(app)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        await self.browser.connect(f"http://127.0.0.1:{port}", transports=["websocket"])

    async def stop(self) -> None:
        await self.browser.disconnect()
        await self.server.shutdown()
        await self.runner.cleanup()

    async def next(self) -> str:
        return await asyncio.wait_for(self.received.get(), LIMIT_SECONDS)


@pytest.fixture
async def sites(client, url):
    sites = [Site(url), Site(url)]
    for site in sites:
        await site.start()
    while client.pubsub_numsub("socketio")[0][1] < 2:
        await asyncio.sleep(0.02)
    yield sites
    for site in sites:
        await site.stop()


async def test_what_one_server_emits_reaches_the_others_browsers(sites):
    await sites[0].server.emit("news", "hello")
    assert [await site.next() for site in sites] == ["hello", "hello"]


async def test_a_process_that_only_writes(sites, url):
    writer = socketio.RedisManager(url, write_only=True)
    await asyncio.to_thread(writer.emit, "news", "from a script")
    assert [await site.next() for site in sites] == ["from a script", "from a script"]


async def test_rooms_are_of_all_servers(sites):
    await sites[1].server.enter_room(sites[1].browser.get_sid(), "kitchen")
    await sites[0].server.emit("news", "to one", room="kitchen")
    await sites[0].server.emit("news", "to all")
    assert [await sites[1].next(), await sites[1].next(), await sites[0].next()] == ["to one", "to all", "to all"]


async def test_answers_come_back(sites):
    answered = asyncio.get_running_loop().create_future()
    await sites[0].server.emit("question", "life", to=sites[1].browser.get_sid(), callback=answered.set_result)
    assert await asyncio.wait_for(answered, LIMIT_SECONDS) == "answer to life"


async def test_another_server_disconnects_a_browser(sites):
    gone = asyncio.Event()
    sites[1].browser.on("disconnect", lambda *_: gone.set())
    await sites[0].server.disconnect(sites[1].browser.get_sid())
    await asyncio.wait_for(gone.wait(), LIMIT_SECONDS)
