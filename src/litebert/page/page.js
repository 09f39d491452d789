// The page: for each ability a form, one request, and a drawing of its result. `showPage` gets a backend that answers, so
// neither this file nor the panels know where answers come from: server.js asks `litebert serve`, browser.js a worker in
// this tab.
import { $, h } from "./dom.js";
import { setUpPanel } from "./panel.js";
import { answer } from "./panels/answer.js";
import { attention } from "./panels/attention.js";
import { choose } from "./panels/choose.js";
import { classify, entailment, sentiment } from "./panels/classify.js";
import { coherence } from "./panels/coherence.js";
import { embed } from "./panels/embed.js";
import { fillMask } from "./panels/fill_mask.js";
import { sentenceOrder } from "./panels/sentence_order.js";
import { states } from "./panels/states.js";
import { tag } from "./panels/tag.js";
import { problem } from "./trouble.js";

const PANELS = { fill_mask: fillMask, sentence_order: sentenceOrder, coherence, embed, attention, states, sentiment, entailment, classify, tag, answer, choose };

const TRAINED = ["fill_mask", "classify", "tag", "answer", "choose"];

/** The models that a tab offers: a packaged adapter has a separate tab, or answers for its model in an ability's tab. */
function modelsOf(tab, models) {
  const { asks = tab, adapter } = PANELS[tab];
  const able = models.filter((model) => model.abilities.includes(asks));
  const packaged = able.filter((model) => model.packaged);
  if (adapter) return packaged.filter((model) => model.name.endsWith(`:${adapter}`));
  const elsewhere = (model) => tab === "classify" && packaged.some((each) => each.name.startsWith(`${model.name}:`));
  return able.filter((model) => !model.packaged && !elsewhere(model));
}

/** Show a tab for every ability of the backend's models. */
export async function showPage(backend) {
  $("trouble").hidden = true;
  let loaded;
  try {
    loaded = await backend.models();
  } catch (error) {
    if (backend.handles?.(error)) return;
    $("trouble").hidden = false;
    $("trouble").replaceChildren(...problem(error, () => showPage(backend)).childNodes);
    return;
  }
  const { models, version } = loaded;
  const where = backend.where?.(models[0]);
  const names = models.filter((model) => !model.packaged).map((model) => model.name);
  $("about").textContent = [version, names.join(", "), where].filter(Boolean).join(" · ");
  const abilities = Object.keys(PANELS).filter((ability) => modelsOf(ability, models).length);
  const panels = Object.fromEntries(abilities.map((ability) => [ability, setUpPanel(ability, PANELS[ability], modelsOf(ability, models), backend)]));
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
  // Tabs of what a model was trained for come first; every model has similarity and attention.
  open(named() || TRAINED.find((ability) => abilities.includes(ability)) || abilities[0]);
}
