"""How fast is a model in a browser tab? The page's engine, onnxruntime-web and ONNX Runtime in Python, in one run.

    python benchmarks/browser_speed.py [--model default] [--runtime node_modules] [--folder EXPORTED] [--rounds 5]

Needs the extra [onnx], playwright, a Chromium, and npm or --runtime. The rounds are interleaved, so that what else the
machine does hits all alike; medians, and the ratio of Python's median to the other's. What is measured:

1 x 32 tokens      one text through the page's worker, messages included, with the engine and with onnxruntime-web on
                   wasm, beside `session.run` of the same file
load               from opening the page a second time, everything in the browser's cache, to the first answer drawn
bytes              everything that a visitor loads: page, runtime, model, tokenizer; uncompressed
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from playwright.sync_api import Browser, Page, sync_playwright

import litebert
from litebert.export.web import FILES, export_web
from litebert.serve.static import Handler
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import name_cpu

TOKENS = 32
SIDES = {"wasm": "engine", "ort": "onnxruntime-web"}  # as ?device= of the page
WORDS = "the town lies on the west bank of the river and has a small church that was built of stone".split()
TIMED = """async ([body, times]) => {
    const { backend } = await import('./browser.js');
    const took = [];
    for (let i = 0; i < times; i += 1) {
        const began = performance.now();
        await backend.answer('embed', body, new AbortController().signal);
        took.push(performance.now() - began);
    }
    return took;
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--runtime", type=Path)
    parser.add_argument("--folder", type=Path, help="a folder that `litebert export --to web --page` wrote")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=8, help="texts in a round")
    parser.add_argument("--forms", nargs="+", default=["int8", "q4i8"], choices=FILES, help="which files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder = options.folder or Path(scratch, "page")
        if options.folder is None:
            export_web(options.model, folder, page=True, runtime=options.runtime)
        browser = playwright.chromium.launch(
            executable_path=next(
                filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
            ),
            args=["--no-sandbox"],
        )
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"{datetime.date.today()}, {name_cpu(options.threads)}, {platform.system()}")
        print(f"Chromium {browser.version}, onnxruntime {onnxruntime.__version__}, litebert {litebert.__version__}")
        print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
        address = f"http://127.0.0.1:{server.server_address[1]}"
        measure_speed(browser, address, folder, options)
        measure_load(browser, address, options.rounds)
        show_bytes(folder)
        print(f"\nload average after: {os.getloadavg()[0]:.1f}")
        server.shutdown()


class Quiet(Handler):
    """No line for each request."""

    def log_message(self, *rest: Any) -> None:
        """Nothing."""


def measure_speed(browser: Browser, address: str, folder: Path, options: argparse.Namespace) -> None:
    tokenizer = Tokenizer.load(folder)
    text = next(
        text
        for count in range(1, 200)
        if len(tokenizer.encode(text := " ".join(WORDS[i % len(WORDS)] for i in range(count)))) >= TOKENS - 2
    )
    ids = np.array([[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    body = {"text": text, "normalize": True}
    pages = {
        (device, form): open_page(browser, f"{address}/?device={device}&precision={form}")
        for form in options.forms
        for device in SIDES
    }
    sessions = {
        form: open_session(folder / name, options.threads) for form, name in FILES.items() if form in options.forms
    }
    took: dict[tuple[str, str], list[float]] = {}
    for number in range(options.rounds + 1):
        for form in options.forms:
            seen = {device: pages[device, form].evaluate(TIMED, [body, options.times]) for device in SIDES}
            seen["python"] = []
            for _ in range(options.times):
                began = time.perf_counter()
                sessions[form].run(["last_hidden_state"], feeds)
                seen["python"].append(1000 * (time.perf_counter() - began))
            if number:  # the first round warms up
                for side, values in seen.items():
                    took.setdefault((side, form), []).extend(values)
    build = pages["wasm", options.forms[0]].evaluate("document.documentElement.dataset.build")
    print(f"1 x {ids.shape[1]} tokens, milliseconds: median (fastest); the engine's build: {build}")
    for form in options.forms:
        python = took["python", form]
        print(f"  {form:5} Python {statistics.median(python):6.1f} ({min(python):.1f})")
        for device, name in SIDES.items():
            values = took[device, form]
            middle, fastest = statistics.median(python) / statistics.median(values), min(python) / min(values)
            print(
                f"        {name:15} {statistics.median(values):6.1f} ({min(values):.1f})"
                f"   {middle:.2f}x of Python's speed ({fastest:.2f}x)"
            )
    for page in pages.values():
        page.context.close()


def open_session(path: Path, threads: int) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the browser's turn is not Python's
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def open_page(browser: Browser, address: str) -> Page:
    page = browser.new_context().new_page()
    page.set_default_timeout(120_000)
    page.goto(address)
    page.wait_for_selector("[role=tabpanel]:visible .meta")
    return page


def measure_load(browser: Browser, address: str, rounds: int) -> None:
    page = open_page(browser, f"{address}/?device=wasm")
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        page.reload()
        page.wait_for_selector("[role=tabpanel]:visible .meta")
        seconds.append(time.perf_counter() - began)
    middle = statistics.median(seconds)
    print(f"\nload from the cache to the first answer: median {middle:.2f} s (fastest {min(seconds):.2f})")
    page.context.close()


def show_bytes(folder: Path) -> None:
    about = json.loads((folder / "page.json").read_text(encoding="utf-8"))
    parts = {
        "page": ["index.html", "page.json", "offline.js", *about["shell"], "runtime/tokenizers.min.mjs"],
        "engine": ["engine/engine-relaxed.wasm"],
        "model": [about["models"]["wasm"]],
        "tokenizer": ["tokenizer.json"],
    }
    sizes = {name: sum((folder / file).stat().st_size for file in files) for name, files in parts.items()}
    print("\nbytes to load: " + ", ".join(f"{name} {size / 1e6:.2f} MB" for name, size in sizes.items()), end="")
    print(f"; together {sum(sizes.values()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
