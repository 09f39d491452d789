// Similarity: a search over one's own lines, and a map of them: of few lines every cosine, of many the plane of their vectors.
import { bar, field, h } from "../dom.js";
import { weigh } from "../words.js";

const MOST = 100; // lines
const CELLS = 12; // lines whose cosines are all shown
const HITS = 10;
const SIZE = 420;
const CAUTION = "This model was only pretrained, so its vectors say little about meaning. A model trained for similarity compares better.";

let searched = false; // whether the request's first text is the search text
let pretrained = false; // whether the model was trained for nothing but filling masks

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

export const embed = {
  chip: "query",
  follow(model) {
    pretrained = !model.task;
  },
  body(form) {
    const query = field(form, "query").trim();
    const lines = field(form, "text").split("\n").map((line) => line.trim()).filter(Boolean);
    searched = Boolean(query);
    return { text: searched ? [query, ...lines] : lines, normalize: true };
  },
  check(body) {
    const count = body.text.length - Number(searched);
    return count < 2 ? "Write at least two lines." : count > MOST ? `${count} lines are too many for the page; it takes ${MOST}. For more: litebert score.` : "";
  },
  draw(results, body, lang) {
    const query = searched ? { text: body.text[0], vector: results[0].vector } : null;
    const lines = results.slice(Number(searched)).map(({ vector }, i) => ({ vector, text: body.text[i + Number(searched)] }));
    const caution = pretrained && !results.model?.includes(":"); // a packaged adapter, "default:similarity", may have answered
    return [caution && h("p", { class: "soft" }, CAUTION), query && drawHits(query, lines, lang), ...(lines.length > CELLS ? drawPlane(query, lines, lang) : drawCosines(lines, lang))];
  },
  spoken: (results) => `${results.length - Number(searched)} lines compared`,
};

/** The lines nearest to the search text, by meaning and by words. */
function drawHits(query, lines, lang) {
  const scores = weigh(query.text, lines.map(({ text }) => text), lines.map(({ vector }) => dot(vector, query.vector)));
  const hits = lines.map(({ text }, i) => ({ text, i, score: scores[i] })).sort((a, b) => b.score - a.score || a.i - b.i).slice(0, HITS);
  return h("div", { class: "hits" }, h("p", { class: "axis" }, "Nearest to ", h("span", { lang: lang(query.text) }, `“${query.text}”`)),
    h("div", { class: "bars long" }, hits.map(({ text, score }, i) => bar(text, score, { number: score.toFixed(3), first: i === 0, lang: lang(text) }))));
}

/** The cosine of every two lines. */
function drawCosines(lines, lang) {
  const texts = lines.map(({ text }) => text);
  const likeness = lines.map((a) => lines.map((b) => dot(a.vector, b.vector)));
  const others = likeness.flatMap((row, i) => row.filter((_, j) => j !== i));
  const [low, high] = [Math.min(...others), Math.max(...others)];
  // Cosines may lie close together; colours run from the least to the most similar of these lines.
  const share = (value) => (high > low ? (value - low) / (high - low) : 0.5);
  const shown = (value) => value.toFixed(high - low < 0.1 ? 3 : 2);
  const readout = h("div", { class: "readout", role: "status" });
  const read = (i, j) => {
    readout.replaceChildren(...(i === j ? [h("span", { lang: lang(texts[i]) }, texts[i])] : [i, j].map((k) => h("span", { lang: lang(texts[k]) }, `${k + 1}. ${texts[k]}`)).concat(h("strong", {}, `cosine ${likeness[i][j].toFixed(3)}`))));
    for (const button of table.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.at === `${i} ${j}`));
  };
  const cell = (i, j) => {
    const value = likeness[i][j];
    const td = h("td", { class: i === j ? "self" : "" },
      h("button", { type: "button", "data-at": `${i} ${j}`, tabindex: i === 0 && j === 1 ? 0 : -1, "aria-label": i === j ? `line ${i + 1} with itself` : `lines ${i + 1} and ${j + 1}: ${shown(value)}`, onclick: () => read(i, j), onmouseenter: () => read(i, j), onfocus: () => read(i, j) }, i === j ? "·" : shown(value)));
    td.firstChild.style.setProperty("--share", String(8 + 92 * share(value)));
    return td;
  };
  const table = h("table", { class: texts.length > 7 ? "map many" : "map" },
    h("thead", {}, h("tr", {}, h("td", {}), texts.map((_, j) => h("th", { scope: "col" }, String(j + 1))))),
    h("tbody", {}, texts.map((text, i) => h("tr", {}, h("th", { scope: "row", title: text }, h("span", { class: "text", lang: lang(text) }, `${i + 1}. ${text}`)), texts.map((_, j) => cell(i, j))))));
  table.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step || !event.target.dataset.at) return;
    event.preventDefault();
    const [i, j] = event.target.dataset.at.split(" ").map(Number);
    const next = table.querySelector(`[data-at="${(i + step[0] + texts.length) % texts.length} ${(j + step[1] + texts.length) % texts.length}"]`);
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  let best = [0, 1];
  likeness.forEach((row, i) => row.forEach((value, j) => { if (i < j && value > likeness[best[0]][best[1]]) best = [i, j]; }));
  read(...best);
  return [h("div", { class: "scroll" }, table), readout, h("p", { class: "hint" }, `Colours run from ${shown(low)} to ${shown(high)}, the least and the most similar of these.`)];
}

/** Many lines as points of the plane along which their vectors differ most; the search is a ring among them. */
function drawPlane(query, lines, lang) {
  const all = query ? [...lines, query] : lines;
  const places = plane(all.map(({ vector }) => vector));
  const [x, y] = [0, 1].map((axis) => {
    const values = places.map((place) => place[axis]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) => (24 + ((value - low) / Math.max(high - low, 1e-9)) * (SIZE - 48)).toFixed(1);
  });
  const readout = h("div", { class: "readout", role: "status" });
  const nearest = (i) => all.map((_, j) => j).filter((j) => j !== i).sort((a, b) => dot(all[b].vector, all[i].vector) - dot(all[a].vector, all[i].vector))[0];
  const points = all.map(({ text }, i) => {
    const [left, top] = [x(places[i][0]), y(places[i][1])];
    const isQuery = all[i] === query;
    const read = () => {
      const near = nearest(i);
      readout.replaceChildren(h("span", { lang: lang(text) }, isQuery ? `“${text}”` : `${i + 1}. ${text}`), h("span", { class: "soft" }, "nearest: ", h("span", { lang: lang(all[near].text) }, all[near].text)), h("strong", {}, `cosine ${dot(all[near].vector, all[i].vector).toFixed(3)}`));
      points.forEach((point, j) => { point.classList.toggle("on", j === i); point.setAttribute("aria-pressed", String(j === i)); });
    };
    return h("g", { class: `path ${isQuery ? "query hue-1" : "hue-0"}`, role: "button", tabindex: i === 0 ? 0 : -1, "aria-label": text, "aria-pressed": "false", onmouseenter: read, onfocus: read, onclick: read },
      h("circle", { cx: left, cy: top, r: isQuery ? 8 : 5 }), isQuery ? null : h("text", { x: Number(left) + 7, y: Number(top) + 4 }, String(i + 1)));
  });
  const map = h("svg", { class: "states plane", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": "The lines as points" }, points);
  map.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = points.indexOf(event.target);
    const next = points[(at + step + points.length) % points.length];
    points[at].setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });
  points.at(query ? -1 : 0).dispatchEvent(new Event("mouseenter"));
  return [map, readout, h("p", { class: "hint" }, "Points that are close mean nearly the same, as far as a plane can show it.")];
}

/** The place of each vector along the two directions in which all of them differ most (by power iteration). */
export function plane(vectors) {
  const mean = vectors[0].map((_, k) => vectors.reduce((sum, vector) => sum + vector[k], 0) / vectors.length);
  const centred = vectors.map((vector) => vector.map((value, k) => value - mean[k]));
  const products = centred.map((a) => centred.map((b) => dot(a, b)));
  const axes = [];
  for (const turn of [0, 1]) {
    let found = vectors.map((_, i) => Math.cos(1 + i * (turn + 1))); // any start except the previous axis
    for (let round = 0; round < 100; round += 1) {
      for (const axis of axes) {
        const shared = dot(found, axis);
        found = found.map((value, i) => value - shared * axis[i]);
      }
      const next = products.map((row) => dot(row, found));
      const length = Math.hypot(...next);
      if (length < 1e-12) break; // all the rest lies in the axes before
      found = next.map((value) => value / length);
    }
    axes.push(found);
  }
  const spread = axes.map((axis) => Math.sqrt(Math.max(0, dot(axis, products.map((row) => dot(row, axis))))));
  return vectors.map((_, i) => axes.map((axis, k) => axis[i] * spread[k]));
}
