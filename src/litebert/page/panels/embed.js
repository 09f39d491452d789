// Similarity: a map of the cosines between sentences.
import { field, h } from "../dom.js";

export const embed = {
  body: (form) => ({ text: field(form, "text").split("\n").map((line) => line.trim()).filter(Boolean), normalize: true }),
  check: (body) => (body.text.length < 2 ? "Write at least two lines." : body.text.length > 12 ? `${body.text.length} lines are too many for the map; it takes 12.` : ""),
  draw(results, body, lang) {
    const texts = body.text;
    const likeness = results.map((a) => results.map((b) => a.vector.reduce((sum, value, i) => sum + value * b.vector[i], 0)));
    const others = likeness.flatMap((row, i) => row.filter((_, j) => j !== i));
    const [low, high] = [Math.min(...others), Math.max(...others)];
    // Cosines of such vectors lie close together; colours run from the least to the most similar of these sentences.
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
        h("button", { type: "button", "data-at": `${i} ${j}`, tabindex: i === 0 && j === 1 ? 0 : -1, "aria-label": i === j ? `sentence ${i + 1} with itself` : `sentences ${i + 1} and ${j + 1}: ${shown(value)}`, onclick: () => read(i, j), onmouseenter: () => read(i, j), onfocus: () => read(i, j) }, i === j ? "·" : shown(value)));
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
  },
  spoken: (results) => `${results.length} sentences compared`,
};
