// The page's engine in Node: node engine.mjs JOB.json -> one line of JSON for each case, arrays in base64.
//   {"engine": folder of engine.js, "binaries": folder, "model": file, "plan": {...}, "outputs": [...], "shown": 64, "cases": [{ids, segments, positions}]}
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const job = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { pickBuild, startEngine } = await import(pathToFileURL(`${job.engine}/engine.js`));
const build = await pickBuild(async (name) => readFileSync(`${job.binaries}/${name}`));
const engine = await startEngine({ build, weights: readFileSync(job.model), plan: job.plan });
for (const request of job.cases) {
  const made = engine.run(request, job.outputs, job.shown);
  const rows = Object.entries(made).map(([name, { dims, data }]) => [name, { dims, data: Buffer.from(data.buffer).toString("base64") }]);
  console.log(JSON.stringify(Object.fromEntries(rows)));
}
