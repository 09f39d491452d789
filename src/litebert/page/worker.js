// The model of this folder, in a worker: it loads the engine, the model and the tokenizer, and answers one request after
// another. In:  {id, ability, body} or {cancel: id}.  Out:  {progress}, {ready}, {id, results}, or {id, trouble}.
import { MOST_SHOWN, ask, openModel } from "./abilities.js";
import { pickBuild, startEngine } from "./engine/engine.js";
import { ORT, startSession } from "./ort.js";
import { Tokens } from "./tokens.js";
import { Trouble } from "./trouble.js";

const asked = new URLSearchParams(location.search); // ?device=wasm (or ort) and ?precision=fp32 choose; otherwise the page does
const cancelled = new Set();
let waiting = Promise.resolve(); // the end of the queue
let model = null;

const missing = (name, why) => new Trouble(0, /^(runtime|engine)\//.test(name) ? "no_runtime" : "no_file", `${name} ${why}. Check that the whole folder is on this host, and that nothing blocks the file.`);

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

/** WebGPU if the browser supports it and the folder has a file for it; otherwise the engine ("wasm"). */
async function pickDevice(about) {
  const wanted = asked.get("device");
  if (wanted === "ort") return "ort";
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
  const threads = crossOriginIsolated ? Math.min(8, navigator.hardwareConcurrency || 1) : 1;
  const modelFile = about.precisions[asked.get("precision")] ?? about.models[device] ?? about.models.wasm;
  const names = [modelFile, "tokenizer.json", ...(device === "wasm" ? [] : [ORT.binary])];
  const total = names.reduce((sum, name) => sum + about.files[name].bytes, 0);
  let done = 0;
  const onBytes = (count) => { done += count; postMessage({ progress: { done, total } }); };
  const address = (name) => `./${name}?v=${about.files[name]?.version ?? ""}`;
  const script = async (name) => {
    try {
      return await import(address(name));
    } catch {
      throw missing(name, "could not be loaded");
    }
  };
  const [build, [weights, tokenizer, binary], { Tokenizer }, ort] = await Promise.all([
    device === "wasm" ? pickBuild((name) => download(`engine/${name}`, about.files, () => {})) : null,
    Promise.all(names.map((name) => download(name, about.files, onBytes))),
    script("runtime/tokenizers.min.mjs"),
    device === "wasm" ? null : script(ORT.script),
  ]);
  postMessage({ progress: { done, total, starting: true } });
  const engine = device === "wasm"
    ? await startOnCpu({ build, weights, plan: about.engine, threads })
    : await startSession({ ort, binary, glue: new URL(address(ORT.glue), location.href).href, weights, device: device === "ort" ? "wasm" : device, threads });
  model = openModel(about, engine, new Tokens(Tokenizer, json(tokenizer), {}, about));
  const runtime = device === "webgpu" ? "WebGPU" : `${threads} thread${threads > 1 ? "s" : ""}`;
  const depths = device === "wasm" ? about.model.depths : null; // a graph has one
  return { models: [{ ...about.model, runtime, depths }], version: about.version, device, build: build?.name, isolated: crossOriginIsolated, took: performance.now() - began };
}

/** The engine's run(); errors become Trouble. */
async function startOnCpu(options) {
  try {
    const engine = await startEngine(options);
    return { run: (request, outputs) => engine.run(request, outputs, MOST_SHOWN), runEarly: engine.runEarly.bind(engine) };
  } catch (error) {
    throw new Trouble(0, "no_runtime", `The model could not be started: ${error.message ?? error}.`);
  }
}

const trouble = ({ status = 0, code = "failed", message }) => ({ status, code, message });

load().then((ready) => postMessage({ ready }), (error) => postMessage({ trouble: trouble(error) }));

addEventListener("message", ({ data: { id, ability, body, cancel } }) => {
  if (cancel !== undefined) { cancelled.add(cancel); return; }
  waiting = waiting.then(async () => {
    if (cancelled.delete(id)) return;
    try {
      postMessage({ id, results: await ask(model, ability, body) });
    } catch (error) {
      postMessage({ id, trouble: trouble(error) });
    }
  });
});
