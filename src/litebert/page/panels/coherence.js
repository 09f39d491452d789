// Coherence: the sentences of a text as a chain, with the probability of every joint.
import { $, field, grade, h, percent } from "../dom.js";

let sentencesRead = [];
let unshuffled = null;
export const coherence = {
  body: (form) => ({ text: field(form, "text") }),
  written: (element) => unshuffled ?? element.value,
  forget: () => { unshuffled = null; $("unshuffle").hidden = true; },
  draw([result], body, lang) {
    sentencesRead = result.sentences.map((sentence) => sentence.text);
    const chain = h("ol", { class: "chain" });
    result.sentences.forEach((sentence, i) => {
      chain.append(h("li", { class: "link", lang: lang(sentence.text) }, sentence.text));
      if (i === result.boundaries.length) return;
      const p = result.boundaries[i];
      const width = 1.5 + 6 * p;
      // A likely joint is one thick line; an unlikely one has a gap, wider the less likely it is.
      const gap = p >= 0.5 ? 0 : 4 + 20 * (0.5 - p);
      chain.append(h("li", { class: `joint ${grade(p)}` },
        h("svg", { viewBox: "0 0 28 42", "aria-hidden": "true" },
          h("line", { x1: 14, x2: 14, y1: 2, y2: 21 - gap, "stroke-width": width }),
          h("line", { x1: 14, x2: 14, y1: 21 + gap, y2: 40, "stroke-width": width })),
        h("span", {}, percent(p), h("span", { class: "words" }, p >= 0.7 ? "  follows well" : p >= 0.45 ? "  could go either way" : "  looks reversed"))));
    });
    return [
      h("div", {}, h("p", { class: "big" }, percent(result.score)), h("p", { class: "under" }, `over ${result.boundaries.length} ${result.boundaries.length === 1 ? "boundary" : "boundaries"}`)),
      result.boundaries.length > 1 ? profile(result.boundaries) : null,
      chain,
    ];
  },
  spoken: ([result]) => `${percent(result.score)} over ${result.boundaries.length} boundaries`,
  setUp(section, rerun) {
    const area = $("coherence-text");
    $("shuffle").addEventListener("click", () => {
      if (sentencesRead.length < 2) return;
      if (unshuffled === null) unshuffled = area.value;
      const order = sentencesRead.slice();
      do {
        for (let i = order.length - 1; i > 0; i -= 1) {
          const j = Math.floor(Math.random() * (i + 1));
          [order[i], order[j]] = [order[j], order[i]];
        }
      } while (order.every((sentence, i) => sentence === sentencesRead[i]) && new Set(order).size > 1);
      // Chinese and Japanese put no space between sentences.
      area.value = order.map((sentence) => (/[。！？」』]$/.test(sentence) ? sentence : `${sentence} `)).join("").trim();
      $("unshuffle").hidden = false;
      rerun();
    });
    $("unshuffle").addEventListener("click", () => { area.value = unshuffled; coherence.forget(); $("shuffle").focus(); rerun(); });
    area.addEventListener("input", coherence.forget);
  },
};

/** The boundaries as a line of dots. */
function profile(boundaries) {
  const [width, height] = [520, 90];
  const x = (i) => 40 + (i * (width - 60)) / (boundaries.length - 1);
  const y = (p) => height - 8 - p * (height - 16);
  return h("svg", { class: "profile", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Boundaries: ${boundaries.map(percent).join(", ")}` },
    h("line", { x1: 30, x2: width, y1: y(0), y2: y(0) }), h("line", { x1: 30, x2: width, y1: y(1), y2: y(1) }),
    h("line", { class: "half", x1: 30, x2: width, y1: y(0.5), y2: y(0.5) }),
    [0, 0.5, 1].map((p) => h("text", { x: 24, y: y(p), "text-anchor": "end" }, String(p))),
    h("polyline", { points: boundaries.map((p, i) => `${x(i)},${y(p)}`).join(" ") }),
    boundaries.map((p, i) => h("circle", { class: grade(p), cx: x(i), cy: y(p), r: 6 }, h("title", {}, `boundary ${i + 1}: ${percent(p)}`))));
}
