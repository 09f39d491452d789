// The backend of a folder that `litebert export --to web --page` wrote: its answers come from a worker in this tab.
import { $ } from "./dom.js";
import { showPage } from "./page.js";
import { Trouble } from "./trouble.js";

const PATIENCE = 5000; // milliseconds
const megabytes = (bytes) => (bytes / 1e6).toFixed(1);

/** A service worker keeps the folder for use without a network, and allows threads where the host's headers do not. */
async function keepOffline() {
  if (!("serviceWorker" in navigator)) return;
  try {
    const registered = await navigator.serviceWorker.register("offline.js");
    if (!registered) return;
    await Promise.race([navigator.serviceWorker.ready, new Promise((_, reject) => { setTimeout(reject, PATIENCE); })]);
  } catch {
    return; // a host or a mode of the browser that does not allow it: the page works, online and on one thread
  }
  if (crossOriginIsolated || self !== top || sessionStorage.getItem("litebert-isolated")) return;
  sessionStorage.setItem("litebert-isolated", "tried");
  location.reload();
  await new Promise(() => {}); // nothing is loaded twice
}

function showProgress({ done, total, starting }) {
  $("loading").hidden = false;
  $("loading-bar").max = total;
  $("loading-bar").value = done;
  $("loading-text").textContent = starting ? "Starting the model…" : `Loading the model: ${megabytes(done)} of ${megabytes(total)} MB`;
}

function startWorker() {
  const worker = new Worker(`worker.js${location.search}`, { type: "module" });
  const answers = new Map(); // id -> {resolve, reject}
  let count = 0;
  let ended = false; // what was under way may still arrive after terminate()
  const loaded = new Promise((resolve, reject) => {
    worker.addEventListener("error", (event) => { event.preventDefault(); reject(new Trouble(0, "no_file", "worker.js or one of the scripts that it needs could not be loaded.")); });
    worker.addEventListener("message", ({ data }) => {
      if (ended) return null;
      if (data.progress) return showProgress(data.progress);
      if (data.ready) return resolve(data.ready);
      const failed = data.trouble && new Trouble(data.trouble.status, data.trouble.code, data.trouble.message);
      if (data.id === undefined) return reject(failed);
      const { resolve: answer, reject: refuse } = answers.get(data.id) ?? {};
      answers.delete(data.id);
      return failed ? refuse?.(failed) : answer?.(data.results);
    });
  });
  const ask = (ability, body, signal) => new Promise((resolve, reject) => {
    const id = (count += 1);
    answers.set(id, { resolve, reject });
    signal.addEventListener("abort", () => {
      answers.delete(id);
      worker.postMessage({ cancel: id });
      reject(new DOMException("given up", "AbortError"));
    });
    worker.postMessage({ id, ability, body });
  });
  return { loaded, ask, end: () => { ended = true; worker.terminate(); } };
}

let worker = null;
export const backend = {
  async models() {
    worker = startWorker();
    try {
      const ready = await worker.loaded;
      $("one-thread").hidden = ready.isolated || ready.device === "webgpu" || self !== top; // a frame cannot help it
      document.documentElement.dataset.loaded = String(Math.round(ready.took)); // milliseconds, for benchmarks
      document.documentElement.dataset.build = ready.build ?? ready.device;
      return ready;
    } catch (error) {
      worker.end(); // what it still loads is of no use
      throw error;
    } finally {
      $("loading").hidden = true;
    }
  },
  /** The runtime's name, for the header. */
  where: (model) => `in this tab, ${model.runtime}`,
  answer: (ability, body, signal) => worker.ask(ability, body, signal),
};

await keepOffline();
showPage(backend);
