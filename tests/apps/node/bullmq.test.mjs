// BullMQ, as its guide describes.
import { fork } from "node:child_process";
import { test } from "node:test";
import { FlowProducer, Queue, QueueEvents, RateLimitError, UnrecoverableError, Worker } from "bullmq";
import { assert, later, pause, port, unique, until } from "./help.mjs";

const connection = { port, maxRetriesPerRequest: null };
const limit = { timeout: 60_000 };

function queue(options = {}) {
  const made = new Queue(unique("queue").replaceAll(":", "-"), { connection, ...options });
  later(() => made.close());
  return made;
}

function work(of, processor = async (job) => job.data, options = {}) {
  const worker = new Worker(of.name, processor, { connection, drainDelay: 1, ...options });
  worker.on("error", () => {});
  later(() => worker.close(true));
  return worker;
}

const counts = async (of, kind) => (await of.getJobCounts(kind))[kind];

test("bullmq: jobs are added, done and return values", limit, async () => {
  const jobs = queue();
  const job = await jobs.add("paint", { color: "red" });
  work(jobs, async ({ data }) => ({ painted: data.color }));
  await until(() => job.isCompleted());
  assert.deepEqual((await jobs.getJob(job.id)).returnvalue, { painted: "red" });
});

test("bullmq: jobs of a bulk are done once each", limit, async () => {
  const jobs = queue();
  const done = [];
  await jobs.addBulk(Array.from({ length: 200 }, (_, number) => ({ name: "bulk", data: { number } })));
  work(jobs, async ({ data }) => done.push(data.number), { concurrency: 10 });
  await until(async () => (await counts(jobs, "completed")) === 200);
  assert.deepEqual(done.sort((a, b) => a - b), Array.from({ length: 200 }, (_, number) => number));
});

test("bullmq: a delayed job waits", limit, async () => {
  const jobs = queue();
  const began = Date.now();
  let ran = 0;
  work(jobs, async () => (ran = Date.now()));
  await jobs.add("later", {}, { delay: 500 });
  await until(() => ran);
  assert.ok(ran - began >= 495, `after ${ran - began} ms`);
});

test("bullmq: a promoted job does not wait", limit, async () => {
  const jobs = queue();
  const job = await jobs.add("later", {}, { delay: 100_000 });
  work(jobs);
  await job.promote();
  await until(() => job.isCompleted());
});

test("bullmq: priorities and LIFO order", limit, async () => {
  const jobs = queue();
  const order = [];
  for (const [name, options] of [["c", { priority: 10 }], ["b", { priority: 2 }], ["a", {}], ["first", { lifo: true }], ["d", { priority: 10 }]])
    await jobs.add(name, {}, options);
  work(jobs, async ({ name }) => order.push(name));
  await until(async () => (await counts(jobs, "completed")) === 5);
  assert.deepEqual(order, ["first", "a", "b", "c", "d"]);
  const counted = await jobs.getCountsPerPriority([0, 2]);
  assert.deepEqual(counted, { 0: 0, 2: 0 });
});

test("bullmq: a scheduler repeats", limit, async () => {
  const jobs = queue();
  let ran = 0;
  work(jobs, async () => ++ran);
  await jobs.upsertJobScheduler("often", { every: 200, limit: 3 }, { name: "tick" });
  assert.equal((await jobs.getJobSchedulers()).length, 1);
  await until(() => ran === 3);
  assert.equal(await jobs.removeJobScheduler("often").then(() => jobs.getJobSchedulersCount()), 0);
  const cron = await jobs.upsertJobScheduler("nightly", { pattern: "0 3 * * *" }, { name: "night" });
  assert.equal(await cron.getState(), "delayed");
});

test("bullmq: a limited rate", limit, async () => {
  const jobs = queue();
  const times = [];
  await jobs.addBulk(Array.from({ length: 6 }, () => ({ name: "limited", data: {} })));
  work(jobs, async () => times.push(Date.now()), { limiter: { max: 2, duration: 400 } });
  await until(() => times.length === 6);
  assert.ok(times[5] - times[0] >= 700, `within ${times[5] - times[0]} ms`);
});

test("bullmq: a worker limits itself", limit, async () => {
  const jobs = queue();
  let tries = 0;
  const worker = work(jobs, async () => {
    if (++tries === 1) {
      await worker.rateLimit(200);
      throw new RateLimitError();
    }
  }, { limiter: { max: 100, duration: 1000 } });
  const job = await jobs.add("limited", {});
  await until(() => job.isCompleted());
  assert.equal(tries, 2);
});

test("bullmq: a parent waits for its children", limit, async () => {
  const jobs = queue();
  const children = queue();
  const flow = new FlowProducer({ connection });
  later(() => flow.close());
  const tree = await flow.add({
    name: "parent", queueName: jobs.name,
    children: [1, 2, 3].map((number) => ({ name: "child", data: { number }, queueName: children.name })),
  });
  work(jobs, async (job) => Object.values(await job.getChildrenValues()).reduce((sum, value) => sum + value, 0));
  await pause(200);
  assert.equal(await tree.job.getState(), "waiting-children");
  work(children, async ({ data }) => data.number * 10);
  await until(() => tree.job.isCompleted());
  assert.equal((await jobs.getJob(tree.job.id)).returnvalue, 60);
  const found = await flow.getFlow({ id: tree.job.id, queueName: jobs.name });
  assert.equal(found.children.length, 3);
});

test("bullmq: a failed child fails its parent", limit, async () => {
  const jobs = queue();
  const children = queue();
  const flow = new FlowProducer({ connection });
  later(() => flow.close());
  const tree = await flow.add({
    name: "parent", queueName: jobs.name,
    children: [{ name: "child", data: {}, queueName: children.name, opts: { failParentOnFailure: true } }],
  });
  work(children, async () => { throw new Error("no"); });
  work(jobs);
  await until(() => tree.job.isFailed());
});

test("bullmq: retries with a backoff, and what is unrecoverable", limit, async () => {
  const jobs = queue();
  const job = await jobs.add("retried", {}, { attempts: 3, backoff: { type: "exponential", delay: 50 } });
  const hopeless = await jobs.add("hopeless", {}, { attempts: 3 });
  work(jobs, async (one) => {
    if (one.name === "hopeless") throw new UnrecoverableError("hopeless");
    if (one.attemptsMade < 2) throw new Error("again");
  });
  await until(async () => (await job.isCompleted()) && (await hopeless.isFailed()));
  assert.equal((await jobs.getJob(job.id)).attemptsMade, 3);
  assert.equal((await jobs.getJob(hopeless.id)).failedReason, "hopeless");
});

test("bullmq: a job is retried by hand", limit, async () => {
  const jobs = queue();
  let fails = true;
  const job = await jobs.add("manual", {});
  work(jobs, async () => { if (fails) throw new Error("broken"); });
  await until(() => job.isFailed());
  fails = false;
  await job.retry();
  await until(() => job.isCompleted());
});

test("bullmq: pause and resume", limit, async () => {
  const jobs = queue();
  await jobs.pause();
  assert.equal(await jobs.isPaused(), true);
  const job = await jobs.add("held", {});
  work(jobs);
  await pause(300);
  assert.ok(["paused", "waiting"].includes(await job.getState()), "nobody took it");
  await jobs.resume();
  await until(() => job.isCompleted());
});

test("bullmq: removal, drain, clean and obliterate", limit, async () => {
  const jobs = queue();
  const [first] = await jobs.addBulk([1, 2, 3].map((number) => ({ name: "removed", data: { number } })));
  await first.remove();
  assert.equal(await counts(jobs, "waiting"), 2);
  await jobs.drain();
  assert.equal(await counts(jobs, "waiting"), 0);
  const job = await jobs.add("done", {});
  const worker = work(jobs);
  await until(() => job.isCompleted());
  await until(async () => (await jobs.clean(0, 10, "completed")).length === 1);
  await worker.close();
  await jobs.add("last", {});
  await jobs.obliterate({ force: true });
  assert.equal(await jobs.count(), 0);
});

test("bullmq: results are kept as long as told", limit, async () => {
  const jobs = queue();
  await jobs.addBulk(Array.from({ length: 20 }, () => ({ name: "kept", data: {}, opts: { removeOnComplete: { count: 5 } } })));
  const drained = await jobs.add("last", {}, { removeOnComplete: { count: 5 } });
  work(jobs);
  await until(() => drained.isCompleted());
  assert.equal(await counts(jobs, "completed"), 5);
});

test("bullmq: one job of an id, and deduplication", limit, async () => {
  const jobs = queue();
  await jobs.add("one", { number: 1 }, { jobId: "same" });
  await jobs.add("one", { number: 2 }, { jobId: "same" });
  assert.deepEqual((await jobs.getJob("same")).data, { number: 1 });
  await jobs.add("two", {}, { deduplication: { id: "two", ttl: 60_000 } });
  await jobs.add("two", {}, { deduplication: { id: "two", ttl: 60_000 } });
  assert.equal(await counts(jobs, "waiting"), 2);
});

test("bullmq: progress, logs and data of a job", limit, async () => {
  const jobs = queue();
  const job = await jobs.add("told", {});
  work(jobs, async (one) => {
    await one.updateProgress(42);
    await one.log("began");
    await one.log("ended");
    await one.updateData({ seen: true });
  });
  await until(() => job.isCompleted());
  const found = await jobs.getJob(job.id);
  assert.equal(found.progress, 42);
  assert.deepEqual(found.data, { seen: true });
  assert.deepEqual((await jobs.getJobLogs(job.id)).logs, ["began", "ended"]);
});

test("bullmq: metrics and listings", limit, async () => {
  const jobs = queue();
  const all = await jobs.addBulk(Array.from({ length: 7 }, (_, number) => ({ name: "listed", data: { number } })));
  assert.deepEqual((await jobs.getWaiting(0, 2)).map((job) => job.data.number), [0, 1, 2]);
  work(jobs, undefined, { metrics: { maxDataPoints: 10 } });
  await until(() => all.at(-1).isCompleted());
  assert.equal((await jobs.getMetrics("completed")).meta.count, 7);
  assert.equal((await jobs.getWorkers()).length, 1);
});

test("bullmq: what a killed worker held is done by another", limit, async () => {
  const jobs = queue();
  const job = await jobs.add("stalled", {});
  const child = fork(new URL("./worker.mjs", import.meta.url), [jobs.name, String(port), "hold"]);
  later(() => child.kill("SIGKILL"));
  await until(async () => (await job.getState()) === "active");
  child.kill("SIGKILL");
  let stalled = 0;
  const worker = work(jobs, async () => "by another", { stalledInterval: 300, lockDuration: 1000 });
  worker.on("stalled", () => ++stalled);
  await until(() => job.isCompleted());
  assert.equal((await jobs.getJob(job.id)).returnvalue, "by another");
  assert.equal(stalled, 1);
});

test("bullmq: events tell what happens", limit, async () => {
  const jobs = queue();
  const events = new QueueEvents(jobs.name, { connection, blockingTimeout: 500, lastEventId: "0" });
  later(() => events.close());
  const told = [];
  for (const kind of ["added", "active", "progress", "completed", "failed"]) events.on(kind, ({ jobId }) => told.push(`${kind} ${jobId}`));
  await events.waitUntilReady();
  const job = await jobs.add("good", {}, { jobId: "good" });
  await jobs.add("bad", {}, { jobId: "bad" });
  work(jobs, async (one) => {
    await one.updateProgress(1);
    if (one.name === "bad") throw new Error("bad");
    return "fine";
  });
  assert.equal(await job.waitUntilFinished(events, 20_000), "fine");
  await until(() => told.includes("failed bad"));
  for (const kind of ["added", "active", "progress", "completed"]) assert.ok(told.includes(`${kind} good`), kind);
});
