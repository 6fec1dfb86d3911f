// A reporter for Node's runner of tests: one line of JSON for each test, `passed`, `skipped` or what went wrong.
export default async function* outcomes(source) {
  for await (const { type, data } of source) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    // Files are tests, too; what stands alone in one is named by itself.
    if (data.details?.type === "suite" || data.name.endsWith(".mjs")) {
      if (type === "test:pass" || data.details?.error?.failureType === "subtestsFailed") continue;
    }
    if (data.skip !== undefined) continue;
    const error = data.details?.error;
    const why = String(error?.cause?.message ?? error?.message ?? "failed").split("\n").slice(0, 4).join(" ").slice(0, 300);
    yield JSON.stringify({ test: data.name, outcome: type === "test:pass" ? "passed" : `failed: ${why}` }) + "\n";
  }
}
