// Order: two sentences to drag, and how probable their order is.
import { $, field, grade, h, percent, say } from "../dom.js";

export const sentenceOrder = {
  body: (form) => ({ a: field(form, "a"), b: field(form, "b"), symmetric: true }),
  check: (body) => (body.a.trim() && body.b.trim() ? "" : "Write a sentence in both fields."),
  draw([result]) {
    const p = result.probability;
    const verdict = p >= 0.6 ? "This order fits." : p > 0.4 ? "Either order is possible." : "The other order fits better.";
    const dot = h("i", {});
    dot.style.left = `${4 + 92 * p}%`;
    return [
      h("div", {}, h("p", { class: "big" }, percent(p)), h("p", { class: "under" }, "that the first sentence comes first")),
      h("div", { class: `scale ${grade(p)}` },
        h("div", { class: "track", role: "img", "aria-label": `${percent(p)} for this order` }, dot),
        h("div", { class: "ends" }, h("span", {}, "the other order"), h("span", {}, "this order"))),
      h("p", {}, h("strong", {}, verdict)),
      result.backward === null ? null : h("p", { class: "hint" },
        `Reading the sentences in this order, the model gives it ${percent(result.forward)}; in the other order, ${percent(1 - result.backward)}. The figure above combines both.`),
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
