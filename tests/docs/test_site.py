"""The documentation site in a real Chromium: tasks first, a picture at the top, light and dark, all of it local."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading

import pytest
from doc_pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the built site."""
    folder = tmp_path_factory.mktemp("site")
    # Without the model, whose export takes a minute: tests/export/test_web_page.py opens such a page.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "LITEBERT_WEB_RUNTIME": "none"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def page_at(browser, site):
    contexts, requests, troubles = [], [], []

    def open_page(name="index.html", width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda sent: requests.append(sent.url))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{site}/{name}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []
    assert [url for url in requests if not url.startswith((site, "data:", "blob:"))] == []


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_navigation_begins_with_what_people_want(page_at):
    page = page_at()
    tabs = page.locator(".md-tabs__link").all_inner_texts()
    assert tabs[:6] == ["Home", "Ask a model", "Fine-tune", "Pretrain", "Deploy", "Reproduce the paper"]
    cards = page.locator(".grid.cards li > p:first-child a")
    assert cards.all_inner_texts() == [
        *("classify, answer, search, fill masks", "fine-tune on my labels", "pretrain on my language"),
        *("deploy a model", "make it faster", "reproduce the paper"),
    ]
    for target in [card.get_attribute("href") for card in cards.all()]:
        assert page.request.get(f"{page.url.rsplit('/', 1)[0]}/{target}").ok


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_shows_a_picture_and_fits(page_at, width, scheme):
    page = page_at(width=width, scheme=scheme)
    pictures = page.locator(".hero img:visible")
    assert pictures.count() == 1
    assert ("dark" in pictures.first.get_attribute("src")) == (scheme == "dark")
    assert pictures.first.bounding_box()["y"] < 860
    assert pictures.first.evaluate("image => image.complete && image.naturalWidth > 500")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_colours_are_those_of_the_servers_page_and_the_button_switches_them(page_at):
    paper, night = "rgb(247, 247, 245)", "rgb(18, 20, 23)"  # --paper in src/litebert/colors.css
    page = page_at("prediction.html")
    assert background(page) == paper
    for _ in range(2):  # as the system -> light -> dark
        page.locator(".md-header__option label:visible").click()
    assert background(page) == night
    page.reload()
    assert background(page) == night  # it is remembered
    assert background(page_at("prediction.html", scheme="dark")) == night


def test_search_finds_a_page(page_at):
    page = page_at()
    page.locator(".md-search__input").press_sequentially("sentence order")  # the search listens to keys
    assert page.wait_for_selector(".md-search-result__item") is not None
