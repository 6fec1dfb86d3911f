// What web applications keep in Redis: sessions, limits of rates, locks, caches, and messages of Socket.IO.
import { createServer } from "node:http";
import { test } from "node:test";
import KeyvRedis from "@keyv/redis";
import { createAdapter as createPubSubAdapter } from "@socket.io/redis-adapter";
import { createAdapter as createStreamsAdapter } from "@socket.io/redis-streams-adapter";
import { Cacheable } from "cacheable";
import { RedisStore } from "connect-redis";
import express from "express";
import session from "express-session";
import { Keyv } from "keyv";
import limiters from "rate-limiter-flexible";
import { createClient } from "redis";
import redlock from "redlock";
import { Server } from "socket.io";
import { io } from "socket.io-client";
import { assert, connect, later, pause, protocol, unique, until, url } from "./help.mjs";

const limit = { timeout: 60_000 };

async function client() {
  const made = createClient({ url, RESP: protocol });
  made.on("error", () => {});
  await made.connect();
  later(() => made.destroy());
  return made;
}

async function listen(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server.address().port;
}

test("connect-redis: sessions of an Express application", limit, async () => {
  const store = new RedisStore({ client: await client(), prefix: `${unique("sess")}:` });
  const app = express();
  app.use(session({ store, secret: "secret", resave: false, saveUninitialized: false, cookie: { maxAge: 5000 } }));
  app.get("/", (request, response) => {
    request.session.views = (request.session.views ?? 0) + 1;
    response.json(request.session.views);
  });
  app.get("/leave", (request, response) => request.session.destroy(() => response.json(0)));
  const server = createServer(app);
  later(() => server.close());
  const address = `http://127.0.0.1:${await listen(server)}`;
  const first = await fetch(address);
  const cookie = first.headers.get("set-cookie").split(";")[0];
  const visit = async (path = "/") => (await fetch(address + path, { headers: { cookie } })).json();
  assert.deepEqual([await first.json(), await visit(), await visit()], [1, 2, 3]);
  assert.equal((await store.all()).length, 1);
  assert.equal(await store.length(), 1);
  await visit("/leave");
  assert.equal(await store.length(), 0);
});

test("connect-redis: store of sessions", limit, async () => {
  const connection = await client();
  const prefix = `${unique("sess")}:`;
  const store = new RedisStore({ client: connection, prefix });
  await store.set("a", { foo: "bar", cookie: { originalMaxAge: null } });
  assert.ok((await connection.ttl(`${prefix}a`)) >= 86399);
  await store.touch("a", { cookie: { originalMaxAge: null, expires: new Date(Date.now() + 90_000) } });
  assert.ok((await connection.ttl(`${prefix}a`)) <= 90);
  for (let number = 0; number < 150; number++) await store.set(`s${number}`, { cookie: { originalMaxAge: null } });
  assert.equal((await store.ids()).length, 151);
  await store.clear();
  assert.equal(await store.length(), 0);
});

for (const [kind, make] of [["ioredis", async () => connect()], ["node-redis", client]]) {
  test(`rate-limiter-flexible: points, blocks and rewards with ${kind}`, limit, async () => {
    const storeClient = await make();
    const limiter = new limiters.RateLimiterRedis({ storeClient, keyPrefix: unique("rate"), points: 3, duration: 2, useRedisPackage: kind === "node-redis" });
    for (const left of [2, 1, 0]) assert.equal((await limiter.consume("user")).remainingPoints, left);
    const refused = await limiter.consume("user").catch((error) => error);
    assert.ok(refused.msBeforeNext > 0 && refused.msBeforeNext <= 2000);
    assert.equal((await limiter.get("user")).consumedPoints, 4);
    await limiter.reward("user", 2);
    assert.equal((await limiter.get("user")).consumedPoints, 2);
    await limiter.block("user", 1);
    await assert.rejects(async () => { throw await limiter.consume("user").catch((error) => new Error(error.constructor.name)); });
    await limiter.delete("user");
    assert.equal(await limiter.get("user"), null);
  });
}

test("redlock: locks exclude, extend, expire", limit, async () => {
  const Redlock = redlock.default ?? redlock;
  const locks = new Redlock([connect()], { retryCount: 3, retryDelay: 50 });
  const resource = unique("lock");
  const lock = await locks.acquire([`${resource}:a`, `${resource}:b`], 1000);
  await assert.rejects(locks.acquire([`${resource}:a`], 1000));
  const extended = await lock.extend(2000);
  await extended.release();
  await locks.acquire([`${resource}:a`], 200);
  await pause(250);
  const again = await locks.acquire([`${resource}:a`], 1000);
  await again.release();
  let count = 0;
  await Promise.all([1, 2, 3].map(() => new Redlock([connect()], { retryCount: 200, retryDelay: 20 }).using([resource], 2000, async () => {
    const before = count;
    await pause(30);
    count = before + 1;
  })));
  assert.equal(count, 3);
});

for (const [kind, adapter] of [["redis-adapter", pubSubAdapter], ["redis-streams-adapter", streamsAdapter]]) {
  test(`socket.io: ${kind} reaches clients of other processes`, limit, async () => {
    const name = unique(kind);
    const [one, two] = [await socketServer(await adapter(name)), await socketServer(await adapter(name))];
    const [left, right] = [await socketClient(one.port), await socketClient(two.port)];
    const got = [];
    right.on("news", (text) => got.push(text));
    left.on("news", (text) => got.push(text));
    await until(async () => (await one.io.serverCount?.().catch(() => 2)) ?? true);
    await until(async () => (one.io.emit("ready"), (await one.io.of("/").adapter.serverCount()) === 2));
    one.io.emit("news", "to all");
    await until(() => got.filter((text) => text === "to all").length === 2);
    two.io.of("/").sockets.forEach((socket) => socket.join("room"));
    one.io.to("room").emit("news", "to the room");
    await until(() => got.includes("to the room"));
    assert.equal((await one.io.fetchSockets()).length, 2);
  });
}

async function pubSubAdapter(key) {
  return createPubSubAdapter(await client(), await client(), { key });
}

async function streamsAdapter(streamName) {
  return createStreamsAdapter(await client(), { streamName, blockTimeInMs: 500, heartbeatInterval: 500, heartbeatTimeout: 5000 });
}

async function socketServer(adapter) {
  const http = createServer();
  const made = new Server(http, { adapter });
  later(() => made.close());
  return { io: made, port: await listen(http) };
}

async function socketClient(port) {
  const socket = io(`http://127.0.0.1:${port}`);
  later(() => socket.disconnect());
  await until(() => socket.connected);
  return socket;
}

test("keyv: values, namespaces, expiry, clearing", limit, async () => {
  const [one, other] = [unique("one"), unique("other")].map((namespace) => new Keyv({ store: new KeyvRedis(url), namespace }));
  later(() => Promise.all([one.disconnect(), other.disconnect()]));
  await one.set("key", { deep: [1, 2] });
  await one.set("short", 1, 100);
  assert.deepEqual(await one.get("key"), { deep: [1, 2] });
  assert.equal(await other.get("key"), undefined);
  await pause(150);
  assert.equal(await one.get("short"), undefined);
  assert.equal(await one.has("key"), true);
  await one.set("more", 2);
  assert.equal((await one.get(["key", "more", "none"])).filter((value) => value !== undefined).length, 2);
  const seen = [];
  for await (const [key] of one.iterator()) seen.push(key.split(":").at(-1));
  assert.deepEqual(seen.sort(), ["key", "more"]);
  await other.set("kept", 1);
  await one.clear();
  assert.equal(await one.get("key"), undefined);
  assert.equal(await other.get("kept"), 1);
});

test("cacheable: two layers", limit, async () => {
  const secondary = new Keyv({ store: new KeyvRedis(url), namespace: unique("cache") });
  const cache = new Cacheable({ secondary, ttl: "1m" });
  later(() => cache.disconnect());
  await cache.set("key", "value");
  assert.equal(await secondary.get("key"), "value");
  assert.equal(await cache.get("key"), "value");
  let calls = 0;
  const compute = cache.wrap(async (number) => (++calls, number * 2), { keyPrefix: "double" });
  assert.deepEqual([await compute(2), await compute(2)], [4, 4]);
  assert.equal(calls, 1);
  await cache.delete("key");
  assert.equal(await secondary.get("key"), undefined);
});
