// An exported page's answers in Node: node ask.mjs FOLDER MODEL_FILE CASES.json PAGE.json -> one line of JSON for each case.
//   [["classify", {"text": "...", "depth": "auto"}], ...] -> {"results": [...], "applied": layers} or {"refused": "..."}
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, file, cases, page] = process.argv.slice(2);
const open = (name) => import(pathToFileURL(`${folder}/${name}`));
const [{ ask, openModel }, { pickBuild, startEngine }, { Tokens }, { Tokenizer }] = await Promise.all(
  ["abilities.js", "engine/engine.js", "tokens.js", "runtime/tokenizers.min.mjs"].map(open));
const json = (path) => JSON.parse(readFileSync(path, "utf8"));
const about = json(page);
const build = await pickBuild(async (name) => readFileSync(`${folder}/engine/${name}`));
const engine = await startEngine({ build, weights: readFileSync(`${folder}/${file}`), plan: about.engine });
let applied = 0; // layers in all: what an early exit saves
const advance = engine.advance.bind(engine);
engine.advance = (request, begin, end, ...rest) => { applied += end - begin; return advance(request, begin, end, ...rest); };
const model = openModel(about, { run: (...rest) => engine.run(...rest, 64), runEarly: engine.runEarly.bind(engine) }, new Tokens(Tokenizer, json(`${folder}/tokenizer.json`), {}, about));
for (const [ability, body] of json(cases)) {
  applied = 0;
  try {
    console.log(JSON.stringify({ results: await ask(model, ability, body), applied }));
  } catch (error) {
    if (error.code !== "invalid_input") throw error;
    console.log(JSON.stringify({ refused: error.message }));
  }
}
