// Tags: the text with its entities marked, and every word in a table.
import { field, h, percent } from "../dom.js";

export const tag = {
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
