// BullMQ while a process of a cluster is killed: `replicas.mjs QUEUE JOBS PORT...`. Workers are at every process, the
// producer at the last one. Says `killed?` when a third is done, and tells at the end how often each job was done.
import { Queue, Worker } from "bullmq";

const [name, number, ...ports] = process.argv.slice(2);
const jobs = Number(number);
const done = new Map();
const options = (port) => ({ connection: { port: Number(port), maxRetriesPerRequest: null, retryStrategy: () => 200 } });
const workers = ports.map((port) => {
  const worker = new Worker(name, async (job) => {
    await new Promise((resolve) => setTimeout(resolve, 5));
    done.set(job.id, (done.get(job.id) ?? 0) + 1);
  }, { ...options(port), concurrency: 2, lockDuration: 3000, stalledInterval: 1000, drainDelay: 1, maxStalledCount: 10 });
  worker.on("error", () => {});
  return worker;
});
const queue = new Queue(name, options(ports.at(-1)));
queue.on("error", () => {});
let asked = false;
for (let id = 0; id < jobs; id++) {
  // Added again where the outcome is not known: an identifier is added once.
  while (!(await queue.add("work", {}, { jobId: `job-${id}` }).catch((error) => (console.error(error.message), null)))) await new Promise((resolve) => setTimeout(resolve, 100));
  if (!asked && id >= jobs / 3) console.log("killed?", (asked = true));
}
const deadline = Date.now() + 120_000;
let counts;
do {
  await new Promise((resolve) => setTimeout(resolve, 500));
  counts = await queue.getJobCounts("completed", "failed", "active", "waiting").catch(() => null);
} while ((!counts || counts.completed < jobs) && Date.now() < deadline);
const again = [...done.values()].filter((times) => times > 1).length;
console.log(JSON.stringify({ done: done.size, more_than_once: again, ...counts }));
process.exit(0);
