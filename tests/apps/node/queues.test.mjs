// Bull and bee-queue, as their guides describe.
import { test } from "node:test";
import BeeQueue from "bee-queue";
import Bull from "bull";
import { assert, later, pause, port, unique, until } from "./help.mjs";

const limit = { timeout: 60_000 };

function bull(options = {}) {
  const queue = new Bull(unique("bull").replaceAll(":", "-"), { redis: { port }, settings: { stalledInterval: 500, drainDelay: 1 }, ...options });
  queue.on("error", () => {});
  later(() => queue.close(true));
  return queue;
}

test("bull: jobs, bulk, delays, priorities", limit, async () => {
  const queue = bull();
  const order = [];
  await queue.addBulk([{ name: "p", data: { name: "low" }, opts: { priority: 9 } }, { name: "p", data: { name: "high" }, opts: { priority: 1 } }]);
  const delayed = await queue.add("p", { name: "late" }, { delay: 300 });
  queue.process("p", async ({ data }) => order.push(data.name));
  await delayed.finished();
  assert.deepEqual(order, ["high", "low", "late"]);
});

test("bull: retries, progress and events", limit, async () => {
  const queue = bull();
  const progress = [];
  queue.on("progress", (_, value) => progress.push(value));
  let tries = 0;
  queue.process(async (job) => {
    await job.progress(50);
    if (++tries < 3) throw new Error("again");
    return "done";
  });
  const job = await queue.add({}, { attempts: 3, backoff: 50 });
  assert.equal(await job.finished(), "done");
  assert.equal(tries, 3);
  assert.deepEqual(progress, [50, 50, 50]);
});

test("bull: events of other processes", limit, async () => {
  const queue = bull();
  const completed = new Promise((resolve) => queue.on("global:completed", resolve));
  await queue.isReady();
  await pause(200);
  queue.process(async () => 7);
  const job = await queue.add({});
  assert.equal(await completed, String(job.id));
});

test("bull: pause, resume, repeat, empty, clean", limit, async () => {
  const queue = bull();
  await queue.pause();
  let ran = 0;
  const job = await queue.add({});
  queue.process(async () => ++ran);
  await pause(200);
  assert.equal(ran, 0);
  await queue.resume();
  await until(() => job.isCompleted());
  await queue.add({}, { repeat: { every: 200, limit: 2 } });
  await until(() => ran === 3);
  await until(async () => (await queue.getJobCounts()).completed === 3);
  assert.ok((await queue.clean(0, "completed")).length >= 1);
  await queue.add({}, { delay: 100_000 });
  await queue.empty();
  assert.equal((await queue.getJobCounts()).delayed, 0);
});

test("bull: a limited rate", limit, async () => {
  const queue = bull({ limiter: { max: 2, duration: 300 } });
  const times = [];
  queue.process(async () => times.push(Date.now()));
  await queue.addBulk(Array.from({ length: 6 }, () => ({ data: {} })));
  await until(() => times.length === 6);
  assert.ok(times[5] - times[0] >= 450, `within ${times[5] - times[0]} ms`);
});

function bee(options = {}) {
  const queue = new BeeQueue(unique("bee"), { redis: { port }, ...options });
  later(() => queue.close(1000).catch(() => {}));
  return queue;
}

test("bee-queue: jobs and their results", limit, async () => {
  const queue = bee();
  queue.process(4, async (job) => job.data.x + job.data.y);
  const jobs = await Promise.all(Array.from({ length: 30 }, (_, x) => {
    const job = queue.createJob({ x, y: 1 });
    const result = new Promise((resolve) => job.on("succeeded", resolve));
    return job.save().then(() => result);
  }));
  assert.deepEqual(jobs, Array.from({ length: 30 }, (_, x) => x + 1));
  await until(async () => (await queue.checkHealth()).succeeded === 30);
});

test("bee-queue: retries, delays, progress, removal", limit, async () => {
  const queue = bee({ activateDelayedJobs: true });
  let tries = 0;
  queue.process(async (job) => {
    job.reportProgress(10);
    if (job.data.fails && ++tries < 2) throw new Error("again");
    return "done";
  });
  const began = Date.now();
  const delayed = await queue.createJob({}).delayUntil(began + 400).save();
  const ended = new Promise((resolve) => delayed.on("succeeded", () => resolve(Date.now())));
  const retried = queue.createJob({ fails: true }).retries(2).backoff("fixed", 100);
  const succeeded = new Promise((resolve) => retried.on("succeeded", resolve));
  await retried.save();
  assert.equal(await succeeded, "done");
  assert.ok((await ended) - began >= 395);
  await retried.remove();
  assert.equal(await queue.getJob(retried.id), null);
});

test("bee-queue: bulk and stalled jobs", limit, async () => {
  const name = unique("bee");
  const settings = { redis: { port }, stallInterval: 300 };
  const held = new BeeQueue(name, settings);
  await held.ready();
  const errors = await held.saveAll([1, 2, 3].map((number) => held.createJob({ number })));
  assert.equal(errors.size, 0);
  held.process(() => new Promise(() => {}));
  await until(async () => (await held.checkHealth()).active === 1);
  await held.close(1).catch(() => {});
  const other = new BeeQueue(name, settings);
  later(() => other.close(1000).catch(() => {}));
  const done = new Set();
  other.process(async ({ data }) => done.add(data.number));
  await until(async () => {
    await other.checkStalledJobs();
    await pause(100);
    return done.size === 3;
  });
});
