// Answers of exported folders by transformers.js: node answer.mjs FOLDER CASES.json -> one JSON value per case.
//   {"tokenize": model, "texts": [...]}  or  {"task": ..., "model": ..., "dtype": ..., "inputs": [...], "options": {...}}
import { readFileSync } from "node:fs";
import { AutoModel, AutoTokenizer, env, pipeline } from "@huggingface/transformers";

env.allowRemoteModels = false;
env.localModelPath = process.argv[2];
const results = [];
for (const test of JSON.parse(readFileSync(process.argv[3], "utf8"))) {
  if (test.tokenize) {
    const tokenizer = await AutoTokenizer.from_pretrained(test.tokenize);
    results.push(test.texts.map((text) => tokenizer.encode(text)));
  } else if (test.raw) {
    const tokenizer = await AutoTokenizer.from_pretrained(test.raw);
    const model = await AutoModel.from_pretrained(test.raw, { dtype: test.dtype });
    const output = await model(tokenizer(test.text, { text_pair: test.pair }));
    results.push(Array.from(output[test.output].data));
  } else {
    const ask = await pipeline(test.task, test.model, { dtype: test.dtype });
    const answer = await ask(...test.inputs, test.options ?? {});
    results.push(answer.tolist ? answer.tolist() : answer);
  }
}
console.log(JSON.stringify(results, (_, value) => (typeof value === "bigint" ? Number(value) : value)));
