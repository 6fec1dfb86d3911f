// Clients that spread over the processes of a cluster by their map of slots.
import { test } from "node:test";
import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { assert, later, port, ports, protocol, unique, until } from "./help.mjs";

const limit = { timeout: 60_000 };

test("ioredis: a cluster's slots, pipelines and subscriptions", limit, async () => {
  const cluster = new Cluster([{ host: "127.0.0.1", port }]);
  later(() => cluster.disconnect());
  await until(() => cluster.status === "ready");
  assert.deepEqual(cluster.nodes("master").map((node) => node.options.port).sort(), [...ports].sort());
  const prefix = unique("key");
  for (let number = 0; number < 200; number++) await cluster.set(`${prefix}:${number}`, number);
  const values = await Promise.all(Array.from({ length: 200 }, (_, number) => cluster.get(`${prefix}:${number}`)));
  assert.deepEqual(values.map(Number), Array.from({ length: 200 }, (_, number) => number));
  assert.deepEqual(await cluster.pipeline().set("{tag}a", 1).incr("{tag}a").exec(), [[null, "OK"], [null, 2]]);
  assert.deepEqual(await cluster.multi().set("{tag}b", 1).incr("{tag}b").exec(), [[null, "OK"], [null, 2]]);
  cluster.defineCommand("add", { numberOfKeys: 1, lua: 'return redis.call("INCRBY", KEYS[1], ARGV[1])' });
  assert.equal(await cluster.add(`${prefix}:total`, 5), 5);
  const subscriber = cluster.duplicate();
  later(() => subscriber.disconnect());
  const got = new Promise((resolve) => subscriber.on("message", (_, text) => resolve(text)));
  await subscriber.subscribe(prefix);
  await cluster.publish(prefix, "hello");
  assert.equal(await got, "hello");
});

test("node-redis: a cluster's slots, transactions and subscriptions", limit, async () => {
  const cluster = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }], RESP: protocol, defaults: { RESP: protocol } });
  cluster.on("error", () => {});
  await cluster.connect();
  later(() => cluster.destroy());
  assert.deepEqual(cluster.masters.map((node) => node.port).sort(), [...ports].sort());
  const prefix = unique("key");
  for (let number = 0; number < 200; number++) await cluster.set(`${prefix}:${number}`, String(number));
  const values = await Promise.all(Array.from({ length: 200 }, (_, number) => cluster.get(`${prefix}:${number}`)));
  assert.deepEqual(values.map(Number), Array.from({ length: 200 }, (_, number) => number));
  assert.deepEqual(await cluster.multi().set("{tag}c", "1").incr("{tag}c").exec(), ["OK", 2]);
  const got = new Promise((resolve) => cluster.subscribe(prefix, resolve).then(() => cluster.publish(prefix, "hello")));
  assert.equal(await got, "hello");
  const sharded = new Promise((resolve) => cluster.sSubscribe(prefix, resolve).then(() => cluster.sPublish(prefix, "shard")));
  assert.equal(await sharded, "shard");
});
