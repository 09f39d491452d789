// A model on the CPU in this tab: engine.wasm with the weights of an exported ONNX file. The numbers are those of the file's
// own graph (litebert/export/model_graph.py); names of arrays are as there.
//
//   const engine = await startEngine({ build, weights, plan, threads });
//   engine.run({ ids, segments }, ["logits"])   -> {logits: {dims, data}}
//   engine.run({ ids, segments, depth: 6 }, ["logits"])                     after 6 layers
//   engine.runEarly([{ ids, segments }], ["logits"], [3, 6, 9, 12], stops)  as many as `stops` finds enough
//
// `plan` (page.json, written by export/web.py) holds everything that is not an array: the head, the activation, which blocks are applied
// in which order. Shapes: S tokens, H hidden, E embedding, P positions, V words, L applications, A heads, N labels.
import { readArrays } from "./weights.js";

const PAGE = 65536; // bytes
const STACK = 65536; // bytes, of each further thread
const NONE = 0;
const ACTIVATIONS = { gelu: 1, gelu_new: 2, gelu_pytorch_tanh: 2, relu: 3 };
const WORDS = "encoder.embeddings.word";

/** The build for this browser and CPU, compiled; `download(name)` gives the bytes of a file. */
export async function pickBuild(download) {
  for (const name of ["engine-relaxed.wasm", "engine.wasm"]) {
    const bytes = await download(name);
    if (!WebAssembly.validate(bytes)) continue; // no relaxed SIMD
    const module = await WebAssembly.compile(bytes);
    const { exports } = await WebAssembly.instantiate(module, { env: { memory: makeMemory(16) } });
    if (exports.probe()) return { name, module };
  }
  throw new Error("this browser has no SIMD in WebAssembly; newer ones have");
}

// Memory that threads can share; a page that may not share memory has one thread.
const makeMemory = (maximum) => new WebAssembly.Memory({ initial: 16, maximum, shared: true });

export async function startEngine({ build: { module }, weights, plan, threads = 1 }) {
  const arrays = readArrays(weights);
  const { hidden_size: width, intermediate_size: inner, max_tokens: tokens, vocab_size: words } = plan;
  const most = 2.5 * weights.length + 4 * tokens * (8 * width + 2 * inner + words) + 64e6; // an upper bound
  const memory = makeMemory(Math.min(65536, Math.ceil(most / PAGE)));
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  exports.probe(); // sets how inputs are rounded, before any matrix is filled
  const engine = new Engine(exports, memory, arrays, plan);
  exports.set_threads(threads);
  await Promise.all(Array.from({ length: threads - 1 }, (_, i) => startThread(module, memory, engine.allocate(STACK) + STACK, i + 1)));
  engine.kept = exports.mark();
  return engine;
}

function startThread(module, memory, stack, thread) {
  const worker = new Worker(new URL("thread.js", import.meta.url), { type: "module" });
  return new Promise((resolve, reject) => {
    worker.addEventListener("message", resolve);
    worker.addEventListener("error", (event) => { event.preventDefault(); reject(new Error("engine/thread.js could not be loaded")); });
    worker.postMessage({ module, memory, stack, thread });
  });
}

export class Engine {
  constructor(exports, memory, arrays, plan) {
    Object.assign(this, { exports, memory, arrays, plan, room: 0 });
    const { hidden_size: width, heads, hidden_act, layer_norm_eps } = plan;
    this.act = ACTIVATIONS[hidden_act];
    exports.set_model(width, heads, this.act, layer_norm_eps);
    this.words = this.matrix(WORDS, { bias: "masked_lm.bias", turned: true });
    this.positions = this.table("encoder.embeddings.position");
    this.segments = this.table("encoder.embeddings.segment");
    this.norms = { embeddings: this.norm("encoder.embeddings.norm"), masked_lm: this.norm("masked_lm.norm") };
    this.linear = Object.fromEntries(["encoder.embeddings.projection", "encoder.projection", "encoder.pooler", "masked_lm.dense", "masked_lm.projection",
      "masked_lm.output", "sentence", "classifier", "span", ...plan.exits.map((depth) => `exits.${depth}`)].map((name) => [name, this.matrix(name)]));
    const made = {};
    const block = (kind, number, make, first) => (made[kind + number] ??= make(
      ...[first, "output"].map((part) => this.matrix(`encoder.${kind}.${number}.${part}`).at), ...this.norm(`encoder.${kind}.${number}.norm`)));
    for (const [attention, ffn] of plan.applications) {
      const blocks = [block("attention", attention, exports.new_attention, "qkv"), block("ffn", ffn, exports.new_ffn, "input")];
      if (!exports.apply(...blocks)) throw new Error("the model applies more layers than the engine has places for");
    }
    this.arrays = null; // of the file, which is no longer needed
    this.kept = exports.mark();
  }

  allocate(size) {
    const at = this.exports.allocate(size);
    if (!at) throw new Error("the browser gives this page too little memory");
    return at >>> 0;
  }

  // Views last until the memory grows, so they are never kept.
  view(at, count) { return new Float32Array(this.memory.buffer, at, count); }

  // -------------------------------------------------------------------------------------------------------------------
  // Weights

  /** Bytes of the file in the engine's memory. */
  copy({ bytes }) {
    const at = this.allocate(bytes.length);
    new Uint8Array(this.memory.buffer).set(bytes, at);
    return at;
  }

  floats(array) { return array && this.copy(array); }

  /** A linear layer [K, N] in any of the forms of export/graph.py; null if the model has none of this name. */
  matrix(name, { bias = `${name}.bias`, turned = false } = {}) {
    const { exports, arrays } = this;
    const [whole, eight, four, six] = ["", ".int8", ".int4", ".int6"].map((form) => arrays[`${name}.weight${form}`]);
    const stored = whole ?? eight ?? four ?? six;
    if (!stored) return null;
    const shape = [stored.shape[0] * (four ? 2 : 1), stored.shape[1] * (six ? 2 : 1)];
    const [k, n] = turned ? shape.reverse() : shape;
    const at = exports.new_matrix(k, n, whole ? 0 : 1);
    if (!at) this.allocate(0xffffffff); // says so
    const smoothing = this.floats(arrays[`${name}.smoothing`]);
    const scratch = exports.mark();
    if (whole) exports.fill_floats(at, this.copy(whole), turned);
    else if (eight) exports.fill_eight(at, this.copy(eight), turned);
    else if (four) exports.fill_four(at, this.copy(four), this.copy(arrays[`${name}.steps`]), k / arrays[`${name}.steps`].shape[0]);
    else exports.fill_six(at, this.copy(six), this.copy(arrays[`${name}.weight.high`]));
    if (!whole) exports.set_scale(at, this.floats(arrays[`${name}.scale`]));
    if (arrays[bias]) exports.set_bias(at, this.floats(arrays[bias]));
    exports.release(scratch);
    if (smoothing) exports.set_smoothing(at, smoothing);
    return { at, k, n };
  }

  /** Small embeddings, as rows of floats outside of the engine's memory. */
  table(name) {
    const { [`${name}.weight`]: whole, [`${name}.weight.int8`]: eight, [`${name}.scale`]: scale } = this.arrays;
    const { shape: [, width], bytes } = whole ?? eight;
    const values = whole ? new Float32Array(bytes.slice().buffer) : Float32Array.from(new Int8Array(bytes.slice().buffer));
    if (!whole) new Float32Array(scale.bytes.slice().buffer).forEach((by, i) => { for (let j = i * width; j < (i + 1) * width; j += 1) values[j] *= by; });
    return (i) => values.subarray(i * width, (i + 1) * width);
  }

  norm(name) {
    return ["weight", "bias"].map((part) => this.floats(this.arrays[`${name}.${part}`]));
  }

  // -------------------------------------------------------------------------------------------------------------------
  // A sequence

  /** The wanted outputs of one sequence after `depth` layers (all); words are predicted at `positions` (everywhere). */
  run(request, outputs, shown = 0) {
    const wanted = new Set(outputs);
    const pictures = wanted.has("attentions") || wanted.has("states") ? Math.min(shown, request.ids.length) : 0;
    this.reserve(request.ids.length, pictures);
    const after = this.exports.mark();
    this.embed(request);
    const made = this.advance(request, 0, request.depth ?? this.plan.layers, wanted, pictures);
    this.exports.release(after);
    return made;
  }

  /** The outputs of sequences that stop together: at the first of the exits where `stops(outputs, depth)`, or at the last. */
  runEarly(requests, outputs, exits, stops) {
    const wanted = new Set(outputs);
    this.reserve(Math.max(...requests.map(({ ids }) => ids.length)), 0);
    const after = this.exports.mark();
    const waiting = []; // the states of each, where there are several
    let before = 0;
    for (const depth of exits) {
      const made = requests.map((request, i) => {
        const states = () => this.view(this.exports.hidden(), request.ids.length * this.plan.hidden_size);
        if (!before) this.embed(request);
        else if (requests.length > 1) states().set(waiting[i]);
        const found = this.advance(request, before, depth, wanted);
        if (requests.length > 1) waiting[i] = states().slice();
        this.exports.release(after);
        return { ...found, depth };
      });
      if (depth === exits.at(-1) || stops(made, depth)) return made;
      before = depth;
    }
    throw new Error("there are no exits");
  }

  /** The states in their place through the layers `begin` to `end`, and the wanted outputs there. */
  advance({ ids, positions = ids.map((_, i) => i) }, begin, end, wanted, pictures = 0) {
    const { exports, plan: { hidden_size: width, heads, inner } } = this;
    exports.run_encoder(ids.length, pictures, begin * inner, end * inner);
    const hidden = exports.hidden();
    const made = {};
    const give = (name, dims, at) => { if (wanted.has(name)) made[name] = { dims, data: this.view(at, dims.reduce((a, b) => a * b)).slice() }; };
    give("last_hidden_state", [1, ids.length, width], hidden);
    if (pictures) {
      give("attentions", [1, end * inner, heads, pictures, pictures], exports.maps());
      give("states", [1, end * inner + 1, pictures, width], exports.states());
    }
    this.runHead(hidden, ids.length, positions, end, wanted, give);
    return made;
  }

  /** The head of the exit at this depth, or the only one. */
  runHead(hidden, tokens, positions, depth, wanted, give) {
    const { linear, plan: { head, pooling, hidden_size: width } } = this;
    const of = (name) => (linear[`exits.${depth}`] ? `exits.${depth}` : name);
    let pooled = null;
    if (linear["encoder.pooler"]) {
      pooled = this.multiply("encoder.pooler", hidden, 1);
      this.view(pooled, width).forEach((value, i, values) => { values[i] = Math.tanh(value); });
      give("pooler_output", [1, width], pooled);
    }
    give("summary", [1, width], pooled ?? hidden); // what the gate of an exit rule reads
    if (linear.sentence && wanted.has("sentence")) give("sentence", [1, 2], this.multiply("sentence", pooled, 1));
    if (!["logits", "start_logits", "end_logits"].some((name) => wanted.has(name))) return;
    if (linear["masked_lm.dense"]) {
      give("logits", [1, positions.length, this.words.n], this.predict(this.gather(hidden, positions, width), positions.length));
    } else if (head === "span") {
      const both = this.view(this.multiply(of("span"), hidden, tokens), 2 * tokens);
      const parts = [0, 1].map((i) => Float32Array.from({ length: tokens }, (_, token) => both[2 * token + i]));
      ["start_logits", "end_logits"].forEach((name, i) => give(name, [1, tokens], this.place(parts[i])));
    } else if (head === "token-classification") {
      give("logits", [1, tokens, linear.classifier.n], this.multiply(of("classifier"), hidden, tokens));
    } else if (linear.classifier) {
      const summary = pooling === "mean" ? this.place(this.mean(hidden, tokens)) : pooled;
      give("logits", head === "multiple-choice" ? [1] : [1, linear.classifier.n], this.multiply(of("classifier"), summary, 1));
    }
  }

  /** Room for sequences of this length. */
  reserve(tokens, shown) {
    if (tokens <= this.room && shown <= this.shown) return;
    const { exports, plan } = this;
    [this.room, this.shown] = [Math.max(tokens, this.room), Math.max(shown, this.shown ?? 0)];
    exports.release(this.kept);
    const widest = Math.max(...[this.words, ...Object.values(this.linear)].map((matrix) => matrix?.k ?? 0), plan.hidden_size, plan.intermediate_size);
    if (!exports.reserve(this.room, widest, plan.intermediate_size, this.shown)) { this.room = 0; this.allocate(0xffffffff); }
  }

  /** The states before the first application [S, H]: words + positions + segments, LayerNorm, and the projections. */
  embed({ ids, segments }) {
    const { exports, linear, words: { at: table, k: size }, plan: { hidden_size: width } } = this;
    let [states, across] = [this.allocate(4 * ids.length * size), size];
    ids.forEach((id, i) => exports.look_up(table, id, states + 4 * i * size));
    if (linear["encoder.embeddings.projection"]) [states, across] = [this.multiply("encoder.embeddings.projection", states, ids.length), width];
    const view = this.view(states, ids.length * across);
    ids.forEach((_, i) => {
      const [position, segment] = [this.positions(i), this.segments(segments[i])];
      for (let j = 0; j < across; j += 1) view[i * across + j] += position[j] + segment[j];
    });
    exports.run_norm(states, ids.length, across, ...this.norms.embeddings);
    if (linear["encoder.projection"]) states = this.multiply("encoder.projection", states, ids.length);
    this.view(exports.hidden(), ids.length * width).set(this.view(states, ids.length * width));
  }

  /** Logits of words [P, V] of states [P, H]. */
  predict(states, count) {
    const { exports, linear } = this;
    let narrow = this.multiply("masked_lm.dense", states, count, this.act);
    exports.run_norm(narrow, count, linear["masked_lm.dense"].n, ...this.norms.masked_lm);
    if (linear["masked_lm.projection"]) narrow = this.multiply("masked_lm.projection", narrow, count);
    return this.multiplyBy(linear["masked_lm.output"] ?? this.words, narrow, count);
  }

  multiply(name, states, rows, activation = NONE) { return this.multiplyBy(this.linear[name], states, rows, activation); }

  multiplyBy({ at, n }, states, rows, activation = NONE) {
    const result = this.allocate(4 * rows * n);
    this.exports.run_linear(at, states, rows, result, activation);
    return result;
  }

  gather(states, positions, width) {
    const chosen = this.allocate(4 * positions.length * width);
    const [from, to] = [this.view(states, (Math.max(...positions) + 1) * width), this.view(chosen, positions.length * width)];
    positions.forEach((position, i) => to.set(from.subarray(position * width, (position + 1) * width), i * width));
    return chosen;
  }

  place(values) {
    const at = this.allocate(4 * values.length);
    this.view(at, values.length).set(values);
    return at;
  }

  mean(hidden, tokens) {
    const { hidden_size: width } = this.plan;
    const sums = new Float64Array(width);
    this.view(hidden, tokens * width).forEach((value, i) => { sums[i % width] += value / tokens; });
    return Float32Array.from(sums);
  }
}
