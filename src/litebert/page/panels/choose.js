// Choices: the options with their probabilities.
import { $, bar, field, h, letter } from "../dom.js";

export const choose = {
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
