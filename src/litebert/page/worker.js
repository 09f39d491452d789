// The model of this folder, in a worker: it loads the runtime, the model and the tokenizer, and answers one request after
// another. In:  {id, ability, body} or {cancel: id}.  Out:  {progress}, {ready}, {id, results}, or {id, trouble}.
import { ABILITIES } from "./abilities.js";
import { Tokens } from "./tokens.js";
import { Trouble } from "./trouble.js";

const BUILDS = {
  wasm: { script: "runtime/ort.wasm.min.mjs", glue: "runtime/ort-wasm-simd-threaded.mjs", binary: "runtime/ort-wasm-simd-threaded.wasm" },
  webgpu: { script: "runtime/ort.jspi.min.mjs", glue: "runtime/ort-wasm-simd-threaded.jspi.mjs", binary: "runtime/ort-wasm-simd-threaded.jspi.wasm" },
};
const asked = new URLSearchParams(location.search); // ?device=wasm and ?precision=fp32 choose; otherwise the page does
const cancelled = new Set();
let waiting = Promise.resolve(); // the end of the queue
let model = null;

const missing = (name, why) => new Trouble(0, name.startsWith("runtime/") ? "no_runtime" : "no_file", `${name} ${why}. Check that the whole folder is on this host, and that nothing blocks the file.`);

/** The bytes of a file, reported as they arrive; the version in the address keeps caches right. */
async function download(name, files, onBytes) {
  let response;
  try {
    response = await fetch(`${name}?v=${files[name]?.version ?? ""}`);
  } catch {
    throw missing(name, "could not be loaded");
  }
  if (!response.ok) throw missing(name, response.status === 404 ? "is not there" : `could not be loaded (status ${response.status})`);
  const parts = [];
  const reader = response.body.getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      onBytes(part.value.length);
    }
  } catch {
    throw missing(name, "broke off while it was loaded");
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

const json = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

/** WebGPU where the browser has it and the folder has a file for it; otherwise wasm. */
async function pickDevice(about) {
  const wanted = asked.get("device");
  if (wanted === "wasm" || !about.models.webgpu || !("Suspending" in WebAssembly)) return "wasm";
  try {
    return (await navigator.gpu?.requestAdapter()) ? "webgpu" : "wasm";
  } catch {
    return "wasm";
  }
}

async function load() {
  const began = performance.now();
  const about = json(await download("page.json", {}, () => {}));
  const device = await pickDevice(about);
  const build = BUILDS[device];
  const modelFile = about.precisions[asked.get("precision")] ?? about.models[device];
  const names = [build.binary, modelFile, "tokenizer.json"];
  const total = names.reduce((sum, name) => sum + about.files[name].bytes, 0);
  let done = 0;
  const onBytes = (count) => { done += count; postMessage({ progress: { done, total } }); };
  const [binary, weights, tokenizer] = await Promise.all(names.map((name) => download(name, about.files, onBytes)));
  const [ort, { Tokenizer }] = await Promise.all([build.script, "runtime/tokenizers.min.mjs"].map(async (name) => {
    try {
      return await import(`./${name}?v=${about.files[name]?.version ?? ""}`);
    } catch {
      throw missing(name, "could not be loaded");
    }
  }));
  const threads = crossOriginIsolated ? Math.min(8, navigator.hardwareConcurrency || 1) : 1;
  ort.env.wasm.numThreads = threads;
  ort.env.wasm.wasmBinary = binary;
  ort.env.wasm.wasmPaths = { mjs: new URL(`${build.glue}?v=${about.files[build.glue]?.version ?? ""}`, location.href).href };
  postMessage({ progress: { done, total, starting: true } });
  let session;
  try {
    session = await ort.InferenceSession.create(weights, { executionProviders: [device], graphOptimizationLevel: "all", logSeverityLevel: 3 });
  } catch (error) {
    throw new Trouble(0, "no_runtime", `The model could not be started: ${error.message ?? error}`);
  }
  const numbers = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  const run = async ({ ids, segments }, outputs) => {
    const kinds = segments.map((segment) => Math.min(segment, about.type_vocab_size - 1));
    return session.run({ input_ids: numbers(ids), attention_mask: numbers(ids.map(() => 1)), token_type_ids: numbers(kinds) }, outputs);
  };
  model = { about, run, tokens: new Tokens(Tokenizer, json(tokenizer), {}, about) };
  const runtime = device === "webgpu" ? "WebGPU" : `${threads} thread${threads > 1 ? "s" : ""}`;
  return { models: [{ ...about.model, runtime }], version: about.version, device, isolated: crossOriginIsolated, took: performance.now() - began };
}

const trouble = ({ status = 0, code = "failed", message }) => ({ status, code, message });

load().then((ready) => postMessage({ ready }), (error) => postMessage({ trouble: trouble(error) }));

addEventListener("message", ({ data: { id, ability, body, cancel } }) => {
  if (cancel !== undefined) { cancelled.add(cancel); return; }
  waiting = waiting.then(async () => {
    if (cancelled.delete(id)) return;
    try {
      postMessage({ id, results: await ABILITIES[ability](model, body) });
    } catch (error) {
      postMessage({ id, trouble: trouble(error) });
    }
  });
});
