// Depth as a dial: the depths that a model with exits offers, and which of them answered. A model's `depths` are
// {layers, exits, auto, depth}, the last being what answers if nothing is chosen (null: all layers).
import { h } from "./dom.js";

/** Abilities of trained heads, which answer at exits alone and can tell when to stop; all others do at any depth. */
export const BY_HEAD = new Set(["classify", "tag", "answer", "choose"]);

const AUTO = "As each text needs";
const nameOf = (depth, layers) => (depth === "auto" ? AUTO : depth === layers ? `All ${layers} layers` : `${depth} layer${depth === 1 ? "" : "s"}`);

/** What is chosen by itself: for abilities that cannot stop early, auto means all layers. */
const usual = ({ layers, depth }, byHead) => (depth === null || (depth === "auto" && !byHead) ? layers : depth);

/** A choice of depths: {node, follow(model), value()}; it hides for models without exits. */
export function depthChoice(ability, id) {
  const byHead = BY_HEAD.has(ability);
  const select = h("select", { id });
  const node = h("div", { class: "which", hidden: true }, h("label", { for: id }, "Depth"), select);
  let depths = null;
  const follow = (model) => {
    const before = node.hidden ? null : select.value;
    depths = model.depths?.exits.length ? model.depths : null;
    node.hidden = !depths;
    if (!depths) return;
    const { layers, exits, auto } = depths;
    const offered = [...new Set([...exits, layers])].sort((a, b) => b - a).map(String);
    if (auto && byHead) offered.push("auto");
    const known = String(usual(depths, byHead));
    if (!offered.includes(known)) offered.unshift(known);
    select.replaceChildren(...offered.map((value) => h("option", { value }, nameOf(value === "auto" ? value : Number(value), layers))));
    select.value = offered.includes(before) ? before : known;
  };
  /** For a request; undefined: what the model does by itself. */
  const value = () => {
    if (!depths || select.value === String(usual(depths, byHead))) return undefined;
    return select.value === "auto" ? "auto" : Number(select.value);
  };
  return { node, select, follow, value };
}

/** How deep the model went, in words; null for models without exits. */
export function depthOf(results, { depths }) {
  if (!depths?.exits.length) return null;
  const deepest = Math.max(...results.map(({ depth }) => depth ?? depths.layers));
  return deepest === depths.layers ? `all ${deepest} layers` : `${deepest} of ${depths.layers} layers`;
}
