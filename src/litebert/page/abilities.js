// The abilities of a model in this tab, with the answers of litebert/predict: fields, rules and numbers are the same. What
// differs: a text that is too long for one pass is refused here, and sentences are split by the browser.
import { BY_HEAD } from "./depth.js";
import { outputsFor, stopsBy } from "./exits.js";
import { best, sigmoid, softmax } from "./numbers.js";
import { Trouble } from "./trouble.js";
import { checkText, readable, sentenceSpans, wordSpans } from "./tokens.js";

export const MOST_SHOWN = 64; // tokens of attention maps and states
const N_BEST = 20; // spans that the probabilities of answers are over

const refuse = (message) => { throw new Trouble(422, "invalid_input", message); };

/** [CLS] A [SEP], or [CLS] A [SEP] B [SEP]. */
function request({ tokens, about }, first, second = null, what = "This") {
  const ids = [tokens.cls, ...first, tokens.sep, ...(second ? [...second, tokens.sep] : [])];
  if (ids.length > about.max_length) {
    throw new Trouble(413, "too_many_tokens", `${what} is ${ids.length} tokens, and the model reads ${about.max_length} at once. Shorten it, or use litebert serve, which reads long texts in parts.`);
  }
  return { ids, segments: ids.map((_, i) => (i > first.length + 1 ? 1 : 0)) };
}

/** Tokens to keep of each text if the longer one always loses its last. */
function cutPair(a, b, room) {
  if (a + b <= room) return [a, b];
  const half = (room + 1) >> 1;
  if (a < half) return [a, room - a];
  if (b < room - half) return [room - b, b];
  return [half, room - half];
}

/** Row `i` of an output [1, S, N]. */
const row = ({ data, dims }, i) => data.subarray(i * dims.at(-1), (i + 1) * dims.at(-1));

/** [probability, id] of the likeliest words, without sorting the whole vocabulary. */
function likeliest(probabilities, count) {
  const least = Float64Array.from(probabilities).sort().at(-Math.min(count, probabilities.length));
  return probabilities.flatMap((p, id) => (p >= least ? [[p, id]] : [])).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
}

async function fill_mask(model, { text, top }) {
  const { tokens } = model;
  const ids = tokens.encode(text, "text", { masks: true });
  const maskId = tokens.maskId;
  const places = ids.flatMap((id, i) => (id === maskId ? [i] : []));
  if (!places.length) refuse(`text: contains no ${tokens.mask}; put ${tokens.mask} where you want a word.`);
  const { logits } = await model.run({ ...request(model, ids), positions: places.map((place) => place + 1) }, ["logits"]);
  const characters = [...text];
  const size = [...tokens.mask].length;
  const spans = characters.flatMap((_, i) => (characters.slice(i, i + size).join("") === tokens.mask ? [i] : []));
  const masks = places.map((_, i) => {
    const probabilities = softmax(row(logits, i).subarray(0, tokens.size));
    const order = likeliest(probabilities, top + tokens.silent.size);
    const read = order.filter(([, id]) => !tokens.silent.has(tokens.piece(id))).slice(0, top);
    const candidates = read.map(([probability, id]) => ({ word: readable(tokens.piece(id)), piece: tokens.piece(id), probability }));
    return { start: spans[i], end: spans[i] + size, candidates };
  });
  return [{ text, masks, joint: [] }];
}

/** Whole sentences on both sides of a joint, nearest first, as many as the model takes. */
function meeting(model, before, after) {
  const room = model.about.max_length - 3;
  const sides = [[...before].reverse(), [...after]];
  sides.forEach((side, i) => { if (!side.length) refuse(`the ${["first", "second"][i]} text has nothing that the vocabulary covers.`); });
  const [first, second] = sides.map((side) => side.shift());
  const [keepA, keepB] = cutPair(first.length, second.length, room);
  if (keepA < first.length || keepB < second.length) return request(model, first.slice(-keepA), second.slice(0, keepB));
  const taken = [[first], [second]];
  const sizes = [keepA, keepB];
  const open = new Set([0, 1]);
  while (open.size) {
    const side = [...open].sort((a, b) => sizes[a] - sizes[b])[0];
    const next = sides[side][0];
    if (!next || sizes[0] + sizes[1] + next.length > room) { open.delete(side); continue; }
    taken[side].push(sides[side].shift());
    sizes[side] += next.length;
  }
  return request(model, taken[0].reverse().flat(), taken[1].flat());
}

async function margin(model, pair) {
  const { sentence } = await model.run(pair, ["sentence"]);
  return sentence.data[0] - sentence.data[1];
}

async function sentence_order(model, { a, b, symmetric }) {
  const [before, after] = [a, b].map((text, i) => {
    checkText(text, "ab"[i]);
    return sentenceSpans(text, model.about.language).map((span) => model.tokens.ids(span.text)).filter((ids) => ids.length);
  });
  const there = await margin(model, meeting(model, before, after));
  if (!symmetric) return [{ probability: sigmoid(there), forward: sigmoid(there), backward: null }];
  const back = await margin(model, meeting(model, after, before));
  return [{ probability: sigmoid((there - back) / 2), forward: sigmoid(there), backward: sigmoid(back) }];
}

async function coherence(model, { text, group = 2 }) {
  checkText(text, "text");
  const read = sentenceSpans(text, model.about.language).map((span) => [span, model.tokens.ids(span.text)]).filter(([, ids]) => ids.length);
  if (read.length < 2) refuse(`text: has ${read.length} sentence(s); coherence needs two or more.`);
  const [sentences, ids] = [0, 1].map((i) => read.map((entry) => entry[i]));
  const boundaries = [];
  for (let at = 1; at < ids.length; at += 1) {
    const [before, after] = [ids.slice(Math.max(0, at - group), at), ids.slice(at, at + group)];
    const there = await margin(model, meeting(model, before, after));
    const back = await margin(model, meeting(model, after, before));
    boundaries.push(sigmoid((there - back) / 2));
  }
  return [{ score: boundaries.reduce((a, b) => a + b) / boundaries.length, sentences, boundaries }];
}

async function embed(model, { text, pooling = model.about.pooling, normalize }) {
  const results = [];
  for (const each of [text].flat()) {
    const ids = model.tokens.encode(each);
    const asked = request(model, ids, null, Array.isArray(text) ? `“${[...each].slice(0, 40).join("")}…”` : "This"); // which of the lines
    const { last_hidden_state: hidden } = await model.run(asked, ["last_hidden_state"]);
    const [, count, width] = hidden.dims;
    const vector = new Float64Array(width);
    for (let i = 0; i < (pooling === "mean" ? count : 1); i += 1) row(hidden, i).forEach((value, j) => { vector[j] += value; });
    const scale = normalize ? Math.max(Math.hypot(...vector), 1e-12) : pooling === "mean" ? count : 1;
    results.push({ vector: Array.from(vector, (value) => value / scale), pooling, tokens: ids.length, windows: 1 });
  }
  return results;
}

async function classify(model, { text, pair }) {
  const { task } = model.about;
  const second = pair === null || pair === undefined ? null : model.tokens.encode(pair, "pair");
  const { logits } = await model.run(request(model, model.tokens.encode(text), second), ["logits"]);
  const values = Array.from(logits.data);
  const plain = { label: null, probabilities: {}, labels: [], value: null, scale: null, windows: 1 };
  if (task.kind === "regression") return [{ ...plain, value: values[0], scale: task.scale }];
  const several = task.kind === "multi-label";
  const probabilities = several ? values.map(sigmoid) : softmax(values);
  const ranked = task.labels.map((label, i) => [label, probabilities[i]]).sort((a, b) => b[1] - a[1]);
  const labels = several ? task.labels.filter((_, i) => probabilities[i] >= 0.5) : [task.labels[best(probabilities)]];
  return [{ ...plain, label: several ? ranked[0][0] : labels[0], probabilities: Object.fromEntries(ranked), labels }];
}

/** The pieces of a text or a pair, cut to what is shown, and the tokens that are left out. */
function shown(model, { text, pair }) {
  const first = model.tokens.encode(text);
  const second = pair ? model.tokens.encode(pair, "pair") : null;
  const room = Math.min(MOST_SHOWN, model.about.max_length) - (second ? 3 : 2);
  const [keepA, keepB] = cutPair(first.length, second ? second.length : 0, room);
  const asked = request(model, first.slice(0, keepA), second && second.slice(0, keepB));
  const left_out = first.length + (second ? second.length : 0) - keepA - keepB;
  return { asked, pieces: asked.ids.map((id) => model.tokens.piece(id)), segments: asked.segments, left_out };
}

async function attention(model, body) {
  const { asked, ...read } = shown(model, body);
  const { attentions } = await model.run(asked, ["attentions"]);
  const [, layers, heads, size] = attentions.dims;
  const at = (layer, head, i) => Array.from(attentions.data.subarray(((layer * heads + head) * size + i) * size, ((layer * heads + head) * size + i + 1) * size));
  const weights = Array.from({ length: layers }, (_, layer) => Array.from({ length: heads }, (_, head) => Array.from({ length: size }, (_, i) => at(layer, head, i))));
  return [{ ...read, weights }];
}

/** How each application moves the states of the tokens: distance and cosine of its input and output, and a map. */
async function states(model, body) {
  const { asked, ...read } = shown(model, body);
  const { states: all } = await model.run(asked, ["states"]);
  const [, steps, size, width] = all.dims;
  const state = (step, i) => all.data.subarray((step * size + i) * width, (step * size + i + 1) * width);
  const [distances, cosines] = [[], []];
  for (let step = 1; step < steps; step += 1) {
    const pairs = Array.from({ length: size }, (_, i) => [state(step - 1, i), state(step, i)]);
    distances.push(pairs.map(([a, b]) => Math.sqrt(a.reduce((sum, value, k) => sum + (value - b[k]) ** 2, 0))));
    cosines.push(pairs.map(([a, b]) => dot(a, b) / Math.max(Math.sqrt(dot(a, a) * dot(b, b)), 1e-12)));
  }
  return [{ ...read, distances, cosines, points: project(all.data, steps, size, width) }];
}

function dot(a, b) {
  let sum = 0;
  for (let k = 0; k < a.length; k += 1) sum += a[k] * b[k]; // several times as fast as reduce
  return sum;
}

/** All states on the plane along which they differ most (the first two principal components): [step][token][x, y]. */
function project(data, steps, size, width) {
  const count = steps * size;
  const mean = new Float64Array(width);
  for (let i = 0; i < count * width; i += 1) mean[i % width] += data[i] / count;
  const centred = new Float64Array(data);
  for (let i = 0; i < count * width; i += 1) centred[i] -= mean[i % width];
  const rows = Array.from({ length: count }, (_, i) => centred.subarray(i * width, (i + 1) * width));
  const axes = [];
  for (let axis = 0; axis < 2; axis += 1) {
    let direction = rows.reduce((far, each) => (dot(each, each) > dot(far, far) ? each : far)).slice();
    for (let step = 0; step < 40; step += 1) { // power iteration
      const next = new Float64Array(width);
      for (const each of rows) {
        const share = dot(each, direction);
        for (let k = 0; k < width; k += 1) next[k] += share * each[k];
      }
      for (const other of axes) {
        const share = dot(other, next);
        for (let k = 0; k < width; k += 1) next[k] -= share * other[k];
      }
      const norm = Math.max(Math.sqrt(dot(next, next)), 1e-12);
      for (let k = 0; k < width; k += 1) next[k] /= norm;
      const still = step > 0 && dot(next, direction) > 1 - 1e-10;
      direction = next;
      if (still) break;
    }
    axes.push(direction);
  }
  return Array.from({ length: steps }, (_, step) => Array.from({ length: size }, (_, i) => axes.map((axis) => dot(axis, rows[step * size + i]))));
}

async function tag(model, { text }) {
  checkText(text, "text");
  const { labels } = model.about.task;
  const spans = wordSpans(text);
  const pieces = spans.map((span) => model.tokens.tokenizer.encode(span.text, { add_special_tokens: false }));
  const ids = pieces.flatMap((each) => each.ids);
  if (!ids.length) refuse("text: has no word that the vocabulary covers.");
  const firsts = []; // of each word, the token of its first piece with text in it; -1: it has none
  let at = 1; // after [CLS]
  for (const { ids: { length }, tokens } of pieces) {
    const first = tokens.findIndex((piece) => piece !== "▁");
    firsts.push(first < 0 ? -1 : at + first);
    at += length;
  }
  const asked = request(model, ids);
  const { logits } = await model.run({ ...asked, outside: asked.ids.map((_, i) => !firsts.includes(i)) }, ["logits"]);
  const words = spans.flatMap((span, i) => {
    if (firsts[i] < 0) return [];
    const probabilities = softmax(row(logits, firsts[i]));
    const top = best(probabilities);
    return [{ ...span, tag: labels[top], probability: probabilities[top] }];
  });
  return [{ text, words, entities: mergeEntities([...text], words, labels) }];
}

/** Entities in the words' tags: B-PER I-PER O -> one PER; BIO, BIOES and BILOU are read, and plain names with "O". */
export function mergeEntities(characters, words, labels) {
  const prefixed = labels.some((label) => /^[BI]-/.test(label));
  if (!prefixed && !labels.includes("O")) return [];
  const split = (name) => (prefixed && /^[BIESLU]-/.test(name) ? [name[0], name.slice(2)] : ["I", name]);
  const entities = [];
  let group = [];
  let current = "";
  const close = () => {
    if (!group.length) return;
    const [start, end] = [group[0].start, group.at(-1).end];
    entities.push({ label: current, text: characters.slice(start, end).join(""), start, end, probability: Math.min(...group.map((word) => word.probability)) });
    group = [];
  };
  for (const word of words) {
    if (word.tag === "O") { close(); continue; }
    const [prefix, name] = split(word.tag);
    if ("BSU".includes(prefix) || name !== current) close();
    current = name;
    group.push(word);
    if ("ESLU".includes(prefix)) close();
  }
  close();
  return entities;
}

async function answer(model, { question, context, top }) {
  const { task, max_length } = model.about;
  checkText(context, "context");
  const asked = model.tokens.encode(question, "question").slice(0, Math.min(task.max_question, (max_length - 3) >> 1));
  const places = model.tokens.places(context);
  if (!places.length) refuse("context: has no text that the vocabulary covers.");
  const pair = request(model, asked, places.map(({ id }) => id));
  const outside = pair.ids.map((_, i) => i !== 0 && (i < asked.length + 2 || i === pair.ids.length - 1)); // [CLS] means "no answer"
  const output = await model.run({ ...pair, outside }, ["start_logits", "end_logits"]);
  const [starts, ends] = [output.start_logits.data, output.end_logits.data].map((logits) => logits.subarray(asked.length + 2, asked.length + 2 + places.length));
  const pairs = [];
  for (let i = 0; i < places.length; i += 1) {
    for (let j = i; j < Math.min(places.length, i + task.max_answer); j += 1) pairs.push([starts[i] + ends[j], places[i].start, places[j].end]);
  }
  pairs.sort((a, b) => b[0] - a[0] || a[1] - b[1] || a[2] - b[2]);
  const characters = [...context];
  const spans = new Map(); // equal texts count once, with their best score
  for (const [score, start, end] of pairs) {
    const text = characters.slice(start, end).join("");
    if (text.trim() && !spans.has(text)) spans.set(text, { text, start, end, score });
    if (spans.size === Math.max(N_BEST, top)) break;
  }
  const found = [...spans.values()];
  const probabilities = softmax(found.map(({ score }) => score));
  const candidates = found.map((span, i) => ({ ...span, probability: probabilities[i] }));
  const { text, start, end, probability } = candidates[0];
  return [{ text, start, end, probability, no_answer: null, candidates: candidates.slice(0, top) }];
}

async function choose(model, { passage, question, options }) {
  const { task, max_length } = model.about;
  const room = max_length - 3;
  const first = model.tokens.encode(passage, "passage");
  const requests = options.map((option) => {
    const whole = question.includes("_") ? question.replace(/_+/g, () => option) : `${question} ${option}`.trim();
    const second = model.tokens.encode(whole, "options");
    const kept = second.slice(-Math.min(task.max_option, room - Math.min(first.length, room >> 1)));
    return request(model, first.slice(0, room - kept.length), kept);
  });
  const probabilities = softmax((await model.runTogether(requests, ["logits"])).map(({ logits }) => logits.data[0]));
  const index = best(probabilities);
  return [{ index, option: options[index], probabilities }];
}

export const ABILITIES = { fill_mask, sentence_order, coherence, embed, attention, states, classify, tag, answer, choose };

/** A model for `ask`: an engine's run and runEarly (or a session's run alone), with segments as the model knows them. */
export function openModel(about, { run, runEarly }, tokens) {
  const fit = (request) => ({ ...request, segments: request.segments.map((segment) => Math.min(segment, about.type_vocab_size - 1)) });
  return {
    about,
    tokens,
    run: (request, outputs) => run(fit(request), outputs),
    runEarly: runEarly && ((requests, ...rest) => runEarly(requests.map(fit), ...rest)),
  };
}

/** Refuse a depth that the model or its runtime lacks, as Predictor does. */
function checkDepth({ about, runEarly }, ability, depth) {
  const { layers, depths, rule } = about.exits;
  if (!runEarly && depth !== layers) refuse("depth: onnxruntime-web answers only at full depth; the page's engine at any.");
  if (depth === "auto") {
    if (!BY_HEAD.has(ability)) refuse("depth: auto is for what a trained head answers.");
    if (!rule) refuse("depth: this model has no rule for auto yet; litebert calibrate makes one, then export the model again.");
    return;
  }
  if (!Number.isInteger(depth)) refuse(`depth: must be a whole number, not ${depth}.`);
  if (depth < 1 || depth > layers) refuse(`depth: must be between 1 and ${layers}, the model's own; got ${depth}.`);
  if (BY_HEAD.has(ability) && depth !== layers && !depths.includes(depth)) {
    refuse(`depth: this model was not trained to answer at depth ${depth}; it has ${depths.length ? `exits at ${depths.join(", ")}` : "no exits"}.`);
  }
}

/** The results of an ability, and the depth that answered: `body.depth` layers, or with "auto" as many as each text needs. */
export async function ask(model, ability, { depth = null, ...body }) {
  if (depth !== null) checkDepth(model, ability, depth);
  const { exits } = model.about;
  let deepest = depth === "auto" ? 0 : depth;
  const runTogether = async (requests, outputs) => {
    if (depth !== "auto") {
      const made = [];
      for (const request of requests) made.push(await model.run({ ...request, depth: depth ?? exits.layers }, outputs));
      return made;
    }
    const made = await model.runEarly(requests, [...outputs, ...outputsFor(exits)], exits.depths, stopsBy(exits, requests));
    deepest = Math.max(deepest, ...made.map((each) => each.depth));
    return made;
  };
  const run = async (request, outputs) => (await runTogether([request], outputs))[0];
  const results = await ABILITIES[ability]({ ...model, run, runTogether }, body);
  return results.map((result) => ({ ...result, depth: deepest }));
}
