// The backend of `litebert serve`: its answers come over HTTP, perhaps with a key.
import { $, h } from "./dom.js";
import { showPage } from "./page.js";
import { Trouble } from "./trouble.js";

let key = sessionStorage.getItem("litebert-key");

async function ask(path, body, signal) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  if (key) headers.Authorization = `Bearer ${key}`;
  let response, answer;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble(0, "unreachable", "The server does not answer. Is it still running?");
  }
  try {
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble(response.status, "unreadable", `The server's answer (status ${response.status}) cannot be read.`);
  }
  if (!response.ok) {
    const { code = "refused", message = `status ${response.status}` } = answer.error || {};
    throw new Trouble(response.status, code, message);
  }
  return answer;
}

const path = (ability) => ability.replaceAll("_", "-");
const quote = (text) => `'${text.replace(/'/g, "'\\''")}'`;

const backend = {
  models: () => ask("models"),
  async answer(ability, body, signal) {
    const { results, model } = await ask(path(ability), body, signal);
    return Object.assign(results, { model }); // who answered: an adapter may do so for its model
  },
  /** The same request for a shell. */
  command(ability, body) {
    const authorization = key ? ' -H "Authorization: Bearer $LITEBERT_API_KEY"' : "";
    return `curl -s ${location.origin}/${path(ability)} -H "Content-Type: application/json"${authorization} \\\n  -d ${quote(JSON.stringify(body))}`;
  },
  /** Whether an error is about the key and was handled here. */
  handles(error) {
    if (error.status !== 401) return false;
    if (key) refuseKey();
    else askForKey();
    return true;
  },
};

function askForKey() {
  key = null;
  sessionStorage.removeItem("litebert-key");
  $("tabs").replaceChildren();
  for (const section of document.querySelectorAll('[role="tabpanel"]')) section.hidden = true;
  $("key-form").hidden = false;
  $("key").value = "";
  $("key").focus();
}

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  if (!/^[ -~]+$/.test(key)) return refuseKey(); // keys are ASCII, and no header could carry anything else
  sessionStorage.setItem("litebert-key", key);
  return location.reload(); // every panel begins anew
});

function refuseKey() {
  $("trouble").hidden = false;
  $("trouble").replaceChildren(h("strong", {}, "Wrong key."));
  askForKey();
}

showPage(backend);
