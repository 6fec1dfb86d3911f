// ioredis and node-redis, as their guides describe.
import { test } from "node:test";
import { createClient, createClientPool, defineScript } from "redis";
import { assert, connect, later, pause, port, protocol, unique, url, until } from "./help.mjs";

const limit = { timeout: 60_000 };

test("ioredis: pipelines and their errors", limit, async () => {
  const client = connect();
  const key = unique("pipeline");
  const results = await client.pipeline().set(key, 1).incr(key).lpush(key, 1).get(key).exec();
  assert.equal(results[2][0].message, "WRONGTYPE Operation against a key holding the wrong kind of value");
  assert.deepEqual([0, 1, 3].map((at) => results[at][1]), ["OK", 2, "2"]);
});

test("ioredis: automatic pipelines", limit, async () => {
  const client = connect({ enableAutoPipelining: true });
  const key = unique("auto");
  const values = await Promise.all(Array.from({ length: 100 }, () => client.incr(key)));
  assert.deepEqual(values, Array.from({ length: 100 }, (_, number) => number + 1));
});

test("ioredis: transactions, also watched", limit, async () => {
  const client = connect();
  const other = connect();
  const key = unique("multi");
  assert.deepEqual(await client.multi().set(key, "a").get(key).exec(), [[null, "OK"], [null, "a"]]);
  await client.watch(key);
  await other.set(key, "b");
  assert.equal(await client.multi().set(key, "c").exec(), null);
  await assert.rejects(client.multi().set(key).exec(), /EXECABORT|wrong number/);
});

test("ioredis: scripts as commands", limit, async () => {
  const client = connect();
  client.defineCommand("both", { numberOfKeys: 2, lua: "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2]}" });
  assert.deepEqual(await client.both("k1", "k2", "a1", "a2"), ["k1", "k2", "a1", "a2"]);
  assert.deepEqual(await client.bothBuffer("k1", "k2", "a1", "a2"), ["k1", "k2", "a1", "a2"].map((text) => Buffer.from(text)));
  const results = await client.pipeline().both("1", "2", "3", "4").exec();
  assert.deepEqual(results, [[null, ["1", "2", "3", "4"]]]);
  await client.script("FLUSH");
  assert.equal((await client.both("x", "y", "z", "w"))[0], "x");
});

test("ioredis: streams of scans", limit, async () => {
  const prefix = unique("scan");
  const client = connect({ keyPrefix: `${prefix}:` });
  for (let number = 0; number < 300; number++) await client.set(`key:${number}`, number);
  await client.hset("hash", Object.fromEntries(Array.from({ length: 600 }, (_, number) => [`f${number}`, number])));
  const plain = connect();
  const found = new Set();
  for await (const keys of plain.scanStream({ match: `${prefix}:key:*`, count: 40, type: "string" })) keys.forEach((key) => found.add(key));
  assert.equal(found.size, 300);
  let fields = 0;
  for await (const part of client.hscanStream("hash", { count: 50 })) fields += part.length / 2;
  assert.equal(fields, 600);
});

test("ioredis: publish and subscribe", limit, async () => {
  const [publisher, subscriber] = [connect(), connect()];
  const channel = unique("channel");
  const got = [];
  subscriber.on("message", (name, text) => got.push([name, text]));
  subscriber.on("pmessage", (pattern, name, text) => got.push([pattern, name, text]));
  assert.equal(await subscriber.subscribe(channel), 1);
  assert.equal(await subscriber.psubscribe(`${channel}*`), 2);
  assert.equal(await publisher.publish(channel, "hello"), 2);
  await until(() => got.length === 2);
  await assert.rejects(subscriber.set("key", "value"), /subscriber mode/);
  assert.equal(await subscriber.unsubscribe(channel), 1);
  assert.equal(await subscriber.punsubscribe(`${channel}*`), 0);
});

test("ioredis: transformers, buffers and numbers", limit, async () => {
  const client = connect();
  const key = unique("types");
  await client.hset(key, new Map([["a", 1], ["b", "two"]]));
  assert.deepEqual(await client.hgetall(key), { a: "1", b: "two" });
  await client.mset({ [`${key}:1`]: "x", [`${key}:2`]: "y" });
  assert.deepEqual(await client.mget([`${key}:1`, `${key}:2`]), ["x", "y"]);
  await client.set(`${key}:raw`, Buffer.from([0, 255, 13, 10]));
  assert.deepEqual(await client.getBuffer(`${key}:raw`), Buffer.from([0, 255, 13, 10]));
  await client.xadd(`${key}:stream`, "1-1", "a", "b");
  assert.deepEqual(await client.xrange(`${key}:stream`, "-", "+"), [["1-1", ["a", "b"]]]);
});

test("ioredis: blocking commands and a lost connection", limit, async () => {
  const client = connect({ retryStrategy: () => 50, autoResendUnfulfilledCommands: true });
  const other = connect();
  const key = unique("list");
  const popped = client.blpop(key, 10);
  await pause(100);
  await other.call("CLIENT", "KILL", "ID", await client.duplicate().client("ID").then(() => idOf(other, client)));
  await pause(300);
  await other.rpush(key, "value");
  assert.deepEqual(await popped, [key, "value"]);
});

/** The number of the connection that waits in BLPOP, by its local port. */
async function idOf(other, client) {
  const list = await other.client("LIST");
  return list.split("\n").find((line) => line.includes(`:${client.stream.localPort} `)).match(/id=(\d+)/)[1];
}

test("ioredis: readiness and database of a connection", limit, async () => {
  const client = connect({ db: 3, connectionName: "named" });
  await until(() => client.status === "ready");
  assert.equal(await client.client("GETNAME"), "named");
  const key = unique("database");
  await client.set(key, 1);
  const first = connect();
  assert.equal(await first.exists(key), 0);
  await client.del(key);
});

async function nodeRedis(options = {}) {
  const client = createClient({ url, RESP: protocol, ...options });
  client.on("error", () => {});
  await client.connect();
  later(() => client.destroy());
  return client;
}

test("node-redis: connects and pipelines by itself", limit, async () => {
  const client = await nodeRedis({ name: "by-node" });
  const key = unique("auto");
  const values = await Promise.all(Array.from({ length: 50 }, () => client.incr(key)));
  assert.equal(values.at(-1), 50);
  assert.equal(await client.clientGetName(), "by-node");
  const info = await client.clientInfo();
  assert.equal(info.name, "by-node");
});

test("node-redis: transactions", limit, async () => {
  const client = await nodeRedis();
  const key = unique("multi");
  assert.deepEqual(await client.multi().set(key, "1").incr(key).get(key).exec(), ["OK", 2, "2"]);
  await client.watch(key);
  const other = await nodeRedis();
  await other.set(key, "9");
  await assert.rejects(client.multi().incr(key).exec(), /watched keys/);
  const replies = await client.multi().set(key, "a").lPush(key, "b").exec().catch((error) => error.replies);
  assert.equal(replies[1].message, "WRONGTYPE Operation against a key holding the wrong kind of value");
});

test("node-redis: a pool and what is isolated", limit, async () => {
  const pool = createClientPool({ url, RESP: protocol }, { minimum: 1, maximum: 4 });
  pool.on("error", () => {});
  await pool.connect();
  later(() => pool.destroy());
  const list = unique("list");
  const blocked = pool.blPop(list, 10);
  await pool.rPush(list, "value");
  assert.deepEqual({ ...(await blocked) }, { key: list, element: "value" });
  const key = unique("isolated");
  const done = await pool.execute(async (client) => {
    await client.watch(key);
    return client.multi().incr(key).exec();
  });
  assert.deepEqual(done, [1]);
});

test("node-redis: iterators", limit, async () => {
  const client = await nodeRedis();
  const prefix = unique("iterated");
  await client.mSet(Object.fromEntries(Array.from({ length: 200 }, (_, number) => [`${prefix}:${number}`, String(number)])));
  const found = new Set();
  for await (const keys of client.scanIterator({ MATCH: `${prefix}:*`, COUNT: 20 })) keys.forEach((key) => found.add(key));
  assert.equal(found.size, 200);
  await client.zAdd(`${prefix}:z`, Array.from({ length: 200 }, (_, score) => ({ score, value: `m${score}` })));
  let members = 0;
  for await (const part of client.zScanIterator(`${prefix}:z`)) members += part.length;
  assert.equal(members, 200);
});

test("node-redis: subscriptions, patterns and shards", limit, async () => {
  const client = await nodeRedis();
  const subscriber = client.duplicate();
  subscriber.on("error", () => {});
  await subscriber.connect();
  later(() => subscriber.destroy());
  const channel = unique("channel");
  const got = [];
  await subscriber.subscribe(channel, (text) => got.push(text));
  await subscriber.pSubscribe(`${channel}*`, (text) => got.push(`p${text}`));
  await subscriber.sSubscribe(channel, (text) => got.push(`s${text}`));
  await client.publish(channel, "hello");
  await client.sPublish(channel, "hello");
  await until(() => got.length === 3);
  assert.deepEqual(got.sort(), ["hello", "phello", "shello"]);
  await subscriber.unsubscribe(channel);
});

test("node-redis: scripts and types", limit, async () => {
  const add = defineScript({
    NUMBER_OF_KEYS: 1,
    SCRIPT: 'return redis.call("INCRBY", KEYS[1], ARGV[1])',
    parseCommand: (parser, key, number) => (parser.pushKey(key), parser.push(String(number))),
    transformReply: (reply) => reply,
  });
  const client = await nodeRedis({ scripts: { add } });
  const key = unique("script");
  assert.equal(await client.add(key, 5), 5);
  await client.hSet(`${key}:h`, { a: "1", b: "2" });
  assert.deepEqual({ ...(await client.hGetAll(`${key}:h`)) }, { a: "1", b: "2" });
  await client.zAdd(`${key}:z`, [{ score: 1.5, value: "x" }]);
  assert.deepEqual((await client.zRangeWithScores(`${key}:z`, 0, -1)).map((entry) => ({ ...entry })), [{ score: 1.5, value: "x" }]);
  assert.equal(await client.zScore(`${key}:z`, "x"), 1.5);
  await client.geoAdd(`${key}:g`, { longitude: 13.4, latitude: 52.5, member: "berlin" });
  assert.equal((await client.geoSearch(`${key}:g`, { longitude: 13, latitude: 52 }, { radius: 100, unit: "km" })).length, 1);
});

test("node-redis: streams of a group", limit, async () => {
  const client = await nodeRedis();
  const key = unique("stream");
  await client.xGroupCreate(key, "group", "0", { MKSTREAM: true });
  for (let number = 0; number < 5; number++) await client.xAdd(key, "*", { number: String(number) });
  const read = await client.xReadGroup("group", "one", { key, id: ">" }, { COUNT: 10 });
  assert.equal(read[0].messages.length, 5);
  assert.equal(await client.xAck(key, "group", read[0].messages.map(({ id }) => id)), 5);
  assert.equal((await client.xPending(key, "group")).pending, 0);
  assert.equal((await client.xInfoGroups(key))[0].consumers, 1);
});

test("node-redis: legacy mode and reconnection", limit, async () => {
  const client = await nodeRedis({ socket: { reconnectStrategy: () => 50 } });
  const legacy = client.legacy();
  const key = unique("legacy");
  await new Promise((resolve, reject) => legacy.set(key, "1", (error) => (error ? reject(error) : resolve())));
  const other = await nodeRedis();
  await other.clientKill({ filter: "ID", id: await client.clientId() });
  await until(async () => (await client.get(key).catch(() => null)) === "1");
  assert.equal(port > 0, true);
});
