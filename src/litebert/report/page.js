// Redraws the charts for another width, axis or scale, and shows values under the pointer.
// The page is complete without this script. No text of a run becomes markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [LEFT, RIGHT, TOP, OVERHANG] = data.margins;
  const LETTER = 6;
  const state = { axis: "step", scale: "linear", hidden: new Set() };
  const figures = [...document.querySelectorAll("[data-chart]")].map((figure) => {
    const svg = figure.querySelector("svg.chart");
    const plot = svg.querySelector(".plot");
    const hair = document.createElementNS(svg.namespaceURI, "line");
    hair.setAttribute("class", "hair");
    hair.setAttribute("y2", "100%");
    plot.append(hair);
    svg.setAttribute("tabindex", "0");
    return {
      figure, svg, plot, hair, chart: data.charts[figure.dataset.chart],
      height: svg.viewBox.baseVal.height, plotHeight: plot.height.baseVal.value, plotWidth: plot.width.baseVal.value - OVERHANG,
    };
  });

  // -- values to places -----------------------------------------------------------------------------------------------

  // The value at `x` of a line through points, xs growing.
  function interpolate(xs, ys, x) {
    let low = 0, high = xs.length - 1;
    if (x <= xs[0]) return ys[0];
    if (x >= xs[high]) return ys[high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle;
    }
    return ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
  }

  function onAxis(step, run) {
    if (state.axis === "step") return step;
    const [steps, values] = data.runs[run].clocks[state.axis];
    return interpolate(steps, values, step);
  }

  function stepAt(value, run) {
    if (state.axis === "step") return value;
    const [steps, values] = data.runs[run].clocks[state.axis];
    return interpolate(values, steps, value);
  }

  const placeX = (view, value) => (view.plotWidth * value) / data.axes[state.axis];
  const scaleOf = (view) => (state.scale === "log" && view.chart.log ? "log" : "linear");

  function placeY(view, value) {
    const [low, high] = view.chart[scaleOf(view)];
    const share = scaleOf(view) === "linear" ? (value - low) / (high - low)
      : value > 0 ? Math.log(value / low) / Math.log(high / low) : -1;
    return view.plotHeight * (1 - share);
  }

  // -- placing --------------------------------------------------------------------------------------------------------

  const show = (node, visible) => visible ? node.removeAttribute("display") : node.setAttribute("display", "none");
  const moveX = (node, x) => node.setAttribute("transform", node.getAttribute("transform").replace(/\([-+\d.e]+/, `(${x.toFixed(1)}`));

  function place(view) {
    const { svg, plot } = view;
    const width = Math.max(220, svg.getBoundingClientRect().width);
    view.plotWidth = width - LEFT - RIGHT;
    svg.setAttribute("viewBox", `0 0 ${width} ${view.height}`);
    plot.setAttribute("width", view.plotWidth + OVERHANG);
    for (const node of svg.querySelectorAll("[data-scale]")) show(node, node.dataset.scale === scaleOf(view));
    for (const node of svg.querySelectorAll("[data-from]")) {
      const run = Number(node.dataset.run), inside = plot.contains(node) ? 0 : LEFT;
      const start = placeX(view, onAxis(Number(node.dataset.from), run));
      const end = placeX(view, onAxis(Number(node.dataset.to), run));
      if (node.tagName === "rect") {
        node.setAttribute("x", inside + start);
        node.setAttribute("width", Math.max(0, end - start - (inside ? 1 : 0)));
      } else {
        moveX(node, inside + start + 4);
        const name = node.dataset.names.split("|").find((one) => one.length * LETTER + 8 <= end - start);
        node.textContent = name ?? "";
      }
    }
    for (const node of svg.querySelectorAll("[data-x][data-run]"))
      moveX(node, placeX(view, onAxis(Number(node.dataset.x), Number(node.dataset.run))));
    placeTicks(view);
    for (const node of svg.querySelectorAll("[data-curve]")) node.setAttribute("d", path(view, node));
    for (const node of svg.querySelectorAll("[data-run]"))
      show(node, !state.hidden.has(Number(node.dataset.run)));
  }

  function placeTicks(view) {
    for (const node of view.svg.querySelectorAll("text.axis")) show(node, node.dataset.axis === state.axis);
    const ticks = [...view.svg.querySelectorAll("[data-x][data-axis]")];
    const shown = ticks.filter((node) => node.dataset.axis === state.axis);
    const longest = Math.max(...shown.map((node) => node.textContent.length));
    const apart = view.plotWidth / Math.max(1, shown.length - 1);
    const every = [1, 2, 5, 10, 100].find((count) => count * apart >= longest * LETTER + 14) || 100;
    for (const node of ticks) show(node, node.dataset.axis === state.axis && shown.indexOf(node) % every === 0);
    for (const node of shown) moveX(node, LEFT + placeX(view, Number(node.dataset.x)));
  }

  function path(view, node) {
    const { run, x, y } = view.chart.curves[Number(node.dataset.curve)];
    const points = x.map((step, i) => `${placeX(view, onAxis(step, run)).toFixed(1)} ${placeY(view, y[i]).toFixed(1)}`);
    if (node.classList.contains("dots")) return points.map((point) => `M${point}h0`).join("");
    return "M" + points.join(" ");
  }

  const placeAll = () => figures.forEach(place);

  // -- reading off ----------------------------------------------------------------------------------------------------

  const readout = document.createElement("div");
  readout.className = "readout";
  readout.setAttribute("role", "status");
  readout.hidden = true;
  document.body.append(readout);

  function text(tag, content, name) {
    const node = document.createElement(tag);
    node.textContent = content;
    if (name) node.className = name;
    return node;
  }

  function nearest(xs, x) {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= x) low = middle; else high = middle;
    }
    return x - xs[low] <= xs[high] - x ? low : high;
  }

  function short(value) {
    for (const [size, unit] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])
      if (value >= size * 0.9995) return (value / size).toPrecision(3) + unit;
    return String(Math.round(value));
  }

  function formatted(value, form) {
    if (form === "percent") return (100 * value).toFixed(1) + "%";
    if (form === "count") return short(value);
    if (form === "rate") return value ? value.toExponential(2) : "0";
    return Math.abs(value) < 100 ? value.toFixed(3) : value.toPrecision(4);
  }

  function clock(seconds) {
    const s = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
    if (s >= 86400) return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
    return s >= 3600 ? `${Math.floor(s / 3600)}:${two(Math.floor((s % 3600) / 60))}:${two(s % 60)}` : `${Math.floor(s / 60)}:${two(s % 60)}`;
  }

  function heading(value) {
    if (data.runs.length > 1)
      return state.axis === "step" ? `step ${Math.round(value).toLocaleString("en")}` : state.axis === "tokens" ? `${short(value)} tokens` : clock(value);
    const step = stepAt(value, 0), parts = [`step ${Math.round(step).toLocaleString("en")}`], clocks = data.runs[0].clocks;
    if (clocks.tokens) parts.push(`${short(interpolate(...clocks.tokens, step))} tokens`);
    if (clocks.seconds) parts.push(clock(interpolate(...clocks.seconds, step)));
    const stage = data.runs[0].stages.filter(([start]) => start <= step).pop();
    if (stage) parts.push(stage[1]);
    return parts.join(" · ");
  }

  const ROLES = { train: "training", "held-out": "held-out" };

  function read(view, value) {
    const rows = [];
    data.runs.forEach((run, number) => {
      if (state.hidden.has(number)) return;
      const step = stepAt(value, number), cells = [];
      for (const role of ["held-out", "train"]) {
        const curve = view.chart.curves.find((one) => one.run === number && one.role === role);
        if (!curve || value > onAxis(curve.x[curve.x.length - 1], number) * 1.02) continue;
        cells.push(text("span", ROLES[role]), text("b", formatted(curve.y[nearest(curve.x, step)], view.chart.form)));
      }
      if (!cells.length) return;
      const row = text("div", "", run.color);
      if (data.runs.length > 1) row.append(text("i", ""), text("em", run.name));
      row.append(...cells);
      rows.push(row);
    });
    readout.replaceChildren(text("p", heading(value)), ...rows);
  }

  function point(view, share) {
    share = Math.min(1, Math.max(0, share));
    view.share = share;
    for (const each of figures) {
      each.hair.setAttribute("transform", `translate(${(share * each.plotWidth).toFixed(1)} 0)`);
      each.hair.classList.add("on");
    }
    read(view, share * data.axes[state.axis]);
    readout.hidden = false;
    const box = view.svg.getBoundingClientRect(), own = readout.getBoundingClientRect();
    const x = box.left + LEFT + share * view.plotWidth;
    const fitsRight = x + 14 + own.width < document.documentElement.clientWidth - 8;
    const left = fitsRight ? x + 14 : Math.max(8, x - 14 - own.width);
    readout.style.transform = `translate(${Math.round(left + scrollX)}px, ${Math.round(box.top + TOP + 6 + scrollY)}px)`;
  }

  function leave() {
    readout.hidden = true;
    for (const each of figures) each.hair.classList.remove("on");
  }

  for (const view of figures) {
    const { svg } = view;
    const follow = (event) => point(view, (event.clientX - svg.getBoundingClientRect().left - LEFT) / view.plotWidth);
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -0.01, ArrowRight: 0.01, Home: -1, End: 1 }[event.key];
      if (event.key === "Escape") leave();
      if (move === undefined) return;
      event.preventDefault();
      point(view, (view.share ?? (move > 0 ? 0 : 1)) + move * (event.shiftKey ? 10 : 1));
    });
  }

  // -- switches -------------------------------------------------------------------------------------------------------

  for (const button of document.querySelectorAll("[data-set]"))
    button.addEventListener("click", () => {
      state[button.dataset.set] = button.dataset.value;
      for (const other of document.querySelectorAll(`[data-set="${button.dataset.set}"]`))
        other.setAttribute("aria-pressed", String(other === button));
      placeAll();
    });

  for (const button of document.querySelectorAll("[data-toggle]"))
    button.addEventListener("click", () => {
      const run = Number(button.dataset.toggle);
      if (!state.hidden.delete(run)) state.hidden.add(run);
      button.setAttribute("aria-pressed", String(!state.hidden.has(run)));
      placeAll();
    });

  addEventListener("beforeprint", () => document.querySelectorAll(".tree details").forEach((node) => (node.open = true)));
  document.documentElement.classList.add("js");
  if (figures.length) new ResizeObserver(placeAll).observe(document.querySelector("main"));
})();
