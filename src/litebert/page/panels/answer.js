// Answers: the text with the answer marked, and the candidates.
import { bar, choices, field, h } from "../dom.js";

export const answer = {
  chip: "question",
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
      result.no_answer === null ? null : h("div", {}, h("h3", {}, "Probability of no answer"), bar("no answer", result.no_answer, { hue: 1 })),
    ];
  },
  spoken: ([result]) => (result.start === null ? "The text does not say" : result.text),
};
