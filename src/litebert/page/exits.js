// Early exit: when a text needs no more layers, by the rule of the model's exits.json. The numbers are those of
// litebert/predict/exits.py, which explains them.
//
//   const stops = stopsBy(about.exits, requests);
//   engine.runEarly(requests, outputsFor(about.exits), depths, stops);
import { best, sigmoid, softmax } from "./numbers.js";

/** What an answer is compared by at an exit: its probability, and numbers that are equal if the answer is. */
const SIGNS = {
  classes: ({ logits }) => ({ sure: Math.max(...softmax(logits.data)), answer: [best(logits.data)] }),
  labels({ logits }) {
    const values = Array.from(logits.data);
    return { sure: Math.min(...values.map((value) => sigmoid(Math.abs(value)))), answer: values.map((value) => Number(value > 0)) };
  },
  number: ({ logits }) => ({ sure: 0, answer: Array.from(logits.data) }),
  tags({ logits: { data, dims } }, outside) {
    const width = dims.at(-1);
    const rows = outside.flatMap((out, i) => (out ? [] : [data.subarray(i * width, (i + 1) * width)]));
    return { sure: Math.min(...rows.map((row) => Math.max(...softmax(row)))), answer: rows.map(best) };
  },
  span(outputs, outside) {
    const ends = ["start_logits", "end_logits"].map((name) => {
      const scores = Array.from(outputs[name].data, (value, i) => (outside[i] ? -1e30 : value));
      return { sure: Math.max(...softmax(scores)), at: best(scores) };
    });
    return { sure: ends[0].sure * ends[1].sure, answer: ends.map(({ at }) => at) };
  },
};

/** The signs of sequences; the options of a question have one answer together. */
function signsOf(problem, outputs, requests) {
  if (problem !== "choice") return outputs.map((output, i) => SIGNS[problem](output, requests[i].outside));
  const scores = outputs.map(({ logits }) => logits.data[0]);
  const [index, sure] = [best(scores), Math.max(...softmax(scores))];
  return outputs.map(() => ({ sure, answer: [index] }));
}

/** The outputs that a rule needs beside those of the answer. */
export const outputsFor = ({ rule }) => (rule.by === "gate" ? ["summary"] : []);

/** A function (outputs of each sequence, depth) -> whether the sequences of one answer stop there; asked exit by exit. */
export function stopsBy({ depths, problem, rule }, requests) {
  let before = null;
  const agreed = requests.map(() => 0);
  return (outputs, depth) => {
    const signs = signsOf(problem, outputs, requests);
    const changes = signs.map(({ answer }, i) => {
      if (before === null) return 0;
      const most = Math.max(...answer.map((value, k) => Math.abs(value - before[i][k])));
      const change = problem === "number" ? most : Number(most > 0);
      agreed[i] = change <= (rule.by === "patience" ? rule.threshold : 0) ? agreed[i] + 1 : 0;
      return change;
    });
    before = signs.map(({ answer }) => answer);
    if (depth < rule.least) return false;
    if (rule.by === "confidence") return signs.every(({ sure }) => sure >= rule.threshold);
    if (rule.by === "patience") return agreed.every((count) => count >= rule.patience);
    const says = signs.map(({ sure }, i) => gate(rule.gate, depths.indexOf(depth), outputs[i].summary.data, [logOdds(sure), changes[i], agreed[i]]));
    return says.reduce((sum, value) => sum + value, 0) / says.length >= rule.threshold;
  };
}

function logOdds(probability) {
  const sure = Math.min(1 - 1e-6, Math.max(1e-6, probability));
  return Math.log(sure / (1 - sure));
}

/** How probable full depth is to say the same as this exit. */
function gate({ state, signs, bias }, exit, summary, seen) {
  const product = state[exit].reduce((sum, weight, i) => sum + weight * summary[i], 0);
  return sigmoid(product + seen.reduce((sum, value, i) => sum + value * signs[exit][i], 0) + bias[exit]);
}
