// What every panel is drawn with: elements, bars, choices, and the language of a text. Plain DOM calls only: what a user or
// a model wrote never becomes markup. Offsets in results count characters (code points): split texts with [...text].
export const $ = (id) => document.getElementById(id);
export const percent = (p) => (p > 0 && p < 0.001 ? "<\u00a00.1\u00a0%" : `${(100 * p).toFixed(1)}\u00a0%`);
export const letter = (i) => String.fromCharCode(65 + i);
export const grade = (p) => (p >= 0.7 ? "good" : p >= 0.45 ? "fair" : "poor");

/** The value of a form's field. */
export const field = (form, name) => form.elements[name].value;

const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = new Set(["svg", "g", "path", "line", "polyline", "circle", "text", "rect", "title"]);

/** An element: h("p", {class: "soft"}, "text", node, [more]); `on...` are listeners, null is left out. */
export function h(name, attributes = {}, ...children) {
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

/** Announce a message to screen readers. */
export const say = (...message) => { $("status").replaceChildren(...message); };

/** The language of a text by its letters; the model's if they fit several languages or there are none. */
export function languageOf(text, model) {
  if (/\p{Script=Hangul}/u.test(text)) return "ko";
  if (/[\p{Script=Hiragana}\p{Script=Katakana}]/u.test(text)) return "ja";
  if (/\p{Script=Han}/u.test(text)) return model === "ja" ? "ja" : "zh";
  const letters = text.replaceAll("[MASK]", "");
  if (/\p{Script=Latin}/u.test(letters)) return "en";
  return /\p{L}/u.test(letters) ? "" : model; // "": not known
}

/** A row with a bar: a button where `choose` is given. */
export function bar(name, share, { number = percent(share), first = false, hue = 0, choose = null, chosen = false, lang = null } = {}) {
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
export function choices(label, rows, hue, onChoose, lang, { none = false, look = "" } = {}) {
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
