// Classify: labels with their probabilities, or a score on its scale; also adapters of the built-in model, each with its
// form.
import { $, bar, field, h } from "../dom.js";

export const classify = {
  body: (form) => ({ text: field(form, "text"), pair: !$("pair-field").hidden && field(form, "pair").trim() ? field(form, "pair") : null }),
  // A model of pairs asks for two texts, a model of single texts for one; if a model does not say, the second is optional.
  examples: (model) => (model.task?.pair ? "pair" : "classify"),
  follow(model) {
    const pair = model.task?.pair;
    $("pair-field").hidden = pair === false;
    $("pair-optional").hidden = pair === true;
    classify.wantsPair = pair === true;
  },
  check: (body) => (classify.wantsPair && !(body.text.trim() && body.pair) ? "This model compares two texts: fill in both fields." : ""),
  draw([result], body, lang) {
    if (result.value !== null) return drawScore(result.value, result.scale);
    const rows = Object.entries(result.probabilities).sort((a, b) => b[1] - a[1]);
    const named = result.labels.length ? result.labels : ["none of the labels"];
    return [
      h("p", { class: `big${named.join(", ").length > 16 ? " long" : ""}`, lang: lang(named[0]) }, named.join(", ")),
      h("div", { class: "bars" }, rows.map(([name, p]) => bar(name, p, { first: result.labels.includes(name), lang: lang(name) }))),
    ];
  },
  spoken: ([result]) => (result.value === null ? result.labels.join(", ") : result.value.toFixed(2)),
};

const { draw, spoken } = classify;
export const sentiment = { asks: "classify", adapter: "sentiment", body: (form) => ({ text: field(form, "text") }), draw, spoken };
export const entailment = {
  asks: "classify",
  adapter: "entailment",
  chip: "pair",
  body: (form) => ({ text: field(form, "text"), pair: field(form, "pair") }),
  check: (body) => (body.text.trim() && body.pair.trim() ? "" : "Fill in both fields: what is known, and what is claimed."),
  draw,
  spoken,
};

/** The score of a regression model, and its place on the scale. */
function drawScore(value, scale) {
  const [low, high] = scale || [0, 0];
  const under = scale ? `on a scale from ${low} to ${high}` : "the model's score";
  const head = h("div", {}, h("p", { class: "big" }, value.toFixed(2)), h("p", { class: "under" }, under));
  if (high <= low) return [head];
  const dot = h("i", {});
  dot.style.left = `${4 + 92 * Math.max(0, Math.min(1, (value - low) / (high - low)))}%`;
  return [head, h("div", { class: "scale plain" },
    h("div", { class: "track", role: "img", "aria-label": `${value.toFixed(2)} on a scale from ${low} to ${high}` }, dot),
    h("div", { class: "ends" }, h("span", {}, String(low)), h("span", {}, String(high))))];
}
