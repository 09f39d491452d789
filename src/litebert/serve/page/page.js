// The page: for each ability a form, one request, and a drawing of its result. Plain DOM calls only: what a user or a
// model wrote never becomes markup. Offsets in results count characters (code points), so texts are split with [...text].
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const percent = (p) => (p > 0 && p < 0.001 ? "< 0.1 %" : `${(100 * p).toFixed(1)} %`);
  const letter = (i) => String.fromCharCode(65 + i);
  const grade = (p) => (p >= 0.7 ? "good" : p >= 0.45 ? "fair" : "poor");

  // ---- Small tools ------------------------------------------------------------------------------------------------

  const SVG = "http://www.w3.org/2000/svg";
  const SVG_NAMES = new Set(["svg", "g", "path", "line", "polyline", "circle", "text", "rect", "title"]);

  /** An element: h("p", {class: "soft"}, "text", node, [more]); `on...` are listeners, null is left out. */
  function h(name, attributes = {}, ...children) {
    const node = SVG_NAMES.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "width" && name === "i") node.style.width = value;
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
    return node;
  }

  const say = (...message) => { $("status").replaceChildren(...message); };

  /** The language of a text, as its letters show it; where they may be of several, or are none, the model's decides. */
  function languageOf(text, model) {
    if (/\p{Script=Hangul}/u.test(text)) return "ko";
    if (/[\p{Script=Hiragana}\p{Script=Katakana}]/u.test(text)) return "ja";
    if (/\p{Script=Han}/u.test(text)) return model === "ja" ? "ja" : "zh";
    const letters = text.replaceAll("[MASK]", "");
    if (/\p{Script=Latin}/u.test(letters)) return "en";
    return /\p{L}/u.test(letters) ? "" : model; // "": not known
  }

  /** A row with a bar: a button where `choose` is given. */
  function bar(name, share, { number = percent(share), first = false, hue = 0, choose = null, chosen = false, lang = null } = {}) {
    const cells = [
      h("span", { class: "name", title: name, lang }, name),
      h("span", { class: "track", "aria-hidden": "true" }, h("i", { width: `${Math.max(0, Math.min(1, share)) * 100}%` })),
      h("span", { class: "number" }, number),
    ];
    const look = `bar hue-${hue % 6}${first ? " first" : ""}`;
    if (!choose) return h("div", { class: look }, cells);
    return h("button", { type: "button", class: look, role: "radio", "aria-checked": String(chosen), onclick: choose, tabindex: chosen ? 0 : -1 }, cells);
  }

  /** Bars of which one is chosen (at first, unless `none`), with the arrow keys too: rows are [[name, share], ...]. */
  function choices(label, rows, hue, onChoose, lang, { none = false, look = "" } = {}) {
    const group = h("div", { class: `bars ${look}`, role: "radiogroup", "aria-label": label });
    const pick = (index, focus) => {
      [...group.children].forEach((row, i) => {
        row.setAttribute("aria-checked", String(i === index));
        row.tabIndex = i === index ? 0 : -1;
      });
      if (focus) group.children[index].focus();
      onChoose(index);
    };
    rows.forEach(([name, share], i) => group.append(bar(name, share, { hue, choose: () => pick(i, false), chosen: i === 0 && !none, lang: lang(name) })));
    if (rows.length) group.firstChild.tabIndex = 0;
    group.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      pick(([...group.children].indexOf(document.activeElement) + step + rows.length) % rows.length, true);
    });
    return group;
  }

  // ---- The server -------------------------------------------------------------------------------------------------

  /** What went wrong, for people. */
  class Trouble extends Error {
    constructor(status, code, message) {
      super(message);
      this.status = status;
      this.code = code;
    }
  }

  let key = sessionStorage.getItem("litebert-key");

  async function ask(path, body, signal) {
    const headers = body ? { "Content-Type": "application/json" } : {};
    if (key) headers.Authorization = `Bearer ${key}`;
    let response, answer;
    try {
      response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Trouble(0, "unreachable", "The server does not answer. Is it still running?");
    }
    try {
      answer = await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Trouble(response.status, "unreadable", `The server's answer (status ${response.status}) cannot be read.`);
    }
    if (!response.ok) {
      const { code = "refused", message = `status ${response.status}` } = answer.error || {};
      throw new Trouble(response.status, code, message);
    }
    return answer;
  }

  const ADVICE = {
    queue_full: "Too many requests at once.",
    overloaded: "The server is busy.",
    timeout: "That took too long.",
    too_large: "That is too much text.",
    too_many_tokens: "That is too much text.",
    too_many_inputs: "Those are too many sentences.",
    invalid_input: "That cannot be read.",
    failed: "The server failed on this.",
    unreachable: "No connection.",
  };

  function problem(trouble, again) {
    const may = [0, 429, 503, 504].includes(trouble.status);
    return h("div", { class: "problem", role: "alert" },
      h("p", {}, h("strong", {}, ADVICE[trouble.code] || "That did not work."), " ", trouble.message),
      may ? h("button", { type: "button", onclick: again }, "Try again") : null);
  }

  // ---- One panel per ability --------------------------------------------------------------------------------------

  const field = (form, name) => form.elements[name].value;

  const fillMask = {
    body: (form) => ({ text: field(form, "text"), top: 6 }),
    draw([result], body, lang) {
      const text = [...result.text];
      const slots = result.masks.map((mask, i) => h("span", { class: `slot hue-${i % 6}`, lang: lang(mask.candidates[0].word) }, mask.candidates[0].word));
      const parts = [];
      let at = 0;
      result.masks.forEach((mask, i) => {
        parts.push(text.slice(at, mask.start).join(""), slots[i]);
        at = mask.end;
      });
      parts.push(text.slice(at).join(""));
      const columns = result.masks.map((mask, i) => h("div", {},
        result.masks.length > 1 ? h("h3", {}, `Mask ${i + 1}`) : null,
        choices(`Guesses for mask ${i + 1}`, mask.candidates.map((c) => [c.word, c.probability]), i, (chosen) => {
          slots[i].textContent = mask.candidates[chosen].word;
          slots[i].lang = lang(mask.candidates[chosen].word);
        }, lang)));
      return [h("p", { class: "sentence", lang: lang(result.text) }, parts), h("div", { class: "columns" }, columns)];
    },
    spoken: ([result]) => result.masks.map((mask) => mask.candidates[0].word).join(", "),
  };

  const sentenceOrder = {
    body: (form) => ({ a: field(form, "a"), b: field(form, "b"), symmetric: true }),
    check: (body) => (body.a.trim() && body.b.trim() ? "" : "Write a sentence in both fields."),
    draw([result]) {
      const p = result.probability;
      const verdict = p >= 0.6 ? "This order fits." : p > 0.4 ? "Either order could be." : "The other order would fit better.";
      const dot = h("i", {});
      dot.style.left = `${4 + 92 * p}%`;
      return [
        h("div", {}, h("p", { class: "big" }, percent(p)), h("p", { class: "under" }, "that the first sentence comes first")),
        h("div", { class: `scale ${grade(p)}` },
          h("div", { class: "track", role: "img", "aria-label": `${percent(p)} for this order` }, dot),
          h("div", { class: "ends" }, h("span", {}, "the other order"), h("span", {}, "this order"))),
        h("p", {}, h("strong", {}, verdict)),
        result.backward === null ? null : h("p", { class: "hint" },
          `Read as they stand, the model gives ${percent(result.forward)} to this order; read the other way round, ${percent(1 - result.backward)}. The figure above is what both readings support.`),
      ];
    },
    spoken: ([result]) => `${percent(result.probability)} for this order`,
    setUp(section, rerun) {
      const list = $("sentences");
      const swap = (movedBox) => {
        const focused = document.activeElement;
        list.append(list.firstElementChild);
        const [first, second] = list.querySelectorAll("textarea");
        first.name = "a";
        second.name = "b";
        [first, second].forEach((area, i) => { area.labels[0].textContent = i ? "Second sentence" : "First sentence"; });
        if (movedBox || list.contains(focused)) focused.focus();
        say("Swapped.");
        rerun();
      };
      $("swap").addEventListener("click", () => swap(null));
      for (const item of list.children) {
        const handle = item.querySelector(".handle");
        handle.addEventListener("keydown", (event) => {
          const isFirst = item === list.firstElementChild;
          if ((event.key === "ArrowDown" && isFirst) || (event.key === "ArrowUp" && !isFirst)) swap(item);
          if (["ArrowDown", "ArrowUp"].includes(event.key)) event.preventDefault();
        });
        drag(item, handle, list, swap);
      }
    },
  };

  /** Pointer dragging of one of two items over the other, with mouse, pen or finger. */
  function drag(item, handle, list, swap) {
    let start = null;
    const other = () => (item === list.firstElementChild ? list.lastElementChild : list.firstElementChild);
    const place = (moved) => {
      const there = other().offsetTop - item.offsetTop;
      const share = Math.max(0, Math.min(1, moved / there));
      item.style.transform = `translateY(${Math.max(Math.min(moved, Math.max(there, 0) + 12), Math.min(there, 0) - 12)}px)`;
      other().style.transform = share > 0.5 ? `translateY(${-there}px)` : "";
      return share > 0.5;
    };
    const release = (event) => {
      if (start === null) return;
      const swapped = event.type === "pointerup" && place(event.clientY - start);
      start = null;
      for (const each of list.children) {
        each.style.transform = "";
        each.classList.remove("dragged", "settling");
      }
      if (swapped) swap(item);
    };
    handle.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      start = event.clientY;
      handle.setPointerCapture(event.pointerId);
      item.classList.add("dragged");
      other().classList.add("settling");
    });
    handle.addEventListener("pointermove", (event) => { if (start !== null) place(event.clientY - start); });
    handle.addEventListener("pointerup", release);
    handle.addEventListener("pointercancel", release);
  }

  let sentencesRead = [];
  let unshuffled = null;
  const coherence = {
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
        // A joint that holds is one thick line; one that does not has a gap as wide as the doubt.
        const gap = p >= 0.5 ? 0 : 4 + 20 * (0.5 - p);
        chain.append(h("li", { class: `joint ${grade(p)}` },
          h("svg", { viewBox: "0 0 28 42", "aria-hidden": "true" },
            h("line", { x1: 14, x2: 14, y1: 2, y2: 21 - gap, "stroke-width": width }),
            h("line", { x1: 14, x2: 14, y1: 21 + gap, y2: 40, "stroke-width": width })),
          h("span", {}, percent(p), h("span", { class: "words" }, p >= 0.7 ? "  follows well" : p >= 0.45 ? "  could go either way" : "  looks turned round"))));
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
        // Chinese and Japanese sentences stand side by side without a space.
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

  const embed = {
    body: (form) => ({ text: field(form, "text").split("\n").map((line) => line.trim()).filter(Boolean), normalize: true }),
    check: (body) => (body.text.length < 2 ? "Write at least two lines." : body.text.length > 12 ? `${body.text.length} lines do not fit the map; 12 do.` : ""),
    draw(results, body, lang) {
      const texts = body.text;
      const likeness = results.map((a) => results.map((b) => a.vector.reduce((sum, value, i) => sum + value * b.vector[i], 0)));
      const others = likeness.flatMap((row, i) => row.filter((_, j) => j !== i));
      const [low, high] = [Math.min(...others), Math.max(...others)];
      // Cosines of such vectors lie close together; colours run from the least to the most alike of these sentences.
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
        h("tbody", {}, texts.map((text, i) => h("tr", {}, h("th", { scope: "row", title: text }, `${i + 1}`, h("span", { class: "text", lang: lang(text) }, `. ${text}`)), texts.map((_, j) => cell(i, j))))));
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
      return [h("div", { class: "scroll" }, table), readout, h("p", { class: "hint" }, `Colours run from ${shown(low)} to ${shown(high)}, the least and the most alike of these.`)];
    },
    spoken: (results) => `${results.length} sentences compared`,
  };

  const classify = {
    body: (form) => ({ text: field(form, "text"), pair: !$("pair-field").hidden && field(form, "pair").trim() ? field(form, "pair") : null }),
    // A model of pairs asks for both texts, one of single texts for one; where a model does not say, the second is optional.
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

  /** The score of a regression model, and where it stands on its scale. */
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

  const tag = {
    body: (form) => ({ text: field(form, "text") }),
    draw([result], body, lang) {
      const text = [...result.text];
      // A model of entities marks those; one of word classes marks every word.
      const spans = result.entities.length ? result.entities : result.words.filter((word) => word.tag !== "O").map((word) => ({ ...word, label: word.tag }));
      const labels = [...new Set(spans.map((span) => span.label))].sort();
      const parts = [];
      let at = 0;
      for (const span of spans) {
        parts.push(text.slice(at, span.start).join(""), h("mark", { class: `entity hue-${labels.indexOf(span.label) % 6}`, title: percent(span.probability) },
          text.slice(span.start, span.end).join(""), h("small", { lang: lang(span.label) }, span.label)));
        at = span.end;
      }
      parts.push(text.slice(at).join(""));
      return [
        h("p", { class: "context", lang: lang(result.text) }, parts),
        spans.length ? null : h("p", { class: "soft" }, "Nothing was found."),
        h("details", {}, h("summary", {}, `All ${result.words.length} words`), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All words" }, h("table", { class: "words" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Word"), h("th", { scope: "col" }, "Tag"), h("td", {}))),
          h("tbody", {}, result.words.map((word) => h("tr", {}, h("th", { scope: "row", lang: lang(word.text) }, word.text), h("td", {}, word.tag), h("td", {}, percent(word.probability)))))))),
      ];
    },
    spoken: ([result]) => result.entities.map((entity) => `${entity.text}, ${entity.label}`).join("; ") || "nothing found",
  };

  const answer = {
    body: (form) => ({ question: field(form, "question"), context: field(form, "context"), top: 4 }),
    draw([result], body, lang) {
      const text = [...body.context];
      const context = h("p", { class: "context", lang: lang(body.context) });
      const show = (span) => {
        if (!span || span.start === null) return context.replaceChildren(body.context);
        return context.replaceChildren(text.slice(0, span.start).join(""), h("mark", {}, text.slice(span.start, span.end).join("")), text.slice(span.end).join(""));
      };
      const found = result.start !== null;
      show(found ? result : null);
      const long = result.text.length > 24;
      return [
        h("p", { class: `big${long || !found ? " long" : ""}`, lang: found ? lang(result.text) : null }, found ? result.text : "The text does not say."),
        context,
        h("div", {}, h("h3", {}, found ? "Candidates" : "Candidates, none of them likely enough"),
          choices("Candidates", result.candidates.map((c) => [c.text, c.probability]), 0, (i) => show(result.candidates[i]), lang, { none: !found, look: "long" })),
        result.no_answer === null ? null : h("div", {}, h("h3", {}, "That the text does not say"), bar("no answer", result.no_answer, { hue: 1 })),
      ];
    },
    spoken: ([result]) => (result.start === null ? "The text does not say" : result.text),
  };

  const choose = {
    body: (form) => ({ passage: field(form, "passage"), question: field(form, "question"), options: [...$("options").querySelectorAll("input")].map((input) => input.value).filter((value) => value.trim()) }),
    check: (body) => (body.options.length < 2 ? "Give at least two options." : ""),
    draw([result], body, lang) {
      return [
        h("p", { class: `big${result.option.length > 16 ? " long" : ""}`, lang: lang(result.option) }, result.option),
        h("div", { class: "bars long" }, body.options.map((option, i) => bar(`${letter(i)}  ${option}`, result.probabilities[i], { first: i === result.index, lang: lang(option) }))),
      ];
    },
    spoken: ([result]) => result.option,
    // The options count as one field: they belong together.
    fields: {
      options: {
        read: () => [...$("options").querySelectorAll("input")].map((input) => input.value),
        write(texts) {
          for (const row of $("options").querySelectorAll(".option")) row.remove();
          for (const text of texts) choose.add(text);
        },
      },
    },
    setUp() {
      $("add-option").addEventListener("click", () => choose.add("").querySelector("input").focus());
    },
    add(text) {
      const box = $("options");
      const number = () => {
        const rows = [...box.querySelectorAll(".option")];
        rows.forEach((row, i) => {
          row.querySelector(".letter").textContent = letter(i);
          row.querySelector("input").setAttribute("aria-label", `Option ${letter(i)}`);
          row.querySelector("button").hidden = rows.length <= 2;
          row.querySelector("button").setAttribute("aria-label", `Remove option ${letter(i)}`);
        });
        $("add-option").hidden = rows.length >= 8;
      };
      const row = h("div", { class: "option" }, h("span", { class: "letter", "aria-hidden": "true" }), h("input", {}),
        h("button", { type: "button", onclick: () => { row.remove(); number(); $("add-option").focus(); box.dispatchEvent(new Event("input", { bubbles: true })); } }, "×"));
      row.querySelector("input").value = text;
      box.append(row);
      number();
      return row;
    },
  };

  // ---- Attention --------------------------------------------------------------------------------------------------

  const look = { layer: 0, head: 0 }; // stays when the text changes
  const attention = {
    wide: true,
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

      // Lines from each token (left) to those it looks at (right).
      const row = pieces.length > 32 ? 18 : 25;
      const [width, height] = [420, pieces.length * row + 24];
      const [from, to] = [150, width - 150];
      const y = (i) => 30 + i * row;
      const lines = h("g", {});
      const label = (name, i, side) => h("text", { x: side ? to + 10 : from - 10, y: y(i) + 4, "text-anchor": side ? "start" : "end", lang: lang(name) }, name.length > 16 ? `${name.slice(0, 15)}…` : name);
      const choosers = names.map((name, i) => h("g", { role: "button", tabindex: 0, "aria-pressed": "false", "aria-label": `What ${name} looks at`, onmouseenter: () => pick(i), onmouseleave: () => pick(null), onfocus: () => pick(i), onblur: () => pick(null), onclick: () => pick(i) },
        h("rect", { x: 0, y: y(i) - row / 2, width: from, height: row, fill: "transparent" }), label(name, i, 0)));
      const targets = names.map((name, i) => h("g", {}, label(name, i, 1)));
      const svg = h("svg", { class: "lines", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "From each token to those it looks at" },
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
      redraw = drawOverview;
      drawOverview();
      set({});
      return [
        h("div", { class: "controls" }, play, layerSlider.box, headSlider.box),
        h("div", { class: "views" }, svg, h("div", {}, h("p", { class: "axis" }, h("span", {}, "heads →"), h("span", {}, "applications ↓")), overview)),
        result.left_out ? h("p", { class: "hint" }, `${result.left_out} tokens at the end did not fit and were left out.`) : null,
      ];
    },
    spoken: ([result]) => `${result.pieces.length} tokens, ${result.weights.length} applications, ${result.weights[0].length} heads`,
  };

  let redraw = () => {}; // of what is painted, when the colours change
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());

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

  // ---- Putting it together ----------------------------------------------------------------------------------------

  const PANELS = { fill_mask: fillMask, sentence_order: sentenceOrder, coherence, embed, attention, classify, tag, answer, choose };
  const MOMENT = 350; // milliseconds

  function quote(text) { return `'${text.replace(/'/g, "'\\''")}'`; }

  /** A filler of a form: fill(examples) puts the shown one into every field that holds nobody's own words. */
  function exampleFiller(ability, form) {
    const panel = PANELS[ability];
    const plain = (element) => ({
      read: () => (panel.written ? panel.written(element) : element.value),
      write(text) { element.value = text; panel.forget?.(); },
    });
    // By where they stand at first: the two sentences of an order change their names when they change places.
    const known = Object.values(EXAMPLES).flatMap((language) => [...language[ability], ...(panel.examples ? language.pair : [])]);
    const names = [...new Set(known.flatMap(Object.keys))];
    const fields = Object.fromEntries(names.map((name) => [name, panel.fields?.[name] || plain(form.elements[name])]));
    const ours = new Set(known.flatMap(Object.values).map(String));
    let shown = 0; // which example, where a language has several
    // A browser that goes back to this page brings back what was written: only what is empty counts as not yet filled.
    const fresh = new Set(names.filter((name) => fields[name].read().length === 0));
    return (examples, chosen = null) => {
      shown = chosen ?? shown;
      for (const [name, text] of Object.entries(examples[shown])) {
        if (chosen !== null || fresh.delete(name) || ours.has(String(fields[name].read()))) fields[name].write(text);
      }
    };
  }

  function setUpPanel(ability, models) {
    const panel = PANELS[ability];
    const section = $(ability);
    const form = section.querySelector("form");
    const result = h("div", { class: `card result${panel.wide ? " wide" : ""}`, "aria-live": "off" }, h("p", { class: "placeholder" }, "The answer appears here."));
    section.append(result);
    if (panel.wide) form.classList.add("wide");
    const able = models.filter((model) => model.abilities.includes(ability));
    const select = h("select", { id: `${ability}-model` }, able.map(({ name }) => h("option", { value: name }, name)));
    if (able.length > 1) form.append(h("div", { class: "which" }, h("label", { for: `${ability}-model` }, "Model"), select));
    const go = h("button", { class: "go", type: "submit" }, "Run");
    const actions = form.querySelector(".actions") || h("p", { class: "actions" });
    actions.prepend(go);
    actions.append(h("span", { class: "hint keys" }, "or Ctrl + Enter"));
    form.append(actions);
    const links = h("div", { class: "examples" });
    if (EXAMPLES.en[ability].length > 1) form.append(links);
    let running = null;
    let waiting = null;

    const model = () => able[Math.max(0, select.selectedIndex)];
    const lang = (text) => languageOf(text, model().language);
    /** Fonts, spelling and voices fit what stands in a field. */
    const tellLanguages = () => {
      for (const each of form.querySelectorAll("textarea, input")) if (each.lang !== lang(each.value)) each.lang = lang(each.value);
    };
    const fill = exampleFiller(ability, form);
    const followModel = () => {
      const { language } = model();
      const examples = EXAMPLES[language][panel.examples ? panel.examples(model()) : ability];
      panel.follow?.(model());
      fill(examples);
      links.replaceChildren(h("h3", {}, "Examples"), ...examples.map(({ text }, i) =>
        h("button", { type: "button", class: "example", lang: language, onclick: () => { fill(examples, i); run(); } }, text)));
      tellLanguages();
    };

    const run = async () => {
      clearTimeout(waiting);
      tellLanguages();
      const body = { ...panel.body(form), model: model().name };
      const mistake = panel.check ? panel.check(body) : "";
      running?.abort();
      const mine = (running = new AbortController());
      if (mistake) {
        result.removeAttribute("aria-busy"); // of the request that was just given up
        result.replaceChildren(problem(new Trouble(422, "invalid_input", mistake)));
        return;
      }
      result.setAttribute("aria-busy", "true");
      const began = performance.now();
      try {
        const path = ability.replace("_", "-");
        const { results } = await ask(path, body, mine.signal);
        const took = performance.now() - began;
        const drawn = panel.draw(results, body, lang).filter(Boolean);
        const command = `curl -s ${location.origin}/${path} -H "Content-Type: application/json"${key ? ' -H "Authorization: Bearer $LITEBERT_API_KEY"' : ""} \\\n  -d ${quote(JSON.stringify(body))}`;
        result.replaceChildren(...drawn, h("div", { class: "meta" }, h("span", {}, `${took < 10 ? took.toFixed(1) : Math.round(took)} ms`), h("span", {}, body.model),
          h("details", {}, h("summary", {}, "The same as a command"), h("pre", { tabindex: 0 }, command))));
        const spoken = panel.spoken(results);
        say("Result: ", h("span", { lang: lang(spoken) }, spoken));
        if (panel.wide) redraw();
      } catch (error) {
        if (error.name === "AbortError") return;
        if (!(error instanceof Trouble)) throw error;
        if (error.status === 401) return askForKey();
        result.replaceChildren(problem(error, run));
      } finally {
        if (running === mine) result.removeAttribute("aria-busy");
      }
    };

    form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
    });
    select.addEventListener("change", () => { followModel(); run(); });
    // A moment after the last keystroke, so that the picture follows the text.
    form.addEventListener("input", (event) => { if (event.target !== select) { clearTimeout(waiting); waiting = setTimeout(run, 2 * MOMENT); } });
    panel.setUp?.(section, run);
    followModel();
    return { section, run, fresh: true };
  }

  function askForKey() {
    key = null;
    sessionStorage.removeItem("litebert-key");
    $("tabs").replaceChildren();
    for (const section of document.querySelectorAll('[role="tabpanel"]')) section.hidden = true;
    $("key-form").hidden = false;
    $("key").value = "";
    $("key").focus();
  }

  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    key = $("key").value.trim();
    if (!/^[ -~]+$/.test(key)) return keyDoesNotFit(); // keys are ASCII, and no header could carry anything else
    sessionStorage.setItem("litebert-key", key);
    return location.reload(); // every panel begins anew
  });

  function keyDoesNotFit() {
    $("trouble").hidden = false;
    $("trouble").replaceChildren(h("strong", {}, "That key does not fit."));
    askForKey();
  }

  async function begin() {
    $("trouble").hidden = true;
    let answer;
    try {
      answer = await ask("models");
    } catch (error) {
      if (error.status === 401) {
        return key ? keyDoesNotFit() : askForKey();
      }
      $("trouble").hidden = false;
      $("trouble").replaceChildren(...problem(error, begin).childNodes);
      return null;
    }
    const { models, version } = answer;
    $("about").textContent = `${version} · ${models.map((model) => model.name).join(", ")}`;
    const abilities = Object.keys(PANELS).filter((ability) => models.some((model) => model.abilities.includes(ability)));
    const panels = Object.fromEntries(abilities.map((ability) => [ability, setUpPanel(ability, models)]));
    const tabs = abilities.map((ability) => {
      const { section } = panels[ability];
      section.setAttribute("aria-labelledby", `tab-${ability}`);
      return h("button", { type: "button", role: "tab", id: `tab-${ability}`, "aria-controls": ability, onclick: () => open(ability) }, section.dataset.title);
    });
    $("tabs").replaceChildren(...tabs);

    function open(ability, focus = false) {
      abilities.forEach((each, i) => {
        const chosen = each === ability;
        tabs[i].setAttribute("aria-selected", String(chosen));
        tabs[i].tabIndex = chosen ? 0 : -1;
        panels[each].section.hidden = !chosen;
        if (!chosen) return;
        tabs[i].scrollIntoView({ block: "nearest", inline: "center" });
        if (focus) tabs[i].focus();
      });
      if (location.hash !== `#${ability}`) history.replaceState(null, "", `#${ability}`);
      document.title = `${panels[ability].section.dataset.title} · litebert`;
      if (panels[ability].fresh) { panels[ability].fresh = false; panels[ability].run(); }
    }

    $("tabs").addEventListener("keydown", (event) => {
      const at = tabs.indexOf(document.activeElement);
      const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (at < 0 || next === undefined) return;
      event.preventDefault();
      open(abilities[(next + tabs.length) % tabs.length], true);
    });
    const named = () => (abilities.includes(location.hash.slice(1)) ? location.hash.slice(1) : null);
    addEventListener("hashchange", () => { if (named()) open(named()); });
    open(named() || abilities[0]);
    return null;
  }

  begin();
})();
