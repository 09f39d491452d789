// The service worker of an exported page: what was loaded once works without a network, and responses get the headers that
// let wasm use threads (cross-origin isolation), whatever the host sends.
const CACHE = "litebert-page";
const LARGE = /\/(onnx\/|runtime\/|engine\/.*\.wasm|tokenizer\.json)/; // their addresses contain a version, so a cached one is always right

self.addEventListener("install", (event) => {
  event.waitUntil((async () => {
    const about = await (await fetch("page.json", { cache: "no-cache" })).json();
    await (await caches.open(CACHE)).addAll(["./", "page.json", ...about.shell]);
    await self.skipWaiting();
  })());
});

self.addEventListener("activate", (event) => { event.waitUntil(self.clients.claim()); });

async function keep(request, response) {
  const cache = await caches.open(CACHE);
  const { pathname } = new URL(request.url);
  for (const old of await cache.keys()) {
    if (new URL(old.url).pathname === pathname && old.url !== request.url) await cache.delete(old); // another version
  }
  await cache.put(request, response);
}

const plain = (request) => (LARGE.test(new URL(request.url).pathname) ? request : new Request(request.url.replace(/[?#].*$/, "")));

async function answer(request) {
  const kept = () => caches.match(plain(request));
  if (LARGE.test(new URL(request.url).pathname)) {
    const known = await kept();
    if (known) return known;
  }
  try {
    const response = await fetch(request);
    if (response.status === 200) await keep(plain(request), response.clone()).catch(() => {}); // no room: go on without
    return response;
  } catch (error) {
    const known = await kept();
    if (known) return known;
    throw error;
  }
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || new URL(request.url).origin !== location.origin) return;
  event.respondWith((async () => {
    const response = await answer(request);
    if (response.status === 0) return response;
    const headers = new Headers(response.headers);
    headers.set("Cross-Origin-Opener-Policy", "same-origin");
    headers.set("Cross-Origin-Embedder-Policy", "require-corp");
    headers.set("Cross-Origin-Resource-Policy", "same-origin");
    return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
  })());
});
