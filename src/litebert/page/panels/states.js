// States: the path of every token through the applications, and how far and in which direction each one moves them, as in
// Figure 1 of the paper.
import { field, h } from "../dom.js";

const look = { step: 0 }; // stays when the text changes
const SIZE = 420;

export const states = {
  wide: true,
  everyDepth: true,
  like: "attention",
  body: (form) => ({ text: field(form, "text"), pair: field(form, "pair").trim() ? field(form, "pair") : null }),
  draw([result], body, lang) {
    const { pieces, points, distances, cosines } = result;
    const steps = points.length - 1;
    const names = pieces.map((piece) => piece.replace(/^▁/, "") || "␣");
    look.step = Math.min(look.step || steps, steps);
    let token = null;
    let timer = null;

    // The map: one path for each token, up to the chosen application.
    const [x, y] = [0, 1].map((axis) => {
      const all = points.flat().map((point) => point[axis]);
      const [low, high] = [Math.min(...all), Math.max(...all)];
      return (value) => 34 + ((value - low) / Math.max(high - low, 1e-9)) * (SIZE - 68);
    });
    const place = ([a, b]) => [x(a).toFixed(1), (SIZE - y(b)).toFixed(1)];
    const paths = names.map((name, i) => {
      const line = h("polyline", {});
      const dot = h("circle", { r: 4.5 });
      const label = h("text", { lang: lang(name) }, name.length > 12 ? `${name.slice(0, 11)}…` : name);
      const group = h("g", { class: `path hue-${i % 6}`, role: "button", tabindex: 0, "aria-label": `Follow ${name}`, "aria-pressed": "false", onmouseenter: () => pick(i), onmouseleave: () => pick(null), onfocus: () => pick(i), onblur: () => pick(null), onclick: () => pick(i) }, line, dot, label);
      return { group, line, dot, label };
    });
    const map = h("svg", { class: "states", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": "The path of each token" }, paths.map((path) => path.group));
    const drawMap = () => paths.forEach(({ group, line, dot, label }, i) => {
      const walked = points.slice(0, look.step + 1).map((step) => place(step[i]));
      const [at, top] = walked.at(-1);
      line.setAttribute("points", walked.join(" "));
      dot.setAttribute("cx", at);
      dot.setAttribute("cy", top);
      label.setAttribute("x", Number(at) + (at > SIZE * 0.8 ? -8 : 8));
      label.setAttribute("y", Number(top) + 4);
      label.setAttribute("text-anchor", at > SIZE * 0.8 ? "end" : "start");
      group.classList.toggle("on", token === i);
      group.classList.toggle("off", token !== null && token !== i);
      group.setAttribute("aria-pressed", String(token === i));
    });

    // The curves: the mean over the tokens, and the chosen one beside it.
    const curves = [
      curve("Distance (L2) from input to output", distances, 0, Math.max(...distances.flat())),
      curve("Cosine of input and output", cosines, Math.min(0, ...cosines.flat()), 1),
    ];
    const pick = (i) => { token = i; update(); };
    const slider = h("input", { type: "range", min: 0, max: steps, value: look.step, "aria-label": "Application" });
    const output = h("output", {});
    const update = () => {
      slider.value = look.step;
      output.textContent = String(look.step);
      drawMap();
      for (const each of curves) each.update(look.step, token);
      chosen.textContent = token === null ? "Point at a token to follow it alone." : names[token];
    };
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
    const start = () => {
      if (look.step === steps) look.step = 0;
      play.textContent = "Pause";
      update();
      timer = setInterval(() => {
        if (!play.isConnected || look.step === steps) return stop();
        look.step += 1;
        return update();
      }, 600);
    };
    const play = h("button", { type: "button", onclick: () => (timer ? stop() : start()) }, "Play");
    const chosen = h("p", { class: "hint" });
    slider.addEventListener("input", () => { stop(); look.step = Number(slider.value); update(); });
    update();
    return [
      h("div", { class: "controls two" }, play, h("label", {}, "Application ", output, ` of ${steps}`, slider)),
      h("div", { class: "views" }, h("div", {}, h("p", { class: "axis" }, "The plane along which the states differ most"), map), h("div", { class: "curves" }, curves.map((each) => each.node), chosen)),
      result.left_out ? h("p", { class: "hint" }, `${result.left_out} tokens at the end are left out.`) : null,
    ];
  },
  spoken: ([result]) => `${result.pieces.length} tokens through ${result.points.length - 1} applications`,
};

/** A small chart over the applications: rows are [application][token]. */
function curve(title, rows, low, high) {
  const [width, height] = [520, 180];
  const x = (i) => 46 + (i * (width - 62)) / Math.max(rows.length - 1, 1);
  const y = (value) => height - 26 - ((value - low) / Math.max(high - low, 1e-9)) * (height - 44);
  const points = (values) => values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const means = rows.map((row) => row.reduce((a, b) => a + b) / row.length);
  const one = h("polyline", { class: "one" });
  const dot = h("circle", { r: 5 });
  const value = h("text", { class: "value", "text-anchor": "middle" });
  const shown = (number) => number.toFixed(Math.abs(high) >= 10 ? 1 : 2);
  const marks = rows.map((_, i) => (rows.length <= 12 || i % 4 === 0 ? h("text", { x: x(i), y: height - 8, "text-anchor": "middle" }, String(i + 1)) : null));
  const node = h("figure", {}, h("figcaption", { class: "axis" }, title),
    h("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}, by application: ${means.map(shown).join(", ")}` },
      [low, high].map((end) => [h("line", { x1: 46, x2: width, y1: y(end), y2: y(end) }), h("text", { x: 40, y: y(end) + 4, "text-anchor": "end" }, shown(end))]),
      marks, h("polyline", { class: "mean", points: points(means) }), one, dot, value));
  const update = (step, token) => {
    const values = token === null ? means : rows.map((row) => row[token]);
    one.setAttribute("points", token === null ? "" : points(values));
    const hidden = step === 0 ? "hidden" : "visible"; // before the first application nothing has moved
    for (const each of [dot, value]) each.setAttribute("visibility", hidden);
    if (step === 0) return;
    dot.setAttribute("cx", x(step - 1));
    dot.setAttribute("cy", y(values[step - 1]));
    value.setAttribute("x", Math.min(width - 24, Math.max(64, x(step - 1))));
    value.setAttribute("y", y(values[step - 1]) + (y(values[step - 1]) < 30 ? 22 : -12));
    value.textContent = shown(values[step - 1]);
  };
  return { node, update };
}
