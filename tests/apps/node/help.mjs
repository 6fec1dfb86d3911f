// What the tests share: where the server is, and waiting.
import assert from "node:assert/strict";
import { after, beforeEach } from "node:test";
import { Redis } from "ioredis";

export const ports = process.env.APPS_PORTS.split(",").map(Number);
export const port = ports[0];
export const protocol = Number(process.env.APPS_PROTOCOL ?? 2);
export const url = `redis://127.0.0.1:${port}`;
export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Waits until `condition` is true and returns what it returned. */
export async function until(condition, what = String(condition), seconds = 20) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const result = await condition();
    if (result) return result;
    assert.ok(Date.now() < deadline, `not within ${seconds} s: ${what}`);
    await pause(20);
  }
}

// Files run beside one another, so each test has keys of its own and none empties the server.
let number = 0;
export const unique = (name) => `${name}:${process.pid}:${++number}`;

const closing = [];
/** Closes something at the end of the file, in any order that its kind needs. */
export function later(close) {
  closing.push(close);
}
after(async () => {
  for (const close of closing.reverse()) await close();
});

export function connect(options = {}) {
  const client = new Redis({ port, maxRetriesPerRequest: null, ...options });
  later(() => client.disconnect());
  return client;
}
export { assert, beforeEach };
