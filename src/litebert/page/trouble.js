// What went wrong, in words for people.
import { h } from "./dom.js";

/** What went wrong, for people. */
export class Trouble extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const ADVICE = {
  queue_full: "Too many requests at once.",
  overloaded: "The server is busy.",
  timeout: "That took too long.",
  too_large: "Too much text.",
  too_many_tokens: "Too much text.",
  too_many_inputs: "Too many sentences.",
  invalid_input: "Invalid input.",
  failed: "The server failed on this input.",
  unreachable: "No connection.",
  no_file: "A file is missing.",
  no_runtime: "The runtime did not start.",
};

export function problem(trouble, again) {
  const may = [0, 429, 503, 504].includes(trouble.status);
  return h("div", { class: "problem", role: "alert" },
    h("p", {}, h("strong", {}, ADVICE[trouble.code] || "That did not work."), " ", trouble.message),
    may ? h("button", { type: "button", onclick: again }, "Try again") : null);
}
