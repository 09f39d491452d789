// Attention: one head in one application as lines, and all of them as small maps.
import { field, h } from "../dom.js";

const look = { layer: 0, head: 0 }; // stays when the text changes
export const attention = {
  wide: true,
  everyDepth: true,
  repaint: () => repaint(),
  body: (form) => ({ text: field(form, "text"), pair: field(form, "pair").trim() ? field(form, "pair") : null, max_tokens: 64 }),
  draw([result], body, lang) {
    const { pieces, weights } = result;
    const [layers, heads] = [weights.length, weights[0].length];
    look.layer = Math.min(look.layer, layers - 1);
    look.head = Math.min(look.head, heads - 1);
    let token = null;
    let timer = null;
    const names = pieces.map((piece) => piece.replace(/^▁/, "") || "␣");

    const slider = (name, label, count) => {
      const output = h("output", {}, String(look[name] + 1));
      const input = h("input", { type: "range", min: 1, max: count, value: look[name] + 1, "data-of": name });
      const box = h("label", {}, label, " ", output, ` of ${count}`, input);
      input.addEventListener("input", () => { stop(); set({ [name]: Number(input.value) - 1 }); });
      return { box, sync() { input.value = look[name] + 1; output.textContent = String(look[name] + 1); } };
    };
    const layerSlider = slider("layer", "Application", layers);
    const headSlider = slider("head", "Head", heads);
    const play = h("button", { type: "button", onclick: () => (timer ? stop() : start()) }, "Play");
    const start = () => {
      if (look.layer === layers - 1) set({ layer: 0 });
      play.textContent = "Pause";
      timer = setInterval(() => {
        if (!play.isConnected || look.layer === layers - 1) return stop();
        return set({ layer: look.layer + 1 });
      }, 700);
    };
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };

    // Lines from each token (left) to the tokens it attends to (right).
    const row = pieces.length > 32 ? 18 : 25;
    const [width, height] = [420, pieces.length * row + 24];
    const [from, to] = [150, width - 150];
    const y = (i) => 30 + i * row;
    const lines = h("g", {});
    const label = (name, i, side) => h("text", { x: side ? to + 10 : from - 10, y: y(i) + 4, "text-anchor": side ? "start" : "end", lang: lang(name) }, name.length > 16 ? `${name.slice(0, 15)}…` : name);
    const choosers = names.map((name, i) => h("g", { role: "button", tabindex: 0, "aria-pressed": "false", "aria-label": `What ${name} looks at`, onmouseenter: () => pick(i), onmouseleave: () => pick(null), onfocus: () => pick(i), onblur: () => pick(null), onclick: () => pick(i) },
      h("rect", { x: 0, y: y(i) - row / 2, width: from, height: row, fill: "transparent" }), label(name, i, 0)));
    const targets = names.map((name, i) => h("g", {}, label(name, i, 1)));
    const svg = h("svg", { class: "lines", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "From each token to the tokens it attends to" },
      h("text", { x: from - 10, y: 10, "text-anchor": "end" }, "from"), h("text", { x: to + 10, y: 10 }, "to"), lines, choosers, targets);
    const pick = (i) => { token = i; drawLines(); };
    const drawLines = () => {
      const map = weights[look.layer][look.head];
      const paths = [];
      map.forEach((targetWeights, i) => {
        if (token !== null && token !== i) return;
        targetWeights.forEach((weight, j) => {
          if (weight < 0.02) return;
          const middle = (from + to) / 2;
          paths.push(h("path", { d: `M${from} ${y(i)}C${middle} ${y(i)} ${middle} ${y(j)} ${to} ${y(j)}`, "stroke-opacity": Math.min(1, (token === null ? 0 : 0.15) + weight * 1.15).toFixed(3), "stroke-width": (0.8 + 3.4 * weight).toFixed(2) }));
        });
      });
      lines.replaceChildren(...paths);
      choosers.forEach((node, i) => { node.classList.toggle("on", i === token); node.setAttribute("aria-pressed", String(i === token)); });
      targets.forEach((node, j) => node.classList.toggle("on", token !== null && map[token][j] >= 0.1));
    };

    // Every head of every application as a small picture.
    const canvas = h("canvas", { role: "img", "aria-label": `Attention of ${heads} heads in ${layers} applications` });
    const frame = h("div", { class: "frame" });
    const overview = h("div", { class: "overview" }, canvas, frame);
    canvas.style.setProperty("--shape", `${heads} / ${layers}`);
    canvas.addEventListener("click", (event) => {
      stop();
      set({ layer: Math.min(layers - 1, Math.floor((event.offsetY / canvas.clientHeight) * layers)), head: Math.min(heads - 1, Math.floor((event.offsetX / canvas.clientWidth) * heads)) });
    });
    const drawOverview = () => paintMaps(canvas, weights);
    const set = (change) => {
      Object.assign(look, change);
      layerSlider.sync();
      headSlider.sync();
      Object.assign(frame.style, { left: `${(look.head / heads) * 100}%`, top: `${(look.layer / layers) * 100}%`, width: `${100 / heads}%`, height: `${100 / layers}%` });
      drawLines();
    };
    repaint = drawOverview;
    drawOverview();
    set({});
    return [
      h("div", { class: "controls" }, play, layerSlider.box, headSlider.box),
      h("div", { class: "views" }, svg, h("div", {}, h("p", { class: "axis" }, "A column for each head, a row for each application"), overview)),
      result.left_out ? h("p", { class: "hint" }, `${result.left_out} tokens at the end are left out.`) : null,
    ];
  },
  spoken: ([result]) => `${result.pieces.length} tokens, ${result.weights.length} applications, ${result.weights[0].length} heads`,
};

let repaint = () => {}; // the maps, when they are in the page or the colours change
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint());

function paintMaps(canvas, weights) {
  const [layers, heads, size] = [weights.length, weights[0].length, weights[0][0].length];
  const gap = 2 * Math.max(1, Math.round(size / 24));
  const cell = size + gap;
  canvas.width = heads * cell;
  canvas.height = layers * cell;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => [1, 3, 5].map((i) => parseInt(style.getPropertyValue(name).trim().slice(i, i + 2), 16));
  const [low, high] = [colour("--grid"), colour("--accent")];
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  for (let layer = 0; layer < layers; layer += 1) {
    for (let head = 0; head < heads; head += 1) {
      for (let i = 0; i < size; i += 1) {
        for (let j = 0; j < size; j += 1) {
          const share = Math.sqrt(weights[layer][head][i][j]); // small weights would be invisible otherwise
          const at = 4 * ((layer * cell + i + (gap >> 1)) * canvas.width + head * cell + j + (gap >> 1));
          for (let c = 0; c < 3; c += 1) image.data[at + c] = low[c] + share * (high[c] - low[c]);
          image.data[at + 3] = 255;
        }
      }
    }
  }
  context.putImageData(image, 0, 0);
  canvas.style.imageRendering = canvas.width < canvas.clientWidth ? "pixelated" : "auto";
}
