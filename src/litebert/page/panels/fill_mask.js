// Fill mask: the sentence with the best words in it, and the other candidates to choose from.
import { choices, field, h } from "../dom.js";

export const fillMask = {
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
