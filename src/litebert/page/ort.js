// A model run by onnxruntime-web: on WebGPU, which the engine does not support; with ?device=ort on the CPU, for comparison.
import { Trouble } from "./trouble.js";

export const ORT = { script: "runtime/ort.jspi.min.mjs", glue: "runtime/ort-wasm-simd-threaded.jspi.mjs", binary: "runtime/ort-wasm-simd-threaded.jspi.wasm" };

/** {run({ids, segments, positions}, outputs)}, as the engine's, at full depth: a graph has one. */
export async function startSession({ ort, binary, glue, weights, device, threads }) {
  ort.env.wasm.numThreads = threads;
  ort.env.wasm.wasmBinary = binary;
  ort.env.wasm.wasmPaths = { mjs: glue };
  let session;
  try {
    session = await ort.InferenceSession.create(weights, { executionProviders: [device], graphOptimizationLevel: "all", logSeverityLevel: 3 });
  } catch (error) {
    throw new Trouble(0, "no_runtime", `The model could not be started: ${error.message ?? error}`);
  }
  const numbers = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  const run = async ({ ids, segments, positions }, outputs) => {
    const made = await session.run({ input_ids: numbers(ids), attention_mask: numbers(ids.map(() => 1)), token_type_ids: numbers(segments) }, outputs);
    if (!positions || !made.logits) return made;
    const { dims: [, , width], data } = made.logits;
    const rows = new Float32Array(positions.length * width);
    positions.forEach((position, i) => rows.set(data.subarray(position * width, (position + 1) * width), i * width));
    return { ...made, logits: { dims: [1, positions.length, width], data: rows } };
  };
  return { run };
}
