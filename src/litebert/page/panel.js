// One tab: its form with an example, the request, and the drawing of the result. A panel has
//   body(form)            the request                     draw(results, body, lang)  the nodes of the result
//   spoken(results)       the result for screen readers   and may have check, setUp, follow, examples, like, chip, fields, wide,
//                                                         repaint, asks (the ability, if the tab has another name), adapter,
//                                                         everyDepth (it draws every application). Several examples are
//                                                         offered below the form, each by its field `chip`, or its text.
import { depthChoice, depthOf } from "./depth.js";
import { $, h, languageOf, say } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { Trouble, problem } from "./trouble.js";

const MOMENT = 350; // milliseconds

/** A filler of a form: fill(examples) puts the shown example into every field that the user has not edited. */
function exampleFiller(ability, panel, form) {
  const plain = (element) => ({
    read: () => (panel.written ? panel.written(element) : element.value),
    write(text) { element.value = text; panel.forget?.(); },
  });
  // Keyed by their first places: the two sentences of an order swap names when they swap places.
  const known = Object.values(EXAMPLES).flatMap((language) => [...language[panel.like ?? ability], ...(panel.examples ? language.pair : [])]);
  const names = [...new Set(known.flatMap(Object.keys))];
  const fields = Object.fromEntries(names.map((name) => [name, panel.fields?.[name] || plain(form.elements[name])]));
  const ours = new Set(known.flatMap(Object.values).map(String));
  let shown = 0; // which example, if a language has several
  // On going back to this page, browsers restore what was typed: only empty fields count as not yet filled.
  const fresh = new Set(names.filter((name) => fields[name].read().length === 0));
  return (examples, chosen = null) => {
    shown = chosen ?? shown;
    for (const [name, text] of Object.entries(examples[shown])) {
      if (chosen !== null || fresh.delete(name) || ours.has(String(fields[name].read()))) fields[name].write(text);
    }
  };
}

/** One tab: its form and its result, updated as the user types; `able` are the models to choose from. */
export function setUpPanel(ability, panel, able, backend) {
  const section = $(ability);
  const form = section.querySelector("form");
  const result = h("div", { class: `card result${panel.wide ? " wide" : ""}`, "aria-live": "off" }, h("p", { class: "placeholder" }, "The result appears here."));
  section.append(result);
  if (panel.wide) form.classList.add("wide");
  const select = h("select", { id: `${ability}-model` }, able.map(({ name }) => h("option", { value: name }, name)));
  if (able.length > 1) form.append(h("div", { class: "which" }, h("label", { for: `${ability}-model` }, "Model"), select));
  const depth = depthChoice(panel.asks ?? ability, `${ability}-depth`);
  if (!panel.everyDepth) form.append(depth.node);
  const go = h("button", { class: "go", type: "submit" }, "Run");
  const actions = form.querySelector(".actions") || h("p", { class: "actions" });
  actions.prepend(go);
  actions.append(h("span", { class: "hint keys" }, "or Ctrl + Enter"));
  form.append(actions);
  const links = h("div", { class: "examples" });
  if (EXAMPLES.en[panel.like ?? ability].length > 1) form.append(links);
  let running = null;
  let waiting = null;

  const model = () => able[Math.max(0, select.selectedIndex)];
  const lang = (text) => languageOf(text, model().language);
  /** Set each field's language, for fonts, spelling and screen readers. */
  const tellLanguages = () => {
    for (const each of form.querySelectorAll("textarea, input")) if (each.lang !== lang(each.value)) each.lang = lang(each.value);
  };
  const fill = exampleFiller(ability, panel, form);
  const followModel = () => {
    const { language } = model();
    const examples = EXAMPLES[language][panel.examples ? panel.examples(model()) : panel.like ?? ability];
    panel.follow?.(model());
    depth.follow(model());
    fill(examples);
    links.replaceChildren(h("h3", {}, "Examples"), ...examples.map((example, i) =>
      h("button", { type: "button", class: "example", lang: language, onclick: () => { fill(examples, i); run(); } }, example[panel.chip ?? "text"])));
    tellLanguages();
  };

  const run = async () => {
    clearTimeout(waiting);
    tellLanguages();
    const body = { ...panel.body(form), model: model().name };
    if (!panel.everyDepth && depth.value() !== undefined) body.depth = depth.value();
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
      const results = await backend.answer(panel.asks ?? ability, body, mine.signal);
      const took = performance.now() - began;
      const drawn = panel.draw(results, body, lang).filter(Boolean);
      const deep = depthOf(results, model());
      const command = backend.command?.(panel.asks ?? ability, body);
      result.replaceChildren(...drawn, h("div", { class: "meta" }, h("span", {}, `${took < 10 ? took.toFixed(1) : Math.round(took)} ms`), h("span", {}, results.model ?? body.model), deep ? h("span", {}, deep) : null,
        command ? h("details", {}, h("summary", {}, "Show as a command"), h("pre", { tabindex: 0 }, command)) : null));
      const spoken = panel.spoken(results);
      say("Result: ", h("span", { lang: lang(spoken) }, spoken));
      panel.repaint?.();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Trouble)) throw error;
      if (backend.handles?.(error)) return;
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
  depth.select.addEventListener("change", run);
  // A moment after the last keystroke, so that the picture follows the text.
  form.addEventListener("input", (event) => { if (event.target.localName !== "select") { clearTimeout(waiting); waiting = setTimeout(run, 2 * MOMENT); } });
  panel.setUp?.(section, run);
  followModel();
  return { section, run, fresh: true };
}
