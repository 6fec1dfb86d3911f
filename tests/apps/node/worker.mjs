// A process that works for a queue of BullMQ until it is killed: `worker.mjs QUEUE PORT hold|count [PORT...]`.
import { Worker } from "bullmq";

const [name, port, what] = process.argv.slice(2);
const worker = new Worker(
  name,
  async (job) => {
    if (what === "hold") await new Promise(() => setTimeout(() => {}, 2 ** 30));
    process.send?.(job.id);
  },
  { connection: { port: Number(port), maxRetriesPerRequest: null }, lockDuration: 1000, stalledInterval: 300 },
);
worker.on("error", () => {});
