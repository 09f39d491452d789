"""The pictures of the README and the docs, taken in Chromium: the page with the built-in model, reports of runs.

python tools/pictures.py                (needs the serve extra, playwright and a Chromium)
python tools/pictures.py --curves       only the curves: those of the Korean run, and Figure 1
python tools/pictures.py --server       only the page of litebert serve, and the report of the default model's run
python tools/pictures.py --browser      only the page without a server (needs npm, or tests/export/web/node_modules)
"""

from __future__ import annotations

import argparse
import functools
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from litebert.export.web import export_web
from litebert.report import write_report
from litebert.serve.static import Handler

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
RUN = ROOT / "docs/results/default-model/fifth"  # the last that made the default model
KOREAN_RUN = ROOT / "docs/results/korean/first"
REPRODUCTION = ROOT / "docs/results/reproduction/gpu-minutes"
ADDRESS = "http://127.0.0.1:8765"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", action="store_true", help="only the curves")
    parser.add_argument("--server", action="store_true", help="only the page of litebert serve, and a report")
    parser.add_argument("--browser", action="store_true", help="only the page without a server")
    options = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    every = not (options.curves or options.server or options.browser)
    if every or options.browser:
        take_browser()
    if every or options.curves:
        take_curves()
    if every or options.server:
        take_server()


def take_server() -> None:
    """The page with the package's model and its adapters, and the report of the last run that made it."""
    server = subprocess.Popen([sys.executable, "-m", "litebert", "serve", "default", "--port", "8765"])
    try:
        with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1100, "height": 760})
            page.set_viewport_size({"width": 1100, "height": 1180})
            page.goto(f"file://{write_report([RUN], Path(folder) / 'report.html')}")
            page.screenshot(path=IMAGES / "report.png")
            page.set_viewport_size({"width": 1100, "height": 760})
            wait_for_server()
            for scheme, name in (("dark", "page-fill-mask-dark.png"), ("light", "page-fill-mask.png")):
                page.emulate_media(color_scheme=scheme)
                ask(page, "fill_mask", text="he studied law at the [MASK] of oxford and moved to [MASK] in 1920.")
                page.evaluate("scrollTo(0, 0)")
                page.screenshot(path=IMAGES / name)
            page.set_viewport_size({"width": 1100, "height": 900})
            ask(page, "coherence")
            page.screenshot(path=IMAGES / "page-coherence.png")
            page.set_viewport_size({"width": 1100, "height": 1170})
            ask(page, "embed")
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=IMAGES / "page-similarity.png")
            browser.close()
    finally:
        server.terminate()
        server.wait()


def take_browser(folder: Path | None = None) -> None:
    """The states of a sentence, computed in the tab; `folder`: an exported page that is there already."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        if folder is None:
            folder, modules = Path(scratch, "page"), ROOT / "tests/export/web/node_modules"
            export_web("default", folder, page=True, runtime=modules if modules.is_dir() else None)
        server = ThreadingHTTPServer(("127.0.0.1", 8766), functools.partial(Handler, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1150})
        page.goto("http://127.0.0.1:8766/#states")
        page.wait_for_selector("#states .meta", timeout=120_000)
        page.screenshot(path=IMAGES / "page-states.png")
        browser.close()
        server.shutdown()


def take_curves() -> None:
    """Accuracy of the Korean run on training and held-out text, and the paper's Figure 1, as the reports draw them."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1180})
        page.goto(f"file://{write_report([KOREAN_RUN], Path(folder) / 'report.html')}")
        page.locator(".row", has_text="Masked words, accuracy").screenshot(path=IMAGES / "korean-curves.png")
        copy = shutil.copytree(REPRODUCTION, Path(folder) / "reproduction")  # the page is written beside the results
        subprocess.run([sys.executable, "-m", "litebert", "report", str(copy)], check=True)
        page.goto(f"file://{copy / 'report.html'}")
        page.locator(".row", has_text="L2 distance by layer").screenshot(path=IMAGES / "figure1.png")
        browser.close()


def wait_for_server() -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{ADDRESS}/ready")
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not come up")


def ask(page: Page, ability: str, **fields: str) -> None:
    page.goto(f"{ADDRESS}/#{ability}")
    page.wait_for_selector(f"#{ability} .meta", timeout=60_000)
    for name, value in fields.items():
        page.fill(f'#{ability} [name="{name}"]', value)
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.click(f"#{ability} .go")
    page.wait_for_selector(f"#{ability} .result:not([aria-busy])")


if __name__ == "__main__":
    main()
